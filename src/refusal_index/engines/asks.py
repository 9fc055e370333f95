"""A request with all that a provider is told, and what comes back for it, in the protocol's words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat

from refusal_index.engines.failures import NoAnswerError
from refusal_index.engines.settings import Decoding, Settings
from refusal_index.protocol import (
    Asked,
    Completion,
    Conversation,
    Due,
    Pass,
    Reply,
    Request,
    StopReason,
    request_seed,
)

MOST_TOKENS = 2**31
"""Most tokens of one response: a larger count is a provider's mistake, as is a negative one."""

MOST_ALTERNATIVES = 20
"""Most tokens that providers report in each place of a reply."""


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
    in_batch
        Whether it came in a provider's batch.
    """

    replies: Sequence[tuple[str, StopReason] | None]
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float | None = None
    logprobs: Sequence[str | None] = ()
    in_batch: bool = False


Send = Callable[[Ask], Awaitable[Response]]
"""Sends one request, once; it raises what the provider raises."""


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
            in_batch=response.in_batch,
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
