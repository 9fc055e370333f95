"""Completions as plain data of Inspect's logs, which show what a run's store holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from refusal_index.protocol import Asked, Completion, Pass, Reply, StopReason

CARRIED = "carried"
"""Where in a sample's metadata they stand."""


def to_metadata(completions: Iterable[Completion]) -> list[dict[str, Any]]:
    """Return completions for a log: each distinct reply once, with its draws and all that it took."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for one in completions:
        entry = {
            "of": str(one.reply.of),
            "asked": str(one.reply.asked),
            "attempt": one.attempt,
            "text": one.reply.text,
            "stop_reason": str(one.reply.stop_reason),
        }
        kept = found.setdefault(
            tuple(entry.values()), {**entry, "input_tokens": 0, "output_tokens": 0, "draws": [], "requests": 0}
        )
        for name in ("input_tokens", "output_tokens", "requests"):
            kept[name] += getattr(one, name)
        kept["draws"].append(one.draw)
    return list(found.values())


def from_metadata(entries: Iterable[Mapping[str, Any]], question_id: str, variant: str) -> Iterator[Completion]:
    """Yield the completions that a log's sample holds; what a reply took goes with the first of its draws.

    A verdict counts in the first draw of the reply that it is on.
    """
    for entry in entries:
        reply = Reply(Pass(entry["of"]), Asked(entry["asked"]), entry["text"], StopReason(entry["stop_reason"]))
        draws = entry["draws"]
        own = "" if reply.of.is_shared else variant
        took = (entry["input_tokens"], entry["output_tokens"], entry["requests"])
        for place, draw in enumerate(draws if reply.asked is Asked.MODEL else draws[:1]):
            yield Completion(question_id, own, draw, reply, entry["attempt"], *(took if place == 0 else (0, 0, 0)))
