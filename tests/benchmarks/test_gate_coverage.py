"""The simulation of release gates: its models are what their names say, and errors and power are what is promised."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.coverage.gate import (
    ERROR,
    REFUSAL,
    RHO,
    SCENARIOS,
    Model,
    Scenario,
    candidate_of,
    correct_rate,
    scenario_rows,
)
from tests.tiers import others_nightly

from refusal_index.findings.gate_policy import MARGINS
from refusal_index.stats.intervals import spearman

BASE = Model(REFUSAL, ERROR, RHO)


def numbers(model: Model) -> dict[str, float]:
    correct = correct_rate(model)
    return {
        "refusal_index": spearman(model.rho),
        "correct_rate": correct,
        "correct_given_attempted": correct / (1 - model.refusal),
        "refusal_rate": -model.refusal,
    }


@pytest.mark.parametrize("metric", MARGINS)
def test_the_candidate_is_worse_in_one_number_by_its_margin_and_in_no_other_beyond(metric):
    before, now = numbers(BASE), numbers(candidate_of(metric, 1))
    lost = {name: before[name] - now[name] for name in MARGINS}
    assert lost[metric] == pytest.approx(MARGINS[metric], abs=1e-9)
    assert all(lost[name] < MARGINS[name] for name in MARGINS if name != metric)


@pytest.mark.parametrize("scenario", [Scenario("refusal_index", 1, 300), Scenario("none", 0, 1000, 1, 0.65)], ids=str)
def test_errors_are_bounded_and_power_is_there(scenario):
    assert all(row.holds for row in scenario_rows(scenario, 200, np.random.default_rng(3)))


@pytest.mark.slow
@others_nightly("replicates", [30, 400])
def test_looks_err_no_more_often_than_one(replicates):
    rng = np.random.default_rng(5)
    assert all(row.holds for row in scenario_rows(Scenario("refusal_index", 1, 1000, looks=5), replicates, rng))


def test_a_clear_case_takes_fewer_questions_than_are_there():
    rows = list(scenario_rows(Scenario("refusal_rate", 2, 2000, 1, 0.8, 5), 10, np.random.default_rng(6)))
    assert all(row.holds for row in rows)
    (asked,) = (row.value for row in rows if row.quantity == "mean questions")
    assert asked < 1200


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_every_scenario_holds(scenario):
    assert all(row.holds for row in scenario_rows(scenario, 400, np.random.default_rng(4)))
