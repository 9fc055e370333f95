"""Regressions against SciPy, and which runs they include."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import linregress, spearmanr, t
from tests.studies.made import HOSTILE, made_run, rates

from refusal_index.data.analysis import DEFAULT_ANALYSIS
from refusal_index.data.published import paper_rows
from refusal_index.plugins.studies.inputs import run_index
from refusal_index.plugins.studies.regression import (
    RATES,
    fit_line,
    index_and_accuracy,
    index_and_size,
    line_band,
    model_looks,
    regression_note,
)
from refusal_index.plugins.studies.study import MARK, NotPossibleError, StudyOptions
from refusal_index.plugins.studies.style import MARKERS
from refusal_index.stats import refusal_index_many

OPTIONS = StudyOptions()


@pytest.fixture(scope="module")
def runs():
    return [made_run(f"m{i}", rho=0.15 * i, right=0.2 + 0.1 * i, n=250, seed=i) for i in range(5)]


@pytest.fixture(scope="module")
def study(runs):
    return index_and_accuracy.make(runs, OPTIONS)


def test_regression_line_against_scipy():
    rng = np.random.default_rng(1)
    x = rng.uniform(size=12)
    y = 0.3 * x + rng.normal(size=12)
    line, expected = fit_line(x, y), linregress(x, y)
    assert line is not None
    assert (line["slope"], line["intercept"], line["pvalue"]) == pytest.approx(
        (expected.slope, expected.intercept, expected.pvalue)
    )
    assert line["r_squared"] == pytest.approx(expected.rvalue**2)
    # At the mean of x the line's standard error is that of the mean of the residuals.
    values = line["intercept"] + line["slope"] * x
    residuals = y - values
    error = np.sqrt(residuals @ residuals / 10 / 12)
    assert line_band(values, x, y, np.array([x.mean()]), DEFAULT_ANALYSIS)[0] == pytest.approx(error * t.ppf(0.975, 10))


def test_no_line_through_two_points_or_without_spread():
    assert fit_line([0, 1], [0, 1]) is None
    assert fit_line([1, 1, 1], [0, 1, 2]) is None
    perfect = fit_line([0, 1, 2], [0, 1, 2])
    assert perfect is not None
    assert perfect["r_squared"] == pytest.approx(1)


def test_points_are_joint_indices_and_mean_accuracies(runs, study):
    frame, indices = study.frame, [run_index(run, OPTIONS) for run in runs]
    for metric in RATES:
        own = frame.filter(metric=metric)
        for run, overall, row in zip(runs, indices, own.iter_rows(named=True), strict=True):
            values = [rates(outcomes)[metric] for outcomes in run.tables.values()]
            assert row["value"] == pytest.approx(np.mean(values))
            assert row["value_low"] < row["value"] < row["value_high"]
            index = overall.index
            assert (row["refusal_index"], row["low"], row["high"]) == (index.estimate, index.low, index.high)
            assert row["mean_refusal_index"] == overall.mean
        expected = linregress(own["value"], own["refusal_index"])
        assert own["r_squared"].to_list() == pytest.approx([expected.rvalue**2] * 5)
        assert own["above_line"].to_list() == (own["refusal_index"] > own["fitted"]).to_list()
        assert own["points"].to_list() == [5] * 5


def test_a_single_variant_keeps_its_own_intervals():
    run = made_run(variants=["normal"], n=200)
    frame = index_and_accuracy.make([run, made_run("b", n=99), made_run("c", n=99, seed=2)], OPTIONS).frame
    row = frame.filter(model="m", metric="correct_rate").row(0, named=True)
    p, n, z = rates(run.tables["normal"])["correct_rate"], 200, 1.959964
    middle, reach = (p + z * z / (2 * n)) / (1 + z * z / n), z / (1 + z * z / n)
    half = reach * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert (row["value_low"], row["value_high"]) == pytest.approx((middle - half, middle + half), abs=1e-6)


def test_too_few_models_raise_and_simpleqa_adds_those_of_the_paper(runs, few_resamples):
    with pytest.raises(NotPossibleError, match="three models or more"):
        index_and_accuracy.make(runs[:2], OPTIONS)
    study = index_and_accuracy.make([made_run("openai/gpt-x", dataset="simpleqa", n=80)], OPTIONS)
    assert study.frame.filter(source="paper", metric="correct_rate").height == 16
    assert study.frame.filter(source="run")["family"].to_list() == ["GPT"] * 3
    assert study.frame.filter(source="run")["r_squared"].null_count() == 3
    assert ".010" in study.caption
    assert study.figure().axes


def test_a_run_without_an_index_is_left_out(runs):
    never = made_run("never", variants=["low"], n=40)
    table = never.tables["low"].with_columns(refused=pl.lit(value=False), first_grade=pl.lit("incorrect"))
    never = never.with_tables({"low": table.with_columns(wrong=pl.lit(value=True))})
    study = index_and_accuracy.make([*runs, never], OPTIONS)
    assert any("undefined: never" in note for note in study.notes)


def test_sparse_run_is_marked_and_excluded_from_the_headline(runs, study):
    before = study
    rare = made_run("rare", rho=0.999, right=0.05, n=60, variants=["low"])
    study = index_and_accuracy.make([*runs, rare], OPTIONS)
    for metric in RATES:
        mine, old = (one.frame.filter(metric=metric) for one in (study, before))
        assert mine["sparse"].to_list() == [False] * 5 + [True]
        for name in ("r_squared", "spearman", "points", "r_squared_ceiling"):
            assert mine[name][0] == pytest.approx(old[name][0])
        assert mine["points_all"][0] == 6
        assert mine["spearman_all"][0] == pytest.approx(spearmanr(mine["value"], mine["refusal_index"]).statistic)
        assert mine["fitted"][-1] is None
    assert "Hollow points" in study.caption
    assert "Hollow points" not in before.caption
    text = "rare is left out, at the boundary or with fewer than five questions in a cell under every prompt"
    assert all(text in note for note in study.notes if "R squared" in note)
    assert all("left out" not in note for note in before.notes if "R squared" in note)


def test_noise_ceiling_against_resampled_questions(runs, study):
    rows = study.frame.filter(metric="refusal_rate")
    refused = np.array([[t["refused"].to_numpy() for t in run.tables.values()] for run in runs]).mean(axis=1)
    wrong = np.array([[t["wrong"].to_numpy() for t in run.tables.values()] for run in runs])
    variants = np.array([[t["refused"].to_numpy() for t in run.tables.values()] for run in runs])
    rng, n = np.random.default_rng(1), refused.shape[1]
    weights = rng.multinomial(n, np.full(n, 1 / n), size=600)
    rates = weights @ refused.T / n
    cells = [(a & b) @ weights.T for a in (variants, ~variants) for b in (wrong, ~wrong)]
    indices = refusal_index_many(*cells).mean(axis=1).T

    def reliability(values, draws):
        return 1 - (draws - draws.mean(axis=0)).var(axis=1, ddof=1).mean() / values.var(ddof=1)

    # The joint index varies much like the mean over variants.
    expected = reliability(rows["value"].to_numpy(), rates) * reliability(rows["refusal_index"].to_numpy(), indices)
    assert rows["r_squared_ceiling"][0] == pytest.approx(expected, abs=0.06)


def test_a_correlation_beyond_1_cannot_be_estimated_without_noise(study):
    row = study.frame.filter(source="run").drop_nulls("r_squared").row(0, named=True)
    values = {"r_squared": 0.3, "r_squared_ceiling": 0.01}
    note = regression_note({**row, **values, "r_squared_without_noise": 30.101}, "C/A")
    assert "cannot be estimated" in note
    assert "30.1" not in note
    assert "without them it would be 0.900" in regression_note({**row, **values, "r_squared_without_noise": 0.9}, "C/A")


def test_models_of_a_family_share_a_colour_and_no_two_models_look_alike():
    paper = paper_rows().select("model", "family", source=pl.lit("paper"))
    runs = pl.DataFrame({"model": [f"openai/gpt-4.1 {MARK}"], "family": ["GPT"], "source": "run"})
    looks = model_looks(pl.concat([paper, runs], how="diagonal"))
    assert looks["run", f"openai/gpt-4.1 {MARK}"] == looks["paper", "GPT-4.1"]
    assert looks["paper", "GPT-4.1"][0] == looks["paper", "GPT-4.1-mini"][0]
    assert len(set(looks.values())) == 16
    assert len({colour for colour, _ in looks.values()}) == paper["family"].n_unique()


def test_a_family_has_the_same_colour_whichever_models_are_shown():
    families = ["Qwen", "Claude", "acme", "Gemini"]
    every = pl.DataFrame({"model": list("abcd"), "family": families, "source": "run"})
    looks, fewer = model_looks(every), model_looks(every.filter(pl.col("model") != "b").reverse())
    for model in "ad":
        assert fewer["run", model][0] == looks["run", model][0]
    assert len({colour for colour, _ in looks.values()}) == 4  # the unknown family has a colour of its own


def test_runs_of_one_model_at_two_providers_look_different():
    models = ["openai/gpt-4.1", "azure/gpt-4.1", "GPT-4.1"]
    looks = model_looks(pl.DataFrame({"model": models, "family": "GPT", "source": ["run", "run", "paper"]}))
    assert len(set(looks.values())) == 3


def test_a_family_with_too_many_models_has_several_colours():
    models = [f"m{i}" for i in range(2 * len(MARKERS))]
    looks = model_looks(pl.DataFrame({"model": models, "family": "f", "source": "run"}))
    assert len(set(looks.values())) == len(models)


def test_every_model_is_named_in_the_legend(runs, study):
    (legend,) = study.figure().legends
    assert {text.get_text() for text in legend.get_texts()} == set(study.frame["model"])


def test_p_values_are_never_printed_as_zero():
    row = {
        "source": "run",
        "points": 5,
        "points_all": 5,
        "spearman": 1.0,
        "r_squared": 1.0,
        "pvalue": 1e-9,
        "spearman_all": 1.0,
    }
    row |= {"r_squared_all": 1.0, "r_squared_ceiling": 0.9, "r_squared_without_noise": 1.1, "noise_reason": None}
    assert "p <.0001 for" in regression_note(row, "size")
    assert "cannot be estimated" in regression_note(row, "size")
    assert "were independent" in regression_note(row, "size")
    assert "were independent" not in regression_note(row | {"r_squared": 0.8}, "size")
    row |= {"r_squared_ceiling": None, "noise_reason": "first:noise_exceeds_spread"}
    assert "unknown (noise exceeds spread of the index)" in regression_note(row, "size")


def test_size_regression_uses_log_parameters(tmp_path, runs):
    path = tmp_path / "models.csv"
    path.write_text("model,family,parameters_billion\nm0,A,1\nm1,A,3\nm2,B,10\nm3,B,100\n")
    study = index_and_size.make(runs, StudyOptions(models=path))
    frame = study.frame
    assert frame["parameters_billion"].to_list() == [1, 3, 10, 100]
    expected = linregress(np.log10(frame["parameters_billion"]), frame["refusal_index"])
    assert frame["slope"][0] == pytest.approx(expected.slope)
    assert frame["r_squared"][0] == pytest.approx(expected.rvalue**2)
    assert any("known number of parameters: m4" in note for note in study.notes)
    assert study.printed(frame)["Parameters"].to_list() == ["1B", "3B", "10B", "100B"]
    assert study.figure().axes


def test_unknown_sizes_raise_and_ask_for_a_table(runs):
    with pytest.raises(NotPossibleError, match="table of models"):
        index_and_size.make(runs, OPTIONS)


def test_the_table_has_one_row_per_model_and_the_papers_below():
    runs = [made_run(f"m{i}", dataset="simpleqa", rho=0.2 * i, right=0.2 + 0.1 * i, n=250, seed=i) for i in range(4)]
    study = index_and_accuracy.make(runs, OPTIONS)
    table = study.printed(study.frame)
    statistics = ["Rank correlation", "R squared", "Ceiling of R squared"]
    assert table["Model"].to_list()[:7] == ["m0", "m1", "m2", "m3", *statistics]
    assert table["block"].value_counts().sort("count")["count"].to_list() == [4 + 3, 16 + 3]
    row = study.frame.filter(model="m2", metric="correct_rate").row(0, named=True)
    side = "above" if row["refusal_index"] > row["fitted"] else "below"
    interval = f"[{row['value_low']:.2f}, {row['value_high']:.2f}]"
    assert table.filter(Model="m2")["Correct"].item() == f"{row['value']:.2f} {interval}, {side}"
    # Printed: 0.52 [0.41, 0.63] and 0.02 [0.02, 0.03].
    paper = table.filter(Model="Claude-3.5-Haiku").row(0, named=True)
    assert (paper["RI"], paper["Correct"]) == ("0.52 [0.41, 0.63]", "0.02 [0.02, 0.03], above")
    assert table.filter(Model="R squared")["C/A"].to_list()[1] == "0.232"


def test_size_study_on_simpleqa_includes_the_paper():
    frame = index_and_size.make([made_run("x/Qwen2.5-72B", dataset="simpleqa", n=80)], OPTIONS).frame
    assert frame.filter(source="paper").height == 10
    assert frame.filter(source="run")["parameters_billion"].to_list() == [72]


def test_hostile_model_names_are_drawn(runs, few_resamples):
    study = index_and_accuracy.make([*runs[:2], made_run(HOSTILE, n=100, seed=9)], OPTIONS)
    figure = study.figure()
    figure.draw_without_rendering()
    assert not any("\x1b" in text.get_text() for axes in figure.axes for text in axes.texts)
