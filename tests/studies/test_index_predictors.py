"""Shares of variance against group means and SciPy's lines, shuffling against all permutations, the paper's models."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest
from scipy.stats import f_oneway, linregress
from tests.studies.made import HOSTILE, made_run
from tests.studies.outcomes_made import check_files

from refusal_index.plugins.studies.correlations import design, explained, index_predictors
from refusal_index.plugins.studies.inputs import run_index
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions

OPTIONS = StudyOptions()


@pytest.fixture(scope="module")
def runs():
    return [made_run(f"{'abc'[i % 3]}/m{i}", rho=0.2 * (i % 3), right=0.2 + 0.08 * i, n=250, seed=i) for i in range(6)]


@pytest.fixture(scope="module")
def paper():
    study = index_predictors.make([made_run("openai/gpt-x", dataset="simpleqa", n=200)], OPTIONS)
    return {row["predictor"]: row for row in study.frame.filter(source="paper").iter_rows(named=True)}


def test_the_share_of_groups_is_that_of_the_analysis_of_variance():
    y = np.array([0.1, 0.2, 0.5, 0.6, 0.4, 0.9])
    groups = [y[:2], y[2:5], y[5:]]
    found = explained(y, design(pl.Series(["a", "a", "b", "b", "b", "c"])), 0)
    between = sum(len(part) * (part.mean() - y.mean()) ** 2 for part in groups)
    assert found["share"] == pytest.approx(between / np.sum((y - y.mean()) ** 2))
    share, freedom = found["share"], found["degrees_of_freedom"]
    assert f_oneway(*groups).statistic == pytest.approx((share / freedom) / ((1 - share) / (6 - 1 - freedom)))


def test_the_share_of_a_line_is_r_squared_and_shuffling_is_permutation():
    x, y = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.array([0.1, 0.3, 0.2, 0.5, 0.4])
    found = explained(y, design(pl.Series(x), logarithmic=True), 0)
    assert found["share"] == pytest.approx(linregress(np.log(x), y).rvalue ** 2)
    every = [linregress(np.log(x), order).rvalue ** 2 for order in itertools.permutations(y)]
    assert found["shuffled"] == pytest.approx(np.mean(every))
    assert found["pvalue"] == pytest.approx(np.mean(np.array(every) >= found["share"] - 1e-12), abs=0.02)
    assert found["shuffled_high"] == pytest.approx(np.quantile(every, 0.95), abs=0.03)
    assert found["share_beyond_chance"] == pytest.approx((found["share"] - 0.25) / 0.75)


def test_what_cannot_be_said_has_a_reason():
    y = np.array([0.1, 0.2, 0.3, 0.5])
    assert explained(y, design(pl.Series(["a", "b", "c", "d"])), 0)["reason"] == "each_model_by_itself"
    assert explained(y, design(pl.Series(["a"] * 4)), 0)["reason"] == "all_alike"
    assert explained(y[:3], design(pl.Series([1.0, 2, 3])), 0)["reason"] == "fewer_than_four_models"
    assert explained(y * 0, design(pl.Series([1.0, 2, 3, 4])), 0)["reason"] == "no_variation"
    assert explained(y[:0], design(pl.Series([], dtype=pl.Float64)), 0)["reason"] == "fewer_than_four_models"


def test_family_among_the_papers_models_is_the_largest_share_and_not_beyond_shuffling(paper):
    """By hand: nine families of sixteen models, so that shuffled indices give 8/15 on average."""
    assert paper["family"]["share"] == pytest.approx(0.776, abs=5e-4)
    assert paper["family"]["shuffled"] == pytest.approx(8 / 15)
    assert 0.05 < paper["family"]["pvalue"] < 0.09
    assert paper["correct_rate"]["share"] == pytest.approx(0.010, abs=5e-4)
    assert paper["correct_given_attempted"]["share"] == pytest.approx(0.232, abs=5e-4)
    assert paper["refusal_rate"]["share"] == pytest.approx(0.261, abs=5e-4)
    assert paper["parameters_billion"]["models"] == 10
    assert max(paper.values(), key=lambda row: row["share_beyond_chance"])["predictor"] == "family"


def test_points_are_the_joint_indices_of_the_runs(runs):
    study = index_predictors.make(runs, OPTIONS)
    row = study.frame.filter(predictor="family").row(0, named=True)
    y = np.array([run_index(run, OPTIONS).index.estimate for run in runs])
    assert row["share"] == pytest.approx(explained(y, design(pl.Series(list("abcabc"))), 0)["share"])
    assert study.frame.filter(predictor="parameters_billion")["reason"].item() == "fewer_than_four_models"
    assert 0 < row["ceiling"] < 1
    assert any(note.startswith("Of the runs") for note in study.notes)
    assert index_predictors.make(runs, OPTIONS).frame.equals(study.frame)


def test_sparse_runs_are_left_out_and_too_few_are_said(runs):
    rare = made_run("rare", rho=0.999, right=0.05, n=60, variants=["low"])
    study = index_predictors.make([*runs, rare], OPTIONS)
    assert study.frame.filter(predictor="family")["models"].item() == 6
    assert any("fewer than five questions in a cell: rare" in note for note in study.notes)
    with pytest.raises(NotPossibleError, match="four models or more"):
        index_predictors.make(runs[:3], OPTIONS)


def test_it_draws_and_prints_names_that_are_code_elsewhere(runs):
    check_files(index_predictors.make([*runs, made_run(HOSTILE, n=120, seed=9)], OPTIONS))
    check_files(index_predictors.make([made_run("x", dataset="simpleqa", n=120)], OPTIONS))
    assert index_predictors.title
