"""The sampling errors of runs' numbers, with what they share: runs over the same questions err together.

Of every run each question has an influence on its joint Refusal Index, or on the mean of a metric over its variants;
products of influences, summed over the questions, are the covariances. So a correlation over models knows how much of
it, and of what it lacks to 1, is chance.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

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
