"""What passes between the procedure and whoever carries it: the settings, requests and replies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from refusal_index.protocol.graders import GraderKind
from refusal_index.protocol.prompts import FORCED, PromptSet, PromptSetError
from refusal_index.protocol.replies import StopReason


class Pass(StrEnum):
    """The two passes, and what is asked beside them, about an answer or for one with a confidence."""

    FIRST = "first"
    FORCED = "forced"
    PROBE = "probe"

    @property
    def is_shared(self) -> bool:
        """Whether all variants share its replies, since it is asked the same in each."""
        return self is Pass.FORCED


TWO_PASSES = (Pass.FIRST, Pass.FORCED)
"""Those that the index is measured in."""


class Asked(StrEnum):
    """Who is asked: the model under evaluation or a model that grades it."""

    MODEL = "model"
    GRADER = "grader"
    SECOND_GRADER = "second_grader"


GRADERS = (Asked.GRADER, Asked.SECOND_GRADER)


class Placement(StrEnum):
    """Where the instruction and the worked examples stand: in the user message, or in a system message before it."""

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
class Step:
    """What to ask next, not yet in words.

    Attributes
    ----------
    of, asked, attempt
        As in the request that it becomes.
    prediction
        What the grader is to judge; empty in a step that asks the model.
    """

    of: Pass
    asked: Asked
    attempt: int = 0
    prediction: str = ""


@dataclass(frozen=True)
class Request:
    """What to ask next: a new conversation of its own.

    Attributes
    ----------
    of
        The pass it belongs to.
    asked
        The model or one of its graders.
    messages
        The whole conversation.
    attempt
        From 0; a grade that could not be read is asked for once more.
    """

    of: Pass
    asked: Asked
    messages: tuple[Message, ...]
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back for a request.

    Attributes
    ----------
    of, asked
        As in the request.
    text
        The reply, word for word.
    stop_reason
        Why it ended.
    """

    of: Pass
    asked: Asked
    text: str
    stop_reason: StopReason = StopReason.STOP


@dataclass(frozen=True, slots=True)
class Completion:
    """A reply to a request about one question, and what it took, as a run's store keeps it.

    Attributes
    ----------
    question_id, variant
        What was asked; the variant is empty in the forced pass, which all variants share.
    draw
        The repetition that it belongs to, from 0.
    reply, attempt
        What came back, and for which attempt of the request.
    input_tokens, output_tokens
        As the provider counted them; 0 where it did not say, and where the reply came along with another.
    requests
        How many requests brought it: 0 where it came along with another as a choice of the same response.
    seconds
        From the request to its response; None where it is not known.
    logprobs
        Logarithms of the probabilities of its tokens as JSON, as the provider gave them; None where not asked for.
    request_sha256
        Hash of all that was asked; None where a release that kept none asked it.
    in_batch
        Whether it came in a provider's batch, which has a price of its own.
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


@dataclass(frozen=True)
class Protocol:
    """The settings of the procedure.

    Attributes
    ----------
    prompts
        The wording of both passes.
    variant
        The prompt set's variant that the first pass asks with.
    grader
        Who grades what the UNANSWERED tag does not settle.
    placement
        Where instruction and worked examples stand.
    think
        A switch that the model's chat template knows, such as ``"/no_think"``; it ends what the model is asked. Empty
        for none.

    Raises
    ------
    PromptSetError
        If the prompt set has no such first-pass variant.
    """

    prompts: PromptSet
    variant: str
    grader: GraderKind
    placement: Placement = Placement.USER
    think: str = ""

    def __post_init__(self) -> None:
        if self.variant == FORCED:
            raise PromptSetError(f"'{FORCED}' is the second pass; choose one of {', '.join(self.prompts.variants)}")
        self.prompts.variant(self.variant)
