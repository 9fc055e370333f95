"""Requests to the model and its graders, the replies to them, and the seed of a request."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from refusal_index.protocol.prompts import AUXILIARY
from refusal_index.protocol.reading import (
    StopReason,
)


class Pass(StrEnum):
    """The two passes, and probes: the prompts of confidence methods."""

    FIRST = "first"
    FORCED = "forced"
    PROBE = "probe"

    @property
    def is_shared(self) -> bool:
        """Whether all variants share its replies, because they send the same request."""
        return self is Pass.FORCED


TWO_PASSES = (Pass.FIRST, Pass.FORCED)
"""The passes from which the index is measured."""


class Role(StrEnum):
    """The recipient of a request: the model under evaluation or a model that grades it."""

    MODEL = "model"
    GRADER = "grader"
    SECOND_GRADER = "second_grader"


GRADERS = (Role.GRADER, Role.SECOND_GRADER)


class Placement(StrEnum):
    """Where the instruction and the worked examples are: in the user message, or in a system message before it."""

    USER = "user"
    SYSTEM = "system"


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    Attributes
    ----------
    role
        ``"system"`` or ``"user"``.
    content
        Its text.
    """

    role: str
    content: str


@dataclass(frozen=True)
class Request:
    """The next request, which starts a new conversation.

    Attributes
    ----------
    pass_
        The pass that it belongs to.
    role
        The model or one of its graders.
    messages
        The whole conversation.
    attempt
        From 0; an unreadable grade is requested once more.
    """

    pass_: Pass
    role: Role
    messages: tuple[Message, ...]
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request.

    Attributes
    ----------
    pass_, role
        The same as in the request.
    text
        The reply, word for word.
    stop_reason
        Why the model stopped writing.
    """

    pass_: Pass
    role: Role
    text: str
    stop_reason: StopReason = StopReason.STOP


@dataclass(frozen=True, slots=True)
class Completion:
    """A reply to a request about one question, and its usage, as stored with a run.

    Attributes
    ----------
    question_id, variant
        The question, and the variant, which is empty in the forced pass because all variants share it.
    draw
        The draw that it belongs to, from 0.
    reply, attempt
        The reply, and the attempt of the request.
    input_tokens, output_tokens
        The provider's counts; 0 if there are none, and for further choices of the same response.
    requests
        Number of requests sent for it: 0 for further choices of the same response.
    seconds
        Duration of the request; None if unknown.
    logprobs
        Log probabilities of its tokens as JSON, as the provider reported them; None if not requested.
    request_sha256
        Hash of the request's content; None if it was not recorded.
    in_batch
        Whether it came from a provider's batch, which has a price of its own.
    answered_by
        The model's name in the response; None if it has none.
    filtered
        Whether the reply contained a key of this run, which was removed before the reply was stored.
    confidence
        How likely the reply is right, in [0, 1], as a model function returned it; None if it returned only text.
    """

    question_id: str
    variant: str
    draw: int
    reply: Reply
    attempt: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 1
    seconds: float | None = None
    logprobs: str | None = None
    request_sha256: str | None = None
    in_batch: bool = False
    answered_by: str | None = None
    filtered: bool = False
    confidence: float | None = None


PASSES = tuple(Pass)


def is_auxiliary(variant: str) -> bool:
    """Whether a variant is auxiliary, so that its replies are not part of the run's two passes."""
    return variant.startswith(AUXILIARY)


def forced_variant(variant: str) -> str:
    """Return the variant of a conversation's forced pass: empty because all variants share it, auxiliary ones aside.

    Examples
    --------
    >>> forced_variant("low"), forced_variant("confidence/forced")
    ('', 'confidence/forced')
    """
    return variant if is_auxiliary(variant) else ""


SEED_BITS = 31  # every provider accepts these


def request_seed(run_seed: int, question_id: str, draw: int, variant: str, request: Request) -> int:
    """Return the seed of `request`, derived only from its content.

    The variant does not count in the forced pass, which belongs to the question and the draw, so that a question
    refused under two variants is forced once and both share the answer.

    Parameters
    ----------
    run_seed
        The seed of the run.
    question_id, draw
        The question, and its draw, from 0.
    variant
        The first-pass variant.
    request
        The pass, the role and the attempt.

    Examples
    --------
    >>> from refusal_index.protocol.messages import Role, Pass
    >>> forced = Request(Pass.FORCED, Role.MODEL, ())
    >>> request_seed(0, "q1", 0, "low", forced) == request_seed(0, "q1", 0, "high", forced)
    True
    """
    of_variant = "" if request.pass_.is_shared else variant.removeprefix(AUXILIARY)
    parts = (run_seed, question_id, draw, of_variant, request.pass_, request.role, request.attempt)
    key = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) >> (64 - SEED_BITS)
