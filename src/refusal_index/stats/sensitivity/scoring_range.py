"""Every metric as a range over the rules for what has no grade.

All metrics but the Refusal Index are ratios of two weighted counts. Over the ways of filling in missing grades such a
ratio is largest and smallest where all questions of a kind are filled in alike, so that a few tables decide. The
Refusal Index is not such a ratio; its extremes are those of `missing_bounds`.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from refusal_index.stats.baseline import METRIC_NAMES, checked_penalty
from refusal_index.stats.comparison.metric_influence import point_estimate
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.sensitivity.missing import OutcomeCounts, scoring_rules


@dataclass(frozen=True, slots=True)
class ScoringRange:
    """Smallest and largest value of one metric over the scoring rules.

    Attributes
    ----------
    name : str in `METRIC_NAMES`
    low, high : float or None
        None where some rule leaves the metric undefined.
    reason : str or None
        Why it is undefined, as in `RefusalIndexResult`.
    """

    name: str
    low: float | None
    high: float | None
    reason: str | None


def scoring_ranges(counts: OutcomeCounts, *, penalty: float = 1.0) -> tuple[ScoringRange, ...]:
    """Range of every metric over the scoring rules, in the order of `METRIC_NAMES`.

    A refusal of the forced pass counts as wrong, as right, or is dropped; a question without a grade is dropped or
    counts as whatever makes the metric smallest or largest.

    Parameters
    ----------
    counts : OutcomeCounts
    penalty : float, default: 1

    Returns
    -------
    tuple of ScoringRange

    Raises
    ------
    ValueError
        If the penalty is negative, infinite or NaN.

    Examples
    --------
    >>> for metric in scoring_ranges(OutcomeCounts(700, 30, 210, 50, refused_again=10, unscored_first=5)):
    ...     print(f"{metric.name:24} {metric.low:6.3f} to {metric.high:6.3f}")
    correct_rate              0.050 to  0.055
    refusal_rate              0.734 to  0.741
    correct_given_attempted   0.189 to  0.208
    f_score                   0.079 to  0.087
    weighted_score           -0.216 to -0.209
    error_rate                0.905 to  0.920
    refusal_index             0.383 to  0.509
    """
    cost = checked_penalty(penalty)
    tables = list(_completions(counts))
    indices = [rule.result.estimate for rule in scoring_rules(counts)]
    return tuple(
        _range(name, indices, tables, cost)
        if name == "refusal_index"
        else _range(name, [point_estimate(name, table, cost).estimate for table in tables], tables, cost)
        for name in METRIC_NAMES
    )


def _range(name: str, values: list[float | None], tables: list[ContingencyTable], penalty: float) -> ScoringRange:
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return ScoringRange(name, min(known), max(known), None)
    reasons = (point_estimate(name, table, penalty).reason for table in tables)
    return ScoringRange(name, None, None, next((reason for reason in reasons if reason), "undefined_under_some_rule"))


def _completions(counts: OutcomeCounts) -> Iterator[ContingencyTable]:
    """Yield the tables in which all questions of a kind are filled in alike, or dropped."""
    n11, n10, n01, n00 = counts.refused_wrong, counts.refused_right, counts.answered_wrong, counts.answered_right
    again, forced, first = counts.refused_again, counts.unscored_forced, counts.unscored_first
    answered = counts.unscored_answered
    cells = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0, 0))
    either = ((1, 0), (0, 1), (0, 0))
    for a, f, g, c in itertools.product(either, either, either if answered else either[:1], cells):
        yield ContingencyTable(
            n11 + again * a[0] + forced * f[0] + first * c[0],
            n10 + again * a[1] + forced * f[1] + first * c[1],
            n01 + answered * g[0] + first * c[2],
            n00 + answered * g[1] + first * c[3],
        )
