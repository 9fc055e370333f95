"""What was carried for one question: each reply with what it cost, as kept in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from refusal_index.protocol import Asked, Pass, Reply, StopReason


@dataclass(frozen=True)
class Carried:
    """A reply and its tokens.

    Attributes
    ----------
    reply
        The reply as the protocol sees it.
    attempt
        The attempt of the request it answers.
    input_tokens, output_tokens
        As the provider counted them; 0 where it did not say.
    """

    reply: Reply
    attempt: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


def to_metadata(carried: Sequence[Carried]) -> list[dict[str, Any]]:
    """Return plain data for a log."""
    return [
        {
            "of": str(one.reply.of),
            "asked": str(one.reply.asked),
            "attempt": one.attempt,
            "text": one.reply.text,
            "stop_reason": str(one.reply.stop_reason),
            "input_tokens": one.input_tokens,
            "output_tokens": one.output_tokens,
        }
        for one in carried
    ]


def from_metadata(entries: Sequence[dict[str, Any]]) -> list[Carried]:
    """Read back what `to_metadata` wrote."""
    return [
        Carried(
            Reply(Pass(entry["of"]), Asked(entry["asked"]), entry["text"], StopReason(entry["stop_reason"])),
            entry["attempt"],
            entry["input_tokens"],
            entry["output_tokens"],
        )
        for entry in entries
    ]
