"""A run within its folder: asked, resumable at any moment, and summarised."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import STOPPED, UNTIL
from refusal_index.models.failures import CircuitBreaker
from refusal_index.models.settings import FORGET
from refusal_index.plugins.batches.spool import refuse_left
from refusal_index.plugins.batches.wave import journal_of, refuse_in_flight
from refusal_index.protocol import Conversation
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import (
    Assignment,
    Begun,
    Engine,
    Event,
    Opened,
    Progress,
    RunFailedError,
    WaitingError,
    unwatched,
)
from refusal_index.runs.plan import Plan, open_store
from refusal_index.runs.registry import BATCH, engine_of, note_on
from refusal_index.runs.results import UnfinishedError
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, StoreError
from refusal_index.runs.tracking import tracked
from refusal_index.runs.writing import Run, run_to_end, write_results

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
        Who carries it, where replies and other files go, and what its questions are called.
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
            await engine.execute(Assignment(dataset, variant, talks, settings, store, folder, watch, breaker, budget))
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


async def carry_out(plan: Plan, progress: Progress = unwatched, budget: Budget | None = None) -> Run:
    """Ask what is still to be asked, and write the results into the run's folder.

    Parameters
    ----------
    plan
        The run, as `prepare` returns it.
    progress
        Is told what happens; what it raises ends the run, and is raised again.
    budget
        What may be used, where several runs share it; None for the run's own.

    Raises
    ------
    RefusalIndexError
        If a model or the folder cannot be used, or the run could not be brought to its end: what was answered is kept.
    KeyboardInterrupt
        If it was interrupted; what was answered is kept.
    """
    with opened(plan, progress, budget) as run:
        return run.results(await run.ask([plan]))


@contextmanager
def opened(plan: Plan, progress: Progress = unwatched, budget: Budget | None = None) -> Iterator[OpenRun]:
    """Hold a run's folder with its store open, ready to have all of its questions asked or some of them first.

    It takes what `carry_out` takes, and raises as that does.
    """
    folder = plan.folder
    with open_store(folder, made=False) as store:
        to_ask = plan.pending(store) or plan.asked_again(store)
    # A wrong name or a missing key is told before a folder is made.
    engine = engine_of(plan.settings.sending.engine)(plan.settings, plan.names, plan.objects) if to_ask else None
    with tracked(plan, progress) as tracking, folder.lock():
        folder.create_or_resume(plan.identity, about=plan.about)
        _note_until(plan)
        with open_store(folder) as store:
            _check_own(plan, store)
            if engine is not None:
                check_in_flight(plan, store)
            store.retire(plan.asked_again(store))
            budget = budget or Budget(plan.settings.limits)
            if engine is not None:
                budget.count_earlier(folder.path, store.paid(), plan.prices)
            tracking(_told(plan, store, engine))
            tracking.watch(store)
            yield OpenRun(plan, store, engine, tracking, budget)


def _note_until(plan: Plan) -> None:
    """Have the folder say what the run waits for this time: its results are held against that."""
    until = plan.settings.stopping.until
    wanted = None if until is None else until.to_document()
    if plan.folder.read_about().get(UNTIL) != wanted:
        plan.folder.change_about({UNTIL: wanted})


def _check_own(plan: Plan, store: ReplyStore) -> None:
    """Raise StoreError if another run's store lies in the folder: its questions would be counted among this one's."""
    ours = {question.question_id for draws in plan.draws.values() for question in draws}
    others = {one for asked in store.draws().values() for one in asked} - ours
    if others:
        raise StoreError(
            f"{store.path}: it holds {len(others):,} questions that this run does not ask, the first "
            f"{min(others)[:60]!r}: it is another run's; put back the one of this run, or run into another folder"
        )


def check_in_flight(plan: Plan, store: ReplyStore) -> None:
    """Give up the batches that are to be asked anew, and refuse to ask what another engine has in flight."""
    sending = plan.settings.sending
    refuse_left(plan.folder, sending.engine)
    if sending.engine == BATCH:
        return
    if sending.forget:
        from refusal_index.plugins.batches.batch_executor import give_up  # noqa: PLC0415 - of one engine only

        run_to_end(give_up(plan.settings, plan.names, plan.objects, plan.folder))
    refuse_in_flight(plan.folder, store)


def _told(plan: Plan, store: ReplyStore, engine: Engine | None) -> Opened:
    """Return how far a run came before, and what must be said of it."""
    pending = plan.pending(store)
    finished = sum(len(draws) for variant, draws in plan.draws.items() if variant not in pending)
    return Opened(finished, note_on(plan.settings.sending, plan.graders) if engine else None)


@dataclass(frozen=True)
class OpenRun:
    """A run whose folder is held and whose store is open.

    Attributes
    ----------
    plan, store
        All that is to be asked, and the replies so far.
    engine
        Who carries requests; None where nothing was to be asked when it was opened.
    progress, budget
        Who is told, and what may be used.
    """

    plan: Plan
    store: ReplyStore
    engine: Engine | None
    progress: Progress
    budget: Budget

    async def ask(self, parts: Iterable[Plan]) -> str | None:
        """Ask what is still to be asked, and return why it ended before all of it was, as it was told to.

        Parameters
        ----------
        parts
            The plan, or parts of it as `Plan.part` gives them: the next one is taken once the one before was brought to
            its end, so that what comes next may rest on its results.

        Raises
        ------
        RefusalIndexError
            If a model cannot be asked, or asking could not be brought to its end: what was answered is kept.
        """
        waves = (wave for part in parts for wave in self._waves(part))
        if self.engine is None:
            for _ in waves:
                pass
            return None
        # What is on its way already is collected whatever is left of the budget.
        ended = None if self.engine.together else self.budget.used_up()
        if ended is not None:
            return ended
        plan = self.plan
        how = (plan.settings, plan.folder, self.engine, self.store, self.progress, self.budget, plan.dataset.name)
        return await ask_waves(waves, *how)

    def _waves(self, part: Plan) -> Iterator[Wave]:
        """Yield what is due of a part, once the store knows what it asks."""
        for variant in part.procedures:
            self.store.require(variant, part.draws[variant])
        pending = part.pending(self.store)
        if pending and part.folder.read_about().get(STOPPED):
            part.folder.change_about({STOPPED: None})  # it goes on, and may stop elsewhere
        if self.engine is not None and self.engine.together:
            yield "", part.by_question(pending, self.store)
        else:
            for variant in pending:
                yield variant, part.conversations(variant, self.store)

    def results(self, ended: str | None = None) -> Run:
        """Write what was asked so far adds up to, and return it.

        Parameters
        ----------
        ended
            Why asking ended before its end, as `ask` returns it.

        Raises
        ------
        RunFailedError
            If nothing was answered yet; WaitingError if it ended as it was told to.
        """
        accounts = self.plan.settings.accounts
        try:
            run = write_results(
                self.plan.folder,
                self.store,
                self.plan.prices,
                penalty=accounts.penalty,
                truthfulness_weights=accounts.truthfulness_weights,
            )
        except UnfinishedError as error:
            if ended is None:
                raise RunFailedError(str(error)) from error
            raise WaitingError(ended) from error
        return replace(run, ended=ended)


LONGEST_WAIT, LOOK = 60.0, 0.1
"""Seconds between passes at most, and between looks whether the command is to end."""


def outlives_the_command(plan: Plan) -> bool:
    """Whether what a run sends goes on without the command, as a provider's batches do."""
    return plan.settings.sending.engine == BATCH


def settings_alone(plan: Plan) -> Settings:
    """Return the settings of one run of a set: it waits for no batch, and gives up those that are its own."""
    settings = plan.settings
    if settings.sending.forget:
        known = journal_of(plan.folder).told_of
        kept = [f"{name}={value}" for name, value in settings.sending.engine_option if name != FORGET or value in known]
        settings = settings.changed(engine_option=kept)
    return settings.changed(detach=True) if outlives_the_command(plan) else settings


def waits_for_batches(plan: Plan, budget: Budget) -> bool:
    """Whether a run that ended early has batches on their way, and this command is to wait for them."""
    if not outlives_the_command(plan) or plan.settings.sending.detach or budget.is_over:
        return False
    return bool(journal_of(plan.folder).entries)


class News:
    """Whether runs that wait for batches have something to collect.

    Parameters
    ----------
    tell
        Is told of a run of whose batches nothing is heard, in one line, when that begins.
    """

    def __init__(self, tell: Callable[[Plan, str], object]) -> None:
        self._tell, self._since = tell, dict[Path, float]()

    async def of(self, plan: Plan) -> bool:
        """Whether a run has something to collect.

        Raises
        ------
        RunFailedError
            If that could not be told for as long as a provider is borne with.
        """
        from refusal_index.plugins.batches.batch_executor import has_news  # noqa: PLC0415 - of one engine only
        from refusal_index.plugins.batches.batch_lane import OUTAGE  # noqa: PLC0415 - of one engine only

        path = plan.folder.path
        try:
            found = await has_news(plan.settings, plan.names, plan.objects, plan.folder)
        except RunFailedError as error:
            if path not in self._since:
                self._since[path] = time.monotonic()
                self._tell(plan, str(error))
            elif time.monotonic() - self._since[path] > OUTAGE:
                raise
            return False
        self._since.pop(path, None)
        return found


def first_wait(plans: Iterable[Plan]) -> float:
    """Return the seconds between the first pass and the second."""
    from refusal_index.plugins.batches.batch_executor import Options  # noqa: PLC0415 - of one engine only

    polls = (Options.of(plan.settings).poll for plan in plans if outlives_the_command(plan))
    return min(polls, default=LONGEST_WAIT)


def longer(seconds: float) -> float:
    """Return the wait after one in which nothing happened."""
    return min(seconds * 2, LONGEST_WAIT)


async def pause(seconds: float, budget: Budget) -> None:
    """Wait, and no longer than there is time."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not budget.is_over:
        await asyncio.sleep(min(LOOK, left))
