"""A score against the model's own refusals: which of the two orders errors better, at the same refusal rate.

The model refused a share r of the questions. Refusing instead as many with the lowest scores gives a second table with
the same margins, so that the two differ in one number alone: the share refused and wrong. Its difference is that of
what each has refused beyond the other, and depends on the cut only through the questions that are about to cross it.
In terms of influence functions, with `share` the share of question i that the score refuses (1 below the cut, 0 above,
a fraction where scores are tied at it) and pi the share of errors among the questions next to the cut,

    influence_i = share_i (wrong_i - pi) + pi refused_i - p11.

The term with pi is what estimating the cut adds: that the score must refuse as many as the model happened to. It is
taken from the sqrt(n) ranks to either side of the cut: the tied questions alone where they are many, and from both
sides of the jump where the cut lies near the end of a tie, as sampling may move it across.

Simulated coverage of nominal 95 % intervals, for 300 and 1,000 questions, refusal rates of .2 and .5, scores better
and worse than the refusals, continuous, with six values, and with a tie that ends at the cut: .93 to .96 for all
differences. At an error rate of .9, where some cell is expected to hold a handful of questions or none, .91 to .99.

Selective answering: what is gained by leaving out the questions with the lowest score.

Both curves refuse questions in the order of their score, lowest first. The risk-coverage curve shows the error rate
among the questions still answered, the accuracy-refusal curve the correct rate over all questions. Where scores are
tied, the curves are those expected when the tied questions are refused in random order.

Prediction rejection ratio: how much of what a perfect order of rejections would gain a score gains.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.stats.arguments import BoolArray, FloatArray
from refusal_index.stats.calibration.auroc import checked_scores
from refusal_index.stats.comparison.pair import difference_error
from refusal_index.stats.contingency import CELL_NAMES, ContingencyTable, Counts, checked_outcomes, empty_margin
from refusal_index.stats.estimate import Result, ResultWithInterval
from refusal_index.stats.estimator import tetrachoric
from refusal_index.stats.intervals import proportion_influence, spearman, spearman_slope


@dataclass(frozen=True, slots=True, kw_only=True)
class AurcResult(Result):
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

    excess: float | None = None
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
        return AurcResult(None, "undefined", "no_questions", n=0, n_false=0)
    if n_false in (0, n):
        return AurcResult(n_false / n, "boundary", "all_false" if n_false else "all_true", n=n, n_false=n_false)
    estimate, least = _area_and_least(scores, truths)
    return AurcResult(estimate, excess=max(estimate - least, 0.0), n=n, n_false=n_false)


def _area_and_least(scores: FloatArray, truths: BoolArray) -> tuple[float, float]:
    """Return the area under the risk-coverage curve, and that of a perfect order."""
    area, least = (float(np.mean(risk_coverage_curve(order, truths)[1])) for order in (scores, truths.astype(float)))
    return area, least


def expected_counts(scores: FloatArray, marked: NDArray[np.bool_]) -> FloatArray:
    """Count the marked questions among the k with the highest scores, k = 1, ..., n, in expectation over ties."""
    _, group, sizes = np.unique(-scores, return_inverse=True, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    marked_by = np.concatenate([[0.0], np.cumsum(np.bincount(group, marked, minlength=sizes.size))])
    return np.asarray(np.interp(np.arange(1, scores.size + 1), ends, marked_by))


def prediction_rejection_ratio(score: ArrayLike, outcome: ArrayLike) -> Result:
    """Prediction rejection ratio (PRR): how far a score's order lies between random rejection and a perfect order.

    It is the area between the rejection curves of the score and of random rejection, over that between the curves of
    the perfect order and of random rejection. The rejection curve shows the share of right answers among the questions
    kept while those with the lowest scores are rejected one after the other.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Higher where the answer is expected to be right. Only its order matters; tied questions are rejected in random
        order, on average over all orders.
    outcome : array_like of bool, shape (n,)
        Whether the answer was right.

    Returns
    -------
    Result
        At most 1, that of a perfect order; 0 on average for a random one, and below 0 for one that is worse. Undefined
        where there are no questions (``"no_questions"``) or all outcomes are alike (``"all_false"``, ``"all_true"``).

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
        return Result(None, "undefined", reason)
    of_score, best = _area_and_least(scores, truths)
    return Result((n_false / n - of_score) / (n_false / n - best))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDifference(ResultWithInterval):
    """By how much a metric of refusing by a score exceeds that of the model's own refusals.

    Attributes
    ----------
    name : {"refusal_index", "answered_error_rate", "correct_rate"}
    score, refusals : float or None
        The metric of either; None where undefined.
    estimate : float or None
        ``score - refusals``; None where either is undefined.
    standard_error : float or None
        Paired by question, with the cut taken as estimated. None unless the status is ``"ok"``.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: one of the two has no standard error, or their difference has one of 0; then there is no
        interval either.
    reason : str or None
        Where a margin of the table is empty as in `RefusalIndexResult`; else ``"score:"`` or ``"refusals:"`` before
        ``"zero_cell:"`` with the empty cells, or before ``"no_variation"`` of an error rate of 0 or 1, with ``";"``
        between them where it holds for both. Or ``"constant_difference"``, as where both refuse the same questions.
    """

    name: str
    score: float | None = None
    refusals: float | None = None


@dataclass(frozen=True, slots=True)
class RefusalComparison:
    """A score and the model's own refusals, compared at the same refusal rate.

    Attributes
    ----------
    refusal_index : ScoreDifference
        Of the Refusal Index; above 0 where the score orders errors better.
    answered_error_rate : ScoreDifference
        Of the share of errors among the questions answered; below 0 where the score orders errors better.
    correct_rate : ScoreDifference
        Of the share of all questions answered right; above 0 where the score orders errors better.
    table : ContingencyTable
        Of the model's own refusals.
    score_cells : tuple of float
        The table of the score in the order of `CELL_NAMES`: the same margins, and fractions where scores are tied.
    cut : float or None
        Score at which the refusals end: all below are refused, and of those equal to it a share. None where a margin
        of the table is empty.
    """

    refusal_index: ScoreDifference
    answered_error_rate: ScoreDifference
    correct_rate: ScoreDifference
    table: ContingencyTable
    score_cells: Counts
    cut: float | None


def compare_with_refusals(score: ArrayLike, refused: ArrayLike, wrong: ArrayLike) -> RefusalComparison:
    """Compare a score with the model's own refusals: which would leave fewer errors among as many answers.

    At the model's refusal rate the questions with the lowest scores are refused instead. Where scores are tied at the
    cut, the table is that expected when the tied questions are refused in random order.

    Parameters
    ----------
    score : array_like of float, shape (n,)
        Higher where the answer is expected to be right. Only its order matters.
    refused : array_like of bool, shape (n,)
        Whether the model refused the question in the first pass.
    wrong : array_like of bool, shape (n,)
        Whether the answer that counts was wrong, as for `ContingencyTable.from_arrays`.

    Returns
    -------
    RefusalComparison
        Differences of the Refusal Index, in [-2, 2], and of the error rate among the answered and the
        correct rate, in [-1, 1], each paired by question. Without a question refused, or without an error, there is
        nothing to compare: the index is undefined, and the rates, where there are any, have no interval.

    Raises
    ------
    TypeError, ValueError
        If `score` is not finite numbers, `refused` and `wrong` not truth values, or their lengths differ.

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
    right, wrong_in_all = table.refused_right + table.answered_right, table.refused_wrong + table.answered_wrong
    empty = empty_margin(table.n_refused, table.n_answered, right, wrong_in_all)
    if not table.n or empty:
        return _without_comparison(table, empty if table.n else "no_questions")
    by_score, by_model = _refuse_lowest(scores, refusals, errors), _model_refusals(refusals, errors)
    return RefusalComparison(
        _difference("refusal_index", *(_index(one, refusals, errors) for one in (by_score, by_model))),
        _difference("answered_error_rate", *(_error_rate(one, refusals, errors) for one in (by_score, by_model))),
        _difference("correct_rate", *(_correct_rate(one, refusals, errors) for one in (by_score, by_model))),
        table,
        by_score.cells,
        by_score.cut,
    )


class _Refusals(NamedTuple):
    """A way to refuse: its table, and the influence of each question on the share refused and wrong."""

    cells: Counts
    influence: FloatArray
    cut: float | None = None


class _Metric(NamedTuple):
    estimate: float
    reason: str | None
    influence: FloatArray


def _model_refusals(refused: BoolArray, wrong: BoolArray) -> _Refusals:
    both = refused & wrong
    return _Refusals(_cells(float(np.count_nonzero(both)), refused, wrong), both - both.mean())


def _refuse_lowest(scores: FloatArray, refused: BoolArray, wrong: BoolArray) -> _Refusals:
    """Refuse as many questions with the lowest scores as were refused."""
    m, n = int(np.count_nonzero(refused)), scores.size
    wrong_by = np.concatenate([[0.0], expected_counts(-scores, wrong)])
    cut = float(np.sort(scores)[m - 1])
    tied, below = scores == cut, scores < cut
    share = below + tied * (m - np.count_nonzero(below)) / np.count_nonzero(tied)
    near = min(math.ceil(math.sqrt(n)), m, n - m)
    at_cut = (wrong_by[m + near] - wrong_by[m - near]) / (2 * near)
    influence = share * (wrong - at_cut) + at_cut * refused - wrong_by[m] / n
    return _Refusals(_cells(float(wrong_by[m]), refused, wrong), influence, cut)


def _cells(refused_wrong: float, refused: BoolArray, wrong: BoolArray) -> Counts:
    refusals, errors = int(np.count_nonzero(refused)), int(np.count_nonzero(wrong))
    answered_right = refused.size - refusals - (errors - refused_wrong)
    return refused_wrong, refusals - refused_wrong, errors - refused_wrong, answered_right


def _index(found: _Refusals, refused: BoolArray, wrong: BoolArray) -> _Metric:
    rho = float(tetrachoric(*found.cells))
    empty = [name for name, count in zip(CELL_NAMES, found.cells, strict=True) if count == 0]
    if empty:
        return _Metric(spearman(rho), "zero_cell:" + "+".join(empty), np.full(refused.size, np.nan))
    r, mu = float(refused.mean()), float(wrong.mean())
    w, x, y, z = proportion_influence(found.cells[0] / refused.size, r, mu, rho)
    # From the influence of the cells back to the slopes in the share of the first and in both margins.
    influence = (w - x - y + z) * found.influence + (x - z) * (refused - r) + (y - z) * (wrong - mu)
    return _Metric(spearman(rho), None, influence * spearman_slope(rho))


def _error_rate(found: _Refusals, refused: BoolArray, wrong: BoolArray) -> _Metric:
    r, mu = refused.mean(), wrong.mean()
    rate = found.cells[2] / (found.cells[2] + found.cells[3])
    influence = (wrong - mu - found.influence + rate * (refused - r)) / (1 - r)
    return _Metric(rate, "no_variation" if rate in {0.0, 1.0} else None, influence)


def _correct_rate(found: _Refusals, refused: BoolArray, wrong: BoolArray) -> _Metric:
    influence = found.influence - (refused - refused.mean()) - (wrong - wrong.mean())
    return _Metric(found.cells[3] / refused.size, None, influence)


def _difference(name: str, score: _Metric, refusals: _Metric) -> ScoreDifference:
    estimate = score.estimate - refusals.estimate
    named = (("score", score), ("refusals", refusals))
    reason = ";".join(f"{who}:{one.reason}" for who, one in named if one.reason)
    n = score.influence.size
    error = math.nan if reason else difference_error((score.influence / n, refusals.influence / n))
    if error == 0:
        reason = "constant_difference"
    found = ScoreDifference(estimate, "boundary", reason, name=name, score=score.estimate, refusals=refusals.estimate)
    return found if reason else replace(found, status="ok", reason=None, standard_error=error)


def _without_comparison(table: ContingencyTable, reason: str | None) -> RefusalComparison:
    """Report a table with an empty margin, which is the same whatever is refused."""
    index = ScoreDifference(None, "undefined", reason, name="refusal_index")
    errors = _same_rate("answered_error_rate", table.answered_wrong, table.n_answered, reason)
    correct = _same_rate("correct_rate", table.answered_right, table.n, reason)
    w, x, y, z = table.counts
    return RefusalComparison(index, errors, correct, table, (float(w), float(x), float(y), float(z)), None)


def _same_rate(name: str, count: int, n: int, reason: str | None) -> ScoreDifference:
    if not n:
        return ScoreDifference(None, "undefined", reason, name=name)
    return ScoreDifference(0.0, "boundary", reason, name=name, score=count / n, refusals=count / n)
