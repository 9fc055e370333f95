"""The forced pass, context, choices and two graders, against scripted servers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from aiohttp import web

from refusal_index.data import Grade, Question
from refusal_index.data.datasets import Dataset
from refusal_index.data.first_pass import FirstPass, to_outcomes
from refusal_index.data.outcome_table import write_outcomes
from refusal_index.models.requests import ModelError
from refusal_index.protocol import FORCED, load_prompt_set
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import Plan
from refusal_index.runs.results import Derived, UnfinishedError, model_name
from refusal_index.runs.reuse import prepare_force
from refusal_index.runs.settings import Settings
from tests.faults.api import Exchange
from tests.models.conftest import results, run
from tests.models.fake_api import FakeApi, is_forced, is_grading, plain_verdict, question_of
from tests.served import at, is_served

# --- The forced pass

GRADES = [Grade.CORRECT, Grade.REFUSED, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED, Grade.REFUSED]
PASSES = tuple(
    FirstPass(Question(f"q{n}", f"What is {n} plus {n}?", str(2 * n)), "fake/any", "sums", grade, f"said {n}", variant)
    for variant in ("low", "high")
    for n, grade in enumerate(GRADES)
)


def sums(message: str) -> str:
    """Be right about multiples of 3; as the grader, accept these."""
    if is_grading(message):
        return "A" if "capital of France" in message or "What is 3" in message else "B"
    number = int(question_of(message).split()[2])
    return f"<answer>{2 * number if number % 3 == 0 else 'none'}</answer>"


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Plan]:
    """Return a function that prepares the forced pass of `PASSES`, always in one folder."""
    file = tmp_path / "passes.parquet"
    write_outcomes(to_outcomes(PASSES), file)
    monkeypatch.setenv("FAKE_API_KEY", "sk-very-secret")

    def make(api: FakeApi, **changes: object) -> Plan:
        servers = at(api.url, graded=is_served(changes.get("grader")))
        settings = Settings.from_values(**{"model": "any", "grader": "exact", "max_retries": 0, **servers, **changes})
        return prepare_force(file, settings, out=tmp_path / "run")

    return make


def run_forced(plan: Plan) -> Derived:
    asyncio.run(execute(plan))
    return results(plan.folder)


def test_only_refused_questions_are_asked_in_the_forced_pass(prepared):
    with FakeApi(sums) as api:
        derived = run_forced(prepared(api))
    assert sorted(question_of(message) for message in api.messages()) == [f"What is {n} plus {n}?" for n in (1, 3, 5)]
    assert all(is_forced(message) for message in api.messages())
    for variant in ("low", "high"):
        rows = derived.outcomes.filter(variant=variant)
        assert rows["refused"].to_list() == [False, True, False, True, None, True]
        assert rows["wrong"].to_list() == [False, True, True, False, None, True]
        assert rows["first_reply"].to_list() == [f"said {n}" for n in range(6)], "as imported"
        assert rows["forced_grade"].to_list() == [None, "incorrect", None, "correct", None, "incorrect"]
    assert derived.usage["low"].requests == 3
    assert "high" not in derived.usage, "the forced answers are shared, and count once"


def test_repeating_the_forced_pass_sends_nothing(prepared):
    with FakeApi(sums) as api:
        plan = prepared(api)
        first = run_forced(plan)
        assert run_forced(plan).outcomes.equals(first.outcomes)
        assert len(api.answered) == 3


def test_failed_forced_question_is_unscored_and_asked_again(prepared):
    def always_q3(message: str, sent_before: int) -> web.StreamResponse | None:
        error = {"error": {"message": "no", "type": "t", "code": None}}
        return web.json_response(error, status=400) if "3 plus 3" in message else None

    with FakeApi(sums, always_q3) as api:
        derived = run_forced(prepared(api))
        assert [(missing.variant, missing.question_id) for missing in derived.missing] == [(FORCED, "q3")]
        row = derived.outcomes.filter(variant="low", question_id="q3").row(0, named=True)
        assert (row["refused"], row["wrong"], row["unscored_reason"]) == (True, None, "request_failed")
        api._fault = None
        assert not run_forced(prepared(api)).missing
        assert len(api.answered) == 3


def test_model_grader_is_checked_before_grading_forced_answers(prepared):
    with FakeApi(sums) as api:
        derived = run_forced(prepared(api, grader="grader"))
    assert is_grading(api.messages()[0])
    assert len(api.answered) == 3 + 2 * 3
    assert derived.outcomes.filter(variant="low")["wrong"].to_list() == [False, True, True, False, None, True]


def test_folder_without_a_forced_pass_raises(prepared):
    with FakeApi(sums) as api:
        plan = prepared(api)
    with plan.folder.lock():
        plan.folder.create_or_resume(plan.identity)
    with pytest.raises(UnfinishedError, match="run the same command again to resume"):
        results(plan.folder)


def test_in_process_engine_gives_the_same_table(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.models.conftest.answer", lambda messages: sums(messages[-1]["content"]), raising=False)
    with FakeApi(sums) as api:
        there = run_forced(prepared(api)).outcomes
        name = "python:tests.models.conftest:answer"
        plan = prepare_force(
            tmp_path / "passes.parquet",
            Settings.from_values(model=name, grader="exact"),
            out=tmp_path / "local",
        )
        here = run_forced(plan).outcomes
    assert here.with_columns(there["model"]).equals(there.with_columns(pl.col("model")))


@pytest.mark.parametrize(
    ("first", "forced", "expected"),
    [
        ("almanac/base", "base", "almanac/base"),
        ("openai/GPT-4o", "openai/gpt-4o", "openai/GPT-4o"),
        ("gpt-4o", "openai/gpt-4o-mini", "gpt-4o, forced: openai/gpt-4o-mini"),
        (None, "openai/gpt-4o", "(not named), forced: openai/gpt-4o"),
    ],
)
def test_rows_of_two_models_name_both(first, forced, expected):
    assert model_name(first, forced) == expected


# --- Context, choices and two graders

REFUSED = "<answer>UNANSWERED</answer>"
QUESTIONS = (
    Question("open", "Who was it?", "Ann", context="Ann was it."),
    Question("choice", "Which one?", "Lima", choices=("Cuzco", "Lima"), context="Not Cuzco."),
    Question("none", "When was it?", None, context="Nobody knows."),
    Question("refused-none", "Where was it?", None, context="Nobody knows."),
)


MIXED = Dataset("mixed", QUESTIONS, "0" * 64, "made by a test", "exact", "none")


def reader(message: str) -> str:
    """Answer like a model: refuse by the tag if the text does not say, and choose by letter."""
    if "Where was it?" in message:
        return REFUSED
    if "Which one?" in message:
        return "<answer>b</answer>" if is_forced(message) else REFUSED
    return "<answer>Ann</answer>" if "Who was it?" in message else "<answer>1804</answer>"


def rows(derived: Derived) -> dict[str, tuple[bool | None, bool | None, str | None]]:
    table = derived.outcomes.select("question_id", "refused", "wrong", "forced_grade").rows()
    return {question_id: (refused, wrong, forced) for question_id, refused, wrong, forced in table}


@pytest.mark.slow
def test_whole_question_is_sent_and_only_answerable_ones_are_forced(plan_for):
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


def test_repeated_unanswerable_questions_have_all_draws(plan_for):
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
    """Grade answers as correct if there is a gold answer, and as attempted otherwise."""
    return "A" if "<gold_answer>" in message else "B"


def strict(message: str) -> str:
    """Reject only Ann."""
    return "B" if "Ann" in message else lenient(message)


@pytest.fixture
def two_graders():
    """Serve two graders, and return the server and the models in its requests."""

    async def judge(exchange: Exchange) -> web.StreamResponse:
        message = exchange.body["messages"][-1]["content"]
        reply = plain_verdict(message) or {"one": lenient, "two": strict}[exchange.body["model"]](message)
        return web.json_response(exchange.answered((reply, "stop")))

    with FakeApi(lenient, lambda *_: judge) as api:
        yield api


JUDGES = "one,two"


def test_grader_disagreements_are_unscored_and_listed(plan_for, two_graders):
    with FakeApi(reader) as api:
        derived = run(plan_for(api.url, dataset=MIXED, grader=JUDGES, grader_base_url=two_graders.url))
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
    asked = Counter(body["model"] for body in two_graders.answered)
    assert asked == {"one": 3 + 3, "two": 3 + 3}, "the check, and replies that the tag does not decide"
    assert derived.usage["normal"].requests == len(api.answered) + 2 * 3


def test_each_grader_is_checked_before_any_request(plan_for):
    async def judge(exchange: Exchange) -> web.StreamResponse:
        message = exchange.body["messages"][-1]["content"]
        reply = "Hm." if exchange.body["model"] == "two" else plain_verdict(message) or lenient(message)
        return web.json_response(exchange.answered((reply, "stop")))

    with (
        FakeApi(reader) as api,
        FakeApi(lenient, lambda *_: judge) as graders,
        pytest.raises(ModelError, match="grader 'two': expected the letter A"),
    ):
        run(plan_for(api.url, dataset=MIXED, grader=JUDGES, grader_base_url=graders.url))
    assert not api.answered


def test_grader_of_unanswerable_questions_sees_no_gold_answer(plan_for, two_graders):
    with FakeApi(reader) as api:
        run(plan_for(api.url, dataset=MIXED, grader="one", grader_base_url=two_graders.url))
    about_none = [message for message in two_graders.messages() if "When was it?" in message]
    assert len(about_none) == 1
    assert "<gold_answer>" not in about_none[0]
    assert "1804" in about_none[0]
    assert not any("Where was it?" in message for message in two_graders.messages())
