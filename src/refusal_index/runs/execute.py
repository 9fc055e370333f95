"""Executing a plan in its folder: requests are sent, all at once or in parts, and the results are written.

A run that may stop early asks nested samples of its questions and looks at the results after each: after a look at 400
questions its folder holds what a run with ``limit=400`` and the same seed would. Such a run is complete for fewer
questions and records that it stopped. It continues when it is run again with another stopping rule, or with none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from refusal_index import entry_points
from refusal_index.data.datasets import sample
from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import STOPPED, UNTIL, Stop
from refusal_index.findings.summary import half_width_of
from refusal_index.models.failures import CircuitBreaker
from refusal_index.protocol import Conversation
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import (
    Assignment,
    Begun,
    Engine,
    Event,
    Finished,
    Opened,
    Progress,
    RunFailedError,
    WaitingError,
    engine_of,
    note_on,
    unwatched,
)
from refusal_index.runs.plan import Plan, open_store
from refusal_index.runs.results import UnfinishedError
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, StoreError
from refusal_index.runs.writing import Run, write_results
from refusal_index.stats import GroupSequential

Round = tuple[str, Sequence[Conversation]]
"""The name of a round, and the conversations that the engine executes together."""

Decide = Callable[[Run, int], str | None]
"""Takes the results at a look and its number of questions; returns why the run may stop, or None."""


async def execute(plan: Plan, progress: Progress = unwatched, budget: Budget | None = None) -> Run:
    """Send the requests that a plan still needs, and write the results into its folder.

    Parameters
    ----------
    plan
        The run. With the setting ``half_width`` it stops once its interval is narrow enough.
    progress
        Called with every event; what it raises ends the run, and is raised again.
    budget
        Shared by several runs; None for the run's own.

    Raises
    ------
    RefusalIndexError
        If a model or the folder cannot be used, or the run could not be completed: replies are kept.
    KeyboardInterrupt
        If it was interrupted; replies are kept.
    """
    stopping = plan.settings.stopping
    if stopping.half_width is not None:
        decide = narrow_enough(stopping.half_width)
        return await execute_in_looks(plan, sizes_of(plan, stopping.looks), decide, progress, budget)
    with open_plan(plan, progress, budget) as run:
        return run.results(await run.ask([plan]))


@contextmanager
def open_plan(plan: Plan, progress: Progress = unwatched, budget: Budget | None = None) -> Iterator[OpenRun]:
    """Lock a run's folder and open its store, so that all of its questions or parts of them can be asked.

    It takes the arguments of `execute`, and raises the same errors.
    """
    folder, settings = plan.folder, plan.settings
    if plan.begin is not None:
        with folder.lock():
            folder.create_or_resume(plan.identity, about=plan.about)
            plan.begin()
    with open_store(folder, made=False) as store:
        is_pending = plan.pending(store) or plan.replies_to_retire(store)
    # A wrong name or a missing key is reported before a folder is made.
    engine = engine_of(settings.sending.engine)(settings, plan.names, plan.objects) if is_pending else None
    with tracked(plan, progress) as (report, watch), folder.lock():
        is_new = not folder.run_json.exists()
        folder.create_or_resume(plan.identity, about=plan.about)
        goal = settings.stopping.half_width
        until = None if goal is None else {"half_width": goal}
        if folder.read_about().get(UNTIL) != until:
            folder.change_about({UNTIL: until})
        with open_store(folder) as store:
            own_ids = {question.question_id for draws in plan.draws.values() for question in draws}
            others = {question_id for draws in store.draws().values() for question_id in draws} - own_ids
            if others:  # they would count as this run's
                raise StoreError(
                    f"{store.path}: it belongs to another run, since it holds {len(others):,} questions that this run "
                    f"does not ask, such as {min(others)[:60]!r}; restore this run's store, or choose another folder"
                )
            if engine is not None and (settings.sending.forget or not is_new):
                outstanding().check(plan, store)
            store.retire(plan.replies_to_retire(store))
            budget = budget or Budget(settings.limits)
            if engine is not None:
                budget.count_earlier(folder.path, store.paid(), plan.prices)
            pending = plan.pending(store)
            finished = sum(len(draws) for variant, draws in plan.draws.items() if variant not in pending)
            report(Opened(finished, note_on(settings.sending, plan.graders) if engine else None))
            watch(store)
            yield OpenRun(plan, store, engine, report, budget)


StoreWatcher = Callable[[ReplyStore], None]
"""Called with the store of a run once it is open."""

Tracked = AbstractContextManager[tuple[Progress, StoreWatcher]]


def tracked(plan: Plan, progress: Progress) -> Tracked:
    """Let the trackers named in the settings follow the run inside the block, which must end with its folder closed."""
    if not plan.settings.log_to:
        return nullcontext((progress, lambda _store: None))
    following: Tracked = entry_points.hook("trackers").tracked(plan, progress)
    return following


HasResults = Callable[[Plan], Awaitable[bool]]
"""Whether a run has results to collect."""


class Outstanding(Protocol):
    """Requests of earlier commands whose results are outstanding, for example in a provider's batches.

    The batch plugin registers it as a hook.
    """

    def check(self, plan: Plan, store: ReplyStore) -> None:
        """Drop outstanding requests that are asked again; raise SettingError if a run would pay twice for one."""

    def refuse_in_flight(self, folder: RunFolder, store: ReplyStore) -> None:
        """Raise SettingError if another engine would pay again for requests in flight."""

    def check_forgotten(self, plans: Sequence[Plan]) -> None:
        """Raise SettingError if a batch is to be dropped that belongs to no run."""

    def settings_alone(self, plan: Plan) -> Settings:
        """Return the settings of one run of a set: it does not wait for batches, and drops only its own."""

    def is_waited_for(self, plan: Plan, budget: Budget) -> bool:
        """Whether a run that ended early has requests in flight that this command waits for."""

    def first_wait(self, plans: Iterable[Plan]) -> float:
        """Return the seconds between the first check for results and the second."""

    def poller(self, report: Callable[[Plan, str], object]) -> HasResults:
        """Return what checks whether a run has results; `report` is called when a provider cannot be reached."""


def outstanding() -> Outstanding:
    """Return the hook for outstanding requests."""
    hook: Outstanding = entry_points.hook("outstanding")
    return hook


MAX_WAIT = 60.0
"""Seconds between checks for results, at most."""


@dataclass(frozen=True)
class OpenRun:
    """A run whose folder is locked and whose store is open.

    Attributes
    ----------
    plan, store
        The whole run, and the replies so far.
    engine
        What sends requests; None where no request was pending when it was opened.
    progress, budget
        The callback for events, and the budget of the run.
    """

    plan: Plan
    store: ReplyStore
    engine: Engine | None
    progress: Progress
    budget: Budget

    async def ask(self, parts: Iterable[Plan]) -> str | None:
        """Send the pending requests; return why it ended before all were sent, or None.

        Parameters
        ----------
        parts
            The plan, or parts of it as `Plan.part` returns them. Each part is taken from the iterable when the one
            before is complete, so it may depend on the results.

        Raises
        ------
        RefusalIndexError
            If a model cannot be asked, or a part could not be completed: replies are kept.
        """
        rounds = (round_ for part in parts for round_ in self._rounds(part))
        if self.engine is None:
            for _ in rounds:
                pass
            return None
        # Requests in flight are collected whatever is left of the budget.
        ended = None if self.engine.together else self.budget.used_up()
        if ended is not None:
            return ended
        plan = self.plan
        context = (plan.settings, plan.folder, self.engine, self.store, self.progress, self.budget, plan.dataset.name)
        return await execute_rounds(rounds, *context)

    def _rounds(self, part: Plan) -> Iterator[Round]:
        """Yield the pending conversations of a part, once the store holds its questions."""
        for variant in part.procedures:
            self.store.require(variant, part.draws[variant])
        pending = part.pending(self.store)
        if pending and part.folder.read_about().get(STOPPED):
            part.folder.change_about({STOPPED: None})  # it continues, and may stop at another look
        if self.engine is not None and self.engine.together:
            yield "", part.by_question(pending, self.store)
        else:
            for variant in pending:
                yield variant, list(part.conversations(variant, self.store))

    def results(self, ended: str | None = None) -> Run:
        """Write the results so far, and return them.

        Parameters
        ----------
        ended
            Why sending ended early, as `ask` returns it.

        Raises
        ------
        RunFailedError
            If there is no reply yet; WaitingError if that is as planned.
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


async def execute_rounds(
    rounds: Iterable[Round],
    settings: Settings,
    folder: RunFolder,
    engine: Engine,
    store: ReplyStore,
    progress: Progress,
    budget: Budget,
    dataset: str = "",
) -> str | None:
    """Execute rounds one after the other; each is taken from the iterable when the one before is complete.

    Parameters
    ----------
    rounds
        What to ask.
    settings, folder, engine, store, dataset
        The engine, where replies and other files go, and the name of the questions.
    progress, budget
        The callback for events, and the budget.

    Returns
    -------
    str or None
        Why it ended, as planned, before all requests were sent.

    Raises
    ------
    RunFailedError
        If a round could not be completed.
    """
    breaker = CircuitBreaker()
    budget.on_end = partial(breaker.open, planned=True)
    errors: list[Exception] = []

    def watch(event: Event) -> None:
        """Pass an event on; an error in the callback ends the run cleanly, so that no reply is lost."""
        if not errors:
            try:
                progress(event)
            except Exception as error:
                errors.append(error)
                breaker.open("the progress callback failed")

    async with engine.open(store):
        for name, conversations in rounds:
            if not conversations:
                continue
            watch(Begun(name))
            await engine.execute(
                Assignment(dataset, name, conversations, settings, store, folder, watch, breaker, budget)
            )
            if errors:
                raise errors[0]
            if breaker.planned:
                return breaker.reason
            if breaker.reason is not None:
                label = "-".join(filter(None, (dataset, name)))
                raise RunFailedError(f"{label}: {breaker.reason}" if label else breaker.reason)
    return None


def sizes_of(plan: Plan, looks: int) -> tuple[int, ...]:
    """Return the number of questions at each look: equal portions, the last look after all questions."""
    return GroupSequential.planned(len(plan.dataset.questions), looks).sizes


async def execute_in_looks(
    plan: Plan,
    sizes: tuple[int, ...],
    decide: Decide,
    progress: Progress = unwatched,
    budget: Budget | None = None,
    *,
    about: Mapping[str, Any] | None = None,
) -> Run:
    """Ask the questions of a plan in portions until `decide` returns a reason to stop.

    A resumed run starts with the first look at no fewer questions than it has asked.

    Parameters
    ----------
    plan, progress, budget
        The arguments of `execute`.
    sizes
        The number of questions at each look, in increasing order, as `sizes_of` returns them.
    decide
        Called at every complete look, including the last.
    about
        What to record about the looks in the run's folder, before the first of them.

    Raises
    ------
    RefusalIndexError
        As `execute` does, or as `decide` does.
    KeyboardInterrupt
        If it was interrupted; replies are kept.
    """
    latest: Run | None = None
    stop: Stop | None = None

    def parts() -> Iterator[Plan]:
        nonlocal latest, stop
        before = len({question_id for draws in run.store.draws().values() for question_id in draws})
        for look, size in enumerate(sizes, 1):
            if size < before:
                continue
            yield plan.part(frozenset(sample(plan.dataset, size, plan.settings.seed).questions))
            latest = run.results()
            why = decide(latest, size)
            if why is not None and size < sizes[-1]:
                stop = Stop(size, sizes[-1], look, len(sizes), why)
                return

    with open_plan(plan, _report_once(progress), budget) as run:
        if about:
            plan.folder.change_about(about)
        ended = await run.ask(parts())
        if stop is not None:
            plan.folder.change_about({STOPPED: stop.to_document()})
        elif ended is None and latest is not None:
            return latest
        return run.results(ended)


def narrow_enough(enough: float) -> Decide:
    """Return a `Decide` function that stops once the interval of the Refusal Index is narrow enough.

    The interval is not adjusted for the looks: its width says next to nothing about the error of the estimate, so
    coverage at the stop is nominal. A run without an index, at a boundary or with missing grades has no such interval.
    """

    def decide(run: Run, _asked: int) -> str | None:
        half_width = half_width_of(run.summary) if run.is_complete else None
        if half_width is None or half_width > enough:
            return None
        return f"the interval of RI has a half-width of {half_width:.3f}, and {enough:g} is enough"

    return decide


def _report_once(progress: Progress) -> Progress:
    """Report each finished question once, although later looks include the questions of earlier ones."""
    seen: set[tuple[str, str]] = set()

    def report(event: Event) -> None:
        if isinstance(event, Finished):
            key = event.variant, event.question_id
            if key in seen:
                return
            seen.add(key)
        progress(event)

    return report
