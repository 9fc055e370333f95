"""What an engine is: it is handed settings and conversations, and puts replies into the store.

Everything else follows from the store, so that one engine may finish what another began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from refusal_index.engines.asks import Ask, Send, ask_for, completed, variant_of
from refusal_index.engines.breaker import CircuitBreaker
from refusal_index.engines.budget import Budget
from refusal_index.engines.events import Finished, Progress, Replied, unwatched
from refusal_index.engines.failures import RESUMES, EndedError, Failure, RequestFailedError
from refusal_index.engines.group_commit import GroupCommit
from refusal_index.engines.retrying import patiently
from refusal_index.engines.setting import SettingError
from refusal_index.engines.settings import Limits, Settings
from refusal_index.engines.store import ReplyStore, StoreError, StoreGoneError
from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.price import Prices
from refusal_index.protocol import Asked, Completion, Conversation, Due, due

LOOK = 0.02  # seconds between looks at what is on its way


class ModelError(SettingError):
    """A model that cannot be asked; the message says what is missing and what to do."""


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
        Where an engine may leave logs of its own; None where it should leave none.
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

    async def ended(self) -> None:
        """Wait until it ends early, and what is on its way then has come back."""
        await self.breaker.opened()
        while not self.budget.is_idle:
            await asyncio.sleep(LOOK)
        await asyncio.sleep(LOOK)  # for whoever it came to


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

    async def carry(self, assignment: Assignment) -> None:
        """Ask whatever is due, and put replies and failures into the store, until the breaker opens.

        Raises
        ------
        RunFailedError
            If it could not be brought to its end.
        KeyboardInterrupt
            If it was interrupted.
        """


MakeEngine = Callable[[Settings, Mapping[Asked, str], Mapping[str, object]], Engine]
"""Makes an engine from the settings, the names of those that are asked, and objects that go by such a name."""


Explain = Callable[[Exception, Asked], Failure]
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
        while asks := due(conversation, store.said(question_id, conversation.variant)):
            for one in asks:
                completions = await _answered(assignment, _ask(assignment, conversation, one), send, explain)
                assignment.progress(Replied(completions[0]))
    except EndedError:
        return
    except RequestFailedError as error:
        store.fail(conversation.variant, question_id, error.failure.message)
        raise
    store.finish(conversation.variant, question_id)
    assignment.progress(Finished(conversation.variant, question_id))


async def _answered(assignment: Assignment, ask: Ask, send: Send, explain: Explain) -> list[Completion]:
    """Return what a request brought, once it is in the store."""
    breaker, budget, asked = assignment.breaker, assignment.budget, ask.request.asked

    async def once() -> list[Completion]:
        await budget.turn()
        if reason := budget.used_up():
            breaker.open(reason, planned=True)
            raise EndedError
        with budget.one_request():
            return completed(ask, await send(ask))

    completions = await patiently(
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


def _ask(assignment: Assignment, conversation: Conversation, one: Due) -> Ask:
    place = (one.step.of, one.step.asked, one.draw)
    again = assignment.store.times_retired(
        conversation.question.question_id, variant_of(conversation, one.step.of), *place
    )
    return ask_for(assignment.settings, conversation, one, again)
