"""Scatter plots of models, with names, families and a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refusal_index.studies import style
from refusal_index.studies.paper_figures import PAPER, RUN
from refusal_index.studies.point_labels import label_points
from refusal_index.studies.regression import FEWEST


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
        face = style.PAPER if row["sparse"] else colour
        size = 4.5 if own else 3
        axes.plot(place, row["refusal_index"], marker, color=colour, markerfacecolor=face, markersize=size, zorder=3)


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
