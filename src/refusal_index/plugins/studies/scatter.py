"""Scatter plots of models: their rows, lines of least squares with what captions say of them, and labels of points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy.special import stdtrit
from scipy.stats import linregress, spearmanr

from refusal_index.data.runs import ComparedRun
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.models import (
    PAPER,
    RUN,
    family_of,
    find_model,
    known_models,
    name_in_tables,
    paper_context,
)
from refusal_index.plugins.studies.runs import mean_of, run_index, variant_scores
from refusal_index.plugins.studies.sampling_error import NOISE_SCHEMA, is_sparse
from refusal_index.plugins.studies.study import StudyOptions, study_text
from refusal_index.render.format import number

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
    found = linregress(across, up)
    r_squared = float(found.rvalue**2)
    pvalue = float(found.pvalue) if r_squared < 1 else None
    return Line(float(found.slope), float(found.intercept), r_squared, pvalue, across.size)


def line_band(line: Line, x: ArrayLike, y: ArrayLike, at: ArrayLike, confidence_level: float) -> np.ndarray:
    """Return half the width of the pointwise confidence band of a fitted line."""
    across, up, where = (np.asarray(values, float) for values in (x, y, at))
    freedom = across.size - 2
    left = up - line.at(across)
    spread = across - across.mean()
    error = np.sqrt(left @ left / freedom * (1 / across.size + (where - across.mean()) ** 2 / (spread @ spread)))
    return np.asarray(error * stdtrit(freedom, 0.5 + confidence_level / 2))


REGRESSION_SCHEMA = {
    **dict.fromkeys(("fitted", "fitted_low", "fitted_high", "slope", "intercept"), pl.Float64),
    **dict.fromkeys(("spearman", "r_squared", "pvalue", "spearman_all", "r_squared_all"), pl.Float64),
    **dict.fromkeys(("points", "points_all"), pl.Int64),
    **NOISE_SCHEMA,
}
"""The columns that `with_regression` adds."""

Noise = Callable[[pl.DataFrame], Mapping[str, float | str | None]]
"""Gives the columns of `NOISE_SCHEMA` for the rows of a regression."""


def with_regression(
    frame: pl.DataFrame, x: str, *, by: Sequence[str], confidence_level: float, noise: Noise, logarithmic: bool = False
) -> pl.DataFrame:
    """Regress ``refusal_index`` on a column within groups, and add the line's value and figures to every point.

    Points that are ``sparse`` are not in the line and its figures, but only in those that end in ``_all``.

    - `frame`: with the columns `x`, `by`, ``sparse`` and ``refusal_index``; a point without a number is left out.
    - `x`: column to regress on; on its base-10 logarithm where `logarithmic`.
    - `by`: columns that tell the groups.
    - `confidence_level`: of the pointwise band of the line.
    - `noise`: says of the points in a line how far their sampling errors pull its R squared down.
    - `logarithmic`: whether x is taken by its logarithm.
    """
    parts = [
        _regressed(group, x, confidence_level, noise, logarithmic=logarithmic)
        for _, group in frame.group_by(by, maintain_order=True)
    ]
    return (
        pl.concat(parts)
        if parts
        else frame.with_columns(pl.lit(None, k).alias(n) for n, k in REGRESSION_SCHEMA.items())
    )


def spearman(x: ArrayLike, y: ArrayLike) -> float | None:
    """Return Spearman's rank correlation; None for fewer than three points, or where either has no spread.

    >>> spearman([1, 2, 3, 4], [1, 3, 2, 10])
    0.8
    """
    across, up = np.asarray(x, float), np.asarray(y, float)
    if across.size < FEWEST or np.ptp(across) == 0 or np.ptp(up) == 0:
        return None
    return round(float(spearmanr(across, up).statistic), 12)


def _regressed(
    group: pl.DataFrame, x: str, confidence_level: float, noise: Noise, *, logarithmic: bool
) -> pl.DataFrame:
    empty = group.with_columns(pl.lit(None, kind).alias(name) for name, kind in REGRESSION_SCHEMA.items())
    every = group.filter(pl.col(x).is_not_null() & pl.col("refusal_index").is_not_null())
    known = every.filter(~pl.col("sparse"))
    across, up = _coordinates(known, x, logarithmic=logarithmic)
    line = fit_line(across, up)
    if line is None:
        return empty
    with_sparse = _coordinates(every, x, logarithmic=logarithmic)
    line_of_all = fit_line(*with_sparse)
    at = (group[x].log10() if logarithmic else group[x]).to_numpy()
    fitted, reach = line.at(at), line_band(line, across, up, at, confidence_level)
    # The line is not drawn out to points that are not in it.
    fitted = np.where(group["sparse"].to_numpy(), np.nan, fitted)
    numbers = {"slope": line.slope, "intercept": line.intercept, "r_squared": line.r_squared, "pvalue": line.pvalue}
    numbers |= {"spearman": spearman(across, up), "spearman_all": spearman(*with_sparse)}
    numbers["r_squared_all"] = line_of_all.r_squared if line_of_all else None
    said = noise(known)
    return group.with_columns(
        pl.Series("fitted", fitted).fill_nan(None),
        pl.Series("fitted_low", fitted - reach).fill_nan(None),
        pl.Series("fitted_high", fitted + reach).fill_nan(None),
        *(pl.lit(value, pl.Float64).alias(name) for name, value in numbers.items()),
        *(pl.lit(said[name], kind).alias(name) for name, kind in NOISE_SCHEMA.items()),
        pl.lit(line.n, pl.Int64).alias("points"),
        pl.lit(every.height, pl.Int64).alias("points_all"),
    ).select(empty.columns)


def _coordinates(rows: pl.DataFrame, x: str, *, logarithmic: bool) -> tuple[np.ndarray, np.ndarray]:
    return (rows[x].log10() if logarithmic else rows[x]).to_numpy(), rows["refusal_index"].to_numpy()


def regression_note(row: Mapping[str, Any], against: str) -> str:
    """Say what a regression found: the rank correlation first, R squared with its noise ceiling, and with all points.

    - `row`: any of its rows.
    - `against`: what the index was regressed on.
    """
    side, _, why = str(row["noise_reason"] or "unknown").rpartition(":")
    names = {"side": "the index" if side == "first" else "the other side", "why": why.replace("_", " ")}
    return study_text("shared", "regression", **row, **names, against=against)


def scatter_texts(frame: pl.DataFrame) -> dict[str, Any]:
    """Return what captions say of a scatter plot of models: what its title is, hollow points, the paper's rows."""
    sparse = study_text("shared", "sparse") if frame["sparse"].any() else ""
    return {"headline": study_text("shared", "headline"), "sparse": sparse, "paper": PAPER in frame["source"]}


def r_squared_text(rows: pl.DataFrame) -> str:
    """Return the title of a panel: rank correlation, and how much of the index a line explains, of how much it could.

    - `rows`: of one panel, the runs' and the paper's.
    """
    parts = []
    for source, whose in ((RUN, ""), (PAPER, "paper: ")):
        for row in rows.filter(pl.col("source") == source).drop_nulls("r_squared").head(1).iter_rows(named=True):
            ceiling = row["r_squared_ceiling"]
            of = "" if ceiling is None else f" of {ceiling:.2f}"
            parts.append(f"{whose}rank {number(row['spearman'], 2)}, $R^2$ {row['r_squared']:.2f}{of}")
    return "\n".join(parts)


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
        colour, marker, size = style.LIGHT, "o", 3.0
        if row["source"] == RUN:
            colour, marker, size = colours[row["family"]], markers[row["family"]], 4.5
        look: dict[str, Any] = {"xs": (row.get(f"{x}_low"), row.get(f"{x}_high")), "ys": style.ends(row), "size": size}
        face = style.PAPER if row["sparse"] else None
        style.mark(axes, row[at or x], row["refusal_index"], colour, marker, face=face, width=0.9, **look)


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
        style.label_points(
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


RATES = ("correct_rate", "correct_given_attempted", "refusal_rate")

"""The metrics beside which the index is set."""


SIZES = ("parameters_billion", "active_parameters_billion")


def model_rows(runs: Sequence[ComparedRun], options: StudyOptions) -> Iterator[tuple[ComparedRun, dict[str, Any]]]:
    """Yield each run that has an index with its row: joint index, means of rates, what is known of its model."""
    known = known_models(options.models)
    for run in runs:
        scores, overall, name = variant_scores(run, options), run_index(run, options), name_in_tables(run, known)
        index, sizes = overall.index, find_model(name, known) or {}
        if index.estimate is None:
            continue
        yield (
            run,
            {
                "source": RUN,
                "model": run.label,
                "family": family_of(name, known),
                **{size: sizes.get(size) for size in SIZES},
                **{rate: mean_of(scores, rate) for rate in RATES},
                "refusal_index": index.estimate,
                "low": index.low,
                "high": index.high,
                "mean_refusal_index": overall.mean,
                "variants": overall.variants,
                "sparse": index.status != "ok" or is_sparse([own.table for own in scores]),
            },
        )


def paper_model_rows(runs: Sequence[ComparedRun]) -> Iterator[dict[str, Any]]:
    """Yield the same of the paper's models, with the intervals of all metrics, where all runs are on SimpleQA."""
    for row in paper_context(runs).iter_rows(named=True):
        index = {"low": row["refusal_index_low"], "high": row["refusal_index_high"]}
        yield {**row, **index, "source": PAPER, "mean_refusal_index": row["refusal_index"], "sparse": False}
