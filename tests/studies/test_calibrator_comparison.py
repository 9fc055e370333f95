"""The study calibrator_comparison, and its interval of the calibration error."""

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

from refusal_index.plugins.studies.calibrator_comparison import (
    calibrator_comparison,
    curve_rows,
)
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions
from refusal_index.render.format import number
from refusal_index.stats import corrected_refusal_index, expected_calibration_error, refusal_index
from refusal_index.stats.calibration import calibration_error_interval

# --- Calibrator comparison

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
def test_bins_and_curves_match_the_scores_of_each_method(scored, study, method):
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


def test_methods_are_compared_on_questions_that_all_of_them_score(drawn):
    run = with_scores(drawn, METHODS, asked={"self-consistency": 150})
    study = calibrator_comparison.make([run], OPTIONS)
    assert study.frame["questions"].unique().to_list() == [150]
    assert study.frame["left_out"].unique().to_list() == [50]
    shared = run.confidence.filter(pl.col("question_id").is_in(forced_answers(run)["question_id"].head(150).to_list()))
    check_curve(
        study.frame.filter(method="likelihood", part="roc"),
        *values_of(dataclasses.replace(run, scores=shared), "likelihood"),
    )
    assert "a: 50 questions are left out, which not every method shown has a score and a grade for." in study.notes


def test_answers_without_a_grade_are_left_out_of_all_methods(scored):
    ungraded = pl.col("question_id").is_in(["q0", "q1", "q2"]) & (pl.col("method") == "likelihood")
    table = scored.confidence.with_columns(wrong=pl.when(~ungraded).then("wrong"))
    study = calibrator_comparison.make([dataclasses.replace(scored, scores=table)], OPTIONS)
    assert study.frame["questions"].unique().to_list() == [197]


def test_methods_with_too_few_scores_are_left_out_and_reported(drawn):
    run = with_scores(drawn, {"likelihood": 1, "p-true": None, "topic": 1}, asked={"topic": 30})
    study = calibrator_comparison.make([run], OPTIONS)
    assert study.frame.filter(pl.col("part") != "index")["method"].unique().to_list() == ["likelihood"]
    assert "a: P(True) is left out: no score in 200 of 200 replies." in study.notes
    assert "a: topic alone is left out: it shares 30 questions with the others, of 200." in study.notes


def test_prompt_dependent_scores_use_the_reference_prompt(drawn):
    parts = [with_scores(drawn, ["p-answering"], variants={"p-answering": name}, seed=7) for name in drawn.tables]
    run = dataclasses.replace(drawn, scores=pl.concat([part.confidence for part in parts]))
    study = calibrator_comparison.make([run], OPTIONS)
    assert study.frame.filter(part="roc")["variant"].unique().to_list() == ["normal"]
    assert "those of one prompt are used: P(Answering) normal." in study.caption


def test_the_index_of_each_prompt_is_over_the_same_questions(drawn):
    run = with_scores(drawn, METHODS, asked={"p-ik": 120})
    index = calibrator_comparison.make([run], OPTIONS).frame.filter(part="index")
    for variant, outcomes in run.tables.items():
        kept = outcomes.filter(pl.col("question_id").is_in([f"q{i}" for i in range(120)])).sort("draw")
        draws = kept.partition_by("draw", maintain_order=True)
        refused, wrong = (np.array([draw[name].to_list() for draw in draws]) for name in ("refused", "wrong"))
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


def test_corrected_index_is_shown_only_if_available():
    run = with_scores(make_run("a", n=90, seed=1))
    study = calibrator_comparison.make([run], OPTIONS)
    index = study.frame.filter(part="index")
    assert index["method"].to_list() == ["refusal_index"] * len(run.tables)
    row = study.printed(study.frame).filter(score="refusals, normal").row(0, named=True)
    assert row["RI"].startswith(f"{index.filter(variant='normal')['y'].item():.3f} [")
    assert row["Corrected RI"] == row["AUROC"] == number(None)
    at_zero = dataclasses.replace(run, about={"sent": {"model": {"temperature": 0.0}}})
    index = calibrator_comparison.make([at_zero], OPTIONS).frame.filter(part="index")
    assert set(index["method"]) == {"refusal_index", "corrected_refusal_index"}
    for (_,), pair in index.group_by("variant"):
        assert pair["y"][0] == pytest.approx(pair["y"][1], abs=1e-9)


def test_run_without_scores_uses_p_answering_from_further_draws(drawn):
    study = calibrator_comparison.make([drawn], OPTIONS)
    draws = drawn.tables["normal"].partition_by("draw", maintain_order=True)
    share = np.mean([~rows["refused"].to_numpy() for rows in draws[1:]], axis=0)
    right = draws[0]["forced_grade"].to_numpy() == "correct"
    part = study.frame.filter(method="p-answering", variant="normal")
    check_bins(part.filter(part="reliability"), share, right)
    check_curve(part.filter(part="roc"), share, right)


def test_run_with_most_draws_represents_a_model_without_scores(drawn, scored):
    more = make_run("a", n=60, draws=12, seed=3, variants=("high",), label="a (more)")
    frame = calibrator_comparison.make([drawn, more], OPTIONS).frame.filter(part="roc")
    assert set(frame.select("model", "variant").iter_rows()) == {("a (more)", "high")}
    only_scored = calibrator_comparison.make([more, scored], OPTIONS).frame.filter(part="roc")
    assert set(only_scored["method"]) == set(METHODS), "scores go before draws"


def test_methods_of_the_paper_that_a_run_lacks_are_named_with_their_command(drawn, scored):
    notes = calibrator_comparison.make([drawn], OPTIONS).notes
    missing = [note for note in notes if "which the paper compares, is missing for" in note]
    assert [note.partition(",")[0] for note in missing] == ["APRICOT", "P(IK)"]
    assert "refusal-index confidence RUN --method apricot" in missing[0]
    assert "refusal-index confidence RUN --method p-ik --weights hf/NAME" in missing[1]
    with_scores_notes = calibrator_comparison.make([scored], OPTIONS).notes
    named = {note.partition(",")[0] for note in with_scores_notes if "is missing for" in note}
    assert named == {"APRICOT", "P(Answering)"}


def test_few_distinct_values_are_reported(drawn):
    study = calibrator_comparison.make([drawn, make_run("b", n=90, draws=2, variants=("normal",))], OPTIONS)
    assert any("b (P(Answering) 2)" in note for note in study.notes)
    assert study.frame.filter(model="b", part="roc").height == 3


def test_runs_without_draws_or_wrong_answers_raise():
    with pytest.raises(NotPossibleError, match="repeated samples"):
        calibrator_comparison.make([make_run("a", draws=1)], OPTIONS)
    rows = pl.concat([table_rows(np.arange(20) % 2, np.zeros(20), draw=draw) for draw in range(3)])
    with pytest.raises(NotPossibleError, match=r"the AUROC is undefined \(all true\)"):
        calibrator_comparison.make([run_of({"normal": rows})], OPTIONS)
    with pytest.raises(NotPossibleError, match="m: likelihood is left out: all 20 answers are right"):
        calibrator_comparison.make([with_scores(run_of({"normal": rows}))], OPTIONS)


def test_methods_without_common_questions_are_reported(drawn):
    scores = [Score(f"q{i}", "likelihood" if i < 100 else "p-true", (i % 7) / 7, i % 3 == 0) for i in range(200)]
    study = calibrator_comparison.make([dataclasses.replace(drawn, scores=confidence_table(scores))], OPTIONS)
    assert "a: P(True) is left out: no question has its score and a grade, and those of the others." in study.notes


def test_perfect_score_has_a_roc_curve_through_the_corner():
    rows = list(curve_rows(np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True]), OPTIONS))
    assert (0.0, 1.0) in [(row["x"], row["y"]) for row in rows if row["part"] == "roc"]
    assert {row["auroc"] for row in rows} == {1.0}


@others_nightly("count", [1, 3, 4, 9])
def test_few_and_many_methods_are_drawn_and_printed(drawn, count):
    names = ["p-answering", "topic", "p-ik", "likelihood", HOSTILE, *(f"method-{i}" for i in range(9))][:count]
    study = calibrator_comparison.make([with_scores(drawn, names)], OPTIONS)
    check_files(study)
    assert study.printed(study.frame).height == count + 2


@pytest.mark.slow
def test_hostile_names_are_drawn_and_printed_safely(drawn, scored):
    others = [make_run(HOSTILE, n=60, draws=3, variants=("normal",)), with_scores(make_run("c", n=90), [HOSTILE])]
    check_files(calibrator_comparison.make([drawn, *others], OPTIONS))
    check_files(calibrator_comparison.make([scored, *others], OPTIONS))


# --- Interval of the calibration error


def draw_scores(n: int, rng: np.random.Generator, claim) -> tuple[np.ndarray, np.ndarray]:
    """Draw scores and outcomes: what is claimed is a function of the probability."""
    probability = rng.random(n)
    return claim(probability), rng.random(n) < probability


def test_the_same_seed_gives_the_same_interval_around_the_estimate() -> None:
    score, right = draw_scores(300, np.random.default_rng(0), np.sqrt)
    found = calibration_error_interval(score, right, rng=3)
    assert found == calibration_error_interval(score, right, rng=3)
    assert 0 < found.low < expected_calibration_error(score, right).estimate < found.high < 1
    wider = calibration_error_interval(score, right, rng=3, confidence_level=0.99)
    assert wider.low < found.low < found.high < wider.high


def test_interval_uses_same_bins_as_error_for_scores_at_bin_edges() -> None:
    # 0.07 * 100 is not 7 in floating point; with so many questions the interval is next to the estimate.
    share = np.repeat(np.arange(101) / 100, 400)
    right = np.tile(np.arange(400) < 100, 101)
    found = calibration_error_interval(share, right, n_bins=100, rng=0, n_resamples=100)
    error = expected_calibration_error(share, right, n_bins=100).estimate
    assert error == pytest.approx(np.mean(np.abs(np.arange(101) / 100 - 0.25)), abs=1e-3)
    assert found.low == pytest.approx(error, abs=0.01)
    assert found.high == pytest.approx(error, abs=0.01)


@pytest.mark.parametrize(("score", "right"), [([], []), ([1.0] * 9, [True] * 9), ([0.0, 1.0] * 5, [False, True] * 5)])
def test_interval_is_nan_without_calibration_gaps(score, right) -> None:
    assert np.isnan(calibration_error_interval(score, np.array(right, bool))).all()


def test_interval_lies_within_0_and_1_and_reaches_estimate() -> None:
    right = np.random.default_rng(1).random(60) < 0.5
    worst = calibration_error_interval(np.where(right, 0.01, 0.99), right, rng=0)
    assert 0.9 < worst.low <= worst.high <= 1
    exact = calibration_error_interval(np.full(60, right.mean()), right, rng=0)
    assert exact.low == 0
    assert exact.high >= expected_calibration_error(np.full(60, right.mean()), right).estimate


def test_invalid_input_is_an_error() -> None:
    with pytest.raises(ValueError, match="score must lie in"):
        calibration_error_interval([50.0], [True])
    with pytest.raises(ValueError, match="confidence_level must lie strictly between 0 and 1"):
        calibration_error_interval([0.5], [True], confidence_level=95)


def test_interval_of_calibrated_scores_covers_zero_error() -> None:
    # The plain error of 200 questions is .07 on average. Of 40 intervals of 95% fewer than 34 hold 0 three times in
    # a thousand.
    rng = np.random.default_rng(7)
    found = [
        calibration_error_interval(*draw_scores(200, rng, lambda p: p), rng=rng, n_resamples=200) for _ in range(40)
    ]
    assert sum(interval.low == 0 for interval in found) >= 34


@pytest.mark.slow
@others_nightly(
    ("claim", "n", "error"),
    [
        (lambda p: p, 200, 0.0),
        (lambda p: p, 1000, 0.0),
        (lambda p: p**2, 200, 1 / 6),
        (lambda p: p**2, 1000, 1 / 6),
        (lambda p: 0.9 * p + 0.03, 400, 0.029),
    ],
)
def test_coverage_of_nominal_95_per_cent(claim, n: int, error: float) -> None:
    rng = np.random.default_rng(7)
    intervals = [calibration_error_interval(*draw_scores(n, rng, claim), rng=rng, n_resamples=200) for _ in range(300)]
    # The standard error of the share is .013.
    assert np.mean([low <= error <= high for low, high in intervals]) >= 0.9
