"""The commands study and paper."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from click.testing import Result
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.data.outcome_table import read_outcomes, write_outcomes
from refusal_index.plugins.studies.api import study
from refusal_index.plugins.studies.study import STUDY_NAMES, study_specs
from tests.studies.made import HOSTILE, made_run

# --- The commands study and paper

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def written(path: Path, model: str, **options) -> Path:
    write_outcomes(pl.concat(list(made_run(model, **options).tables.values())), path)
    return path


@pytest.fixture
def three(tmp_path):
    return [
        written(tmp_path / f"{m}.parquet", m, rho=rho, n=250, draws=2, seed=i)
        for i, (m, rho) in enumerate({"a": 0.7, "b": 0.4, "c": 0.1}.items())
    ]


def test_study_without_a_name_lists_all_with_their_needs(invoke):
    result = invoke("study")
    assert result.exit_code == 0
    for spec in study_specs():
        assert f"{spec.name}\n    {spec.title}. Needs " in result.output
    assert [spec.name for spec in study_specs()] == list(STUDY_NAMES)


def test_needs_texts_fit_the_end_of_a_sentence():
    for spec in study_specs():
        assert not spec.needs.endswith(".")
        assert spec.needs[0].islower()


def test_a_study_is_written_in_all_formats(invoke, three, tmp_path):
    result = invoke("study", "score_variability", *three, "--out", "here")
    assert result.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == [
        f"score_variability.{kind}" for kind in ("csv", "pdf", "png", "svg", "tex")
    ]
    assert "score_variability: here/score_variability.csv" in result.output


def test_formats_and_options_reach_the_study(invoke, three, tmp_path):
    result = invoke(
        "study", "results_table", three[0], "--format", "csv", "--weighted-score-p", "0.2", "--confidence-level", "0.8"
    )
    assert result.exit_code == 0
    assert [path.name for path in (tmp_path / "studies").iterdir()] == ["results_table.csv"]
    wide = pl.read_csv(tmp_path / "studies/results_table.csv")
    invoke("study", "results_table", three[0], "--format", "csv")
    narrow = pl.read_csv(tmp_path / "studies/results_table.csv")
    assert (wide["high"] - wide["low"] < narrow["high"] - narrow["low"]).all()
    assert not (wide["estimate"] == narrow["estimate"]).all()


def test_the_papers_rows_are_left_out_on_request(invoke, tmp_path):
    run = written(tmp_path / "run.parquet", "m", dataset="simpleqa", n=60)
    models = {}
    for options in ((), ("--without-paper",)):
        invoke("study", "results_table", run, "--format", "csv,tex", *options)
        models[options] = pl.read_csv(tmp_path / "studies/results_table.csv")["model"].n_unique()
        assert ("Published: Pan" in (tmp_path / "studies/results_table.tex").read_text()) == (not options)
    assert list(models.values()) == [1 + 16, 1]
    frame = study("results_table", [run], without_paper=True).frame
    assert frame["source"].unique().to_list() == ["run"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["study", "result_table", "a.parquet"], "did you mean 'results_table'?"),
        (["study", "results_table"], "got none; it needs one run or more"),
        (["study", "results_table", "a.parquet", "--format", "csv,jpg"], "--format: expected one of csv, tex"),
        (["study", "results_table", "a.parquet", "--format", ","], "--format: expected one or more of"),
        (["study", "ranking_with_ties", "a.parquet"], "It needs runs of two models or more"),
        (["study", "results_table", "nothing.parquet"], "nothing.parquet"),
        (["study", "--all"], "study --all: expected runs, sets, outcome tables or --config FILE, got none"),
        (["study", "results_table", "a.parquet", "--config", "paper/all"], "--config: requires --all"),
        (["study", "--all", "a.parquet", "--models", "none.csv"], "none.csv: expected a CSV table of models"),
    ],
)
def test_bad_input_is_one_line_and_status_two(invoke, tmp_path, arguments, message):
    written(tmp_path / "a.parquet", "a", n=60)
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_run_without_draws_has_no_auroc(invoke, tmp_path):
    result = invoke("study", "calibrator_comparison", written(tmp_path / "a.csv", "a", n=60))
    assert result.exit_code == 2
    assert "repeated samples" in result.stderr


def test_unfinished_run_is_reported_and_the_rest_is_made(invoke, three, tmp_path):
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    document = {"run_format": 1, "settings": {"model": "m", "dataset": {"name": "d"}}, "about": {}}
    (unfinished / "run.json").write_text(json.dumps(document))
    result = invoke("study", "results_table", unfinished, three[0], "--format", "csv")
    assert result.exit_code == 1
    assert "left out: " in result.stderr
    assert "holds no outcomes yet" in result.stderr
    assert pl.read_csv(tmp_path / "studies/results_table.csv")["model"].unique().to_list() == ["a"]


def lacking(path: Path, share: int) -> Path:
    """Remove the grades of every `share`-th row."""
    gone = pl.int_range(pl.len()) % share == 0
    grades = ("refused", "wrong", "first_grade", "forced_grade")
    table = read_outcomes(path).with_columns(pl.when(~gone).then(pl.col(name)).alias(name) for name in grades)
    write_outcomes(table.with_columns(unscored_reason=pl.when(gone).then(pl.lit("request_failed"))), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("share", "begins"), [(3, "Incomplete: a has missing grades"), (200, "a has missing grades")])
def test_missing_grades_are_reported_before_results(invoke, three, share, begins):
    run = lacking(three[0], share)
    assert invoke("study", "results_table", run, "--format", "csv").stderr.startswith(begins)
    for others in (three[1:2], three[1:]):
        output = invoke("compare", run, *others)
        assert output.stdout.startswith(begins)
        document = json.loads(invoke("compare", run, *others, "--json").stdout)["missing"]
        assert document["b"] == {}
        for variant, ranges in document["a"].items():
            assert f"{variant} {ranges['unknown']} of 250 (RI {ranges['low']:.3f} to {ranges['high']:.3f})" in " ".join(
                output.stdout.split()
            )


def test_the_same_run_twice_counts_once(invoke, three, tmp_path):
    result = invoke("study", "results_table", three[0], three[0], "--format", "csv")
    assert result.exit_code == 0
    assert pl.read_csv(tmp_path / "studies/results_table.csv").height == 4 * 6 + 6


def test_study_all_makes_possible_studies_and_lists_the_rest(invoke, tmp_path):
    one = written(tmp_path / "one.parquet", "a", n=120)
    (tmp_path / "empty.csv").touch()
    result = invoke("study", "--all", one, tmp_path / "empty.csv", "--out", "all", "--format", "csv,tex")
    assert result.exit_code == 1
    assert "left out: " in result.stderr
    page = (tmp_path / "all/README.md").read_text()
    made = {path.stem for path in (tmp_path / "all").glob("*.csv")}
    for spec in study_specs():
        assert f"not made: {spec.name}: " in result.output or spec.name in made
        assert (f"## {spec.title}" in page) == (spec.name in made)
        assert f"(`{spec.name}`)" in page or spec.name in made
    assert {"results_table", "score_variability", "cost_table", "prompt_agreement"} <= made
    assert {"ranking_with_ties", "index_and_size", "hallucination_table"}.isdisjoint(made)
    assert f"Made {len(made)} of {len(STUDY_NAMES)} studies" in result.output
    assert "Left out: " in page


@pytest.mark.slow
def test_study_all_makes_every_study_for_three_models_on_two_datasets(invoke, three, tmp_path):
    others = [written(tmp_path / f"{m}2.csv", m, rho=0.4, n=100, seed=7, dataset="other") for m in "abc"]
    models = tmp_path / "models.csv"
    models.write_text("model,family,parameters_billion\na,x,1\nb,x,2\nc,y,3\n")
    fourth = written(tmp_path / "d.parquet", "d", rho=0.3, n=250, draws=2, seed=8)
    result = invoke(
        "study", "--all", *three, fourth, *others, "--out", "all", "--models", models, "--format", "csv,svg"
    )
    assert result.exit_code == 0
    # Files do not say what was asked: neither whether a model was to think nor which targets; and these hold no scores.
    possible = sorted(set(STUDY_NAMES) - {"thinking", "response_to_penalty", "calibrator_cost", "score_or_refusal"})
    assert f"Made {len(possible)} of {len(STUDY_NAMES)} studies" in result.output
    assert sorted(path.stem for path in (tmp_path / "all").glob("*.svg")) == possible
    assert (tmp_path / "all/README.md").read_text().count("![") == len(possible)


@pytest.mark.slow
def test_hostile_model_names_are_harmless_in_studies(invoke, tmp_path):
    run = written(tmp_path / "x.parquet", HOSTILE, n=60, unscored=2)
    result = invoke("study", "--all", run, "--out", "all", "--format", "csv,tex,svg")
    assert result.exit_code == 0
    assert "\x1b" not in result.output
    for path in (tmp_path / "all").iterdir():
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".csv":  # a CSV cell contains the name unchanged
            assert "\x1b" not in text
            assert "<script" not in text


@pytest.mark.slow
def test_run_with_stated_penalties_suggests_its_study(invoke):
    """Neither the run nor the first pages mentioned the study, and it printed no score at the stated rule."""
    run = ("run", "--limit", "20", "--draws", "1", "--prompts", "confidence-targets")
    one = invoke(*run, "--variants", "t75", "--out", "r")
    assert (one.exit_code, "response_to_penalty" in one.stdout) == (0, False)
    both = invoke(*run, "--variants", "t0,t75", "--out", "r")
    assert "'refusal-index study response_to_penalty r'" in " ".join(both.stdout.split())
    output = " ".join(invoke("study", "response_to_penalty", "r").stdout.split())
    table = read_outcomes("r/outcomes.parquet").filter(variant="t75", refused=False)
    earned = (table.height - 4 * table["wrong"].sum()) / 20
    assert f" {earned:.2f} at 0.75; at best " in output


# --- Studies of confidence scores

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
def test_study_all_includes_score_studies_for_a_run_with_scores(command, scored):
    output = command("study", "--all", str(scored), "--out", "all", "--format", "csv,tex,svg")
    assert output.exit_code == 0
    made = {path.stem for path in Path("all").glob("*.svg")}
    assert made >= OF_SCORES
    page = Path("all/README.md").read_text()
    assert "![Score or refusal](score_or_refusal.svg)" in page
    table = pl.read_csv("all/score_or_refusal.csv").filter(part="comparison")
    assert set(table["method"]) == {"p-answering", "self-consistency", "likelihood", "topic", "text-classifier"}
    cost = pl.read_csv("all/calibrator_cost.csv")
    assert cost.filter(method="likelihood")["requests"].item() == 60
    assert "beats the score" in Path("all/score_or_refusal.tex").read_text()


@pytest.mark.slow
def test_score_studies_without_scores_name_the_confidence_command(command, scored):
    table = scored / "outcomes.parquet"
    for name in ("calibrator_cost", "score_or_refusal"):
        output = command("study", name, str(table))
        assert output.exit_code == 2
        assert "'refusal-index confidence'" in output.stderr
    assert command("study", "calibrator_comparison", str(table), "--format", "csv").exit_code == 0
    assert set(pl.read_csv("studies/calibrator_comparison.csv").filter(part="roc")["method"]) == {"p-answering"}
