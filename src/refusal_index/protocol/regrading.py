"""Grading anew what was replied before: graders are asked, the model under evaluation is not."""

from __future__ import annotations

from collections.abc import Sequence

from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.outcome import FORCED_NOT_ASKED, Outcome
from refusal_index.outcomes.question import Question
from refusal_index.protocol.graders import GraderKind
from refusal_index.protocol.grading import grader_prompt
from refusal_index.protocol.procedure import next_step
from refusal_index.protocol.records import Asked, Message, Pass, Reply, Request, Step


def next_grading(question: Question, replies: Sequence[Reply], grader: GraderKind) -> Request | Outcome:
    """Return what a grader is still to be asked about `replies`, or the outcome when nothing is left to ask.

    Parameters
    ----------
    question
        The question with its gold answer.
    replies
        What the model said in one draw, and every verdict on it so far.
    grader
        Who grades what the UNANSWERED tag does not settle.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> said = Reply(Pass.FIRST, Asked.MODEL, "Sorry, I do not know.")
    >>> next_grading(question, [said], GraderKind.MODEL).asked
    <Asked.GRADER: 'grader'>
    >>> next_grading(question, [said], GraderKind.EXACT).unscored_reason
    'forced_not_asked'
    """
    step = next_grading_step(question, replies, grader)
    if isinstance(step, Outcome):
        return step
    message = Message("user", grader_prompt(question, step.prediction))
    return Request(step.of, step.asked, (message,), step.attempt)


def next_grading_step(
    question: Question, replies: Sequence[Reply], grader: GraderKind, *, force_answered: bool = False
) -> Step | Outcome:
    """Return the step that `next_grading` would put into words, or the outcome.

    Parameters
    ----------
    question, replies, grader
        As for `next_grading`.
    force_answered
        Whether answered questions were forced too, as those that are drawn repeatedly are.

    Raises
    ------
    ValueError
        If there is no first reply.
    """
    # A forced reply that is there is judged in any case; without a right answer its grade is known without one.
    known = force_answered and question.gold is None
    step = next_step(question, replies, grader, force_answered=known)
    if isinstance(step, Outcome) or step.asked is not Asked.MODEL:
        return step
    first = next((reply for reply in replies if (reply.of, reply.asked) == (Pass.FIRST, Asked.MODEL)), None)
    if first is None:
        raise ValueError(f"question {question.question_id}: there is no first reply to grade")
    return Outcome(True, None, Grade.REFUSED, unscored_reason=FORCED_NOT_ASKED, first_reply=first.text)
