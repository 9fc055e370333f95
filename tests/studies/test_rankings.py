"""The studies ranking_stability and ranking_with_ties."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from scipy.optimize import isotonic_regression
from scipy.stats import rankdata
from tests.studies.outcomes_made import (
    HOSTILE,
    OPTIONS,
    THRESHOLDS,
    check_files,
    counts_of,
    make_run,
    run_of,
    table_rows,
)

from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.findings.ranking import rank
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies import rankings
from refusal_index.plugins.studies.inputs import COMPARED, chosen_runs, display_names, reference_variant
from refusal_index.plugins.studies.rankings import (
    EVERY_DATASET,
    MAX_PAIRS,
    MOST_CELLS,
    grids_of,
    paper_layout,
    ranking_stability,
    ranking_with_ties,
    stability_frame,
)
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions, tex_text
from refusal_index.stats import joint_refusal_index

# --- Agreement of rankings

DEFAULT_OPTIONS = StudyOptions()
SHUFFLES = 60
NAMES = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def models():
    return [make_run(name, rho=0.2 * i, error=0.2 - 0.3 * i, n=300, seed=i) for i, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def study(models):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rankings, "N_RESAMPLES", SHUFFLES)
        return ranking_stability.make(models, DEFAULT_OPTIONS)


def w_of(scores: np.ndarray) -> float:
    ranks = np.array([rankdata(row) for row in scores])
    m, n = ranks.shape
    sums = ranks.sum(axis=0)
    return float(12 * ((sums - sums.mean()) ** 2).sum() / (m**2 * (n**3 - n)))


def entropy_of(scores: np.ndarray) -> float:
    winners = Counter(int(np.argmax(row)) for row in scores)
    shares = [count / len(scores) for count in winners.values()]
    return -sum(share * math.log(share, scores.shape[1]) for share in shares)


def without(metric: np.ndarray, effect: np.ndarray) -> np.ndarray:
    """Residuals of the better of the increasing and decreasing fits, with equal covariates pooled."""
    y, x = metric.ravel(), effect.ravel()
    _, group, sizes = np.unique(x, return_inverse=True, return_counts=True)
    means = np.bincount(group, y) / sizes
    fits = [isotonic_regression(means, weights=sizes, increasing=up).x[group] for up in (True, False)]
    best = min(fits, key=lambda fit: ((y - fit) ** 2).sum())
    return np.round(y - best, 9).reshape(metric.shape)


def cell(frame: pl.DataFrame, metric: str, removed: str, fit_over: str | None = "all") -> dict:
    return frame.filter(pl.col("fit_over").eq_missing(fit_over), metric=metric, removed=removed).row(0, named=True)


def test_scores_against_counts(models):
    (grid,), notes = grids_of(models, DEFAULT_ANALYSIS)
    assert notes == ()
    assert (grid.models, grid.settings) == (NAMES, ("d, low", "d, normal", "d, high"))
    n11, n10, n01, n00 = counts_of(models[2], "normal")
    n = n11 + n10 + n01 + n00
    assert grid.scores["correct_rate"][1, 2] == pytest.approx(n00 / n)
    assert grid.scores["f_score"][1, 2] == pytest.approx(2 * n00 / (2 * (n01 + n00) + n11 + n10))
    assert grid.scores["weighted_score"][1, 2] == pytest.approx(-n01 / n)


def test_w_and_winner_entropy_against_ranks(models, study):
    scores = grids_of(models, DEFAULT_ANALYSIS)[0][0].scores
    for name in COMPARED:
        row = cell(study.frame, name, "nothing", None)
        assert row["kendall_w"] == pytest.approx(w_of(scores[name]))
        assert row["winner_entropy"] == pytest.approx(entropy_of(scores[name]))


@pytest.mark.parametrize("removed", ["correct_rate", "refusal_rate"])
def test_residuals_against_scipy_isotonic_regression(models, study, removed):
    scores = grids_of(models, DEFAULT_ANALYSIS)[0][0].scores
    row = cell(study.frame, "refusal_index", removed)
    assert row["kendall_w"] == pytest.approx(w_of(without(scores["refusal_index"], scores[removed])), abs=1e-6)


def test_rates_explain_themselves_and_the_weighted_score(study):
    for metric, removed in (
        ("correct_rate", "correct_rate"),
        ("refusal_rate", "refusal_rate"),
        ("weighted_score", "both"),
    ):
        row = cell(study.frame, metric, removed)
        assert (row["kendall_w"], row["status"], row["reason"]) == (None, "undefined", "all_tied")


def test_the_tie_correction_can_only_raise_w(study):
    known = study.frame.drop_nulls("kendall_w")
    assert (known["kendall_w_tie_corrected"] >= known["kendall_w"] - 1e-12).all()


def test_agreement_of_random_rankings_against_theory(study):
    row = cell(study.frame, "refusal_index", "nothing", None)
    assert row["random_kendall_w"] == pytest.approx(1 / 3, abs=4 * 0.24 / math.sqrt(SHUFFLES))
    assert row["random_kendall_w_low"] < row["random_kendall_w"] < row["random_kendall_w_high"]


def test_the_same_seed_gives_the_same_frame(models, few_resamples):
    scores = grids_of(models, DEFAULT_ANALYSIS)[0][0].scores
    assert stability_frame(scores, 1).equals(stability_frame(scores, 1))
    assert not stability_frame(scores, 1).equals(stability_frame(scores, 2))


def test_printed_table_has_the_layout_of_the_paper(study):
    table = paper_layout(study.frame)
    assert table["metric"].to_list() == ["Random", "Correct", "Refused", "C/A", "F", "Weighted", "RI"]
    assert table["block"].unique().to_list() == ["4 models, 3 settings"]
    assert table.width == 2 + 2 * 4 + 1
    assert table.columns[-1] == "W ceiling"
    heading = "& \\multicolumn{4}{c}{\\textbf{Kendall's W}} & \\multicolumn{4}{c}{\\textbf{Winner entropy}} & "
    assert heading in tex_text(study)
    row = table.filter(metric="RI").row(0, named=True)
    assert row["W Default"] == f"{cell(study.frame, 'refusal_index', 'nothing', None)['kendall_w']:.2f}"
    assert table.filter(metric="Correct")["W -Correct"].item() == "-"


def test_ceiling_of_w_is_at_most_one_and_lower_for_noisy_metrics(study):
    rows = study.frame.filter(removed="nothing")
    assert rows["kendall_w_ceiling"].null_count() == 0
    assert (rows["kendall_w_ceiling"] <= 1).all()
    index = rows.filter(metric="refusal_index").row(0, named=True)
    assert index["kendall_w_ceiling_low"] < index["kendall_w_ceiling"] < index["kendall_w_ceiling_high"] <= 1
    # Rates of 300 questions have little noise; the index has more.
    assert rows.filter(metric="correct_rate")["kendall_w_ceiling"].item() > index["kendall_w_ceiling"]
    assert (
        study.frame.filter(pl.col("removed") != "nothing")["kendall_w_ceiling"].null_count() == study.frame.height - 6
    )


def test_the_block_with_the_most_cells_is_ranked_and_the_rest_reported(models, few_resamples):
    """Four models in three settings have 12 cells, five models in two settings 10."""
    unfinished = make_run("e", variants=("low", "normal"), n=300, seed=8)
    study = ranking_stability.make([*models, unfinished], DEFAULT_OPTIONS)
    assert study.frame.select("n_models", "n_settings").unique().rows() == [(4, 3)]
    assert study.notes == (
        "The largest complete block has 4 of 5 models and 3 of 3 settings.",
        "The model e is left out: missing in d, high.",
    )


def test_undefined_values_are_missing_cells(models, few_resamples):
    n = 300
    never = {"low": table_rows(np.zeros(n), np.arange(n) % 2, model="e", variant="low")}
    later = {v: table_rows(np.arange(n) % 3 == 0, np.arange(n) % 2, model="e", variant=v) for v in ("normal", "high")}
    study = ranking_stability.make([models[0], run_of(never | later, model="e")], DEFAULT_OPTIONS)
    assert study.frame.select("n_models", "n_settings").unique().rows() == [(2, 2)]
    assert "The setting d, low is left out: RI of e undefined or at the boundary." in study.notes


def test_every_dataset_is_ranked_as_well_where_the_largest_block_lacks_one(models, few_resamples):
    """Four models under three prompts have 12 cells; two of them have a second dataset, and so 8 with it."""
    others = [make_run(name, dataset="other", variants=("normal",), n=300, seed=9 + i) for i, name in enumerate("ab")]
    study = ranking_stability.make([*models, *others], DEFAULT_OPTIONS)
    sizes = study.frame.select("block", "n_models", "n_settings").unique(maintain_order=True).rows()
    assert sizes == [(MOST_CELLS, 4, 3), (EVERY_DATASET, 2, 4)]
    assert study.notes == (
        "The largest complete block has 4 of 4 models and 3 of 4 settings.",
        "The setting other, normal is left out: missing for c; d.",
        "The largest complete block with a setting of every dataset has 2 of 4 models and 4 of 4 settings.",
        "The models c; d are left out: missing in other, normal.",
    )
    alone = ranking_stability.make([*models[:2], *others], DEFAULT_OPTIONS).frame.drop("block")
    assert alone.equals(study.frame.filter(block=EVERY_DATASET).drop("block"))
    table = paper_layout(study.frame)
    assert table["block"].unique(maintain_order=True).to_list() == ["4 models, 3 settings", "2 models, 4 settings"]
    assert len(study.figure().axes) == 4 * len(rankings.REMOVED_LABELS)


def test_single_model_or_setting_raises(models):
    with pytest.raises(NotPossibleError, match="two models or more"):
        ranking_stability.make(models[:1], DEFAULT_OPTIONS)
    with pytest.raises(NotPossibleError, match="the settings of more than one of them d, low"):
        ranking_stability.make(
            [make_run(name, variants=("low",), seed=i) for i, name in enumerate(NAMES)], DEFAULT_OPTIONS
        )


@pytest.mark.slow
def test_hostile_names_are_drawn_and_printed_safely(models, few_resamples):
    check_files(ranking_stability.make([*models[:2], make_run(HOSTILE, seed=5, n=300)], DEFAULT_OPTIONS))


# --- Rankings by combined RI


@pytest.fixture(scope="module")
def three_models() -> list[RunResults]:
    return [
        make_run(name, rho=rho, seed=i + 3) for i, (name, rho) in enumerate({"a": 0.7, "b": 0.65, "c": -0.2}.items())
    ]


def test_estimates_are_the_joint_index_of_each_model_over_its_variants(three_models):
    frame = ranking_with_ties.make(three_models, OPTIONS).frame.filter(part="model")
    for run in three_models:
        refused, wrong = (np.array([rows[name] for rows in run.tables.values()]) for name in ("refused", "wrong"))
        expected = joint_refusal_index(refused, wrong)
        row = frame.filter(model=run.model).row(0, named=True)
        assert row["estimate"] == pytest.approx(expected.estimate, abs=1e-12)
        assert (row["low"], row["high"]) == pytest.approx(expected.confidence_interval(), abs=1e-12)
    assert all(one >= other for one, other in pairwise(frame["estimate"]))


def test_indistinguishable_models_share_letters(three_models):
    letters = dict(
        ranking_with_ties.make(three_models, OPTIONS).frame.filter(part="model").select("model", "letters").iter_rows()
    )
    assert set(letters["a"]) & set(letters["b"])
    assert not set(letters["a"]) & set(letters["c"])


def test_differences_and_simultaneous_intervals_match_the_ranking(three_models):
    pairs = ranking_with_ties.make(three_models, OPTIONS).frame.filter(part="difference")
    expected = rank(three_models, Analysis(seed=OPTIONS.analysis.seed)).ranking.pairs
    assert [tuple(row) for row in pairs.select("estimate", "low", "high", "pvalue_max_t").iter_rows()] == [
        (pair.estimate, *pair.simultaneous_interval, pair.pvalue_max_t) for pair in expected
    ]


def test_frame_has_all_pairs_but_only_those_with_the_best_model_are_drawn():
    frame = ranking_with_ties.make([make_run(f"m{i}", rho=0.1 * i, n=120, seed=i) for i in range(7)], OPTIONS).frame
    pairs = frame.filter(part="difference")
    assert pairs.height == 21 > MAX_PAIRS
    first = frame.filter(place=1)["model"][0]
    assert pairs.filter("drawn").height == 6
    assert set(pairs.filter("drawn")["model"]) == {first}


def test_datasets_are_ranked_separately_and_a_single_model_is_reported(three_models):
    study = ranking_with_ties.make([*three_models, make_run("a", dataset="other", rho=0.3)], OPTIONS)
    assert set(study.frame["dataset"]) == {"d"}
    assert any("other is left out" in note for note in study.notes)
    with pytest.raises(NotPossibleError, match="two models or more"):
        ranking_with_ties.make(three_models[:1], OPTIONS)


def test_models_without_a_common_variant_raise():
    runs = [make_run("a", variants=("low", "normal")), make_run("b", variants=("high",), seed=1)]
    with pytest.raises(NotPossibleError, match="no two models share a prompt"):
        ranking_with_ties.make(runs, OPTIONS)


def test_models_and_prompts_of_the_largest_block_are_ranked(three_models):
    """Three models under three prompts have nine cells; a fourth model under one prompt would leave four."""
    partial = make_run("z", variants=("high",), seed=9)
    study = ranking_with_ties.make([*three_models, partial], OPTIONS)
    rows = study.frame.filter(part="model")
    assert rows["variants"].unique().to_list() == ["low, normal, high"]
    assert rows.filter(model="z").select("place", "estimate", "status").row(0) == (None, None, "left_out")
    assert "z is not ranked: it was not asked under low; normal." in study.notes
    ranked = rows.filter(pl.col("place").is_not_null()).drop("run")
    assert ranked.equals(ranking_with_ties.make(three_models, OPTIONS).frame.filter(part="model").drop("run"))
    check_files(study)


def test_prompt_without_an_index_of_most_models_is_left_out(three_models):
    n = 400
    never = table_rows(np.zeros(n), np.arange(n) % 2, model="b", variant="low")
    incomplete = [run.with_tables({**run.tables, "low": never}) for run in three_models[1:]]
    study = ranking_with_ties.make([three_models[0], *incomplete], OPTIONS)
    assert study.frame["variants"].unique().to_list() == ["normal, high"]
    assert [note for note in study.notes if note.startswith("The prompt")] == [
        "The prompt low is left out: the index of b is undefined (no refusals); "
        "the index of c is undefined (no refusals)."
    ]


def test_model_that_never_refuses_is_unranked_with_a_reason(three_models):
    n = 400
    silent = run_of({v: table_rows(np.zeros(n), np.arange(n) % 2, model="z", variant=v) for v in THRESHOLDS}, model="z")
    study = ranking_with_ties.make([*three_models, silent], OPTIONS)
    row = study.frame.filter(model="z", part="model").row(0, named=True)
    assert (row["place"], row["estimate"], row["status"]) == (None, None, "undefined")
    assert any(note.startswith("z is not ranked") for note in study.notes)
    check_files(study)


def test_run_with_more_graded_questions_represents_its_model():
    few, many = make_run("a", n=50, label="a (few)"), make_run("a", n=80, label="a (many)", seed=1)
    chosen, notes = chosen_runs([few, many, make_run("b")])
    assert [run.label for run in chosen] == ["a (many)", "b"]
    assert len(notes) == 1
    assert notes[0].startswith("a (few) is left out")
    assert display_names([few, many]) == ("a (few)", "a (many)")
    assert (reference_variant(few), reference_variant(make_run("c", variants=("low", "high")))) == ("normal", "low")


def test_hostile_names_are_drawn_as_text(three_models):
    study = ranking_with_ties.make([*three_models, make_run(HOSTILE, rho=0.2, seed=7)], OPTIONS)
    check_files(study)
    assert HOSTILE in study.frame["model"].to_list()


def test_a_model_has_the_same_colour_on_every_dataset():
    places = [("a", "x"), ("b", "x"), ("c", "x"), ("c", "y"), ("b", "y")]
    runs = [
        replace(make_run(model, n=200, seed=seed, variants=("low",)), dataset=dataset)
        for seed, (model, dataset) in enumerate(places)
    ]
    figure = ranking_with_ties.make(runs, DEFAULT_OPTIONS).figure()
    colours = [
        {label.get_text(): None for label in axes.get_yticklabels()} | dict(_colours(axes))
        for axes in figure.axes
        if axes.get_title(loc="left").startswith("Refusal Index")
    ]
    assert len(colours) == 2
    assert colours[1] == {name: colours[0][name] for name in colours[1]}
    assert len(set(colours[0].values())) == 3


def _colours(axes):
    """Return the colour of the point beside each label."""
    labels = {tick: label.get_text() for tick, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)}
    for line in axes.lines:
        if line.get_marker() == "o":
            yield labels[line.get_ydata()[0]], line.get_color()
