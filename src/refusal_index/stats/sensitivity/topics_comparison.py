"""Two runs compared by their Refusal Index within topics, over the same questions.

The index within topics solves an equation in which every topic contributes the slope of its likelihood, given its
margins. By how much leaving out a question changes its topic's slope, over the curvature of the whole, is how much that
question contributes to the error of the estimate. As everywhere, runs over the same questions are compared by the
differences of these contributions, about their mean within each topic, as topics are given and not drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.estimate import ConfidenceInterval, Status, reasons_of
from refusal_index.stats.influence import spearman_slope_in_z
from refusal_index.stats.intervals import normal_interval
from refusal_index.stats.matrices import BoolArray, checked_matrices
from refusal_index.stats.sensitivity.topics import (
    Likelihood,
    WithinTopicResult,
    checked_topics,
    within_topic_refusal_index,
)

STEP = 1e-3
"""Of the differences that stand for derivatives in atanh(rho)."""

ROUNDING = 1e-9
"""Share of the standard errors of both runs below which that of their difference is rounding."""


@dataclass(frozen=True, slots=True)
class WithinTopicDifference:
    """By how much the index within topics of the first run exceeds that of the second.

    Attributes
    ----------
    first, second : WithinTopicResult
        Of either run.
    estimate : float or None
        ``first - second``; None where either is undefined.
    standard_error, pvalue : float or None
        Normal and two-sided; None unless both estimates have a standard error and the runs differ.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        ``"first:"`` or ``"second:"`` with that run's reason, or both with ``";"`` between them; or
        ``"constant_difference"``.
    """

    first: WithinTopicResult
    second: WithinTopicResult
    estimate: float | None
    standard_error: float | None
    pvalue: float | None
    status: Status
    reason: str | None

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return the normal interval of the difference; both ends are NaN where it has no standard error."""
        return normal_interval(self.estimate, self.standard_error, confidence_level)


def compare_within_topics(
    refused: ArrayLike, wrong: ArrayLike, topic: ArrayLike, scored: ArrayLike | None = None
) -> WithinTopicDifference:
    """Compare two runs by their Refusal Index within topics.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (2, n)
        As for `compare_metrics`, one row a run and one column a question.
    topic : array_like, shape (n,)
        As for `within_topic_refusal_index`.
    scored : array_like of bool, shape (2, n), optional
        False where a run has no grade for a question; all True if not given.

    Returns
    -------
    WithinTopicDifference
        Topics in which nobody or everybody refused, or all is wrong or right, say nothing and are left out of that
        run's index.

    Raises
    ------
    TypeError, ValueError
        As `checked_matrices` and `within_topic_refusal_index`, or if there are not exactly two rows.

    Notes
    -----
    Simulated coverage of 95 % intervals of equal models is .93 to .97 for 10 to 100 topics of 20 to 200 questions
    (`benchmarks/coverage/topics.py`).

    References
    ----------
    .. [1] Breslow and Day (1980), as cited in `within_topic_refusal_index`.
    .. [2] Efron, B. and Stein, C. (1981). The jackknife estimate of variance. Annals of Statistics, 9, 586-596.
       :doi:`10.1214/aos/1176345462`

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> topic = np.arange(2000) % 20
    >>> difficulty = topic / 10 - 1 + rng.standard_normal(2000)
    >>> noise = rng.standard_normal((2, 2000))
    >>> refused = np.array([[0.8], [0.2]]) * difficulty + np.array([[0.6], [0.98]]) * noise > 0
    >>> difference = compare_within_topics(refused, np.tile(difficulty > 0, (2, 1)), topic)
    >>> round(difference.first.estimate, 2), round(difference.second.estimate, 2), difference.pvalue < 1e-6
    (0.78, 0.19, True)
    """
    r, w, s = checked_matrices(refused, wrong, scored)
    if len(r) != 2:
        raise ValueError(f"refused must have exactly two rows, the runs to compare, got {len(r)}")
    topics = checked_topics(topic, r.shape[1])
    first, second = (within_topic_refusal_index(r[row, s[row]], w[row, s[row]], topics[s[row]]) for row in range(2))
    estimate = None if first.estimate is None or second.estimate is None else first.estimate - second.estimate
    if first.status != "ok" or second.status != "ok":
        status: Status = "undefined" if estimate is None else "boundary"
        return WithinTopicDifference(first, second, estimate, None, None, status, reasons_of(first, second))
    _, codes = np.unique(topics, return_inverse=True)
    one, other = (_contributions(r[row], w[row], s[row], codes, (first, second)[row]) for row in range(2))
    error = float(np.linalg.norm(one - other))
    if estimate is None or error <= ROUNDING * float(np.linalg.norm(one) + np.linalg.norm(other)):
        return WithinTopicDifference(first, second, estimate, None, None, "boundary", "constant_difference")
    pvalue = float(2 * ndtr(-abs(estimate) / error))
    return WithinTopicDifference(first, second, estimate, error, pvalue, "ok", None)


def _contributions(
    refused: BoolArray, wrong: BoolArray, scored: BoolArray, topics: np.ndarray, result: WithinTopicResult
) -> FloatArray:
    """Find what each question adds to the error of the index, shape (n,): 0 where it is not scored."""
    rho, cell = result.rho or 0.0, 2 * ~refused + ~wrong
    size = int(topics.max(initial=-1)) + 1
    counts = np.bincount((4 * topics + cell)[scored], minlength=4 * size).reshape(-1, 4)
    by_cell = _slopes_of_cells(counts, math.atanh(rho)) * spearman_slope_in_z(rho)
    means = np.sum(counts * by_cell, axis=1, keepdims=True) / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.asarray((by_cell - means)[topics, cell] * scored)


def _slopes_of_cells(counts: np.ndarray, z: float) -> FloatArray:
    """Find what a question in each cell of each topic adds to the slope of the likelihood, over its curvature."""
    whole = Likelihood(counts)
    above, here, below = (whole.each(z + step) for step in (STEP, 0.0, -STEP))
    curvature = float(np.sum(2 * here - above - below)) / STEP**2
    # Every topic four times, each time without one of the questions of one cell, where there is one.
    fewer = np.maximum(counts[:, np.newaxis, :] - np.eye(4, dtype=counts.dtype), 0)
    without = Likelihood(fewer.reshape(-1, 4))
    slopes = (above - below)[:, np.newaxis] - (without.each(z + STEP) - without.each(z - STEP)).reshape(-1, 4)
    return np.asarray(slopes / (2 * STEP) / curvature)
