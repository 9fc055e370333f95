"""Runs in the accuracy-refusal plane, with the lines along which each metric stays the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, get_args

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from refusal_index.data.runs import ComparedRun
from refusal_index.findings.metrics import METRICS
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.curves import ScoreName, iso_score
from refusal_index.plugins.studies.models import paper_context
from refusal_index.plugins.studies.runs import INDEX, data_values, mean_of, of_one_dataset, run_index, variant_scores
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.tables import Cell, printed_table
from refusal_index.render.format import number, with_interval
from refusal_index.stats import Estimate, iso_refusal_index

PLANE_SCHEMA = {
    **dict.fromkeys(("kind", "panel", "model", "variant"), pl.String),
    **dict.fromkeys(("level", "refusal_rate", "refusal_low", "refusal_high", "correct_rate"), pl.Float64),
    "correct_low": pl.Float64,
    "correct_high": pl.Float64,
}
"""`kind` is ``point``, ``context``, ``contour`` or ``curve``; `level` is the score that a contour or curve keeps."""

RATES = np.linspace(0, 1, 51)


def point_rows(run: ComparedRun, options: StudyOptions) -> Iterator[tuple[Any, ...]]:
    """Yield one point a variant, with the intervals of both rates."""
    for scores in variant_scores(run, options):
        refused, correct = scores.metrics["refusal_rate"], scores.metrics["correct_rate"]
        ends = (refused.estimate, refused.low, refused.high, correct.estimate, correct.low, correct.high)
        if refused.estimate is not None:
            yield ("point", None, run.label, scores.variant, None, *ends)


def curve_rows(run: ComparedRun, options: StudyOptions, panel: str | None) -> Iterator[tuple[Any, ...]]:
    """Yield the curve of a run's index over all variants, and of the ends of its interval, at its mean error rate."""
    index, error_rate = run_index(run, options).index, mean_error_rate(run, options)
    if index.estimate is None or error_rate is None:
        return
    middle = iso_refusal_index(RATES, index.estimate, error_rate)
    ends = [_end(index, end, error_rate) for end in (index.low, index.high)]
    for rate, correct, low, high in zip(RATES, middle, *ends, strict=True):
        yield ("curve", panel, run.label, None, index.estimate, rate, None, None, correct, low, high)


def contour_rows(
    panel: str | None, model: str | None, level: float, correct_rates: np.ndarray
) -> Iterator[tuple[Any, ...]]:
    """Yield one contour over `RATES`, without the part where no model can be."""
    for rate, correct in zip(RATES, correct_rates, strict=True):
        if np.isfinite(correct):
            yield ("contour", panel, model, None, level, rate, None, None, correct, None, None)


def mean_error_rate(run: ComparedRun, options: StudyOptions) -> float | None:
    """Return the mean of a run's error rates under forced answering; None where it has none."""
    return mean_of(variant_scores(run, options), "error_rate")


def draw_contours(
    axes: Axes, contours: pl.DataFrame, label_at: Any = None, unlabelled: Collection[float] = ()
) -> list[tuple[float, float]]:
    """Draw contours with their levels on them, at a refusal rate or, where none is given, where they come into view.

    Call it when the axes have their limits. Returns where the levels stand.
    """
    labelled = []
    top = axes.get_ylim()[1]
    box = {"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.6}
    look: dict[str, Any] = {"fontsize": 6, "color": style.GREY, "ha": "center", "va": "center", "bbox": box}
    for (level,), line in contours.group_by("level", maintain_order=True):
        rates, correct = line["refusal_rate"].to_numpy(), line["correct_rate"].to_numpy()
        axes.plot(rates, correct, color=style.PALE, linewidth=0.8, zorder=1)
        visible = np.flatnonzero((correct <= 0.96 * top) & (rates >= 0.03))
        if visible.size and level not in unlabelled:
            place = visible[0] if label_at is None else visible[np.argmin(abs(rates[visible] - label_at))]
            text = style.short_number(float(str(level)))
            axes.text(rates[place], correct[place], text, clip_on=True, zorder=1.5, **look)
            labelled.append((float(rates[place]), float(correct[place])))
    return labelled


def mark_point(axes: Axes, row: dict[str, Any], colour: str, marker: str = "o", size: float = 4.0) -> None:
    """Draw a point with the intervals of both rates."""
    spans: dict[str, Any] = {"xs": style.ends(row, "refusal"), "ys": style.ends(row, "correct")}
    style.mark(axes, row["refusal_rate"], row["correct_rate"], colour, marker, size=size, width=0.9, **spans)


def draw_curve(axes: Axes, curve: pl.DataFrame, colour: str) -> None:
    """Draw a run's curve with its band."""
    band = curve.drop_nulls(["correct_low", "correct_high"])
    limits = band["correct_low"], band["correct_high"]
    axes.fill_between(band["refusal_rate"], *limits, color=colour, alpha=0.16, linewidth=0)
    axes.plot(curve["refusal_rate"], curve["correct_rate"], color=colour, linewidth=1.2, zorder=2)


def plane_top(frame: pl.DataFrame) -> float:
    """Return the highest correct rate worth showing: a little above all points and curves."""
    shown = frame.filter(pl.col("kind") != "contour")
    highest = shown.select(pl.max_horizontal("correct_rate", "correct_high").max()).item()
    return min(1.0, 1.12 * highest) if highest else 1.0


def _end(index: Estimate, end: float | None, error_rate: float) -> list[float | None]:
    if end is None or index.estimate is None:
        return [None] * len(RATES)
    return [float(value) for value in iso_refusal_index(RATES, end, error_rate)]


SCORES: tuple[ScoreName, ...] = get_args(ScoreName)
PANELS = (INDEX, *SCORES)
INDEX_LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
MOST_IN_PANEL = 4
"""So many models are named in the corner where no model can be, more of them below the panels."""


@study
def accuracy_refusal_plane(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Place runs in the plane; raises NotPossibleError if no run has an answer with a grade."""
    chosen, notes = of_one_dataset(runs)
    points = [row for run in chosen for row in point_rows(run, options)]
    if not points:
        raise NotPossibleError("; no answer of these has a grade")
    curves = [row for run in chosen for row in curve_rows(run, options, INDEX)]
    shown = pl.DataFrame([*points, *_context_rows(chosen), *curves], schema=PLANE_SCHEMA, orient="row")
    contours = [*_score_contours(plane_top(shown), options), *_index_contours(chosen, options)]
    frame = pl.concat([shown, pl.DataFrame(contours, schema=PLANE_SCHEMA, orient="row")])
    paper = frame["kind"].eq("context").any()
    values = {**data_values(chosen), "several": len(chosen) > 1, "paper": paper}
    return Study(frame, draw, printed, notes, values)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw one panel a metric, the same points in each."""
    figure.set_size_inches(style.WIDTH, 4.6)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    panels[0, 0].set(xlim=(0, 1), ylim=(0, plane_top(frame)))
    models = frame.filter(pl.col("kind") == "point")["model"].unique(maintain_order=True).to_list()
    colours, markers = style.model_colours(models), style.model_markers(models)
    for axes, panel in zip(panels.flat, PANELS, strict=True):
        contours = frame.filter((pl.col("kind") == "contour") & (pl.col("panel") == panel))
        draw_contours(axes, contours, 0.5 if panel == INDEX else None)
        _draw_points(axes, frame, colours, markers)
        axes.set_title(METRICS[panel].label)
        axes.grid(visible=False)
    for (model,), curve in frame.filter(pl.col("kind") == "curve").group_by("model", maintain_order=True):
        draw_curve(panels[0, 0], curve, colours[str(model)])
    labels = _labels(frame, models)
    if len(models) > MOST_IN_PANEL:
        style.model_legend(figure, models, labels)
    else:
        handles = style.model_handles(models, labels)
        panels[0, 0].legend(handles=handles, loc="upper right", labelcolor="linecolor", **_INSIDE)
    # One label for the whole figure would lie on the legend.
    for axes in panels[1]:
        axes.set_xlabel("Refusal rate")
    for axes in panels[:, 0]:
        axes.set_ylabel("Correct answer rate")


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print the points, not the lines."""
    columns: dict[str, str | Cell] = {
        "Model": "model",
        "Variant": "variant",
        "Refusal rate": lambda row: with_interval(row["refusal_rate"], *style.ends(row, "refusal")),
        "Correct answer rate": lambda row: with_interval(row["correct_rate"], *style.ends(row, "correct")),
    }
    return printed_table(frame.filter(kind="point"), columns)


def _context_rows(runs: Sequence[ComparedRun]) -> Iterator[tuple[Any, ...]]:
    for row in paper_context(runs).iter_rows(named=True):
        ends = (row[f"{name}{end}"] for name in ("refusal_rate", "correct_rate") for end in ("", "_low", "_high"))
        yield ("context", None, row["model"], None, None, *ends)


def _score_contours(top: float, options: StudyOptions) -> Iterator[tuple[Any, ...]]:
    """Yield the straight lines of the other metrics, at round levels all over what is shown."""
    ranges: dict[ScoreName, tuple[float, float]] = {
        "correct_given_attempted": (0.0, 1.0),
        "f_score": (0.0, 2 * top / (1 + top)),
        "weighted_score": (-options.penalty, max(top * (1 - options.penalty), 0.0)),
    }
    for score, (low, high) in ranges.items():
        for level in MaxNLocator(nbins=9, steps=[1, 2, 5, 10]).tick_values(low, high):
            line = iso_score(RATES, score, float(level), penalty=options.penalty)
            # Two points are the least that make a line; a score of nothing right is the axis itself.
            if np.isfinite(line).sum() > 1 and np.nanmax(line) > 0:
                yield from contour_rows(score, None, float(round(level, 10)), line)


def _index_contours(runs: Sequence[ComparedRun], options: StudyOptions) -> Iterator[tuple[Any, ...]]:
    """Yield iso-RI curves of a single run: those of several would need several error rates in one panel."""
    error_rate = mean_error_rate(runs[0], options) if len(runs) == 1 else None
    if error_rate is not None:
        for level in INDEX_LEVELS:
            yield from contour_rows(INDEX, None, level, np.asarray(iso_refusal_index(RATES, level, error_rate)))


def _draw_points(axes: Axes, frame: pl.DataFrame, colours: dict[str, str], markers: dict[str, str]) -> None:
    for row in frame.filter(kind="context").iter_rows(named=True):
        mark_point(axes, row, style.PALE, size=3)
    for row in frame.filter(kind="point").iter_rows(named=True):
        mark_point(axes, row, colours[row["model"]], markers[row["model"]])


_INSIDE: dict[str, Any] = {"handletextpad": 0.1, "borderpad": 0, "fontsize": 6.5}


def _labels(frame: pl.DataFrame, models: Sequence[str]) -> dict[str, str]:
    """Name models with their index."""
    levels = {row["model"]: row["level"] for row in frame.filter(pl.col("kind") == "curve").iter_rows(named=True)}
    names = style.short_names(models)
    return {model: f"{name}  {number(levels[model], 2)}" if model in levels else name for model, name in names.items()}
