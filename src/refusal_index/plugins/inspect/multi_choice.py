"""The choices of a response: which of them hold an answer, and many of them packed.

Inspect takes each choice for a message, of which it keeps several copies.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from inspect_ai.model import ChatCompletionChoice, Logprob, ModelOutput

from refusal_index.models.chat_api import choices_in, reply_of
from refusal_index.protocol import StopReason, TokenLogprob, write_logprobs

PACKED = "packed_choices"
STOP_REASONS = {
    "max_tokens": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,
    "content_filter": StopReason.CONTENT_FILTER,
}
TOOL_CALLS = str(StopReason.TOOL_CALL)


def places_without_answer(response: Mapping[str, Any] | None) -> set[int]:
    """Return the places of the choices that are no answer, of a response as OpenAI's chat interface gives it.

    Such a choice holds null instead of a text, and nothing says why: it was not cut, filtered, refused or a tool call.
    In any other shape of response all choices count as answers.

    Examples
    --------
    >>> lost, cut = ({"message": {"content": None}, "finish_reason": reason} for reason in ("stop", "length"))
    >>> places_without_answer({"choices": [cut, lost]})
    {1}
    """
    choices = enumerate(choices_in(response))
    return {
        place for place, choice in choices if isinstance(choice.get("message"), Mapping) and reply_of(choice) is None
    }


def packed(output: ModelOutput, without_answer: Container[int] = ()) -> ModelOutput:
    """Return an output with its first answer only, and all of its choices as plain text among its metadata.

    Each distinct choice is there once, with the log probabilities of its tokens where they were reported, and the order
    in which they came as places among those, null for one without an answer. What Inspect does with every message of an
    output, from checking it to writing it into its log, is then done for one.
    """
    if len(output.choices) < 2:
        return output
    answers = [choice for place, choice in enumerate(output.choices) if place not in without_answer]
    came = [None if place in without_answer else _whole(choice) for place, choice in enumerate(output.choices)]
    places = {choice: place for place, choice in enumerate(dict.fromkeys(filter(None, came)))}
    pack = {"distinct": [list(choice) for choice in places], "order": [choice and places[choice] for choice in came]}
    return output.model_copy(update={"choices": answers[:1], "metadata": {**(output.metadata or {}), PACKED: pack}})


def choices_of(output: ModelOutput) -> list[tuple[str, StopReason] | None]:
    """Return the text of every choice and why it ended, in the order they came, whether packed or not.

    None stands for a choice without an answer.
    """
    pack = (output.metadata or {}).get(PACKED)
    if pack is None:
        return [_read(*_text(choice)) for choice in output.choices]
    return [None if place is None else _read(*pack["distinct"][place][:2]) for place in pack["order"]]


def logprobs_of(output: ModelOutput) -> list[str | None]:
    """Return the log probabilities of every choice's tokens as the store keeps them, in the order of `choices_of`."""
    pack = (output.metadata or {}).get(PACKED)
    if pack is None:
        return [_logprobs(choice) for choice in output.choices]
    whole = [(*choice, None)[2] for choice in pack["distinct"]]
    return [None if place is None else whole[place] for place in pack["order"]]


def without_logprobs(output: ModelOutput) -> ModelOutput:
    """Return an output, packed or not, without the log probabilities of its tokens."""
    choices = [choice.model_copy(update={"logprobs": None}) for choice in output.choices]
    metadata = output.metadata
    if metadata and PACKED in metadata:
        pack = metadata[PACKED]
        metadata = {**metadata, PACKED: {**pack, "distinct": [choice[:2] for choice in pack["distinct"]]}}
    return output.model_copy(update={"choices": choices, "metadata": metadata})


def _whole(choice: ChatCompletionChoice) -> tuple[str, ...]:
    reported = _logprobs(choice)
    return _text(choice) if reported is None else (*_text(choice), reported)


def _logprobs(choice: ChatCompletionChoice) -> str | None:
    if choice.logprobs is None:
        return None
    try:
        return write_logprobs(map(_token, choice.logprobs.content))
    except ValueError:
        return None  # a provider's number that is none: the reply itself is as good as any


def _token(token: Logprob) -> TokenLogprob:
    return TokenLogprob(token.token, token.logprob, tuple((top.token, top.logprob) for top in token.top_logprobs or ()))


def _text(choice: ChatCompletionChoice) -> tuple[str, str]:
    reason = TOOL_CALLS if choice.message.tool_calls else str(choice.stop_reason)
    return choice.message.text, reason


def _read(text: str, reason: str) -> tuple[str, StopReason]:
    if reason == TOOL_CALLS and not text.strip():
        return text, StopReason.TOOL_CALL
    return text, STOP_REASONS.get(reason, StopReason.STOP)
