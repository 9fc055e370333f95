"""What a solver of Inspect's works for: the conversations of a run, or those that `inspect eval` makes as it goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageUser, GenerateConfig, Model, get_model

from refusal_index.engines.asks import Ask, Response
from refusal_index.engines.engine import Assignment
from refusal_index.engines.functions import GradingFunction
from refusal_index.engines.inspect.guard import guard
from refusal_index.engines.inspect.multi_choice import choices_of, logprobs_of
from refusal_index.engines.settings import DEFAULT_GRADER
from refusal_index.protocol import Asked, Conversation, Message, Request

NO_RETRIES = 0
"""Retries of Inspect's own: the policy is the engines', for all of them the same."""

GRADER_ROLE, SECOND_GRADER_ROLE = str(Asked.GRADER), str(Asked.SECOND_GRADER)


@dataclass(frozen=True)
class Session:
    """A run's assignment at work.

    Attributes
    ----------
    assignment, conversations
        What is carried, and its conversations by question id.
    graders
        Functions that grade, by who is asked.
    """

    assignment: Assignment
    conversations: Mapping[str, Conversation]
    graders: Mapping[Asked, GradingFunction] = field(default_factory=dict)


_session: ContextVar[Session | None] = ContextVar("refusal_index_session", default=None)


def current_session() -> Session | None:
    """Return the session that a solver works for; None under ``inspect eval``."""
    return _session.get()


@contextmanager
def working_for(session: Session) -> Iterator[None]:
    """Have every solver inside the block work for a session."""
    token = _session.set(session)
    try:
        yield
    finally:
        _session.reset(token)


async def send(ask: Ask) -> Response:
    """Have Inspect carry one request to whom it has in that role, or a function grade."""
    session = _session.get()
    function = session.graders.get(ask.request.asked) if session else None
    if function is not None:
        return await function.graded(ask)
    started = time.monotonic()
    settings, model = session.assignment.settings.sending if session else None, model_asked(ask.request.asked)
    config = GenerateConfig(
        seed=ask.seed,
        max_retries=NO_RETRIES if settings else None,
        attempt_timeout=settings.attempt_timeout if settings else None,
        num_choices=ask.choices if ask.choices > 1 else None,
        logprobs=None if ask.top_logprobs is None else True,
        top_logprobs=ask.top_logprobs or None,
    )
    output = await model.generate(chat_messages(ask.request), config=config)
    usage = output.usage
    return Response(
        choices_of(output),
        usage.input_tokens if usage else 0,
        usage.output_tokens if usage else 0,
        time.monotonic() - started,
        () if ask.top_logprobs is None else logprobs_of(output),
    )


def model_asked(asked: Asked) -> Model:
    """Return whom Inspect has for a request, guarded also where its own command resolved it."""
    if asked is Asked.MODEL:
        model = get_model()
    elif asked is Asked.GRADER:
        model = get_model(role=GRADER_ROLE, default=DEFAULT_GRADER)
    else:
        model = get_model(role=SECOND_GRADER_ROLE, required=True)
    guard(model.api)
    return model


def chat_messages(request: Request) -> list[ChatMessage]:
    """Return the messages of a request as Inspect takes them."""
    return [_chat_message(message) for message in request.messages]


def _chat_message(message: Message) -> ChatMessage:
    kind = ChatMessageSystem if message.role == "system" else ChatMessageUser
    return kind(content=message.content)
