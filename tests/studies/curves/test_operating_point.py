"""The best operating point of a fitted curve, and the regret of another."""

import numpy as np
import pytest
from benchmarks.coverage import curves as simulation
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import norm
from tests.tiers import others_nightly

from refusal_index import ContingencyTable
from refusal_index.plugins.studies.curves import best_operating_point, best_refusal_rate, utility_at
from refusal_index.stats import refusal_index_many
from refusal_index.stats.planning import PlanningScenario

COUNTS = st.tuples(*[st.integers(1, 3000)] * 4)
RHO, RATE = st.floats(-1, 1), st.floats(0, 1)
PENALTY = st.sampled_from([0, 0.5, 1, 3, 9])
GRID = np.linspace(0, 1, 2001)


@given(RHO, RATE, PENALTY)
def test_no_refusal_rate_is_better_against_brute_force(rho: float, mu: float, penalty: float) -> None:
    best = best_refusal_rate(rho, mu, penalty)
    assert 0 <= best <= 1
    assert utility_at(GRID, rho, mu, penalty).max() <= utility_at(best, rho, mu, penalty) + 1e-12 * (1 + penalty)


@given(st.floats(0.1, 0.99), st.floats(0.05, 0.95), st.sampled_from([0.5, 1, 3]))
def test_at_the_best_rate_one_more_answer_is_worth_nothing(rho: float, mu: float, penalty: float) -> None:
    best = float(best_refusal_rate(rho, mu, penalty))
    assume(0.001 < best < 0.999)
    threshold = norm.isf(best)
    right = norm.cdf((norm.isf(mu) - rho * threshold) / np.sqrt(1 - rho**2))
    assert right - penalty * (1 - right) == pytest.approx(0, abs=1e-8)


def test_utility_at_the_ends_and_at_the_perfect_score() -> None:
    np.testing.assert_allclose(utility_at([0, 1], 0.4, 0.6, 3), [0.4 - 3 * 0.6, 0], atol=1e-14)
    # A perfect score refuses just what is wrong, whatever the penalty.
    np.testing.assert_allclose(best_refusal_rate(1, [0.2, 0.7], 9), [0.2, 0.7], atol=1e-14)
    np.testing.assert_allclose(utility_at([0.2, 0.7], 1, [0.2, 0.7], 9), [0.8, 0.3], atol=1e-14)


def test_a_score_that_ranks_nothing_answers_all_or_refuses_all() -> None:
    # The penalty of 1 makes it worth answering from one half on.
    assert best_refusal_rate([0, 0, -0.5, 0], [0.49, 0.51, 0.51, 0.5], 1).tolist() == [0, 1, 1, 0]
    assert best_refusal_rate(0.7, [0, 1], 1).tolist() == [0, 1]
    assert best_refusal_rate(0.7, 0.99, 0) == 0
    assert best_refusal_rate(1e-200, 0.4, 1) == 0


def test_a_free_wrong_answer_and_a_price_beyond_measure() -> None:
    free = best_operating_point(ContingencyTable(30, 20, 10, 40), 0)
    assert (free.refusal_rate, free.status, free.reason) == (0, "boundary", "answer_all")
    assert free.utility_at_best == pytest.approx(0.6, abs=1e-12)
    dear = best_operating_point(ContingencyTable(30, 20, 10, 40), 1e300)
    assert (dear.refusal_rate, dear.status, dear.reason) == (1, "boundary", "refuse_all")
    assert dear.utility_at_best == pytest.approx(0, abs=1e-12)


@given(COUNTS, PENALTY)
def test_the_regret_is_what_today_lacks(counts, penalty: float) -> None:
    table = ContingencyTable(*counts)
    point = best_operating_point(table, penalty)
    assert point.estimate >= 0
    assert point.utility_at_best - point.estimate == pytest.approx(point.utility_today, abs=1e-9 * (1 + penalty))
    assert point.utility_today == pytest.approx(table.correct_rate - penalty * table.answered_wrong / table.n)
    low, high = point.confidence_interval(0.9999, n_resamples=2000, rng=1)
    assert 0 <= low <= point.estimate + 1e-9 * (1 + penalty)
    assert point.estimate <= high


def test_a_model_at_its_best_has_a_regret_that_may_be_zero() -> None:
    scenario = simulation.at_its_best(0.5, 0.6, 1.0)
    table = ContingencyTable(*np.round(np.array(scenario.cells) * 100_000).astype(int))
    point = best_operating_point(table, 1)
    assert point.refusal_rate == pytest.approx(table.refusal_rate, abs=1e-4)
    assert point.estimate == pytest.approx(0, abs=1e-7)
    low, high = point.confidence_interval(rng=3)
    assert low == 0
    assert 0 < high < 1e-4


def test_interval_of_the_regret_against_a_grid_over_posterior_draws() -> None:
    counts = np.array([900, 300, 600, 1200])
    cells = np.random.default_rng(8).dirichlet(counts + 0.5, 1000).T
    rho = 2 * np.sin(np.pi / 6 * refusal_index_many(*np.round(1e9 * cells)))
    along = utility_at(np.linspace(0, 1, 201), rho[:, np.newaxis], (cells[0] + cells[2])[:, np.newaxis], 1.0)
    regrets = along.max(axis=1) - (cells[3] - cells[2])
    interval = best_operating_point(ContingencyTable(*counts.tolist()), 1).confidence_interval(rng=1)
    # An end of 1,000 draws errs by .08 of their standard deviation.
    assert interval == pytest.approx(tuple(np.quantile(regrets, [0.025, 0.975])), abs=0.3 * regrets.std())


def test_a_table_at_the_boundary_and_one_without_a_curve() -> None:
    point = best_operating_point(ContingencyTable(5, 0, 2, 3), 1)
    assert (point.status, point.reason) == ("boundary", "zero_cell:refused_right")
    assert (point.refusal_rate, point.estimate) == pytest.approx((0.7, 0.2), abs=1e-12)
    low, high = point.confidence_interval(rng=1)
    assert low < point.estimate < high
    nothing = best_operating_point(ContingencyTable(0, 0, 2, 3), 1)
    assert (nothing.status, nothing.reason) == ("undefined", "nobody_refused")
    assert nothing.refusal_rate is nothing.utility_at_best is nothing.utility_today is nothing.estimate is None
    assert np.isnan(nothing.confidence_interval()).all()


def test_a_seed_makes_the_interval_repeat() -> None:
    point = best_operating_point(ContingencyTable(40, 10, 20, 30), 1)
    assert point.confidence_interval(rng=2) == point.confidence_interval(rng=np.random.default_rng(2))
    assert point.confidence_interval(rng=2) != point.confidence_interval(rng=3)


def test_impossible_arguments_are_errors() -> None:
    point = best_operating_point(ContingencyTable(40, 10, 20, 30), 1)
    with pytest.raises(ValueError, match="penalty must be a number of at least 0"):
        best_operating_point(ContingencyTable(4, 3, 2, 1), -1)
    with pytest.raises(ValueError, match="confidence_level must lie strictly between 0 and 1"):
        point.confidence_interval(95)
    with pytest.raises(ValueError, match="n_resamples must be at least 1, got 0"):
        point.confidence_interval(n_resamples=0)
    with pytest.raises(ValueError, match=r"rho must lie in \[-1, 1\], got 2.0"):
        best_refusal_rate(2, 0.5, 1)


@pytest.mark.slow
@others_nightly(
    "scenario", [(200, PlanningScenario(0.42, 0.6, 0.5), 1.0), (1000, simulation.at_its_best(0.5, 0.6, 1.0), 1.0)]
)
def test_coverage_of_the_regret(scenario) -> None:
    row = simulation.regret_row(*scenario, 500, np.random.default_rng(5))
    assert row.holds, row
