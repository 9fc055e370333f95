"""Telling two models apart."""

import math

import numpy as np
import pytest
from benchmarks.coverage import planning as simulation
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from tests.tiers import others_nightly

from refusal_index import ContingencyTable
from refusal_index.stats.planning import (
    PlanningScenario,
    asymptotic_deviation,
    influence_correlation,
    power_to_tell_apart,
    questions_over_interval,
    questions_to_tell_apart,
)

FIRST, SECOND = PlanningScenario(0.5, 0.8, 0.42), PlanningScenario(0.42, 0.78, 0.30)


def standard_error(n: int, correlation: float) -> float:
    one, other = (asymptotic_deviation(x.refusal_rate, x.error_rate, x.refusal_index) for x in (FIRST, SECOND))
    return math.sqrt((one**2 + other**2 - 2 * correlation * one * other) / n)


@pytest.mark.parametrize(("n", "correlation"), [(500, 0.0), (2000, 0.3), (20, -0.2)])
def test_power_against_simulated_normal_differences(n: int, correlation: float) -> None:
    plan = power_to_tell_apart(FIRST, SECOND, n, correlation=correlation, confidence_level=0.9)
    statistics = np.random.default_rng(1).normal(0.12 / standard_error(n, correlation), 1, 400_000)
    # The standard error of the share is at most .0008.
    assert plan.power == pytest.approx(np.mean(np.abs(statistics) > norm.ppf(0.95)), abs=0.003)
    assert plan.difference == pytest.approx(0.12)


@given(st.floats(0.1, 0.99), st.floats(-0.5, 0.9))
def test_the_planned_number_is_the_smallest(power: float, correlation: float) -> None:
    plan = questions_to_tell_apart(FIRST, SECOND, power=power, correlation=correlation)
    assert plan.power >= power - 1e-9
    if plan.n > 1:
        assert power_to_tell_apart(FIRST, SECOND, plan.n - 1, correlation=correlation).power < power + 1e-9


def test_the_planned_number_against_the_usual_formula() -> None:
    # The other tail, which the formula leaves out, is worth nothing here.
    error = standard_error(1, 0.25)
    expected = ((norm.ppf(0.975) + norm.ppf(0.8)) * error / 0.12) ** 2
    assert questions_to_tell_apart(FIRST, SECOND, correlation=0.25).n == math.ceil(expected)


def test_the_order_of_the_models_does_not_matter() -> None:
    one, other = (questions_to_tell_apart(*models) for models in ((FIRST, SECOND), (SECOND, FIRST)))
    assert (one.n, one.power) == (other.n, other.power)
    assert one.difference == pytest.approx(-other.difference)


def test_models_that_cannot_be_told_apart_say_why() -> None:
    silent = PlanningScenario.from_table(ContingencyTable(0, 0, 6, 4))
    certain = PlanningScenario(0.5, 0.8, 1.0)
    for models, status, reason in (
        ((FIRST, FIRST), "undefined", "no_difference"),
        ((FIRST, silent), "undefined", "nobody_refused"),
        ((certain, SECOND), "boundary", "perfect_correlation"),
    ):
        plan = questions_to_tell_apart(*models)
        assert (plan.status, plan.reason, plan.n, plan.power) == (status, reason, None, None)
        assert power_to_tell_apart(*models, 100).power is None
    assert questions_to_tell_apart(FIRST, silent).difference is None


def test_a_small_plan_warns_of_small_cells() -> None:
    assert power_to_tell_apart(FIRST, SECOND, 50).reason == "expected_cell_below_5"
    assert power_to_tell_apart(FIRST, SECOND, 500).reason is None


def test_correlation_of_a_model_with_itself_and_with_a_stranger() -> None:
    rng = np.random.default_rng(2)
    refused, wrong = rng.random((2, 2, 4000)) < 0.5
    assert influence_correlation(refused[[0, 0]], wrong[[0, 0]]) == pytest.approx(1, abs=1e-12)
    # The standard error of a correlation of 0 is .016.
    assert abs(influence_correlation(refused, wrong)) < 0.06


def test_correlation_counts_shared_questions_only() -> None:
    rng = np.random.default_rng(3)
    difficulty = rng.normal(size=600)
    refused, wrong = (difficulty + rng.normal(size=(2, 600)) > 0 for _ in range(2))
    scored = rng.random((2, 600)) < 0.8
    shared = scored.all(axis=0)
    expected = influence_correlation(refused[:, shared], wrong[:, shared])
    assert influence_correlation(refused ^ ~scored, wrong, scored) == pytest.approx(expected, abs=1e-12)
    assert influence_correlation(refused, wrong, np.array([[True], [False]]) & scored) == 0.0
    assert math.isnan(influence_correlation(np.ones_like(refused), wrong))
    assert math.isnan(influence_correlation(np.zeros_like(refused), wrong))


def test_correlation_against_the_scatter_of_estimated_differences() -> None:
    refused, wrong = simulation.two_models((0.6, 0.3), 0.7, np.random.default_rng(5))
    codes = 2 * ~refused + ~wrong
    cells = np.bincount(4 * codes[0] + codes[1], minlength=16) / codes.shape[1]
    counts = np.random.default_rng(6).multinomial(2000, cells, size=20_000).reshape(-1, 4, 4)
    indices = [simulation.estimates(counts.sum(axis=axis))[0] for axis in (2, 1)]
    # The standard error of the observed correlation is .007.
    assert influence_correlation(refused, wrong) == pytest.approx(np.corrcoef(indices)[0, 1], abs=0.025)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: questions_to_tell_apart(FIRST, SECOND, power=80), "power must lie between 0.05 and 1, got 80; is it"),
        (lambda: questions_to_tell_apart(FIRST, SECOND, power=0.01), "power must lie between"),
        (lambda: questions_to_tell_apart(FIRST, SECOND, correlation=math.nan), r"correlation must lie in \[-1, 1\]"),
        (lambda: power_to_tell_apart(FIRST, SECOND, 0), "n must be a whole number of at least 1"),
        (lambda: influence_correlation([[True]], [[True]]), "refused must have two rows, one per model, got 1"),
    ],
)
def test_impossible_arguments_are_errors(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@others_nightly("shared", [0.7, 0.0])
def test_simulated_power_is_the_planned_one(shared: float) -> None:
    row = simulation.power_row((0.5, 0.4), shared, 1000, np.random.default_rng(4))
    assert row.holds, row


def test_numbers_over_an_interval_are_those_of_its_ends() -> None:
    # A pilot's .31 [.06, .56].
    models = PlanningScenario(0.5, 0.8, 0.51), PlanningScenario(0.5, 0.8, 0.2)
    plan = questions_to_tell_apart(*models)
    fewest, most = questions_over_interval(plan, 0.06, 0.56)
    assert fewest == pytest.approx(plan.n * (0.31 / 0.56) ** 2, abs=1)
    assert most == pytest.approx(plan.n * (0.31 / 0.06) ** 2, abs=1)
    turned = questions_to_tell_apart(*models[::-1])
    assert questions_over_interval(turned, -0.56, -0.06) == (fewest, most)
    assert questions_over_interval(plan, -0.06, 0.56) == (fewest, None)
    assert questions_over_interval(questions_to_tell_apart(models[0], models[0]), -0.1, 0.1) == (None, None)
    with pytest.raises(ValueError, match="are they swapped"):
        questions_over_interval(plan, 0.5, 0.1)
