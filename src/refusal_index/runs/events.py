"""Events of a run, which the progress callback receives while models are asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from refusal_index.protocol import Completion


@dataclass(frozen=True)
class Opened:
    """The run's folder is open; `finished` counts the questions without a pending request."""

    finished: int
    note: str | None = None  # what to tell the user


@dataclass(frozen=True)
class Begun:
    """The first request of a variant is about to be sent."""

    variant: str


@dataclass(frozen=True)
class Replied:
    """A reply was stored."""

    completion: Completion


@dataclass(frozen=True)
class Finished:
    """A question has no pending request under a variant."""

    variant: str
    question_id: str


@dataclass(frozen=True)
class Underway:
    """Requests are in flight, for example in batches; the note says how many are done."""

    note: str
    is_notice: bool = False  # to be printed as a line of its own, such as that a server cannot be reached


Event = Opened | Begun | Replied | Finished | Underway
Progress = Callable[[Event], None]
"""Called with every event while models are asked."""


def ignore_events(_event: Event) -> None:
    """Ignore an event."""
