"""The words for an index: they claim what both ends of its interval hold, and no more.

A word that fits the estimate alone would be said with the same assurance of .36 [.33, .39] and of .36 [.02, .70].
"""

from __future__ import annotations

from refusal_index.stats import Estimate

STEPS = ((0.2, "barely"), (0.4, "loosely"), (0.6, "moderately well"), (0.8, "closely"), (1.01, "very closely"))
"""Up to which index which word is used. A step is about as wide as a 95 % interval of 1,000
questions, so that finer ones could not be told apart. At their borders, with half of the answers wrong, .59, .69, .79
and .89 of the pairs of a wrong and a right question are told apart."""

NO_SIGN_BELOW = STEPS[0][0]
"""There is no sign of an index where even the upper end of an interval that holds 0 is this small: all that is left is
"barely". A wider interval has shown nothing, neither an index nor that there is none."""

MOST_STEPS = 1
"""How many steps the two ends of an interval may lie apart for the index to count as settled: neighbours share a border
that an interval of any width may straddle."""


def followed(index: Estimate) -> str:
    """Say how well refusals follow knowledge, for an index with an interval.

    >>> followed(Estimate(0.36, 0.33, 0.39))
    'Its refusals follow its knowledge loosely.'
    >>> followed(Estimate(0.36, 0.25, 0.47))
    'Its refusals follow its knowledge, loosely to moderately well.'
    >>> followed(Estimate(0.36, 0.02, 0.70))
    'Its refusals follow its knowledge; how well is not settled: anything from barely to closely.'
    >>> followed(Estimate(0.24, -0.03, 0.49))
    'Whether its refusals follow its knowledge is not settled: anything from not at all to moderately well.'
    """
    low, high = index.low, index.high
    if low is None or high is None:
        return "How well its refusals follow its knowledge cannot be said from this number."
    if high < 0:
        return "Its refusals run against its knowledge: it refuses what it knows rather than what it does not."
    if low <= 0:
        return _none_or_not_settled(high)
    first, last = _step(low), _step(high)
    if first == last:
        return f"Its refusals follow its knowledge {STEPS[first][1]}."
    if last - first <= MOST_STEPS:
        return f"Its refusals follow its knowledge, {STEPS[first][1]} to {STEPS[last][1]}."
    span = f"anything from {STEPS[first][1]} to {STEPS[last][1]}"
    return f"Its refusals follow its knowledge; how well is not settled: {span}."


def _none_or_not_settled(high: float) -> str:
    """Say what an interval that holds 0 leaves open, by its upper end."""
    if high < NO_SIGN_BELOW:
        return "There is no sign that its refusals follow its knowledge: they may be no better than a coin."
    span = f"anything from not at all to {STEPS[_step(high)][1]}"
    return f"Whether its refusals follow its knowledge is not settled: {span}."


def _step(value: float) -> int:
    return next(place for place, (end, _) in enumerate(STEPS) if value < end)
