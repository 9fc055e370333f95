"""The 2x2 table of refusal against error under forced answering, from which every estimate starts.

Its questions may come in clusters, or stand for different numbers of others: what that does to a covariance.

Outcomes of several runs over the same questions are matrices with one row a run and one column a question. A question
need not be scored in every run. Where it is not, a third matrix says so, and whatever the other two hold there is
ignored.

Nearly every standard error of this package is a sum of influence over the questions. Where questions about one topic,
page or template are alike, the influence is first summed within each cluster, and the clusters are what is
independent. For runs a and b

    Cov(estimate_a, estimate_b) = sum over clusters g of c_a,g S_a,g c_b,g S_b,g,
    S_a,g = sum over i in g of w_i influence_a,i / W_a,

with the weights w_i, their sum W_a over the questions scored in run a, and the correction c_a,g = (1 - p_a,g)^(-1/2),
p_a,g being the cluster's share of W_a. This is the "CR2" correction of Bell and McCaffrey for a weighted mean: the
squared sums are unbiased where questions are independent after all. Intervals and tests take the quantiles of
Student's t with the degrees of freedom that Satterthwaite's approximation gives that variance, the number of clusters
less one where all are of one size and fewer where some outweigh the others.

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
    """The four cells of a table and what follows from them, whether questions are counted or weighted."""

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
        """All questions."""
        return round(sum(self.counts))

    @property
    def margins(self) -> tuple[Count, Count, Count, Count]:
        """Questions that were refused, answered, right, and wrong."""
        n11, n10, n01, n00 = self.counts
        return n11 + n10, n01 + n00, n10 + n00, n11 + n01

    @property
    def n_refused(self) -> Count:
        """Questions refused in the first pass."""
        return self.refused_wrong + self.refused_right

    @property
    def n_answered(self) -> Count:
        """Questions answered in the first pass."""
        return self.answered_wrong + self.answered_right

    @property
    def refusal_rate(self) -> float:
        """Share of questions refused, r."""
        return self._share(self.n_refused)

    @property
    def error_rate(self) -> float:
        """Share of wrong answers under forced answering, mu."""
        return self._share(self.refused_wrong + self.answered_wrong)

    @property
    def correct_rate(self) -> float:
        """Share of all questions answered, and answered right, c."""
        return self._share(self.answered_right)

    def _share(self, count: float) -> float:
        n = self.n
        return count / n if n else math.nan


@dataclass(frozen=True, slots=True)
class ContingencyTable(Cells[int]):
    """How many questions were refused or answered, and were wrong or right when an answer was forced.

    A question that was answered in the first pass counts with that answer; a refused one with the answer of the
    forced second pass. Questions without a grade are in none of the cells.

    The rates are those of the paper: ``r``, ``mu``, and ``c``, which is the share of *all* questions, not of those
    attempted. They are NaN for a table without questions, which is a valid table.

    Parameters
    ----------
    refused_wrong, refused_right, answered_wrong, answered_right : int
        Counts, not negative. Integer-valued floats are accepted and stored as int.

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
            Whether the answer that counts was wrong: the first-pass answer where there was one, the forced answer
            where the question was refused. Both may hold the whole numbers 0 and 1 instead.

        Raises
        ------
        TypeError
            If an array holds something else, or masked values.
        ValueError
            If the arrays differ in length, or are of pandas and differ in their index.

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
        """Count questions from rates as they are published, rounded to whole questions.

        Parameters
        ----------
        refusal_rate : float in [0, 1]
            Share of the questions refused in the first pass.
        forced_accuracy : float in [0, 1]
            Share of *all* questions right when an answer is forced, those that the first pass answered included: the
            accuracy of the second pass.
        n : int
            Number of questions.
        correct_rate, correct_given_attempted : float in [0, 1]
            Exactly one of them: right answers of the first pass over all questions, or over those attempted. The
            paper's text speaks of the latter where its program takes the former.

        Raises
        ------
        TypeError
            If not exactly one of the last two is given, or one is not a number.
        ValueError
            If a rate lies outside [0, 1], or no table has these rates: more right than answered, or fewer right under
            forced answering than in the first pass.

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
        refused_wrong, answered_wrong = refused - refused_right, total - refused - answered_right
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
    """Return the reason why a table without one of these says nothing about the dependence; None where it has all."""
    margins = {"nobody_refused": refused, "everybody_refused": answered, "all_wrong": right, "all_right": wrong}
    return next((reason for reason, size in margins.items() if size == 0), None)


def cell_names(chosen: Iterable[bool]) -> str:
    """Return the names of the chosen ones of the four cells, joined by "+"."""
    return "+".join(name for name, is_chosen in zip(CELL_NAMES, chosen, strict=True) if is_chosen)


def cell_codes(refused: BoolArray, wrong: BoolArray, scored: BoolArray) -> NDArray[np.intp]:
    """Return the number of each question's cell, in the order of `CELL_NAMES`, or 4 where it is not scored.

    The matrices are those of `checked_matrices`.
    """
    return np.where(scored, 2 * ~refused + ~wrong, 4)


def repeat_each_other(*matrices: BoolArray) -> bool:
    """Whether all rows of each matrix are the same."""
    return all(bool((matrix == matrix[0]).all()) for matrix in matrices)


def row_tables(refused: BoolArray, wrong: BoolArray, scored: BoolArray) -> tuple[ContingencyTable, ...]:
    """Count the scored questions of each row; the matrices are those of `checked_matrices`."""
    rows = cell_codes(refused, wrong, scored)
    return tuple(ContingencyTable(*np.bincount(row, minlength=5)[:4].tolist()) for row in rows)


FEW_CLUSTERS = 30
"""Below so many clusters an interval rests on the approximation more than on the data."""

ONE_CLUSTER = "one_cluster"
"""Why an estimate has no standard error: a single cluster says nothing on how clusters differ."""


@dataclass(frozen=True, slots=True, eq=False)
class SamplingDesign:
    """Which cluster each of n questions belongs to, and for how many questions it stands.

    Attributes
    ----------
    weights : ndarray of float, shape (n,)
        Not negative; only their ratios matter. A question of weight 0 is left out.
    clusters : ndarray of int, shape (n,)
        Number of the cluster, from 0.
    """

    weights: FloatArray
    clusters: NDArray[np.intp]

    @classmethod
    def of(cls, n: int, cluster: ArrayLike | None = None, weight: ArrayLike | None = None) -> SamplingDesign | None:
        """Check clusters and weights of n questions; None where neither is given.

        Parameters
        ----------
        n : int
        cluster : array_like, shape (n,), optional
            Numbers or names, one a question; every question is a cluster of its own if not given.
        weight : array_like of float, shape (n,), optional
            All 1 if not given.

        Raises
        ------
        TypeError
            If the weights are not numbers.
        ValueError
            If one of them is not one-dimensional, has another length or a missing value, or the weights are negative,
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

    @property
    def n_clusters(self) -> int:
        """Clusters in which a question has a weight."""
        return int(np.unique(self.clusters[self.weights > 0]).size)

    def taking_part(self, matrices: Matrices) -> Matrices:
        """Mark the questions without weight in the matrices of `checked_matrices` as not scored."""
        refused, wrong, scored = (matrix & (self.weights > 0) for matrix in matrices)
        return refused, wrong, scored

    def shares(self, scored: BoolArray) -> FloatArray:
        """Share of every cluster in the weight of each row's scored questions, shape (k, clusters)."""
        totals = self._in_clusters(self.weights * scored)
        return np.asarray(totals / np.maximum(totals.sum(axis=1, keepdims=True), np.finfo(float).tiny))

    def sums(self, contributions: FloatArray, scored: BoolArray) -> FloatArray:
        """Sum contributions within clusters, corrected so that products of rows then sum to covariances.

        Parameters
        ----------
        contributions : ndarray of float, shape (k, n)
            What each question adds to the error of each estimate: ``w_i influence_i / W``, 0 where it takes no part.
            A row of NaN has no estimate.
        scored : ndarray of bool, shape (k, n)
            Which questions take part.

        Returns
        -------
        ndarray, shape (k, clusters)
            A row of NaN where only one cluster takes part.
        """
        unsaid = 1 - self.shares(scored)
        rounding = np.finfo(float).eps * self.clusters.size
        correction = np.divide(1, np.sqrt(unsaid), out=np.full(unsaid.shape, np.nan), where=unsaid > rounding)
        return np.asarray(self._in_clusters(contributions) * correction)

    def degrees_of_freedom(self, scored: BoolArray) -> FloatArray:
        """Satterthwaite's degrees of freedom of each row's variance, shape (k,); NaN for a single cluster."""
        return np.array([satterthwaite(row[row > 0]) for row in self.shares(scored)])

    def _in_clusters(self, values: FloatArray) -> FloatArray:
        size = int(self.clusters.max(initial=-1)) + 1
        rows = [np.bincount(self.clusters, weights=row, minlength=size) for row in values]
        return np.array(rows, float).reshape(len(values), size)


def satterthwaite(shares: FloatArray) -> float:
    """Degrees of freedom of the variance of a mean over clusters with these shares; NaN for fewer than two."""
    if shares.size < 2:
        return math.nan
    squares = shares * shares
    ratios = squares / (1 - shares)
    return float(1 / (squares.sum() + ratios.sum() ** 2 - np.sum(ratios * ratios)))


def effective_number(weights: FloatArray) -> float:
    """Kish's number of equal weights that are worth as much as these."""
    return float(weights.sum() ** 2 / np.sum(weights * weights))


NO_VARIANCE = 1e-12
"""Share of the variance of independent questions below which that of clusters is rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class SampledTable(Cells[float]):
    """A 2x2 table of refusal against error with its sampling design; goes wherever a `ContingencyTable` does.

    Its cells are weighted and add up to the number of questions. An interval is the one that a `ContingencyTable` has,
    for the *effective* number of questions instead, with which a simple random sample would have the variance of this
    one, and with a quantile of Student's t (a first-order Rao-Scott correction). That number is never taken to be above
    what independent questions of these weights would give: with few clusters, chance alone makes them look better.

    Attributes
    ----------
    refused_wrong, refused_right, answered_wrong, answered_right : float
        The four cells.
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
        return cls(w, x, y, z, cells / total if n else cells, (a, b, c, d))

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
            squares = [value * value for value in influence]
            alone, of_one = weighted_sum(self.squares, squares), weighted_sum(self.counts, squares) / self.n
        if variance <= NO_VARIANCE * alone:
            return effective_number(self.by_cluster.sum(axis=1))
        return of_one / max(variance, alone)

    def effective_counts(self, influence: Counts | None) -> Counts:
        """Return the cells of so many independent questions."""
        factor = self.effective_size(influence) / self.n
        w, x, y, z = self.counts
        return w * factor, x * factor, y * factor, z * factor


AnyTable = ContingencyTable | SampledTable


def weighted_sum(values: Sequence[float], weights: Sequence[float]) -> float:
    """Sum values times weights, rounded once."""
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True))


Matrices = tuple[BoolArray, BoolArray, BoolArray]


def designed(
    matrices: Matrices, cluster: ArrayLike | None, weight: ArrayLike | None
) -> tuple[Matrices, SamplingDesign | None]:
    """Return the matrices of `checked_matrices` with the questions without weight left out, and the design, if any."""
    design = SamplingDesign.of(matrices[0].shape[1], cluster, weight)
    return (matrices if design is None else design.taking_part(matrices)), design


def tables_of_rows(matrices: Matrices, design: SamplingDesign | None) -> tuple[AnyTable, ...]:
    """Count the scored questions of each row of the matrices of `checked_matrices`, in clusters where there are any."""
    if design is None:
        return row_tables(*matrices)
    return tuple(SampledTable.of(row, design) for row in cell_codes(*matrices))
