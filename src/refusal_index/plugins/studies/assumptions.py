"""Sensitivity of the Refusal Index to its assumptions: the Gaussian copula, and the grading of answers.

`copula_comparison` is the paper's comparison over single 2x2 tables, with a test that can distinguish copulas. A single
table cannot: given its margins, one parameter fits it exactly in every family that can reach it. Several prompts over
the same questions can, if they share one dependence.

`grading_sensitivity` shows the index corrected for a grader with given error rates. Refusals of the forced pass and
ungraded questions can be scored in several ways, of which the paper's, wrong, gives the highest index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refusal_index import stats
from refusal_index.data.rates import first_draws, outcome_matrix
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.sensitivity import outcome_counts
from refusal_index.plugins.studies import copulas, inputs, style
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study, study_text
from refusal_index.render.format import number, with_interval
from refusal_index.stats.copulas import COPULA_NAMES

FAMILY_LABELS = {
    "gaussian": "Gaussian",
    "t": "Student t, 4 df",
    "clayton": "Clayton",
    "gumbel": "Gumbel",
    "frank": "Frank",
    "survival_clayton": "Survival Clayton",
    "survival_gumbel": "Survival Gumbel",
}
MIN_PVALUE = 1e-4
"""Smaller p-values are drawn at this value, at the edge of the axis."""


@study
def copula_comparison(runs: Sequence[RunResults], _options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no table has a defined index."""
    defined, notes = inputs.defined_tables(runs)
    tables = [source.table for source in defined]
    if not tables:
        raise NotPossibleError(notes=notes)
    tests, impossible = _tests(inputs.chosen_runs(runs)[0])
    whole = {"part": "single_tables", "tables": len(tables), "status": "ok"}
    rows = [{**whole, **row} for row in copulas.copula_win_rates(tables)]
    frame = pl.DataFrame([*rows, *tests], schema=COPULA_SCHEMA, orient="row")
    tested = frame.filter(part="test_over_variants")
    rejected = tested.filter(pl.col("pvalue_holm") < 0.05)["family"].to_list()
    values = {
        "tables": len(tables),
        "tested": tested["model"].n_unique(),
        "ruled_out": "; ".join(f"{FAMILY_LABELS[family]} {rejected.count(family)}" for family in COPULA_NAMES),
    }
    return Study(frame, _draw_copulas, _printed_copulas, (*notes, *impossible), values)


COPULA_SCHEMA = schema(
    "part family model dataset tables log_likelihood aic bic gaussian_wins_log_likelihood gaussian_wins_aic "
    "gaussian_wins_bic ties parameter statistic degrees_of_freedom pvalue pvalue_holm status reason"
)


FITS = {"log_likelihood": "log-likelihood", "aic": "AIC", "bic": "BIC"}


def _tests(runs: Sequence[RunResults]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Test every family on the variants of each run; the p-values of all tests are Holm-adjusted."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for run, name in zip(runs, inputs.display_names(runs), strict=True):
        results = copulas.copula_tests(*outcome_matrix(list(run.tables.values())).arrays)
        if all(test.pvalue is None for test in results):
            notes.append(f"The test over the prompts of {name} is not possible ({results[0].reason}).")
        else:
            tests = sorted(results, key=lambda test: COPULA_NAMES.index(test.family))
            labels = {"part": "test_over_variants", "model": name, "dataset": run.dataset}
            for test in tests:
                measured = {column: getattr(test, column) for column in _OF_TEST}
                rows.append({**labels, "tables": len(test.tables) - len(test.left_out), **measured})
    tested = [row for row in rows if row["pvalue"] is not None]
    for row, adjusted in zip(tested, stats.holm([row["pvalue"] for row in tested]).tolist(), strict=True):
        row["pvalue_holm"] = adjusted
    return rows, tuple(notes)


_OF_TEST = ("family", "parameter", "statistic", "degrees_of_freedom", "pvalue", "status", "reason")


def _printed_copulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the paper's table, with the number of models for which the test rejects the family at 5% (Holm)."""
    tests = frame.filter(part="test_over_variants")

    def ruled_out(row: Mapping[str, Any]) -> str:
        pvalues = tests.filter(family=row["family"]).drop_nulls("pvalue")["pvalue_holm"]
        return f"{int((pvalues < 0.05).sum())} of {pvalues.len()}"

    columns = {
        "family": style.labelled(FAMILY_LABELS, "family"),
        **{heading: style.fixed(name, 2) for name, heading in FITS.items()},
        "LL wins": style.fixed("gaussian_wins_log_likelihood"),
        "AIC wins": style.fixed("gaussian_wins_aic"),
        "BIC wins": style.fixed("gaussian_wins_bic"),
        "ties": style.fixed("ties"),
        "ruled out": ruled_out,
    }
    return style.table(columns, part="single_tables")(frame)


def _draw_copulas(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw mean log-likelihoods relative to the Gaussian's, and the p-value of every family and model."""
    fits, tests = (frame.filter(part=part) for part in ("single_tables", "test_over_variants"))
    # With many models, the points of a family are spread vertically.
    models = tests["model"].unique(maintain_order=True).to_list()
    height = 2.9 + 0.1 * max(0, len(models) - style.MAX_LABELS)
    width, columns = (style.WIDTH * 1.25, 2) if tests.height else (style.WIDTH * 0.7, 1)
    axes = style.subplots(figure, width, height, 1, columns, sharey=True, squeeze=False)[0]
    style.name_rows(axes, [FAMILY_LABELS[family] for family in fits["family"]])
    _draw_fits(axes[0], fits)
    if tests.height:
        _draw_tests(axes[1], tests)
        if len(models) > style.MAX_LABELS:
            style.model_legend(figure, models)


def _draw_fits(axes: Axes, fits: pl.DataFrame) -> None:
    gaussian = fits.filter(family="gaussian")["log_likelihood"][0]
    axes.axvline(0, color=style.PALE)
    axes.set(title="One table at a time", xlabel="mean log-likelihood less the Gaussian's")
    gaps = [(row["log_likelihood"] - gaussian, row["ties"]) for row in fits.iter_rows(named=True)]
    beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "color": style.GREY}
    for y, (gap, ties) in enumerate(gaps):
        # Ties can differ by rounding.
        axes.plot(0.0 if ties == 1 else gap, y, "o", color=style.INK)
        if y:
            axes.annotate(f"{ties:.0%} ties", (1.02, y), fontsize=6.5, **beside)
    widest = max((abs(gap) for gap, ties in gaps if ties < 1), default=1.0)
    axes.set_xlim(-1.3 * widest, 0.5 * widest)
    style.few_ticks(axes.xaxis, 4)


def _draw_tests(axes: Axes, tests: pl.DataFrame) -> None:
    models = tests["model"].unique(maintain_order=True).to_list()
    colours = style.model_colours(models)
    markers = style.model_markers(models)
    short = style.short_names(models)
    few = len(models) <= style.MAX_LABELS
    shifts = style.shifts(models, (0.25 if few else 0.4) * (1 - 1 / len(models)))
    axes.set_xscale("log")
    axes.axvspan(MIN_PVALUE / 2, 0.05, color="#f4f4f4", zorder=0)
    spots = []
    for row in tests.drop_nulls("pvalue").iter_rows(named=True):
        model = row["model"]
        x = max(row["pvalue"], MIN_PVALUE)
        y = COPULA_NAMES.index(row["family"]) + shifts[model]
        style.mark(axes, x, y, colours[model], markers[model], size=4.5)
        if row["family"] == "gaussian":
            spots.append((x, y, short[model], colours[model]))
    label = "p-value, unadjusted; shaded: below 5%"
    axes.set(xlim=(MIN_PVALUE / 2, 1.5), title="All prompts at once", xlabel=label)
    if few and spots:
        xs, ys, names, inks = zip(*spots, strict=True)
        style.label_points(axes, list(zip(xs, ys, strict=True)), names, inks, size=6)


MAX_RATE = 0.05
RATES = tuple(np.linspace(0, MAX_RATE, 21).round(6).tolist())
ERRORS = {"both": (1.0, 1.0), "right_as_wrong": (1.0, 0.0), "wrong_as_right": (0.0, 1.0)}
"""The error rates that vary: right answers graded wrong, wrong answers graded right, or both equally."""
_GRADING_LINES = {"both": "-", "right_as_wrong": "--", "wrong_as_right": ":"}
_RESAMPLES = 2_000
LEFT_HEIGHT = 3.2
"""Height in inches of the curves next to a long list of variants."""
_BOUNDS = ("everything", "forced_refusals")


@study
def grading_sensitivity(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has a defined index."""
    defined, notes = inputs.defined_tables(runs)
    rows: list[dict[str, Any]] = []
    for source in defined:
        counts = outcome_counts(first_draws(source.run.tables[source.variant]))
        parts = [
            *scoring_rows(counts, source.table, options),
            *misgrading_bounds_rows(source.table),
        ]
        if source.variant == inputs.reference_variant(source.run):
            parts += misgrading_rows(source.table, options)
        rows += ({**source.where, **part} for part in parts)
    if not rows:
        raise NotPossibleError(notes=notes)
    frame = pl.DataFrame(rows, schema=GRADING_SCHEMA)
    models = frame["model"].n_unique()
    left_out = ["the intervals"] if models > style.MAX_BANDS else []
    left_out += ["the curves of one kind of error alone"] if models > style.MAX_LABELS else []
    broken = frame.filter(part="misgrading", name="both", status="undefined")
    first = broken.group_by("model", "variant", maintain_order=True).first()
    impossible = (study_text("grading_sensitivity", "impossible", **row) for row in first.iter_rows(named=True))
    return Study(frame, _draw_grading, _printed_grading, (*notes, *impossible), {"left_out": left_out})


GRADING_SCHEMA = schema(
    "model dataset variant part name rate estimate low high questions status reason",
    questions=pl.Float64,
)


def misgrading_rows(table: stats.ContingencyTable, options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield the corrected index for every assumed pair of error rates, with its interval."""
    level = options.analysis.confidence_level
    for name, (as_wrong, as_right) in ERRORS.items():
        for rate in RATES:
            corrected = stats.correct_misgrading(table, rate * as_wrong, rate * as_right)
            interval = corrected.confidence_interval(level, n_resamples=_RESAMPLES, rng=options.analysis.seed)
            where = {"part": "misgrading", "name": name, "rate": rate, "questions": float(table.n)}
            yield {**where, **stats.Estimate.of(corrected, interval).to_document()}


def misgrading_bounds_rows(table: stats.ContingencyTable) -> Iterator[dict[str, Any]]:
    """Yield the range of the corrected index for error rates from 0 to 1% and from 0 to 5%.

    The rates for refused and answered questions may differ, or are equal.
    """
    for rate in (0.01, MAX_RATE):
        for name, same in (("differing", False), ("same_rates", True)):
            bounds = stats.misgrading_range(table, (0.0, rate), (0.0, rate), same_rates=same)
            labels = {"part": "misgrading_range", "name": name, "rate": rate}
            yield {**labels, "questions": float(table.n), **_bounds(bounds)}


def scoring_rows(
    counts: stats.OutcomeCounts, table: stats.ContingencyTable, options: StudyOptions
) -> Iterator[dict[str, Any]]:
    """Yield the index as reported, under each scoring rule, and its sharp bounds over the missing answers.

    - `counts`: numbers of questions by outcome.
    - `table`: the reported counts: answers refused again count as wrong, ungraded questions are excluded.
    - `options`: confidence level of the intervals.
    """
    result = stats.refusal_index(table)
    reported = stats.Estimate.of(result, result.confidence_interval(options.analysis.confidence_level)).to_document()
    yield {"part": "reported", "name": "reported", "questions": float(table.n), **reported}
    for rule, scored in stats.scoring_rules(counts).items():
        index = {column: getattr(scored, column) for column in ("estimate", "status", "reason")}
        yield {"part": "scoring_rule", "name": rule, "questions": float(scored.table.n), **index}
    counted = (counts.refused_wrong, counts.refused_right, counts.answered_wrong, counts.answered_right)
    again = counts.refused_again
    all_missing = again + counts.unscored_forced, counts.unscored_first, counts.unscored_answered
    for name, unknown in (("forced_refusals", (again,)), ("everything", all_missing)):
        bounds = stats.missing_bounds(stats.ContingencyTable(*counted), *unknown)
        yield {"part": "bounds", "name": name, "questions": float(sum(unknown)), **_bounds(bounds)}


def _bounds(bounds: Any) -> dict[str, Any]:
    return {column: getattr(bounds, column) for column in ("low", "high", "status", "reason")}


def _printed_grading(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per model and variant: the index, the forced-refusal bounds, and the misgrading ranges."""
    rows = []
    for _, part in frame.group_by("model", "dataset", "variant", maintain_order=True):
        reported = part.filter(part="reported").row(0, named=True)
        row = {"model": reported["model"], "variant": reported["variant"]}
        row["RI"] = with_interval(reported["estimate"], reported["low"], reported["high"], reported["reason"])
        again = part.filter(part="bounds", name="forced_refusals").row(0, named=True)
        row["forced refusals"] = f"{again['questions']:.0f}"
        row["their bounds"] = _range(again)
        row["all missing"] = _range(part.filter(part="bounds", name="everything").row(0, named=True))
        for rate in (0.01, MAX_RATE):
            bounds = part.filter(part="misgrading_range", name="differing", rate=rate).row(0, named=True)
            row[f"misgrading up to {rate:.0%}"] = _range(bounds)
        rows.append(row)
    return pl.DataFrame(rows)


def _range(row: dict[str, Any]) -> str:
    return f"undefined ({row['reason']})" if row["low"] is None else f"{number(row['low'])} to {number(row['high'])}"


def _draw_grading(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw the corrected index against the assumed error rates, and the scoring rules of every variant."""
    keys = frame.select("model", "dataset", "variant").unique(maintain_order=True)
    height = max(2.9, 0.8 + 0.22 * keys.height)
    models = keys["model"].unique(maintain_order=True).to_list()
    figure.set_size_inches(style.WIDTH * 1.25, height)
    # Next to a long list of variants the curves keep their height, and the space below them names the models.
    tall = height > 1.5 * LEFT_HEIGHT
    grid = figure.add_gridspec(2, 2, height_ratios=[LEFT_HEIGHT, max(0.01, height - LEFT_HEIGHT)])
    left = figure.add_subplot(grid[0 if tall else slice(None), 0])
    right = figure.add_subplot(grid[:, 1])
    _draw_misgrading(left, frame.filter(part="misgrading"), models)
    _draw_rules(right, frame, keys)
    if len(models) > style.MAX_LABELS and tall:
        below = figure.add_subplot(grid[1, 0])
        below.set_axis_off()
        below.legend(handles=style.model_handles(models), loc="upper left", fontsize=6.5)
    elif len(models) > style.MAX_LABELS:
        style.model_legend(figure, models)


def _draw_misgrading(axes: Axes, rows: pl.DataFrame, models: Sequence[str]) -> None:
    axes.axhline(0, color=style.PALE)
    colours = style.model_colours(models)
    markers = style.model_markers(models)
    few = len(models) <= style.MAX_LABELS
    rows = rows.drop_nulls("estimate").with_columns(percent=100 * pl.col("rate"))
    for (model, _, name), part in rows.group_by("model", "dataset", "name", maintain_order=True):
        colour = colours[str(model)]
        if few or name == "both":
            axes.plot(part["percent"], part["estimate"], _GRADING_LINES[str(name)], color=colour, linewidth=1.2)
        if name == "both" and len(models) <= style.MAX_BANDS:
            style.shade(axes, part, "percent", "", colour, alpha=0.12)
    axes.set(title="Corrected for a grader's errors", xlabel="assumed error rate, per cent", ylabel="Refusal Index")
    axes.set_xticks(range(round(100 * MAX_RATE) + 1))
    curves = rows.filter(name="both").group_by("model", "dataset", maintain_order=True)
    ends = curves.agg(pl.col("percent", "estimate").last())
    if not few:
        for model, _, percent, index in ends.iter_rows():
            axes.plot(percent, index, markers[model], color=colours[model], markersize=4)
        return
    # Explains the lines, and puts each model's name at the end of its curve.
    key = "\u2014 both ways   -- right graded wrong   \u00b7\u00b7 wrong graded right"
    axes.annotate(key, (0.01, 0.01), xycoords="axes fraction", fontsize=5.8, color=style.GREY)
    axes.set_xlim(right=145 * MAX_RATE)
    labels = style.short_names(ends["model"].to_list(), 22)
    inks = [colours[model] for model in ends["model"]]
    points = ends.select("percent", "estimate").rows()
    # Labels can only cover the ends of the lines.
    near = rows.filter(pl.col("rate") >= 0.9 * MAX_RATE).select("percent", "estimate").rows()
    style.label_points(axes, points, [labels[model] for model in ends["model"]], inks, size=6.5, avoid=near)


def _draw_rules(axes: Axes, frame: pl.DataFrame, keys: pl.DataFrame) -> None:
    axes.axvline(0, color=style.PALE)
    labels = []
    names = style.short_names(keys["model"].to_list(), 22)
    for y, part in enumerate(frame.partition_by(keys.columns, maintain_order=True)):
        reported = part.filter(part="reported").row(0, named=True)
        all_missing, again = (part.filter(part="bounds", name=name).row(0, named=True) for name in _BOUNDS)
        for bound, width, colour in ((all_missing, 6, style.PALE), (again, 3, style.MODEL_COLOURS[4])):
            style.mark(axes, None, y, colour, xs=style.ends(bound), width=width)
        rules = part.filter(part="scoring_rule").drop_nulls("estimate")["estimate"]
        axes.plot(rules, [y] * rules.len(), "|", color=style.INK, markersize=5, markeredgewidth=0.7)
        style.mark(axes, None, y, style.GREY, xs=style.ends(reported), width=0.8)
        style.mark(axes, reported["estimate"], y, style.INK)
        labels.append(
            f"{names[reported['model']]}, {style.safe_text(reported['variant'], 8)} ({again['questions']:.0f})"
        )
    style.name_rows([axes], labels, 6.3)
    axes.set(title="Scoring rules", xlabel="Refusal Index")
    style.ticks_above_too(axes)
