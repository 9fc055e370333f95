"""Prediction rejection ratio: how much of what a perfect order of rejections would gain a score gains."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats.calibration.auroc import checked_scores
from refusal_index.stats.calibration.risk_coverage import risk_coverage_curve
from refusal_index.stats.estimate import Status


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
