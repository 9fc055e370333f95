"""Whether a metric agrees with the AUROC of P(Answering), which takes many draws where the metric takes one or two.

A point is one model on one dataset under one prompt variant: the metric from the first draws of the run with the most
graded questions, the AUROC from the run with the most draws, which may be another folder. Points of one model are not
independent of each other, which an interval for their correlation has to know.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import pearsonr, rankdata

from refusal_index.outcomes.draws import p_answering
from refusal_index.outcomes.matching import OutcomeMatrix, draw_matrix
from refusal_index.outcomes.presentation import METRIC_LABELS
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.stats import auroc
from refusal_index.stats.intervals import normal_quantile
from refusal_index.studies import style
from refusal_index.studies.cells import number, with_interval
from refusal_index.studies.point_labels import label_points
from refusal_index.studies.scores import ALL, COMPARED, chosen_runs, level_text, model_name, variant_scores
from refusal_index.studies.study import NotPossibleError, Study, StudyOptions

NAME = "auroc_correlation"
TITLE = "Agreement with the AUROC of P(Answering)"
NEEDS = (
    "three points or more, each a model on a dataset under a prompt variant, with repeated draws whose every answer "
    "was forced too; P(Answering) may come from another run of the same model, dataset and variant"
)
FEWEST_POINTS = 3
FEWEST_MODELS = 4
FEW_DRAWS = 10
Key = tuple[str, str | None, str | None]


@dataclass(frozen=True)
class Correlation:
    """Pearson's and Spearman's correlation over the points, and an interval for the first."""

    # pearson, spearman: none where one of the two sides does not vary
    pearson: float | None
    spearman: float | None
    # low, high: by Fisher's z for Pearson's correlation; None where undefined
    low: float | None
    high: float | None
    # what the interval counts as independent: ``"models"``, or ``"points"`` where there are fewer than four models but
    # four points or more, so that it is too narrow; None without an interval
    basis: str | None


def make(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if fewer than three points have repeated draws."""
    chosen, _ = chosen_runs(runs)
    draws = _most_draws(runs)
    points, notes = _points(chosen, draws, options)
    if len(points) < FEWEST_POINTS:
        found = f"of these runs {len(points)} {'has' if len(points) == 1 else 'have'} them"
        raise NotPossibleError(f"It needs {NEEDS}; {found}.", notes)
    frame = _frame(points, options.confidence_level)
    counts = sorted(set(frame["draws"]))
    if counts[0] < FEW_DRAWS:
        span = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        notes.append(
            f"P(Answering) comes from {span} draws: from few draws it is coarse, which pulls its "
            "AUROC towards 1/2; the paper draws 100."
        )
    return Study(NAME, TITLE, _caption(frame, options), frame, draw, tuple(notes), printed)


def _most_draws(runs: Sequence[ComparedRun]) -> dict[Key, tuple[ComparedRun, OutcomeMatrix]]:
    """Find for every model, dataset and variant the run with the most draws, where there are two or more."""
    found: dict[Key, tuple[ComparedRun, OutcomeMatrix]] = {}
    for run in runs:
        for variant, outcomes in run.variants.items():
            key, matrix = (model_name(run), run.dataset, variant), draw_matrix(outcomes)
            if len(matrix.refused) > 1 and (key not in found or len(matrix.refused) > len(found[key][1].refused)):
                found[key] = run, matrix
    return found


def _points(
    runs: Sequence[ComparedRun], draws: dict[Key, tuple[ComparedRun, OutcomeMatrix]], options: StudyOptions
) -> tuple[list[dict[str, Any]], list[str]]:
    points: list[dict[str, Any]] = []
    notes: list[str] = []
    for run in runs:
        for variant, scores in zip(run.variants, variant_scores(run, options), strict=True):
            where = f"{model_name(run)}, {run.dataset or ALL}, {variant or ALL}"
            source, matrix = draws.get((model_name(run), run.dataset, variant), (None, None))
            if source is None or matrix is None:
                notes.append(f"{where} is left out: no question was drawn twice.")
                continue
            area = auroc(*p_answering(matrix))
            if area.estimate is None:
                notes.append(f"{where} is left out: the AUROC is undefined ({area.reason}).")
                continue
            if source is not run:
                notes.append(f"P(Answering) of {where} comes from {source.label}.")
            ends = area.confidence_interval(options.confidence_level).or_none()
            common = {"model": model_name(run), "dataset": run.dataset, "variant": variant or ALL}
            drawn = {"draws": len(matrix.refused), "questions": len(matrix.question_ids), "drawn_in": source.label}
            score = {"auroc": area.estimate, "auroc_low": ends[0], "auroc_high": ends[1]}
            points.append({**common, **drawn, **score, "metrics": scores.metrics})
    return points, notes


def _frame(points: Sequence[dict[str, Any]], confidence_level: float) -> pl.DataFrame:
    rows = [row for name in COMPARED for row in _metric_rows(name, points, confidence_level)]
    return pl.DataFrame(rows, infer_schema_length=None)


def _metric_rows(name: str, points: Sequence[dict[str, Any]], level: float) -> Iterator[dict[str, Any]]:
    defined = [point for point in points if point["metrics"][name].estimate is not None]
    found = correlation(
        [point["metrics"][name].estimate for point in defined],
        [point["auroc"] for point in defined],
        n_models=len({point["model"] for point in defined}),
        confidence_level=level,
    )
    for point in points:
        metric = point["metrics"][name]
        own = {"metric": name, "value": metric.estimate, "low": metric.low, "high": metric.high}
        given = {key: value for key, value in point.items() if key != "metrics"}
        yield {
            **own,
            **given,
            "pearson": found.pearson,
            "pearson_low": found.low,
            "pearson_high": found.high,
            "interval_over": found.basis,
            "spearman": found.spearman,
            "n_points": len(defined),
        }


def correlation(
    values: Sequence[float], others: Sequence[float], *, n_models: int, confidence_level: float = 0.95
) -> Correlation:
    """Correlate two sides of some points that come from fewer models.

    - `values`, `others`: one number a point each.
    - `n_models`: how many models the points come from. Points of one model do not count as independent: Fisher's
      interval has the standard error ``1 / sqrt(n_models - 3)``, which is cautious.
    - `confidence_level`: of the interval.

    >>> found = correlation([0.1, 0.2, 0.3, 0.5, 0.4], [0.6, 0.55, 0.7, 0.8, 0.75], n_models=5)
    >>> round(found.pearson, 3), round(found.spearman, 3), round(found.low, 2), found.basis
    (0.915, 0.9, 0.17, 'models')
    """
    x, y = np.array(values, float), np.array(others, float)
    if x.size < FEWEST_POINTS or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(None, None, None, None, None)
    pearson, spearman = float(pearsonr(x, y).statistic), float(pearsonr(rankdata(x), rankdata(y)).statistic)
    basis = "models" if n_models >= FEWEST_MODELS else "points" if x.size >= FEWEST_MODELS else None
    if basis is None or abs(pearson) >= 1:
        return Correlation(pearson, spearman, None, None, None)
    reach = normal_quantile(confidence_level) / math.sqrt((n_models if basis == "models" else x.size) - 3)
    low, high = (math.tanh(math.atanh(pearson) + side * reach) for side in (-1, 1))
    return Correlation(pearson, spearman, low, high, basis)


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print one row a metric with both correlations."""
    first = frame.group_by("metric", maintain_order=True).first()
    rows = [
        {
            "metric": METRIC_LABELS[row["metric"]],
            "Pearson": with_interval(row["pearson"], row["pearson_low"], row["pearson_high"], digits=2),
            "interval over": row["interval_over"] or "-",
            "Spearman": number(row["spearman"], 2),
            "points": row["n_points"],
        }
        for row in first.iter_rows(named=True)
    ]
    return pl.DataFrame(rows)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel a metric, the AUROC over the metric, each point with both intervals."""
    figure.set_size_inches(style.WIDTH * 1.25, 4.6)
    axes = figure.subplots(2, 3, sharey=True)
    for panel, name in zip(axes.flat, COMPARED, strict=True):
        _draw_metric(panel, frame.filter(metric=name))
        panel.set_title(METRIC_LABELS[name])
    for panel in axes[:, 0]:
        panel.set_ylabel("AUROC of P(Answering)")
    last = frame.filter(metric=COMPARED[-1])
    if last["model"].n_unique() > style.MOST_LABELS:
        style.model_legend(figure, last["model"].to_list())
    else:
        _name_models(axes.flat[-1], last.drop_nulls("value"))


def _draw_metric(axes: Axes, rows: pl.DataFrame) -> None:
    colours, markers = style.model_colours(rows["model"].to_list()), style.model_markers(rows["model"].to_list())
    axes.axhline(0.5, color=style.PALE, linewidth=0.8)
    for row in rows.filter(pl.col("value").is_not_null()).iter_rows(named=True):
        colour = colours[row["model"]]
        spans = (
            ([row["low"], row["high"]], [row["auroc"]] * 2),
            ([row["value"]] * 2, [row["auroc_low"], row["auroc_high"]]),
        )
        for x, y in spans:
            if None not in (*x, *y):
                axes.plot(x, y, color=colour, linewidth=0.7, alpha=0.45)
        axes.plot(row["value"], row["auroc"], markers[row["model"]], color=colour, markersize=4)
    axes.set_xlabel(_correlation_text(rows.row(0, named=True)), fontsize=7)


def _correlation_text(row: dict[str, Any]) -> str:
    if row["pearson"] is None:
        return f"no correlation: {row['n_points']} points, or all alike"
    interval = "" if row["pearson_low"] is None else f" [{row['pearson_low']:.2f}, {row['pearson_high']:.2f}]"
    star = "*" if row["interval_over"] == "points" else ""
    return f"r = {row['pearson']:.2f}{interval}{star}, rank {row['spearman']:.2f}"


def _name_models(axes: Axes, rows: pl.DataFrame) -> None:
    """Write each model's name beside its point in the middle."""
    colours = style.model_colours(rows["model"].to_list())
    middle = rows.group_by("model", maintain_order=True).agg(pl.col("value", "auroc").sort_by("auroc").last())
    labels = list(style.short_names(middle["model"].to_list()).values())
    label_points(
        axes,
        middle.select("value", "auroc").rows(),
        labels,
        [colours[model] for model in middle["model"]],
        size=6.5,
        avoid=rows.select("value", "auroc").rows(),
    )


def _caption(frame: pl.DataFrame, options: StudyOptions) -> str:
    points, models = frame.filter(metric=COMPARED[0]).height, frame["model"].n_unique()
    basis = set(frame["interval_over"].drop_nulls())
    few = f" {points} points are few: read the intervals first." if models < 10 else ""
    how = (
        "* the interval takes the points as independent, which those of one model are not, and is too narrow; four "
        "models or more give one that counts models."
        if "points" in basis
        else "Intervals of r are Fisher's with as many independent points as there are models."
    )
    return (
        f"Each metric against the AUROC of P(Answering) for right answers under forced answering, over {points} "
        f"combinations of model and prompt variant ({models} models). P(Answering) is the share of the further draws "
        "that answered, without the first draw, from which the answer is taken; the metrics come from first "
        "draws, so where both come from one run they share questions. Lines are "
        f"{level_text(options)} intervals of each point. r is Pearson's correlation, rank Spearman's. {how}{few} "
        f"The weighted score has a penalty of {options.penalty:g}."
    )
