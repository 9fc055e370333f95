"""The correction undoes errors put in on purpose; bounds are those of the two extreme completions."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.studies.outcomes_made import HOSTILE, check_files, counts_of, make_run, run_of, table_rows

from refusal_index.plugins.studies.assumptions import (
    ERRORS,
    RATES,
    grading_sensitivity,
    misgrading_rows,
    scoring_rows,
)
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions
from refusal_index.stats import ContingencyTable, OutcomeCounts, refusal_index

OPTIONS = StudyOptions()
TRUTH = (4000, 1000, 2500, 2500)


def misgraded(as_wrong: float, as_right: float) -> ContingencyTable:
    """Let a grader err on the true table at these rates, in expectation."""
    n11, n10, n01, n00 = TRUTH
    refused = n11 * (1 - as_right) + n10 * as_wrong, n10 * (1 - as_wrong) + n11 * as_right
    answered = n01 * (1 - as_right) + n00 * as_wrong, n00 * (1 - as_wrong) + n01 * as_right
    return ContingencyTable(*(round(cell) for cell in (*refused, *answered)))


@pytest.mark.parametrize("name", list(ERRORS))
def test_assuming_the_rates_that_were_put_in_gives_back_the_true_index(name):
    rate = 0.02
    as_wrong, as_right = ERRORS[name]
    rows = misgrading_rows(misgraded(rate * as_wrong, rate * as_right), OPTIONS)
    (row,) = (row for row in rows if row["name"] == name and row["rate"] == rate)
    assert row["estimate"] == pytest.approx(refusal_index(ContingencyTable(*TRUTH)).estimate, abs=1e-9)
    assert row["low"] < row["estimate"] < row["high"]


def test_no_errors_leave_the_index_as_it_is_and_more_move_it_away_from_zero():
    table = ContingencyTable(*TRUTH)
    both = [row["estimate"] for row in misgrading_rows(table, OPTIONS) if row["name"] == "both"]
    assert both[0] == pytest.approx(refusal_index(table).estimate, abs=1e-12)
    assert all(np.diff(both) > 0)
    assert len(both) == len(RATES)


def test_impossible_rates_are_undefined_and_said(few_resamples):
    # 1 in 100 answers graded right: a grader that passes 5 in 100 wrong ones cannot have passed so few.
    n = 400
    refused, wrong = np.arange(n) % 2 == 0, np.arange(n) % 100 > 1
    study = grading_sensitivity.make([run_of({"normal": table_rows(refused, wrong)})], OPTIONS)
    row = study.frame.filter(part="misgrading", name="both", rate=RATES[-1]).row(0, named=True)
    assert (row["estimate"], row["status"]) == (None, "undefined")
    assert row["reason"].startswith("negative_cell")
    assert any("impossible" in note for note in study.notes)
    check_files(study)


def test_forced_refusals_are_bounded_by_all_right_and_all_wrong_and_counted_as_wrong():
    counts = OutcomeCounts(200, 40, 100, 60, refused_again=20, unscored_first=3)
    rows = list(scoring_rows(counts, ContingencyTable(220, 40, 100, 60), 0.95))
    (bounds,) = (row for row in rows if row["name"] == "forced_refusals")
    low, high = (refusal_index(ContingencyTable(*cells)).estimate for cells in ((200, 60, 100, 60), (220, 40, 100, 60)))
    assert (bounds["low"], bounds["high"], bounds["questions"]) == (pytest.approx(low), pytest.approx(high), 20)
    assert rows[0]["estimate"] == pytest.approx(high)
    (everything,) = (row for row in rows if row["part"] == "bounds" and row["name"] == "everything")
    assert everything["low"] < low
    assert everything["high"] > high
    assert everything["questions"] == 23
    rules = {row["name"]: row["estimate"] for row in rows if row["part"] == "scoring_rule"}
    assert rules["refused_again_right"] == pytest.approx(low)
    assert (rules["all_lowest"], rules["all_highest"]) == pytest.approx((everything["low"], everything["high"]))


def test_a_run_counts_its_forced_refusals_and_its_misgrading_is_that_of_its_table():
    run = make_run("a", n=300)
    rows = run.variants["normal"].with_row_index()
    again = rows.filter("refused", "wrong")["index"].head(9).to_list()
    graded = pl.when(pl.col("index").is_in(again)).then(pl.lit("refused")).otherwise("forced_grade")
    changed = rows.with_columns(graded.alias("forced_grade")).drop("index")
    study = grading_sensitivity.make([run_of({**run.variants, "normal": changed}, model="a")], OPTIONS)
    frame = study.frame.filter(variant="normal")
    assert frame.filter(part="bounds", name="forced_refusals")["questions"].item() == 9
    n11, n10, n01, n00 = counts_of(run, "normal")
    expected = refusal_index(ContingencyTable(n11 - 9, n10 + 9, n01, n00)).estimate
    assert frame.filter(part="bounds", name="forced_refusals")["low"].item() == pytest.approx(expected)
    assert set(study.frame.filter(part="misgrading")["variant"]) == {"normal"}
    assert study.frame.filter(part="reported").height == 3
    ranges = frame.filter(part="misgrading_range")
    assert (ranges["low"] <= ranges["high"]).all()


def test_a_run_without_an_index_is_said():
    silent = run_of({"normal": table_rows(np.zeros(30), np.arange(30) % 2)})
    with pytest.raises(NotPossibleError, match="nobody_refused"):
        grading_sensitivity.make([silent], OPTIONS)


def test_it_draws_and_prints_names_that_are_code_elsewhere(few_resamples):
    check_files(grading_sensitivity.make([make_run(HOSTILE, n=150), make_run("b", n=150, seed=1, rho=-0.3)], OPTIONS))
