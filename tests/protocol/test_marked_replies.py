"""A reply that a model function marked as an answer or as a refusal."""

from __future__ import annotations

import pytest

from refusal_index.data.outcome import Outcome, Question
from refusal_index.protocol import GraderKind, Pass, Reply, Role, StopReason
from refusal_index.protocol.reading import ReadAs, RecognisedBy, read_reply
from refusal_index.protocol.refusals import TAG, WORDING, RefusalRule
from refusal_index.protocol.steps import Step, next_step

QUESTION = Question("q1", "What is the capital of Peru?", "Lima")
DECLINES = "I don't know."
RULES = {"wording": WORDING, "tag": TAG, "phrase": RefusalRule(phrase="know"), "model": RefusalRule(asks_model=True)}
FUNCTION = RefusalRule(function=lambda answer: True)


@pytest.mark.parametrize("rule", [*RULES.values(), FUNCTION], ids=[*RULES, "function"])
@pytest.mark.parametrize("text", [DECLINES, "<answer>UNANSWERED</answer>", "Lima"])
def test_theory_a_mark_decides_whatever_the_wording_and_the_rule(rule, text):
    answer = read_reply(text, QUESTION.text, stop_reason=StopReason.ANSWER, refusals=rule)
    assert (answer.read_as, answer.recognised_by) == (ReadAs.FLAGGED_ANSWER, None)
    refusal = read_reply(text, QUESTION.text, stop_reason=StopReason.REFUSAL, refusals=rule)
    assert (refusal.read_as, refusal.recognised_by) == (ReadAs.REFUSAL, RecognisedBy.FLAG)


def test_theory_a_marked_answer_without_text_cannot_be_read():
    assert read_reply("", stop_reason=StopReason.ANSWER).unscored_reason == "empty"


def test_theory_no_model_is_asked_whether_a_marked_answer_attempts_one():
    rule = RefusalRule(by_wording=False, asks_model=True)
    marked = Reply(Pass.FIRST, Role.MODEL, DECLINES, StopReason.ANSWER)
    outcome = next_step(QUESTION, [marked], GraderKind.EXACT, refusals=rule)
    assert isinstance(outcome, Outcome)
    assert (outcome.refused, outcome.wrong, outcome.reading) == (False, True, "flagged_answer")
    asked = next_step(QUESTION, [Reply(Pass.FIRST, Role.MODEL, DECLINES)], GraderKind.EXACT, refusals=rule)
    assert isinstance(asked, Step)
    assert asked.role is Role.GRADER
    assert asked.only_attempt
