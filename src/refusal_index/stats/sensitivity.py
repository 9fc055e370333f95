"""The Refusal Index under other decisions: missing grades counted either way, and topics kept apart.

A refused question whose forced answer is missing, or is another refusal, may be wrong or right, and so may an answered
one whose grade is missing; a question whose first pass has no grade may be in any of the four cells. Every way of
filling them in is a *completion*, and the index of the complete data lies between the smallest and the largest over all
completions. They need not be listed:

- a question moves the correlation by its influence ``[RW - alpha R - beta W - centre] / phi``, with alpha and beta in
  (0, 1) and the density phi > 0. From right to wrong, a refused question adds ``(1 - beta) / phi > 0``; from wrong to
  right, an answered one adds ``beta / phi > 0``. So the refused questions are all wrong and the answered ones all right
  in the largest, and the other way round in the smallest;
- by the same token, questions of which nothing is known are refused and wrong or answered and right in the largest,
  and refused and right or answered and wrong in the smallest. How many of either is found by trying all numbers.

A completion in which a margin is empty has no index, and the bounds are those of all others. Where one list is of such
completions alone, as where nothing that is right can be left, the other holds the only index there can be, -1 or +1: so
both ends are sought in both lists.

All metrics but the Refusal Index are ratios of two weighted counts. Over the ways of filling in missing grades such a
ratio is largest and smallest where all questions of a kind are filled in alike, so that a few tables decide. The
Refusal Index is not such a ratio; its extremes are those of `missing_bounds`.

Nothing is left out of these tables: a question whose first pass is known to have refused, or to have answered, counts
so, whatever grade it lacks. To leave it out would turn a refusal rate that is known exactly into a range.

`within_topic_refusal_index` says how well refusals tell wrong from right among questions of the same topic. Topics that
differ in difficulty inflate the index of all questions together: a model that refuses more in a topic of which it knows
less gets credit for telling topics apart. Here every topic has its own refusal and error rate, and one correlation rho
is shared by all.

With free rates a topic's likelihood is conditioned on its margins. What remains depends on the odds ratio of the
topic's table alone, and the count of refused and wrong questions has Fisher's noncentral hypergeometric distribution,
whose odds ratio follows from rho and the topic's rates. This keeps the many rates from biasing rho, as they do
in the joint likelihood: with 100 topics of 10 questions and rho = .405 that gives .45 to .47 on average and this .41
to .43. Topics with an empty cell take part like any other; one with a degenerate margin says nothing.
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
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Result, Status
from refusal_index.stats.estimator import upper_orthant
from refusal_index.stats.intervals import (
    RefusalIndexResult,
    normal_quantile,
    refusal_index,
    refusal_index_many,
    spearman,
)


@dataclass(frozen=True, slots=True)
class MissingBounds:
    """Smallest and largest Refusal Index that the missing grades leave possible.

    Attributes
    ----------
    low, high : float or None
        The bounds, which are sharp: each is the index of a completion. None where undefined.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: a bound is exactly -1 or +1. ``"undefined"``: no completion has an index.
    reason : str or None
        At the boundary that of the bound (of `low`, if both are at it) and where undefined that of the completion
        `low_table`, as in `RefusalIndexResult`.
    low_table, high_table : ContingencyTable
        The completions with these indices; where undefined two that have none.
    table : ContingencyTable
        The questions with all grades.
    """

    low: float | None
    high: float | None
    status: Status
    reason: str | None
    low_table: ContingencyTable
    high_table: ContingencyTable
    table: ContingencyTable

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Lower end of the profile interval at the low completion and upper end of that at the high one.

        It allows for both the missing grades and the sampling of the questions. ``(nan, nan)`` where undefined.
        """
        low = refusal_index(self.low_table).confidence_interval(confidence_level).low
        high = refusal_index(self.high_table).confidence_interval(confidence_level).high
        return NO_INTERVAL if self.low is None else ConfidenceInterval(low, high)


def missing_bounds(
    table: ContingencyTable, unknown_refused: int = 0, unscored: int = 0, unknown_answered: int = 0
) -> MissingBounds:
    """Bound the Refusal Index of the complete data, whatever the missing grades are.

    Parameters
    ----------
    table : ContingencyTable
        The questions of which both grades are known.
    unknown_refused : int, default: 0
        Refused questions whose forced answer is missing or was refused again.
    unscored : int, default: 0
        Questions without a grade of the first pass, which may be in any cell.
    unknown_answered : int, default: 0
        Questions that the first pass answered, without a grade of that answer.

    Returns
    -------
    MissingBounds
        With nothing missing both bounds are the index itself. Completions without an index are left out.

    Raises
    ------
    TypeError, ValueError
        If `table` is not a ContingencyTable, or a number is not a count.

    Notes
    -----
    To grade refused-again answers as wrong is to report the upper bound. Nothing is drawn: 2 (`unscored` + 1) tables
    are tried, at a few microseconds each.

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
    refused, either = checked_count("unknown_refused", unknown_refused), checked_count("unscored", unscored)
    answered = checked_count("unknown_answered", unknown_answered)
    n11, n10, n01, n00 = table.counts
    first = np.arange(either + 1)
    rest = either - first
    lowest = np.broadcast_arrays(n11, n10 + refused + first, n01 + answered + rest, n00)
    highest = np.broadcast_arrays(n11 + refused + first, n10, n01, n00 + answered + rest)
    completions = np.hstack([lowest, highest])
    indices = refusal_index_many(*completions)
    low_table = ContingencyTable(*completions[:, _largest(-indices)].tolist())
    # of equal ones each end is the one that its own list has
    high_table = ContingencyTable(*completions[:, -1 - _largest(indices[::-1])].tolist())
    low, high = refusal_index(low_table), refusal_index(high_table)
    reason = low.reason or high.reason
    status: Status = "undefined" if low.estimate is None else "boundary" if reason else "ok"
    return MissingBounds(low.estimate, high.estimate, status, reason, low_table, high_table, table)


def _largest(values: np.ndarray) -> int:
    return int(np.argmax(np.nan_to_num(values, nan=-np.inf)))


@dataclass(frozen=True, slots=True)
class OutcomeCounts:
    """How many questions ended in each way, the incomplete ones told apart.

    Parameters
    ----------
    refused_wrong, refused_right, answered_wrong, answered_right : int
        Questions with all grades, as in `ContingencyTable`.
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
        """The questions of which everything is known, in the order of `CELL_NAMES`."""
        return self.refused_wrong, self.refused_right, self.answered_wrong, self.answered_right


def scoring_rules(counts: OutcomeCounts) -> dict[str, RefusalIndexResult]:
    """Estimate the Refusal Index under every rule for answers refused again and for unscored questions.

    Parameters
    ----------
    counts : OutcomeCounts

    Returns
    -------
    dict of str to RefusalIndexResult
        By the name of the rule; the table it makes is that of the result.

        - ``"refused_again_wrong"``, ``"refused_again_right"``, ``"refused_again_dropped"``: what was refused again
          counts so, and unscored questions are dropped;
        - ``"unscored_lowest"``, ``"unscored_highest"``: refused again is wrong, and unscored questions, of the first or
          the forced pass, are what makes the index smallest or largest, as far as it is defined;
        - ``"all_lowest"``, ``"all_highest"``: and so is what was refused again.

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
    everything = missing_bounds(dropped, counts.refused_again + counts.unscored_forced, *unknown)
    tables = {
        "refused_again_wrong": wrong,
        "refused_again_right": right,
        "refused_again_dropped": dropped,
        "unscored_lowest": unscored.low_table,
        "unscored_highest": unscored.high_table,
        "all_lowest": everything.low_table,
        "all_highest": everything.high_table,
    }
    return {rule: refusal_index(table) for rule, table in tables.items()}


@dataclass(frozen=True, slots=True)
class ScoringRange:
    """Smallest and largest value of one metric, whatever the missing grades are.

    Attributes
    ----------
    name : str in `METRIC_NAMES`
    low, high : float or None
        None where a scoring rule leaves the metric undefined.
    reason : str or None
        Why it is undefined under the first such rule, as in `RefusalIndexResult`.
    """

    name: str
    low: float | None
    high: float | None
    reason: str | None = None


def scoring_ranges(
    counts: OutcomeCounts, *, penalty: float = 1.0, truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS
) -> tuple[ScoringRange, ...]:
    """Range of every metric over all that missing grades may be, in the order of `METRIC_NAMES`.

    A refusal of the forced pass counts as wrong or as right, and a question without a grade as whatever makes the
    metric smallest or largest, as far as its first pass is not known. The ranges are sharp: each end is the value of
    one way to fill in what is missing, and a rate that nothing missing can change is a single number. That of the
    Refusal Index also holds its values under the rules of `scoring_rules` that drop questions.

    Parameters
    ----------
    counts : OutcomeCounts
    penalty : float, default: 1
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)

    Returns
    -------
    tuple of ScoringRange

    Raises
    ------
    ValueError
        If the penalty or the weights are out of range.

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
    worth = checked_payoffs(penalty, truthfulness_weights)
    rules = [result.table for result in scoring_rules(counts).values()]
    # The tables in which all questions of a kind are filled in alike.
    cells = np.eye(4, dtype=int)
    refused, answered = cells[:2], cells[2:]
    kinds = (
        counts.refused_again * refused,
        counts.unscored_forced * refused,
        counts.unscored_answered * answered,
        counts.unscored_first * cells,
    )
    filled = [np.sum([counts.cells, *each], axis=0).tolist() for each in itertools.product(*kinds)]
    completions = [ContingencyTable(*each) for each in filled]
    ranges = []
    for name in METRIC_NAMES:
        by_rule = [point_estimate(name, table, worth) for table in rules]
        points = by_rule if name == "refusal_index" else [point_estimate(name, table, worth) for table in completions]
        # An estimate at the boundary has a reason too, and is defined.
        undefined = [point for point in (*by_rule, *points) if point.estimate is None]
        values = [point.estimate for point in points if point.estimate is not None]
        if undefined:
            ranges.append(ScoringRange(name, None, None, undefined[0].reason))
        else:
            ranges.append(ScoringRange(name, min(values), max(values)))
    return tuple(ranges)


# Where the likelihood is looked at before it is maximised, on the scale z = atanh(rho): up to |rho| = 0.9999.
GRID = np.linspace(-5, 5, 26)
# A modelled cell below this is mostly rounding error.
SMALLEST_CELL = 1e-14


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinTopicResult(Result):
    """The Refusal Index that the topics share, beside that of all questions together.

    Attributes
    ----------
    estimate : float or None
        Within-topic Refusal Index, in [-1, 1]. Exactly -1 or +1 at the boundary, None where undefined.
    rho : float or None
        The tetrachoric correlation within topics, with the same conventions.
    pooled : float or None
        Refusal Index of all questions in one table; None where undefined.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        At the boundary ``"zero_cell_in_every_topic"``: each informative topic has an empty cell that pulls the same
        way. Where undefined ``"no_informative_topic"``.
    tables : dict of ContingencyTable
        The table of each topic.
    """

    rho: float | None = None
    pooled: float | None
    tables: dict[Any, ContingencyTable]

    @property
    def n_uninformative(self) -> int:
        """Topics that say nothing about rho: nobody or everybody refused, or all wrong or all right."""
        return len(self.tables) - len(informative_counts(self.tables))

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Likelihood-ratio interval for the shared index, from the likelihood given every topic's margins.

        Returns
        -------
        ConfidenceInterval
            At the boundary it ends at the estimate; ``(nan, nan)`` where undefined.
        """
        quantile = normal_quantile(confidence_level)
        if self.rho is None:
            return NO_INTERVAL
        likelihood, rho = Likelihood(informative_counts(self.tables)), self.rho
        z = math.atanh(rho) if abs(rho) < 1 else math.copysign(GRID[-1], rho)
        top = likelihood(z) if abs(rho) < 1 else 0.0

        def excess(at: float) -> float:
            return 2 * (top - likelihood(at)) - quantile * quantile

        limits = []
        for side, end in ((-1.0, GRID[0]), (1.0, GRID[-1])):
            # A likelihood that has not fallen enough at the end of the grid excludes nothing on that side.
            inside = rho != side and excess(end) > 0
            limits.append(spearman(math.tanh(brentq(excess, z, end, xtol=1e-8)) if inside else side))
        return ConfidenceInterval(*limits)


def within_topic_refusal_index(refused: ArrayLike, wrong: ArrayLike, topic: ArrayLike) -> WithinTopicResult:
    """Estimate the Refusal Index within topics.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (n,)
        As for `ContingencyTable.from_arrays`.
    topic : array_like, shape (n,)
        Topic of each question: text or numbers.

    Returns
    -------
    WithinTopicResult
        A shared rho, weighted by how much each topic says about it.

    Raises
    ------
    TypeError, ValueError
        If the arrays are not of one length, or not truth values, or a topic is missing.

    Notes
    -----
    Questions of a topic should be alike but for what the model knows; a topic that is a mixture of topics inflates the
    index as before. The rates of a topic are taken at ``(count + 1/2) / (n + 1)`` when rho is turned into its odds
    ratio.

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
    """Return the counts of the topics that say something about rho, shape (topics, 4)."""
    found = [table.counts for table in tables.values() if 0 not in table.margins]
    return np.array(found, np.int64).reshape(-1, 4)


class Likelihood:
    """Likelihood of z = atanh(rho) given the margins of every topic."""

    def __init__(self, counts: NDArray[np.int64]) -> None:
        observed, n = counts[:, :1], counts.sum(axis=1, keepdims=True)
        refused, wrong = observed + counts[:, 1:2], observed + counts[:, 2:3]
        self.r, self.mu = ((refused + 0.5) / (n + 1)).ravel(), ((wrong + 0.5) / (n + 1)).ravel()
        self.h, self.k = -ndtri(self.r), -ndtri(self.mu)
        # All values that the count of refused and wrong questions can take with these margins, padded to the widest.
        least, most = np.maximum(0, refused + wrong - n), np.minimum(refused, wrong)
        value = least + np.arange((most - least).max() + 1)
        both = np.minimum(value, most)
        cells = both, refused - both, wrong - both, n - refused - wrong + both
        ways = -sum(gammaln(cell + 1.0) for cell in cells)
        ways -= np.take_along_axis(ways, observed - least, axis=1)
        self.log_ways, self.excess = np.where(value <= most, ways, -np.inf), both - observed
        # The end of the range of rho to which the likelihood rises, if it does.
        self.end = 1.0 if (observed == most).all() else -1.0 if (observed == least).all() else None

    def __call__(self, z: float) -> float:
        """Log-likelihood, all topics together; it tends to 0 at the boundary."""
        r, mu, joint = self.r, self.mu, upper_orthant(self.h, self.k, math.tanh(z))
        p11, p10, p01, p00 = np.maximum((joint, r - joint, mu - joint, 1 - r - mu + joint), SMALLEST_CELL)
        slope = np.log(p11 * p00 / (p10 * p01))  # log odds ratio of each topic, by its rates
        # Relative to what was observed, and to the largest of them, so that no exponential overflows.
        terms = self.log_ways + slope[:, np.newaxis] * self.excess
        largest = terms.max(axis=1)
        return -float(np.sum(largest + np.log(np.exp(terms - largest[:, np.newaxis]).sum(axis=1))))
