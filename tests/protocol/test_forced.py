"""The forced pass alone is the second half of the two passes, word for word."""

from __future__ import annotations

import pytest
from refusal_index.protocol.forced import forced_protocol, next_forced_request, next_forced_step

from refusal_index.outcomes import Grade, Outcome, Question
from refusal_index.protocol import Asked, GraderKind, Pass, Protocol, Reply, Request, StopReason, load_prompt_set
from refusal_index.protocol.procedure import next_request

QUESTION = Question("q1", "What is the capital of Peru?", "Lima")
PROMPTS = load_prompt_set("default")


def forced(text: str, stop_reason: StopReason = StopReason.STOP) -> Reply:
    return Reply(Pass.FORCED, Asked.MODEL, text, stop_reason)


@pytest.mark.parametrize("variant", list(PROMPTS.variants))
def test_it_asks_what_the_two_passes_ask_after_a_refusal_under_any_variant(variant):
    refused = Reply(Pass.FIRST, Asked.MODEL, "<answer>unanswered</answer>")
    whole = next_request(QUESTION, [refused], Protocol(PROMPTS, variant, GraderKind.EXACT))
    assert next_forced_request(QUESTION, [], forced_protocol(PROMPTS, GraderKind.EXACT)) == whole


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
    outcome = next_forced_step(QUESTION, [reply], GraderKind.EXACT)
    assert isinstance(outcome, Outcome)
    assert (outcome.refused, outcome.wrong, outcome.forced_grade) == (True, wrong, grade)
    assert outcome.unscored_reason == reason


def test_a_model_grades_the_forced_answer():
    protocol = forced_protocol(PROMPTS, GraderKind.MODEL)
    asked = next_forced_request(QUESTION, [forced("<answer>Lima</answer>")], protocol)
    assert isinstance(asked, Request)
    assert (asked.of, asked.asked) == (Pass.FORCED, Asked.GRADER)
    verdict = Reply(Pass.FORCED, Asked.GRADER, "A")
    outcome = next_forced_request(QUESTION, [forced("<answer>Lima</answer>"), verdict], protocol)
    assert isinstance(outcome, Outcome)
    assert outcome.wrong is False
