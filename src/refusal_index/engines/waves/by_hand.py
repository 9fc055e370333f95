"""The engine that sends nothing: what is due waits to be written into files, for whoever carries these."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from refusal_index.engines.engine import Assignment
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import ReplyStore
from refusal_index.engines.waves.formats import is_singly
from refusal_index.engines.waves.wave import talks_of, wave
from refusal_index.protocol import Asked


class FilesEngine:
    """Makes a run ready for files of requests.

    Parameters
    ----------
    settings, names, objects
        As any engine takes them.
    """

    together = True

    def __init__(self, settings: Settings, names: Mapping[Asked, str], objects: Mapping[str, object]) -> None:  # noqa: ARG002 - as engines do
        self._names = names

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:  # noqa: ARG002 - as engines do
        """Open nothing."""
        yield

    async def carry(self, assignment: Assignment) -> None:
        """Say how many requests are due, and how to have them written."""
        talks = talks_of(assignment.conversations, assignment.store)
        due = sum(1 for _ in wave(talks, assignment.settings, self._names, singly=is_singly(self._names)))
        path = assignment.folder.path if assignment.folder else "RUN"
        assignment.breaker.open(
            f"{due:,} requests are due, and nothing was sent: 'refusal-index requests {path} --out FILE' writes them, "
            f"'refusal-index replies {path} FILE' takes their results in",
            planned=True,
        )
