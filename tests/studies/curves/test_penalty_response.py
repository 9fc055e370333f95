"""A model that follows the stated penalty, one that ignores it, and what cannot be told."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from tests.tiers import others_nightly

from refusal_index.plugins.studies.curves import best_operating_point, best_refusal_rate, response_to_penalty
from refusal_index.stats import ContingencyTable

TARGETS = (0.0, 0.5, 0.75, 0.9)
PENALTIES = (0.0, 1.0, 3.0, 9.0)


def asked(rho: float, error_rate: float, rates, n: int, seed: int):
    """Refusals at the given rates by one latent score, and errors that go with it."""
    refusal, noise = np.random.default_rng(seed).standard_normal((2, n))
    wrong = rho * refusal + np.sqrt(1 - rho**2) * noise > -ndtri(error_rate)
    return refusal > -ndtri(np.array(rates))[:, np.newaxis], np.tile(wrong, (len(rates), 1))


def test_a_model_that_follows_the_rule_shows_no_difference_and_one_that_ignores_it_does() -> None:
    best = [float(best_refusal_rate(0.6, 0.6, penalty)) for penalty in PENALTIES]
    obeying = response_to_penalty(*asked(0.6, 0.6, best, 4000, 3), TARGETS, rng=1)
    for point in obeying.points:
        assert point.excess.low <= 0 <= point.excess.high
    assert obeying.move_excess.low <= 0 <= obeying.move_excess.high
    ignoring = response_to_penalty(*asked(0.6, 0.6, [0.4] * 4, 4000, 3), TARGETS, rng=1)
    assert ignoring.points[0].excess.low > 0 > ignoring.points[3].excess.high
    assert (ignoring.move.estimate, ignoring.move_excess.high < 0) == (0, True)


def test_two_prompts_alike_have_the_best_points_of_their_one_table() -> None:
    refused, wrong = asked(0.5, 0.6, [0.3, 0.3], 1000, 4)
    found = response_to_penalty(refused, wrong, [0.5, 0.75], rng=1)
    table = ContingencyTable.from_arrays(refused[0], wrong[0])
    for point, penalty in zip(found.points, (1, 3), strict=True):
        expected = best_operating_point(table, penalty)
        assert point.table == table
        assert point.best_refusal_rate.estimate == pytest.approx(expected.refusal_rate, abs=1e-9)
        assert point.best_utility.estimate == pytest.approx(expected.utility_at_best, abs=1e-9)
        assert point.utility.estimate == pytest.approx(expected.utility_today, abs=1e-12)
        assert point.best_refusal_rate.low < expected.refusal_rate < point.best_refusal_rate.high


def test_intervals_of_the_move_and_of_what_is_earned_against_closed_forms() -> None:
    refused, wrong = asked(0.5, 0.6, [0.3, 0.6], 2000, 7)
    found = response_to_penalty(refused, wrong, [0.5, 0.75], rng=1)
    # Means of what each question adds: to the share refused, and to what is earned at a price of 3.
    moved = refused[1].astype(float) - refused[0]
    earned = np.where(refused[1], 0.0, np.where(wrong[1], -3.0, 1.0))
    for estimate, values in ((found.move, moved), (found.points[1].utility, earned)):
        assert estimate.estimate == pytest.approx(values.mean(), abs=1e-12)
        # An end of 2,000 resamples errs by .06 standard errors.
        reach = 1.96 * values.std() / np.sqrt(2000)
        assert (estimate.low, estimate.high) == pytest.approx(values.mean() + np.array([-reach, reach]), abs=reach / 8)


def test_targets_are_put_in_rising_order_with_their_rows() -> None:
    refused, wrong = asked(0.5, 0.6, [0.7, 0.2], 500, 5)
    found = response_to_penalty(refused, wrong, [0.9, 0.0], rng=1)
    assert [point.target for point in found.points] == [0.0, 0.9]
    assert found.points[0].table == ContingencyTable.from_arrays(refused[1], wrong[1])
    assert found.move.estimate == pytest.approx(refused[0].mean() - refused[1].mean())


def test_the_same_seed_gives_the_same_intervals() -> None:
    first, second = (response_to_penalty(*asked(0.5, 0.6, [0.2, 0.5], 300, 6), [0.5, 0.9], rng=8) for _ in range(2))
    assert first == second


def test_without_a_refusal_there_is_no_curve_and_the_rest_is_said() -> None:
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


def test_at_the_boundary_the_curve_is_that_of_perfect_order() -> None:
    refused = np.array([[True] * 6 + [False] * 4, [True] * 5 + [False] * 5])
    wrong = np.array([[True] * 7 + [False] * 3] * 2)
    found = response_to_penalty(refused, wrong, [0.5, 0.9], rng=1)
    assert found.points[0].best_refusal_rate.estimate == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize("targets", [[0.5], [0.5, 0.5], [0.5, 1.0], [50, 75], [-0.1, 0.5], [0.5, np.nan]])
def test_targets_that_are_none_are_refused(targets) -> None:
    with pytest.raises(ValueError, match="targets must be 2 different confidences"):
        response_to_penalty([[True, False]] * 2, [[True, False]] * 2, targets)


@pytest.mark.slow
@others_nightly(("rates", "n"), [((0.55, 0.65, 0.7, 0.7), 400), (None, 400), (None, 2000)])
def test_coverage_of_nominal_95_per_cent(rates, n: int) -> None:
    best = np.array([float(best_refusal_rate(0.5, 0.6, penalty)) for penalty in PENALTIES])
    own = best if rates is None else np.array(rates)
    hits, replicates = np.zeros((2, 4)), 120
    for seed in range(replicates):
        found = response_to_penalty(*asked(0.5, 0.6, own, n, seed), TARGETS, n_resamples=300, rng=seed)
        for place, point in enumerate(found.points):
            hits[0, place] += point.excess.low <= own[place] - best[place] <= point.excess.high
            hits[1, place] += point.best_refusal_rate.low - 1e-9 <= best[place] <= point.best_refusal_rate.high + 1e-9
    # The standard error of a share of 120 is .02.
    assert (hits[0] / replicates).min() > 0.88
    assert (hits[1, :2] / replicates).min() > 0.88
