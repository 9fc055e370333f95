"""Scatter plots and regressions of the Refusal Index on accuracy, refusal rate and size, over models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import ArrayLike
from scipy.special import stdtrit
from scipy.stats import linregress, spearmanr

from refusal_index.data.analysis import Analysis
from refusal_index.data.published import paper_rows
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies import inputs, precision, style
from refusal_index.plugins.studies.stability import MIN_POINTS, DisattenuatedCorrelation, disattenuated_correlation
from refusal_index.plugins.studies.study import MARK, NotPossibleError, Study, StudyOptions, schema, study, study_text
from refusal_index.render.format import UNDEFINED, abridged, number, with_interval


def fit_line(x: ArrayLike, y: ArrayLike) -> dict[str, Any] | None:
    """Fit a line by least squares; None for fewer than three points, or if x or y is constant.

    - returned: ``slope`` and ``intercept``; ``r_squared``, the share of the variance of y that the line explains;
      ``spearman``, the rank correlation; and ``pvalue`` of the two-sided t test of a slope of 0, None if all points
      lie on the line.

    >>> line = fit_line([0, 1, 2, 3], [0, 1, 3, 4])
    >>> round(line["slope"], 2), round(line["r_squared"], 2), line["spearman"], round(line["pvalue"], 4)
    (1.4, 0.98, 1.0, 0.0101)
    """
    across = np.asarray(x, float)
    ys = np.asarray(y, float)
    if across.size < MIN_POINTS or np.ptp(across) == 0 or np.ptp(ys) == 0:
        return None
    fit = linregress(across, ys)
    ranks = round(float(spearmanr(across, ys).statistic), 12)
    line = {"slope": float(fit.slope), "intercept": float(fit.intercept), "r_squared": float(fit.rvalue**2)}
    return {**line, "spearman": ranks, "pvalue": float(fit.pvalue) if line["r_squared"] < 1 else None}


def line_band(line: np.ndarray, x: np.ndarray, y: np.ndarray, xs: np.ndarray, analysis: Analysis) -> np.ndarray:
    """Return the half-width of the pointwise confidence band of a line fitted to x and y.

    - `line`: its values at x.
    """
    freedom = x.size - 2
    left = y - line
    spread = x - x.mean()
    error = np.sqrt(left @ left / freedom * (1 / x.size + (xs - x.mean()) ** 2 / (spread @ spread)))
    return np.asarray(error * stdtrit(freedom, 0.5 + analysis.confidence_level / 2))


REGRESSION_SCHEMA = schema(
    "fitted fitted_low fitted_high slope intercept spearman r_squared pvalue spearman_all r_squared_all points "
    "points_all r_squared_ceiling r_squared_without_noise noise_reason"
)
"""Columns added by `with_regression`."""


def with_regression(
    frame: pl.DataFrame,
    x: str,
    errors: precision.RunErrors,
    *,
    columns: Sequence[str],
    options: StudyOptions,
    logarithmic: bool = False,
) -> pl.DataFrame:
    """Regress ``refusal_index`` on a column within groups, and add the fitted values and statistics to every point.

    Points that are ``sparse`` are excluded from the regression, except for the statistics that end in ``_all``.

    - `frame`: table with the columns `x`, `columns`, ``source``, ``sparse`` and ``refusal_index``; rows with nulls are
      dropped. A column ``metric`` names the metric in x; without it x has no sampling error.
    - `x`: column to regress on, or on its base-10 logarithm if `logarithmic`.
    - `errors`: sampling errors of the runs; those of the paper's rows are derived from its intervals.
    - `columns`: columns that define the groups.
    - `options`: confidence level of the pointwise band.
    """
    parts = [frame.clear().with_columns(pl.lit(None, kind).alias(name) for name, kind in REGRESSION_SCHEMA.items())]
    for _, group in frame.group_by(columns, maintain_order=True):
        every = group.drop_nulls([x, "refusal_index"])
        dense = every.filter(~pl.col("sparse"))
        across, ys = _coordinates(dense, x, logarithmic=logarithmic)
        line = fit_line(across, ys)
        line_of_all = fit_line(*_coordinates(every, x, logarithmic=logarithmic))
        if line is None or line_of_all is None:
            parts.append(group)
            continue
        xs, _ = _coordinates(group, x, logarithmic=logarithmic)
        reach = line_band(line["intercept"] + line["slope"] * across, across, ys, xs, options.analysis)
        fitted = line["intercept"] + line["slope"] * xs
        # The line does not extend to points that are not in the regression.
        fitted = np.where(group["sparse"].to_numpy(), np.nan, fitted)
        noise = _without_noise(dense, x, across, errors)
        numbers = {
            **line,
            **{f"{name}_all": line_of_all[name] for name in ("spearman", "r_squared")},
            "points": dense.height,
            "points_all": every.height,
            "r_squared_ceiling": None if noise.ceiling is None else noise.ceiling**2,
            "r_squared_without_noise": None if noise.estimate is None else noise.estimate**2,
            "noise_reason": noise.reason,
        }
        band = {"fitted": fitted, "fitted_low": fitted - reach, "fitted_high": fitted + reach}
        parts.append(
            group.with_columns(
                *(pl.lit(value, REGRESSION_SCHEMA[name]).alias(name) for name, value in numbers.items()),
                *(pl.Series(name, values).fill_nan(None) for name, values in band.items()),
            )
        )
    return pl.concat(parts, how="diagonal")


def _without_noise(
    rows: pl.DataFrame, x: str, across: np.ndarray, errors: precision.RunErrors
) -> DisattenuatedCorrelation:
    """Return the correlation of the index with x, corrected for the sampling errors of both."""
    ys = rows["refusal_index"]
    exact = "metric" not in rows.columns
    if rows["source"][0] == inputs.PAPER:
        own_errors = precision.printed_errors(rows["low"], rows["high"])
        other = np.zeros_like(own_errors) if exact else precision.printed_errors(rows[f"{x}_low"], rows[f"{x}_high"])
        return disattenuated_correlation(ys, across, own_errors, other)
    models = rows["model"].to_list()
    influence = errors.of_runs(models, INDEX)
    other = np.zeros_like(influence) if exact else errors.of_runs(models, rows["metric"][0])
    return precision.without_noise(ys, across, influence, other)


def _coordinates(rows: pl.DataFrame, x: str, *, logarithmic: bool) -> tuple[np.ndarray, np.ndarray]:
    return (rows[x].log10() if logarithmic else rows[x]).to_numpy(), rows["refusal_index"].to_numpy()


def regression_notes(frame: pl.DataFrame, columns: Sequence[str], against: Mapping[str, str] | str) -> Iterator[str]:
    """Yield a note on each regression of `with_regression`.

    - `frame`: its result.
    - `columns`: columns that define the groups.
    - `against`: name of the quantity that the index was regressed on, or such names by metric.
    """
    for _, group in frame.drop_nulls("r_squared").group_by(columns, maintain_order=True):
        row = group.row(0, named=True)
        name = against if isinstance(against, str) else against[row["metric"]]
        yield regression_note(row, name, group.filter("sparse").drop_nulls("refusal_index")["model"].to_list())


def regression_note(row: Mapping[str, Any], against: str, sparse: Sequence[str] = ()) -> str:
    """Return a note on a regression: rank correlation, R squared with its noise ceiling, and results with all points.

    - `row`: any row of the regression.
    - `against`: name of the quantity that the index was regressed on.
    - `sparse`: the models that the regression leaves out.
    """
    side, _, why = str(row["noise_reason"] or "unknown").rpartition(":")
    return study_text(
        "shared",
        "regression",
        **row,
        side="the index" if side == "first" else "the other side",
        why=why.replace("_", " "),
        against=against,
        left_out=abridged(sparse),
        n_left_out=len(sparse),
    )


def scatter_texts(frame: pl.DataFrame) -> dict[str, Any]:
    """Return the values for the caption of a scatter plot: title, hollow points and the paper's rows."""
    sparse = study_text("shared", "sparse") if frame["sparse"].any() else ""
    return {"headline": study_text("shared", "headline"), "sparse": sparse, "paper": inputs.PAPER in frame["source"]}


def r_squared_text(rows: pl.DataFrame) -> str:
    """Return the title of a panel: rank correlation, and R squared with its noise ceiling.

    - `rows`: rows of one panel, of runs and of the paper.
    """
    parts = []
    for source, prefix in ((inputs.RUN, ""), (inputs.PAPER, "paper: ")):
        for row in rows.filter(pl.col("source") == source).drop_nulls("r_squared").head(1).iter_rows(named=True):
            ceiling = row["r_squared_ceiling"]
            suffix = "" if ceiling is None else f" of {ceiling:.2f}"
            parts.append(f"{prefix}rank {number(row['spearman'], 2)}, $R^2$ {row['r_squared']:.2f}{suffix}")
    return "\n".join(parts)


Looks = Mapping[tuple[str, str], tuple[str, str]]
"""Colour and marker of each model, by the columns ``source`` and ``model``."""


def model_looks(frame: pl.DataFrame) -> Looks:
    """Return the colour of each model's family, and a marker that no other model of this colour has.

    The paper's row of a model looks like its run. If a colour has more models than there are markers, colours do not
    show the families.

    - `frame`: one row or more per model, with the columns ``source``, ``model`` and ``family``.
    """
    rows = _distinct_models(frame).rows()
    # Whose look each model has: its own, or that of the only run of the same model.
    owners = {(source, model): (source, model) for source, model, _ in rows}
    for source, model in owners:
        alike = [key for key in owners if key[0] == inputs.RUN and _plain(key[1]) == _plain(model)]
        if source == inputs.PAPER and len(alike) == 1:
            owners[source, model] = alike[0]
    by_family = _family_colours([family for *_, family in rows])
    families = {(source, model): family for source, model, family in rows}
    looks: dict[tuple[str, str], tuple[str, str]] = {}
    for owner in dict.fromkeys(owners.values()):
        colour = by_family[families[owner]]
        n_alike = sum(other == colour for other, _ in looks.values())
        looks[owner] = (colour, style.MARKERS[n_alike % len(style.MARKERS)])
    if len(set(looks.values())) < len(looks):
        places = list(map(str, range(len(looks))))
        looks = dict(zip(looks, style.model_looks(places).values(), strict=True))
    return {key: looks[owner] for key, owner in owners.items()}


def _family_colours(families: Sequence[str]) -> dict[str, str]:
    """Return the colour of each family; one of the paper's has the same in every figure, whichever models it shows."""
    known = style.model_colours(paper_rows()["family"].to_list())
    colours = {family: known[family] for family in families if family in known}
    free = [colour for colour in style.MODEL_COLOURS if colour not in colours.values()] or style.MODEL_COLOURS
    others = dict.fromkeys(family for family in families if family not in known)
    return colours | {family: free[place % len(free)] for place, family in enumerate(others)}


def _distinct_models(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the source, name and family of each model, those of the runs first."""
    models = frame.select("source", "model", "family").unique(maintain_order=True)
    return models.sort(pl.col("source") == inputs.PAPER, maintain_order=True)


def _plain(model: str) -> str:
    """Return a name without its provider and mark, by which a run of one of the paper's models is recognised."""
    return model.removesuffix(f" {MARK}").casefold().rpartition("/")[2]


def draw_scatter(axes: Axes, frame: pl.DataFrame, x: str, looks: Looks, *, x_column: str | None = None) -> None:
    """Draw models coloured by family, the paper's paler, and each group's line with its band, without names.

    - `axes`: axes whose scale is set.
    - `frame`: one row per model.
    - `x`: the column that was regressed on; its intervals, if any, are in ``x_low`` and ``x_high``.
    - `looks`: those of the models in all panels, so that a model looks alike in each.
    - `x_column`: the column of the points' positions if it is not `x`.
    """
    for source, colour in ((inputs.PAPER, style.PALE), (inputs.RUN, style.INK)):
        line = frame.filter(source=source).drop_nulls("fitted").sort(x)
        if line.height:
            axes.plot(line[x], line["fitted"], color=colour, linewidth=1.0, zorder=1)
        if line.height and line["points"][0] > MIN_POINTS:
            axes.fill_between(
                line[x], line["fitted_low"], line["fitted_high"], color=colour, alpha=0.12, linewidth=0, zorder=0.5
            )
    # Runs are drawn over the paper's models.
    for row in frame.sort(pl.col("source") == inputs.RUN, maintain_order=True).iter_rows(named=True):
        colour, marker = looks[row["source"], row["model"]]
        is_run = row["source"] == inputs.RUN
        shown = colour if is_run else style.pale(colour)
        style.mark(
            axes,
            row[x_column or x],
            row["refusal_index"],
            shown,
            marker,
            width=0.9,
            xs=(row.get(f"{x}_low"), row.get(f"{x}_high")),
            ys=style.ends(row),
            size=5.0 if is_run else 4.0,
            face=style.PAPER if row["sparse"] else None,
        )


def scatter_legend(figure: Figure, frame: pl.DataFrame, looks: Looks) -> None:
    """Add a legend of all models below a figure; a model of the paper without a run is pale, as its point is."""
    models = _distinct_models(frame)
    families = models["family"].unique(maintain_order=True).to_list()
    rows = sorted(models.iter_rows(), key=lambda row: families.index(row[2]))
    names = style.short_names([model for _, model, _ in rows], 32)
    handles: dict[tuple[str, str], Line2D] = {}
    for source, model, _ in rows:
        colour, marker = looks[source, model]
        shown = colour if source == inputs.RUN else style.pale(colour)
        handles.setdefault((colour, marker), style.handle(names[model], shown, marker))
    style.outside_legend(figure, list(handles.values()))


RATES = ("correct_rate", "correct_given_attempted", "refusal_rate")
"""The metrics against which the index is plotted."""


SIZES = ("parameters_billion", "active_parameters_billion")


def model_rows(runs: Sequence[RunResults], options: StudyOptions) -> Iterator[tuple[RunResults, dict[str, Any]]]:
    """Yield each run that has an index, with its row: joint index, mean rates, and information about the model."""
    models = inputs.known_models(options.models)
    for run in runs:
        scores = inputs.variant_scores(run, options)
        overall = inputs.run_index(run, options)
        index = overall.index
        if index.estimate is None:
            continue
        # A model is looked up by its name in a set if the tables know that, else by its own.
        name = run.model if inputs.find_model(run.model, models) else run.model_id
        sizes = inputs.find_model(name, models) or {}
        row = {
            "source": inputs.RUN,
            "model": run.label,
            "family": inputs.family_of(name, models),
            **{size: sizes.get(size) for size in SIZES},
            **{rate: inputs.mean_of(scores, rate) for rate in RATES},
            "refusal_index": index.estimate,
            "low": index.low,
            "high": index.high,
            "mean_refusal_index": overall.mean,
            "variants": overall.variants,
            "sparse": index.status != "ok" or precision.is_sparse([score.table for score in scores]),
        }
        yield run, row


def paper_model_rows(runs: Sequence[RunResults], options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield such rows for the paper's models, with intervals of all metrics, if all runs are on SimpleQA."""
    for row in inputs.paper_context(runs, options).iter_rows(named=True):
        yield {
            **row,
            "low": row["refusal_index_low"],
            "high": row["refusal_index_high"],
            "source": inputs.PAPER,
            "mean_refusal_index": row["refusal_index"],
            "sparse": False,
        }


AXIS_LABELS = {
    "correct_rate": "Correct answer rate",
    "correct_given_attempted": "Correct given attempted (C/A)",
    "refusal_rate": "Refusal rate",
}
ACCURACY_POINTS = schema(
    "metric source model family value value_low value_high refusal_index low high mean_refusal_index variants sparse"
)


@study
def index_and_accuracy(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study: regressions of the index on two measures of accuracy and on the refusal rate.

    Raises NotPossibleError if fewer than three models have an index and the paper's rows do not apply.
    """
    chosen, notes = inputs.of_one_dataset(runs)
    frame = pl.DataFrame(list(_rate_rows(chosen, options)), schema=ACCURACY_POINTS)
    shown = frame.filter(source=inputs.RUN)["model"].to_list()
    undefined = [run.label for run in chosen if run.label not in shown]
    notes += inputs.left_out("Left out, since the index or the accuracy is undefined", undefined)
    if not shown or frame["model"].n_unique() < MIN_POINTS:
        raise NotPossibleError(notes=notes)
    errors = precision.RunErrors(chosen, options)
    lined = with_regression(frame, "value", errors, columns=("metric", "source"), options=options)
    ordered = pl.col("metric").replace_strict({name: index for index, name in enumerate(RATES)})
    above = (pl.col("refusal_index") > pl.col("fitted")).alias("above_line")
    frame = lined.with_columns(above).sort(ordered, maintain_order=True)
    notes = (*notes, *regression_notes(frame, ("metric", "source"), {name: METRICS[name].label for name in RATES}))
    return Study(
        frame,
        _draw_accuracy,
        _printed_accuracy,
        notes,
        values={**inputs.data_values(chosen), "resamples": f"{precision.RESAMPLES:,}", **scatter_texts(frame)},
    )


def _draw_accuracy(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw one panel per metric."""
    crowded = frame.filter(pl.col("source") == inputs.PAPER).height > 0
    size = (7.6, 3.4) if crowded else (7.0, 2.7)
    panels = style.subplots(figure, *size, 1, len(RATES), sharey=True)
    looks = model_looks(frame)
    for axes, metric in zip(panels, RATES, strict=True):
        part = frame.filter(pl.col("metric") == metric)
        axes.set_xlabel(AXIS_LABELS[metric])
        style.few_ticks(axes.xaxis, 5)
        axes.set_title(r_squared_text(part), fontsize=7, fontweight="normal")
        draw_scatter(axes, part, "value", looks)
    panels[0].set_ylabel("Refusal Index")
    scatter_legend(figure, frame, looks)


_STATISTICS = {"spearman": "Rank correlation", "r_squared": "R squared", "r_squared_ceiling": "Ceiling of R squared"}


def _printed_accuracy(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per model, with its side of the line beside each rate, and below them those of the regressions.

    The paper's models are a block of their own, below the runs.
    """
    rows = []
    for (source,), part in _runs_first(frame).group_by("source", maintain_order=True):
        heading = {style.BLOCK: _heading(source)}
        for (model,), of_model in part.group_by("model", maintain_order=True):
            first = of_model.row(0, named=True)
            row = {**heading, "Model": model, "Family": first["family"], "RI": _index_cell(first)}
            for rate in of_model.iter_rows(named=True):
                cell = with_interval(rate["value"], *style.ends(rate, "value"), digits=style.DIGITS)
                row[METRICS[rate["metric"]].label] = (
                    cell + {True: ", above", False: ", below", None: ""}[rate["above_line"]]
                )
            rows.append(row)
        lines = {row["metric"]: row for row in part.drop_nulls("r_squared").iter_rows(named=True)}
        for name, label in _STATISTICS.items() if lines else ():
            cells = {METRICS[metric].label: number(line[name], 3) for metric, line in lines.items()}
            rows.append({**heading, "Model": label, **cells})
    table = pl.DataFrame(rows, infer_schema_length=None)
    return table.with_columns(pl.col(pl.String).fill_null(UNDEFINED))


def _heading(source: object) -> str:
    """Return the heading of a block of rows."""
    return inputs.PAPER_SOURCE if source == inputs.PAPER else "Runs"


def _index_cell(row: Mapping[str, Any]) -> str:
    return with_interval(row["refusal_index"], row["low"], row["high"], digits=style.DIGITS)


def _runs_first(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort(pl.col("source") == inputs.PAPER, maintain_order=True)


def _rate_rows(runs: Sequence[RunResults], options: StudyOptions) -> Iterator[dict[str, Any]]:
    """Yield a row for each of the paper's models and each run, and each rate that is defined."""
    for row in paper_model_rows(runs, options):
        for metric in RATES:
            yield {
                **row,
                "metric": metric,
                "value": row[metric],
                "value_low": row[f"{metric}_low"],
                "value_high": row[f"{metric}_high"],
            }
    for run, row in model_rows(runs, options):
        scores = inputs.variant_scores(run, options)
        resampled = precision.resampled_metrics(run, options) if len(scores) > 1 else {}
        for metric in RATES:
            if row[metric] is None:
                continue
            low = scores[0].metrics[metric].low
            high = scores[0].metrics[metric].high
            if resampled:
                low, high = precision.percentile_interval(resampled[metric].mean(axis=1), options.analysis)
            yield {**row, "metric": metric, "value": row[metric], "value_low": low, "value_high": high}


SIZE = "parameters_billion"
DRAWN_AT = "drawn_at_billion"
"""Column of a model's position: its size, or next to it if several models have the same size."""

STEP = 0.04
"""Distance of two models of the same size, as a share of the logarithmic axis."""

WIDEST = 0.25
"""Maximum spread of all models of one size, as a share of the logarithmic axis."""


@study
def index_and_size(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study: the regression of the index on the logarithm of the number of parameters.

    Raises NotPossibleError if fewer than two models of known size have an index.
    """
    chosen, notes = inputs.of_one_dataset(runs)
    rows = [row for _, row in model_rows(chosen, options) if row[SIZE] is not None]
    names = [row["model"] for row in rows]
    unknown = [run.label for run in chosen if run.label not in names]
    notes += inputs.left_out("Left out, without an index or a known number of parameters", unknown)
    paper = (row for row in paper_model_rows(chosen, options) if row[SIZE] is not None)
    frame = pl.DataFrame(
        [*paper, *rows],
        schema=schema("source model family parameters_billion active_parameters_billion refusal_index low high sparse"),
    )
    if not rows or frame.height < 2:
        raise NotPossibleError(f". Known here: {abridged(names) or 'none'}, of {len(chosen)} models")
    errors = precision.RunErrors(chosen, options)
    lined = with_regression(frame, SIZE, errors, columns=("source",), options=options, logarithmic=True)
    frame = side_by_side(lined)
    notes = (*notes, *regression_notes(frame, ("source",), "the logarithm of size"))
    return Study(
        frame,
        _draw_size,
        _printed_size,
        notes,
        values={**inputs.data_values(chosen), "alike": frame[SIZE].is_duplicated().any(), **scatter_texts(frame)},
    )


def side_by_side(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the position of each model: models of the same size are placed next to each other, in their order.

    >>> side_by_side(pl.DataFrame({SIZE: [1.0, 10.0, 10.0]}))[DRAWN_AT].round(2).to_list()
    [1.0, 9.55, 10.47]
    """
    size = pl.col(SIZE)
    count = pl.len().over(SIZE)
    position = pl.int_range(pl.len()).over(SIZE)
    span = size.log10().max() - size.log10().min()
    step = pl.when(span > 0).then(span).otherwise(1.0) * pl.min_horizontal(STEP, WIDEST / (count - 1))
    shift = pl.when(count > 1).then(step * (position - (count - 1) / 2)).otherwise(0.0)
    return frame.with_columns((size * 10**shift).alias(DRAWN_AT))


def _draw_size(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw the models on a logarithmic axis of size."""
    crowded = frame.filter(pl.col("source") == inputs.PAPER).height > 0
    axes = style.subplots(figure, *((style.WIDTH, 3.2) if crowded else (4.2, 2.8)))
    axes.set_xscale("log")
    axes.set(xlabel="Parameters", ylabel="Refusal Index")
    axes.set_title(r_squared_text(frame), fontsize=7, fontweight="normal")
    axes.margins(x=0.1, y=0.1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: size_text(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    sizes = frame[SIZE].unique().sort().to_list()
    if len(sizes) <= 4:
        axes.set_xticks(sizes)
        axes.minorticks_off()
    looks = model_looks(frame)
    draw_scatter(axes, frame, SIZE, looks, x_column=DRAWN_AT)
    scatter_legend(figure, frame, looks)


def size_text(billions: float) -> str:
    """Return a number of parameters in the usual short form.

    >>> size_text(0.0026), size_text(72), size_text(1000)
    ('2.6M', '72B', '1T')
    """
    if billions >= 1000:
        return f"{billions / 1000:.3g}T"
    return f"{billions:.3g}B" if billions >= 1 else f"{1000 * billions:.3g}M"


PRINTED_SIZE: Mapping[str, str | style.Cell] = {
    style.BLOCK: lambda row: _heading(row["source"]),
    "Model": "model",
    "Family": "family",
    "Parameters": lambda row: size_text(row[SIZE]),
    "RI": _index_cell,
    "Line": style.fixed("fitted", style.DIGITS),
}


def _printed_size(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per model, the paper's models below the runs."""
    return style.table(PRINTED_SIZE)(_runs_first(frame))
