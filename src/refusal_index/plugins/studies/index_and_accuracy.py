"""The Refusal Index against the correct answer rate, C/A and the refusal rate, with regression lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from refusal_index.data.runs import ComparedRun
from refusal_index.findings.metrics import METRICS
from refusal_index.plugins.studies import sampling_error, scatter
from refusal_index.plugins.studies.models import PAPER
from refusal_index.plugins.studies.runs import INDEX, data_values, of_one_dataset, variant_scores
from refusal_index.plugins.studies.sampling_error import RESAMPLES
from refusal_index.plugins.studies.stability import disattenuated_correlation
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.tables import Cell, fixed, printed_table, ranged
from refusal_index.render.format import abridged, with_interval

AXIS_LABELS = {
    "correct_rate": "Correct answer rate",
    "correct_given_attempted": "Correct given attempted (C/A)",
    "refusal_rate": "Refusal rate",
}
POINT_SCHEMA = {
    **dict.fromkeys(("metric", "source", "model", "family"), pl.String),
    **dict.fromkeys(("value", "value_low", "value_high", "refusal_index", "low", "high"), pl.Float64),
    "mean_refusal_index": pl.Float64,
    "variants": pl.Int64,
    "sparse": pl.Boolean,
}
SCHEMA = {**POINT_SCHEMA, **scatter.REGRESSION_SCHEMA, "above_line": pl.Boolean}


@study
def index_and_accuracy(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Regress the index on two measures of accuracy, and on the refusal rate.

    Raises NotPossibleError if fewer than three models have an index, and the paper's are not there to compare with.
    """
    chosen, notes = of_one_dataset(runs)
    rows = list(_run_rows(chosen, options))
    undefined = [run.label for run in chosen if run.label not in {row["model"] for row in rows}]
    if undefined:
        notes = (*notes, f"Left out, since the index or the accuracy is undefined: {abridged(undefined)}.")
    frame = pl.DataFrame([*_paper_rows(chosen), *rows], schema=POINT_SCHEMA)
    if not rows or frame["model"].n_unique() < scatter.FEWEST:
        raise NotPossibleError(notes=notes)
    frame = regressed(frame, options.confidence_level, sampling_error.RunErrors(chosen, options))
    notes = (*notes, *_regression_notes(frame))
    values = {**data_values(chosen), "resamples": f"{RESAMPLES:,}", **scatter.scatter_texts(frame)}
    return Study(frame, draw, printed, notes, values)


def regressed(frame: pl.DataFrame, confidence_level: float, errors: sampling_error.RunErrors) -> pl.DataFrame:
    """Add the line of each metric and source, and which models lie above it."""

    def noise(rows: pl.DataFrame) -> dict[str, float | str | None]:
        numbers = rows["refusal_index"], rows["value"]
        if rows["source"][0] == PAPER:
            own, other = (
                sampling_error.printed_errors(rows["low"], rows["high"]),
                sampling_error.printed_errors(rows["value_low"], rows["value_high"]),
            )
            return sampling_error.noise_columns(disattenuated_correlation(*numbers, own, other))
        models = rows["model"].to_list()
        return sampling_error.noise_columns(
            sampling_error.without_noise(*numbers, *(errors.of(models, name) for name in (INDEX, rows["metric"][0])))
        )

    lined = scatter.with_regression(
        frame, "value", by=("metric", "source"), confidence_level=confidence_level, noise=noise
    )
    ordered = pl.col("metric").replace_strict({name: place for place, name in enumerate(scatter.RATES)})
    return lined.with_columns((pl.col("refusal_index") > pl.col("fitted")).alias("above_line")).sort(
        ordered, maintain_order=True
    )


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw one panel a metric."""
    crowded = frame.filter(pl.col("source") == PAPER).height > 0
    figure.set_size_inches(7.6 if crowded else 7.0, 3.4 if crowded else 2.7)
    panels = figure.subplots(1, len(scatter.RATES), sharey=True)
    parts = [frame.filter(pl.col("metric") == metric) for metric in scatter.RATES]
    for axes, metric, own in zip(panels, scatter.RATES, parts, strict=True):
        axes.set_xlabel(AXIS_LABELS[metric])
        axes.margins(x=0.18, y=0.1)
        axes.set_title(scatter.r_squared_text(own), fontsize=7, fontweight="normal")
        scatter.draw_scatter(axes, own, "value", scatter.run_families(frame))
    panels[0].set_ylabel("Refusal Index")
    scatter.name_points(figure, zip(panels, parts, strict=True), "value")


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print the points of the runs and of the paper, with their place by the line."""
    side = {True: "above", False: "below", None: "-"}
    columns: dict[str, str | Cell] = {
        "Against": lambda row: METRICS[row["metric"]].label,
        "Model": "model",
        "Family": "family",
        "Rate": ranged("value"),
        "RI": lambda row: with_interval(row["refusal_index"], row["low"], row["high"]),
        "Line": fixed("fitted"),
        "Lies": lambda row: side[row["above_line"]],
        "Rank correlation": fixed("spearman"),
        "R squared": fixed("r_squared"),
        "Ceiling": fixed("r_squared_ceiling"),
    }
    return printed_table(frame, columns)


def _run_rows(runs: Sequence[ComparedRun], options: StudyOptions) -> Iterator[dict[str, Any]]:
    for run, row in scatter.model_rows(runs, options):
        scores = variant_scores(run, options)
        resampled = sampling_error.resampled_metrics(run, options) if len(scores) > 1 else {}
        for metric in scatter.RATES:
            if row[metric] is None:
                continue
            low, high = scores[0].metrics[metric].low, scores[0].metrics[metric].high
            if resampled:
                low, high = sampling_error.percentile_interval(resampled[metric].mean(axis=1), options.confidence_level)
            yield {**row, "metric": metric, "value": row[metric], "value_low": low, "value_high": high}


def _paper_rows(runs: Sequence[ComparedRun]) -> Iterator[dict[str, Any]]:
    for row in scatter.paper_model_rows(runs):
        for metric in scatter.RATES:
            ends = {"value_low": row[f"{metric}_low"], "value_high": row[f"{metric}_high"]}
            yield {**row, "metric": metric, "value": row[metric], **ends}


def _regression_notes(frame: pl.DataFrame) -> tuple[str, ...]:
    lines = frame.drop_nulls("r_squared").unique(["metric", "source"], maintain_order=True)
    return tuple(scatter.regression_note(row, METRICS[row["metric"]].label) for row in lines.iter_rows(named=True))
