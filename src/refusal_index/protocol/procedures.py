"""What follows what: the two passes, the forced pass alone, and grading anew, as procedures behind one interface.

Each says what is next about a question, given the replies so far, and puts it into words. The rules are those of
`protocol.procedure`; a procedure says where they begin and whom they may ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.outcome import FORCED_NOT_ASKED, Outcome
from refusal_index.outcomes.question import Question
from refusal_index.protocol.graders import GraderKind
from refusal_index.protocol.procedure import next_step, worded
from refusal_index.protocol.prompts import UNANSWERED
from refusal_index.protocol.records import TWO_PASSES, Asked, Pass, Protocol, Reply, Request, Step

REFUSAL = Reply(Pass.FIRST, Asked.MODEL, f"<answer>{UNANSWERED}</answer>")
"""Stands for a first pass that refused: the forced request depends on the question only."""


class Procedure(Interface):
    """What is asked about a question, and in which order.

    Attributes
    ----------
    grader
        Who grades what the UNANSWERED tag does not settle.
    asks_first, asks_model
        Whether the first pass is asked at all, and the model under evaluation.
    passes
        In which it asks the model.
    """

    @property
    def grader(self) -> GraderKind: ...  # noqa: D102 - described by the class

    @property
    def asks_first(self) -> bool: ...  # noqa: D102

    @property
    def asks_model(self) -> bool: ...  # noqa: D102

    @property
    def passes(self) -> tuple[Pass, ...]: ...  # noqa: D102

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return what is next, or the outcome when nothing is.

        Parameters
        ----------
        question, replies
            The question, and what was said about it in one draw.
        force_answered
            Whether the forced pass is due also where the first pass answered.
        """

    def request(self, step: Step, question: Question) -> Request:
        """Put a step into words."""


@dataclass(frozen=True)
class TwoPass:
    """Both passes, as the index is measured.

    Attributes
    ----------
    grader
        Who grades what the UNANSWERED tag does not settle.
    wording
        Prompts, variant and placement; None where replies are only read.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> TwoPass(GraderKind.EXACT).step(question, [REFUSAL]).of
    <Pass.FORCED: 'forced'>
    """

    grader: GraderKind
    wording: Protocol | None = None
    asks_first: bool = True
    asks_model: bool = True
    passes: tuple[Pass, ...] = TWO_PASSES

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return what is next, or the outcome when nothing is."""
        return next_step(question, replies, self.grader, force_answered=force_answered)

    def request(self, step: Step, question: Question) -> Request:
        """Put a step into words."""
        return worded(step, question, self.wording)


@dataclass(frozen=True)
class ForcedPass(TwoPass):
    """The forced pass alone, for a question whose first pass somebody else asked and graded as refused.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> ForcedPass(GraderKind.EXACT).step(question, []).of
    <Pass.FORCED: 'forced'>
    >>> ForcedPass(GraderKind.EXACT).step(question, [Reply(Pass.FORCED, Asked.MODEL, "<answer>Lima</answer>")]).wrong
    False
    """

    asks_first: bool = False
    passes: tuple[Pass, ...] = (Pass.FORCED,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return what is next, or the outcome when nothing is."""
        return next_step(question, [REFUSAL, *replies], self.grader, force_answered=force_answered)


@dataclass(frozen=True)
class Regrading(TwoPass):
    """Grading anew what was replied before: graders are asked, the model under evaluation is not.

    A refusal whose forced answer nobody asked for is unscored, with the reason ``forced_not_asked``.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> said = Reply(Pass.FIRST, Asked.MODEL, "Sorry, I do not know.")
    >>> Regrading(GraderKind.MODEL).step(question, [said]).asked
    <Asked.GRADER: 'grader'>
    >>> Regrading(GraderKind.EXACT).step(question, [said]).unscored_reason
    'forced_not_asked'
    """

    asks_model: bool = False

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:
        """Return what a grader is still to be asked, or the outcome.

        Raises
        ------
        ValueError
            If there is no first reply.
        """
        # A forced reply that is there is judged in any case; without a right answer its grade is known without one.
        known = force_answered and question.gold is None
        step = next_step(question, replies, self.grader, force_answered=known)
        if isinstance(step, Outcome) or step.asked is not Asked.MODEL:
            return step
        first = next((reply for reply in replies if (reply.of, reply.asked) == (Pass.FIRST, Asked.MODEL)), None)
        if first is None:
            raise ValueError(f"question {question.question_id}: there is no first reply to grade")
        return Outcome(True, None, Grade.REFUSED, unscored_reason=FORCED_NOT_ASKED, first_reply=first.text)
