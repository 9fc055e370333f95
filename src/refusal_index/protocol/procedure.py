"""The procedures that a question goes through: both passes, one of them alone, and regrading.

Each `Procedure` determines the next step from the replies so far, and builds its request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from refusal_index.data.outcome import Outcome, Question
from refusal_index.protocol.grader_prompt import GraderPrompt, default_grader_prompt
from refusal_index.protocol.grading import GraderKind
from refusal_index.protocol.messages import GRADERS, TWO_PASSES, Message, Pass, Placement, Reply, Request, Role
from refusal_index.protocol.prompts import FORCED, UNANSWERED, PromptSet, PromptSetError
from refusal_index.protocol.reading import (
    Reading,
)
from refusal_index.protocol.refusals import RefusalRule
from refusal_index.protocol.steps import Step, default_rule, next_step, read


@dataclass(frozen=True)
class Protocol:
    """The settings of the procedure.

    Attributes
    ----------
    prompts
        The wording of both passes.
    variant
        The first-pass variant of the prompt set.
    grader
        The grader of answers.
    placement
        Where instruction and worked examples are.
    think
        A switch of the model's chat template, such as ``"/no_think"``, at the end of each request to the model. Empty
        for none.
    refusals
        How replies are read; None for the default.

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
    refusals: RefusalRule | None = None

    def __post_init__(self) -> None:
        if self.variant == FORCED:
            raise PromptSetError(f"'{FORCED}' is the second pass; choose one of {', '.join(self.prompts.variants)}")
        self.prompts.variant(self.variant)


def to_request(
    step: Step, question: Question, protocol: Protocol | None, grader_prompt: GraderPrompt | None = None
) -> Request:
    """Build the request of a step; a step for a grader needs no protocol, and without a prompt takes the default."""
    messages: tuple[Message, ...]
    if step.role in GRADERS or protocol is None:
        wording = grader_prompt or default_grader_prompt()
        message = wording.attempt_message if step.only_attempt else wording.message
        messages = (Message("user", message(question, step.prediction)),)
    else:
        variant = FORCED if step.pass_ is Pass.FORCED else protocol.variant
        preamble, text = protocol.prompts.render(variant, question.text, question.context, question.choices)
        if protocol.think:
            text = f"{text}\n\n{protocol.think}"
        if protocol.placement is Placement.SYSTEM:
            messages = (Message("system", preamble), Message("user", text))
        else:
            messages = (Message("user", f"{preamble}\n\n{text}"),)
    return Request(step.pass_, step.role, messages, step.attempt)


REFUSAL = Reply(Pass.FIRST, Role.MODEL, f"<answer>{UNANSWERED}</answer>")
"""Stands for a refusal in the first pass: the forced request depends only on the question."""


@dataclass(frozen=True)
class Procedure(ABC):
    """Determines what is asked about a question, and in which order.

    Attributes
    ----------
    grader
        The grader of answers.
    asks_first, asks_model
        Whether the first pass is requested, and whether the model under evaluation is asked at all.
    passes
        The passes in which the model is asked.
    """

    grader: GraderKind
    asks_first: ClassVar[bool] = True
    asks_model: ClassVar[bool] = True
    passes: ClassVar[tuple[Pass, ...]] = TWO_PASSES

    @abstractmethod
    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return the next step, or the outcome if there is none.

        Parameters
        ----------
        question, replies
            The question, and the replies about it in one draw.
        force_answered
            Whether the forced pass is needed even if the first pass answered.
        """

    def step_of_further_draw(
        self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False
    ) -> Step | Outcome:
        """Return the next step of a draw after the first, or its outcome; takes the arguments of `step`."""
        return self.step(question, replies, force_answered=force_answered)

    @property
    def rule(self) -> RefusalRule:
        """How replies are read."""
        return default_rule(self.grader)

    def read(self, question: Question, reply: Reply) -> Reading:
        """Read a reply to a question."""
        return read(question, reply, self.rule)

    def first_pass(self, question: Question, replies: Sequence[Reply]) -> Step | Outcome:
        """Return the next step of the first pass, or its outcome without a forced pass."""
        return self.step(question, replies)

    @abstractmethod
    def request(self, step: Step, question: Question) -> Request:
        """Build the request of a step."""


@dataclass(frozen=True)
class TwoPass(Procedure):
    """Both passes, from which the index is measured.

    Attributes
    ----------
    grader
        The grader of answers.
    wording
        Prompts, variant and placement; None if replies are only read.
    refusals
        How replies are read; None for the default.
    grader_prompt
        What a grading model is asked; None for the default.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> TwoPass(GraderKind.EXACT).step(question, [REFUSAL]).pass_
    <Pass.FORCED: 'forced'>
    """

    wording: Protocol | None = None
    refusals: RefusalRule | None = None
    grader_prompt: GraderPrompt | None = None

    @property
    def rule(self) -> RefusalRule:
        """How replies are read."""
        return self.refusals or default_rule(self.grader)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return the next step, or the outcome if there is none."""
        return next_step(question, replies, self.grader, force_answered=force_answered, refusals=self.refusals)

    def first_pass(self, question: Question, replies: Sequence[Reply]) -> Step | Outcome:
        """Return the next step of the first pass, or its outcome without a forced pass."""
        return next_step(question, replies, self.grader, asks_forced=False, refusals=self.refusals)

    def request(self, step: Step, question: Question) -> Request:
        """Build the request of a step."""
        return to_request(step, question, self.wording, self.grader_prompt)


@dataclass(frozen=True)
class ForcedPass(TwoPass):
    """The forced pass alone, for a question whose first pass was run elsewhere and graded as refused.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> ForcedPass(GraderKind.EXACT).step(question, []).pass_
    <Pass.FORCED: 'forced'>
    >>> ForcedPass(GraderKind.EXACT).step(question, [Reply(Pass.FORCED, Role.MODEL, "<answer>Lima</answer>")]).wrong
    False
    """

    asks_first: ClassVar[bool] = False
    passes: ClassVar[tuple[Pass, ...]] = (Pass.FORCED,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return the next step, or the outcome if there is none."""
        return next_step(
            question, [REFUSAL, *replies], self.grader, force_answered=force_answered, refusals=self.refusals
        )


@dataclass(frozen=True)
class FirstPassOnly(TwoPass):
    """The first pass alone: a refusal is unscored, with the reason ``forced_not_asked``, and RI is undefined.

    The draws after the first only show how often a question is answered, so grading models are not asked about them.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> FirstPassOnly(GraderKind.EXACT).step(question, []).pass_
    <Pass.FIRST: 'first'>
    >>> FirstPassOnly(GraderKind.EXACT).step(question, [REFUSAL]).unscored_reason
    'forced_not_asked'
    """

    passes: ClassVar[tuple[Pass, ...]] = (Pass.FIRST,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:  # noqa: ARG002 - as in `TwoPass`
        """Return the next step, or the outcome if there is none; no answer is forced."""
        return next_step(question, replies, self.grader, asks_forced=False, refusals=self.refusals)

    def step_of_further_draw(
        self,
        question: Question,
        replies: Sequence[Reply],
        *,
        force_answered: bool = False,  # noqa: ARG002 - as in `TwoPass`
    ) -> Step | Outcome:
        """Return the outcome of a draw after the first; its answer has no grade if a model would have to give it."""
        return next_step(question, replies, self.grader, asks_forced=False, asks_graders=False, refusals=self.refusals)


@dataclass(frozen=True)
class Regrading(TwoPass):
    """Regrading of existing replies: graders are asked, the model under evaluation is not.

    A refusal without a forced answer is unscored, with the reason ``forced_not_asked``.

    Attributes
    ----------
    answered_only
        Whether the replies are those of the first pass alone, of which a grading model grades the first draws.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> said = Reply(Pass.FIRST, Role.MODEL, "Sorry, I do not know.")
    >>> Regrading(GraderKind.MODEL).step(question, [said]).role
    <Role.GRADER: 'grader'>
    >>> Regrading(GraderKind.EXACT).step(question, [said]).unscored_reason
    'forced_not_asked'
    """

    answered_only: bool = False
    asks_model: ClassVar[bool] = False

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return the next step of a grader, or the outcome.

        Raises
        ------
        ValueError
            If there is no first reply.
        """
        # An existing forced reply is graded in any case; without a gold answer its grade is known without a reply.
        only_answered = force_answered and question.gold is None
        step = next_step(
            question, replies, self.grader, force_answered=only_answered, asks_forced=False, refusals=self.refusals
        )
        if isinstance(step, Step) and (step.pass_, step.role) == (Pass.FIRST, Role.MODEL):
            raise ValueError(f"question {question.question_id}: there is no first reply to grade")
        return step

    def step_of_further_draw(
        self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False
    ) -> Step | Outcome:
        """Return the next step of a draw after the first, or its outcome; takes the arguments of `step`."""
        if not self.answered_only:
            return self.step(question, replies, force_answered=force_answered)
        return next_step(question, replies, self.grader, asks_forced=False, asks_graders=False, refusals=self.refusals)
