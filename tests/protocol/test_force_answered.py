"""Forcing what was answered, for questions drawn repeatedly: what is asked, and which answer counts."""

from __future__ import annotations

import itertools

import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.protocol import GraderKind, Pass, Protocol, Reply, Request, Role, load_prompt_set, next_request
from refusal_index.protocol.procedure import next_step

QUESTION = Question("q1", "What is the capital of Peru?", "Lima")
PROTOCOL = Protocol(load_prompt_set("default"), "normal", GraderKind.EXACT)
RIGHT, WRONG, REFUSED = "<answer>Lima</answer>", "<answer>Cuzco</answer>", "<answer>UNANSWERED</answer>"


def converse(first: str, forced: str, *, force_answered: bool) -> tuple[int, Outcome]:
    replies: list[Reply] = []
    while isinstance(step := next_request(QUESTION, replies, PROTOCOL, force_answered=force_answered), Request):
        replies.append(Reply(step.pass_, step.role, first if step.pass_ is Pass.FIRST else forced))
    return len(replies), step


@pytest.mark.parametrize(("first", "forced"), [*itertools.product((RIGHT, WRONG), (RIGHT, WRONG, REFUSED))])
def test_the_first_answer_counts_and_the_forced_grade_stands_beside_it(first, forced):
    requests, outcome = converse(first, forced, force_answered=True)
    assert requests == 2
    assert (outcome.refused, outcome.wrong) == (False, first == WRONG)
    assert outcome.forced_grade == {RIGHT: Grade.CORRECT, WRONG: Grade.INCORRECT, REFUSED: Grade.REFUSED}[forced]
    assert outcome.forced_reply == forced
    assert outcome.unscored_reason is None


@pytest.mark.parametrize("forced", [RIGHT, WRONG, REFUSED])
def test_a_refused_question_is_treated_as_ever(forced):
    assert converse(REFUSED, forced, force_answered=True) == converse(REFUSED, forced, force_answered=False)


def test_an_unscored_first_pass_is_not_forced():
    requests, outcome = converse("", RIGHT, force_answered=True)
    assert requests == 1
    assert (outcome.first_grade, outcome.forced_grade, outcome.unscored_reason) == (Grade.UNSCORED, None, "first_empty")


def test_an_unscored_forced_answer_does_not_unscore_an_answered_question():
    _, outcome = converse(RIGHT, "", force_answered=True)
    assert (outcome.wrong, outcome.forced_grade, outcome.unscored_reason) == (False, Grade.UNSCORED, None)


def test_a_log_is_read_the_same_without_knowing_how_it_was_asked():
    replies = [Reply(Pass.FIRST, Role.MODEL, RIGHT), Reply(Pass.FORCED, Role.MODEL, WRONG)]
    outcome = next_step(QUESTION, replies, GraderKind.EXACT)
    assert isinstance(outcome, Outcome)
    assert (outcome.wrong, outcome.forced_grade) == (False, Grade.INCORRECT)
