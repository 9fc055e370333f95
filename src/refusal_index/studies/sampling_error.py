"""The sampling errors of runs' numbers, with what they share: runs over the same questions err together.

Of every run each question has an influence on its joint Refusal Index, or on the mean of a metric over its variants;
products of influences, summed over the questions, are the covariances. So a correlation over models knows how much of
it, and of what it lacks to 1, is chance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from refusal_index.outcomes.matching import OutcomeMatrix, outcome_matrix
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.stats import ContingencyTable, metric_influence
from refusal_index.stats.comparison.joint_comparison import joint_influence
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.stability.sampling_noise import DisattenuatedCorrelation, disattenuated_correlation
from refusal_index.studies.resampling import FloatArray
from refusal_index.studies.scores import INDEX
from refusal_index.studies.study import StudyOptions

FEW_IN_A_CELL = 5
"""Questions in the smallest cell of a table, below which its index scatters far and unevenly."""


def is_sparse(tables: Sequence[ContingencyTable]) -> bool:
    """Say whether no table of a run has five questions in every cell: its index is at the boundary, or nearly so.

    >>> is_sparse([ContingencyTable(40, 4, 30, 26)]), is_sparse([ContingencyTable(40, 5, 30, 25)])
    (True, False)
    """
    return all(min(table.counts) < FEW_IN_A_CELL for table in tables)


def matched(runs: Sequence[ComparedRun]) -> list[OutcomeMatrix]:
    """Match the first draws of all variants of all runs by question, and give each run its rows."""
    every = outcome_matrix([rows for run in runs for rows in run.variants.values()])
    parts, start = [], 0
    for run in runs:
        parts.append(every.of_rows(range(start, start + len(run.variants))))
        start += len(run.variants)
    return parts


def influence(matrix: OutcomeMatrix, metric: str, options: StudyOptions) -> FloatArray:
    """Return the influence of each question on a run's number, over its number of questions; shape (n,).

    - `matrix`: the variants of a run.
    - `metric`: the joint index where it is the Refusal Index, else the mean over the variants in which it is defined.
    - returned: NaN where the number has no standard error.
    """
    if metric == INDEX:
        return np.asarray(joint_influence(*(rows[np.newaxis] for rows in matrix.arrays))[0])
    rows = metric_influence(*matrix.arrays, metric=metric, penalty=options.penalty)
    scaled = rows / np.maximum(matrix.scored.sum(axis=1, keepdims=True), 1)
    defined = scaled[np.isfinite(scaled).all(axis=1)]
    return defined.mean(axis=0) if len(defined) else np.full(scaled.shape[1], np.nan)


class RunErrors:
    """The influence of each question on the numbers of some runs, made once."""

    def __init__(self, runs: Sequence[ComparedRun], options: StudyOptions) -> None:
        self._options = options
        self._matrices = dict(zip((run.label for run in runs), matched(runs), strict=True)) if runs else {}
        self._made: dict[tuple[str, str], FloatArray] = {}

    def of(self, labels: Sequence[str], metric: str) -> FloatArray:
        """Return those of some runs, by their labels, on a metric; shape (runs, n)."""
        return np.stack([self._of(label, metric) for label in labels])

    def _of(self, label: str, metric: str) -> FloatArray:
        if (label, metric) not in self._made:
            self._made[label, metric] = influence(self._matrices[label], metric, self._options)
        return self._made[label, metric]


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


NOISE_SCHEMA = {
    "r_squared_ceiling": pl.Float64,
    "r_squared_without_noise": pl.Float64,
    "noise_reason": pl.String,
}
"""The columns of `noise_columns`."""


def noise_columns(found: DisattenuatedCorrelation) -> dict[str, float | str | None]:
    """Give the noise ceiling of an R squared, and R squared without the sampling errors of both sides."""
    return {
        "r_squared_ceiling": None if found.ceiling is None else found.ceiling**2,
        "r_squared_without_noise": None if found.estimate is None else found.estimate**2,
        "noise_reason": found.reason,
    }
