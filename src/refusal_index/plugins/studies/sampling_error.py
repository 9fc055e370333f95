"""The sampling errors of runs' numbers, with what they share: runs over the same questions err together.

Of every run each question has an influence on its joint Refusal Index, or on the mean of a metric over its variants;
products of influences, summed over the questions, are the covariances. So a correlation over models knows how much of
it, and of what it lacks to 1, is chance.

Metrics of a run's variants on resampled questions: the variants share them, so they are resampled together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import OutcomeMatrix, outcome_matrix
from refusal_index.findings.metrics import INDEX
from refusal_index.plugins.studies.stability import DisattenuatedCorrelation, disattenuated_correlation
from refusal_index.plugins.studies.study import StudyOptions
from refusal_index.stats import ContingencyTable, metric_influence, refusal_index_many
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.joint import joint_influence

FloatArray = NDArray[np.float64]

RESAMPLES = 1_000
USABLE = 0.95
"""Share of the resamples in which a statistic must be defined for it to have an interval."""

_CHUNK = 2**22  # weights held at once


def resampled_metrics(run: ComparedRun, options: StudyOptions) -> Mapping[str, FloatArray]:
    """Return the metrics of all variants on resampled questions.

    - returned: by metric an array of shape (resamples, variants), NaN where it is undefined. The weighted score depends
      on its penalty and is to be made of the two rates.
    """
    return metrics_of_counts(
        _resampled_counts(outcome_matrix(list(run.variants.values())), np.random.default_rng(options.seed))
    )


def resampled_together(runs: Sequence[ComparedRun], options: StudyOptions) -> list[Mapping[str, FloatArray]]:
    """Return the metrics of all variants of each run, as `resampled_metrics` does, on questions drawn for all alike."""
    every = outcome_matrix([rows for run in runs for rows in run.variants.values()])
    counts = _resampled_counts(every, np.random.default_rng(options.seed))
    ends = np.cumsum([len(run.variants) for run in runs])
    return [metrics_of_counts(part) for part in np.split(counts, ends[:-1], axis=1)]


def resampled_tables(table: ContingencyTable, options: StudyOptions) -> Mapping[str, FloatArray]:
    """Return the metrics of one table on resampled questions, shape (resamples, 1), as `resampled_metrics` does.

    Drawing its four counts has the law of drawing its questions, and costs nothing.
    """
    shares = np.array(table.counts) / max(1, table.n)
    counts = np.random.default_rng(options.seed).multinomial(table.n, shares, size=RESAMPLES)
    return metrics_of_counts(counts[:, np.newaxis].astype(np.float64))


def metrics_of_counts(counts: FloatArray) -> Mapping[str, FloatArray]:
    """Return the metrics of counts of shape (..., 4), by name."""
    refused_wrong, refused_right, answered_wrong, answered_right = np.moveaxis(counts, -1, 0)
    total, answered = counts.sum(axis=-1), answered_wrong + answered_right
    with np.errstate(invalid="ignore", divide="ignore"):
        correct, refused = answered_right / total, (refused_wrong + refused_right) / total
        attempted = answered_right / answered
        harmonic = np.where(answered > 0, 2 * correct / (2 - refused), np.nan)
    index = refusal_index_many(refused_wrong, refused_right, answered_wrong, answered_right)
    return {
        "correct_rate": correct,
        "refusal_rate": refused,
        "correct_given_attempted": attempted,
        "f_score": harmonic,
        "refusal_index": np.asarray(index),
    }


def metric_draws(draws: Mapping[str, FloatArray], metric: str, penalty: float | None) -> FloatArray:
    """Return the draws of a metric, those of the weighted score made of the two rates."""
    if metric != "weighted_score":
        return draws[metric]
    return draws["correct_rate"] - (0.0 if penalty is None else penalty) * (1 - draws["refusal_rate"])


def percentile_interval(values: FloatArray, confidence_level: float) -> tuple[float | None, float | None]:
    """Return the percentile interval of a statistic on resamples; none where too often it is undefined."""
    defined = values[np.isfinite(values)]
    if defined.size < USABLE * values.size:
        return None, None
    tail = (1 - confidence_level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)


def _resampled_counts(matrix: OutcomeMatrix, rng: np.random.Generator) -> FloatArray:
    """Count the four cells of each variant on resampled questions, shape (resamples, variants, 4)."""
    refused, wrong = matrix.refused, matrix.wrong
    cells = np.stack([refused & wrong, refused & ~wrong, ~refused & wrong, ~refused & ~wrong], axis=1)
    held = (cells & matrix.scored[:, np.newaxis]).astype(np.float64)
    variants, _, n = held.shape
    step = max(1, _CHUNK // n)
    counts = [
        rng.multinomial(n, np.full(n, 1 / n), size=min(step, RESAMPLES - start)) @ held.reshape(-1, n).T
        for start in range(0, RESAMPLES, step)
    ]
    return np.concatenate(counts).reshape(RESAMPLES, variants, 4)


FEW_IN_A_CELL = 5
"""Questions in the smallest cell of a table, below which its index scatters far and unevenly."""


def is_sparse(tables: Sequence[ContingencyTable]) -> bool:
    """Say whether no table of a run has five questions in every cell: its index is at the boundary, or nearly so.

    >>> is_sparse([ContingencyTable(40, 4, 30, 26)]), is_sparse([ContingencyTable(40, 5, 30, 25)])
    (True, False)
    """
    return all(min(table.counts) < FEW_IN_A_CELL for table in tables)


def influence(matrix: OutcomeMatrix, metric: str, options: StudyOptions) -> FloatArray:
    """Return the influence of each question on a run's number, over its number of questions; shape (n,).

    - `matrix`: the variants of a run.
    - `metric`: the joint index where it is the Refusal Index, else the mean over the variants in which it is defined.
    - returned: NaN where the number has no standard error.
    """
    if metric == INDEX:
        return np.asarray(joint_influence(*(rows[np.newaxis] for rows in matrix.arrays))[0])
    scaled = variant_influence(matrix, metric, options)
    defined = scaled[np.isfinite(scaled).all(axis=1)]
    return defined.mean(axis=0) if len(defined) else np.full(scaled.shape[1], np.nan)


def variant_influence(matrix: OutcomeMatrix, metric: str, options: StudyOptions) -> FloatArray:
    """Return the influence of each question on each row's metric, over its number of questions; shape (k, n)."""
    rows = metric_influence(*matrix.arrays, metric=metric, penalty=options.penalty)
    return np.asarray(rows / np.maximum(matrix.scored.sum(axis=1, keepdims=True), 1))


class RunErrors:
    """The influence of each question on the numbers of some runs, laid side by side over all their questions.

    A question is the same for all runs on its dataset, and for those on other datasets that ask it in the same words.
    Runs are known by names that tell them apart, their labels where no others are given.
    """

    def __init__(
        self, runs: Sequence[ComparedRun], options: StudyOptions, names: Sequence[Hashable] | None = None
    ) -> None:
        self._options = options
        names = [run.label for run in runs] if names is None else names
        self._matrices = {
            name: outcome_matrix(list(run.variants.values())) for name, run in zip(names, runs, strict=True)
        }
        columns: dict[Hashable, int] = {}
        keys = _question_keys(runs, list(self._matrices.values()))
        self._columns = {
            name: [columns.setdefault(key, len(columns)) for key in own] for name, own in zip(names, keys, strict=True)
        }
        self._n = len(columns)
        self._made: dict[tuple[Hashable, str], FloatArray] = {}
        self._variants: dict[tuple[Hashable, str], FloatArray] = {}

    def of(self, names: Sequence[Hashable], metric: str) -> FloatArray:
        """Return those of some runs, by their names, on a metric; shape (runs, n)."""
        return np.array([self._of(name, metric) for name in names]).reshape(len(names), self._n)

    def of_variants(self, name: Hashable, metric: str) -> FloatArray:
        """Return those of each variant of a run on a metric; shape (variants, n)."""
        if (name, metric) not in self._variants:
            own = variant_influence(self._matrices[name], metric, self._options)
            self._variants[name, metric] = np.array([self._laid(name, row) for row in own])
        return self._variants[name, metric]

    def _of(self, name: Hashable, metric: str) -> FloatArray:
        if (name, metric) not in self._made:
            own = influence(self._matrices[name], metric, self._options)
            self._made[name, metric] = self._laid(name, own)
        return self._made[name, metric]

    def _laid(self, name: Hashable, own: FloatArray) -> FloatArray:
        laid = np.full(self._n, np.nan if np.isnan(own).any() else 0.0)
        laid[self._columns[name]] = own
        return laid


def _question_keys(runs: Sequence[ComparedRun], matrices: Sequence[OutcomeMatrix]) -> Iterator[list[Hashable]]:
    """Give each run what tells its questions from all others."""
    texts: dict[tuple[str | None, str], set[str]] = {}
    for run in runs:
        for rows in run.variants.values():
            for one, text in rows.select("question_id", "question").unique().drop_nulls().iter_rows():
                texts.setdefault((run.dataset, one), set()).add(text)
    for place, (run, matrix) in enumerate(zip(runs, matrices, strict=True)):
        keys: list[Hashable] = []
        for one in matrix.question_ids:
            known = texts.get((run.dataset, one), set())
            # Where runs mean different questions by one id, each keeps its own.
            keys.append((run.dataset, one) if not known else (one, *known) if len(known) == 1 else (place, one))
        yield keys


def without_noise(
    values: ArrayLike, others: ArrayLike, errors: FloatArray, other_errors: FloatArray
) -> DisattenuatedCorrelation:
    """Take sampling errors out of a correlation over points.

    - `values`, `others`: two numbers a point.
    - `errors`, `other_errors`: the influence of each question on either, shape (points, n).
    """
    return disattenuated_correlation(
        values, others, errors @ errors.T, other_errors @ other_errors.T, errors @ other_errors.T
    )


def printed_errors(low: pl.Series, high: pl.Series) -> FloatArray:
    """Return the variances that printed intervals of 95 % stand for."""
    return np.asarray(((high - low) / 2 / normal_quantile(0.95)).to_numpy() ** 2)


NOISE_SCHEMA = {"r_squared_ceiling": pl.Float64, "r_squared_without_noise": pl.Float64, "noise_reason": pl.String}
"""The columns of `noise_columns`."""


def noise_columns(found: DisattenuatedCorrelation) -> dict[str, float | str | None]:
    """Give the noise ceiling of an R squared, and R squared without the sampling errors of both sides."""
    return {
        "r_squared_ceiling": None if found.ceiling is None else found.ceiling**2,
        "r_squared_without_noise": None if found.estimate is None else found.estimate**2,
        "noise_reason": found.reason,
    }
