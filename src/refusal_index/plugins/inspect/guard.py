"""What stands between Inspect and a provider: no key reaches a log, and an empty response is an error.

Inspect also traces every request, with its address, in a folder of the user's; keys are redacted there, too.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from logging import LogRecord, getLogger
from typing import Any

from inspect_ai.model import Model, ModelAPI, ModelCall, ModelOutput
from pydantic import ValidationError

from refusal_index.models.chat_api import receive
from refusal_index.models.failures import NoAnswerError, UnreadableReplyError, causes, describe_error
from refusal_index.plugins.inspect import PrerequisiteError, hooks
from refusal_index.plugins.inspect.multi_choice import packed, places_without_answer, without_logprobs
from refusal_index.redaction import redacted, redacted_in, remember, remember_named, secrets_in_url


def clean_trace() -> None:
    """Let no key into what Inspect traces of requests, from here on."""
    getLogger(hooks.__name__).addFilter(_clean_record)


def _clean_record(record: LogRecord) -> bool:
    record.msg, record.args = redacted(record.getMessage()), ()
    return True


STYLED = re.compile(r"(?s)\[(bold|dim|italic|underline|black|red|green|yellow|blue|magenta|cyan|white)\](.*?)\[/\1\]")
"""Words in a style of Rich's; every other bracket is a part of some name."""


UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValidationError)
"""What Inspect raises while it parses a response that it did not expect."""


def guard(api: ModelAPI) -> None:
    """Make `api` keep keys out of what it raises or returns, refuse empty responses, and pack full ones.

    The errors keep their types and the shape of their bodies, which decide whether a request is sent again. An `api`
    that is guarded already stays as it is, as does a copy of one.
    """
    generate: Callable[..., Awaitable[Any]] = api.generate
    if hasattr(generate, "guards"):
        return
    remember(api.api_key, *secrets_in_url(str(getattr(api, "base_url", None) or "")))
    clean_trace()
    client = getattr(api, "http_client", None) or getattr(getattr(api, "client", None), "_client", None)
    if hooks := getattr(client, "event_hooks", None):
        hooks["response"].append(receive)

    async def generate_guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            result = await generate(*args, **kwargs)
        except UNREADABLE as error:
            _clean_error(error)
            raise UnreadableReplyError(f"the reply cannot be read: {describe_error(error)}") from error
        except Exception as error:
            _clean_error(error)
            raise
        output, call = result if isinstance(result, tuple) else (result, None)
        _clean_call(call)
        if isinstance(output, Exception):
            _clean_error(output)
        else:
            output = _clean_output(_with_answers(output, call))
        return (output, call) if isinstance(result, tuple) else output

    generate_guarded.guards = api  # type: ignore[attr-defined]
    setattr(api, "generate", generate_guarded)  # noqa: B010 - a plain assignment to a method is an error to the type checker


def _with_answers(output: ModelOutput, call: ModelCall | None) -> ModelOutput:
    """Return an output packed, once there is an answer in it."""
    if not output.choices:
        raise NoAnswerError("the response holds no choices")
    without = places_without_answer(call.response if call is not None else None)
    if without.issuperset(range(len(output.choices))):
        raise NoAnswerError("the response holds no text")
    return packed(output, without)


def guarded(model: Model) -> Model:
    """Guard a model that a user made, and know the keys among its arguments and headers."""
    guard(model.api)
    remember_named({"arguments": model.model_args, "config": model.config.model_dump()})
    return model


def _clean_error(error: BaseException | None) -> None:
    """Keep keys out of an error, and of those that led to it."""
    for cause in causes(error):
        cause.args = redacted_in((unstyled(cause),) if isinstance(cause, PrerequisiteError) else cause.args)
        for name in ("message", "body"):
            if isinstance(value := getattr(cause, name, None), str | dict | list):
                with suppress(AttributeError):  # an error may make it of its arguments, which are clean
                    setattr(cause, name, redacted_in(value))


def unstyled(error: PrerequisiteError) -> str:
    """Return what Inspect wants done first without the styles that it sets for its own display, pair by pair.

    >>> unstyled(PrerequisiteError("[bold]ERROR[/bold]: No [bold][blue]A_KEY[/blue][/bold] defined for x[red]-9"))
    'No A_KEY defined for x[red]-9'
    """
    message = str(error)
    while (plain := STYLED.sub(r"\2", message)) != message:
        message = plain
    return message.removeprefix("ERROR:").strip()


def _clean_output(output: ModelOutput) -> ModelOutput:
    """Return an output without keys, the same where there are none, as nearly always.

    The tokens of one that had any go: they would tell the key in pieces.
    """
    held = output.model_dump()
    clean = redacted_in(held)
    return output if clean == held else without_logprobs(ModelOutput.model_validate(clean))


def _clean_call(call: ModelCall | None) -> None:
    if call is not None:
        call.request, call.response = redacted_in(call.request), redacted_in(call.response)
