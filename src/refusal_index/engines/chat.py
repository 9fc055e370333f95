"""OpenAI's chat format as pure functions: from a request to the body that carries it, and from a body to its response.

Whoever speaks it, over HTTP or in files, is asked the same and read the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from refusal_index.engines.asks import Ask, Response
from refusal_index.engines.failures import NoAnswerError
from refusal_index.protocol import StopReason, TokenLogprob, write_logprobs

Json = dict[str, Any]

REASONING_MODELS = re.compile(r"(o\d|gpt-5(?!-chat))")
"""Models of OpenAI's that take no temperature, and count their reasoning among the tokens of a reply."""

STOP_REASONS = {"length": StopReason.LENGTH, "content_filter": StopReason.CONTENT_FILTER}
REFUSED_PROMPTS = {
    "context_length_exceeded": StopReason.LENGTH,
    **dict.fromkeys(
        ("content_filter", "content_policy_violation", "invalid_prompt", "bio_policy", "cyber_policy"),
        StopReason.CONTENT_FILTER,
    ),
}
"""Errors by which a provider says that it takes no such prompt: asking again would not help."""

TOOL_CALLS = ("tool_calls", "function_call")
ENDED_BY_ITSELF = ("stop", "eos", None)


def chat_body(ask: Ask, model: str, provider: str = "") -> Json:
    """Return the body of a request to ``/v1/chat/completions``.

    Parameters
    ----------
    ask
        What is asked, and how the model generates.
    model, provider
        What the server calls the model, and who it is: OpenAI itself has other names for some fields.
    """
    body: Json = {
        "model": model,
        "messages": [{"role": one.role, "content": one.content} for one in ask.request.messages],
        "seed": ask.seed,
    }
    if ask.decoding is not None:
        at_openai = provider == "openai"
        if not (at_openai and REASONING_MODELS.match(model)):
            body |= {"temperature": ask.decoding.temperature, "top_p": ask.decoding.top_p}
        body["max_completion_tokens" if at_openai else "max_tokens"] = ask.decoding.max_tokens
        if ask.decoding.reasoning_effort is not None:
            body["reasoning_effort"] = ask.decoding.reasoning_effort
    if ask.choices > 1:
        body["n"] = ask.choices
    if ask.top_logprobs is not None:
        body["logprobs"] = True
        if ask.top_logprobs:
            body["top_logprobs"] = ask.top_logprobs
    return body


def read_chat(body: Any, seconds: float | None = None) -> Response:
    """Return the response that the body of a chat completion holds.

    Parameters
    ----------
    body
        As it came: nothing about it is taken for granted.
    seconds
        How long it took, where that is known.

    Raises
    ------
    NoAnswerError
        If there is no choice in it.

    Examples
    --------
    >>> read_chat({"choices": [{"message": {"content": "Lima"}, "finish_reason": "stop"}]}).replies
    [('Lima', <StopReason.STOP: 'stop'>)]
    """
    choices = body.get("choices") if isinstance(body, Mapping) else None
    known = [one for one in choices if isinstance(one, Mapping)] if isinstance(choices, list) else []
    if not known:
        raise NoAnswerError("the response holds no choices")
    known.sort(key=lambda one: count_in(one.get("index")))
    usage = body.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    return Response(
        [_reply(one) for one in known],
        count_in(usage.get("prompt_tokens")),
        count_in(usage.get("completion_tokens")),
        seconds,
        [_logprobs(one) for one in known],
    )


def read_refused_prompt(error: Any, seconds: float | None = None) -> Response | None:
    """Return the response that an error 400 comes down to: the prompt was filtered, or is too long for the model.

    Parameters
    ----------
    error, seconds
        The error within the body, and how long it took.

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
    return None if reason is None else Response([(str(error.get("message") or ""), reason)], seconds=seconds)


def _reply(choice: Mapping[str, Any]) -> tuple[str, StopReason] | None:
    """Return text and stop reason of a choice; None where it holds none, and nothing says why."""
    message, reason = choice.get("message"), choice.get("finish_reason")
    if not isinstance(message, Mapping):
        return None
    text = next((found for name in ("content", "refusal") if (found := _text(message.get(name)))), "")
    if not text.strip() and any(message.get(name) for name in TOOL_CALLS):
        return text, StopReason.TOOL_CALL
    if not text and reason in ENDED_BY_ITSELF and all(message.get(name) is None for name in ("content", "refusal")):
        return None
    return text, STOP_REASONS.get(reason, StopReason.STOP) if isinstance(reason, str) else StopReason.STOP


def _text(content: Any) -> str:
    """Return a message's text, which some servers send in parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (one.get("text") for one in parts if isinstance(one, Mapping))
    return "".join(one for one in texts if isinstance(one, str))


def _logprobs(choice: Mapping[str, Any]) -> str | None:
    reported = choice.get("logprobs")
    content = reported.get("content") if isinstance(reported, Mapping) else None
    if not isinstance(content, list):
        return None
    try:
        return write_logprobs(map(_token, content))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None  # what is reported is none: the reply itself is as good as any


def _token(one: Mapping[str, Any]) -> TokenLogprob:
    alternatives = one.get("top_logprobs") or ()
    return TokenLogprob(
        str(one["token"]),
        float(one["logprob"]),
        tuple((str(other["token"]), float(other["logprob"])) for other in alternatives),
    )


def count_in(value: Any) -> int:
    """Return a count of tokens as a provider gives it; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
