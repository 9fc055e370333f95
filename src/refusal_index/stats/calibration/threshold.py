"""Where to cut a score: answer the questions that score at least so much, refuse the others.

A cut chosen and judged on the same questions looks better than it is: what `utility_threshold` or
`risk_controlling_threshold` chose is told by `selective_report` on questions that neither has seen.

What a model's answers are worth at a stated confidence target.

A cut of a score at which the error rate among the answered holds a bound, with a stated confidence.

The questions are split. One half gives the cuts to try, quantiles of its scores; on the other half
`risk_controlling_threshold` tests them one by one. What the tests promise holds however the error rate varies with the
score, since nothing that decides about their sequence comes from the questions tested.
"""

import math
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from refusal_index.stats.arguments import FloatArray, share, unmasked
from refusal_index.stats.baseline import checked_penalty
from refusal_index.stats.calibration.auroc import checked_scores
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.curves import penalty_from_confidence, utility
from refusal_index.stats.estimate import ConfidenceInterval, Estimate, ResultWithInterval, Status
from refusal_index.stats.intervals import normal_quantile, proportion

SPARED_SHARE = 0.5
"""Share of the error rate allowed with which a cut must be expected to be passed, to be tested.

Simulated with 200 and 500 questions, a bound of .1, 20 quantiles and three profiles of the error rate: at the cut found
.13 to .42 of the questions are answered on average, where a share of 0, with which the first test takes 22 right
answers of 22, gives .02 to .22. At a bound of .05, for which 500 questions are few, 0 finds a cut more often.
"""


@dataclass(frozen=True, slots=True)
class CutTest:
    """One cut tested for its error rate.

    Attributes
    ----------
    cut : float
    n_answered, n_errors : int
        Questions whose score is at least the cut, and the errors among them.
    upper_bound : float
        One-sided Clopper-Pearson bound of the error rate among the answered; 1 where none is.
    """

    cut: float
    n_answered: int
    n_errors: int
    upper_bound: float


@dataclass(frozen=True, slots=True)
class RiskThreshold:
    """The lowest cut of a score at which the error rate among the answered holds a bound.

    Attributes
    ----------
    cut : float or None
        Answer a question whose score is at least this; None where no cut is known to hold the bound.
    n_answered, n_errors : int or None
        Questions of the sample answered at the cut, and the errors among them.
    upper_bound : float or None
        Their Clopper-Pearson bound, at most `max_error`. It is that of a cut tested alone.
    status : {"ok", "undefined"}
    reason : str or None
        ``"no_cut_holds"``: the first test failed. ``"too_few_questions"``: so few that no cut was worth a test. Or
        ``"no_questions"``.
    max_error : float
    tested : tuple of CutTest
        In the order of the tests, the most cautious cut first; all but the last hold the bound, or all.
    """

    cut: float | None
    n_answered: int | None
    n_errors: int | None
    upper_bound: float | None
    status: Status
    reason: str | None
    max_error: float
    tested: tuple[CutTest, ...]


def risk_controlling_threshold(
    score: ArrayLike,
    wrong: ArrayLike,
    max_error: float,
    *,
    grid: ArrayLike,
    confidence_level: float = 0.9,
) -> RiskThreshold:
    """Find the lowest cut of a score at which the error rate among the answered is at most a bound, with confidence.

    The cuts of the grid are tested one after the other, the most cautious first, each by the exact binomial tail: it
    holds where the upper Clopper-Pearson bound of its error rate is at most `max_error`. The tests stop at the first
    cut that fails, and the one before is the answer.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Higher where the answer is expected to be right.
    wrong : array_like of bool, shape (n,)
        Whether the answer was wrong, under forced answering.
    max_error : float in (0, 1)
        Error rate among the answered that must not be exceeded.
    grid : array_like of float, shape (m,)
        Cuts to test, in any order: quantiles of the scores of *other* questions, such as the other half. It must not
        depend on the questions given here.
    confidence_level : float in (0, 1), default: 0.9

    Returns
    -------
    RiskThreshold
        Where its cut is not None, the error rate among all questions of this kind that score as much is at most
        `max_error`, but for a chance of ``1 - confidence_level`` over the draw of the questions given here.

    Raises
    ------
    TypeError, ValueError
        If `score` or `grid` is not finite numbers, the grid is empty, `wrong` not truth values, lengths differ, or a
        share does not lie strictly between 0 and 1.

    Notes
    -----
    Given how many questions score at least a cut, the errors among them are binomial with the error rate at that cut,
    so a cut whose rate exceeds the bound is passed with a chance of at most ``1 - confidence_level``. In a sequence
    fixed beforehand the first such cut is one and the same, and no cut beyond it is reached unless it is passed: that
    is the chance that any cut is wrongly chosen, however the error rate varies with the score.

    The first test of all decides whether anything is found, so that it must not be one that few questions can pass.
    Cuts are therefore skipped from above until one is expected to be passed with half the error
    rate allowed, given so many answers as the grid lets expect: n times its share of values at or above the cut. That
    number comes from the grid and n alone. The number of questions here that score as much would not do instead: given
    that few of them do, the errors below are not binomial with that cut's rate.

    Simulated for 400 questions and a bound of .2, a cut is found in .99 of the samples where the error rate falls with
    the score, in .60 where it is .1 above the median and .35 below, and in .01 where it is lower in the middle than at
    the top. A cut that breaks the bound is chosen in .00 to .06.

    References
    ----------
    .. [1] Angelopoulos, A. N., Bates, S., Candès, E. J., Jordan, M. I. and Lei, L. (2021). Learn then Test:
       calibrating predictive algorithms to achieve risk control. Fixed sequence testing. :arxiv:`2110.01052`
    .. [2] Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial limits illustrated in the case
       of the binomial. Biometrika, 26, 404-413. :doi:`10.1093/biomet/26.4.404`

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> score = rng.random(1000)
    >>> wrong = rng.random(1000) > score
    >>> grid = np.quantile(score[:500], np.arange(20) / 20)
    >>> found = risk_controlling_threshold(score[500:], wrong[500:], 0.2, grid=grid)
    >>> round(found.cut, 3), found.n_answered, found.n_errors, round(found.upper_bound, 3), len(found.tested)
    (0.633, 194, 31, 0.199, 7)
    """
    scores, errors = checked_scores(score, wrong, "wrong")
    bound, level = share("max_error", max_error), share("confidence_level", confidence_level)
    cuts = _checked_grid(grid)
    chosen = _worth_testing(cuts, scores.size, bound, level)
    tested: list[CutTest] = []
    for cut in chosen if scores.size else []:
        answered = scores >= cut
        n_answered, n_errors = int(np.count_nonzero(answered)), int(np.count_nonzero(answered & errors))
        tested.append(CutTest(cut, n_answered, n_errors, risk_upper_bound(n_errors, n_answered, level)))
        if tested[-1].upper_bound > bound:
            break
    passed = [one for one in tested if one.upper_bound <= bound]
    if not passed:
        reason = "no_questions" if not scores.size else "no_cut_holds" if tested else "too_few_questions"
        return RiskThreshold(None, None, None, None, "undefined", reason, bound, tuple(tested))
    last = passed[-1]
    return RiskThreshold(last.cut, last.n_answered, last.n_errors, last.upper_bound, "ok", None, bound, tuple(tested))


def risk_upper_bound(errors: int, n: int, level: float) -> float:
    """Return the upper Clopper-Pearson bound of an error rate, one-sided; 1 where there are only errors, or nothing."""
    return 1.0 if errors == n else float(betaincinv(errors + 1, n - errors, level))


def _worth_testing(grid: FloatArray, n: int, max_error: float, level: float) -> list[float]:
    """Return the cuts of a grid from above, from the first on that is expected to be passed with errors to spare."""
    cuts, counts = np.unique(grid, return_counts=True)
    expected = n * np.cumsum(counts[::-1]) / grid.size
    errors = SPARED_SHARE * max_error * expected
    worth: list[float] = cuts[::-1][betaincinv(errors + 1, expected - errors, level) <= max_error].tolist()
    return worth


def _checked_grid(grid: ArrayLike) -> FloatArray:
    cuts = unmasked("grid", grid)
    if cuts.dtype.kind not in "iuf" and cuts.size:
        raise TypeError(f"grid must hold numbers, got an array of {cuts.dtype}")
    if cuts.ndim != 1 or not cuts.size or not np.isfinite(cuts).all():
        raise ValueError(
            f"grid must be a list of at least one finite cut, got shape {cuts.shape} of {cuts.dtype}; take quantiles "
            "of the scores of other questions"
        )
    return cuts.astype(np.float64)


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
        the level is not a number of its range.

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


# Share of the largest square that is left of a variance by rounding.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetValue(ResultWithInterval):
    """Mean value of a question at a confidence target.

    Attributes
    ----------
    estimate : float or None
        In [-penalty, 1]; 0 for a model that declines everything, and for one that answers at the target exactly.
    standard_error : float or None
        None unless the status is ``"ok"``.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: all questions are worth the same.
    reason : str or None
        ``"no_variation"`` at the boundary, ``"no_questions"`` where undefined.
    target : float
        The confidence target t.
    n_right, n_wrong, n_declined : int
    """

    target: float
    n_right: int
    n_wrong: int
    n_declined: int

    @property
    def penalty(self) -> float:
        """Price of a wrong answer, ``t / (1 - t)``."""
        return float(penalty_from_confidence(self.target))

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return a score interval, as of `refusal_index.stats.utility`; ``(nan, nan)`` where undefined."""
        table = ContingencyTable(0, self.n_declined, self.n_wrong, self.n_right)
        found = utility(table, self.penalty, confidence_level=confidence_level)
        low, high = (math.nan if end is None else end for end in (found.low, found.high))
        return ConfidenceInterval(low, high)


def value_at_target(refused: ArrayLike, wrong: ArrayLike, target: float) -> TargetValue:
    """Mean value of a question where a right answer earns 1, a wrong one costs t / (1 - t), and a declined one nothing.

    At this price an answer is worth giving from a probability of t of being right on.

    Parameters
    ----------
    refused : array_like of bool, shape (n,)
        Whether the question was declined.
    wrong : array_like of bool, shape (n,)
        Whether the answer was wrong; what stands there for a declined question does not matter.
    target : float
        Confidence target t, in [0, 1).

    Returns
    -------
    TargetValue
        Undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        If an argument is not truth values, their lengths differ, or the target lies outside its range.

    References
    ----------
    .. [1] Kalai et al. (2025). :arxiv:`2509.04664`

    Examples
    --------
    >>> refused = [True] * 40 + [False] * 60
    >>> wrong = [False] * 40 + [True] * 10 + [False] * 50
    >>> value = value_at_target(refused, wrong, 0.75)
    >>> round(value.estimate, 3), round(value.standard_error, 4)
    (0.2, 0.1166)
    >>> low, high = value.confidence_interval()
    >>> round(low, 3), round(high, 3)
    (-0.074, 0.391)
    """
    table = ContingencyTable.from_arrays(refused, wrong)
    penalty, n = float(penalty_from_confidence(target)), table.n
    right, wrong, declined = table.answered_right, table.answered_wrong, table.n_refused
    found = TargetValue(
        utility(table, penalty).estimate, target=target, n_right=right, n_wrong=wrong, n_declined=declined
    )
    if found.estimate is None:
        return replace(found, status="undefined", reason="no_questions")
    variance = (right + penalty * penalty * wrong) / n - found.estimate**2
    if variance <= ROUNDING * max(1.0, penalty * penalty):
        return replace(found, status="boundary", reason="no_variation")
    return replace(found, standard_error=math.sqrt(variance / n))
