"""How far the metrics scatter from one set of questions to the next: subsets of a run beside the closed form.

Subsets of one run are drawn without replacement from its finite number of questions, which makes them more alike than
new questions would be: at n of N the spread shrinks by ``sqrt((N - n) / (N - 1))``. The frame has the closed form with
that correction, to compare with the subsets, and without it, to plan by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray
from scipy.stats import chi2

from refusal_index import stats
from refusal_index.data.runs import ComparedRun
from refusal_index.findings.metrics import METRICS
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.runs import (
    ALL,
    DefinedTable,
    chosen_runs,
    display_names,
    reference_variant,
    table_of,
)
from refusal_index.plugins.studies.sampling_error import metrics_of_counts
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study, study_text
from refusal_index.plugins.studies.tables import widened
from refusal_index.render.format import abridged, number
from refusal_index.stats.intervals import normal_quantile

SIZES = (50, 100, 150, 200, 300, 400, 500, 750, 1000, 1250, 1500, 1750, 2000)
N_SUBSETS = 50
CV_WANTED = 0.1
COMPARED = ("refusal_index", "correct_given_attempted", "f_score")
_COLOURS = dict(zip(COMPARED, (style.MODEL_COLOURS[1], style.MODEL_COLOURS[0], style.MODEL_COLOURS[2]), strict=True))
_PANELS_A_ROW = 3

FloatArray = NDArray[np.float64]


@study
def sample_size(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has enough graded questions and a defined index."""
    chosen, notes = chosen_runs(runs)
    sources: list[DefinedTable] = []
    near_zero: list[str] = []
    for run, name in zip(chosen, display_names(chosen), strict=True):
        variant = reference_variant(run)
        source = DefinedTable(run, name, variant, table_of(run, variant))
        problem = _why_not(source.table)
        if problem:
            notes = (*notes, f"{name}, {variant or ALL} is left out: {problem}.")
            continue
        sources.append(source)
        low, high = stats.refusal_index(source.table).confidence_interval(options.confidence_level)
        if low <= 0 <= high:
            near_zero.append(name)
    if not sources:
        raise NotPossibleError(notes=notes)
    if near_zero:
        notes = (*notes, study_text("sample_size", "near_zero", models=abridged(near_zero)))
    frames = []
    for source in sources:
        whose = (pl.lit(value, pl.String).alias(name) for name, value in source.where.items())
        own = spread_frame(source.table, options)
        frames.append(own.select(*whose, pl.lit(source.table.n).alias("questions"), pl.all()))
    frame = pl.concat(frames)
    needed = abridged([_needed(source) for source in sources])
    values = {"subsets": N_SUBSETS, "wanted": f"{CV_WANTED:g}", "needed": needed}
    return Study(frame, draw, printed, notes, values)


def _needed(source: DefinedTable) -> str:
    """Say how many questions the wanted coefficient of variation takes."""
    scenario = stats.PlanningScenario.from_table(source.table)
    plans = {name: stats.questions_for_cv(scenario, CV_WANTED, metric=name).n for name in COMPARED}
    counts = (f"{METRICS[name].label} {n:,}" for name, n in plans.items() if n)
    return f"{source.name} {', '.join(counts)}"


def _why_not(table: stats.ContingencyTable) -> str | None:
    if table.n <= SIZES[0]:
        return f"it has {table.n} graded questions"
    found = stats.refusal_index(table)
    return None if found.status == "ok" else f"its index is {found.status} ({found.reason})"


def spread_frame(table: stats.ContingencyTable, options: StudyOptions) -> pl.DataFrame:
    """Spread of the metrics over subsets of the questions of a table, for every size, beside the closed form.

    - `table`: the whole run; which questions are in a subset shows in its four counts only.
    - `options`: the seed, and the level of the interval of each standard deviation, which takes the scatter as normal.
    - returned: one row a metric and size.
    """
    rng = np.random.default_rng(options.seed)
    whole = {metric.name: metric for metric in stats.metrics(table)}
    rows = []
    for size in (size for size in SIZES if size < table.n):
        counts = rng.multivariate_hypergeometric(table.counts, size, size=N_SUBSETS)
        values = subset_values(counts)
        rows += [_row(whole[name], values[name], table, size, options.confidence_level) for name in COMPARED]
    return pl.DataFrame(rows, infer_schema_length=None)


def subset_values(counts: NDArray[np.int64]) -> dict[str, FloatArray]:
    """Compute the metrics of many tables, shape (k, 4); NaN where undefined."""
    found = metrics_of_counts(np.asarray(counts, float))
    return {name: found[name] for name in COMPARED}


def _row(
    whole: stats.Estimate, values: FloatArray, table: stats.ContingencyTable, size: int, confidence_level: float
) -> dict[str, Any]:
    defined = values[~np.isnan(values)]
    spread = float(np.std(defined, ddof=1)) if defined.size > 1 else math.nan
    scale = abs(whole.estimate or math.nan)
    low, high = (spread * factor for factor in _spread_factors(defined.size, confidence_level))
    fresh = _predicted(table, size, whole.name)
    within = fresh * math.sqrt((table.n - size) / (table.n - 1))
    row = {
        "metric": whole.name,
        "size": size,
        "subsets": values.size,
        "undefined": values.size - defined.size,
        "boundary": int(np.count_nonzero(np.abs(defined) == 1)) if whole.name == "refusal_index" else 0,
        "estimate": whole.estimate,
        "mean": float(defined.mean()) if defined.size else None,
        "standard_deviation": spread,
        "predicted_standard_deviation": within,
        "predicted_for_new_questions": fresh,
        "cv": spread / scale,
        "cv_low": low / scale,
        "cv_high": high / scale,
        "predicted_cv": within / scale,
        "predicted_cv_for_new_questions": fresh / scale,
        "questions_for_cv_10": stats.questions_for_cv(
            stats.PlanningScenario.from_table(table), CV_WANTED, metric=whole.name
        ).n,
    }
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}


def _predicted(table: stats.ContingencyTable, size: int, metric: str) -> float:
    plan = stats.expected_half_width(stats.PlanningScenario.from_table(table), size, metric=metric)
    return math.nan if plan.half_width is None else plan.half_width / normal_quantile(plan.confidence_level)


def _spread_factors(subsets: int, confidence_level: float) -> tuple[float, float]:
    """Return the factors from a standard deviation to the ends of its interval."""
    freedom, tail = subsets - 1, (1 - confidence_level) / 2
    if freedom < 1:
        return math.nan, math.nan
    return math.sqrt(freedom / chi2.ppf(1 - tail, freedom)), math.sqrt(freedom / chi2.ppf(tail, freedom))


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print the coefficients of variation, observed and predicted, one row a model and size."""
    cells = [f"{number(o)} ({number(p)})" for o, p in frame.select("cv", "predicted_cv").iter_rows()]
    labelled = frame.with_columns(
        pl.col("metric").replace_strict({name: one.label for name, one in METRICS.items()}).alias("metric"),
        pl.Series("cell", cells),
    )
    return widened(labelled, ["model", "variant", "size"], "metric", "cell")


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel a run: the coefficient of variation over the number of questions, both axes logarithmic."""
    keys = frame.select("model", "dataset", "variant").unique(maintain_order=True)
    columns = min(keys.height, _PANELS_A_ROW)
    rows = math.ceil(keys.height / columns)
    figure.set_size_inches(style.WIDTH * max(0.75, 0.42 * columns), 0.3 + 2.3 * rows)
    names = style.short_names(keys["model"].to_list(), 20)
    titles = [f"{names[model]}, {style.safe_text(variant, 12)}" for model, _, variant in keys.iter_rows()]
    panels = style.panel_grid(figure, titles, columns, sharex=True, sharey=True)
    for panel, key in zip(panels, keys.iter_rows(named=True), strict=True):
        _draw_run(panel, frame.join(pl.DataFrame([key], schema=keys.schema), on=keys.columns, nulls_equal=True))
    # One label for the whole figure would lie on the legend.
    for panel in panels[::columns]:
        panel.set_ylabel("Coefficient of variation")
    for panel in panels[-columns:]:
        panel.set_xlabel("Questions")
    lines = (style.handle(METRICS[name].label, _COLOURS[name], "o", "-", markersize=3) for name in COMPARED)
    style.outside_legend(figure, list(lines))


def _draw_run(axes: Axes, rows: pl.DataFrame) -> None:
    axes.set(xscale="log", yscale="log")
    axes.axhline(CV_WANTED, color=style.GREY, linewidth=0.7, linestyle=":")
    for name in COMPARED:
        part, colour = rows.filter(metric=name).drop_nulls("cv"), _COLOURS[name]
        axes.plot(part["size"], part["predicted_cv"], color=colour, linewidth=1.2)
        axes.plot(part["size"], part["predicted_cv_for_new_questions"], color=colour, linewidth=0.8, linestyle="--")
        axes.vlines(part["size"], part["cv_low"], part["cv_high"], color=colour, linewidth=0.8, alpha=0.6)
        axes.plot(part["size"], part["cv"], "o", color=colour, markersize=3)
    style.round_ticks(axes.xaxis, (50, 100, 200, 500, 1000, 2000), max(rows["size"]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.tick_params(axis="both", colors=style.INK)
