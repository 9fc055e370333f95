"""What an engine is: it is handed settings and conversations, and puts replies into the store.

Everything else follows from the store, so that one engine may finish what another began.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, repeat
from typing import Protocol

from refusal_index.engines.breaker import CircuitBreaker
from refusal_index.engines.budget import Budget
from refusal_index.engines.failures import RESUMES, EndedError, Failure, NoAnswerError, RequestFailedError
from refusal_index.engines.group_commit import GroupCommit
from refusal_index.engines.retrying import patiently
from refusal_index.engines.setting import SettingError
from refusal_index.engines.settings import Decoding, Limits, Settings
from refusal_index.engines.store import ReplyStore, StoreError, StoreGoneError
from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.price import Prices
from refusal_index.protocol import (
    Asked,
    Completion,
    Conversation,
    Due,
    Pass,
    Reply,
    Request,
    StopReason,
    due,
    request_seed,
)

LOOK = 0.02  # seconds between looks at what is on its way

MOST_TOKENS = 2**31
"""Most tokens of one response: a larger count is a provider's mistake, as is a negative one."""

MOST_ALTERNATIVES = 20
"""Most tokens that providers report in each place of a reply."""


class ModelError(SettingError):
    """A model that cannot be asked; the message says what is missing and what to do."""


class RunFailedError(RefusalIndexError, RuntimeError):
    """A run that could not be brought to its end; what was answered is kept, and running again resumes."""


class WaitingError(RunFailedError):
    """A run that ended as it was told to before there was anything to sum up; the same command goes on."""


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


Event = Opened | Begun | Replied | Finished | Underway
Progress = Callable[[Event], None]
"""Is told what happens while models are asked."""


def unwatched(_event: Event) -> None:
    """Take no note of anything."""


@dataclass(frozen=True)
class Ask:
    """A request that is about to be sent.

    Attributes
    ----------
    conversation, due, request
        What it is about, whereabouts, and in words.
    seed, choices
        As the provider is told.
    decoding
        How the model generates; None for a grader, which goes by its own defaults.
    top_logprobs
        How many of the likeliest tokens are to be reported in each place of the reply, with their log probabilities: 0
        for the chosen one only, None for no report. It changes no reply, and so is no part of the hash.
    """

    conversation: Conversation
    due: Due
    request: Request
    seed: int
    choices: int
    decoding: Decoding | None
    top_logprobs: int | None = None

    @cached_property
    def sha256(self) -> str:
        """The hash of all that is asked, which tells it from every other request of a run."""
        asked = {
            "question_id": self.conversation.question.question_id,
            "variant": variant_of(self.conversation, self.request.of),
            "draw": self.due.draw,
            "seed": self.seed,
            # as `asdict` would, in a tenth of its time
            "request": {**vars(self.request), "messages": [vars(one) for one in self.request.messages]},
            "decoding": self.decoding and vars(self.decoding),
        }
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Response:
    """What came back for a request: one choice or several, and what they took together.

    Attributes
    ----------
    replies
        Text and stop reason of each choice, as the protocol knows them; None for a choice that holds no answer.
    input_tokens, output_tokens, seconds
        Of the whole response.
    logprobs
        Of each choice, as JSON; None for one of which nothing was reported, empty where nothing was of any.
    """

    replies: Sequence[tuple[str, StopReason] | None]
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float | None = None
    logprobs: Sequence[str | None] = ()


Send = Callable[[Ask], Awaitable[Response]]
"""Sends one request, once; it raises what the provider raises."""


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
        return self.settings.prices

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


def ask_for(settings: Settings, conversation: Conversation, one: Due, again: int = 0) -> Ask:
    """Put what is due into a request with its seed.

    Parameters
    ----------
    settings, conversation, one
        Those of the run, and what is due about what.
    again
        How many replies to it were set aside, to be asked for again: each request has a seed of its own.
    """
    question = conversation.question
    request = conversation.procedure.request(one.step, question)
    attempt = replace(request, attempt=request.attempt + again) if again else request
    seed = conversation.seed
    if seed is None:
        seed = request_seed(settings.seed, question.question_id, one.draw, conversation.variant, attempt)
    decoding = settings.decoding if request.asked is Asked.MODEL else None
    choices = min(one.choices, settings.sending.max_choices)
    return Ask(conversation, one, request, seed, choices, decoding, _top_logprobs(settings, request))


def _top_logprobs(settings: Settings, request: Request) -> int | None:
    if not settings.sending.logprobs or request.asked is not Asked.MODEL:
        return None
    return MOST_ALTERNATIVES if request.of is Pass.PROBE else 0


def completed(ask: Ask, response: Response) -> list[Completion]:
    """Return a completion for every choice of a response that holds an answer; what it took goes with the first.

    Raises
    ------
    NoAnswerError
        If there is none.
    """
    variant = variant_of(ask.conversation, ask.request.of)
    reported = chain(response.logprobs, repeat(None))
    found = [
        Completion(
            ask.conversation.question.question_id,
            variant,
            ask.due.draw + place,
            Reply(ask.request.of, ask.request.asked, *choice),
            ask.request.attempt,
            requests=0,
            logprobs=logprobs,
            request_sha256=ask.sha256,
        )
        for place, (choice, logprobs) in enumerate(zip(response.replies[: ask.choices], reported, strict=False))
        if choice is not None
    ]
    if not found:
        raise NoAnswerError("the response holds no answer")
    took = replace(
        found[0],
        input_tokens=_believable(response.input_tokens),
        output_tokens=_believable(response.output_tokens),
        requests=1,
        seconds=response.seconds,
    )
    return [took, *found[1:]]


def _believable(tokens: int) -> int:
    """Return a provider's count, or 0, as where there is none, for one that no response can have."""
    return tokens if 0 <= tokens <= MOST_TOKENS else 0


def variant_of(conversation: Conversation, of: Pass) -> str:
    """Return the variant that a reply belongs to: that of a forced pass belongs to all."""
    return "" if of.is_shared else conversation.variant
