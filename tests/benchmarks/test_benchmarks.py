"""The benchmarks, tiny: they measure what they say they measure. No test asserts a speed."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from benchmarks.coverage import coarse_gate
from benchmarks.coverage.gate import (
    WORLDS,
    Lacking,
    Model,
    Scenario,
    World,
    baseline_of,
    candidate_of,
    correct_rate,
    recommended,
    scenario_rows,
    scenarios,
)
from benchmarks.many_choices import Measured, bench
from benchmarks.outcomes import THRESHOLDS, WORK, made_up_outcomes, measure, write, write_table
from benchmarks.same_outcomes import differences, renamed, values_of
from tests.tiers import others_nightly

from refusal_index.data.rates import contingency_table
from refusal_index.findings.gate_policy import COARSE, MARGINS
from refusal_index.findings.metrics import METRICS
from refusal_index.stats import refusal_index
from refusal_index.stats.intervals import spearman

# --- Simulation of release gates

BASE = baseline_of(World())


def numbers(model: Model) -> dict[str, float]:
    correct = correct_rate(model)
    return {
        "refusal_index": spearman(model.rho),
        "correct_rate": correct,
        "correct_given_attempted": correct / (1 - model.refusal),
        "refusal_rate": -model.refusal,
    }


@pytest.mark.parametrize("metric", MARGINS)
def test_candidate_is_worse_by_the_margin_in_one_metric_only(metric):
    before, now = numbers(BASE), numbers(candidate_of(metric, MARGINS[metric]))
    lost = {name: before[name] - now[name] for name in MARGINS}
    assert lost[metric] == pytest.approx(MARGINS[metric], abs=1e-9)
    assert all(lost[name] < MARGINS[name] for name in MARGINS if name != metric)


@pytest.mark.parametrize("scenario", [Scenario("refusal_index", 1, 300), Scenario("none", 0, 1000, 1, 0.65)], ids=str)
def test_gate_errors_are_bounded_and_power_is_sufficient(scenario):
    assert all(row.holds for row in scenario_rows(scenario, 60, np.random.default_rng(3)))


@pytest.mark.parametrize("metric", coarse_gate.LOST)
def test_candidate_of_the_coarse_gate_is_beyond_one_margin_only(metric):
    before, now = numbers(BASE), numbers(candidate_of(metric, COARSE[metric]))
    lost = {name: before[name] - now[name] for name in COARSE}
    assert lost[metric] == pytest.approx(COARSE[metric], abs=1e-9)
    assert all(lost[name] < COARSE[name] for name in COARSE if name != metric)


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario("none", 0, 300, power=0.7, policy=coarse_gate.COARSE_POLICY),
        Scenario("refusal_index", 1, 300, policy=coarse_gate.COARSE_POLICY),
    ],
    ids=str,
)
def test_coarse_gate_errs_seldom_with_300_questions(scenario):
    assert all(row.holds for row in coarse_gate.verdict_rows(scenario, 30, np.random.default_rng(3)))


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", tuple(coarse_gate.scenarios()), ids=str)
def test_coarse_gate_errs_as_often_as_the_guide_says(scenario):
    assert all(row.holds for row in coarse_gate.verdict_rows(scenario, 400, np.random.default_rng(4)))


def test_recommended_number_equals_that_of_an_independent_simulation():
    assert recommended(World(0.4, 0.55)) == pytest.approx(3553, abs=1.5)


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario("refusal_index", 1, 1000, world=WORLDS[0], lacking=Lacking(0.1, 0.02, "candidate")),
        Scenario("none", 0, 3000, world=WORLDS[0], lacking=Lacking(0.2, 0.0)),
    ],
    ids=str,
)
def test_gate_errs_no_more_often_where_answers_are_lacking(scenario):
    assert all(row.holds for row in scenario_rows(scenario, 20, np.random.default_rng(7)))


@pytest.mark.slow
@others_nightly("replicates", [30, 400])
def test_several_looks_err_no_more_often_than_one_look(replicates):
    rng = np.random.default_rng(5)
    assert all(row.holds for row in scenario_rows(Scenario("refusal_index", 1, 1000, looks=5), replicates, rng))


def test_clear_case_stops_before_using_all_questions():
    rows = list(scenario_rows(Scenario("refusal_rate", 2, 2000, 1, 0.8, 5), 10, np.random.default_rng(6)))
    assert all(row.holds for row in rows)
    (asked,) = (row.value for row in rows if row.quantity == "mean questions")
    assert asked < 1200


@pytest.mark.nightly
@pytest.mark.parametrize(
    "scenario", [scenario for scenario in scenarios() if scenario.n is not None and scenario.n <= 4000], ids=str
)
def test_every_scenario_holds(scenario):
    assert all(row.holds for row in scenario_rows(scenario, 400, np.random.default_rng(4)))


# --- Benchmark of many choices


@pytest.mark.slow
def test_tiny_benchmark_sends_one_request_per_question_and_pass():
    with bench(connections=4) as runs:
        many = runs.measure(questions=2, draws=5, max_choices=5)
    assert (many.completions, many.requests) == (20, 4)
    assert many.cpu > 0
    assert 0 < many.asking <= many.memory


def test_startup_cost_is_subtracted():
    start = Measured(1, 1, 1, cpu=2.0, asking=1, memory=1)
    assert Measured(10, 1000, 10, cpu=5.0, asking=1, memory=1).per_thousand(start) == pytest.approx(3.0)


# --- Benchmark of outcome tables


@pytest.mark.slow
def test_each_workload_runs_in_its_own_process(tmp_path):
    path = tmp_path / "few.parquet"
    assert write_table(path, models=2, questions=60) == 2 * 4 * 60
    one = measure("read and summarised", path)
    assert one.found == 2 * 4 * len(METRICS) + 2  # and a joint estimate of each model
    assert one.wall > 0 < one.cpu
    assert one.memory > 30


@pytest.mark.parametrize(("work", "found"), [("counted by Polars", 2 * 4 * 4), ("read and checked", 2 * 4 * 200)])
def test_counting_workloads_cover_the_whole_file(work, found, tmp_path):
    write(tmp_path / "few.parquet", models=2, questions=200)
    assert WORK[work](tmp_path / "few.parquet") == found


def test_simulated_models_have_the_intended_indices_and_rates():
    table = made_up_outcomes(models=2, questions=20_000)
    for variant in THRESHOLDS:
        one, other = (contingency_table(table.filter(model=f"model-0{number}", variant=variant)) for number in (0, 1))
        # 6/pi asin(rho/2) for rho .1 and .7
        assert refusal_index(one).estimate == pytest.approx(0.0955, abs=0.06)
        assert refusal_index(other).estimate == pytest.approx(0.683, abs=0.06)
    rates = [table.filter(variant=variant)["refused"].mean() for variant in THRESHOLDS]
    assert rates == sorted(rates)


# --- The comparison of two revisions


@pytest.mark.parametrize(
    ("here", "there", "found"),
    [
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, []),
        ({"a": 0.1 + 0.2}, {"a": 0.3}, []),
        ({"a": 0.3 + 1e-11}, {"a": 0.3}, ["a: 0.30000000001 here, 0.3 there"]),
        ({"a": 0.3}, {"a": None}, ["a: 0.3 here, null there"]),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": 2}]}, ["a[1].b: null here, 2 there"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a: [1] here, [1, 2] there"]),
        ({"a": 1}, {"b": 1}, ["a: 1 here, null there", "b: null here, 1 there"]),
        ({"reason": "few_refused"}, {"reason": "all_refused"}, ['reason: "few_refused" here, "all_refused" there']),
        ({"text": "Few were refused."}, {"text": "Few refusals."}, []),
        ({"run_seconds": 1.5}, {"run_seconds": 2.5}, []),
    ],
)
def test_differing_values_are_named_by_their_path(here, there, found):
    assert list(differences(here, there)) == found


def test_row_order_of_an_outcome_table_is_ignored(tmp_path):
    table = pl.DataFrame({"question_id": ["a", "b"], "wrong": [True, None]})
    table.write_parquet(tmp_path / "one.parquet")
    table.reverse().write_parquet(tmp_path / "other.parquet")
    assert values_of(tmp_path / "one.parquet") == values_of(tmp_path / "other.parquet")


def test_renamed_keys_and_codes_are_translated():
    older = {"index": [{"metric": "index", "text": "the index"}]}
    assert renamed(older, {"index": "refusal_index"}) == {
        "refusal_index": [{"metric": "refusal_index", "text": "the index"}]
    }
    nested = {"stopped": {"of": 1}, "confidence": [{"of": 2}], "of": 3}
    assert renamed(nested, {"stopped.of": "planned", "confidence.of": "scored_pass"}) == {
        "stopped": {"planned": 1},
        "confidence": [{"scored_pass": 2}],
        "of": 3,
    }


def test_penalty_is_translated_only_where_it_was_p_of_the_weighted_score():
    older = {"summary": {"penalty": 1, "truthfulness_weights": []}, "row": {"penalty": 1, "delta_signed": 2}}
    newer = {"summary": {"weighted_score_p": 1, "truthfulness_weights": []}, "row": {"p": 1, "delta_signed": 2}}
    of_a_wrong_answer = {"penalty": 1, "utility": 0}
    assert renamed({**older, "threshold": of_a_wrong_answer}, {}) == {**newer, "threshold": of_a_wrong_answer}
