r"""Rank correlations of a copula: Kendall's tau in closed form, Spearman's rho by quadrature.

``rho_S = 12 * integral of (C(u, v) - u v)`` over the unit square, by the trapezoidal rule in ``x = log(u / (1 - u))``
and likewise y. There the integrand is analytic around the plane and falls like ``e^(-2 max(|x|, |y|))`` or faster, so
that the rule converges exponentially in its step.
"""

import math

import numpy as np
from scipy import special
from scipy.integrate import quad

from refusal_index.stats.copulas.families import (
    DEFAULT_DF,
    CopulaName,
    checked_parameter,
    copula_family,
    copula_upper_orthant,
)

# |x| beyond which the integrand is below 1e-13.
LARGEST_LOGIT = 16.0
STEP = 0.1
# The cell of the t copula is costlier and, as smooth as it is, in no need of a finer step.
STEP_OF_T = 0.25


def kendall_tau(parameter: float, family: CopulaName = "gaussian") -> float:
    """Kendall's tau of a copula; that of the t copula does not depend on its degrees of freedom.

    Parameters
    ----------
    parameter, family
        As for `copula_upper_orthant`. A survival form has the tau of the form it is made from.

    Returns
    -------
    float
        In [-1, 1].

    Raises
    ------
    ValueError
        If the parameter lies outside its range, or the family is unknown.

    References
    ----------
    .. [1] Nelsen, R. B. (2006). An Introduction to Copulas, 2nd edition, Springer, sections 4.2, 4.3 and 5.1.
       :doi:`10.1007/0-387-28678-0`

    Examples
    --------
    >>> kendall_tau(2.0, "clayton"), kendall_tau(2.0, "gumbel"), round(kendall_tau(0.5), 12)
    (0.5, 0.5, 0.333333333333)
    """
    theta = float(checked_parameter(parameter, family))
    if math.isinf(theta):
        return math.copysign(1.0, theta)
    if family in {"gaussian", "t"}:
        return 2 / math.pi * math.asin(theta)
    if family == "frank":
        return 1 - 4 / theta * (1 - _debye(theta)) if theta else 0.0
    return theta / (theta + 2) if family.endswith("clayton") else 1 - 1 / theta


def copula_spearman(parameter: float, family: CopulaName = "gaussian", *, df: float = DEFAULT_DF) -> float:
    """Spearman's rank correlation of a copula, which for the Gaussian is the Refusal Index.

    Parameters
    ----------
    parameter, family, df
        As for `copula_upper_orthant`. A survival form has the correlation of the form it is made from.

    Returns
    -------
    float
        In [-1, 1], to 1e-10 while Kendall's tau is below 0.8, to 1e-4 below 0.95.

    Raises
    ------
    ValueError
        If the parameter lies outside its range, or the family is unknown.

    References
    ----------
    .. [1] Nelsen (2006). :doi:`10.1007/0-387-28678-0`

    Examples
    --------
    >>> round(copula_spearman(0.5), 6), round(copula_spearman(0.5, "t"), 6), round(copula_spearman(1.0, "clayton"), 6)
    (0.482584, 0.46902, 0.478418)
    """
    copula_family(family, df)
    theta = float(checked_parameter(parameter, family))
    if math.isinf(theta) or (family in {"gaussian", "t"} and abs(theta) == 1):
        return math.copysign(1.0, theta)
    if family != "t" and kendall_tau(theta, family) == 0:
        return 0.0
    if family == "gaussian":
        # As for the Refusal Index.
        return math.asin(theta / 2) / math.asin(0.5)
    step = STEP_OF_T if family == "t" else STEP
    logits = np.arange(-LARGEST_LOGIT, LARGEST_LOGIT + step / 2, step)
    u = special.expit(logits)
    weights = step * u * special.expit(-logits)
    excess = copula_upper_orthant(u[:, np.newaxis], u, theta, family, df=df) - np.outer(u, u)
    return float(12 * weights @ excess @ weights)


def _debye(x: float) -> float:
    """Debye function of order 1, ``1/x`` times the integral of ``t / (e^t - 1)`` from 0 to x."""
    value, _ = quad(lambda t: t / math.expm1(t) if t else 1.0, 0, x, epsabs=0, epsrel=1e-12)
    return float(value / x)
