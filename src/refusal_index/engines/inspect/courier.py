"""Carries what the protocol asks about one question to a model or a grader, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from inspect_ai.model import (
    CachePolicy,
    ChatMessage,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    Model,
    ModelOutput,
    get_model,
)

from refusal_index.engines.inspect.carried import Carried, merged
from refusal_index.engines.inspect.choices import choices_of
from refusal_index.engines.inspect.fuse import tell_failed, tell_worked
from refusal_index.engines.inspect.guard import guard
from refusal_index.engines.inspect.progress import tell_replied
from refusal_index.outcomes.outcome import Outcome
from refusal_index.outcomes.question import Question
from refusal_index.protocol import Asked, Message, Reply, Request, request_seed

DEFAULT_GRADER = "openai/gpt-4o-mini"
GRADER_ROLE, SECOND_GRADER_ROLE = str(Asked.GRADER), str(Asked.SECOND_GRADER)
DEFAULT_ATTEMPT_TIMEOUT = 60
DEFAULT_MAX_CHOICES = 100
CACHE = CachePolicy(expiry=None, per_epoch=False)  # the seed tells draws apart


class Following(Protocol):
    """The protocol's next request about a question, given the replies so far, or its outcome."""

    def __call__(self, question: Question, replies: Sequence[Reply], /) -> Request | Outcome:
        """Return what to ask next."""


@dataclass(frozen=True)
class Sending:
    """How requests are sent.

    Attributes
    ----------
    seed, variant
        The seed of the run and the first-pass variant, from which each request's seed is derived.
    attempt_timeout
        Seconds after which a request without a response is sent again.
    max_choices
        Most choices to ask for in one request.
    """

    seed: int
    variant: str
    attempt_timeout: int = DEFAULT_ATTEMPT_TIMEOUT
    max_choices: int = DEFAULT_MAX_CHOICES


class Courier:
    """Carries requests about one question."""

    def __init__(self, question: Question, following: Following, sending: Sending) -> None:
        self._question = question
        self._following = following
        self._sending = sending

    async def ask_in_turn(self, draw: int, before: Sequence[Reply] = ()) -> list[Carried]:
        """Ask whatever the protocol asks next until one draw is done; `before` stands for what was said already."""
        carried: list[Carried] = []
        while isinstance(request := self._next(carried, before), Request):
            carried += await self._ask(request, draw, 1)
        return carried

    async def ask_draws(self, portions: Iterable[Sequence[int]], before: Sequence[Reply] = ()) -> list[Carried]:
        """Ask one pass for several draws, the first or, after a refusal, the forced one; grade what came but once.

        Each portion of the draws is asked for as choices of one request, as far as the provider gives them.
        """
        request = self._next((), before)
        if isinstance(request, Outcome):
            return []  # of a question without a right answer the forced pass is known
        drawn = [reply for draws in portions for reply in await self._draw(request, draws)]
        return await self.grade(merged(drawn), before)

    async def grade(self, drawn: Iterable[Carried], before: Sequence[Reply] = ()) -> list[Carried]:
        """Return replies of one pass, each with every verdict that the protocol asks for behind it."""
        return [carried for reply in drawn for carried in await self._graded(reply, before)]

    async def _draw(self, request: Request, draws: Sequence[int]) -> list[Carried]:
        drawn: list[Carried] = []
        while (count := sum(len(one.draws) for one in drawn)) < len(draws):
            drawn += await self._ask(request, draws[count], min(self._sending.max_choices, len(draws) - count))
        return drawn

    async def _graded(self, drawn: Carried, before: Sequence[Reply]) -> list[Carried]:
        carried = [drawn]
        while isinstance(step := self._next(carried, before), Request) and step.asked is not Asked.MODEL:
            (verdict,) = await self._ask(step, drawn.draws[0], 1)
            carried.append(replace(verdict, draws=drawn.draws))
        return carried

    def _next(self, carried: Sequence[Carried], before: Sequence[Reply]) -> Request | Outcome:
        return self._following(self._question, [*before, *(one.reply for one in carried)])

    async def _ask(self, request: Request, draw: int, choices: int) -> list[Carried]:
        """Send one request and return its replies for the draws from `draw` on: as many as came, `choices` at most."""
        sending, question_id = self._sending, self._question.question_id
        seed = request_seed(sending.seed, question_id, draw, sending.variant, request)
        config = GenerateConfig(
            seed=seed, attempt_timeout=sending.attempt_timeout, num_choices=choices if choices > 1 else None
        )
        model = _model(request.asked)
        try:
            output = await model.generate(chat_messages(request), config=config, cache=CACHE)
        except Exception as error:  # whatever the provider raises
            tell_failed(model, question_id, error)
            raise
        tell_worked(model)
        carried = _carried(request, output, draw, choices)
        tell_replied(carried[0], seed)
        return carried


def _model(asked: Asked) -> Model:
    """Return whom Inspect has for a request, guarded also where its own command resolved it."""
    model = _resolved(asked)
    guard(model.api)
    return model


def _resolved(asked: Asked) -> Model:
    if asked is Asked.MODEL:
        return get_model()
    if asked is Asked.GRADER:
        return get_model(role=GRADER_ROLE, default=DEFAULT_GRADER)
    return get_model(role=SECOND_GRADER_ROLE, required=True)


def chat_messages(request: Request) -> list[ChatMessage]:
    """Return the messages of a request as Inspect takes them."""
    return [_chat_message(message) for message in request.messages]


def _chat_message(message: Message) -> ChatMessage:
    kind = ChatMessageSystem if message.role == "system" else ChatMessageUser
    return kind(content=message.content)


def replies_in(output: ModelOutput, request: Request) -> list[Reply]:
    """Return every reply of the response to a request."""
    return [Reply(request.of, request.asked, text, reason) for text, reason in choices_of(output)]


def _carried(request: Request, output: ModelOutput, first_draw: int, choices: int) -> list[Carried]:
    """Return every reply of a response; what it cost goes with the first."""
    usage = output.usage
    replies = replies_in(output, request)[:choices]
    paid = Carried(
        replies[0],
        request.attempt,
        usage.input_tokens if usage else 0,
        usage.output_tokens if usage else 0,
        draws=(first_draw,),
    )
    along = [
        Carried(reply, request.attempt, draws=(draw,), requests=0)
        for draw, reply in enumerate(replies[1:], first_draw + 1)
    ]
    return [paid, *along]
