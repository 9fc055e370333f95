"""The tetrachoric correlation of a 2x2 table: the bivariate normal orthant probability inverted in rho.

With the thresholds at the empirical margins the model is saturated, so the maximum-likelihood rho is the unique root of
``orthant(h, k, rho) = p11``, and no optimisation is needed. The root is found in ``z = atanh(rho)``, by Halley's method
on the log odds ratio of the modelled table, which is nearly linear in z and sensitive to small cells. From Bonett and
Price's starting value, two or three evaluations suffice. A bracket safeguards every step.

The bivariate normal distribution:

Two standard normal variables X and Y with correlation rho and thresholds h and k give a 2x2 table whose first cell is
the upper orthant probability ``P(X > h, Y > k)``. Its derivative in rho is the bivariate density.

The formulas are written in ``z = atanh(rho)`` with ``t = exp(-z) = sqrt((1 - rho) / (1 + rho))``, where

    sqrt(1 - rho^2) = 2t / (1 + t^2),    d orthant / dz = (1 - rho^2) * density,

so that no trigonometric functions are needed and no precision is lost near rho = -1 and 1.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.special import cython_special

from refusal_index.stats.arguments import FloatArray, unmasked
from refusal_index.stats.small_cells import CELL_FLOOR, with_precise_small_cell, with_precise_small_cells

Number = TypeVar("Number", float, FloatArray)


@dataclass(frozen=True, slots=True)
class Operations(Generic[Number]):
    """Elementary functions of floats or of arrays; `ndtr` and `ndtri` are the normal CDF and its inverse."""

    exp: Callable[[Number], Number]
    log: Callable[[Number], Number]
    tan: Callable[[Number], Number]
    tanh: Callable[[Number], Number]
    ndtr: Callable[[Number], Number]
    ndtri: Callable[[Number], Number]
    owens_t: Callable[[Number, Number], Number]
    minimum: Callable[[Number, Number | float], Number]
    maximum: Callable[[Number, Number | float], Number]
    where: Callable[[Any, Number | float, Number | float], Number]
    with_precise_small: Callable[..., tuple[Number, Number, Number, Number]]


SCALAR: Operations[float] = Operations(
    exp=math.exp,
    log=math.log,
    tan=math.tan,
    tanh=math.tanh,
    ndtr=cython_special.ndtr,
    ndtri=cython_special.ndtri,
    owens_t=cython_special.owens_t,
    minimum=min,
    maximum=max,
    where=lambda condition, if_true, if_false: if_true if condition else if_false,
    with_precise_small=with_precise_small_cell,
)

ARRAY: Operations[FloatArray] = Operations(
    exp=np.exp,
    log=np.log,
    tan=np.tan,
    tanh=np.tanh,
    ndtr=special.ndtr,
    ndtri=special.ndtri,
    owens_t=special.owens_t,
    minimum=np.minimum,
    maximum=np.maximum,
    where=np.where,
    with_precise_small=with_precise_small_cells,
)


# A threshold of exactly 0 is replaced by this one, to avoid division by zero in Owen's formula.
TINY_THRESHOLD = 1e-200
# Beyond 40 the normal tail underflows to 0, as at infinity, but differences are still defined.
MAX_THRESHOLD = 40.0


def upper_orthant(h: ArrayLike, k: ArrayLike, rho: ArrayLike) -> FloatArray:
    """Return the probability that two correlated standard normal variables both exceed their thresholds.

    Parameters
    ----------
    h, k : array_like of float
        Thresholds, real or infinite.
    rho : array_like of float
        Correlation in [-1, 1]. All three arguments broadcast.

    Returns
    -------
    ndarray
        ``P(X > h, Y > k)``, with an absolute error below 3e-16. NaN if an argument is NaN.

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
    x, y = (np.clip(np.asarray(v, float), -MAX_THRESHOLD, MAX_THRESHOLD) for v in (h, k))
    with np.errstate(divide="ignore"):
        t = np.clip(np.sqrt((1 - correlation) / (1 + correlation)), 1e-100, 1e100)
    return orthant(ARRAY, x, y, t)


def density(h: ArrayLike, k: ArrayLike, rho: ArrayLike) -> FloatArray:
    """Return the bivariate standard normal density, which is the derivative of `upper_orthant` in rho.

    Parameters
    ----------
    h, k : array_like of float
        Points at which to evaluate the density.
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
    x = np.asarray(h, float)
    y = np.asarray(k, float)
    t = np.sqrt((1 - correlation) / (1 + correlation))
    spread = 2 * t / (1 + t * t)
    return np.asarray(np.exp(log_kernel(x, y, spread, t)) / (2 * math.pi * spread))


def _checked_correlation(rho: ArrayLike) -> FloatArray:
    correlation = np.asarray(rho, float)
    if np.any(np.abs(correlation) > 1):
        raise ValueError(f"rho must lie in [-1, 1], got {rho!r}; is it a covariance rather than a correlation?")
    return correlation


def log_kernel(h: Number, k: Number, spread: Number, t: Number) -> Number:
    """Return ``-(h^2 - 2 rho h k + k^2) / (2 (1 - rho^2))``, the exponent of the density, without cancellation."""
    gap = (k - h) / spread
    return -0.5 * (gap * gap + h * k * (1 + t * t))


def orthant(ops: Operations[Number], h: Number, k: Number, t: Number) -> Number:
    """Return the upper orthant probability for finite thresholds, by reflection to non-negative ones."""
    x = ops.maximum(abs(h), TINY_THRESHOLD)
    y = ops.maximum(abs(k), TINY_THRESHOLD)
    tail_x = ops.ndtr(-x)
    tail_y = ops.ndtr(-y)
    inner = orthant_beyond_zero(ops, x, y, (tail_x, tail_y), ops.where((h < 0) != (k < 0), 1 / t, t))
    if_h_negative = ops.where(k < 0, (1 - tail_x) - (tail_y - inner), tail_y - inner)
    return ops.where(h < 0, if_h_negative, ops.where(k < 0, tail_x - inner, inner))


def orthant_beyond_zero(
    ops: Operations[Number], h: Number, k: Number, tails: tuple[Number, Number], t: Number
) -> Number:
    """Return the upper orthant probability for positive thresholds with the given upper tail probabilities.

    Owen's formula, with ``(k - rho h) / (h s)`` written as ``(k - h) / (h s) + t``, which is exact if h and k are
    nearly equal and rho is near 1. The rounding error is relative to the size of the margins.
    """
    tail_h, tail_k = tails
    gap = (k - h) * (1 + t * t) / (2 * t)
    return (0.5 * tail_h - ops.owens_t(h, gap / h + t)) + (0.5 * tail_k - ops.owens_t(k, t - gap / k))


# Halley's method converges cubically: after a step of this size the remaining error is below rounding.
STEP_TOLERANCE = 1e-5
# Tables of up to 2^53 questions in each cell have a z of at most 38.
MAX_Z = 40.0
# Beyond this, rounding of rho changes 1 - rho and its standard error noticeably.
NEARLY_ONE = 1 - 1e-6
# The largest correlation below 1; that of a table without empty cells is at most this.
MAX_RHO = 1 - 2.0**-53
MAX_EXPONENT = 600.0
FARTHEST = 19.0
MAX_STEP = 1.0
MAX_ITERATIONS = 100
# Number of rows per pass, so that the working arrays fit into the second-level cache.
CHUNK_ROWS = 16384


class _Problem(NamedTuple, Generic[Number]):
    """A table reflected so that both margins are at most 1/2: thresholds, margins and log odds ratio."""

    h: Number
    k: Number
    tail_h: Number
    tail_k: Number
    log_odds_ratio: Number


def tetrachoric(p11: ArrayLike, p10: ArrayLike, p01: ArrayLike, p00: ArrayLike) -> FloatArray:
    """Return the tetrachoric correlation of each of many 2x2 tables.

    Parameters
    ----------
    p11, p10, p01, p00 : array_like of float
        Cells ``P(X > h, Y > k)``, ``P(X > h, Y <= k)``, ``P(X <= h, Y > k)``, ``P(X <= h, Y <= k)``, or counts
        proportional to them; non-negative. They broadcast; a cell below 1e-150 counts as zero.

    Returns
    -------
    ndarray
        rho, with an error below 1e-12 if every cell probability exceeds 1e-5. Exactly -1 or +1 if a cell is zero,
        exactly 0 for independence, NaN if a margin is zero or a cell is NaN.

    Raises
    ------
    TypeError, ValueError
        If a cell is masked or negative.

    References
    ----------
    .. [1] Pearson (1900). :doi:`10.1098/rsta.1900.0022`
    .. [2] Hamdan (1970). :doi:`10.1093/biomet/57.1.212`
    .. [3] Bonett, D. G. and Price, R. M. (2005). Inferential methods for the tetrachoric correlation coefficient.
       Journal of Educational and Behavioral Statistics, 30, 213-225. :doi:`10.3102/10769986030002213`

    Examples
    --------
    >>> tetrachoric([2, 1, 5, 5], [1, 1, 0, 0], [1, 1, 3, 0], [2, 1, 4, 0])
    array([0.5, 0. , 1. , nan])
    """
    cells_by_name = {"p11": p11, "p10": p10, "p01": p01, "p00": p00}
    cells = np.broadcast_arrays(*(_checked_cell(name, cell) for name, cell in cells_by_name.items()))
    flat = [cell.reshape(-1) for cell in cells]
    rho = np.empty(flat[0].shape)
    for start in range(0, rho.size, CHUNK_ROWS):
        rows = slice(start, start + CHUNK_ROWS)
        n11, n10, n01, n00 = chunk = [cell[rows] for cell in flat]
        has11, has10, has01, has00 = (cell > CELL_FLOOR for cell in chunk)
        interior = has11 & has10 & has01 & has00
        if interior.all():
            rho[rows] = _solve_rows(n11, n10, n01, n00)
            continue
        margins_vary = (has11 | has10) & (has01 | has00) & (has11 | has01) & (has10 | has00)
        defined = margins_vary & ~np.isnan(n11 + n10 + n01 + n00)
        rho[rows] = np.where(defined, np.where(has10 & has01, -1.0, 1.0), np.nan)
        rho[rows][interior] = _solve_rows(n11[interior], n10[interior], n01[interior], n00[interior])
    return rho.reshape(cells[0].shape)


def _checked_cell(name: str, values: ArrayLike) -> FloatArray:
    cell = unmasked(name, values).astype(float, copy=False)
    if (cell < 0).any():
        lowest = float(np.nanmin(cell))
        raise ValueError(f"{name} must not be negative, got {lowest!r}; was it made by subtracting two totals?")
    return cell


def _solve_rows(n11: FloatArray, n10: FloatArray, n01: FloatArray, n00: FloatArray) -> FloatArray:
    problem, sign = _reflect(ARRAY, n11, n10, n01, n00)
    z = _first_guess(ARRAY, problem)
    solution = np.empty_like(z)
    unsolved = np.arange(z.size)
    state = np.stack([z, np.full_like(z, -MAX_Z), np.full_like(z, MAX_Z), *problem])
    for _ in range(MAX_ITERATIONS):
        z, low, high, *rest = state
        improved, low, high = _advance(ARRAY, z, low, high, _Problem(*rest))
        solution[unsolved] = improved
        still = np.abs(improved - z) > STEP_TOLERANCE
        if not still.any():
            break
        state[0] = improved
        state[1] = low
        state[2] = high
        state = state[:, still]
        unsolved = unsolved[still]
    return _finish(ARRAY, solution, sign, problem)


def tetrachoric_of_counts(n11: float, n10: float, n01: float, n00: float) -> float:
    """Return `tetrachoric` of a single table with four positive cells, without the overhead of arrays."""
    z, sign, problem = _solve_one(n11, n10, n01, n00)
    return _finish(SCALAR, z, sign, problem)


def precise_z(counts: tuple[float, float, float, float], rho: float) -> float:
    """Return ``atanh(rho)`` of the estimate `rho` of a table; near -1 and 1, where rho is rounded, from the counts."""
    if abs(rho) < NEARLY_ONE:
        return math.atanh(rho)
    z, sign, _ = _solve_one(*counts)
    return sign * z


def _solve_one(n11: float, n10: float, n01: float, n00: float) -> tuple[float, float, _Problem[float]]:
    problem, sign = _reflect(SCALAR, float(n11), float(n10), float(n01), float(n00))
    z = _first_guess(SCALAR, problem)
    low = -MAX_Z
    high = MAX_Z
    for _ in range(MAX_ITERATIONS):
        previous = z
        z, low, high = _advance(SCALAR, z, low, high, problem)
        if abs(z - previous) <= STEP_TOLERANCE:
            break
    return z, sign, problem


def _reflect(
    ops: Operations[Number], n11: Number, n10: Number, n01: Number, n00: Number
) -> tuple[_Problem[Number], Number]:
    """Reflect the table so that both thresholds are non-negative; return it, and the sign that this gives rho."""
    upper_x = n11 + n10
    lower_x = n01 + n00
    upper_y = n11 + n01
    lower_y = n10 + n00
    n = upper_x + lower_x
    sign = ops.where((upper_x > lower_x) != (upper_y > lower_y), -1.0, 1.0)
    tail_h = ops.minimum(upper_x, lower_x) / n
    tail_k = ops.minimum(upper_y, lower_y) / n
    h = ops.maximum(-ops.ndtri(tail_h), TINY_THRESHOLD)
    k = ops.maximum(-ops.ndtri(tail_k), TINY_THRESHOLD)
    log_odds_ratio = sign * ops.log((n11 * n00) / (n10 * n01))
    return _Problem(h, k, tail_h, tail_k, log_odds_ratio), sign


def _first_guess(ops: Operations[Number], problem: _Problem[Number]) -> Number:
    # Bonett and Price (2005): rho is about cos(pi / (1 + odds_ratio^power)), and tan(acos(rho) / 2) = exp(-z).
    h, k, tail_h, tail_k, log_odds_ratio = problem
    smaller = ops.minimum(tail_h, tail_k)
    power = 0.5 * (1 - abs(tail_h - tail_k) / 5 - (0.5 - smaller) * (0.5 - smaller))
    angle = math.pi / (1 + ops.exp(power * log_odds_ratio))
    # Closer to rho = 1 or -1 a cell would be below 1e-19, and far from the root a step in z is at most about 1/2.
    t = ops.minimum(ops.maximum(ops.tan(0.5 * angle), abs(k - h) / FARTHEST), FARTHEST / (h + k))
    return ops.minimum(ops.maximum(-ops.log(t), -MAX_Z), MAX_Z)


def _advance(
    ops: Operations[Number], z: Number, low: Number, high: Number, problem: _Problem[Number]
) -> tuple[Number, Number, Number]:
    """Do one safeguarded iteration; return the next z and the narrowed bracket."""
    excess, step = _halley(ops, z, problem)
    low = ops.where(excess < 0, z, low)
    high = ops.where(excess < 0, high, z)
    proposed = z + step
    # A last, tiny step is taken even if rounding puts it on an end of the bracket.
    inside = ((proposed > low) & (proposed < high)) | (abs(step) <= STEP_TOLERANCE)
    return ops.where(inside, proposed, 0.5 * (low + high)), low, high


def _halley(ops: Operations[Number], z: Number, problem: _Problem[Number]) -> tuple[Number, Number]:
    """Return the excess of the modelled log odds ratio over the observed one, and the Halley step in z."""
    h, k, tail_h, tail_k, log_odds_ratio = problem
    t = ops.exp(-z)
    spread = 2 * t / (1 + t * t)
    rho = (1 - t * t) / (1 + t * t)
    orthant = orthant_beyond_zero(ops, h, k, (tail_h, tail_k), t)
    cells = orthant, tail_h - orthant, tail_k - orthant, (1 - tail_h) - (tail_k - orthant)
    p11, p10, p01, p00 = ops.with_precise_small(cells, h, k, z)
    excess = ops.log((p11 * p00) / (p10 * p01)) - log_odds_ratio

    exponent = ops.maximum(log_kernel(h, k, spread, t), -MAX_EXPONENT)
    orthant_slope = spread * ops.exp(exponent) / (2 * math.pi)
    i11 = 1 / p11
    i10 = 1 / p10
    i01 = 1 / p01
    i00 = 1 / p00
    weight = i11 + i10 + i01 + i00
    weight_slope = i10 * i10 + i01 * i01 - i11 * i11 - i00 * i00
    newton = ops.minimum(ops.maximum(-excess / (orthant_slope * weight), -MAX_STEP), MAX_STEP)
    curvature = (h * k + (2 * exponent - 1) * rho) + orthant_slope * weight_slope / weight
    # Far from the root the correction can reach zero or reverse the step, so it is limited to a factor of 2 or 3.
    correction = ops.minimum(ops.maximum(0.5 * newton * curvature, -0.5), 2.0)
    return excess, newton / (1 + correction)


def _finish(ops: Operations[Number], z: Number, sign: Number, problem: _Problem[Number]) -> Number:
    # Because of rounding, an independent table would give 1e-17 instead of exactly 0.
    rho = ops.minimum(ops.maximum(ops.tanh(z), -MAX_RHO), MAX_RHO)
    return ops.where(problem.log_odds_ratio == 0, 0.0, sign * rho)
