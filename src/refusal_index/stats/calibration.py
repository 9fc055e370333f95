"""Discrimination and calibration of a score that predicts whether answers are right.

Simulated coverage of nominal 95% intervals for the area under the ROC curve is .94 to .96, for 200 and 1,000
questions, 5 to 90% right answers, areas from .63 to .90 and scores with and without many ties. That of DeLong's
interval alone falls to .76 with ten right answers. Newcombe's does not have this problem, but computes the variance
from the area alone, so with many ties its coverage can be .90 for any number of questions.

With recalibration by isotonic regression on the score (the CORP approach), the mean Brier score can be decomposed
without bins or other tuning:

    score = miscalibration - discrimination + uncertainty.

Uncertainty is the Brier score of predicting the base rate for every question. Discrimination is the improvement of the
recalibrated scores over that, and miscalibration the loss of the original scores against the recalibrated ones.

The smooth calibration error is the ECE with a Gaussian kernel instead of bins. The kernel is reflected at 0 and 1, so
it stays within the range of the score. It is then the heat kernel of the unit interval, which multiplies the k-th term
of a cosine series by ``exp(-(k pi sigma)^2 / 2)``. So the residuals are smoothed by a cosine transform, a product and
the inverse transform.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.fft import dct
from scipy.optimize import brentq, isotonic_regression

from refusal_index.stats.arguments import FloatArray, check_same_index, one_of, share, truth_values, unmasked
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Result, ResultWithInterval
from refusal_index.stats.intervals import Seed, checked_resamples, normal_quantile, wilson_interval

AurocMethod = Literal["auto", "delong", "newcombe"]

FEW_OF_A_KIND = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AurocResult(ResultWithInterval):
    """The area under the ROC curve of a score for an outcome.

    Attributes
    ----------
    estimate : float or None
        Probability that a question with a true outcome has a higher score than one with a false outcome, with ties
        counted as one half. 1/2 for an uninformative score.
    standard_error : float or None
        DeLong's standard error, valid with ties. None unless the status is ``"ok"`` and there are at least two
        questions of each kind.
    degrees_of_freedom : float or None
        Welch-Satterthwaite degrees of freedom of the standard error; None if that is None.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: the score separates both kinds of questions perfectly, or all scores are equal.
    reason : str or None
        At the boundary ``"all_true_above"``, ``"all_false_above"`` or ``"all_tied"``; if undefined, the first that
        applies of ``"no_questions"``, ``"all_false"`` and ``"all_true"``.
    n_true, n_false : int
        Number of questions with a true and with a false outcome.
    """

    degrees_of_freedom: float | None = None
    n_true: int
    n_false: int

    def confidence_interval(self, confidence_level: float = 0.95, method: AurocMethod = "auto") -> ConfidenceInterval:
        """Return a confidence interval of the area.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        method : {"auto", "delong", "newcombe"}
            ``"delong"``: Student's t interval for ``log(A / (1 - A))`` with DeLong's standard error. ``"newcombe"``:
            score interval with the variance by Hanley and McNeil's formula. ``"auto"``: Newcombe's if there are fewer
            than 20 questions of one kind or no standard error, otherwise DeLong's.

        Returns
        -------
        ConfidenceInterval
            At an area of 0 or 1 Newcombe's interval ends there. DeLong's is ``(nan, nan)`` without a standard error.
            Both are ``(nan, nan)`` if the area is undefined.

        Examples
        --------
        >>> result = auroc([0.9, 0.8, 0.7, 0.4, 0.3, 0.1], [True, True, False, True, False, False])
        >>> low, high = result.confidence_interval()
        >>> round(low, 3), round(high, 3)
        (0.401, 0.988)
        """
        quantile = normal_quantile(confidence_level)
        one_of("method", method, get_args(AurocMethod))
        if self.estimate is None:
            return NO_INTERVAL
        few = self.standard_error is None or min(self.n_true, self.n_false) < FEW_OF_A_KIND
        if method == "newcombe" or (method == "auto" and few):
            return _newcombe(self.estimate, self.n_true, self.n_false, quantile)
        area = self.estimate
        error = self.standard_error
        if error is None:
            return NO_INTERVAL
        quantile = float(special.stdtrit(self.degrees_of_freedom, (1 + confidence_level) / 2))
        centre = float(special.logit(area))
        reach = quantile * error / (area * (1 - area))
        return ConfidenceInterval(float(special.expit(centre - reach)), float(special.expit(centre + reach)))


def auroc(score: ArrayLike, outcome: ArrayLike) -> AurocResult:
    """Return the area under the ROC curve, with its standard error.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Score of each question, such as P(Answering), the share of draws in which the model answers; higher if the
        outcome is more likely to be true. Only the order matters.
    outcome : array_like of bool, shape (n,)
        Whether the answer was right.

    Returns
    -------
    AurocResult
        Undefined if all outcomes are equal.

    Raises
    ------
    TypeError, ValueError
        If `score` does not hold finite numbers, `outcome` does not hold truth values, or lengths differ.

    References
    ----------
    .. [1] DeLong, E. R., DeLong, D. M. and Clarke-Pearson, D. L. (1988). Comparing the areas under two or more
       correlated receiver operating characteristic curves. Biometrics, 44, 837-845. :doi:`10.2307/2531595`
    .. [2] Newcombe, R. G. (2006). Confidence intervals for an effect size measure based on the Mann-Whitney statistic.
       Part 2. Statistics in Medicine, 25, 559-573. :doi:`10.1002/sim.2324`. Method 5.

    Examples
    --------
    >>> result = auroc([0.9, 0.8, 0.7, 0.4, 0.3, 0.1], [True, True, False, True, False, False])
    >>> round(result.estimate, 4), round(result.standard_error, 4)
    (0.8889, 0.1571)
    """
    scores, truths = checked_scores(score, outcome)
    above = np.sort(scores[truths])
    below = np.sort(scores[~truths])
    if not above.size or not below.size:
        reason = "no_questions" if not scores.size else "all_true" if above.size else "all_false"
        return AurocResult(None, "undefined", reason, n_true=above.size, n_false=below.size)
    wins = _share_below(above, below)
    area = float(wins.mean())
    if area in {0.0, 1.0} or scores.min() == scores.max():
        reason = {0.0: "all_false_above", 1.0: "all_true_above"}.get(area, "all_tied")
        return AurocResult(area, "boundary", reason, n_true=above.size, n_false=below.size)
    if min(above.size, below.size) < 2:
        return AurocResult(area, n_true=above.size, n_false=below.size)
    losses = _share_below(below, above)
    parts = np.array([wins.var(ddof=1) / wins.size, losses.var(ddof=1) / losses.size])
    variance = float(parts.sum())
    error = math.sqrt(variance)
    freedom = variance**2 / float(np.sum(parts**2 / [wins.size - 1, losses.size - 1]))
    return AurocResult(area, standard_error=error, degrees_of_freedom=freedom, n_true=above.size, n_false=below.size)


def auroc_influence(score: ArrayLike, outcome: ArrayLike) -> FloatArray:
    """Return the influence of each question on the area under the ROC curve, divided by their number.

    Parameters
    ----------
    score, outcome : array_like, shape (n,)
        As for `auroc`.

    Returns
    -------
    ndarray, shape (n,)
        The sum of squares is DeLong's variance with n instead of n - 1. The sum of products with the influence on
        another estimate from the same questions is their covariance. NaN unless the status of the area is ``"ok"``.

    Raises
    ------
    TypeError, ValueError
        As for `auroc`.

    References
    ----------
    .. [1] DeLong et al. (1988). :doi:`10.2307/2531595`

    Examples
    --------
    >>> auroc_influence([0.9, 0.4, 0.7, 0.1], [True, True, False, False]).tolist()
    [0.125, -0.125, -0.125, 0.125]
    """
    scores, truths = checked_scores(score, outcome)
    area = auroc(scores, truths)
    if area.status != "ok" or area.estimate is None:
        return np.full(scores.size, np.nan)
    above = scores[truths]
    below = scores[~truths]
    influence = np.empty(scores.size)
    influence[truths] = (_share_below(above, np.sort(below)) - area.estimate) / above.size
    influence[~truths] = (1 - _share_below(below, np.sort(above)) - area.estimate) / below.size
    return influence


def roc_counts(score: FloatArray, truths: NDArray[np.bool_]) -> tuple[FloatArray, NDArray[np.intp], NDArray[np.intp]]:
    """Return distinct scores in decreasing order, and how many true and how many questions score at least that.

    Examples
    --------
    >>> scores, hits, passed = roc_counts(np.array([0.9, 0.7, 0.7, 0.2]), np.array([True, False, True, False]))
    >>> scores.tolist(), hits.tolist(), passed.tolist()
    ([0.9, 0.7, 0.2], [1, 2, 2], [1, 3, 4])
    """
    order = np.argsort(-score, kind="stable")
    ends = np.flatnonzero(np.diff(score[order], append=-np.inf))
    return score[order][ends], np.cumsum(truths[order], dtype=np.intp)[ends], ends + 1


def checked_scores(score: ArrayLike, outcome: ArrayLike, name: str = "outcome") -> tuple[FloatArray, NDArray[np.bool_]]:
    """Check a finite score and a truth value for each question; return both as arrays of shape (n,).

    `name` is the name of the outcome in messages.
    """
    check_same_index({"score": score, name: outcome})
    scores = unmasked("score", score)
    truths = truth_values(name, outcome)
    if scores.dtype.kind not in "iufb":
        raise TypeError(f"score must hold numbers, got an array of {scores.dtype}; are scores missing?")
    if scores.ndim != 1 or scores.shape != truths.shape:
        raise ValueError(
            f"score and {name} must have one value for each of the same questions, "
            f"got shapes {scores.shape} and {truths.shape}; was one of them filtered?"
        )
    if not np.isfinite(scores).all():
        raise ValueError("score must be finite, got NaN or infinity; are scores missing?")
    return scores.astype(np.float64), truths.astype(bool)


def _share_below(values: FloatArray, sorted_others: FloatArray) -> FloatArray:
    """Return for each value the share of the others below it; equal ones count one half."""
    below = np.searchsorted(sorted_others, values, "left")
    not_above = np.searchsorted(sorted_others, values, "right")
    return np.asarray((below + not_above) / (2 * sorted_others.size))


def _newcombe(area: float, n_true: int, n_false: int, quantile: float) -> ConfidenceInterval:
    """Return the areas A with ``|A - area| <= quantile sd(A)``, by Newcombe's form of Hanley and McNeil's variance."""
    size = (n_true + n_false) / 2 - 1

    def excess(candidate: float) -> float:
        spread = 1 + size * ((1 - candidate) / (2 - candidate) + candidate / (1 + candidate))
        variance = candidate * (1 - candidate) * spread / (n_true * n_false)
        return abs(candidate - area) - quantile * math.sqrt(variance)

    # At an area of 0 or 1, that area is a root too, but not the wanted one.
    near = 1e-12
    low = 0.0 if area == 0 else float(brentq(excess, 0.0, min(area, 1 - near), xtol=1e-14))
    high = 1.0 if area == 1 else float(brentq(excess, max(area, near), 1.0, xtol=1e-14))
    return ConfidenceInterval(low, high)


Binning = Literal["equal_width", "equal_mass"]


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """The questions whose score is in one bin.

    Attributes
    ----------
    low, high : float
        Ends of the bin; the lower end is excluded except in the first bin.
    count : int
    mean_score : float or None
        Mean score; None for an empty bin.
    outcome_rate : float or None
        Share of true outcomes; None for an empty bin.
    outcome_rate_low, outcome_rate_high : float or None
        Its Wilson interval.
    """

    low: float
    high: float
    count: int
    mean_score: float | None
    outcome_rate: float | None
    outcome_rate_low: float | None
    outcome_rate_high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationErrorResult(Result):
    """Expected or root-mean-square calibration error, with its bins.

    Attributes
    ----------
    estimate : float or None
        In [0, 1]. By sampling error, it is positive even for a perfectly calibrated score.
    status : {"ok", "undefined"}
    reason : str or None
        ``"no_questions"`` if undefined.
    bins : tuple of ReliabilityBin
    binning : {"equal_width", "equal_mass"}
    """

    bins: tuple[ReliabilityBin, ...]
    binning: Binning


def reliability_table(
    score: ArrayLike,
    outcome: ArrayLike,
    *,
    n_bins: int = 10,
    binning: Binning = "equal_width",
    confidence_level: float = 0.95,
) -> tuple[ReliabilityBin, ...]:
    """Return the mean score and the share of true outcomes in bins of the score.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        In [0, 1]: a probability, or a frequency such as P(Answering).
    outcome : array_like of bool, shape (n,)
        Whether the event with this predicted probability occurred, such as the answer being right.
    n_bins : int, default: 10
    binning : {"equal_width", "equal_mass"}
        ``"equal_width"``: ``(0, 1/n_bins], ...``, with 0 in the first bin; bins can be empty. ``"equal_mass"``: between
        quantiles of the score; equal scores share a bin, so there can be fewer than `n_bins`.
    confidence_level : float, default: 0.95
        Confidence level of the Wilson intervals.

    Returns
    -------
    tuple of ReliabilityBin
        In the order of the scores. Without questions, bins of equal width are empty, and there are none of equal mass.

    Raises
    ------
    TypeError, ValueError
        If the scores are not numbers in [0, 1], `outcome` does not hold truth values, lengths differ, or an option is
        unknown.

    References
    ----------
    .. [1] Guo, C., Pleiss, G., Sun, Y. and Weinberger, K. Q. (2017). On calibration of modern neural networks. ICML,
       equations 2 and 3. :arxiv:`1706.04599`

    Examples
    --------
    >>> for row in reliability_table([0.1, 0.5, 0.6, 0.9, 1.0], [False, False, True, True, True], n_bins=2):
    ...     print(f"({row.low}, {row.high}] {row.count} {row.mean_score:.3f} {row.outcome_rate:.3f}")
    (0.0, 0.5] 2 0.300 0.000
    (0.5, 1.0] 3 0.833 1.000
    """
    scores, truths = checked_probabilities(score, outcome)
    quantile = normal_quantile(confidence_level)
    edges, index = _binned(scores, n_bins, binning)
    n_of, claimed, observed = (
        np.bincount(index, weights, minlength=max(len(edges) - 1, 0))
        for weights in (None, scores, truths.astype(float))
    )
    rows = zip(edges[:-1], edges[1:], n_of.tolist(), claimed.tolist(), observed.tolist(), strict=True)
    return tuple(
        ReliabilityBin(low, high, n, score / n, true / n, *wilson_interval(int(true), n, quantile))
        if n
        else ReliabilityBin(low, high, 0, None, None, None, None)
        for low, high, n, score, true in rows
    )


def expected_calibration_error(
    score: ArrayLike, outcome: ArrayLike, *, n_bins: int = 10, binning: Binning = "equal_width"
) -> CalibrationErrorResult:
    """Return the ECE: the mean distance between score and share of true outcomes, weighted by bin size.

    Parameters are those of `reliability_table`.

    Returns
    -------
    CalibrationErrorResult
        Undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        As for `reliability_table`.

    References
    ----------
    .. [1] Guo et al. (2017). :arxiv:`1706.04599`

    Examples
    --------
    >>> round(expected_calibration_error([0.1, 0.5, 0.6, 0.9, 1.0], [False, False, True, True, True]).estimate, 4)
    0.22
    """
    return _calibration_error(score, outcome, n_bins, binning, power=1)


def _calibration_error(
    score: ArrayLike, outcome: ArrayLike, n_bins: int, binning: Binning, power: int
) -> CalibrationErrorResult:
    """Return the p-th root of the mean p-th power of the distances, weighted by bin size; p is `power`."""
    bins = reliability_table(score, outcome, n_bins=n_bins, binning=binning)
    filled = [(row.count, row.mean_score, row.outcome_rate) for row in bins if row.count]
    if not filled:
        return CalibrationErrorResult(None, "undefined", "no_questions", bins=bins, binning=binning)
    counts, claimed, observed = np.array(filled, float).T
    gaps = np.abs(claimed - observed)
    mean = float(np.average(gaps**power, weights=counts))
    return CalibrationErrorResult(mean ** (1 / power), bins=bins, binning=binning)


RESAMPLES = 1_000
MAX_FACTOR = 1024.0
"""Maximum factor for the observed gaps; beyond it they would be mere noise."""


def calibration_error_interval(
    score: ArrayLike,
    outcome: ArrayLike,
    *,
    n_bins: int = 10,
    confidence_level: float = 0.95,
    n_resamples: int = RESAMPLES,
    rng: Seed = None,
) -> ConfidenceInterval:
    """Return an interval of the calibration error that `expected_calibration_error` estimates with equal-width bins.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Scores in [0, 1].
    outcome : array_like of bool, shape (n,)
        Whether the event that the score predicts occurred.
    n_bins : int, default: 10
        Number of bins of equal width.
    confidence_level : float, default: 0.95
    n_resamples : int, default: 1000
    rng : int, Generator or None
        Seed of the resamples.

    Returns
    -------
    ConfidenceInterval
        Interval of the population error with these bins. It always includes the estimate, and 0 if perfect calibration
        cannot be rejected. ``(nan, nan)`` if no question differs from the prediction of its bin, for example if all
        scores are 1 and all outcomes true, or if there are no questions.

    Raises
    ------
    TypeError, ValueError
        As `expected_calibration_error`, or if the level is not between 0 and 1.

    Examples
    --------
    >>> rng = np.random.default_rng(2)
    >>> score = rng.random(400)
    >>> right = rng.random(400) < score
    >>> for claim in (score, score**2):  # the second score is too low, by 1/6 on average
    ...     low, high = calibration_error_interval(claim, right, rng=0)
    ...     print(f"[{low:.3f}, {high:.3f}]")
    [0.000, 0.070]
    [0.130, 0.209]
    """
    scores, truths = checked_probabilities(score, outcome)
    tail = (1 - share("confidence_level", confidence_level)) / 2
    n_resamples = checked_resamples(n_resamples)
    n = scores.size
    if not n:
        return NO_INTERVAL
    # Rounded like the bins: a frequency at the end of a bin belongs to it.
    ends = [bin_.high for bin_ in reliability_table(scores, truths, n_bins=n_bins)]
    parts = np.zeros((n, n_bins))
    parts[np.arange(n), np.searchsorted(ends, np.round(scores, 10))] = (scores - truths) / n
    weights = np.random.default_rng(rng).multinomial(n, np.full(n, 1 / n), size=n_resamples)
    # The gap of each bin as a share of all questions, and its noise over resampled questions.
    gap = parts.sum(axis=0)
    noise = weights @ parts - gap
    if not noise.any():
        return NO_INTERVAL
    observed = float(np.abs(gap).sum())
    usual = float(np.median(np.abs(noise).sum(axis=1)))
    direction = np.where(gap < 0, -1, 1) * np.maximum(np.abs(gap), noise.std(axis=0))

    def quantile(factor: float, level: float) -> float:
        return float(np.quantile(np.abs(factor * direction + noise).sum(axis=1), level))

    low = _root(lambda factor: quantile(factor, 1 - tail) - observed)
    high = _root(lambda factor: quantile(factor, tail) - max(observed, usual))
    length = float(np.abs(direction).sum())
    return ConfidenceInterval(min(low * length, observed), min(max(high * length, observed), 1.0))


def _root(beyond: Callable[[float], float]) -> float:
    """Return the factor at which an increasing function is 0, or 0 if the function is not negative there."""
    if beyond(0.0) >= 0:
        return 0.0  # the end of the range of factors
    end = 1.0
    while beyond(end) < 0 and end < MAX_FACTOR:
        end *= 2
    return float(brentq(beyond, 0.0, end)) if beyond(end) >= 0 else end


def checked_probabilities(score: ArrayLike, outcome: ArrayLike) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Check a score in [0, 1] and a truth value for each question; return both as arrays of shape (n,)."""
    scores, truths = checked_scores(score, outcome)
    outside = scores[(scores < 0) | (scores > 1)]
    if outside.size:
        raise ValueError(f"score must lie in [0, 1], got {float(outside[0])!r}; is it a percentage, or a logit?")
    return scores, truths


def _binned(scores: FloatArray, n_bins: int, binning: Binning) -> tuple[list[float], NDArray[np.intp]]:
    """Return the ends of the bins, and the bin of each score."""
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins!r}")
    one_of("binning", binning, get_args(Binning))
    if binning == "equal_width":
        # 0.07 * 100 is not 7 in floating point; rounding keeps a frequency at the end of a bin in that bin.
        index = np.maximum(np.ceil(np.round(scores * n_bins, 9)) - 1, 0)
        return [i / n_bins for i in range(n_bins + 1)], index.astype(np.intp)
    if not scores.size:
        return [], np.empty(0, np.intp)
    ends = np.unique(np.quantile(scores, np.arange(1, n_bins + 1) / n_bins, method="inverted_cdf"))
    return [float(scores.min()), *ends.tolist()], np.searchsorted(ends, scores, side="left")


# Losses are at most 1; smaller differences than this are rounding errors.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class BrierResult(ResultWithInterval):
    """The mean Brier score with its decomposition.

    Attributes
    ----------
    estimate : float or None
        Mean squared difference of score and outcome, in [0, 1]; lower is better.
    standard_error : float or None
        None unless the status is ``"ok"``.
    miscalibration, discrimination, uncertainty : float or None
        Non-negative; ``miscalibration - discrimination + uncertainty`` is the estimate. By sampling error, the first
        two are positive even for a calibrated or an uninformative score.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: all questions have the same loss, or there is only one question.
    reason : str or None
        ``"no_variation"`` at the boundary, ``"no_questions"`` if undefined.
    n : int
    """

    miscalibration: float | None = None
    discrimination: float | None = None
    uncertainty: float | None = None
    n: int

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return Student's t interval of the mean, limited to [0, 1]; ``(nan, nan)`` unless the status is ``"ok"``."""
        low, high = ResultWithInterval.confidence_interval(self, confidence_level)
        return ConfidenceInterval(max(low, 0.0), min(high, 1.0))


def brier_score(score: ArrayLike, outcome: ArrayLike) -> BrierResult:
    """Return the mean Brier score, its standard error, and its decomposition by isotonic recalibration.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        In [0, 1]: predicted probability that the outcome is true.
    outcome : array_like of bool, shape (n,)
        Whether the event with this predicted probability occurred, such as the answer being right.

    Returns
    -------
    BrierResult
        Undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        If the scores are not numbers in [0, 1], `outcome` does not hold truth values, or lengths differ.

    Notes
    -----
    The decomposition is that of this sample. The standard error is that of the mean over independent questions.
    Simulated coverage of 95% intervals is .94 to .95 with 200 questions or more, .92 to .94 with 50.

    References
    ----------
    .. [1] Brier, G. W. (1950). Verification of forecasts expressed in terms of probability. Monthly Weather Review, 78,
       1-3. https://doi.org/10.1175/1520-0493(1950)078%3C0001:VOFEIT%3E2.0.CO;2
    .. [2] Dimitriadis, T., Gneiting, T. and Jordan, A. I. (2021). Stable reliability diagrams for probabilistic
       classifiers. PNAS, 118, e2016191118. :doi:`10.1073/pnas.2016191118`

    Examples
    --------
    >>> result = brier_score([0.9, 0.8, 0.7, 0.4, 0.3, 0.1], [True, True, False, True, False, False])
    >>> round(result.estimate, 4), round(result.standard_error, 4)
    (0.1667, 0.0842)
    >>> round(result.miscalibration, 4), round(result.discrimination, 4), round(result.uncertainty, 4)
    (0.0833, 0.1667, 0.25)
    """
    scores, truths = checked_probabilities(score, outcome)
    n = scores.size
    if not n:
        return BrierResult(None, "undefined", "no_questions", n=0)
    losses = (scores - truths) ** 2
    estimate = float(losses.mean())
    rate = float(truths.mean())
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    shares = np.bincount(group, truths) / sizes
    recalibrated = isotonic_regression(shares, weights=sizes).x[group]
    best = float(np.mean((recalibrated - truths) ** 2))
    uncertainty = rate * (1 - rate)
    result = BrierResult(
        estimate,
        "boundary",
        "no_variation",
        # Both can only be negative by rounding.
        miscalibration=max(estimate - best, 0.0),
        discrimination=max(uncertainty - best, 0.0),
        uncertainty=uncertainty,
        n=n,
    )
    if np.ptp(losses) <= ROUNDING:
        return result
    error = float(losses.std(ddof=1)) / math.sqrt(n)
    return replace(result, status="ok", reason=None, standard_error=error, _degrees_of_freedom=n - 1)


def rms_calibration_error(
    score: ArrayLike, outcome: ArrayLike, *, n_bins: int = 10, binning: Binning = "equal_width"
) -> CalibrationErrorResult:
    """Return the root-mean-square distance between score and share of true outcomes, weighted by bin size.

    Parameters are those of `reliability_table`.

    Returns
    -------
    CalibrationErrorResult
        At least as large as the expected calibration error in the same bins. Undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        As for `reliability_table`.

    References
    ----------
    .. [1] Hendrycks, D., Mazeika, M. and Dietterich, T. (2019). Deep anomaly detection with outlier exposure. ICLR.
       RMS calibration error. :arxiv:`1812.04606`

    Examples
    --------
    >>> round(rms_calibration_error([0.1, 0.5, 0.6, 0.9, 1.0], [False, False, True, True, True]).estimate, 4)
    0.2933
    """
    return _calibration_error(score, outcome, n_bins, binning, power=2)


# Number of grid steps to which scores are assigned by linear interpolation; much finer than any kernel.
STEPS = 8192
NARROWEST = 1e-3


def smooth_calibration_error(score: ArrayLike, outcome: ArrayLike) -> Result:
    """Return the smooth expected calibration error (smECE), at the bandwidth that equals the error itself.

    At bandwidth sigma, it is the integral over t in [0, 1] of the absolute mean of
    ``(outcome - score) kernel(score, t)``, with the reflected Gaussian kernel of that standard deviation. It decreases
    with sigma, and is reported at the sigma that equals it, so there is no tuning parameter.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        In [0, 1]: predicted probability that the outcome is true.
    outcome : array_like of bool, shape (n,)
        Whether the event with this predicted probability occurred, such as the answer being right.

    Returns
    -------
    Result
        In [0, 1]: at least the distance between mean score and share of true outcomes, and at most the mean distance of
        score and outcome. By sampling error, it is positive even for a perfectly calibrated score. Undefined if there
        are no questions (``"no_questions"``).

    Raises
    ------
    TypeError, ValueError
        If the scores are not numbers in [0, 1], `outcome` does not hold truth values, or lengths differ.

    Notes
    -----
    The value agrees with direct integration to 1e-6; an error below 1e-3 is that at bandwidth 1e-3. The authors'
    package relplot 1.0.3 agrees to 1e-3 for scores strictly between 0 and 1 and errors below .15. Elsewhere it deviates
    from the definition by up to .12: it counts scores of exactly 0 or 1 half, and truncates the kernel at a distance of
    1/2.

    References
    ----------
    .. [1] Błasiok, J. and Nakkiran, P. (2023). Smooth ECE: principled reliability diagrams via kernel smoothing.
       :arxiv:`2309.12236`

    Examples
    --------
    >>> round(smooth_calibration_error([0.1, 0.5, 0.6, 0.9, 1.0], [False, False, True, True, True]).estimate, 4)
    0.1066
    """
    scores, truths = checked_probabilities(score, outcome)
    if not scores.size:
        return Result(None, "undefined", "no_questions")
    residuals = (truths - scores) / scores.size
    left = np.minimum((scores * STEPS).astype(np.intp), STEPS - 1)
    part = scores * STEPS - left
    indices = np.concatenate([left, left + 1])
    weights = np.concatenate([residuals * (1 - part), residuals * part])
    spread = np.bincount(indices, weights, minlength=STEPS + 1)
    # The transform counts the ends once and all other points twice.
    spread[[0, -1]] *= 2
    series = dct(spread, type=1) / 2  # sums of residual cos(k pi score) for k = 0, ..., STEPS
    estimate = _smoothed_error(series, NARROWEST)
    if estimate > NARROWEST:
        estimate = float(brentq(lambda width: _smoothed_error(series, width) - width, NARROWEST, 2.0, xtol=1e-12))
    return Result(estimate)


def _smoothed_error(series: FloatArray, width: float) -> float:
    damping = np.exp(-((np.arange(STEPS + 1) * math.pi * width) ** 2) / 2)
    smoothed = np.abs(dct(series * damping, type=1))
    return float(np.trapezoid(smoothed) / STEPS)
