"""The two-pass procedure as one pure function.

``next_request`` looks at what has been said so far about a question and returns what to ask next, or, when nothing is
left to ask, the outcome. Whoever carries requests to a model and replies back (an engine) runs the same procedure.

First pass: the model may answer or refuse. Its reply is read, the UNANSWERED tag first, and otherwise graded. A
question that was refused, by the tag or in the grader's judgement, goes through the forced pass, where refusing again
counts as wrong. The forced request depends on the question only, never on the variant or on the first reply. A question
that is drawn repeatedly, to correct the estimate for noise, is forced whether its first pass refused or answered.

A question without a gold answer has no right one: whatever it was answered is wrong. So nothing is forced or graded in
its second pass, whose grade is known to be ``incorrect``; a model that grades is asked only whether the first reply
attempted an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.outcome import Outcome
from refusal_index.outcomes.question import Question
from refusal_index.protocol.graders import GraderKind, grade_by_rule, unscored_reason
from refusal_index.protocol.grading import grader_prompt, read_verdict
from refusal_index.protocol.prompts import FORCED
from refusal_index.protocol.records import (
    GRADERS,
    Asked,
    Message,
    Pass,
    Placement,
    Protocol,
    Reply,
    Request,
    Step,
)
from refusal_index.protocol.replies import read_reply

GRADE_ATTEMPTS = 2
GRADE_REASONS = UNREADABLE, DISAGREE = "grade_unreadable", "graders_disagree"
"""Why those that grade could not settle a reply."""


@dataclass(frozen=True)
class _Verdict:
    """The grade of one pass; `reply` is None where the grade is known without asking."""

    grade: Grade
    reply: str | None
    reason: str | None = None
    answered: bool = False  # whether an answer was attempted, where that much is known of what is unscored


def next_request(
    question: Question, replies: Sequence[Reply], protocol: Protocol, *, force_answered: bool = False
) -> Request | Outcome:
    """Return what to ask next about `question`, or its outcome when nothing is left to ask.

    Parameters
    ----------
    question
        The question with its gold answer.
    replies
        Every reply about it so far, in the order they came.
    protocol
        Prompt set, variant, grader and placement.
    force_answered
        Ask the forced pass also where the first pass answered; the first pass's answer remains the one that counts.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> protocol = Protocol(load_prompt_set("default"), "high", GraderKind.EXACT)
    >>> next_request(question, [], protocol).of
    <Pass.FIRST: 'first'>
    >>> refused = Reply(Pass.FIRST, Asked.MODEL, "<answer>UNANSWERED</answer>")
    >>> next_request(question, [refused], protocol).of
    <Pass.FORCED: 'forced'>
    >>> forced = Reply(Pass.FORCED, Asked.MODEL, "<answer>Lima</answer>")
    >>> outcome = next_request(question, [refused, forced], protocol)
    >>> outcome.refused, outcome.wrong
    (True, False)
    """
    step = next_step(question, replies, protocol.grader, force_answered=force_answered)
    if isinstance(step, Outcome):
        return step
    return worded(step, question, protocol)


def next_step(
    question: Question, replies: Sequence[Reply], grader: GraderKind, *, force_answered: bool = False
) -> Step | Outcome:
    """Return the step that `next_request` would put into words, or the outcome: so a log is read without its prompts.

    Parameters
    ----------
    question, replies
        As for `next_request`.
    grader
        Who grades what the UNANSWERED tag does not settle.
    force_answered
        As for `next_request`. A forced reply that is there already is judged whatever this says.
    """
    first = _judge(Pass.FIRST, question, replies, grader)
    if isinstance(first, Step):
        return first
    if first.grade is Grade.UNSCORED:
        return _outcome(first)
    if first.grade is not Grade.REFUSED and not force_answered and not _was_forced(replies):
        return _outcome(first)
    if question.gold is None:
        return _outcome(first, _Verdict(Grade.INCORRECT, None))  # no answer could be right: none is paid for
    forced = _judge(Pass.FORCED, question, replies, grader)
    return forced if isinstance(forced, Step) else _outcome(first, forced)


def judged_alone(of: Pass, question: Question, replies: Sequence[Reply], grader: GraderKind) -> Step | Outcome:
    """Return what is next of a pass that is looked at by itself, or its outcome, with its grade as the first.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> said = Reply(Pass.PROBE, Asked.MODEL, "<answer>Lima</answer>")
    >>> judged_alone(Pass.PROBE, question, [said], GraderKind.EXACT).wrong
    False
    """
    verdict = _judge(of, question, replies, grader)
    return verdict if isinstance(verdict, Step) else _outcome(verdict)


def _was_forced(replies: Sequence[Reply]) -> bool:
    return any(reply.of is Pass.FORCED for reply in replies)


def _judge(of: Pass, question: Question, replies: Sequence[Reply], grader: GraderKind) -> Step | _Verdict:
    """Return the verdict on one pass, or the step that it still needs."""
    said = [reply for reply in replies if reply.of is of and reply.asked is Asked.MODEL]
    if not said:
        return Step(of, Asked.MODEL)
    text = said[0].text
    reading = read_reply(text, said[0].stop_reason)
    if reading.unscored_reason:
        return _Verdict(Grade.UNSCORED, text, f"{of}_{reading.unscored_reason}")
    if reading.refused:
        return _Verdict(Grade.REFUSED, text)
    return _graded(of, reading.answer, text, question, replies, grader)


def _graded(
    of: Pass, prediction: str, text: str, question: Question, replies: Sequence[Reply], grader: GraderKind
) -> Step | _Verdict:
    """Return the verdict on an answer, by a rule or by all models that grade, or the step that it still needs."""
    if not grader.models:
        grade = grade_by_rule(grader, question, prediction)
        return _Verdict(grade, text, f"{of}_{unscored_reason(grader, question)}" if grade is Grade.UNSCORED else None)
    grades: list[Grade] = []
    for asked in GRADERS[: grader.models]:
        told = _ask_grader(Step(of, asked, prediction=prediction), question, replies)
        if isinstance(told, Step):
            return told
        if told is Grade.UNSCORED:
            return _Verdict(told, text, f"{of}_{UNREADABLE}")
        grades.append(told)
    if len(set(grades)) > 1:
        # who differ between right and wrong agree that there was an answer
        return _Verdict(Grade.UNSCORED, text, f"{of}_{DISAGREE}", answered=Grade.REFUSED not in grades)
    return _Verdict(grades[0], text)


def _ask_grader(step: Step, question: Question, replies: Sequence[Reply]) -> Step | Grade:
    """Return one grader's verdict, unscored where it cannot be read, or the step that asks for it."""
    if (grade := verdict_of(step.asked, step.of, question, replies)) is not None:
        return grade
    attempts = sum((reply.of, reply.asked) == (step.of, step.asked) for reply in replies)
    return replace(step, attempt=attempts) if attempts < GRADE_ATTEMPTS else Grade.UNSCORED


def verdict_of(grader: Asked, of: Pass, question: Question, replies: Sequence[Reply]) -> Grade | None:
    """Return the grade that one model gave in one pass, or None where it gave none that can be read.

    Examples
    --------
    >>> question = Question("q1", "What is the capital of Peru?", "Lima")
    >>> verdict_of(Asked.GRADER, Pass.FIRST, question, [Reply(Pass.FIRST, Asked.GRADER, "B")])
    <Grade.INCORRECT: 'incorrect'>
    """
    verdicts = (reply.text for reply in replies if (reply.of, reply.asked) == (of, grader))
    grades = (read_verdict(question, verdict) for verdict in verdicts)
    return next((grade for grade in grades if grade is not None), None)


def worded(step: Step, question: Question, protocol: Protocol | None) -> Request:
    """Put a step into words; one that asks a grader needs no protocol."""
    return Request(step.of, step.asked, _messages(step, question, protocol), step.attempt)


def _messages(step: Step, question: Question, protocol: Protocol | None) -> tuple[Message, ...]:
    if step.asked in GRADERS or protocol is None:
        return (Message("user", grader_prompt(question, step.prediction)),)
    variant = FORCED if step.of is Pass.FORCED else protocol.variant
    preamble, asked = protocol.prompts.render(variant, question.text, question.context, question.choices)
    if protocol.think:
        asked = f"{asked}\n\n{protocol.think}"
    if protocol.placement is Placement.SYSTEM:
        return (Message("system", preamble), Message("user", asked))
    return (Message("user", f"{preamble}\n\n{asked}"),)


def _outcome(first: _Verdict, forced: _Verdict | None = None) -> Outcome:
    """Return what became of the question: the forced answer counts where the first pass refused."""
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
    )
