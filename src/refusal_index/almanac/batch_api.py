"""OpenAI's files and batches over HTTP: what a client sees of the store and of the batches."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from typing import TypeVar

from aiohttp import web

from refusal_index.almanac.batches import MAX_FILE_SIZE, Batch, Batches, FileStore, StoredFile, parse_batch_request
from refusal_index.almanac.chat_api import Json
from refusal_index.almanac.errors import RequestError
from refusal_index.almanac.request_bodies import Form, read_form, read_json, too_large
from refusal_index.almanac.request_log import noted

Listed = TypeVar("Listed", StoredFile, Batch)

_MOST_LISTED, _LISTED = 100, 20


class BatchApi:
    """The handlers.

    Parameters
    ----------
    files
        What was brought and made.
    batches
        What is under way.
    """

    def __init__(self, files: FileStore, batches: Batches) -> None:
        self._files, self._batches = files, batches

    def routes(self) -> list[web.RouteDef]:
        """Return where each handler is."""
        return [
            web.post("/v1/files", self.upload),
            web.get("/v1/files", self.list_files),
            web.get("/v1/files/{id}", self.file),
            web.get("/v1/files/{id}/content", self.content),
            web.delete("/v1/files/{id}", self.delete),
            web.post("/v1/batches", self.start),
            web.get("/v1/batches", self.list_batches),
            web.get("/v1/batches/{id}", self.batch),
            web.post("/v1/batches/{id}/cancel", self.cancel),
        ]

    async def upload(self, request: web.Request) -> web.Response:
        """Take a file."""
        async with read_form(request, MAX_FILE_SIZE) as form:
            given = _given_file(form)
            if given.file.seek(0, os.SEEK_END) > MAX_FILE_SIZE:
                raise too_large(MAX_FILE_SIZE)
            given.file.seek(0)
            path = self._files.new_path()
            with path.open("xb") as file:
                await asyncio.to_thread(shutil.copyfileobj, given.file, file)
        return web.json_response(self._files.add(path, given.filename, "batch").document())

    async def list_files(self, request: web.Request) -> web.Response:
        """List the files, the newest first."""
        purpose = request.query.get("purpose")
        return _page(request, [one for one in self._files if purpose in (None, one.purpose)], most=10_000)

    async def file(self, request: web.Request) -> web.Response:
        """Tell of a file."""
        return web.json_response(self._files.get(request.match_info["id"]).document())

    async def content(self, request: web.Request) -> web.FileResponse:
        """Give what is in a file."""
        path = self._files.get(request.match_info["id"]).path
        return web.FileResponse(path, headers={"Content-Type": "application/jsonl"})

    async def delete(self, request: web.Request) -> web.Response:
        """Forget a file."""
        identity = request.match_info["id"]
        self._files.delete(identity)
        return web.json_response({"id": identity, "object": "file", "deleted": True})

    async def start(self, request: web.Request) -> web.Response:
        """Begin a batch."""
        batch = self._batches.start(parse_batch_request(await read_json(request)))
        noted().update(batch=batch.id)
        return web.json_response(batch.document())

    async def list_batches(self, request: web.Request) -> web.Response:
        """List the batches, the newest first."""
        return _page(request, list(self._batches))

    async def batch(self, request: web.Request) -> web.Response:
        """Tell of a batch."""
        return web.json_response(self._batches.get(request.match_info["id"]).document())

    async def cancel(self, request: web.Request) -> web.Response:
        """Let a batch end early."""
        return web.json_response(self._batches.cancel(request.match_info["id"]).document())


def _given_file(form: Form) -> web.FileField:
    purpose, file = form.get("purpose"), form.get("file")
    if purpose != "batch":
        raise RequestError("'purpose' must be 'batch'", param="purpose")
    if not isinstance(file, web.FileField):
        raise RequestError("'file' must be a file", param="file")
    others = sorted(form.keys() - {"purpose", "file"})
    if others:
        told = f"'{others[0]}' is not supported by this server"
        raise RequestError(told, param=others[0], code="unsupported_parameter")
    return file


def _page(request: web.Request, oldest_first: Sequence[Listed], most: int = _MOST_LISTED) -> web.Response:
    """Return a part of a list, the newest first, after the id that the request names."""
    newest_first = oldest_first[::-1]
    after = request.query.get("after")
    start = 0
    if after is not None:
        start = next((place for place, one in enumerate(newest_first, start=1) if one.id == after), -1)
        if start < 0:
            raise RequestError(f"'after' must be the id of one of the list, found '{after}'", param="after")
    limit = _limit(request, most)
    shown = [one.document() for one in newest_first[start : start + limit]]
    return web.json_response(_list(shown, has_more=start + limit < len(newest_first)))


def _list(shown: Sequence[Json], *, has_more: bool) -> Json:
    ends = {"first_id": shown[0]["id"], "last_id": shown[-1]["id"]} if shown else {"first_id": None, "last_id": None}
    return {"object": "list", "data": shown, **ends, "has_more": has_more}


def _limit(request: web.Request, most: int) -> int:
    given = request.query.get("limit", str(_LISTED if most == _MOST_LISTED else most))
    if not (given.isascii() and given.isdigit() and len(given) < 10 and 1 <= int(given) <= most):
        raise RequestError(f"'limit' must be a whole number from 1 to {most}, found '{given}'", param="limit")
    return int(given)
