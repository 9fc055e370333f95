"""How a run tells whoever watches what it has done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from refusal_index.engines.inspect.carried import Carried


class Watcher(Protocol):
    """Is told of each reply and of each question that is done."""

    def replied(self, carried: Carried, seed: int) -> None:
        """Take note of one reply; the same seed comes again with a reply that was paid for before."""

    def finished(self) -> None:
        """Take note that one question needs nothing more."""


_watcher: ContextVar[Watcher | None] = ContextVar("refusal_index_watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Tell `watcher` of everything carried inside the block."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell_replied(carried: Carried, seed: int) -> None:
    """Tell whoever watches, if anyone does."""
    if watcher := _watcher.get():
        watcher.replied(carried, seed)


def tell_finished() -> None:
    """Tell whoever watches, if anyone does."""
    if watcher := _watcher.get():
        watcher.finished()
