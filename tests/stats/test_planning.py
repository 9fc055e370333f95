"""Sample sizes: expected scenarios, the power to tell two models apart, and repeated draws."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks.coverage import planning as simulation
from benchmarks.coverage.corrected_index import Scenario as Drawn
from benchmarks.coverage.corrected_index import corrected, draw, probit
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from tests.tiers import others_nightly

from refusal_index import ContingencyTable, refusal_index
from refusal_index.data.published import paper_rows
from refusal_index.stats import (
    METRIC_NAMES,
    PlanningScenario,
    attenuated_refusal_index,
    expected_half_width,
    metrics,
    repeats_half_width,
    split_budget,
)
from refusal_index.stats.planning import (
    MIN_REPEATS,
    asymptotic_deviation,
    influence_correlation,
    power_to_tell_apart,
    questions_for_cv,
    questions_for_half_width,
    questions_over_interval,
    questions_to_tell_apart,
)

# --- Scenarios and sample sizes

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
SCENARIO = PlanningScenario(refusal_rate=0.74, error_rate=0.92, refusal_index=0.48)
OTHER_METRICS = [name for name in METRIC_NAMES if name != "refusal_index"]

PRINTED = paper_rows().select("correct_rate", "refusal_rate", "refusal_index").rows()


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(case["table"]))
def test_deviation_against_reference(case) -> None:
    table = ContingencyTable(*case["table"])
    sigma = asymptotic_deviation(table.refusal_rate, table.error_rate, float(case["RI"]))
    assert sigma / math.sqrt(table.n) == pytest.approx(float(case["se_RI"]), rel=1e-6)


@settings(deadline=None)
@given(st.tuples(*[st.integers(1, 3000)] * 4))
def test_deviation_of_a_finished_run_is_its_standard_error(counts) -> None:
    table = ContingencyTable(*counts)
    scenario = PlanningScenario.from_table(table)
    np.testing.assert_allclose(scenario.expected_cells(table.n), counts, rtol=1e-6)
    plan = expected_half_width(scenario, table.n, confidence_level=0.9)
    assert plan.half_width == pytest.approx(norm.ppf(0.95) * refusal_index(table).standard_error, rel=1e-6)


@pytest.mark.parametrize("metric", OTHER_METRICS)
def test_planned_half_widths_of_other_metrics_match_their_intervals(metric: str) -> None:
    # In a large table a score interval is a normal one.
    table = ContingencyTable(300_000, 100_000, 150_000, 450_000)
    plan = expected_half_width(PlanningScenario.from_table(table), table.n, metric=metric, weighted_score_p=0.2)
    (found,) = [value for value in metrics(table, weighted_score_p=0.2) if value.name == metric]
    assert plan.half_width == pytest.approx((found.high - found.low) / 2, rel=1e-4)
    assert (plan.status, plan.reason) == ("ok", None)


@given(st.floats(0.01, 0.3), st.sampled_from(METRIC_NAMES), st.sampled_from([0.8, 0.95]))
def test_planned_question_count_is_minimal(half_width: float, metric: str, level: float) -> None:
    plan = questions_for_half_width(SCENARIO, half_width, metric=metric, confidence_level=level)
    assert plan.half_width <= half_width
    if plan.n > 1:
        fewer = expected_half_width(SCENARIO, plan.n - 1, metric=metric, confidence_level=level)
        assert fewer.half_width > half_width * (1 - 1e-12)


def test_index_needs_more_samples_than_other_metrics_against_facts() -> None:
    # The paper says a quarter more; over its own sixteen rows the ratio to C/A runs from .6 to 43.
    scenarios = [PlanningScenario.from_published(*row) for row in PRINTED]
    needed = {
        metric: np.array([questions_for_cv(scenario, 0.1, metric=metric).n for scenario in scenarios])
        for metric in ("refusal_index", "correct_given_attempted", "f_score")
    }
    ratios = needed["refusal_index"] / needed["correct_given_attempted"]
    assert ratios.min() == pytest.approx(0.6, abs=0.05)
    assert ratios.max() == pytest.approx(43, abs=0.5)
    assert np.exp(np.log(ratios).mean()) == pytest.approx(4.3, abs=0.05)
    # F is much the same.
    assert np.exp(np.log(needed["refusal_index"] / needed["f_score"]).mean()) == pytest.approx(3.8, abs=0.05)


@pytest.mark.parametrize(("c", "r", "index"), PRINTED)
def test_scenario_reproduces_correct_rate_from_paper_table(c: float, r: float, index: float) -> None:
    scenario = PlanningScenario.from_published(c, r, index)
    assert scenario.cells[3] == pytest.approx(c, abs=1e-10)
    assert 0 <= scenario.error_rate <= 1 - c


def test_plan_reports_forced_requests_and_smallest_cell() -> None:
    plan = questions_for_half_width(SCENARIO, 0.1)
    assert plan.forced_requests == pytest.approx(0.74 * plan.n)
    assert plan.smallest_expected_cell == pytest.approx(plan.n * min(SCENARIO.cells))
    assert sum(SCENARIO.cells) == pytest.approx(1, abs=1e-15)
    rough = questions_for_half_width(SCENARIO, 0.4)
    assert rough.smallest_expected_cell < 5
    assert (rough.status, rough.reason) == ("ok", "expected_cell_below_5")
    assert questions_for_half_width(SCENARIO, 0.4, metric="f_score").reason is None


@pytest.mark.parametrize(
    ("counts", "reason"),
    [((0, 0, 6, 4), "nobody_refused"), ((6, 4, 0, 0), "everybody_refused"), ((6, 0, 4, 0), "all_wrong")],
)
def test_uninformative_pilot_gives_no_plan(counts, reason: str) -> None:
    scenario = PlanningScenario.from_table(ContingencyTable(*counts))
    for plan in (questions_for_half_width(scenario, 0.1), questions_for_cv(scenario, 0.1)):
        assert (plan.status, plan.reason) == ("undefined", reason)
        assert plan.n is plan.half_width is plan.smallest_expected_cell is plan.forced_requests is None
    np.testing.assert_allclose(scenario.cells, np.array(counts) / 10, atol=1e-15)


def test_a_pilot_at_the_boundary_gives_no_plan() -> None:
    scenario = PlanningScenario.from_table(ContingencyTable(5, 0, 2, 3))
    plan = questions_for_half_width(scenario, 0.1)
    assert (plan.status, plan.reason, plan.n) == ("boundary", "perfect_correlation", None)
    nearly = questions_for_half_width(PlanningScenario(0.1, 0.9, 0.99999), 0.1)
    assert (nearly.status, nearly.n) == ("boundary", None)


def test_degenerate_pilot_gives_no_plan_for_other_metrics() -> None:
    refused = PlanningScenario.from_table(ContingencyTable(6, 4, 0, 0))
    assert questions_for_cv(refused, metric="correct_given_attempted").reason == "everybody_refused"
    assert questions_for_cv(refused, metric="weighted_score").reason == "no_variance"
    assert questions_for_cv(PlanningScenario(0.5, 0.5, 0.0)).reason == "metric_is_zero"


@pytest.mark.parametrize(
    ("counts", "metric", "reason"),
    [
        ((0, 0, 6, 4), "refusal_precision", "nobody_refused"),
        ((0, 4, 0, 6), "refusal_recall", "all_right"),
        ((4, 0, 6, 0), "over_refusal", "all_wrong"),
        ((0, 0, 0, 9), "hallucination_rate", "all_right"),
        ((6, 4, 0, 0), "f_score", "everybody_refused"),
    ],
)
def test_rate_with_empty_denominator_has_no_plan(counts, metric: str, reason: str) -> None:
    plan = questions_for_half_width(PlanningScenario.from_table(ContingencyTable(*counts)), 0.1, metric=metric)
    assert (plan.status, plan.reason, plan.n) == ("undefined", reason, None)


def test_deviations_broadcast_and_are_nan_at_the_ends() -> None:
    found = asymptotic_deviation([0, 1, 0.5, 0.5, 0.5], [0.5, 0.5, 0, 0.5, 0.5], [0, 0, 0, -1, 0.3])
    assert np.isnan(found).tolist() == [True, True, True, True, False]
    assert asymptotic_deviation([[0.2], [0.4]], [0.5, 0.6, 0.7], 0.3).shape == (2, 3)
    assert isinstance(asymptotic_deviation(0.2, 0.5, 0.3), float)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PlanningScenario(74, 0.92, 0.5), r"refusal_rate must lie in \[0, 1\], got 74.0; is it a percentage"),
        (lambda: PlanningScenario(0.7, 0.92, 1.5), r"refusal_index must lie in \[-1, 1\], got 1.5"),
        (lambda: PlanningScenario(0.7, 0.92, None), "refusal_index must be a number if both rates are inside"),
        (lambda: PlanningScenario.from_table(ContingencyTable(0, 0, 0, 0)), "table must hold questions to plan from"),
        (lambda: PlanningScenario.from_published(0.6, 0.5, 0.3), "correct_rate at most 1 - refusal_rate, got 0.5 and"),
        (lambda: questions_for_half_width(SCENARIO, 0), "half_width must be a positive number, got 0"),
        (lambda: questions_for_cv(SCENARIO, -1), "cv must be a positive number, got -1"),
        (lambda: questions_for_cv(SCENARIO, metric="accuracy"), "metric must be one of correct_rate, .*got 'accuracy'"),
        (lambda: questions_for_cv(SCENARIO, weighted_score_p=-1), "weighted_score_p must be a number of at least 0"),
        (lambda: expected_half_width(SCENARIO, 0), "n must be a whole number of at least 1, got 0; is it a rate"),
        (lambda: expected_half_width(SCENARIO, 10.5), "n must be a whole number"),
        (lambda: expected_half_width(SCENARIO, 10, confidence_level=95), "confidence_level must lie strictly between"),
    ],
)
def test_impossible_arguments_are_errors(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@others_nightly("scenario", simulation.SCENARIOS)
def test_profile_intervals_are_as_wide_as_planned(scenario) -> None:
    row = simulation.half_width_row(scenario, 0.1, 150, np.random.default_rng(2))
    assert row.holds, row


def test_stopping_at_a_width_keeps_coverage_but_peeking_does_not() -> None:
    rows = list(simulation.sequential_rows(simulation.SCENARIOS[0], 1000, np.random.default_rng(9)))
    for row in rows:
        assert row.holds, row
    # Without a plan, far more than one run in twenty errs at some look.
    assert rows[0].value > 0.2


# --- Power to distinguish two models

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
def test_the_planned_number_for_a_difference_is_the_smallest(power: float, correlation: float) -> None:
    plan = questions_to_tell_apart(FIRST, SECOND, power=power, correlation=correlation)
    assert plan.power >= power - 1e-9
    if plan.n > 1:
        assert power_to_tell_apart(FIRST, SECOND, plan.n - 1, correlation=correlation).power < power + 1e-9


def test_planned_question_count_against_textbook_formula() -> None:
    # The other tail, which the formula leaves out, is negligible here.
    error = standard_error(1, 0.25)
    expected = ((norm.ppf(0.975) + norm.ppf(0.8)) * error / 0.12) ** 2
    assert questions_to_tell_apart(FIRST, SECOND, correlation=0.25).n == math.ceil(expected)


def test_the_order_of_the_models_does_not_matter() -> None:
    one, other = (questions_to_tell_apart(*models) for models in ((FIRST, SECOND), (SECOND, FIRST)))
    assert (one.n, one.power) == (other.n, other.power)
    assert one.difference == pytest.approx(-other.difference)


def test_indistinguishable_models_give_a_reason() -> None:
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


def test_correlation_is_1_with_itself_and_0_with_unrelated_model() -> None:
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
def test_impossible_arguments_of_power_are_errors(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@others_nightly("shared", [0.7, 0.0])
def test_simulated_power_matches_plan(shared: float) -> None:
    row = simulation.power_row((0.5, 0.4), shared, 1000, np.random.default_rng(4))
    assert row.holds, row


def test_question_counts_over_interval_match_its_ends() -> None:
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


# --- A budget split between questions and repeated draws

REPEATED_SCENARIO = PlanningScenario(0.4, 0.6, 0.5)


def test_nearly_deterministic_model_gains_little_from_repeats() -> None:
    constant = repeats_half_width(REPEATED_SCENARIO, 2000, 500, refusal_slope=1000, error_slope=1000)
    assert constant.half_width == pytest.approx(expected_half_width(REPEATED_SCENARIO, 2000).half_width, rel=0.02)


def test_zero_index_half_width_ignores_reliability_and_uses_both_pairs() -> None:
    none = PlanningScenario(0.4, 0.6, 0.0)
    every = repeats_half_width(none, 4000, 4000, refusal_slope=0.05, error_slope=0.05).half_width
    # For a purely random model, the two pairs of a question are worth two questions.
    attenuation = math.sin(math.atan(0.05)) ** 2
    assert every == pytest.approx(expected_half_width(none, 8000).half_width / attenuation, rel=0.01)
    assert attenuated_refusal_index(0.0, 0.05, 0.05) == 0


def test_more_questions_and_more_repeats_both_narrow_the_interval() -> None:
    widths = [
        repeats_half_width(REPEATED_SCENARIO, n, m).half_width for n, m in ((1000, 200), (4000, 200), (4000, 400))
    ]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("slope", [1.0, 2.0, 6.0])
def test_budget_split_is_optimal_against_brute_force(slope: float) -> None:
    slopes = {"refusal_slope": slope, "error_slope": slope}
    best = split_budget(REPEATED_SCENARIO, 4000, **slopes)
    assert best.requests <= 4000
    for repeated in range(MIN_REPEATS, 1001, 7):
        n = int((4000 - repeated * (3 - 0.4)) / 1.4)
        if n >= repeated:
            other = repeats_half_width(REPEATED_SCENARIO, n, repeated, **slopes)
            assert best.half_width <= 1.002 * other.half_width


def test_noisier_model_gets_more_repeats_and_wider_interval() -> None:
    plans = [split_budget(REPEATED_SCENARIO, 4000, refusal_slope=slope, error_slope=slope) for slope in (6, 3, 2, 1)]
    assert [plan.repeated for plan in plans] == sorted(plan.repeated for plan in plans)
    assert [plan.half_width for plan in plans] == sorted(plan.half_width for plan in plans)


def test_split_never_exceeds_available_questions() -> None:
    plan = split_budget(REPEATED_SCENARIO, 100_000, most_questions=600)
    assert (plan.n, plan.repeated) == (600, 600)


@pytest.mark.parametrize(
    ("scenario", "requests", "status", "reason"),
    [
        (REPEATED_SCENARIO, 150, "undefined", "budget_too_small"),
        (PlanningScenario(0.0, 0.6, None), 5000, "undefined", "nobody_refused"),
        (PlanningScenario(0.4, 0.6, 1.0), 5000, "boundary", "perfect_correlation"),
    ],
)
def test_impossible_split_gives_a_reason(scenario, requests: float, status: str, reason: str) -> None:
    plan = split_budget(scenario, requests)
    assert (plan.n, plan.repeated, plan.half_width, plan.status, plan.reason) == (None, None, None, status, reason)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: split_budget(REPEATED_SCENARIO, -1), "requests must be a positive number"),
        (lambda: split_budget(REPEATED_SCENARIO, 5000, refusal_slope=0), "refusal_slope must be a positive number"),
        (lambda: split_budget(REPEATED_SCENARIO, 5000, most_questions=0), "whole number of at least 1"),
        (lambda: repeats_half_width(REPEATED_SCENARIO, 100, 101), "repeated must be from 1 to n, 100, got 101"),
        (
            lambda: repeats_half_width(REPEATED_SCENARIO, 100, 50, error_slope=math.inf),
            "error_slope must be a positive number",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("scenario", "slopes"), [(REPEATED_SCENARIO, (2, 2)), (PlanningScenario(0.3, 0.7, 0.3), (1, 3))]
)
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
def test_simulated_scatter_matches_plan(repeats) -> None:
    scenario, refusal_slope, error_slope, n, repeated = repeats
    rng = np.random.default_rng(4)
    row = simulation.repeats_row(scenario, (refusal_slope, error_slope), (n, repeated), 1000, rng)
    assert row.holds, row
