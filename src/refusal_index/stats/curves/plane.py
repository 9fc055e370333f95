"""The accuracy-refusal plane: fitted curves, iso-score curves, and a band for what was fitted.

A model that answers everything is right on a share ``1 - mu`` of the questions; one that refuses everything is right
on none. Between these ends its correct rate follows a curve over the refusal rate r, and the Refusal Index is that
curve's shape: under the Gaussian copula

    c(r) = Phi2(probit(1 - r), probit(1 - mu); rho),

which falls in r and rises in rho. The other metrics draw straight lines through the same plane.

The curve has two parameters, both estimated, and its derivatives in them are known, so the delta method gives a band.
It is made for the logit of the accuracy among answered questions, ``c / (1 - r)``, and therefore stays inside the
plane. With two parameters the simultaneous band is Scheffe's: the pointwise one with the root of a chi-squared
quantile of two degrees of freedom in place of the normal quantile, 2.45 for 1.96 at 95 %.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtr, ndtri

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.baseline import checked_penalty
from refusal_index.stats.bivariate_normal import density, upper_orthant
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.curves.closed_forms import checked_range, checked_rho_and_error_rate, rho_from_refusal_index
from refusal_index.stats.estimate import Status
from refusal_index.stats.index import refusal_index
from refusal_index.stats.influence import cell_influence
from refusal_index.stats.intervals import normal_quantile

ScoreName = Literal["correct_given_attempted", "f_score", "weighted_score"]


class ConfidenceBand(NamedTuple):
    """Lower and upper end of a band, arrays of shape (m,); all NaN where there is none."""

    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class AccuracyRefusalCurve:
    """The accuracy-refusal curve fitted to one table.

    Attributes
    ----------
    refusal_rate, correct_rate : ndarray of float, shape (m,)
        Points of the curve. The correct rates are NaN where the curve is undefined.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `RefusalIndexResult`. At the boundary the curve is that of rho = -1 or +1, and has no band.
    rho : float or None
        Its tetrachoric correlation.
    table : ContingencyTable
        The counts. The curve runs through their own ``(refusal_rate, correct_rate)``.
    """

    refusal_rate: FloatArray
    correct_rate: FloatArray
    status: Status
    reason: str | None
    rho: float | None
    table: ContingencyTable

    def confidence_band(self, confidence_level: float = 0.95, *, simultaneous: bool = False) -> ConfidenceBand:
        """Confidence band of the correct rates, by the delta method on the logit of c / (1 - r).

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        simultaneous : bool, default: False
            If true the band holds the whole curve with this confidence (or a little more); if false each of its
            points by itself.

        Returns
        -------
        ConfidenceBand
            ``(low, high)``, all NaN unless the status is ``"ok"``.

        Examples
        --------
        >>> curve = accuracy_refusal_curve(ContingencyTable(710, 30, 210, 50), [0.0, 0.74])
        >>> low, high = curve.confidence_band()
        >>> low.round(4).tolist(), high.round(4).tolist()
        ([0.0647, 0.0385], [0.0985, 0.0639])
        """
        quantile = _band_quantile(confidence_level, simultaneous)
        if self.rho is None or self.status != "ok":
            nothing = np.full(self.refusal_rate.shape, math.nan)
            return ConfidenceBand(nothing, nothing.copy())
        reach = quantile * _standard_errors(self.table, self.rho, self.refusal_rate)
        return _logit_band(self.correct_rate, 1 - self.refusal_rate - self.correct_rate, reach)


def correct_rate_at(refusal_rate: ArrayLike, rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Correct rate of a model at each refusal rate: its accuracy-refusal curve.

    Parameters
    ----------
    refusal_rate : array_like of float
        Share of questions refused, r, in [0, 1].
    rho : array_like of float in [-1, 1]
    error_rate : array_like of float
        Share of wrong answers under forced answering, mu, in [0, 1]. All three arguments broadcast.

    Returns
    -------
    ndarray
        Share of all questions answered, and answered right, ``c(r)``: from ``1 - mu`` at r = 0 down to 0 at r = 1.

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Fixed Endpoints and Shape of Iso-RI Curves".

    Examples
    --------
    >>> correct_rate_at([0, 0.5, 0.74, 1], rho=0.5, error_rate=0.92).round(4).tolist()
    [0.08, 0.0682, 0.05, 0.0]
    """
    correlation, mu = checked_rho_and_error_rate(rho, error_rate)
    correct = upper_orthant(ndtri(checked_range("refusal_rate", refusal_rate, 0)), ndtri(mu), correlation)
    # Rounding alone can make a probability of 0 negative.
    return np.asarray(np.maximum(correct, 0.0))[()]


def iso_refusal_index(refusal_rate: ArrayLike, refusal_index: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Correct rate that keeps the Refusal Index at a value, at each refusal rate: an iso-RI curve.

    Parameters
    ----------
    refusal_rate, error_rate : array_like of float
        As for `correct_rate_at`.
    refusal_index : array_like of float
        In [-1, 1]. All three arguments broadcast.

    Returns
    -------
    ndarray
        In [0, 1 - r].

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Fixed Endpoints and Shape of Iso-RI Curves".

    Examples
    --------
    At a refusal rate of one half, for a model that is right on 40 % when it answers everything:

    >>> iso_refusal_index(0.5, [-1, 0, 0.5, 1], error_rate=0.6).round(4).tolist()
    [0.0, 0.2, 0.2836, 0.4]
    """
    return correct_rate_at(refusal_rate, rho_from_refusal_index(refusal_index), error_rate)


def iso_score(refusal_rate: ArrayLike, metric: ScoreName, value: ArrayLike, *, penalty: float = 1.0) -> FloatArray:
    """Correct rate that keeps another metric at a value, at each refusal rate: a straight line.

    Parameters
    ----------
    refusal_rate : array_like of float
        In [0, 1].
    metric : {"correct_given_attempted", "f_score", "weighted_score"}
        Which metric is kept.
    value : array_like of float
        Its value. Both arrays broadcast.
    penalty : float, default: 1
        Of the weighted score, not negative.

    Returns
    -------
    ndarray
        ``value (1 - r)``, ``value (2 - r) / 2`` or ``value + penalty (1 - r)``; NaN where no model can be, below 0 or
        above ``1 - r``.

    Raises
    ------
    ValueError
        If a refusal rate lies outside [0, 1], the metric is unknown, or the penalty is negative, infinite or NaN.

    Examples
    --------
    >>> iso_score([0.0, 0.5, 0.9], "f_score", 0.4).round(4).tolist()
    [0.4, 0.3, nan]
    """
    r, score = np.broadcast_arrays(checked_range("refusal_rate", refusal_rate, 0), np.asarray(value, float))
    cost = checked_penalty(penalty)
    if metric not in get_args(ScoreName):
        raise ValueError(f"metric must be one of {', '.join(get_args(ScoreName))}, got {metric!r}")
    lines = {
        "correct_given_attempted": score * (1 - r),
        "f_score": score * (2 - r) / 2,
        "weighted_score": score + cost * (1 - r),
    }
    line = lines[metric]
    return np.where((line >= 0) & (line <= 1 - r), line, np.nan)[()]


def accuracy_refusal_curve(table: ContingencyTable, refusal_rate: ArrayLike | None = None) -> AccuracyRefusalCurve:
    """Fit the accuracy-refusal curve of a table.

    Parameters
    ----------
    table : ContingencyTable
    refusal_rate : array_like of float, shape (m,), optional
        Where to evaluate the curve; 101 equal steps from 0 to 1 if not given.

    Returns
    -------
    AccuracyRefusalCurve
        With the table's own error rate and tetrachoric correlation, through its own point of the plane.

    Raises
    ------
    ValueError
        If a refusal rate lies outside [0, 1], or they are not one-dimensional.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Fixed Endpoints and Shape of Iso-RI Curves".
    .. [2] Scheffe, H. (1953). A method for judging all contrasts in the analysis of variance. Biometrika, 40, 87-104.
       :doi:`10.1093/biomet/40.1-2.87`

    Examples
    --------
    >>> curve = accuracy_refusal_curve(ContingencyTable(710, 30, 210, 50), [0.0, 0.74, 1.0])
    >>> curve.correct_rate.round(4).tolist(), curve.status
    ([0.08, 0.05, 0.0], 'ok')
    """
    rates = checked_range("refusal_rate", np.linspace(0, 1, 101) if refusal_rate is None else refusal_rate, 0)
    if rates.ndim != 1:
        raise ValueError(f"refusal_rate must be one-dimensional, got shape {rates.shape}; is it a single value?")
    result = refusal_index(table)
    if result.rho is None:
        correct = np.full(rates.shape, math.nan)
    else:
        correct = correct_rate_at(rates, result.rho, table.error_rate)
    return AccuracyRefusalCurve(rates, correct, result.status, result.reason, result.rho, table)


def _band_quantile(confidence_level: float, simultaneous: bool) -> float:
    pointwise = normal_quantile(confidence_level)
    # A chi-squared variable with two degrees of freedom is exponential.
    return math.sqrt(-2 * math.log1p(-confidence_level)) if simultaneous else pointwise


def _standard_errors(table: ContingencyTable, rho: float, refusal_rate: FloatArray) -> FloatArray:
    """Return the standard error of the fitted correct rate at each fixed refusal rate."""
    mu = table.error_rate
    # Far enough out for any double below 1, and safe from infinity's undefined differences.
    x, k, spread = np.clip(-ndtri(refusal_rate), -40.0, 40.0), -ndtri(mu), math.sqrt((1 - rho) * (1 + rho))
    gradient = np.stack([-ndtr((x - rho * k) / spread), density(x, k, rho)])
    influence = np.array([(1 - mu, -mu, 1 - mu, -mu), cell_influence(table, rho)])
    covariance = (influence * table.counts) @ influence.T / table.n**2
    return np.asarray(np.sqrt(np.sum(gradient * (covariance @ gradient), axis=0)))


def _logit_band(right: FloatArray, wrong: FloatArray, reach: FloatArray) -> ConfidenceBand:
    """Band of the share right, from its reach, by the logit among the answered; no width where one of them is 0."""
    inside = (right > 0) & (wrong > 0)
    answered, share = right + wrong, np.divide(right, right + wrong, out=np.full(right.shape, 0.5), where=inside)
    shift = np.divide(reach * answered, right * wrong, out=np.zeros(right.shape), where=inside)
    low, high = (np.where(inside, answered * expit(logit(share) + side * shift), right) for side in (-1, 1))
    return ConfidenceBand(low, high)
