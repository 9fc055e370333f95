"""Correlates of the Refusal Index over models: the AUROC of P(Answering), and predictors of the index.

`auroc_correlation` shows whether a metric agrees with the AUROC of P(Answering), which needs many draws where the
metric needs one or two. A point is one model on one dataset under one prompt variant: the metric is from the first
draws of the run with the most graded questions, P(Answering) from the run with the most draws, which may be a different
run. Where that run is a first pass alone, the right and wrong answers are those of the run with the metric. Points of
one model are dependent, which intervals of the correlation account for.

`index_predictors` shows how much of the index a model's family, size, accuracy or refusal rate explains. Any grouping
into many families with few models each explains much; permuting the index over the models shows how much.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from scipy.stats import pearsonr, rankdata

from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.rates import OutcomeMatrix, draw_matrix, outcome_matrix
from refusal_index.findings.draws import joined_p_answering, p_answering, usable_questions
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies import inputs, precision, style
from refusal_index.plugins.studies.regression import SIZE, model_rows, paper_model_rows
from refusal_index.plugins.studies.stability import MIN_POINTS, reliability
from refusal_index.plugins.studies.study import (
    NotPossibleError,
    Study,
    StudyOptions,
    asked_of,
    is_first_pass_alone,
    schema,
    study,
    study_text,
    without_first_passes,
)
from refusal_index.render.format import UNDEFINED, abridged, number, pvalue
from refusal_index.stats import Estimate, auroc
from refusal_index.stats.arguments import FloatArray
from refusal_index.stats.calibration import auroc_influence
from refusal_index.stats.intervals import normal_quantile

Key = tuple[str, str | None, str | None]
AREA = "auroc"
Errors = Mapping[tuple[str | None, str], float]
"""Influence of each question on an estimate, by dataset and question."""


@dataclass(frozen=True, eq=False)
class Samples:
    """The repeated draws of one model on one dataset under one prompt variant."""

    run: RunResults
    variant: str | None
    draws: int
    matrix: OutcomeMatrix | None  # of draws graded in both passes; None for those of the first pass alone


@dataclass(frozen=True, eq=False)
class Scored:
    """P(Answering) of n questions, and whether their answers are right."""

    question_ids: Sequence[str]
    score: NDArray[np.float64]
    right: NDArray[np.bool_]
    questions: int  # those with repeated draws


@dataclass(frozen=True, eq=False)
class Point:
    """One model on one dataset under one prompt variant."""

    row: Mapping[str, Any]  # its columns of the frame: identity, number of draws, and the AUROC with its interval
    metrics: Mapping[str, Estimate]
    errors: Mapping[str, Errors]  # influences for each metric and for ``auroc``


def points_of(
    runs: Sequence[RunResults], every: Sequence[RunResults], options: StudyOptions
) -> tuple[list[Point], list[str]]:
    """Return the points of the runs.

    - `runs`: runs for the metrics.
    - `every`: all runs; for P(Answering) the one with the most draws is used.
    - returned `notes`: sentences on what was left out, and on points whose draws come from another run.
    """
    draws = _most_draws(every)
    points = []
    single = "no question was drawn twice"
    undefined = "the AUROC is undefined"
    differing = "the first pass that was sampled has other settings than the run of both passes"
    left_out: dict[str, list[str]] = {single: [], undefined: [], differing: []}
    elsewhere: dict[str, list[str]] = {"elsewhere": [], "joined": []}
    for run in runs:
        matrix = outcome_matrix(list(run.tables.values()))
        model = inputs.model_name(run)
        influences = {name: precision.variant_influence(matrix, name, options) for name in inputs.COMPARED}
        for index, (variant, scores) in enumerate(zip(run.tables, inputs.variant_scores(run, options), strict=True)):
            shown = f"{model}, {run.dataset or inputs.ALL}, {scores.variant}"
            key = (*asked_of(run), variant)
            if key not in draws:
                left_out[single].append(shown)
                continue
            samples = draws[key]
            if samples.matrix is None and (names := _different_settings(samples.run, run)):
                left_out[differing].append(f"{shown} ({', '.join(names)})")
                continue
            scored = _scored(samples, run)
            area = auroc(scored.score, scored.right)
            if area.estimate is None:
                left_out[undefined].append(f"{shown} ({area.reason})")
                continue
            if samples.run is not run:
                elsewhere["joined" if samples.matrix is None else "elsewhere"].append(shown)
            area_estimate = Estimate.of(area, area.confidence_interval(options.analysis.confidence_level))
            row = {
                "model": model,
                "dataset": run.dataset,
                "variant": scores.variant,
                "sparse": precision.is_sparse([scores.table]),
                "temperature": (samples.run.settings.get("decoding") or {}).get("temperature"),
                "draws": samples.draws,
                "questions": scored.questions,
                "drawn_in": samples.run.label,
                **inputs.with_ends({AREA: area_estimate}),
            }
            errors = {
                name: _by_question(run, matrix.question_ids, by_variant[index])
                for name, by_variant in influences.items()
            }
            errors[AREA] = _by_question(run, scored.question_ids, auroc_influence(scored.score, scored.right))
            points.append(Point(row, scores.metrics, errors))
    notes = [*inputs.left_out_since(left_out)]
    for name, shown_points in elsewhere.items():
        if shown_points:
            notes.append(
                study_text(
                    "auroc_correlation",
                    name,
                    count=f"{len(shown_points):,}",
                    of=f"{len(points):,}",
                    points=abridged(shown_points),
                )
            )
    return points, notes


def _most_draws(runs: Sequence[RunResults]) -> dict[Key, Samples]:
    """Return the run with the most draws, at least two, for every model, dataset and variant."""
    by_key: dict[Key, Samples] = {}
    for run in runs:
        for variant, outcomes in run.tables.items():
            samples = _samples(run, variant, outcomes)
            key = (*asked_of(run), variant)
            if samples.draws > 1 and (key not in by_key or samples.draws > by_key[key].draws):
                by_key[key] = samples
    return by_key


def _samples(run: RunResults, variant: str | None, outcomes: pl.DataFrame) -> Samples:
    if is_first_pass_alone(run):
        return Samples(run, variant, outcomes.drop_nulls("refused")["draw"].n_unique(), None)
    matrix = draw_matrix(outcomes)
    return Samples(run, variant, len(matrix.refused), matrix)


def _scored(samples: Samples, run: RunResults) -> Scored:
    """Return P(Answering), and the answers of its own run or, if that has only a first pass, of the other."""
    if samples.matrix is not None:
        usable = samples.matrix.of_questions(usable_questions(samples.matrix)).question_ids
        return Scored(usable, *p_answering(samples.matrix), questions=len(samples.matrix.question_ids))
    joined = joined_p_answering(samples.run.tables[samples.variant], run.tables[samples.variant])
    score = joined["share"].to_numpy()
    return Scored(tuple(joined["question_id"]), score, joined["right"].to_numpy(), questions=joined.height)


def _different_settings(sampled: RunResults, run: RunResults) -> list[str]:
    """Return the settings in which two runs send different first-pass requests; none where one records none.

    Sampling may differ: the paper samples P(Answering) at another temperature.
    """
    if not sampled.settings or not run.settings:
        return []
    recorded = [
        {
            **{name: one.settings.get(name) for name in ("model", "placement", "think", "extra_body", "model_args")},
            "prompts": (one.settings.get("prompts") or {}).get("sha256"),
        }
        for one in (sampled, run)
    ]
    return [name for name, value in recorded[0].items() if recorded[1][name] != value]


def _by_question(run: RunResults, ids: Sequence[str], influence: FloatArray) -> Errors:
    return {(run.dataset, question_id): float(value) for question_id, value in zip(ids, influence, strict=True)}


MIN_MODELS = 4
FEW_DRAWS = 10


@study
def auroc_correlation(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if fewer than three points have repeated draws."""
    chosen, _ = inputs.chosen_runs(without_first_passes(runs))
    every, notes = points_of(chosen, runs, options)
    points, others = _alike(every)
    notes += others
    if len(points) < MIN_POINTS:
        counted = ("none of these runs has them", "these runs have one", "these runs have two")[len(points)]
        raise NotPossibleError(f"; {counted}", notes)
    rows = [row for name in inputs.COMPARED for row in _metric_rows(name, points, options)]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    counts = sorted(set(frame["draws"]))
    if counts[0] < FEW_DRAWS:
        span = " to ".join(map(str, dict.fromkeys((counts[0] - 1, counts[-1] - 1))))  # without the first sample
        notes.append(study_text("auroc_correlation", "few_draws", draws=span))
    reason = frame.filter(metric=INDEX)["noise_reason"][0]
    if reason:
        side, _, why = reason.partition(":")
        side_name = "RI" if side == "first" else "the AUROC"
        notes.append(f"The noise ceiling of r for RI is unknown ({why.replace('_', ' ')} of {side_name}).")
    index_rows = frame.filter(metric=inputs.COMPARED[0])
    return Study(
        frame,
        _draw_areas,
        _printed_areas,
        notes,
        values={
            "dataset": inputs.dataset_name(index_rows["dataset"][0]),
            "temperature": _temperature_text(index_rows["temperature"][0]),
            "points": index_rows.height,
            "models": frame["model"].n_unique(),
            "over_points": "points" in frame["interval_over"],
            "sparse": index_rows["sparse"].sum(),
        },
    )


def _temperature_text(temperature: float | None) -> str:
    return "temperature not recorded" if temperature is None else f"temperature {temperature:g}"


def _alike(points: Sequence[Point]) -> tuple[list[Point], list[str]]:
    """Return the points of the dataset and temperature of sampling with the most points, and notes on the others."""
    counted = Counter((point.row["dataset"], point.row["temperature"]) for point in points)
    if len(counted) < 2:
        return list(points), []
    dataset, temperature = max(counted, key=lambda key: counted[key])
    kept = [point for point in points if (point.row["dataset"], point.row["temperature"]) == (dataset, temperature)]
    shown = [
        f"{row['model']}, {row['dataset']}, {row['variant']} ({_temperature_text(row['temperature'])})"
        for row in (point.row for point in points if point not in kept)
    ]
    return kept, [
        study_text(
            "auroc_correlation",
            "other",
            dataset=inputs.dataset_name(dataset),
            temperature=_temperature_text(temperature),
            count=len(shown),
            left_out=abridged(shown),
        )
    ]


def _metric_rows(name: str, points: Sequence[Point], options: StudyOptions) -> Iterator[dict[str, Any]]:
    defined = [point for point in points if point.metrics[name].estimate is not None]
    headline = [point for point in defined if not point.row["sparse"]]
    numbers, of_all = (
        correlation(
            *_both_sides(name, some), n_models=len({point.row["model"] for point in some}), analysis=options.analysis
        )
        for some in (headline, defined)
    )
    # Influences on the metric and on the AUROC, aligned over all questions.
    keys = dict.fromkeys(key for point in headline for side in (name, AREA) for key in point.errors[side])
    shape = len(headline), len(keys)
    index_influence, areas = (
        np.array([[point.errors[side].get(key, 0.0) for key in keys] for point in headline], float).reshape(shape)
        for side in (name, AREA)
    )
    is_known = np.isfinite(index_influence).all(axis=1) & np.isfinite(areas).all(axis=1)
    values, others = _both_sides(name, headline)
    noise = precision.without_noise(values[is_known], others[is_known], index_influence[is_known], areas[is_known])
    shared = {
        **numbers,
        "n_points": len(headline),
        "pearson_ceiling": noise.ceiling,
        "pearson_without_noise": noise.estimate,
        "noise_reason": noise.reason,
        "spearman_all": of_all["spearman"],
        "pearson_all": of_all["pearson"],
        "n_points_all": len(defined),
    }
    for point in points:
        metric = point.metrics[name]
        yield {
            "metric": name,
            "value": metric.estimate,
            "low": metric.low,
            "high": metric.high,
            **point.row,
            **shared,
        }


def _both_sides(name: str, points: Sequence[Point]) -> tuple[FloatArray, FloatArray]:
    values = [point.metrics[name].estimate for point in points]
    return np.array(values, float), np.array([point.row["auroc"] for point in points], float)


def correlation(
    values: ArrayLike, others: ArrayLike, *, n_models: int, analysis: Analysis = DEFAULT_ANALYSIS
) -> dict[str, Any]:
    """Correlate two values of points that come from fewer models.

    - `values`, `others`: the two values of each point.
    - `n_models`: number of models. Points of one model do not count as independent: the intervals use the standard
      error ``1 / sqrt(n_models - 3)``, times ``sqrt(1 + r^2 / 2)`` for ranks, which is conservative.
    - `analysis`: confidence level of the intervals.
    - returned: ``spearman`` and ``pearson``, None if one side is constant, with intervals by Fisher's z; and
      ``interval_over``, the unit that counts as independent: ``"models"``, or ``"points"`` if there are fewer than four
      models but at least four points, so that the intervals are too narrow.

    References
    ----------
    .. [1] Bonett, D. G. and Wright, T. A. (2000). Sample size requirements for estimating Pearson, Kendall and Spearman
       correlations. Psychometrika, 65, 23-28. :doi:`10.1007/BF02294183`

    >>> found = correlation([0.1, 0.2, 0.3, 0.5, 0.4], [0.6, 0.55, 0.7, 0.8, 0.75], n_models=5)
    >>> round(found["spearman"], 3), round(found["pearson"], 3), round(found["pearson_low"], 2), found["interval_over"]
    (0.9, 0.915, 0.17, 'models')
    """
    x = np.array(values, float)
    y = np.array(others, float)
    if x.size < MIN_POINTS or np.ptp(x) == 0 or np.ptp(y) == 0:
        ends = ("", "_low", "_high")
        return dict.fromkeys([*(f"{name}{end}" for name in ("spearman", "pearson") for end in ends), "interval_over"])
    basis = "models" if n_models >= MIN_MODELS else "points" if x.size >= MIN_MODELS else None
    columns: dict[str, Any] = {}
    for name, first, other in (("spearman", rankdata(x), rankdata(y)), ("pearson", x, y)):
        r = float(pearsonr(first, other).statistic)
        low = None
        high = None
        # Rounding can make a perfect correlation slightly less than 1.
        if basis and abs(r) <= 1 - precision.ROUNDING:
            n = n_models if basis == "models" else x.size
            reach = normal_quantile(analysis.confidence_level) / math.sqrt(n - 3)
            reach *= math.sqrt(1 + r**2 / 2) if name == "spearman" else 1
            low = math.tanh(math.atanh(r) - reach)
            high = math.tanh(math.atanh(r) + reach)
        columns |= {name: r, f"{name}_low": low, f"{name}_high": high}
    return {**columns, "interval_over": basis}


PRINTED_AREAS: Mapping[str, str | style.Cell] = {
    "metric": lambda row: METRICS[row["metric"]].label,
    "Spearman": style.ranged("spearman", 2),
    "Pearson": style.ranged("pearson", 2),
    "interval over": lambda row: row["interval_over"] or UNDEFINED,
    "ceiling": style.fixed("pearson_ceiling", 2),
    "without noise": lambda row: _possible(row["pearson_without_noise"]),
    "points": "n_points",
    "Spearman of all": style.fixed("spearman_all", 2),
    "Pearson of all": style.fixed("pearson_all", 2),
    "points of all": "n_points_all",
}


def _possible(correlation: float | None) -> str:
    """Format a correlation without sampling errors; one beyond 1 means that too much of the spread is chance."""
    return "cannot be estimated" if abs(correlation or 0.0) > 1 else number(correlation, 2)


def _printed_areas(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per metric with both correlations, without and with sparse points."""
    return style.table(PRINTED_AREAS)(frame.unique("metric", keep="first", maintain_order=True))


def _draw_areas(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel per metric: the AUROC against the metric, each point with both intervals."""
    figure.set_size_inches(style.WIDTH * 1.25, 4.6)
    titles = [METRICS[name].label for name in inputs.COMPARED]
    panels = style.panel_grid(figure, titles, 3, ("", "AUROC of P(Answering)"), size=8.5, sharey=True)
    models = frame["model"].unique(maintain_order=True).to_list()
    looks = style.model_looks(models)
    for panel, name in zip(panels, inputs.COMPARED, strict=True):
        rows = frame.filter(metric=name)
        panel.axhline(0.5, color=style.PALE, linewidth=0.8)
        for row in rows.drop_nulls("value").iter_rows(named=True):
            face = style.PAPER if row["sparse"] else None
            style.mark(
                panel,
                row["value"],
                row["auroc"],
                *looks[row["model"]],
                face=face,
                width=0.5,
                xs=style.ends(row),
                ys=style.ends(row, "auroc"),
            )
        panel.set_xlabel(_correlation_text(rows.row(0, named=True)), fontsize=7)
        style.few_ticks(panel.xaxis, 5)
    style.outside_legend(figure, style.model_handles(models))


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


MIN_EXPLAINED = 4
SHUFFLES = 9_999
PREDICTORS = {
    "family": "Family",
    SIZE: "Size (logarithm)",
    "correct_rate": "Correct answer rate",
    "correct_given_attempted": "C/A",
    "refusal_rate": "Refusal rate",
}


@study
def index_predictors(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study: the share of the variance of the index over models that each predictor explains.

    Raises NotPossibleError if fewer than four models have an index and the paper's rows do not apply.
    """
    chosen, notes = inputs.of_one_dataset(runs)
    every = [*paper_model_rows(chosen, options), *(row for _, row in model_rows(chosen, options))]
    points = pl.DataFrame(
        every,
        schema=schema(
            "source model family parameters_billion correct_rate correct_given_attempted refusal_rate refusal_index "
            "low high sparse"
        ),
    )
    sparse_models = points.filter("sparse")["model"].to_list()
    parts = {source: points.filter(~pl.col("sparse"), source=source) for source in (inputs.RUN, inputs.PAPER)}
    if parts[inputs.RUN].height < (1 if parts[inputs.PAPER].height else MIN_EXPLAINED):
        counted = ("none of these models has", "one of these has", "two of these have", "three of these have")
        usable = (
            f"{counted[parts[inputs.RUN].height]} an RI that does not depend on a cell of fewer than five questions"
        )
        raise NotPossibleError(f"; {usable}", notes)
    notes += inputs.left_out("Left out, at the boundary or with fewer than five questions in a cell", sparse_models)
    errors = precision.RunErrors(chosen, options)
    rows = [
        row
        for source, part in parts.items()
        if part.height
        for row in shares(part, source, errors, options.analysis.seed)
    ]
    frame = pl.DataFrame(
        rows,
        schema=schema(
            "source predictor models degrees_of_freedom share shuffled shuffled_high pvalue share_beyond_chance "
            "ceiling reason ceiling_reason",
            degrees_of_freedom=pl.Int64,
        ),
    )
    # The predictor with the largest share beyond chance for each source, with its p-value adjusted by Bonferroni.
    for _, part in frame.drop_nulls("share").group_by("source", maintain_order=True):
        best = part.sort("share_beyond_chance", descending=True).row(0, named=True)
        note = study_text(
            "index_predictors",
            "best",
            **best,
            label=PREDICTORS[best["predictor"]],
            adjusted=min(1.0, best["pvalue"] * part.height),
            predictors=part.height,
        )
        notes = (*notes, note)
    return Study(
        frame,
        _draw_predictors,
        style.table(PRINTED_PREDICTORS),
        notes,
        values={**inputs.data_values(chosen), "shuffles": f"{SHUFFLES:,}", "paper": inputs.PAPER in frame["source"]},
    )


def shares(points: pl.DataFrame, source: str, errors: precision.RunErrors, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the share of each predictor over the models for which it is known.

    - `points`: the models of one source.
    - `source`: ``run`` or ``paper``.
    - `errors`: sampling errors of the runs; those of the paper's rows are derived from its intervals.
    - `seed`: seed of the permutations.
    """
    for predictor in PREDICTORS:
        rows = points.drop_nulls(predictor)
        share = explained(rows[INDEX].to_numpy(), design(rows[predictor], predictor == SIZE), seed)
        if source == inputs.PAPER:
            covariance = precision.printed_errors(rows["low"], rows["high"])
        else:
            influence = errors.of_runs(rows["model"].to_list(), INDEX)
            covariance = np.asarray(influence @ influence.T)
        result = reliability(rows[INDEX].to_numpy(), covariance)
        yield {
            "source": source,
            "predictor": predictor,
            "models": rows.height,
            **share,
            "ceiling": result.estimate,
            "ceiling_reason": result.reason,
        }


def design(values: pl.Series, logarithmic: bool = False) -> FloatArray:
    """Return the design matrix, shape (models, m): an indicator per group for text, else the values."""
    if values.dtype == pl.String:
        return np.asarray(values.to_dummies().to_numpy(), float)
    return np.asarray((values.log10() if logarithmic else values).to_numpy(), float).reshape(-1, 1)


def explained(y: FloatArray, columns: FloatArray, seed: int) -> dict[str, Any]:
    """Return the share of the variance of y that the columns explain, and that for permuted y.

    - `y`: shape (k,).
    - `columns`: shape (k, m), without the intercept, which is added.

    >>> found = explained(np.array([1.0, 1.1, 3.0, 3.1]), np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]]), 0)
    >>> round(found["share"], 3), round(found["pvalue"], 2)
    (0.998, 0.33)
    """
    centred = columns - columns.mean(axis=0) if len(columns) else columns
    freedom = int(np.linalg.matrix_rank(centred)) if len(columns) else 0
    reason = None
    if len(y) < MIN_EXPLAINED:
        reason = "fewer_than_four_models"
    elif np.ptp(y) == 0:
        reason = "no_variation"
    elif freedom == 0:
        reason = "all_alike"
    elif freedom >= len(y) - 1:
        reason = "each_model_by_itself"
    if reason:
        return {"degrees_of_freedom": freedom, "reason": reason}
    basis = np.linalg.svd(centred, full_matrices=False)[0][:, :freedom]
    deviations = y - y.mean()
    total = float(deviations @ deviations)
    share = float(np.sum((deviations @ basis) ** 2) / total)
    shuffled = np.random.default_rng(seed).permuted(np.tile(deviations, (SHUFFLES, 1)), axis=1)
    random = np.sum((shuffled @ basis) ** 2, axis=1) / total
    expected = freedom / (len(y) - 1)
    return {
        "degrees_of_freedom": freedom,
        "share": share,
        # The mean over all permutations is known exactly.
        "shuffled": expected,
        "shuffled_high": float(np.quantile(random, 0.95)),
        "pvalue": (1 + int(np.count_nonzero(random >= share - precision.ROUNDING))) / (1 + SHUFFLES),
        "share_beyond_chance": (share - expected) / (1 - expected),
    }


def _draw_predictors(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel per source: the share of each predictor over its permutation distribution."""
    sources = frame["source"].unique(maintain_order=True).to_list()
    width = style.WIDTH if len(sources) > 1 else 4.2
    panels = style.subplots(figure, width, 2.4, 1, len(sources), sharey=True, squeeze=False)[0]
    for axes, source in zip(panels, sources, strict=True):
        rows = frame.filter(source=source)
        for y, row in enumerate(rows.iter_rows(named=True)):
            if row["share"] is None:
                text = row["reason"].replace("_", " ")
                axes.annotate(text, (0.02, y), va="center", fontsize=6, color=style.GREY)
                continue
            axes.plot([0, row["shuffled_high"]], [y] * 2, color=style.PALE, linewidth=5, solid_capstyle="butt")
            axes.plot(row["shuffled"], y, "|", color=style.GREY, markersize=6)
            axes.plot(row["share"], y, "o", color=style.MODEL_COLOURS[0], markersize=5)
            axes.annotate(f"{row['models']}", (1.0, y), va="center", ha="right", fontsize=6, color=style.GREY)
        title = "The runs" if source == inputs.RUN else "The paper's models"
        axes.set(xlim=(-0.02, 1.02), xlabel="share of the variance of RI", title=title)
    style.name_rows(panels, list(PREDICTORS.values()))


PRINTED_PREDICTORS: Mapping[str, str | style.Cell] = {
    "Of": style.labelled({inputs.RUN: "runs", inputs.PAPER: "paper"}, "source"),
    "Predictor": style.labelled(PREDICTORS, "predictor"),
    "Models": "models",
    "Share": style.fixed("share", 2),
    "Shuffled": style.fixed("shuffled", 2),
    "up to": style.fixed("shuffled_high", 2),
    "p": lambda row: pvalue(row["pvalue"]),
    "Beyond chance": style.fixed("share_beyond_chance", 2),
    "Ceiling": style.fixed("ceiling", 2),
}
