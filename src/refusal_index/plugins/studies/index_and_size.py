"""The Refusal Index against the number of parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from refusal_index.data.runs import ComparedRun
from refusal_index.plugins.studies import scatter, style
from refusal_index.plugins.studies.models import PAPER
from refusal_index.plugins.studies.runs import INDEX, data_values, of_one_dataset
from refusal_index.plugins.studies.sampling_error import RunErrors, noise_columns, printed_errors
from refusal_index.plugins.studies.stability import disattenuated_correlation
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.tables import Cell, fixed, printed_table
from refusal_index.render.format import abridged, with_interval

SIZE = "parameters_billion"
POINT_SCHEMA = {
    "source": pl.String,
    "model": pl.String,
    "family": pl.String,
    **dict.fromkeys((SIZE, "active_parameters_billion", "refusal_index", "low", "high"), pl.Float64),
    "sparse": pl.Boolean,
}
DRAWN_AT = "drawn_at_billion"
"""Where a model is drawn: at its size, or beside it where others have the same."""
SCHEMA = {**POINT_SCHEMA, **scatter.REGRESSION_SCHEMA, DRAWN_AT: pl.Float64}

STEP = 0.04
WIDEST = 0.25
"""Shares of the logarithmic axis: between two models of one size, and at most between the first and the last."""


@study
def index_and_size(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Regress the index on the logarithm of the number of parameters.

    Raises NotPossibleError if fewer than two models of known size have an index.
    """
    chosen, notes = of_one_dataset(runs)
    rows = [row for _, row in scatter.model_rows(chosen, options) if row[SIZE] is not None]
    names = [row["model"] for row in rows]
    left_out = [run.label for run in chosen if run.label not in names]
    if left_out:
        notes = (*notes, f"Left out, without an index or a known number of parameters: {abridged(left_out)}.")
    paper = (row for row in scatter.paper_model_rows(chosen) if row[SIZE] is not None)
    frame = pl.DataFrame([*paper, *rows], schema=POINT_SCHEMA)
    if not rows or frame.height < 2:
        raise NotPossibleError(f". Known here: {abridged(names) or 'none'}, of {len(chosen)} models")
    frame = side_by_side(regressed(frame, options.confidence_level, RunErrors(chosen, options)))
    notes = (*notes, *_regression_notes(frame))
    values = {**data_values(chosen), "alike": frame[SIZE].is_duplicated().any(), **scatter.scatter_texts(frame)}
    return Study(frame, draw, printed, notes, values)


def regressed(frame: pl.DataFrame, confidence_level: float, errors: RunErrors) -> pl.DataFrame:
    """Add the line of each source on the logarithm of size, which has no sampling error."""

    def noise(rows: pl.DataFrame) -> dict[str, float | str | None]:
        numbers, exact = (rows["refusal_index"], rows[SIZE].log10()), np.zeros(rows.height)
        if rows["source"][0] == PAPER:
            return noise_columns(disattenuated_correlation(*numbers, printed_errors(rows["low"], rows["high"]), exact))
        own = errors.of(rows["model"].to_list(), INDEX)
        return noise_columns(disattenuated_correlation(*numbers, own @ own.T, exact))

    return scatter.with_regression(
        frame, SIZE, by=("source",), confidence_level=confidence_level, noise=noise, logarithmic=True
    )


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


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw the models over a logarithmic axis of their sizes."""
    crowded = frame.filter(pl.col("source") == PAPER).height > 0
    figure.set_size_inches(style.WIDTH if crowded else 4.2, 3.2 if crowded else 2.8)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set(xlabel="Parameters", ylabel="Refusal Index")
    axes.set_title(scatter.r_squared_text(frame), fontsize=7, fontweight="normal")
    axes.margins(x=0.2, y=0.1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: size_text(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    sizes = frame[SIZE].unique().sort().to_list()
    if len(sizes) <= 4:
        axes.set_xticks(sizes)
        axes.minorticks_off()
    scatter.draw_scatter(axes, frame, SIZE, scatter.run_families(frame), at=DRAWN_AT)
    scatter.name_points(figure, [(axes, frame)], SIZE, at=DRAWN_AT)


def size_text(billions: float) -> str:
    """Return a number of parameters as people say it.

    >>> size_text(0.0026), size_text(72), size_text(1000)
    ('2.6M', '72B', '1T')
    """
    if billions >= 1000:
        return f"{billions / 1000:.3g}T"
    return f"{billions:.3g}B" if billions >= 1 else f"{1000 * billions:.3g}M"


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print the models with size and index."""
    columns: dict[str, str | Cell] = {
        "Model": "model",
        "Family": "family",
        "Parameters": lambda row: size_text(row[SIZE]),
        "RI": lambda row: with_interval(row["refusal_index"], row["low"], row["high"]),
        "Line": fixed("fitted"),
    }
    return printed_table(frame, columns)


def _regression_notes(frame: pl.DataFrame) -> tuple[str, ...]:
    lines = frame.drop_nulls("r_squared").unique("source", maintain_order=True)
    return tuple(scatter.regression_note(row, "the logarithm of size") for row in lines.iter_rows(named=True))
