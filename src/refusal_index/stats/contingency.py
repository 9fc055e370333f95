"""The 2x2 table of refusal against error under forced answering, on which all estimates are based.

Questions may be sampled in clusters or with weights, which changes variances and covariances as described below.

Outcomes of several runs on the same questions are matrices with one row per run and one column per question. A third
matrix marks the questions that are scored in each run; other values are ignored.

Nearly every standard error in this package is computed from the influence of each question. If questions about one
topic, page or template are correlated, influence is first summed within each cluster, and clusters are taken to be
independent. For runs a and b

    Cov(estimate_a, estimate_b) = sum over clusters g of c_a,g S_a,g c_b,g S_b,g,
    S_a,g = sum over i in g of w_i influence_a,i / W_a,

with weights w_i, their sum W_a over the questions scored in run a, and the correction c_a,g = (1 - p_a,g)^(-1/2), where
p_a,g is the cluster's share of W_a. This is Bell and McCaffrey's CR2 correction for a weighted mean, which makes the
variance estimate unbiased if questions are in fact independent. Intervals and tests use Student's t with
Satterthwaite's degrees of freedom: the number of clusters minus one if all have the same size, fewer if sizes differ.

References
----------
.. [1] Bell, R. M. and McCaffrey, D. F. (2002). Bias reduction in standard errors for linear regression with
   multi-stage samples. Survey Methodology, 28, 169-181.
.. [2] Pustejovsky, J. E. and Tipton, E. (2018). Small-sample methods for cluster-robust variance estimation and
   hypothesis testing in fixed effects models. Journal of Business & Economic Statistics, 36, 672-683.
   :doi:`10.1080/07350015.2016.1247004`
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.stats.arguments import (
    BoolArray,
    FloatArray,
    checked_count,
    checked_outcomes,
    checked_share,
    checked_weights,
    group_codes,
)
from refusal_index.stats.estimate import student_quantile

Counts = tuple[float, float, float, float]


CELL_NAMES = ("refused_wrong", "refused_right", "answered_wrong", "answered_right")


Count = TypeVar("Count", int, float)


@dataclass(frozen=True, slots=True)
class Cells(Generic[Count]):
    """The four cells of a table, counted or weighted, and rates derived from them."""

    refused_wrong: Count
    refused_right: Count
    answered_wrong: Count
    answered_right: Count

    @property
    def counts(self) -> tuple[Count, Count, Count, Count]:
        """The four cells in the order of the constructor."""
        return self.refused_wrong, self.refused_right, self.answered_wrong, self.answered_right

    @property
    def n(self) -> int:
        """Number of questions."""
        return round(sum(self.counts))

    @property
    def margins(self) -> tuple[Count, Count, Count, Count]:
        """Number of questions refused, answered, right and wrong."""
        n11, n10, n01, n00 = self.counts
        return n11 + n10, n01 + n00, n10 + n00, n11 + n01

    @property
    def n_refused(self) -> Count:
        """Number of questions refused in the first pass."""
        return self.refused_wrong + self.refused_right

    @property
    def n_answered(self) -> Count:
        """Number of questions answered in the first pass."""
        return self.answered_wrong + self.answered_right

    @property
    def refusal_rate(self) -> float:
        """Share of questions that were refused, r."""
        return self._share(self.n_refused)

    @property
    def error_rate(self) -> float:
        """Share of wrong answers under forced answering, mu."""
        return self._share(self.refused_wrong + self.answered_wrong)

    @property
    def correct_rate(self) -> float:
        """Share of all questions that were answered right in the first pass, c."""
        return self._share(self.answered_right)

    def _share(self, count: float) -> float:
        n = self.n
        return count / n if n else math.nan


@dataclass(frozen=True, slots=True)
class ContingencyTable(Cells[int]):
    """Counts of questions by refused or answered, and by wrong or right under forced answering.

    A question that the first pass answered counts with that answer, a refused one with the answer of the forced pass.
    Questions without a grade are left out.

    The rates are those of the paper: ``r``, ``mu``, and ``c``, which is a share of *all* questions, not of attempted
    ones. They are NaN for a table without questions, which is valid.

    Parameters
    ----------
    refused_wrong, refused_right, answered_wrong, answered_right : int
        Non-negative counts. Integer-valued floats are accepted and stored as int.

    Raises
    ------
    TypeError
        If a count is not a number: an array, a string, a truth value.
    ValueError
        If a count is negative, fractional, infinite, NaN or above 2**53.

    Examples
    --------
    >>> table = ContingencyTable(refused_wrong=710, refused_right=30, answered_wrong=210, answered_right=50)
    >>> table.n, table.refusal_rate, table.error_rate, table.correct_rate
    (1000, 0.74, 0.92, 0.05)
    """

    def __post_init__(self) -> None:
        for name in CELL_NAMES:
            object.__setattr__(self, name, checked_count(name, getattr(self, name)))

    @classmethod
    def from_arrays(cls, refused: ArrayLike, wrong: ArrayLike) -> Self:
        """Count questions from two arrays of truth values.

        Parameters
        ----------
        refused : array_like of bool, shape (n,)
            Whether the question was refused in the first pass.
        wrong : array_like of bool, shape (n,)
            Whether the answer was wrong: the first-pass answer if there was one, the forced answer if the question was
            refused. Both arrays may hold the integers 0 and 1 instead.

        Raises
        ------
        TypeError
            If an array holds other values, or masked ones.
        ValueError
            If lengths or pandas indexes differ.

        Examples
        --------
        >>> ContingencyTable.from_arrays(refused=[True, True, False, False], wrong=[True, True, True, False])
        ContingencyTable(refused_wrong=2, refused_right=0, answered_wrong=1, answered_right=1)
        """
        r, w = checked_outcomes(refused, wrong)
        both, refusals, errors = (int(np.count_nonzero(x)) for x in (r & w, r, w))
        return cls(both, refusals - both, errors - both, r.size - refusals - errors + both)

    @classmethod
    def from_rates(
        cls,
        *,
        refusal_rate: float,
        forced_accuracy: float,
        n: int,
        correct_rate: float | None = None,
        correct_given_attempted: float | None = None,
    ) -> Self:
        """Reconstruct the counts from published rates, rounded to whole questions.

        Parameters
        ----------
        refusal_rate : float in [0, 1]
            Share of questions refused in the first pass.
        forced_accuracy : float in [0, 1]
            Share of *all* questions right under forced answering, including those that the first pass answered.
        n : int
            Number of questions.
        correct_rate, correct_given_attempted : float in [0, 1]
            Exactly one of them: share of right answers in the first pass, of all questions or of attempted ones. Where
            the paper's text names the latter, its program uses the former.

        Raises
        ------
        TypeError
            If not exactly one of `correct_rate` and `correct_given_attempted` is given, or a rate is not a number.
        ValueError
            If a rate is outside [0, 1], or the rates contradict each other: more questions right than answered, or
            fewer right under forced answering than in the first pass.

        Examples
        --------
        >>> ContingencyTable.from_rates(correct_rate=0.05, refusal_rate=0.74, forced_accuracy=0.08, n=1000)
        ContingencyTable(refused_wrong=710, refused_right=30, answered_wrong=210, answered_right=50)
        """
        total = checked_count("n", n)
        if (correct_rate is None) == (correct_given_attempted is None):
            raise TypeError("expected exactly one of correct_rate and correct_given_attempted: over which questions?")
        refused = round(checked_share("refusal_rate", refusal_rate) * total)
        right = round(checked_share("forced_accuracy", forced_accuracy) * total)
        if correct_rate is not None:
            answered_right = round(checked_share("correct_rate", correct_rate) * total)
        else:
            answered_right = round(
                checked_share("correct_given_attempted", correct_given_attempted) * (total - refused)
            )
        refused_right = right - answered_right
        refused_wrong = refused - refused_right
        answered_wrong = total - refused - answered_right
        problems = {
            "more right answers to refused questions than refusals": refused_wrong,
            "fewer right under forced answering than in the first pass": refused_right,
            "more right than answered": answered_wrong,
        }
        for problem, count in problems.items():
            if count < 0:
                raise ValueError(
                    f"these rates fit no table of {total} questions: {problem}, by {-count}; is correct_rate over all "
                    "questions, and forced_accuracy over all of them too?"
                )
        return cls(refused_wrong, refused_right, answered_wrong, answered_right)


def empty_margin(refused: float, answered: float, right: float, wrong: float) -> str | None:
    """Return the reason why RI is undefined if one of the margins is zero; None if none is."""
    margins = {"nobody_refused": refused, "everybody_refused": answered, "all_wrong": right, "all_right": wrong}
    return next((reason for reason, size in margins.items() if size == 0), None)


def cell_names(chosen: Iterable[bool]) -> str:
    """Return the names of the chosen cells, joined by "+"."""
    return "+".join(name for name, is_chosen in zip(CELL_NAMES, chosen, strict=True) if is_chosen)


def cell_codes(refused: BoolArray, wrong: BoolArray, scored: BoolArray) -> NDArray[np.intp]:
    """Return the index in `CELL_NAMES` of each question's cell; 4 if it is not scored.

    The arguments are those that `checked_matrices` returns.
    """
    return np.where(scored, 2 * ~refused + ~wrong, 4)


def repeat_each_other(*matrices: BoolArray) -> bool:
    """Whether all rows of each matrix are identical."""
    return all(bool((matrix == matrix[0]).all()) for matrix in matrices)


def row_tables(refused: BoolArray, wrong: BoolArray, scored: BoolArray) -> tuple[ContingencyTable, ...]:
    """Return the table of each row's scored questions; the arguments are those that `checked_matrices` returns."""
    rows = cell_codes(refused, wrong, scored)
    return tuple(ContingencyTable(*np.bincount(row, minlength=5)[:4].tolist()) for row in rows)


FEW_CLUSTERS = 30
"""With fewer clusters than this, intervals depend strongly on the t approximation."""

FEW_IN_CELL = 5
"""With fewer effective questions than this in a cell, weighted intervals are too narrow.

In simulations with log-normal weights (`benchmarks/coverage/weights.py`), coverage of 95% intervals of RI is .87 with
fewer, and .95 otherwise. Weights that leave half of the questions or more are harmless with small cells too.
"""

ONE_CLUSTER = "one_cluster"
"""Reason why an estimate has no standard error: one cluster contains no information on differences between clusters."""


@dataclass(frozen=True, slots=True, eq=False)
class SamplingDesign:
    """The cluster and the sampling weight of each of n questions.

    Attributes
    ----------
    weights : ndarray of float, shape (n,)
        Non-negative; only their ratios matter. Questions with weight 0 are left out.
    clusters : ndarray of int, shape (n,)
        Index of the cluster, from 0.
    """

    weights: FloatArray
    clusters: NDArray[np.intp]

    @classmethod
    def of(cls, n: int, cluster: ArrayLike | None = None, weight: ArrayLike | None = None) -> SamplingDesign | None:
        """Check clusters and weights of n questions; return None if neither is given.

        Parameters
        ----------
        n : int
        cluster : array_like, shape (n,), optional
            Number or name of each question's cluster. By default every question is its own cluster.
        weight : array_like of float, shape (n,), optional
            Number of questions in the population that each question represents. By default all 1.

        Raises
        ------
        TypeError
            If the weights are not numbers.
        ValueError
            If either is not one-dimensional, or has another length or a missing value, or if weights are negative,
            infinite or all zero.

        Examples
        --------
        >>> SamplingDesign.of(4, cluster=["a", "b", "a", "c"]).clusters.tolist()
        [0, 1, 0, 2]
        """
        if cluster is None and weight is None:
            return None
        weights = np.ones(n) if weight is None else checked_weights(n, weight)
        return cls(weights, np.arange(n) if cluster is None else group_codes("cluster", n, cluster))

    def taking_part(self, matrices: Matrices) -> Matrices:
        """Return the matrices with questions of weight 0 marked as not scored."""
        refused, wrong, scored = (matrix & (self.weights > 0) for matrix in matrices)
        return refused, wrong, scored

    def shares(self, scored: BoolArray) -> FloatArray:
        """Return each cluster's share of the total weight of each row's scored questions, shape (k, clusters)."""
        totals = self._in_clusters(self.weights * scored)
        return np.asarray(totals / np.maximum(totals.sum(axis=1, keepdims=True), np.finfo(float).tiny))

    def sums(self, contributions: FloatArray, scored: BoolArray) -> FloatArray:
        """Sum contributions within clusters, with the CR2 correction, so that inner products of rows are covariances.

        Parameters
        ----------
        contributions : ndarray of float, shape (k, n)
            Each question's contribution to the error of each estimate: ``w_i influence_i / W``, 0 if it is not scored.
            A row without an estimate is NaN.
        scored : ndarray of bool, shape (k, n)
            Questions that each estimate uses.

        Returns
        -------
        ndarray, shape (k, clusters)
            A row is NaN if it uses only one cluster.
        """
        unsaid = 1 - self.shares(scored)
        rounding = EPSILON * self.clusters.size
        correction = np.divide(1, np.sqrt(unsaid), out=np.full(unsaid.shape, np.nan), where=unsaid > rounding)
        return np.asarray(self._in_clusters(contributions) * correction)

    def degrees_of_freedom(self, scored: BoolArray) -> FloatArray:
        """Return Satterthwaite's degrees of freedom of each row's variance, shape (k,); NaN for a single cluster."""
        return np.array([satterthwaite(row[row > 0]) for row in self.shares(scored)])

    def _in_clusters(self, values: FloatArray) -> FloatArray:
        size = int(self.clusters.max(initial=-1)) + 1
        rows = [np.bincount(self.clusters, weights=row, minlength=size) for row in values]
        return np.array(rows, float).reshape(len(values), size)


def is_one_cluster(shares: FloatArray) -> bool:
    """Whether there are fewer than two clusters, or one has all of the weight except for rounding."""
    return shares.size < 2 or 1 - float(shares.max()) <= EPSILON * shares.size


def satterthwaite(shares: FloatArray) -> float:
    """Return Satterthwaite's degrees of freedom for a mean over clusters with these shares; NaN for fewer than two."""
    if is_one_cluster(shares):
        return math.nan
    squares = shares * shares
    *others, largest = np.sort(squares / (1 - shares))
    rest = np.array(others)
    # The sum of products of different ratios; the square of the largest would hide the others.
    products = 2 * largest * rest.sum() + rest.sum() ** 2 - np.sum(rest * rest)
    return float(1 / (squares.sum() + products))


def effective_number(weights: FloatArray) -> float:
    """Return Kish's effective sample size of the weights."""
    # Only ratios matter, and the squares of large weights would overflow.
    ratios = weights / weights.max(initial=0.0)
    return float(ratios.sum() ** 2 / np.sum(ratios * ratios))


EPSILON = float(np.finfo(float).eps)

NO_VARIANCE = 1e-12
"""A cluster variance below this share of the variance of independent questions is rounding error."""


@dataclass(frozen=True, slots=True, eq=False)
class SampledTable(Cells[float]):
    """A 2x2 table of refusal against error with its sampling design; can replace a `ContingencyTable`.

    The cells are weighted and add up to the number of questions. Intervals are those of a `ContingencyTable` with two
    changes, a first-order Rao-Scott correction: they use the *effective* number of questions, with which a simple
    random sample would have the same variance, and a quantile of Student's t. The effective number is at most that of
    independent questions with these weights, because with few clusters the variance can be small by chance.

    Attributes
    ----------
    refused_wrong, refused_right, answered_wrong, answered_right : float
        The four cells.
    n : int
        Number of questions with positive weight.
    by_cluster : ndarray of float, shape (clusters, 4)
        Share of the total weight in each cluster and cell; all shares add up to 1.
    squares : tuple of float
        Sum of the squared weight shares of the questions in each cell: its count over ``n^2`` if all weights are equal.

    Notes
    -----
    Simulated coverage of 95% intervals of the index with 30 or 50 clusters of 10 or 20 questions on average, equal or
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

    by_cluster: FloatArray
    squares: Counts

    @classmethod
    def from_arrays(
        cls, refused: ArrayLike, wrong: ArrayLike, *, cluster: ArrayLike | None = None, weight: ArrayLike | None = None
    ) -> Self:
        """Count questions; arguments and errors as for `ContingencyTable.from_arrays` and `SamplingDesign.of`."""
        r, w = checked_outcomes(refused, wrong)
        design = SamplingDesign.of(r.size, cluster, weight) or SamplingDesign(np.ones(r.size), np.arange(r.size))
        return cls.of(2 * ~r + ~w, design)

    @classmethod
    def of(cls, codes: NDArray[np.intp], design: SamplingDesign) -> Self:
        """Count questions by their cells, given as from `cell_codes`, shape (n,)."""
        kept = (codes < 4) & (design.weights > 0)
        _, clusters = np.unique(design.clusters[kept], return_inverse=True)
        size = 4 * (int(clusters.max(initial=-1)) + 1)
        cells = (
            np.bincount(4 * clusters + codes[kept], design.weights[kept], minlength=size).reshape(-1, 4).astype(float)
        )
        n = int(np.count_nonzero(kept))
        total = float(cells.sum())
        w, x, y, z = (cells.sum(axis=0) * (n / total if n else 0.0)).tolist()
        shares = design.weights[kept] / total if n else design.weights[kept]
        a, b, c, d = np.bincount(codes[kept], shares * shares, minlength=4).tolist()
        return cls(w, x, y, z, cells / total if n else cells, (a, b, c, d))

    @property
    def n_clusters(self) -> int:
        """Number of clusters with a question in the table."""
        return len(self.by_cluster)

    @property
    def has_one_cluster(self) -> bool:
        """Whether nothing is known of the variance between clusters, as `is_one_cluster`."""
        return is_one_cluster(self.by_cluster.sum(axis=1))

    @property
    def degrees_of_freedom(self) -> float:
        """Degrees of freedom of the variance of a mean over these clusters; NaN for fewer than two."""
        return satterthwaite(self.by_cluster.sum(axis=1))

    def quantile(self, confidence_level: float) -> float:
        """Return the two-sided quantile of Student's t; NaN for fewer than two clusters."""
        return student_quantile(confidence_level, self.degrees_of_freedom)

    def variance(self, influence: Counts) -> float:
        """Return the variance of an estimate with this influence of each cell; NaN for fewer than two clusters."""
        if self.has_one_cluster:
            return math.nan
        sums = self.by_cluster @ np.array(influence)
        return float(np.sum(sums * sums / (1 - self.by_cluster.sum(axis=1))))

    def effective_size(self, influence: Counts | None) -> float:
        """Return the number of independent questions with the same variance, limited to that of independent weights.

        If the influence does not vary between clusters, or there is none, the variance is unknown. The effective number
        of clusters is then used, which is conservative.
        """
        if self.has_one_cluster:
            return math.nan
        variance = 0.0
        alone = 0.0
        unit_variance = 0.0
        if influence is not None:
            variance = self.variance(influence)
            squares = [value * value for value in influence]
            alone = weighted_sum(self.squares, squares)
            unit_variance = weighted_sum(self.counts, squares) / self.n
        if variance <= NO_VARIANCE * alone:
            return effective_number(self.by_cluster.sum(axis=1))
        return unit_variance / max(variance, alone)

    def effective_counts(self, influence: Counts | None) -> Counts:
        """Return the cells scaled to the effective number of questions."""
        factor = self.effective_size(influence) / self.n
        w, x, y, z = self.counts
        return w * factor, x * factor, y * factor, z * factor


AnyTable = ContingencyTable | SampledTable


def effective_in_smallest_cell(table: AnyTable, effective: float) -> float | None:
    """Return the effective number of questions in the smallest cell if the weights leave less than half of all.

    - `effective`: Kish's effective sample size. None if the weights leave half or more, or the table is empty.
    """
    if not table.n or 2 * effective >= table.n:
        return None
    return effective * min(table.counts) / table.n


def weighted_sum(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the exactly rounded sum of values times weights."""
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True))


Matrices = tuple[BoolArray, BoolArray, BoolArray]


def designed(
    matrices: Matrices, cluster: ArrayLike | None, weight: ArrayLike | None
) -> tuple[Matrices, SamplingDesign | None]:
    """Return the matrices with questions of weight 0 marked as not scored, and the design, or None if not given."""
    design = SamplingDesign.of(matrices[0].shape[1], cluster, weight)
    return (matrices if design is None else design.taking_part(matrices)), design


def tables_of_rows(matrices: Matrices, design: SamplingDesign | None) -> tuple[AnyTable, ...]:
    """Return the table of each row's scored questions; with a design, a `SampledTable`."""
    if design is None:
        return row_tables(*matrices)
    return tuple(SampledTable.of(row, design) for row in cell_codes(*matrices))
