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
"""

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from refusal_index.stats.contingency import ContingencyTable, checked_count
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Status
from refusal_index.stats.index import RefusalIndexResult, refusal_index, refusal_index_many


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


class ScoredByRule(NamedTuple):
    """The estimate under one rule for what has no grade; its table is ``result.table``."""

    rule: str
    result: RefusalIndexResult


def scoring_rules(counts: OutcomeCounts) -> tuple[ScoredByRule, ...]:
    """Estimate the Refusal Index under every rule for answers refused again and for unscored questions.

    Parameters
    ----------
    counts : OutcomeCounts

    Returns
    -------
    tuple of ScoredByRule
        - ``"refused_again_wrong"``, ``"refused_again_right"``, ``"refused_again_dropped"``: what was refused again
          counts so, and unscored questions are dropped;
        - ``"unscored_lowest"``, ``"unscored_highest"``: refused again is wrong, and unscored questions, of the first or
          the forced pass, are what makes the index smallest or largest, as far as it is defined;
        - ``"all_lowest"``, ``"all_highest"``: and so is what was refused again.

    Examples
    --------
    >>> for rule, result in scoring_rules(OutcomeCounts(700, 30, 210, 50, refused_again=10, unscored_first=5)):
    ...     print(f"{rule:22} {result.estimate:.3f}")
    refused_again_wrong    0.482
    refused_again_right    0.412
    refused_again_dropped  0.479
    unscored_lowest        0.447
    unscored_highest       0.509
    all_lowest             0.383
    all_highest            0.509
    """
    dropped = ContingencyTable(counts.refused_wrong, counts.refused_right, counts.answered_wrong, counts.answered_right)
    n11, n10, n01, n00 = dropped.counts
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
    return tuple(ScoredByRule(rule, refusal_index(table)) for rule, table in tables.items())
