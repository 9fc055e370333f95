"""What happens while models are asked, as whoever watches a run is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from refusal_index.protocol import Completion


@dataclass(frozen=True)
class Opened:
    """A run's folder is open, and so many of its questions lie in variants that need nothing more."""

    finished: int
    note: str | None = None  # what must be said of it


@dataclass(frozen=True)
class Begun:
    """A variant is about to be asked."""

    variant: str


@dataclass(frozen=True)
class Replied:
    """A reply came, and is in the store."""

    completion: Completion


@dataclass(frozen=True)
class Finished:
    """A question needs nothing more under a variant."""

    variant: str
    question_id: str


@dataclass(frozen=True)
class Underway:
    """Requests are on their way in a wave, as in batches: how they stand, in a few words."""

    note: str
    is_news: bool = False  # which is to be said beside the progress, as that a server cannot be reached


Event = Opened | Begun | Replied | Finished | Underway
Progress = Callable[[Event], None]
"""Is told what happens while models are asked."""


def unwatched(_event: Event) -> None:
    """Take no note of anything."""
