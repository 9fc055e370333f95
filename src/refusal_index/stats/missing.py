"""How much the Refusal Index depends on grades that are missing: sharp bounds, and one row a scoring rule.

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

Every metric as a range over all that missing grades may be.

All metrics but the Refusal Index are ratios of two weighted counts. Over the ways of filling in missing grades such a
ratio is largest and smallest where all questions of a kind are filled in alike, so that a few tables decide. The
Refusal Index is not such a ratio; its extremes are those of `missing_bounds`.

Nothing is left out of these tables: a question whose first pass is known to have refused, or to have answered, counts
so, whatever grade it lacks. To leave it out would turn a refusal rate that is known exactly into a range.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from refusal_index.stats.arguments import checked_count
from refusal_index.stats.baseline import METRIC_NAMES, TRUTHFULNESS_WEIGHTS, Payoffs, Weights, checked_payoffs
from refusal_index.stats.comparison import point_estimate
from refusal_index.stats.contingency import AnyTable, ContingencyTable
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Status
from refusal_index.stats.intervals import RefusalIndexResult, refusal_index, refusal_index_many


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
    completions = list(_completions(counts))
    return tuple(_range(name, rules, completions, worth) for name in METRIC_NAMES)


def _range(name: str, rules: Sequence[AnyTable], completions: Sequence[AnyTable], worth: Payoffs) -> ScoringRange:
    by_rule = [point_estimate(name, table, worth) for table in rules]
    points = by_rule if name == "refusal_index" else [point_estimate(name, table, worth) for table in completions]
    # An estimate at the boundary has a reason too, and is defined.
    undefined = [point for point in (*by_rule, *points) if point.estimate is None]
    if undefined:
        return ScoringRange(name, None, None, undefined[0].reason)
    values = [point.estimate for point in points if point.estimate is not None]
    return ScoringRange(name, min(values), max(values))


def _completions(counts: OutcomeCounts) -> Iterator[ContingencyTable]:
    """Yield the tables in which all questions of a kind are filled in alike."""
    cells = np.eye(4, dtype=int)
    refused, answered = cells[:2], cells[2:]
    kinds = (
        counts.refused_again * refused,
        counts.unscored_forced * refused,
        counts.unscored_answered * answered,
        counts.unscored_first * cells,
    )
    for filled in itertools.product(*kinds):
        yield ContingencyTable(*np.sum([counts.cells, *filled], axis=0).tolist())
