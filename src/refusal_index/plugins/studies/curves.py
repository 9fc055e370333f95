"""Analyses along the accuracy-refusal curve: optimal refusal rate, remaining gap, and response to stated penalties.

**Optimal refusal rate.** Along its accuracy-refusal curve, with a penalty L for a wrong answer, a model has the utility
``U(r) = c(r) - L (1 - r - c(r)) = (1 + L) c(r) - L (1 - r)``. Refusing slightly more gives up the questions just below
the threshold h of the latent refusal score. The best threshold is where their expected value is 0, that is, where their
probability of being right, ``Phi((k - rho h) / sqrt(1 - rho^2))``, is ``t = L / (1 + L)``. For a positive rho

    h = (k - sqrt(1 - rho^2) probit(t)) / rho.

For any other rho a higher score is no reason to refuse, and the optimum is to answer all or to refuse all.

The regret is the utility of the best point minus that of the actual one. It is quadratic near the best point and its
estimate cannot be negative, so the usual intervals do not cover. Its square root, with a positive sign for refusing too
much, is a regular parameter; its interval is squared. If it contains 0, so does the interval of the regret.

**Remaining gap** is the share of wrong decisions of a model that refuses as often as it errs.

A refusal is right if the forced answer is wrong. If the refusal rate equals the error rate mu, a model that knows its
errors makes no wrong decision, one that refuses at random makes ``2 mu (1 - mu)``, and one on the accuracy-refusal
curve of rho makes ``2 (mu - P(R, W))``, with P the bivariate normal probability above both thresholds. The remaining
share of the gap between chance and perfection, ``(mu - P) / (mu (1 - mu))``, is one minus Cohen's kappa of refusals and
errors.

**Abstention metrics** describe refusals as a detector of questions that would be answered wrongly.

A refusal is a positive prediction, a wrong answer under forced answering the positive class. The 2x2 table then has
precision, recall and F1, and two shares that describe the cost of refusing: the share of the questions that the model
would get right which it refuses, and the share of unnecessary refusals.

All of them depend on the refusal rate: refusing more raises recall and over-refusal of any model. They describe one
operating point, whereas the Refusal Index describes the underlying ranking.

**Response to stated penalties** is whether a model refuses too little or too much, along its own curve, for a stated
penalty.

A prompt can state the cost of a wrong answer: right 1, wrong ``-t / (1 - t)``, declined 0, so that answering pays above
a confidence of t. Several such prompts over the same questions move the threshold of one latent refusal score, and the
score itself determines how far they should: with the joint rho of the prompts and the error rate mu under forced
answering, the optimal refusal rate is that of `best_refusal_rate`. The model's actual refusal rate is compared with it.

- All prompts share one curve: rho is the joint estimate on Fisher's scale, mu the share of wrong forced answers over
  all prompts. It is the curve of single responses, since points are earned by single replies.
- The attainable utility is that of the best point on this curve: the utility of the model's own ranking of the
  questions with the optimal threshold. Confidence scores may rank them better; they have their own curve.

Intervals of quantities on the curve are percentiles over resampled questions, with all prompts of a question together;
the weights of the prompts in the joint rho are not resampled. Intervals of rates are Wilson's, and that of the model's
own change is paired. The interval of a difference from the optimum is computed from those of both sides by the method
of variance estimates recovery [1]_, as if they were independent: unlike percentiles, it does not vanish if all or no
questions are refused. The simulated coverage at 400 and 2,000 questions is .92 to 1.

References
----------
.. [1] Zou, G. Y. and Donner, A. (2008). Construction of confidence limits about effect measures: a general approach.
   Statistics in Medicine, 27, 1693-1702. :doi:`10.1002/sim.3095`
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from refusal_index.stats import baseline, intervals
from refusal_index.stats.arguments import FloatArray, checked_matrices
from refusal_index.stats.calibration import checked_scores
from refusal_index.stats.comparison import compare_metrics
from refusal_index.stats.contingency import ContingencyTable, cell_codes, row_tables
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Estimate, Result, Status, square_and_add
from refusal_index.stats.estimator import tetrachoric, upper_orthant
from refusal_index.stats.joint import joint_refusal_index
from refusal_index.stats.selective import expected_counts


def abstention_metrics(table: ContingencyTable, *, confidence_level: float = 0.95) -> tuple[Estimate, ...]:
    """Return every abstention metric of a table, in the order below.

    Parameters
    ----------
    table : ContingencyTable
    confidence_level : float in (0, 1), default: 0.95

    Returns
    -------
    tuple of Estimate
        - ``refusal_precision``: P(wrong | refused);
        - ``refusal_recall``: P(refused | wrong);
        - ``abstention_f1``: their harmonic mean, undefined if one of them is;
        - ``over_refusal``: P(refused | right), the share of known answers that the model withholds;
        - ``recoverable_accuracy``: P(right | refused), the gain from forcing an answer, 1 minus the precision.

        Reasons for undefined metrics are ``"no_questions"``, ``"nobody_refused"``, ``"all_right"`` or ``"all_wrong"``.

    Raises
    ------
    ValueError
        If `confidence_level` does not lie strictly between 0 and 1.

    Notes
    -----
    The intervals are Wilson's. F1 is ``2 J / (1 + J)``, with J the share of refused and wrong questions among those
    that are refused or wrong. So its interval is that of J, transformed.

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
    quantile = intervals.normal_quantile(confidence_level)
    both, needless, missed, _ = table.counts
    precision, recall, over_refusal = (
        baseline.rate_or_score(name, table, baseline.DEFAULT_PAYOFFS, confidence_level)
        for name in ("refusal_precision", "refusal_recall", "over_refusal")
    )
    undefined = precision.reason or recall.reason
    f1 = intervals.proportion("abstention_f1", both, both + needless + missed, quantile, undefined)
    if f1.estimate is not None and f1.low is not None and f1.high is not None:
        estimate, low, high = (2 * share / (1 + share) for share in (f1.estimate, f1.low, f1.high))
        f1 = replace(f1, estimate=estimate, low=low, high=high)
    return (
        precision,
        recall,
        f1,
        over_refusal,
        intervals.proportion("recoverable_accuracy", needless, both + needless, quantile, precision.reason),
    )


ScoreName = Literal["correct_given_attempted", "f_score", "weighted_score"]


def iso_score(
    refusal_rate: ArrayLike, metric: ScoreName, value: ArrayLike, *, weighted_score_p: float = 1.0
) -> FloatArray:
    """Return the correct rate at which another metric has a given value, at each refusal rate: a straight line.

    Parameters
    ----------
    refusal_rate : array_like of float
        In [0, 1].
    metric : {"correct_given_attempted", "f_score", "weighted_score"}
        The metric that is constant.
    value : array_like of float
        Value of the metric. Both arrays broadcast.
    weighted_score_p : float, default: 1
        p of the weighted score, not negative.

    Returns
    -------
    ndarray
        ``value (1 - r)``, ``value (2 - r) / 2`` or ``value + p (1 - r)``; NaN for impossible rates, below 0 or
        above ``1 - r``.

    Raises
    ------
    ValueError
        If a refusal rate lies outside [0, 1], the metric is unknown, or `weighted_score_p` is negative, infinite or
        NaN.

    Examples
    --------
    >>> iso_score([0.0, 0.5, 0.9], "f_score", 0.4).round(4).tolist()
    [0.4, 0.3, nan]
    """
    r, score = np.broadcast_arrays(baseline.checked_range("refusal_rate", refusal_rate, 0), np.asarray(value, float))
    p = baseline.checked_p(weighted_score_p)
    if metric not in get_args(ScoreName):
        raise ValueError(f"metric must be one of {', '.join(get_args(ScoreName))}, got {metric!r}")
    lines = {
        "correct_given_attempted": score * (1 - r),
        "f_score": score * (2 - r) / 2,
        "weighted_score": score + p * (1 - r),
    }
    line = lines[metric]
    return np.where((line >= 0) & (line <= 1 - r), line, np.nan)[()]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint(Result):
    """The best operating point on a model's accuracy-refusal curve, compared with its actual one.

    Attributes
    ----------
    estimate : float or None
        The regret: utility at the best point minus that at the table's own point, not negative.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"`` if the table's rho is -1 or +1, or if answering all or refusing all is best.
    reason : str or None
        As in `RefusalIndexResult`, or ``"answer_all"`` or ``"refuse_all"``.
    refusal_rate : float or None
        The best refusal rate.
    utility_at_best, utility_today : float or None
        Utility at the best point and at the table's own point.
    penalty : float
        Price of a wrong answer.
    table : ContingencyTable
    """

    refusal_rate: float | None = None
    utility_at_best: float | None = None
    utility_today: float | None = None
    penalty: float
    table: ContingencyTable

    def confidence_interval(
        self, confidence_level: float = 0.95, *, n_resamples: int = intervals.JEFFREYS_DRAWS, rng: intervals.Seed = None
    ) -> ConfidenceInterval:
        """Return the confidence interval of the regret: squared posterior quantiles of its signed root.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        n_resamples : int, default: 10,000
            Number of draws from the posterior of the four cells under Jeffreys' prior.
        rng : int or numpy.random.Generator, optional

        Returns
        -------
        ConfidenceInterval
            ``(low, high)``, with low = 0 if the actual point may be the best; both NaN if the regret is undefined.

        Examples
        --------
        >>> point = best_operating_point(ContingencyTable(300, 100, 200, 400), penalty=1)
        >>> low, high = point.confidence_interval(rng=1)
        >>> round(low, 3), round(high, 3)
        (0.002, 0.016)
        """
        intervals.normal_quantile(confidence_level)
        intervals.checked_resamples(n_resamples)
        if self.estimate is None:
            return NO_INTERVAL
        signed_root = partial(_signed_root_regret, penalty=self.penalty)
        roots = _posterior_interval(self.table, signed_root, confidence_level, n_resamples, rng)
        low, high = (end * end for end in roots)
        return ConfidenceInterval(0.0 if roots.low <= 0 <= roots.high else min(low, high), max(low, high))


def _posterior_interval(
    table: ContingencyTable,
    statistic: Callable[..., FloatArray],
    confidence_level: float,
    n_resamples: int,
    rng: intervals.Seed,
) -> ConfidenceInterval:
    """Return quantiles of a statistic of the cell probabilities, drawn from the posterior under Jeffreys' prior."""
    shapes = np.array(table.counts)[:, np.newaxis] + 0.5
    cells = np.random.default_rng(rng).standard_gamma(shapes, size=(4, n_resamples))
    return ConfidenceInterval(*intervals.central_quantiles(statistic(*cells / cells.sum(axis=0)), confidence_level))


def utility_at(refusal_rate: ArrayLike, rho: ArrayLike, error_rate: ArrayLike, penalty: float) -> FloatArray:
    """Return the mean utility per question at each refusal rate, along an accuracy-refusal curve.

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
    price = baseline.checked_penalty(penalty)
    answered = 1 - np.asarray(refusal_rate, float)
    return np.asarray((1 + price) * baseline.correct_rate_at(refusal_rate, rho, error_rate) - price * answered)[()]


def best_refusal_rate(rho: ArrayLike, error_rate: ArrayLike, penalty: float) -> FloatArray:
    """Return the refusal rate with the highest utility on an accuracy-refusal curve.

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
        In [0, 1]. For a rho of at most 0 it is 0 or 1, and 0 if both have the same utility.

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
    correlation, mu = baseline.checked_rho_and_error_rate(rho, error_rate)
    price = baseline.checked_penalty(penalty)
    worth_answering = 1 - mu >= price * mu
    ranks = (correlation > 0) & (mu > 0) & (mu < 1) & (price > 0)
    slope = np.where(ranks, correlation, 1.0)
    k = -ndtri(np.where(ranks, mu, 0.5))
    # At a penalty of 0 all is answered; the probit of t is taken from its other tail, which does not round to 1.
    probit_t = -ndtri(1 / (1 + price)) if price else 0.0
    with np.errstate(over="ignore"):
        threshold = (k - np.sqrt((1 - slope) * (1 + slope)) * probit_t) / slope
    return np.where(ranks, ndtr(-threshold), np.where(worth_answering, 0.0, 1.0))[()]


def best_operating_point(table: ContingencyTable, penalty: float) -> OperatingPoint:
    """Return the best operating point on the accuracy-refusal curve fitted to a table, and the regret of its own point.

    Parameters
    ----------
    table : ContingencyTable
    penalty : float
        Price of a wrong answer, not negative.

    Returns
    -------
    OperatingPoint
        All None if the Refusal Index is undefined, since there is no curve then.

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
    >>> round(point.refusal_rate, 3), round(point.utility_at_best, 3), round(point.estimate, 4)
    (0.5, 0.208, 0.0077)
    """
    price = baseline.checked_penalty(penalty)
    result = intervals.refusal_index(table)
    if result.rho is None:
        return OperatingPoint(None, "undefined", result.reason, penalty=price, table=table)
    best = float(best_refusal_rate(result.rho, table.error_rate, price))
    value = float(utility_at(best, result.rho, table.error_rate, price))
    today = (table.answered_right - price * table.answered_wrong) / table.n
    end = {0.0: "answer_all", 1.0: "refuse_all"}.get(best)
    status: Status = "boundary" if end else result.status
    return OperatingPoint(
        max(value - today, 0.0),
        status,
        result.reason or end,
        refusal_rate=best,
        utility_at_best=value,
        utility_today=today,
        penalty=price,
        table=table,
    )


def _signed_root_regret(
    p11: FloatArray, p10: FloatArray, p01: FloatArray, p00: FloatArray, penalty: float
) -> FloatArray:
    """Return the square root of the regret of tables of cell probabilities, negative if they refuse too little."""
    rho = tetrachoric(p11, p10, p01, p00)
    refused = p11 + p10
    mu = p11 + p01
    best = best_refusal_rate(rho, mu, penalty)
    regret = utility_at(best, rho, mu, penalty) - (p00 - penalty * p01)
    # At the best point, rounding can make the difference negative.
    return np.asarray(np.sign(refused - best) * np.sqrt(np.maximum(regret, 0.0)))


def gap_left(rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Return the remaining share of the gap between chance and perfection if the refusal rate equals the error rate.

    Parameters
    ----------
    rho : array_like of float in [-1, 1]
    error_rate : array_like of float
        Share of wrong answers under forced answering, mu, in [0, 1]; both arguments broadcast.

    Returns
    -------
    ndarray
        NaN if mu is 0 or 1, since there is nothing to decide.

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Examples
    --------
    >>> gap_left([1.0, 0.5, 0.0], 0.5).round(4).tolist()
    [0.0, 0.6667, 1.0]
    """
    correlation, mu = np.broadcast_arrays(*baseline.checked_rho_and_error_rate(rho, error_rate))
    inside = (mu > 0) & (mu < 1)
    rate = np.where(inside, mu, 0.5)
    both = upper_orthant(-ndtri(rate), -ndtri(rate), correlation)
    return np.asarray(np.where(inside, (rate - both) / (rate * (1 - rate)), math.nan))[()]


def remaining_gap(
    table: ContingencyTable,
    *,
    confidence_level: float = 0.95,
    n_resamples: int = intervals.JEFFREYS_DRAWS,
    rng: intervals.Seed = None,
) -> Estimate:
    """Return the remaining share of the gap between random and perfect refusals if a model refused as often as it errs.

    Parameters
    ----------
    table : ContingencyTable
    confidence_level : float in (0, 1), default: 0.95
    n_resamples : int, default: 10,000
        Number of draws from the posterior of the four cells under Jeffreys' prior, whose quantiles are the interval.
    rng : int or numpy.random.Generator, optional

    Returns
    -------
    Estimate
        0 is perfect, 1 chance, more than 1 worse than chance. Undefined if the Refusal Index is; its status and reason
        are those of `RefusalIndexResult`.

    References
    ----------
    .. [1] Cohen, J. (1960). A coefficient of agreement for nominal scales. Educational and Psychological Measurement,
       20, 37-46. :doi:`10.1177/001316446002000104`

    Examples
    --------
    >>> gap = remaining_gap(ContingencyTable(710, 30, 210, 50), rng=1)
    >>> round(gap.estimate, 3), round(gap.low, 2), round(gap.high, 2)
    (0.766, 0.68, 0.84)
    """
    result = intervals.refusal_index(table)
    if result.rho is None:
        return Estimate(None, status="undefined", reason=result.reason)

    def statistic(p11: FloatArray, p10: FloatArray, p01: FloatArray, p00: FloatArray) -> FloatArray:
        return gap_left(tetrachoric(p11, p10, p01, p00), p11 + p01)

    interval = _posterior_interval(table, statistic, confidence_level, n_resamples, rng)
    left = float(gap_left(result.rho, table.error_rate))
    return Estimate(left, *interval.or_none(), status=result.status, reason=result.reason)


def empirical_accuracy_refusal_curve(score: ArrayLike, outcome: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the share of questions answered right if those with the lowest scores are refused, for every number.

    Parameters are those of `risk_coverage_curve`.

    Returns
    -------
    refusal_rate, correct_rate : ndarray, shape (n + 1,)
        ``0, 1/n, ..., 1``, and the share of *all* questions that are answered right. Without questions, a single NaN
        each.

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


RESAMPLES = 2000
BATCH_SIZE = 250
"""Number of resamples held in memory at a time."""

MAX_RHO = 1 - 1e-6
"""The rho of a resampled table with an empty cell, if there are several prompts."""


@dataclass(frozen=True, slots=True)
class PenaltyPoint:
    """A model's behaviour under one stated target, and the optimum.

    Attributes
    ----------
    target, penalty : float
        The target t, and the cost of a wrong answer that it implies.
    table : ContingencyTable
    refusal_rate, utility : Estimate
        The actual refusal rate, and its utility per question at this penalty.
    best_refusal_rate, best_utility : Estimate
        The best point on the curve, and its utility; undefined without a curve.
    excess : Estimate
        Refusal rate minus the best one.
    """

    target: float
    penalty: float
    table: ContingencyTable
    refusal_rate: Estimate
    utility: Estimate
    best_refusal_rate: Estimate
    best_utility: Estimate
    excess: Estimate


@dataclass(frozen=True, slots=True)
class PenaltyResponse:
    """A model's response to stated penalties.

    Attributes
    ----------
    points : tuple of PenaltyPoint
        One point per target, in increasing order.
    move, best_move, move_excess : Estimate
        Refusal rate at the highest target minus that at the lowest: the actual one, that of the best points, and the
        difference.
    rho, error_rate : float or None
        Parameters of the curve; None without a curve.
    """

    points: tuple[PenaltyPoint, ...]
    move: Estimate
    best_move: Estimate
    move_excess: Estimate
    rho: float | None
    error_rate: float | None


def response_to_penalty(
    refused: ArrayLike,
    wrong: ArrayLike,
    targets: Sequence[float],
    scored: ArrayLike | None = None,
    *,
    confidence_level: float = 0.95,
    n_resamples: int = RESAMPLES,
    rng: intervals.Seed = None,
) -> PenaltyResponse:
    """Compare the refusal rates under stated confidence targets with the optimal ones.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (k, n)
        One row per prompt, one column per question; as for `joint_refusal_index`.
    targets : sequence of k floats in [0, 1)
        The target of each prompt; all different.
    scored : array_like of bool, shape (k, n), optional
        Whether a question has a grade under each prompt; by default all have.
    confidence_level : float in (0, 1), default: 0.95
    n_resamples : int, default: 2000
    rng : int or numpy.random.Generator, optional

    Returns
    -------
    PenaltyResponse
        Results that depend on the curve are undefined if no prompt has a Refusal Index, with the prompts' reason.

    Raises
    ------
    TypeError, ValueError
        If the matrices are not Boolean or differ in shape, or the targets are not k different numbers in [0, 1).

    References
    ----------
    .. [1] Kalai et al. (2025), as cited in `penalty_from_confidence`. Behavioural calibration under explicit confidence
       targets. :arxiv:`2509.04664`

    Examples
    --------
    >>> rng = np.random.default_rng(5)
    >>> refusal, noise = rng.standard_normal((2, 4000))
    >>> wrong = np.tile(0.6 * refusal + 0.8 * noise > 0, (2, 1))
    >>> refused = refusal > np.array([[1.5], [0.5]])
    >>> found = response_to_penalty(refused, wrong, [0.0, 0.75], rng=1)
    >>> for point in found.points:
    ...     print(point.target, *(f"{rate.estimate:.2f}" for rate in (point.refusal_rate, point.best_refusal_rate)))
    0.0 0.07 0.00
    0.75 0.32 0.83
    >>> print(f"{found.move_excess.estimate:.2f} [{found.move_excess.low:.2f}, {found.move_excess.high:.2f}]")
    -0.58 [-0.61, -0.55]
    """
    intervals.normal_quantile(confidence_level)
    intervals.checked_resamples(n_resamples)
    matrices = checked_matrices(refused, wrong, scored)
    order, stated = _checked_targets(targets, len(matrices[0]))
    matrices = matrices[0][order], matrices[1][order], matrices[2][order]
    tables = row_tables(*matrices)
    penalties = np.atleast_1d(baseline.penalty_from_confidence(stated))
    joint = joint_refusal_index(*matrices)
    # Equal weights if all prompts with a defined index are at the boundary.
    weights = np.array([weight or 0.0 for weight in joint.weights])
    weights = weights if weights.any() else np.array([float(variant.rho is not None) for variant in joint.variants])
    counts = np.array([table.counts for table in tables], float)
    best, best_values = _best(counts, weights, penalties)
    codes = cell_codes(*matrices)
    best_drawn, worth_drawn = _resampled(codes, weights, penalties, n_resamples, np.random.default_rng(rng))
    # Without a curve: the reason that all prompts share, else that of the joint estimate.
    reasons = {variant.reason for variant in joint.variants}
    why = None if np.isfinite(best).any() else (reasons.pop() if len(reasons) == 1 else joint.reason) or "undefined"

    def of_curve(value: float, draws: FloatArray) -> Estimate:
        if math.isnan(value):
            return Estimate(None, status="undefined", reason=why)
        low, high = np.nanquantile(draws, [(1 - confidence_level) / 2, (1 + confidence_level) / 2])
        return Estimate(float(value), float(low), float(high))

    points = []
    quantile = intervals.normal_quantile(confidence_level)
    for k, table in enumerate(tables):
        penalty = float(penalties[k])
        undefined = None if table.n else "no_questions"
        observed = intervals.proportion("refusal_rate", table.n_refused, table.n, quantile, undefined)
        earned = baseline.utility(table, penalty, confidence_level=confidence_level)
        best_rate = of_curve(best[k], best_drawn[:, k])
        best_worth = of_curve(best_values[k], worth_drawn[:, k])
        excess = _difference(observed, best_rate)
        points.append(PenaltyPoint(float(stated[k]), penalty, table, observed, earned, best_rate, best_worth, excess))
    ends = compare_metrics(*(matrix[[-1, 0]] for matrix in matrices))["refusal_rate"]
    move = Estimate.of(ends, ends.confidence_interval(confidence_level))
    best_move = of_curve(best[-1] - best[0], best_drawn[:, -1] - best_drawn[:, 0])
    return PenaltyResponse(
        tuple(points),
        move,
        best_move,
        _difference(move, best_move),
        None if why else math.tanh(float(_joint_z(counts, weights))),
        None if why else float(_error_rate(counts)),
    )


def _checked_targets(targets: Sequence[float], k: int) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the order that sorts the targets, and the sorted targets."""
    values = np.asarray(targets, float)
    if values.shape != (k,) or k < 2 or np.unique(values).size < k or not ((values >= 0) & (values < 1)).all():
        raise ValueError(
            f"targets must be {max(k, 2)} different confidences in [0, 1), one a row of at least two, got {targets!r}; "
            "are they in per cent?"
        )
    order = np.argsort(values)
    return order, values[order]


def _joint_z(counts: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the weighted mean of atanh(rho) over prompts for counts of shape (..., k, 4); NaN if none has a rho."""
    rho = tetrachoric(*np.moveaxis(counts, -1, 0))
    defined = np.isfinite(rho)
    # atanh is infinite for the few resampled tables at the boundary; a rho of 1 - 1e-6 has practically the same curve.
    z = np.arctanh(np.clip(np.where(defined, rho, 0.0), -MAX_RHO, MAX_RHO))
    used_weights = np.where(defined, weights, 0.0)
    total = used_weights.sum(axis=-1)
    return np.asarray(
        np.divide((used_weights * z).sum(axis=-1), total, out=np.full(total.shape, np.nan), where=total > 0)
    )


def _error_rate(counts: FloatArray) -> FloatArray:
    sizes = counts.sum(axis=(-1, -2))
    wrong = (counts[..., 0] + counts[..., 2]).sum(axis=-1)
    return np.asarray(np.divide(wrong, sizes, out=np.full(sizes.shape, np.nan), where=sizes > 0))


def _best(counts: FloatArray, weights: FloatArray, penalties: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the best refusal rates and their utilities, shape (..., k), for counts of shape (..., k, 4)."""
    rho = np.tanh(_joint_z(counts, weights))
    mu = _error_rate(counts)
    is_defined = np.isfinite(rho) & np.isfinite(mu)
    best = np.full(counts.shape[:-1], np.nan)
    values = np.full(counts.shape[:-1], np.nan)
    for k, penalty in enumerate(penalties.tolist()):
        rates = best_refusal_rate(rho[is_defined], mu[is_defined], penalty)
        best[is_defined, k] = rates
        values[is_defined, k] = utility_at(rates, rho[is_defined], mu[is_defined], penalty)
    return best, values


def _resampled(
    codes: NDArray[np.intp], weights: FloatArray, penalties: FloatArray, n_resamples: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return the results of `_best` over resampled questions, shape (n_resamples, k)."""
    patterns, sizes = np.unique(codes, axis=1, return_counts=True)
    cells = (patterns[:, :, np.newaxis] == np.arange(4)).transpose(1, 0, 2).astype(float)
    if not sizes.size:
        return 2 * (np.full((n_resamples, len(penalties)), np.nan),)
    shares = sizes / sizes.sum()
    parts = []
    for start in range(0, n_resamples, BATCH_SIZE):
        counts = rng.multinomial(int(sizes.sum()), shares, size=min(BATCH_SIZE, n_resamples - start))
        parts.append(_best(np.tensordot(counts.astype(float), cells, axes=1), weights, penalties))
    best, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return best, values


def _difference(first: Estimate, second: Estimate) -> Estimate:
    """Return the difference of two estimates, with an interval computed from theirs."""
    undefined = next((interval.reason for interval in (first, second) if interval.estimate is None), None)
    if first.estimate is None or second.estimate is None:
        return Estimate(None, status="undefined", reason=undefined)
    return Estimate(first.estimate - second.estimate, *square_and_add(first, second))
