"""The forced pass against a scripted server: what is sent, what is kept, what becomes of faults."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aiohttp import web
from refusal_index.engines.inspect.derive import Derived
from refusal_index.engines.inspect.derive_forced import derive_forced, first_pass_table, model_name
from refusal_index.engines.inspect.forced import run_forced
from refusal_index.engines.inspect.logs import LogError
from refusal_index.engines.inspect.run import RunPlan, pending_variants, resolve_models

from refusal_index.datasets.imports import FirstPass, to_outcomes
from refusal_index.datasets.imports.known import questions_to_force
from refusal_index.outcomes import Grade, Question
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.table import write_outcomes
from refusal_index.protocol import FORCED
from tests.engines.fake_api import FakeApi, is_forced, is_grading, question_of

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
def force(plan_for, tmp_path):
    """Return what asks the refused questions of `PASSES` in one folder, and the folder."""
    folder = RunFolder(tmp_path / "run")

    def run(api: FakeApi, **changes: object) -> Derived:
        plan: RunPlan = plan_for(api.url, variants=(FORCED,), **changes)
        plan = replace(plan, dataset=replace(plan.dataset, questions=questions_to_force(PASSES, "x")))
        settings = {"model": plan.model, "dataset": {"name": "sums"}, "first_pass": {"model": "fake/any"}}
        with folder.lock():
            folder.create_or_resume(settings)
            write_outcomes(to_outcomes(PASSES), first_pass_table(folder))
            if pending_variants(plan, folder):
                run_forced(plan, resolve_models(plan), folder)
            return derive_forced(folder)

    run.folder = folder
    return run


def test_only_the_refused_are_asked_and_only_in_the_forced_pass(force):
    with FakeApi(sums) as api:
        derived = force(api)
    assert sorted(question_of(message) for message in api.messages()) == [f"What is {n} plus {n}?" for n in (1, 3, 5)]
    assert all(is_forced(message) for message in api.messages())
    for variant in ("low", "high"):
        rows = derived.outcomes.filter(variant=variant)
        assert rows["refused"].to_list() == [False, True, False, True, None, True]
        assert rows["wrong"].to_list() == [False, True, True, False, None, True]
        assert rows["first_reply"].to_list() == [f"said {n}" for n in range(6)], "as imported"
        assert rows["forced_grade"].to_list() == [None, "incorrect", None, "correct", None, "incorrect"]
    assert derived.usage["low"].requests == 3


def test_asking_again_sends_nothing_and_a_lost_log_comes_back_from_the_cache(force):
    with FakeApi(sums) as api:
        first = force(api)
        assert force(api).outcomes.equals(first.outcomes)
        (log,) = force.folder.logs.glob("*.eval")
        log.write_bytes(log.read_bytes()[:500])  # as a kill leaves it
        again = force(api)
        assert len(api.answered) == 3
    assert again.outcomes.equals(first.outcomes)
    assert len(list(force.folder.logs.glob("*.eval"))) == 1


def test_a_question_that_fails_is_unscored_and_is_asked_again(force):
    def always_q3(message: str, sent_before: int) -> web.StreamResponse | None:
        error = {"error": {"message": "no", "type": "t", "code": None}}
        return web.json_response(error, status=400) if "3 plus 3" in message else None

    with FakeApi(sums, always_q3) as api:
        derived = force(api)
        assert [(missing.variant, missing.question_id) for missing in derived.missing] == [(FORCED, "q3")]
        row = derived.outcomes.filter(variant="low", question_id="q3").row(0, named=True)
        assert (row["refused"], row["wrong"], row["unscored_reason"]) == (True, None, "request_failed")
        api._fault = None
        assert not force(api).missing
        assert len(api.answered) == 3


def test_a_model_grades_the_forced_answers_and_is_checked_first(force):
    with FakeApi(sums) as api:
        derived = force(api, grader="openai-api/fake/grader")
    assert is_grading(api.messages()[0])
    assert len(api.answered) == 1 + 2 * 3
    assert derived.outcomes.filter(variant="low")["wrong"].to_list() == [False, True, True, False, None, True]


def test_a_folder_without_the_forced_pass_is_told(folder):
    with pytest.raises(LogError, match="the same command resumes it"):
        derive_forced(folder)


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
