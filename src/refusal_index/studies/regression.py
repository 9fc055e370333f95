"""Straight lines through points of models, and scatter plots with names, families and such a line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from refusal_index.studies import style
from refusal_index.studies.paper_figures import PAPER, RUN
from refusal_index.studies.point_labels import label_points

FEWEST = 3
"""Points: two always lie on a line."""


@dataclass(frozen=True)
class Line:
    """A least-squares line of y on x."""

    # slope, intercept: of the line
    slope: float
    intercept: float
    r_squared: float  # share of the variance of y that it explains
    pvalue: float | None  # two-sided, of a slope of 0, by Student's t; None where the points lie on the line
    n: int  # number of points

    def at(self, x: ArrayLike) -> np.ndarray:
        """Return the line's value at x."""
        return self.intercept + self.slope * np.asarray(x, float)


def fit_line(x: ArrayLike, y: ArrayLike) -> Line | None:
    """Fit a line by least squares; None for fewer than three points, or where either has no spread.

    >>> line = fit_line([0, 1, 2, 3], [0, 1, 3, 4])
    >>> round(line.slope, 2), round(line.r_squared, 2), round(line.pvalue, 4)
    (1.4, 0.98, 0.0101)
    """
    across, up = np.asarray(x, float), np.asarray(y, float)
    if across.size < FEWEST or np.ptp(across) == 0 or np.ptp(up) == 0:
        return None
    dx, dy = across - across.mean(), up - up.mean()
    slope = float(dx @ dy / (dx @ dx))
    r_squared = float((dx @ dy) ** 2 / ((dx @ dx) * (dy @ dy)))
    freedom = across.size - 2
    pvalue = None
    if r_squared < 1:
        t = math.sqrt(freedom * r_squared / (1 - r_squared))
        pvalue = float(2 * stdtr(freedom, -t))
    return Line(slope, float(up.mean() - slope * across.mean()), r_squared, pvalue, across.size)


def line_band(line: Line, x: ArrayLike, y: ArrayLike, at: ArrayLike, confidence_level: float) -> np.ndarray:
    """Return half the width of the pointwise confidence band of a fitted line."""
    across, up, where = (np.asarray(values, float) for values in (x, y, at))
    freedom = across.size - 2
    left = up - line.at(across)
    spread = across - across.mean()
    error = np.sqrt(left @ left / freedom * (1 / across.size + (where - across.mean()) ** 2 / (spread @ spread)))
    return np.asarray(error * stdtrit(freedom, 0.5 + confidence_level / 2))


REGRESSION_SCHEMA = {
    **dict.fromkeys(("fitted", "fitted_low", "fitted_high", "slope", "intercept", "r_squared", "pvalue"), pl.Float64),
    "points": pl.Int64,
}
"""The columns that `with_regression` adds."""


def with_regression(
    frame: pl.DataFrame, x: str, *, by: Sequence[str], confidence_level: float, logarithmic: bool = False
) -> pl.DataFrame:
    """Regress ``refusal_index`` on a column within groups, and add the line's value and figures to every point.

    - `frame`: with the columns `x`, `by` and ``refusal_index``; points that lack either are not in the regression.
    - `x`: column to regress on; on its base-10 logarithm where `logarithmic`.
    - `by`: columns that tell the groups.
    - `confidence_level`: of the pointwise band of the line.
    - `logarithmic`: whether x is taken by its logarithm.
    """
    parts = [
        _regressed(group, x, confidence_level, logarithmic=logarithmic)
        for _, group in frame.group_by(by, maintain_order=True)
    ]
    return (
        pl.concat(parts)
        if parts
        else frame.with_columns(pl.lit(None, k).alias(n) for n, k in REGRESSION_SCHEMA.items())
    )


def _regressed(group: pl.DataFrame, x: str, confidence_level: float, *, logarithmic: bool) -> pl.DataFrame:
    empty = group.with_columns(pl.lit(None, kind).alias(name) for name, kind in REGRESSION_SCHEMA.items())
    known = group.filter(pl.col(x).is_not_null() & pl.col("refusal_index").is_not_null())
    across = known[x].log10().to_numpy() if logarithmic else known[x].to_numpy()
    up = known["refusal_index"].to_numpy()
    line = fit_line(across, up)
    if line is None:
        return empty
    at = (group[x].log10() if logarithmic else group[x]).to_numpy()
    fitted, reach = line.at(at), line_band(line, across, up, at, confidence_level)
    numbers = {"slope": line.slope, "intercept": line.intercept, "r_squared": line.r_squared, "pvalue": line.pvalue}
    return group.with_columns(
        pl.Series("fitted", fitted).fill_nan(None),
        pl.Series("fitted_low", fitted - reach).fill_nan(None),
        pl.Series("fitted_high", fitted + reach).fill_nan(None),
        *(pl.lit(value, pl.Float64).alias(name) for name, value in numbers.items()),
        pl.lit(line.n, pl.Int64).alias("points"),
    )


def draw_scatter(axes: Axes, frame: pl.DataFrame, x: str, families: Sequence[str], *, at: str | None = None) -> None:
    """Draw models by family, the paper's in grey, and the line of each group with its band; name them after that.

    - `axes`: with their scale.
    - `frame`: one row a model.
    - `x`: the column that was regressed on; its intervals are in ``x_low`` and ``x_high``, where there are any.
    - `families`: of the runs of all panels, so that a family looks alike in each.
    - `at`: the column of the points' places, where these are not x itself.
    """
    colours, markers = style.model_colours(families), style.model_markers(families)
    for source, colour in ((PAPER, style.PALE), (RUN, style.INK)):
        _draw_line(axes, frame.filter(pl.col("source") == source), x, colour)
    for row in frame.iter_rows(named=True):
        own, place = row["source"] == RUN, row[at or x]
        colour, marker = (colours[row["family"]], markers[row["family"]]) if own else (style.LIGHT, "o")
        style.interval_along_y(axes, place, row["low"], row["high"], colour, 0.9)
        style.interval_along_x(axes, row["refusal_index"], row.get(f"{x}_low"), row.get(f"{x}_high"), colour, 0.9)
        axes.plot(place, row["refusal_index"], marker, color=colour, markersize=4.5 if own else 3, zorder=3)


def run_families(frame: pl.DataFrame) -> list[str]:
    """Return the families of the runs, in order of appearance."""
    return frame.filter(pl.col("source") == RUN)["family"].unique(maintain_order=True).to_list()


def name_points(figure: Figure, panels: Iterable[tuple[Axes, pl.DataFrame]], x: str, *, at: str | None = None) -> None:
    """Name what `draw_scatter` drew: beside the points, or, of many, with numbers and a key below the panels.

    - `figure`: grows by the key.
    - `panels`: each with its rows.
    - `x`, `at`: as in `draw_scatter`.
    """
    drawn = list(panels)
    models = pl.concat([rows.select("source", "model", "family") for _, rows in drawn]).unique(maintain_order=True)
    # The runs before the paper's, whose names would take the places beside them.
    models = models.sort(pl.col("source") == PAPER, maintain_order=True)
    colours = style.model_colours(run_families(models))
    names, many = style.short_names(models["model"].to_list()), models.height > style.MOST_LABELS
    texts, inks = {}, {}
    for place, (source, model, family) in enumerate(models.iter_rows(), 1):
        texts[source, model] = str(place) if many else names[model]
        inks[source, model] = colours[family] if source == RUN else style.GREY
    if many:
        style.outside_key(figure, [(text, names[whose[1]], inks[whose]) for whose, text in texts.items()])
    for axes, rows in drawn:
        order = rows.sort(pl.col("source") == PAPER, maintain_order=True)
        whose = order.select("source", "model").rows()
        label_points(
            axes,
            order.select(at or x, "refusal_index").rows(),
            [texts[one] for one in whose],
            [inks[one] for one in whose],
            size=6.0 if many else 7.0,
            avoid=_drawn_over(rows, x, at),
        )


def _draw_line(axes: Axes, group: pl.DataFrame, x: str, colour: str) -> None:
    line = group.drop_nulls("fitted").sort(x)
    if line.height:
        across = line[x].to_numpy()
        axes.plot(across, line["fitted"].to_numpy(), color=colour, linewidth=1.0, zorder=1)
        if line["points"][0] > FEWEST:
            band = (line["fitted_low"].to_numpy(), line["fitted_high"].to_numpy())
            axes.fill_between(across, *band, color=colour, alpha=0.12, linewidth=0, zorder=0.5)


def _drawn_over(frame: pl.DataFrame, x: str, at: str | None) -> list[tuple[float, float]]:
    """Return points of the lines and of the runs' own intervals, for names to keep clear of."""
    clear = []
    for _, group in frame.drop_nulls("fitted").group_by("source", maintain_order=True):
        line = group.sort(x)
        across = np.linspace(float(line[x][0]), float(line[x][-1]), 25)
        clear += list(zip(across.tolist(), np.interp(across, line[x], line["fitted"]).tolist(), strict=True))
    for row in frame.filter(pl.col("source") == RUN).drop_nulls(["low", "high"]).iter_rows(named=True):
        clear += [(row[at or x], float(y)) for y in np.linspace(row["low"], row["high"], 9)]
        if row.get(f"{x}_low") is not None:
            across = np.linspace(row[f"{x}_low"], row[f"{x}_high"], 9)
            clear += [(float(place), row["refusal_index"]) for place in across]
    return clear
