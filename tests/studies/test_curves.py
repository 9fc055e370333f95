"""The best operating point and the regret of another, responses to a penalty, and refusing as detection of errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.coverage import curves as simulation
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import multivariate_normal, norm
from tests.tiers import others_nightly

from refusal_index import ContingencyTable, refusal_index
from refusal_index.plugins.studies.curves import (
    abstention_metrics,
    best_operating_point,
    best_refusal_rate,
    gap_left,
    remaining_gap,
    response_to_penalty,
    utility_at,
)
from refusal_index.stats import refusal_index_many
from refusal_index.stats.planning import PlanningScenario

# --- The best operating point of a fitted curve, and the regret of another

COUNTS = st.tuples(*[st.integers(1, 3000)] * 4)
RHO, RATE = st.floats(-1, 1), st.floats(0, 1)
PENALTY = st.sampled_from([0, 0.5, 1, 3, 9])
GRID = np.linspace(0, 1, 2001)


@given(RHO, RATE, PENALTY)
def test_best_refusal_rate_against_brute_force(rho: float, mu: float, penalty: float) -> None:
    best = best_refusal_rate(rho, mu, penalty)
    assert 0 <= best <= 1
    assert utility_at(GRID, rho, mu, penalty).max() <= utility_at(best, rho, mu, penalty) + 1e-12 * (1 + penalty)


@given(st.floats(0.1, 0.99), st.floats(0.05, 0.95), st.sampled_from([0.5, 1, 3]))
def test_marginal_utility_is_zero_at_the_best_rate_property(rho: float, mu: float, penalty: float) -> None:
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


def test_uninformative_score_answers_all_or_refuses_all() -> None:
    # The penalty of 1 makes it worth answering from one half on.
    assert best_refusal_rate([0, 0, -0.5, 0], [0.49, 0.51, 0.51, 0.5], 1).tolist() == [0, 1, 1, 0]
    assert best_refusal_rate(0.7, [0, 1], 1).tolist() == [0, 1]
    assert best_refusal_rate(0.7, 0.99, 0) == 0
    assert best_refusal_rate(1e-200, 0.4, 1) == 0


def test_zero_and_huge_penalties() -> None:
    free = best_operating_point(ContingencyTable(30, 20, 10, 40), 0)
    assert (free.refusal_rate, free.status, free.reason) == (0, "boundary", "answer_all")
    assert free.utility_at_best == pytest.approx(0.6, abs=1e-12)
    dear = best_operating_point(ContingencyTable(30, 20, 10, 40), 1e300)
    assert (dear.refusal_rate, dear.status, dear.reason) == (1, "boundary", "refuse_all")
    assert dear.utility_at_best == pytest.approx(0, abs=1e-12)


@given(COUNTS, PENALTY)
def test_regret_is_best_minus_current_utility_property(counts, penalty: float) -> None:
    table = ContingencyTable(*counts)
    point = best_operating_point(table, penalty)
    assert point.estimate >= 0
    assert point.utility_at_best - point.estimate == pytest.approx(point.utility_today, abs=1e-9 * (1 + penalty))
    assert point.utility_today == pytest.approx(table.correct_rate - penalty * table.answered_wrong / table.n)
    low, high = point.confidence_interval(0.9999, n_resamples=2000, rng=1)
    assert 0 <= low <= point.estimate + 1e-9 * (1 + penalty)
    assert point.estimate <= high


def test_interval_of_the_regret_includes_zero_at_the_optimum() -> None:
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


def test_operating_point_of_boundary_and_undefined_tables() -> None:
    point = best_operating_point(ContingencyTable(5, 0, 2, 3), 1)
    assert (point.status, point.reason) == ("boundary", "zero_cell:refused_right")
    assert (point.refusal_rate, point.estimate) == pytest.approx((0.7, 0.2), abs=1e-12)
    low, high = point.confidence_interval(rng=1)
    assert low < point.estimate < high
    nothing = best_operating_point(ContingencyTable(0, 0, 2, 3), 1)
    assert (nothing.status, nothing.reason) == ("undefined", "nobody_refused")
    assert nothing.refusal_rate is nothing.utility_at_best is nothing.utility_today is nothing.estimate is None
    assert np.isnan(nothing.confidence_interval()).all()


def test_interval_of_the_regret_is_reproducible_with_a_seed() -> None:
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


# --- Responses to a stated penalty

TARGETS = (0.0, 0.5, 0.75, 0.9)
PENALTIES = (0.0, 1.0, 3.0, 9.0)


def simulated(rho: float, error_rate: float, rates, n: int, seed: int):
    """Refusals at the given rates from one latent score, and errors correlated with it."""
    refusal, noise = np.random.default_rng(seed).standard_normal((2, n))
    wrong = rho * refusal + np.sqrt(1 - rho**2) * noise > -ndtri(error_rate)
    return refusal > -ndtri(np.array(rates))[:, np.newaxis], np.tile(wrong, (len(rates), 1))


def test_difference_is_shown_only_if_a_model_ignores_the_penalty() -> None:
    best = [float(best_refusal_rate(0.6, 0.6, penalty)) for penalty in PENALTIES]
    obeying = response_to_penalty(*simulated(0.6, 0.6, best, 4000, 3), TARGETS, rng=1)
    for point in obeying.points:
        assert point.excess.low <= 0 <= point.excess.high
    assert obeying.move_excess.low <= 0 <= obeying.move_excess.high
    ignoring = response_to_penalty(*simulated(0.6, 0.6, [0.4] * 4, 4000, 3), TARGETS, rng=1)
    assert ignoring.points[0].excess.low > 0 > ignoring.points[3].excess.high
    assert (ignoring.move.estimate, ignoring.move_excess.high < 0) == (0, True)


def test_identical_prompts_have_the_best_points_of_their_table() -> None:
    refused, wrong = simulated(0.5, 0.6, [0.3, 0.3], 1000, 4)
    found = response_to_penalty(refused, wrong, [0.5, 0.75], rng=1)
    table = ContingencyTable.from_arrays(refused[0], wrong[0])
    for point, penalty in zip(found.points, (1, 3), strict=True):
        expected = best_operating_point(table, penalty)
        assert point.table == table
        assert point.best_refusal_rate.estimate == pytest.approx(expected.refusal_rate, abs=1e-9)
        assert point.best_utility.estimate == pytest.approx(expected.utility_at_best, abs=1e-9)
        assert point.utility.estimate == pytest.approx(expected.utility_today, abs=1e-12)
        assert point.best_refusal_rate.low < expected.refusal_rate < point.best_refusal_rate.high


def test_intervals_of_move_and_utility_against_closed_forms() -> None:
    refused, wrong = simulated(0.5, 0.6, [0.3, 0.6], 2000, 7)
    found = response_to_penalty(refused, wrong, [0.5, 0.75], rng=1)
    # Means of each question's contribution to the change in refusal rate and to utility at a penalty of 3.
    moved = refused[1].astype(float) - refused[0]
    earned = np.where(refused[1], 0.0, np.where(wrong[1], -3.0, 1.0))
    for estimate, values in ((found.move, moved), (found.points[1].utility, earned)):
        assert estimate.estimate == pytest.approx(values.mean(), abs=1e-12)
        # An end of 2,000 resamples errs by .06 standard errors.
        reach = 1.96 * values.std() / np.sqrt(2000)
        assert (estimate.low, estimate.high) == pytest.approx(values.mean() + np.array([-reach, reach]), abs=reach / 8)


def test_targets_are_sorted_with_their_rows() -> None:
    refused, wrong = simulated(0.5, 0.6, [0.7, 0.2], 500, 5)
    found = response_to_penalty(refused, wrong, [0.9, 0.0], rng=1)
    assert [point.target for point in found.points] == [0.0, 0.9]
    assert found.points[0].table == ContingencyTable.from_arrays(refused[1], wrong[1])
    assert found.move.estimate == pytest.approx(refused[0].mean() - refused[1].mean())


def test_the_same_seed_gives_the_same_intervals() -> None:
    first, second = (response_to_penalty(*simulated(0.5, 0.6, [0.2, 0.5], 300, 6), [0.5, 0.9], rng=8) for _ in range(2))
    assert first == second


def test_model_without_refusals_has_no_curve_but_other_numbers() -> None:
    refused, wrong = np.zeros((2, 50), bool), np.tile(np.arange(50) % 2 == 0, (2, 1))
    found = response_to_penalty(refused, wrong, [0.0, 0.5])
    assert (found.rho, found.error_rate) == (None, None)
    for estimate in (found.best_move, found.move_excess, found.points[0].best_utility, found.points[1].excess):
        assert (estimate.estimate, estimate.low, estimate.status) == (None, None, "undefined")
        assert estimate.reason == "nobody_refused"
    assert (found.move.estimate, found.points[1].utility.estimate) == (0, 0)


@pytest.mark.parametrize("scored", [np.zeros((2, 5), bool), np.zeros((2, 0), bool)])
def test_without_graded_questions_everything_is_undefined(scored) -> None:
    found = response_to_penalty(scored, scored, [0.0, 0.5], scored)
    point = found.points[0]
    numbers = (point.refusal_rate, point.utility, point.best_refusal_rate, point.excess, found.move, found.move_excess)
    assert {estimate.status for estimate in numbers} == {"undefined"}


def test_boundary_table_has_the_curve_of_perfect_ranking() -> None:
    refused = np.array([[True] * 6 + [False] * 4, [True] * 5 + [False] * 5])
    wrong = np.array([[True] * 7 + [False] * 3] * 2)
    found = response_to_penalty(refused, wrong, [0.5, 0.9], rng=1)
    assert found.points[0].best_refusal_rate.estimate == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize("targets", [[0.5], [0.5, 0.5], [0.5, 1.0], [50, 75], [-0.1, 0.5], [0.5, np.nan]])
def test_invalid_confidence_targets_raise(targets) -> None:
    with pytest.raises(ValueError, match="targets must be 2 different confidences"):
        response_to_penalty([[True, False]] * 2, [[True, False]] * 2, targets)


@pytest.mark.slow
@others_nightly(("rates", "n"), [((0.55, 0.65, 0.7, 0.7), 400), (None, 400), (None, 2000)])
def test_coverage_of_nominal_95_per_cent(rates, n: int) -> None:
    best = np.array([float(best_refusal_rate(0.5, 0.6, penalty)) for penalty in PENALTIES])
    own = best if rates is None else np.array(rates)
    hits, replicates = np.zeros((2, 4)), 120
    for seed in range(replicates):
        found = response_to_penalty(*simulated(0.5, 0.6, own, n, seed), TARGETS, n_resamples=300, rng=seed)
        for place, point in enumerate(found.points):
            hits[0, place] += point.excess.low <= own[place] - best[place] <= point.excess.high
            hits[1, place] += point.best_refusal_rate.low - 1e-9 <= best[place] <= point.best_refusal_rate.high + 1e-9
    # The standard error of a share of 120 is .02.
    assert (hits[0] / replicates).min() > 0.88
    assert (hits[1, :2] / replicates).min() > 0.88


# --- The remaining gap at equal refusal and error rates


def test_gap_at_error_rate_one_half_against_theory():
    rho = np.array([-0.9, -0.3, 0.0, 0.4, 0.8, 1.0])
    assert gap_left(rho, 0.5) == pytest.approx(np.arccos(rho) * 2 / math.pi)


@pytest.mark.parametrize(("rho", "mu"), [(0.5, 0.92), (0.3, 0.65), (-0.2, 0.4)])
def test_gap_against_one_minus_cohens_kappa(rho, mu):
    k = norm.ppf(mu)
    both = multivariate_normal.cdf([k, k], [0, 0], [[1, rho], [rho, 1]])
    agree = both + (1 - 2 * mu + both)
    kappa = (agree - (mu**2 + (1 - mu) ** 2)) / (2 * mu * (1 - mu))
    assert gap_left(rho, mu) == pytest.approx(1 - kappa, abs=1e-7)


def test_gap_of_a_table_uses_rho_and_error_rate_only():
    table = ContingencyTable(710, 30, 210, 50)
    found = remaining_gap(table)
    assert found.estimate == pytest.approx(float(gap_left(refusal_index(table).rho, 0.92)))
    # A table that refuses as often as it errs shows it as it is.
    even = ContingencyTable(400, 100, 100, 400)
    assert remaining_gap(even).estimate == pytest.approx(0.4)


def test_undefined_gap_has_a_reason_and_limits_are_exact():
    undefined = remaining_gap(ContingencyTable(0, 0, 60, 40), rng=0)
    assert (undefined.estimate, undefined.low, undefined.reason) == (None, None, "nobody_refused")
    perfect = remaining_gap(ContingencyTable(50, 0, 10, 40))
    assert (perfect.estimate, perfect.status) == (pytest.approx(0, abs=1e-12), "boundary")
    assert math.isnan(gap_left(0.5, 0.0))
    with pytest.raises(ValueError, match="error_rate"):
        gap_left(0.5, 1.5)


def test_coverage_of_the_interval():
    """Nominal .95; .954, .939 and .947 over 1,000 replicates here, at r .74 and mu .92, and at r .2 and mu .9."""
    rng, covered, replicates = np.random.default_rng(1), 0, 200
    rho, r, mu = 0.5, 0.4, 0.7
    h, k = -norm.ppf(r), -norm.ppf(mu)
    both = multivariate_normal.cdf([-h, -k], [0, 0], [[1, rho], [rho, 1]])
    truth = float(gap_left(rho, mu))
    for counts in rng.multinomial(800, [both, r - both, mu - both, 1 - r - mu + both], size=replicates).tolist():
        gap = remaining_gap(ContingencyTable(*counts), n_resamples=1_000, rng=rng)
        covered += gap.low <= truth <= gap.high
    assert 0.91 <= covered / replicates <= 0.98


# --- Refusing as the detection of wrong answers

ANY_COUNTS = st.tuples(*[st.integers(0, 40) | st.integers(0, 10**6)] * 4)


def named(counts, **arguments) -> dict:
    return {metric.name: metric for metric in abstention_metrics(ContingencyTable(*counts), **arguments)}


def test_the_metrics_against_counting_questions() -> None:
    rng = np.random.default_rng(6)
    refused, wrong = rng.random((2, 500)) < [[0.4], [0.7]]
    found = {
        metric.name: metric.estimate for metric in abstention_metrics(ContingencyTable.from_arrays(refused, wrong))
    }
    precision, recall = wrong[refused].mean(), refused[wrong].mean()
    expected = {
        "refusal_precision": precision,
        "refusal_recall": recall,
        "abstention_f1": 2 * precision * recall / (precision + recall),
        "over_refusal": refused[~wrong].mean(),
        "recoverable_accuracy": (~wrong)[refused].mean(),
    }
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "counts", "low", "high"),
    [
        # R: prop.test(successes, n, correct=FALSE)$conf.int with (710, 740), (710, 920), (30, 80), (0, 12), (7, 7)
        ("refusal_precision", (710, 30, 210, 50), 0.942716261717, 0.971457036822),
        ("refusal_recall", (710, 30, 210, 50), 0.743521103382, 0.797697300735),
        ("over_refusal", (710, 30, 210, 50), 0.276941787015, 0.484512745369),
        ("recoverable_accuracy", (12, 0, 1, 1), 0, 0.242494006655),
        ("refusal_recall", (7, 2, 0, 3), 0.645669564933, 1),
    ],
)
def test_intervals_against_r(name: str, counts, low: float, high: float) -> None:
    metric = named(counts)[name]
    assert (metric.low, metric.high) == pytest.approx((low, high), abs=1e-11)


@pytest.mark.parametrize("counts", [(30, 10, 20, 40), (3, 12, 40, 9)])
def test_interval_of_f1_against_inverting_the_score_test(counts) -> None:
    # 2 n11 - f1 (2 n11 + n10 + n01) has mean zero under a true F1, and a variance that this F1 gives, among the m
    # questions that were refused or wrong.
    both, either = counts[0], counts[1] + counts[2]
    m = both + either

    def statistic(f1: float) -> float:
        share = f1 / (2 - f1)
        scores = np.array([2 - 2 * f1, -f1])
        spread = np.sqrt(m * (share * scores[0] ** 2 + (1 - share) * scores[1] ** 2))
        return float((both * scores[0] + either * scores[1]) / spread)

    metric = named(counts, confidence_level=0.9)["abstention_f1"]
    z = norm.ppf(0.95)
    low = brentq(lambda f1: statistic(f1) - z, 1e-6, metric.estimate)
    high = brentq(lambda f1: statistic(f1) + z, metric.estimate, 1 - 1e-6)
    assert (metric.low, metric.high) == pytest.approx((low, high), abs=1e-9)


@given(ANY_COUNTS)
def test_every_interval_contains_its_estimate_or_has_a_reason_property(counts) -> None:
    for metric in named(counts).values():
        if metric.status == "undefined":
            assert metric.reason
            assert metric.estimate is metric.low is metric.high is None
        else:
            assert 0 <= metric.low <= metric.estimate <= metric.high <= 1
            assert metric.low < metric.high


@pytest.mark.parametrize(
    ("counts", "reasons"),
    [
        ((0, 0, 0, 0), ["no_questions"] * 5),
        ((0, 0, 3, 4), ["nobody_refused", None, "nobody_refused", None, "nobody_refused"]),
        ((0, 3, 0, 4), [None, "all_right", "all_right", None, None]),
        ((3, 0, 4, 0), [None, None, None, "all_wrong", None]),
        ((0, 0, 0, 4), ["nobody_refused", "all_right", "nobody_refused", None, "nobody_refused"]),
    ],
)
def test_undefined_metrics_say_why(counts, reasons) -> None:
    assert [metric.reason for metric in named(counts).values()] == reasons


def test_coverage_of_f1() -> None:
    # The number of questions refused or wrong is random here, but the interval treats it as fixed.
    cells, n = np.array([0.25, 0.17, 0.35, 0.23]), 150
    truth = 2 * cells[0] / (2 * cells[0] + cells[1] + cells[2])
    tables = np.random.default_rng(8).multinomial(n, cells, size=2000).tolist()
    metrics = [named(counts)["abstention_f1"] for counts in tables]
    # The standard error of the share is .005.
    assert 0.935 < np.mean([metric.low <= truth <= metric.high for metric in metrics]) < 0.965
