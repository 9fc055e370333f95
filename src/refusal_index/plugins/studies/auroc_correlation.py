"""Whether a metric agrees with the AUROC of P(Answering), which takes many draws where the metric takes one or two.

A point is one model on one dataset under one prompt variant: the metric from the first draws of the run with the most
graded questions, the AUROC from the run with the most draws, which may be another folder. Points of one model are not
independent of each other, which an interval for their correlation has to know.

Points of the AUROC correlation: a model on a dataset under a prompt, and what each question adds to its error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy.stats import pearsonr, rankdata

from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import OutcomeMatrix, draw_matrix, outcome_matrix
from refusal_index.findings.draws import p_answering, usable_questions
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.runs import ALL, COMPARED, VariantScores, chosen_runs, model_name, variant_scores
from refusal_index.plugins.studies.sampling_error import FloatArray, is_sparse, without_noise
from refusal_index.plugins.studies.stability import DisattenuatedCorrelation
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study, study_text
from refusal_index.plugins.studies.style import label_points
from refusal_index.plugins.studies.tables import Cell, fixed, printed_table, ranged
from refusal_index.render.format import UNDEFINED, abridged
from refusal_index.stats import AurocResult, Estimate, auroc, metric_influence
from refusal_index.stats.calibration import auroc_influence
from refusal_index.stats.intervals import normal_quantile

Key = tuple[str, str | None, str | None]
AREA = "auroc"
Errors = Mapping[tuple[str | None, str], float]
"""By dataset and question, what it adds to the error of an estimate."""


@dataclass(frozen=True, eq=False)
class Point:
    """One model on one dataset under one prompt variant."""

    model: str
    dataset: str | None
    variant: str
    metrics: Mapping[str, Estimate]
    sparse: bool  # whether a cell holds fewer than five questions
    auroc: AurocResult
    draws: int
    questions: int  # of the area
    drawn_in: str  # the run that the draws come from
    errors: Mapping[str, Errors]  # of each metric, and of ``auroc``


def points_of(
    runs: Sequence[ComparedRun], every: Sequence[ComparedRun], options: StudyOptions
) -> tuple[list[Point], list[str]]:
    """Find the points of some runs.

    - `runs`: of which the metrics are taken.
    - `every`: of which the run with the most draws is taken for P(Answering).
    - returned `notes`: what was left out, and whose draws come from another run; a sentence each.
    """
    draws, points = _most_draws(every), []
    single, undefined, elsewhere = [], [], []
    for run in runs:
        matrix = outcome_matrix(list(run.variants.values()))
        for row, (variant, scores) in enumerate(zip(run.variants, variant_scores(run, options), strict=True)):
            where = f"{model_name(run)}, {run.dataset or ALL}, {variant or ALL}"
            key = model_name(run), run.dataset, variant
            if key not in draws:
                single.append(where)
                continue
            source, drawn = draws[key]
            point = _point(run, scores, matrix.of_rows([row]), source, drawn, options)
            if point.auroc.estimate is None:
                undefined.append(f"{where} ({point.auroc.reason})")
                continue
            elsewhere += [where] if source is not run else []
            points.append(point)
    return points, [*_notes(single, undefined, elsewhere, len(points))]


def _notes(single: Sequence[str], undefined: Sequence[str], elsewhere: Sequence[str], n: int) -> Iterator[str]:
    if single:
        yield f"{len(single):,} left out, since no question was drawn twice: {abridged(single)}."
    if undefined:
        yield f"{len(undefined):,} left out, since the AUROC is undefined: {abridged(undefined)}."
    if elsewhere:
        values = {"count": f"{len(elsewhere):,}", "of": f"{n:,}", "points": abridged(elsewhere)}
        yield study_text("auroc_correlation", "elsewhere", **values)


def _most_draws(runs: Sequence[ComparedRun]) -> dict[Key, tuple[ComparedRun, OutcomeMatrix]]:
    """Find for every model, dataset and variant the run with the most draws, where there are two or more."""
    found: dict[Key, tuple[ComparedRun, OutcomeMatrix]] = {}
    for run in runs:
        for variant, outcomes in run.variants.items():
            key, matrix = (model_name(run), run.dataset, variant), draw_matrix(outcomes)
            if len(matrix.refused) > 1 and (key not in found or len(matrix.refused) > len(found[key][1].refused)):
                found[key] = run, matrix
    return found


def _point(
    run: ComparedRun,
    scores: VariantScores,
    row: OutcomeMatrix,
    source: ComparedRun,
    drawn: OutcomeMatrix,
    options: StudyOptions,
) -> Point:
    score, right = p_answering(drawn)
    ids = [one for one, usable in zip(drawn.question_ids, usable_questions(drawn), strict=True) if usable]
    errors = {AREA: _by_question(run.dataset, ids, auroc_influence(score, right))}
    for name in COMPARED:
        own = metric_influence(*row.arrays, metric=name, penalty=options.penalty)[0] / max(1, int(row.scored.sum()))
        errors[name] = _by_question(run.dataset, row.question_ids, own)
    return Point(
        model_name(run),
        run.dataset,
        scores.variant,
        scores.metrics,
        is_sparse([scores.table]),
        auroc(score, right),
        len(drawn.refused),
        len(drawn.question_ids),
        source.label,
        errors,
    )


def _by_question(dataset: str | None, ids: Sequence[str], influence: FloatArray) -> Errors:
    return {(dataset, one): float(value) for one, value in zip(ids, influence, strict=True)}


def errors_of(points: Sequence[Point], names: Sequence[str]) -> tuple[FloatArray, ...]:
    """Lay the errors of some estimates side by side over all questions, each of shape (points, n)."""
    every = {
        key: place for place, key in enumerate(dict.fromkeys(k for p in points for n in names for k in p.errors[n]))
    }
    laid = tuple(np.zeros((len(points), len(every))) for _ in names)
    for name, matrix in zip(names, laid, strict=True):
        for row, point in enumerate(points):
            held = point.errors[name]
            matrix[row, [every[key] for key in held]] = list(held.values())
    return laid


FEWEST_POINTS = 3
FEWEST_MODELS = 4
FEW_DRAWS = 10
ROUNDING = 1e-12


@dataclass(frozen=True)
class Correlation:
    """Spearman's and Pearson's correlation over the points, and an interval for each."""

    # spearman, pearson: none where one of the two sides does not vary
    spearman: float | None
    pearson: float | None
    # by Fisher's z, with the variance of Bonett and Wright for ranks; None where undefined
    spearman_interval: tuple[float | None, float | None]
    pearson_interval: tuple[float | None, float | None]
    # what the intervals count as independent: ``"models"``, or ``"points"`` where there are fewer than four models but
    # four points or more, so that they are too narrow; None without an interval
    basis: str | None


@study
def auroc_correlation(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if fewer than three points have repeated draws."""
    chosen, _ = chosen_runs(runs)
    points, notes = points_of(chosen, runs, options)
    if len(points) < FEWEST_POINTS:
        found = f"of these runs {len(points)} {'has' if len(points) == 1 else 'have'} them"
        raise NotPossibleError(f"; {found}", notes)
    frame = _frame(points, options.confidence_level)
    counts = sorted(set(frame["draws"]))
    if counts[0] < FEW_DRAWS:
        span = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        notes.append(study_text("auroc_correlation", "few_draws", draws=span))
    reason = frame.filter(metric=INDEX)["noise_reason"][0]
    if reason:
        side, _, why = reason.partition(":")
        whose = "RI" if side == "first" else "the AUROC"
        notes.append(f"What sampling errors leave of r of RI is not known ({why.replace('_', ' ')} of {whose}).")
    own = frame.filter(metric=COMPARED[0])
    values = {
        "points": own.height,
        "models": frame["model"].n_unique(),
        "over_points": "points" in frame["interval_over"],
        "sparse": own["sparse"].sum(),
    }
    return Study(frame, draw, printed, notes, values)


def _frame(points: Sequence[Point], confidence_level: float) -> pl.DataFrame:
    rows = [row for name in COMPARED for row in _metric_rows(name, points, confidence_level)]
    return pl.DataFrame(rows, infer_schema_length=None)


def _metric_rows(name: str, points: Sequence[Point], level: float) -> Iterator[dict[str, Any]]:
    defined = [point for point in points if point.metrics[name].estimate is not None]
    headline = [point for point in defined if not point.sparse]
    found, of_all = (_correlation(name, some, level) for some in (headline, defined))
    noise = _noise(name, headline)
    shared = {
        "spearman": found.spearman,
        "spearman_low": found.spearman_interval[0],
        "spearman_high": found.spearman_interval[1],
        "pearson": found.pearson,
        "pearson_low": found.pearson_interval[0],
        "pearson_high": found.pearson_interval[1],
        "interval_over": found.basis,
        "n_points": len(headline),
        "pearson_ceiling": noise.ceiling,
        "pearson_without_noise": noise.estimate,
        "noise_reason": noise.reason,
        "spearman_all": of_all.spearman,
        "pearson_all": of_all.pearson,
        "n_points_all": len(defined),
    }
    for point in points:
        metric, ends = point.metrics[name], point.auroc.confidence_interval(level).or_none()
        own = {"metric": name, "value": metric.estimate, "low": metric.low, "high": metric.high}
        where = {"model": point.model, "dataset": point.dataset, "variant": point.variant, "sparse": point.sparse}
        drawn = {"draws": point.draws, "questions": point.questions, "drawn_in": point.drawn_in}
        score = {"auroc": point.auroc.estimate, "auroc_low": ends[0], "auroc_high": ends[1]}
        yield {**own, **where, **drawn, **score, **shared}


def _correlation(name: str, points: Sequence[Point], level: float) -> Correlation:
    return correlation(
        *_both_sides(name, points), n_models=len({point.model for point in points}), confidence_level=level
    )


def _both_sides(name: str, points: Sequence[Point]) -> tuple[FloatArray, FloatArray]:
    values = [point.metrics[name].estimate for point in points]
    return np.array(values, float), np.array([point.auroc.estimate for point in points], float)


def _noise(name: str, points: Sequence[Point]) -> DisattenuatedCorrelation:
    """Take the sampling errors of both sides out, over the points that have them."""
    own, areas = errors_of(points, (name, AREA))
    known = np.isfinite(own).all(axis=1) & np.isfinite(areas).all(axis=1)
    values, others = _both_sides(name, points)
    return without_noise(values[known], others[known], own[known], areas[known])


def correlation(values: ArrayLike, others: ArrayLike, *, n_models: int, confidence_level: float = 0.95) -> Correlation:
    """Correlate two sides of some points that come from fewer models.

    - `values`, `others`: one number a point each.
    - `n_models`: how many models the points come from. Points of one model do not count as independent: the intervals
      have the standard error ``1 / sqrt(n_models - 3)``, times ``sqrt(1 + r^2 / 2)`` for ranks, which is cautious.
    - `confidence_level`: of the intervals.

    References
    ----------
    .. [1] Bonett, D. G. and Wright, T. A. (2000). Sample size requirements for estimating Pearson, Kendall and Spearman
       correlations. Psychometrika, 65, 23-28. :doi:`10.1007/BF02294183`

    >>> found = correlation([0.1, 0.2, 0.3, 0.5, 0.4], [0.6, 0.55, 0.7, 0.8, 0.75], n_models=5)
    >>> round(found.spearman, 3), round(found.pearson, 3), round(found.pearson_interval[0], 2), found.basis
    (0.9, 0.915, 0.17, 'models')
    """
    x, y = np.array(values, float), np.array(others, float)
    if x.size < FEWEST_POINTS or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(None, None, (None, None), (None, None), None)
    pearson, spearman = float(pearsonr(x, y).statistic), float(pearsonr(rankdata(x), rankdata(y)).statistic)
    basis = "models" if n_models >= FEWEST_MODELS else "points" if x.size >= FEWEST_MODELS else None
    if basis is None:
        return Correlation(spearman, pearson, (None, None), (None, None), None)
    reach = normal_quantile(confidence_level) / math.sqrt((n_models if basis == "models" else x.size) - 3)
    of_ranks = _fisher(spearman, reach * math.sqrt(1 + spearman**2 / 2))
    return Correlation(spearman, pearson, of_ranks, _fisher(pearson, reach), basis)


def _fisher(r: float, reach: float) -> tuple[float | None, float | None]:
    # Rounding can leave a perfect correlation a little inside of 1.
    if abs(r) > 1 - ROUNDING:
        return None, None
    return math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach)


PRINTED: Mapping[str, str | Cell] = {
    "metric": lambda row: METRICS[row["metric"]].label,
    "Spearman": ranged("spearman", 2),
    "Pearson": ranged("pearson", 2),
    "interval over": lambda row: row["interval_over"] or UNDEFINED,
    "ceiling": fixed("pearson_ceiling", 2),
    "without noise": fixed("pearson_without_noise", 2),
    "points": "n_points",
    "Spearman of all": fixed("spearman_all", 2),
    "Pearson of all": fixed("pearson_all", 2),
    "points of all": "n_points_all",
}


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print one row a metric with both correlations, without sparse points and with them."""
    return printed_table(frame.group_by("metric", maintain_order=True).first(), PRINTED)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel a metric, the AUROC over the metric, each point with both intervals."""
    figure.set_size_inches(style.WIDTH * 1.25, 4.6)
    axes = figure.subplots(2, 3, sharey=True)
    for panel, name in zip(axes.flat, COMPARED, strict=True):
        _draw_metric(panel, frame.filter(metric=name))
        panel.set_title(METRICS[name].label)
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
    for row in rows.drop_nulls("value").iter_rows(named=True):
        face, colour = style.PAPER if row["sparse"] else None, colours[row["model"]]
        spans: dict[str, Any] = {"xs": style.ends(row), "ys": style.ends(row, "auroc")}
        style.mark(axes, row["value"], row["auroc"], colour, markers[row["model"]], face=face, width=0.5, **spans)
    axes.set_xlabel(_correlation_text(rows.row(0, named=True)), fontsize=7)


def _correlation_text(row: dict[str, Any]) -> str:
    if row["spearman"] is None:
        return f"no correlation: {row['n_points']} points, or all alike"
    interval = "" if row["spearman_low"] is None else f" [{row['spearman_low']:.2f}, {row['spearman_high']:.2f}]"
    star = "*" if row["interval_over"] == "points" else ""
    ceiling = "" if row["pearson_ceiling"] is None else f" of {row['pearson_ceiling']:.2f}"
    lines = [f"rank {row['spearman']:.2f}{interval}{star}, r = {row['pearson']:.2f}{ceiling}"]
    if row["n_points_all"] > row["n_points"] and row["spearman_all"] is not None:
        lines.append(f"with hollow ones: rank {row['spearman_all']:.2f}, r = {row['pearson_all']:.2f}")
    return "\n".join(lines)


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
