"""Influence functions of every metric, question by question, from which runs over the same questions are compared.

The influence of a question says how far one more like it would move the estimate, times n. Summed over questions it
gives variances and covariances: for runs a and b with n_a and n_b scored questions,

    Cov(estimate_a, estimate_b) = sum_i influence_a,i influence_b,i / (n_a n_b),

where an unscored question has no influence. One formula so serves runs that share all, some or none of their
questions.

All metrics but the Refusal Index are ratios of two means over the questions, and a ratio q of the means of u and v
has the influence ``(u - q v) / mean(v)``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.baseline import METRIC_NAMES, checked_penalty
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.estimate import Status
from refusal_index.stats.index import refusal_index
from refusal_index.stats.influence import cell_influence, spearman_slope
from refusal_index.stats.matrices import cell_codes, checked_matrices, row_tables

Quad = tuple[float, float, float, float]

# An influence, or a share of a standard error, this small is rounding: the smallest true one is about 1/n.
ROUNDING = 1e-12
NO_INFLUENCE: Quad = (math.nan, math.nan, math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class PointEstimate:
    """One metric of one table, and the influence of a question in each cell (NaN where there is no derivative).

    The status is ``"ok"`` only where the estimate has a standard error. A rate or score of a run in which all
    questions count alike is at the ``"boundary"`` (``"no_variation"``): its standard error would be 0.
    """

    estimate: float | None
    status: Status
    reason: str | None
    by_cell: Quad


def metric_influence(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    metric: str = "refusal_index",
    penalty: float = 1.0,
) -> FloatArray:
    """Influence of each question on a metric of each run.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (k, n)
        As for `checked_matrices`, one row a run, one column a question.
    metric : str in `METRIC_NAMES`, default: "refusal_index"
    penalty : float, default: 1

    Returns
    -------
    ndarray, shape (k, n)
        In units of the metric times n. Over the scored questions of a row the mean is 0, and the sum of squares over
        the square of their number is the squared standard error; 0 where a question is not scored. Rows whose
        estimate is undefined, or a Refusal Index at the boundary, are NaN.

    Raises
    ------
    TypeError, ValueError
        As for `checked_matrices`, or if the metric has another name or the penalty is negative.

    References
    ----------
    .. [1] Hampel, F. R. (1974). The influence curve and its role in robust estimation. Journal of the American
       Statistical Association, 69, 383-393. :doi:`10.1080/01621459.1974.10482962`

    Examples
    --------
    >>> metric_influence([[True, False, False, False]], [[True, True, False, False]], metric="correct_rate")
    array([[-0.5, -0.5,  0.5,  0.5]])
    """
    matrices = checked_matrices(refused, wrong, scored)
    name, cost = checked_metric(metric), checked_penalty(penalty)
    points = [point_estimate(name, table, cost) for table in row_tables(*matrices)]
    return influence_rows(points, cell_codes(*matrices))


def checked_metric(metric: str) -> str:
    """Return the name of a metric, or raise an error that lists them."""
    if metric not in METRIC_NAMES:
        raise ValueError(f"metric must be one of {', '.join(METRIC_NAMES)}, got {metric!r}")
    return metric


def point_estimate(metric: str, table: ContingencyTable, penalty: float) -> PointEstimate:
    """Estimate a metric of a table and the influence of its cells; the intervals of `metrics` are left out."""
    if metric == "refusal_index":
        return _refusal_index(table)
    numerator, denominator = ratio_weights(metric, penalty)
    undefined = _why_undefined(metric, table)
    if undefined:
        return PointEstimate(None, "undefined", undefined, NO_INFLUENCE)
    total = _weighted_sum(table.counts, denominator)
    ratio = _weighted_sum(table.counts, numerator) / total
    w, x, y, z = ((top - ratio * bottom) * table.n / total for top, bottom in zip(numerator, denominator, strict=True))
    by_cell = _unrounded(w), _unrounded(x), _unrounded(y), _unrounded(z)
    if any(value for value, count in zip(by_cell, table.counts, strict=True) if count):
        return PointEstimate(ratio, "ok", None, by_cell)
    return PointEstimate(ratio, "boundary", "no_variation", by_cell)


def influence_rows(points: Sequence[PointEstimate], codes: NDArray[np.intp]) -> FloatArray:
    """Spread the influence of cells over the questions in them; `codes` are those of `cell_codes`."""
    by_cell = np.array([(*point.by_cell, 0.0) for point in points]).reshape(-1, 5)
    # A row without an estimate is NaN throughout, unscored questions included.
    by_cell[np.isnan(by_cell[:, 0])] = np.nan
    return np.asarray(np.take_along_axis(by_cell, codes, axis=1))


def scaled_influence(points: Sequence[PointEstimate], codes: NDArray[np.intp]) -> FloatArray:
    """Divide the influence by each row's scored questions: products of rows then sum to covariances."""
    return influence_rows(points, codes) / np.maximum(np.count_nonzero(codes < 4, axis=1, keepdims=True), 1)


def difference_error(first: FloatArray, second: FloatArray) -> float:
    """Return the standard error of the difference of two estimates, from their scaled influence."""
    error = float(np.linalg.norm(first - second))
    largest = float(np.linalg.norm(first) + np.linalg.norm(second))
    return error if error > ROUNDING * largest else 0.0


def _refusal_index(table: ContingencyTable) -> PointEstimate:
    result = refusal_index(table)
    if result.rho is None or result.status != "ok":
        return PointEstimate(result.estimate, result.status, result.reason, NO_INFLUENCE)
    slope = spearman_slope(result.rho)
    w, x, y, z = cell_influence(table, result.rho)
    return PointEstimate(result.estimate, "ok", None, (w * slope, x * slope, y * slope, z * slope))


def ratio_weights(metric: str, penalty: float) -> tuple[Quad, Quad]:
    """Return the weights of the four cells in the numerator and the denominator of a metric."""
    every: Quad = (1, 1, 1, 1)
    weights: dict[str, tuple[Quad, Quad]] = {
        "correct_rate": ((0, 0, 0, 1), every),
        "refusal_rate": ((1, 1, 0, 0), every),
        "correct_given_attempted": ((0, 0, 0, 1), (0, 0, 1, 1)),
        "f_score": ((0, 0, 0, 2), (1, 1, 2, 2)),
        "weighted_score": ((0, 0, -penalty, 1 - penalty), every),
        "error_rate": ((1, 0, 1, 0), every),
    }
    return weights[metric]


def _why_undefined(metric: str, table: ContingencyTable) -> str | None:
    if table.n == 0:
        return "no_questions"
    if metric in {"correct_given_attempted", "f_score"} and table.n_answered == 0:
        return "everybody_refused"
    return None


def _weighted_sum(counts: tuple[int, int, int, int], weights: Quad) -> float:
    return math.fsum(count * weight for count, weight in zip(counts, weights, strict=True))


def _unrounded(value: float) -> float:
    return value if abs(value) > ROUNDING else 0.0
