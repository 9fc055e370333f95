"""Why a model stopped, in the words of the providers, and whether its reply is whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refusal_index.protocol import StopReason

WORDS: Mapping[StopReason, tuple[str, ...]] = {
    StopReason.STOP: (
        "stop",
        "stopped",
        "stop_sequence",
        "stop_str",
        "end",
        "end_turn",
        "eos",
        "eos_token",
        "eos_token_id",
        "complete",
        "completed",
        "done",
        "finish",
        "finished",
        "pad_token",
    ),
    StopReason.LENGTH: (
        "length",
        "max_tokens",
        "max_token",
        "max_new_tokens",
        "max_length",
        "max_output_tokens",
        "max_completion_tokens",
        "model_length",
        "model_context_window_exceeded",
        "context_length",
        "context_length_exceeded",
        "token_limit",
    ),
    StopReason.TOOL_CALL: ("tool_calls", "tool_call", "tool_use", "function_call"),
    StopReason.CONTENT_FILTER: (
        "content_filter",
        "content_filtered",
        "content_filter_error",
        "content_policy_violation",
        "safety",
        "sensitive",
        "guardrail_intervened",
        "recitation",
        "blocklist",
        "prohibited_content",
        "spii",
    ),
    StopReason.REFUSAL: ("refusal",),
}
"""The words of providers, in lower case, by what they mean."""

REASONS = {word: reason for reason, words in WORDS.items() for word in words}


def stop_reason_of(word: Any) -> StopReason:
    """Return what a provider's finish reason means.

    A missing word counts as a complete reply, since many servers leave it out. Any word that is not listed, such as
    ``error`` or ``abort``, means that the reply may not be whole.

    Examples
    --------
    >>> [str(stop_reason_of(word)) for word in ("end_turn", "MAX_TOKENS", None, "abort")]
    ['stop', 'length', 'stop', 'unknown']
    """
    if word is None or word == "":
        return StopReason.STOP
    if not isinstance(word, str):
        return StopReason.UNKNOWN
    return REASONS.get(word.strip().lower(), StopReason.UNKNOWN)
