"""A budget split between questions and repeated draws."""

import math

import numpy as np
import pytest
from benchmarks.coverage import planning as simulation
from benchmarks.coverage.corrected_index import Scenario as Drawn
from benchmarks.coverage.corrected_index import corrected, draw, probit
from tests.tiers import others_nightly

from refusal_index.stats import (
    PlanningScenario,
    attenuated_refusal_index,
    expected_half_width,
    repeats_half_width,
    split_budget,
)
from refusal_index.stats.planning import MIN_REPEATS

SCENARIO = PlanningScenario(0.4, 0.6, 0.5)


def test_of_a_nearly_constant_model_one_response_tells_nearly_all() -> None:
    constant = repeats_half_width(SCENARIO, 2000, 500, refusal_slope=1000, error_slope=1000)
    assert constant.half_width == pytest.approx(expected_half_width(SCENARIO, 2000).half_width, rel=0.02)


def test_without_an_index_reliabilities_do_not_matter_and_both_pairs_of_draws_do() -> None:
    none = PlanningScenario(0.4, 0.6, 0.0)
    every = repeats_half_width(none, 4000, 4000, refusal_slope=0.05, error_slope=0.05).half_width
    # Of a model that is chance alone the two pairs of a question are as good as two questions.
    attenuation = math.sin(math.atan(0.05)) ** 2
    assert every == pytest.approx(expected_half_width(none, 8000).half_width / attenuation, rel=0.01)
    assert attenuated_refusal_index(0.0, 0.05, 0.05) == 0


def test_more_questions_and_more_repeats_both_narrow_the_interval() -> None:
    widths = [repeats_half_width(SCENARIO, n, m).half_width for n, m in ((1000, 200), (4000, 200), (4000, 400))]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("slope", [1.0, 2.0, 6.0])
def test_no_other_split_of_the_budget_is_better(slope: float) -> None:
    slopes = {"refusal_slope": slope, "error_slope": slope}
    best = split_budget(SCENARIO, 4000, **slopes)
    assert best.requests <= 4000
    for repeated in range(MIN_REPEATS, 1001, 7):
        n = int((4000 - repeated * (3 - 0.4)) / 1.4)
        if n >= repeated:
            other = repeats_half_width(SCENARIO, n, repeated, **slopes)
            assert best.half_width <= 1.002 * other.half_width


def test_a_more_random_model_is_drawn_twice_more_often_and_known_less_well() -> None:
    plans = [split_budget(SCENARIO, 4000, refusal_slope=slope, error_slope=slope) for slope in (6, 3, 2, 1)]
    assert [plan.repeated for plan in plans] == sorted(plan.repeated for plan in plans)
    assert [plan.half_width for plan in plans] == sorted(plan.half_width for plan in plans)


def test_no_more_questions_than_there_are() -> None:
    plan = split_budget(SCENARIO, 100_000, most_questions=600)
    assert (plan.n, plan.repeated) == (600, 600)


@pytest.mark.parametrize(
    ("scenario", "requests", "status", "reason"),
    [
        (SCENARIO, 150, "undefined", "budget_too_small"),
        (PlanningScenario(0.0, 0.6, None), 5000, "undefined", "nobody_refused"),
        (PlanningScenario(0.4, 0.6, 1.0), 5000, "boundary", "perfect_correlation"),
    ],
)
def test_what_cannot_be_planned_says_why(scenario, requests: float, status: str, reason: str) -> None:
    plan = split_budget(scenario, requests)
    assert (plan.n, plan.repeated, plan.half_width, plan.status, plan.reason) == (None, None, None, status, reason)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: split_budget(SCENARIO, -1), "requests must be a positive number"),
        (lambda: split_budget(SCENARIO, 5000, refusal_slope=0), "refusal_slope must be a positive number"),
        (lambda: split_budget(SCENARIO, 5000, most_questions=0), "whole number of at least 1"),
        (lambda: repeats_half_width(SCENARIO, 100, 101), "repeated must be from 1 to n, 100, got 101"),
        (lambda: repeats_half_width(SCENARIO, 100, 50, error_slope=math.inf), "error_slope must be a positive number"),
    ],
)
def test_bad_arguments_are_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("scenario", "slopes"), [(SCENARIO, (2, 2)), (PlanningScenario(0.3, 0.7, 0.3), (1, 3))])
@pytest.mark.parametrize("repeated", [100_000, 20_000])
def test_half_width_against_the_interval_of_one_large_sample(scenario, slopes, repeated: int) -> None:
    rates, rho = (scenario.refusal_rate, scenario.error_rate), 2 * math.sin(math.pi / 6 * scenario.refusal_index)
    run = Drawn("", 100_000, *map(probit, slopes, rates), rho=rho, n_repeated=repeated)
    low, high = corrected(draw(run, np.random.default_rng(3))).confidence_interval()
    plan = repeats_half_width(scenario, 100_000, repeated, refusal_slope=slopes[0], error_slope=slopes[1])
    # A standard deviation that 20,000 questions estimate errs by about 1%.
    assert plan.half_width == pytest.approx((high - low) / 2, rel=0.02)


@pytest.mark.slow
@others_nightly("repeats", simulation.REPEATS, ids=str)
def test_simulated_scatter_is_as_planned(repeats) -> None:
    scenario, refusal_slope, error_slope, n, repeated = repeats
    rng = np.random.default_rng(4)
    row = simulation.repeats_row(scenario, (refusal_slope, error_slope), (n, repeated), 1000, rng)
    assert row.holds, row
