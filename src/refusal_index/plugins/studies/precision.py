"""Precision of metrics: their sampling errors, and the study of sample size.

The sampling errors of runs on the same questions are correlated. Each question has an influence on a run's joint
Refusal Index, or on the mean of a metric over its variants; products of influences, summed over the questions, give the
covariances. They show how much of a correlation over models, and of its distance from 1, is due to chance. The variants
of a run share its questions, so their metrics are resampled together.

`sample_size`: subsets of a run are drawn without replacement from its finite number of questions, so they vary less
than new questions would: for n of N, the spread shrinks by ``sqrt((N - n) / (N - 1))``. The frame contains the closed
form with this correction, to compare with the subsets, and without it, for planning.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import ArrayLike
from scipy.stats import chi2

from refusal_index import stats
from refusal_index.data.analysis import Analysis
from refusal_index.data.rates import OutcomeMatrix, outcome_matrix
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies import inputs, style
from refusal_index.plugins.studies.stability import (
    DisattenuatedCorrelation,
    disattenuated_correlation,
    kendall_w_ceiling,
)
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study, study_text
from refusal_index.render.format import abridged, number, reason_text
from refusal_index.stats.arguments import FloatArray
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.joint import joint_influence

RESAMPLES = 1_000
USABLE = 0.95
"""Share of the resamples in which a statistic must be defined for it to have an interval."""

_CHUNK = 2**22  # number of weights held in memory at a time


def resampled_metrics(run: RunResults, options: StudyOptions) -> Mapping[str, FloatArray]:
    """Return the metrics of all variants on resampled questions.

    - returned: an array of shape (resamples, variants) for each metric, NaN where undefined. The weighted score depends
      on its p and has to be computed from the two rates.
    """
    return resampled_together([run], options)[0]


def resampled_together(runs: Sequence[RunResults], options: StudyOptions) -> list[Mapping[str, FloatArray]]:
    """Return the metrics of all variants of each run as `resampled_metrics` does, on the same resampled questions."""
    matrix = outcome_matrix([rows for run in runs for rows in run.tables.values()])
    refused = matrix.refused
    wrong = matrix.wrong
    cells = np.stack([refused & wrong, refused & ~wrong, ~refused & wrong, ~refused & ~wrong], axis=1)
    counted = (cells & matrix.scored[:, np.newaxis]).astype(np.float64)
    variants, _, n = counted.shape
    rng = np.random.default_rng(options.analysis.seed)
    step = max(1, _CHUNK // n)
    samples = [
        rng.multinomial(n, np.full(n, 1 / n), size=min(step, RESAMPLES - start)) @ counted.reshape(-1, n).T
        for start in range(0, RESAMPLES, step)
    ]
    counts = np.concatenate(samples).reshape(RESAMPLES, variants, 4)
    ends = np.cumsum([len(run.tables) for run in runs])
    return [metrics_of_counts(part) for part in np.split(counts, ends[:-1], axis=1)]


def metrics_of_counts(counts: FloatArray) -> Mapping[str, FloatArray]:
    """Return the metrics by name for counts of shape (..., 4)."""
    refused_wrong, refused_right, answered_wrong, answered_right = np.moveaxis(counts, -1, 0)
    total = counts.sum(axis=-1)
    answered = answered_wrong + answered_right
    with np.errstate(invalid="ignore", divide="ignore"):
        correct = answered_right / total
        refused = (refused_wrong + refused_right) / total
        attempted = answered_right / answered
        harmonic = np.where(answered > 0, 2 * correct / (2 - refused), np.nan)
    index = stats.refusal_index_many(refused_wrong, refused_right, answered_wrong, answered_right)
    return {
        "correct_rate": correct,
        "refusal_rate": refused,
        "correct_given_attempted": attempted,
        "f_score": harmonic,
        "refusal_index": np.asarray(index),
    }


def metric_draws(draws: Mapping[str, FloatArray], metric: str, p: float | None) -> FloatArray:
    """Return the resamples of a metric; those of the weighted score are computed from the two rates."""
    if metric != "weighted_score":
        return draws[metric]
    return draws["correct_rate"] - (0.0 if p is None else p) * (1 - draws["refusal_rate"])


def percentile_interval(values: FloatArray, analysis: Analysis) -> tuple[float | None, float | None]:
    """Return the percentile interval of a statistic over resamples, none if it is undefined in too many of them."""
    defined = values[np.isfinite(values)]
    if defined.size < USABLE * values.size:
        return None, None
    tail = (1 - analysis.confidence_level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)


FEW_IN_A_CELL = 5
"""Minimum count in the smallest cell of a table; below it, the index is very variable and skewed."""


def is_sparse(tables: Sequence[stats.ContingencyTable]) -> bool:
    """Whether no table of a run has five questions in every cell, so that its index is at or near the boundary.

    >>> enough, few = stats.ContingencyTable(40, 5, 30, 25), stats.ContingencyTable(40, 4, 30, 26)
    >>> is_sparse([few]), is_sparse([enough])
    (True, False)
    """
    return all(min(table.counts) < FEW_IN_A_CELL for table in tables)


def influence(matrix: OutcomeMatrix, metric: str, options: StudyOptions) -> FloatArray:
    """Return the influence of each question on a run's estimate, divided by the number of questions, shape (n,).

    - `matrix`: the variants of a run.
    - `metric`: for the Refusal Index the joint index, else the mean over the variants in which the metric is defined.
    - returned: NaN if the estimate has no standard error.
    """
    if metric == INDEX:
        return np.asarray(joint_influence(*(rows[np.newaxis] for rows in matrix.arrays))[0])
    scaled = variant_influence(matrix, metric, options)
    defined = scaled[np.isfinite(scaled).all(axis=1)]
    return defined.mean(axis=0) if len(defined) else np.full(scaled.shape[1], np.nan)


def variant_influence(matrix: OutcomeMatrix, metric: str, options: StudyOptions) -> FloatArray:
    """Return the influence of each question on each row's metric, divided by its number of questions, shape (k, n)."""
    rows = stats.metric_influence(
        *matrix.arrays, metric=metric, weighted_score_p=options.analysis.payoffs.weighted_score_p
    )
    return np.asarray(rows / np.maximum(matrix.scored.sum(axis=1, keepdims=True), 1))


class RunErrors:
    """The influence of each question on the estimates of several runs, aligned over all their questions.

    A question is the same for all runs on its dataset, and for runs on other datasets that ask it in the same words.
    Runs are identified by unique names, by default their labels.
    """

    def __init__(
        self, runs: Sequence[RunResults], options: StudyOptions, names: Sequence[Hashable] | None = None
    ) -> None:
        self._options = options
        names = [run.label for run in runs] if names is None else names
        self._matrices = {
            name: outcome_matrix(list(run.tables.values())) for name, run in zip(names, runs, strict=True)
        }
        columns: dict[Hashable, int] = {}
        keys = _question_keys(runs, list(self._matrices.values()))
        self._columns = {
            name: [columns.setdefault(key, len(columns)) for key in own_keys]
            for name, own_keys in zip(names, keys, strict=True)
        }
        self._n = len(columns)
        self._made: dict[tuple[Hashable, str, bool], FloatArray] = {}

    def of_runs(self, names: Sequence[Hashable], metric: str) -> FloatArray:
        """Return the influences on a metric for the named runs, shape (runs, n)."""
        return np.array([self._aligned(name, metric, whole=True)[0] for name in names]).reshape(len(names), self._n)

    def of_variants(self, name: Hashable, metric: str) -> FloatArray:
        """Return the influences on a metric for each variant of a run, shape (variants, n)."""
        return self._aligned(name, metric, whole=False)

    def _aligned(self, name: Hashable, metric: str, *, whole: bool) -> FloatArray:
        if (name, metric, whole) not in self._made:
            rows = (influence if whole else variant_influence)(self._matrices[name], metric, self._options)
            influences = np.atleast_2d(rows)
            laid = np.zeros((len(influences), self._n))
            laid[np.isnan(influences).any(axis=1)] = np.nan
            laid[:, self._columns[name]] = influences
            self._made[name, metric, whole] = laid
        return self._made[name, metric, whole]


def _question_keys(runs: Sequence[RunResults], matrices: Sequence[OutcomeMatrix]) -> Iterator[list[Hashable]]:
    """Return a unique key for each question of each run."""
    texts: dict[tuple[str | None, str], set[str]] = {}
    for run in runs:
        for rows in run.tables.values():
            for question_id, text in rows.select("question_id", "question").unique().drop_nulls().iter_rows():
                texts.setdefault((run.dataset, question_id), set()).add(text)
    for index, (run, matrix) in enumerate(zip(runs, matrices, strict=True)):
        keys: list[Hashable] = []
        for question_id in matrix.question_ids:
            known_texts = texts.get((run.dataset, question_id), set())
            # If runs use an id for different questions, each keeps its own.
            keys.append(
                (run.dataset, question_id)
                if not known_texts
                else (question_id, *known_texts)
                if len(known_texts) == 1
                else (index, question_id)
            )
        yield keys


def without_noise(
    values: ArrayLike, others: ArrayLike, errors: FloatArray, other_errors: FloatArray
) -> DisattenuatedCorrelation:
    """Return a correlation over points corrected for sampling errors.

    - `values`, `others`: the two values of each point.
    - `errors`, `other_errors`: the influence of each question on them, shape (points, n).
    """
    return disattenuated_correlation(
        values, others, errors @ errors.T, other_errors @ other_errors.T, errors @ other_errors.T
    )


def w_ceiling(scores: FloatArray, influences: FloatArray, seed: int) -> stats.Estimate:
    """Return W if the settings ranked the models alike except for sampling errors.

    - `scores`: shape (settings, models).
    - `influences`: the influence of each question on each score, in row-major order.
    """
    if np.isnan(influences).any():
        return stats.Estimate(None, status="undefined", reason="index_at_boundary")
    return kendall_w_ceiling(scores, influences @ influences.T, rng=seed)


ROUNDING = 1e-12


def half_width(influence: FloatArray, analysis: Analysis) -> float | None:
    """Return the half-width of the interval of a difference from the influence of each question on it.

    None if it has no standard error, or if its standard error is 0: an interval of zero width would suggest certainty.
    """
    error = float(np.linalg.norm(influence))
    return normal_quantile(analysis.confidence_level) * error if math.isfinite(error) and error > ROUNDING else None


def printed_errors(low: pl.Series, high: pl.Series) -> FloatArray:
    """Return the variances that correspond to printed 95% intervals."""
    return np.asarray(((high - low) / 2 / normal_quantile(0.95)).to_numpy() ** 2)


SIZES = (50, 100, 150, 200, 300, 400, 500, 750, 1000, 1250, 1500, 1750, 2000)
N_SUBSETS = 50
CV_WANTED = 0.1
NEAR_ZERO = "near_zero"
"""Reason: the metric's interval includes 0, so that a ratio to it is meaningless."""
COMPARED = ("refusal_index", "correct_given_attempted", "f_score")
_COLOURS = dict(zip(COMPARED, (style.MODEL_COLOURS[1], style.MODEL_COLOURS[0], style.MODEL_COLOURS[2]), strict=True))


@study
def sample_size(runs: Sequence[RunResults], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no run has enough graded questions and a defined index."""
    on_dataset, others = inputs.of_one_dataset(runs)
    chosen, notes = inputs.chosen_runs(on_dataset)
    notes = (*others, *notes)
    sources: list[inputs.DefinedTable] = []
    problems: dict[str, list[str]] = {}
    for run, name in zip(chosen, inputs.display_names(chosen), strict=True):
        variant = inputs.reference_variant(run)
        source = inputs.DefinedTable(run, name, variant, inputs.table_of(run, variant))
        result = stats.refusal_index(source.table)
        problem = None if result.status == "ok" else f"RI is {result.status} ({reason_text(result.reason)})"
        if source.table.n <= SIZES[0]:
            problem = f"there are {SIZES[0]} graded questions or fewer"
        if problem:
            problems.setdefault(problem, []).append(f"{name}, {variant or inputs.ALL}")
        else:
            sources.append(source)
    notes = (*notes, *inputs.left_out_since(problems))
    if not sources:
        raise NotPossibleError(notes=notes)
    rows: list[dict[str, Any]] = []
    needed = []
    near_zero = []
    for source in sources:
        new_rows = spread_rows(source.table, options)
        rows += ({**source.where, "questions": source.table.n, **row} for row in new_rows)
        if any(row["reason"] == NEAR_ZERO for row in new_rows):
            near_zero.append(source.name)
        counts = {row["metric"]: row["questions_for_cv_10"] for row in new_rows}
        texts = (f"{METRICS[name].label} {n:,}" for name, n in counts.items() if n is not None)
        needed.append(f"{source.name} {', '.join(texts)}")
    frame = pl.DataFrame(rows, schema_overrides={"dataset": pl.String, "reason": pl.String}, infer_schema_length=None)
    if near_zero:
        notes = (*notes, study_text("sample_size", "near_zero", models=abridged(near_zero)))
    return Study(
        frame,
        _draw_sample_size,
        _printed_sample_size,
        notes,
        values={"subsets": N_SUBSETS, "wanted": f"{CV_WANTED:g}", "needed": abridged(needed)},
    )


def spread_rows(table: stats.ContingencyTable, options: StudyOptions) -> list[dict[str, Any]]:
    """Return the spread of the metrics over subsets of a table's questions, for every size, with the closed form.

    - `table`: counts of the whole run; a subset is described by its four counts alone.
    - `options`: the seed, and the confidence level for the standard deviations, whose intervals assume normality.
    - returned: one row per metric and size; without a coefficient of variation, and with a reason, if the interval of
      the metric includes 0.
    """
    rng = np.random.default_rng(options.analysis.seed)
    level = options.analysis.confidence_level
    by_name = {metric.name: metric for metric in stats.metrics(table, confidence_level=level)}
    rows = []
    for size in (size for size in SIZES if size < table.n):
        counts = rng.multivariate_hypergeometric(table.counts, size, size=N_SUBSETS)
        values = metrics_of_counts(counts.astype(float))
        rows += [_spread_row(by_name[name], values[name], table, size, options) for name in COMPARED]
    return rows


def _spread_row(
    full: stats.Estimate, values: FloatArray, table: stats.ContingencyTable, size: int, options: StudyOptions
) -> dict[str, Any]:
    defined = values[~np.isnan(values)]
    freedom = defined.size - 1
    tail = (1 - options.analysis.confidence_level) / 2
    spread = math.nan
    low = math.nan
    high = math.nan
    if freedom > 0:
        spread = float(np.std(defined, ddof=1))
        low, high = (spread * math.sqrt(freedom / chi2.ppf(end, freedom)) for end in (1 - tail, tail))
    near_zero = full.low is not None and full.high is not None and full.low <= 0 <= full.high
    scale = math.nan if near_zero else abs(full.estimate or math.nan)
    scenario = stats.PlanningScenario.from_table(table)
    plan = stats.expected_half_width(scenario, size, metric=full.name)
    fresh = math.nan if plan.half_width is None else plan.half_width / normal_quantile(plan.confidence_level)
    within = fresh * math.sqrt((table.n - size) / (table.n - 1))
    row = {
        "metric": full.name,
        "size": size,
        "subsets": values.size,
        "undefined": values.size - defined.size,
        "boundary": int(np.count_nonzero(np.abs(defined) == 1)) if full.name == "refusal_index" else 0,
        "estimate": full.estimate,
        "mean": float(defined.mean()) if defined.size else None,
        "standard_deviation": spread,
        "predicted_standard_deviation": within,
        "predicted_for_new_questions": fresh,
        "cv": spread / scale,
        "cv_low": low / scale,
        "cv_high": high / scale,
        "predicted_cv": within / scale,
        "predicted_cv_for_new_questions": fresh / scale,
        "questions_for_cv_10": None if near_zero else stats.questions_for_cv(scenario, CV_WANTED, metric=full.name).n,
        "reason": NEAR_ZERO if near_zero else None,
    }
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}


PRINTED_SIZES = (100, 500, 1000, 2000)
MAX_RUNS = 4
"""Maximum number of runs of which the table has all sizes; of more it has `PRINTED_SIZES` and the largest of each."""


def _printed_sample_size(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the observed and predicted coefficients of variation, one row per model and size."""
    if frame.select("model", "dataset", "variant").n_unique() > MAX_RUNS:
        largest = pl.col("size") == pl.col("size").max().over("model", "dataset", "variant")
        frame = frame.filter(pl.col("size").is_in(PRINTED_SIZES) | largest)
    cells = [
        "cannot be estimated" if row["reason"] == NEAR_ZERO else f"{number(row['cv'])} ({number(row['predicted_cv'])})"
        for row in frame.iter_rows(named=True)
    ]
    labels = pl.col("metric").replace_strict({name: metric.label for name, metric in METRICS.items()})
    labelled = frame.with_columns(labels, pl.Series("cell", cells))
    return style.widened(labelled, ["model", "variant", "size"], "metric", "cell")


def _draw_sample_size(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw a panel per run: the coefficient of variation against the number of questions, both axes logarithmic."""
    keys = frame.select("model", "dataset", "variant").unique(maintain_order=True)
    columns = style.panels_a_row(keys.height)
    height = (2.0 if columns > style.PANELS_A_ROW else 2.3) * math.ceil(keys.height / columns)
    figure.set_size_inches(style.WIDTH * min(max(0.75, 0.42 * columns), 1.4), 0.3 + height)
    names = style.short_names(keys["model"].to_list(), 28)
    titles = [f"{names[model]}\n{style.safe_text(variant, 24)}" for model, _, variant in keys.iter_rows()]
    # A single label for the whole figure would overlap the legend.
    axes_labels = "Questions", "Coefficient of variation"
    panels = style.panel_grid(figure, titles, columns, axes_labels, size=6.5, sharex=True, sharey=True)
    for panel, part in zip(panels, frame.partition_by(keys.columns, maintain_order=True), strict=True):
        _draw_run(panel, part)
    # The panels share their axes, so the limits and ticks are those of all runs.
    sizes = frame["size"]
    panels[0].set_xlim(min(sizes) / 1.2, max(sizes) * 1.2)
    style.round_ticks(panels[0].xaxis, (50, 100, 200, 500, 1000, 2000), max(sizes))
    lines = (style.handle(METRICS[name].label, _COLOURS[name], "o", "-", markersize=3) for name in COMPARED)
    style.outside_legend(figure, list(lines))


def _draw_run(axes: Axes, rows: pl.DataFrame) -> None:
    axes.set(xscale="log", yscale="log")
    axes.axhline(CV_WANTED, color=style.GREY, linewidth=0.7, linestyle=":")
    missing = [METRICS[name].label for name in rows.filter(reason=NEAR_ZERO)["metric"].unique(maintain_order=True)]
    if missing:
        axes.annotate(
            f"{', '.join(missing)} cannot be estimated",
            (0.02, 0.98),
            xycoords="axes fraction",
            va="top",
            fontsize=6.5,
            color=style.GREY,
        )
    for name in COMPARED:
        part = rows.filter(metric=name).drop_nulls("cv")
        colour = _COLOURS[name]
        axes.plot(part["size"], part["predicted_cv"], color=colour, linewidth=1.2)
        axes.plot(part["size"], part["predicted_cv_for_new_questions"], color=colour, linewidth=0.8, linestyle="--")
        axes.vlines(part["size"], part["cv_low"], part["cv_high"], color=colour, linewidth=0.8, alpha=0.6)
        axes.plot(part["size"], part["cv"], "o", color=colour, markersize=3)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.tick_params(axis="both", colors=style.INK)
