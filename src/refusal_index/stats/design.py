"""Questions that come in clusters, or stand for different numbers of others: what that does to a covariance.

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
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from refusal_index.stats._ops import SCALAR, FloatArray
from refusal_index.stats.matrices import BoolArray

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
        weights = np.ones(n) if weight is None else _checked_weights(n, weight)
        return cls(weights, np.arange(n) if cluster is None else group_codes("cluster", n, cluster))

    @property
    def n_clusters(self) -> int:
        """Clusters in which a question has a weight."""
        return int(np.unique(self.clusters[self.weights > 0]).size)

    def without_clusters(self) -> SamplingDesign:
        """Return the same weights of independent questions."""
        return SamplingDesign(self.weights, np.arange(self.weights.size))

    def taking_part(self, matrices: tuple[BoolArray, BoolArray, BoolArray]) -> tuple[BoolArray, BoolArray, BoolArray]:
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


def clustered_covariance(
    contributions: FloatArray, design: SamplingDesign, scored: BoolArray | None = None
) -> tuple[FloatArray, float]:
    """Covariance of estimates over the same questions, and its degrees of freedom.

    Parameters
    ----------
    contributions : ndarray of float, shape (k, n)
        What each question adds to the error of each of k estimates: its influence times its weight, over the weight of
        all questions behind that estimate. The squares of a row sum to its variance where questions are independent.
    design : SamplingDesign
    scored : ndarray of bool, shape (k, n), optional
        Which questions each estimate rests on; all if not given.

    Returns
    -------
    covariance : ndarray, shape (k, k)
        NaN for an estimate that rests on a single cluster.
    degrees_of_freedom : float
        The fewest of any of the estimates.

    References
    ----------
    .. [1] Bell and McCaffrey (2002), as cited in `refusal_index.stats.design`.

    Examples
    --------
    >>> y = np.array([[1.0, 0.0, 1.0, 1.0, 0.0, 0.0]])
    >>> design = SamplingDesign.of(6, cluster=[1, 1, 2, 2, 3, 3])
    >>> covariance, degrees_of_freedom = clustered_covariance((y - y.mean()) / 6, design)
    >>> round(float(covariance[0, 0]), 6), round(degrees_of_freedom, 6)  # means 1/2, 1, 0: their variance over 3
    (0.083333, 2.0)
    """
    taking_part = np.ones(contributions.shape, bool) if scored is None else scored
    sums = design.sums(contributions, taking_part)
    return sums @ sums.T, float(np.min(design.degrees_of_freedom(taking_part)))


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


def student_quantile(confidence_level: float, degrees_of_freedom: float | None) -> float:
    """Half-width of a two-sided interval in standard errors: Student's, or a normal one where None is given."""
    tail = (1 - confidence_level) / 2
    return float(-SCALAR.ndtri(tail) if degrees_of_freedom is None else -stdtrit(degrees_of_freedom, tail))


def student_tails(statistic: float, degrees_of_freedom: float) -> float:
    """Two-sided p-value of Student's t."""
    return float(2 * stdtr(degrees_of_freedom, -abs(statistic)))


def _checked_weights(n: int, weight: ArrayLike) -> FloatArray:
    array = np.asarray(weight)
    _check_shape("weight", array, n)
    missing = np.ma.getmaskarray(weight).any() if isinstance(weight, np.ma.MaskedArray) else False
    if array.dtype == object and not missing:
        missing = any(map(_is_missing, array))
    if not missing and array.dtype.kind not in "iuf" and not _all_numbers(array):
        raise TypeError(f"weight must hold numbers, got an array of {array.dtype}; are there names in it?")
    weights = np.asarray([math.nan] if missing else array, float)
    if np.isnan(weights).any():
        raise ValueError(
            "weight must have a number for every question, got missing values; give questions that stand for none the "
            "weight 0"
        )
    bad = (weights < 0) | np.isinf(weights)
    if bad.any():
        raise ValueError(
            f"weight must not be negative or infinite, got {float(weights[bad][0])!r}; how many questions of the "
            "population does it stand for?"
        )
    if n and not weights.any():
        raise ValueError("weight must be above 0 for some question, got only zeros; was the population's share lost?")
    return weights


def _all_numbers(array: NDArray[Any]) -> bool:
    return array.dtype == object and all(isinstance(value, int | float) for value in array.tolist())


def group_codes(name: str, n: int, groups: ArrayLike) -> NDArray[np.intp]:
    """Give the groups that n questions are in numbers, from 0; raises ValueError where a question has none."""
    array = np.asarray(groups)
    _check_shape(name, array, n)
    values: Iterable[Any] = array.tolist()
    if array.dtype.kind in "fcOmM" or isinstance(groups, np.ma.MaskedArray):
        values = groups.tolist() if isinstance(groups, np.ma.MaskedArray) else array.tolist()
        place = next((place for place, value in enumerate(values) if _is_missing(value)), None)
        if place is not None:
            raise ValueError(
                f"{name} must name one for every question, got none for question {place} (from 0); a question that "
                "belongs to no other has a name of its own"
            )
    if array.dtype.kind in "iub":
        return np.asarray(np.unique(array, return_inverse=True)[1])
    numbers: dict[Any, int] = {}
    return np.fromiter((numbers.setdefault(value, len(numbers)) for value in values), np.intp, n)


def _is_missing(value: object) -> bool:
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and math.isnan(value)


def _check_shape(name: str, array: NDArray[Any], n: int) -> None:
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, one value a question, got shape {array.shape}")
    if array.size != n:
        raise ValueError(
            f"{name} must have one value for each of the {n:,} questions, got {array.size:,}; was one of them filtered?"
        )
