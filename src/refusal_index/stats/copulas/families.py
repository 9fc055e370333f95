r"""Copula families that could stand behind a 2x2 table, and the cell each of them predicts.

A family turns a refusal rate r, an error rate mu and one parameter into the share of questions that are refused and
wrong, ``P(U > 1 - r, V > 1 - mu)`` for uniform U and V with that copula. The Gaussian family is the one behind the
Refusal Index; the others say how far its results depend on that choice.

============================  ===========================  ==================================================
family                        range of the parameter       dependence is strongest
============================  ===========================  ==================================================
``"gaussian"``                -1 to 1 (rho)                in the middle; none in the far tails
``"t"``                       -1 to 1 (rho), df given      in both tails
``"clayton"``                 0 to infinity                among questions least often refused and least often wrong
``"survival_clayton"``        0 to infinity                among questions most often refused and most often wrong
``"gumbel"``                  1 to infinity                as survival Clayton, and milder
``"survival_gumbel"``         1 to infinity                as Clayton, and milder
``"frank"``                   -infinity to infinity        in the middle, evenly
============================  ===========================  ==================================================

Clayton and Gumbel copulas and their survival forms cannot be negative: their weakest member is independence. (Clayton's
extension to -1 <= parameter < 0 leaves parts of the square empty, and is not considered here.)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.bivariate_normal import upper_orthant
from refusal_index.stats.copulas.bivariate_t import t_upper_orthant

CopulaName = Literal["gaussian", "t", "clayton", "gumbel", "frank", "survival_clayton", "survival_gumbel"]
COPULA_NAMES: tuple[CopulaName, ...] = get_args(CopulaName)
DEFAULT_DF = 4.0

# Rates this close to 0 and 1 can still be turned into thresholds and logarithms.
SMALLEST_RATE, LARGEST_RATE = 1e-300, 1 - 2.0**-53
# tanh(18) is 1 but for the last digits; e^30 is as good as infinity.
LARGEST_STRENGTH_OF_RHO, LARGEST_STRENGTH = 18.0, 30.0
# A smaller parameter of Clayton's or Frank's copula is independence to the last digit; its square is a number yet.
SMALLEST_THETA = 1e-100
RELATIVE_STEP = 1e-5


@dataclass(frozen=True, slots=True)
class CopulaFamily:
    """One family as the fits see it: a function of the rates and of a strength, 0 at independence (rho = 0 for t).

    The strength is a smooth, rising function of the parameter, on whose scale a root or a step is easily found.
    """

    name: CopulaName
    orthant: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
    parameter: Callable[[FloatArray], FloatArray]
    strength: Callable[[FloatArray], FloatArray]
    limits: tuple[float, float]

    def cell(self, r: FloatArray, mu: FloatArray, strength: FloatArray) -> FloatArray:
        """Share of refused and wrong questions at the given rates, strictly between 0 and 1, and strength."""
        return self.orthant(r, mu, self.parameter(strength))

    @property
    def can_be_negative(self) -> bool:
        """Whether the family holds negative dependence."""
        return self.limits[0] < 0


def copula_family(family: CopulaName, df: float = DEFAULT_DF) -> CopulaFamily:
    """Look a family up by its name; `df` are the degrees of freedom of the t copula."""
    _check_name(family)
    if not 0 < df < math.inf:
        raise ValueError(f"df must be positive and finite, got {df!r}; the t copula without a limit is 'gaussian'")
    rho_limits, one_sided = (-LARGEST_STRENGTH_OF_RHO, LARGEST_STRENGTH_OF_RHO), (0.0, LARGEST_STRENGTH)
    if family == "gaussian":
        return CopulaFamily(family, _gaussian, np.tanh, np.arctanh, rho_limits)
    if family == "t":
        return CopulaFamily(family, lambda r, mu, rho: _student(r, mu, rho, df), np.tanh, np.arctanh, rho_limits)
    if family == "frank":
        return CopulaFamily(family, _frank, _frank_parameter, _frank_strength, (-LARGEST_STRENGTH, LARGEST_STRENGTH))
    log_copula = _log_clayton if family.endswith("clayton") else _log_gumbel
    orthant = _survival_of(log_copula) if family.startswith("survival") else _upper_of(log_copula)
    parameter, strength = (np.expm1, np.log1p) if family.endswith("clayton") else (np.exp, np.log)
    return CopulaFamily(family, orthant, parameter, strength, one_sided)


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
    """Share of refused and wrong questions under a copula, ``P(U > 1 - r, V > 1 - mu)``.

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
        In [max(r + mu - 1, 0), min(r, mu)], with an absolute error below 1e-14. NaN where an argument is NaN.

    Raises
    ------
    ValueError
        If a rate lies outside [0, 1], the parameter outside its range, or the family is unknown.

    References
    ----------
    .. [1] Nelsen (2006), sections 4.2, 4.3 and 5.1. :doi:`10.1007/0-387-28678-0`

    Examples
    --------
    >>> round(float(copula_upper_orthant(0.74, 0.92, 0.5, "gaussian")), 6)
    0.710029
    >>> round(float(copula_upper_orthant(0.5, 0.5, 2.0, "survival_clayton")), 12)  # (4 + 4 - 1)^(-1/2)
    0.377964473009
    """
    spec = copula_family(family, df)
    r, mu = checked_rate("refusal_rate", refusal_rate), checked_rate("error_rate", error_rate)
    value = checked_parameter(parameter, family)
    with np.errstate(divide="ignore"):
        strength = np.clip(spec.strength(value), *spec.limits)
    return spec.cell(r, mu, strength)


def parameter_range(family: CopulaName) -> tuple[float, float]:
    """Return the smallest and the largest parameter of a family."""
    _check_name(family)
    if family in {"gaussian", "t"}:
        return -1.0, 1.0
    return {"frank": -math.inf, "gumbel": 1.0, "survival_gumbel": 1.0}.get(family, 0.0), math.inf


def checked_parameter(parameter: ArrayLike, family: CopulaName) -> FloatArray:
    """Check that a parameter lies in the range of its family."""
    values, (low, high) = np.asarray(parameter, float), parameter_range(family)
    if np.any((values < low) | (values > high)):
        raise ValueError(
            f"parameter of the {family} copula must lie in [{low:g}, {high:g}], got {parameter!r}; "
            "does it belong to another family?"
        )
    return values


def checked_rate(name: str, values: ArrayLike) -> FloatArray:
    """Check rates in [0, 1] and move those at its ends inside by less than matters."""
    rates = np.asarray(values, float)
    if np.any((rates < 0) | (rates > 1)):
        raise ValueError(f"{name} must lie in [0, 1], got {values!r}; is it in per cent, or a count?")
    return np.asarray(np.clip(rates, SMALLEST_RATE, LARGEST_RATE))


def cell_and_rate_slopes(
    spec: CopulaFamily, r: FloatArray, mu: FloatArray, strength: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the cell and its derivatives in r and mu, by central differences, to about 1e-9."""
    dr, dmu = RELATIVE_STEP * r * (1 - r), RELATIVE_STEP * mu * (1 - mu)
    return (
        spec.cell(r, mu, strength),
        (spec.cell(r + dr, mu, strength) - spec.cell(r - dr, mu, strength)) / (2 * dr),
        (spec.cell(r, mu + dmu, strength) - spec.cell(r, mu - dmu, strength)) / (2 * dmu),
    )


def strength_slope(spec: CopulaFamily, r: FloatArray, mu: FloatArray, strength: FloatArray) -> FloatArray:
    """Return the derivative of the cell in the strength, one-sided at an end of its range."""
    low, high = (np.clip(strength + step, *spec.limits) for step in (-RELATIVE_STEP, RELATIVE_STEP))
    return (spec.cell(r, mu, high) - spec.cell(r, mu, low)) / (high - low)


def _gaussian(r: FloatArray, mu: FloatArray, rho: FloatArray) -> FloatArray:
    return upper_orthant(-special.ndtri(r), -special.ndtri(mu), rho)


def _student(r: FloatArray, mu: FloatArray, rho: FloatArray, df: float) -> FloatArray:
    return t_upper_orthant(-special.stdtrit(df, r), -special.stdtrit(df, mu), (r, mu), rho, df)


def _upper_of(log_copula: Callable[..., FloatArray]) -> Callable[[FloatArray, FloatArray, FloatArray], FloatArray]:
    # r + mu - 1 + C(1 - r, 1 - mu), without the loss of digits of small rates.
    return lambda r, mu, theta: r + mu + np.expm1(log_copula(-np.log1p(-r), -np.log1p(-mu), theta))


def _survival_of(log_copula: Callable[..., FloatArray]) -> Callable[[FloatArray, FloatArray, FloatArray], FloatArray]:
    return lambda r, mu, theta: np.exp(log_copula(-np.log(r), -np.log(mu), theta))


def _log_clayton(a: FloatArray, b: FloatArray, theta: FloatArray) -> FloatArray:
    """Logarithm of ``(u^-theta + v^-theta - 1)^(-1/theta)`` for ``a = -log u`` and ``b = -log v``."""
    smaller, theta = np.minimum(a, b), np.maximum(theta, SMALLEST_THETA)
    inner = -np.exp(-theta * np.abs(a - b)) * np.expm1(-theta * smaller)
    return np.asarray(-np.maximum(a, b) - np.log1p(inner) / theta)


def _log_gumbel(a: FloatArray, b: FloatArray, theta: FloatArray) -> FloatArray:
    """Logarithm of ``exp(-(a^theta + b^theta)^(1/theta))``."""
    larger = np.maximum(a, b)
    return -larger * np.exp(np.log1p((np.minimum(a, b) / larger) ** theta) / theta)


def _frank(r: FloatArray, mu: FloatArray, theta: FloatArray) -> FloatArray:
    # The copula is its own survival form, and turning one variable turns the sign of theta.
    size, other = np.abs(theta), np.where(theta < 0, 1 - mu, mu)
    positive = np.where(size < 1, _weak_frank(r, other, np.minimum(size, 1)), _strong_frank(r, other, size))
    return np.where(theta < 0, r - positive, positive)


def _weak_frank(u: FloatArray, v: FloatArray, theta: FloatArray) -> FloatArray:
    theta = np.maximum(theta, SMALLEST_THETA)
    return -np.log1p(np.expm1(-theta * u) * np.expm1(-theta * v) / np.expm1(-theta)) / theta


def _strong_frank(u: FloatArray, v: FloatArray, theta: FloatArray) -> FloatArray:
    """Frank's formula with e^(-theta min(u, v)) taken out, which leaves a sum of positive terms."""
    small, large, theta = np.minimum(u, v), np.maximum(u, v), np.maximum(theta, 1)
    terms = -np.expm1(-theta * large) - np.exp(-theta * (large - small)) * np.expm1(-theta * (1 - large))
    return np.asarray(small - np.log(terms / -np.expm1(-theta)) / theta)


def _frank_parameter(strength: FloatArray) -> FloatArray:
    return 4 * np.sinh(strength)


def _frank_strength(theta: FloatArray) -> FloatArray:
    return np.arcsinh(theta / 4)
