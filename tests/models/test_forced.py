"""The forced pass against a scripted server: what is sent, what is kept, what becomes of faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from aiohttp import web

from refusal_index.data import Grade, Question
from refusal_index.data.first_pass import FirstPass, to_outcomes
from refusal_index.data.outcome_table import write_outcomes
from refusal_index.protocol import FORCED
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import Plan
from refusal_index.runs.results import Derived, UnfinishedError, model_name
from refusal_index.runs.reuse import prepare_force
from refusal_index.runs.settings import Settings
from tests.models.conftest import results
from tests.models.fake_api import FakeApi, is_forced, is_grading, question_of

GRADES = [Grade.CORRECT, Grade.REFUSED, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED, Grade.REFUSED]
PASSES = tuple(
    FirstPass(Question(f"q{n}", f"What is {n} plus {n}?", str(2 * n)), "fake/any", "sums", grade, f"said {n}", variant)
    for variant in ("low", "high")
    for n, grade in enumerate(GRADES)
)


def sums(message: str) -> str:
    """Be right about multiples of 3; as the grader, find that right."""
    if is_grading(message):
        return "A" if "capital of France" in message or "What is 3" in message else "B"
    number = int(question_of(message).split()[2])
    return f"<answer>{2 * number if number % 3 == 0 else 'none'}</answer>"


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Plan]:
    """Return what prepares the forced pass of `PASSES`, always in one folder."""
    file = tmp_path / "passes.parquet"
    write_outcomes(to_outcomes(PASSES), file)
    monkeypatch.setenv("FAKE_API_KEY", "sk-very-secret")

    def make(api: FakeApi, **changes: object) -> Plan:
        monkeypatch.setenv("FAKE_BASE_URL", api.url)
        settings = Settings.from_values(
            **{"model": "openai-api/fake/any", "grader": "exact", "max_retries": 0, **changes}
        )
        return prepare_force(file, settings, out=tmp_path / "run")

    return make


def run(plan: Plan) -> Derived:
    asyncio.run(execute(plan))
    return results(plan.folder)


def test_only_the_refused_are_asked_and_only_in_the_forced_pass(prepared):
    with FakeApi(sums) as api:
        derived = run(prepared(api))
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


def test_asking_again_sends_nothing(prepared):
    with FakeApi(sums) as api:
        plan = prepared(api)
        first = run(plan)
        assert run(plan).outcomes.equals(first.outcomes)
        assert len(api.answered) == 3


def test_a_question_that_fails_is_unscored_and_is_asked_again(prepared):
    def always_q3(message: str, sent_before: int) -> web.StreamResponse | None:
        error = {"error": {"message": "no", "type": "t", "code": None}}
        return web.json_response(error, status=400) if "3 plus 3" in message else None

    with FakeApi(sums, always_q3) as api:
        derived = run(prepared(api))
        assert [(missing.variant, missing.question_id) for missing in derived.missing] == [(FORCED, "q3")]
        row = derived.outcomes.filter(variant="low", question_id="q3").row(0, named=True)
        assert (row["refused"], row["wrong"], row["unscored_reason"]) == (True, None, "request_failed")
        api._fault = None
        assert not run(prepared(api)).missing
        assert len(api.answered) == 3


def test_a_model_grades_the_forced_answers_and_is_checked_first(prepared):
    with FakeApi(sums) as api:
        derived = run(prepared(api, grader="openai-api/fake/grader"))
    assert is_grading(api.messages()[0])
    assert len(api.answered) == 1 + 2 * 3
    assert derived.outcomes.filter(variant="low")["wrong"].to_list() == [False, True, True, False, None, True]


def test_a_folder_without_the_forced_pass_is_told(prepared):
    with FakeApi(sums) as api:
        plan = prepared(api)
    with plan.folder.lock():
        plan.folder.create_or_resume(plan.identity)
    with pytest.raises(UnfinishedError, match="run the same command again to resume"):
        results(plan.folder)


def test_the_engine_within_the_process_gives_the_same_table(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.models.conftest.answer", lambda messages: sums(messages[-1]["content"]), raising=False)
    with FakeApi(sums) as api:
        there = run(prepared(api)).outcomes
        name = "python:tests.models.conftest:answer"
        plan = prepare_force(
            tmp_path / "passes.parquet",
            Settings.from_values(model=name, grader="exact"),
            out=tmp_path / "local",
        )
        here = run(plan).outcomes
    assert here.with_columns(there["model"]).equals(there.with_columns(pl.col("model")))


@pytest.mark.parametrize(
    ("first", "forced", "expected"),
    [
        ("almanac/base", "openai-api/almanac/base", "almanac/base"),
        ("openai/GPT-4o", "openai/gpt-4o", "openai/GPT-4o"),
        ("gpt-4o", "openai/gpt-4o-mini", "gpt-4o, forced: openai/gpt-4o-mini"),
        (None, "openai/gpt-4o", "(not named), forced: openai/gpt-4o"),
    ],
)
def test_rows_of_two_models_are_named_so(first, forced, expected):
    assert model_name(first, forced) == expected
