"""What an engine is: it is handed settings and conversations, and puts replies into the store.

Everything else follows from the store, so that one engine may finish what another began.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from typing import Protocol

from refusal_index.engines.breaker import RESUMES, CircuitBreaker
from refusal_index.engines.settings import Decoding, SettingError, Settings
from refusal_index.engines.store import ReplyStore, StoreError
from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.folder import RunFolder
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


class ModelError(SettingError):
    """A model that cannot be asked; the message says what is missing and what to do."""


class RunFailedError(RefusalIndexError, RuntimeError):
    """A run that could not be brought to its end; what was answered is kept, and running again resumes."""


@dataclass(frozen=True)
class Opened:
    """A run's folder is open, and so many of its questions lie in variants that need nothing more."""

    finished: int


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


Event = Opened | Begun | Replied | Finished
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
    """

    conversation: Conversation
    due: Due
    request: Request
    seed: int
    choices: int
    decoding: Decoding | None

    @property
    def sha256(self) -> str:
        """The hash of all that is asked, which tells it from every other request of a run."""
        asked = {
            "question_id": self.conversation.question.question_id,
            "variant": variant_of(self.conversation, self.request.of),
            "draw": self.due.draw,
            "seed": self.seed,
            "request": asdict(self.request),
            "decoding": self.decoding and asdict(self.decoding),
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
        Of the first choice, as JSON.
    """

    replies: Sequence[tuple[str, StopReason] | None]
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float | None = None
    logprobs: str | None = None


Send = Callable[[Ask], Awaitable[Response]]
"""Carries one request; it raises what the provider raises, once it was sent again as often as told."""


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
    store, progress, breaker
        Where replies go, who is told, and what ends it early.
    """

    dataset: str
    variant: str
    conversations: Sequence[Conversation]
    settings: Settings
    store: ReplyStore
    folder: RunFolder | None = None
    progress: Progress = unwatched
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)


class Engine(Protocol):
    """Carries requests; opened once for all variants of a run, since models may be costly to load."""

    def open(self) -> AbstractAsyncContextManager[None]:
        """Make sure that graders grade a plain case rightly, and close all models at the end.

        Raises
        ------
        ModelError
            If a grader does not.
        """

    async def carry(self, assignment: Assignment) -> None:
        """Ask whatever is due, and put replies and failures into the store.

        Raises
        ------
        RunFailedError
            If it could not be brought to its end.
        KeyboardInterrupt
            If it was interrupted.
        """


MakeEngine = Callable[[Settings, Mapping[Asked, str], Mapping[str, object]], Engine]
"""Makes an engine from the settings, the names of those that are asked, and objects that go by such a name."""


@dataclass(frozen=True)
class Failure:
    """What an error of a request comes down to.

    Attributes
    ----------
    message, model
        The error in one line, and who was asked.
    lasts
        Whether it will not pass by itself, so that a row of them ends the run.
    advice
        What a user may do about it.
    """

    message: str
    model: str
    lasts: bool = False
    advice: str = RESUMES


Explain = Callable[[Exception, Asked], Failure]
"""Says what an error comes down to that a request to somebody ended in."""


async def converse(assignment: Assignment, conversation: Conversation, send: Send, explain: Explain) -> None:
    """Ask whatever is due about one question, one request after the other, until nothing is.

    What comes is in the store at once. An error is taken down there, told to the breaker and raised again.
    """
    store, breaker, question_id = assignment.store, assignment.breaker, conversation.question.question_id
    asked = Asked.MODEL
    try:
        while asks := due(conversation, store.said(question_id, conversation.variant)):
            for one in asks:
                ask = ask_for(assignment.settings, conversation, one)
                asked = ask.request.asked
                completions = completed(ask, await send(ask))
                store.put(completions)
                breaker.worked(asked)
                assignment.progress(Replied(completions[0]))
    except StoreError as error:
        breaker.open(f"{error}; nothing further is asked: make room; the same command resumes")
        raise
    except Exception as error:  # whatever the provider raises
        failure = explain(error, asked)
        if failure.lasts:
            breaker.failed(asked, failure.model, question_id, failure.message, failure.advice)
        store.fail(conversation.variant, question_id, failure.message)
        raise
    store.finish(conversation.variant, question_id)
    assignment.progress(Finished(conversation.variant, question_id))


def ask_for(settings: Settings, conversation: Conversation, one: Due) -> Ask:
    """Put what is due into a request with its seed."""
    question = conversation.question
    request = conversation.procedure.request(one.step, question)
    seed = request_seed(settings.seed, question.question_id, one.draw, conversation.variant, request)
    decoding = settings.decoding if request.asked is Asked.MODEL else None
    return Ask(conversation, one, request, seed, min(one.choices, settings.sending.max_choices), decoding)


def completed(ask: Ask, response: Response) -> list[Completion]:
    """Return a completion for every choice of a response; what it took goes with the first.

    Raises
    ------
    ValueError
        If there is no choice.
    """
    if not response.replies:
        raise ValueError("the response holds no choices")
    question_id, variant = ask.conversation.question.question_id, variant_of(ask.conversation, ask.request.of)
    found: list[Completion] = []
    sha256 = ask.sha256
    for place, choice in enumerate(response.replies[: ask.choices]):
        if choice is None:
            continue
        first = not found
        found.append(
            Completion(
                question_id,
                variant,
                ask.due.draw + place,
                Reply(ask.request.of, ask.request.asked, *choice),
                ask.request.attempt,
                response.input_tokens if first else 0,
                response.output_tokens if first else 0,
                int(first),
                response.seconds if first else None,
                response.logprobs if first else None,
                sha256,
            )
        )
    return found


def variant_of(conversation: Conversation, of: Pass) -> str:
    """Return the variant that a reply belongs to: that of a forced pass belongs to all."""
    return conversation.variant if of is Pass.FIRST else ""
