"""The refusal rate that would be worth most, and what is lost by another.

Along its accuracy-refusal curve a model that is charged a penalty L for a wrong answer has the utility
``U(r) = c(r) - L (1 - r - c(r)) = (1 + L) c(r) - L (1 - r)``. Refusing a little more gives up the questions just below
the threshold h of the latent refusal score, so the best threshold is where these are worth nothing: where their
probability of being right, ``Phi((k - rho h) / sqrt(1 - rho^2))``, is ``t = L / (1 + L)``. For a positive rho

    h = (k - sqrt(1 - rho^2) probit(t)) / rho.

For any other rho a higher score is no reason to refuse, and the best is to answer all or to refuse all.

The regret is what today's point lacks to the best one. Near the best point it is quadratic, and its estimate cannot
be negative, so no interval of the usual kind covers. Its root, with the sign of refusing too much, is a regular
parameter: the interval is made for that, and squared. Where it holds 0, so does the interval of the regret.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.baseline import checked_penalty
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.curves.closed_forms import checked_rho_and_error_rate
from refusal_index.stats.curves.plane import correct_rate_at
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Status
from refusal_index.stats.estimator import tetrachoric
from refusal_index.stats.index import refusal_index
from refusal_index.stats.intervals import JEFFREYS_DRAWS, Seed, checked_resamples, normal_quantile


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Where on its accuracy-refusal curve a model would be worth most, beside where it is.

    Attributes
    ----------
    refusal_rate : float or None
        The best one.
    utility, utility_today : float or None
        Utility at the best point and at the table's own.
    regret : float or None
        Their difference, not negative.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"`` where the table's rho is -1 or +1, or the best is to answer all or to refuse all.
    reason : str or None
        As in `RefusalIndexResult`, or ``"answer_all"`` or ``"refuse_all"``.
    penalty : float
        Price of a wrong answer.
    table : ContingencyTable
    """

    refusal_rate: float | None
    utility: float | None
    utility_today: float | None
    regret: float | None
    status: Status
    reason: str | None
    penalty: float
    table: ContingencyTable

    def confidence_interval(
        self, confidence_level: float = 0.95, *, n_resamples: int = JEFFREYS_DRAWS, rng: Seed = None
    ) -> ConfidenceInterval:
        """Confidence interval of the regret: posterior quantiles of its signed root, squared.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        n_resamples : int, default: 10,000
            Draws from the posterior of the four cells under Jeffreys' prior.
        rng : int or numpy.random.Generator, optional

        Returns
        -------
        ConfidenceInterval
            ``(low, high)``, with low = 0 where today's point may be the best; both NaN where the regret is undefined.

        Examples
        --------
        >>> point = best_operating_point(ContingencyTable(300, 100, 200, 400), penalty=1)
        >>> low, high = point.confidence_interval(rng=1)
        >>> round(low, 3), round(high, 3)
        (0.002, 0.016)
        """
        normal_quantile(confidence_level)
        checked_resamples(n_resamples)
        if self.regret is None:
            return NO_INTERVAL
        shapes = np.array(self.table.counts)[:, np.newaxis] + 0.5
        cells = np.random.default_rng(rng).standard_gamma(shapes, size=(4, n_resamples))
        roots = _signed_root_regret(cells / cells.sum(axis=0), self.penalty)
        low, high = np.quantile(roots, [(1 - confidence_level) / 2, (1 + confidence_level) / 2])
        nearest = 0.0 if low <= 0 <= high else min(low * low, high * high)
        return ConfidenceInterval(float(nearest), float(max(low * low, high * high)))


def utility_at(refusal_rate: ArrayLike, rho: ArrayLike, error_rate: ArrayLike, penalty: float) -> FloatArray:
    """Mean utility of a question at each refusal rate, along an accuracy-refusal curve.

    Parameters
    ----------
    refusal_rate, rho, error_rate : array_like of float
        As for `correct_rate_at`; they broadcast.
    penalty : float
        Price of a wrong answer, not negative.

    Returns
    -------
    ndarray
        In [-penalty, 1].

    Raises
    ------
    ValueError
        If a rate or the correlation lies outside its range, or the penalty is negative, infinite or NaN.

    References
    ----------
    .. [1] Kalai et al. (2025). :arxiv:`2509.04664`

    Examples
    --------
    >>> utility_at([0, 0.5, 1], rho=0.5, error_rate=0.6, penalty=1).round(4).tolist()
    [-0.2, 0.0609, 0.0]
    """
    price, answered = checked_penalty(penalty), 1 - np.asarray(refusal_rate, float)
    return np.asarray((1 + price) * correct_rate_at(refusal_rate, rho, error_rate) - price * answered)[()]


def best_refusal_rate(rho: ArrayLike, error_rate: ArrayLike, penalty: float) -> FloatArray:
    """Refusal rate with the highest utility on an accuracy-refusal curve.

    Parameters
    ----------
    rho : array_like of float in [-1, 1]
    error_rate : array_like of float
        Share of wrong answers under forced answering, mu, in [0, 1]. Both arguments broadcast.
    penalty : float
        Price of a wrong answer, not negative.

    Returns
    -------
    ndarray
        In [0, 1]. For a rho of at most 0 it is 0 or 1, and 0 where both are worth the same.

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    References
    ----------
    .. [1] Chow, C. K. (1970). On optimum recognition error and reject tradeoff. IEEE Transactions on Information
       Theory, 16, 41-46. :doi:`10.1109/TIT.1970.1054406`

    Examples
    --------
    >>> best_refusal_rate([0.5, 0.5, 1.0, 0.0], [0.6, 0.2, 0.6, 0.6], penalty=1).round(4).tolist()
    [0.6938, 0.0462, 0.6, 1.0]
    """
    correlation, mu = checked_rho_and_error_rate(rho, error_rate)
    price = checked_penalty(penalty)
    worth_answering = 1 - mu >= price * mu
    ranks = (correlation > 0) & (mu > 0) & (mu < 1) & (price > 0)
    slope, k = np.where(ranks, correlation, 1.0), -ndtri(np.where(ranks, mu, 0.5))
    # A penalty of 0 never ranks; the probit of t is taken from its other tail, which does not round to 1.
    probit_t = -ndtri(1 / (1 + price)) if price else 0.0
    with np.errstate(over="ignore"):
        threshold = (k - np.sqrt((1 - slope) * (1 + slope)) * probit_t) / slope
    return np.where(ranks, ndtr(-threshold), np.where(worth_answering, 0.0, 1.0))[()]


def best_operating_point(table: ContingencyTable, penalty: float) -> OperatingPoint:
    """Find the best operating point on the accuracy-refusal curve fitted to a table, and the regret of its own.

    Parameters
    ----------
    table : ContingencyTable
    penalty : float
        Price of a wrong answer, not negative.

    Returns
    -------
    OperatingPoint
        All None where the Refusal Index is undefined, since there is no curve then.

    Raises
    ------
    ValueError
        If the penalty is negative, infinite or NaN.

    References
    ----------
    .. [1] Chow (1970). :doi:`10.1109/TIT.1970.1054406`

    Examples
    --------
    >>> point = best_operating_point(ContingencyTable(300, 100, 200, 400), penalty=1)
    >>> round(point.refusal_rate, 3), round(point.utility, 3), round(point.utility_today, 3), round(point.regret, 4)
    (0.5, 0.208, 0.2, 0.0077)
    """
    price, result = checked_penalty(penalty), refusal_index(table)
    if result.rho is None:
        return OperatingPoint(None, None, None, None, "undefined", result.reason, price, table)
    best = float(best_refusal_rate(result.rho, table.error_rate, price))
    value = float(utility_at(best, result.rho, table.error_rate, price))
    today = (table.answered_right - price * table.answered_wrong) / table.n
    end = {0.0: "answer_all", 1.0: "refuse_all"}.get(best)
    status: Status = "boundary" if end else result.status
    return OperatingPoint(best, value, today, max(value - today, 0.0), status, result.reason or end, price, table)


def _signed_root_regret(cells: FloatArray, penalty: float) -> FloatArray:
    """Root of the regret of tables of cell probabilities, negative where they refuse too little."""
    p11, p10, p01, p00 = cells
    rho, refused, mu = tetrachoric(p11, p10, p01, p00), p11 + p10, p11 + p01
    best = best_refusal_rate(rho, mu, penalty)
    regret = utility_at(best, rho, mu, penalty) - (p00 - penalty * p01)
    # At the best point itself rounding can make the difference negative.
    return np.asarray(np.sign(refused - best) * np.sqrt(np.maximum(regret, 0.0)))
