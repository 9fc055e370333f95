"""The engines that send requests in waves, whoever executes them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from itertools import islice
from typing import Protocol

from refusal_index.data.folder import RunFolder
from refusal_index.models.failures import RESUMES, Failure
from refusal_index.models.functions import is_function_name
from refusal_index.plugins.batches.formats import Result, is_singly
from refusal_index.plugins.batches.spool import Watch, take
from refusal_index.plugins.batches.wave import Pending, question_states, wave
from refusal_index.protocol import Completion, Conversation, Role, next_requests
from refusal_index.runs.engine import IN_PROCESS_CONCURRENCY, Assignment, DirectEngine, Finished, Underway
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, StoreError

LARGEST_WAVE = 100_000
"""Requests that are held in memory and handed to an executor together, unless they have to be all there at once."""

FIRST_WAIT, LONGEST_WAIT = 2.0, 60.0
"""Seconds before requests that failed are sent again, doubled from wave to wave."""


class Executor(Protocol):
    """Has the requests of a wave answered, by whatever is made for many of them at once.

    Attributes
    ----------
    gives_choices
        Whether one request may ask for several replies.
    largest_wave
        How many requests it is handed together at most; None for all, since they had better be in flight together.
    """

    gives_choices: bool
    largest_wave: int | None

    def open(self, folder: RunFolder | None) -> AbstractAsyncContextManager[None]:
        """Make ready what it needs, with what it keeps in the run's folder, and free it at the end.

        Raises
        ------
        ModelError
            If a model cannot be asked.
        """

    def in_flight(self) -> frozenset[str]:
        """Return the ids of requests that were sent by an earlier command, and whose results are still to come."""

    def execute(
        self, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, Result], None]:
        """Yield results as they come, by id; none for a request is as good as a failure that passes.

        It ends early once the breaker of the assignment is open; what can be had later is then left for later.
        """


class WaveEngine:
    """Carries requests in waves.

    Parameters
    ----------
    settings, names, objects
        As any engine takes them; functions are called within this process.
    executor
        Who has the others answered.
    """

    together = True

    def __init__(
        self, settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object], executor: Executor
    ) -> None:
        self._names, self._executor = names, executor
        own = {asked: name for asked, name in names.items() if is_function_name(name) or callable(objects.get(name))}
        self._functions = DirectEngine(settings, own, objects)
        self._own = frozenset(own)
        self._counted: frozenset[str] = frozenset()  # requests that are or were in flight, and the budget knows of

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:
        """Make the executor ready, with the folder that the store lies in."""
        folder = RunFolder(store.path.parent) if store is not None and store.path is not None else None
        async with self._executor.open(folder):
            yield

    async def execute(self, assignment: Assignment) -> None:
        """Send out one wave after the other until nothing is due, or what is has failed for good."""
        tries, wait = Tries(assignment, self._names), 0.0
        about: dict[str, list[Conversation]] = {}
        for one in assignment.conversations:
            about.setdefault(one.question.question_id, []).append(one)
        _tell_finished(assignment)
        while assignment.breaker.reason is None:
            requests = self._affordable(self._wave(assignment, tries), assignment)
            if not requests:
                return
            if wait:
                await assignment.breaker.wait(wait)
            if assignment.breaker.reason is not None:
                return
            tries.send(requests)
            assignment.progress(Underway(f"{len(requests):,} requests in flight"))
            taken = 0
            async with aclosing(self._results(requests, assignment)) as groups:
                async for results in groups:
                    taken += self._take(results, assignment, tries, about)
            wait = 0.0 if taken else min(max(2 * wait, FIRST_WAIT), LONGEST_WAIT)

    def _wave(self, assignment: Assignment, tries: Tries) -> list[Pending]:
        talks = question_states(assignment.conversations, assignment.store)
        singly = not (self._executor.gives_choices and tries.give_choices)
        requests = wave(talks, assignment.settings, self._names, singly=singly)
        on_its_way = self._executor.in_flight()  # also what this command sent, where others came back before
        wanted = (one for one in requests if one.custom_id in on_its_way or not tries.are_over(one))
        return list(islice(wanted, self._executor.largest_wave))

    def _affordable(self, requests: list[Pending], assignment: Assignment) -> list[Pending]:
        """Return the requests that the budget has room for; those that are in flight already cost nothing more."""
        budget, earlier = assignment.budget, self._executor.in_flight()
        budget.sent(len(earlier - self._counted))  # they cost what they cost, and nobody has counted them yet
        old = [one for one in requests if one.custom_id in earlier]
        new = [one for one in requests if one.custom_id not in earlier][: budget.room()]
        if requests and not (old or new):
            assignment.breaker.open(budget.used_up() or "the budget is used up", planned=True)
        budget.sent(len(new))
        self._counted = self._counted | earlier | {one.custom_id for one in new}
        return [*old, *new]

    async def _results(
        self, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, Result], None]:
        here = [one for one in requests if one.ask.request.role in self._own]
        away = [one for one in requests if one.ask.request.role not in self._own]
        at_once = assignment.settings.sending.max_connections or IN_PROCESS_CONCURRENCY
        for start in range(0, len(here), at_once):  # what a function says may have been paid for: a kill loses few
            if assignment.breaker.reason is not None:
                return
            some = here[start : start + at_once]
            yield {one.custom_id: one for one in await asyncio.gather(*map(self._called, some))}
        if away:
            async with aclosing(self._executor.execute(away, assignment)) as groups:
                async for results in groups:
                    yield results

    async def _called(self, pending: Pending) -> Result:
        try:
            return Result(pending.custom_id, response=await self._functions.send(pending.ask))
        except Exception as error:  # whatever a user's function raises
            return Result(pending.custom_id, failure=self._functions.classify_error(error, pending.ask.request.role))

    def _take(
        self,
        results: Mapping[str, Result],
        assignment: Assignment,
        tries: Tries,
        about: Mapping[str, Sequence[Conversation]],
    ) -> int:
        """Enter results, and return how many replies were among them."""
        conversations = [one for question_id in sorted(tries.about(results)) for one in about[question_id]]
        watch = Watch(assignment.progress, tries.replied, tries.failed)
        try:
            talks = question_states(conversations, assignment.store)
            taken = take(talks, results, assignment.store, assignment.settings, self._names, watch)
        except StoreError as error:
            assignment.breaker.open(f"{error}; nothing further is asked; {RESUMES}")
            raise
        return taken.replies


def _tell_finished(assignment: Assignment) -> None:
    """Tell of every question of which nothing is due from the start."""
    for conversation in assignment.conversations:
        question_id, variant = conversation.question.question_id, conversation.variant
        if not next_requests(conversation, assignment.store.completions(question_id, variant)):
            assignment.store.clear_failure(variant, question_id)
            assignment.progress(Finished(variant, question_id))


class Tries:
    """How often requests were sent in vain, and which of them are given up.

    Parameters
    ----------
    assignment, names
        What is asked, and whom.

    Attributes
    ----------
    give_choices
        Whether whoever was asked gave as many choices as it was asked for, as far as known.
    """

    def __init__(self, assignment: Assignment, names: Mapping[Role, str]) -> None:
        self._assignment, self._names = assignment, names
        self._times: Counter[str] = Counter()
        self._over: set[str] = set()
        self._out: dict[str, str] = {}  # the question of each request of the wave that is out
        self._heard: set[str] = set()
        self.give_choices = True

    def send(self, requests: Sequence[Pending]) -> None:
        """Take note of the wave that goes out."""
        self._out = {one.custom_id: one.ask.conversation.question.question_id for one in requests}
        self._heard = set()

    def about(self, results: Mapping[str, Result]) -> set[str]:
        """Return the ids of the questions that results are about."""
        return {self._out[one] for one in results if one in self._out}

    def are_over(self, pending: Pending) -> bool:
        """Whether a request is not to be sent again; one of the last wave that nothing came back for has failed."""
        name = pending.custom_id
        if name in self._out and name not in self._heard:
            self.failed(pending, Failure("no result came back", self._names[pending.ask.request.role]))
        return name in self._over

    def replied(self, pending: Pending, completions: list[Completion]) -> None:
        """Count what a response took."""
        assignment = self._assignment
        self._heard.add(pending.custom_id)
        if len(completions) < pending.ask.n:
            self.give_choices = False
        assignment.budget.count(completions, assignment.prices)
        assignment.breaker.worked(pending.ask.request.role)

    def failed(self, pending: Pending, failure: Failure) -> None:
        """Take note of a request that failed; one that may be sent again goes with the next wave."""
        assignment, role = self._assignment, pending.ask.request.role
        conversation = pending.ask.conversation
        question_id = conversation.question.question_id
        is_new = pending.custom_id not in self._heard  # else another variant has told of it
        self._heard.add(pending.custom_id)
        self._times[pending.custom_id] += is_new
        times = self._times[pending.custom_id]
        if failure.kind.is_sent_again and times <= assignment.settings.sending.max_retries:
            if is_new:
                assignment.breaker.troubled(role, question_id, failure)
            return
        self._over.add(pending.custom_id)
        assignment.store.record_failure(conversation.variant, question_id, failure.message)
        assignment.breaker.failed(role, question_id, failure)


class FilesEngine:
    """Makes a run ready for files of requests.

    Parameters
    ----------
    settings, names, objects
        As any engine takes them.
    """

    together = True

    def __init__(self, settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> None:  # noqa: ARG002 - as engines do
        self._names = names

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:  # noqa: ARG002 - as engines do
        """Open nothing."""
        yield

    async def execute(self, assignment: Assignment) -> None:
        """Say how many requests are due, and how to have them written."""
        talks = question_states(assignment.conversations, assignment.store)
        due = sum(1 for _ in wave(talks, assignment.settings, self._names, singly=is_singly(self._names)))
        path = assignment.folder.path if assignment.folder else "RUN"
        assignment.breaker.open(
            f"{due:,} requests are due, and nothing was sent: 'refusal-index requests {path} --out FILE' writes them, "
            f"'refusal-index replies {path} FILE' takes their results in",
            planned=True,
        )
