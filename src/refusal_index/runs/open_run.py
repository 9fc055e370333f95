"""A run whose folder is locked and whose store is open: its requests are sent in rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from refusal_index import entry_points
from refusal_index.data.analysis import Analysis
from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import STOPPED, UNTIL
from refusal_index.findings.run_results import RunResults
from refusal_index.models.failures import CircuitBreaker
from refusal_index.protocol import Conversation, Role
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import Assignment, Engine, RunFailedError, WaitingError
from refusal_index.runs.engines import engine_of, note_on
from refusal_index.runs.events import Begun, Event, Opened, Progress, Underway, ignore_events
from refusal_index.runs.logprobs import counting_logprobs
from refusal_index.runs.model_args import record_model_args
from refusal_index.runs.outstanding import settle_outstanding
from refusal_index.runs.plan import Plan
from refusal_index.runs.results import UnfinishedError
from refusal_index.runs.sent import SentRecorder
from refusal_index.runs.servers import record_addresses
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, StoreError, open_store
from refusal_index.runs.writing import write_results

Round = tuple[str, Sequence[Conversation]]
"""The name of a round, and the conversations that the engine executes together."""


def begin(plan: Plan) -> None:
    """Write the files that a run builds on; a run without them has no folder before its first request."""
    if plan.begin is not None:
        with plan.folder.lock():
            plan.folder.create_or_resume(plan.identity, about=plan.about)
            plan.begin()


@contextmanager
def open_plan(plan: Plan, progress: Progress = ignore_events, budget: Budget | None = None) -> Iterator[OpenRun]:
    """Lock a run's folder and open its store, so that all of its questions or parts of them can be asked.

    It takes the arguments of `execute`, and raises the same errors.
    """
    folder = plan.folder
    settings = plan.settings
    begin(plan)
    with open_store(folder, made=False) as store:
        is_pending = plan.pending(store) or plan.replies_to_retire(store)
    # A wrong name or a missing key is reported before a folder is made.
    engine = engine_of(settings.sending.engine).make(settings, plan.names, plan.objects) if is_pending else None
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
                settle_outstanding(folder, store, settings, plan.names, plan.objects)
            if engine is not None:
                record_addresses(folder, store, settings, plan.names)
                if Role.MODEL in plan.names:
                    record_model_args(folder, settings)
            store.retire(plan.replies_to_retire(store))
            budget = budget or Budget(settings.limits)
            if engine is not None:
                budget.count_earlier(folder.path, store.paid(), plan.prices)
            pending = plan.pending(store)
            finished = sum(len(draws) for variant, draws in plan.draws.items() if variant not in pending)
            report(Opened(finished, ALL_STORED if engine is None else note_on(settings.sending, plan.graders)))
            watch(store)
            yield OpenRun(plan, store, engine, report, budget)


ALL_STORED = "0 requests are sent: all replies are stored already"
"""Note on a run that has nothing left to ask."""

StoreWatcher = Callable[[ReplyStore], None]
"""Called with the store of a run once it is open."""

Tracked = AbstractContextManager[tuple[Progress, StoreWatcher]]


def tracked(plan: Plan, progress: Progress) -> Tracked:
    """Let the trackers named in the settings follow the run inside the block, which must end with its folder closed."""
    if not plan.settings.log_to:
        return nullcontext((progress, lambda _store: None))
    following: Tracked = entry_points.hook("trackers").tracked(plan, progress)
    return following


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
        with counting_logprobs(plan.folder, self.progress, is_on=plan.settings.sending.logprobs) as progress:
            context = (plan.settings, plan.folder, self.engine, self.store, progress, self.budget, plan.dataset.name)
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

    def results(self, ended: str | None = None) -> RunResults:
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
                Analysis(
                    weighted_score_p=accounts.weighted_score_p, truthfulness_weights=accounts.truthfulness_weights
                ),
                detector=self.plan.detector,
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
    breaker = CircuitBreaker(time_limit=budget)
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

    sent = SentRecorder(
        folder, settings.model, settings.decoding, lambda line: watch(Underway(f"note: {line}", is_notice=True))
    )
    async with engine.open(store):
        for name, conversations in rounds:
            if not conversations:
                continue
            breaker.end_if_all_failed(store.has_reply_from)
            if breaker.reason is not None:
                raise RunFailedError(breaker.reason)
            watch(Begun(name))
            await engine.execute(
                Assignment(dataset, name, conversations, settings, store, folder, watch, breaker, budget, sent)
            )
            if errors:
                raise errors[0]
            if breaker.planned:
                return breaker.reason
            if breaker.reason is not None:
                label = "-".join(filter(None, (dataset, name)))
                raise RunFailedError(f"{label}: {breaker.reason}" if label else breaker.reason)
    return None
