"""Ranking of runs by a metric, with letters for runs that do not differ significantly.

All pairs of runs are tested, with p-values adjusted to control the familywise error rate: the probability of a
significant difference between any two equal runs is at most 1 - confidence_level. There are two adjustments: Holm's,
which uses the p-values only, and max-t, which uses the covariance of the estimates from their influence functions.
Simulated error rates are in `benchmarks/coverage/ranking.py`; unadjusted 95% tests among eight equal runs find a
difference in half of the samples.

A hypothesis is rejected if its adjusted p-value is at most alpha; the probability of rejecting any true hypothesis is
then at most alpha, whichever are true. Both adjustments are step-down procedures: once the most significant differences
are rejected, the others need not be adjusted for them, which makes the tests more powerful than single-step ones.

In the compact letter display, two estimates share a letter if and only if they do not differ significantly. This is not
a transitive relation (of three estimates, the middle one may differ from neither of two that differ), so an estimate
can have several letters.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from string import ascii_lowercase
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtrit

from refusal_index.stats.arguments import FloatArray, checked_matrices, one_of, unmasked
from refusal_index.stats.baseline import TRUTHFULNESS_WEIGHTS, Weights, checked_payoffs, metric_estimate
from refusal_index.stats.comparison import (
    ROUNDING,
    Influence,
    checked_metric,
    influence_of,
    point_estimate,
    signed_root,
)
from refusal_index.stats.contingency import ContingencyTable, cell_codes, designed, tables_of_rows
from refusal_index.stats.estimate import ConfidenceInterval, Result, Status
from refusal_index.stats.intervals import Seed, checked_resamples, normal_quantile, symmetric_root


def holm(pvalues: ArrayLike) -> FloatArray:
    """Adjust p-values by Holm's method, which is valid under any dependence.

    Parameters
    ----------
    pvalues : array_like of float, shape (m,)
        In [0, 1].

    Returns
    -------
    ndarray, shape (m,)
        Adjusted p-values, in the order of those given.

    Raises
    ------
    TypeError, ValueError
        If they are not numbers, or one is NaN or outside [0, 1].

    References
    ----------
    .. [1] Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of
       Statistics, 6, 65-70. https://www.jstor.org/stable/4615733

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    array = unmasked("pvalues", pvalues)
    if array.size and array.dtype.kind not in "iuf":
        raise TypeError(f"pvalues must hold numbers, got an array of {array.dtype}; is one of them missing?")
    values = array.astype(np.float64)
    if values.ndim != 1:
        raise ValueError(f"pvalues must be one-dimensional, got shape {values.shape}")
    outside = values[~((values >= 0) & (values <= 1))]
    if outside.size:
        raise ValueError(f"pvalues must lie in [0, 1], got {float(outside[0])!r}; leave undefined ones out")
    order = np.argsort(values, kind="stable")
    remaining = np.arange(len(values), 0, -1)
    return _in_given_order(np.minimum(remaining * values[order], 1.0), order)


def step_down_max_t(
    statistics: FloatArray, pvalues: FloatArray, null_draws: Iterable[FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Adjust p-values by step-down max-t: the share of draws whose largest statistic reaches the observed one.

    - `statistics`, ndarray of float, shape (m,): absolute values of the test statistics.
    - `pvalues`, ndarray of float, shape (m,): their unadjusted p-values.
    - `null_draws`, iterable of ndarray of float, shape (n_draws, m): draws of the statistics under the hypothesis that
      all null hypotheses are true, in chunks that fit into memory.
    - returned `pvalues`, ndarray of float, shape (m,): adjusted p-values, at most Holm's: if the simulation is too
      coarse for a small p-value, Holm's is returned.
    - returned `largest`, ndarray of float: largest statistic of each draw; its quantiles are critical values of
      single-step simultaneous intervals.
    """
    order = np.argsort(-statistics, kind="stable")
    reached = np.zeros(len(order))
    largest = []
    for draws in null_draws:
        # Column j: the largest of the remaining statistics after the first j hypotheses are rejected.
        left = np.maximum.accumulate(draws[:, order[::-1]], axis=1)[:, ::-1]
        reached += np.count_nonzero(left >= statistics[order], axis=0)
        largest.append(left[:, 0])
    maxima = np.concatenate(largest)
    # Counting the data as one draw keeps the test valid for any number of draws.
    adjusted = _in_given_order((reached + 1) / (len(maxima) + 1), order)
    return np.minimum(adjusted, holm(pvalues)), maxima


def _in_given_order(stepwise: FloatArray, order: np.ndarray) -> FloatArray:
    """Make p-values in the order of rejection monotone, and return them in the original order."""
    adjusted = np.empty_like(stepwise)
    adjusted[order] = np.maximum.accumulate(stepwise)
    return adjusted


def compact_letters(differs: ArrayLike) -> tuple[str, ...]:
    """Return a compact letter display, by the insert-and-absorb algorithm.

    Parameters
    ----------
    differs : array_like of bool, shape (k, k)
        Whether two items differ significantly; symmetric, False on the diagonal. Items are in display order.

    Returns
    -------
    tuple of str, length k
        Letters of each item in alphabetical order (``aa``, ``ab``, ... after ``z``, then separated by spaces). The
        first letter belongs to the group of the first item.

    Raises
    ------
    ValueError
        If the matrix is not square or symmetric, or True on the diagonal.

    References
    ----------
    .. [1] Piepho, H.-P. (2004). An algorithm for a letter-based representation of all-pairwise comparisons. Journal of
       Computational and Graphical Statistics, 13, 456-466. :doi:`10.1198/1061860043515`

    Examples
    --------
    Of three items, the outer two differ, and the middle one differs from neither:

    >>> compact_letters([[False, False, True], [False, False, False], [True, False, False]])
    ('a', 'ab', 'b')
    """
    matrix = np.asarray(differs)
    if matrix.dtype != bool or matrix.ndim != 2 or not np.array_equal(matrix, matrix.T) or matrix.diagonal().any():
        raise ValueError(
            f"differs must be a symmetric matrix of truth values, False on the diagonal, got shape {matrix.shape} of "
            f"{matrix.dtype}; is it a matrix of p-values, or only the pairs above the diagonal?"
        )
    k = len(matrix)
    tied = {frozenset(range(k))} if k else set()  # the maximal sets of items no two of which differ
    for i, j in np.argwhere(np.triu(matrix)).tolist():
        torn = {group for group in tied if i in group and j in group}
        halves = {group - {item} for group, item in product(torn, (i, j))}
        # Only the halves can be subsets of other groups: the rest were maximal before and are unchanged.
        candidates = (tied - torn) | halves
        tied = (tied - torn) | {half for half in halves if not any(half < other for other in candidates)}
    groups = sorted(tied, key=sorted)
    names = [_letter_name(index) for index in range(len(groups))]
    separator = "" if len(groups) <= len(ascii_lowercase) else " "
    return tuple(
        separator.join(name for name, group in zip(names, groups, strict=True) if i in group) for i in range(k)
    )


def _letter_name(index: int) -> str:
    """Return a, b, ..., z, aa, ab, ..., like spreadsheet columns."""
    before, last = divmod(index, len(ascii_lowercase))
    return (_letter_name(before - 1) if before else "") + ascii_lowercase[last]


# Number of draws in memory at a time, each with a statistic for every pair of runs.
CHUNK_DRAWS = 1_000


@dataclass(frozen=True, slots=True)
class PairwiseDifferences:
    """The differences, first minus second, of all m = k (k - 1) / 2 pairs of k runs.

    `covariance` is that of the runs' estimates, shape (k, k). The other arrays have shape (m,); `first` and `second`
    are indices of runs. `degrees_of_freedom` are those of the covariance; None if it is taken as known.
    """

    covariance: FloatArray
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    estimates: FloatArray
    errors: FloatArray
    pvalues: FloatArray
    degrees_of_freedom: float | None = None


def adjusted_pvalues(
    differences: PairwiseDifferences, confidence_level: float, n_resamples: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, float | None]:
    """Return p-values adjusted by Holm and by max-t, and the critical value of simultaneous intervals."""
    pvalues = differences.pvalues
    if not pvalues.size:
        return pvalues, pvalues, None
    # Computed from the p-values, so that sign tests have a statistic too.
    degrees = differences.degrees_of_freedom
    statistics = -ndtri(pvalues / 2) if degrees is None else -stdtrit(degrees, pvalues / 2)
    max_t, largest = step_down_max_t(statistics, pvalues, _null_draws(differences, n_resamples, rng))
    return holm(pvalues), max_t, float(np.quantile(largest, confidence_level))


def _null_draws(differences: PairwiseDifferences, n_resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Yield draws of the absolute test statistics from the joint normal distribution of equal estimates."""
    root = symmetric_root(differences.covariance)
    errors = differences.errors
    for start in range(0, n_resamples, CHUNK_DRAWS):
        draws = rng.standard_normal((min(CHUNK_DRAWS, n_resamples - start), len(root))) @ root
        gaps = np.abs(draws[:, differences.first] - draws[:, differences.second])
        if differences.degrees_of_freedom is not None:
            gaps /= np.sqrt(
                rng.chisquare(differences.degrees_of_freedom, (len(gaps), 1)) / differences.degrees_of_freedom
            )
        yield np.divide(gaps, errors, out=np.zeros_like(gaps), where=errors > 0)


Adjustment = Literal["max-t", "holm"]

# The standard error of a simulated p-value of .05 is .002 with this number.
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class RankedRun:
    """One run of a ranking.

    Attributes
    ----------
    row : int
        Row of the run in the matrices.
    estimate, low, high : float or None
        The metric with its interval, as in `Estimate`, not adjusted for other runs.
    status : {"ok", "boundary", "undefined"}
        ``"ok"`` if the run is ranked.
    reason : str or None
        Why it is not ranked, as in `RefusalIndexResult`, or ``"no_variation"`` if all its questions contribute equally.
    letters : str
        Two ranked runs share a letter if and only if they do not differ significantly. Empty if not ranked.
    """

    row: int
    estimate: float | None
    low: float | None
    high: float | None
    status: Status
    reason: str | None
    letters: str = ""

    @classmethod
    def of(cls, row: int, result: Result, interval: ConfidenceInterval) -> Self:
        """Return a run with this result and interval, still without letters."""
        return cls(row, result.estimate, *interval.or_none(), result.status, result.reason)


@dataclass(frozen=True, slots=True)
class PairwiseDifference:
    """The difference between two ranked runs.

    Attributes
    ----------
    first, second : int
        Rows of the two runs; the first has the higher estimate.
    estimate, standard_error : float
        The difference, first minus second, and its standard error.
    pvalue : float
        Unadjusted, as in `MetricDifference`.
    pvalue_holm, pvalue_max_t : float
        Adjusted for all pairs of the ranking.
    simultaneous_interval : ConfidenceInterval
        Simultaneous interval, over all pairs, at the confidence level. It is a single-step max-t interval, so it may
        contain 0 although the step-down p-value is significant. NaN if the standard error is 0.
    """

    first: int
    second: int
    estimate: float
    standard_error: float
    pvalue: float
    pvalue_holm: float
    pvalue_max_t: float
    simultaneous_interval: ConfidenceInterval


@dataclass(frozen=True, slots=True)
class BoundaryPair:
    """A pair of runs in which at least one RI is exactly -1 or 1, and so has no standard error.

    Attributes
    ----------
    first, second : int
        Rows of the two runs.
    pvalue : float
        P-value of `equal_index_test` or `compare_corrected`.
    pvalue_holm : float
        Adjusted for all such pairs of the ranking.
    """

    first: int
    second: int
    pvalue: float
    pvalue_holm: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """Runs ordered by a metric, with all pairwise differences.

    Attributes
    ----------
    metric : str in `METRIC_NAMES`
    runs : tuple of RankedRun
        Highest estimate first, whether higher is better (`refusal_index`) or not (`error_rate`).
    unranked : tuple of RankedRun
        Runs that are undefined or at the boundary, in the order of their rows; they have no letters, because they have
        no standard error.
    pairs : tuple of PairwiseDifference
        All pairs of ranked runs, in the order of `runs`.
    critical_value : float or None
        Critical value of the simultaneous intervals; None with fewer than two ranked runs.
    confidence_level : float
    adjustment : {"max-t", "holm"}
        Adjusted p-values that determine the letters.
    boundary_pairs : tuple of BoundaryPair
        For rankings by RI of a single prompt or by corrected RI: pairs with at least one run at the boundary.
    """

    metric: str
    runs: tuple[RankedRun, ...]
    unranked: tuple[RankedRun, ...]
    pairs: tuple[PairwiseDifference, ...]
    critical_value: float | None
    confidence_level: float
    adjustment: Adjustment
    boundary_pairs: tuple[BoundaryPair, ...] = ()


def rank_runs(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    metric: str = "refusal_index",
    weighted_score_p: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
    confidence_level: float = 0.95,
    adjustment: Adjustment = "max-t",
    n_resamples: int = RESAMPLES,
    rng: Seed = None,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> Ranking:
    """Rank runs by a metric, and mark with letters which do not differ significantly.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (k, n)
        As for `checked_matrices`, with one row per run (two or more) and one column per question. Runs may share all,
        some or none of their questions.
    metric : str in `METRIC_NAMES`, default: "refusal_index"
    weighted_score_p : float, default: 1
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)
    confidence_level : float, default: 0.95
        Confidence level of the intervals. Two runs differ significantly if the adjusted p-value is at most 1 minus
        this.
    adjustment : {"max-t", "holm"}
        Adjusted p-values that determine the letters. ``"max-t"``: step-down over the simulated joint normal
        distribution of the estimates. ``"holm"``: Holm's method, without simulation and never smaller.
    n_resamples : int, default: 10,000
        Number of draws for max-t.
    rng : int or numpy.random.Generator, optional
    cluster, weight : array_like, shape (n,), optional
        Cluster and sampling weight of each question, as for `SamplingDesign.of`. The joint distribution is then
        Student's t.

    Returns
    -------
    Ranking

    Raises
    ------
    TypeError, ValueError
        As for `checked_matrices` and `SamplingDesign.of`, or if there are fewer than two runs, or another argument is
        invalid.

    References
    ----------
    .. [1] Holm (1979). https://www.jstor.org/stable/4615733
    .. [2] Hothorn, T., Bretz, F. and Westfall, P. (2008). Simultaneous inference in general parametric models.
       Biometrical Journal, 50, 346-363. :doi:`10.1002/bimj.200810425`

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> doubt = rng.standard_normal(500)
    >>> wrong = np.tile(doubt + rng.standard_normal(500) > 0, (3, 1))
    >>> refused = np.array([[3], [1.5], [0]]) * doubt + rng.standard_normal((3, 500)) > 0
    >>> ranking = rank_runs(refused, wrong, rng=1)
    >>> for run in ranking.runs:
    ...     print(f"run {run.row}: {run.estimate:.2f} [{run.low:.2f}, {run.high:.2f}] {run.letters}")
    run 0: 0.54 [0.43, 0.64] a
    run 1: 0.50 [0.39, 0.61] a
    run 2: 0.03 [-0.11, 0.16] b
    """
    matrices = checked_matrices(refused, wrong, scored)
    if len(matrices[0]) < 2:
        raise ValueError(
            f"refused must have two rows or more, the runs to rank, got {len(matrices[0])}; "
            "for a single run use metrics or refusal_index"
        )
    name = checked_metric(metric)
    payoffs = checked_payoffs(weighted_score_p, truthfulness_weights)
    normal_quantile(confidence_level)
    matrices, design = designed(matrices, cluster, weight)
    tables = tables_of_rows(matrices, design)
    codes = cell_codes(*matrices)
    points = [point_estimate(name, table, payoffs) for table in tables]
    shown = [metric_estimate(name, table, payoffs, confidence_level) for table in tables]
    described = [
        RankedRun(row, point.estimate, interval.low, interval.high, point.status, point.reason)
        for row, (point, interval) in enumerate(zip(points, shown, strict=True))
    ]
    influence = Influence.of(influence_of(points, codes), matrices[2], design)
    ranking = rank_estimates(name, described, influence, confidence_level, adjustment, n_resamples, rng)
    counts = [table for table in tables if isinstance(table, ContingencyTable)]
    if name != "refusal_index" or len(counts) < len(tables):  # there is no such test with clusters or weights
        return ranking
    pairs = pairs_at_boundary(described)
    roots = [signed_root([counts[row] for row in pair], codes[list(pair)])[0] for pair in pairs]
    return replace(ranking, boundary_pairs=boundary_pairs(pairs, (2 * ndtr(-np.abs(np.array(roots)))).tolist()))


def pairs_at_boundary(described: Sequence[RankedRun]) -> list[tuple[int, int]]:
    """Return the pairs of runs, by row, of which at least one is at the boundary and none is undefined."""
    return [
        (first.row, other.row)
        for first, other in combinations(described, 2)
        if {first.status, other.status} != {"ok"} and "undefined" not in (first.status, other.status)
    ]


def boundary_pairs(pairs: Sequence[tuple[int, int]], pvalues: Sequence[float]) -> tuple[BoundaryPair, ...]:
    """Return the pairs with their p-values, and these adjusted by Holm's method."""
    return tuple(
        BoundaryPair(*pair, pvalue, adjusted)
        for pair, pvalue, adjusted in zip(pairs, pvalues, holm(pvalues).tolist(), strict=True)
    )


def rank_estimates(
    metric: str,
    described: Sequence[RankedRun],
    influence: Influence,
    confidence_level: float,
    adjustment: Adjustment,
    n_resamples: int,
    rng: Seed,
) -> Ranking:
    """Rank estimates of any kind, given their results and their influence.

    `described` are the runs, identified by row, still without letters; those whose status is not ``"ok"`` are not
    ranked.
    """
    normal_quantile(confidence_level)
    one_of("adjustment", adjustment, get_args(Adjustment))
    checked_resamples(n_resamples)
    ranked = sorted((run for run in described if run.status == "ok"), key=lambda run: -(run.estimate or 0.0))
    rows = [run.row for run in ranked]
    values = np.array([run.estimate for run in ranked], float)
    rows_influence = influence[rows]
    first, second = np.triu_indices(len(rows), 1)
    estimates = values[first] - values[second]
    estimates[np.abs(estimates) <= ROUNDING] = 0
    compared = zip(first.tolist(), second.tolist(), estimates.tolist(), strict=True)
    errors, pvalues = np.array([rows_influence.compare(*pair) for pair in compared], float).reshape(-1, 2).T
    covariance = rows_influence.rows @ rows_influence.rows.T
    differences = PairwiseDifferences(
        covariance, first, second, estimates, errors, pvalues, rows_influence.degrees_of_freedom
    )
    by_holm, by_max_t, critical_value = adjusted_pvalues(
        differences, confidence_level, n_resamples, np.random.default_rng(rng)
    )
    deciding = by_holm if adjustment == "holm" else by_max_t
    differs = np.zeros((len(ranked), len(ranked)), bool)
    differs[first, second] = deciding <= 1 - confidence_level
    letters = compact_letters(differs | differs.T)
    reach = np.where(errors > 0, errors * (critical_value or math.nan), math.nan)
    ranks = np.array(rows, int)
    low = estimates - reach
    high = estimates + reach
    columns = ranks[first], ranks[second], estimates, errors, pvalues, by_holm, by_max_t, low, high
    pairs = (
        PairwiseDifference(a, b, estimate, error, pvalue, holm, max_t, ConfidenceInterval(*ends))
        for a, b, estimate, error, pvalue, holm, max_t, *ends in zip(
            *(column.tolist() for column in columns), strict=True
        )
    )
    return Ranking(
        metric,
        tuple(replace(run, letters=letter) for run, letter in zip(ranked, letters, strict=True)),
        tuple(run for run in described if run.status != "ok"),
        tuple(pairs),
        critical_value,
        confidence_level,
        adjustment,
    )
