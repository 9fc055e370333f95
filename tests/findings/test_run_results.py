"""A run that is opened again says what its folder recorded; damage and missing folders are clear errors."""

from __future__ import annotations

import json
import shutil

import polars as pl
import pytest

import refusal_index as ri
from refusal_index.data.analysis import Analysis, AnalysisError
from refusal_index.errors import RunFolderError
from refusal_index.runs.rebuild import rebuild

ASKED = {"limit": 30, "variants": "normal"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> ri.RunResults:
    return ri.evaluate("almanac/base", out=tmp_path_factory.mktemp("runs") / "base", **ASKED)


@pytest.fixture
def run(finished, tmp_path) -> ri.RunResults:
    return ri.open_run(shutil.copytree(finished.path, tmp_path / "run"))


def test_opened_run_has_the_level_and_p_that_its_results_were_written_with(run):
    rebuild(run.path, Analysis(0.8, weighted_score_p=0.25))
    opened = ri.open_run(run.path)
    assert opened.summary.analysis.confidence_level == opened.document["confidence_level"] == 0.8
    (weighted,) = opened.metrics.filter(metric="weighted_score")["estimate"]
    assert opened.summary.variants[0].metric("weighted_score").estimate == weighted
    assert str(opened).count("80% interval") == 1


def test_opened_run_names_its_unfinished_questions(run):
    gone = pl.col("question_id") == run.outcomes["question_id"][3]
    names = ("refused", "wrong")
    table = run.outcomes.with_columns(
        *(pl.when(~gone).then(pl.col(name)).alias(name) for name in names),
        first_grade=pl.when(gone).then(pl.lit("unscored")).otherwise("first_grade"),
        forced_grade=pl.when(~gone).then("forced_grade"),
        unscored_reason=pl.when(gone).then(pl.lit("request_failed")).otherwise("unscored_reason"),
    )
    table.write_parquet(run.folder.outcomes)
    (missing,) = ri.open_run(run.path).missing
    assert (missing.question_id, missing.error) == (run.outcomes["question_id"][3], "request_failed")


@pytest.mark.parametrize("damage", [{"variants": 3}, {}, {"variants": [{"variant": "normal"}]}])
def test_damaged_summary_is_an_error_that_names_the_command(run, damage):
    run.folder.summary.write_text(json.dumps({"summary_version": 4, **damage}))
    with pytest.raises(RunFolderError, match="refusal-index score"):
        _ = ri.open_run(run.path).metrics


def test_report_does_not_make_a_folder_that_is_gone(run):
    shutil.rmtree(run.path)
    with pytest.raises(RunFolderError, match="name a file"):
        run.report()
    assert not run.path.exists()


def test_other_outcomes_have_a_document_of_their_own(run):
    all_right = {"normal": run.tables["normal"].with_columns(wrong=pl.lit(value=False))}
    changed = run.with_tables(all_right)
    (rate,) = changed.metrics.filter(metric="error_rate")["estimate"]
    assert rate == 0.0 != run.metrics.filter(metric="error_rate")["estimate"][0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence_level": 1.0}, "confidence_level: expected a number between 0 and 1"),
        ({"weighted_score_p": -1}, "weighted_score_p must be a number of at least 0"),
        ({"metrics": "f_score"}, "did you mean 'metric'"),
    ],
)
def test_impossible_options_of_an_analysis_raise_before_anything_is_read(options, message):
    with pytest.raises(AnalysisError, match=message):
        ri.rank(["no/such/run", "nor/this"], **options)


def test_every_command_computes_scores_with_the_p_that_the_results_were_written_with(run):
    rebuild(run.path, Analysis(weighted_score_p=0.5))
    again = ri.open_run(run.path)
    (written,) = again.metrics.filter(metric="weighted_score")["estimate"]
    other = shutil.copytree(run.path, run.path.parent / "other")
    (row,) = (
        row for row in ri.compare(run.path, other).to_frame().iter_rows(named=True) if row["metric"] == "weighted_score"
    )
    assert row["first"] == again.summary.variants[0].metric("weighted_score").estimate == written
    assert rebuild(run.path).summary.analysis.payoffs.weighted_score_p == 0.5


def test_misspelt_metric_and_one_run_twice_are_errors_that_say_so(run):
    other = shutil.copytree(run.path, run.path.parent / "other")
    with pytest.raises(ri.RefusalIndexError, match="did you mean 'weighted_score'"):
        ri.rank([run.path, other], metric="weighted_scor")
    with pytest.raises(ri.RefusalIndexError, match=r"expected two runs or more .* got 1"):
        ri.compare(run, run)
