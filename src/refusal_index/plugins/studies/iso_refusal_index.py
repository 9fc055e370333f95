"""One panel a model: its points in the accuracy-refusal plane over the curves of equal Refusal Index."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refusal_index import stats
from refusal_index.data.runs import ComparedRun
from refusal_index.plugins.studies import accuracy_refusal_plane, style
from refusal_index.plugins.studies.runs import data_values, of_one_dataset
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.style import label_points
from refusal_index.render.format import number

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
COLUMNS = 3
_COVERED = 0.15  # a contour's label this near to the run's own index would be covered by its curve


@study
def iso_refusal_index(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make one panel a run; raises NotPossibleError if no run has an answer with a grade."""
    chosen, notes = of_one_dataset(runs)
    rows = [row for run in chosen for row in _panel_rows(run, options)]
    frame = pl.DataFrame(rows, schema=accuracy_refusal_plane.PLANE_SCHEMA, orient="row")
    if not frame["kind"].eq("point").any():
        raise NotPossibleError("; no answer of these has a grade")
    return Study(frame, draw, accuracy_refusal_plane.printed, notes, data_values(chosen))


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw the panels, three in a row, each on a scale of its own."""
    models = frame["panel"].unique(maintain_order=True).to_list()
    columns = min(COLUMNS, len(models))
    width = max(style.COLUMN_WIDTH, style.WIDTH * columns / COLUMNS)
    figure.set_size_inches(width, 0.35 + 2.0 * math.ceil(len(models) / columns))
    names = style.short_names(models, 20)
    panels = style.panel_grid(figure, [names[model] for model in models], columns, sharex=True)
    for axes, model in zip(panels, models, strict=True):
        _draw_panel(axes, frame.filter(pl.col("panel") == model), named=model == models[0])
    figure.supxlabel("Refusal rate", fontsize=8)
    figure.supylabel("Correct answer rate", fontsize=8)


def _panel_rows(run: ComparedRun, options: StudyOptions) -> Iterator[tuple[Any, ...]]:
    error_rate = accuracy_refusal_plane.mean_error_rate(run, options)
    for kind, _panel, *row in accuracy_refusal_plane.point_rows(run, options):
        yield (kind, run.label, *row)
    yield from accuracy_refusal_plane.curve_rows(run, options, run.label)
    if error_rate is not None:
        for level in LEVELS:
            curve = np.asarray(stats.iso_refusal_index(accuracy_refusal_plane.RATES, level, error_rate))
            yield from accuracy_refusal_plane.contour_rows(run.label, run.label, level, curve)


def _draw_panel(axes: Axes, frame: pl.DataFrame, *, named: bool) -> None:
    axes.set(xlim=(0, 1), ylim=(0, accuracy_refusal_plane.plane_top(frame)))
    style.few_ticks(axes.xaxis, 2)
    style.few_ticks(axes.yaxis, 4)
    contours = frame.filter(pl.col("kind") == "contour")
    curve = frame.filter(pl.col("kind") == "curve")
    # The contours are furthest apart where refusing all that is wrong would end.
    bend = contours.filter(pl.col("level") == 1, pl.col("correct_rate") > 0.999 * pl.col("correct_rate").max())
    hidden = [level for level in LEVELS if curve.height and abs(level - curve["level"][0]) < _COVERED]
    levels = accuracy_refusal_plane.draw_contours(axes, contours, bend["refusal_rate"].max(), hidden)
    accuracy_refusal_plane.draw_curve(axes, curve, style.INK)
    points = frame.filter(pl.col("kind") == "point")
    colours = style.variant_colours(points["variant"].to_list())
    for row in points.iter_rows(named=True):
        accuracy_refusal_plane.mark_point(axes, row, colours[row["variant"]], size=5)
    axes.grid(visible=False)
    if curve.height:
        text = f"RI {number(curve['level'][0], 2)}"
        axes.text(0.97, 0.95, text, transform=axes.transAxes, ha="right", va="top", fontsize=7.5)
    if named:
        labels = [style.safe_text(variant, 16) for variant in points["variant"]]
        places = points.select("refusal_rate", "correct_rate").rows()
        # The curve, the ends of the intervals and the levels; labels may cover the pale contours.
        ends = [("refusal_rate", f"correct_{end}") for end in ("low", "high")]
        ends += [(f"refusal_{end}", "correct_rate") for end in ("low", "high")]
        avoid = [*curve.select("refusal_rate", "correct_rate").rows(), *levels]
        avoid += [place for columns in ends for place in points.select(columns).rows()]
        label_points(axes, places, labels, size=6.5, avoid=avoid)
