"""How much a model that refuses as often as it errs still decides wrongly: what a well-chosen refusal rate leaves.

A refusal is right where the forced answer is wrong. With as many refusals as errors, mu of the questions, a model that
knows its errors decides every question rightly, one that refuses at random gets ``2 mu (1 - mu)`` wrong, and one on the
accuracy-refusal curve of rho ``2 (mu - P(R, W))``, with P the bivariate normal probability above both thresholds. The
share of the gap between chance and perfection that is left, ``(mu - P) / (mu (1 - mu))``, is one less Cohen's kappa of
refusals and errors.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.bivariate_normal import upper_orthant
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.curves.closed_forms import checked_rho_and_error_rate
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Status
from refusal_index.stats.estimator import tetrachoric
from refusal_index.stats.index import refusal_index
from refusal_index.stats.intervals import JEFFREYS_DRAWS, Seed, checked_resamples, normal_quantile


@dataclass(frozen=True, slots=True)
class RemainingGap:
    """What is left to gain where the refusal rate equals the error rate.

    Attributes
    ----------
    estimate : float or None
        Share of the gap between refusing at random and refusing perfectly that is left: 0 is perfect, 1 chance, more
        than 1 worse than chance.
    wrong_decisions : float or None
        Share of all questions that are refused though the answer would be right, or answered wrongly.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `RefusalIndexResult`.
    table : ContingencyTable
    """

    estimate: float | None
    wrong_decisions: float | None
    status: Status
    reason: str | None
    table: ContingencyTable

    def confidence_interval(
        self, confidence_level: float = 0.95, *, n_resamples: int = JEFFREYS_DRAWS, rng: Seed = None
    ) -> ConfidenceInterval:
        """Confidence interval of `estimate`: posterior quantiles under Jeffreys' prior on the four cells.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        n_resamples : int, default: 10,000
        rng : int or numpy.random.Generator, optional

        Returns
        -------
        ConfidenceInterval
            Both NaN where the gap is undefined.

        Examples
        --------
        >>> low, high = remaining_gap(ContingencyTable(710, 30, 210, 50)).confidence_interval(rng=1)
        >>> round(low, 2), round(high, 2)
        (0.68, 0.84)
        """
        normal_quantile(confidence_level)
        checked_resamples(n_resamples)
        if self.estimate is None:
            return NO_INTERVAL
        shapes = np.array(self.table.counts)[:, np.newaxis] + 0.5
        p11, p10, p01, p00 = np.random.default_rng(rng).standard_gamma(shapes, size=(4, n_resamples))
        error_rate = (p11 + p01) / (p11 + p10 + p01 + p00)
        gaps = gap_left(tetrachoric(p11, p10, p01, p00), error_rate)
        low, high = np.quantile(gaps, [(1 - confidence_level) / 2, (1 + confidence_level) / 2])
        return ConfidenceInterval(float(low), float(high))


def gap_left(rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Share of the gap between chance and perfection that is left where as many questions are refused as are wrong.

    Parameters
    ----------
    rho : array_like of float in [-1, 1]
    error_rate : array_like of float
        Share of wrong answers under forced answering, mu, in [0, 1]; both arguments broadcast.

    Returns
    -------
    ndarray
        NaN where mu is 0 or 1: there is nothing to decide.

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Examples
    --------
    >>> gap_left([1.0, 0.5, 0.0], 0.5).round(4).tolist()
    [0.0, 0.6667, 1.0]
    """
    correlation, mu = np.broadcast_arrays(*checked_rho_and_error_rate(rho, error_rate))
    inside = (mu > 0) & (mu < 1)
    rate = np.where(inside, mu, 0.5)
    both = upper_orthant(-ndtri(rate), -ndtri(rate), correlation)
    return np.asarray(np.where(inside, (rate - both) / (rate * (1 - rate)), math.nan))[()]


def remaining_gap(table: ContingencyTable) -> RemainingGap:
    """Find what a model would still decide wrongly if it refused as often as it errs.

    Parameters
    ----------
    table : ContingencyTable

    Returns
    -------
    RemainingGap
        All None where the Refusal Index is undefined.

    References
    ----------
    .. [1] Cohen, J. (1960). A coefficient of agreement for nominal scales. Educational and Psychological Measurement,
       20, 37-46. :doi:`10.1177/001316446002000104`

    Examples
    --------
    >>> found = remaining_gap(ContingencyTable(710, 30, 210, 50))
    >>> round(found.estimate, 3), round(found.wrong_decisions, 3)
    (0.766, 0.113)
    """
    result, mu = refusal_index(table), table.error_rate
    if result.rho is None:
        return RemainingGap(None, None, "undefined", result.reason, table)
    left = float(gap_left(result.rho, mu))
    return RemainingGap(left, 2 * left * mu * (1 - mu), result.status, result.reason, table)
