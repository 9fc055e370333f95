"""What was paid, from the summary in a folder; and agreement counted question by question."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.studies.made import cells, made_run
from tests.studies.outcomes_made import run_of, table_rows

from refusal_index.plugins.studies.cost import cost_table
from refusal_index.plugins.studies.prompts import prompt_agreement
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions

OPTIONS = StudyOptions()


def in_folder(run, folder: Path, usage):
    document = {
        "variants": [
            {"model": run.model, "dataset": run.dataset, "variant": name, "usage": one} for name, one in usage.items()
        ],
    }
    (folder / "summary.json").write_text(json.dumps(document))
    return dataclasses.replace(run, source=folder)


def usage_of(requests: int, cost: float | None = None) -> dict:
    return {"requests": requests, "input_tokens": 10 * requests, "output_tokens": 2 * requests, "cost": cost}


def test_measured_and_needed(tmp_path):
    run = in_folder(
        made_run(variants=["low", "high"], n=100), tmp_path, {"low": usage_of(150, 0.5), "high": usage_of(160, 0.25)}
    )
    frame = cost_table.make([run], OPTIONS).frame
    low = frame.filter(variant="low").row(0, named=True)
    n11, n10, *_ = cells(run.variants["low"])
    assert low["two_pass_answers"] == 100 + n11 + n10
    assert low["forced_answers"] == n11 + n10
    assert (low["first_answers"], low["twice_all_answers"], low["sampling_answers"]) == (100, 200, 10_000)
    assert (low["requests"], low["input_tokens"], low["output_tokens"]) == (150, 1500, 300)
    assert low["requests_per_question"] == 1.5
    assert low["tokens_per_question"] == 18
    assert low["sampling_tokens"] == 10_000 * 12
    total = frame.filter(variant="total").row(0, named=True)
    assert (total["requests"], total["cost_usd"], total["questions"]) == (310, 0.75, 200)


def test_what_is_not_known_is_not_zero(tmp_path):
    run = in_folder(made_run(variants=["low", "high"], n=30), tmp_path, {"low": usage_of(40)})
    study = cost_table.make([run], OPTIONS)
    high, total = (study.frame.filter(variant=name).row(0, named=True) for name in ("high", "total"))
    assert high["requests"] is None
    assert total["requests"] is None
    assert total["questions"] == 60
    assert study.printed(study.frame)["USD"].to_list() == ["-"] * 3
    assert any("unknown for m" in note for note in study.notes)


@pytest.mark.parametrize("content", ["{", "[]", '{"variants": [{}]}', '{"variants": 3}'])
def test_a_summary_that_cannot_be_read_leaves_costs_unknown(tmp_path, content):
    run = dataclasses.replace(made_run(n=20), source=tmp_path)
    (tmp_path / "summary.json").write_text(content)
    study = cost_table.make([run], OPTIONS)
    assert study.frame["requests"].null_count() == study.frame.height
    assert study.figure().axes


def test_runs_stay_together_in_their_order(tmp_path):
    frame = cost_table.make([made_run("b", n=10), made_run("a", n=10)], OPTIONS).frame
    assert frame["model"].to_list() == ["b"] * 5 + ["a"] * 5


def agreement_by_hand(run, one: str, other: str) -> tuple[int, int]:
    """Go through the questions one by one; forced answers come from any variant that asked for them."""
    answers: dict[str, dict[str, bool]] = {"forced": {}}
    for variant, outcomes in run.variants.items():
        answers[variant] = {}
        for row in outcomes.iter_rows(named=True):
            if row["draw"] == 0 and row["refused"] is False and row["wrong"] is not None:
                answers[variant][row["question_id"]] = not row["wrong"]
            if row["draw"] == 0 and row["forced_grade"] in {"correct", "incorrect"}:
                answers["forced"].setdefault(row["question_id"], row["forced_grade"] == "correct")
    both = answers[one].keys() & answers[other].keys()
    return len(both), sum(answers[one][question] == answers[other][question] for question in both)


def test_agreement_question_by_question():
    run = made_run(n=300, draws=2)
    frame = prompt_agreement.make([run], OPTIONS).frame
    assert frame.height == 15
    for row in frame.filter(pl.col("prompt") != pl.col("other_prompt")).iter_rows(named=True):
        n, same = agreement_by_hand(run, row["prompt"], row["other_prompt"])
        assert (row["both_answered"], row["same"]) == (n, same)
        assert row["agreement"] == pytest.approx(same / n)
        assert row["low"] < row["agreement"] <= row["high"]
        assert row["kappa"] <= row["agreement"]


def test_the_diagonal_compares_two_draws_of_a_prompt():
    run = made_run(n=200, draws=3, variants=["normal"])
    row = prompt_agreement.make([run], OPTIONS).frame.filter(prompt="normal", other_prompt="normal").row(0, named=True)
    table = run.variants["normal"].filter(~pl.col("refused"))
    first, second = (dict(table.filter(draw=draw).select("question_id", "wrong").rows()) for draw in (0, 1))
    both = first.keys() & second.keys()
    assert (row["both_answered"], row["same"]) == (len(both), sum(first[q] == second[q] for q in both))


def test_without_repeats_there_is_no_diagonal_but_a_reason():
    frame = prompt_agreement.make([made_run(n=200)], OPTIONS).frame
    same = frame.filter(pl.col("prompt") == pl.col("other_prompt"))
    assert same["reason"].unique().to_list() == ["no_second_draw"]
    assert same["agreement"].null_count() == 5


def test_forced_answers_of_another_variant_count():
    frame = prompt_agreement.make([made_run(n=200)], OPTIONS).frame
    forced = frame.filter(prompt="low", other_prompt="forced").row(0, named=True)
    assert forced["both_answered"] > 50


def test_forced_refusals_are_no_answers():
    run = made_run(n=100, draws=2, variants=["low", "high"])
    for name, table in run.variants.items():
        run.variants[name] = table.with_columns(forced_grade=pl.lit("refused"))
    frame = prompt_agreement.make([run], OPTIONS).frame
    assert frame.filter(other_prompt="forced")["both_answered"].sum() == 0


def test_nothing_in_common_is_said():
    with pytest.raises(NotPossibleError, match="no two prompts of these answered a question in common"):
        prompt_agreement.make([made_run(variants=["low"], n=50)], OPTIONS)


def test_pictures_and_print():
    study = prompt_agreement.make([made_run("a", n=100), made_run("b", n=100, seed=2), made_run("c", n=90)], OPTIONS)
    assert len(study.figure().axes) == 4
    assert study.printed(study.frame).columns == ["Model", "Prompt", "low", "normal", "high", "highest", "forced"]


def test_prompts_that_change_nothing_have_the_kappa_of_their_own_draws():
    """Simulated: each question is right with a probability of its own, under both prompts alike."""
    rng, n = np.random.default_rng(3), 4_000
    right = rng.beta(0.7, 0.7, size=n)
    tables = {}
    for variant in ("low", "normal"):
        draws = [
            table_rows(np.zeros(n, bool), rng.random(n) > right, variant=variant, draw=draw, forced=False)
            for draw in range(2)
        ]
        tables[variant] = pl.concat(draws)
    frame = prompt_agreement.make([run_of(tables)], OPTIONS).frame
    row = frame.filter(prompt="low", other_prompt="normal").row(0, named=True)
    # Var(p) / (mean (1 - mean)) of a Beta(a, a) is 1 / (2 a + 1).
    assert row["kappa_ceiling"] == pytest.approx(1 / 2.4, abs=0.04)
    assert row["kappa"] == pytest.approx(row["kappa_ceiling"], abs=0.05)
    once = run_of({name: rows.filter(draw=0) for name, rows in tables.items()})
    assert prompt_agreement.make([once], OPTIONS).frame["kappa_ceiling"].null_count() == frame.height
