"""The Refusal Index over models, against accuracy, refusal rate and size: scatter plots with regression lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import ArrayLike
from scipy.special import stdtrit
from scipy.stats import linregress, spearmanr

from refusal_index.data.folder import ComparedRun
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.plugins.studies import inputs, precision, style
from refusal_index.plugins.studies.stability import DisattenuatedCorrelation, disattenuated_correlation
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study, study_text
from refusal_index.render.format import abridged, number, with_interval

FEWEST = 3
"""Points: two always lie on a line."""


@dataclass(frozen=True)
class Line:
    """A least-squares line of y on x."""

    # slope, intercept: of the line
    slope: float
    intercept: float
    r_squared: float  # share of the variance of y that it explains
    spearman: float  # rank correlation of x and y
    pvalue: float | None  # two-sided, of a slope of 0, by Student's t; None where the points lie on the line
    n: int  # number of points

    def at(self, x: ArrayLike) -> np.ndarray:
        """Return the line's value at x."""
        return self.intercept + self.slope * np.asarray(x, float)


def fit_line(x: ArrayLike, y: ArrayLike) -> Line | None:
    """Fit a line by least squares; None for fewer than three points, or where either has no spread.

    >>> line = fit_line([0, 1, 2, 3], [0, 1, 3, 4])
    >>> round(line.slope, 2), round(line.r_squared, 2), line.spearman, round(line.pvalue, 4)
    (1.4, 0.98, 1.0, 0.0101)
    """
    across, up = np.asarray(x, float), np.asarray(y, float)
    if across.size < FEWEST or np.ptp(across) == 0 or np.ptp(up) == 0:
        return None
    found = linregress(across, up)
    r_squared = float(found.rvalue**2)
    pvalue = float(found.pvalue) if r_squared < 1 else None
    ranks = round(float(spearmanr(across, up).statistic), 12)
    return Line(float(found.slope), float(found.intercept), r_squared, ranks, pvalue, across.size)


def line_band(line: Line, x: ArrayLike, y: ArrayLike, at: ArrayLike, confidence_level: float) -> np.ndarray:
    """Return half the width of the pointwise confidence band of a fitted line."""
    across, up, where = (np.asarray(values, float) for values in (x, y, at))
    freedom = across.size - 2
    left = up - line.at(across)
    spread = across - across.mean()
    error = np.sqrt(left @ left / freedom * (1 / across.size + (where - across.mean()) ** 2 / (spread @ spread)))
    return np.asarray(error * stdtrit(freedom, 0.5 + confidence_level / 2))


REGRESSION_SCHEMA = schema(
    "fitted fitted_low fitted_high slope intercept spearman r_squared pvalue spearman_all r_squared_all points "
    "points_all r_squared_ceiling r_squared_without_noise noise_reason"
)
"""The columns that `with_regression` adds."""


def with_regression(
    frame: pl.DataFrame,
    x: str,
    errors: precision.RunErrors,
    *,
    by: Sequence[str],
    level: float,
    logarithmic: bool = False,
) -> pl.DataFrame:
    """Regress ``refusal_index`` on a column within groups, and add the line's value and figures to every point.

    Points that are ``sparse`` are not in the line and its figures, but only in those that end in ``_all``.

    - `frame`: with the columns `x`, `by`, ``source``, ``sparse`` and ``refusal_index``; leaves out points without a
      number. A column ``metric`` says what x is; without it x has no sampling error.
    - `x`: column to regress on; on its base-10 logarithm where `logarithmic`.
    - `errors`: of the runs; those of the paper come from its intervals.
    - `by`: columns that tell the groups.
    - `level`: of the pointwise band of the line.
    """
    parts = []
    for _, group in frame.group_by(by, maintain_order=True):
        empty = group.with_columns(pl.lit(None, kind).alias(name) for name, kind in REGRESSION_SCHEMA.items())
        every = group.drop_nulls([x, "refusal_index"])
        known = every.filter(~pl.col("sparse"))
        across, up = _coordinates(known, x, logarithmic=logarithmic)
        line, line_of_all = fit_line(across, up), fit_line(*_coordinates(every, x, logarithmic=logarithmic))
        if line is None or line_of_all is None:
            parts.append(empty)
            continue
        at, _ = _coordinates(group, x, logarithmic=logarithmic)
        fitted, reach = line.at(at), line_band(line, across, up, at, level)
        # The line is not drawn out to points that are not in it.
        fitted = np.where(group["sparse"].to_numpy(), np.nan, fitted)
        numbers = {
            **{name: getattr(line, name) for name in ("slope", "intercept", "spearman", "r_squared", "pvalue")},
            **{f"{name}_all": getattr(line_of_all, name) for name in ("spearman", "r_squared")},
            "points": line.n,
            "points_all": every.height,
            **precision.noise_columns(_without_noise(known, x, across, errors)),
        }
        lined = group.with_columns(
            *(pl.lit(value, REGRESSION_SCHEMA[name]).alias(name) for name, value in numbers.items()),
            pl.Series("fitted", fitted).fill_nan(None),
            pl.Series("fitted_low", fitted - reach).fill_nan(None),
            pl.Series("fitted_high", fitted + reach).fill_nan(None),
        )
        parts.append(lined.select(empty.columns))
    return pl.concat(parts)


def _without_noise(
    rows: pl.DataFrame, x: str, across: np.ndarray, errors: precision.RunErrors
) -> DisattenuatedCorrelation:
    """Take the sampling errors of both sides out of the correlation of the index with x."""
    up, exact = rows["refusal_index"], "metric" not in rows.columns
    if rows["source"][0] == inputs.PAPER:
        own = precision.printed_errors(rows["low"], rows["high"])
        other = np.zeros_like(own) if exact else precision.printed_errors(rows[f"{x}_low"], rows[f"{x}_high"])
        return disattenuated_correlation(up, across, own, other)
    models = rows["model"].to_list()
    influence = errors.of(models, INDEX)
    other = np.zeros_like(influence) if exact else errors.of(models, rows["metric"][0])
    return precision.without_noise(up, across, influence, other)


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
    return {"headline": study_text("shared", "headline"), "sparse": sparse, "paper": inputs.PAPER in frame["source"]}


def r_squared_text(rows: pl.DataFrame) -> str:
    """Return the title of a panel: rank correlation, and how much of the index a line explains, of how much it could.

    - `rows`: of one panel, the runs' and the paper's.
    """
    parts = []
    for source, whose in ((inputs.RUN, ""), (inputs.PAPER, "paper: ")):
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
    for source, colour in ((inputs.PAPER, style.PALE), (inputs.RUN, style.INK)):
        line = frame.filter(source=source).drop_nulls("fitted").sort(x)
        if line.height:
            axes.plot(line[x], line["fitted"], color=colour, linewidth=1.0, zorder=1)
        if line.height and line["points"][0] > FEWEST:
            band = (line["fitted_low"], line["fitted_high"])
            axes.fill_between(line[x], *band, color=colour, alpha=0.12, linewidth=0, zorder=0.5)
    for row in frame.iter_rows(named=True):
        colour, marker, size = style.LIGHT, "o", 3.0
        if row["source"] == inputs.RUN:
            colour, marker, size = colours[row["family"]], markers[row["family"]], 4.5
        look: dict[str, Any] = {"xs": (row.get(f"{x}_low"), row.get(f"{x}_high")), "ys": style.ends(row), "size": size}
        face = style.PAPER if row["sparse"] else None
        style.mark(axes, row[at or x], row["refusal_index"], colour, marker, face=face, width=0.9, **look)


def run_families(frame: pl.DataFrame) -> list[str]:
    """Return the families of the runs, in order of appearance."""
    return frame.filter(pl.col("source") == inputs.RUN)["family"].unique(maintain_order=True).to_list()


def name_points(figure: Figure, panels: Iterable[tuple[Axes, pl.DataFrame]], x: str, *, at: str | None = None) -> None:
    """Name what `draw_scatter` drew: beside the points, or, of many, with numbers and a key below the panels.

    - `figure`: grows by the key.
    - `panels`: each with its rows.
    - `x`, `at`: as in `draw_scatter`.
    """
    drawn = list(panels)
    models = pl.concat([rows.select("source", "model", "family") for _, rows in drawn]).unique(maintain_order=True)
    # The runs before the paper's, whose names would take the places beside them.
    models = models.sort(pl.col("source") == inputs.PAPER, maintain_order=True)
    colours = style.model_colours(run_families(models))
    names, many = style.short_names(models["model"].to_list()), models.height > style.MOST_LABELS
    texts, inks = {}, {}
    for place, (source, model, family) in enumerate(models.iter_rows(), 1):
        texts[source, model] = str(place) if many else names[model]
        inks[source, model] = colours[family] if source == inputs.RUN else style.GREY
    if many:
        style.outside_key(figure, [(text, names[whose[1]], inks[whose]) for whose, text in texts.items()])
    for axes, rows in drawn:
        order = rows.sort(pl.col("source") == inputs.PAPER, maintain_order=True)
        whose = order.select("source", "model").rows()
        style.label_points(
            axes,
            order.select(at or x, "refusal_index").rows(),
            [texts[one] for one in whose],
            [inks[one] for one in whose],
            size=6.0 if many else 7.0,
            avoid=_drawn_over(rows, x, at),
        )


def _drawn_over(frame: pl.DataFrame, x: str, at: str | None) -> list[tuple[float, float]]:
    """Return points of the lines and of the runs' own intervals, for names to keep clear of."""
    clear = []
    for _, group in frame.drop_nulls("fitted").group_by("source", maintain_order=True):
        line = group.sort(x)
        across = np.linspace(float(line[x][0]), float(line[x][-1]), 25)
        clear += list(zip(across.tolist(), np.interp(across, line[x], line["fitted"]).tolist(), strict=True))
    for row in frame.filter(pl.col("source") == inputs.RUN).drop_nulls(["low", "high"]).iter_rows(named=True):
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
    known = inputs.known_models(options.models)
    for run in runs:
        scores, overall = inputs.variant_scores(run, options), inputs.run_index(run, options)
        name, index = inputs.name_in_tables(run, known), overall.index
        if index.estimate is None:
            continue
        sizes = inputs.find_model(name, known) or {}
        row = {
            "source": inputs.RUN,
            "model": run.label,
            "family": inputs.family_of(name, known),
            **{size: sizes.get(size) for size in SIZES},
            **{rate: inputs.mean_of(scores, rate) for rate in RATES},
            "refusal_index": index.estimate,
            "low": index.low,
            "high": index.high,
            "mean_refusal_index": overall.mean,
            "variants": overall.variants,
            "sparse": index.status != "ok" or precision.is_sparse([own.table for own in scores]),
        }
        yield run, row


def paper_model_rows(runs: Sequence[ComparedRun]) -> Iterator[dict[str, Any]]:
    """Yield the same of the paper's models, with the intervals of all metrics, where all runs are on SimpleQA."""
    for row in inputs.paper_context(runs).iter_rows(named=True):
        index = {"low": row["refusal_index_low"], "high": row["refusal_index_high"]}
        yield {**row, **index, "source": inputs.PAPER, "mean_refusal_index": row["refusal_index"], "sparse": False}


AXIS_LABELS = {
    "correct_rate": "Correct answer rate",
    "correct_given_attempted": "Correct given attempted (C/A)",
    "refusal_rate": "Refusal rate",
}
ACCURACY_POINTS = schema(
    "metric source model family value value_low value_high refusal_index low high mean_refusal_index variants sparse"
)


@study
def index_and_accuracy(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Regress the index on two measures of accuracy, and on the refusal rate.

    Raises NotPossibleError if fewer than three models have an index, and the paper's are not there to compare with.
    """
    chosen, notes = inputs.of_one_dataset(runs)
    rows = list(_rate_rows(chosen, options))
    undefined = [run.label for run in chosen if run.label not in {row["model"] for row in rows}]
    if undefined:
        notes = (*notes, f"Left out, since the index or the accuracy is undefined: {abridged(undefined)}.")
    frame = pl.DataFrame([*_paper_rate_rows(chosen), *rows], schema=ACCURACY_POINTS)
    if not rows or frame["model"].n_unique() < FEWEST:
        raise NotPossibleError(notes=notes)
    errors = precision.RunErrors(chosen, options)
    lined = with_regression(frame, "value", errors, by=("metric", "source"), level=options.confidence_level)
    ordered = pl.col("metric").replace_strict({name: place for place, name in enumerate(RATES)})
    above = (pl.col("refusal_index") > pl.col("fitted")).alias("above_line")
    frame = lined.with_columns(above).sort(ordered, maintain_order=True)
    lines = frame.drop_nulls("r_squared").unique(["metric", "source"], maintain_order=True)
    notes = (*notes, *(regression_note(row, METRICS[row["metric"]].label) for row in lines.iter_rows(named=True)))
    values = {**inputs.data_values(chosen), "resamples": f"{precision.RESAMPLES:,}", **scatter_texts(frame)}
    return Study(frame, _draw_accuracy, style.table(PRINTED_ACCURACY), notes, values)


def _draw_accuracy(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw one panel a metric."""
    crowded = frame.filter(pl.col("source") == inputs.PAPER).height > 0
    figure.set_size_inches(7.6 if crowded else 7.0, 3.4 if crowded else 2.7)
    panels = figure.subplots(1, len(RATES), sharey=True)
    parts = [frame.filter(pl.col("metric") == metric) for metric in RATES]
    for axes, metric, own in zip(panels, RATES, parts, strict=True):
        axes.set_xlabel(AXIS_LABELS[metric])
        axes.margins(x=0.18, y=0.1)
        axes.set_title(r_squared_text(own), fontsize=7, fontweight="normal")
        draw_scatter(axes, own, "value", run_families(frame))
    panels[0].set_ylabel("Refusal Index")
    name_points(figure, zip(panels, parts, strict=True), "value")


_SIDE = {True: "above", False: "below", None: "-"}
PRINTED_ACCURACY: Mapping[str, str | style.Cell] = {
    "Against": lambda row: METRICS[row["metric"]].label,
    "Model": "model",
    "Family": "family",
    "Rate": style.ranged("value"),
    "RI": lambda row: with_interval(row["refusal_index"], row["low"], row["high"]),
    "Line": style.fixed("fitted"),
    "Lies": lambda row: _SIDE[row["above_line"]],
    "Rank correlation": style.fixed("spearman"),
    "R squared": style.fixed("r_squared"),
    "Ceiling": style.fixed("r_squared_ceiling"),
}


def _rate_rows(runs: Sequence[ComparedRun], options: StudyOptions) -> Iterator[dict[str, Any]]:
    for run, row in model_rows(runs, options):
        scores = inputs.variant_scores(run, options)
        resampled = precision.resampled_metrics(run, options) if len(scores) > 1 else {}
        for metric in RATES:
            if row[metric] is None:
                continue
            low, high = scores[0].metrics[metric].low, scores[0].metrics[metric].high
            if resampled:
                low, high = precision.percentile_interval(resampled[metric].mean(axis=1), options.confidence_level)
            yield {**row, "metric": metric, "value": row[metric], "value_low": low, "value_high": high}


def _paper_rate_rows(runs: Sequence[ComparedRun]) -> Iterator[dict[str, Any]]:
    for row in paper_model_rows(runs):
        for metric in RATES:
            ends = {"value_low": row[f"{metric}_low"], "value_high": row[f"{metric}_high"]}
            yield {**row, "metric": metric, "value": row[metric], **ends}


SIZE = "parameters_billion"
SIZE_POINTS = schema("source model family parameters_billion active_parameters_billion refusal_index low high sparse")
DRAWN_AT = "drawn_at_billion"
"""Where a model is drawn: at its size, or beside it where others have the same."""

STEP = 0.04
WIDEST = 0.25
"""Shares of the logarithmic axis: between two models of one size, and at most between the first and the last."""


@study
def index_and_size(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Regress the index on the logarithm of the number of parameters.

    Raises NotPossibleError if fewer than two models of known size have an index.
    """
    chosen, notes = inputs.of_one_dataset(runs)
    rows = [row for _, row in model_rows(chosen, options) if row[SIZE] is not None]
    names = [row["model"] for row in rows]
    left_out = [run.label for run in chosen if run.label not in names]
    if left_out:
        notes = (*notes, f"Left out, without an index or a known number of parameters: {abridged(left_out)}.")
    paper = (row for row in paper_model_rows(chosen) if row[SIZE] is not None)
    frame = pl.DataFrame([*paper, *rows], schema=SIZE_POINTS)
    if not rows or frame.height < 2:
        raise NotPossibleError(f". Known here: {abridged(names) or 'none'}, of {len(chosen)} models")
    errors, level = precision.RunErrors(chosen, options), options.confidence_level
    frame = side_by_side(with_regression(frame, SIZE, errors, by=("source",), level=level, logarithmic=True))
    lines = frame.drop_nulls("r_squared").unique("source", maintain_order=True)
    notes = (*notes, *(regression_note(row, "the logarithm of size") for row in lines.iter_rows(named=True)))
    values = {**inputs.data_values(chosen), "alike": frame[SIZE].is_duplicated().any(), **scatter_texts(frame)}
    return Study(frame, _draw_size, style.table(PRINTED_SIZE), notes, values)


def side_by_side(frame: pl.DataFrame) -> pl.DataFrame:
    """Add where each model is drawn: models of the same size beside each other, in their order.

    >>> side_by_side(pl.DataFrame({SIZE: [1.0, 10.0, 10.0]}))[DRAWN_AT].round(2).to_list()
    [1.0, 9.55, 10.47]
    """
    size = pl.col(SIZE)
    count, place = pl.len().over(SIZE), pl.int_range(pl.len()).over(SIZE)
    span = size.log10().max() - size.log10().min()
    step = pl.when(span > 0).then(span).otherwise(1.0) * pl.min_horizontal(STEP, WIDEST / (count - 1))
    shift = pl.when(count > 1).then(step * (place - (count - 1) / 2)).otherwise(0.0)
    return frame.with_columns((size * 10**shift).alias(DRAWN_AT))


def _draw_size(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw the models over a logarithmic axis of their sizes."""
    crowded = frame.filter(pl.col("source") == inputs.PAPER).height > 0
    figure.set_size_inches(style.WIDTH if crowded else 4.2, 3.2 if crowded else 2.8)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set(xlabel="Parameters", ylabel="Refusal Index")
    axes.set_title(r_squared_text(frame), fontsize=7, fontweight="normal")
    axes.margins(x=0.2, y=0.1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: size_text(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    sizes = frame[SIZE].unique().sort().to_list()
    if len(sizes) <= 4:
        axes.set_xticks(sizes)
        axes.minorticks_off()
    draw_scatter(axes, frame, SIZE, run_families(frame), at=DRAWN_AT)
    name_points(figure, [(axes, frame)], SIZE, at=DRAWN_AT)


def size_text(billions: float) -> str:
    """Return a number of parameters as people say it.

    >>> size_text(0.0026), size_text(72), size_text(1000)
    ('2.6M', '72B', '1T')
    """
    if billions >= 1000:
        return f"{billions / 1000:.3g}T"
    return f"{billions:.3g}B" if billions >= 1 else f"{1000 * billions:.3g}M"


PRINTED_SIZE: Mapping[str, str | style.Cell] = {
    "Model": "model",
    "Family": "family",
    "Parameters": lambda row: size_text(row[SIZE]),
    "RI": lambda row: with_interval(row["refusal_index"], row["low"], row["high"]),
    "Line": style.fixed("fitted"),
}
