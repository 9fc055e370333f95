"""What comparisons and plans give to programs: frames and documents that agree, and plans that are those of `stats`."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from refusal_index.outcomes import Outcome, Question
from refusal_index.outcomes.comparison import CompareOptions
from refusal_index.outcomes.comparison_results import compare_two, rank_all
from refusal_index.outcomes.planning import (
    PlanOptions,
    plan_apart,
    plan_budget,
    plan_scenario,
    scenarios_of,
    slopes_shown,
)
from refusal_index.outcomes.presentation import to_text
from refusal_index.outcomes.runs import ComparedRun, read_runs
from refusal_index.outcomes.table import Identification, outcome_table, write_outcomes
from refusal_index.stats import METRIC_NAMES, expected_half_width, questions_for_half_width, questions_to_tell_apart

N = 300
OPTIONS = CompareOptions()


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[ComparedRun, ...]:
    folder = tmp_path_factory.mktemp("runs")
    hard = np.random.default_rng(9).standard_normal(N)
    for seed, (model, rho) in enumerate({"good": 0.8, "fair": 0.5, "<b>poor": 0.0}.items()):
        inclined = rho * hard + math.sqrt(1 - rho * rho) * np.random.default_rng(seed).standard_normal(N)
        rows = (
            (Identification(model, "d", variant), Question(f"q{i}", "?", "!"), Outcome(bool(r > at), bool(h > -0.3)))
            for variant, at in (("low", 0.3), ("high", -0.3))
            for i, (r, h) in enumerate(zip(inclined, hard, strict=True))
        )
        write_outcomes(outcome_table(rows), folder / f"{seed}.parquet")
    return read_runs(sorted(folder.iterdir()))


def test_one_comparison_is_primary_and_the_others_are_adjusted_by_definition(runs):
    found = compare_two(runs[0], runs[1], OPTIONS)
    frame = found.to_frame()
    adjusted, given = frame["pvalue_holm"].to_list(), frame["pvalue"].to_list()
    assert adjusted[0] is None
    assert "RI jointly is the primary comparison" in " ".join(repr(found).split())
    others = [place for place, p in enumerate(given) if p is not None][1:]
    for place in others:
        # by Holm's definition: the largest, over all p-values up to this one, of each times how many are not below it
        smaller = [one for one in others if given[one] <= given[place]]
        steps = [given[one] * sum(given[other] >= given[one] for other in others) for one in smaller]
        assert adjusted[place] == pytest.approx(min(1.0, max(steps)))
    assert sum(one is not None for one in adjusted) == len(others)


def test_the_index_of_the_only_variant_is_primary(runs):
    found = compare_two(runs[0], runs[1], CompareOptions(variant="low"))
    assert found.has_primary
    assert "RI is the primary comparison" in " ".join(repr(found).split())


def test_two_runs_can_be_ranked_too(runs):
    assert len(rank_all(runs[:2], OPTIONS).found.ranking.runs) == 2


def test_the_frame_of_a_pair_holds_what_its_document_holds(runs):
    found = compare_two(runs[0], runs[1], OPTIONS)
    frame, document = found.to_frame(), found.to_document()
    joint = frame.filter(variant="jointly").row(0, named=True)
    told = document["joint"]["single_draw_refusal_index"]
    assert document["joint"]["refusal_index"] is None
    assert all(told[key] == joint[key] for key in ("first", "second", "estimate", "low", "high", "pvalue"))
    assert frame.height == 1 + 2 * len(METRIC_NAMES)
    for row in frame.filter(variant="low").iter_rows(named=True):
        told = document["variants"][0]["metrics"][row["metric"]]
        assert all(told[key] == row[key] for key in ("first", "second", "estimate", "low", "high", "pvalue", "status"))
    json.dumps(document, allow_nan=False)


def test_the_frame_of_a_ranking_holds_what_its_document_holds(runs):
    found = rank_all(runs, OPTIONS)
    assert found.to_frame().to_dicts() == [
        {key: value for key, value in run.items() if key != "row"} for run in found.to_document()["runs"]
    ]


def test_at_temperature_0_nothing_is_said_to_be_drawn_repeatedly(runs):
    alike = [replace(run, settings={"decoding": {"temperature": 0.0}}) for run in runs]
    for given, some in ((alike, "so that RI is single-draw RI"), ((runs[0], *alike[1:]), None)):
        for found in (compare_two(given[0], given[1], OPTIONS), rank_all(given, OPTIONS)):
            said = " ".join(str(found).split())
            assert (some or "To compare RI, draw questions twice") in said
            assert "drawn repeatedly" not in said.lower()
    assert set(compare_two(*alike[:2], OPTIONS).to_frame()["metric"]) == {*METRIC_NAMES}


def test_models_at_the_boundary_have_their_tests_in_the_document_too(runs, tmp_path):
    (asked,) = runs[0].variants["low"].partition_by("variant")
    rows = asked.with_columns(model=pl.lit("strict"), refused=pl.col("wrong"))
    write_outcomes(rows, tmp_path / "strict.parquet")
    found = rank_all((*runs, *read_runs([tmp_path / "strict.parquet"])), CompareOptions(variant="low"))
    document = json.loads(json.dumps(found.to_document()))["boundary_pairs"]
    assert [(pair["first"], pair["second"]) for pair in document] == [
        (name, "strict") for name in ("good", "fair", "<b>poor")
    ]
    for pair, told in zip(document, found.found.ranking.boundary_pairs, strict=True):
        assert (pair["pvalue"], pair["pvalue_holm"]) == (told.pvalue, told.pvalue_holm)


@pytest.mark.parametrize("made", [lambda runs: compare_two(*runs[:2], OPTIONS), lambda runs: rank_all(runs, OPTIONS)])
def test_what_is_printed_is_the_blocks_and_no_array(made, runs):
    found = made(runs)
    assert repr(found) == to_text(found.blocks())
    assert "array(" not in repr(found)


def test_names_in_a_notebook_are_text(runs):
    found = rank_all(runs, OPTIONS)
    shown = found._repr_html_()
    assert "&lt;b&gt;poor" in shown
    assert "<b>" not in shown


def test_a_plan_is_that_of_stats(runs):
    scenario = scenarios_of(runs[1], "low")["low"]
    plan = plan_scenario("low", scenario, PlanOptions(half_width=0.1, difference=0.2))
    assert plan.sizes == (questions_for_half_width(scenario, 0.1),)
    expected = expected_half_width(scenario, plan.sizes[0].n, metric="f_score").half_width
    assert plan.other_metrics["f_score"] == expected
    assert plan.apart.second.refusal_index == scenario.refusal_index - 0.2
    widths = [size.half_width for size in plan_scenario("low", scenario, PlanOptions()).sizes]
    assert widths == sorted(widths, reverse=True)


def test_a_plan_for_two_runs_rests_on_their_own_correlation(runs):
    plan = plan_apart(runs[:2], "low", PlanOptions(questions=500))["low"]
    needed, chance = plan.needed, plan.chance
    own = [scenarios_of(run, "low")["low"] for run in runs[:2]]
    assert needed == questions_to_tell_apart(*own, power=0.8, correlation=needed.correlation)
    assert 0 < needed.correlation < 1
    assert chance.n == 500


def test_a_difference_that_no_index_can_have_has_no_plan(runs):
    scenario = scenarios_of(runs[1], "low")["low"]
    plan = plan_scenario("low", scenario, PlanOptions(difference=1.9))
    assert plan.apart is None
    assert plan.sizes


def test_slopes_of_a_budget_are_those_of_the_repeated_draws():
    rng = np.random.default_rng(3)
    x, own = rng.standard_normal((2, 1, 3000))
    refused, wrong = (
        slope * latent + rng.standard_normal((2, 3000)) > 0 for slope, latent in ((1.0, x), (3.0, 0.6 * x + 0.8 * own))
    )
    rows = [
        {
            "question_id": f"q{i}",
            "draw": draw,
            "refused": r,
            "wrong": w,
            "forced_grade": "incorrect" if w else "correct",
        }
        for draw in (0, 1)
        for i, (r, w) in enumerate(zip(refused[draw].tolist(), wrong[draw].tolist(), strict=True))
    ]
    asked = {name: pl.lit(name) for name in ("model", "dataset", "variant")}
    run = ComparedRun("m", Path("m.parquet"), "m", "d", {"normal": pl.DataFrame(rows).with_columns(**asked)})
    ((refusals, errors),) = slopes_shown(run).values()
    assert refusals == pytest.approx(1.0, abs=0.15)
    assert errors == pytest.approx(3.0, abs=0.4)
    (scenario,) = scenarios_of(run).values()
    plan = plan_budget(scenario, PlanOptions(budget=5000), (refusals, errors), single_draws=True)
    assert (plan.refusal_slope, plan.error_slope) == (refusals, errors)
    chosen = plan_budget(scenario, PlanOptions(budget=5000, error_slope=5.0), (refusals, errors), single_draws=True)
    assert (chosen.refusal_slope, chosen.error_slope) == (refusals, 5.0)
    assert chosen.split.half_width < plan.split.half_width
