"""The studies auroc_correlation and index_predictors."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.stats import f_oneway, linregress, spearmanr
from tests.studies.made import HOSTILE as HOSTILE_NAME
from tests.studies.made import made_run
from tests.studies.outcomes_made import HOSTILE, check_files, counts_of, make_run

from refusal_index.plugins.studies.correlations import (
    auroc_correlation,
    correlation,
    design,
    explained,
    index_predictors,
)
from refusal_index.plugins.studies.inputs import run_index
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions

# --- AUROC and correlations

OPTIONS = StudyOptions()


@pytest.fixture(scope="module")
def models():
    return [make_run(f"m{i}", rho=0.2 * i, n=150, draws=4, seed=i, variants=("normal",)) for i in range(5)]


@pytest.fixture(scope="module")
def study(models):
    return auroc_correlation.make(models, OPTIONS)


def area_of(run, variant="normal") -> float:
    """P(a right question is answered more often than a wrong one), ties one half, first draw left out of the share."""
    draws = run.tables[variant].partition_by("draw", maintain_order=True)
    share = np.mean([~rows["refused"].to_numpy() for rows in draws[1:]], axis=0)
    right = draws[0]["forced_grade"].to_numpy() == "correct"
    pairs = np.subtract.outer(share[right], share[~right])
    return float(np.mean((pairs > 0) + 0.5 * (pairs == 0)))


def test_auroc_against_counting_pairs_of_questions(models, study):
    rows = study.frame.filter(metric="refusal_index")
    assert rows["auroc"].to_list() == pytest.approx([area_of(run) for run in models])
    assert (rows["auroc_low"] < rows["auroc"]).all()


def test_points_of_other_datasets_and_temperatures_are_left_out_and_named(models, study):
    def at(run, temperature, **fields):
        return replace(run, settings={"decoding": {"temperature": temperature}}, **fields)

    others = [at(models[0], 1.0, dataset="other", label="m0, other"), at(models[1], 0.7)]
    runs = [*(at(run, 1.0) for run in (models[0], *models[2:])), *others]
    mixed = auroc_correlation.make(runs, OPTIONS)
    alone = auroc_correlation.make(runs[:-2], OPTIONS)
    assert mixed.frame.select("dataset", "temperature").n_unique() == 1
    assert mixed.frame["spearman"].to_list() == alone.frame["spearman"].to_list()
    (note,) = (note for note in mixed.notes if note.startswith("Only points of one dataset and one temperature"))
    assert "(temperature 1); 2 points are left out" in note
    assert note.endswith("m0, other, normal (temperature 1); m1, d, normal (temperature 0.7).")
    assert "(temperature 1)" in mixed.caption
    assert "(temperature not recorded)" in study.caption


def test_metric_uses_the_first_draws(models, study):
    *_, n01, n00 = counts_of(models[3], "normal")
    value = study.frame.filter(metric="correct_given_attempted", model="m3")["value"].item()
    assert value == pytest.approx(n00 / (n01 + n00))


def test_correlations_and_intervals_against_their_formulas(study):
    for _, rows in study.frame.group_by("metric"):
        row, x, y = rows.row(0, named=True), rows["value"].to_numpy(), rows["auroc"].to_numpy()
        r = np.corrcoef(x, y)[0, 1]
        assert row["pearson"] == pytest.approx(r)
        assert row["spearman"] == pytest.approx(spearmanr(x, y).statistic)
        z, reach = 0.5 * math.log((1 + r) / (1 - r)), 1.959963984540054 / math.sqrt(5 - 3)
        assert (row["pearson_low"], row["pearson_high"]) == pytest.approx((math.tanh(z - reach), math.tanh(z + reach)))
        assert row["interval_over"] == "models"


def test_interval_over_few_models_is_marked_as_too_narrow():
    runs = [make_run(f"m{i}", rho=0.3 * i, n=150, draws=2, seed=i, variants=("low", "high")) for i in range(3)]
    study = auroc_correlation.make(runs, OPTIONS)
    assert set(study.frame["interval_over"]) == {"points"}
    assert "too narrow" in study.caption
    assert any("1 sample after the first" in note and "towards 1/2" in note for note in study.notes)


def test_constant_or_too_few_points_have_no_correlation():
    assert correlation([0.1, 0.1, 0.1], [0.5, 0.6, 0.7], n_models=3)["pearson"] is None
    assert correlation([0.1, 0.2], [0.5, 0.6], n_models=2)["pearson"] is None
    three = correlation([0.1, 0.2, 0.3], [0.5, 0.8, 0.7], n_models=3)
    assert three["pearson"] is not None
    assert [three[name] for name in ("pearson_low", "pearson_high", "interval_over")] == [None, None, None]


def test_perfect_correlation_has_no_fisher_interval():
    line = correlation([0.1, 0.2, 0.3, 0.7], [0.5, 0.6, 0.8, 0.9], n_models=4)
    assert line["spearman"] == pytest.approx(1)
    assert (line["spearman_low"], line["spearman_high"]) == (None, None)
    assert line["pearson_low"] is not None


def test_rank_correlation_interval_against_bonett_and_wright():
    x, y = [1, 2, 3, 4, 5, 6, 7], [2, 1, 4, 3, 7, 6, 5]
    found, r = correlation(x, y, n_models=7), spearmanr(x, y).statistic
    reach = 1.959963984540054 * math.sqrt((1 + r * r / 2) / (7 - 3))
    assert (found["spearman_low"], found["spearman_high"]) == pytest.approx(
        (math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach))
    )


def test_sparse_points_are_marked_and_excluded_from_the_headline(models):
    study_without = auroc_correlation.make(models, OPTIONS)
    rare = make_run("rare", rho=0.99, n=60, noise=0.01, error=-1.2, draws=4, seed=8, variants=("normal",))
    assert min(counts_of(rare, "normal")) < 5
    study = auroc_correlation.make([*models, rare], OPTIONS)
    assert study.frame.filter(sparse=True)["model"].unique().to_list() == ["rare"]
    assert "1 hollow points" in study.caption
    for name in ("refusal_index", "correct_rate"):
        mine, before = (one.frame.filter(metric=name).row(0, named=True) for one in (study, study_without))
        assert (mine["spearman"], mine["pearson"], mine["n_points"]) == (before["spearman"], before["pearson"], 5)
        every = study.frame.filter(metric=name)
        assert mine["pearson_all"] == pytest.approx(np.corrcoef(every["value"], every["auroc"])[0, 1])
        assert mine["n_points_all"] == 6
    assert "Spearman" in study.printed(study.frame).columns[1]


def test_correlation_ceiling_against_resampled_questions(models, study):
    row = study.frame.filter(metric="correct_rate").row(0, named=True)
    rng = np.random.default_rng(3)
    right = np.array(
        [run.tables["normal"].filter(draw=0).select(~(pl.col("refused") | pl.col("wrong"))) for run in models]
    )
    values, n = right[:, :, 0].mean(axis=1), right.shape[1]
    chosen = rng.integers(n, size=(2_000, n))
    draws = right[:, chosen, 0].mean(axis=2)
    # The noise is the mean variance of errors over models in a resample.
    noise = (draws - values[:, None]).var(axis=0, ddof=1).mean()
    reliability = 1 - noise / values.var(ddof=1)
    of_area = row["pearson_ceiling"] ** 2 / reliability
    assert 0.5 < of_area < 1
    areas = [area_of(run) for run in models]
    assert of_area > 1 - max(((row["auroc_high"] - row["auroc_low"]) / 2) ** 2 / np.var(areas, ddof=1), 0.5)


def test_a_correlation_beyond_1_without_noise_cannot_be_estimated(study):
    frame = study.frame.with_columns(pearson_without_noise=pl.lit(-5.5))
    assert set(study.printed(frame)["without noise"]) == {"cannot be estimated"}
    within = study.frame.with_columns(pearson_without_noise=pl.lit(-0.25))
    assert set(study.printed(within)["without noise"]) == {"-0.25"}


def test_p_answering_uses_most_draws_and_metrics_use_most_questions(models):
    drawn = make_run("m0", n=60, draws=9, seed=11, variants=("normal",), label="m0 (draws)")
    study = auroc_correlation.make([*models, drawn], OPTIONS)
    row = study.frame.filter(model="m0", metric="correct_rate").row(0, named=True)
    assert (row["drawn_in"], row["draws"], row["questions"]) == ("m0 (draws)", 9, 60)
    assert row["auroc"] == pytest.approx(area_of(drawn))
    assert row["value"] == pytest.approx(counts_of(models[0], "normal")[3] / 150)
    assert any(note.startswith("P(Answering) of 1 of 5 points comes from another run") for note in study.notes)


def test_runs_without_draws_are_reported(models):
    single = [make_run(f"s{i}", seed=i, draws=1) for i in range(3)]
    with pytest.raises(NotPossibleError, match="repeated samples"):
        auroc_correlation.make(single, OPTIONS)
    study = auroc_correlation.make([*models, single[0]], OPTIONS)
    assert any(note.startswith("3 left out, since no question was drawn twice") for note in study.notes)


def test_hostile_names_are_drawn_and_printed_safely(models):
    check_files(
        auroc_correlation.make([*models, make_run(HOSTILE, n=80, draws=3, seed=4, variants=("normal",))], OPTIONS)
    )


# --- Shares of variance


@pytest.fixture(scope="module")
def runs():
    return [made_run(f"{'abc'[i % 3]}/m{i}", rho=0.2 * (i % 3), right=0.2 + 0.08 * i, n=250, seed=i) for i in range(6)]


@pytest.fixture(scope="module")
def paper():
    study = index_predictors.make([made_run("openai/gpt-x", dataset="simpleqa", n=200)], OPTIONS)
    return {row["predictor"]: row for row in study.frame.filter(source="paper").iter_rows(named=True)}


def test_explained_share_of_groups_against_anova():
    y = np.array([0.1, 0.2, 0.5, 0.6, 0.4, 0.9])
    groups = [y[:2], y[2:5], y[5:]]
    found = explained(y, design(pl.Series(["a", "a", "b", "b", "b", "c"])), 0)
    between = sum(len(part) * (part.mean() - y.mean()) ** 2 for part in groups)
    assert found["share"] == pytest.approx(between / np.sum((y - y.mean()) ** 2))
    share, freedom = found["share"], found["degrees_of_freedom"]
    assert f_oneway(*groups).statistic == pytest.approx((share / freedom) / ((1 - share) / (6 - 1 - freedom)))


def test_share_of_a_line_against_r_squared_and_all_permutations():
    x, y = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.array([0.1, 0.3, 0.2, 0.5, 0.4])
    found = explained(y, design(pl.Series(x), logarithmic=True), 0)
    assert found["share"] == pytest.approx(linregress(np.log(x), y).rvalue ** 2)
    every = [linregress(np.log(x), order).rvalue ** 2 for order in itertools.permutations(y)]
    assert found["shuffled"] == pytest.approx(np.mean(every))
    assert found["pvalue"] == pytest.approx(np.mean(np.array(every) >= found["share"] - 1e-12), abs=0.02)
    assert found["shuffled_high"] == pytest.approx(np.quantile(every, 0.95), abs=0.03)
    assert found["share_beyond_chance"] == pytest.approx((found["share"] - 0.25) / 0.75)


def test_undefined_shares_have_a_reason():
    y = np.array([0.1, 0.2, 0.3, 0.5])
    assert explained(y, design(pl.Series(["a", "b", "c", "d"])), 0)["reason"] == "each_model_by_itself"
    assert explained(y, design(pl.Series(["a"] * 4)), 0)["reason"] == "all_alike"
    assert explained(y[:3], design(pl.Series([1.0, 2, 3])), 0)["reason"] == "fewer_than_four_models"
    assert explained(y * 0, design(pl.Series([1.0, 2, 3, 4])), 0)["reason"] == "no_variation"
    assert explained(y[:0], design(pl.Series([], dtype=pl.Float64)), 0)["reason"] == "fewer_than_four_models"


def test_family_explains_most_among_models_from_the_paper(paper):
    """By hand: nine families of sixteen models, so that shuffled indices give 8/15 on average."""
    assert paper["family"]["share"] == pytest.approx(0.776, abs=5e-4)
    assert paper["family"]["shuffled"] == pytest.approx(8 / 15)
    assert 0.05 < paper["family"]["pvalue"] < 0.09
    assert paper["correct_rate"]["share"] == pytest.approx(0.010, abs=5e-4)
    assert paper["correct_given_attempted"]["share"] == pytest.approx(0.232, abs=5e-4)
    assert paper["refusal_rate"]["share"] == pytest.approx(0.261, abs=5e-4)
    assert paper["parameters_billion"]["models"] == 10
    assert max(paper.values(), key=lambda row: row["share_beyond_chance"])["predictor"] == "family"


def test_points_are_the_joint_indices_of_the_runs(runs):
    study = index_predictors.make(runs, OPTIONS)
    row = study.frame.filter(predictor="family").row(0, named=True)
    y = np.array([run_index(run, OPTIONS).index.estimate for run in runs])
    assert row["share"] == pytest.approx(explained(y, design(pl.Series(list("abcabc"))), 0)["share"])
    assert study.frame.filter(predictor="parameters_billion")["reason"].item() == "fewer_than_four_models"
    assert 0 < row["ceiling"] < 1
    assert any(note.startswith("Of the runs") for note in study.notes)
    assert index_predictors.make(runs, OPTIONS).frame.equals(study.frame)


def test_sparse_runs_are_left_out_and_too_few_raise(runs):
    rare = made_run("rare", rho=0.999, right=0.05, n=60, variants=["low"])
    study = index_predictors.make([*runs, rare], OPTIONS)
    assert study.frame.filter(predictor="family")["models"].item() == 6
    assert any("fewer than five questions in a cell: rare" in note for note in study.notes)
    with pytest.raises(NotPossibleError, match="four models or more"):
        index_predictors.make(runs[:3], OPTIONS)


def test_index_predictors_draws_and_prints_names_that_are_code_elsewhere(runs):
    check_files(index_predictors.make([*runs, made_run(HOSTILE_NAME, n=120, seed=9)], OPTIONS))
    check_files(index_predictors.make([made_run("x", dataset="simpleqa", n=120)], OPTIONS))
    assert index_predictors.title
