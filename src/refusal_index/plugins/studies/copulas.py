"""Tests whether several prompts share one copula, and the paper's comparison of copulas over single tables.

**Test over several prompts.** The test whether several prompts over the same questions share one copula can distinguish
families.

Prompts that make the same model more or less cautious observe one dependence at K thresholds. A family then predicts K
cells with one parameter, so K - 1 predictions can fail. For the Gaussian family this tests whether all prompts have the
same rho.

The test applies to any prompts over the same questions: refusals need not be nested, prompts may lack questions, errors
may refer to different answers for each prompt, and tables may have empty cells.

**Fit to several tables.** The parameter is fitted by the method of moments.

For each of k tables the moment is the observed share of refused and wrong questions minus the one predicted at the
observed rates, ``d = p11 - C(r, mu; theta)``. Its influence function ``R W - alpha R - beta W - mean``, with
``alpha = dC/dr`` and ``beta = dC/dmu``, gives the covariances over the questions that tables share [1]_.

The variances are those of the fitted copula; only the correlations are estimated from the questions. With observed
variances, a table with an empty cell, which contains little information, would appear to be free of noise.

The sum ``d_k^2 / v_k`` of squares over variances is minimised over theta with the variances at the same theta
(continuous updating [2]_), so that the result does not depend on the scale of the parameter. The minimum is compared
with a scaled chi-squared distribution (see `refusal_index.stats.joint`). The quadratic form with the inverse of the
full covariance would be chi-squared distributed, but rejects a true copula in a fifth of simulations with 8 tables of
450 questions.

All computations are vectorised over data sets: the first dimension of arrays is that of b data sets.

References
----------
.. [1] Hansen (1982). :doi:`10.2307/1912775`
.. [2] Hansen et al. (1996). :doi:`10.1080/07350015.1996.10524656`
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats.arguments import BoolArray, FloatArray, checked_matrices
from refusal_index.stats.contingency import ContingencyTable, repeat_each_other, row_tables
from refusal_index.stats.copulas import (
    COPULA_NAMES,
    CopulaFamily,
    CopulaName,
    cell_and_rate_slopes,
    copula_family,
    fit_copula,
    parameter_range,
    strength_slope,
)
from refusal_index.stats.estimate import Status
from refusal_index.stats.intervals import refusal_index
from refusal_index.stats.joint import traces

# Log-likelihoods and criteria that differ less are equal: a likelihood ratio of 1.0001 is no evidence, and an optimiser
# that ends slightly before its maximum would count as a loss.
TIE = 1e-4
CRITERIA = ("log_likelihood", "aic", "bic")


def copula_win_rates(tables: Iterable[ContingencyTable]) -> list[dict[str, Any]]:
    """Compare every family with the Gaussian copula over many tables, as the paper does.

    Parameters
    ----------
    tables : iterable of ContingencyTable
        One table per model and prompt. Tables without a defined estimate are excluded.

    Returns
    -------
    list of dict
        One row per family, in the order of `COPULA_NAMES`: ``family``; the means of ``log_likelihood``, ``aic`` and
        ``bic`` over the tables; for each of these ``gaussian_wins_NAME``, the share of the tables for which the
        Gaussian copula is better, where ties count one half; and ``ties``, the share of the tables for which both
        log-likelihoods are equal. Shares are None for the Gaussian, which is not compared with itself. Empty without
        tables.

    Raises
    ------
    TypeError
        As `fit_copula`.

    Notes
    -----
    Tables are saturated (see `fit_copula`), so on a table with positive dependence every family ties, and the Gaussian
    beats t only by the penalty for its degrees of freedom. A win rate above one half against Clayton or Gumbel reflects
    tables with negative dependence.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Validating the Gaussian Copula Assumption".

    Examples
    --------
    >>> rows = copula_win_rates([ContingencyTable(710, 30, 210, 50), ContingencyTable(400, 50, 500, 50)])
    >>> [(row["family"], row["gaussian_wins_log_likelihood"], row["ties"]) for row in rows[1:3]]
    [('t', 0.5, 1.0), ('clayton', 0.75, 0.5)]
    """
    defined = [table for table in tables if refusal_index(table).status != "undefined"]
    if not defined:
        return []
    criteria = {family: np.array([_criteria(table, family) for table in defined]) for family in COPULA_NAMES}
    rows = []
    for family, values in criteria.items():
        row: dict[str, Any] = {"family": family, **dict(zip(CRITERIA, values.mean(axis=0).tolist(), strict=True))}
        rows.append(row)
        if family == "gaussian":
            row |= dict.fromkeys(["ties", *(f"gaussian_wins_{name}" for name in CRITERIA)])
            continue
        # A larger log-likelihood and a smaller criterion are better.
        lead = (criteria["gaussian"] - values) * (1, -1, -1)
        shares = np.where(np.abs(lead) < TIE, 0.5, lead > 0).mean(axis=0).tolist()
        row["ties"] = float(np.mean(np.abs(lead[:, 0]) < TIE))
        row |= zip((f"gaussian_wins_{name}" for name in CRITERIA), shares, strict=True)
    return rows


def _criteria(table: ContingencyTable, family: CopulaName) -> tuple[float, float, float]:
    """Return log-likelihood, AIC and BIC of a fit to a table with a defined index.

    The degrees of freedom of the t copula count as a second parameter, as in the paper.
    """
    likelihood = fit_copula(table, family).log_likelihood or 0.0
    k = 2 if family == "t" else 1
    return likelihood, 2 * k - 2 * likelihood, k * math.log(table.n) - 2 * likelihood


# Strengths beyond this count as perfect dependence in the test: |rho| = .999, Kendall's tau above .95.
MAX_TESTED_STRENGTH = 4.0
GRID_POINTS = 33
# Each step reduces the bracket to 0.618 of its length, to 1e-8 in all; a minimum cannot be located more precisely.
SECTIONS = 36
GOLDEN = 0.5 * (5**0.5 - 1)
MIN_VARIANCE = 1e-300


class Moments(NamedTuple):
    """Sufficient statistics of the test for b data sets of k tables each.

    `features` contains (RW, R, W, 1) for every pattern of outcomes under every prompt, shape (b or 1, k, 4, m), and
    `counts` the number of questions with each pattern, shape (b, m). `n` contains the number of questions of each
    table, shape (b, k), and `means` their shares of questions that are refused and wrong, refused, and wrong, shape (b,
    k, 3).
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
    """Return the sufficient statistics of questions, or of patterns of outcomes.

    The matrices have shape (k, m), or (b, k, m) if every data set has its own patterns; `counts` has shape (b, m).
    """
    features = np.stack([refused & wrong & scored, refused & scored, wrong & scored, scored], axis=-2).astype(float)
    features = features.reshape(-1, *features.shape[-3:])
    sums = np.einsum("bkfm,bm->bkf", *_same_length(features, counts), optimize=True)
    n = sums[:, :, 3]
    return Moments(features, counts, n, sums[:, :, :3] / n[:, :, np.newaxis])


def _same_length(features: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.broadcast_to(features, (len(counts), *features.shape[1:])), counts


def fit_common_strength(spec: CopulaFamily, data: Moments) -> CommonFit:
    """Return the strength with the smallest sum of squares in each data set, by a grid and golden-section search."""

    def sum_of_squares(strength: FloatArray) -> FloatArray:
        left_over, variance, _ = _left_over(spec, data, strength)
        return np.asarray(np.sum(left_over**2 / variance, axis=1))

    grid = np.linspace(max(spec.limits[0], -MAX_TESTED_STRENGTH), MAX_TESTED_STRENGTH, GRID_POINTS)
    on_grid = np.stack([sum_of_squares(np.full(len(data.counts), strength)) for strength in grid])
    best = np.argmin(on_grid, axis=0)
    low = grid[np.maximum(best - 1, 0)]
    high = grid[np.minimum(best + 1, GRID_POINTS - 1)]
    strength = _golden_section(sum_of_squares, low, high)
    at_start = on_grid[0] <= sum_of_squares(strength)
    strength = np.where(at_start, grid[0], strength)
    fitted = ~at_start if not spec.can_be_negative else np.ones_like(at_start)
    statistic, freedom, pvalue = _reference(spec, data, strength, fitted)
    return CommonFit(strength, statistic, freedom, pvalue, at_start, best == GRID_POINTS - 1)


def _golden_section(function: Callable[[FloatArray], FloatArray], low: FloatArray, high: FloatArray) -> FloatArray:
    inner_low = high - GOLDEN * (high - low)
    inner_high = low + GOLDEN * (high - low)
    at_low = function(inner_low)
    at_high = function(inner_high)
    for _ in range(SECTIONS):
        left = at_low < at_high
        low = np.where(left, low, inner_low)
        high = np.where(left, inner_high, high)
        new = np.where(left, high - GOLDEN * (high - low), low + GOLDEN * (high - low))
        at_new = function(new)
        inner_low, inner_high = np.where(left, new, inner_high), np.where(left, inner_low, new)
        at_low, at_high = np.where(left, at_new, at_high), np.where(left, at_low, at_new)
    return 0.5 * (low + high)


def _left_over(
    spec: CopulaFamily, data: Moments, strength: FloatArray
) -> tuple[FloatArray, FloatArray, tuple[FloatArray, FloatArray]]:
    """Return the moments at a strength, their variances under the copula, and its derivatives in the rates."""
    p11, r, mu = np.moveaxis(data.means, 2, 0)
    cell, alpha, beta = cell_and_rate_slopes(spec, r, mu, strength[:, np.newaxis])
    # The mean squared influence over the four predicted cells.
    cells = np.maximum([cell, r - cell, mu - cell, 1 - r - mu + cell], MIN_VARIANCE)
    influence = np.stack([1 - alpha - beta, -alpha, -beta, np.zeros_like(alpha)]) - (cell - alpha * r - beta * mu)
    variance = np.maximum(np.sum(cells * influence**2, axis=0) / data.n, MIN_VARIANCE)
    return p11 - cell, variance, (alpha, beta)


def _reference(
    spec: CopulaFamily, data: Moments, strength: FloatArray, fitted: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the sum of squares scaled to be chi-squared; `fitted` is False if no strength was fitted."""
    left_over, variance, (alpha, beta) = _left_over(spec, data, strength)
    p11, r, mu = np.moveaxis(data.means, 2, 0)
    coefficients = np.stack([np.ones_like(p11), -alpha, -beta, alpha * r + beta * mu - p11], axis=2)
    influence = np.einsum("bkf,bkfm->bkm", coefficients, _same_length(*data[:2])[0], optimize=True)
    observed = np.sqrt(np.sum(influence**2 * data.counts[:, np.newaxis], axis=2, keepdims=True))
    deviations = influence / np.maximum(observed, MIN_VARIANCE)
    # The fitted strength is projected out, in the direction in which it changes the moments.
    slope = strength_slope(spec, r, mu, strength[:, np.newaxis]) / np.sqrt(variance)
    slope *= fitted[:, np.newaxis] / np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), MIN_VARIANCE)
    deviations -= slope[:, :, np.newaxis] * np.einsum("bk,bkm->bm", slope, deviations)[:, np.newaxis]
    reference = traces(deviations, data.counts)
    total = np.sum(left_over**2 / variance, axis=1)
    max_freedom = left_over.shape[1] - fitted.astype(int)
    return *reference.scaled(total, max_freedom), reference.pvalue(total, max_freedom)


@dataclass(frozen=True, slots=True)
class CopulaTestResult:
    """Result of the test whether several tables share one copula of a family.

    Attributes
    ----------
    family : str
        The family tested.
    parameter : float or None
        The parameter that fits all tables best; None if undefined.
    statistic : float or None
        Distance of the tables from that fit, chi-squared distributed if the family is true; None if undefined.
    degrees_of_freedom : float or None
        At most the number of tables minus one for the parameter; fewer if the tables are correlated.
    pvalue : float or None
        Probability of a statistic at least as large if the family is true; None if undefined.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: the parameter is at an end of its range.
    reason : str or None
        At the boundary ``"independence"`` (the family has no negative dependence, so no parameter was fitted or
        subtracted from the degrees of freedom) or ``"perfect_dependence"`` (no statistic). Where undefined
        ``"fewer_than_two_tables"``, ``"tables_repeat_each_other"`` if all prompts have the same outcomes, or
        ``"no_variation"`` if there are too few questions to test anything.
    tables : tuple of ContingencyTable
        One table per prompt, including those in `left_out`.
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
        """Rows of tables without information about the dependence, with the reason as in `RefusalIndexResult`."""
        return why_left_out(self.tables)


def copula_test(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    family: CopulaName = "gaussian",
) -> CopulaTestResult:
    """Test whether several prompts over the same questions share one copula of a family.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (k, n)
        One row per prompt of the same model, one column per question; as for `ContingencyTable.from_arrays`.
    scored : array_like of bool, shape (k, n), optional
        Whether a question has a grade under each prompt; by default all have.
    family : {"gaussian", "t", "clayton", "gumbel", "frank", "survival_clayton", "survival_gumbel"}
        The family under test.

    Returns
    -------
    CopulaTestResult
        Prompts whose table has a degenerate margin, such as no refusals, are excluded.

    Raises
    ------
    TypeError, ValueError
        If the matrices are not Boolean or differ in shape, or the family is unknown.

    Notes
    -----
    A small p-value is evidence against one copula of this family for all prompts: the family is wrong, or the prompts
    change the dependence. A large one is weak support. The simulated power of the Gaussian test at .05 with four
    prompts and 4,326 questions is .05 to .15 against a Gumbel copula at error rates from .75 to .92, and .87 at .5; at
    least .9 against a t copula at the former rates, and .1 at .5; and .15 to .7 against Frank's. Its size is .03 to .07
    for 2 to 24 prompts and 450 to 4,326 questions.

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
    spec = copula_family(family)
    tables = row_tables(*matrices)

    def undefined(reason: str) -> CopulaTestResult:
        return CopulaTestResult(family, None, None, None, None, "undefined", reason, tables)

    rows = [row for row in range(len(tables)) if row not in why_left_out(tables)]
    if len(rows) < 2:
        return undefined("fewer_than_two_tables")
    r, w, s = (matrix[rows] for matrix in matrices)
    if repeat_each_other(r, w, s):
        return undefined("tables_repeat_each_other")
    fit = fit_common_strength(spec, moments(r, w, s, np.ones((1, r.shape[1]))))
    if fit.at_strongest[0] or (fit.at_weakest[0] and spec.can_be_negative):
        end = math.copysign(parameter_range(family)[1], fit.strength[0])
        return CopulaTestResult(family, end, None, None, None, "boundary", "perfect_dependence", tables)
    if math.isnan(fit.pvalue[0]):
        return undefined("no_variation")
    fitted = spec.parameter(fit.strength), fit.statistic, fit.degrees_of_freedom, fit.pvalue
    parameter, statistic, freedom, pvalue = (float(values[0]) for values in fitted)
    status: Status = "boundary" if fit.at_weakest[0] else "ok"
    reason = "independence" if fit.at_weakest[0] else None
    return CopulaTestResult(family, parameter, statistic, freedom, pvalue, status, reason, tables)


def copula_tests(refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None) -> tuple[CopulaTestResult, ...]:
    """Test every family on the same prompts; the best fitting family comes first.

    Parameters are those of `copula_test`.

    Returns
    -------
    tuple of CopulaTestResult
        Results by decreasing p-value, with those without one last. The p-values show which families are not rejected.

    Raises
    ------
    TypeError, ValueError
        As `copula_test`.

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
    results = [copula_test(refused, wrong, scored, family=family) for family in COPULA_NAMES]
    return tuple(sorted(results, key=lambda result: -1.0 if result.pvalue is None else result.pvalue, reverse=True))


def why_left_out(tables: tuple[ContingencyTable, ...]) -> dict[int, str]:
    """Return the rows of tables with a degenerate margin, each with its reason."""
    results = {row: refusal_index(table) for row, table in enumerate(tables)}
    return {row: result.reason or "" for row, result in results.items() if result.status == "undefined"}
