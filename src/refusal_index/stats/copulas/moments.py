r"""One copula parameter fitted to several tables over the same questions, by the generalised method of moments.

For each of k tables the moment is the observed share of refused and wrong questions minus the one predicted at the
observed rates, ``d = p11 - C(r, mu; theta)``. Its influence function ``R W - alpha R - beta W - mean``, with
``alpha = dC/dr`` and ``beta = dC/dmu``, gives the covariances over the questions that tables share [1]_.

The variances are those of the fitted copula and only the correlations those of the questions. With observed variances
an empty cell, which says little, looks like a table without noise: over refusal rates from .03 to .97 a test of size
.05 would reject .5 of the time.

The statistic ``d' V^-1 d`` is minimised over theta with V evaluated at the same theta (continuous updating [2]_), so
that it does not depend on the scale of the parameter, and has a minimum where an iterated weighting has no solution.

All of it is done for many data sets at once: arrays begin with a dimension of b data sets.

References
----------
.. [1] Hansen (1982). :doi:`10.2307/1912775`
.. [2] Hansen et al. (1996). :doi:`10.1080/07350015.1996.10524656`
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.copulas.families import CopulaFamily, cell_and_rate_slopes
from refusal_index.stats.matrices import BoolArray

IntArray = NDArray[np.int_]

# Strengths beyond this are perfect dependence as far as a test is concerned: |rho| = .999, Kendall's tau above .95.
LARGEST_STRENGTH = 4.0
GRID_POINTS = 33
# Each narrows the bracket to 0.618 of its length, down to 1e-8, beyond which a minimum cannot be located.
SECTIONS = 36
GOLDEN = 0.5 * (5**0.5 - 1)
# Moments whose correlations leave a direction with less variance than this determine each other.
SMALLEST_EIGENVALUE = 1e-10
SMALLEST_VARIANCE = 1e-300


class Moments(NamedTuple):
    """What the test needs of b data sets of k tables each.

    `means` holds the shares of questions refused and wrong, refused, and wrong, shape (b, k, 3); `products` the sums
    over questions of the products of (RW, R, W, 1) of two tables over both their numbers of questions, shape
    (b, k, 4, k, 4).
    """

    means: FloatArray
    products: FloatArray


class CommonFit(NamedTuple):
    """One strength fitted to the k tables of each of b data sets; arrays of shape (b,)."""

    strength: FloatArray
    statistic: FloatArray
    rank: IntArray
    at_weakest: BoolArray
    at_strongest: BoolArray


def moments(refused: BoolArray, wrong: BoolArray, scored: BoolArray, weights: FloatArray) -> Moments:
    """Sum over questions, or patterns of outcomes: matrices of shape (k, m), and weights (counts) of shape (b, m)."""
    features = np.stack([refused & wrong & scored, refused & scored, wrong & scored, scored], axis=1).astype(float)
    sums = np.einsum("kfm,bm->bkf", features, weights)
    n = sums[:, :, 3]
    flat = features.reshape(-1, features.shape[2])
    products = ((weights[:, np.newaxis] * flat) @ flat.T).reshape(
        len(weights), *features.shape[:2], *features.shape[:2]
    )
    scale = n[:, :, np.newaxis, np.newaxis, np.newaxis] * n[:, np.newaxis, np.newaxis, :, np.newaxis]
    return Moments(sums[:, :, :3] / n[:, :, np.newaxis], products / scale)


def fit_common_strength(spec: CopulaFamily, data: Moments) -> CommonFit:
    """Find the strength with the smallest statistic in each data set: on a grid, then by golden sections."""

    def statistic(strength: FloatArray) -> FloatArray:
        return statistic_and_rank(spec, data, strength)[0]

    grid = np.linspace(max(spec.limits[0], -LARGEST_STRENGTH), LARGEST_STRENGTH, GRID_POINTS)
    on_grid = np.stack([statistic(np.full(len(data.means), strength)) for strength in grid])
    best = np.argmin(on_grid, axis=0)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, GRID_POINTS - 1)]
    strength = _golden_section(statistic, low, high)
    found, rank = statistic_and_rank(spec, data, strength)
    at_start = on_grid[0] <= found
    return CommonFit(
        np.where(at_start, grid[0], strength),
        np.where(at_start, on_grid[0], found),
        rank,
        at_start,
        best == GRID_POINTS - 1,
    )


def _golden_section(function: Callable[[FloatArray], FloatArray], low: FloatArray, high: FloatArray) -> FloatArray:
    inner_low, inner_high = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_low, at_high = function(inner_low), function(inner_high)
    for _ in range(SECTIONS):
        left = at_low < at_high
        low, high = np.where(left, low, inner_low), np.where(left, inner_high, high)
        new = np.where(left, high - GOLDEN * (high - low), low + GOLDEN * (high - low))
        at_new = function(new)
        inner_low, inner_high = np.where(left, new, inner_high), np.where(left, inner_low, new)
        at_low, at_high = np.where(left, at_new, at_high), np.where(left, at_low, at_new)
    return 0.5 * (low + high)


def statistic_and_rank(spec: CopulaFamily, data: Moments, strength: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the statistic ``d' V^-1 d`` of each data set at the given strength, and the rank of V."""
    p11, r, mu = np.moveaxis(data.means, 2, 0)
    cell, alpha, beta = cell_and_rate_slopes(spec, r, mu, strength[:, np.newaxis])
    weights, rank = _weights(data, cell, alpha, beta)
    return np.einsum("bk,bkl,bl->b", p11 - cell, weights, p11 - cell), rank


def _weights(data: Moments, cell: FloatArray, alpha: FloatArray, beta: FloatArray) -> tuple[FloatArray, IntArray]:
    """Inverse covariance of the moments, correlations observed and variances modelled; also its rank."""
    p11, r, mu = np.moveaxis(data.means, 2, 0)
    coefficients = np.stack([np.ones_like(p11), -alpha, -beta, alpha * r + beta * mu - p11], axis=2)
    observed = np.einsum("bkf,bkflg,blg->bkl", coefficients, data.products, coefficients, optimize=True)
    # Mean of the squared influence over the four cells that the copula predicts.
    cells = np.maximum([cell, r - cell, mu - cell, 1 - r - mu + cell], SMALLEST_VARIANCE)
    influence = np.stack([1 - alpha - beta, -alpha, -beta, np.zeros_like(alpha)]) - (cell - alpha * r - beta * mu)
    one_over_n = np.diagonal(data.products[:, :, 3, :, 3], axis1=1, axis2=2)
    modelled = np.sum(cells * influence**2, axis=0) * one_over_n
    inverse, rank = inverse_correlation(observed)
    deviation = np.sqrt(np.maximum(modelled, SMALLEST_VARIANCE))
    return inverse / (deviation[:, :, np.newaxis] * deviation[:, np.newaxis, :]), rank


def inverse_correlation(covariance: FloatArray) -> tuple[FloatArray, IntArray]:
    """Invert the correlations of covariance matrices of shape (..., k, k); also the ranks, of shape (...).

    Directions without variance are left out: two prompts with the same outcomes then count as one.
    """
    deviation = np.sqrt(np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), SMALLEST_VARIANCE))
    scale = deviation[..., :, np.newaxis] * deviation[..., np.newaxis, :]
    values, vectors = np.linalg.eigh(covariance / scale)
    kept = values > SMALLEST_EIGENVALUE
    inverse = np.where(kept, 1 / np.where(kept, values, 1), 0)
    return (vectors * inverse[..., np.newaxis, :]) @ np.swapaxes(vectors, -1, -2), kept.sum(axis=-1)
