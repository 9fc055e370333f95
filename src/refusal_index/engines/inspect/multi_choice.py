"""Many choices of one response, packed: Inspect takes each for a message, of which it keeps several copies."""

from __future__ import annotations

from inspect_ai.model import ModelOutput

from refusal_index.protocol import StopReason

PACKED = "packed_choices"
STOP_REASONS = {
    "max_tokens": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,
    "content_filter": StopReason.CONTENT_FILTER,
}


def packed(output: ModelOutput) -> ModelOutput:
    """Return an output with its first choice only, and all of them as plain text among its metadata.

    Each distinct choice is there once, and the order in which they came as places among those. What Inspect does with
    every message of an output, from checking it to writing it into cache and log, is then done for one.
    """
    if len(output.choices) < 2:
        return output
    came = [(choice.message.text, str(choice.stop_reason)) for choice in output.choices]
    places = {choice: place for place, choice in enumerate(dict.fromkeys(came))}
    pack = {"distinct": [list(choice) for choice in places], "order": [places[choice] for choice in came]}
    return output.model_copy(
        update={"choices": output.choices[:1], "metadata": {**(output.metadata or {}), PACKED: pack}}
    )


def choices_of(output: ModelOutput) -> list[tuple[str, StopReason]]:
    """Return the text of every choice and why it ended, in the order they came, whether packed or not."""
    pack = (output.metadata or {}).get(PACKED)
    if pack is None:
        came = [(choice.message.text, str(choice.stop_reason)) for choice in output.choices]
    else:
        came = [(text, reason) for text, reason in (pack["distinct"][place] for place in pack["order"])]
    return [(text, STOP_REASONS.get(reason, StopReason.STOP)) for text, reason in came]
