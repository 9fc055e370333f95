"""Curves and refusals counted question by question; which prompts a threshold beats, by hand in clear cases."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest
from tests.scores import Score, confidence_table
from tests.studies.outcomes_made import HOSTILE, check_files, make_run, run_of, table_rows
from tests.studies.scores_made import forced_answers, with_scores
from tests.tiers import others_nightly

from refusal_index.plugins.studies.scores import BEATEN, BEATS, NOT_TOLD, score_or_refusal
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions
from refusal_index.stats import compare_with_refusals

OPTIONS = StudyOptions()


@pytest.fixture(scope="module")
def run():
    return with_scores(make_run("a", n=300, seed=4), {"likelihood": 3.0, "p-ik": 0.3, "topic": 0.1})


@pytest.fixture(scope="module")
def study(run):
    return score_or_refusal.make([run], OPTIONS)


def test_curve_of_a_score_against_counting_right_answers(run, study):
    rows = run.confidence.filter(method="likelihood").sort("confidence")
    right = ~rows["wrong"].to_numpy()
    curve = study.frame.filter(part="curve", method="likelihood")
    assert curve.select("refusal_rate", "correct_rate").row(0) == (0.0, right.mean())
    assert curve.select("refusal_rate", "correct_rate").row(-1) == (1.0, 0.0)
    for row in curve.iter_rows(named=True):
        refused = round(row["refusal_rate"] * 300)
        if refused in {0, 300} or rows["confidence"][refused - 1] < rows["confidence"][refused]:
            assert row["correct_rate"] == pytest.approx(right[refused:].sum() / 300)


def test_refusals_of_each_prompt_use_the_same_forced_answers(run, study):
    wrong = forced_answers(run)["wrong"].to_numpy()
    for variant, outcomes in run.tables.items():
        refused = outcomes["refused"].to_numpy()
        row = study.frame.filter(part="refusals", variant=variant).row(0, named=True)
        assert row["refusal_rate"] == pytest.approx(refused.mean())
        assert row["correct_rate"] == pytest.approx((~refused & ~wrong).mean())
        assert row["low"] < row["correct_rate"] < row["high"]


def test_each_score_is_compared_with_each_prompt_at_its_refusal_rate(run, study):
    compared = study.frame.filter(part="comparison")
    assert compared.height == 3 * 3
    for row in compared.iter_rows(named=True):
        scores = run.confidence.filter(method=row["method"])
        refused = run.tables[row["variant"]]["refused"].to_numpy()
        found = compare_with_refusals(scores["confidence"].to_numpy(), refused, scores["wrong"].to_numpy())
        low, high = found.correct_rate.confidence_interval()
        assert (row["correct_rate"], row["by_score"]) == pytest.approx(
            (found.table.answered_right / 300, found.score_cells[3] / 300)
        )
        assert row["difference"] == pytest.approx(row["by_score"] - row["correct_rate"])
        assert (row["difference_low"], row["difference_high"]) == pytest.approx((low, high))
        assert row["verdict"] == (BEATEN if low > 0 else BEATS if high < 0 else NOT_TOLD)
    verdicts = dict(compared.filter(variant="normal").select("method", "verdict").iter_rows())
    assert verdicts == {"likelihood": BEATEN, "p-ik": NOT_TOLD, "topic": BEATS}


def test_clear_cases_get_the_expected_verdict():
    """The model refuses exactly its errors; one score does the same, another the opposite."""
    wrong = np.arange(100) < 40
    scores = [(f"q{i}", i / 100, bool(wrong[i])) for i in range(100)]
    table = confidence_table(
        [
            *(Score(question, "same", value, bad) for question, value, bad in scores),
            *(Score(question, "contrary", 1 - value, bad) for question, value, bad in scores),
        ]
    )
    perfect = run_of({"normal": table_rows(wrong, wrong)})
    frame = score_or_refusal.make([dataclasses.replace(perfect, scores=table)], OPTIONS).frame.filter(part="comparison")
    same, contrary = (frame.filter(method=name).row(0, named=True) for name in ("same", "contrary"))
    assert (same["difference"], same["reason"], same["verdict"]) == (0, "constant_difference", NOT_TOLD)
    assert (contrary["correct_rate"], contrary["by_score"]) == (0.6, 0.2)
    assert contrary["verdict"] == BEATS


def test_scores_of_other_answers_are_left_out_and_reported(run):
    own = run.confidence.filter(method="likelihood").with_columns(
        method=pl.lit("verbalised-number"), wrong=~pl.col("wrong"), **{"pass": pl.lit("probe")}
    )
    study = score_or_refusal.make([dataclasses.replace(run, scores=pl.concat([run.confidence, own]))], OPTIONS)
    assert "verbalised-number" not in study.frame["method"].to_list()
    assert "a: left out, since they score other answers than the rest: verbalised-number." in study.notes


def test_prompts_that_refuse_nothing_or_all_have_a_point_and_a_note(run):
    silent = run.tables["low"].with_columns(refused=pl.lit(value=False), variant=pl.lit("silent"))
    study = score_or_refusal.make([run.with_tables({**run.tables, "silent": silent})], OPTIONS)
    assert study.frame.filter(part="refusals", variant="silent")["refusal_rate"].to_list() == [0.0]
    assert study.frame.filter(part="comparison", variant="silent").is_empty()
    assert "a: nothing to compare under silent, which refused no question or all." in study.notes


def test_ungraded_questions_are_left_out_of_that_prompt_only(run):
    gone = pl.col("question_id").is_in(["q0", "q1"])
    low = run.tables["low"].with_columns(refused=pl.when(~gone).then("refused"))
    frame = score_or_refusal.make([run.with_tables({**run.tables, "low": low})], OPTIONS).frame
    assert frame.filter(part="refusals").select("variant", "questions").rows() == [
        ("low", 298),
        ("normal", 300),
        ("high", 300),
    ]


def test_runs_without_a_possible_comparison_raise(run):
    with pytest.raises(NotPossibleError, match="confidence scores") as error:
        score_or_refusal.make([make_run("a")], OPTIONS)
    assert error.value.notes == ()
    right = table_rows(np.arange(20) % 2, np.zeros(20))
    with pytest.raises(NotPossibleError, match="likelihood is left out: all 20 answers are right"):
        score_or_refusal.make([with_scores(run_of({"normal": right}))], OPTIONS)
    silent = {name: rows.with_columns(refused=pl.lit(value=False)) for name, rows in run.tables.items()}
    with pytest.raises(NotPossibleError, match="nothing to compare under low; normal; high"):
        score_or_refusal.make([run.with_tables(silent)], OPTIONS)


def test_printed_table_states_the_verdicts(study):
    table = study.printed(study.frame)
    assert table.columns[-1] == "refusals are"
    assert table.height == 9
    assert "In 3 of 9 comparisons the score beats the refusals" in study.caption


@others_nightly("count", [1, 9])
def test_few_methods_and_many_runs_are_drawn_and_printed(count):
    names = ["p-answering", "topic", "p-ik", HOSTILE, *(f"method-{i}" for i in range(9))][:count]
    alone = with_scores(make_run(HOSTILE, n=90), names)
    check_files(score_or_refusal.make([alone], OPTIONS))
    others = [with_scores(make_run(f"model-{i}", n=90, seed=i), names) for i in range(4)]
    check_files(score_or_refusal.make([alone, *others], OPTIONS))
