"""Bins, errors, curves, areas and indices recomputed question by question; the same questions for all methods."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import polars as pl
import pytest
from tests.scores import Score, confidence_table
from tests.studies.outcomes_made import HOSTILE, check_files, make_run, run_of, table_rows
from tests.studies.scores_made import forced_answers, with_scores
from tests.tiers import others_nightly

from refusal_index.plugins.studies.calibrator_comparison import calibrator_comparison, curve_rows
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions
from refusal_index.render.format import number
from refusal_index.stats import corrected_refusal_index, refusal_index

OPTIONS = StudyOptions()
METHODS = {"likelihood": 2.0, "self-consistency": 1.0, "p-ik": 0.5}


@pytest.fixture(scope="module")
def drawn():
    return make_run("a", n=200, draws=11, seed=2, variants=("low", "normal"))


@pytest.fixture(scope="module")
def scored(drawn):
    return with_scores(drawn, METHODS)


@pytest.fixture(scope="module")
def study(scored):
    return calibrator_comparison.make([scored], OPTIONS)


def wilson(hits: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    p, d = hits / n, 1 + z * z / n
    centre, reach = (p + z * z / (2 * n)) / d, z / d * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return centre - reach, centre + reach


def values_of(run, method: str) -> tuple[np.ndarray, np.ndarray]:
    rows = run.confidence.filter(method=method)
    return rows["confidence"].to_numpy(), ~rows["wrong"].to_numpy()


def check_bins(bins: pl.DataFrame, score: np.ndarray, right: np.ndarray) -> None:
    error = 0.0
    for row in bins.iter_rows(named=True):
        inside = (np.round(score, 9) > row["bin_low"]) & (np.round(score, 9) <= row["bin_high"])
        inside |= (row["bin_low"] == 0) & (score == 0)
        assert row["count"] == inside.sum()
        assert (row["x"], row["y"]) == pytest.approx((score[inside].mean(), right[inside].mean()))
        assert (row["low"], row["high"]) == pytest.approx(wilson(int(right[inside].sum()), int(inside.sum())))
        error += inside.mean() * abs(score[inside].mean() - right[inside].mean())
    assert bins["count"].sum() == score.size
    assert bins["ece"][0] == pytest.approx(error)
    assert bins["ece_low"][0] <= error <= bins["ece_high"][0]


def check_curve(curve: pl.DataFrame, score: np.ndarray, right: np.ndarray) -> None:
    for row in curve.drop_nulls("threshold").iter_rows(named=True):
        passed = score >= row["threshold"]
        assert (row["x"], row["y"]) == pytest.approx((passed[~right].mean(), passed[right].mean()))
        assert (row["low"], row["high"]) == pytest.approx(wilson(int(passed[right].sum()), int(right.sum())))
    assert curve.select("x", "y").row(0) == (0.0, 0.0)
    assert curve.select("x", "y").row(-1) == (1.0, 1.0)
    area = np.trapezoid(curve["y"], curve["x"])
    assert curve["auroc"][0] == pytest.approx(area)
    assert curve["auroc_low"][0] < area < curve["auroc_high"][0]


@pytest.mark.parametrize("method", METHODS)
def test_bins_and_curves_of_every_method_are_those_of_its_scores(scored, study, method):
    part = study.frame.filter(method=method)
    check_bins(part.filter(part="reliability"), *values_of(scored, method))
    check_curve(part.filter(part="roc"), *values_of(scored, method))
    assert part["questions"].unique().to_list() == [200]
    assert part["accuracy"][0] == pytest.approx(1 - forced_answers(scored)["wrong"].mean())


def test_methods_that_were_trained_are_marked(study):
    curves = study.frame.filter(pl.col("part") != "index")
    assert dict(curves.group_by("method").agg(pl.col("trained").first()).iter_rows()) == {
        "likelihood": False,
        "self-consistency": False,
        "p-ik": True,
    }
    table = study.printed(study.frame)
    assert table.filter(score="P(IK)")["of"].item() == "trained"
    assert table.filter(score="likelihood")["of"].item() == "the model"


def test_all_methods_are_shown_on_the_questions_that_all_of_them_score(drawn):
    run = with_scores(drawn, METHODS, asked={"self-consistency": 150})
    study = calibrator_comparison.make([run], OPTIONS)
    assert study.frame["questions"].unique().to_list() == [150]
    assert study.frame["left_out"].unique().to_list() == [50]
    shared = run.confidence.filter(pl.col("question_id").is_in(forced_answers(run)["question_id"].head(150).to_list()))
    check_curve(
        study.frame.filter(method="likelihood", part="roc"),
        *values_of(dataclasses.replace(run, confidence=shared), "likelihood"),
    )
    assert "a: 50 questions are left out, which not every method shown has a score and a grade for." in study.notes


def test_answers_without_a_grade_are_left_out_of_all_methods(scored):
    ungraded = pl.col("question_id").is_in(["q0", "q1", "q2"]) & (pl.col("method") == "likelihood")
    table = scored.confidence.with_columns(wrong=pl.when(~ungraded).then("wrong"))
    study = calibrator_comparison.make([dataclasses.replace(scored, confidence=table)], OPTIONS)
    assert study.frame["questions"].unique().to_list() == [197]


def test_a_method_without_scores_or_with_too_few_is_left_out_and_said(drawn):
    run = with_scores(drawn, {"likelihood": 1, "p-true": None, "topic": 1}, asked={"topic": 30})
    study = calibrator_comparison.make([run], OPTIONS)
    assert study.frame.filter(pl.col("part") != "index")["method"].unique().to_list() == ["likelihood"]
    assert "a: P(True) is left out: no score in 200 of 200 replies." in study.notes
    assert "a: topic alone is left out: it shares 30 questions with the others, of 200." in study.notes


def test_of_scores_that_differ_between_prompts_those_of_the_one_that_stands_for_the_run_are_shown(drawn):
    parts = [with_scores(drawn, ["p-answering"], variants={"p-answering": name}, seed=7) for name in drawn.variants]
    run = dataclasses.replace(drawn, confidence=pl.concat([one.confidence for one in parts]))
    study = calibrator_comparison.make([run], OPTIONS)
    assert study.frame.filter(part="roc")["variant"].unique().to_list() == ["normal"]
    assert "those of one prompt are used: P(Answering) normal." in study.caption


def test_the_index_of_each_prompt_is_over_the_same_questions(drawn):
    run = with_scores(drawn, METHODS, asked={"p-ik": 120})
    index = calibrator_comparison.make([run], OPTIONS).frame.filter(part="index")
    for variant, outcomes in run.variants.items():
        kept = outcomes.filter(pl.col("question_id").is_in([f"q{i}" for i in range(120)])).sort("draw")
        draws = kept.partition_by("draw", maintain_order=True)
        refused, wrong = (np.array([one[name].to_list() for one in draws]) for name in ("refused", "wrong"))
        single = refusal_index(refused=refused[0], wrong=wrong[0])
        row = index.filter(variant=variant, method="refusal_index").row(0, named=True)
        assert (row["y"], row["questions"]) == (pytest.approx(single.estimate), 120)
        assert (row["low"], row["high"]) == pytest.approx(tuple(single.confidence_interval()))
        corrected = corrected_refusal_index(refused, wrong, np.ones_like(wrong), single=(
            refused[0], wrong[0], np.ones(120, bool)
        ))  # fmt: skip
        row = index.filter(variant=variant, method="corrected_refusal_index").row(0, named=True)
        assert row["y"] == pytest.approx(corrected.estimate)
        assert row["low"] < row["y"] < row["high"]


def test_a_corrected_index_is_shown_only_where_there_is_one():
    run = with_scores(make_run("a", n=90, seed=1))
    study = calibrator_comparison.make([run], OPTIONS)
    index = study.frame.filter(part="index")
    assert index["method"].to_list() == ["refusal_index"] * len(run.variants)
    row = study.printed(study.frame).filter(score="refusals, normal").row(0, named=True)
    assert row["RI"].startswith(f"{index.filter(variant='normal')['y'].item():.3f} [")
    assert row["Corrected RI"] == row["AUROC"] == number(None)
    at_zero = dataclasses.replace(run, settings={"decoding": {"temperature": 0.0}})
    index = calibrator_comparison.make([at_zero], OPTIONS).frame.filter(part="index")
    assert set(index["method"]) == {"refusal_index", "corrected_refusal_index"}
    for (_,), pair in index.group_by("variant"):
        assert pair["y"][0] == pytest.approx(pair["y"][1], abs=1e-9)


def test_a_run_without_scores_has_p_answering_of_its_further_draws(drawn):
    study = calibrator_comparison.make([drawn], OPTIONS)
    draws = drawn.variants["normal"].partition_by("draw", maintain_order=True)
    share = np.mean([~rows["refused"].to_numpy() for rows in draws[1:]], axis=0)
    right = draws[0]["forced_grade"].to_numpy() == "correct"
    part = study.frame.filter(method="p-answering", variant="normal")
    check_bins(part.filter(part="reliability"), share, right)
    check_curve(part.filter(part="roc"), share, right)


def test_of_runs_without_scores_the_one_with_the_most_draws_stands_for_a_model(drawn, scored):
    more = make_run("a", n=60, draws=12, seed=3, variants=("high",), label="a (more)")
    frame = calibrator_comparison.make([drawn, more], OPTIONS).frame.filter(part="roc")
    assert set(frame.select("model", "variant").iter_rows()) == {("a (more)", "high")}
    only_scored = calibrator_comparison.make([more, scored], OPTIONS).frame.filter(part="roc")
    assert set(only_scored["method"]) == set(METHODS), "scores go before draws"


def test_few_values_are_said(drawn):
    study = calibrator_comparison.make([drawn, make_run("b", n=90, draws=2, variants=("normal",))], OPTIONS)
    assert any("b (P(Answering) 2)" in note for note in study.notes)
    assert study.frame.filter(model="b", part="roc").height == 3


def test_runs_without_draws_or_without_wrong_answers_are_said():
    with pytest.raises(NotPossibleError, match="repeated samples"):
        calibrator_comparison.make([make_run("a", draws=1)], OPTIONS)
    rows = pl.concat([table_rows(np.arange(20) % 2, np.zeros(20), draw=draw) for draw in range(3)])
    with pytest.raises(NotPossibleError, match=r"the AUROC is undefined \(all true\)"):
        calibrator_comparison.make([run_of({"normal": rows})], OPTIONS)
    with pytest.raises(NotPossibleError, match="m: likelihood is left out: all 20 answers are right"):
        calibrator_comparison.make([with_scores(run_of({"normal": rows}))], OPTIONS)


def test_methods_without_a_question_in_common_are_said(drawn):
    scores = [Score(f"q{i}", "likelihood" if i < 100 else "p-true", (i % 7) / 7, i % 3 == 0) for i in range(200)]
    study = calibrator_comparison.make([dataclasses.replace(drawn, confidence=confidence_table(scores))], OPTIONS)
    assert "a: P(True) is left out: no question has its score and a grade, and those of the others." in study.notes


def test_a_score_that_separates_has_a_curve_through_the_corner():
    rows = list(curve_rows(np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True]), OPTIONS))
    assert (0.0, 1.0) in [(row["x"], row["y"]) for row in rows if row["part"] == "roc"]
    assert {row["auroc"] for row in rows} == {1.0}


@others_nightly("count", [1, 3, 4, 9])
def test_it_draws_and_prints_few_methods_and_many(drawn, count):
    names = ["p-answering", "topic", "p-ik", "likelihood", HOSTILE, *(f"method-{i}" for i in range(9))][:count]
    study = calibrator_comparison.make([with_scores(drawn, names)], OPTIONS)
    check_files(study)
    assert study.printed(study.frame).height == count + 2


@pytest.mark.slow
def test_it_draws_and_prints_names_that_are_code_elsewhere(drawn, scored):
    others = [make_run(HOSTILE, n=60, draws=3, variants=("normal",)), with_scores(make_run("c", n=90), [HOSTILE])]
    check_files(calibrator_comparison.make([drawn, *others], OPTIONS))
    check_files(calibrator_comparison.make([scored, *others], OPTIONS))
