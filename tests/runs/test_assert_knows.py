"""`assert_knows`: directions, verdicts, errors and baselines, and a project that uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import refusal_index as ri
from refusal_index.data.outcome_table import write_outcomes
from refusal_index.errors import OutcomeTableError, RunFolderError
from refusal_index.findings.gate_policy import PolicyError
from refusal_index.pytest import Baseline, InconclusiveWarning, assert_knows
from tests.findings.test_gate import run_of

KNOWS = (90, 10, 10, 190)
"""Numbers of questions that are refused and wrong, refused and right, answered and wrong, answered and right."""
GUESSES = (30, 30, 120, 120)


def table_of(counts: tuple[int, int, int, int], name: str, first_id: int = 0) -> str:
    refused = np.repeat([True, True, False, False], counts)
    wrong = np.repeat([True, False, True, False], counts)
    write_outcomes(run_of(refused[None], wrong[None], first_id=first_id).tables["normal"], name)
    return name


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("metric", "met", "missed"),
    [
        ("correct_rate", 0.5, 0.8),  # 190 / 300
        ("refusal_rate", 0.5, 0.2),  # 100 / 300
        ("correct_given_attempted", 0.8, 0.995),  # 190 / 200
        ("error_rate", 0.5, 0.2),  # 100 / 300
        ("refusal_precision", 0.7, 0.99),  # 90 / 100
        ("refusal_recall", 0.7, 0.99),  # 90 / 100
        ("over_refusal", 0.2, 0.005),  # 10 / 200
        ("refusal_index", 0.5, 0.999),
    ],
)
def test_theory_a_limit_is_a_minimum_or_a_maximum_by_the_metric(metric, met, missed):
    run = table_of(KNOWS, "run.csv")
    result = assert_knows(run, **{metric: met})
    assert result is not None
    assert result.verdict == "pass"
    with pytest.raises(pytest.fail.Exception) as failed:
        assert_knows(run, **{metric: missed})
    sides = {"at_least": {metric: missed}} if missed > met else {"at_most": {metric: missed}}
    paragraph = " ".join(str(failed.value).partition("\n\n")[0].split())
    assert paragraph == f"FAIL. {ri.gate(run, policy=sides).why}"


def test_inconclusive_verdict_warns_or_fails():
    run = table_of(KNOWS, "run.csv")
    with pytest.warns(InconclusiveWarning, match=r"^INCONCLUSIVE\. ") as warned:
        result = assert_knows(run, refusal_precision=0.9)
    assert result is not None
    assert result.verdict == "inconclusive"
    assert warned[0].filename == __file__, "the warning names the line of the test"
    with pytest.raises(pytest.fail.Exception, match=r"^INCONCLUSIVE\. "):
        assert_knows(run, refusal_precision=0.9, inconclusive="fail")
    with pytest.raises(ValueError, match="inconclusive: expected 'warn' or 'fail', got "):
        assert_knows(run, refusal_precision=0.9, inconclusive="skip")


def test_baseline_is_kept_with_how_it_was_made_and_compared_with():
    run = table_of(KNOWS, "run.csv")
    kept = Baseline(Path("baselines/one"))
    with pytest.raises(RunFolderError, match=r"outcomes\.parquet, found none; make it with 'pytest --update-baseline'"):
        assert_knows(run, against=kept)
    updated = Baseline(kept.path, is_updated=True)
    with pytest.raises(pytest.fail.Exception, match=r"^FAIL\. "):
        assert_knows(run, over_refusal=0.001, against=updated)
    assert not kept.path.exists(), "a run beyond a fixed limit is no baseline"
    assert assert_knows(run, against=updated) is None
    result = assert_knows(run, over_refusal=0.2, against=kept)
    assert result is not None
    assert result.verdict == "pass"
    assert result.baseline is not None
    assert result.baseline.outcomes.equals(pl.read_parquet(kept.outcomes)[result.baseline.outcomes.columns])
    with pytest.raises(pytest.fail.Exception, match=r"^FAIL\. "):
        assert_knows(table_of(GUESSES, "guesses.csv"), against=kept)


@pytest.mark.slow
def test_baseline_of_a_folder_records_its_settings():
    run = ri.evaluate("almanac/small", "almanac", limit=5, variants="high", out="run")
    assert_knows(run, against=Baseline(Path("kept"), is_updated=True))
    assert sorted(path.name for path in Path("kept").iterdir()) == ["outcomes.parquet", "run.json"]
    with pytest.warns(InconclusiveWarning):
        result = assert_knows(run, against=Baseline(Path("kept")))
    assert result is not None
    assert result.baseline is not None
    assert result.baseline.settings == run.settings
    assert_knows(table_of(KNOWS, "run.csv"), against=Baseline(Path("kept"), is_updated=True))
    assert [path.name for path in Path("kept").iterdir()] == ["outcomes.parquet"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"refusal_indx": 0.1}, "expected metrics from .*got 'refusal_indx'; did you mean 'refusal_index'"),
        ({"ri": 0.1}, "expected metrics from .*got 'ri'; did you mean 'refusal_index'"),
        ({"refusal_index": 20}, "at_least, refusal_index: .* from -1 to 1, got 20"),
        ({"over_refusal": 10}, "at_most, over_refusal: .* from 0 to 1, got 10; is it a percentage"),
        ({}, "expected a limit such as refusal_index=0.2, or a baseline"),
    ],
)
def test_unusable_limits(arguments, message):
    with pytest.raises(PolicyError, match=message):
        assert_knows(table_of(KNOWS, "run.csv"), **arguments)


def test_unusable_runs():
    run = table_of(KNOWS, "run.csv")
    with pytest.raises(OutcomeTableError, match="at least half of the smaller run's questions in both runs, got 0"):
        assert_knows(run, against=table_of(KNOWS, "other.csv", first_id=1000))
    with pytest.raises(pytest.fail.Exception, match="it refused no question, so RI is undefined"):
        assert_knows(table_of((0, 0, 100, 200), "never.csv"), refusal_index=0.1)
    first = pl.read_csv(run).with_columns(
        wrong=pl.when(~pl.col("refused")).then("wrong"),
        forced_grade=pl.lit(None, pl.String),
        forced_reply=pl.lit(None, pl.String),
        unscored_reason=pl.when("refused").then(pl.lit("forced_not_asked")),
    )
    first.write_csv("first.csv")
    with pytest.raises(OutcomeTableError, match="expected forced answers to the refused questions, got a first pass"):
        assert_knows("first.csv", refusal_index=0.1)


def test_nothing_is_loaded_unless_it_is_imported():
    assert not [point for point in entry_points(group="pytest11") if point.value.startswith("refusal_index")]
    code = "import sys, refusal_index.pytest; sys.exit(any(name in sys.modules for name in ('polars', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


PROJECT = """
import os

import refusal_index as ri
from refusal_index.pytest import assert_knows


def test_knows(baseline):
    run = ri.evaluate(f"almanac/{os.environ['MODEL']}", limit=40, variants="normal", out=os.environ["MODEL"])
    assert_knows(run, over_refusal=0.9, against=baseline, policy="coarse")
"""


@pytest.mark.slow
def test_end_to_end_project_of_ten_lines():
    assert len([line for line in PROJECT.splitlines() if line]) < 10
    Path("test_project.py").write_text(PROJECT)
    Path("conftest.py").write_text('pytest_plugins = ["refusal_index.pytest"]\n')

    def tested(model: str, *options: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        done = subprocess.run(command, env=os.environ | {"MODEL": model}, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    status, printed = tested("base")
    assert status == 1
    assert "make it with 'pytest --update-baseline', and commit it" in printed
    assert tested("base", "--update-baseline")[0] == 0
    assert Path("baselines/test_project-test_knows/outcomes.parquet").exists()
    status, printed = tested("rash")
    assert status == 0
    assert "InconclusiveWarning: INCONCLUSIVE. " in printed
    status, printed = tested("rash", "-W", "error")
    assert status == 1
