"""Expected scenarios, how many questions they take, and what these buy."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks.coverage import planning as simulation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from tests.tiers import others_nightly

from refusal_index import ContingencyTable, refusal_index
from refusal_index.stats import METRIC_NAMES, metrics
from refusal_index.stats.planning import (
    PlanningScenario,
    asymptotic_deviation,
    expected_half_width,
    questions_for_cv,
    questions_for_half_width,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())
SCENARIO = PlanningScenario(refusal_rate=0.74, error_rate=0.92, refusal_index=0.48)
OTHER_METRICS = [name for name in METRIC_NAMES if name != "refusal_index"]

# The paper's table "Results on SimpleQA": correct rate, refusal rate, Refusal Index.
PRINTED = [
    (0.05, 0.16, 0.25),
    (0.05, 0.74, 0.49),
    (0.03, 0.68, 0.34),
    (0.04, 0.71, 0.34),
    (0.38, 0.36, 0.33),
    (0.19, 0.43, 0.39),
    (0.03, 0.84, 0.38),
    (0.34, 0.06, 0.28),
    (0.13, 0.31, 0.27),
    (0.09, 0.85, 0.52),
    (0.02, 0.93, 0.52),
    (0.19, 0.42, 0.30),
    (0.08, 0.41, 0.12),
    (0.16, 0.50, 0.42),
    (0.06, 0.79, 0.30),
    (0.05, 0.71, 0.15),
]


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
def test_planned_half_widths_of_other_metrics_are_those_of_their_intervals(metric: str) -> None:
    # In a large table a score interval is a normal one.
    table = ContingencyTable(300_000, 100_000, 150_000, 450_000)
    plan = expected_half_width(PlanningScenario.from_table(table), table.n, metric=metric, penalty=0.2)
    (found,) = [value for value in metrics(table, penalty=0.2) if value.name == metric]
    assert plan.half_width == pytest.approx((found.high - found.low) / 2, rel=1e-4)
    assert (plan.status, plan.reason) == ("ok", None)


@given(st.floats(0.01, 0.3), st.sampled_from(METRIC_NAMES), st.sampled_from([0.8, 0.95]))
def test_the_planned_number_is_the_smallest(half_width: float, metric: str, level: float) -> None:
    plan = questions_for_half_width(SCENARIO, half_width, metric=metric, confidence_level=level)
    assert plan.half_width <= half_width
    if plan.n > 1:
        fewer = expected_half_width(SCENARIO, plan.n - 1, metric=metric, confidence_level=level)
        assert fewer.half_width > half_width * (1 - 1e-12)


def test_more_samples_than_other_metrics_against_facts() -> None:
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
def test_a_published_row_gives_its_correct_rate_back(c: float, r: float, index: float) -> None:
    scenario = PlanningScenario.from_published(c, r, index)
    assert scenario.cells[3] == pytest.approx(c, abs=1e-10)
    assert 0 <= scenario.error_rate <= 1 - c


def test_a_plan_says_what_it_takes() -> None:
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
def test_a_pilot_that_says_nothing_gives_no_plan(counts, reason: str) -> None:
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


def test_other_metrics_without_a_plan() -> None:
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
def test_a_rate_over_no_question_has_no_plan(counts, metric: str, reason: str) -> None:
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
        (lambda: questions_for_cv(SCENARIO, penalty=-1), "penalty must be a number of at least 0"),
        (lambda: expected_half_width(SCENARIO, 0), "n must be a whole number of at least 1, got 0; is it a rate"),
        (lambda: expected_half_width(SCENARIO, 10.5), "n must be a whole number"),
        (lambda: expected_half_width(SCENARIO, 10, confidence_level=95), "confidence_level must lie strictly between"),
    ],
)
def test_impossible_arguments_are_errors(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@others_nightly("scenario", simulation.SCENARIOS)
def test_profile_intervals_come_out_as_wide_as_planned(scenario) -> None:
    row = simulation.half_width_row(scenario, 0.1, 150, np.random.default_rng(2))
    assert row.holds, row


def test_stopping_at_a_width_keeps_the_coverage_and_watching_does_not() -> None:
    rows = list(simulation.sequential_rows(simulation.SCENARIOS[0], 1000, np.random.default_rng(9)))
    for row in rows:
        assert row.holds, row
    # Without a plan the runs that err at some look are many times the promised one in twenty.
    assert rows[0].value > 0.2
