"""Where to cut a score: answer the questions that score at least so much, refuse the others.

A cut chosen and judged on the same questions looks better than it is: what `utility_threshold` or
`risk_controlling_threshold` chose is told by `selective_report` on questions that neither has seen.
"""

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats.baseline import checked_penalty
from refusal_index.stats.calibration.auroc import checked_scores
from refusal_index.stats.calibration.risk_control import risk_upper_bound
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.curves.utility import utility
from refusal_index.stats.estimate import Estimate, Status
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.score_interval import proportion


@dataclass(frozen=True, slots=True)
class UtilityThreshold:
    """The cut of a score with the highest mean utility in a sample.

    Attributes
    ----------
    cut : float or None
        Answer a question whose score is at least this: an observed score, or ``-inf`` to answer all, ``inf`` to refuse
        all. None where undefined.
    utility : float or None
        Mean utility of a question of this sample at the cut, in [0, 1]; optimistic, as the cut was chosen on it.
    coverage : float or None
        Share of the sample answered.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        At the boundary ``"answer_all"`` or ``"refuse_all"``; ``"no_questions"`` where undefined.
    penalty : float
        Price of a wrong answer.
    n : int
    """

    cut: float | None
    utility: float | None
    coverage: float | None
    status: Status
    reason: str | None
    penalty: float
    n: int


@dataclass(frozen=True, slots=True)
class SelectiveReport:
    """What a cut of a score does on questions that it was not chosen on.

    Attributes
    ----------
    coverage : Estimate
        Share of the questions answered, with Wilson's interval.
    error_rate : Estimate
        Share of errors among the answered, with the interval of Clopper and Pearson, which is exact; undefined with
        ``"everybody_refused"`` where none is answered.
    utility : Estimate
        As `refusal_index.stats.utility`.
    cut, penalty : float
    table : ContingencyTable
        With the questions below the cut as the refused ones.
    """

    coverage: Estimate
    error_rate: Estimate
    utility: Estimate
    cut: float
    penalty: float
    table: ContingencyTable


def utility_threshold(score: ArrayLike, right: ArrayLike, penalty: float) -> UtilityThreshold:
    """Find the cut of a score at which answering the questions above is worth most in this sample.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Higher where the answer is expected to be right. Only its order matters.
    right : array_like of bool, shape (n,)
        Whether the answer was right, under forced answering.
    penalty : float
        Price of a wrong answer, in right answers; not negative. A question refused is worth 0.

    Returns
    -------
    UtilityThreshold
        The lowest such cut where several are worth the same. Undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        If `score` is not finite numbers, `right` not truth values, their lengths differ, or the penalty is negative,
        infinite or NaN: it must be a number of at least 0.

    References
    ----------
    .. [1] Chow (1970). The rule to answer where the score promises enough. :doi:`10.1109/TIT.1970.1054406`

    Examples
    --------
    >>> found = utility_threshold([0.9, 0.8, 0.6, 0.6, 0.2], [True, True, True, False, False], penalty=3)
    >>> found.cut, found.utility, found.coverage
    (0.8, 0.4, 0.4)
    """
    scores, truths = checked_scores(score, right, "right")
    price, n = checked_penalty(penalty), scores.size
    if not n:
        return UtilityThreshold(None, None, None, "undefined", "no_questions", price, 0)
    values, group = np.unique(scores, return_inverse=True)
    answered, rights = (
        np.append(np.cumsum(np.bincount(group, weights)[::-1])[::-1], 0.0) for weights in (np.ones(n), truths)
    )
    gains = rights - price * (answered - rights)
    # Sums that are equal on paper can differ in their last digit.
    best = int(np.argmax(gains >= gains.max() - 1e-12 * (1 + price) * n))
    cut = [-math.inf, *values[1:].tolist(), math.inf][best]
    reason = {-math.inf: "answer_all", math.inf: "refuse_all"}.get(cut)
    status: Status = "boundary" if reason else "ok"
    return UtilityThreshold(cut, float(gains[best]) / n, float(answered[best]) / n, status, reason, price, n)


def selective_report(
    score: ArrayLike, right: ArrayLike, cut: float, *, penalty: float = 1.0, confidence_level: float = 0.95
) -> SelectiveReport:
    """Report what answering the questions that score at least a cut is worth, on questions it was not chosen on.

    Parameters
    ----------
    score : array_like of float, shape (n,)
    right : array_like of bool, shape (n,)
        Whether the answer was right, under forced answering.
    cut : float
        Answer a question whose score is at least this; ``-inf`` answers all, ``inf`` none.
    penalty : float, default: 1
        Price of a wrong answer, in right answers; not negative.
    confidence_level : float in (0, 1), default: 0.95

    Returns
    -------
    SelectiveReport
        Its parts are undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        If `score` is not finite numbers, `right` not truth values, their lengths differ, or the cut, the penalty or
        the level is no number of its range.

    References
    ----------
    .. [1] Clopper and Pearson (1934). :doi:`10.1093/biomet/26.4.404`

    Examples
    --------
    >>> report = selective_report([0.9, 0.8, 0.6, 0.6, 0.2], [True, True, True, False, False], 0.6)
    >>> for value in (report.coverage, report.error_rate, report.utility):
    ...     print(f"{value.name} {value.estimate:.2f} [{value.low:.3f}, {value.high:.3f}]")
    coverage 0.80 [0.376, 0.964]
    answered_error_rate 0.25 [0.006, 0.806]
    utility 0.40 [-0.349, 0.826]
    """
    scores, truths = checked_scores(score, right, "right")
    threshold, price, quantile = _checked_cut(cut), checked_penalty(penalty), normal_quantile(confidence_level)
    table = ContingencyTable.from_arrays(scores < threshold, ~truths)
    return SelectiveReport(
        proportion("coverage", table.n_answered, table.n, quantile, None if table.n else "no_questions"),
        _error_rate(table, confidence_level),
        utility(table, price, confidence_level=confidence_level),
        threshold,
        price,
        table,
    )


def _error_rate(table: ContingencyTable, level: float) -> Estimate:
    errors, n = table.answered_wrong, table.n_answered
    if not n:
        reason = "everybody_refused" if table.n else "no_questions"
        return Estimate(None, status="undefined", reason=reason, name="answered_error_rate")
    tail = (1 + level) / 2
    low = 1 - risk_upper_bound(n - errors, n, tail)
    return Estimate(errors / n, low, risk_upper_bound(errors, n, tail), name="answered_error_rate")


def _checked_cut(cut: float) -> float:
    if not isinstance(cut, Real) or isinstance(cut, bool | np.bool_):
        raise TypeError(f"cut must be a number, got {cut!r} of type {type(cut).__name__}; was no cut found to hold?")
    if math.isnan(cut):
        raise ValueError("cut must be a number, got NaN")
    return float(cut)
