"""A question goes into an Inspect sample and comes back the same, from the task's state and from a log."""

from __future__ import annotations

import pytest

from refusal_index.data import Question
from refusal_index.plugins.inspect.tasks import to_dataset, to_question
from refusal_index.protocol import Conversation, GraderKind, TwoPass

QUESTIONS = {
    "plain": Question("a", "Who?", "Ann"),
    "with all": Question("b", "Who?", "Ann", ("Anne",), "people", "Ann {was} it.", ("Bob", "Ann"), "Ann(e)?"),
    "no right answer": Question("c", "Who?", None, context="Nobody tells."),
    "no right choice": Question("d", "Who?", None, choices=("Ann", "Bob")),
}


def talk(question: Question, draws: int = 1) -> Conversation:
    return Conversation(question, "low", TwoPass(GraderKind.EXACT), draws)


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_there_and_back(question, draws):
    (sample,) = to_dataset("x", [talk(question, draws)])
    assert sample.input == question.text
    assert isinstance(sample.target, str)
    assert to_question(sample.id, sample.input, sample.target, sample.metadata) == question
    assert sample.metadata.get("draws", 1) == draws


def test_a_plain_question_carries_nothing_else():
    assert to_dataset("x", [talk(QUESTIONS["plain"])])[0].metadata == {}
