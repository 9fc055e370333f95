"""What a run is expected to find, and how far every metric then scatters from one sample of questions to the next.

The scatter is told by the asymptotic standard deviation sigma of a metric: its standard error is ``sigma / sqrt(n)``.
For the Refusal Index sigma is the standard deviation of its influence function, with both thresholds estimated. Every
other metric is a ratio of two means over the questions, ``sum(p a) / sum(p b)``, and sigma is that of the linearised
ratio, ``(a - ratio * b) / sum(p b)``.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.baseline import Payoffs, checked_penalty, ratio_weights
from refusal_index.stats.bivariate_normal import density, upper_orthant
from refusal_index.stats.comparison.metric_influence import checked_metric
from refusal_index.stats.contingency import ContingencyTable, empty_margin
from refusal_index.stats.curves.closed_forms import checked_range, rho_from_refusal_index
from refusal_index.stats.curves.plane import iso_refusal_index
from refusal_index.stats.index import refusal_index

# A cell that is the difference of two probabilities is rounded by some 1e-16.
RESOLVED_CELL = 1e-14


@dataclass(frozen=True, slots=True)
class PlanningScenario:
    """What a run is expected to find, from a pilot, a published table or a guess.

    Parameters
    ----------
    refusal_rate, error_rate : float
        Expected r and mu, in [0, 1].
    refusal_index : float or None
        Expected index, in [-1, 1]. None is for a pilot that leaves it undefined: a rate is 0 or 1.

    Raises
    ------
    ValueError
        If a value lies outside its range, or the index is missing although both rates leave it defined.

    Examples
    --------
    >>> scenario = PlanningScenario(refusal_rate=0.74, error_rate=0.92, refusal_index=0.48)
    >>> [round(cell, 1) for cell in scenario.expected_cells(200)]
    [142.0, 6.0, 42.0, 10.0]
    """

    refusal_rate: float
    error_rate: float
    refusal_index: float | None

    def __post_init__(self) -> None:
        rates = checked_range("refusal_rate", self.refusal_rate, 0), checked_range("error_rate", self.error_rate, 0)
        if self.refusal_index is not None:
            checked_range("refusal_index", self.refusal_index, -1)
        elif not {0.0, 1.0} & {float(rate) for rate in rates}:
            raise ValueError(
                f"refusal_index must be a number where both rates lie inside (0, 1), got None with the rates "
                f"{self.refusal_rate!r} and {self.error_rate!r}; is it the estimate of another table?"
            )

    @classmethod
    def from_table(cls, table: ContingencyTable) -> Self:
        """Expect what a pilot or a finished run has found; a ValueError if it holds no questions.

        Examples
        --------
        >>> round(PlanningScenario.from_table(ContingencyTable(71, 3, 21, 5)).refusal_index, 4)
        0.4822
        """
        if not table.n:
            raise ValueError("table must hold questions to plan from, got none; were all of them unscored?")
        return cls(table.refusal_rate, table.error_rate, refusal_index(table).estimate)

    @classmethod
    def from_published(cls, correct_rate: float, refusal_rate: float, refusal_index: float) -> Self:
        """Expect what a results table prints: correct rate, refusal rate and index, without the error rate behind them.

        Examples
        --------
        >>> scenario = PlanningScenario.from_published(correct_rate=0.05, refusal_rate=0.74, refusal_index=0.48)
        >>> round(scenario.error_rate, 3)
        0.92
        """
        r, c = (
            float(checked_range("refusal_rate", refusal_rate, 0)),
            float(checked_range("correct_rate", correct_rate, 0)),
        )
        if not (r < 1 and 0 <= c <= 1 - r):
            raise ValueError(
                f"refusal_rate must be below 1 and correct_rate at most 1 - refusal_rate, got {refusal_rate!r} and "
                f"{correct_rate!r}; is the correct rate one over the attempted questions only?"
            )
        error = brentq(lambda mu: float(iso_refusal_index(r, refusal_index, mu)) - c, 0.0, 1.0 - c, xtol=1e-14)
        return cls(r, float(error), refusal_index)

    @property
    def cells(self) -> tuple[float, float, float, float]:
        """Probabilities of the four cells, in the order of `ContingencyTable.counts`."""
        # Where a rate is 0 or 1 the cells do not depend on rho.
        rho = rho_from_refusal_index(self.refusal_index or 0.0)
        both = float(upper_orthant(-ndtri(self.refusal_rate), -ndtri(self.error_rate), rho))
        rest = self.refusal_rate - both, self.error_rate - both, 1 - self.refusal_rate - self.error_rate + both
        # Rounding alone can make a probability of 0 negative.
        p10, p01, p00 = (max(cell, 0.0) for cell in rest)
        return max(both, 0.0), p10, p01, p00

    def expected_cells(self, n: int) -> tuple[float, ...]:
        """Return the expected counts of the four cells among n questions."""
        return tuple(n * cell for cell in self.cells)


def asymptotic_deviation(refusal_rate: ArrayLike, error_rate: ArrayLike, refusal_index: ArrayLike) -> FloatArray:
    """Asymptotic standard deviation of the Refusal Index: its standard error times the root of the questions.

    Parameters
    ----------
    refusal_rate, error_rate : array_like of float
        r and mu, in [0, 1].
    refusal_index : array_like of float
        In [-1, 1]. All three arguments broadcast.

    Returns
    -------
    ndarray
        NaN where a rate is 0 or 1 or the index -1 or +1, or so near to it that a cell is lost in rounding.

    Raises
    ------
    ValueError
        If an argument lies outside its range or is NaN.

    Examples
    --------
    >>> round(float(asymptotic_deviation(0.74, 0.92, 0.482169486777911724)), 8)  # 0.0595939261 * sqrt(1000)
    1.88452541
    """
    ranges = ("refusal_rate", refusal_rate, 0), ("error_rate", error_rate, 0), ("refusal_index", refusal_index, -1)
    r, mu, index = np.broadcast_arrays(*(checked_range(*bounds) for bounds in ranges))
    inside = (r > 0) & (r < 1) & (mu > 0) & (mu < 1) & (abs(index) < 1)
    # Any values do where the result is not kept.
    r, mu, index = (np.where(inside, values, 0.5) for values in (r, mu, index))
    return np.where(inside, _deviation(r, mu, rho_from_refusal_index(index)), np.nan)[()]


def _deviation(r: FloatArray, mu: FloatArray, rho: FloatArray) -> FloatArray:
    h, k, spread = -ndtri(r), -ndtri(mu), np.sqrt((1 - rho) * (1 + rho))
    alpha, beta = ndtr((rho * h - k) / spread), ndtr((rho * k - h) / spread)
    p11 = upper_orthant(h, k, rho)
    cells = np.stack([p11, r - p11, mu - p11, 1 - r - mu + p11])
    scores = np.stack([1 - alpha - beta, -alpha, -beta, np.zeros_like(alpha)])
    resolved = cells.min(axis=0) > RESOLVED_CELL
    variance = np.sum(cells * (scores - np.sum(cells * scores, axis=0)) ** 2, axis=0)
    slope = density(h, k, rho) * math.pi * np.sqrt(4 - rho**2) / 6
    return np.asarray(np.sqrt(np.divide(variance, slope**2, out=np.full(resolved.shape, np.nan), where=resolved)))


def metric_moments(scenario: PlanningScenario, metric: str, penalty: float) -> tuple[float, float, str | None]:
    """Return what a metric is expected to be, its asymptotic standard deviation, and why it has none, if so."""
    name, worth = checked_metric(metric), Payoffs(checked_penalty(penalty))
    if name == "refusal_index":
        return _index_moments(scenario)
    if metric in {"correct_given_attempted", "f_score"} and scenario.refusal_rate == 1:
        return math.nan, math.nan, "everybody_refused"
    if metric == "hallucination_rate" and scenario.refusal_rate == scenario.error_rate == 0:
        return math.nan, math.nan, "all_right"
    cells, (top, bottom) = np.array(scenario.cells), np.array(ratio_weights(metric, worth), float)
    value = float(cells @ top / (cells @ bottom))
    sigma = math.sqrt(cells @ (top - value * bottom) ** 2) / float(cells @ bottom)
    return value, sigma, None if sigma > 0 else "no_variance"


def _index_moments(scenario: PlanningScenario) -> tuple[float, float, str | None]:
    r, mu = scenario.refusal_rate, scenario.error_rate
    why = empty_margin(r, 1 - r, 1 - mu, mu)
    why = why or ("perfect_correlation" if abs(scenario.refusal_index or 0.0) == 1 else None)
    index = math.nan if scenario.refusal_index is None else scenario.refusal_index
    if why:
        return index, math.nan, why
    sigma = float(asymptotic_deviation(scenario.refusal_rate, scenario.error_rate, index))
    return index, sigma, "perfect_correlation" if math.isnan(sigma) else None
