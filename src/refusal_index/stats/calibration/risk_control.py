"""A cut of a score at which the error rate among the answered holds a bound, with a stated confidence.

The questions are split. One half gives the cuts to try, quantiles of its scores; on the other half
`risk_controlling_threshold` tests them one by one. What the tests promise holds however the error rate varies with the
score, since nothing that decides about their sequence comes from the questions tested.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.arguments import share, unmasked
from refusal_index.stats.calibration.auroc import checked_scores
from refusal_index.stats.estimate import Status
from refusal_index.stats.matrices import BoolArray

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
    for one in _tests(scores, errors, chosen if scores.size else [], level):
        tested.append(one)
        if one.upper_bound > bound:
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


def _tests(scores: FloatArray, wrong: BoolArray, cuts: list[float], level: float) -> Iterator[CutTest]:
    for cut in cuts:
        answered = scores >= cut
        n_answered, n_errors = int(np.count_nonzero(answered)), int(np.count_nonzero(answered & wrong))
        yield CutTest(cut, n_answered, n_errors, risk_upper_bound(n_errors, n_answered, level))


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
