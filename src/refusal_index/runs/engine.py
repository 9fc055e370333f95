"""The interface of an engine: it takes settings and conversations, and stores replies.

Everything else follows from the store, so that one engine may finish what another began.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from refusal_index.data.folder import RunFolder
from refusal_index.data.run_json import Prices
from refusal_index.errors import RefusalIndexError
from refusal_index.models.failures import (
    RESUMES,
    CircuitBreaker,
    EndedError,
    Failure,
    RequestFailedError,
    send_with_retries,
)
from refusal_index.models.requests import ModelRequest, Send, model_request, to_completions, variant_of
from refusal_index.protocol import Completion, Conversation, PendingRequest, Role, next_requests
from refusal_index.runs.budget import Budget
from refusal_index.runs.settings import Limits, Settings
from refusal_index.runs.store import ReplyStore, StoreError, StoreGoneError


class GroupCommit:
    """Puts replies into a store, those together that come within one turn of the event loop.

    Parameters
    ----------
    store
        Where they go.
    """

    def __init__(self, store: ReplyStore) -> None:
        self._store = store
        self._waiting: list[tuple[Sequence[Completion], asyncio.Future[None]]] = []

    async def put(self, completions: Sequence[Completion]) -> None:
        """Keep replies; they are safe when this returns.

        Raises
        ------
        StoreError
            If they cannot be written.
        """
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._write)
        done = loop.create_future()
        self._waiting.append((completions, done))
        await done

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            self._store.put([one for completions, _ in waiting for one in completions])
        except Exception:  # what cannot be kept is told of itself alone
            for completions, done in waiting:
                self._write_one(completions, done)
            return
        for _, done in waiting:
            if not done.done():
                done.set_result(None)

    def _write_one(self, completions: Sequence[Completion], done: asyncio.Future[None]) -> None:
        try:
            self._store.put(completions)
        except Exception as error:
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(None)


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


class RunFailedError(RefusalIndexError, RuntimeError):
    """A run that could not be brought to its end; what was answered is kept, and running again resumes."""


class WaitingError(RunFailedError):
    """A run that ended as it was told to before there was anything to sum up; the same command goes on."""


@dataclass(frozen=True)
class Assignment:
    """What an engine is to carry: the conversations of one variant.

    Attributes
    ----------
    dataset, variant, conversations
        What to call it, and what is asked.
    settings
        Those of the run.
    folder
        Where an engine may leave files of its own, such as a journal of batches; None where it should leave none.
    store, progress
        Where replies go, and who is told.
    breaker, budget
        What ends it early, in order.
    """

    dataset: str
    variant: str
    conversations: Sequence[Conversation]
    settings: Settings
    store: ReplyStore
    folder: RunFolder | None = None
    progress: Progress = unwatched
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    budget: Budget = field(default_factory=lambda: Budget(Limits()))

    @property
    def prices(self) -> Prices:
        """What its models cost."""
        return self.settings.accounts.prices

    @cached_property
    def kept(self) -> GroupCommit:
        """Where replies go that come one by one, for the store to keep those of a moment together."""
        return GroupCommit(self.store)


class Engine(Protocol):
    """Carries requests; opened once for all variants of a run, since models may be costly to load.

    Attributes
    ----------
    together
        Whether it is handed all variants at once, so that whatever is due goes out in one wave.
    """

    together: bool

    def open(self, store: ReplyStore | None = None) -> AbstractAsyncContextManager[None]:
        """Make sure that graders grade a plain case rightly, and close all models at the end.

        Parameters
        ----------
        store
            Of the run: who has replied there is known, and need not be tried; the reply of who is goes there.

        Raises
        ------
        ModelError
            If a grader does not.
        """

    async def execute(self, assignment: Assignment) -> None:
        """Ask whatever is due, and put replies and failures into the store, until the breaker opens.

        Raises
        ------
        RunFailedError
            If it could not be brought to its end.
        KeyboardInterrupt
            If it was interrupted.
        """


MakeEngine = Callable[[Settings, Mapping[Role, str], Mapping[str, object]], Engine]
"""Makes an engine from the settings, the names of those that are asked, and objects that go by such a name."""


Explain = Callable[[Exception, Role], Failure]
"""Says what an error comes down to that a request to somebody ended in."""


async def converse(assignment: Assignment, conversation: Conversation, send: Send, explain: Explain) -> None:
    """Ask whatever is due about one question, one request after the other, until nothing is or the run has ended.

    What comes is in the store at once, and so is what a request failed for.

    Raises
    ------
    RequestFailedError
        If a request failed for good.
    StoreError
        If a reply cannot be kept.
    """
    store, question_id = assignment.store, conversation.question.question_id
    try:
        while asks := next_requests(conversation, store.completions(question_id, conversation.variant)):
            for one in asks:
                completions = await _answered(assignment, _ask(assignment, conversation, one), send, explain)
                assignment.progress(Replied(completions[0]))
    except EndedError:
        return
    except RequestFailedError as error:
        store.record_failure(conversation.variant, question_id, error.failure.message)
        raise
    store.clear_failure(conversation.variant, question_id)
    assignment.progress(Finished(conversation.variant, question_id))


async def _answered(assignment: Assignment, ask: ModelRequest, send: Send, explain: Explain) -> list[Completion]:
    """Return what a request brought, once it is in the store."""
    breaker, budget, asked = assignment.breaker, assignment.budget, ask.request.role

    async def once() -> list[Completion]:
        await budget.turn()
        if reason := budget.used_up():
            breaker.open(reason, planned=True)
            raise EndedError
        with budget.one_request():
            return to_completions(ask, await send(ask))

    completions = await send_with_retries(
        once,
        lambda error: explain(error, asked),
        breaker,
        role=asked,
        about=ask.conversation.question.question_id,
        max_retries=assignment.settings.sending.max_retries,
    )
    budget.count(completions, assignment.prices)
    try:
        await assignment.kept.put(completions)
    except StoreError as error:
        advice = "" if isinstance(error, StoreGoneError) else ": make room"
        breaker.open(f"{error}; nothing further is asked{advice}; {RESUMES}")
        raise
    except Exception as error:  # else every further reply would be paid for and lost, too
        said = f"{type(error).__name__}: {error}"[:300]
        breaker.open(f"a reply cannot be kept ({said}); nothing further is asked: please report this; {RESUMES}")
        raise
    return completions


def _ask(assignment: Assignment, conversation: Conversation, one: PendingRequest) -> ModelRequest:
    place = (one.step.pass_, one.step.role, one.draw)
    again = assignment.store.times_retired(
        conversation.question.question_id, variant_of(conversation, one.step.pass_), *place
    )
    return model_request(assignment.settings, conversation, one, again)


async def carry_concurrently(assignment: Assignment, send: Send, explain: Explain, at_once: int) -> None:
    """Ask whatever is due about every question, until nothing is or the run has ended.

    Parameters
    ----------
    assignment
        What is asked.
    send, explain
        Sends one request, and says what an error comes down to.
    at_once
        How many questions are asked at a time, each one request after the other.
    """
    waiting = iter(assignment.conversations)

    async def work() -> None:
        for conversation in waiting:
            if assignment.breaker.reason is not None:
                return
            await _settle(assignment, conversation, send, explain)

    with seldom_collecting():
        ended = await asyncio.gather(*(work() for _ in range(at_once)), return_exceptions=True)
    for error in ended:  # told once all the others have come to their end, and what they paid for is kept
        if error is not None:
            raise error


async def _settle(assignment: Assignment, conversation: Conversation, send: Send, explain: Explain) -> None:
    try:
        await converse(assignment, conversation, send, explain)
    except RequestFailedError:
        pass  # the store holds it
    except Exception:
        if assignment.breaker.reason is None:
            raise  # else the breaker tells it


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Collect garbage rarely while the block runs.

    A run keeps much and drops little in cycles: looking for them at the usual pace takes a fifth of its processor time.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
