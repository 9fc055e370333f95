"""Two runs compared metric by metric: differences, their standard errors, tests and intervals.

The difference of two estimates has the variance of the difference of their influence functions, summed over the
questions. Questions that both runs share are so compared with themselves, which takes out what makes a question hard
for either; questions of one run alone count as independent. Simulated coverage of nominal 95 % intervals is .94 to .96
for every metric, at the rates of published models and with all, half or none of the questions shared
(`benchmarks/coverage/comparison.py`).

Where one of the runs has no standard error (an index of -1 or +1, a rate of 0 or 1), the normal interval would claim
too much. There the two runs' own intervals are combined by square-and-add, and two indices are tested by
`equal_index_test`; neither needs a standard error. With these intervals the coverage over all samples stays at .94
even where a cell is expected to hold two or three questions. Among the samples at the boundary alone it is lower, .49
and .76 in two such scenarios, as is that of one run's own profile interval, .25 and .70: an index of 1 where the truth
is far from it is an unlucky sample to begin with.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from refusal_index.stats.baseline import (
    METRIC_NAMES,
    TRUTHFULNESS_WEIGHTS,
    Payoffs,
    Weights,
    checked_payoffs,
    metrics,
)
from refusal_index.stats.comparison.metric_influence import (
    ROUNDING,
    PointEstimate,
    checked_metric,
    difference_error,
    fewest_degrees_of_freedom,
    point_estimate,
    scaled_influence,
    without_clusters,
)
from refusal_index.stats.comparison.sparse import signed_root
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.design import SamplingDesign, student_quantile, student_tails
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Estimate, Status, reasons_of
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.matrices import BoolArray, cell_codes, checked_matrices
from refusal_index.stats.sampled_table import AnyTable, tables_of_rows

TestMethod = Literal["normal", "sign", "power_divergence"]


@dataclass(frozen=True, slots=True)
class MetricDifference:
    """By how much a metric of the first run exceeds that of the second.

    Attributes
    ----------
    name : str in `METRIC_NAMES`
    first, second : float or None
        The metric of either run; None where undefined.
    estimate : float or None
        ``first - second``; None where either is undefined.
    standard_error : float or None
        None where either run has none.
    pvalue : float or None
        Of the hypothesis that there is no difference, two-sided, by `method`. None where a metric is undefined, and of
        a rate or score that does not vary in a run; with clusters or weights also where there is no standard error.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: a run has no standard error, or the difference has one of 0; go by the interval.
    reason : str or None
        Why the status is not ``"ok"``. ``"first:"`` or ``"second:"`` with that run's reason, as in
        `RefusalIndexResult`, or ``"no_variation"`` where all its questions count alike; with ``";"`` between them
        where both have one. Or ``"constant_difference"``.
    """

    name: str
    first: float | None
    second: float | None
    estimate: float | None
    standard_error: float | None
    pvalue: float | None
    status: Status
    reason: str | None
    _tables: tuple[AnyTable, ...] = field(repr=False)
    _worth: Payoffs = field(repr=False)
    _degrees_of_freedom: float | None = field(default=None, repr=False)

    @property
    def method(self) -> TestMethod | None:
        """How the p-value came about; None where there is none.

        ``"normal"``: from ``estimate / standard_error``, by Student's distribution with clusters or weights.
        ``"sign"``: the runs differ by the same amount on every question, so that the standard error is 0, and this is
        the exact sign test, in which a cluster counts once, 1 if that amount is 0.
        ``"power_divergence"``: of an index of exactly -1 or 1, `equal_index_test`.
        """
        if self.pvalue is None:
            return None
        if self.standard_error is None:
            return "power_divergence"
        return "normal" if self.standard_error > 0 else "sign"

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Confidence interval of the difference.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            Normal, or Student's with clusters or weights, unless at the boundary: there the two runs' own intervals
            (Wilson, score, profile) are combined by square-and-add as if the runs were independent, which is wide
            where they agree on many questions. Both ends NaN where undefined.
        """
        normal_quantile(confidence_level)
        if self.estimate is None:
            return NO_INTERVAL
        if self.status == "ok" and self.standard_error is not None:
            reach = student_quantile(confidence_level, self._degrees_of_freedom) * self.standard_error
            return ConfidenceInterval(self.estimate - reach, self.estimate + reach)
        first, second = (metric_estimate(self.name, table, self._worth, confidence_level) for table in self._tables)
        return _square_and_add(first, second)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every metric of two runs compared, the first minus the second.

    ``comparison["refusal_index"]`` is the difference of that name.

    Attributes
    ----------
    differences : tuple of MetricDifference
        In the order of `METRIC_NAMES`.
    n_first, n_second : int
        Scored questions of either run.
    n_shared : int
        Questions scored in both: all of them if the runs are fully paired, 0 if they are independent.
    """

    differences: tuple[MetricDifference, ...]
    n_first: int
    n_second: int
    n_shared: int

    def __getitem__(self, name: str) -> MetricDifference:
        return self.differences[METRIC_NAMES.index(checked_metric(name))]


def compare_metrics(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    penalty: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> Comparison:
    """Compare two runs by how much each metric of the first exceeds that of the second.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (2, n)
        As for `ContingencyTable.from_arrays`; the first row is one run, the second the other, and a column is one
        question.
    scored : array_like of bool, shape (2, n), optional
        False where that run has no grade for that question; all True if not given. For runs over different questions
        give the columns of both, scored in one row each.
    penalty : float, default: 1
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)
    cluster, weight : array_like, shape (n,), optional
        Which questions are alike, and for how many each stands, as for `SamplingDesign.of`.

    Returns
    -------
    Comparison
        A metric that is undefined in either run has a difference with the status ``"undefined"``, not an exception.

    Raises
    ------
    TypeError
        If an argument holds something other than truth values.
    ValueError
        If there are not exactly two rows, the shapes differ, the penalty or the weights are out of range, or as
        `SamplingDesign.of`.

    References
    ----------
    .. [1] Zou, G. Y. and Donner, A. (2008). Construction of confidence limits about effect measures: a general
       approach. Statistics in Medicine, 27, 1693-1702. :doi:`10.1002/sim.3095`

    Examples
    --------
    >>> refused = np.repeat([[True, False], [False, True]], 50, axis=1)
    >>> wrong = np.stack([np.arange(100) < 70, np.arange(100) % 3 == 0])
    >>> difference = compare_metrics(refused, wrong)["error_rate"]
    >>> round(difference.estimate, 3), round(difference.standard_error, 4), round(difference.pvalue, 5)
    (0.36, 0.0656, 0.0)
    >>> low, high = difference.confidence_interval()
    >>> round(low, 3), round(high, 3)
    (0.231, 0.489)
    """
    matrices = checked_matrices(refused, wrong, scored)
    worth = checked_payoffs(penalty, truthfulness_weights)
    if len(matrices[0]) != 2:
        raise ValueError(
            f"refused must have exactly two rows, the runs to compare, got {len(matrices[0])}; "
            "for more runs use rank_runs"
        )
    design = SamplingDesign.of(matrices[0].shape[1], cluster, weight)
    matrices = matrices if design is None else design.taking_part(matrices)
    tables, codes = tables_of_rows(matrices, design), cell_codes(*matrices)
    return Comparison(
        tuple(_difference(name, tables, codes, worth, design) for name in METRIC_NAMES),
        tables[0].n,
        tables[1].n,
        int(np.count_nonzero(matrices[2].all(axis=0))),
    )


def metric_estimate(metric: str, table: AnyTable, worth: Payoffs, confidence_level: float) -> Estimate:
    """Estimate a single metric of a table, with its interval."""
    every = metrics(
        table, penalty=worth.penalty, truthfulness_weights=worth.truthfulness, confidence_level=confidence_level
    )
    return every[METRIC_NAMES.index(metric)]


def difference_pvalue(estimate: float, error: float, n: int, degrees_of_freedom: float | None = None) -> float:
    """Two-sided p-value of a difference, normal or Student's or, where `error` is 0, of a sign test over n units."""
    if error > 0 and degrees_of_freedom is not None:
        return student_tails(estimate / error, degrees_of_freedom)
    if error > 0:
        return float(2 * ndtr(-abs(estimate) / error))
    return 1.0 if estimate == 0 else min(1.0, 0.5 ** (n - 1))


def units_shared(scored: BoolArray, design: SamplingDesign | None) -> int:
    """Count what two runs share, shape (2, n): questions, or clusters of them."""
    shared = scored.all(axis=0)
    return int(np.count_nonzero(shared) if design is None else np.unique(design.clusters[shared]).size)


def _difference(
    name: str,
    tables: tuple[AnyTable, ...],
    codes: NDArray[np.intp],
    worth: Payoffs,
    design: SamplingDesign | None,
) -> MetricDifference:
    points = [point_estimate(name, table, worth) for table in tables]
    first, second = (point.estimate for point in points)
    estimate = error = pvalue = None
    degrees_of_freedom = fewest_degrees_of_freedom(codes < 4, design)
    status, reason = _joint_status(points)
    if first is not None and second is not None:
        estimate = first - second if abs(first - second) > ROUNDING else 0.0
    if estimate is not None and status == "ok":
        alone = without_clusters(points, codes, design)
        independent = None if alone is None else (alone[0], alone[1])
        one, other = scaled_influence(points, codes, design)
        error = difference_error(one, other, independent)
        pvalue = difference_pvalue(estimate, error, units_shared(codes < 4, design), degrees_of_freedom)
        if error == 0:
            status, reason = "boundary", "constant_difference"
    elif estimate is not None and name == "refusal_index":
        counts = [table for table in tables if isinstance(table, ContingencyTable)]
        if len(counts) == len(tables):  # clusters and weights have no such test
            pvalue = float(2 * ndtr(-abs(signed_root(counts, codes)[0])))
    return MetricDifference(
        name, first, second, estimate, error, pvalue, status, reason, tables, worth, degrees_of_freedom
    )


def _joint_status(points: Sequence[PointEstimate]) -> tuple[Status, str | None]:
    statuses = {point.status for point in points}
    if "undefined" in statuses:
        return "undefined", reasons_of(*points)
    return ("boundary", reasons_of(*points)) if "boundary" in statuses else ("ok", None)


def _square_and_add(first: Estimate, second: Estimate) -> ConfidenceInterval:
    (a, low_a, high_a), (b, low_b, high_b) = _defined(first), _defined(second)
    return ConfidenceInterval(a - b - math.hypot(a - low_a, high_b - b), a - b + math.hypot(high_a - a, b - low_b))


def _defined(metric: Estimate) -> tuple[float, float, float]:
    if metric.estimate is None or metric.low is None or metric.high is None:
        return math.nan, math.nan, math.nan
    return metric.estimate, metric.low, metric.high
