"""Between Inspect and a provider: keys stay out of errors, and a response without a reply is one.

Inspect would keep a response without choices in its cache, where it would answer every later attempt.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable
from typing import Any

from inspect_ai.model import ModelAPI

SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)$")
SHORTEST = 6  # a shorter value would black out ordinary text
BLACKED_OUT = "[key]"


class EmptyResponseError(RuntimeError):
    """A provider's response without a single choice in it."""


def black_out(text: str, secrets: tuple[str, ...]) -> str:
    """Return `text` with every secret in it replaced.

    Examples
    --------
    >>> black_out("Incorrect API key provided: sk-12345", ("sk-12345",))
    'Incorrect API key provided: [key]'
    """
    for secret in secrets:
        text = text.replace(secret, BLACKED_OUT)
    return text


def known_secrets(api: ModelAPI) -> tuple[str, ...]:
    """Return the key of `api` and everything in the environment that is named like one, the longest first."""
    named = {value for name, value in os.environ.items() if SECRET_NAME.search(name)}
    own = {api.api_key} if api.api_key else set()
    return tuple(sorted((value for value in named | own if len(value) >= SHORTEST), key=len, reverse=True))


def guard(api: ModelAPI) -> None:
    """Make `api` black out secrets in the errors that it raises or returns, and refuse empty responses.

    The errors keep their types, which decide whether a request is sent again.
    """
    secrets = known_secrets(api)
    generate: Callable[..., Awaitable[Any]] = api.generate

    async def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            result = await generate(*args, **kwargs)
        except Exception as error:
            _clean(error, secrets)
            raise
        output = result[0] if isinstance(result, tuple) else result
        if isinstance(output, Exception):
            _clean(output, secrets)
            result[1].response = json.loads(black_out(json.dumps(result[1].response, default=str), secrets))
        elif not output.choices:
            raise EmptyResponseError("the response holds no choices")
        return result

    setattr(api, "generate", guarded)  # noqa: B010 - a plain assignment to a method is an error to the type checker


def _clean(error: BaseException | None, secrets: tuple[str, ...]) -> None:
    """Black out secrets in an error, and in those that led to it."""
    while error is not None:
        error.args = tuple(black_out(part, secrets) if isinstance(part, str) else part for part in error.args)
        for name in ("message", "body"):
            value = getattr(error, name, None)
            if value is not None:
                setattr(error, name, black_out(str(value), secrets))
        error = error.__cause__ or error.__context__
