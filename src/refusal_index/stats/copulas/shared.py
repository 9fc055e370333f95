"""Do several prompts over the same questions share one copula? A test that can choose between families.

A single table fits every family. K prompts that make the same model more or less cautious cut one and the same
dependence at K places; a family then predicts K cells with one parameter, and K - 1 predictions can fail. For the
Gaussian family this tests whether all prompts have the same rho.

The test takes any prompts over the same questions (`refusal_index.stats.copulas.shared` has the formulas):
refusals need not be nested, not every prompt needs every question, the error may be another answer's in each, and a
table with an empty cell is no obstacle.

One copula parameter fitted to several tables over the same questions, by the method of moments.

For each of k tables the moment is the observed share of refused and wrong questions minus the one predicted at the
observed rates, ``d = p11 - C(r, mu; theta)``. Its influence function ``R W - alpha R - beta W - mean``, with
``alpha = dC/dr`` and ``beta = dC/dmu``, gives the covariances over the questions that tables share [1]_.

The variances are those of the fitted copula and only the correlations those of the questions. With observed variances
an empty cell, which says little, looks like a table without noise.

The sum ``d_k^2 / v_k`` of squares over variances is minimised over theta with the variances at the same theta
(continuous updating [2]_), so that it does not depend on the scale of the parameter. What is left over is referred to
a scaled chi-squared distribution (`refusal_index.stats.copulas.shared`); the quadratic form with the inverse of the
whole covariance, whose reference would be chi-squared itself, rejects a true copula a fifth of the time with 8 tables
of 450 questions.

All of it is done for many data sets at once: arrays begin with a dimension of b data sets.

References
----------
.. [1] Hansen (1982). :doi:`10.2307/1912775`
.. [2] Hansen et al. (1996). :doi:`10.1080/07350015.1996.10524656`

Sums of squares with fixed weights, and the chi-squared distribution that they are referred to.

Where k estimates rest on the same questions, their covariance is estimated from those questions too. Its inverse
stresses the directions with the least variance, which are the ones that are estimated worst: with 8 tables of 450
questions a statistic ``d' V^-1 d`` rejects a true hypothesis a third of the time. A sum of squares with weights that do
not depend on the correlations needs no inverse. If A is the covariance of the weighted deviations, it is distributed
as a sum of independent chi-squared variables with A's eigenvalues as factors, which has mean tr A and variance
2 tr A^2; the scaled chi-squared variable with these two moments is taken for it [1]_.

``tr A`` is a sum over questions and is estimated without bias; ``(tr A)^2`` and ``tr A^2`` are sums over pairs of
questions, and what a question makes with itself is left out of both, since it would stand for noise [2]_.

References
----------
.. [1] Box, G. E. P. (1954). Some theorems on quadratic forms applied in the study of analysis of variance problems, I.
   The Annals of Mathematical Statistics, 25, 290-302. :doi:`10.1214/aoms/1177728786`
.. [2] Chen, S. X. and Qin, Y.-L. (2010). A two-sample test for high-dimensional data with applications to gene-set
   testing. The Annals of Statistics, 38, 808-835. :doi:`10.1214/09-AOS716`
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.copulas.families import (
    COPULA_NAMES,
    DEFAULT_DF,
    CopulaFamily,
    CopulaName,
    cell_and_rate_slopes,
    copula_family,
    parameter_range,
    strength_slope,
)
from refusal_index.stats.estimate import Status
from refusal_index.stats.intervals import refusal_index
from refusal_index.stats.matrices import BoolArray, checked_matrices, repeat_each_other, row_tables


class Traces(NamedTuple):
    """What is known of the covariance A of the weighted deviations of b data sets; arrays of shape (b,).

    `trace` is tr A, `of_square` an estimate of tr A^2 without a question's product with itself, and `own` the sum of
    these products.
    """

    trace: FloatArray
    of_square: FloatArray
    own: FloatArray

    def degrees_of_freedom(self, most: ArrayLike) -> FloatArray:
        """Effective number of squares, from 1 to `most`."""
        with np.errstate(invalid="ignore", divide="ignore"):
            found = (self.trace**2 - self.own) / self.of_square
        return np.asarray(np.clip(np.where(np.isnan(found), 1.0, found), 1.0, most))

    def scaled(self, sum_of_squares: FloatArray, most: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the statistic that is chi-squared, and its degrees of freedom; NaN where A is 0."""
        freedom = self.degrees_of_freedom(most)
        with np.errstate(invalid="ignore", divide="ignore"):
            statistic = np.where(self.trace > 0, sum_of_squares * freedom / self.trace, np.nan)
        return statistic, freedom

    def pvalue(self, sum_of_squares: FloatArray, most: ArrayLike) -> FloatArray:
        """Probability of a sum of squares as large."""
        statistic, freedom = self.scaled(sum_of_squares, most)
        return np.asarray(special.chdtrc(freedom, statistic))


def traces(deviations: FloatArray, counts: FloatArray) -> Traces:
    """Take the traces from what each question adds to the k weighted deviations.

    `deviations` has shape (b, k, m), one column a question or a pattern of outcomes, `counts` shape (b, m) says how
    many questions a column stands for.
    """
    squares = np.einsum("bkm,bkm->bm", deviations, deviations)
    covariance = (deviations * counts[:, np.newaxis]) @ np.swapaxes(deviations, 1, 2)
    own = np.sum(counts * squares**2, axis=1)
    of_square = np.einsum("bkl,bkl->b", covariance, covariance) - own
    return Traces(np.sum(counts * squares, axis=1), of_square, own)


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


@dataclass(frozen=True, slots=True)
class CopulaTestResult:
    """Whether several tables share one copula of a family.

    Attributes
    ----------
    family : str
        The family tested.
    parameter : float or None
        The parameter that fits all tables best. None where undefined.
    statistic : float or None
        How far the tables are from that fit; scaled to be chi-squared if the family holds. None where undefined.
    degrees_of_freedom : float or None
        At most the tables less one for the parameter, and the fewer the more the tables say the same.
    pvalue : float or None
        Probability of a statistic as large if the family holds. None where undefined.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: the parameter is at an end of its range.
    reason : str or None
        At the boundary ``"independence"`` (the family cannot be negative: no parameter was fitted, and none is taken
        off the degrees of freedom) or ``"perfect_dependence"`` (no statistic). Where undefined
        ``"fewer_than_two_tables"``, ``"tables_repeat_each_other"`` if all prompts have the same outcomes, or
        ``"no_variation"`` if a handful of questions leaves nothing to test.
    tables : tuple of ContingencyTable
        One a prompt, those of `left_out` included.
    """

    family: CopulaName
    parameter: float | None
    statistic: float | None
    degrees_of_freedom: float | None
    pvalue: float | None
    status: Status
    reason: str | None
    tables: tuple[ContingencyTable, ...]

    @property
    def left_out(self) -> dict[int, str]:
        """Rows of the tables that say nothing about the dependence, each with the reason of `RefusalIndexResult`."""
        return why_left_out(self.tables)


def copula_test(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    family: CopulaName = "gaussian",
    df: float = DEFAULT_DF,
) -> CopulaTestResult:
    """Test whether several prompts over the same questions share one copula of a family.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (k, n)
        One row a prompt of the same model, one column a question; as for `ContingencyTable.from_arrays`.
    scored : array_like of bool, shape (k, n), optional
        False where a prompt has no grade for a question; all True if not given.
    family : {"gaussian", "t", "clayton", "gumbel", "frank", "survival_clayton", "survival_gumbel"}
        The family under test.
    df : float, default: 4
        Degrees of freedom of the t copula.

    Returns
    -------
    CopulaTestResult
        A prompt whose table has a degenerate margin (nobody refused, say) is left out.

    Raises
    ------
    TypeError, ValueError
        If the matrices are not truth values of one shape, or the family is unknown.

    Notes
    -----
    A small p-value speaks against one copula of that family behind all prompts: the family is wrong, or the prompts
    change the dependence itself. A large one is weak support. The simulated power of the Gaussian test at .05 with four
    prompts and 4,326 questions is .05 to .15 against a Gumbel copula at error rates from .75 to .92, and .87 at .5;
    .9 and above against a t copula at these, and .1 at .5; .15 to .7 against Frank's. Its size is .03 to .07 for 2 to
    24 prompts and 450 to 4,326 questions.

    References
    ----------
    .. [1] Hansen, L. P. (1982). Large sample properties of generalized method of moments estimators. Econometrica, 50,
       1029-1054. :doi:`10.2307/1912775`
    .. [2] Hansen, L. P., Heaton, J. and Yaron, A. (1996). Finite-sample properties of some alternative GMM estimators.
       Journal of Business & Economic Statistics, 14, 262-280. :doi:`10.1080/07350015.1996.10524656`
    .. [3] Box (1954). :doi:`10.1214/aoms/1177728786`

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> refusal, noise = rng.standard_normal((2, 3000))
    >>> refused = refusal > np.array([[-0.8], [0.0], [0.8]])
    >>> wrong = np.broadcast_to(0.5 * refusal + 0.75**0.5 * noise > -0.4, refused.shape)
    >>> result = copula_test(refused, wrong)
    >>> round(result.degrees_of_freedom, 2), round(result.parameter, 2), result.pvalue > 0.05
    (1.85, 0.49, True)
    """
    matrices = checked_matrices(refused, wrong, scored)
    spec, tables = copula_family(family, df), row_tables(*matrices)

    def undefined(reason: str) -> CopulaTestResult:
        return CopulaTestResult(family, None, None, None, None, "undefined", reason, tables)

    kept = [row for row in range(len(tables)) if row not in why_left_out(tables)]
    if len(kept) < 2:
        return undefined("fewer_than_two_tables")
    r, w, s = (matrix[kept] for matrix in matrices)
    if repeat_each_other(r, w, s):
        return undefined("tables_repeat_each_other")
    fit = fit_common_strength(spec, moments(r, w, s, np.ones((1, r.shape[1]))))
    if fit.at_strongest[0] or (fit.at_weakest[0] and spec.can_be_negative):
        end = math.copysign(parameter_range(family)[1], fit.strength[0])
        return CopulaTestResult(family, end, None, None, None, "boundary", "perfect_dependence", tables)
    if math.isnan(fit.pvalue[0]):
        return undefined("no_variation")
    found = spec.parameter(fit.strength), fit.statistic, fit.degrees_of_freedom, fit.pvalue
    parameter, statistic, freedom, pvalue = (float(values[0]) for values in found)
    if fit.at_weakest[0]:
        return CopulaTestResult(family, parameter, statistic, freedom, pvalue, "boundary", "independence", tables)
    return CopulaTestResult(family, parameter, statistic, freedom, pvalue, "ok", None, tables)


def copula_tests(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None, *, df: float = DEFAULT_DF
) -> tuple[CopulaTestResult, ...]:
    """Test every family on the same prompts, the best fitting first.

    Parameters are those of `copula_test`.

    Returns
    -------
    tuple of CopulaTestResult
        By falling p-value, those without one last. The first family fits best; the p-values say which others are not
        ruled out.

    Raises
    ------
    TypeError, ValueError
        As `copula_test`, or if `df` is not positive and finite.

    References
    ----------
    .. [1] Hansen (1982). :doi:`10.2307/1912775`
    .. [2] Hansen et al. (1996). :doi:`10.1080/07350015.1996.10524656`

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> refusal, noise = rng.standard_normal((2, 3000))
    >>> refused = refusal > np.array([[-0.8], [0.0], [0.8]])
    >>> wrong = np.broadcast_to(0.5 * refusal + 0.75**0.5 * noise > -0.4, refused.shape)
    >>> [result.family for result in copula_tests(refused, wrong) if result.pvalue < 0.001]
    ['clayton', 'survival_clayton']
    """
    results = [copula_test(refused, wrong, scored, family=family, df=df) for family in COPULA_NAMES]
    return tuple(sorted(results, key=lambda result: -1.0 if result.pvalue is None else result.pvalue, reverse=True))


def why_left_out(tables: tuple[ContingencyTable, ...]) -> dict[int, str]:
    """Rows of the tables with a degenerate margin, each with its reason."""
    results = {row: refusal_index(table) for row, table in enumerate(tables)}
    return {row: result.reason or "" for row, result in results.items() if result.status == "undefined"}
