"""Functions of one's own as model and as grader, from the command line to the table; what they do wrong is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.making import outcomes, stored, write_sums
from tests.models.fake_api import FakeApi
from tests.tiers import one_fast

HERE = "python:tests.cli.some_pipeline"
COUNT = 12


@pytest.fixture
def run(command, pipeline, monkeypatch):
    """Return what asks a function of the pipeline for sums."""
    write_sums("q.csv", COUNT)
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--data", "q.csv", "--variants", "low", "--max-retries", "0", "--out", "r")
    return lambda name, *more, grader="exact": command("run", "--model", name, *options, "--grader", grader, *more)


@one_fast("name", ["answer", "answer_in_time"])
def test_a_function_is_measured_like_any_model(run, pipeline, name):
    result = run(f"{HERE}:{name}")
    assert (result.exit_code, result.stderr.count("error")) == (0, 0), result.stderr
    table = outcomes("r")
    assert set(table["model"]) == {f"{HERE}:{name}"}
    number = table["question_id"].str.slice(1).cast(int)
    assert table["refused"].to_list() == (number % 3 == 0).to_list()
    assert table["wrong"].to_list() == (number % 2 == 0).to_list()
    assert len(pipeline.asked) == COUNT + COUNT // 3
    settings = json.loads(Path("r/run.json").read_text())["settings"]
    assert list(settings["functions"]) == [f"{HERE}:{name}"], "an edited function is another model"
    assert run(f"{HERE}:{name}").stdout == result.stdout
    assert len(pipeline.asked) == COUNT + COUNT // 3, "and nothing is asked twice"


def test_a_function_that_raises_is_named_and_what_it_answered_is_kept(run, pipeline):
    pipeline.stops_after = 3
    result = run(f"{HERE}:answer", "--max-connections", "1")
    assert result.exit_code == 1
    assert len(stored("r")) == 3
    assert f"{HERE}:answer raised RuntimeError: out of quota" in result.stdout
    assert "10 not finished; run the same command again to complete them:" in result.stdout
    assert "Traceback" not in result.output
    pipeline.__init__()
    assert run(f"{HERE}:answer").exit_code == 0
    assert len(pipeline.asked) == COUNT + COUNT // 3 - 3


def test_a_function_that_raises_for_every_question_ends_the_run_with_its_name(run, pipeline):
    write_sums("q.csv", 30)
    pipeline.stops_after = 0
    result = run(f"{HERE}:answer")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].startswith(
        f"error: own/q-low: {HERE}:answer failed for 20 questions in a row ({HERE}:answer raised RuntimeError: out of "
        "quota); fix the function"
    )


def test_a_function_that_returns_no_text_is_named_with_what_came(run):
    result = run(f"{HERE}:speechless")
    assert result.exit_code == 1
    assert f"{HERE}:speechless returned None, expected the reply as text" in result.stdout
    assert set(outcomes("r")["unscored_reason"]) == {"request_failed"}


def test_a_function_grades_as_a_model_would_each_reply_once(run, pipeline):
    result = run(f"{HERE}:answer", grader=f"{HERE}:grade")
    assert result.exit_code == 0, result.stderr
    exact = run(f"{HERE}:answer", "--out", "exact")
    assert exact.exit_code == 0
    assert outcomes("r").equals(outcomes("exact")), "it compares as the rule does"
    graded = [one for one in pipeline.asked if one.startswith("grade ")]
    assert len(graded) == len(set(graded)) == COUNT, "8 answers and 4 forced ones"
    assert json.loads(Path("r/summary.json").read_text())["grader"]["name"] == f"{HERE}:grade"


@pytest.mark.slow
def test_two_graders_may_be_a_function_and_a_model(run, pipeline, monkeypatch):
    """The model takes every answer for right, so that the two differ, which is told."""
    with FakeApi(lambda _: "A") as api:
        monkeypatch.setenv("FAKE_BASE_URL", api.url)
        result = run(f"{HERE}:answer", grader=f"{HERE}:grade,openai-api/fake/grader")
    assert result.exit_code == 1
    assert "first_graders_disagree" in set(outcomes("r")["unscored_reason"])


def test_a_grade_that_is_none_is_named_with_those_that_are(run):
    result = run(f"{HERE}:answer", grader=f"{HERE}:undecided")
    assert result.exit_code == 1
    assert f"{HERE}:undecided returned 'perhaps', expected True, False or one of 'correct'" in result.stdout
