"""The studies copula_comparison and grading_sensitivity."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
import polars as pl
import pytest
from tests.studies.outcomes_made import HOSTILE, THRESHOLDS, check_files, counts_of, make_run, run_of, table_rows

from refusal_index.plugins.studies.assumptions import (
    ERRORS,
    RATES,
    copula_comparison,
    grading_sensitivity,
    misgrading_rows,
    scoring_rows,
)
from refusal_index.plugins.studies.copulas import copula_tests
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions
from refusal_index.stats import ContingencyTable, OutcomeCounts, refusal_index
from refusal_index.stats.copulas import COPULA_NAMES

# --- The Gaussian copula against alternatives

OPTIONS = StudyOptions()


@pytest.fixture(scope="module")
def models():
    return [make_run("a", rho=0.6, seed=1), make_run("b", rho=-0.6, seed=2)]


@pytest.fixture(scope="module")
def frame(models):
    return copula_comparison.make(models, OPTIONS).frame


def saturated(counts) -> float:
    return sum(count * math.log(count / sum(counts)) for count in counts if count)


def independent(counts) -> float:
    n11, n10, n01, _ = counts
    n, r, w = sum(counts), n11 + n10, n11 + n01
    cells = (r * w, r * (n - w), (n - r) * w, (n - r) * (n - w))
    return sum(count * math.log(cell / n**2) for count, cell in zip(counts, cells, strict=True))


def test_likelihoods_are_saturated_or_independent_against_their_formulas(models, frame):
    tables = [counts_of(run, variant) for run in models for variant in run.tables]
    rows = {row["family"]: row for row in frame.filter(part="single_tables").iter_rows(named=True)}
    full = np.mean([saturated(counts) for counts in tables])
    for family in ("gaussian", "t", "frank"):
        assert rows[family]["log_likelihood"] == pytest.approx(full, abs=1e-6)
    positive = [counts[0] * counts[3] > counts[1] * counts[2] for counts in tables]
    assert positive == [True] * 3 + [False] * 3
    clayton = np.mean([saturated(c) if up else independent(c) for c, up in zip(tables, positive, strict=True)])
    assert rows["clayton"]["log_likelihood"] == pytest.approx(clayton, abs=1e-6)
    assert (rows["clayton"]["ties"], rows["clayton"]["gaussian_wins_log_likelihood"]) == (0.5, 0.75)


def test_criteria_count_the_degrees_of_freedom_of_t_as_the_paper_does(frame):
    gaussian, t = (frame.filter(part="single_tables", family=family).row(0, named=True) for family in ("gaussian", "t"))
    assert t["aic"] - gaussian["aic"] == pytest.approx(2, abs=1e-5)
    assert t["bic"] - gaussian["bic"] == pytest.approx(math.log(400), abs=1e-5)
    assert gaussian["aic"] == pytest.approx(2 - 2 * gaussian["log_likelihood"])
    assert (t["gaussian_wins_log_likelihood"], t["gaussian_wins_aic"], t["ties"]) == (0.5, 1.0, 1.0)


def test_copula_test_over_variants_matches_stats(models, frame):
    for run in models:
        refused, wrong = (np.array([rows[name] for rows in run.tables.values()]) for name in ("refused", "wrong"))
        expected = {test.family: test for test in copula_tests(refused, wrong)}
        rows = frame.filter(part="test_over_variants", model=run.model)
        assert rows["family"].to_list() == list(COPULA_NAMES)
        assert rows["pvalue"].to_list() == [expected[family].pvalue for family in COPULA_NAMES]


def test_p_values_of_all_tests_are_adjusted_together_by_holm(frame):
    tests = frame.filter(part="test_over_variants").drop_nulls("pvalue").sort("pvalue")
    assert len(set(tests["model"])) == 2
    steps = [min(1.0, (tests.height - rank) * p) for rank, p in enumerate(tests["pvalue"])]
    assert tests["pvalue_holm"].to_list() == pytest.approx(list(accumulate(steps, max)))
    assert frame.filter(pl.col("pvalue").is_null())["pvalue_holm"].null_count() == frame.height - tests.height


def test_families_are_ruled_out_by_the_adjusted_p_values():
    study = copula_comparison.make([make_run("a", rho=0.6, seed=3), make_run("b", rho=-0.6, seed=4)], OPTIONS)
    clayton = study.frame.filter(part="test_over_variants", family="clayton")
    assert clayton["pvalue"].max() < 0.05 < clayton["pvalue_holm"].max()
    assert study.printed(study.frame).filter(family="Clayton")["ruled out"].item() == "1 of 2"
    assert "after Holm's adjustment for all tests: Gaussian 0; Student t, 4 df 0; Clayton 1;" in study.caption


def test_a_single_variant_has_the_table_without_the_test():
    study = copula_comparison.make([make_run("a", variants=("normal",))], OPTIONS)
    assert set(study.frame["part"]) == {"single_tables"}
    assert "two prompts" in study.caption
    assert any("is not possible" in note for note in study.notes)
    check_files(study)


def test_tables_without_ri_are_left_out_or_raise(models):
    silent = run_of(
        {v: table_rows(np.zeros(90), np.arange(90) % 2, model="z", variant=v) for v in THRESHOLDS}, model="z"
    )
    study = copula_comparison.make([*models, silent], OPTIONS)
    assert study.frame["tables"][0] == 6
    assert sum("nobody_refused" in note for note in study.notes) == 3
    with pytest.raises(NotPossibleError, match="whose Refusal Index is defined"):
        copula_comparison.make([silent], OPTIONS)


@pytest.mark.slow
def test_hostile_names_are_drawn_and_printed_safely(models):
    check_files(copula_comparison.make([*models, make_run(HOSTILE, seed=4)], OPTIONS))


# --- Correction of planted grading errors

TRUTH = (4000, 1000, 2500, 2500)


def misgraded(as_wrong: float, as_right: float) -> ContingencyTable:
    """Let a grader err on the true table at these rates, in expectation."""
    n11, n10, n01, n00 = TRUTH
    refused = n11 * (1 - as_right) + n10 * as_wrong, n10 * (1 - as_wrong) + n11 * as_right
    answered = n01 * (1 - as_right) + n00 * as_wrong, n00 * (1 - as_wrong) + n01 * as_right
    return ContingencyTable(*(round(cell) for cell in (*refused, *answered)))


@pytest.mark.parametrize("name", list(ERRORS))
def test_assuming_the_simulated_rates_recovers_the_true_index(name):
    rate = 0.02
    as_wrong, as_right = ERRORS[name]
    rows = misgrading_rows(misgraded(rate * as_wrong, rate * as_right), OPTIONS)
    (row,) = (row for row in rows if row["name"] == name and row["rate"] == rate)
    assert row["estimate"] == pytest.approx(refusal_index(ContingencyTable(*TRUTH)).estimate, abs=1e-9)
    assert row["low"] < row["estimate"] < row["high"]


def test_larger_assumed_error_rates_move_the_index_away_from_zero():
    table = ContingencyTable(*TRUTH)
    both = [row["estimate"] for row in misgrading_rows(table, OPTIONS) if row["name"] == "both"]
    assert both[0] == pytest.approx(refusal_index(table).estimate, abs=1e-12)
    assert all(np.diff(both) > 0)
    assert len(both) == len(RATES)


def test_impossible_rates_are_undefined_and_reported(few_resamples):
    # 1 in 100 answers graded right: a grader that passes 5 in 100 wrong ones cannot have passed so few.
    n = 400
    refused, wrong = np.arange(n) % 2 == 0, np.arange(n) % 100 > 1
    study = grading_sensitivity.make([run_of({"normal": table_rows(refused, wrong)})], OPTIONS)
    row = study.frame.filter(part="misgrading", name="both", rate=RATES[-1]).row(0, named=True)
    assert (row["estimate"], row["status"]) == (None, "undefined")
    assert row["reason"].startswith("negative_cell")
    assert any("impossible" in note for note in study.notes)
    check_files(study)


def test_forced_refusals_count_as_wrong_with_bounds_for_all_right():
    counts = OutcomeCounts(200, 40, 100, 60, refused_again=20, unscored_first=3)
    rows = list(scoring_rows(counts, ContingencyTable(220, 40, 100, 60), StudyOptions()))
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


def test_run_counts_its_forced_refusals_for_the_bounds():
    run = make_run("a", n=300)
    rows = run.tables["normal"].with_row_index()
    again = rows.filter("refused", "wrong")["index"].head(9).to_list()
    graded = pl.when(pl.col("index").is_in(again)).then(pl.lit("refused")).otherwise("forced_grade")
    changed = rows.with_columns(graded.alias("forced_grade")).drop("index")
    study = grading_sensitivity.make([run_of({**run.tables, "normal": changed}, model="a")], OPTIONS)
    frame = study.frame.filter(variant="normal")
    assert frame.filter(part="bounds", name="forced_refusals")["questions"].item() == 9
    n11, n10, n01, n00 = counts_of(run, "normal")
    expected = refusal_index(ContingencyTable(n11 - 9, n10 + 9, n01, n00)).estimate
    assert frame.filter(part="bounds", name="forced_refusals")["low"].item() == pytest.approx(expected)
    assert set(study.frame.filter(part="misgrading")["variant"]) == {"normal"}
    assert study.frame.filter(part="reported").height == 3
    ranges = frame.filter(part="misgrading_range")
    assert (ranges["low"] <= ranges["high"]).all()


def test_run_without_ri_is_reported():
    silent = run_of({"normal": table_rows(np.zeros(30), np.arange(30) % 2)})
    with pytest.raises(NotPossibleError, match="nobody_refused"):
        grading_sensitivity.make([silent], OPTIONS)


def test_grading_sensitivity_draws_and_prints_names_that_are_code_elsewhere(few_resamples):
    check_files(grading_sensitivity.make([make_run(HOSTILE, n=150), make_run("b", n=150, seed=1, rho=-0.3)], OPTIONS))
