"""OpenAI's chat API: writing request bodies, reading response bodies, and normalising irregular responses.

HTTP clients and batch files share this code, so that both send and read the same bodies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from refusal_index.models.failures import ORIGINAL_STATUS, NoAnswerError, UnreadableReplyError, message_in
from refusal_index.models.redirects import check_redirect
from refusal_index.models.requests import OPENAI, ModelRequest, Response
from refusal_index.models.stop_reasons import stop_reason_of
from refusal_index.protocol import StopReason, TokenLogprob, write_logprobs
from refusal_index.redaction import redacted_error

Json = dict[str, Any]


REASONING_MODELS = re.compile(r"(o\d|gpt-5(?!-chat))")
"""OpenAI models that accept no temperature, and count reasoning tokens as part of a reply."""


TEXTS = ("content", "refusal")


REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking")
"""Fields of a message that hold a model's reasoning."""


REASONING_PARTS = ("thinking", "redacted_thinking", "reasoning")
"""Types of parts of a message's content that hold a model's reasoning."""


REFUSED_PROMPTS = {
    "context_length_exceeded": StopReason.LENGTH,
    **dict.fromkeys(
        ("content_filter", "content_policy_violation", "invalid_prompt", "bio_policy", "cyber_policy"),
        StopReason.CONTENT_FILTER,
    ),
}
"""Error codes of rejected prompts, with the stop reason of the reply: sending these prompts again would not help."""


STOP_NOTE = "refusal_index_stop"
"""Field of a normalised choice with our stop reason, as OpenAI's types allow no other finish reasons than its own."""


FILTERED_NOTE = "refusal_index_filtered"
"""Field of a body from which a key of the run was removed."""


FINISH_REASONS = {
    StopReason.LENGTH: "length",
    StopReason.TOOL_CALL: "tool_calls",
    StopReason.CONTENT_FILTER: "content_filter",
}
"""OpenAI's finish reasons; the others become "stop"."""


def rejects_sampling(provider: str, model: str) -> bool:
    """Whether a model of OpenAI rejects temperature and top-p.

    Examples
    --------
    >>> rejects_sampling("openai", "o3"), rejects_sampling("openai", "gpt-4.1"), rejects_sampling("vllm", "o3")
    (True, False, False)
    """
    return provider == OPENAI and REASONING_MODELS.match(model) is not None


def chat_body(request: ModelRequest, model: str, provider: str = "") -> Json:
    """Return the body of a request to ``/v1/chat/completions``.

    Parameters
    ----------
    request
        The request, with its decoding parameters.
    model, provider
        The server's name for the model, and the provider: OpenAI itself uses other names for some fields.
    """
    body: Json = {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in request.request.messages],
        "seed": request.seed,
    }
    if request.decoding is not None:
        at_openai = provider == OPENAI
        if not rejects_sampling(provider, model):
            body |= {"temperature": request.decoding.temperature, "top_p": request.decoding.top_p}
        body["max_completion_tokens" if at_openai else "max_tokens"] = request.decoding.max_tokens
        if request.decoding.reasoning_effort is not None:
            body["reasoning_effort"] = request.decoding.reasoning_effort
    if request.n > 1:
        body["n"] = request.n
    if request.top_logprobs is not None:
        body["logprobs"] = True
        if request.top_logprobs:
            body["top_logprobs"] = request.top_logprobs
    return body


def read_chat(body: Any, seconds: float | None = None) -> Response:
    """Return the response in the body of a chat completion.

    Parameters
    ----------
    body
        The untrusted body as received.
    seconds
        Duration of the request, if known.

    Raises
    ------
    NoAnswerError
        If it contains an error or no choices, or each choice was ended by an error.

    Examples
    --------
    >>> read_chat({"choices": [{"message": {"content": "Lima"}, "finish_reason": "stop"}]}).replies
    [('Lima', <StopReason.STOP: 'stop'>)]
    """
    choices = choices_in(body)
    failure = failure_in(body)
    if failure is not None:
        reason = failure if isinstance(failure, str) else message_in(failure)
        raise NoAnswerError(f"the response holds an error: {reason or 'no reason given'}")
    if not choices:
        raise NoAnswerError("the response holds no choices")
    usage = body.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    return Response(
        [reply_of(choice) for choice in choices],
        count_in(usage.get("prompt_tokens")),
        count_in(usage.get("completion_tokens")),
        seconds,
        [_logprobs(choice) for choice in choices],
        is_filtered=bool(body.get(FILTERED_NOTE)),
        answered_by=body.get("model"),
    )


def read_refused_prompt(error: Any, seconds: float | None = None) -> Response | None:
    """Return an error 400 as a response, if the prompt was filtered or is too long for the model.

    Parameters
    ----------
    error, seconds
        The error object in the body, and the duration of the request.

    Returns
    -------
    Response or None
        None for any other error.

    Examples
    --------
    >>> read_refused_prompt({"message": "too long", "code": "context_length_exceeded"}).replies
    [('too long', <StopReason.LENGTH: 'length'>)]
    """
    code = error.get("code") if isinstance(error, Mapping) else None
    reason = REFUSED_PROMPTS.get(code) if isinstance(code, str) else None
    if reason is None:
        return None
    return Response([(redacted_error(str(error.get("message") or "")), reason)], seconds=seconds)


def choices_in(body: Any) -> list[Mapping[str, Any]]:
    """Return the choices of a response, ordered by index; none if the body is not a response."""
    choices = body.get("choices") if isinstance(body, Mapping) else None
    valid = [choice for choice in choices if isinstance(choice, Mapping)] if isinstance(choices, list) else []
    return sorted(valid, key=lambda choice: count_in(choice.get("index")))


def failure_in(body: Any) -> Any:
    """Return the error in a response, next to its choices or inside each of them; None if there is none.

    Examples
    --------
    >>> failure_in({"choices": [{"message": {"content": "Li"}, "error": {"code": 502, "message": "lost"}}]})
    {'code': 502, 'message': 'lost'}
    """
    error = body.get("error") if isinstance(body, Mapping) else None
    if _is_error(error):
        return error
    failures = [_failure_of(choice) for choice in choices_in(body)]
    return failures[0] if failures and all(failure is not None for failure in failures) else None


def _is_error(error: Any) -> bool:
    """Whether a field named ``error`` holds one; some servers always send it, without content."""
    return any(error.values()) if isinstance(error, Mapping) else bool(error)


def _failure_of(choice: Mapping[str, Any]) -> Any:
    """Return the error that ended a choice; None if there is none."""
    error = choice.get("error")
    return error if _is_error(error) else None


def reply_of(choice: Mapping[str, Any]) -> tuple[str, StopReason] | None:
    """Return the text and stop reason of a choice; None if it has no text, and no reason for that, or an error.

    Examples
    --------
    >>> reply_of({"message": {"content": 42}, "finish_reason": "stop"}) is None
    True
    >>> reply_of({"message": {"content": None, "refusal": "I can't help with that."}, "finish_reason": "stop"})
    ("I can't help with that.", <StopReason.REFUSAL: 'refusal'>)
    """
    message = choice.get("message")
    if not isinstance(message, Mapping) or _failure_of(choice) is not None:
        return None
    reason = _stop_reason(choice)
    content = text_in(message.get("content"))
    text = content or ""
    refusal = refusal_in(message)
    if refusal is not None:
        is_whole = reason in (StopReason.STOP, StopReason.REFUSAL, StopReason.UNKNOWN)
        return refusal or text, StopReason.REFUSAL if is_whole else reason
    if (
        reason is StopReason.STOP
        and not text.strip()
        and any(message.get(name) for name in ("tool_calls", "function_call"))
    ):
        return text, StopReason.TOOL_CALL
    is_lost = content is None and not has_reasoning(message)
    if (is_lost and reason is StopReason.STOP) or (reason is StopReason.UNKNOWN and not text.strip()):
        return None
    return text, reason


def _stop_reason(choice: Mapping[str, Any]) -> StopReason:
    note = choice.get(STOP_NOTE)
    return StopReason(note) if note in set(StopReason) else stop_reason_of(choice.get("finish_reason"))


def text_in(content: Any) -> str | None:
    """Return the text of a message's content, which some servers send in parts; None if it has none."""
    if isinstance(content, str):
        return content
    texts = [
        part["text"]
        for part in _parts_in(content)
        if isinstance(part.get("text"), str) and part.get("type") not in REASONING_PARTS
    ]
    return "".join(texts) if texts else None


def refusal_in(message: Mapping[str, Any]) -> str | None:
    """Return the text that the provider marked as a refusal; None if it marked none."""
    parts = [part for part in _parts_in(message.get("content")) if part.get("type") == "refusal"]
    marks = [message.get("refusal"), *(part.get("refusal") for part in parts)]
    text = "".join(mark for mark in marks if isinstance(mark, str))
    return text if text or parts else None


def has_reasoning(message: Mapping[str, Any]) -> bool:
    """Whether a message holds reasoning, so that a reply without any other text was paid for."""
    is_part = any(part.get("type") in REASONING_PARTS for part in _parts_in(message.get("content")))
    return is_part or any(message.get(name) for name in REASONING)


def _parts_in(content: Any) -> list[Mapping[str, Any]]:
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []


def _logprobs(choice: Mapping[str, Any]) -> str | None:
    reported = choice.get("logprobs")
    content = reported.get("content") if isinstance(reported, Mapping) else None
    if not isinstance(content, list):
        return None
    try:
        return write_logprobs(map(_token, content))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None  # malformed log probabilities; the reply itself is usable


def _token(token: Mapping[str, Any]) -> TokenLogprob:
    alternatives = token.get("top_logprobs") or ()
    return TokenLogprob(
        str(token["token"]),
        float(token["logprob"]),
        tuple((str(other["token"]), float(other["logprob"])) for other in alternatives),
    )


def count_in(value: Any) -> int:
    """Return a provider's token count; 0 if it is not an integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


MEGABYTE = 2**20


MAX_RESPONSE_BYTES = 64 * MEGABYTE
"""Maximum size of a decompressed response in bytes."""


OK = 200
NO_STATUS = 502


ADDRESSES = ("/completions", "/responses", "/messages")
"""Endings of the URL paths that return replies."""


REPLIES = {"choices": list, "output": list, "content": list}
"""The field that holds the replies, with its type: in OpenAI's two APIs and in Anthropic's."""


ASKS_FOR_EVENTS = re.compile(rb'"stream"\s*:\s*true')


JSON = "application/json"


COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


BODY = "normalised_body"
"""Key of the body in the extensions of an HTTPX response."""


async def receive(response: Any) -> None:
    """Read an HTTPX response, and put its normalised body into its extensions.

    A response with status 200 but no reply gets the status that its body names, or 502. A stream of events that was
    requested is left alone, as is any response of another endpoint.

    Raises
    ------
    UnreadableReplyError
        If the response is too large, or redirects to another server, which would receive the request.
    """
    request = response.request
    is_stream = "event-stream" in response.headers.get("content-type", "")
    await check_redirect(response)
    if not request.url.path.endswith(ADDRESSES) or (is_stream and ASKS_FOR_EVENTS.search(request.content)):
        return
    response._content = await _read(response)
    if response.status_code != OK:
        return
    text = response.content.decode(response.encoding or "utf-8", "replace")
    body = _joined(text) if is_stream else _json(text)
    failure = failure_in(body)
    if failure is not None or not any(isinstance(body.get(name), type_) for name, type_ in REPLIES.items()):
        response.extensions = {**response.extensions, ORIGINAL_STATUS: OK}
        response.status_code = status_in(failure, body)
        if failure is not None:
            response._content = json.dumps({"error": failure}).encode()
        return
    response.extensions = {**response.extensions, BODY: usual(body)}


def status_in(*holders: Any) -> int:
    """Return the first HTTP status of an error that one of several objects names; 502 without one."""
    named = [holder.get(name) for holder in holders if isinstance(holder, Mapping) for name in ("code", "status")]
    return next((code for code in named if isinstance(code, int) and 400 <= code < 600), NO_STATUS)


async def rewrite(response: Any) -> None:
    """Replace the content of a received HTTPX response by its normalised body, for clients that parse it themselves."""
    if BODY in response.extensions:
        response._content = json.dumps(response.extensions[BODY]).encode()
        response.headers["content-type"] = JSON


async def _read(response: Any) -> bytes:
    """Return the decompressed bytes of a response."""
    parts = []
    size = 0
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            if size > MAX_RESPONSE_BYTES:
                raise UnreadableReplyError(
                    f"the response is larger than {MAX_RESPONSE_BYTES // MEGABYTE} MiB; it is not read"
                )
            parts.append(chunk)
    return b"".join(parts)


def _json(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in a body; an empty one for anything else."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _joined(events: str) -> dict[str, Any]:
    """Merge the events of a stream into one body; it has no choices if one of them is unfinished.

    If an event contains an error, that event is returned instead.
    """
    chunks = [_json(line.removeprefix("data:")) for line in events.split("\n") if line.startswith("data:")]
    failed = next((chunk for chunk in chunks if _is_error(chunk.get("error"))), None)
    if failed is not None:
        return failed
    body = {name: value for chunk in chunks for name, value in chunk.items() if value}
    choices: dict[int, dict[str, Any]] = {}
    for piece in (choice for chunk in chunks for choice in choices_in(chunk)):
        index = count_in(piece.get("index"))
        delta = piece.get("delta")
        joined_choice = choices.setdefault(index, {"index": index, "message": {}, "finish_reason": None})
        joined_choice["finish_reason"] = piece.get("finish_reason") or joined_choice["finish_reason"]
        joined_choice["error"] = piece.get("error") or joined_choice.get("error")
        for name in (*TEXTS, *REASONING):
            text = text_in(delta.get(name)) if isinstance(delta, Mapping) else None
            if text is not None:
                joined_choice["message"][name] = joined_choice["message"].get(name, "") + text
    has_ended = all(choice["finish_reason"] for choice in choices.values())
    return body | {"choices": list(choices.values()) if has_ended else None}


def usual(body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a chat response to the types that OpenAI's API specifies; return any other body unchanged.

    Examples
    --------
    >>> usual({"choices": [{"message": {"content": 42}}], "model": None, "usage": {"total_tokens": "9"}})["usage"]
    {'prompt_tokens': 0, 'completion_tokens': 0, 'total_tokens': 0}
    """
    if "choices" not in body:
        return dict(body)
    usage = body.get("usage")
    return {
        **body,
        "model": str(body.get("model") or ""),
        "choices": [_usual_choice(choice) for choice in choices_in(body)],
        "usage": {name: count_in(usage.get(name)) for name in COUNTS} if isinstance(usage, Mapping) else None,
    }


def _usual_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in choice:  # a response of the legacy text completion API
        return dict(choice)
    message = choice.get("message")
    message = message if isinstance(message, Mapping) else {}
    content = text_in(message.get("content"))
    texts = {
        "content": "" if content is None and has_reasoning(message) else content,  # the list of parts is not kept
        "refusal": refusal_in(message),
    }
    reason = _stop_reason(choice)
    return {
        **choice,
        "index": count_in(choice.get("index")),
        "message": {**message, **texts},
        "finish_reason": None if choice.get("finish_reason") is None else FINISH_REASONS.get(reason, "stop"),
        STOP_NOTE: str(reason),
    }
