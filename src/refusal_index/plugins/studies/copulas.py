r"""Copula families for 2x2 tables: predicted cells, fits, and a test over several prompts.

**Families.** A family maps a refusal rate r, an error rate mu and one parameter to the share of questions that are
refused and wrong, ``P(U > 1 - r, V > 1 - mu)`` for uniform U and V with that copula. The Refusal Index assumes the
Gaussian family; the others show how far results depend on this choice.

============================  ===========================  ==================================================
family                        range of the parameter       dependence is strongest
============================  ===========================  ==================================================
``"gaussian"``                -1 to 1 (rho)                in the middle; none in the far tails
``"t"``                       -1 to 1 (rho), df given      in both tails
``"clayton"``                 0 to infinity                among questions least often refused and least often wrong
``"survival_clayton"``        0 to infinity                among questions most often refused and most often wrong
``"gumbel"``                  1 to infinity                as survival Clayton, but weaker
``"survival_gumbel"``         1 to infinity                as Clayton, but weaker
``"frank"``                   -infinity to infinity        in the middle, evenly
============================  ===========================  ==================================================

Clayton and Gumbel copulas and their survival forms have no negative dependence: their weakest member is independence.
(Clayton's extension to -1 <= parameter < 0 leaves parts of the square empty and is not considered here.)

**Bivariate Student t distribution.** The probability that both variables exceed their thresholds is computed by
quadrature.

As for the normal distribution, the derivative with respect to the correlation is elementary [1]_. It is integrated from
perfect correlation, where the probability equals the smaller margin, to the given one. In ``z = atanh(rho)``

    d orthant / dz = sech(z) / (2 pi) * (1 + Q(z) / df)^(-df / 2),    Q(z) = (h - k)^2 cosh(z)^2 + h k (1 + e^(-2z)).

For all h, k and df, the singularities of this integrand lie where the imaginary part of z is pi/2 or -pi/2, so
Gauss-Legendre panels of length 2 with 16 nodes have an error below 1e-17 each, and the integrand decays like e^(-z).
The result is deterministic, whereas a Monte Carlo cdf would add noise to every likelihood.

**Single tables.** One table cannot choose between copulas.

With both margins fixed at the observed rates, the other three cells follow from the share of refused and wrong
questions. One parameter therefore fits the table exactly in every family whose range includes that share, and the
likelihood is always that of the saturated table. Reported likelihoods differ only by numerical noise, by a penalty for
an ineffective parameter, or because a family has no negative dependence and the table has. Ties are common and counted
as such. Only several prompts over the same questions can distinguish copulas.

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
``alpha = dC/dr`` and ``beta = dC/dmu``, gives the covariances over the questions that tables share [2]_.

The variances are those of the fitted copula; only the correlations are estimated from the questions. With observed
variances, a table with an empty cell, which contains little information, would appear to be free of noise.

The sum ``d_k^2 / v_k`` of squares over variances is minimised over theta with the variances at the same theta
(continuous updating [3]_), so that the result does not depend on the scale of the parameter. The minimum is compared
with a scaled chi-squared distribution (see `refusal_index.stats.joint`). The quadratic form with the inverse of the
full covariance would be chi-squared distributed, but rejects a true copula in a fifth of simulations with 8 tables of
450 questions.

All computations are vectorised over data sets: the first dimension of arrays is that of b data sets.

References
----------
.. [1] Dunnett, C. W. and Sobel, M. (1954). A bivariate generalization of Student's t-distribution, with tables for
   certain special cases. Biometrika, 41, 153-169. :doi:`10.1093/biomet/41.1-2.153`
.. [2] Hansen (1982). :doi:`10.2307/1912775`
.. [3] Hansen et al. (1996). :doi:`10.1080/07350015.1996.10524656`
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import brentq

from refusal_index.stats.arguments import BoolArray, FloatArray, checked_matrices
from refusal_index.stats.contingency import ContingencyTable, repeat_each_other, row_tables
from refusal_index.stats.estimate import Status
from refusal_index.stats.estimator import upper_orthant
from refusal_index.stats.intervals import refusal_index
from refusal_index.stats.joint import traces

PANEL_LENGTH = 2.0
# Beyond these panels the integrand is below e^-38.
N_PANELS = 19
NODES_PER_PANEL = 16


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(NODES_PER_PANEL)
_STARTS = PANEL_LENGTH * np.arange(N_PANELS)[:, np.newaxis]
NODES = (_STARTS + 0.5 * PANEL_LENGTH * (1 + _NODES)).ravel()
WEIGHTS = np.tile(0.5 * PANEL_LENGTH * _WEIGHTS, N_PANELS)


def t_upper_orthant(
    h: FloatArray, k: FloatArray, tails: tuple[FloatArray, FloatArray], rho: FloatArray, df: float
) -> FloatArray:
    """Return the probability ``P(X > h, Y > k)`` of a bivariate t distribution, to 1e-15.

    `tails` contains ``P(X > h)`` and ``P(Y > k)``; all arrays broadcast, and rho is in [-1, 1].
    """
    arrays = np.broadcast_arrays(h, k, *tails, rho)
    x, y, tail_x, tail_y, correlation = (array.ravel() for array in arrays)
    # Negative correlations are reduced to positive ones by P(X > h, Y > k) = P(X > h) - P(X > h, -Y > -k).
    negative = correlation < 0
    y, tail_y = np.where(negative, -y, y), np.where(negative, 1 - tail_y, tail_y)
    with np.errstate(divide="ignore"):
        z = np.minimum(np.arctanh(np.abs(correlation)), 20.0)
    # The integral of the derivative from z to infinity.
    nodes = z[:, np.newaxis] + NODES
    gap, product, cosh = ((x - y) ** 2)[:, np.newaxis], (x * y)[:, np.newaxis], np.cosh(nodes)
    quadratic = gap * cosh * cosh + product * (1 + np.exp(-2 * nodes))
    beyond = (np.exp(-0.5 * df * np.log1p(quadratic / df)) / cosh) @ WEIGHTS / (2 * math.pi)
    orthant = np.minimum(tail_x, tail_y) - beyond
    return np.asarray(np.where(negative, tail_x - orthant, orthant).reshape(arrays[0].shape))


CopulaName = Literal["gaussian", "t", "clayton", "gumbel", "frank", "survival_clayton", "survival_gumbel"]
COPULA_NAMES: tuple[CopulaName, ...] = get_args(CopulaName)
DEFAULT_DF = 4.0

# Rates this close to 0 and 1 can still be converted to thresholds and logarithms.
MIN_RATE, MAX_RATE = 1e-300, 1 - 2.0**-53
# tanh(18) is 1 except for the last digits; e^30 is practically infinity.
MAX_STRENGTH_OF_RHO, MAX_STRENGTH = 18.0, 30.0
# Smaller parameters of Clayton's or Frank's copula are independence to the last digit; the square does not underflow.
MIN_THETA = 1e-100
RELATIVE_STEP = 1e-5


@dataclass(frozen=True, slots=True)
class CopulaFamily:
    """A family parametrised for fitting: a function of the rates and of a strength, 0 at independence (rho = 0 for t).

    The strength is a smooth, increasing function of the parameter, on a scale that suits root finding and steps.
    """

    orthant: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
    parameter: Callable[[FloatArray], FloatArray]
    strength: Callable[[FloatArray], FloatArray]
    limits: tuple[float, float]

    def cell(self, r: FloatArray, mu: FloatArray, strength: FloatArray) -> FloatArray:
        """Return the share of refused and wrong questions at rates strictly between 0 and 1 and a strength."""
        return self.orthant(r, mu, self.parameter(strength))

    @property
    def can_be_negative(self) -> bool:
        """Whether the family includes negative dependence."""
        return self.limits[0] < 0


def copula_family(family: CopulaName, df: float = DEFAULT_DF) -> CopulaFamily:
    """Return a family by name; `df` is the number of degrees of freedom of the t copula."""
    _check_name(family)
    if not 0 < df < math.inf:
        raise ValueError(f"df must be positive and finite, got {df!r}; the t copula without a limit is 'gaussian'")
    rho_limits, one_sided = (-MAX_STRENGTH_OF_RHO, MAX_STRENGTH_OF_RHO), (0.0, MAX_STRENGTH)
    if family == "gaussian":
        return CopulaFamily(_gaussian, np.tanh, np.arctanh, rho_limits)
    if family == "t":
        return CopulaFamily(lambda r, mu, rho: _student(r, mu, rho, df), np.tanh, np.arctanh, rho_limits)
    if family == "frank":
        return CopulaFamily(
            _frank, lambda x: 4 * np.sinh(x), lambda x: np.arcsinh(x / 4), (-MAX_STRENGTH, MAX_STRENGTH)
        )
    log_copula = _log_clayton if family.endswith("clayton") else _log_gumbel
    parameter, strength = (np.expm1, np.log1p) if family.endswith("clayton") else (np.exp, np.log)

    def survival(r: FloatArray, mu: FloatArray, theta: FloatArray) -> FloatArray:
        return np.asarray(np.exp(log_copula(-np.log(r), -np.log(mu), theta)))

    def upper(r: FloatArray, mu: FloatArray, theta: FloatArray) -> FloatArray:
        # r + mu - 1 + C(1 - r, 1 - mu), without loss of precision for small rates.
        return np.asarray(r + mu + np.expm1(log_copula(-np.log1p(-r), -np.log1p(-mu), theta)))

    orthant = survival if family.startswith("survival") else upper
    return CopulaFamily(orthant, parameter, strength, one_sided)


def _check_name(family: CopulaName) -> None:
    if family not in COPULA_NAMES:
        raise ValueError(f"family must be one of {', '.join(COPULA_NAMES)}, got {family!r}")


def copula_upper_orthant(
    refusal_rate: ArrayLike,
    error_rate: ArrayLike,
    parameter: ArrayLike,
    family: CopulaName = "gaussian",
    *,
    df: float = DEFAULT_DF,
) -> FloatArray:
    """Return the share of refused and wrong questions under a copula, ``P(U > 1 - r, V > 1 - mu)``.

    Parameters
    ----------
    refusal_rate, error_rate : array_like of float
        r and mu, in [0, 1].
    parameter : array_like of float
        The family's parameter: rho for ``"gaussian"`` and ``"t"``, theta for the others. All three broadcast.
    family : {"gaussian", "t", "clayton", "gumbel", "frank", "survival_clayton", "survival_gumbel"}
        See the module's table of families.
    df : float, default: 4
        Degrees of freedom of the t copula; ignored by the others.

    Returns
    -------
    ndarray
        In [max(r + mu - 1, 0), min(r, mu)], with an absolute error below 1e-14. NaN if an argument is NaN.

    Raises
    ------
    ValueError
        If a rate lies outside [0, 1], the parameter outside its range, or the family is unknown.

    References
    ----------
    .. [1] Nelsen, R. B. (2006). An Introduction to Copulas, 2nd edition, Springer, sections 4.2 and 4.3.
       :doi:`10.1007/0-387-28678-0`

    Examples
    --------
    >>> round(float(copula_upper_orthant(0.74, 0.92, 0.5, "gaussian")), 6)
    0.710029
    >>> round(float(copula_upper_orthant(0.5, 0.5, 2.0, "survival_clayton")), 12)  # (4 + 4 - 1)^(-1/2)
    0.377964473009
    """
    spec = copula_family(family, df)
    r, mu = checked_rate("refusal_rate", refusal_rate), checked_rate("error_rate", error_rate)
    values, (low, high) = np.asarray(parameter, float), parameter_range(family)
    if np.any((values < low) | (values > high)):
        raise ValueError(
            f"parameter of the {family} copula must lie in [{low:g}, {high:g}], got {parameter!r}; "
            "does it belong to another family?"
        )
    with np.errstate(divide="ignore"):
        strength = np.clip(spec.strength(values), *spec.limits)
    return spec.cell(r, mu, strength)


def parameter_range(family: CopulaName) -> tuple[float, float]:
    """Return the smallest and the largest parameter of a family."""
    _check_name(family)
    if family in {"gaussian", "t"}:
        return -1.0, 1.0
    return {"frank": -math.inf, "gumbel": 1.0, "survival_gumbel": 1.0}.get(family, 0.0), math.inf


def checked_rate(name: str, values: ArrayLike) -> FloatArray:
    """Return valid rates, moved from 0 and 1 into the interior by a negligible amount; raises for invalid ones."""
    rates = np.asarray(values, float)
    if np.any((rates < 0) | (rates > 1)):
        raise ValueError(f"{name} must lie in [0, 1], got {values!r}; is it a percentage, or a count?")
    return np.asarray(np.clip(rates, MIN_RATE, MAX_RATE))


def cell_and_rate_slopes(
    spec: CopulaFamily, r: FloatArray, mu: FloatArray, strength: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the cell and its derivatives with respect to r and mu, by central differences, to about 1e-9."""
    dr, dmu = RELATIVE_STEP * r * (1 - r), RELATIVE_STEP * mu * (1 - mu)
    return (
        spec.cell(r, mu, strength),
        (spec.cell(r + dr, mu, strength) - spec.cell(r - dr, mu, strength)) / (2 * dr),
        (spec.cell(r, mu + dmu, strength) - spec.cell(r, mu - dmu, strength)) / (2 * dmu),
    )


def strength_slope(spec: CopulaFamily, r: FloatArray, mu: FloatArray, strength: FloatArray) -> FloatArray:
    """Return the derivative of the cell with respect to the strength, one-sided at the ends of its range."""
    low, high = (np.clip(strength + step, *spec.limits) for step in (-RELATIVE_STEP, RELATIVE_STEP))
    return (spec.cell(r, mu, high) - spec.cell(r, mu, low)) / (high - low)


def _gaussian(r: FloatArray, mu: FloatArray, rho: FloatArray) -> FloatArray:
    return upper_orthant(-special.ndtri(r), -special.ndtri(mu), rho)


def _student(r: FloatArray, mu: FloatArray, rho: FloatArray, df: float) -> FloatArray:
    return t_upper_orthant(-special.stdtrit(df, r), -special.stdtrit(df, mu), (r, mu), rho, df)


def _log_clayton(a: FloatArray, b: FloatArray, theta: FloatArray) -> FloatArray:
    """Return the logarithm of ``(u^-theta + v^-theta - 1)^(-1/theta)`` for ``a = -log u`` and ``b = -log v``."""
    smaller, theta = np.minimum(a, b), np.maximum(theta, MIN_THETA)
    inner = -np.exp(-theta * np.abs(a - b)) * np.expm1(-theta * smaller)
    return np.asarray(-np.maximum(a, b) - np.log1p(inner) / theta)


def _log_gumbel(a: FloatArray, b: FloatArray, theta: FloatArray) -> FloatArray:
    """Return the logarithm of ``exp(-(a^theta + b^theta)^(1/theta))``."""
    larger = np.maximum(a, b)
    return -larger * np.exp(np.log1p((np.minimum(a, b) / larger) ** theta) / theta)


def _frank(r: FloatArray, mu: FloatArray, theta: FloatArray) -> FloatArray:
    # The copula is its own survival form, and reflecting one variable changes the sign of theta.
    size, other = np.abs(theta), np.where(theta < 0, 1 - mu, mu)
    positive = np.where(size < 1, _weak_frank(r, other, np.minimum(size, 1)), _strong_frank(r, other, size))
    return np.where(theta < 0, r - positive, positive)


def _weak_frank(u: FloatArray, v: FloatArray, theta: FloatArray) -> FloatArray:
    theta = np.maximum(theta, MIN_THETA)
    return -np.log1p(np.expm1(-theta * u) * np.expm1(-theta * v) / np.expm1(-theta)) / theta


def _strong_frank(u: FloatArray, v: FloatArray, theta: FloatArray) -> FloatArray:
    """Return Frank's formula with e^(-theta min(u, v)) factored out, which leaves a sum of positive terms."""
    small, large, theta = np.minimum(u, v), np.maximum(u, v), np.maximum(theta, 1)
    terms = -np.expm1(-theta * large) - np.exp(-theta * (large - small)) * np.expm1(-theta * (1 - large))
    return np.asarray(small - np.log(terms / -np.expm1(-theta)) / theta)


# Tolerance for equal log-likelihoods and criteria: rounding errors are about 1e-9 for a table of a million.
TIE = 1e-6
CRITERIA = ("log_likelihood", "aic", "bic")


@dataclass(frozen=True, slots=True)
class CopulaFit:
    """A one-parameter copula fitted to a table with fixed margins.

    Attributes
    ----------
    family : str
        Name of the family.
    parameter : float or None
        The maximum-likelihood parameter; at the boundary an end of its range, which may be infinite; None if undefined.
    log_likelihood : float or None
        Multinomial log-likelihood of the counts without its constant, ``sum n log p``; None if undefined.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: the parameter is at an end of its range.
    reason : str or None
        ``"negative_dependence"``: the table has negative dependence, the family has none, and the fit is independence.
        ``"zero_cell:"`` with the empty cells: perfect dependence. Where undefined as in `RefusalIndexResult`.
    table : ContingencyTable
    """

    family: CopulaName
    parameter: float | None
    log_likelihood: float | None
    status: Status
    reason: str | None
    table: ContingencyTable


def fit_copula(table: ContingencyTable, family: CopulaName = "gaussian") -> CopulaFit:
    """Fit a copula to a table by maximum likelihood, with the margins fixed at the observed rates.

    Parameters
    ----------
    table : ContingencyTable
        Counts of refused and answered, wrong and right questions.
    family : {"gaussian", "t", "clayton", "gumbel", "frank", "survival_clayton", "survival_gumbel"}
        The family; the t copula has 4 degrees of freedom, which a 2x2 table cannot estimate.

    Returns
    -------
    CopulaFit
        Undefined if a margin is degenerate.

    Raises
    ------
    TypeError, ValueError
        If `table` is not a ContingencyTable, or the family unknown.

    Notes
    -----
    The table is saturated, so every family that can fit it has the same likelihood. A smaller one only means that the
    table has negative dependence and the family has none. Neither is evidence for or against a copula.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Validating the Gaussian Copula Assumption".

    Examples
    --------
    >>> table = ContingencyTable(710, 30, 210, 50)
    >>> gaussian, gumbel = fit_copula(table), fit_copula(table, "gumbel")
    >>> round(gaussian.parameter, 5), round(gumbel.parameter, 5)
    (0.49958, 1.71556)
    >>> abs(gaussian.log_likelihood - gumbel.log_likelihood) < 1e-9
    True
    """
    spec = copula_family(family)
    # Raises the errors, and gives the reasons, of tables without an estimate.
    index = refusal_index(table)
    if index.status == "undefined":
        return CopulaFit(family, None, None, "undefined", index.reason, table)
    r, mu, p11 = table.refusal_rate, table.error_rate, table.refused_wrong / table.n
    if p11 < r * mu and not spec.can_be_negative:
        independence, likelihood = _parameter(spec, 0.0), _log_likelihood(table, r * mu)
        return CopulaFit(family, independence, likelihood, "boundary", "negative_dependence", table)
    if index.status == "boundary":
        end = (-1.0 if p11 < r * mu else 1.0) * (1.0 if family in {"gaussian", "t"} else math.inf)
        return CopulaFit(family, end, _log_likelihood(table, p11), "boundary", index.reason, table)
    strength = strength_of_table(spec, r, mu, p11)
    likelihood = _log_likelihood(table, _cell(spec, r, mu, strength))
    return CopulaFit(family, _parameter(spec, strength), likelihood, "ok", None, table)


def copula_win_rates(tables: Iterable[ContingencyTable]) -> list[dict[str, Any]]:
    """Compare every family with the Gaussian copula over many tables, as the paper does.

    Parameters
    ----------
    tables : iterable of ContingencyTable
        One table per model and prompt. Tables without a defined estimate are excluded.

    Returns
    -------
    list of dict
        One row per family, in the order of `COPULA_NAMES`, including the Gaussian itself with ties only: ``family``;
        the means of ``log_likelihood``, ``aic`` and ``bic`` over the tables; for each of these ``gaussian_wins_NAME``,
        the share of the tables for which the Gaussian copula is better, where ties count one half; and ``ties``, the
        share of the tables for which both log-likelihoods are equal. Empty without tables.

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
        # A larger log-likelihood and a smaller criterion are better.
        lead = (criteria["gaussian"] - values) * (1, -1, -1)
        shares = np.where(np.abs(lead) < TIE, 0.5, lead > 0).mean(axis=0).tolist()
        means, ties = values.mean(axis=0).tolist(), float(np.mean(np.abs(lead[:, 0]) < TIE))
        won = zip((f"gaussian_wins_{name}" for name in CRITERIA), shares, strict=True)
        rows.append({"family": family, "ties": ties, **dict(zip(CRITERIA, means, strict=True)), **dict(won)})
    return rows


def _criteria(table: ContingencyTable, family: CopulaName) -> tuple[float, float, float]:
    """Return log-likelihood, AIC and BIC of a fit to a table with a defined index.

    The degrees of freedom of the t copula count as a second parameter, as in the paper.
    """
    likelihood, k = fit_copula(table, family).log_likelihood or 0.0, 2 if family == "t" else 1
    return likelihood, 2 * k - 2 * likelihood, k * math.log(table.n) - 2 * likelihood


def strength_of_table(spec: CopulaFamily, r: float, mu: float, p11: float) -> float:
    """Return the strength, inside its range, at which a family predicts the share `p11` at the given rates."""
    low, high = spec.limits
    if _cell(spec, r, mu, low) >= p11:
        return low
    if _cell(spec, r, mu, high) <= p11:
        return high
    return float(brentq(lambda x: _cell(spec, r, mu, x) - p11, low, high, xtol=1e-14, rtol=1e-14))


def _cell(spec: CopulaFamily, r: float, mu: float, strength: float) -> float:
    return float(spec.cell(np.array(r), np.array(mu), np.array(strength)))


def _parameter(spec: CopulaFamily, strength: float) -> float:
    return float(spec.parameter(np.array(strength)))


def _log_likelihood(table: ContingencyTable, p11: float) -> float:
    r, mu = table.refusal_rate, table.error_rate
    cells = p11, r - p11, mu - p11, 1 - r - mu + p11
    return sum(count * math.log(cell) for count, cell in zip(table.counts, cells, strict=True) if count)


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
    reference, total = traces(deviations, data.counts), np.sum(left_over**2 / variance, axis=1)
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
    spec, tables = copula_family(family), row_tables(*matrices)

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
