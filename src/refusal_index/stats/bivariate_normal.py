r"""The bivariate normal distribution, as far as a 2x2 table needs it.

Two standard normal variables X and Y with correlation rho, cut at thresholds h and k, make a 2x2 table whose
first cell is the upper orthant probability ``P(X > h, Y > k)``. This module computes that probability, its
derivative in rho, the density. The inverse in rho is in `refusal_index.stats.estimator`.

The shared formulas is written in ``z = atanh(rho)`` with ``t = exp(-z) = sqrt((1 - rho) / (1 + rho))``, where

    sqrt(1 - rho^2) = 2t / (1 + t^2),    d orthant / dz = (1 - rho^2) * density,

so that no trigonometry is needed and neither end of the range of rho loses digits.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats._ops import ARRAY, FloatArray, Number, Ops

# A threshold of exactly 0 is replaced by one that behaves the same in Owen's formula but can be divided by.
TINY_THRESHOLD = 1e-200
# Beyond 40 the normal tail underflows to 0, as at infinity, without infinity's undefined differences.
LARGEST_THRESHOLD = 40.0


def upper_orthant(h: ArrayLike, k: ArrayLike, rho: ArrayLike) -> FloatArray:
    """Probability that both of two correlated standard normal variables exceed their thresholds.

    Parameters
    ----------
    h, k : array_like of float
        Thresholds, any real number or infinity.
    rho : array_like of float
        Correlation in [-1, 1]. All three arguments broadcast.

    Returns
    -------
    ndarray
        ``P(X > h, Y > k)``, with an absolute error below 3e-16. NaN where an argument is NaN.

    Raises
    ------
    ValueError
        If a correlation lies outside [-1, 1].

    References
    ----------
    .. [1] Owen, D. B. (1956). Tables for computing bivariate normal probabilities. Annals of Mathematical Statistics,
       27, 1075-1090. :doi:`10.1214/aoms/1177728074`

    Examples
    --------
    >>> round(float(upper_orthant(0.0, 0.0, 0.5)), 12)
    0.333333333333
    """
    correlation = _checked_correlation(rho)
    x, y = (np.clip(np.asarray(v, float), -LARGEST_THRESHOLD, LARGEST_THRESHOLD) for v in (h, k))
    with np.errstate(divide="ignore"):
        t = np.clip(np.sqrt((1 - correlation) / (1 + correlation)), 1e-100, 1e100)
    return orthant(ARRAY, x, y, t)


def density(h: ArrayLike, k: ArrayLike, rho: ArrayLike) -> FloatArray:
    """Bivariate standard normal density, which is the derivative of `upper_orthant` in rho.

    Parameters
    ----------
    h, k : array_like of float
        Where to evaluate the density, real numbers.
    rho : array_like of float
        Correlation in (-1, 1). All three arguments broadcast.

    Returns
    -------
    ndarray
        NaN where an argument is NaN.

    Raises
    ------
    ValueError
        If a correlation lies outside [-1, 1].

    Examples
    --------
    >>> round(float(density(0.0, 0.0, 0.6)), 12)  # 1 / (2 pi 0.8)
    0.198943678865
    """
    correlation = _checked_correlation(rho)
    x, y = np.asarray(h, float), np.asarray(k, float)
    t = np.sqrt((1 - correlation) / (1 + correlation))
    spread = 2 * t / (1 + t * t)
    return np.asarray(np.exp(log_kernel(x, y, spread, t)) / (2 * math.pi * spread))


def _checked_correlation(rho: ArrayLike) -> FloatArray:
    correlation = np.asarray(rho, float)
    if np.any(np.abs(correlation) > 1):
        raise ValueError(f"rho must lie in [-1, 1], got {rho!r}; is it a covariance rather than a correlation?")
    return correlation


def log_kernel(h: Number, k: Number, spread: Number, t: Number) -> Number:
    """Exponent of the bivariate density, ``-(h^2 - 2 rho h k + k^2) / (2 (1 - rho^2))``, free of cancellation."""
    gap = (k - h) / spread
    return -0.5 * (gap * gap + h * k * (1 + t * t))


def orthant(ops: Ops[Number], h: Number, k: Number, t: Number) -> Number:
    """Upper orthant for finite thresholds of any sign, by reflection to thresholds that are not negative."""
    x, y = ops.maximum(abs(h), TINY_THRESHOLD), ops.maximum(abs(k), TINY_THRESHOLD)
    tail_x, tail_y = ops.ndtr(-x), ops.ndtr(-y)
    inner = orthant_beyond_zero(ops, x, y, (tail_x, tail_y), ops.where((h < 0) != (k < 0), 1 / t, t))
    if_h_negative = ops.where(k < 0, (1 - tail_x) - (tail_y - inner), tail_y - inner)
    return ops.where(h < 0, if_h_negative, ops.where(k < 0, tail_x - inner, inner))


def orthant_beyond_zero(ops: Ops[Number], h: Number, k: Number, tails: tuple[Number, Number], t: Number) -> Number:
    """Upper orthant for positive thresholds whose upper tail probabilities are given.

    Owen's formula, with ``(k - rho h) / (h s)`` written as ``(k - h) / (h s) + t``, which is exact where h and k
    nearly agree and rho nears 1. The two differences are of the size of the margins, and so is their rounding error.
    """
    tail_h, tail_k = tails
    gap = (k - h) * (1 + t * t) / (2 * t)
    return (0.5 * tail_h - ops.owens_t(h, gap / h + t)) + (0.5 * tail_k - ops.owens_t(k, t - gap / k))
