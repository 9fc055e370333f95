"""The Refusal Index against the correct answer rate, C/A and the refusal rate, with regression lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from refusal_index.data.runs import ComparedRun
from refusal_index.findings.metrics import METRICS
from refusal_index.plugins.studies.sampling_error import (
    RESAMPLES,
    RunErrors,
    is_sparse,
    noise_columns,
    percentile_interval,
    printed_errors,
    resampled_metrics,
    without_noise,
)
from refusal_index.plugins.studies.scatter import (
    FEWEST,
    REGRESSION_SCHEMA,
    draw_scatter,
    name_points,
    r_squared_text,
    regression_note,
    run_families,
    scatter_texts,
    with_regression,
)
from refusal_index.plugins.studies.scores import INDEX, caption, mean_of, of_one_dataset, run_index, variant_scores
from refusal_index.plugins.studies.stability import disattenuated_correlation
from refusal_index.plugins.studies.study import (
    PAPER,
    RUN,
    Cell,
    NotPossibleError,
    Study,
    StudyOptions,
    described,
    family_of,
    fixed,
    known_models,
    name_in_tables,
    paper_context,
    printed_table,
    ranged,
)
from refusal_index.render.format import abridged, with_interval

NAME, TITLE, NEEDS = described("index_and_accuracy")

RATES = ("correct_rate", "correct_given_attempted", "refusal_rate")
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
SCHEMA = {**POINT_SCHEMA, **REGRESSION_SCHEMA, "above_line": pl.Boolean}


def make(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Regress the index on two measures of accuracy, and on the refusal rate.

    Raises NotPossibleError if fewer than three models have an index, and the paper's are not there to compare with.
    """
    chosen, notes = of_one_dataset(runs)
    known = known_models(options)
    rows = [row for run in chosen for row in _run_rows(run, known, options)]
    undefined = [run.label for run in chosen if run.label not in {row[2] for row in rows}]
    if undefined:
        notes = (*notes, f"Left out, since the index or the accuracy is undefined: {abridged(undefined)}.")
    frame = pl.DataFrame([*_paper_rows(chosen), *rows], schema=POINT_SCHEMA, orient="row")
    if not rows or frame["model"].n_unique() < FEWEST:
        raise NotPossibleError(f"It needs {NEEDS}.", notes)
    frame = regressed(frame, options.confidence_level, RunErrors(chosen, options))
    notes = (*notes, *_regression_notes(frame))
    text = caption(NAME, options, chosen, resamples=f"{RESAMPLES:,}", **scatter_texts(frame))
    return Study(NAME, TITLE, text, frame, draw, notes, printed)


def regressed(frame: pl.DataFrame, confidence_level: float, errors: RunErrors) -> pl.DataFrame:
    """Add the line of each metric and source, and which models lie above it."""

    def noise(rows: pl.DataFrame) -> dict[str, float | str | None]:
        numbers = rows["refusal_index"], rows["value"]
        if rows["source"][0] == PAPER:
            own, other = (
                printed_errors(rows["low"], rows["high"]),
                printed_errors(rows["value_low"], rows["value_high"]),
            )
            return noise_columns(disattenuated_correlation(*numbers, own, other))
        models = rows["model"].to_list()
        return noise_columns(without_noise(*numbers, *(errors.of(models, name) for name in (INDEX, rows["metric"][0]))))

    lined = with_regression(frame, "value", by=("metric", "source"), confidence_level=confidence_level, noise=noise)
    ordered = pl.col("metric").replace_strict({name: place for place, name in enumerate(RATES)})
    return lined.with_columns((pl.col("refusal_index") > pl.col("fitted")).alias("above_line")).sort(
        ordered, maintain_order=True
    )


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw one panel a metric."""
    crowded = frame.filter(pl.col("source") == PAPER).height > 0
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


def _run_rows(run: ComparedRun, known: pl.DataFrame, options: StudyOptions) -> Iterator[tuple[Any, ...]]:
    overall, scores = run_index(run, options), variant_scores(run, options)
    index = overall.index
    if index.estimate is None:
        return
    resampled = resampled_metrics(run, options) if len(scores) > 1 else {}
    for metric in RATES:
        value = mean_of(scores, metric)
        if value is None:
            continue
        only = scores[0].metrics[metric]
        ends = (only.low, only.high)
        if len(scores) > 1:
            ends = percentile_interval(resampled[metric].mean(axis=1), options.confidence_level)
        sparse = index.status != "ok" or is_sparse([one.table for one in scores])
        estimate = (index.estimate, index.low, index.high, overall.mean, overall.variants, sparse)
        yield (metric, RUN, run.label, family_of(name_in_tables(run, known), known), value, *ends, *estimate)


def _paper_rows(runs: Sequence[ComparedRun]) -> Iterator[tuple[Any, ...]]:
    for row in paper_context(runs).iter_rows(named=True):
        index = tuple(row[f"refusal_index{end}"] for end in ("", "_low", "_high"))
        for metric in RATES:
            value = tuple(row[f"{metric}{end}"] for end in ("", "_low", "_high"))
            yield (metric, PAPER, row["model"], row["family"], *value, *index, index[0], None, False)


def _regression_notes(frame: pl.DataFrame) -> tuple[str, ...]:
    lines = frame.drop_nulls("r_squared").unique(["metric", "source"], maintain_order=True)
    return tuple(regression_note(row, METRICS[row["metric"]].label) for row in lines.iter_rows(named=True))
