"""Sensitivity of RI: to missing grades, and to differences between topics.

A refused question whose forced answer is missing, or is another refusal, may be wrong or right, and so may an answered
question without a grade; a question without a grade of the first pass may be in any of the four cells. A *completion*
fills in all missing grades; RI of the complete data lies between its minimum and maximum over all completions. These
need not be enumerated:

- the influence of a question on the correlation is ``[RW - alpha R - beta W - centre] / phi``, with alpha and beta in
  (0, 1) and the density phi > 0. Changing a refused question from right to wrong adds ``(1 - beta) / phi > 0``;
  changing an answered one from wrong to right adds ``beta / phi > 0``. So at the maximum, all refused questions are
  wrong and all answered ones right, and the reverse at the minimum;
- likewise, questions without any grade are refused and wrong or answered and right at the maximum, and refused and
  right or answered and wrong at the minimum. The numbers of each are found by trying all.

RI is undefined for a completion with an empty margin; the bounds are over all others. If all completions for one bound
are undefined, the others have the only possible RI, -1 or +1; so both bounds are searched in both sets.

All metrics except RI are ratios of two weighted counts. Such a ratio has its minimum and maximum at completions in
which all questions of the same kind are filled in the same way, so only a few tables are needed. For RI,
`missing_bounds` is used.

These tables contain all questions: a question known to be refused or answered counts as such, even if a grade is
missing. Leaving it out would turn a refusal rate that is known exactly into a range.

`within_topic_refusal_index` is RI among questions of the same topic. Differences in difficulty between topics inflate
RI of all questions: a model that refuses more in topics of which it knows less is rewarded for distinguishing topics.
Here each topic has its own refusal and error rate, and all share one correlation rho.

The likelihood of a topic is conditioned on its margins, so it depends only on the odds ratio of the topic's table: the
count of refused and wrong questions has Fisher's noncentral hypergeometric distribution, whose odds ratio follows from
rho and the topic's rates. This avoids the bias that the many rates cause in the unconditional likelihood: with 100
topics of 10 questions and rho = .405, the latter gives .45 to .47 on average, this one .41 to .43. Topics with an empty
cell are used like any other; a topic with an empty margin has no information.
"""

import itertools
import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammaln, ndtri

from refusal_index.stats.arguments import check_same_index, checked_count, checked_outcomes, unmasked
from refusal_index.stats.baseline import METRIC_NAMES, TRUTHFULNESS_WEIGHTS, Weights, checked_payoffs
from refusal_index.stats.comparison import point_estimate
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.estimate import NO_INTERVAL, Bounds, ConfidenceInterval, Result, Status
from refusal_index.stats.estimator import upper_orthant
from refusal_index.stats.intervals import (
    RefusalIndexResult,
    normal_quantile,
    refusal_index,
    refusal_index_many,
    spearman,
)


@dataclass(frozen=True, slots=True)
class MissingBounds(Bounds):
    """The smallest and largest Refusal Index over all possible values of missing grades.

    Attributes
    ----------
    low, high : float or None
        The bounds, which are sharp: each is the RI of a completion. None if undefined.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: a bound is exactly -1 or +1. ``"undefined"``: RI is undefined for every completion.
    reason : str or None
        As in `RefusalIndexResult`. At the boundary, the reason of that bound (of `low`, if both are at it); if
        undefined, the reason of `low_table`.
    low_table, high_table : ContingencyTable
        The completions with these RIs; if undefined, two completions with undefined RI.
    table : ContingencyTable
        The questions with all grades known.
    """

    low_table: ContingencyTable
    high_table: ContingencyTable
    table: ContingencyTable

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return the lower limit of the profile interval at `low_table` and the upper limit at `high_table`.

        It accounts for both missing grades and sampling of questions. ``(nan, nan)`` if undefined.
        """
        low = refusal_index(self.low_table).confidence_interval(confidence_level).low
        high = refusal_index(self.high_table).confidence_interval(confidence_level).high
        return NO_INTERVAL if self.low is None else ConfidenceInterval(low, high)


MOST_TRIED = 101
"""Most values of a count that are tried between its ends."""


def reading_bounds(
    table: ContingencyTable,
    wrong_both: int = 0,
    wrong_first: int = 0,
    wrong_forced: int = 0,
    right_both: int = 0,
) -> MissingBounds:
    """Return the bounds of the Refusal Index over all ways to read answers as refusals.

    An answer that is read as a refusal moves from the answered to the refused questions, and its forced answer counts
    instead of the first one.

    Parameters
    ----------
    table : ContingencyTable
        All questions, with these answers as answered.
    wrong_both, wrong_first, wrong_forced, right_both : int, default: 0
        Number of answers that may be read as refusals, by which of the two answers is wrong: both, only the first, only
        the forced one, or neither.

    Returns
    -------
    MissingBounds
        Both bounds equal RI if there are no such answers. Tables with undefined RI are left out.

    Raises
    ------
    TypeError, ValueError
        If `table` is not a ContingencyTable, another argument is not a count, or there are more than were answered.

    Notes
    -----
    A forced answer that agrees with the first moves RI one way only, so that all or none are read as refusals at the
    bounds. For the others, all counts are tried, and above `MOST_TRIED` of them, as many evenly spaced ones.

    References
    ----------
    .. [1] Manski, C. F. (2003). Partial Identification of Probability Distributions. Springer.

    Examples
    --------
    >>> bounds = reading_bounds(ContingencyTable(710, 30, 210, 50), wrong_both=10, right_both=2)
    >>> round(bounds.low, 3), round(bounds.high, 3)
    (0.456, 0.498)
    """
    if not isinstance(table, ContingencyTable):
        raise TypeError(f"table must be a ContingencyTable, got {type(table).__name__}; see refusal_index")
    both = checked_count("wrong_both", wrong_both)
    first = checked_count("wrong_first", wrong_first)
    forced = checked_count("wrong_forced", wrong_forced)
    neither = checked_count("right_both", right_both)
    if both + first > table.answered_wrong or forced + neither > table.answered_right:
        raise ValueError(
            f"expected at most {table.answered_wrong} wrong and {table.answered_right} right answers, as in the table, "
            f"got {both + first} and {forced + neither}"
        )
    grids = [np.array([0, both]), _up_to(first), _up_to(forced), np.array([0, neither])]
    moved_both, moved_first, moved_forced, moved_neither = (axis.ravel() for axis in np.meshgrid(*grids))
    tables = np.stack(
        [
            table.refused_wrong + moved_both + moved_forced,
            table.refused_right + moved_first + moved_neither,
            table.answered_wrong - moved_both - moved_first,
            table.answered_right - moved_forced - moved_neither,
        ]
    )
    return _over_tables(table, tables)


def _up_to(count: int) -> NDArray[np.int64]:
    """Return the numbers from 0 to `count`, or `MOST_TRIED` evenly spaced ones."""
    return np.unique(np.linspace(0, count, min(count + 1, MOST_TRIED)).round().astype(np.int64))


def _over_tables(table: ContingencyTable, tables: NDArray[np.int64]) -> MissingBounds:
    """Return the smallest and largest index over tables, shape (4, n)."""
    indices = refusal_index_many(*tables)
    low_table = ContingencyTable(*tables[:, _largest(-indices)].tolist())
    # among equal values, each bound uses a table of its own set
    high_table = ContingencyTable(*tables[:, -1 - _largest(indices[::-1])].tolist())
    low = refusal_index(low_table)
    high = refusal_index(high_table)
    reason = low.reason or high.reason
    status: Status = "undefined" if low.estimate is None else "boundary" if reason else "ok"
    return MissingBounds(low.estimate, high.estimate, status, reason, low_table, high_table, table)


def missing_bounds(
    table: ContingencyTable, unknown_refused: int = 0, unscored: int = 0, unknown_answered: int = 0
) -> MissingBounds:
    """Return the bounds of the Refusal Index over all possible values of missing grades.

    Parameters
    ----------
    table : ContingencyTable
        The questions with all grades known.
    unknown_refused : int, default: 0
        Number of refused questions whose forced answer is missing or is a refusal.
    unscored : int, default: 0
        Number of questions without a grade of the first pass, which may be in any cell.
    unknown_answered : int, default: 0
        Number of questions that the first pass answered, without a grade of that answer.

    Returns
    -------
    MissingBounds
        Without missing grades, both bounds equal RI. Completions with undefined RI are left out.

    Raises
    ------
    TypeError, ValueError
        If `table` is not a ContingencyTable, or another argument is not a count.

    Notes
    -----
    Grading repeated refusals as wrong gives the upper bound. The bounds are exact: 2 (`unscored` + 1) tables are
    evaluated, at a few microseconds each.

    References
    ----------
    .. [1] Manski, C. F. (2003). Partial Identification of Probability Distributions. Springer.

    Examples
    --------
    >>> bounds = missing_bounds(ContingencyTable(710, 30, 210, 50), unknown_refused=15)
    >>> round(bounds.low, 3), round(bounds.high, 3)
    (0.386, 0.486)
    >>> bounds.low_table
    ContingencyTable(refused_wrong=710, refused_right=45, answered_wrong=210, answered_right=50)
    """
    if not isinstance(table, ContingencyTable):
        raise TypeError(f"table must be a ContingencyTable, got {type(table).__name__}; see refusal_index")
    refused = checked_count("unknown_refused", unknown_refused)
    either = checked_count("unscored", unscored)
    answered = checked_count("unknown_answered", unknown_answered)
    n11, n10, n01, n00 = table.counts
    first = np.arange(either + 1)
    rest = either - first
    lowest = np.broadcast_arrays(n11, n10 + refused + first, n01 + answered + rest, n00)
    highest = np.broadcast_arrays(n11 + refused + first, n10, n01, n00 + answered + rest)
    return _over_tables(table, np.hstack([lowest, highest]))


def _largest(values: np.ndarray) -> int:
    return int(np.argmax(np.nan_to_num(values, nan=-np.inf)))


@dataclass(frozen=True, slots=True)
class OutcomeCounts:
    """Counts of questions by outcome, including those with missing grades.

    Parameters
    ----------
    refused_wrong, refused_right, answered_wrong, answered_right : int
        Number of questions with all grades, as in `ContingencyTable`.
    refused_again : int, default: 0
        Refused in both passes.
    unscored_forced : int, default: 0
        Refused in the first pass, without a grade of the forced answer.
    unscored_first : int, default: 0
        Without a grade of the first pass.
    unscored_answered : int, default: 0
        Answered in the first pass, without a grade of that answer.

    Raises
    ------
    TypeError, ValueError
        If one of them is not a count.
    """

    refused_wrong: int
    refused_right: int
    answered_wrong: int
    answered_right: int
    refused_again: int = 0
    unscored_forced: int = 0
    unscored_first: int = 0
    unscored_answered: int = 0

    def __post_init__(self) -> None:
        for entry in fields(self):
            object.__setattr__(self, entry.name, checked_count(entry.name, getattr(self, entry.name)))

    @property
    def cells(self) -> tuple[int, int, int, int]:
        """Counts of the questions with all grades, in the order of `CELL_NAMES`."""
        return self.refused_wrong, self.refused_right, self.answered_wrong, self.answered_right


def scoring_rules(counts: OutcomeCounts) -> dict[str, RefusalIndexResult]:
    """Estimate the Refusal Index under each rule for repeated refusals and unscored questions.

    Parameters
    ----------
    counts : OutcomeCounts

    Returns
    -------
    dict of str to RefusalIndexResult
        Results by rule, each with the table that the rule gives.

        - ``"refused_again_wrong"``, ``"refused_again_right"``, ``"refused_again_dropped"``: repeated refusals are
          counted as wrong, counted as right, or dropped; unscored questions are dropped;
        - ``"unscored_lowest"``, ``"unscored_highest"``: repeated refusals are wrong, and unscored questions, in either
          pass, are filled in so that RI is smallest or largest;
        - ``"all_lowest"``, ``"all_highest"``: repeated refusals are filled in so, too.

    Examples
    --------
    >>> counts = OutcomeCounts(700, 30, 210, 50, refused_again=10, unscored_first=5)
    >>> for rule, result in scoring_rules(counts).items():
    ...     print(f"{rule:22} {result.estimate:.3f}")
    refused_again_wrong    0.482
    refused_again_right    0.412
    refused_again_dropped  0.479
    unscored_lowest        0.447
    unscored_highest       0.509
    all_lowest             0.383
    all_highest            0.509
    """
    dropped = ContingencyTable(*counts.cells)
    n11, n10, n01, n00 = counts.cells
    wrong = ContingencyTable(n11 + counts.refused_again, n10, n01, n00)
    right = ContingencyTable(n11, n10 + counts.refused_again, n01, n00)
    unknown = counts.unscored_first, counts.unscored_answered
    unscored = missing_bounds(wrong, counts.unscored_forced, *unknown)
    all_missing = missing_bounds(dropped, counts.refused_again + counts.unscored_forced, *unknown)
    tables = {
        "refused_again_wrong": wrong,
        "refused_again_right": right,
        "refused_again_dropped": dropped,
        "unscored_lowest": unscored.low_table,
        "unscored_highest": unscored.high_table,
        "all_lowest": all_missing.low_table,
        "all_highest": all_missing.high_table,
    }
    return {rule: refusal_index(table) for rule, table in tables.items()}


@dataclass(frozen=True, slots=True)
class ScoringRange:
    """The smallest and largest value of a metric over all possible values of missing grades.

    Attributes
    ----------
    name : str in `METRIC_NAMES`
    low, high : float or None
        None if the metric is undefined under a scoring rule.
    reason : str or None
        Why it is undefined under the first such rule, as in `RefusalIndexResult`.
    """

    name: str
    low: float | None
    high: float | None
    reason: str | None = None


def scoring_ranges(
    counts: OutcomeCounts, *, weighted_score_p: float = 1.0, truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS
) -> tuple[ScoringRange, ...]:
    """Return the range of every metric over all possible values of missing grades, in the order of `METRIC_NAMES`.

    A refusal in the forced pass is filled in as wrong or right, and a question without a grade so that the metric is
    smallest or largest, given what is known of its first pass. The ranges are sharp: each end is attained by a
    completion, and a rate that does not depend on missing grades has a range of width 0. The range of RI also includes
    the rules of `scoring_rules` that drop questions.

    Parameters
    ----------
    counts : OutcomeCounts
    weighted_score_p : float, default: 1
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)

    Returns
    -------
    tuple of ScoringRange

    Raises
    ------
    ValueError
        If `weighted_score_p` or the weights are out of range.

    Examples
    --------
    >>> for metric in scoring_ranges(OutcomeCounts(700, 30, 210, 50, refused_again=10, unscored_first=5)):
    ...     print(f"{metric.name:24} {metric.low:6.3f} to {metric.high:6.3f}")
    correct_rate              0.050 to  0.055
    refusal_rate              0.736 to  0.741
    correct_given_attempted   0.189 to  0.208
    f_score                   0.079 to  0.087
    weighted_score           -0.214 to -0.209
    hallucination_rate        0.220 to  0.225
    omniscience_index        -16.418 to -15.423
    truthfulness_score       -0.164 to -0.154
    error_rate                0.905 to  0.920
    refusal_precision         0.940 to  0.960
    refusal_recall            0.765 to  0.773
    over_refusal              0.353 to  0.474
    refusal_index             0.383 to  0.509
    """
    payoffs = checked_payoffs(weighted_score_p, truthfulness_weights)
    rules = [result.table for result in scoring_rules(counts).values()]
    # The tables in which all questions of a kind are filled in the same way.
    cells = np.eye(4, dtype=int)
    refused = cells[:2]
    answered = cells[2:]
    kinds = (
        counts.refused_again * refused,
        counts.unscored_forced * refused,
        counts.unscored_answered * answered,
        counts.unscored_first * cells,
    )
    filled = [np.sum([counts.cells, *completion], axis=0).tolist() for completion in itertools.product(*kinds)]
    completions = [ContingencyTable(*cells) for cells in filled]
    ranges = []
    for name in METRIC_NAMES:
        by_rule = [point_estimate(name, table, payoffs) for table in rules]
        points = by_rule if name == "refusal_index" else [point_estimate(name, table, payoffs) for table in completions]
        # An estimate at the boundary has a reason too, but is defined.
        undefined = [point for point in (*by_rule, *points) if point.estimate is None]
        values = [point.estimate for point in points if point.estimate is not None]
        if undefined:
            ranges.append(ScoringRange(name, None, None, undefined[0].reason))
        else:
            ranges.append(ScoringRange(name, min(values), max(values)))
    return tuple(ranges)


# Grid of z = atanh(rho) for bracketing the maximum of the likelihood: up to |rho| = 0.9999.
GRID = np.linspace(-5, 5, 26)
# A modelled cell below this is mostly rounding error.
MIN_CELL = 1e-14


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinTopicResult(Result):
    """The within-topic Refusal Index, and RI of all questions together.

    Attributes
    ----------
    estimate : float or None
        Within-topic Refusal Index, in [-1, 1]. Exactly -1 or +1 at the boundary, None if undefined.
    rho : float or None
        The tetrachoric correlation within topics, with the same conventions.
    pooled : float or None
        RI of all questions in one table; None if undefined.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        At the boundary ``"zero_cell_in_every_topic"``: the likelihood of every informative topic is largest at the same
        end, because of an empty cell. If undefined ``"no_informative_topic"``.
    tables : dict of ContingencyTable
        The table of each topic.
    """

    rho: float | None = None
    pooled: float | None
    tables: dict[Any, ContingencyTable]

    @property
    def n_uninformative(self) -> int:
        """Number of topics without information on rho: an empty margin, such as no refusals or no errors."""
        return len(self.tables) - len(informative_counts(self.tables))

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return a likelihood-ratio interval of the shared RI, from the conditional likelihood.

        Returns
        -------
        ConfidenceInterval
            At the boundary it ends at the estimate; ``(nan, nan)`` if undefined.
        """
        quantile = normal_quantile(confidence_level)
        if self.rho is None:
            return NO_INTERVAL
        likelihood = Likelihood(informative_counts(self.tables))
        rho = self.rho
        z = math.atanh(rho) if abs(rho) < 1 else math.copysign(GRID[-1], rho)
        top = likelihood(z) if abs(rho) < 1 else 0.0

        def excess(value: float) -> float:
            return 2 * (top - likelihood(value)) - quantile * quantile

        limits = []
        for side, end in ((-1.0, GRID[0]), (1.0, GRID[-1])):
            # If the likelihood has not fallen enough at the end of the grid, the interval extends to -1 or 1.
            if rho == side or excess(end) <= 0:
                limits.append(side)
            elif excess(z) >= 0:  # the limit is nearer to the estimate than can be computed
                limits.append(spearman(rho))
            else:
                limits.append(spearman(math.tanh(brentq(excess, z, end, xtol=1e-8))))
        return ConfidenceInterval(*limits)


def within_topic_refusal_index(refused: ArrayLike, wrong: ArrayLike, topic: ArrayLike) -> WithinTopicResult:
    """Estimate the within-topic Refusal Index.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (n,)
        As for `ContingencyTable.from_arrays`.
    topic : array_like, shape (n,)
        Topic of each question: text or numbers.

    Returns
    -------
    WithinTopicResult
        With one rho shared by all topics; each contributes according to its information.

    Raises
    ------
    TypeError, ValueError
        If lengths differ, `refused` or `wrong` does not hold truth values, or a topic is missing.

    Notes
    -----
    Questions within a topic should be similarly difficult; a topic that is a mixture of topics inflates RI, like
    pooling. Rates of a topic are estimated by ``(count + 1/2) / (n + 1)`` to convert rho to its odds ratio.

    References
    ----------
    .. [1] Breslow, N. E. and Day, N. E. (1980). Statistical Methods in Cancer Research, volume 1: The Analysis of
       Case-Control Studies. IARC, chapter 4.

    Examples
    --------
    >>> cells = ([True, True, False, False], [True, False, True, False])
    >>> easy, hard = (30, 60, 120, 790), (600, 150, 150, 100)
    >>> refused, wrong = (np.concatenate([np.repeat(cell, easy), np.repeat(cell, hard)]) for cell in cells)
    >>> result = within_topic_refusal_index(refused, wrong, np.repeat(["easy", "hard"], 1000))
    >>> round(result.estimate, 3), round(result.pooled, 3)
    (0.33, 0.708)
    """
    check_same_index({"refused": refused, "wrong": wrong, "topic": topic})
    r, w = checked_outcomes(refused, wrong)
    named = unmasked("topic", topic)
    if named.shape != r.shape:
        raise ValueError(
            f"topic must have one value for each of the {r.size} questions, got shape {named.shape}; was it filtered?"
        )
    is_text = named.dtype.kind == "O" and all(isinstance(value, str) for value in named)
    if named.dtype.kind not in "USiub" and not is_text:
        raise TypeError(
            f"topic must hold text or whole numbers, got an array of {named.dtype}; is a topic missing? "
            "Drop those questions or give them a topic of their own"
        )
    topics, index = np.unique(named, return_inverse=True)
    counts = np.bincount(4 * index + 2 * ~r + ~w, minlength=4 * topics.size).reshape(-1, 4)
    tables = {key: ContingencyTable(*row) for key, row in zip(topics.tolist(), counts.tolist(), strict=True)}
    pooled = refusal_index(ContingencyTable.from_arrays(r, w)).estimate
    informative = informative_counts(tables)
    if not len(informative):
        return WithinTopicResult(None, "undefined", "no_informative_topic", pooled=pooled, tables=tables)
    likelihood = Likelihood(informative)
    rho = likelihood.end
    if rho is not None:
        return WithinTopicResult(rho, "boundary", "zero_cell_in_every_topic", rho=rho, pooled=pooled, tables=tables)
    best = int(np.argmax([likelihood(z) for z in GRID]))
    bounds = GRID[max(best - 1, 0)], GRID[min(best + 1, GRID.size - 1)]
    rho = math.tanh(minimize_scalar(lambda z: -likelihood(z), bounds=bounds, options={"xatol": 1e-8}).x)
    return WithinTopicResult(spearman(rho), rho=rho, pooled=pooled, tables=tables)


def informative_counts(tables: dict[Any, ContingencyTable]) -> NDArray[np.int64]:
    """Return the counts of the topics with information on rho, shape (topics, 4)."""
    counts = [table.counts for table in tables.values() if 0 not in table.margins]
    return np.array(counts, np.int64).reshape(-1, 4)


class Likelihood:
    """The conditional log-likelihood of z = atanh(rho), given the margins of every topic."""

    def __init__(self, counts: NDArray[np.int64]) -> None:
        observed = counts[:, :1]
        n = counts.sum(axis=1, keepdims=True)
        refused = observed + counts[:, 1:2]
        wrong = observed + counts[:, 2:3]
        self.r = ((refused + 0.5) / (n + 1)).ravel()
        self.mu = ((wrong + 0.5) / (n + 1)).ravel()
        self.h = -ndtri(self.r)
        self.k = -ndtri(self.mu)
        # All possible values of the count of refused and wrong questions given the margins, padded to the widest range.
        lowest = np.maximum(0, refused + wrong - n)
        highest = np.minimum(refused, wrong)
        value = lowest + np.arange((highest - lowest).max() + 1)
        both = np.minimum(value, highest)
        cells = both, refused - both, wrong - both, n - refused - wrong + both
        log_counts = -sum(gammaln(cell + 1.0) for cell in cells)
        log_counts -= np.take_along_axis(log_counts, observed - lowest, axis=1)
        self.log_counts = np.where(value <= highest, log_counts, -np.inf)
        self.excess = both - observed
        # The end of the range of rho at which the likelihood is largest, if it is.
        self.end = 1.0 if (observed == highest).all() else -1.0 if (observed == lowest).all() else None

    def __call__(self, z: float) -> float:
        """Return the log-likelihood of all topics; it tends to 0 at the boundary."""
        r = self.r
        mu = self.mu
        joint = upper_orthant(self.h, self.k, math.tanh(z))
        p11, p10, p01, p00 = np.maximum((joint, r - joint, mu - joint, 1 - r - mu + joint), MIN_CELL)
        slope = np.log(p11 * p00 / (p10 * p01))  # log odds ratio of each topic, by its rates
        # Relative to the observed value and to the largest term, so that no exponential overflows.
        terms = self.log_counts + slope[:, np.newaxis] * self.excess
        largest = terms.max(axis=1)
        return -float(np.sum(largest + np.log(np.exp(terms - largest[:, np.newaxis]).sum(axis=1))))
