"""Risk-coverage and accuracy-refusal curves and the areas under them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from refusal_index.plugins.studies.curves import empirical_accuracy_refusal_curve
from refusal_index.stats.calibration import auroc
from refusal_index.stats.selective import aurc, risk_coverage_curve

QUESTIONS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=25)


def arrays_of(questions) -> tuple[np.ndarray, np.ndarray]:
    score, outcome = np.array(questions, float).T
    return score, outcome.astype(bool)


@pytest.mark.parametrize("seed", range(4))
def test_curves_against_brute_force_over_all_orders_of_the_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, outcome = rng.integers(0, 3, 6), rng.random(6) < 0.5
    orders = [order for order in itertools.permutations(range(6)) if np.all(np.diff(score[list(order)]) <= 0)]
    wrong = np.mean([np.cumsum(~outcome[list(order)]) for order in orders], axis=0)
    coverage, risk = risk_coverage_curve(score, outcome)
    np.testing.assert_allclose(coverage, np.arange(1, 7) / 6, rtol=1e-15)
    np.testing.assert_allclose(risk, wrong / np.arange(1, 7), atol=1e-12)
    refusal_rate, correct_rate = empirical_accuracy_refusal_curve(score, outcome)
    right = np.mean([np.cumsum(outcome[list(order)]) for order in orders], axis=0)
    np.testing.assert_allclose(refusal_rate, np.arange(7) / 6, rtol=1e-15)
    np.testing.assert_allclose(correct_rate, np.append(right[::-1], 0) / 6, atol=1e-12)


@given(QUESTIONS)
def test_excess_against_the_best_and_the_worst_order(questions) -> None:
    score, outcome = arrays_of(questions)
    result = aurc(score, outcome)
    if result.status == "boundary":
        assert result.excess is None
        assert result.estimate == (0 if outcome.all() else 1)
        return
    best, worst = aurc(outcome, outcome), aurc(~outcome, outcome)
    assert best.excess == 0
    assert best.estimate - 1e-12 <= result.estimate <= worst.estimate + 1e-12
    assert result.excess == pytest.approx(result.estimate - best.estimate, abs=1e-12)
    # Equal scores for all give the error rate at every coverage.
    assert aurc(np.zeros(outcome.size), outcome).estimate == pytest.approx(1 - outcome.mean(), abs=1e-12)


@given(QUESTIONS)
def test_area_under_the_accuracy_refusal_curve_against_theory(questions) -> None:
    score, outcome = arrays_of(questions)
    area, right = auroc(score, outcome).estimate, outcome.mean()
    expected = right * (right / 2 + (1 - right) * area) if area is not None else right / 2
    refusal_rate, correct_rate = empirical_accuracy_refusal_curve(score, outcome)
    assert np.trapezoid(correct_rate, refusal_rate) == pytest.approx(expected, abs=1e-12)
    assert (correct_rate[0], correct_rate[-1]) == (right, 0)
    assert np.all(np.diff(correct_rate) <= 1e-15)


@given(QUESTIONS)
def test_curves_depend_on_the_order_of_the_scores_only(questions) -> None:
    score, outcome = arrays_of(questions)
    for function in (risk_coverage_curve, empirical_accuracy_refusal_curve):
        np.testing.assert_array_equal(function(score, outcome), function(np.exp(score), outcome))
        np.testing.assert_allclose(function(score[::-1], outcome[::-1]), function(score, outcome), atol=1e-15)


def test_areas_against_facts_for_a_gaussian_refusal_score() -> None:
    # Latent refusal score and error of correlation .5, error rate .92: section 7 of the facts about the method.
    rng, n = np.random.default_rng(12), 400_000
    refusal, noise = rng.standard_normal((2, n))
    wrong = 0.5 * refusal + np.sqrt(0.75) * noise > ndtri(0.08)
    # Sampling errors are near .0005 (the area under the ROC curve has 32,000 right answers).
    assert auroc(-refusal, ~wrong).estimate == pytest.approx(0.77853, abs=0.005)
    result = aurc(ndtr(-refusal), ~wrong)
    assert result.estimate == pytest.approx(0.83667, abs=0.003)
    assert result.excess == pytest.approx(0.11872, abs=0.003)
    assert result.n_false == wrong.sum()


def test_least_area_against_theory_for_many_questions() -> None:
    outcome = np.arange(100_000) < 25_000
    least = aurc(outcome, outcome).estimate
    assert least == pytest.approx(0.75 + 0.25 * np.log(0.25), abs=2e-5)


def test_without_questions_or_without_difference() -> None:
    assert aurc([], []) == aurc(np.array([]), np.array([], bool))
    assert (aurc([], []).status, aurc([], []).reason) == ("undefined", "no_questions")
    assert (aurc([1, 2], [True, True]).reason, aurc([1, 2], [False, False]).reason) == ("all_true", "all_false")
    assert all(part.size == 0 for part in risk_coverage_curve([], []))
    assert all(np.isnan(part).all() for part in empirical_accuracy_refusal_curve([], []))


@pytest.mark.parametrize("function", [aurc, risk_coverage_curve, empirical_accuracy_refusal_curve])
def test_invalid_input_is_an_error(function) -> None:
    with pytest.raises(TypeError, match="outcome must hold truth values"):
        function([0.1, 0.2], [0, 2])
    with pytest.raises(ValueError, match="was one of them filtered"):
        function([0.1, 0.2], [True])
