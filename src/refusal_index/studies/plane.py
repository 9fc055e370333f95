"""Points, contours and curves of the accuracy-refusal plane, as rows of a frame, and how they are drawn."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from refusal_index.outcomes.runs import ComparedRun
from refusal_index.stats import Estimate, iso_refusal_index
from refusal_index.studies import style
from refusal_index.studies.scores import mean_of, run_index, variant_scores
from refusal_index.studies.study import StudyOptions

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


def draw_contours(axes: Axes, contours: pl.DataFrame, label_at: Any = None, unlabelled: Collection[float] = ()) -> None:
    """Draw contours with their levels on them, at a refusal rate or, where none is given, where they come into view.

    Call it when the axes have their limits.
    """
    top = axes.get_ylim()[1]
    for (level,), line in contours.group_by("level", maintain_order=True):
        rates, correct = line["refusal_rate"].to_numpy(), line["correct_rate"].to_numpy()
        axes.plot(rates, correct, color=style.PALE, linewidth=0.8, zorder=1)
        visible = np.flatnonzero((correct <= 0.96 * top) & (rates >= 0.03))
        if visible.size and level not in unlabelled:
            place = visible[0] if label_at is None else visible[np.argmin(abs(rates[visible] - label_at))]
            axes.text(
                *(rates[place], correct[place], style.short_number(float(str(level)))),
                fontsize=6,
                color=style.GREY,
                ha="center",
                va="center",
                bbox={"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.6},
                clip_on=True,
                zorder=1.5,
            )


def draw_point_intervals(axes: Axes, row: dict[str, Any], colour: str) -> None:
    """Draw the intervals of both rates of a point."""
    style.interval_along_x(axes, row["correct_rate"], row["refusal_low"], row["refusal_high"], colour, 0.9)
    style.interval_along_y(axes, row["refusal_rate"], row["correct_low"], row["correct_high"], colour, 0.9)


def draw_curve(axes: Axes, curve: pl.DataFrame, colour: str) -> None:
    """Draw a run's curve with its band."""
    rates = curve["refusal_rate"].to_numpy()
    banded = curve.drop_nulls(["correct_low", "correct_high"])
    axes.fill_between(
        banded["refusal_rate"].to_numpy(),
        banded["correct_low"].to_numpy(),
        banded["correct_high"].to_numpy(),
        color=colour,
        alpha=0.16,
        linewidth=0,
    )
    axes.plot(rates, curve["correct_rate"].to_numpy(), color=colour, linewidth=1.2, zorder=2)


def plane_top(frame: pl.DataFrame) -> float:
    """Return the highest correct rate worth showing: a little above all points and curves."""
    shown = frame.filter(pl.col("kind") != "contour")
    highest = shown.select(pl.max_horizontal("correct_rate", "correct_high").max()).item()
    return min(1.0, 1.12 * highest) if highest else 1.0


def _end(index: Estimate, end: float | None, error_rate: float) -> list[float | None]:
    if end is None or index.estimate is None:
        return [None] * len(RATES)
    return [float(value) for value in iso_refusal_index(RATES, end, error_rate)]
