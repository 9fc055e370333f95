"""The 2x2 table of questions that come in clusters or stand for different numbers of others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.contingency import ContingencyTable, checked_outcomes
from refusal_index.stats.design import SamplingDesign, effective_number, satterthwaite, student_quantile
from refusal_index.stats.matrices import BoolArray, cell_codes, row_tables

Counts = tuple[float, float, float, float]

NO_VARIANCE = 1e-12
"""Share of the variance of independent questions below which that of clusters is rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class SampledTable:
    """A 2x2 table of refusal against error with its sampling design; goes wherever a `ContingencyTable` does.

    Its cells are weighted and add up to the number of questions. An interval is the one that a `ContingencyTable` has,
    for the *effective* number of questions instead, with which a simple random sample would have the variance of this
    one, and with a quantile of Student's t (a first-order Rao-Scott correction). That number is never taken to be above
    what independent questions of these weights would give: with few clusters, chance alone makes them look better.

    Attributes
    ----------
    counts : tuple of float
        The four cells in the order of `ContingencyTable`.
    n : int
        Questions that have a weight.
    by_cluster : ndarray of float, shape (clusters, 4)
        Share of each cluster and cell in the weight of all questions; all shares add up to 1.
    squares : tuple of float
        Sum of the squared shares of the questions in each cell: its count over ``n^2`` where all weights are equal.

    Notes
    -----
    Simulated coverage of 95 % intervals of the index with 30 or 50 clusters of 10 or 20 questions on average, equal or
    exponential in size, and an intra-cluster correlation of .3: .929 to .959, .949 on average over 15 scenarios
    (`benchmarks/coverage/clusters.py`).

    References
    ----------
    .. [1] Rao, J. N. K. and Scott, A. J. (1984). On chi-squared tests for multiway contingency tables with cell
       proportions estimated from survey data. Annals of Statistics, 12, 46-60. :doi:`10.1214/aos/1176346391`
    .. [2] Korn, E. L. and Graubard, B. I. (1998). Confidence intervals for proportions with small expected number of
       positive counts estimated from survey data. Survey Methodology, 24, 193-201.

    Examples
    --------
    >>> refused = np.repeat([True, False], 60)
    >>> wrong = np.tile([True, True, False, True, False, False], 20)
    >>> table = SampledTable.from_arrays(refused, wrong, cluster=np.arange(120) // 4)
    >>> table.n, table.n_clusters, round(table.degrees_of_freedom), round(table.refusal_rate, 3)
    (120, 30, 29, 0.5)
    """

    counts: Counts
    n: int
    by_cluster: FloatArray
    squares: Counts

    @classmethod
    def from_arrays(
        cls, refused: ArrayLike, wrong: ArrayLike, *, cluster: ArrayLike | None = None, weight: ArrayLike | None = None
    ) -> Self:
        """Count questions; arguments and errors are those of `ContingencyTable.from_arrays` and `SamplingDesign.of`."""
        r, w = checked_outcomes(refused, wrong)
        design = SamplingDesign.of(r.size, cluster, weight) or SamplingDesign(np.ones(r.size), np.arange(r.size))
        return cls.of(2 * ~r + ~w, design)

    @classmethod
    def of(cls, codes: NDArray[np.intp], design: SamplingDesign) -> Self:
        """Count questions by the numbers of their cells, which are those of `cell_codes`, shape (n,)."""
        kept = (codes < 4) & (design.weights > 0)
        _, clusters = np.unique(design.clusters[kept], return_inverse=True)
        size = 4 * (int(clusters.max(initial=-1)) + 1)
        cells = (
            np.bincount(4 * clusters + codes[kept], design.weights[kept], minlength=size).reshape(-1, 4).astype(float)
        )
        n, total = int(np.count_nonzero(kept)), float(cells.sum())
        w, x, y, z = (cells.sum(axis=0) * (n / total if n else 0.0)).tolist()
        shares = design.weights[kept] / total if n else design.weights[kept]
        a, b, c, d = np.bincount(codes[kept], shares * shares, minlength=4).tolist()
        return cls((w, x, y, z), n, cells / total if n else cells, (a, b, c, d))

    @property
    def refused_wrong(self) -> float:  # noqa: D102
        return self.counts[0]

    @property
    def refused_right(self) -> float:  # noqa: D102
        return self.counts[1]

    @property
    def answered_wrong(self) -> float:  # noqa: D102
        return self.counts[2]

    @property
    def answered_right(self) -> float:  # noqa: D102
        return self.counts[3]

    @property
    def n_refused(self) -> float:
        """Weight of the questions refused in the first pass."""
        return self.refused_wrong + self.refused_right

    @property
    def n_answered(self) -> float:
        """Weight of the questions answered in the first pass."""
        return self.answered_wrong + self.answered_right

    @property
    def refusal_rate(self) -> float:
        """Share refused, r."""
        return self._share(self.n_refused)

    @property
    def error_rate(self) -> float:
        """Share of wrong answers under forced answering, mu."""
        return self._share(self.refused_wrong + self.answered_wrong)

    @property
    def correct_rate(self) -> float:
        """Share answered, and answered right, c."""
        return self._share(self.answered_right)

    @property
    def n_clusters(self) -> int:
        """Clusters with a question in the table."""
        return len(self.by_cluster)

    @property
    def degrees_of_freedom(self) -> float:
        """Of the variance of a mean over these clusters; NaN for fewer than two."""
        return satterthwaite(self.by_cluster.sum(axis=1))

    def quantile(self, confidence_level: float) -> float:
        """Return the half-width of a two-sided interval in standard errors; NaN for fewer than two clusters."""
        return student_quantile(confidence_level, self.degrees_of_freedom)

    def variance(self, influence: Counts) -> float:
        """Variance of an estimate by the influence of a question in each cell; NaN for fewer than two clusters."""
        if self.n_clusters < 2:
            return math.nan
        sums = self.by_cluster @ np.array(influence)
        return float(np.sum(sums * sums / (1 - self.by_cluster.sum(axis=1))))

    def effective_size(self, influence: Counts | None) -> float:
        """Return the number of independent questions with the same variance, at most what the weights allow.

        Where the influence does not vary between the clusters, or there is none, nothing is known of the variance: the
        effective number of clusters is on the safe side, whatever their questions have in common.
        """
        if self.n_clusters < 2:
            return math.nan
        variance, alone, of_one = 0.0, 0.0, 0.0
        if influence is not None:
            variance = self.variance(influence)
            alone = _sum_of_squares(self.squares, influence)
            of_one = _sum_of_squares(self.counts, influence) / self.n
        if variance <= NO_VARIANCE * alone:
            return effective_number(self.by_cluster.sum(axis=1))
        return of_one / max(variance, alone)

    def effective_counts(self, influence: Counts | None) -> Counts:
        """Return the cells of so many independent questions."""
        factor = self.effective_size(influence) / self.n
        w, x, y, z = self.counts
        return w * factor, x * factor, y * factor, z * factor

    def _share(self, weight: float) -> float:
        return weight / self.n if self.n else math.nan


AnyTable = ContingencyTable | SampledTable


def _sum_of_squares(weights: Counts, influence: Counts) -> float:
    return math.fsum(weight * value * value for weight, value in zip(weights, influence, strict=True))


def tables_of_rows(
    matrices: tuple[BoolArray, BoolArray, BoolArray], design: SamplingDesign | None
) -> tuple[AnyTable, ...]:
    """Count the scored questions of each row of the matrices of `checked_matrices`, in clusters where there are any."""
    if design is None:
        return row_tables(*matrices)
    return tuple(SampledTable.of(row, design) for row in cell_codes(*matrices))
