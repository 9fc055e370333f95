"""Conversations carried in waves, one after the other: of a run its variants, of scores what is asked for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from refusal_index.engines.breaker import CircuitBreaker
from refusal_index.engines.budget import Budget
from refusal_index.engines.engine import Assignment, Engine, RunFailedError
from refusal_index.engines.events import Begun, Event, Progress
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import ReplyStore
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import Conversation

Wave = tuple[str, Sequence[Conversation]]
"""Conversations that are carried together, and what to call them."""


async def ask_waves(
    waves: Iterable[Wave],
    settings: Settings,
    folder: RunFolder,
    engine: Engine,
    store: ReplyStore,
    progress: Progress,
    budget: Budget,
    dataset: str = "",
) -> str | None:
    """Carry one wave after the other, each made when those before it have come back.

    Parameters
    ----------
    waves
        What is asked.
    settings, folder, engine, store, dataset
        Who carries it, where replies and logs go, and what its questions are called.
    progress, budget
        Who is told, and what may be used.

    Returns
    -------
    str or None
        Why it ended before all was asked, as it was told to.

    Raises
    ------
    RunFailedError
        If it could not be brought to its end.
    """
    breaker = CircuitBreaker()
    budget.on_end = partial(breaker.open, planned=True)
    watch = _Watch(progress, breaker)
    async with engine.open(store):
        for variant, talks in waves:
            if not talks:
                continue
            watch(Begun(variant))
            await engine.carry(Assignment(dataset, variant, talks, settings, store, folder, watch, breaker, budget))
            if watch.error is not None:
                raise watch.error
            if breaker.planned:
                return breaker.reason
            if breaker.reason is not None:
                place = "-".join(filter(None, (dataset, variant)))
                raise RunFailedError(f"{place}: {breaker.reason}" if place else breaker.reason)
    return None


class _Watch:
    """Tells what happens; whoever is told and raises ends the run in order, so that no reply is lost to it."""

    def __init__(self, progress: Progress, breaker: CircuitBreaker) -> None:
        self._progress, self._breaker = progress, breaker
        self.error: Exception | None = None

    def __call__(self, event: Event) -> None:
        if self.error is None:
            try:
                self._progress(event)
            except Exception as error:
                self.error = error
                self._breaker.open("the progress callback failed")
