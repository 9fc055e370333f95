"""Reliability table and expected calibration error."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from refusal_index.stats.calibration import expected_calibration_error, reliability_table
from refusal_index.stats.intervals import wilson_interval

QUESTIONS = st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=1, max_size=60)
BINNINGS = st.sampled_from(["equal_width", "equal_mass"])


@given(QUESTIONS, st.integers(1, 12))
def test_bins_of_equal_width_against_brute_force(questions, n_bins: int) -> None:
    hundredths, outcome = np.array(questions).T
    table = reliability_table(hundredths / 100, outcome.astype(bool), n_bins=n_bins)
    assert len(table) == n_bins
    error = 0.0
    for i, row in enumerate(table):
        # In whole numbers, so that no rounding decides at the ends of a bin.
        inside = [(s, o) for s, o in zip(hundredths, outcome, strict=True) if i == max(-(-s * n_bins // 100) - 1, 0)]
        assert row.count == len(inside)
        if not inside:
            assert row.mean_score is row.outcome_rate is row.outcome_rate_low is row.outcome_rate_high is None
            continue
        assert row.mean_score == pytest.approx(np.mean([s for s, _ in inside]) / 100, abs=1e-12)
        assert row.outcome_rate == pytest.approx(np.mean([o for _, o in inside]), abs=1e-12)
        interval = wilson_interval(sum(int(o) for _, o in inside), len(inside), norm.ppf(0.975))
        assert (row.outcome_rate_low, row.outcome_rate_high) == pytest.approx(interval, abs=1e-12)
        error += abs(sum(s / 100 - o for s, o in inside)) / len(questions)
    assert expected_calibration_error(hundredths / 100, outcome.astype(bool), n_bins=n_bins).estimate == pytest.approx(
        error, abs=1e-12
    )


@given(QUESTIONS, st.integers(1, 12))
def test_bins_of_equal_mass_keep_equal_scores_together(questions, n_bins: int) -> None:
    hundredths, outcome = np.array(questions).T
    scores = hundredths / 100
    table = reliability_table(scores, outcome.astype(bool), n_bins=n_bins, binning="equal_mass")
    assert 1 <= len(table) <= n_bins
    assert (table[0].low, table[-1].high) == (scores.min(), scores.max())
    for i, row in enumerate(table):
        inside = (scores <= row.high) & ((scores > row.low) | (i == 0))
        assert row.count == inside.sum() > 0
        assert row.mean_score == pytest.approx(scores[inside].mean(), abs=1e-12)
    # No bin is larger than its share unless one score alone makes it so.
    largest_tie = np.unique(scores, return_counts=True)[1].max()
    assert max(row.count for row in table) < len(scores) / n_bins + largest_tie + 1


def test_bins_of_equal_mass_without_ties_are_equal() -> None:
    scores = np.random.default_rng(1).permutation(np.linspace(0.01, 0.99, 60))
    table = reliability_table(scores, scores > 0.5, n_bins=6, binning="equal_mass")
    assert [row.count for row in table] == [10] * 6


@given(QUESTIONS, BINNINGS)
def test_calibration_error_lies_between_its_bounds(questions, binning) -> None:
    hundredths, outcome = np.array(questions).T
    scores, truths = hundredths / 100, outcome.astype(bool)
    # One bin compares the means, and splitting bins can only raise the error, up to that of each question for itself.
    one = expected_calibration_error(scores, truths, n_bins=1).estimate
    many = expected_calibration_error(scores, truths, binning=binning).estimate
    assert one == pytest.approx(abs(scores.mean() - truths.mean()), abs=1e-12)
    assert one - 1e-12 <= many <= np.abs(scores - truths).mean() + 1e-12


def test_calibration_error_against_theory() -> None:
    # Claims of 0.2, 0.4, 0.6 and 0.8 that come true 0.1 too often each.
    scores = np.repeat([0.2, 0.4, 0.6, 0.8], 10)
    outcome = np.concatenate([np.arange(10) < k for k in (3, 5, 7, 9)])
    for binning in ("equal_width", "equal_mass"):
        result = expected_calibration_error(scores, outcome, n_bins=5, binning=binning)
        assert result.estimate == pytest.approx(0.1, abs=1e-12)
        assert result.bins == reliability_table(scores, outcome, n_bins=5, binning=binning)
        assert (result.status, result.reason, result.binning) == ("ok", None, binning)


def test_scores_of_0_and_1_are_in_the_outer_bins() -> None:
    table = reliability_table([0.0, 0.1, 1.0], [False, True, True])
    assert [row.count for row in table] == [2, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert (table[0].low, table[0].high, table[-1].high) == (0, 0.1, 1)


def test_without_questions_the_error_is_undefined() -> None:
    result = expected_calibration_error([], [])
    assert (result.estimate, result.status, result.reason) == (None, "undefined", "no_questions")
    assert [row.count for row in result.bins] == [0] * 10
    assert reliability_table([], [], binning="equal_mass") == ()


def test_confidence_level_widens_the_intervals() -> None:
    (narrow,), (wide,) = (
        reliability_table([0.3, 0.4], [True, False], n_bins=1, confidence_level=level) for level in (0.5, 0.99)
    )
    assert wide.outcome_rate_low < narrow.outcome_rate_low < 0.5 < narrow.outcome_rate_high < wide.outcome_rate_high
    assert not math.isnan(wide.outcome_rate_low)


@pytest.mark.parametrize(
    ("score", "options", "message"),
    [
        ([50], {}, r"score must lie in \[0, 1\], got 50.0; is it a percentage"),
        ([-0.1], {}, r"score must lie in \[0, 1\], got -0.1"),
        ([0.5], {"n_bins": 0}, "n_bins must be at least 1, got 0"),
        ([0.5], {"binning": "kmeans"}, "binning must be one of equal_width, equal_mass, got 'kmeans'"),
    ],
)
def test_invalid_input_is_an_error(score, options, message: str) -> None:
    for function in (reliability_table, expected_calibration_error):
        with pytest.raises(ValueError, match=message):
            function(score, [True], **options)
