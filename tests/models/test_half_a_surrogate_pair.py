"""Evidence that a reply which was cut inside an emoji is kept, graded by a model and scored, whoever carries it."""

from __future__ import annotations

import refusal_index as ri
from tests.models.conftest import both_clients
from tests.models.fake_api import FakeApi, is_grading

HALF = "cut \ud83d"
QUESTIONS = [
    {"id": "q1", "question": "What is it?", "answer": "it \ud83d", "context": "half \udc00", "topic": "t\ud83d"}
]


def scripted(message: str) -> str:
    message.encode()  # what was sent can be written down
    return "A" if is_grading(message) else f"<answer>{HALF}</answer>"


@both_clients
def test_over_http_a_model_that_grades_is_asked_once_and_its_grade_is_kept(tmp_path, monkeypatch, model):
    """Such an answer was never graded, and asked for again whenever the command was."""
    with FakeApi(scripted) as api:
        for provider in ("FAKE", "SAMBANOVA"):
            monkeypatch.setenv(f"{provider}_BASE_URL", api.url)
            monkeypatch.setenv(f"{provider}_API_KEY", "sk-none-needed")
        run = {"grader": model.replace("any", "grader"), "variants": "high", "out": tmp_path / "r", "placement": "user"}
        found = ri.evaluate(model, QUESTIONS, **run)
        sent = len(api.answered)
        again = ri.evaluate(model, QUESTIONS, **run)
        assert len(api.answered) == sent
    for one in (found, again):
        assert one.outcomes.select("first_reply", "wrong", "unscored_reason").row(0) == (
            "<answer>cut \ufffd</answer>",
            False,
            None,
        )


def test_functions_say_and_are_told_text_that_can_be_written_down(tmp_path):
    def grader(question, answer):
        return (question.gold, answer) == ("it \ufffd", "cut \ufffd")

    run = {"grader": grader, "grader_name": "g", "model_name": "m", "variants": "high"}
    found = ri.evaluate(lambda messages: scripted(messages[-1]["content"]), QUESTIONS, out=tmp_path / "r", **run)
    assert found.outcomes["wrong"].to_list() == [False]
