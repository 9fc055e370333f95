r"""One copula parameter fitted to several tables over the same questions, by the method of moments.

For each of k tables the moment is the observed share of refused and wrong questions minus the one predicted at the
observed rates, ``d = p11 - C(r, mu; theta)``. Its influence function ``R W - alpha R - beta W - mean``, with
``alpha = dC/dr`` and ``beta = dC/dmu``, gives the covariances over the questions that tables share [1]_.

The variances are those of the fitted copula and only the correlations those of the questions. With observed variances
an empty cell, which says little, looks like a table without noise.

The sum ``d_k^2 / v_k`` of squares over variances is minimised over theta with the variances at the same theta
(continuous updating [2]_), so that it does not depend on the scale of the parameter. What is left over is referred to
a scaled chi-squared distribution (`refusal_index.stats.quadratic_form`); the quadratic form with the inverse of the
whole covariance, whose reference would be chi-squared itself, rejects a true copula a fifth of the time with 8 tables
of 450 questions.

All of it is done for many data sets at once: arrays begin with a dimension of b data sets.

References
----------
.. [1] Hansen (1982). :doi:`10.2307/1912775`
.. [2] Hansen et al. (1996). :doi:`10.1080/07350015.1996.10524656`
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.copulas.families import CopulaFamily, cell_and_rate_slopes, strength_slope
from refusal_index.stats.matrices import BoolArray
from refusal_index.stats.quadratic_form import traces

# Strengths beyond this are perfect dependence as far as a test is concerned: |rho| = .999, Kendall's tau above .95.
LARGEST_STRENGTH = 4.0
GRID_POINTS = 33
# Each narrows the bracket to 0.618 of its length, down to 1e-8, beyond which a minimum cannot be located.
SECTIONS = 36
GOLDEN = 0.5 * (5**0.5 - 1)
SMALLEST_VARIANCE = 1e-300


class Moments(NamedTuple):
    """What the test needs of b data sets of k tables each.

    `features` holds (RW, R, W, 1) of every pattern of outcomes under every prompt, shape (b or 1, k, 4, m), and
    `counts` how many questions have the pattern, shape (b, m). `n` holds the questions of each table, shape (b, k), and
    `means` their shares of questions refused and wrong, refused, and wrong, shape (b, k, 3).
    """

    features: FloatArray
    counts: FloatArray
    n: FloatArray
    means: FloatArray


class CommonFit(NamedTuple):
    """One strength fitted to the k tables of each of b data sets; arrays of shape (b,)."""

    strength: FloatArray
    statistic: FloatArray
    degrees_of_freedom: FloatArray
    pvalue: FloatArray
    at_weakest: BoolArray
    at_strongest: BoolArray


def moments(refused: BoolArray, wrong: BoolArray, scored: BoolArray, counts: FloatArray) -> Moments:
    """Sum over questions, or patterns of outcomes.

    The matrices have shape (k, m), or (b, k, m) where every data set has patterns of its own, `counts` (b, m).
    """
    features = np.stack([refused & wrong & scored, refused & scored, wrong & scored, scored], axis=-2).astype(float)
    features = features.reshape(-1, *features.shape[-3:])
    sums = np.einsum("bkfm,bm->bkf", *_same_length(features, counts), optimize=True)
    n = sums[:, :, 3]
    return Moments(features, counts, n, sums[:, :, :3] / n[:, :, np.newaxis])


def _same_length(features: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.broadcast_to(features, (len(counts), *features.shape[1:])), counts


def fit_common_strength(spec: CopulaFamily, data: Moments) -> CommonFit:
    """Find the strength with the smallest sum of squares in each data set: on a grid, then by golden sections."""

    def sum_of_squares(strength: FloatArray) -> FloatArray:
        left_over, variance, _ = _left_over(spec, data, strength)
        return np.asarray(np.sum(left_over**2 / variance, axis=1))

    grid = np.linspace(max(spec.limits[0], -LARGEST_STRENGTH), LARGEST_STRENGTH, GRID_POINTS)
    on_grid = np.stack([sum_of_squares(np.full(len(data.counts), strength)) for strength in grid])
    best = np.argmin(on_grid, axis=0)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, GRID_POINTS - 1)]
    strength = _golden_section(sum_of_squares, low, high)
    at_start = on_grid[0] <= sum_of_squares(strength)
    strength = np.where(at_start, grid[0], strength)
    fitted = ~at_start if not spec.can_be_negative else np.ones_like(at_start)
    statistic, freedom, pvalue = _reference(spec, data, strength, fitted)
    return CommonFit(strength, statistic, freedom, pvalue, at_start, best == GRID_POINTS - 1)


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


def _left_over(
    spec: CopulaFamily, data: Moments, strength: FloatArray
) -> tuple[FloatArray, FloatArray, tuple[FloatArray, FloatArray]]:
    """Return the moments at the given strength, their variances under the copula, and its slopes in the rates."""
    p11, r, mu = np.moveaxis(data.means, 2, 0)
    cell, alpha, beta = cell_and_rate_slopes(spec, r, mu, strength[:, np.newaxis])
    # Mean of the squared influence over the four cells that the copula predicts.
    cells = np.maximum([cell, r - cell, mu - cell, 1 - r - mu + cell], SMALLEST_VARIANCE)
    influence = np.stack([1 - alpha - beta, -alpha, -beta, np.zeros_like(alpha)]) - (cell - alpha * r - beta * mu)
    variance = np.maximum(np.sum(cells * influence**2, axis=0) / data.n, SMALLEST_VARIANCE)
    return p11 - cell, variance, (alpha, beta)


def _reference(
    spec: CopulaFamily, data: Moments, strength: FloatArray, fitted: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scale the sum of squares to be chi-squared; `fitted` is False where no strength was fitted to the moments."""
    left_over, variance, (alpha, beta) = _left_over(spec, data, strength)
    p11, r, mu = np.moveaxis(data.means, 2, 0)
    coefficients = np.stack([np.ones_like(p11), -alpha, -beta, alpha * r + beta * mu - p11], axis=2)
    influence = np.einsum("bkf,bkfm->bkm", coefficients, _same_length(*data[:2])[0], optimize=True)
    observed = np.sqrt(np.sum(influence**2 * data.counts[:, np.newaxis], axis=2, keepdims=True))
    deviations = influence / np.maximum(observed, SMALLEST_VARIANCE)
    # What the strength explains is taken out, in the direction in which it moves the moments.
    slope = strength_slope(spec, r, mu, strength[:, np.newaxis]) / np.sqrt(variance)
    slope *= fitted[:, np.newaxis] / np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), SMALLEST_VARIANCE)
    deviations -= slope[:, :, np.newaxis] * np.einsum("bk,bkm->bm", slope, deviations)[:, np.newaxis]
    found, total = traces(deviations, data.counts), np.sum(left_over**2 / variance, axis=1)
    most = left_over.shape[1] - fitted.astype(int)
    return *found.scaled(total, most), found.pvalue(total, most)
