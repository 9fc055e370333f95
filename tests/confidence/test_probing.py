"""What is asked beside the two passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refusal_index.data import Outcome, Question
from refusal_index.plugins.confidence.method import Prompt
from refusal_index.plugins.confidence.plan import Probing
from refusal_index.protocol import (
    Completion,
    Conversation,
    GraderKind,
    Pass,
    Protocol,
    Reply,
    Role,
    Step,
    completions_and_outcomes,
    load_prompt_set,
    next_requests,
    used_completions,
)

QUESTION = Question("q", "How much is 2 + 2?", "4", choices=("3", "4"))
PROMPTS = load_prompt_set("default")


def probing(*, is_graded: bool = False, think: str = "") -> Probing:
    prompt = Prompt("judge", "{question}\n{answer}: true?", is_graded)
    wording = Protocol(PROMPTS, "normal", GraderKind.EXACT, think=think)
    return Probing(GraderKind.EXACT, prompt, wording, {"q": "{question} 4"})


def said(text: str, draw: int = 0, asked: Role = Role.MODEL) -> Completion:
    return Completion("q", "p-true", draw, Reply(Pass.PROBE, asked, text))


def test_question_and_answer_stand_in_the_prompt_and_nothing_in_them_is_a_field():
    request = probing().request(probing().step(QUESTION, []), QUESTION)
    assert request.messages[0].content == (
        "Question: How much is 2 + 2?\n\nChoose one of these answers and give its letter:\nA) 3\nB) 4\n"
        "{question} 4: true?"
    )
    assert request.pass_ is Pass.PROBE
    assert (
        probing(think="/no_think")
        .request(Step(Pass.PROBE, Role.MODEL), QUESTION)
        .messages[0]
        .content.endswith("true?\n\n/no_think")
    )


@pytest.mark.parametrize("draws", [1, 3])
def test_it_is_asked_once_a_draw_and_then_nothing_is_due(draws):
    talk = Conversation(QUESTION, "p-true", probing(), draws)
    (first,) = next_requests(talk, [])
    assert (first.step.pass_, first.n) == (Pass.PROBE, draws)
    replies = [said("A", draw) for draw in range(draws)]
    assert next_requests(talk, replies) == []
    assert used_completions(talk, replies) == replies
    assert [one.wrong for one in completions_and_outcomes(talk, replies)[1]] == [None] * draws, (
        "whose grade is nobody's"
    )


def test_an_answer_of_its_own_is_graded_by_whoever_grades_the_run():
    talk = Conversation(QUESTION, "p", probing(is_graded=True))
    assert completions_and_outcomes(talk, [said("<answer>4</answer>")])[1][0].wrong is False
    assert completions_and_outcomes(talk, [said("<answer>5</answer>")])[1][0].wrong is True
    by_model = replace(probing(is_graded=True), grader=GraderKind.MODEL)
    step = by_model.step(QUESTION, [Reply(Pass.PROBE, Role.MODEL, "<answer>4</answer>")])
    assert (step.role, step.prediction) == (Role.GRADER, "4")
    assert "<prediction>\n4\n" in by_model.request(step, QUESTION).messages[0].content
    verdict = Reply(Pass.PROBE, Role.GRADER, "A")
    graded = by_model.step(QUESTION, [Reply(Pass.PROBE, Role.MODEL, "<answer>4</answer>"), verdict])
    assert isinstance(graded, Outcome)
    assert graded.wrong is False
