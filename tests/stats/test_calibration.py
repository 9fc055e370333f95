"""Calibration of scores: reliability, calibration errors, Brier score and AUROC."""

import math

import numpy as np
import pytest
from benchmarks.coverage.calibration import SCENARIOS, rows
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from scipy.optimize import brentq
from scipy.stats import mannwhitneyu, norm
from tests.tiers import others_nightly

from refusal_index.stats.calibration import (
    auroc,
    brier_score,
    expected_calibration_error,
    reliability_table,
    rms_calibration_error,
    smooth_calibration_error,
)
from refusal_index.stats.intervals import wilson_interval

# --- Reliability table and expected calibration error

QUESTIONS = st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=1, max_size=60)
BINNINGS = st.sampled_from(["equal_width", "equal_mass"])


@given(QUESTIONS, st.integers(1, 12))
def test_equal_width_bins_against_brute_force(questions, n_bins: int) -> None:
    hundredths, outcome = np.array(questions).T
    table = reliability_table(hundredths / 100, outcome.astype(bool), n_bins=n_bins)
    assert len(table) == n_bins
    error = 0.0
    for i, row in enumerate(table):
        # Integer arithmetic, so that rounding does not decide at the edges of a bin.
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
def test_equal_mass_bins_keep_tied_scores_together(questions, n_bins: int) -> None:
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


def test_equal_mass_bins_without_ties_have_equal_counts() -> None:
    scores = np.random.default_rng(1).permutation(np.linspace(0.01, 0.99, 60))
    table = reliability_table(scores, scores > 0.5, n_bins=6, binning="equal_mass")
    assert [row.count for row in table] == [10] * 6


@given(QUESTIONS, BINNINGS)
def test_calibration_error_lies_between_its_bounds(questions, binning) -> None:
    hundredths, outcome = np.array(questions).T
    scores, truths = hundredths / 100, outcome.astype(bool)
    # One bin compares the means, and splitting bins can only raise the error, up to that of one bin per question.
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


def test_error_is_undefined_without_questions() -> None:
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


# --- Root-mean-square calibration error


def arrays_of(questions) -> tuple[np.ndarray, np.ndarray]:
    hundredths, outcome = (np.array(column) for column in zip(*questions, strict=True))
    return hundredths / 100, outcome


@given(QUESTIONS, BINNINGS, st.integers(1, 12))
def test_error_matches_its_bins(questions, binning, n_bins: int) -> None:
    score, outcome = arrays_of(questions)
    result = rms_calibration_error(score, outcome, n_bins=n_bins, binning=binning)
    squares = [row.count * (row.mean_score - row.outcome_rate) ** 2 for row in result.bins if row.count]
    assert result.estimate == pytest.approx(math.sqrt(sum(squares) / score.size), abs=1e-12)
    assert result.bins == reliability_table(score, outcome, n_bins=n_bins, binning=binning)
    assert (result.status, result.reason, result.binning) == ("ok", None, binning)
    mean = expected_calibration_error(score, outcome, n_bins=n_bins, binning=binning).estimate
    assert mean - 1e-12 <= result.estimate <= 1


def test_without_questions_the_rms_error_is_undefined() -> None:
    result = rms_calibration_error([], [])
    assert (result.estimate, result.status, result.reason) == (None, "undefined", "no_questions")
    assert len(result.bins) == 10


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"score": [50]}, ValueError, r"score must lie in \[0, 1\], got 50.0"),
        ({"n_bins": 0}, ValueError, "n_bins must be at least 1, got 0"),
        ({"outcome": [3]}, TypeError, "outcome must hold truth values"),
    ],
)
def test_invalid_input_of_the_rms_error_is_an_error(changed, error, message: str) -> None:
    with pytest.raises(error, match=message):
        rms_calibration_error(**{"score": [0.5], "outcome": [True]} | changed)


# --- Smooth expected calibration error

FEW_QUESTIONS = st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=40)

# relplot 1.0.3 (pip install relplot), which is not a dependency of the package:
#     from relplot import smECE
#     rng = np.random.default_rng(7)
#     for n, power in (...):
#         p = rng.random(n)
#         smECE(p**power, (rng.random(n) < p).astype(float))
RELPLOT: dict[tuple[int, float], float | None] = {
    (300, 1): 0.04183825008624012,
    (2000, 1): 0.027041131759118167,
    (300, 2): None,  # relplot: 0.16256, where the integral is 0.16129
    (2000, 0.7): 0.09806028703732017,
    (500, 1.5): 0.10369322666621118,
}


def test_error_against_relplot() -> None:
    rng = np.random.default_rng(7)
    for (n, power), value in RELPLOT.items():
        p = rng.random(n)
        outcome = rng.random(n) < p
        if value is not None:
            assert smooth_calibration_error(p**power, outcome).estimate == pytest.approx(value, abs=1e-3)


def integral_by_midpoints(score: np.ndarray, outcome: np.ndarray, width: float) -> float:
    """Integral of the smoothed residuals, with the images of every score by reflection at 0 and 1."""
    at = (np.arange(1000) + 0.5) / 1000
    images = np.concatenate([2 * k + sign * score for k in range(-6, 7) for sign in (1, -1)])
    kernel = np.exp(-(((at[:, np.newaxis] - images) / width) ** 2) / 2) / (width * np.sqrt(2 * np.pi))
    return float(np.abs(kernel @ np.tile(outcome - score, 26)).mean() / score.size)


@pytest.mark.parametrize("seed", range(4))
def test_error_against_numerical_integration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Scores at the very ends, which relplot counts half, and errors that are large, for which it cuts off the kernel.
    score = np.array([rng.random(80), rng.integers(0, 6, 80) / 5, rng.integers(0, 2, 80), rng.random(80)][seed], float)
    outcome = rng.random(80) < (1 - score if seed == 3 else 0.5 + 0.3 * (score - 0.5))
    expected = brentq(lambda width: integral_by_midpoints(score, outcome, width) - width, 0.01, 1, xtol=1e-9)
    assert smooth_calibration_error(score, outcome).estimate == pytest.approx(expected, abs=1e-5)


@given(FEW_QUESTIONS)
def test_error_lies_between_its_bounds(questions) -> None:
    score, outcome = (np.array(column) for column in zip(*questions, strict=True))
    result = smooth_calibration_error(score / 20, outcome)
    assert abs(np.mean(score / 20 - outcome)) - 1e-9 <= result.estimate <= np.mean(np.abs(score / 20 - outcome)) + 1e-9
    assert (result.status, result.reason) == ("ok", None)
    other = smooth_calibration_error(1 - score / 20, ~outcome)
    assert result.estimate == pytest.approx(other.estimate, abs=1e-9)


def test_error_against_theory_for_one_score() -> None:
    # The kernel only redistributes the residual.
    for score, share in ((0.9, 0.3), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)):
        result = smooth_calibration_error(np.full(10, score), np.arange(10) < 10 * share)
        assert result.estimate == pytest.approx(abs(score - share), abs=1e-9)


def test_error_below_narrowest_bandwidth_uses_that_bandwidth() -> None:
    assert smooth_calibration_error(np.full(5, 0.9995), np.ones(5, bool)).estimate == pytest.approx(5e-4, abs=1e-9)
    assert smooth_calibration_error([0.0, 1.0], [False, True]).estimate == 0


def test_without_questions_the_smooth_error_is_undefined() -> None:
    result = smooth_calibration_error([], [])
    assert (result.estimate, result.status, result.reason) == (None, "undefined", "no_questions")


def test_invalid_input_of_the_smooth_error_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"score must lie in \[0, 1\], got 50.0"):
        smooth_calibration_error([50], [True])
    with pytest.raises(TypeError, match="outcome must hold truth values"):
        smooth_calibration_error([0.5], [2])


# --- Brier score and its decomposition by isotonic recalibration


def twentieths(questions) -> tuple[np.ndarray, np.ndarray]:
    score, outcome = (np.array(column) for column in zip(*questions, strict=True))
    return score / 20, outcome


def recalibrated(score: np.ndarray, outcome: np.ndarray) -> np.ndarray:
    """Isotonic regression by its max-min formula, over all ranges of scores."""
    values = np.unique(score)

    def mean(low: float, high: float) -> float:
        return outcome[(score >= low) & (score <= high)].mean()

    fit = {v: max(min(mean(a, b) for b in values[values >= v]) for a in values[values <= v]) for v in values}
    return np.array([fit[one] for one in score])


@given(FEW_QUESTIONS)
def test_parts_against_the_max_min_formula_of_isotonic_regression(questions) -> None:
    score, outcome = twentieths(questions)
    result, claim = brier_score(score, outcome), recalibrated(score, outcome)
    best, rate = np.mean((claim - outcome) ** 2), outcome.mean()
    assert result.estimate == pytest.approx(np.mean((score - outcome) ** 2), abs=1e-12)
    assert result.miscalibration == pytest.approx(result.estimate - best, abs=1e-12)
    assert result.discrimination == pytest.approx(np.mean((rate - outcome) ** 2) - best, abs=1e-12)
    assert result.uncertainty == pytest.approx(rate * (1 - rate), abs=1e-12)


@given(FEW_QUESTIONS)
def test_parts_add_up_and_none_is_negative(questions) -> None:
    result = brier_score(*twentieths(questions))
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
    # A score in the wrong order does not discriminate, however often it is right.
    assert brier_score(1 - score, outcome).discrimination == pytest.approx(0, abs=1e-12)


@given(FEW_QUESTIONS, st.sampled_from([0.8, 0.95]))
def test_interval_matches_student_t(questions, level: float) -> None:
    score, outcome = twentieths(questions)
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


def test_score_is_undefined_without_questions() -> None:
    result = brier_score([], [])
    assert (result.estimate, result.standard_error) == (None, None)
    assert (result.miscalibration, result.discrimination, result.uncertainty) == (None, None, None)
    assert (result.status, result.reason, result.n) == ("undefined", "no_questions", 0)
    assert math.isnan(result.confidence_interval().low)


def test_invalid_input_of_the_brier_score_is_an_error() -> None:
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


# --- Area under the ROC curve and its interval

TIED = [1, 1, 1, 0.9, 0.9, 0.5, 0.5, 0.5, 0.2, 0.2, 0, 0, 0, 0]
RANKED_QUESTIONS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=25)


@pytest.mark.parametrize(
    ("score", "outcome", "area", "error"),
    [
        # tests/stats/r/auroc.R: pROC::roc(outcome, score, direction="<"), auc and sqrt(var(method="delong"))
        ([0.9, 0.8, 0.7, 0.4, 0.3, 0.1], [1, 1, 0, 1, 0, 0], 0.88888888888889, 0.15713484026368),
        (TIED, [1, 1, 0, 1, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0], 0.71428571428571, 0.14704738994025),
        (range(1, 21), [1, 1, 0, 1, 0] * 2 + [0] * 10, 0.095238095238095, 0.067213871467908),
    ],
)
def test_area_and_standard_error_against_r_proc(score, outcome, area: float, error: float) -> None:
    result = auroc(list(score), np.array(outcome, bool))
    assert (result.estimate, result.standard_error) == pytest.approx((area, error), abs=1e-13)


@given(RANKED_QUESTIONS)
def test_area_against_brute_force(questions) -> None:
    score, outcome = np.array(questions, float).T
    result = auroc(score, outcome.astype(bool))
    pairs = [np.sign(a - b) / 2 + 0.5 for a in score[outcome == 1] for b in score[outcome == 0]]
    if not pairs:
        assert (result.estimate, result.status) == (None, "undefined")
        assert result.reason == ("all_true" if outcome.all() else "all_false")
    else:
        assert result.estimate == pytest.approx(np.mean(pairs), abs=1e-12)
        mann_whitney = mannwhitneyu(score[outcome == 1], score[outcome == 0], method="asymptotic")
        assert result.estimate * len(pairs) == pytest.approx(mann_whitney.statistic, abs=1e-9)


@given(RANKED_QUESTIONS, st.sampled_from(["auto", "delong", "newcombe"]))
def test_intervals_contain_estimate_and_mirror_with_negated_score(questions, method: str) -> None:
    score, outcome = np.array(questions, float).T
    result, reverse = auroc(score, outcome.astype(bool)), auroc(-score, outcome.astype(bool))
    low, high = result.confidence_interval(method=method)
    if result.status == "undefined" or (method == "delong" and result.standard_error is None):
        assert math.isnan(low)
        assert math.isnan(high)
        return
    assert 0 <= low <= result.estimate <= high <= 1
    assert low < high
    assert reverse.confidence_interval(method=method) == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_standard_error_against_jackknife() -> None:
    # Taking questions out one by one gives DeLong's variance but for n / (n - 1) within each kind.
    rng = np.random.default_rng(4)
    outcome = np.arange(120) < 50
    score = rng.integers(0, 12, 120) + 2 * outcome
    keep = ~np.eye(120, dtype=bool)
    without = np.array([auroc(score[kept], outcome[kept]).estimate for kept in keep])
    parts = [(m - 1) * np.var(without[kind]) for kind, m in ((outcome, 50), (~outcome, 70))]
    assert auroc(score, outcome).standard_error == pytest.approx(math.sqrt(sum(parts)), rel=1e-12)


def test_newcombe_interval_at_boundary_against_theory() -> None:
    # Two right answers above two wrong ones: 1 - A = z sqrt(V(A)) with V by Hanley and McNeil.
    result = auroc([4, 3, 2, 1], [True, True, False, False])
    low, high = result.confidence_interval()
    variance = low * (1 - low) * (1 + (1 - low) / (2 - low) + low / (1 + low)) / 4
    assert 1 - low == pytest.approx(norm.ppf(0.975) * math.sqrt(variance), abs=1e-12)
    assert low < 0.9
    assert (high, result.status, result.reason, result.standard_error) == (1, "boundary", "all_true_above", None)
    assert auroc([1, 2, 3], [True, False, False]).reason == "all_false_above"


def test_standard_error_is_none_without_information() -> None:
    tied = auroc([0.5] * 60, [True, False] * 30)
    assert (tied.estimate, tied.standard_error, tied.status, tied.reason) == (0.5, None, "boundary", "all_tied")
    single = auroc([1, 2, 3], [False, True, False])
    assert (single.estimate, single.standard_error, single.status) == (0.5, None, "ok")
    assert auroc([], []).reason == "no_questions"


def test_interval_method_switches_at_twenty_per_outcome() -> None:
    rng = np.random.default_rng(6)
    for n_true, method in ((19, "newcombe"), (20, "delong")):
        outcome = np.arange(60) < n_true
        result = auroc(rng.random(60) + outcome / 2, outcome)
        assert result.confidence_interval() == result.confidence_interval(method=method)


@pytest.mark.parametrize(
    ("score", "outcome", "error", "message"),
    [
        (["a"], [True], TypeError, "score must hold numbers, got an array of <U1"),
        ([0.1], [2], TypeError, "outcome must hold truth values, got an array of int64 with 2 in it; are there grades"),
        ([0.1, 0.2], [True], ValueError, r"got shapes \(2,\) and \(1,\); was one of them filtered"),
        ([np.nan], [True], ValueError, "score must be finite, got NaN or infinity"),
    ],
)
def test_invalid_input_of_auroc_is_an_error(score, outcome, error, message: str) -> None:
    with pytest.raises(error, match=message):
        auroc(score, outcome)


def test_invalid_options_are_errors() -> None:
    result = auroc([1, 2, 3, 4], [True, False, True, False])
    with pytest.raises(ValueError, match="method must be one of auto, delong, newcombe, got 'wald'"):
        result.confidence_interval(method="wald")
    with pytest.raises(ValueError, match="confidence_level must lie strictly between 0 and 1"):
        result.confidence_interval(95)


@pytest.mark.slow
@others_nightly("right", [0.05, 0.3])
def test_coverage_of_nominal_95_per_cent(right: float) -> None:
    chosen = tuple(scenario for scenario in SCENARIOS if scenario.right == right)
    for row in rows(400, np.random.default_rng(1), chosen):
        assert row.holds, row
