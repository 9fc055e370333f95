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
    HEADLINE,
    REGRESSION_SCHEMA,
    SPARSE,
    draw_scatter,
    name_points,
    r_squared_text,
    regression_note,
    run_families,
    with_regression,
)
from refusal_index.plugins.studies.scores import (
    INDEX,
    dataset_name,
    level_text,
    mean_of,
    of_one_dataset,
    questions_text,
    run_index,
    variant_scores,
)
from refusal_index.plugins.studies.stability import disattenuated_correlation
from refusal_index.plugins.studies.study import (
    PAPER,
    RUN,
    NotPossibleError,
    Study,
    StudyOptions,
    family_of,
    known_models,
    name_in_tables,
    paper_context,
)
from refusal_index.render.format import abridged, number, with_interval

NAME = "index_and_accuracy"
TITLE = "Refusal Index, accuracy and refusal rate"
NEEDS = "runs of three models or more on one dataset; on SimpleQA one is enough, among the paper's models"

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
    return Study(NAME, TITLE, _caption(chosen, options, frame), frame, draw, notes, printed)


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
    rows = [
        (
            *(METRICS[row["metric"]].label, row["model"], row["family"]),
            with_interval(row["value"], row["value_low"], row["value_high"]),
            with_interval(row["refusal_index"], row["low"], row["high"]),
            *(number(row["fitted"]), side[row["above_line"]], number(row["spearman"])),
            *(number(row["r_squared"]), number(row["r_squared_ceiling"])),
        )
        for row in frame.iter_rows(named=True)
    ]
    columns = ["Against", "Model", "Family", "Rate", "RI", "Line", "Lies", "Rank correlation", "R squared", "Ceiling"]
    return pl.DataFrame(rows, schema=columns, orient="row")


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


def _caption(runs: Sequence[ComparedRun], options: StudyOptions, frame: pl.DataFrame) -> str:
    """Say what is shown, and what the paper's two values of R squared are."""
    text = (
        "Refusal Index against the correct answer rate, C/A and the refusal rate on "
        f"{dataset_name(runs[0].dataset)} ({questions_text(runs)}), one point a model, coloured by family. The index "
        "is the joint one over a model's prompt variants (column mean_refusal_index holds the variants' mean, which "
        "the paper takes), the rates are means over the variants, "
        f"bars are {level_text(options)} intervals (of a mean over {RESAMPLES:,} resamples of the questions). Lines "
        f"are least squares, with a pointwise band where there are more than three models. {HEADLINE}"
    )
    if frame.filter(pl.col("sparse")).height:
        text += f" {SPARSE}"
    if frame["source"].eq(PAPER).any():
        text += (
            " In grey the paper's 16 rows, as printed; their errors are taken from the printed intervals. Their R "
            "squared is .010 against the correct answer rate and .232 against C/A; the paper prints .242 and .235 for "
            "the former, which fit the latter."
        )
    return text
