"""How far the metrics scatter from one set of questions to the next: subsets of a run beside the closed form.

Subsets of one run are drawn without replacement from its finite number of questions, which makes them more alike than
new questions would be: at n of N the spread shrinks by ``sqrt((N - n) / (N - 1))``. The frame has the closed form with
that correction, to compare with the subsets, and without it, to plan by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from scipy.stats import chi2

from refusal_index import stats
from refusal_index.data.runs import ComparedRun
from refusal_index.findings.metrics import METRICS
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.scores import (
    ALL,
    chosen_runs,
    display_names,
    level_text,
    reference_variant,
    table_of,
)
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, widened
from refusal_index.render.format import abridged, number
from refusal_index.stats.intervals import normal_quantile

NAME = "sample_size"
TITLE = "Number of questions"
NEEDS = "a run of more than 50 graded questions with a defined Refusal Index"

SIZES = (50, 100, 150, 200, 300, 400, 500, 750, 1000, 1250, 1500, 1750, 2000)
N_SUBSETS = 50
CV_WANTED = 0.1
COMPARED = ("refusal_index", "correct_given_attempted", "f_score")
_COLOURS = dict(zip(COMPARED, (style.MODEL_COLOURS[1], style.MODEL_COLOURS[0], style.MODEL_COLOURS[2]), strict=True))
_PANELS_A_ROW = 3

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class _Source:
    """One variant of one run."""

    model: str
    dataset: str | None
    variant: str
    table: stats.ContingencyTable


def make(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has enough graded questions and a defined index."""
    chosen, notes = chosen_runs(runs)
    sources: list[_Source] = []
    near_zero: list[str] = []
    for run, name in zip(chosen, display_names(chosen), strict=True):
        variant = reference_variant(run)
        source = _Source(name, run.dataset, variant or ALL, table_of(run, variant))
        problem = _why_not(source.table)
        if problem:
            notes = (*notes, f"{name}, {source.variant} is left out: {problem}.")
            continue
        sources.append(source)
        if not _told_from_zero(source.table, options):
            near_zero.append(name)
    if not sources:
        raise NotPossibleError(f"It needs {NEEDS}.", notes)
    if near_zero:
        said = (
            f"RI cannot be told from 0 for {abridged(near_zero)}: what its scatter is of its size means little there."
        )
        notes = (*notes, said)
    frame = pl.concat([spread_frame(source.table, options).select(*_named(source), pl.all()) for source in sources])
    return Study(NAME, TITLE, _caption(sources, options), frame, draw, notes, printed)


def _named(source: _Source) -> list[pl.Expr]:
    named = {"model": source.model, "dataset": source.dataset, "variant": source.variant}
    texts = [pl.lit(value, pl.String).alias(name) for name, value in named.items()]
    return [*texts, pl.lit(source.table.n).alias("questions")]


def _why_not(table: stats.ContingencyTable) -> str | None:
    if table.n <= SIZES[0]:
        return f"it has {table.n} graded questions"
    found = stats.refusal_index(table)
    return None if found.status == "ok" else f"its index is {found.status} ({found.reason})"


def _told_from_zero(table: stats.ContingencyTable, options: StudyOptions) -> bool:
    low, high = stats.refusal_index(table).confidence_interval(options.confidence_level)
    return not low <= 0 <= high


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
    n11, n10, n01, n00 = np.asarray(counts, float).T
    n = n11 + n10 + n01 + n00
    correct, refused = n00 / n, (n11 + n10) / n
    return {
        "refusal_index": np.asarray(stats.refusal_index_many(n11, n10, n01, n00)),
        "correct_given_attempted": np.asarray(stats.correct_given_attempted(correct, refused)),
        "f_score": np.asarray(stats.f_score(correct, refused)),
    }


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
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    names = style.short_names(keys["model"].to_list(), 20)
    for panel, key in zip(axes.flat, keys.iter_rows(named=True), strict=False):
        part = frame.join(pl.DataFrame([key], schema=keys.schema), on=keys.columns, nulls_equal=True)
        _draw_run(panel, part)
        panel.set_title(f"{names[key['model']]}, {style.safe_text(key['variant'], 12)}", fontsize=7)
    style.switch_off_rest(axes, keys.height)
    for panel in axes[:, 0]:
        panel.set_ylabel("Coefficient of variation")
    # One label for the whole figure would lie on the legend.
    for place in range(max(0, keys.height - columns), keys.height):
        axes.flat[place].set_xlabel("Questions")
    lines = [
        Line2D([], [], color=_COLOURS[name], marker="o", markersize=3, label=METRICS[name].label) for name in COMPARED
    ]
    style.outside_legend(figure, lines)


def _draw_run(axes: Axes, rows: pl.DataFrame) -> None:
    axes.set(xscale="log", yscale="log")
    axes.axhline(CV_WANTED, color=style.GREY, linewidth=0.7, linestyle=":")
    for name in COMPARED:
        part, colour = rows.filter(metric=name).drop_nulls("cv"), _COLOURS[name]
        axes.plot(part["size"], part["predicted_cv"], color=colour, linewidth=1.2)
        axes.plot(part["size"], part["predicted_cv_for_new_questions"], color=colour, linewidth=0.8, linestyle="--")
        axes.vlines(part["size"], part["cv_low"], part["cv_high"], color=colour, linewidth=0.8, alpha=0.6)
        axes.plot(part["size"], part["cv"], "o", color=colour, markersize=3)
    sizes = [size for size in (50, 100, 200, 500, 1000, 2000) if size <= max(rows["size"])]
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.tick_params(axis="both", colors=style.INK)


def _caption(sources: Sequence[_Source], options: StudyOptions) -> str:
    needed = []
    for source in sources:
        scenario = stats.PlanningScenario.from_table(source.table)
        plans = {name: stats.questions_for_cv(scenario, CV_WANTED, metric=name).n for name in COMPARED}
        counts = (f"{METRICS[name].label} {n:,}" for name, n in plans.items() if n)
        needed.append(f"{source.model} {', '.join(counts)}")
    return (
        f"Scatter of RI, C/A and F over {N_SUBSETS} random subsets of the questions of one prompt variant: standard "
        "deviation over the absolute value on all questions. Points: subsets, with "
        f"{level_text(options)} intervals of their standard deviation; lines: the closed form from the run's own "
        "table, with the correction for subsets of one finite set of questions, dashed for new questions. "
        f"Dotted: {CV_WANTED:g}. New questions needed for that: {abridged(needed)}. The ratio of these "
        "numbers depends on the rates and the index; the paper's 25 % more for RI is not a rule. Subsets without a "
        "defined index are left out and counted in the frame."
    )
