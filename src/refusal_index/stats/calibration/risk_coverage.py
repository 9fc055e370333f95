"""Selective answering: what is gained by leaving out the questions with the lowest score.

Both curves refuse questions in the order of their score, lowest first. The risk-coverage curve shows the error rate
among the questions still answered, the accuracy-refusal curve the correct rate over all questions. Where scores are
tied, the curves are those expected when the tied questions are refused in random order.

Prediction rejection ratio: how much of what a perfect order of rejections would gain a score gains.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.calibration.auroc import checked_scores
from refusal_index.stats.estimate import Status


@dataclass(frozen=True, slots=True)
class AurcResult:
    """Area under the risk-coverage curve.

    Attributes
    ----------
    estimate : float or None
        Mean error rate among the questions with the k highest scores, over k = 1, ..., n; in [0, 1], lower is better.
    excess : float or None
        E-AURC: `estimate` less the least area possible with so many errors, which has them all at the lowest scores.
        None unless the status is ``"ok"``.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: all outcomes are alike, so that every order of the questions has the same area.
    reason : str or None
        At the boundary ``"all_true"`` or ``"all_false"``; ``"no_questions"`` where undefined.
    n, n_false : int
        All questions, and those whose outcome is false.
    """

    estimate: float | None
    excess: float | None
    status: Status
    reason: str | None
    n: int
    n_false: int


def risk_coverage_curve(score: ArrayLike, outcome: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Error rate among the questions with the highest scores, for every number of them.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Higher where the answer is expected to be right, such as P(Answering). Only its order matters.
    outcome : array_like of bool, shape (n,)
        Whether the answer was right, under forced answering.

    Returns
    -------
    coverage, risk : ndarray, shape (n,)
        Share of questions answered, ``1/n, ..., 1``, and the share of false outcomes among them.

    Raises
    ------
    TypeError, ValueError
        If `score` is not finite numbers, `outcome` not truth values, or their lengths differ.

    References
    ----------
    .. [1] Geifman, Y., Uziel, G. and El-Yaniv, R. (2019). Bias-reduced uncertainty estimation for deep neural
       classifiers. ICLR. :arxiv:`1805.08206`

    Examples
    --------
    >>> coverage, risk = risk_coverage_curve([0.9, 0.7, 0.7, 0.2], [True, False, True, False])
    >>> coverage.tolist(), risk.round(3).tolist()
    ([0.25, 0.5, 0.75, 1.0], [0.0, 0.25, 0.333, 0.5])
    """
    scores, truths = checked_scores(score, outcome)
    answered = np.arange(1, scores.size + 1)
    return answered / max(scores.size, 1), expected_counts(scores, ~truths) / answered


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


def aurc(score: ArrayLike, outcome: ArrayLike) -> AurcResult:
    """Area under the risk-coverage curve (AURC), and how far it exceeds the least one (E-AURC).

    Parameters are those of `risk_coverage_curve`.

    Returns
    -------
    AurcResult
        Undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        As `risk_coverage_curve`.

    Notes
    -----
    The least area is taken for the finite number of questions, so that E-AURC is never negative and 0 for a perfect
    order; for many questions it tends to the usual ``mu + (1 - mu) log(1 - mu)``.

    References
    ----------
    .. [1] Geifman et al. (2019). :arxiv:`1805.08206`

    Examples
    --------
    >>> result = aurc([0.9, 0.7, 0.7, 0.2], [True, False, True, False])
    >>> round(result.estimate, 4), round(result.excess, 4)
    (0.2708, 0.0625)
    """
    scores, truths = checked_scores(score, outcome)
    n, n_false = scores.size, int(np.count_nonzero(~truths))
    if not n:
        return AurcResult(None, None, "undefined", "no_questions", 0, 0)
    if n_false in (0, n):
        return AurcResult(n_false / n, None, "boundary", "all_false" if n_false else "all_true", n, n_false)
    estimate = _area(scores, truths)
    return AurcResult(estimate, max(estimate - _area(truths.astype(float), truths), 0.0), "ok", None, n, n_false)


def _area(scores: FloatArray, truths: NDArray[np.bool_]) -> float:
    return float(np.mean(expected_counts(scores, ~truths) / np.arange(1, scores.size + 1)))


def expected_counts(scores: FloatArray, marked: NDArray[np.bool_]) -> FloatArray:
    """Count the marked questions among the k with the highest scores, k = 1, ..., n, in expectation over ties."""
    _, group, sizes = np.unique(-scores, return_inverse=True, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    marked_by = np.concatenate([[0.0], np.cumsum(np.bincount(group, marked, minlength=sizes.size))])
    return np.asarray(np.interp(np.arange(1, scores.size + 1), ends, marked_by))


@dataclass(frozen=True, slots=True)
class RejectionRatioResult:
    """Prediction rejection ratio (PRR) of a score.

    Attributes
    ----------
    estimate : float or None
        At most 1, that of a perfect order; 0 on average for a random one, and below 0 for one that is worse.
    status : {"ok", "undefined"}
    reason : str or None
        Where undefined the first that applies of ``"no_questions"``, ``"all_false"`` and ``"all_true"``.
    n, n_false : int
        All questions, and those whose outcome is false.
    """

    estimate: float | None
    status: Status
    reason: str | None
    n: int
    n_false: int


def prediction_rejection_ratio(score: ArrayLike, outcome: ArrayLike) -> RejectionRatioResult:
    """Area between the rejection curves of a score and of random rejection, over that of the perfect order and random.

    The rejection curve shows the share of right answers among the questions kept while those with the lowest scores
    are rejected one after the other.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Higher where the answer is expected to be right. Only its order matters; tied questions are rejected in random
        order, on average over all orders.
    outcome : array_like of bool, shape (n,)
        Whether the answer was right.

    Returns
    -------
    RejectionRatioResult
        Undefined where all outcomes are alike.

    Raises
    ------
    TypeError, ValueError
        If `score` is not finite numbers, `outcome` not truth values, or their lengths differ.

    Notes
    -----
    This is the ratio of lm-polygraph, but for ties, which it takes as they come, and for the random curve, which it
    draws. With mu the error rate and AURC that of `aurc`, it is ``(mu - AURC) / (mu - least
    AURC)``. Malinin and Gales let the rejected questions be answered by an oracle, so that their curve counts errors
    over all questions: that ratio is ``2 AUROC - 1`` of `auroc`, exactly.

    References
    ----------
    .. [1] Malinin, A. and Gales, M. (2021). Uncertainty estimation in autoregressive structured prediction. ICLR.
       Prediction rejection ratio. :arxiv:`2002.07650`
    .. [2] Vashurin, R., et al. (2025). Benchmarking uncertainty quantification methods for large language models with
       LM-Polygraph. TACL, 13, 220-248. :doi:`10.1162/tacl_a_00737`

    Examples
    --------
    >>> round(prediction_rejection_ratio([0.9, 0.7, 0.7, 0.2], [True, False, True, False]).estimate, 4)
    0.7857
    """
    scores, truths = checked_scores(score, outcome)
    n, n_false = scores.size, int(np.count_nonzero(~truths))
    reason = {0: "all_true", n: "all_false"}.get(n_false) if n else "no_questions"
    if reason:
        return RejectionRatioResult(None, "undefined", reason, n, n_false)
    of_score, best = (float(np.mean(risk_coverage_curve(order, truths)[1])) for order in (scores, truths.astype(float)))
    estimate = (n_false / n - of_score) / (n_false / n - best)
    return RejectionRatioResult(estimate, "ok", None, n, n_false)
