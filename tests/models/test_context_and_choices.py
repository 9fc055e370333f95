"""Context, choices, no right answer and two graders, against scripted servers: what is sent, what is kept."""

from __future__ import annotations

import pytest

from refusal_index.data.datasets import Dataset
from refusal_index.data.outcome import Question
from refusal_index.models.requests import ModelError
from refusal_index.protocol import load_prompt_set
from refusal_index.runs.results import Derived
from tests.models.conftest import results, run
from tests.models.fake_api import FakeApi, is_forced

REFUSED = "<answer>UNANSWERED</answer>"
QUESTIONS = (
    Question("open", "Who was it?", "Ann", context="Ann was it."),
    Question("choice", "Which one?", "Lima", choices=("Cuzco", "Lima"), context="Not Cuzco."),
    Question("none", "When was it?", None, context="Nobody knows."),
    Question("refused-none", "Where was it?", None, context="Nobody knows."),
)


MIXED = Dataset("mixed", QUESTIONS, "0" * 64, "made by a test", "exact", "none")


def reader(message: str) -> str:
    """Answer what the model would: refuse by the tag where the text does not tell, choose by letter."""
    if "Where was it?" in message:
        return REFUSED
    if "Which one?" in message:
        return "<answer>b</answer>" if is_forced(message) else REFUSED
    return "<answer>Ann</answer>" if "Who was it?" in message else "<answer>1804</answer>"


def rows(derived: Derived) -> dict[str, tuple[bool | None, bool | None, str | None]]:
    table = derived.outcomes.select("question_id", "refused", "wrong", "forced_grade").rows()
    return {question_id: (refused, wrong, forced) for question_id, refused, wrong, forced in table}


@pytest.mark.slow
def test_what_is_asked_is_the_whole_question_and_a_forced_answer_only_where_one_can_be_right(plan_for):
    prompts = load_prompt_set("default")
    with FakeApi(reader) as api:
        plan = plan_for(api.url, dataset=MIXED)
        derived = run(plan)
    whole = {
        "\n\n".join(prompts.render("normal", question.text, question.context, question.choices))
        for question in QUESTIONS
    }
    forced = "\n\n".join(prompts.render("forced", "Which one?", "Not Cuzco.", ("Cuzco", "Lima")))
    assert sorted(api.messages()) == sorted({*whole, forced})
    assert results(plan.folder).outcomes.equals(derived.outcomes), "rebuilt from the store"
    assert rows(derived) == {
        "open": (False, False, None),
        "choice": (True, False, "correct"),
        "none": (False, True, None),
        "refused-none": (True, True, "incorrect"),
    }
    gold = dict(derived.outcomes.select("question_id", "gold").rows())
    assert gold == {question.question_id: question.gold for question in QUESTIONS}


def test_drawn_repeatedly_questions_without_a_right_answer_have_all_their_draws(plan_for):
    with FakeApi(reader) as api:
        derived = run(plan_for(api.url, dataset=MIXED, draws=3))
    by_question = derived.outcomes.partition_by("question_id", as_dict=True)
    for question in QUESTIONS:
        draws = by_question[question.question_id,]
        assert draws["draw"].to_list() == [0, 1, 2]
        assert draws["forced_grade"].null_count() == 0
        if question.gold is None:
            assert draws["forced_grade"].to_list() == ["incorrect"] * 3
            assert draws["forced_reply"].null_count() == 3
    assert not any(is_forced(message) and "Nobody knows." in message for message in api.messages())


# Two graders


def lenient(message: str) -> str:
    """Find right what has a gold answer, and attempted what has none."""
    return "A" if "<gold_answer>" in message else "B"


def strict(message: str) -> str:
    """Find fault with nothing but Ann."""
    return "B" if "Ann" in message else lenient(message)


@pytest.fixture
def two_graders(monkeypatch):
    monkeypatch.setenv("OTHER_API_KEY", "sk-very-secret")
    with FakeApi(lenient) as first, FakeApi(strict) as second:
        monkeypatch.setenv("JUDGE_API_KEY", "sk-very-secret")
        monkeypatch.setenv("JUDGE_BASE_URL", first.url)
        monkeypatch.setenv("OTHER_BASE_URL", second.url)
        yield first, second


JUDGES = "openai-api/judge/one,openai-api/other/two"


def test_what_two_graders_differ_over_is_unscored_and_listed(plan_for, two_graders):
    first, second = two_graders
    with FakeApi(reader) as api:
        derived = run(plan_for(api.url, dataset=MIXED, grader=JUDGES))
    assert rows(derived) == {
        "open": (False, None, None),
        "choice": (True, False, "correct"),
        "none": (False, True, None),
        "refused-none": (True, True, "incorrect"),
    }
    disagreed = derived.outcomes.filter(derived.outcomes["unscored_reason"].str.ends_with("graders_disagree"))
    assert disagreed.select("question_id", "first_reply", "unscored_reason").rows() == [
        ("open", "<answer>Ann</answer>", "first_graders_disagree")
    ]
    assert len(first.answered) == len(second.answered) == 1 + 3, "the plain case, and what the tag does not settle"
    assert derived.usage["normal"].requests == len(api.answered) + 2 * 3


def test_each_grader_is_tried_before_anything_is_asked(plan_for, two_graders, monkeypatch):
    with FakeApi(reader) as api, FakeApi(lambda _: "Hm.") as broken:
        monkeypatch.setenv("OTHER_BASE_URL", broken.url)
        with pytest.raises(ModelError, match="grader 'openai-api/other/two': expected the letter A"):
            run(plan_for(api.url, dataset=MIXED, grader=JUDGES))
    assert not api.answered


def test_a_model_is_asked_of_a_question_without_a_right_answer_only_whether_it_was_attempted(plan_for, two_graders):
    first, _ = two_graders
    with FakeApi(reader) as api:
        run(plan_for(api.url, dataset=MIXED, grader=JUDGES.partition(",")[0]))
    about_none = [message for message in first.messages() if "When was it?" in message]
    assert len(about_none) == 1
    assert "<gold_answer>" not in about_none[0]
    assert "1804" in about_none[0]
    assert not any("Where was it?" in message for message in first.messages())
