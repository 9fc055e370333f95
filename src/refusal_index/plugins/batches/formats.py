"""Request files and result files as pure functions: one line of JSON for each request and result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from refusal_index.data.errors import shortened
from refusal_index.data.text import sound_text
from refusal_index.errors import RefusalIndexError
from refusal_index.models.chat_api import chat_body, count_in, read_chat, read_refused_prompt, text_in
from refusal_index.models.failures import Failure, NoAnswerError, classify_error, describe_error
from refusal_index.models.requests import ModelRequest, Response
from refusal_index.plugins.batches.wave import Pending
from refusal_index.protocol import Role, StopReason

PASSING_CODES = (
    "batch_expired",
    "batch_cancelled",
    "expired",
    "canceled",
    "cancelled",
    "overloaded_error",
    "api_error",
)
"""What providers say of requests that were not even tried, or may be tried again."""


STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
}
"""The status that a response would have had, by what Anthropic says of a request in a batch instead."""

CODE = re.compile(r"[\w.:-]{1,80}", re.ASCII)
"""What a provider's word for what went wrong looks like; anything else is not shown."""


class ResultError(RefusalIndexError, ValueError):
    """A result that cannot be read; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came back for a request: one of the two is there.

    Attributes
    ----------
    custom_id
        Of the request.
    response
        What was answered.
    failure
        What it failed for.
    is_empty
        Whether that is a response without an answer, which may have been paid for.
    """

    custom_id: str
    response: Response | None = None
    failure: Failure | None = None
    is_empty: bool = False


def in_batch(result: Result) -> Result:
    """Return a result as of a provider's batch."""
    if result.response is None:
        return result
    return replace(result, response=replace(result.response, in_batch=True))


class ProviderError(RefusalIndexError, RuntimeError):
    """What a provider says of a request that failed, with the names that errors of clients have."""

    def __init__(self, message: str, status: int | None, code: str, body: Any) -> None:
        super().__init__(message)
        self.status_code, self.code, self.type, self.body = status, code, code, body


def failed(custom_id: str, model: str, error: Any, status: int | None = None) -> Result:
    """Return the result of a request that failed.

    Parameters
    ----------
    custom_id, model
        Of the request, and who was asked.
    error
        What the provider says: an object with a message and a code, a text, or nothing.
    status
        Of the response; None where there was none.

    Examples
    --------
    >>> failed("ri-1", "openai/gpt-4.1", {"code": "batch_expired", "message": "too late"}).failure.message
    'batch_expired: too late'
    """
    named = error if isinstance(error, Mapping) else {"message": error} if isinstance(error, str) else {}
    inner = named.get("error")
    named = inner if isinstance(inner, Mapping) else named
    told_codes = (named.get(name) for name in ("code", "type"))
    code = next((one for one in told_codes if isinstance(one, str) and CODE.fullmatch(one)), "")
    status = status or _status_in(named)
    raised = ProviderError(str(named.get("message") or ""), status, code, dict(named) or None)
    line = describe_error(raised).removeprefix("ProviderError: ").removeprefix("ProviderError") or "no reason given"
    if code and code not in line:
        line = f"{code}: {line}"
    failure = classify_error(raised, line, model)
    if code in PASSING_CODES:
        failure = Failure(failure.message, model)
    return Result(custom_id, failure=failure)


def _status_in(error: Mapping[str, Any]) -> int | None:
    """Return the status that an error names in its own way; None where it names none."""
    code = error.get("code")
    if isinstance(code, int):
        return code if 400 <= code < 600 else None
    named = (error.get(name) for name in ("code", "type"))
    return next((STATUSES[one] for one in named if isinstance(one, str) and one in STATUSES), None)


Json = dict[str, Any]

URL = "/v1/chat/completions"
BAD_REQUEST = 400
MEGABYTE = 1_000_000
LONGEST_REPLY = 4096  # of a model that grades, where a provider wants to be told


@dataclass(frozen=True)
class Format:
    """How requests stand in a file.

    Attributes
    ----------
    name
        Of whose format it is.
    line
        From the id of a request, what it asks and what the model is called to the line that holds it.
    most_requests, most_bytes
        In one file.
    gives_choices
        Whether one request may ask for several replies.
    leaves_out
        What of a run's settings the provider takes no word of.
    """

    name: str
    line: Callable[[str, ModelRequest, str], Json]
    most_requests: int = 50_000
    most_bytes: int = 200 * MEGABYTE
    gives_choices: bool = True
    leaves_out: tuple[str, ...] = ()

    def takes(self, requests: int, size: int) -> bool:
        """Whether so many requests, and bytes, may stand in one file."""
        return requests <= self.most_requests and size <= self.most_bytes


def _openai(custom_id: str, ask: ModelRequest, model: str) -> Json:
    return {"custom_id": custom_id, "method": "POST", "url": URL, "body": chat_body(ask, model, "openai")}


def _compatible(custom_id: str, ask: ModelRequest, model: str) -> Json:
    return {"custom_id": custom_id, "method": "POST", "url": URL, "body": chat_body(ask, model)}


def _anthropic(custom_id: str, ask: ModelRequest, model: str) -> Json:
    return {"custom_id": custom_id, "params": anthropic_params(ask, model)}


def anthropic_params(ask: ModelRequest, model: str) -> Json:
    """Return a request as Anthropic's Messages API takes it.

    It knows no seed, and since its version of October 2026 refuses temperature and top-p for every model.
    """
    messages = [{"role": one.role, "content": one.content} for one in ask.request.messages if one.role != "system"]
    system = "\n\n".join(one.content for one in ask.request.messages if one.role == "system")
    decoding = ask.decoding
    return {
        "model": model,
        "max_tokens": decoding.max_tokens if decoding else LONGEST_REPLY,
        "messages": messages,
        **({"system": system} if system else {}),
        **_anthropic_effort(decoding.reasoning_effort if decoding else None),
    }


def _anthropic_effort(effort: str | None) -> Json:
    if effort is None:
        return {}
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low" if effort == "minimal" else effort}}


FORMATS: Mapping[str, Format] = {
    one.name: one
    for one in (
        Format("openai", _openai),
        Format("compatible", _compatible),
        Format("anthropic", _anthropic, 100_000, 256 * MEGABYTE, False, ("temperature", "top_p", "seed", "logprobs")),
    )
}
"""Every format by its name."""


def format_of(name: str) -> Format:
    """Return the format that the provider of a model takes.

    Examples
    --------
    >>> format_of("anthropic/claude-sonnet-4-0").name, format_of("vllm/any").name
    ('anthropic', 'compatible')
    """
    return FORMATS.get(name.partition("/")[0], FORMATS["compatible"])


def is_singly(names: Mapping[Role, str], style: str | None = None) -> bool:
    """Whether each draw takes a request of its own, as where the model's provider gives one reply at a time.

    Parameters
    ----------
    names
        Who is asked; of those that grade no draws are.
    style
        The format; None for what the model's provider takes.

    Examples
    --------
    >>> is_singly({Role.MODEL: "anthropic/claude-sonnet-4-0"}), is_singly({Role.MODEL: "openai/gpt-4.1"})
    (True, False)
    """
    model = names.get(Role.MODEL)
    return model is not None and not (FORMATS[style] if style else format_of(model)).gives_choices


def written(pending: Pending, style: Format, model: str) -> str:
    """Return the line of a request, without the end of the line."""
    line = style.line(pending.custom_id, pending.ask, model)
    return sound_text(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


def read_result(document: Any, model: str = "the provider") -> Result:
    """Return the result that a line holds, in whichever format it is.

    Parameters
    ----------
    document
        The line's JSON.
    model
        Who was asked, for what is said of failures.

    Raises
    ------
    ResultError
        If it is no result: the message says what was expected.

    Examples
    --------
    >>> read_result({"custom_id": "ri-1", "response": {"status_code": 400, "body": {}}, "error": None}).failure.kind
    <FailureKind.REQUEST: 1>
    """
    if not isinstance(document, Mapping):
        raise ResultError(f"expected a JSON object, got {shortened(document)}")
    name = document.get("custom_id")
    if not isinstance(name, str) or not name:
        raise ResultError(f"expected a custom_id that is text, got {shortened(name)}")
    try:
        if "result" in document:
            return _read_anthropic(name, document["result"], model)
        return _read_openai(name, document, model)
    except NoAnswerError as error:
        return replace(failed(name, model, str(error)), is_empty=True)


def _read_openai(name: str, document: Mapping[str, Any], model: str) -> Result:
    """Read a result of OpenAI's or vLLM's: a status of 400 and above is a failure without an error, too."""
    response, error = document.get("response"), document.get("error")
    if not isinstance(response, Mapping):
        if not error:
            raise ResultError("expected a response or an error, found neither")
        return failed(name, model, error)
    status, body = response.get("status_code"), response.get("body")
    status = status if isinstance(status, int) else None
    if error or (status or 200) >= 400:
        refused = read_refused_prompt(_error_in(error or body)) if status == BAD_REQUEST else None
        return failed(name, model, error or body, status) if refused is None else Result(name, refused)
    if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping) and not body.get("choices"):
        return failed(name, model, body, status if status != 200 else 502)
    return Result(name, read_chat(body))


def _error_in(body: Any) -> Any:
    """Return the error itself, wherever a provider has it: within an object, or as the object."""
    return body["error"] if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping) else body


ANTHROPIC_STOPS = {
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "refusal": StopReason.CONTENT_FILTER,
    "tool_use": StopReason.TOOL_CALL,
}


def _read_anthropic(name: str, result: Any, model: str) -> Result:
    if not isinstance(result, Mapping):
        raise ResultError(f"expected a result that is an object, got {shortened(result)}")
    if result.get("type") != "succeeded":
        kind = str(result.get("type"))
        return failed(name, model, result.get("error") or {"code": kind, "message": f"the request was {kind}"})
    return Result(name, read_anthropic(result.get("message")))


def read_anthropic(message: Any) -> Response:
    """Return the response that a message of Anthropic's holds.

    Raises
    ------
    NoAnswerError
        If there is none in it, or a part for text that holds none.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), list):
        raise NoAnswerError("the response holds no content")
    parts = [one for one in message["content"] if isinstance(one, Mapping) and one.get("type") == "text"]
    text = text_in(parts)
    if parts and text is None:
        raise NoAnswerError("the response holds no text")
    reason = ANTHROPIC_STOPS.get(str(message.get("stop_reason")), StopReason.STOP)
    usage = message.get("usage")
    counts = usage if isinstance(usage, Mapping) else {}
    return Response([(text or "", reason)], count_in(counts.get("input_tokens")), count_in(counts.get("output_tokens")))
