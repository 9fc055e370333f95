"""The results table, the accuracy-refusal plane, and the best operating point in it."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest
from scipy.optimize import brentq
from scipy.stats import multivariate_normal, norm
from tests.studies.made import cells, made_run, rates
from tests.studies.outcomes_made import HOSTILE, check_files, counts_of, make_run, run_of, table_rows

from refusal_index.data.analysis import Analysis
from refusal_index.plugins.studies.curves import gap_left, iso_score
from refusal_index.plugins.studies.inputs import COMPARED, PAPER_SOURCE
from refusal_index.plugins.studies.planes import (
    MAX_CONTOURS,
    PENALTIES,
    SCORES,
    accuracy_refusal_plane,
    iso_refusal_index,
    operating_point,
    operating_point_rows,
    view_of,
)
from refusal_index.plugins.studies.results import results_table
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions, study_spec, tex_text
from refusal_index.stats import ContingencyTable, correct_rate_at, metrics, refusal_index

# --- The results table and the plane

OPTIONS = StudyOptions()


@pytest.fixture(scope="module")
def runs():
    return [made_run("a", n=400), made_run("b", rho=0.1, right=0.2, n=400, seed=1)]


def orthant(h: float, k: float, rho: float) -> float:
    return float(multivariate_normal.cdf([-h, -k], [0, 0], [[1, rho], [rho, 1]]))


def index_of(outcomes: pl.DataFrame) -> float:
    """Solve for the tetrachoric correlation with SciPy's normal distribution."""
    n11, n10, n01, n00 = cells(outcomes)
    n = n11 + n10 + n01 + n00
    h, k = norm.isf((n11 + n10) / n), norm.isf((n11 + n01) / n)
    rho = brentq(lambda value: orthant(h, k, value) - n11 / n, -0.999, 0.999, xtol=1e-10)
    return 6 / np.pi * np.arcsin(rho / 2)


def test_every_metric_against_counts(runs):
    frame = results_table.make(runs, OPTIONS).frame
    for run in runs:
        for variant, outcomes in run.tables.items():
            own = frame.filter(pl.col("model") == run.label, pl.col("variant") == variant)
            found = dict(own.select("metric", "estimate").rows())
            expected = rates(outcomes)
            assert found == pytest.approx(
                {name: expected[name] for name in found if name in expected} | {"refusal_index": index_of(outcomes)},
                abs=1e-6,
            )
            assert own["n"].to_list() == [400] * len(COMPARED)
            assert (own["low"] < own["estimate"]).all()
            assert (own["estimate"] < own["high"]).all()


def test_bootstrap_intervals_against_resampled_questions(runs):
    study = results_table.make(runs, OPTIONS)
    name, (variant, outcomes) = runs[0].label, next(iter(runs[0].tables.items()))
    rng, n = np.random.default_rng(7), outcomes.height
    refused, wrong = outcomes["refused"].to_numpy(), outcomes["wrong"].to_numpy()
    found: dict[str, list[float]] = {metric: [] for metric in COMPARED}
    for _ in range(700):  # an error of .1 standard deviations in either end
        chosen = rng.integers(n, size=n)
        table = ContingencyTable.from_arrays(refused[chosen], wrong[chosen])
        for metric in metrics(table):
            if metric.name in found:
                found[metric.name].append(metric.estimate)
    rows = study.frame.filter(model=name, variant=variant)
    for row in rows.iter_rows(named=True):
        draws = np.array(found[row["metric"]])
        low, high = np.quantile(draws, [0.025, 0.975])
        assert row["bootstrap_low"] == pytest.approx(low, abs=0.35 * draws.std())
        assert row["bootstrap_high"] == pytest.approx(high, abs=0.35 * draws.std())
    assert study.frame.filter(variant="combined")["bootstrap_low"].null_count() == len(runs) * len(COMPARED)


def test_the_printed_table_has_one_row_per_model_over_its_prompts(runs):
    study = results_table.make([*runs, made_run("c", variants=["low"], n=400, seed=2)], OPTIONS)
    printed = study.printed(study.frame)
    assert printed["Model"].to_list() == ["a", "b", "c"]
    assert printed["Prompts"].to_list() == ["4", "4", "1"]
    assert printed.columns[3:] == ["Correct", "Refused", "C/A", "F", "Weighted", "RI"]
    for model, variant in (("a", "combined"), ("c", "low")):
        for metric, heading in (("refusal_index", "RI"), ("correct_rate", "Correct")):
            row = study.frame.filter(model=model, variant=variant, metric=metric).row(0, named=True)
            value = printed.filter(Model=model)[heading].item()
            assert value == f"{row['estimate']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
    assert "Prompts" not in results_table.make(runs, OPTIONS).printed(study.frame.filter(pl.col("model") != "c"))


def test_theory_means_over_prompts_and_their_intervals_against_the_variance_of_question_means(runs):
    """Of the correct rate, a question contributes its mean over the prompts, so its variance over questions counts."""
    frame = results_table.make(runs, OPTIONS).frame.filter(variant="combined", model="a")
    tables = list(runs[0].tables.values())
    for metric in ("correct_rate", "refusal_rate", "correct_given_attempted", "f_score", "weighted_score"):
        row = frame.filter(metric=metric).row(0, named=True)
        assert row["estimate"] == pytest.approx(np.mean([rates(outcomes)[metric] for outcomes in tables]))
        assert row["variants"] == 4
    right = np.mean([~(table["refused"] | table["wrong"]).to_numpy() for table in tables], axis=0)
    row = frame.filter(metric="correct_rate").row(0, named=True)
    error = right.std() / np.sqrt(right.size)
    assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * error, rel=0.12)
    # Wilson's interval of as many independent answers would be too narrow.
    p = row["estimate"]
    assert row["high"] - row["low"] > 1.3 * 2 * 1.96 * np.sqrt(p * (1 - p) / (4 * right.size))


def test_a_value_over_fewer_prompts_is_marked_and_reported():
    run = made_run("m", n=120)
    every = run.tables["highest"].with_columns(
        refused=pl.lit(value=True), first_grade=pl.lit("refused"), forced_grade=pl.lit("incorrect")
    )
    run = run.with_tables({**run.tables, "highest": every.with_columns(wrong=pl.lit(value=True))})
    study = results_table.make([run], OPTIONS)
    row = study.printed(study.frame).row(0, named=True)
    assert [name for name, cell in row.items() if cell.endswith(" *")] == ["C/A", "F", "RI"]
    assert [note.partition(";")[0] for note in study.notes] == [
        f"{label} is over 3 of 4 prompts for m" for label in ("C/A", "F", "RI")
    ]
    own = study.frame.filter(pl.col("variant").is_in(["low", "normal", "high"]), metric="correct_given_attempted")
    combined = study.frame.filter(variant="combined", metric="correct_given_attempted")
    assert combined["estimate"].item() == pytest.approx(own["estimate"].mean())
    assert "* Over fewer prompts" in study.table_caption


def test_a_mean_without_sampling_error_has_no_interval():
    run = made_run("m", n=60)
    none_right = {
        name: rows.with_columns(wrong=pl.lit(value=True), forced_grade=pl.lit("incorrect"))
        for name, rows in run.tables.items()
    }
    frame = results_table.make([run.with_tables(none_right)], OPTIONS).frame
    row = frame.filter(variant="combined", metric="correct_rate").row(0, named=True)
    assert (row["estimate"], row["low"], row["high"]) == (0, None, None)
    index = frame.filter(variant="combined", metric="refusal_index").row(0, named=True)
    assert (index["estimate"], index["status"]) == (None, "undefined")


def test_datasets_and_published_rows_are_blocks():
    runs = [made_run("a", dataset="x", n=60), made_run("b", dataset="y", n=60), made_run("c", dataset="x", n=60)]
    runs = [dataclasses.replace(run, label=f"{run.model}, {run.dataset}") for run in runs]
    study = results_table.make(runs, OPTIONS)
    assert study.printed(study.frame).select("block", "Model").rows() == [("x", "a"), ("x", "c"), ("y", "b")]
    lines = tex_text(study).splitlines()
    (first,) = (place for place, line in enumerate(lines) if "\\textit{x}" in line)
    assert lines[first] == "\\multicolumn{7}{l}{\\textit{x}} \\\\"
    assert lines[first - 1] == "\\midrule"
    assert lines[first + 3 : first + 5] == ["\\midrule", "\\multicolumn{7}{l}{\\textit{y}} \\\\"]


def test_runs_with_several_prompts_have_one_combined_index(runs):
    frame = results_table.make([*runs, made_run("c", variants=["low"])], OPTIONS).frame
    joint = frame.filter(variant="combined", metric="refusal_index")
    assert joint["model"].to_list() == ["a", "b"]
    mean = frame.filter(pl.col("metric") == "refusal_index", pl.col("model") == "a", pl.col("variant") != "combined")
    assert joint["estimate"][0] == pytest.approx(mean["estimate"].mean(), abs=0.05)


def test_caption_states_p_and_those_of_the_paper(runs):
    study = results_table.make(runs, StudyOptions(Analysis(weighted_score_p=0.2)))
    assert "p = 0.2;" in study.caption
    assert "with p = 1." in study.caption
    row = study.frame.filter(pl.col("metric") == "weighted_score").row(0, named=True)
    expected = rates(runs[0].tables["low"])
    assert row["estimate"] == pytest.approx(expected["correct_rate"] - 0.2 * (1 - expected["refusal_rate"]))


def test_undefined_values_have_reasons_and_missing_ones_are_reported():
    given = [made_run(variants=["none"], n=50), made_run("x", unscored=3, n=50, seed=2)]
    study = study_spec("results_table").make(given, OPTIONS)
    assert any("x: answers left out because they have no grade: 12 of 200" in note for note in study.notes)
    never = made_run("never", n=50, variants=["low"])
    table = never.tables["low"].with_columns(refused=pl.lit(value=False), first_grade=pl.lit("incorrect"))
    never = never.with_tables(
        {"low": table.with_columns(wrong=pl.lit(value=True), forced_grade=pl.lit(None, pl.String))}
    )
    study = results_table.make([never], OPTIONS)
    row = study.frame.filter(pl.col("metric") == "refusal_index").row(0, named=True)
    assert (row["estimate"], row["status"], row["reason"]) == (None, "undefined", "nobody_refused")
    assert "undefined (no refusals)" in study.printed(study.frame)["RI"].to_list()
    study.figure()


def test_paper_rows_are_added_for_simpleqa():
    study = results_table.make([made_run(dataset="simpleqa", n=60)], OPTIONS)
    frame = study.frame
    paper = frame.filter(pl.col("source") == "paper")
    assert paper["model"].n_unique() == 16
    assert paper.filter(pl.col("model") == "GPT-4.1", pl.col("metric") == "f_score").row(0, named=True)["low"] == 0.33
    printed = study.printed(frame).filter(Model="Claude-Sonnet-4").row(0, named=True)
    assert printed["block"] == PAPER_SOURCE
    assert (printed["Correct"], printed["Weighted"]) == ("0.09 [0.07, 0.10]", "-0.06 [-0.07, -0.05]")
    assert printed["RI"] == "0.52 [0.45, 0.60]"


@pytest.mark.parametrize("name", ["results_table", "accuracy_refusal_plane", "index_and_accuracy", "index_and_size"])
def test_published_rows_are_left_out_on_request(name, tmp_path):
    names = [f"own-{size}b" for size in (72, 71, 70)]
    runs = [made_run(name, dataset="simpleqa", n=80, seed=seed) for seed, name in enumerate(names)]
    given = pl.DataFrame({"model": names, "family": "Own", "parameters_billion": [72, 71, 70]})
    path = tmp_path / "models.csv"
    given.write_csv(path)

    def models(study):
        return set(study.frame["model"].drop_nulls())

    with_paper, without = (
        study_spec(name).make(runs, StudyOptions(models=path, without_paper=left_out)) for left_out in (False, True)
    )
    assert "GPT-4.1-mini" in models(with_paper) or name == "index_and_size"
    assert "Llama-3.1-70B" in models(with_paper)
    assert models(without) == set(names)
    assert "16" not in without.caption


def test_points_of_the_plane_are_the_rates(runs):
    frame = accuracy_refusal_plane.make(runs, OPTIONS).frame
    points = frame.filter(pl.col("kind") == "point")
    for row in points.iter_rows(named=True):
        run = next(run for run in runs if run.label == row["model"])
        expected = rates(run.tables[row["variant"]])
        assert row["refusal_rate"] == expected["refusal_rate"]
        assert row["correct_rate"] == expected["correct_rate"]
        assert row["refusal_low"] < row["refusal_rate"] < row["refusal_high"]
    assert points.height == 8


def test_contours_have_a_constant_score():
    frame = accuracy_refusal_plane.make([made_run(n=400)], StudyOptions(Analysis(weighted_score_p=0.5))).frame
    contours = frame.filter(pl.col("kind") == "contour")
    kept = {
        "correct_given_attempted": lambda c, r: c / (1 - r),
        "f_score": lambda c, r: 2 * c / (2 - r),
        "weighted_score": lambda c, r: c - 0.5 * (1 - r),
    }
    for panel, formula in kept.items():
        rows = contours.filter(pl.col("panel") == panel, pl.col("refusal_rate") < 1)
        assert rows["level"].n_unique() >= 4
        for row in rows.iter_rows(named=True):
            assert formula(row["correct_rate"], row["refusal_rate"]) == pytest.approx(row["level"], abs=1e-9)


def test_index_contours_against_the_bivariate_normal():
    run = made_run(n=400)
    frame = accuracy_refusal_plane.make([run], OPTIONS).frame
    mu = np.mean([rates(outcomes)["error_rate"] for outcomes in run.tables.values()])
    curves = frame.filter(pl.col("kind") == "contour", pl.col("panel") == "refusal_index")
    for level in (0.2, 0.8):
        rho = 2 * np.sin(np.pi * level / 6)
        for row in curves.filter(pl.col("level") == level, pl.col("refusal_rate").is_between(0.1, 0.9)).iter_rows(
            named=True
        ):
            expected = orthant(norm.ppf(row["refusal_rate"]), norm.ppf(mu), rho)
            assert row["correct_rate"] == pytest.approx(expected, abs=1e-6)
    ends = curves.filter(pl.col("refusal_rate") == 0)["correct_rate"]
    assert ends.to_list() == pytest.approx([1 - mu] * 6)


def test_several_models_have_separate_curves_instead_of_index_contours(runs):
    frame = accuracy_refusal_plane.make(runs, OPTIONS).frame
    assert not frame.filter(pl.col("kind") == "contour", pl.col("panel") == "refusal_index").height
    curves = frame.filter(pl.col("kind") == "curve")
    assert curves["model"].unique(maintain_order=True).to_list() == ["a", "b"]
    assert (curves["correct_low"] <= curves["correct_rate"] + 1e-12).all()
    assert (curves["correct_rate"] <= curves["correct_high"] + 1e-12).all()


def test_each_panel_of_the_iso_study_has_its_own_contours(runs):
    frame = iso_refusal_index.make(runs, OPTIONS).frame
    assert frame["panel"].unique(maintain_order=True).to_list() == ["a", "b"]
    for run in runs:
        mu = np.mean([rates(outcomes)["error_rate"] for outcomes in run.tables.values()])
        start = frame.filter(pl.col("panel") == run.label, pl.col("kind") == "contour", pl.col("refusal_rate") == 0)
        assert start["correct_rate"].to_list() == pytest.approx([1 - mu] * start.height)


def test_one_model_has_limits_around_its_points(runs):
    frame = accuracy_refusal_plane.make(runs[:1], OPTIONS).frame
    points = frame.filter(kind="point")
    for (low, high), name in zip(view_of(frame), ("refusal", "correct"), strict=True):
        assert 0 <= low < points[f"{name}_low"].min()
        assert points[f"{name}_high"].max() < high <= 1
        assert high - low < 1.5 * (points[f"{name}_high"].max() - points[f"{name}_low"].min())
    assert view_of(accuracy_refusal_plane.make(runs, OPTIONS).frame)[0] == (0, 1)


def test_few_contours_of_each_score_are_in_view(runs):
    frame = accuracy_refusal_plane.make(runs[:1], OPTIONS).frame
    (left, right), (bottom, top) = view_of(frame)
    contours = frame.filter(pl.col("panel").is_in(SCORES), kind="contour")
    for (score,), part in contours.group_by("panel"):
        levels = sorted(part["level"].unique())
        assert 3 <= len(levels) <= MAX_CONTOURS, score
        steps = np.diff(levels)
        assert steps == pytest.approx([steps[0]] * len(steps))
        for level in levels:
            line = iso_score(np.linspace(left, right, 500), str(score), level)
            assert np.any((line > bottom) & (line < top))


def test_prompts_have_one_legend_and_the_same_marker_in_every_panel(runs):
    own = made_run("c", n=60, variants=["low", "mine", "other"])
    figure = iso_refusal_index.make([*runs, own], OPTIONS).figure()
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert len(names) == len(set(names))
    assert {"low", "mine", "other"} <= set(names)
    looks = {(line.get_color(), line.get_marker()) for line in legend.get_lines()}
    assert len(looks) == len(names)
    for axes in figure.axes:
        drawn = {(line.get_color(), line.get_marker()) for line in axes.lines if line.get_marker() != "None"}
        assert drawn <= looks
        assert len(drawn) >= 3


@pytest.mark.parametrize("module", [accuracy_refusal_plane, iso_refusal_index])
def test_other_datasets_are_left_out_and_named(module, runs):
    study = module.make([*runs, made_run("c", dataset="other", n=50)], OPTIONS)
    assert "c" not in study.frame["model"].to_list()
    assert any("here d; left out because they are on another dataset: c" in note for note in study.notes)


@pytest.mark.parametrize("module", [results_table, accuracy_refusal_plane, iso_refusal_index])
def test_study_without_runs_raises(module):
    with pytest.raises(NotPossibleError, match="one run or more"):
        module.make([], OPTIONS)


def test_plane_of_a_run_without_grades_raises():
    for module in (accuracy_refusal_plane, iso_refusal_index):
        with pytest.raises(NotPossibleError, match="no answer of these has a grade"):
            module.make([made_run(n=5, unscored=5)], OPTIONS)


@pytest.mark.slow
def test_plane_figures_are_drawn(runs):
    for module in (accuracy_refusal_plane, iso_refusal_index):
        assert module.make([*runs, made_run("e", n=60, seed=4)], OPTIONS).figure().axes
    context = accuracy_refusal_plane.make([made_run(dataset="simpleqa", n=60)], OPTIONS)
    assert context.frame.filter(pl.col("kind") == "context").height == 16
    assert context.figure().axes


def test_runs_on_one_dataset_are_labelled_by_model():
    run, other = made_run("a", n=60), made_run("a", dataset="other", n=60, seed=1)
    labelled = [dataclasses.replace(one, label=f"a, {one.dataset}") for one in (run, other)]
    assert set(accuracy_refusal_plane.make(labelled, OPTIONS).frame["model"].drop_nulls()) == {"a"}
    assert "a, other" in accuracy_refusal_plane.make(labelled, OPTIONS).notes[0]
    twice = [dataclasses.replace(run, label=name) for name in ("a (one)", "a (two)")]
    assert set(accuracy_refusal_plane.make(twice, OPTIONS).frame["model"].drop_nulls()) == {"a (one)", "a (two)"}


# --- Best operating point and abstention metrics

COUNTS = (300, 100, 200, 400)
TABLE = ContingencyTable(*COUNTS)


@pytest.fixture(scope="module")
def rows():
    return list(operating_point_rows(TABLE, OPTIONS))


def test_curve_runs_from_all_answered_to_all_refused(rows):
    curve = [row for row in rows if row["part"] == "curve"]
    assert (curve[0]["refusal_rate"], curve[0]["correct_rate"]) == (0.0, pytest.approx(0.5))
    assert (curve[-1]["refusal_rate"], curve[-1]["correct_rate"]) == (1.0, pytest.approx(0.0))
    (at,) = (row for row in curve if row["refusal_rate"] == 0.4)
    (today,) = (row for row in rows if row["part"] == "today")
    assert (today["refusal_rate"], today["correct_rate"]) == (0.4, 0.4)
    assert at["correct_rate"] == pytest.approx(0.4)
    assert at["correct_rate_low"] < 0.4 < at["correct_rate_high"]


@pytest.mark.parametrize("penalty", PENALTIES)
def test_best_point_of_the_curve_against_brute_force(rows, penalty):
    (best,) = (row for row in rows if row["part"] == "best" and row["penalty"] == penalty)
    r = np.linspace(0, 1, 4001)
    c = correct_rate_at(r, refusal_index(TABLE).rho, 0.5)
    utilities = c - penalty * (1 - r - c)
    assert best["utility_at_best"] == pytest.approx(utilities.max(), abs=1e-6)
    assert best["refusal_rate"] == pytest.approx(r[utilities.argmax()], abs=2e-3)
    assert best["correct_rate"] == pytest.approx(np.interp(best["refusal_rate"], r, c), abs=1e-6)
    today = 0.4 - penalty * 0.2
    assert best["utility_today"] == pytest.approx(today)
    assert best["estimate"] == pytest.approx(utilities.max() - today, abs=1e-6)
    assert 0 <= best["low"] <= best["estimate"] <= best["high"]


def test_metrics_against_counts(rows):
    both, needless, missed, fine = COUNTS
    found = {(row["name"], row.get("penalty")): row["estimate"] for row in rows if row["part"] == "metric"}
    for penalty in PENALTIES:
        assert found["utility", penalty] == pytest.approx((fine - penalty * missed) / 1000)
    precision, recall = both / (both + needless), both / (both + missed)
    assert found["omniscience_index", None] == pytest.approx(100 * (fine - missed) / 1000)
    assert found["refusal_precision", None] == pytest.approx(precision)
    assert found["refusal_recall", None] == pytest.approx(recall)
    assert found["abstention_f1", None] == pytest.approx(2 * precision * recall / (precision + recall))


def test_the_regret_interval_is_reproducible(rows):
    assert list(operating_point_rows(TABLE, OPTIONS)) == rows


def test_uninformative_refusals_have_the_best_point_at_an_end():
    best = [row for row in operating_point_rows(ContingencyTable(100, 100, 120, 100), OPTIONS) if row["part"] == "best"]
    assert {row["refusal_rate"] for row in best} <= {0.0, 1.0}
    assert {row["reason"] for row in best} <= {"answer_all", "refuse_all"}


def test_a_boundary_table_has_a_curve_without_a_band():
    curve = [row for row in operating_point_rows(ContingencyTable(30, 0, 20, 50), OPTIONS) if row["part"] == "curve"]
    assert {row["status"] for row in curve} == {"boundary"}
    assert {row["correct_rate_low"] for row in curve} == {None}


def test_other_variants_are_observed_and_not_fitted():
    run = make_run("a", n=200)
    frame = operating_point.make([run], OPTIONS).frame
    others = frame.filter(part="other_variant")
    assert others["variant"].to_list() == ["low", "high"]
    n11, n10, _, n00 = counts_of(run, "high")
    assert others.filter(variant="high").select("refusal_rate", "correct_rate").row(0) == ((n11 + n10) / 200, n00 / 200)
    assert set(frame.filter(part="curve")["variant"]) == {"normal"}


def test_run_without_ri_is_reported():
    silent = run_of({"normal": table_rows(np.zeros(30), np.arange(30) % 2, model="z")}, model="z")
    study = operating_point.make([silent, make_run("a", n=90)], OPTIONS)
    assert "1 left out, since RI is undefined (no refusals): z, normal." in study.notes
    with pytest.raises(NotPossibleError, match="no refusals"):
        operating_point.make([silent], OPTIONS)


def test_hostile_names_are_drawn_and_printed_safely():
    runs = [make_run(f"{HOSTILE}{i}", n=90, seed=i, dataset=None, variants=("low", "high")) for i in range(4)]
    check_files(operating_point.make(runs, OPTIONS))


def test_remaining_gap_of_each_model_is_printed():
    run = make_run("m", rho=0.6, n=400, variants=("normal",))
    study = operating_point.make([run], OPTIONS)
    row = study.frame.filter(part="gap").row(0, named=True)
    table = ContingencyTable(*counts_of(run, "normal"))
    assert row["estimate"] == pytest.approx(float(gap_left(refusal_index(table).rho, table.error_rate)))
    assert row["low"] < row["estimate"] < row["high"]
    assert study.printed(study.frame)["gap left"].item().startswith(f"{row['estimate']:.2f} [")
