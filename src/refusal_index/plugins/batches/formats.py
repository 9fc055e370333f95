"""Formats of request files and result files: one line of JSON for each request or result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from refusal_index.data.text import sound_text
from refusal_index.errors import RefusalIndexError, shortened
from refusal_index.models.accounts import asked_as
from refusal_index.models.chat_api import (
    Json,
    chat_body,
    count_in,
    failure_in,
    read_chat,
    read_refused_prompt,
    status_in,
    text_in,
)
from refusal_index.models.failures import Failure, NoAnswerError, classify_error, describe_error
from refusal_index.models.requests import ModelRequest, Response
from refusal_index.models.sent import Sent, sent_in
from refusal_index.models.settings import Servers
from refusal_index.models.stop_reasons import stop_reason_of
from refusal_index.protocol import Role

PASSING_CODES = (
    "batch_expired",
    "batch_cancelled",
    "expired",
    "canceled",
    "cancelled",
    "overloaded_error",
    "api_error",
)
"""Error codes of requests that were not attempted or may be retried."""

STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
}
"""HTTP statuses of Anthropic's error types; its batch results omit the status."""

CODE = re.compile(r"[\w.:-]{1,80}", re.ASCII)
"""What a provider's error code may look like; anything else is not shown."""


class ResultError(RefusalIndexError, ValueError):
    """An invalid line in a result file; the line is skipped and reported."""


@dataclass(frozen=True, slots=True)
class RequestResult:
    """The result of a request: a response or a failure.

    Attributes
    ----------
    custom_id
        The id of the request.
    response, failure
        The response, or the reason why there is none.
    is_empty
        Whether the failure is a response without an answer, which may have been billed.
    """

    custom_id: str
    response: Response | None = None
    failure: Failure | None = None
    is_empty: bool = False


def in_batch(result: RequestResult) -> RequestResult:
    """Mark the response of a result as coming from a batch, which has its own prices."""
    if result.response is None:
        return result
    return replace(result, response=replace(result.response, in_batch=True))


class ProviderError(RefusalIndexError, RuntimeError):
    """An error that a provider reports in a result; never raised, only passed to `classify_error`."""

    def __init__(self, message: str, status: int | None, code: str, body: Any) -> None:
        super().__init__(message)
        self.status_code = status
        self.code = code
        self.type = code
        self.body = body


def provider_failure(error: Any, model: str, status: int | None = None) -> Failure:
    """Classify the error that a provider reports for a request.

    Parameters
    ----------
    error
        An object with a message and a code, a string, or None.
    model
        The name of the model.
    status
        The HTTP status of the response; None if there was none.

    Examples
    --------
    >>> provider_failure({"code": "batch_expired", "message": "too late"}, "openai/gpt-4.1").message
    'batch_expired: too late'
    """
    fields = error if isinstance(error, Mapping) else {"message": error} if isinstance(error, str) else {}
    fields = _inner_error(fields) or fields
    codes = [code for code in (fields.get("code"), fields.get("type")) if isinstance(code, str)]
    code = next(filter(CODE.fullmatch, codes), "")
    if not status:
        number = fields.get("code")
        status = number if isinstance(number, int) and 400 <= number < 600 else None
        if not isinstance(number, int):
            status = next((STATUSES[name] for name in codes if name in STATUSES), None)
    raised = ProviderError(str(fields.get("message") or ""), status, code, dict(fields) or None)
    line = describe_error(raised).removeprefix("ProviderError: ").removeprefix("ProviderError") or "no reason given"
    if code and code not in line:
        line = f"{code}: {line}"
    failure = classify_error(raised, line, model)
    return Failure(failure.message, model) if code in PASSING_CODES else failure


BAD_REQUEST = 400
MEGABYTE = 1_000_000

MAX_LINE = 64 << 20
"""Maximum bytes of a result line, far more than many long replies with log probabilities need."""

MAX_REPLY_TOKENS = 4096  # for graders, where the provider requires a limit


@dataclass(frozen=True)
class Format:
    """The format of a request file.

    Attributes
    ----------
    name
        The name of the format, which is that of its provider.
    line
        A function that makes a line from a request's id, the request and the provider's name for the model.
    most_requests, most_bytes
        Maximum number of requests and bytes in one file.
    gives_choices
        Whether one request may ask for several replies.
    leaves_out
        Settings that the provider does not support.
    """

    name: str
    line: Callable[[str, ModelRequest, str], Json]
    most_requests: int = 50_000
    most_bytes: int = 200 * MEGABYTE
    gives_choices: bool = True
    leaves_out: tuple[str, ...] = ()

    def sent(self, request: ModelRequest, model: str) -> Sent:
        """Return the decoding settings in the line of a request."""
        return sent_in(self.line("", request, model))

    def takes(self, requests: int, size: int) -> bool:
        """Whether one file may hold this many requests and bytes."""
        return requests <= self.most_requests and size <= self.most_bytes


def _chat_line(custom_id: str, request: ModelRequest, model: str, provider: str = "") -> Json:
    body = chat_body(request, model, provider)
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def _anthropic_line(custom_id: str, request: ModelRequest, model: str) -> Json:
    """Return the line of a request to Anthropic's Messages API.

    The API has no seed, and since October 2026 it rejects temperature and top-p for every model.
    """
    messages = request.request.messages
    decoding = request.decoding
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    effort = decoding.reasoning_effort if decoding else None
    params: Json = {
        "model": model,
        "max_tokens": decoding.max_tokens if decoding else MAX_REPLY_TOKENS,
        "messages": [
            {"role": message.role, "content": message.content} for message in messages if message.role != "system"
        ],
        **({"system": system} if system else {}),
    }
    if effort == "none":
        params["thinking"] = {"type": "disabled"}
    elif effort is not None:
        params["thinking"] = {"type": "adaptive"}
        params["output_config"] = {"effort": "low" if effort == "minimal" else effort}
    return {"custom_id": custom_id, "params": params}


FORMATS: Mapping[str, Format] = {
    format_.name: format_
    for format_ in (
        Format("openai", partial(_chat_line, provider="openai")),
        Format("compatible", _chat_line),
        Format(
            "anthropic", _anthropic_line, 100_000, 256 * MEGABYTE, False, ("temperature", "top_p", "seed", "logprobs")
        ),
    )
}
"""All formats, by name."""


def format_of(provider: str) -> Format:
    """Return the request-file format of a provider.

    Examples
    --------
    >>> format_of("anthropic").name, format_of("vllm").name
    ('anthropic', 'compatible')
    """
    return FORMATS.get(provider, FORMATS["compatible"])


def is_singly(servers: Servers, names: Mapping[Role, str], style: str | None = None) -> bool:
    """Whether each draw needs a separate request because the provider returns one reply per request.

    Parameters
    ----------
    servers, names
        The servers of the run, and the model names, by role; graders are always asked for one reply at a time.
    style
        The name of a format; None for that of the model's provider.

    Examples
    --------
    >>> [is_singly(Servers(), {Role.MODEL: name}) for name in ("anthropic/claude-sonnet-4-0", "openai/gpt-4.1")]
    [True, False]
    """
    model = names.get(Role.MODEL)
    if model is None:
        return False
    provider, _ = asked_as(servers, Role.MODEL, model)
    return not (FORMATS[style] if style else format_of(provider)).gives_choices


def to_line(custom_id: str, request: ModelRequest, style: Format, model: str) -> str:
    """Return the line of a request in a request file, without the line break."""
    line = style.line(custom_id, request, model)
    return sound_text(json.dumps(line, ensure_ascii=False, separators=(",", ":")))


def read_result(document: Any, model: str = "the provider") -> RequestResult:
    """Parse a line of a result file, in any of the formats.

    Parameters
    ----------
    document
        The parsed JSON of the line.
    model
        The name of the model, for messages about failures.

    Raises
    ------
    ResultError
        If the line holds no result; the message says what was expected.

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
        response = _read_anthropic(document["result"], model) if "result" in document else _read_openai(document, model)
    except NoAnswerError as error:
        return RequestResult(name, failure=provider_failure(str(error), model), is_empty=True)
    return RequestResult(name, failure=response) if isinstance(response, Failure) else RequestResult(name, response)


def _read_openai(document: Mapping[str, Any], model: str) -> Response | Failure:
    """Parse a result of OpenAI or vLLM; a status of 400 or more is a failure even without an error."""
    response = document.get("response")
    error = document.get("error")
    if not isinstance(response, Mapping):
        if not error:
            raise ResultError("expected a response or an error, found neither")
        return provider_failure(error, model)
    status = response.get("status_code")
    body = response.get("body")
    status = status if isinstance(status, int) else None
    if error or (status or 200) >= 400:
        failed = error or body
        if status == BAD_REQUEST and (refused := read_refused_prompt(_inner_error(failed) or failed)) is not None:
            return refused
        return provider_failure(failed, model, status)
    failed = failure_in(body)
    if failed is not None:
        return provider_failure(failed, model, status_in(failed, body))
    return read_chat(body)


def _inner_error(body: Any) -> Mapping[str, Any] | None:
    """Return the ``error`` object inside a body; None if there is none."""
    error = body.get("error") if isinstance(body, Mapping) else None
    return error if isinstance(error, Mapping) else None


def _read_anthropic(result: Any, model: str) -> Response | Failure:
    if not isinstance(result, Mapping):
        raise ResultError(f"expected a result that is an object, got {shortened(result)}")
    kind = str(result.get("type"))
    if kind != "succeeded":
        return provider_failure(result.get("error") or {"code": kind, "message": f"the request was {kind}"}, model)
    return read_anthropic(result.get("message"))


def read_anthropic(message: Any) -> Response:
    """Return the response in an Anthropic message.

    Raises
    ------
    NoAnswerError
        If the message has no content, its text blocks hold no text, or an error ended it.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), list):
        raise NoAnswerError("the response holds no content")
    parts = [part for part in message["content"] if isinstance(part, Mapping) and part.get("type") == "text"]
    text = text_in(parts)
    if parts and text is None:
        raise NoAnswerError("the response holds no text")
    reason = stop_reason_of(message.get("stop_reason"))
    usage = message.get("usage")
    counts = usage if isinstance(usage, Mapping) else {}
    return Response(
        [(text or "", reason)],
        count_in(counts.get("input_tokens")),
        count_in(counts.get("output_tokens")),
        answered_by=message.get("model"),
    )
