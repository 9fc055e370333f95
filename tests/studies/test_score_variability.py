"""Variability against the definitions, in both conventions, and the averages of the paper's own table."""

from __future__ import annotations

import statistics

import numpy as np
import polars as pl
import pytest
from tests.paper.printed import METRICS, VARIABILITY, VARIABILITY_AVERAGES
from tests.studies.made import made_run, rates

from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.plugins.studies.prompts import (
    VARIABILITY_SCHEMA,
    ratio_rows,
    score_variability,
    with_averages,
)
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions

OPTIONS = StudyOptions()

AVERAGES = ((-0.796, 0.978, 0.486, -0.542, -0.480, 0.072), (0.314, 0.388, 0.190, 0.220, 0.466, 0.092))


@pytest.fixture(scope="module")
def runs():
    return [made_run("a", n=500), made_run("b", rho=0.7, right=0.3, n=500, seed=1)]


@pytest.fixture(scope="module")
def study(runs):
    return score_variability.make(runs, OPTIONS)


def row_of(frame: pl.DataFrame, model: str, metric: str, p: float | None = None) -> dict:
    return frame.filter(pl.col("p").eq_missing(p), model=model, metric=metric).row(0, named=True)


def test_averages_of_the_papers_table():
    rows = [
        {"model": model, "metric": metric, "delta_signed": deltas[i], "cv": cvs[i]}
        for model, (deltas, cvs) in VARIABILITY.items()
        for i, metric in enumerate(METRICS)
    ]
    averaged = with_averages(pl.DataFrame(rows, schema=VARIABILITY_SCHEMA)).filter(models=5)
    assert averaged["metric"].to_list() == list(METRICS)
    for name, expected, printed in zip(("delta_signed", "cv"), AVERAGES, VARIABILITY_AVERAGES, strict=True):
        assert averaged[name].to_list() == pytest.approx(expected, abs=1e-9)
        assert averaged[name].to_list() == pytest.approx(printed, abs=0.005)


def test_spreads_against_their_definitions(runs, study):
    for run in runs:
        by_variant = [rates(outcomes) for outcomes in run.tables.values()]
        for metric in METRICS[:4]:
            values = [one[metric] for one in by_variant]
            mean = statistics.fmean(values)
            row = row_of(study.frame, run.label, metric)
            assert row["delta_signed"] == pytest.approx((values[-1] - values[0]) / mean)
            assert row["delta_absolute"] == pytest.approx((values[-1] - values[0]) / abs(mean))
            assert row["range_absolute"] == pytest.approx((max(values) - min(values)) / abs(mean))
            assert row["cv"] == pytest.approx(statistics.pstdev(values) / mean)
            assert row["cv_sample"] == pytest.approx(statistics.stdev(values) / mean)
            assert row["variants"] == 4


def test_the_weighted_score_has_both_p_and_both_signs(runs, study):
    by_variant = [rates(outcomes) for outcomes in runs[0].tables.values()]
    for p in (1.0, 0.2):
        values = [one["correct_rate"] - p * (1 - one["refusal_rate"]) for one in by_variant]
        row = row_of(study.frame, "a", "weighted_score", p)
        assert row["mean"] == pytest.approx(statistics.fmean(values))
        assert row["delta_absolute"] == pytest.approx((values[-1] - values[0]) / abs(statistics.fmean(values)))
    one = row_of(study.frame, "a", "weighted_score", 1.0)
    assert one["mean"] < 0
    assert one["delta_signed"] == -one["delta_absolute"]
    third = score_variability.make(runs[:1], StudyOptions(Analysis(weighted_score_p=0.5))).frame
    assert third.filter(metric="weighted_score", model="a")["p"].to_list() == [0.5, 1.0, 0.2]


def test_averages_are_means_over_models(study):
    for metric in METRICS[:4]:
        own = [row_of(study.frame, model, metric)["cv"] for model in ("a", "b")]
        assert row_of(study.frame, "Average of 2", metric)["cv"] == pytest.approx(statistics.fmean(own))


def test_intervals_contain_their_estimates_and_shrink_with_questions(study):
    frame = study.frame.filter(pl.col("models").is_null(), pl.col("metric") != "refusal_index")
    assert (frame["delta_low"] < frame["delta_signed"]).all()
    assert (frame["delta_signed"] < frame["delta_high"]).all()
    many = score_variability.make([made_run("a", n=2000)], OPTIONS).frame
    narrow, wide = row_of(many, "a", "f_score"), row_of(study.frame, "a", "f_score")
    ratio = (wide["delta_high"] - wide["delta_low"]) / (narrow["delta_high"] - narrow["delta_low"])
    assert ratio == pytest.approx(2, rel=0.25)


def test_the_same_seed_gives_the_same_intervals(runs, study):
    again = score_variability.make(runs, OPTIONS).frame
    assert again.equals(study.frame)
    assert not score_variability.make(runs, StudyOptions(Analysis(seed=1))).frame.equals(study.frame)


def test_mean_not_significantly_different_from_zero_is_in_no_average(few_resamples):
    runs = [made_run("none", rho=0.0, n=300), *(made_run(f"some{i}", rho=0.6, n=300, seed=3 + i) for i in range(2))]
    study = score_variability.make(runs, OPTIONS)
    assert any(note.startswith("The mean of RI does not differ significantly from 0 for none:") for note in study.notes)
    own = [row_of(study.frame, model, "refusal_index")["cv"] for model in ("some0", "some1")]
    average = row_of(study.frame, "Average of 2, without none", "refusal_index")
    assert (average["cv"], average["models"]) == (pytest.approx(statistics.fmean(own)), 2)
    # Other metrics are averaged over all three models and, to be compared with RI, over its two.
    rates = study.frame.filter(pl.col("models").is_not_null(), metric="f_score")
    assert rates["models"].to_list() == [3, 2]
    assert study.frame.filter(model="Average of 3", metric="refusal_index").is_empty()
    assert "(without none, where one of these metrics is near 0 or undefined)" in study.notes[-1]
    assert study.figure().axes


def test_values_that_are_in_no_average_are_marked_in_the_table(few_resamples):
    runs = [made_run("none", rho=0.0, n=300), *(made_run(f"some{i}", rho=0.6, n=300, seed=3 + i) for i in range(2))]
    study = score_variability.make(runs, OPTIONS)
    table = study.printed(study.frame)
    for block in table.partition_by("block"):
        assert [cell.endswith(" *") for cell in block["RI"]] == [True, False, False, False, False]
        assert block["Model"].to_list()[3:] == ["Average of 3", "Average of 2, without none"]
        assert block["RI"][3] == "-"
    assert "* In no average" in study.table_caption


def test_property_averages_of_one_name_are_of_the_same_models(few_resamples):
    """Every average, recomputed from the rows of the models, is over the number of models that it states."""
    rng = np.random.default_rng(2)
    metrics, models = ["a", "b", "c"], [f"m{i}" for i in range(6)]
    for _ in range(20):
        rows = [
            {"model": model, "metric": metric, "cv": rng.uniform(), "variants": 4}
            | ({"mean_low": -1.0, "mean_high": 1.0} if rng.uniform() < 0.2 else {"mean_low": 1.0, "mean_high": 2.0})
            for model in models
            for metric in metrics
        ]
        frame = pl.DataFrame(rows, schema=VARIABILITY_SCHEMA)
        sound = {m: {r["model"] for r in rows if r["metric"] == m and r["mean_low"] > 0} for m in metrics}
        averages = with_averages(frame).filter(pl.col("models").is_not_null())
        for metric in metrics:
            if len(sound[metric]) > 1:
                expected = statistics.fmean(
                    r["cv"] for r in rows if r["metric"] == metric and r["model"] in sound[metric]
                )
                first = averages.filter(metric=metric).row(0, named=True)
                assert (first["models"], first["cv"]) == (len(sound[metric]), pytest.approx(expected))
        for _, part in averages.group_by("model"):
            assert part["models"].n_unique() == 1
        common = set.intersection(*sound.values())
        if len(common) > 1:
            last = averages.filter(pl.col("models") == len(common))
            assert set(last["metric"]) == set(metrics)


def test_metric_that_is_undefined_under_a_prompt_is_in_no_average(few_resamples):
    runs = [made_run(f"m{i}", n=200, rho=0.6, seed=i) for i in range(3)]
    never = runs[0].tables["low"].with_columns(refused=pl.lit(value=False))
    runs[0] = runs[0].with_tables({**runs[0].tables, "low": never})
    study = score_variability.make(runs, OPTIONS)
    assert any(note.startswith("RI is undefined under some prompt for m0:") for note in study.notes)
    averages = study.frame.filter(pl.col("models").is_not_null(), metric="refusal_index")
    assert averages["models"].to_list() == [2]


def test_runs_under_one_variant_are_left_out(runs):
    single = made_run("single", variants=["low"], n=50)
    assert "Left out, since under one prompt only: single." in score_variability.make([*runs, single], OPTIONS).notes
    with pytest.raises(NotPossibleError, match="each of these has one prompt"):
        score_variability.make([single], OPTIONS)


def test_the_papers_ratio_of_relative_variabilities():
    """Values with the paper's average coefficients: .092 against .190, .220 and .466 is 0.32 of the three together."""
    cvs = dict(zip(METRICS, AVERAGES[1], strict=True))
    values = {name: np.array([[1 - cv, 1 + cv]]) for name, cv in cvs.items()}
    draws = [{name: np.tile(values[name], (50, 1)) for name in METRICS if name != "weighted_score"}]
    draws[0] |= {"correct_rate": np.tile([1.0, 1.0], (50, 1)), "refusal_rate": np.tile([1 - 0.466, 1.466], (50, 1))}
    rows = {row["metric"]: row for row in ratio_rows(values, draws, DEFAULT_ANALYSIS)}
    assert rows["heuristic"]["ratio"] == pytest.approx(0.092 / np.mean([0.19, 0.22, 0.466]), abs=1e-9)
    assert round(rows["heuristic"]["ratio"], 2) == 0.32
    assert rows["f_score"]["ratio_low"] == pytest.approx(0.092 / 0.22)


def test_resamples_in_which_a_metric_does_not_vary_are_left_out():
    """Theory: a ratio to a metric that does not vary is undefined, and has no interval if no resample is defined."""
    values = {name: np.array([[1.0, 3.0]]) for name in METRICS}
    varied = {name: np.tile([1.0, 3.0], (100, 1)) for name in METRICS}
    constant = np.ones((100, 2))

    def row(resampled):
        rows = ratio_rows(values, [varied | {"f_score": resampled}], DEFAULT_ANALYSIS)
        return next(row for row in rows if row["metric"] == "f_score")

    few = np.concatenate([constant[:5], varied["f_score"][5:]])
    assert (row(few)["ratio_low"], row(few)["ratio_high"]) == pytest.approx((1, 1))
    assert (row(constant)["ratio_low"], row(constant)["ratio_high"]) == (None, None)


def test_ratio_uses_mean_coefficients_and_a_paired_interval(runs, study):
    rows = study.frame.filter(model="ratio")
    assert rows["metric"].to_list() == ["correct_given_attempted", "f_score", "weighted_score", "heuristic"]
    own = [row_of(study.frame, model, "refusal_index")["cv"] for model in ("a", "b")]
    other = [row_of(study.frame, model, "f_score")["cv"] for model in ("a", "b")]
    row = rows.filter(metric="f_score").row(0, named=True)
    assert row["ratio"] == pytest.approx(sum(own) / sum(other))
    assert row["ratio_low"] < row["ratio_high"]
    assert any(note.startswith("Coefficient of variation of RI divided by that of each metric") for note in study.notes)


def test_coverage_of_the_ratio_interval():
    """Simulated: RI's true coefficient is .08, seen as .13; percentiles of resamples cover .16 of the time."""
    rng, covered = np.random.default_rng(4), 0
    prompts = np.array([-1.2, -0.4, 0.3, 1.3])
    prompts /= prompts.std()
    steady = dict.fromkeys(METRICS, np.tile(1 + 0.24 * prompts, (3, 1)))

    def errors(size):
        return 0.045 * 0.5**0.5 * (rng.standard_normal((*size, 1)) + rng.standard_normal((*size, 4)))

    for _ in range(150):
        values = steady | {"refusal_index": 0.25 + 0.02 * prompts + errors((3,))}
        draws = [
            {name: np.tile(rows[place], (200, 1)) for name, rows in values.items()}
            | {"refusal_index": values["refusal_index"][place] + errors((200,))}
            for place in range(3)
        ]
        rows = {row["metric"]: row for row in ratio_rows(values, draws, DEFAULT_ANALYSIS)}
        low, high = (rows["f_score"][f"ratio_{end}"] for end in ("low", "high"))
        covered += low is not None and low <= 0.08 / 0.24 <= high
    # .98 over 600 replicates.
    assert covered >= 0.93 * 150


def test_chance_variation_matches_a_metric_unaffected_by_prompts(few_resamples):
    """Prompts that are independent repetitions of one: all of their spread is chance."""
    found, chance = [], []
    for seed in range(6):
        once = [made_run("a", n=300, seed=10 * seed + k, variants=["normal"]).tables["normal"] for k in range(4)]
        names = ("low", "normal", "high", "highest")
        run = made_run("a", n=300, variants=["normal"])
        tables = {
            name: rows.with_columns(variant=pl.lit(name), question_id=name + pl.col("question_id"))
            for name, rows in zip(names, once, strict=True)
        }
        run = run.with_tables(tables)
        row = row_of(score_variability.make([run], OPTIONS).frame, "a", "refusal_rate")
        found.append(row["cv"] ** 2)
        chance.append(row["cv_chance"] ** 2)
    assert statistics.fmean(found) == pytest.approx(statistics.fmean(chance), rel=0.5)


def test_variability_table_and_figure(study):
    table = study.printed(study.frame)
    assert table["block"].unique(maintain_order=True).to_list() == [
        "Normalized difference",
        "Coefficient of variation (that of chance alone)",
    ]
    assert table["Model"].to_list() == ["a", "b", "Average of 2"] * 2
    row = row_of(study.frame, "a", "f_score")
    assert table["F"][0] == f"{row['delta_signed']:+.2f}"
    assert table["F"][3] == f"{row['cv']:.2f} ({row['cv_chance']:.2f})"
    assert "Weighted (p = 0.2)" in table.columns
    assert len(study.figure().axes) == 2
