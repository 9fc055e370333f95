"""Every metric as a range over all that missing grades may be.

All metrics but the Refusal Index are ratios of two weighted counts. Over the ways of filling in missing grades such a
ratio is largest and smallest where all questions of a kind are filled in alike, so that a few tables decide. The
Refusal Index is not such a ratio; its extremes are those of `missing_bounds`.

Nothing is left out of these tables: a question whose first pass is known to have refused, or to have answered, counts
so, whatever grade it lacks. To leave it out would turn a refusal rate that is known exactly into a range.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from refusal_index.stats.baseline import METRIC_NAMES, TRUTHFULNESS_WEIGHTS, Payoffs, Weights, checked_payoffs
from refusal_index.stats.comparison.metric_influence import point_estimate
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.sampled_table import AnyTable
from refusal_index.stats.sensitivity.missing import OutcomeCounts, scoring_rules


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
    reason: str | None


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
    refusal_index             0.383 to  0.509
    """
    worth = checked_payoffs(penalty, truthfulness_weights)
    rules = [rule.result.table for rule in scoring_rules(counts)]
    completions = list(_completions(counts))
    return tuple(_range(name, rules, completions, worth) for name in METRIC_NAMES)


def _range(name: str, rules: Sequence[AnyTable], completions: Sequence[AnyTable], worth: Payoffs) -> ScoringRange:
    by_rule = [point_estimate(name, table, worth) for table in rules]
    # the reason of one that is undefined: an estimate at the boundary has a reason too
    why = next((found.reason for found in by_rule if found.estimate is None), None)
    found = by_rule if name == "refusal_index" else [point_estimate(name, table, worth) for table in completions]
    values = [one.estimate for one in found if one.estimate is not None]
    if why is not None or len(values) < len(found):
        return ScoringRange(name, None, None, why or next(one.reason for one in found if one.estimate is None))
    return ScoringRange(name, min(values), max(values), None)


def _completions(counts: OutcomeCounts) -> Iterator[ContingencyTable]:
    """Yield the tables in which all questions of a kind are filled in alike."""
    n11, n10, n01, n00 = counts.refused_wrong, counts.refused_right, counts.answered_wrong, counts.answered_right
    again, forced, first = counts.refused_again, counts.unscored_forced, counts.unscored_first
    answered = counts.unscored_answered
    cells = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))
    either = ((1, 0), (0, 1))
    for a, f, g, c in itertools.product(either, either, either, cells):
        yield ContingencyTable(
            n11 + again * a[0] + forced * f[0] + first * c[0],
            n10 + again * a[1] + forced * f[1] + first * c[1],
            n01 + answered * g[0] + first * c[2],
            n00 + answered * g[1] + first * c[3],
        )
