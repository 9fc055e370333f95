"""Brier score and its decomposition by isotonic recalibration."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from tests.tiers import others_nightly

from refusal_index.stats.calibration import brier_score

QUESTIONS = st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=40)


def arrays_of(questions) -> tuple[np.ndarray, np.ndarray]:
    score, outcome = (np.array(column) for column in zip(*questions, strict=True))
    return score / 20, outcome


def recalibrated(score: np.ndarray, outcome: np.ndarray) -> np.ndarray:
    """Isotonic regression by its max-min formula, over all ranges of scores."""
    values = np.unique(score)

    def mean(low: float, high: float) -> float:
        return outcome[(score >= low) & (score <= high)].mean()

    fit = {v: max(min(mean(a, b) for b in values[values >= v]) for a in values[values <= v]) for v in values}
    return np.array([fit[one] for one in score])


@given(QUESTIONS)
def test_parts_against_the_max_min_formula_of_isotonic_regression(questions) -> None:
    score, outcome = arrays_of(questions)
    result, claim = brier_score(score, outcome), recalibrated(score, outcome)
    best, rate = np.mean((claim - outcome) ** 2), outcome.mean()
    assert result.estimate == pytest.approx(np.mean((score - outcome) ** 2), abs=1e-12)
    assert result.miscalibration == pytest.approx(result.estimate - best, abs=1e-12)
    assert result.discrimination == pytest.approx(np.mean((rate - outcome) ** 2) - best, abs=1e-12)
    assert result.uncertainty == pytest.approx(rate * (1 - rate), abs=1e-12)


@given(QUESTIONS)
def test_parts_add_up_and_none_is_negative(questions) -> None:
    result = brier_score(*arrays_of(questions))
    assert result.miscalibration - result.discrimination + result.uncertainty == pytest.approx(
        result.estimate, abs=1e-12
    )
    assert min(result.miscalibration, result.discrimination, result.uncertainty) >= 0
    assert result.discrimination <= result.uncertainty + 1e-12


def test_parts_against_theory() -> None:
    # Claims of .3 and .9 that come true in .2 and .7: off by .1 and .2, and .25 to either side of the rate of .45.
    score = np.repeat([0.3, 0.9], 10)
    outcome = np.r_[np.arange(10) < 2, np.arange(10) < 7]
    result = brier_score(score, outcome)
    parts = (result.miscalibration, result.discrimination, result.uncertainty)
    assert parts == pytest.approx(((0.01 + 0.04) / 2, 0.0625, 0.45 * 0.55), abs=1e-12)
    # A score in the wrong order has nothing to discriminate with, however often it is right.
    assert brier_score(1 - score, outcome).discrimination == pytest.approx(0, abs=1e-12)


@given(QUESTIONS, st.sampled_from([0.8, 0.95]))
def test_interval_against_students(questions, level: float) -> None:
    score, outcome = arrays_of(questions)
    result, losses = brier_score(score, outcome), (score - outcome) ** 2
    interval = result.confidence_interval(level)
    if np.ptp(losses) < 1e-9:
        assert (result.standard_error, result.status, result.reason) == (None, "boundary", "no_variation")
        assert math.isnan(interval.low)
        assert math.isnan(interval.high)
        return
    assert (result.status, result.reason, result.n) == ("ok", None, score.size)
    error = scipy_stats.sem(losses)
    assert result.standard_error == pytest.approx(error, rel=1e-9)
    low, high = scipy_stats.t.interval(level, score.size - 1, losses.mean(), error)
    assert interval == pytest.approx((max(low, 0), min(high, 1)), abs=1e-9)


def test_without_questions_the_score_is_undefined() -> None:
    result = brier_score([], [])
    assert (result.estimate, result.standard_error) == (None, None)
    assert (result.miscalibration, result.discrimination, result.uncertainty) == (None, None, None)
    assert (result.status, result.reason, result.n) == ("undefined", "no_questions", 0)
    assert math.isnan(result.confidence_interval().low)


def test_invalid_input_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"score must lie in \[0, 1\], got 50.0; is it a percentage"):
        brier_score([50], [True])
    with pytest.raises(TypeError, match="outcome must hold truth values"):
        brier_score([0.5], [2])
    with pytest.raises(ValueError, match="confidence_level must lie strictly between 0 and 1"):
        brier_score([], []).confidence_interval(95)


@others_nightly(("n", "low"), [(200, 0.93), (50, 0.91), (1000, 0.93)])
def test_coverage(n: int, low: float) -> None:
    # Claims of p ** 1.3 where p is uniform: mean of p (1 - p) + (p - p ** 1.3) ** 2.
    truth = 1 / 2 - 1 / 3 + 1 / 3 - 2 / 3.3 + 1 / 3.6
    rng, hits = np.random.default_rng(3), 0
    for _ in range(1000):
        p = rng.random(n)
        interval = brier_score(p**1.3, rng.random(n) < p).confidence_interval()
        hits += interval.low <= truth <= interval.high
    # The standard error of the share is .007.
    assert low < hits / 1000 < 0.97
