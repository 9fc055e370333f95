"""The study copula_comparison."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate

import numpy as np
import polars as pl
import pytest
from tests.studies.outcomes_made import HOSTILE, THRESHOLDS, check_files, counts_of, make_run, run_of, table_rows

from refusal_index.plugins.studies.assumptions import copula_comparison
from refusal_index.plugins.studies.copulas import copula_tests
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions
from refusal_index.stats.copulas import COPULA_NAMES

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


def test_the_gaussian_is_not_compared_with_itself(models):
    study = copula_comparison.make(models, OPTIONS)
    row = study.frame.filter(part="single_tables", family="gaussian").row(0, named=True)
    assert {row[name] for name in row if name.startswith("gaussian_wins")} == {None}
    assert row["ties"] is None
    printed = study.printed(study.frame).filter(family="Gaussian").row(0, named=True)
    assert [printed[name] for name in ("LL wins", "AIC wins", "BIC wins", "equal")] == ["-"] * 4


def test_every_p_value_is_printed_and_shaded_by_the_adjusted_one():
    models = [make_run(f"m{i}", rho=0.8, seed=i, n=1500) for i in range(16)]
    study = copula_comparison.make(models, OPTIONS)
    tests = study.frame.filter(part="test_over_variants")
    (_, table) = study.figure().axes
    assert [label.get_text() for label in table.get_yticklabels()] == [run.model for run in models]
    assert len(table.texts) == tests.height
    (image,) = table.images
    expected = (tests["pvalue"] < 0.05).fill_null(value=False).cast(int) + (tests["pvalue_holm"] < 0.05).fill_null(
        value=False
    ).cast(int)
    assert image.get_array().ravel().tolist() == expected.to_list()
    assert {0, 1, 2} == set(expected)


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
    assert "ruled out at 5% after this adjustment: Gaussian 0; Student t, 4 df 0; Clayton 1;" in study.caption


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
    (note,) = (note for note in study.notes if note.startswith("3 left out"))
    assert note.endswith("(no refusals): z, low; z, normal; z, high.")
    with pytest.raises(NotPossibleError, match="whose Refusal Index is defined"):
        copula_comparison.make([silent], OPTIONS)


@pytest.mark.slow
def test_hostile_names_are_drawn_and_printed_safely(models):
    check_files(copula_comparison.make([*models, make_run(HOSTILE, seed=4)], OPTIONS))


def test_copulas_of_one_dataset_are_compared_and_the_others_named(models):
    others = [replace(run, dataset="other", label=f"{run.model}, other") for run in models[:1]]
    study = copula_comparison.make([*models, *others], OPTIONS)
    assert study.frame["tables"][0] == copula_comparison.make(models, OPTIONS).frame["tables"][0]
    assert any("left out because they are on another dataset: a, other" in note for note in study.notes)


def test_reasons_why_the_test_is_not_possible_are_given_once(models):
    single = [run.with_tables(dict(list(run.tables.items())[:1])) for run in models]
    (note,) = copula_comparison.make(single, OPTIONS).notes
    assert note == "The test over several prompts is not possible for 2 runs (fewer than two tables): a; b."


def test_theory_saturated_tables_are_equal_on_an_axis_wider_than_rounding(models):
    """Every family with a positive dependence fits a table with one exactly, so no family wins."""
    study = copula_comparison.make(models, OPTIONS)
    rows = study.frame.filter(pl.col("part") == "single_tables", pl.col("family").is_in(["t", "frank"]))
    assert rows["ties"].to_list() == [1.0, 1.0]
    assert rows["gaussian_wins_log_likelihood"].to_list() == [0.5, 0.5]
    axes = study.figure().axes[0]
    assert axes.get_ylim()[0] <= -0.1
    assert {text.get_text() for text in axes.texts} >= {"all equal"}
