"""`score`, `report` and `compare` show the scores that lie in a run's folder, or in the columns of a table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import refusal_index as ri
from refusal_index.cli import app
from refusal_index.data.outcome_table import read_confidence
from refusal_index.data.tables import write_table
from refusal_index.runs.settings import COMPARABILITY_VERSION

RUN = ("run", "--limit", "60", "--variants", "normal", "--draws", "2", "--logprobs")
METHODS = "likelihood,p-answering"


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of the embedded model with scores, which nobody changes."""
    out = tmp_path_factory.mktemp("scored") / "r"
    for words in ([*RUN, "--out", str(out)], ["confidence", str(out), "--method", METHODS]):
        assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    return out


@pytest.fixture
def run(scored: Path, command) -> Path:
    return Path(shutil.copytree(scored, "r"))


def page(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_confidence_leaves_summary_and_report_with_the_scores(run):
    (p_answering, likelihood) = json.loads((run / "summary.json").read_text())["confidence"]
    assert (likelihood["method"], likelihood["variant"], likelihood["asked"]) == ("likelihood", None, 60)
    assert (p_answering["method"], p_answering["variant"]) == ("p-answering", "normal")
    assert likelihood["auroc"]["estimate"] > 0.7
    assert 'id="run-1-confidence"' in page(run / "report.html")


@pytest.mark.slow
def test_score_prints_measures_and_sentences_and_confidence_writes_the_same_again(command, run):
    assert command("score", "r").exit_code == 0
    said = command("show", "r").stdout
    before = {name: (run / name).read_bytes() for name in ("summary.json", "report.html", "confidence.parquet")}
    assert command("confidence", "r", "--method", METHODS).exit_code == 0
    assert {name: (run / name).read_bytes() for name in before} == before
    lines = [line.split()[:2] for line in said.splitlines()]
    assert ["likelihood", "60"] in lines
    folded = " ".join(said.split())
    assert "refusals under normal (RI " in folded
    document = json.loads(command("score", "r", "--json").stdout)
    assert document["confidence"] == json.loads(before["summary.json"])["confidence"]


@pytest.mark.slow
def test_score_by_other_clusters_shows_the_scores_too_and_says_what_they_do_not_allow_for(command, run):
    done = command("show", "r", "--cluster", "topic")
    assert done.exit_code == 0
    assert "Scores ignore clusters and weights" in " ".join(done.stdout.split())


def test_report_of_a_folder_has_the_section_and_of_its_table_alone_has_not(command, run):
    (run / "report.html").unlink()
    assert command("report", "r").exit_code == 0
    assert 'id="run-1-confidence"' in page(run / "report.html")
    assert command("report", "r/outcomes.parquet", "--out", "table.html").exit_code == 0
    assert 'id="run-1-confidence"' not in page(Path("table.html"))


def test_a_table_with_a_column_of_scores_is_shown_like_a_method(command, run):
    scores = read_confidence(run / "confidence.parquet").filter(method="likelihood").select("question_id", "confidence")
    outcomes = pl.read_parquet(run / "outcomes.parquet")
    outcomes.join(scores, on="question_id", how="left").write_parquet("own.parquet")
    said = " ".join(command("show", "own.parquet").stdout.split())
    assert "confidence (normal) 60" in said
    assert command("report", "own.parquet", "--out", "own.html").exit_code == 0
    assert 'id="run-1-confidence"' in page(Path("own.html"))


def test_compare_puts_the_same_methods_of_two_runs_side_by_side(command, run):
    shutil.copytree("r", "worse")
    table = read_confidence(run / "confidence.parquet")
    turned = pl.when(method="likelihood").then(1 - pl.col("confidence")).otherwise("confidence").alias("confidence")
    write_table(table.with_columns(turned), Path("worse/confidence.parquet"))
    done = command("compare", "r", "worse", "--full")
    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    (area,) = (line for line in lines if line[:2] == ["likelihood", "AUROC"])
    assert float(area[3]) + float(area[4]) == pytest.approx(1, abs=0.002)
    assert "paired, over the questions that both scored" in " ".join(done.stdout.split())
    document = json.loads(command("compare", "r", "worse", "--json").stdout)
    assert [one["measure"] for one in document["confidence"]] == ["auroc", "brier"] * 2
    assert {one["method"]: one["difference"]["low"] for one in document["confidence"][::2]} == {
        "likelihood": pytest.approx(0.5, abs=0.5),
        "p-answering": None,
    }
    (Path("worse") / "confidence.parquet").unlink()
    assert "Brier" not in command("compare", "r", "worse").stdout


def test_without_scores_nothing_is_said_of_them(command, ran):
    said = command("score", "r").stdout
    assert "confidence" not in said
    assert json.loads(Path("r/summary.json").read_text())["confidence"] == []


@pytest.mark.slow
def test_hostile_method_names_are_obeyed_nowhere(command, run):
    table = read_confidence(run / "confidence.parquet")
    commands = (["score", "r"], ["score", "r", "--json"], ["report", "r"], ["compare", "r", "r/outcomes.parquet"])
    for name in ("<script>owned()</script>", "=cmd|' /C calc'!A0", "[/a][bold]\x1b[2J\u202e"):
        write_table(table.with_columns(method=pl.lit(name) + pl.col("method")), run / "confidence.parquet")
        for words in commands:
            done = command(*words)
            assert done.exit_code == 0, done.output
            assert all(one.isprintable() for one in done.output.replace("\n", ""))
        assert "<script>owned" not in page(run / "report.html")


def test_a_damaged_table_of_scores_is_named_with_what_to_do(command, run):
    (run / "confidence.parquet").write_bytes(b"PAR1 no more")
    for words in (["score", "r"], ["report", "r"]):
        done = command(*words)
        assert done.exit_code == 2
        assert "r/confidence.parquet cannot be read" in done.stderr
        assert "remove it, and run the methods again" in done.stderr


def test_a_folder_of_other_rules_is_not_scored_by_those_of_this_release(command, run):
    document = json.loads((run / "run.json").read_text())
    document["settings"]["comparability_version"] = COMPARABILITY_VERSION + 1
    (run / "run.json").write_text(json.dumps(document))
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    done = command("confidence", "r", "--method", "likelihood")
    assert done.exit_code == 2
    assert "'refusal-index score r --regrade' grades its replies again" in done.stderr
    assert {name: (run / name).read_bytes() for name in before} == before


def test_a_run_in_python_has_its_scores_and_its_report_those_that_came_later(run):
    opened = ri.open_run(run)
    assert opened.confidence.height == 120
    assert [one.method for one in opened.summary.sections["confidence"]] == ["p-answering", "likelihood"]
    (run / "confidence.parquet").rename("aside.parquet")
    bare = ri.open_run(run)
    assert bare.confidence is None
    assert bare.summary.sections["confidence"] == ()
    Path("aside.parquet").rename(run / "confidence.parquet")
    assert 'id="run-1-confidence"' in page(bare.report("later.html"))
