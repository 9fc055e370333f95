"""The highest of several AUROCs: its interval against theory and SciPy, its test against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.coverage import selection as simulation
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from scipy.special import ndtr, ndtri

from refusal_index.stats.calibration import auroc, auroc_influence
from refusal_index.stats.highest_auroc import _simultaneous_level, auroc_difference, highest_auroc

RIGHT = np.arange(200) % 2 == 0


def drawn(k: int = 4, seed: int = 0, shift: float = 0.8) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return shift * RIGHT + 0.7 * rng.standard_normal(200) + 0.7 * rng.standard_normal((k, 200))


def test_theory_one_score_has_its_ordinary_interval():
    (score,) = drawn(1)
    found = highest_auroc([score], RIGHT)
    assert found.interval == auroc(score, RIGHT).confidence_interval()
    assert (found.place, found.count, found.second, found.difference) == (0, 1, None, None)


@pytest.mark.parametrize("k", [2, 6, 12])
def test_theory_independent_scores_share_the_error_and_equal_scores_do_not(k):
    independent = _simultaneous_level(np.eye(k), 0.95, 200_000, 0)
    assert (1 + independent) / 2 == pytest.approx(0.975 ** (1 / k), abs=2e-4)
    assert _simultaneous_level(np.ones((k, 3)), 0.95, 200_000, 0) == pytest.approx(0.95, abs=2e-3)


def test_scipy_all_lower_ends_hold_with_the_probability_of_a_multivariate_normal():
    influences = np.stack([auroc_influence(score, RIGHT) for score in drawn()])
    level = _simultaneous_level(influences, 0.95, 200_000, 0)
    lengths = np.linalg.norm(influences, axis=1)
    correlation = influences @ influences.T / np.outer(lengths, lengths)
    critical = np.full(4, ndtri((1 + level) / 2))
    joint = scipy_stats.multivariate_normal(cov=correlation).cdf(critical)
    assert joint == pytest.approx(0.975, abs=1e-3)


@given(st.integers(0, 1000), st.integers(2, 8), st.floats(0.0, 3.0), st.sampled_from((0.8, 0.95, 0.99)))
def test_property_the_interval_holds_the_area_and_the_ordinary_one(seed, k, shift, level):
    found = highest_auroc(drawn(k, seed, shift), RIGHT, confidence_level=level, n_draws=500)
    ordinary = found.area.confidence_interval(level)
    assert found.interval.low <= ordinary.low <= found.area.estimate <= found.interval.high
    assert found.interval.high == ordinary.high
    assert found.area.estimate == max(auroc(score, RIGHT).estimate for score in drawn(k, seed, shift))


def test_property_order_of_the_scores_changes_only_the_place():
    scores = drawn(6)
    found, reversed_ = highest_auroc(scores, RIGHT), highest_auroc(scores[::-1], RIGHT)
    assert reversed_.place == 5 - found.place
    assert reversed_.second == 5 - found.second
    assert reversed_.difference == found.difference
    np.testing.assert_allclose(reversed_.interval, found.interval, atol=2e-3)
    assert highest_auroc(scores, RIGHT) == found


def test_definition_difference_is_delongs_on_the_questions_with_both_scores():
    scores = drawn(2)
    scores[0, :10] = np.nan
    scores[1, 190:] = np.nan
    found, right = auroc_difference(scores, RIGHT), RIGHT[10:190]
    first, second = scores[:, 10:190]
    # DeLong's placements: how often a right answer is above a wrong one, by right answer and by wrong answer.
    above = [score[right][:, None] > score[~right][None, :] for score in (first, second)]
    assert found.n == 180
    assert found.estimate == pytest.approx(above[0].mean() - above[1].mean())
    difference = above[0].astype(float) - above[1]
    variance = difference.mean(axis=1).var() / right.sum() + difference.mean(axis=0).var() / (~right).sum()
    assert found.standard_error == pytest.approx(np.sqrt(variance))
    assert found.pvalue == pytest.approx(2 * ndtr(-abs(found.estimate) / np.sqrt(variance)))


def test_scores_without_values_are_left_out_of_each_area():
    scores = drawn(3)
    scores[1, ::3] = np.nan
    scores[2] = np.nan
    has_score = ~np.isnan(scores[1])
    found = highest_auroc(scores, RIGHT)
    assert found.count == 2
    areas = [auroc(scores[0], RIGHT).estimate, auroc(scores[1][has_score], RIGHT[has_score]).estimate]
    assert found.place == int(np.argmax(areas))
    assert found.difference.n == has_score.sum()
    assert highest_auroc(scores[2:], RIGHT) is None


def test_own_grades_of_each_method_are_used():
    scores, right = drawn(2), np.stack([RIGHT, ~RIGHT])
    found = highest_auroc(scores, right)
    assert found.place == 0
    assert auroc_difference(scores, right).estimate == pytest.approx(
        auroc(scores[0], RIGHT).estimate - auroc(scores[1], ~RIGHT).estimate
    )


def test_perfect_score_has_newcombes_interval_and_no_test():
    scores = drawn(3)
    scores[1] = RIGHT
    found = highest_auroc(scores, RIGHT)
    assert (found.place, found.area.estimate, found.interval.high) == (1, 1.0, 1.0)
    assert 0.9 < found.interval.low < auroc(scores[1], RIGHT).confidence_interval().low
    assert (found.difference.status, found.difference.reason, found.difference.pvalue) == (
        "boundary",
        "first:all_true_above",
        None,
    )


def test_scores_that_rank_alike_do_not_differ():
    (score,) = drawn(1)
    found = auroc_difference([score, 2 * score + 1], RIGHT)
    assert (found.estimate, found.status, found.reason, found.pvalue) == (0.0, "boundary", "constant_difference", 1.0)


def test_simulation_interval_of_the_best_covers_and_the_ordinary_one_does_not():
    methods = simulation.Methods((0.9,) * 12, 0.0)
    rows = {row.quantity: row for row in simulation.area_rows(methods, 50, 50, 150, np.random.default_rng(1))}
    assert rows["coverage of the highest AUROC"].holds
    assert rows["highest significantly above second"].holds
    assert rows["the same by the ordinary interval, for contrast"].value < 0.9
