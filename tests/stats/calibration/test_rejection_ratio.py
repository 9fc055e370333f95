"""Prediction rejection ratio."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.stats.calibration import auroc
from refusal_index.stats.selective import aurc, prediction_rejection_ratio, risk_coverage_curve

QUESTIONS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=25).filter(
    lambda questions: len({right for _, right in questions}) == 2
)


def arrays_of(questions) -> tuple[np.ndarray, np.ndarray]:
    score, outcome = (np.array(column) for column in zip(*questions, strict=True))
    return score, outcome


def area(kept_right: np.ndarray) -> float:
    """Mean share of right answers among the questions kept, the most certain first, as lm-polygraph takes it."""
    return float(np.mean(np.cumsum(kept_right) / np.arange(1, kept_right.size + 1)))


@pytest.mark.parametrize("seed", range(3))
def test_ratio_against_areas_over_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, outcome = rng.integers(0, 3, 7), rng.permutation(7) < 4
    orders = [list(order) for order in itertools.permutations(range(7))]
    of_score = [area(outcome[order]) for order in orders if np.all(np.diff(score[order]) <= 0)]
    random = np.mean([area(outcome[order]) for order in orders])
    best = area(np.sort(outcome)[::-1])
    found = prediction_rejection_ratio(score, outcome)
    assert found.estimate == pytest.approx((np.mean(of_score) - random) / (best - random), abs=1e-9)
    assert (found.status, found.reason) == ("ok", None)


@given(QUESTIONS)
def test_ratio_against_the_areas_under_the_risk_coverage_curve(questions) -> None:
    score, outcome = arrays_of(questions)
    found, curve, mu = prediction_rejection_ratio(score, outcome), aurc(score, outcome), 1 - outcome.mean()
    assert found.estimate == pytest.approx((mu - curve.estimate) / (mu - curve.estimate + curve.excess), abs=1e-9)
    assert found.estimate <= 1 + 1e-12
    assert prediction_rejection_ratio(outcome, outcome).estimate == pytest.approx(1, abs=1e-12)
    assert prediction_rejection_ratio(np.zeros(outcome.size), outcome).estimate == pytest.approx(0, abs=1e-12)


@given(QUESTIONS)
def test_with_an_oracle_for_the_rejected_the_ratio_is_that_of_the_roc_curve(questions) -> None:
    # Malinin and Gales: errors left over all questions, with their straight line to 0 for random rejection.
    score, outcome = arrays_of(questions)

    def area_below(order) -> float:
        coverage, risk = risk_coverage_curve(order, outcome)
        return float(np.trapezoid(np.r_[0, risk * coverage], np.r_[0, coverage]))

    random = (1 - outcome.mean()) / 2
    ratio = (random - area_below(score)) / (random - area_below(outcome))
    assert ratio == pytest.approx(2 * auroc(score, outcome).estimate - 1, abs=1e-9)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [([], "no_questions"), ([True], "all_true"), ([True, True], "all_true"), ([False, False, False], "all_false")],
)
def test_without_anything_to_gain_the_ratio_is_undefined(outcome, reason: str) -> None:
    found = prediction_rejection_ratio(np.zeros(len(outcome)), np.array(outcome, bool))
    assert (found.estimate, found.status, found.reason) == (None, "undefined", reason)
