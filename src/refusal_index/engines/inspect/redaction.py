"""Between Inspect and a provider: keys stay out of errors, and a response without a reply is one.

Inspect would keep a response without choices in its cache, where it would answer every later attempt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from inspect_ai.model import ModelAPI

from refusal_index.engines.failures import causes
from refusal_index.engines.inspect.multi_choice import packed
from refusal_index.errors import RefusalIndexError

SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)$")
SHORTEST = 6  # a shorter value would black out ordinary text
BLACKED_OUT = "[key]"

_guarded: WeakSet[ModelAPI] = WeakSet()


class EmptyResponseError(RefusalIndexError, RuntimeError):
    """A provider's response without a single choice in it."""


def black_out(value: Any, secrets: tuple[str, ...]) -> Any:
    """Return `value` with every secret in its texts replaced; what is neither text nor a collection stays as it is.

    Examples
    --------
    >>> black_out({"message": "Incorrect API key provided: sk-12345", "code": 401}, ("sk-12345",))
    {'message': 'Incorrect API key provided: [key]', 'code': 401}
    """
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, BLACKED_OUT)
        return value
    if isinstance(value, dict):
        return {black_out(key, secrets): black_out(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = (black_out(item, secrets) for item in value)
        return list(items) if isinstance(value, list) else tuple(items)
    return value


def known_secrets(api: ModelAPI) -> tuple[str, ...]:
    """Return the key of `api` and everything in the environment that is named like one, the longest first."""
    named = {value for name, value in os.environ.items() if SECRET_NAME.search(name)}
    own = {api.api_key} if api.api_key else set()
    return tuple(sorted((value for value in named | own if len(value) >= SHORTEST), key=len, reverse=True))


def guard(api: ModelAPI) -> None:
    """Make `api` black out secrets in the errors that it raises or returns, refuse empty responses, pack full ones.

    The errors keep their types and the shape of their bodies, which decide whether a request is sent again. An `api`
    that is guarded already stays as it is.
    """
    if api in _guarded:
        return
    _guarded.add(api)
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
            result[1].response = black_out(result[1].response, secrets)
        elif not output.choices:
            raise EmptyResponseError("the response holds no choices")
        else:
            output = packed(output)
        return (output, *result[1:]) if isinstance(result, tuple) else output

    setattr(api, "generate", guarded)  # noqa: B010 - a plain assignment to a method is an error to the type checker


def _clean(error: BaseException | None, secrets: tuple[str, ...]) -> None:
    """Black out secrets in an error, and in those that led to it."""
    for cause in causes(error):
        cause.args = black_out(cause.args, secrets)
        for name in ("message", "body"):
            if isinstance(value := getattr(cause, name, None), str | dict | list):
                with suppress(AttributeError):  # an error may make it of its arguments, which are clean
                    setattr(cause, name, black_out(value, secrets))
