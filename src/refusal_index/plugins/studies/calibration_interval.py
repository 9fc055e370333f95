"""Interval of the calibration error, which is not 0 by chance even where a score is perfectly calibrated."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from refusal_index.stats.arguments import FloatArray, share
from refusal_index.stats.calibration.reliability import checked_probabilities, reliability_table
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval
from refusal_index.stats.intervals import Seed, checked_resamples

RESAMPLES = 1_000
LARGEST_FACTOR = 1024.0
"""By which the observed gaps may be multiplied: beyond, they were nothing but noise."""


def calibration_error_interval(
    score: ArrayLike,
    outcome: ArrayLike,
    *,
    n_bins: int = 10,
    confidence_level: float = 0.95,
    n_resamples: int = RESAMPLES,
    rng: Seed = None,
) -> ConfidenceInterval:
    """Interval of the calibration error that `expected_calibration_error` estimates with bins of equal width.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        In [0, 1].
    outcome : array_like of bool, shape (n,)
        Whether what the score claims came true.
    n_bins : int, default: 10
        Bins of equal width.
    confidence_level : float, default: 0.95
    n_resamples : int, default: 1000
    rng : int, Generator or None
        Seed of the resamples.

    Returns
    -------
    ConfidenceInterval
        Of the error in as many questions as one likes, with these bins. It reaches up to the estimate at least, and
        down to 0 where nothing speaks against perfect calibration. ``(nan, nan)`` where no question differs from the
        claim of its bin, as where all scores are 1 and all outcomes true, or there are no questions.

    Raises
    ------
    TypeError, ValueError
        As `expected_calibration_error`, or if the level is not a share.

    Examples
    --------
    >>> rng = np.random.default_rng(2)
    >>> score = rng.random(400)
    >>> right = rng.random(400) < score
    >>> for claim in (score, score**2):  # the second claims less than comes true, by 1/6 on average
    ...     low, high = calibration_error_interval(claim, right, rng=0)
    ...     print(f"[{low:.3f}, {high:.3f}]")
    [0.000, 0.070]
    [0.130, 0.209]
    """
    scores, truths = checked_probabilities(score, outcome)
    tail = (1 - share("confidence_level", confidence_level)) / 2
    n_resamples = checked_resamples(n_resamples)
    if not scores.size:
        return NO_INTERVAL
    gap, noise = _resampled(scores, truths, n_bins, n_resamples, rng)
    if not noise.any():
        return NO_INTERVAL
    observed, usual = float(np.abs(gap).sum()), float(np.median(np.abs(noise).sum(axis=1)))
    direction = np.where(gap < 0, -1, 1) * np.maximum(np.abs(gap), noise.std(axis=0))

    def quantile(factor: float, level: float) -> float:
        return float(np.quantile(np.abs(factor * direction + noise).sum(axis=1), level))

    low = _root(lambda factor: quantile(factor, 1 - tail) - observed)
    high = _root(lambda factor: quantile(factor, tail) - max(observed, usual))
    length = float(np.abs(direction).sum())
    return ConfidenceInterval(min(low * length, observed), min(max(high * length, observed), 1.0))


def _root(beyond: Callable[[float], float]) -> float:
    """Return the factor at which a rising function is 0; 0 where it is not below it there."""
    if beyond(0.0) >= 0:
        return 0.0  # the end of the range of factors
    end = 1.0
    while beyond(end) < 0 and end < LARGEST_FACTOR:
        end *= 2
    return float(brentq(beyond, 0.0, end)) if beyond(end) >= 0 else end


def _resampled(
    scores: FloatArray, truths: NDArray[np.bool_], n_bins: int, n_resamples: int, rng: Seed
) -> tuple[FloatArray, FloatArray]:
    """Return the gap of each bin, as a share of all questions, and the noise in it on resampled questions."""
    ends = [one.high for one in reliability_table(scores, truths, n_bins=n_bins)]
    # Rounded as the bins themselves are: a frequency at the end of a bin belongs to it.
    place, n = np.searchsorted(ends, np.round(scores, 10)), scores.size
    parts = np.zeros((n, n_bins))
    parts[np.arange(n), place] = (scores - truths) / n
    weights = np.random.default_rng(rng).multinomial(n, np.full(n, 1 / n), size=n_resamples)
    gap = parts.sum(axis=0)
    return gap, weights @ parts - gap
