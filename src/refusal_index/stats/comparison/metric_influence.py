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
from refusal_index.stats.baseline import (
    DEFAULT_PAYOFFS,
    METRIC_NAMES,
    TRUTHFULNESS_WEIGHTS,
    Payoffs,
    Weights,
    checked_payoffs,
    ratio_influence,
    why_undefined,
)
from refusal_index.stats.design import ONE_CLUSTER, SamplingDesign
from refusal_index.stats.estimate import Status
from refusal_index.stats.index import refusal_index
from refusal_index.stats.influence import cell_influence, spearman_slope
from refusal_index.stats.matrices import BoolArray, cell_codes, checked_matrices, row_tables
from refusal_index.stats.sampled_table import AnyTable, SampledTable

Quad = tuple[float, float, float, float]

# An influence, or a share of a standard error, this small is rounding: the smallest true one is about 1/n.
ROUNDING = 1e-12
TINY = float(np.finfo(float).tiny)
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
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
) -> FloatArray:
    """Influence of each question on a metric of each run.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (k, n)
        As for `checked_matrices`, one row a run, one column a question.
    metric : str in `METRIC_NAMES`, default: "refusal_index"
    penalty : float, default: 1
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)

    Returns
    -------
    ndarray, shape (k, n)
        In units of the metric times n. Over the scored questions of a row the mean is 0, and the sum of squares over
        the square of their number is the squared standard error; 0 where a question is not scored. Rows whose
        estimate is undefined, or a Refusal Index at the boundary, are NaN.

    Raises
    ------
    TypeError, ValueError
        As for `checked_matrices`, or if the metric has another name, or the penalty or the weights are out
        of range.

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
    name, worth = checked_metric(metric), checked_payoffs(penalty, truthfulness_weights)
    points = [point_estimate(name, table, worth) for table in row_tables(*matrices)]
    return influence_rows(points, cell_codes(*matrices))


def checked_metric(metric: str) -> str:
    """Return the name of a metric, or raise an error that lists them."""
    if metric not in METRIC_NAMES:
        raise ValueError(f"metric must be one of {', '.join(METRIC_NAMES)}, got {metric!r}")
    return metric


def point_estimate(metric: str, table: AnyTable, worth: Payoffs = DEFAULT_PAYOFFS) -> PointEstimate:
    """Estimate a metric of a table and the influence of its cells; the intervals of `metrics` are left out."""
    if metric == "refusal_index":
        return _refusal_index(table)
    undefined = why_undefined(metric, table)
    if undefined:
        return PointEstimate(None, "undefined", undefined, NO_INFLUENCE)
    ratio, (w, x, y, z) = ratio_influence(metric, table, worth)
    if isinstance(table, SampledTable) and table.n_clusters < 2:
        return PointEstimate(ratio, "boundary", ONE_CLUSTER, NO_INFLUENCE)
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


def scaled_influence(
    points: Sequence[PointEstimate], codes: NDArray[np.intp], design: SamplingDesign | None = None
) -> FloatArray:
    """Divide the influence by each row's scored questions: products of rows then sum to covariances.

    With a design it is weighted and summed within clusters, so that a column is a cluster and not a question.
    """
    return scaled(influence_rows(points, codes), codes < 4, design)


def scaled(influence: FloatArray, scored: BoolArray, design: SamplingDesign | None) -> FloatArray:
    """Scale an influence of shape (k, n) as `scaled_influence` does."""
    if design is None:
        return influence / np.maximum(np.count_nonzero(scored, axis=1, keepdims=True), 1)
    weights = design.weights * scored
    return design.sums(influence * weights / np.maximum(weights.sum(axis=1, keepdims=True), TINY), scored)


def without_clusters(
    points: Sequence[PointEstimate], codes: NDArray[np.intp], design: SamplingDesign | None
) -> FloatArray | None:
    """Scale the influence as if all questions of a design were independent; None where they are."""
    return None if design is None else scaled_influence(points, codes, design.without_clusters())


def fewest_degrees_of_freedom(scored: BoolArray, design: SamplingDesign | None) -> float | None:
    """Return the fewest degrees of freedom of any row with two clusters or more; None for a normal distribution."""
    if design is None:
        return None
    return float(np.nanmin(np.append(design.degrees_of_freedom(scored), np.inf)))


def difference_error(
    first: FloatArray, second: FloatArray, independent: tuple[FloatArray, FloatArray] | None = None
) -> float:
    """Return the standard error of the difference of two estimates, from their scaled influence.

    With that of `independent` questions given too, clusters never make it smaller: that would be chance.
    """
    if independent is not None:
        return max(difference_error(first, second), difference_error(*independent))
    error = float(np.linalg.norm(first - second))
    largest = float(np.linalg.norm(first) + np.linalg.norm(second))
    return error if error > ROUNDING * largest else 0.0


def _refusal_index(table: AnyTable) -> PointEstimate:
    result = refusal_index(table)
    if result.rho is None or result.status != "ok":
        return PointEstimate(result.estimate, result.status, result.reason, NO_INFLUENCE)
    slope = spearman_slope(result.rho)
    w, x, y, z = cell_influence(table, result.rho)
    return PointEstimate(result.estimate, "ok", None, (w * slope, x * slope, y * slope, z * slope))


def _unrounded(value: float) -> float:
    return value if abs(value) > ROUNDING else 0.0
