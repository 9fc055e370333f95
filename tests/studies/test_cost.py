"""The studies cost_table, calibrator_cost and prompt_agreement."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.studies.made import cells, made_run
from tests.studies.outcomes_made import HOSTILE, check_files, run_of, table_rows
from tests.studies.scores_made import in_folder, record, with_scores

from refusal_index.findings.summary import Usage
from refusal_index.plugins.studies.cost import MODEL, PREDICTOR, TRAINED, calibrator_cost, cost_in_words, cost_table
from refusal_index.plugins.studies.prompts import prompt_agreement
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions

# --- Cost and agreement

OPTIONS = StudyOptions()


def with_usage(run, folder: Path, usage):
    document = {
        "variants": [
            {"model": run.model, "dataset": run.dataset, "variant": name, "usage": one} for name, one in usage.items()
        ],
    }
    (folder / "summary.json").write_text(json.dumps(document))
    return dataclasses.replace(run, source=folder)


def usage_of(requests: int, cost: float | None = None) -> dict:
    return {"requests": requests, "input_tokens": 10 * requests, "output_tokens": 2 * requests, "cost": cost}


def test_measured_and_required_costs(tmp_path):
    run = with_usage(
        made_run(variants=["low", "high"], n=100), tmp_path, {"low": usage_of(150, 0.5), "high": usage_of(160, 0.25)}
    )
    frame = cost_table.make([run], OPTIONS).frame
    low = frame.filter(variant="low").row(0, named=True)
    n11, n10, *_ = cells(run.tables["low"])
    assert low["two_pass_answers"] == 100 + n11 + n10
    assert low["forced_answers"] == n11 + n10
    assert (low["first_answers"], low["full_two_pass_answers"], low["sampling_answers"]) == (100, 200, 10_000)
    assert (low["requests"], low["input_tokens"], low["output_tokens"]) == (150, 1500, 300)
    assert low["requests_per_question"] == 1.5
    assert low["tokens_per_question"] == 18
    assert low["sampling_tokens"] == 10_000 * 12
    total = frame.filter(variant="total").row(0, named=True)
    assert (total["requests"], total["cost_usd"], total["questions"]) == (310, 0.75, 200)


def test_costs_without_their_graders_say_so(tmp_path):
    usage = {name: usage_of(40, 0.5) | {"unpriced_tokens": tokens} for name, tokens in (("low", 30), ("high", 0))}
    study = cost_table.make([with_usage(made_run(variants=["low", "high"], n=30), tmp_path, usage)], OPTIONS)
    assert study.frame["unpriced_tokens"].to_list() == [30, 0, 30]
    assert [note for note in study.notes if "without its graders" in note and "m" in note]
    priced = {name: usage_of(40, 0.5) for name in ("low", "high")}
    study = cost_table.make([with_usage(made_run(variants=["low", "high"], n=30), tmp_path, priced)], OPTIONS)
    assert not study.notes


def test_unknown_costs_are_not_zero(tmp_path):
    run = with_usage(made_run(variants=["low", "high"], n=30), tmp_path, {"low": usage_of(40)})
    study = cost_table.make([run], OPTIONS)
    high, total = (study.frame.filter(variant=name).row(0, named=True) for name in ("high", "total"))
    assert high["requests"] is None
    assert total["requests"] is None
    assert total["questions"] == 60
    assert study.printed(study.frame)["USD"].to_list() == ["-"] * 3
    assert any("unknown for m" in note for note in study.notes)


@pytest.mark.parametrize("content", ["{", "[]", '{"variants": [{}]}', '{"variants": 3}'])
def test_unreadable_summary_leaves_costs_unknown(tmp_path, content):
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
    for variant, outcomes in run.tables.items():
        answers[variant] = {}
        for row in outcomes.iter_rows(named=True):
            if row["draw"] == 0 and row["refused"] is False and row["wrong"] is not None:
                answers[variant][row["question_id"]] = not row["wrong"]
            if row["draw"] == 0 and row["forced_grade"] in {"correct", "incorrect"}:
                answers["forced"].setdefault(row["question_id"], row["forced_grade"] == "correct")
    both = answers[one].keys() & answers[other].keys()
    return len(both), sum(answers[one][question] == answers[other][question] for question in both)


def test_agreement_against_counting_questions():
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
    table = run.tables["normal"].filter(~pl.col("refused"))
    first, second = (dict(table.filter(draw=draw).select("question_id", "wrong").rows()) for draw in (0, 1))
    both = first.keys() & second.keys()
    assert (row["both_answered"], row["same"]) == (len(both), sum(first[q] == second[q] for q in both))


def test_diagonal_without_repeats_is_undefined_with_a_reason():
    frame = prompt_agreement.make([made_run(n=200)], OPTIONS).frame
    same = frame.filter(pl.col("prompt") == pl.col("other_prompt"))
    assert same["reason"].unique().to_list() == ["no_second_draw"]
    assert same["agreement"].null_count() == 5


def test_forced_answers_of_another_variant_count():
    frame = prompt_agreement.make([made_run(n=200)], OPTIONS).frame
    forced = frame.filter(prompt="low", other_prompt="forced").row(0, named=True)
    assert forced["both_answered"] > 50


def test_forced_refusals_do_not_count_as_answers():
    run = made_run(n=100, draws=2, variants=["low", "high"])
    refused = {name: table.with_columns(forced_grade=pl.lit("refused")) for name, table in run.tables.items()}
    frame = prompt_agreement.make([run.with_tables(refused)], OPTIONS).frame
    assert frame.filter(other_prompt="forced")["both_answered"].sum() == 0


def test_prompts_without_common_answers_raise():
    with pytest.raises(NotPossibleError, match="no two prompts of these answered a question in common"):
        prompt_agreement.make([made_run(variants=["low"], n=50)], OPTIONS)


def test_agreement_figure_and_printed_table():
    study = prompt_agreement.make([made_run("a", n=100), made_run("b", n=100, seed=2), made_run("c", n=90)], OPTIONS)
    assert len(study.figure().axes) == 4
    assert study.printed(study.frame).columns == ["Model", "Prompt", "low", "normal", "high", "highest", "forced"]


def test_equivalent_prompts_reach_the_kappa_of_repeated_draws():
    """Simulated: each question has its own probability of being right, the same under both prompts."""
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


# --- Cost of confidence scores

TRAINED_ON = {"training_examples": 55, "n_folds": 5, "seed": 0, "groups": 40, "grouped_by": "topic"}
RECORDS = [
    record("likelihood", usage=Usage(6000, 300, 60, 0.25)),
    record("p-answering", variant="low", draws=5, generations=300, seconds=None),
    record("p-ik", states=60, state_size=192, **TRAINED_ON),
    record("text-classifier", is_of_model=False, **TRAINED_ON),
]


@pytest.fixture
def run():
    return made_run("m", n=60, variants=["low", "high"], draws=3)


def rows_of(frame: pl.DataFrame) -> dict[str, dict]:
    return {row["method"]: row for row in frame.iter_rows(named=True)}


def test_costs_match_the_recorded_ones(run, tmp_path):
    found = rows_of(calibrator_cost.make([in_folder(run, tmp_path, RECORDS)], OPTIONS).frame)
    for one in RECORDS:
        row = found[one.method]
        assert (row["variant"], row["questions"], row["generations"]) == (one.variant, 60, one.generations)
        assert (row["requests"], row["input_tokens"], row["output_tokens"]) == (60, 6000, 300)
        assert (row["seconds"], row["own_requests"]) == (one.seconds, 12)
        assert (row["training_examples"], row["states"]) == (one.training_examples, one.states)
    assert found["likelihood"]["cost_usd"] == 0.25


def test_scores_are_described_with_cost_formulas_from_the_paper(run, tmp_path):
    found = rows_of(calibrator_cost.make([in_folder(run, tmp_path, RECORDS)], OPTIONS).frame)
    assert {name: (row["estimate_of"], row["cost"]) for name, row in found.items() if name != "refusal_index"} == {
        "likelihood": (MODEL, "N generations"),
        "p-answering": (MODEL, "S N generations"),
        "p-ik": (TRAINED, "N generations + N states of d numbers + training on N_train answers + N predictions"),
        "text-classifier": (PREDICTOR, "N generations + training on N_train answers + N predictions"),
    }
    stated = record("verbalised-number", draws=0, own_replies=1)
    assert cost_in_words(stated) == "N generations with a confidence"
    assert cost_in_words(record("p-true", own_replies=1)) == "N generations + N judgements of the answer"


def test_cost_of_the_index_for_one_prompt_and_for_the_whole_run(run, tmp_path):
    frame = calibrator_cost.make([in_folder(run, tmp_path, RECORDS)], OPTIONS).frame.filter(method="refusal_index")
    once, as_run = frame.iter_rows(named=True)
    refused = run.tables["low"].filter(draw=0)["refused"].sum()
    assert (once["variant"], once["generations"], once["requests"]) == ("low", 60 + refused, None)
    assert once["cost"] == "at most 2 N generations"
    # Three first answers under each of two prompts, and three forced answers that they share.
    assert (as_run["variant"], as_run["generations"]) == ("2 prompts, 3 draws", 60 * 3 * 2 + 60 * 3)
    assert (as_run["requests"], as_run["input_tokens"]) == (1000, 18_000)
    assert as_run["cost"] == "at most 3 S N generations"


def test_single_prompt_and_draw_is_one_row_with_its_cost(tmp_path):
    run = with_scores(made_run("m", n=60, variants=["low"]), ["likelihood"])
    frame = calibrator_cost.make([in_folder(run, tmp_path, RECORDS[:1])], OPTIONS).frame.filter(method="refusal_index")
    assert frame.select("variant", "requests", "draws").rows() == [("low", 500, 1)]


def test_unmeasured_scores_are_reported_as_unknown_not_zero(run, tmp_path):
    made = in_folder(run, tmp_path, RECORDS[:1])
    added = with_scores(made, {"likelihood": 1, "ours": 1})
    study = calibrator_cost.make([added], OPTIONS)
    assert rows_of(study.frame)["ours"]["requests"] is None
    assert study.notes == (
        "Unknown for m, ours: these scores were not computed by 'refusal-index confidence RUN --method NAME'.",
    )
    assert study.printed(study.frame).filter(Method="ours")["Requests"].item() == "-"
    check_files(study)


def test_runs_without_measured_costs_raise(run, tmp_path):
    with pytest.raises(NotPossibleError, match="refusal-index confidence"):
        calibrator_cost.make([run, with_scores(run)], OPTIONS)
    made = in_folder(run, tmp_path, RECORDS)
    (tmp_path / "confidence.json").write_text('{"record_version": 1, "methods": {"likelihood": [{}]}}')
    with pytest.raises(NotPossibleError, match="which measures their cost"):
        calibrator_cost.make([made], OPTIONS)


def test_one_method_and_many_runs_are_drawn_and_printed(run, tmp_path):
    check_files(calibrator_cost.make([in_folder(run, tmp_path, RECORDS[:1])], OPTIONS))
    hostile = [*RECORDS, record(HOSTILE)]
    runs = [in_folder(made_run(f"{HOSTILE}{i}", n=30), tmp_path / str(i), hostile) for i in range(4)]
    check_files(calibrator_cost.make(runs, OPTIONS))
