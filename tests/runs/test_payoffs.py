"""End to end: what answers are worth is what the run says, in every result, unless it is given."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import refusal_index as ri
from refusal_index.cli import app
from refusal_index.findings.run_results import read_runs

P = 0.25


def read(*arguments: str) -> Any:
    return json.loads(CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False).stdout)


def printed(*arguments: str) -> str:
    return " ".join(CliRunner().invoke(app, arguments, catch_exceptions=False).output.split())


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("payoffs")
    asked = {"limit": 40, "seed": 2, "variants": "normal"}
    for name, model, p in (("base", "base", P), ("rash", "rash", P), ("strict", "rash", 2.0)):
        ri.evaluate(f"almanac/{model}", out=folder / name, weighted_score_p=p, **asked)
    return folder


@pytest.fixture(autouse=True)
def in_runs_folder(place, monkeypatch):
    monkeypatch.chdir(place)


def weighted_score(correct: float, answered: float, p: float) -> float:
    """Return the paper's score: correct answers less p times all answers."""
    return correct - p * answered


def expected(name: str, p: float) -> float:
    metrics = {metric.name: metric.estimate for metric in ri.open_run(name).summary.variants[0].metrics}
    return weighted_score(metrics["correct_rate"], 1 - metrics["refusal_rate"], p)


def test_comparison_uses_the_p_of_the_runs():
    score = read("compare", "base", "rash")["variants"][0]["metrics"]["weighted_score"]
    assert score["first"] == pytest.approx(expected("base", P))
    given = read("compare", "base", "rash", "--weighted-score-p", "1")["variants"][0]["metrics"]["weighted_score"]
    assert given["first"] == pytest.approx(expected("base", 1.0))


def test_comparison_of_runs_with_different_p_says_by_which():
    text = printed("compare", "base", "strict")
    assert "differ in weighted_score_p (0.25; 2.0)" in text
    score = read("compare", "base", "strict")["variants"][0]["metrics"]["weighted_score"]
    assert score["first"] == pytest.approx(expected("base", 1.0))
    assert "differ in weighted_score_p" not in printed("compare", "base", "strict", "--weighted-score-p", "1")


def test_sensitivity_uses_the_p_of_the_run():
    assert f"{expected('base', P):.3f}" in printed("sensitivity", "base")


def test_gate_explains_the_score_with_the_p_of_the_runs():
    text = printed("gate", "rash", "--baseline", "base", "--margin", "weighted_score=0.1", "--out", "verdict.md")
    assert "cannot" not in text
    assert "0.25" in (Path("verdict.md").read_text())


def test_verdict_has_its_reason_in_a_new_process():
    code = "import refusal_index.findings.gate_policy, refusal_index as ri; print(bool(ri.gate('rash', 'base').why))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize("option", [("--adjustment", "holm"), ("--seed", "3")])
def test_comparison_of_two_runs_refuses_options_of_a_ranking(option):
    assert f"{option[0]}: applies to a ranking" in printed("compare", "base", "rash", *option)
    with pytest.raises(ri.RefusalIndexError, match="applies to a ranking"):
        ri.compare("base", "rash", **{option[0].lstrip("-"): option[1]})


@pytest.mark.parametrize("option", [("--cluster", "topic"), ("--weight", "w"), ("--column", "wrong=x"), ("--regrade",)])
def test_published_rates_refuse_options_of_outcomes(option, tmp_path):
    rates = tmp_path / "rates.csv"
    rates.write_text("correct_rate,refusal_rate,forced_accuracy,n\n0.05,0.74,0.08,1000\n")
    assert f"{option[0]}: applies to outcomes" in printed("score", "--rates", str(rates), *option)


def test_runs_without_a_dataset_have_no_dataset_in_their_label(tmp_path):
    for name in ("first", "second"):
        rows = "".join(f"m,q{number},{number % 2 == 0},{number % 3 == 0}\n" for number in range(30))
        (tmp_path / f"{name}.csv").write_text(f"model,question_id,refused,wrong\n{rows}")
    labels = [run.label for run in read_runs(sorted(tmp_path.glob("*.csv")))]
    assert labels == ["m (first.csv)", "m (second.csv)"]
    assert not any("None" in label for label in labels)


def two(prompt: str, *, must_answer: bool = False) -> str:
    return "2"


def test_compressed_file_is_a_file_of_questions_not_the_name_of_a_dataset(tmp_path):
    questions = tmp_path / "q.csv.gz"
    with gzip.open(questions, "wt") as file:
        file.write("question,answer\nWhat is 1 + 1?,2\nWhat is 2 + 2?,4\n")
    run = ri.evaluate(two, str(questions), grader="exact", variants="normal", out=tmp_path / "run")
    assert run.outcomes.height == 2
