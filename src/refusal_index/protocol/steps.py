"""The next step about a question, or its outcome, as pure functions of the replies so far.

In the first of the two passes, the model may answer or refuse. Each reply is read, without the gold answer, and graded
if it is an answer. A question that was refused, according to the reading or the grader, goes through the forced pass,
in which refusing again counts as wrong. The forced request depends only on the question, never on the variant or on the
first reply. A question goes through the forced pass even if its first pass answered, if its reply was unclear, so that
both readings can be compared, or if it is sampled more than once, to correct the estimate for noise.

A question without a gold answer has no correct answer: any answer is wrong. So its forced pass is neither requested nor
graded, and gets the grade ``incorrect``; a grading model is asked only whether the first reply attempted an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from refusal_index.data.outcome import FORCED_NOT_ASKED, NOT_GRADED, Grade, Outcome, Question
from refusal_index.protocol.grader_model import read_verdict
from refusal_index.protocol.grading import GraderKind, grade_by_rule, unscored_reason
from refusal_index.protocol.messages import GRADERS, Pass, Reply, Role
from refusal_index.protocol.reading import (
    ReadAs,
    Reading,
    RecognisedBy,
    read_reply,
)
from refusal_index.protocol.refusals import LEFT_TO_GRADER, WORDING, RefusalRule


@dataclass(frozen=True)
class Step:
    """The next step for a question, before its request is built.

    Attributes
    ----------
    pass_, role, attempt
        The same as in its request.
    prediction
        The answer to grade; empty in a step that asks the model.
    only_attempt
        Whether a grader is asked only if the prediction attempts an answer.
    """

    pass_: Pass
    role: Role
    attempt: int = 0
    prediction: str = ""
    only_attempt: bool = False


GRADE_ATTEMPTS = 2

GRADE_REASONS = UNREADABLE, DISAGREE = "grade_unreadable", "graders_disagree"
"""Reasons why graders could not grade a reply."""


@dataclass(frozen=True)
class _Verdict:
    """The grade of one pass; `reply` is None if the grade is known without a request."""

    grade: Grade
    reply: str | None
    reason: str | None = None
    answered: bool = False  # whether an unscored reply is known to attempt an answer
    read_as: str | None = None  # as in the outcome


def next_step(
    question: Question,
    replies: Sequence[Reply],
    grader: GraderKind,
    *,
    force_answered: bool = False,
    asks_forced: bool = True,
    asks_graders: bool = True,
    refusals: RefusalRule | None = None,
) -> Step | Outcome:
    """Return the next step about a question, or its outcome if there is none.

    Parameters
    ----------
    question, replies
        The question with its gold answer, and all replies about it so far, in order of arrival.
    grader
        The grader of answers.
    force_answered
        Whether the forced pass is needed even if the first pass answered; the first pass's answer still counts. An
        existing forced reply is graded in any case.
    asks_forced
        Whether the forced pass is requested. If not, a refusal without a forced reply is unscored.
    asks_graders
        Whether the models and functions that grade are asked about the first pass. If not, the wording of a reply
        decides whether it refuses where they would, and an answer is unscored, with the reason ``first_not_graded``.
    refusals
        How replies are read; by default as `default_rule` says.
    """
    rule = refusals or default_rule(grader)
    if not asks_graders and not rule.reads_choices:
        rule = replace(WORDING, reasoning=rule.reasoning)
    first = _judge(Pass.FIRST, question, replies, grader, rule, asks_graders=asks_graders)
    if isinstance(first, Step):
        return first
    if first.grade is Grade.UNSCORED:
        return _outcome(first)
    is_forced = any(reply.pass_ is Pass.FORCED for reply in replies)
    is_needed = first.grade is Grade.REFUSED or first.read_as == ReadAs.UNCLEAR or force_answered
    if not is_forced and not (is_needed and (asks_forced or question.gold is None)):
        return _outcome(first) if first.grade is not Grade.REFUSED else _without_forced_reply(first)
    if question.gold is None:
        return _outcome(first, _Verdict(Grade.INCORRECT, None))  # no answer could be correct, so none is requested
    forced = _judge(Pass.FORCED, question, replies, grader, rule)
    return forced if isinstance(forced, Step) else _outcome(first, forced)


def default_rule(grader: GraderKind) -> RefusalRule:
    """Return how replies are read by default: a grading model decides which untagged replies are refusals.

    Examples
    --------
    >>> default_rule(GraderKind.EXACT).by_wording, default_rule(GraderKind.MODEL).by_wording
    (True, False)
    """
    return LEFT_TO_GRADER if grader.models else WORDING


def _without_forced_reply(first: _Verdict) -> Outcome:
    return Outcome(
        True,
        None,
        Grade.REFUSED,
        unscored_reason=FORCED_NOT_ASKED,
        first_reply=first.reply,
        reading=first.read_as,
    )


def pass_outcome(
    pass_: Pass,
    question: Question,
    replies: Sequence[Reply],
    grader: GraderKind,
    refusals: RefusalRule | None = None,
) -> Step | Outcome:
    """Return the next step of a single pass, or its outcome, with the pass's grade as the first grade.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> said = Reply(Pass.PROBE, Role.MODEL, "<answer>Lima</answer>")
    >>> pass_outcome(Pass.PROBE, question, [said], GraderKind.EXACT).wrong
    False
    """
    verdict = _judge(pass_, question, replies, grader, refusals or default_rule(grader))
    return verdict if isinstance(verdict, Step) else _outcome(verdict)


def _judge(
    pass_: Pass,
    question: Question,
    replies: Sequence[Reply],
    grader: GraderKind,
    refusals: RefusalRule,
    *,
    asks_graders: bool = True,
) -> Step | _Verdict:
    """Return the verdict on one pass, or the step that it still needs."""
    answers = [reply for reply in replies if reply.pass_ is pass_ and reply.role is Role.MODEL]
    if not answers:
        return Step(pass_, Role.MODEL)
    text = answers[0].text
    reading = read(question, answers[0], refusals)
    if reading.unscored_reason:
        return _Verdict(Grade.UNSCORED, text, f"{pass_}_{reading.unscored_reason}")
    if reading.refused:
        return _Verdict(Grade.REFUSED, text, read_as=reading.recognised_by)
    if refusals.asks_model and not reading.is_tagged and reading.read_as is not ReadAs.FLAGGED_ANSWER:
        attempt = _attempt(pass_, reading, text, question, replies)
        if attempt is not None:
            return attempt
    if grader.models and not asks_graders:
        return _Verdict(Grade.UNSCORED, text, NOT_GRADED, answered=True, read_as=reading.read_as)
    return _graded(pass_, reading, text, question, replies, grader)


def read(question: Question, reply: Reply, refusals: RefusalRule) -> Reading:
    """Read a reply to a question."""
    return read_reply(reply.text, question.text, question.choices, stop_reason=reply.stop_reason, refusals=refusals)


def _attempt(
    pass_: Pass, reading: Reading, text: str, question: Question, replies: Sequence[Reply]
) -> Step | _Verdict | None:
    """Return the verdict that a reply attempts no answer, or the step that asks a model; None if it attempts one."""
    step = Step(pass_, Role.GRADER, prediction=reading.answer, only_attempt=True)
    attempt = _graded_by_models([step], text, replace(question, gold=None), replies)
    if isinstance(attempt, Step) or attempt.grade is Grade.UNSCORED:
        return attempt
    return replace(attempt, read_as=RecognisedBy.MODEL) if attempt.grade is Grade.REFUSED else None


def _graded(
    pass_: Pass, reading: Reading, text: str, question: Question, replies: Sequence[Reply], grader: GraderKind
) -> Step | _Verdict:
    """Return the grade of an answer, or the step that a grading model still needs."""
    if grader.models:
        steps = [Step(pass_, role, prediction=reading.answer) for role in GRADERS[: grader.models]]
        return _graded_by_models(steps, text, question, replies, reading.read_as)
    grade = grade_by_rule(grader, question, reading)
    reason = f"{pass_}_{unscored_reason(grader, question)}" if grade is Grade.UNSCORED else None
    return _Verdict(grade, text, reason, read_as=reading.read_as)


def _graded_by_models(
    steps: Sequence[Step],
    text: str,
    question: Question,
    replies: Sequence[Reply],
    read_as: str = ReadAs.ANSWER,
) -> Step | _Verdict:
    """Return the verdict of all graders on one reply, or the first step that is still missing."""
    pass_ = steps[0].pass_
    grades: list[Grade] = []
    for step in steps:
        verdict = grade_by(step.role, pass_, question, replies)
        if verdict is None:
            attempts = sum((reply.pass_, reply.role) == (pass_, step.role) for reply in replies)
            if attempts < GRADE_ATTEMPTS:
                return replace(step, attempt=attempts)
            return _Verdict(Grade.UNSCORED, text, f"{pass_}_{UNREADABLE}")
        grades.append(verdict)
    if len(set(grades)) > 1:
        # graders that disagree only on correctness agree that there was an answer
        return _Verdict(Grade.UNSCORED, text, f"{pass_}_{DISAGREE}", answered=Grade.REFUSED not in grades)
    return _Verdict(grades[0], text, read_as=RecognisedBy.GRADER if grades[0] is Grade.REFUSED else read_as)


def grade_by(grader: Role, pass_: Pass, question: Question, replies: Sequence[Reply]) -> Grade | None:
    """Return the grade that one grader gave in one pass; None if there is no readable grade.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> grade_by(Role.GRADER, Pass.FIRST, question, [Reply(Pass.FIRST, Role.GRADER, "B")])
    <Grade.INCORRECT: 'incorrect'>
    """
    verdicts = (reply.text for reply in replies if (reply.pass_, reply.role) == (pass_, grader))
    grades = (read_verdict(question, verdict) for verdict in verdicts)
    return next((grade for grade in grades if grade is not None), None)


def _outcome(first: _Verdict, forced: _Verdict | None = None) -> Outcome:
    """Return the outcome of the question: the forced answer counts if the first pass refused."""
    refused = first.grade is Grade.REFUSED
    counts = forced if refused and forced else first
    unknown = counts.grade is Grade.UNSCORED
    return Outcome(
        refused=None if first.grade is Grade.UNSCORED and not first.answered else refused,
        wrong=None if unknown else counts.grade is not Grade.CORRECT,
        first_grade=first.grade,
        forced_grade=forced.grade if forced else None,
        unscored_reason=counts.reason,
        first_reply=first.reply,
        forced_reply=forced.reply if forced else None,
        reading=first.read_as,
    )
