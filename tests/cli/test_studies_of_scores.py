"""The studies of scores are in `paper` where the runs hold scores, and say what is lacking where they do not."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from refusal_index.cli import app

RUN = ("run", "--limit", "60", "--variants", "low,normal", "--draws", "3")
METHODS = "p-answering,self-consistency,likelihood,text-classifier"
OF_SCORES = {"calibrator_comparison", "calibrator_cost", "score_or_refusal"}


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of the embedded model with scores, which nobody changes."""
    out = tmp_path_factory.mktemp("scored") / "r"
    for words in ([*RUN, "--out", str(out)], ["confidence", str(out), "--method", METHODS]):
        assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    return out


@pytest.mark.slow
def test_paper_makes_the_studies_of_scores_of_a_run_that_has_some(command, scored):
    said = command("study", "--all", str(scored), "--out", "all", "--format", "csv,tex,svg")
    assert said.exit_code == 0
    made = {path.stem for path in Path("all").glob("*.svg")}
    assert made >= OF_SCORES
    page = Path("all/README.md").read_text()
    assert "![Score or refusal](score_or_refusal.svg)" in page
    shown = pl.read_csv("all/score_or_refusal.csv").filter(part="comparison")
    assert set(shown["method"]) == {"p-answering", "self-consistency", "likelihood", "topic", "text-classifier"}
    cost = pl.read_csv("all/calibrator_cost.csv")
    assert cost.filter(method="likelihood")["requests"].item() == 60
    assert "beats the score" in Path("all/score_or_refusal.tex").read_text()


@pytest.mark.slow
def test_an_outcome_table_alone_says_who_makes_and_measures_scores(command, scored):
    table = scored / "outcomes.parquet"
    for name in ("calibrator_cost", "score_or_refusal"):
        said = command("study", name, str(table))
        assert said.exit_code == 2
        assert "'refusal-index confidence'" in said.stderr
    assert command("study", "calibrator_comparison", str(table), "--format", "csv").exit_code == 0
    assert set(pl.read_csv("studies/calibrator_comparison.csv").filter(part="roc")["method"]) == {"p-answering"}
