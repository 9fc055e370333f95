"""The forced pass alone is the second half of the two passes, word for word."""

from __future__ import annotations

import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.protocol import (
    ForcedPass,
    GraderKind,
    Pass,
    Protocol,
    Reply,
    Role,
    Step,
    StopReason,
    TwoPass,
    load_prompt_set,
)

QUESTION = Question("q1", "What is the capital of Peru?", "Lima")
PROMPTS = load_prompt_set("default")


def forced(text: str, stop_reason: StopReason = StopReason.STOP) -> Reply:
    return Reply(Pass.FORCED, Role.MODEL, text, stop_reason)


@pytest.mark.parametrize("variant", list(PROMPTS.variants))
def test_it_asks_what_the_two_passes_ask_after_a_refusal_under_any_variant(variant):
    refused = Reply(Pass.FIRST, Role.MODEL, "<answer>unanswered</answer>")
    whole = TwoPass(GraderKind.EXACT, Protocol(PROMPTS, variant, GraderKind.EXACT))
    alone = ForcedPass(GraderKind.EXACT, Protocol(PROMPTS, next(iter(PROMPTS.variants)), GraderKind.EXACT))
    step = alone.step(QUESTION, [])
    assert step == whole.step(QUESTION, [refused])
    assert alone.request(step, QUESTION) == whole.request(step, QUESTION)


@pytest.mark.parametrize(
    ("reply", "wrong", "grade", "reason"),
    [
        (forced("<answer>Lima</answer>"), False, Grade.CORRECT, None),
        (forced("<answer>Quito</answer>"), True, Grade.INCORRECT, None),
        (forced("<answer>UNANSWERED</answer>"), True, Grade.REFUSED, None),
        (forced("<answer>Li", StopReason.LENGTH), None, Grade.UNSCORED, "forced_truncated"),
    ],
)
def test_what_the_forced_answer_comes_to(reply, wrong, grade, reason):
    outcome = ForcedPass(GraderKind.EXACT).step(QUESTION, [reply])
    assert isinstance(outcome, Outcome)
    assert (outcome.refused, outcome.wrong, outcome.forced_grade) == (True, wrong, grade)
    assert outcome.unscored_reason == reason


def test_a_model_grades_the_forced_answer():
    procedure = ForcedPass(GraderKind.MODEL)
    asked = procedure.step(QUESTION, [forced("<answer>Lima</answer>")])
    assert isinstance(asked, Step)
    assert (asked.pass_, asked.role) == (Pass.FORCED, Role.GRADER)
    verdict = Reply(Pass.FORCED, Role.GRADER, "A")
    outcome = procedure.step(QUESTION, [forced("<answer>Lima</answer>"), verdict])
    assert isinstance(outcome, Outcome)
    assert outcome.wrong is False
