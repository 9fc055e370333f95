"""The engine that sends all pending requests in rounds, through any executor."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from itertools import islice
from typing import Protocol

from refusal_index.data.folder import RunFolder
from refusal_index.models.accounts import asked_as
from refusal_index.models.failures import FIRST_WAIT, MAX_WAIT, RESUMES, Failure
from refusal_index.models.functions import is_function_name
from refusal_index.models.requests import ModelError, ModelRequest
from refusal_index.models.sent import Sent
from refusal_index.models.settings import SettingError
from refusal_index.plugins.batches.formats import FORMATS, RequestResult, ResultError, is_singly, read_result
from refusal_index.plugins.batches.rounds import Pending, ResultMerger, question_states, stored_ids
from refusal_index.protocol import Completion, Conversation, Role, next_requests
from refusal_index.runs.direct import IN_PROCESS_CONCURRENCY, DirectEngine
from refusal_index.runs.engine import Assignment
from refusal_index.runs.events import Finished, Underway
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, StoreError

MAX_ROUND = 100_000
"""Maximum number of requests in a round, which is held in memory; executors that need all requests at once ignore it.
"""


def models_by_role(names: Mapping[Role, str], objects: Mapping[str, object]) -> dict[Role, str]:
    """Return the models that an engine asks by name: all but functions.

    Parameters
    ----------
    names, objects
        The names by role, and the objects in memory by name.

    Raises
    ------
    ModelError
        If a model is given as an object that only Inspect can ask.
    """
    models = {role: name for role, name in names.items() if not (is_function_name(name) or callable(objects.get(name)))}
    for name in models.values():
        if name in objects:
            raise ModelError(f"model {name!r}: this engine asks for models by name; choose {{engine}} direct")
    return models


class Executor(Protocol):
    """Sends the requests of a round to a service that processes many requests at once.

    Attributes
    ----------
    gives_choices
        Whether one request may ask for several replies.
    max_requests
        Maximum number of requests in one call; None for no limit.
    """

    gives_choices: bool
    max_requests: int | None

    def open(self, folder: RunFolder | None) -> AbstractAsyncContextManager[None]:
        """Acquire resources, load the executor's state from the run's folder, and release the resources on exit.

        Raises
        ------
        ModelError
            If a model cannot be used.
        """

    def in_flight(self) -> frozenset[str]:
        """Return the ids of requests that were sent before and whose results have not been yielded yet."""

    def sent(self, request: ModelRequest, name: str) -> Sent:
        """Return the decoding settings in the body of a request to the model of that name."""

    def execute(
        self, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, RequestResult], None]:
        """Yield results by id as they arrive; a request without a result counts as failed and may be retried.

        The generator ends early once the circuit breaker is open; results that are still to come can be collected
        by a later command.
        """


class BatchEngine:
    """Sends requests in rounds.

    Parameters
    ----------
    settings, names, objects
        The arguments of `MakeEngine`; models that are functions are called in this process.
    executor
        Sends all other requests.
    """

    together = True

    def __init__(
        self, settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object], executor: Executor
    ) -> None:
        self._names = names
        self._executor = executor
        models = models_by_role(names, objects)
        functions = {role: name for role, name in names.items() if role not in models}
        self._functions = DirectEngine(settings, functions, objects)
        self._own = frozenset(functions)
        self._counted: frozenset[str] = frozenset()  # requests already charged to the budget

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:
        """Open the executor with the folder that holds the store."""
        folder = RunFolder(store.path.parent) if store is not None and store.path is not None else None
        async with self._executor.open(folder):
            yield

    async def execute(self, assignment: Assignment) -> None:
        """Send rounds until every pending request has a reply or has failed permanently."""
        attempts = Attempts(assignment, self._names)
        wait = 0.0
        by_question: dict[str, list[Conversation]] = {}
        for conversation in assignment.conversations:
            question_id = conversation.question.question_id
            variant = conversation.variant
            by_question.setdefault(question_id, []).append(conversation)
            if not next_requests(conversation, assignment.store.completions(question_id, variant)):
                assignment.store.clear_failure(variant, question_id)
                assignment.progress(Finished(variant, question_id))
        while assignment.breaker.reason is None:
            requests = self._affordable(self._next_round(assignment, attempts), assignment)
            if not requests:
                return
            if wait:
                await assignment.breaker.wait(wait)
            if assignment.breaker.reason is not None:
                return
            attempts.begin(requests)
            self._note_sent(requests, assignment)
            assignment.progress(Underway(f"{len(requests):,} requests in flight"))
            replies = 0
            async with aclosing(self._results(requests, assignment)) as groups:
                async for results in groups:
                    replies += self._merge(results, assignment, attempts, by_question)
            wait = 0.0 if replies else min(max(2 * wait, FIRST_WAIT), MAX_WAIT)

    def _note_sent(self, requests: Iterable[Pending], assignment: Assignment) -> None:
        for pending in requests:
            role = pending.ask.request.role
            if role not in self._own:
                assignment.sent.note(pending.ask, self._executor.sent(pending.ask, self._names[role]))

    def _next_round(self, assignment: Assignment, attempts: Attempts) -> list[Pending]:
        states = question_states(assignment.conversations, assignment.store, assignment.settings, self._names)
        singly = not (self._executor.gives_choices and attempts.give_choices)
        requests = (pending for state in states for pending in state.all_pending(singly=singly))
        in_flight = self._executor.in_flight()  # includes requests of this command that have not come back yet
        open_requests = (
            request for request in requests if request.custom_id in in_flight or not attempts.is_exhausted(request)
        )
        return list(islice(open_requests, self._executor.max_requests))

    def _affordable(self, requests: list[Pending], assignment: Assignment) -> list[Pending]:
        """Return the requests that the budget allows; requests in flight are already paid for."""
        budget = assignment.budget
        earlier = self._executor.in_flight()
        budget.sent(len(earlier - self._counted))
        old = [request for request in requests if request.custom_id in earlier]
        new = [request for request in requests if request.custom_id not in earlier][: budget.requests_left()]
        if requests and not (old or new):
            assignment.breaker.open(budget.used_up() or "the budget is used up", planned=True)
        budget.sent(len(new))
        self._counted = self._counted | earlier | {request.custom_id for request in new}
        return [*old, *new]

    async def _results(
        self, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, RequestResult], None]:
        own_requests = [request for request in requests if request.ask.request.role in self._own]
        others = [request for request in requests if request.ask.request.role not in self._own]
        concurrency = assignment.settings.sending.max_connections or IN_PROCESS_CONCURRENCY
        for start in range(0, len(own_requests), concurrency):  # calls may cost money, so store after each group
            if assignment.breaker.reason is not None:
                return
            group = own_requests[start : start + concurrency]
            yield {result.custom_id: result for result in await asyncio.gather(*map(self._call, group))}
        if others:
            async with aclosing(self._executor.execute(others, assignment)) as groups:
                async for results in groups:
                    yield results

    async def _call(self, pending: Pending) -> RequestResult:
        try:
            return RequestResult(pending.custom_id, response=await self._functions.send(pending.ask))
        except Exception as error:  # a user's function may raise anything
            return RequestResult(
                pending.custom_id, failure=self._functions.classify_error(error, pending.ask.request.role)
            )

    def _merge(
        self,
        results: Mapping[str, RequestResult],
        assignment: Assignment,
        attempts: Attempts,
        by_question: Mapping[str, Sequence[Conversation]],
    ) -> int:
        """Store results, and return the number of replies among them."""
        store = assignment.store
        conversations = [
            conversation
            for question_id in sorted(attempts.question_ids(results))
            for conversation in by_question[question_id]
        ]
        merger = ResultMerger(results, store, assignment.progress, attempts.replied, attempts.failed)
        try:
            states = question_states(conversations, store, assignment.settings, self._names)
            return merger.merge(states).replies
        except StoreError as error:
            assignment.breaker.open(f"{error}; no further request is sent; {RESUMES}")
            raise


class Attempts:
    """Counts the failures of each request, and remembers which requests must not be sent again.

    Parameters
    ----------
    assignment, names
        The requests to send, and the model names by role.

    Attributes
    ----------
    give_choices
        False once a response held fewer choices than were requested.
    """

    def __init__(self, assignment: Assignment, names: Mapping[Role, str]) -> None:
        self._assignment = assignment
        self._names = names
        self._failures: Counter[str] = Counter()
        self._over: set[str] = set()
        self._sent: dict[str, str] = {}  # the question of each request of the current round
        self._answered: set[str] = set()
        self.give_choices = True

    def begin(self, requests: Sequence[Pending]) -> None:
        """Begin a round."""
        self._sent = {request.custom_id: request.ask.conversation.question.question_id for request in requests}
        self._answered = set()

    def question_ids(self, results: Mapping[str, RequestResult]) -> set[str]:
        """Return the ids of the questions that the results belong to."""
        return {self._sent[name] for name in results if name in self._sent}

    def is_exhausted(self, pending: Pending) -> bool:
        """Whether a request must not be sent again; one without a result in the last round counts as failed."""
        name = pending.custom_id
        if name in self._sent and name not in self._answered:
            self.failed(pending, Failure("no result came back", self._names[pending.ask.request.role]))
        return name in self._over

    def replied(self, pending: Pending, completions: list[Completion]) -> None:
        """Count the usage of a response."""
        assignment = self._assignment
        self._answered.add(pending.custom_id)
        if len(completions) < pending.ask.n:
            self.give_choices = False
        assignment.budget.count(completions, assignment.settings.accounts.prices)
        assignment.breaker.worked(pending.ask.request.role)

    def failed(self, pending: Pending, failure: Failure) -> None:
        """Count a failed request; if it may be retried, it is sent with the next round."""
        assignment = self._assignment
        role = pending.ask.request.role
        name = pending.custom_id
        conversation = pending.ask.conversation
        question_id = conversation.question.question_id
        is_new = name not in self._answered  # otherwise another variant has reported it
        self._answered.add(name)
        self._failures[name] += is_new
        if failure.kind.is_sent_again and self._failures[name] <= assignment.settings.sending.max_retries:
            if is_new:
                assignment.breaker.troubled(role, question_id, failure)
            return
        self._over.add(name)
        assignment.store.record_failure(conversation.variant, question_id, failure.message)
        assignment.breaker.failed(role, question_id, failure)


class FilesEngine:
    """Creates a run whose requests are written to files by ``refusal-index requests``; sends nothing.

    Parameters
    ----------
    settings, names, objects
        The arguments of `MakeEngine`.
    """

    together = True

    def __init__(self, settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> None:  # noqa: ARG002 - required by the protocol
        self._settings = settings
        self._names = names

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:  # noqa: ARG002 - required by the protocol
        """Do nothing."""
        yield

    async def execute(self, assignment: Assignment) -> None:
        """Stop the run with a message that says how many requests are pending and how to write them to files."""
        states = question_states(assignment.conversations, assignment.store, assignment.settings, self._names)
        singly = is_singly(self._settings.servers, self._names)
        pending = sum(1 for state in states for _ in state.all_pending(singly=singly))
        path = assignment.folder.path if assignment.folder else "RUN"
        assignment.breaker.open(
            f"{pending:,} requests are pending, and nothing was sent: 'refusal-index requests {path} --out FILE' "
            f"writes them, 'refusal-index replies {path} FILE' reads their results",
            planned=True,
        )


FOLDER = "rounds"
"""The subfolder of a run for results that are not in the store yet."""

REPLIES = ".replies.jsonl"
"""The suffix of its files from `command`."""


def refuse_left(folder: RunFolder, pattern: str) -> None:
    """Raise if an engine left result files that another one cannot read, so it would pay for them again.

    Parameters
    ----------
    folder, pattern
        The run's folder, and a glob pattern of the files.

    Raises
    ------
    SettingError
        The message says where the files are and how to store their results.
    """
    left = sorted((folder.path / FOLDER).glob(pattern))
    if left:
        raise SettingError(
            f"{folder.path}: results that an earlier command paid for are in {left[0].parent} ({len(left):,} files, "
            f"the first {left[0].name}), and another engine would pay for them again: continue with the same "
            f"{{engine}}, or store them with 'refusal-index replies {folder.path} FILE...' and remove them"
        )


class FileExecutor(Executor, ABC):
    """Sends requests, one model after the other, through result files that survive if the command is killed.

    Parameters
    ----------
    settings, names
        The settings of the run, and the model names, by role.
    """

    gives_choices = True
    max_requests: int | None = MAX_ROUND

    def __init__(self, settings: Settings, names: Mapping[Role, str]) -> None:
        self._settings = settings
        self._names = names
        self._left: dict[str, dict[str, RequestResult]] = {}  # replies not yet yielded, by file and id

    @abstractmethod
    def _answers(
        self, name: str, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, RequestResult], None]:
        """Send requests to one model and yield their results."""

    @abstractmethod
    def _remove(self, file: str) -> None:
        """Remove a result file; all of its replies are in the store."""

    def _load(self, files: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Load the replies in result files, given as names and lines; failed requests are left out and sent again."""
        self._left = {
            name: {
                result.custom_id: result
                for result in read_lines(lines)
                if result.response is not None and any(reply is not None for reply in result.response.replies)
            }
            for name, lines in files
        }

    def sent(self, request: ModelRequest, name: str) -> Sent:
        """Return the decoding settings in the body of a request, in the format of OpenAI-compatible servers."""
        return FORMATS["compatible"].sent(request, self._asked_as(name)[1])

    def _asked_as(self, name: str) -> tuple[str, str]:
        """Return the provider of a model, and its name there."""
        role = next(role for role, other in self._names.items() if other == name)
        return asked_as(self._settings.servers, role, name)

    def in_flight(self) -> frozenset[str]:
        """Return the ids of requests whose replies are in result files."""
        return frozenset().union(*self._left.values())

    async def execute(
        self, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, RequestResult], None]:
        """Yield the replies in result files, then send the other requests and yield their results.

        Raises
        ------
        RunFailedError
            If sending fails; results that arrived before are yielded first.
        """
        ids = {request.custom_id for request in requests}
        replies = {name: left.pop(name) for left in self._left.values() for name in ids & left.keys()}
        if replies:
            yield replies
        self._clear(assignment.store)
        for name in dict.fromkeys(self._names.values()):
            unanswered = [
                request
                for request in requests
                if self._names[request.ask.request.role] == name and request.custom_id not in replies
            ]
            if unanswered and assignment.breaker.reason is None:
                async with aclosing(self._answers(name, unanswered, assignment)) as groups:
                    async for results in groups:
                        yield results

    def _clear(self, store: ReplyStore) -> None:
        """Remove the result files whose replies are all in the store."""
        if self.in_flight():
            for name in stored_ids(store, self._names):
                for replies in self._left.values():
                    replies.pop(name, None)
        for file in [file for file, replies in self._left.items() if not replies]:
            del self._left[file]
            self._remove(file)


def read_lines(lines: Iterable[str], model: str = "the provider") -> Iterator[RequestResult]:
    """Yield the result in each line; truncated and invalid lines are skipped."""
    for line in lines:
        try:
            yield read_result(json.loads(line), model)
        except (ResultError, ValueError, RecursionError):
            continue
