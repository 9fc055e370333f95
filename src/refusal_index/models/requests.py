"""A request to a model, its response, and who sends it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat
from typing import Any

from refusal_index.models.failures import Failure, NoAnswerError
from refusal_index.models.settings import Decoding, RequestSettings, SettingError
from refusal_index.protocol import (
    Completion,
    Conversation,
    Pass,
    PendingRequest,
    Reply,
    Request,
    Role,
    StopReason,
    forced_variant,
    request_seed,
)

MAX_TOKENS = 2**31
"""Larger token counts of one response, and negative ones, are taken for mistakes of the provider."""

MAX_TOP_LOGPROBS = 20
"""Most tokens that providers report at each position of a reply."""


@dataclass(frozen=True)
class ModelRequest:
    """A request that is about to be sent.

    Attributes
    ----------
    conversation, pending, request
        What it is about, whereabouts, and in words.
    seed, n
        As the provider is told.
    decoding
        How the model generates; None for a grader, which goes by its own defaults.
    top_logprobs
        How many of the likeliest tokens are to be reported in each place of the reply, with their log probabilities: 0
        for the chosen one only, None for no report. It changes no reply, and so is no part of the hash.
    """

    conversation: Conversation
    pending: PendingRequest
    request: Request
    seed: int
    n: int
    decoding: Decoding | None
    top_logprobs: int | None = None

    @cached_property
    def sha256(self) -> str:
        """The hash of all that is asked, which tells it from every other request of a run."""
        asked = {
            "question_id": self.conversation.question.question_id,
            "variant": variant_of(self.conversation, self.request.pass_),
            "draw": self.pending.draw,
            "seed": self.seed,
            # as `asdict` would, in a tenth of its time
            "request": {
                "of": self.request.pass_,
                "asked": self.request.role,
                "messages": [vars(one) for one in self.request.messages],
                "attempt": self.request.attempt,
            },
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


Send = Callable[[ModelRequest], Awaitable[Response]]
"""Sends one request, once; it raises what the provider raises."""


def model_request(
    settings: RequestSettings, conversation: Conversation, pending: PendingRequest, retired: int = 0
) -> ModelRequest:
    """Make the request to a model: messages, seed and decoding.

    Parameters
    ----------
    settings, conversation, pending
        Those of the run, and what to ask.
    retired
        How many replies to it were set aside to be asked for again; each of these requests has a seed of its own.
    """
    question = conversation.question
    request = conversation.procedure.request(pending.step, question)
    attempt = replace(request, attempt=request.attempt + retired) if retired else request
    seed = conversation.seed
    if seed is None:
        seed = request_seed(settings.seed, question.question_id, pending.draw, conversation.variant, attempt)
    of_model = request.role is Role.MODEL
    top_logprobs = None
    if settings.sending.logprobs and of_model:
        top_logprobs = MAX_TOP_LOGPROBS if request.pass_ is Pass.PROBE else 0
    decoding = settings.decoding if of_model else None
    n = min(pending.n, settings.sending.max_choices)
    return ModelRequest(conversation, pending, request, seed, n, decoding, top_logprobs)


def to_completions(ask: ModelRequest, response: Response) -> list[Completion]:
    """Return a completion for every choice of a response that holds an answer; what it took goes with the first.

    Raises
    ------
    NoAnswerError
        If there is none.
    """
    variant = variant_of(ask.conversation, ask.request.pass_)
    reported = chain(response.logprobs, repeat(None))
    found = [
        Completion(
            ask.conversation.question.question_id,
            variant,
            ask.pending.draw + place,
            Reply(ask.request.pass_, ask.request.role, *choice),
            ask.request.attempt,
            requests=0,
            logprobs=logprobs,
            request_sha256=ask.sha256,
            in_batch=response.in_batch,
        )
        for place, (choice, logprobs) in enumerate(zip(response.replies[: ask.n], reported, strict=False))
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
    return tokens if 0 <= tokens <= MAX_TOKENS else 0


def variant_of(conversation: Conversation, of: Pass) -> str:
    """Return the variant that a reply is stored under."""
    return forced_variant(conversation.variant) if of.is_shared else conversation.variant


CARRIED = "carried"
"""Where in a sample's metadata they stand."""


def to_metadata(completions: Iterable[Completion]) -> list[dict[str, Any]]:
    """Return completions for a log: each distinct reply once, with its draws and all that it took."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for one in completions:
        entry = {
            "of": str(one.reply.pass_),
            "asked": str(one.reply.role),
            "attempt": one.attempt,
            "text": one.reply.text,
            "stop_reason": str(one.reply.stop_reason),
        }
        kept = found.setdefault(
            tuple(entry.values()), {**entry, "input_tokens": 0, "output_tokens": 0, "draws": [], "requests": 0}
        )
        for name in ("input_tokens", "output_tokens", "requests"):
            kept[name] += getattr(one, name)
        kept["draws"].append(one.draw)
    return list(found.values())


def from_metadata(entries: Iterable[Mapping[str, Any]], question_id: str, variant: str) -> Iterator[Completion]:
    """Yield the completions that a log's sample holds; what a reply took goes with the first of its draws.

    A verdict counts in the first draw of the reply that it is on.
    """
    for entry in entries:
        reply = Reply(Pass(entry["of"]), Role(entry["asked"]), entry["text"], StopReason(entry["stop_reason"]))
        draws = entry["draws"]
        own = "" if reply.pass_.is_shared else variant
        took = (entry["input_tokens"], entry["output_tokens"], entry["requests"])
        for place, draw in enumerate(draws if reply.role is Role.MODEL else draws[:1]):
            yield Completion(question_id, own, draw, reply, entry["attempt"], *(took if place == 0 else (0, 0, 0)))


class ModelError(SettingError):
    """A model or grader that is unavailable; the message says what is missing and what to do."""


@dataclass(frozen=True)
class Client:
    """Sends requests to one model.

    Attributes
    ----------
    send, classify_error
        Sends a request, once, and classifies the error that it ended in.
    concurrency
        Requests in flight, unless the settings say otherwise.
    is_checked
        Whether a grader has to judge a plain case before the first question.
    connection
        Open as long as requests are sent; None where there is nothing to close.
    """

    send: Send
    classify_error: Callable[[Exception], Failure]
    concurrency: int
    is_checked: bool = True
    connection: AbstractAsyncContextManager[object] | None = None
