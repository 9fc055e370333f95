"""Runs ranked by a metric, with the ties that the data leave.

All pairs of runs are tested at once, so that the chance of calling even one pair of equal runs different stays at
1 - confidence_level. Two adjustments of the p-values keep to that: Holm's, which needs nothing but the p-values,
and max-t, which knows from the influence functions how the estimates vary together. Simulated error rates are in
`benchmarks/coverage/ranking.py`; single 95 % tests of eight equal runs find a difference half of the time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.baseline import TRUTHFULNESS_WEIGHTS, Payoffs, Weights, checked_payoffs
from refusal_index.stats.comparison.metric_influence import (
    checked_metric,
    point_estimate,
    scaled_influence,
    without_clusters,
)
from refusal_index.stats.comparison.pair import metric_estimate
from refusal_index.stats.comparison.pairwise import (
    PairwiseDifferences,
    adjusted_pvalues,
    compact_letters,
    holm,
    pairwise_differences,
)
from refusal_index.stats.comparison.sparse import signed_root
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.design import SamplingDesign
from refusal_index.stats.estimate import ConfidenceInterval, Status
from refusal_index.stats.intervals import Seed, checked_resamples, normal_quantile
from refusal_index.stats.matrices import BoolArray, cell_codes, checked_matrices
from refusal_index.stats.sampled_table import AnyTable, tables_of_rows

Adjustment = Literal["max-t", "holm"]

# The standard error of a simulated p-value of .05 is then .002.
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class RankedRun:
    """One run of a ranking.

    Attributes
    ----------
    row : int
        Its row in the matrices.
    estimate, low, high : float or None
        The metric with its own interval, as in `Estimate`: of this run alone, not adjusted for the others.
    status : {"ok", "boundary", "undefined"}
        ``"ok"`` if the run is ranked.
    reason : str or None
        Why it is not, as in `RefusalIndexResult`, or ``"no_variation"`` where all its questions count alike.
    letters : str
        Two ranked runs share a letter if and only if they do not differ significantly. Empty if not ranked.
    """

    row: int
    estimate: float | None
    low: float | None
    high: float | None
    status: Status
    reason: str | None
    letters: str


@dataclass(frozen=True, slots=True)
class PairwiseDifference:
    """By how much one ranked run exceeds another.

    Attributes
    ----------
    first, second : int
        Rows of the two runs; the first is the one with the higher estimate.
    estimate, standard_error : float
        The difference.
    pvalue : float
        Of this pair alone, as in `MetricDifference`.
    pvalue_holm, pvalue_max_t : float
        Adjusted for all pairs of the ranking.
    simultaneous_interval : ConfidenceInterval
        All these intervals hold at once with the confidence level. They are single-step max-t intervals, so that one
        may just reach 0 where the step-down p-value is already significant. NaN where the standard error is 0.
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
    """Two runs of which one or both have an index of exactly -1 or 1, and so no standard error.

    Attributes
    ----------
    first, second : int
        Rows of the two runs.
    pvalue : float
        Of `equal_index_test`, or of `compare_corrected`.
    pvalue_holm : float
        Adjusted for all such pairs of the ranking.
    """

    first: int
    second: int
    pvalue: float
    pvalue_holm: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """Runs in the order of a metric, and what is known about their differences.

    Attributes
    ----------
    metric : str in `METRIC_NAMES`
    runs : tuple of RankedRun
        Highest estimate first, whether high is good (`refusal_index`) or not (`error_rate`).
    unranked : tuple of RankedRun
        Runs that are undefined or at the boundary, in the order of their rows: without a standard error they have no
        place among the letters.
    pairs : tuple of PairwiseDifference
        All pairs of ranked runs, in the order of `runs`.
    critical_value : float or None
        Half-width of the simultaneous intervals in standard errors; None with fewer than two ranked runs.
    confidence_level : float
    adjustment : {"max-t", "holm"}
        Which p-values the letters go by.
    boundary_pairs : tuple of BoundaryPair
        Of a ranking by an index of single prompts, or of probabilities: runs at the boundary against each other and the
        ranked.
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
    penalty: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
    confidence_level: float = 0.95,
    adjustment: Adjustment = "max-t",
    n_resamples: int = RESAMPLES,
    rng: Seed = None,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> Ranking:
    """Rank runs by a metric and say which of them the data cannot tell apart.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (k, n)
        As for `checked_matrices`, one row a run, two or more of them, one column a question. Runs may share all, some
        or none of their questions.
    metric : str in `METRIC_NAMES`, default: "refusal_index"
    penalty : float, default: 1
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)
    confidence_level : float, default: 0.95
        Of the intervals. Two runs differ significantly where the adjusted p-value is at most 1 less this.
    adjustment : {"max-t", "holm"}
        By which p-values the letters go. ``"max-t"``: step-down over the joint normal distribution of the estimates,
        simulated; ``"holm"``: without simulation, and never smaller.
    n_resamples : int, default: 10,000
        Draws for max-t.
    rng : int or numpy.random.Generator, optional
    cluster, weight : array_like, shape (n,), optional
        Which questions are alike, and for how many each stands, as for `SamplingDesign.of`. The joint distribution is
        then Student's.

    Returns
    -------
    Ranking

    Raises
    ------
    TypeError, ValueError
        As for `checked_matrices` and `SamplingDesign.of`, if there are fewer than two runs, or if another argument is
        not as described.

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
    name, worth = checked_metric(metric), checked_payoffs(penalty, truthfulness_weights)
    normal_quantile(confidence_level)
    design = SamplingDesign.of(matrices[0].shape[1], cluster, weight)
    matrices = matrices if design is None else design.taking_part(matrices)
    tables, codes = tables_of_rows(matrices, design), cell_codes(*matrices)
    points = [point_estimate(name, table, worth) for table in tables]
    intervals = [_own_interval(name, table, worth, confidence_level) for table in tables]
    described = [
        RankedRun(row, point.estimate, *interval, point.status, point.reason, "")
        for row, (point, interval) in enumerate(zip(points, intervals, strict=True))
    ]
    ranking = rank_estimates(
        name,
        described,
        scaled_influence(points, codes, design),
        matrices[2],
        confidence_level=confidence_level,
        adjustment=adjustment,
        n_resamples=n_resamples,
        rng=rng,
        design=design,
        independent=without_clusters(points, codes, design),
    )
    counts = [table for table in tables if isinstance(table, ContingencyTable)]
    has_test = name == "refusal_index" and len(counts) == len(tables)  # clusters and weights have no such test
    at_boundary = _boundary_pairs(described, counts, codes) if has_test else ()
    return replace(ranking, boundary_pairs=at_boundary)


def _boundary_pairs(
    described: Sequence[RankedRun], tables: Sequence[ContingencyTable], codes: NDArray[np.intp]
) -> tuple[BoundaryPair, ...]:
    pairs = pairs_at_boundary(described)
    roots = [signed_root([tables[row] for row in pair], codes[list(pair)])[0] for pair in pairs]
    return boundary_pairs(pairs, (2 * ndtr(-np.abs(np.array(roots)))).tolist())


def pairs_at_boundary(described: Sequence[RankedRun]) -> list[tuple[int, int]]:
    """Return the rows of every two runs of which one or both are at the boundary, and none undefined."""
    return [
        (one.row, other.row)
        for one, other in combinations(described, 2)
        if {one.status, other.status} != {"ok"} and "undefined" not in (one.status, other.status)
    ]


def boundary_pairs(pairs: Sequence[tuple[int, int]], pvalues: Sequence[float]) -> tuple[BoundaryPair, ...]:
    """Put the p-values of such pairs to them, adjusted for their number."""
    return tuple(
        BoundaryPair(*pair, pvalue, adjusted)
        for pair, pvalue, adjusted in zip(pairs, pvalues, holm(pvalues).tolist(), strict=True)
    )


def _own_interval(
    metric: str, table: AnyTable, worth: Payoffs, confidence_level: float
) -> tuple[float | None, float | None]:
    own = metric_estimate(metric, table, worth, confidence_level)
    return own.low, own.high


def rank_estimates(
    metric: str,
    described: Sequence[RankedRun],
    influence: FloatArray,
    scored: BoolArray,
    *,
    confidence_level: float,
    adjustment: Adjustment,
    n_resamples: int,
    rng: Seed,
    design: SamplingDesign | None = None,
    independent: FloatArray | None = None,
    degrees_of_freedom: float | None = None,
) -> Ranking:
    """Rank estimates of any kind by what is known of each and by their scaled influence, of shape (k, n).

    The runs are numbered by their rows and do not yet have letters; those whose status is not ``"ok"`` are set apart.
    `scored` says, in the same shape, on which questions a run rests. With a design the influence is that of clusters,
    and `independent` what it would be without them. `degrees_of_freedom` are those of the covariance where they do not
    follow from the design.
    """
    _check_options(confidence_level, adjustment, n_resamples)
    ranked = sorted((run for run in described if run.status == "ok"), key=lambda run: -(run.estimate or 0.0))
    rows = [run.row for run in ranked]
    values = np.array([run.estimate for run in ranked], float)
    alone = None if independent is None else independent[rows]
    differences = pairwise_differences(values, influence[rows], scored[rows], design, alone, degrees_of_freedom)
    by_holm, by_max_t, critical_value = adjusted_pvalues(
        differences, confidence_level, n_resamples, np.random.default_rng(rng)
    )
    deciding = by_holm if adjustment == "holm" else by_max_t
    letters = _letters(len(ranked), differences, deciding <= 1 - confidence_level)
    return Ranking(
        metric,
        tuple(replace(run, letters=own) for run, own in zip(ranked, letters, strict=True)),
        tuple(run for run in described if run.status != "ok"),
        _pairs(rows, differences, by_holm, by_max_t, critical_value),
        critical_value,
        confidence_level,
        adjustment,
    )


def _check_options(confidence_level: float, adjustment: str, n_resamples: int) -> None:
    normal_quantile(confidence_level)
    if adjustment not in get_args(Adjustment):
        raise ValueError(f"adjustment must be one of {', '.join(get_args(Adjustment))}, got {adjustment!r}")
    checked_resamples(n_resamples)


def _letters(k: int, differences: PairwiseDifferences, significant: NDArray[np.bool_]) -> tuple[str, ...]:
    differs = np.zeros((k, k), bool)
    differs[differences.first, differences.second] = significant
    return compact_letters(differs | differs.T)


def _pairs(
    ranked: Sequence[int],
    differences: PairwiseDifferences,
    by_holm: FloatArray,
    by_max_t: FloatArray,
    critical_value: float | None,
) -> tuple[PairwiseDifference, ...]:
    rows, estimates, errors = np.array(ranked, int), differences.estimates, differences.errors
    reach = np.where(errors > 0, errors * (critical_value or math.nan), math.nan)
    columns = (
        rows[differences.first],
        rows[differences.second],
        estimates,
        errors,
        differences.pvalues,
        by_holm,
        by_max_t,
        estimates - reach,
        estimates + reach,
    )
    return tuple(
        PairwiseDifference(first, second, estimate, error, pvalue, holm, max_t, ConfidenceInterval(low, high))
        for first, second, estimate, error, pvalue, holm, max_t, low, high in zip(
            *(column.tolist() for column in columns), strict=True
        )
    )
