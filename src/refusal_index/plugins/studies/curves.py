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

How much a model that refuses as often as it errs still decides wrongly: what a well-chosen refusal rate leaves.

A refusal is right where the forced answer is wrong. With as many refusals as errors, mu of the questions, a model that
knows its errors decides every question rightly, one that refuses at random gets ``2 mu (1 - mu)`` wrong, and one on the
accuracy-refusal curve of rho ``2 (mu - P(R, W))``, with P the bivariate normal probability above both thresholds. The
share of the gap between chance and perfection that is left, ``(mu - P) / (mu (1 - mu))``, is one less Cohen's kappa of
refusals and errors.

Abstention metrics: refusing as the detection of questions that would be answered wrongly.

A refusal is a positive call, a wrong answer under forced answering is what should be called. The 2x2 table then has
the precision, the recall and the F1 of any detector, and two shares that say what refusing costs: how many of the
questions that the model would get right it refuses, and how many of its refusals were needless.

All of them move with the refusal rate: refusing more raises the recall and the over-refusal of any model. They
describe one operating point, where the Refusal Index describes the ranking behind it.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri, xlog1py, xlogy

from refusal_index.stats.arguments import FloatArray
from refusal_index.stats.baseline import DEFAULT_PAYOFFS, checked_penalty, rate_or_score
from refusal_index.stats.calibration.against_refusals import expected_counts
from refusal_index.stats.calibration.auroc import checked_scores
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.curves import checked_range, checked_rho_and_error_rate, correct_rate_at
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Estimate, Result, Status
from refusal_index.stats.estimator import tetrachoric, upper_orthant
from refusal_index.stats.intervals import (
    JEFFREYS_DRAWS,
    Seed,
    central_quantiles,
    checked_resamples,
    normal_quantile,
    proportion,
    refusal_index,
)

# Equal steps over the whole real line: for a smooth integrand under a normal density that is exact to rounding.
NODES = np.linspace(-9.0, 9.0, 181)


WEIGHTS = np.exp(-0.5 * NODES**2) * (NODES[1] - NODES[0]) / math.sqrt(2 * math.pi)


# Beyond this |rho| the error rate as a function of the score is so steep that its inverse is integrated instead.
STEEP = math.sqrt(0.5)


def accuracy_refusal_area(rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Area under the accuracy-refusal curve: the correct rate, averaged over all refusal rates.

    Parameters and broadcasting are those of `latent_auroc`.

    Returns
    -------
    ndarray
        ``(1 - mu) ((1 - mu) / 2 + mu AUROC)``, in [0, 1/2]. It is ``(1 - mu) / 2`` for refusals at random.

    Raises
    ------
    ValueError
        As `latent_auroc`.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Accuracy-refusal curve.

    Examples
    --------
    >>> round(float(accuracy_refusal_area(0.5, 0.92)), 5)
    0.0605
    """
    correlation, mu = checked_rho_and_error_rate(rho, error_rate)
    return np.asarray(0.5 - mu + upper_orthant(0.0, -ndtri(mu), correlation * math.sqrt(0.5)))[()]


def latent_aurc(rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Area under the risk-coverage curve: the error rate among answered questions, averaged over all coverages.

    Parameters and broadcasting are those of `latent_auroc`.

    Returns
    -------
    ndarray
        In [0, 1], lower is better; mu for refusals at random.

    Raises
    ------
    ValueError
        As `latent_auroc`.

    Notes
    -----
    The average is ``E[-log(U) w(U)]``, with U the rank of the score and w the share of wrong answers at that rank.
    Either that is summed, or, where w is steep, its integral by parts.

    References
    ----------
    .. [1] Geifman, Y., Uziel, G. and El-Yaniv, R. (2019). Bias-reduced uncertainty estimation for deep neural
       classifiers. ICLR. :arxiv:`1805.08206`

    Examples
    --------
    >>> latent_aurc([0.5, 0.0], 0.92).round(5).tolist()
    [0.83667, 0.92]
    """
    correlation, mu = checked_rho_and_error_rate(rho, error_rate)
    steep = np.abs(correlation) > STEEP
    k, spread = -ndtri(mu), np.sqrt((1 - correlation) * (1 + correlation))
    gentle = _aurc_by_score(np.where(steep, 0.0, correlation), k, np.where(steep, 1.0, spread))
    return np.where(steep, _aurc_by_parts(np.where(steep, correlation, 1.0), k, spread), gentle)[()]


def latent_excess_aurc(rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """E-AURC: how far `latent_aurc` lies above that of the perfect score, which refuses all wrong questions first.

    Parameters and broadcasting are those of `latent_auroc`.

    Returns
    -------
    ndarray
        ``AURC - mu - (1 - mu) log(1 - mu)``, not negative but for rounding; 0 at rho = 1.

    Raises
    ------
    ValueError
        As `latent_auroc`.

    References
    ----------
    .. [1] Geifman et al. (2019). :arxiv:`1805.08206`

    Examples
    --------
    >>> round(float(latent_excess_aurc(0.5, 0.92)), 5)
    0.11872
    """
    _, mu = checked_rho_and_error_rate(rho, error_rate)
    return np.asarray(latent_aurc(rho, mu) - mu - xlog1py(1 - mu, -mu))[()]


def _aurc_by_score(rho: FloatArray, k: FloatArray, spread: FloatArray) -> FloatArray:
    wrong_given_score = ndtr((np.multiply.outer(rho, NODES) - k[..., np.newaxis]) / spread[..., np.newaxis])
    return np.asarray(wrong_given_score @ (WEIGHTS * -log_ndtr(NODES)))


def _aurc_by_parts(rho: FloatArray, k: FloatArray, spread: FloatArray) -> FloatArray:
    rank = ndtr((np.multiply.outer(spread, NODES) + k[..., np.newaxis]) / rho[..., np.newaxis])
    # The antiderivative of -log(u) that vanishes at 0.
    answered = (rank - xlogy(rank, rank)) @ WEIGHTS
    return np.asarray(np.where(rho > 0, 1 - answered, answered))


def abstention_metrics(table: ContingencyTable, *, confidence_level: float = 0.95) -> tuple[Estimate, ...]:
    """Estimate every abstention metric of a table, in the order below.

    Parameters
    ----------
    table : ContingencyTable
    confidence_level : float in (0, 1), default: 0.95

    Returns
    -------
    tuple of Estimate
        - ``refusal_precision``: P(wrong | refused);
        - ``refusal_recall``: P(refused | wrong);
        - ``abstention_f1``: their harmonic mean, undefined where one of them is;
        - ``over_refusal``: P(refused | right), the share of what the model knows that it keeps to itself;
        - ``recoverable_accuracy``: P(right | refused), what forcing an answer would gain, 1 less the precision.

        Those undefined say why: ``"no_questions"``, ``"nobody_refused"``, ``"all_right"`` or ``"all_wrong"``.

    Raises
    ------
    ValueError
        If `confidence_level` does not lie strictly between 0 and 1.

    Notes
    -----
    The intervals are Wilson's. F1 depends on the table only through the share of refused-and-wrong questions among
    those that were refused or wrong, J: it is ``2 J / (1 + J)``. So the interval of that share is its interval, on
    another scale.

    References
    ----------
    .. [1] Dice, L. R. (1945). Measures of the amount of ecologic association between species. Ecology, 26, 297-302:
       F1, and its relation to Jaccard's coefficient. :doi:`10.2307/1932409`

    Examples
    --------
    >>> for metric in abstention_metrics(ContingencyTable(710, 30, 210, 50)):
    ...     print(f"{metric.name:20} {metric.estimate:.3f} [{metric.low:.3f}, {metric.high:.3f}]")
    refusal_precision    0.959 [0.943, 0.971]
    refusal_recall       0.772 [0.744, 0.798]
    abstention_f1        0.855 [0.836, 0.873]
    over_refusal         0.375 [0.277, 0.485]
    recoverable_accuracy 0.041 [0.029, 0.057]
    """
    quantile = normal_quantile(confidence_level)
    both, needless, missed, _ = table.counts
    precision, recall, over_refusal = (
        rate_or_score(name, table, DEFAULT_PAYOFFS, confidence_level)
        for name in ("refusal_precision", "refusal_recall", "over_refusal")
    )
    undefined = precision.reason or recall.reason
    return (
        precision,
        recall,
        _f1(proportion("abstention_f1", both, both + needless + missed, quantile, undefined)),
        over_refusal,
        proportion("recoverable_accuracy", needless, both + needless, quantile, precision.reason),
    )


def _f1(jaccard: Estimate) -> Estimate:
    if jaccard.estimate is None or jaccard.low is None or jaccard.high is None:
        return jaccard
    estimate, low, high = (2 * share / (1 + share) for share in (jaccard.estimate, jaccard.low, jaccard.high))
    return replace(jaccard, estimate=estimate, low=low, high=high)


ScoreName = Literal["correct_given_attempted", "f_score", "weighted_score"]


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
        low, high = central_quantiles(roots, confidence_level)
        nearest = 0.0 if low <= 0 <= high else min(low * low, high * high)
        return ConfidenceInterval(nearest, max(low * low, high * high))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingGap(Result):
    """What is left to gain where the refusal rate equals the error rate.

    Attributes
    ----------
    estimate : float or None
        Share of the gap between refusing at random and refusing perfectly that is left: 0 is perfect, 1 chance, more
        than 1 worse than chance.
    wrong_decisions : float or None
        Share of all questions that are refused though the answer would be right, or answered wrongly.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `RefusalIndexResult`.
    table : ContingencyTable
    """

    wrong_decisions: float | None = None
    table: ContingencyTable

    def confidence_interval(
        self, confidence_level: float = 0.95, *, n_resamples: int = JEFFREYS_DRAWS, rng: Seed = None
    ) -> ConfidenceInterval:
        """Confidence interval of `estimate`: posterior quantiles under Jeffreys' prior on the four cells.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        n_resamples : int, default: 10,000
        rng : int or numpy.random.Generator, optional

        Returns
        -------
        ConfidenceInterval
            Both NaN where the gap is undefined.

        Examples
        --------
        >>> low, high = remaining_gap(ContingencyTable(710, 30, 210, 50)).confidence_interval(rng=1)
        >>> round(low, 2), round(high, 2)
        (0.68, 0.84)
        """
        normal_quantile(confidence_level)
        checked_resamples(n_resamples)
        if self.estimate is None:
            return NO_INTERVAL
        shapes = np.array(self.table.counts)[:, np.newaxis] + 0.5
        p11, p10, p01, p00 = np.random.default_rng(rng).standard_gamma(shapes, size=(4, n_resamples))
        error_rate = (p11 + p01) / (p11 + p10 + p01 + p00)
        gaps = gap_left(tetrachoric(p11, p10, p01, p00), error_rate)
        return ConfidenceInterval(*central_quantiles(gaps, confidence_level))


def gap_left(rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Share of the gap between chance and perfection that is left where as many questions are refused as are wrong.

    Parameters
    ----------
    rho : array_like of float in [-1, 1]
    error_rate : array_like of float
        Share of wrong answers under forced answering, mu, in [0, 1]; both arguments broadcast.

    Returns
    -------
    ndarray
        NaN where mu is 0 or 1: there is nothing to decide.

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Examples
    --------
    >>> gap_left([1.0, 0.5, 0.0], 0.5).round(4).tolist()
    [0.0, 0.6667, 1.0]
    """
    correlation, mu = np.broadcast_arrays(*checked_rho_and_error_rate(rho, error_rate))
    inside = (mu > 0) & (mu < 1)
    rate = np.where(inside, mu, 0.5)
    both = upper_orthant(-ndtri(rate), -ndtri(rate), correlation)
    return np.asarray(np.where(inside, (rate - both) / (rate * (1 - rate)), math.nan))[()]


def remaining_gap(table: ContingencyTable) -> RemainingGap:
    """Find what a model would still decide wrongly if it refused as often as it errs.

    Parameters
    ----------
    table : ContingencyTable

    Returns
    -------
    RemainingGap
        All None where the Refusal Index is undefined.

    References
    ----------
    .. [1] Cohen, J. (1960). A coefficient of agreement for nominal scales. Educational and Psychological Measurement,
       20, 37-46. :doi:`10.1177/001316446002000104`

    Examples
    --------
    >>> found = remaining_gap(ContingencyTable(710, 30, 210, 50))
    >>> round(found.estimate, 3), round(found.wrong_decisions, 3)
    (0.766, 0.113)
    """
    result, mu = refusal_index(table), table.error_rate
    if result.rho is None:
        return RemainingGap(None, "undefined", result.reason, table=table)
    left = float(gap_left(result.rho, mu))
    return RemainingGap(left, result.status, result.reason, wrong_decisions=2 * left * mu * (1 - mu), table=table)


def empirical_accuracy_refusal_curve(score: ArrayLike, outcome: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Share of all questions answered right when those with the lowest scores are refused, for every number of them.

    Parameters are those of `risk_coverage_curve`.

    Returns
    -------
    refusal_rate, correct_rate : ndarray, shape (n + 1,)
        ``0, 1/n, ..., 1``, and the share of *all* questions that are answered and right. Without questions a single
        NaN each.

    Raises
    ------
    TypeError, ValueError
        As `risk_coverage_curve`.

    Notes
    -----
    With mu the error rate, the area under the curve (by the trapezoidal rule) is exactly
    ``(1 - mu) ((1 - mu) / 2 + mu AUROC)``.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Accuracy-refusal curve.

    Examples
    --------
    >>> refusal_rate, correct_rate = empirical_accuracy_refusal_curve([0.9, 0.7, 0.7, 0.2], [True, False, True, False])
    >>> refusal_rate.tolist(), correct_rate.tolist()
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.5, 0.5, 0.375, 0.25, 0.0])
    """
    scores, truths = checked_scores(score, outcome)
    n = scores.size
    if not n:
        return np.array([np.nan]), np.array([np.nan])
    right = np.concatenate([expected_counts(scores, truths)[::-1], [0.0]])
    return np.arange(n + 1) / n, right / n
