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
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.calibration.auroc import checked_scores
from refusal_index.stats.calibration.risk_coverage import expected_counts
from refusal_index.stats.comparison.metric_influence import difference_error
from refusal_index.stats.contingency import CELL_NAMES, ContingencyTable, checked_outcomes, empty_margin
from refusal_index.stats.estimate import ConfidenceInterval, Status
from refusal_index.stats.estimator import tetrachoric
from refusal_index.stats.influence import proportion_influence, spearman, spearman_slope
from refusal_index.stats.intervals import normal_interval
from refusal_index.stats.matrices import BoolArray
from refusal_index.stats.sampled_table import Counts


@dataclass(frozen=True, slots=True)
class ScoreDifference:
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
    score: float | None
    refusals: float | None
    estimate: float | None
    standard_error: float | None
    status: Status
    reason: str | None

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return a normal interval of the difference; ``(nan, nan)`` unless the status is ``"ok"``."""
        return normal_interval(self.estimate, self.standard_error, confidence_level)


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
    error = math.nan if reason else difference_error(score.influence / n, refusals.influence / n)
    if error == 0:
        reason = "constant_difference"
    if reason:
        return ScoreDifference(name, score.estimate, refusals.estimate, estimate, None, "boundary", reason)
    return ScoreDifference(name, score.estimate, refusals.estimate, estimate, error, "ok", None)


def _without_comparison(table: ContingencyTable, reason: str | None) -> RefusalComparison:
    """Report a table with an empty margin, which is the same whatever is refused."""
    index = ScoreDifference("refusal_index", None, None, None, None, "undefined", reason)
    errors = _same_rate("answered_error_rate", table.answered_wrong, table.n_answered, reason)
    correct = _same_rate("correct_rate", table.answered_right, table.n, reason)
    w, x, y, z = table.counts
    return RefusalComparison(index, errors, correct, table, (float(w), float(x), float(y), float(z)), None)


def _same_rate(name: str, count: int, n: int, reason: str | None) -> ScoreDifference:
    if not n:
        return ScoreDifference(name, None, None, None, None, "undefined", reason)
    return ScoreDifference(name, count / n, count / n, 0.0, None, "boundary", reason)
