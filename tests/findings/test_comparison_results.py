"""Comparisons and plans as data: frames agree with documents, and plans match `stats`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.analysis import Analysis
from refusal_index.data.outcome_table import Identification, outcome_table, write_outcomes
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.comparison import PairComparison, compare_pair
from refusal_index.findings.draws import corrected_indices
from refusal_index.findings.planning import (
    PlanOptions,
    plan_apart,
    plan_corrected,
    plan_scenario,
    scenarios_of,
    slopes_shown,
)
from refusal_index.findings.ranking import rank
from refusal_index.findings.run_results import RunResults, read_runs, runs_of_table
from refusal_index.render.comparison import pair_screen, ranking_screen
from refusal_index.render.format import to_text
from refusal_index.stats import (
    METRIC_NAMES,
    PlanningScenario,
    expected_half_width,
    questions_for_half_width,
    questions_to_tell_apart,
    repeats_half_width,
    split_budget,
)

N = 300
OPTIONS = Analysis()


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[RunResults, ...]:
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


def codes(found: PairComparison) -> dict[str, Mapping[str, Any]]:
    """Return the values of each statement by its code."""
    return {statement.code: statement.values for statement in found.statements}


def test_primary_comparison_is_unadjusted_and_others_match_holm_definition(runs):
    found = compare_pair((runs[0], runs[1]), OPTIONS)
    frame = found.to_frame()
    adjusted, given = frame["pvalue_holm"].to_list(), frame["pvalue"].to_list()
    assert adjusted[0] is None
    primary = {"metric": "refusal_index", "variant": "combined", "has_pvalue": True, "others": 26}
    assert codes(found)["primary"] == primary
    others = [place for place, p in enumerate(given) if p is not None][1:]
    for place in others:
        # Holm's definition: the maximum, over p-values up to this one, of p times the number of p-values not below it
        smaller = [other for other in others if given[other] <= given[place]]
        steps = [given[one] * sum(given[other] >= given[one] for other in others) for one in smaller]
        assert adjusted[place] == pytest.approx(min(1.0, max(steps)))
    assert sum(one is not None for one in adjusted) == len(others)


def test_the_index_of_the_only_variant_is_primary(runs):
    found = compare_pair((runs[0], runs[1]), Analysis(variant="low"))
    assert found.has_primary
    assert codes(found)["primary"]["variant"] is None


def test_two_runs_can_be_ranked(runs):
    assert len(rank(runs[:2], OPTIONS).ranking.runs) == 2


def test_pair_frame_agrees_with_document(runs):
    found = compare_pair((runs[0], runs[1]), OPTIONS)
    frame, document = found.to_frame(), found.to_document()
    joint = frame.filter(variant="combined").row(0, named=True)
    metric = document["joint"]["refusal_index"]
    assert document["joint"]["corrected_refusal_index"] is None
    assert document["joint_over"] == {"refusal_index": ("low", "high"), "corrected_refusal_index": ()}
    assert all(metric[key] == joint[key] for key in ("first", "second", "estimate", "low", "high", "pvalue"))
    assert frame.height == 1 + 2 * len(METRIC_NAMES)
    for row in frame.filter(variant="low").iter_rows(named=True):
        metric = document["variants"][0]["metrics"][row["metric"]]
        assert all(
            metric[key] == row[key] for key in ("first", "second", "estimate", "low", "high", "pvalue", "status")
        )
    json.dumps(document, allow_nan=False)


def test_ranking_frame_agrees_with_document(runs):
    found = rank(runs, OPTIONS)
    assert found.to_frame().to_dicts() == [
        {key: value for key, value in run.items() if key != "row"} for run in found.to_document()["runs"]
    ]


CORRECTED = "corrected_refusal_index"


def at_temperature_0(run: RunResults) -> RunResults:
    return replace(run, about={"sent": {"model": {"temperature": 0.0}}})


def test_corrected_index_at_temperature_0_equals_ri_and_is_not_compared(runs):
    alike = [at_temperature_0(run) for run in runs]
    found = compare_pair(alike[:2], OPTIONS)
    assert set(found.to_frame()["metric"]) == {*METRIC_NAMES}
    assert "corrected_repeats_ri" in codes(found)
    document = found.to_document()
    for indices in (
        document["joint"],
        document["joint_over"],
        *(variant["metrics"] for variant in document["variants"]),
    ):
        assert indices[CORRECTED] == indices["refusal_index"] is not None
    ranked, corrected = (rank(alike, Analysis(metric=m)).to_document() for m in ("refusal_index", CORRECTED))
    assert (ranked["runs"], corrected["metric"]) == (corrected["runs"], CORRECTED)
    one_of_them = compare_pair((runs[0], alike[1]), OPTIONS)
    assert "corrected_repeats_ri" not in codes(one_of_them)
    assert CORRECTED not in set(one_of_them.to_frame()["metric"])


def sampled(name: str, slope: float, noise: float, n: int = 1000, seed: int = 0) -> RunResults:
    """Return a run sampled twice, given how closely its refusals follow errors and how random they are."""
    hard, own = np.random.default_rng(7).standard_normal((2, n))
    rng = np.random.default_rng(seed)
    inclined = slope * hard + math.sqrt(1 - slope * slope) * own
    refused, wrong = (one + noise * rng.standard_normal((2, n)) > 0 for one in (inclined, hard))
    rows = (
        (
            Identification(name, "d", "low", draw),
            Question(f"q{i}", "?", "!"),
            Outcome(bool(r), bool(w), forced_grade=Grade.INCORRECT if w else Grade.CORRECT),
        )
        for draw in (0, 1)
        for i, (r, w) in enumerate(zip(refused[draw], wrong[draw], strict=True))
    )
    return runs_of_table(Path(f"{name}.parquet"), outcome_table(rows), {})[0]


SAYS = {"disagree": "indices_disagree", "random": "models_differ_in_randomness"}


@pytest.mark.parametrize(
    ("slope", "noise", "disagree", "random"),
    [
        (0.6, 2.0, True, True),  # same corrected index; RI differs by sampling noise
        (0.6, 0.3, False, False),
        (0.1, 0.3, False, False),
        (-0.3, 1.0, False, True),
    ],
)
def test_comparison_notes_disagreeing_indices_and_differing_randomness(slope, noise, disagree, random):
    steady, other = sampled("steady", 0.6, 0.3), sampled("other", slope, noise, seed=1)
    for sides in ((steady, other), (other, steady)):
        found = compare_pair(sides, OPTIONS)
        pvalues = [row[2].pvalue < 0.05 for row in found.rows() if row[0] in ("refusal_index", CORRECTED)]
        assert (pvalues[0] != pvalues[1]) == disagree
        assert (found.corrected.reliability_pvalue < 0.05) == random
        by_code = codes(found)
        assert {name: code in by_code for name, code in SAYS.items()} == {"disagree": disagree, "random": random}
        assert [one["more"] for code, one in by_code.items() if code == SAYS["random"]] == ["other"] * random
        assert "corrected_ri" in by_code


def test_undefined_index_never_disagrees():
    steady, never = sampled("steady", 0.6, 0.3), sampled("never", 0.6, 0.3, seed=1)
    rows = never.tables["low"].with_columns(refused=pl.lit(value=False))
    found = compare_pair((steady, never.with_tables({"low": rows})), OPTIONS)
    assert (found.headline.pvalue, found.corrected.pvalue) == (None, None)
    assert not set(SAYS.values()) & set(codes(found))
    once = rows.with_columns(refused=pl.col("draw") == 1)  # RI is undefined; the corrected index may be defined
    found = compare_pair((steady, never.with_tables({"low": once})), OPTIONS)
    assert SAYS["disagree"] not in codes(found)


@pytest.mark.parametrize(
    ("n", "refuses", "conclusion"),
    [
        (6, lambda n: np.arange(n) % 3 == 0, "difference_not_settled"),
        (60, lambda n: np.arange(n) % 3 == 0, "ahead"),
    ],
)
def test_run_at_the_boundary_is_ahead_only_if_interval_excludes_0(n, refuses, conclusion):
    wrong = np.arange(n) < n // 2
    strict, other = (
        runs_of_table(
            Path(f"{name}.parquet"),
            outcome_table(
                (Identification(name, "d", "low"), Question(f"q{i}", "?", "!"), Outcome(bool(r), bool(w)))
                for i, (r, w) in enumerate(zip(refused, wrong, strict=True))
            ),
            {},
        )[0]
        for name, refused in (("strict", wrong), ("other", refuses(n)))
    )
    for sides in ((strict, other), (other, strict)):
        found = compare_pair(sides, OPTIONS)
        (by_code,) = [statement for statement in found.statements if statement.severity == "conclusion"]
        assert (found.headline.status, by_code.code) == ("boundary", conclusion)
        low, high = by_code.values["low"], by_code.values["high"]
        assert (low > 0) == (conclusion == "ahead")
        assert low < 1 < high
        assert (by_code.values["first"], by_code.values["size"]) == ("strict", None)
        index = next(line for line in to_text(pair_screen(found)).splitlines() if line.startswith("low ")).split()
        assert index[3].endswith("*") == (conclusion == "ahead"), "the mark agrees with the sentence"


def test_samples_that_differ_at_temperature_0_are_used():
    runs = [at_temperature_0(sampled(name, 0.6, noise)) for name, noise in (("a", 0.3), ("b", 1.0))]
    found, plain = (compare_pair(each, OPTIONS) for each in (runs, [replace(run, settings={}) for run in runs]))
    assert found.corrected == plain.corrected
    assert found.corrected.estimate != found.headline.estimate
    assert "corrected_repeats_ri" not in codes(found)


def test_document_includes_tests_of_models_at_the_boundary(runs, tmp_path):
    (asked,) = runs[0].tables["low"].partition_by("variant")
    rows = asked.with_columns(model=pl.lit("strict"), refused=pl.col("wrong"))
    write_outcomes(rows, tmp_path / "strict.parquet")
    found = rank((*runs, *read_runs([tmp_path / "strict.parquet"])), Analysis(variant="low"))
    document = json.loads(json.dumps(found.to_document()))["boundary_pairs"]
    assert [(pair["first"], pair["second"]) for pair in document] == [
        (name, "strict") for name in ("good", "fair", "<b>poor")
    ]
    for pair, metric in zip(document, found.ranking.boundary_pairs, strict=True):
        assert (pair["pvalue"], pair["pvalue_holm"]) == (metric.pvalue, metric.pvalue_holm)


@pytest.mark.parametrize("made", [lambda runs: compare_pair(runs[:2], OPTIONS), lambda runs: rank(runs, OPTIONS)])
def test_str_shows_text_blocks_without_arrays(made, runs):
    found = made(runs)
    assert str(found) == to_text((pair_screen if isinstance(found, PairComparison) else ranking_screen)(found))
    assert "array(" not in str(found)


def test_model_names_are_escaped_in_notebook_html(runs):
    found = rank(runs, OPTIONS)
    html = found._repr_html_()
    assert "&lt;b&gt;poor" in html
    assert "<b>" not in html


def test_plan_matches_stats(runs):
    scenario = scenarios_of(runs[1], "low")["low"]
    plan = plan_scenario(scenario, PlanOptions(half_width=0.1, difference=0.2))
    assert plan.sizes == (questions_for_half_width(scenario, 0.1),)
    expected = expected_half_width(scenario, plan.sizes[0].n, metric="f_score").half_width
    assert plan.other_metrics["f_score"] == expected
    assert plan.apart.second.refusal_index == scenario.refusal_index - 0.2
    widths = [size.half_width for size in plan_scenario(scenario, PlanOptions()).sizes]
    assert widths == sorted(widths, reverse=True)


def test_plan_for_two_runs_uses_their_correlation(runs):
    plan = plan_apart(runs[:2], "low", PlanOptions(questions=500))["low"]
    needed, chance = plan.needed, plan.chance
    own = [scenarios_of(run, "low")["low"] for run in runs[:2]]
    assert needed == questions_to_tell_apart(*own, power=0.8, correlation=needed.correlation)
    assert 0 < needed.correlation < 1
    assert chance.n == 500


def test_impossible_difference_has_no_plan(runs):
    scenario = scenarios_of(runs[1], "low")["low"]
    plan = plan_scenario(scenario, PlanOptions(difference=1.9))
    assert plan.apart is None
    assert plan.sizes


def test_budget_slopes_are_estimated_from_repeated_draws():
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
    asked = {name: pl.lit(name) for name in ("model", "dataset", "variant", "question")}
    run = RunResults.of_tables("m", Path("m.parquet"), "m", "d", {"normal": pl.DataFrame(rows).with_columns(**asked)})
    ((refusals, errors, index),) = slopes_shown(run).values()
    assert refusals == pytest.approx(1.0, abs=0.15)
    assert errors == pytest.approx(3.0, abs=0.4)
    (scenario,) = scenarios_of(run).values()
    plan = plan_corrected(scenario, PlanOptions(budget=5000), (refusals, errors, None), from_run=True)
    assert plan.slopes == (refusals, errors)
    steeper = PlanOptions(budget=5000, error_slope=5.0)
    chosen = plan_corrected(scenario, steeper, (refusals, errors, index), from_run=True)
    assert chosen.slopes == (refusals, 5.0)
    assert chosen.sizes[0].half_width < plan.sizes[0].half_width
    own = plan_corrected(scenario, PlanOptions(budget=5000), (refusals, errors, index), from_run=True)
    assert own.scenario.refusal_index == index == corrected_indices(list(run.tables.values()))[0].estimate
    # the model's correlation, without the sampling noise that RI includes
    assert plan.scenario.refusal_index == pytest.approx(6 / math.pi * math.asin(0.6 / 2), abs=0.08)
    assert scenario.refusal_index < plan.scenario.refusal_index - 0.1


SCENARIO = PlanningScenario(0.4, 0.6, 0.4)


def test_corrected_index_plan_matches_stats():
    """Plans for a half-width, for a number of questions, and for neither; every question is sampled twice."""
    given = {"refusal_slope": 2.0, "error_slope": 2.0}
    of_500 = plan_corrected(SCENARIO, PlanOptions(questions=500), from_run=False)
    assert of_500.sizes == (repeats_half_width(SCENARIO, 500, 500, **given),)
    (narrow,) = plan_corrected(SCENARIO, PlanOptions(half_width=0.1), from_run=False).sizes
    widths = [repeats_half_width(SCENARIO, n, n, **given).half_width for n in (narrow.n - 1, narrow.n)]
    assert widths[1] <= 0.1 < widths[0]
    table = plan_corrected(SCENARIO, PlanOptions(), from_run=False).sizes
    assert [one.half_width for one in table] == sorted((one.half_width for one in table), reverse=True)
    assert {200, 500, 1000, 2000, 4326} < {one.n for one in table}
    assert all(one.repeated == one.n and one.requests == 4 * one.n for one in table)


def test_corrected_index_budget_split_matches_stats_and_ri_uses_all():
    spent = plan_corrected(SCENARIO, PlanOptions(budget=5000), from_run=False).sizes
    assert spent == (split_budget(SCENARIO, 5000, refusal_slope=2.0, error_slope=2.0),)
    assert spent[0].requests <= 5000
    (of_ri,) = plan_scenario(SCENARIO, PlanOptions(budget=5000)).sizes
    assert of_ri == expected_half_width(SCENARIO, 3571)  # 5,000 requests of 1.4 a question
    assert of_ri.half_width < spent[0].half_width
    (of_few,) = plan_scenario(SCENARIO, PlanOptions(budget=5000, questions=100)).sizes
    assert of_few.n == 100


def test_plan_raises_if_ri_is_too_high_for_the_assumed_noise():
    with pytest.raises(OutcomeTableError, match="plan with higher slopes"):
        plan_corrected(PlanningScenario(0.4, 0.6, 0.9), PlanOptions(), (1.0, 1.0, None), from_run=True)


def two_prompts_run(model: str, rhos: tuple[float, float], folder: Path) -> Path:
    rng = np.random.default_rng(4)
    hard = rng.standard_normal(N)
    rows = [
        (
            Identification(model, "d", variant),
            Question(f"q{i}", "?", "!"),
            Outcome(bool(rho * h + math.sqrt(1 - rho * rho) * e > at), bool(h > 0)),
        )
        for variant, rho, at in zip(("low", "high"), rhos, (0.3, -0.3), strict=True)
        for i, (h, e) in enumerate(zip(hard, rng.standard_normal(N), strict=True))
    ]
    write_outcomes(outcome_table(rows), folder / f"{model}.parquet")
    return folder / f"{model}.parquet"


def test_ranked_runs_whose_interval_rests_on_two_prompts_are_named(tmp_path) -> None:
    paths = [
        two_prompts_run(name, rhos, tmp_path)
        for name, rhos in {"varies": (0.8, 0.1), "alike": (0.5, 0.5), "too": (0.4, 0.4)}.items()
    ]
    found = rank(read_runs(paths), OPTIONS)
    (statement,) = (item for item in found.statements if item.code == "two_prompts_ranked")
    assert "varies" in statement.values["runs"]
    assert tuple(statement.values["runs"]) == found.to_document()["two_prompts"]
    document = {row["run"]: row for row in found.to_document()["runs"]}
    assert document["varies"]["high"] - document["varies"]["low"] > 1
    sent = {"sent": {"model": {"temperature": 0}}}
    runs = [replace(run, about=sent) for run in read_runs(paths)]
    assert rank(runs, Analysis(metric=CORRECTED)).with_two_prompts == found.with_two_prompts
    single = rank(read_runs(paths), Analysis(variant="low"))
    assert "two_prompts_ranked" not in {item.code for item in single.statements}
