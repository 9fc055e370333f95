r"""Copula families for 2x2 tables: predicted cells and fits to a table.

A family maps a refusal rate r, an error rate mu and one parameter to the share of questions that are refused and wrong,
``P(U > 1 - r, V > 1 - mu)`` for uniform U and V with that copula. The Refusal Index assumes the Gaussian family; the
others show how far results depend on this choice.

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

References
----------
.. [1] Dunnett, C. W. and Sobel, M. (1954). A bivariate generalization of Student's t-distribution, with tables for
   certain special cases. Biometrika, 41, 153-169. :doi:`10.1093/biomet/41.1-2.153`
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import brentq

from refusal_index.stats.arguments import FloatArray, one_of
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.estimate import Status
from refusal_index.stats.estimator import upper_orthant
from refusal_index.stats.intervals import refusal_index

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
    y = np.where(negative, -y, y)
    tail_y = np.where(negative, 1 - tail_y, tail_y)
    with np.errstate(divide="ignore"):
        z = np.minimum(np.arctanh(np.abs(correlation)), 20.0)
    # The integral of the derivative from z to infinity.
    nodes = z[:, np.newaxis] + NODES
    gap = ((x - y) ** 2)[:, np.newaxis]
    product = (x * y)[:, np.newaxis]
    cosh = np.cosh(nodes)
    quadratic = gap * cosh * cosh + product * (1 + np.exp(-2 * nodes))
    beyond = (np.exp(-0.5 * df * np.log1p(quadratic / df)) / cosh) @ WEIGHTS / (2 * math.pi)
    orthant = np.minimum(tail_x, tail_y) - beyond
    return np.asarray(np.where(negative, tail_x - orthant, orthant).reshape(arrays[0].shape))


CopulaName = Literal["gaussian", "t", "clayton", "gumbel", "frank", "survival_clayton", "survival_gumbel"]
COPULA_NAMES: tuple[CopulaName, ...] = get_args(CopulaName)
DEFAULT_DF = 4.0

# Rates this close to 0 and 1 can still be converted to thresholds and logarithms.
MIN_RATE = 1e-300
MAX_RATE = 1 - 2.0**-53
# tanh(18) is 1 except for the last digits; e^30 is practically infinity.
MAX_STRENGTH_OF_RHO = 18.0
MAX_STRENGTH = 30.0
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
    one_of("family", family, COPULA_NAMES)
    if not 0 < df < math.inf:
        raise ValueError(f"df must be positive and finite, got {df!r}; the t copula without a limit is 'gaussian'")
    rho_limits = (-MAX_STRENGTH_OF_RHO, MAX_STRENGTH_OF_RHO)
    one_sided = (0.0, MAX_STRENGTH)
    if family == "gaussian":
        return CopulaFamily(
            lambda r, mu, rho: upper_orthant(-special.ndtri(r), -special.ndtri(mu), rho),
            np.tanh,
            np.arctanh,
            rho_limits,
        )
    if family == "t":
        return CopulaFamily(
            lambda r, mu, rho: t_upper_orthant(-special.stdtrit(df, r), -special.stdtrit(df, mu), (r, mu), rho, df),
            np.tanh,
            np.arctanh,
            rho_limits,
        )
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
    r = checked_rate("refusal_rate", refusal_rate)
    mu = checked_rate("error_rate", error_rate)
    values = np.asarray(parameter, float)
    (low, high) = parameter_range(family)
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
    one_of("family", family, COPULA_NAMES)
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
    dr = RELATIVE_STEP * r * (1 - r)
    dmu = RELATIVE_STEP * mu * (1 - mu)
    return (
        spec.cell(r, mu, strength),
        (spec.cell(r + dr, mu, strength) - spec.cell(r - dr, mu, strength)) / (2 * dr),
        (spec.cell(r, mu + dmu, strength) - spec.cell(r, mu - dmu, strength)) / (2 * dmu),
    )


def strength_slope(spec: CopulaFamily, r: FloatArray, mu: FloatArray, strength: FloatArray) -> FloatArray:
    """Return the derivative of the cell with respect to the strength, one-sided at the ends of its range."""
    low, high = (np.clip(strength + step, *spec.limits) for step in (-RELATIVE_STEP, RELATIVE_STEP))
    return (spec.cell(r, mu, high) - spec.cell(r, mu, low)) / (high - low)


def _log_clayton(a: FloatArray, b: FloatArray, theta: FloatArray) -> FloatArray:
    """Return the logarithm of ``(u^-theta + v^-theta - 1)^(-1/theta)`` for ``a = -log u`` and ``b = -log v``."""
    smaller = np.minimum(a, b)
    theta = np.maximum(theta, MIN_THETA)
    inner = -np.exp(-theta * np.abs(a - b)) * np.expm1(-theta * smaller)
    return np.asarray(-np.maximum(a, b) - np.log1p(inner) / theta)


def _log_gumbel(a: FloatArray, b: FloatArray, theta: FloatArray) -> FloatArray:
    """Return the logarithm of ``exp(-(a^theta + b^theta)^(1/theta))``."""
    larger = np.maximum(a, b)
    return -larger * np.exp(np.log1p((np.minimum(a, b) / larger) ** theta) / theta)


def _frank(r: FloatArray, mu: FloatArray, theta: FloatArray) -> FloatArray:
    # The copula is its own survival form, and reflecting one variable changes the sign of theta.
    size = np.abs(theta)
    other = np.where(theta < 0, 1 - mu, mu)
    positive = np.where(size < 1, _weak_frank(r, other, np.minimum(size, 1)), _strong_frank(r, other, size))
    return np.where(theta < 0, r - positive, positive)


def _weak_frank(u: FloatArray, v: FloatArray, theta: FloatArray) -> FloatArray:
    theta = np.maximum(theta, MIN_THETA)
    return -np.log1p(np.expm1(-theta * u) * np.expm1(-theta * v) / np.expm1(-theta)) / theta


def _strong_frank(u: FloatArray, v: FloatArray, theta: FloatArray) -> FloatArray:
    """Return Frank's formula with e^(-theta min(u, v)) factored out, which leaves a sum of positive terms."""
    small = np.minimum(u, v)
    large = np.maximum(u, v)
    theta = np.maximum(theta, 1)
    terms = -np.expm1(-theta * large) - np.exp(-theta * (large - small)) * np.expm1(-theta * (1 - large))
    return np.asarray(small - np.log(terms / -np.expm1(-theta)) / theta)


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
    r = table.refusal_rate
    mu = table.error_rate
    p11 = table.refused_wrong / table.n
    if p11 < r * mu and not spec.can_be_negative:
        independence = _parameter(spec, 0.0)
        likelihood = _log_likelihood(table, r * mu)
        return CopulaFit(family, independence, likelihood, "boundary", "negative_dependence", table)
    if index.status == "boundary":
        end = (-1.0 if p11 < r * mu else 1.0) * (1.0 if family in {"gaussian", "t"} else math.inf)
        return CopulaFit(family, end, _log_likelihood(table, p11), "boundary", index.reason, table)
    strength = strength_of_table(spec, r, mu, p11)
    likelihood = _log_likelihood(table, _cell(spec, r, mu, strength))
    return CopulaFit(family, _parameter(spec, strength), likelihood, "ok", None, table)


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
    r = table.refusal_rate
    mu = table.error_rate
    cells = p11, r - p11, mu - p11, 1 - r - mu + p11
    return sum(count * math.log(cell) for count, cell in zip(table.counts, cells, strict=True) if count)
