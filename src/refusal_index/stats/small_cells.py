"""Cells of the bivariate normal 2x2 table with full relative precision, however small they are.

Owen's formula gives cells with an absolute error of 1e-16, which is not enough if a cell is that small: its logarithm,
and with it the likelihood, would be rounding error. In ``u = atanh(rho)`` the derivative of the first cell is

    sech(u) exp(-a exp(2u) - b exp(-2u) - c) / (2 pi),   a = (k - h)^2 / 8,  b = (k + h)^2 / 8,  c = (h^2 + k^2) / 4,

and at rho = -1 the cell is ``max(0, mu + r - 1)``. So the cell is that plus the integral of the derivative from minus
infinity to z, a sum of two terms that are not negative. The other cells follow by reflection: their sums have the terms
``max(0, r - mu)``, ``max(0, mu - r)`` and ``max(0, 1 - mu - r)``, and for the second and the third cell the integral
runs from z to infinity.

The derivative is log-concave in u, so that one interval on each side of its peak contains all of the integral, and
Gauss's quadrature on it is precise to nine digits or more.
"""

import math

import numpy as np
from scipy.special import ndtr

from refusal_index.stats.arguments import FloatArray

CellArrays = tuple[FloatArray, FloatArray, FloatArray, FloatArray]

SMALL_CELL = 1e-9
"""Below this, a cell from Owen's formula has fewer than seven correct digits."""

CELL_FLOOR = 1e-150
"""The smallest cell: its square is not yet zero."""

MAX_DROP = 40.0
"""Where the logarithm of the derivative has dropped by this much, the rest of the integral is negligible."""

LONGEST = 200.0
"""Length that surely contains it: the derivative drops at least as fast as sech."""

PANELS = np.array([0.0, 0.08, 0.25, 0.55, 1.0])
"""Ends of the panels of the quadrature as shares of its length from the peak: sech has poles close to 0."""

PANEL_NODES, PANEL_WEIGHTS = np.polynomial.legendre.leggauss(20)
NODES = (PANELS[:-1, np.newaxis] + np.diff(PANELS)[:, np.newaxis] * (PANEL_NODES + 1) / 2).ravel()
WEIGHTS = np.outer(np.diff(PANELS), PANEL_WEIGHTS / 2).ravel()

PEAK_STEPS = 12
DOUBLINGS = 8
SHORTENINGS = (0.75, 0.85, 0.92, 0.96)


def with_precise_small_cells(cells: CellArrays, h: FloatArray, k: FloatArray, z: FloatArray) -> CellArrays:
    """Replace small cells of tables with thresholds h and k and rho = tanh(z) in place, and return all of them.

    `cells` are those of Owen's formula; all arrays have shape (m,). Replaced ones are at least `CELL_FLOOR`.
    """
    p11, p10, p01, p00 = cells
    for one, other, side in ((p11, p00, 1.0), (p10, p01, -1.0)):
        rows = np.minimum(one, other) < SMALL_CELL
        if rows.any():
            one[rows], other[rows] = _precise_pair(h[rows], side * k[rows], side * z[rows])
    return cells


def with_precise_small_cell(
    cells: tuple[float, float, float, float], h: float, k: float, z: float
) -> tuple[float, float, float, float]:
    """Return the cells of one table like `with_precise_small_cells`."""
    p11, p10, p01, p00 = cells
    if min(p11, p00) < SMALL_CELL:
        p11, p00 = _precise_pair_of_one(h, k, z)
    if min(p10, p01) < SMALL_CELL:
        p10, p01 = _precise_pair_of_one(h, -k, -z)
    return p11, p10, p01, p00


def _precise_pair_of_one(h: float, k: float, z: float) -> tuple[float, float]:
    one, other = _precise_pair(np.array([h]), np.array([k]), np.array([z]))
    return float(one[0]), float(other[0])


def _precise_pair(h: FloatArray, k: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the first and the last cell; with -k and -z, the second and the third."""
    a = (k - h) ** 2 / 8
    b = (k + h) ** 2 / 8
    c = (h * h + k * k) / 4
    integral = integral_to(a, b, c, z)
    # r + mu - 1 is written as the difference of small numbers, which is exact.
    excess = np.where(h > 0, ndtr(-h) - ndtr(k), ndtr(-k) - ndtr(h))
    return (
        np.maximum(np.maximum(excess, 0.0) + integral, CELL_FLOOR),
        np.maximum(np.maximum(-excess, 0.0) + integral, CELL_FLOOR),
    )


def integral_to(a: FloatArray, b: FloatArray, c: FloatArray, z: FloatArray) -> FloatArray:
    """Return the integral of ``sech(u) exp(-a exp(2u) - b exp(-2u) - c) / (2 pi)`` over u below z."""
    peak = _peak(a, b)
    start = np.minimum(peak, z)
    total = _integral_left_of(a, b, start, LONGEST)
    past = z > peak
    if past.any():
        total[past] += _integral_left_of(b[past], a[past], -start[past], (z - start)[past])
    return np.asarray(np.exp(_log_derivative(a, b, start) - c) * total / (2 * math.pi))


def _peak(a: FloatArray, b: FloatArray) -> FloatArray:
    # With w = exp(2u), the derivative is largest at the only positive root of a cubic, which is convex there. Newton's
    # method from an upper bound, the root without the cubic term, approaches it monotonically.
    cubic = 2 * a
    square = 1 + 2 * a
    linear = 1 + 2 * b
    constant = 2 * b
    w = (linear + np.sqrt(linear * linear + 4 * square * constant)) / (2 * square)
    for _ in range(PEAK_STEPS):
        w -= (((cubic * w + square) * w - linear) * w - constant) / ((3 * cubic * w + 2 * square) * w - linear)
    return np.asarray(0.5 * np.log(w))


def _integral_left_of(a: FloatArray, b: FloatArray, start: FloatArray, longest: FloatArray | float) -> FloatArray:
    """Return the integral of the derivative over u from `start`, not beyond its peak, downwards, over its value there.

    At most the length `longest` counts.
    """
    top = _log_derivative(a, b, start)
    rising = a * np.exp(2 * start)
    falling = b * np.exp(-2 * start)
    slope = np.maximum(2 * falling - 2 * rising - np.tanh(start), 0.0)
    curvature = 4 * (rising + falling) + 1 / np.cosh(start) ** 2
    # A quarter of the distance at which a parabola drops by that much; the derivative itself drops there or later.
    length = 0.5 * MAX_DROP / (slope + np.sqrt(slope * slope + 2 * MAX_DROP * curvature))
    length = np.minimum(length, longest)
    for _ in range(DOUBLINGS):
        too_short = top - _log_derivative(a, b, start - length) < MAX_DROP
        if not too_short.any():
            break
        length = np.minimum(np.where(too_short, 2 * length, length), longest)
    for step in SHORTENINGS:
        too_long = top - _log_derivative(a, b, start - step * length) > MAX_DROP
        length = np.where(too_long, step * length, length)
    # Of w = exp(2u), the derivative is 2 sqrt(w) / (1 + w) exp(-a w - b / w).
    w = np.exp(2 * (start[:, np.newaxis] - length[:, np.newaxis] * NODES))
    drop = a[:, np.newaxis] * w + b[:, np.newaxis] / w + top[:, np.newaxis]
    # Where the exponents are so large that their difference is rounding error, the derivative itself is 0.
    values = 2 * np.sqrt(w) / (1 + w) * np.exp(np.minimum(-drop, LONGEST + MAX_DROP))
    return np.asarray(length * (values @ WEIGHTS))


def _log_derivative(a: FloatArray, b: FloatArray, u: FloatArray) -> FloatArray:
    size = np.abs(u)
    return np.asarray(math.log(2) - size - np.log1p(np.exp(-2 * size)) - a * np.exp(2 * u) - b * np.exp(-2 * u))
