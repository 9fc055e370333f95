"""How far a statistic must go at each of several looks, so that looking often errs no more often than looking once.

After a share t of all questions, the estimate in standard errors, times the root of t, is a Brownian motion at the
time t. Its density among the paths that have not crossed a boundary before is carried from one look to the next by
numerical integration (Armitage, McPherson and Rowe), which gives the chance to cross at each look to some twelve
digits.

References
----------
.. [1] Armitage, P., McPherson, C. K. and Rowe, B. C. (1969). Repeated significance tests on accumulating data. Journal
   of the Royal Statistical Society A, 132, 235-244. :doi:`10.2307/2343787`
.. [2] O'Brien, P. C. and Fleming, T. R. (1979). A multiple testing procedure for clinical trials. Biometrics, 35,
   549-556. :doi:`10.2307/2530245`
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr

from refusal_index.stats._ops import SCALAR, FloatArray

FARTHEST = 9.0
"""Standard deviations below which no density is left that a double could show in a sum."""

LARGEST_CONSTANT = 40.0
"""Beyond it the normal tail is below the smallest double."""

NODES, NODES_A_DEVIATION = 40, 3
"""Of the quadrature: at least so many, and so many for each standard deviation of the step between two looks."""


def crossing_probabilities(boundary: ArrayLike, fractions: ArrayLike) -> FloatArray:
    """Chance to be above a boundary for the first time at each look, where there is no effect.

    Parameters
    ----------
    boundary : array_like of float
        Of each look, in standard errors.
    fractions : array_like of float
        Share of the questions that each look has seen, rising, above 0.

    Returns
    -------
    ndarray, shape (looks,)
    """
    bounds, times = np.asarray(boundary, float) * np.sqrt(fractions), np.asarray(fractions, float)
    steps = np.sqrt(np.diff(times, prepend=0.0))
    points, weights = _quadrature(times[-1], float(steps.min()))
    chances = [SCALAR.ndtr(-bounds[0] / steps[0])]
    place, mass = _placed(points, weights, bounds[0], times[0])
    mass = mass * np.exp(-((place / steps[0]) ** 2) / 2) / (steps[0] * math.sqrt(2 * math.pi))
    for bound, time, step in zip(bounds[1:], times[1:], steps[1:], strict=True):
        chances.append(float(mass @ ndtr((place - bound) / step)))
        new, width = _placed(points, weights, bound, time)
        kernel = np.exp(-(((new[:, np.newaxis] - place) / step) ** 2) / 2) / (step * math.sqrt(2 * math.pi))
        place, mass = new, width * (kernel @ mass)
    return np.array(chances)


def obrien_fleming_level(constant: float, fractions: ArrayLike) -> float:
    """Chance to cross O'Brien and Fleming's boundary of a constant at any of the looks, where there is no effect.

    Parameters
    ----------
    constant : float
        The boundary at the last look, in standard errors; at a share t of the questions it is the constant over the
        root of t.
    fractions : array_like of float
        As for `crossing_probabilities`; the last is 1.
    """
    finite = min(max(constant, -FARTHEST), LARGEST_CONSTANT)
    return float(crossing_probabilities(finite / np.sqrt(fractions), fractions).sum())


@lru_cache(maxsize=64)
def obrien_fleming_constant(fractions: tuple[float, ...], alpha: float) -> float:
    """Constant of the O'Brien-Fleming boundary that is crossed with the chance `alpha` where there is no effect.

    Examples
    --------
    >>> round(obrien_fleming_constant((0.2, 0.4, 0.6, 0.8, 1.0), 0.05), 4)
    1.7509
    """
    low = -SCALAR.ndtri(alpha)  # one look alone
    return float(brentq(lambda constant: obrien_fleming_level(constant, fractions) - alpha, low - 1e-9, low + 3))


def _quadrature(longest: float, step: float) -> tuple[FloatArray, FloatArray]:
    """Return points and weights on [0, 1] that resolve a step."""
    reach = 2 * FARTHEST * math.sqrt(longest)
    points, weights = np.polynomial.legendre.leggauss(NODES + math.ceil(NODES_A_DEVIATION * reach / step))
    return (points + 1) / 2, weights / 2


def _placed(points: FloatArray, weights: FloatArray, bound: float, time: float) -> tuple[FloatArray, FloatArray]:
    """Place the quadrature between where nothing is left and the boundary, or where nothing is left above."""
    reach = FARTHEST * math.sqrt(time)
    low, high = min(-reach, bound), min(bound, reach)
    return low + (high - low) * points, (high - low) * weights
