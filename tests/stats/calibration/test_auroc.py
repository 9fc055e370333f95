"""Area under the ROC curve and its interval."""

import math

import numpy as np
import pytest
from benchmarks.coverage.calibration import SCENARIOS, rows
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, norm
from tests.tiers import others_nightly

from refusal_index.stats.calibration import auroc

TIED = [1, 1, 1, 0.9, 0.9, 0.5, 0.5, 0.5, 0.2, 0.2, 0, 0, 0, 0]
QUESTIONS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=25)


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


@given(QUESTIONS)
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


@given(QUESTIONS, st.sampled_from(["auto", "delong", "newcombe"]))
def test_intervals_hold_the_estimate_and_turn_round_with_the_score(questions, method: str) -> None:
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


def test_newcombes_interval_against_theory_at_the_boundary() -> None:
    # Two right answers above two wrong ones: 1 - A = z sqrt(V(A)) with V by Hanley and McNeil.
    result = auroc([4, 3, 2, 1], [True, True, False, False])
    low, high = result.confidence_interval()
    variance = low * (1 - low) * (1 + (1 - low) / (2 - low) + low / (1 + low)) / 4
    assert 1 - low == pytest.approx(norm.ppf(0.975) * math.sqrt(variance), abs=1e-12)
    assert low < 0.9
    assert (high, result.status, result.reason, result.standard_error) == (1, "boundary", "all_true_above", None)
    assert auroc([1, 2, 3], [True, False, False]).reason == "all_false_above"


def test_without_information_the_standard_error_is_none_and_not_zero() -> None:
    tied = auroc([0.5] * 60, [True, False] * 30)
    assert (tied.estimate, tied.standard_error, tied.status, tied.reason) == (0.5, None, "boundary", "all_tied")
    single = auroc([1, 2, 3], [False, True, False])
    assert (single.estimate, single.standard_error, single.status) == (0.5, None, "ok")
    assert auroc([], []).reason == "no_questions"


def test_methods_switch_at_twenty_of_a_kind() -> None:
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
def test_invalid_input_is_an_error(score, outcome, error, message: str) -> None:
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
