"""Regrading: whoever grades, what they grade is what was said, and the model is asked no more."""

from __future__ import annotations

import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.protocol import GraderKind, Pass, Regrading, Reply, Role, Step, next_step

QUESTION = Question("q", "What is the capital of Peru?", "Lima")
NO_GOLD = Question("q", "Who was it?", None)
RIGHT, WRONG, REFUSED, EMPTY = "<answer>Lima</answer>", "<answer>Cuzco</answer>", "<answer>UNANSWERED</answer>", ""
VAGUE = "<answer>I cannot say: nobody told me</answer>"  # an answer to exact, a refusal to a model


def said(first: str, forced: str | None = None) -> list[Reply]:
    replies = [Reply(Pass.FIRST, Role.MODEL, first)]
    return replies if forced is None else [*replies, Reply(Pass.FORCED, Role.MODEL, forced)]


def graded(replies: list[Reply], kind: GraderKind, verdicts: dict[str, str], question: Question = QUESTION) -> Outcome:
    """Carry what graders are asked; `verdicts` says what they find of an answer."""
    replies = list(replies)
    for _ in range(10):
        step = Regrading(kind).step(question, replies)
        if isinstance(step, Outcome):
            return step
        assert step.role is not Role.MODEL
        content = Regrading(kind).request(step, question).messages[0].content
        verdict = next(verdict for answer, verdict in verdicts.items() if f"\n{answer}\n</prediction>" in content)
        replies.append(Reply(step.pass_, step.role, verdict))
    raise AssertionError


@pytest.mark.parametrize("first", [RIGHT, WRONG, REFUSED, EMPTY])
@pytest.mark.parametrize("forced", [RIGHT, WRONG, REFUSED])
def test_the_same_rule_on_all_replies_gives_the_same_outcome_again(first, forced):
    replies = said(first, forced)
    assert Regrading(GraderKind.EXACT).step(QUESTION, replies) == next_step(QUESTION, replies, GraderKind.EXACT)


def test_what_is_a_refusal_now_and_was_an_answer_has_no_forced_answer():
    outcome = graded(said(VAGUE), GraderKind.MODEL, {"I cannot say: nobody told me": "C"})
    assert (outcome.refused, outcome.wrong, outcome.first_grade) == (True, None, Grade.REFUSED)
    assert (outcome.forced_grade, outcome.unscored_reason) == (None, "forced_not_asked")
    assert outcome.first_reply == VAGUE


def test_a_forced_answer_stays_beside_what_is_an_answer_now():
    outcome = graded(said("I do not know.", RIGHT), GraderKind.MODEL, {"I do not know.": "B", "Lima": "A"})
    assert (outcome.refused, outcome.wrong) == (False, True)
    assert (outcome.forced_grade, outcome.forced_reply) == (Grade.CORRECT, RIGHT)


def test_two_graders_are_both_asked_about_both_replies():
    outcome = graded(said(REFUSED, RIGHT), GraderKind.AGREE, {"Lima": "A"})
    assert (outcome.refused, outcome.wrong) == (True, False)


@pytest.mark.parametrize("kind", [GraderKind.EXACT, GraderKind.MODEL])
def test_without_a_right_answer_no_forced_one_is_missed(kind):
    outcome = graded(said(VAGUE), kind, {"I cannot say: nobody told me": "C"}, NO_GOLD)
    assert outcome.wrong is True
    assert outcome.unscored_reason is None
    assert graded(said(REFUSED), kind, {}, NO_GOLD).forced_grade is Grade.INCORRECT


def test_of_questions_drawn_repeatedly_without_a_right_answer_the_forced_grade_is_known():
    outcome = Regrading(GraderKind.EXACT).step(NO_GOLD, said(RIGHT), force_answered=True)
    assert outcome.forced_grade is Grade.INCORRECT


def test_an_unreadable_verdict_is_asked_for_once_more():
    replies = [*said(RIGHT), Reply(Pass.FIRST, Role.GRADER, "A or B")]
    step = Regrading(GraderKind.MODEL).step(QUESTION, replies)
    assert isinstance(step, Step)
    assert step.attempt == 1


def test_nothing_said_is_nothing_to_grade():
    with pytest.raises(ValueError, match="question q: there is no first reply to grade"):
        Regrading(GraderKind.EXACT).step(QUESTION, [])
