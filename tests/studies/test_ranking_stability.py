"""W and entropy recomputed from ranks, residuals by isotonic regression written again, and what is left out."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import polars as pl
import pytest
from scipy.optimize import isotonic_regression
from scipy.stats import rankdata
from tests.studies.outcomes_made import HOSTILE, check_files, counts_of, make_run, run_of, table_rows

from refusal_index.plugins.studies import rankings
from refusal_index.plugins.studies.inputs import COMPARED
from refusal_index.plugins.studies.rankings import grid_of, paper_layout, ranking_stability, stability_frame
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions

OPTIONS = StudyOptions()
SHUFFLES = 60
NAMES = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def models():
    return [make_run(name, rho=0.2 * i, error=0.2 - 0.3 * i, n=300, seed=i) for i, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def study(models):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rankings, "N_RESAMPLES", SHUFFLES)
        return ranking_stability.make(models, OPTIONS)


def w_of(scores: np.ndarray) -> float:
    ranks = np.array([rankdata(row) for row in scores])
    m, n = ranks.shape
    sums = ranks.sum(axis=0)
    return float(12 * ((sums - sums.mean()) ** 2).sum() / (m**2 * (n**3 - n)))


def entropy_of(scores: np.ndarray) -> float:
    winners = Counter(int(np.argmax(row)) for row in scores)
    shares = [count / len(scores) for count in winners.values()]
    return -sum(share * math.log(share, scores.shape[1]) for share in shares)


def without(metric: np.ndarray, effect: np.ndarray) -> np.ndarray:
    """Residuals of the better of the rising and the falling function, equal covariates pooled."""
    y, x = metric.ravel(), effect.ravel()
    _, group, sizes = np.unique(x, return_inverse=True, return_counts=True)
    means = np.bincount(group, y) / sizes
    fits = [isotonic_regression(means, weights=sizes, increasing=up).x[group] for up in (True, False)]
    best = min(fits, key=lambda fit: ((y - fit) ** 2).sum())
    return np.round(y - best, 9).reshape(metric.shape)


def cell(frame: pl.DataFrame, metric: str, removed: str, fit_over: str | None = "all") -> dict:
    return frame.filter(pl.col("fit_over").eq_missing(fit_over), metric=metric, removed=removed).row(0, named=True)


def test_scores_are_those_of_the_counts(models):
    grid = grid_of(models, penalty=1.0)
    assert (grid.models, grid.settings) == (NAMES, ("d, low", "d, normal", "d, high"))
    n11, n10, n01, n00 = counts_of(models[2], "normal")
    n = n11 + n10 + n01 + n00
    assert grid.scores["correct_rate"][1, 2] == pytest.approx(n00 / n)
    assert grid.scores["f_score"][1, 2] == pytest.approx(2 * n00 / (2 * (n01 + n00) + n11 + n10))
    assert grid.scores["weighted_score"][1, 2] == pytest.approx(-n01 / n)


def test_w_and_winner_entropy_are_those_of_the_ranks(models, study):
    scores = grid_of(models, penalty=1.0).scores
    for name in COMPARED:
        row = cell(study.frame, name, "nothing", None)
        assert row["kendall_w"] == pytest.approx(w_of(scores[name]))
        assert row["winner_entropy"] == pytest.approx(entropy_of(scores[name]))


@pytest.mark.parametrize("removed", ["correct_rate", "refusal_rate"])
def test_residuals_are_those_of_an_isotonic_regression_over_all_models(models, study, removed):
    scores = grid_of(models, penalty=1.0).scores
    row = cell(study.frame, "refusal_index", removed)
    assert row["kendall_w"] == pytest.approx(w_of(without(scores["refusal_index"], scores[removed])), abs=1e-6)


def test_a_rate_leaves_nothing_of_itself_and_weighted_nothing_of_both(study):
    for metric, removed in (
        ("correct_rate", "correct_rate"),
        ("refusal_rate", "refusal_rate"),
        ("weighted_score", "both"),
    ):
        row = cell(study.frame, metric, removed)
        assert (row["kendall_w"], row["status"], row["reason"]) == (None, "undefined", "all_tied")


def test_the_tie_correction_can_only_raise_w(study):
    known = study.frame.drop_nulls("kendall_w")
    assert (known["kendall_w_tie_corrected"] >= known["kendall_w"] - 1e-12).all()


def test_random_rankings_agree_as_theory_says(study):
    row = cell(study.frame, "refusal_index", "nothing", None)
    assert row["random_kendall_w"] == pytest.approx(1 / 3, abs=4 * 0.24 / math.sqrt(SHUFFLES))
    assert row["random_kendall_w_low"] < row["random_kendall_w"] < row["random_kendall_w_high"]


def test_the_same_seed_gives_the_same_frame(models, few_resamples):
    scores = grid_of(models, 1.0).scores
    assert stability_frame(scores, 1).equals(stability_frame(scores, 1))
    assert not stability_frame(scores, 1).equals(stability_frame(scores, 2))


def test_the_printed_table_has_the_shape_of_the_paper(study):
    table = paper_layout(study.frame)
    assert table["metric"].to_list() == ["Random", "Correct", "Refused", "C/A", "F", "Weighted", "RI"]
    assert table.width == 1 + 2 * 4 + 1
    assert table.columns[-1] == "W ceiling"
    row = table.filter(metric="RI").row(0, named=True)
    assert row["W Default"] == f"{cell(study.frame, 'refusal_index', 'nothing', None)['kendall_w']:.2f}"
    assert table.filter(metric="Correct")["W -Correct"].item() == "-"


def test_the_ceiling_of_w_is_below_one_and_above_w_of_settings_that_disagree(study):
    rows = study.frame.filter(removed="nothing")
    assert rows["kendall_w_ceiling"].null_count() == 0
    assert (rows["kendall_w_ceiling"] <= 1).all()
    index = rows.filter(metric="refusal_index").row(0, named=True)
    assert index["kendall_w_ceiling_low"] < index["kendall_w_ceiling"] < index["kendall_w_ceiling_high"] <= 1
    # Rates of 300 questions hardly scatter, the index does.
    assert rows.filter(metric="correct_rate")["kendall_w_ceiling"].item() > index["kendall_w_ceiling"]
    assert (
        study.frame.filter(pl.col("removed") != "nothing")["kendall_w_ceiling"].null_count() == study.frame.height - 6
    )


def test_a_setting_that_a_model_lacks_or_in_which_it_has_no_index_is_left_out_and_said(models, few_resamples):
    unfinished = make_run("e", variants=("low", "normal"), n=300, seed=8)
    study = ranking_stability.make([*models, unfinished], OPTIONS)
    assert study.frame["n_settings"].unique().to_list() == [2]
    assert any("d, high is left out: it is missing for e" in note for note in study.notes)
    n = 300
    rows = {
        v: table_rows(np.arange(n) % 3 == 0 if v != "low" else np.zeros(n), np.arange(n) % 2, model="e", variant=v)
        for v in ("low", "normal", "high")
    }
    study = ranking_stability.make([*models, run_of(rows, model="e")], OPTIONS)
    assert any("d, low is left out: RI of e is undefined" in note for note in study.notes)


def test_one_model_or_one_setting_is_said_in_a_sentence(models):
    with pytest.raises(NotPossibleError, match="two models or more"):
        ranking_stability.make(models[:1], OPTIONS)
    with pytest.raises(NotPossibleError, match="the settings that they share d, low"):
        ranking_stability.make([make_run(name, variants=("low",), seed=i) for i, name in enumerate(NAMES)], OPTIONS)


@pytest.mark.slow
def test_it_draws_and_prints_names_that_are_code_elsewhere(models, few_resamples):
    check_files(ranking_stability.make([*models[:2], make_run(HOSTILE, seed=5, n=300)], OPTIONS))
