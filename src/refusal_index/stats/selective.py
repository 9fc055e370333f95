"""Selective answering: refusing the questions with the lowest scores.

`risk_coverage_curve` gives the error rate among answered questions when questions are refused in the order of their
scores, lowest first; `aurc` is the area under it. For tied scores, it is the expected error rate if tied questions are
refused in random order. `prediction_rejection_ratio` is the improvement over random rejection relative to that of a
perfect order.

A cut that is evaluated on the questions on which it was chosen looks better than it is. `selective_report` evaluates
the cut of `utility_threshold` or `risk_controlling_threshold` on other questions. For `risk_controlling_threshold`, the
questions are split: one half gives candidate cuts, quantiles of its scores, which are tested one by one on the other
half. The guarantee holds however the error rate depends on the score, because the sequence of tests does not depend on
the tested questions.

`compare_with_refusals` compares a score with the model's own refusals at the same refusal rate.

The model refused a share r of the questions. Refusing instead the same number with the lowest scores gives a second
table with the same margins, so the two differ in one number only: the share refused and wrong, p11. Let `share` be the
share of question i that the score refuses (1 below the cut, 0 above, a fraction for scores tied at the cut), and pi the
share of errors among the questions near the cut. Then the influence on p11 of the score is

    influence_i = share_i (wrong_i - pi) + pi refused_i - p11.

The term with pi accounts for the estimated cut, since the score must refuse as many questions as the model. pi is
estimated from the sqrt(n) ranks on either side of the cut: from tied questions only if there are many, and from both
sides of the jump if the cut is near the end of a tie, since sampling may move it across.

Simulated coverage of nominal 95% intervals is .93 to .96 for all differences, for 300 and 1,000 questions, refusal
rates of .2 and .5, and scores that are better and worse than the refusals, continuous, with six values, and with a tie
that ends at the cut. It is .91 to .99 at an error rate of .9, with small expected counts in some cell.
"""

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from refusal_index.stats.arguments import BoolArray, FloatArray, checked_outcomes, share, unmasked
from refusal_index.stats.baseline import checked_penalty, penalty_from_confidence, utility
from refusal_index.stats.calibration import checked_scores
from refusal_index.stats.comparison import difference_error
from refusal_index.stats.contingency import ContingencyTable, Counts, cell_names, empty_margin
from refusal_index.stats.estimate import ConfidenceInterval, Estimate, Result, ResultWithInterval, Status
from refusal_index.stats.estimator import tetrachoric
from refusal_index.stats.intervals import normal_quantile, proportion, proportion_influence, spearman, spearman_slope


@dataclass(frozen=True, slots=True, kw_only=True)
class AurcResult(Result):
    """Area under the risk-coverage curve.

    Attributes
    ----------
    estimate : float or None
        Mean error rate among the questions with the k highest scores, over k = 1, ..., n; in [0, 1], lower is better.
    excess : float or None
        E-AURC: `estimate` minus the smallest possible area with this number of errors, in which all errors have the
        lowest scores. None unless the status is ``"ok"``.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: all outcomes are equal, so every order of the questions gives the same area.
    reason : str or None
        At the boundary ``"all_true"`` or ``"all_false"``; ``"no_questions"`` if undefined.
    n, n_false : int
        Number of questions, and of those with a false outcome.
    """

    excess: float | None = None
    n: int
    n_false: int


def risk_coverage_curve(score: ArrayLike, outcome: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the risk-coverage curve: the error rate among the questions with the k highest scores.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Higher if the answer is more likely to be right, such as P(Answering). Only the order matters.
    outcome : array_like of bool, shape (n,)
        Whether the answer was right, under forced answering.

    Returns
    -------
    coverage, risk : ndarray, shape (n,)
        Share of questions answered, ``1/n, ..., 1``, and share of false outcomes among them.

    Raises
    ------
    TypeError, ValueError
        If `score` does not hold finite numbers, `outcome` does not hold truth values, or lengths differ.

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


def aurc(score: ArrayLike, outcome: ArrayLike) -> AurcResult:
    """Return the area under the risk-coverage curve (AURC), and its excess over the smallest possible one (E-AURC).

    Parameters are those of `risk_coverage_curve`.

    Returns
    -------
    AurcResult
        Undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        As for `risk_coverage_curve`.

    Notes
    -----
    The smallest area is computed for the finite number of questions, so E-AURC is non-negative, and 0 for a perfect
    order. For many questions that area tends to the usual ``mu + (1 - mu) log(1 - mu)``.

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
    n = scores.size
    n_false = int(np.count_nonzero(~truths))
    if not n:
        return AurcResult(None, "undefined", "no_questions", n=0, n_false=0)
    if n_false in (0, n):
        return AurcResult(n_false / n, "boundary", "all_false" if n_false else "all_true", n=n, n_false=n_false)
    estimate, optimum = _area_and_least(scores, truths)
    return AurcResult(estimate, excess=max(estimate - optimum, 0.0), n=n, n_false=n_false)


def _area_and_least(scores: FloatArray, truths: BoolArray) -> tuple[float, float]:
    """Return the area under the risk-coverage curve, and that of a perfect order."""
    area, optimum = (float(np.mean(risk_coverage_curve(order, truths)[1])) for order in (scores, truths.astype(float)))
    return area, optimum


def expected_counts(scores: FloatArray, marked: NDArray[np.bool_]) -> FloatArray:
    """Return the expected number of marked questions among the k highest scores, k = 1, ..., n, over ties."""
    _, group, sizes = np.unique(-scores, return_inverse=True, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    marked_by = np.concatenate([[0.0], np.cumsum(np.bincount(group, marked, minlength=sizes.size))])
    return np.asarray(np.interp(np.arange(1, scores.size + 1), ends, marked_by))


def prediction_rejection_ratio(score: ArrayLike, outcome: ArrayLike) -> Result:
    """Return the prediction rejection ratio (PRR): where a score lies between random rejection and a perfect order.

    It is the area between the rejection curves of the score and of random rejection, divided by the area between those
    of a perfect order and of random rejection. The rejection curve is the share of right answers among the remaining
    questions when those with the lowest scores are rejected one by one.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Higher if the answer is more likely to be right. Only the order matters; for tied questions the average over all
        orders is taken.
    outcome : array_like of bool, shape (n,)
        Whether the answer was right.

    Returns
    -------
    Result
        At most 1, for a perfect order; 0 on average for a random order, negative for a worse one. Undefined if there
        are no questions (``"no_questions"``) or all outcomes are equal (``"all_false"``, ``"all_true"``).

    Raises
    ------
    TypeError, ValueError
        If `score` does not hold finite numbers, `outcome` does not hold truth values, or lengths differ.

    Notes
    -----
    This is the ratio of lm-polygraph, except that lm-polygraph takes ties in the given order and draws the random
    curve. With mu the error rate, it is ``(mu - AURC) / (mu - smallest AURC)``, where AURC is that of `aurc`. In
    Malinin and Gales, an oracle answers the rejected questions, so their curve counts errors over all questions; their
    ratio is exactly ``2 AUROC - 1``, with the AUROC of `auroc`.

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
    n = scores.size
    n_false = int(np.count_nonzero(~truths))
    reason = {0: "all_true", n: "all_false"}.get(n_false) if n else "no_questions"
    if reason:
        return Result(None, "undefined", reason)
    area, best = _area_and_least(scores, truths)
    return Result((n_false / n - area) / (n_false / n - best))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDifference(ResultWithInterval):
    """The difference of a metric between refusing by a score and the model's own refusals.

    Attributes
    ----------
    name : {"refusal_index", "answered_error_rate", "correct_rate"}
    score, refusals : float or None
        The metric of each; None if undefined.
    estimate : float or None
        ``score - refusals``; None if either is undefined.
    standard_error : float or None
        Paired by question, including the estimation of the cut. None unless the status is ``"ok"``.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: one of the two has no standard error, or that of the difference is 0; there is then no interval.
    reason : str or None
        If a margin of the table is empty, as in `RefusalIndexResult`. Otherwise ``"score:"`` or ``"refusals:"``
        followed by ``"zero_cell:"`` with the empty cells, or by ``"no_variation"`` for an error rate of 0 or 1; both
        are joined by ``";"``. Or ``"constant_difference"``, for example if both refuse the same questions.
    """

    name: str
    score: float | None = None
    refusals: float | None = None


@dataclass(frozen=True, slots=True)
class RefusalComparison:
    """A comparison of a score with the model's own refusals at the same refusal rate.

    Attributes
    ----------
    refusal_index : ScoreDifference
        Difference of RI; positive if the score finds wrong answers better.
    answered_error_rate : ScoreDifference
        Difference of the error rate among answered questions; negative if the score finds wrong answers better.
    correct_rate : ScoreDifference
        Difference of the share of all questions answered right; positive if the score finds wrong answers better.
    table : ContingencyTable
        Table of the model's own refusals.
    score_cells : tuple of float
        Cells of the score's table, in the order of `CELL_NAMES`: the same margins, with fractions for tied scores.
    cut : float or None
        Cut of the score: all questions below it are refused, and a share of those equal to it. None if a margin of the
        table is empty.
    """

    refusal_index: ScoreDifference
    answered_error_rate: ScoreDifference
    correct_rate: ScoreDifference
    table: ContingencyTable
    score_cells: Counts
    cut: float | None


def compare_with_refusals(score: ArrayLike, refused: ArrayLike, wrong: ArrayLike) -> RefusalComparison:
    """Compare refusing by a score with the model's own refusals, at the same number of answers.

    The score refuses as many questions as the model, those with the lowest scores. If scores are tied at the cut, the
    table is the expected one if tied questions are refused in random order.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Higher if the answer is more likely to be right. Only the order matters.
    refused : array_like of bool, shape (n,)
        Whether the model refused the question in the first pass.
    wrong : array_like of bool, shape (n,)
        Whether the answer was wrong, as for `ContingencyTable.from_arrays`.

    Returns
    -------
    RefusalComparison
        Differences of RI, in [-2, 2], and of the error rate among answered questions and the correct rate, in [-1, 1],
        each paired by question. If a margin of the table is empty, for example without refusals or without errors, the
        difference of RI is undefined, and those of the rates have no interval.

    Raises
    ------
    TypeError, ValueError
        If `score` does not hold finite numbers, `refused` and `wrong` do not hold truth values, or lengths differ.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. The Refusal Index.
    .. [2] Hampel (1974). :doi:`10.1080/01621459.1974.10482962`

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> hard = rng.standard_normal(1000)
    >>> wrong = hard + rng.standard_normal(1000) > 0
    >>> refused = hard + 2 * rng.standard_normal(1000) > 1
    >>> found = compare_with_refusals(-hard, refused, wrong)
    >>> for difference in (found.refusal_index, found.answered_error_rate, found.correct_rate):
    ...     low, high = difference.confidence_interval()
    ...     print(f"{difference.name} {difference.estimate:.3f} [{low:.3f}, {high:.3f}]")
    refusal_index 0.421 [0.320, 0.522]
    answered_error_rate -0.102 [-0.127, -0.077]
    correct_rate 0.069 [0.053, 0.085]
    """
    refusals, errors = checked_outcomes(refused, wrong)
    scores, _ = checked_scores(score, errors, "wrong")
    table = ContingencyTable.from_arrays(refusals, errors)
    undefined = empty_margin(*table.margins) if table.n else "no_questions"
    if undefined:
        return _without_comparison(table, undefined)
    by_score = _refuse_lowest(scores, refusals, errors)
    both = refusals & errors
    by_model = _Refusals(table.counts, both - both.mean())
    score_metrics, model_metrics = (_metrics(refusals_of, refusals, errors) for refusals_of in (by_score, by_model))
    index, error_rate, correct_rate = (
        _difference(name, score_metrics[name], model_metrics[name]) for name in score_metrics
    )
    return RefusalComparison(index, error_rate, correct_rate, table, by_score.cells, by_score.cut)


class _Refusals(NamedTuple):
    """A way of refusing: its table, and the influence of each question on the share refused and wrong."""

    cells: Counts
    influence: FloatArray
    cut: float | None = None


class _Metric(NamedTuple):
    estimate: float
    reason: str | None
    influence: FloatArray


def _refuse_lowest(scores: FloatArray, refused: BoolArray, wrong: BoolArray) -> _Refusals:
    """Refuse the questions with the lowest scores, as many as the model refused."""
    n = scores.size
    m = int(np.count_nonzero(refused))
    n_wrong = int(np.count_nonzero(wrong))
    wrong_by = np.concatenate([[0.0], expected_counts(-scores, wrong)])
    cut = float(np.sort(scores)[m - 1])
    tied = scores == cut
    below = scores < cut
    share = below + tied * (m - np.count_nonzero(below)) / np.count_nonzero(tied)
    near = min(math.ceil(math.sqrt(n)), m, n - m)
    at_cut = (wrong_by[m + near] - wrong_by[m - near]) / (2 * near)
    influence = share * (wrong - at_cut) + at_cut * refused - wrong_by[m] / n
    both = float(wrong_by[m])
    return _Refusals((both, m - both, n_wrong - both, n - m - (n_wrong - both)), influence, cut)


def _metrics(refusals: _Refusals, refused: BoolArray, wrong: BoolArray) -> dict[str, _Metric]:
    """Return RI, the error rate among answered questions and the correct rate of a way of refusing."""
    n = refused.size
    r = float(refused.mean())
    mu = float(wrong.mean())
    reason = f"zero_cell:{cell_names(count == 0 for count in refusals.cells)}" if 0 in refusals.cells else None
    rho = float(tetrachoric(*refusals.cells))
    index_influence = np.full(n, np.nan)
    if reason is None:
        w, x, y, z = proportion_influence(refusals.cells[0] / n, r, mu, rho)
        # Convert the influence of cells to derivatives in the first cell and both margins.
        influence = (w - x - y + z) * refusals.influence + (x - z) * (refused - r) + (y - z) * (wrong - mu)
        index_influence = influence * spearman_slope(rho)
    rate = refusals.cells[2] / (refusals.cells[2] + refusals.cells[3])
    of_rate = (wrong - mu - refusals.influence + rate * (refused - r)) / (1 - r)
    return {
        "refusal_index": _Metric(spearman(rho), reason, index_influence),
        "answered_error_rate": _Metric(rate, "no_variation" if rate in {0.0, 1.0} else None, of_rate),
        "correct_rate": _Metric(refusals.cells[3] / n, None, refusals.influence - (refused - r) - (wrong - mu)),
    }


def _difference(name: str, score: _Metric, refusals: _Metric) -> ScoreDifference:
    estimate = score.estimate - refusals.estimate
    named = (("score", score), ("refusals", refusals))
    reason = ";".join(f"{name}:{metric.reason}" for name, metric in named if metric.reason)
    n = score.influence.size
    error = math.nan if reason else difference_error((score.influence / n, refusals.influence / n))
    if error == 0:
        reason = "constant_difference"
    difference = ScoreDifference(
        estimate, "boundary", reason, name=name, score=score.estimate, refusals=refusals.estimate
    )
    return difference if reason else replace(difference, status="ok", reason=None, standard_error=error)


def _without_comparison(table: ContingencyTable, reason: str | None) -> RefusalComparison:
    """Return the comparison for a table with an empty margin, which does not depend on what is refused."""
    index = ScoreDifference(None, "undefined", reason, name="refusal_index")
    errors = _same_rate("answered_error_rate", table.answered_wrong, table.n_answered, reason)
    correct = _same_rate("correct_rate", table.answered_right, table.n, reason)
    w, x, y, z = table.counts
    return RefusalComparison(index, errors, correct, table, (float(w), float(x), float(y), float(z)), None)


def _same_rate(name: str, count: int, n: int, reason: str | None) -> ScoreDifference:
    if not n:
        return ScoreDifference(None, "undefined", reason, name=name)
    return ScoreDifference(0.0, "boundary", reason, name=name, score=count / n, refusals=count / n)


SPARED_SHARE = 0.5
"""A cut is tested only if it would be expected to pass with this share of the allowed error rate.

In simulations with 200 and 500 questions, a bound of .1, 20 quantiles and three profiles of the error rate, .13 to .42
of the questions are answered on average at the cut. A share of 0, with which the first test needs 22 right answers of
22, gives .02 to .22. At a bound of .05, for which 500 questions are few, a share of 0 finds a cut more often.
"""


@dataclass(frozen=True, slots=True)
class CutTest:
    """The test of one cut.

    Attributes
    ----------
    cut : float
    n_answered, n_errors : int
        Number of questions with a score of at least the cut, and of errors among them.
    upper_bound : float
        One-sided Clopper-Pearson bound of the error rate among answered questions; 1 if none is answered.
    """

    cut: float
    n_answered: int
    n_errors: int
    upper_bound: float


@dataclass(frozen=True, slots=True)
class RiskThreshold:
    """The lowest cut of a score at which the error rate among answered questions is at most a bound.

    Attributes
    ----------
    cut : float or None
        Questions with at least this score are answered; None if no cut passed.
    n_answered, n_errors : int or None
        Number of questions in the sample answered at the cut, and of errors among them.
    upper_bound : float or None
        Clopper-Pearson bound of their error rate, at most `max_error`; unadjusted, as for a single test.
    status : {"ok", "undefined"}
    reason : str or None
        ``"no_cut_holds"``: the first test failed. ``"too_few_questions"``: no cut could be expected to pass. Or
        ``"no_questions"``.
    max_error : float
    tested : tuple of CutTest
        In the order of the tests, the highest cut first; all of them passed, or all but the last.
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
    score: ArrayLike, wrong: ArrayLike, max_error: float, *, grid: ArrayLike, confidence_level: float = 0.9
) -> RiskThreshold:
    """Find the lowest cut at which the error rate among answered questions is at most a bound, with confidence.

    The cuts of the grid are tested in sequence, from the highest, by an exact binomial test: a cut passes if the upper
    Clopper-Pearson bound of its error rate is at most `max_error`. Testing stops at the first cut that fails; the
    result is the last one that passed.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Higher if the answer is more likely to be right. A score that was chosen or trained on the questions
        given here exceeds the bound more often than stated.
    wrong : array_like of bool, shape (n,)
        Whether the answer was wrong, under forced answering.
    max_error : float in (0, 1)
        Maximum error rate among answered questions.
    grid : array_like of float, shape (m,)
        Cuts to test, in any order: quantiles of the scores of *other* questions, such as the other half of the sample.
        They must not depend on the questions given here.
    confidence_level : float in (0, 1), default: 0.9

    Returns
    -------
    RiskThreshold
        If the cut is not None, the error rate among all questions with at least that score in the population is at most
        `max_error`, with probability `confidence_level` over the sampling of the questions given here.

    Raises
    ------
    TypeError, ValueError
        If `score` or `grid` does not hold finite numbers, the grid is empty, `wrong` does not hold truth values,
        lengths differ, or `max_error` or `confidence_level` is not strictly between 0 and 1.

    Notes
    -----
    Questions are taken to be independent. Given the number of questions with at least the score of a cut, the number of
    errors among them is binomial with the error rate at that cut. So a cut whose error rate exceeds the bound passes
    with probability at most ``1 - confidence_level``. In a sequence that is fixed in advance, lower cuts are only
    tested if the first such cut passes. So this is also the probability that any wrong cut is chosen, however the error
    rate depends on the score.

    If the first test fails, no cut is found, so it should not use too few questions. The highest cuts are therefore
    skipped until one would be expected to pass at half the allowed error rate, with the number of answers expected from
    the grid: n times the share of its values at or above the cut. This number depends on the grid and n only. The
    observed number of questions with at least that score could not be used, because conditionally on it the errors at
    lower cuts are not binomial.

    In simulations with 400 questions and a bound of .2, a cut is found in .99 of the samples if the error rate
    decreases with the score, in .60 if it is .1 above the median and .35 below, and in .01 if it is lower for middle
    scores than for the highest. A cut that exceeds the bound is chosen in .00 to .06.

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
    bound = share("max_error", max_error)
    level = share("confidence_level", confidence_level)
    thresholds = unmasked("grid", grid)
    if thresholds.dtype.kind not in "iuf" and thresholds.size:
        raise TypeError(f"grid must hold numbers, got an array of {thresholds.dtype}")
    if thresholds.ndim != 1 or not thresholds.size or not np.isfinite(thresholds).all():
        raise ValueError(
            f"grid must be a list of at least one finite cut, got shape {thresholds.shape} of {thresholds.dtype}; take "
            "quantiles of the scores of other questions"
        )
    cuts, n_at = np.unique(thresholds.astype(np.float64), return_counts=True)
    # From the highest cut that would be expected to pass at `SPARED_SHARE` of the allowed error rate.
    expected = scores.size * np.cumsum(n_at[::-1]) / n_at.sum()
    spared = SPARED_SHARE * bound * expected
    chosen = cuts[::-1][betaincinv(spared + 1, expected - spared, level) <= bound] if scores.size else cuts[:0]
    tested: list[CutTest] = []
    for cut in chosen.tolist():
        answered = scores >= cut
        n_answered = int(np.count_nonzero(answered))
        n_errors = int(np.count_nonzero(answered & errors))
        tested.append(CutTest(cut, n_answered, n_errors, risk_upper_bound(n_errors, n_answered, level)))
        if tested[-1].upper_bound > bound:
            break
    passed = [test for test in tested if test.upper_bound <= bound]
    if not passed:
        reason = "no_questions" if not scores.size else "no_cut_holds" if tested else "too_few_questions"
        return RiskThreshold(None, None, None, None, "undefined", reason, bound, tuple(tested))
    last = passed[-1]
    return RiskThreshold(last.cut, last.n_answered, last.n_errors, last.upper_bound, "ok", None, bound, tuple(tested))


def risk_upper_bound(errors: int, n: int, level: float) -> float:
    """Return the one-sided upper Clopper-Pearson bound of an error rate; 1 if all are errors, or n is 0."""
    return 1.0 if errors == n else float(betaincinv(errors + 1, n - errors, level))


@dataclass(frozen=True, slots=True)
class UtilityThreshold:
    """The cut of a score with the highest mean utility in a sample.

    Attributes
    ----------
    cut : float or None
        Questions with at least this score are answered: an observed score, ``-inf`` to answer all, or ``inf`` to refuse
        all. None if undefined.
    utility : float or None
        Mean utility per question of this sample at the cut, in [0, 1]; optimistic, because the cut was chosen on it.
    coverage : float or None
        Share of the sample answered.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        At the boundary ``"answer_all"`` or ``"refuse_all"``; ``"no_questions"`` if undefined.
    penalty : float
        Penalty of a wrong answer.
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
    """The performance of a cut on questions on which it was not chosen.

    Attributes
    ----------
    coverage : Estimate
        Share of questions answered, with Wilson's interval.
    error_rate : Estimate
        Error rate among answered questions, with the exact Clopper-Pearson interval; undefined
        (``"everybody_refused"``) if none is answered.
    utility : Estimate
        As for `refusal_index.stats.utility`.
    cut, penalty : float
    table : ContingencyTable
        With the questions below the cut as refused.
    """

    coverage: Estimate
    error_rate: Estimate
    utility: Estimate
    cut: float
    penalty: float
    table: ContingencyTable


def utility_threshold(score: ArrayLike, right: ArrayLike, penalty: float) -> UtilityThreshold:
    """Find the cut of a score with the highest mean utility in this sample.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Higher if the answer is more likely to be right. Only the order matters.
    right : array_like of bool, shape (n,)
        Whether the answer was right, under forced answering.
    penalty : float
        Penalty of a wrong answer, in units of a right answer; non-negative. A refused question scores 0.

    Returns
    -------
    UtilityThreshold
        The lowest such cut, if several have the same utility. Undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        If `score` does not hold finite numbers, `right` does not hold truth values, lengths differ, or the penalty is
        negative, infinite or NaN.

    References
    ----------
    .. [1] Chow (1970). The optimal rule for rejection. :doi:`10.1109/TIT.1970.1054406`

    Examples
    --------
    >>> found = utility_threshold([0.9, 0.8, 0.6, 0.6, 0.2], [True, True, True, False, False], penalty=3)
    >>> found.cut, found.utility, found.coverage
    (0.8, 0.4, 0.4)
    """
    scores, truths = checked_scores(score, right, "right")
    price = checked_penalty(penalty)
    n = scores.size
    if not n:
        return UtilityThreshold(None, None, None, "undefined", "no_questions", price, 0)
    values, group = np.unique(scores, return_inverse=True)
    answered, rights = (
        np.append(np.cumsum(np.bincount(group, weights)[::-1])[::-1], 0.0) for weights in (np.ones(n), truths)
    )
    gains = rights - price * (answered - rights)
    # Sums that are mathematically equal can differ by rounding.
    best = int(np.argmax(gains >= gains.max() - 1e-12 * (1 + price) * n))
    cut = [-math.inf, *values[1:].tolist(), math.inf][best]
    reason = {-math.inf: "answer_all", math.inf: "refuse_all"}.get(cut)
    status: Status = "boundary" if reason else "ok"
    return UtilityThreshold(cut, float(gains[best]) / n, float(answered[best]) / n, status, reason, price, n)


def selective_report(
    score: ArrayLike, right: ArrayLike, cut: float, *, penalty: float = 1.0, confidence_level: float = 0.95
) -> SelectiveReport:
    """Evaluate a cut of a score on questions on which it was not chosen.

    Parameters
    ----------
    score : array_like of float, shape (n,)
    right : array_like of bool, shape (n,)
        Whether the answer was right, under forced answering.
    cut : float
        Questions with at least this score are answered; ``-inf`` answers all, ``inf`` none.
    penalty : float, default: 1
        Penalty of a wrong answer, in units of a right answer; non-negative.
    confidence_level : float in (0, 1), default: 0.95

    Returns
    -------
    SelectiveReport
        Its parts are undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        If `score` does not hold finite numbers, `right` does not hold truth values, lengths differ, or the cut, the
        penalty or the level is out of range.

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
    if not isinstance(cut, Real) or isinstance(cut, bool | np.bool_):
        raise TypeError(f"cut must be a number, got {cut!r} of type {type(cut).__name__}; was no cut found?")
    if math.isnan(cut):
        raise ValueError("cut must be a number, got NaN")
    threshold = float(cut)
    price = checked_penalty(penalty)
    quantile = normal_quantile(confidence_level)
    table = ContingencyTable.from_arrays(scores < threshold, ~truths)
    errors = table.answered_wrong
    n = table.n_answered
    tail = (1 + confidence_level) / 2
    undefined = "everybody_refused" if table.n else "no_questions"
    error_rate = Estimate(None, status="undefined", reason=undefined, name="answered_error_rate")
    if n:
        low = 1 - risk_upper_bound(n - errors, n, tail)
        high = risk_upper_bound(errors, n, tail)
        error_rate = Estimate(errors / n, low, high, name="answered_error_rate")
    return SelectiveReport(
        proportion("coverage", table.n_answered, table.n, quantile, None if table.n else "no_questions"),
        error_rate,
        utility(table, price, confidence_level=confidence_level),
        threshold,
        price,
        table,
    )


# A variance below this share of the largest squared value is rounding error.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetValue(ResultWithInterval):
    """The mean score per question at a confidence target.

    Attributes
    ----------
    estimate : float or None
        In [-penalty, 1]; 0 for a model that declines everything, or whose answers are right with frequency exactly t.
    standard_error : float or None
        None unless the status is ``"ok"``.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: all questions have the same value.
    reason : str or None
        ``"no_variation"`` at the boundary, ``"no_questions"`` if undefined.
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
        """Penalty of a wrong answer, ``t / (1 - t)``."""
        return float(penalty_from_confidence(self.target))

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return a score interval, as for `refusal_index.stats.utility`; ``(nan, nan)`` if undefined."""
        table = ContingencyTable(0, self.n_declined, self.n_wrong, self.n_right)
        return utility(table, self.penalty, confidence_level=confidence_level).interval


def value_at_target(refused: ArrayLike, wrong: ArrayLike, target: float) -> TargetValue:
    """Return the mean score per question: 1 for a right answer, -t / (1 - t) for a wrong one, 0 if declined.

    At this penalty, answering has a positive expected score if the probability of being right exceeds t.

    Parameters
    ----------
    refused : array_like of bool, shape (n,)
        Whether the question was declined.
    wrong : array_like of bool, shape (n,)
        Whether the answer was wrong; ignored for declined questions.
    target : float
        Confidence target t, in [0, 1).

    Returns
    -------
    TargetValue
        Undefined if there are no questions.

    Raises
    ------
    TypeError, ValueError
        If an argument does not hold truth values, lengths differ, or the target is out of range.

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
    penalty = float(penalty_from_confidence(target))
    n = table.n
    right = table.answered_right
    wrong = table.answered_wrong
    declined = table.n_refused
    value = TargetValue(
        utility(table, penalty).estimate, target=target, n_right=right, n_wrong=wrong, n_declined=declined
    )
    if value.estimate is None:
        return replace(value, status="undefined", reason="no_questions")
    variance = (right + penalty * penalty * wrong) / n - value.estimate**2
    if variance <= ROUNDING * max(1.0, penalty * penalty):
        return replace(value, status="boundary", reason="no_variation")
    return replace(value, standard_error=math.sqrt(variance / n))
