"""Bodies of requests as they come over the wire, of clients that send them in time and in bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from refusal_index.almanac.errors import RequestError

Form = dict[str, "str | web.FileField"]

PATIENCE = 60.0
"""Seconds in which the body of a chat request must come; a file may take ten times as long."""

_FORM_MARGIN = 1 << 16  # what a form may hold beside its file


async def read_json(request: web.Request) -> object:
    """Read a body of JSON.

    Raises RequestError if it is none, HTTPRequestTimeout if it takes longer than `PATIENCE` seconds to come.
    """
    async with _within(PATIENCE):
        raw = await request.read()
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error


@asynccontextmanager
async def read_form(request: web.Request, most: int) -> AsyncIterator[Form]:
    """Read a form whose file may have `most` bytes; large files wait on the disk, and are gone when the block ends.

    Raises RequestError if it is no form or the file is larger, HTTPRequestTimeout as `read_json`.
    """
    try:
        async with _within(10 * PATIENCE):
            form = await _form(request, most + _FORM_MARGIN)
    except web.HTTPRequestEntityTooLarge as error:
        raise too_large(most) from error
    except ValueError as error:
        raise RequestError(f"the body is not a valid form: {error}") from error
    try:
        yield form
    finally:
        for value in form.values():
            if isinstance(value, web.FileField):
                value.file.close()


def too_large(most: int) -> RequestError:
    """Return the error that tells of a file with more than `most` bytes."""
    return RequestError(f"a file may have at most {most:,} bytes; split it", param="file", status=413)


async def _form(request: web.Request, most: int) -> Form:
    announced = request.content_length or 0
    if announced > most:  # told before anything is read
        raise web.HTTPRequestEntityTooLarge(most, announced)
    posted = await request.clone(client_max_size=most).post()
    return {name: value for name, value in posted.items() if isinstance(value, str | web.FileField)}


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(reason=f"the body did not come within {seconds:g} s") from error
