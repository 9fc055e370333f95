"""Score intervals: Wilson's for a proportion, and the same idea for a ratio of two means over three categories.

A score interval holds the values that a score test would not reject. The test compares the observed mean of a
score that has expectation zero under the tested value with its standard deviation *under that value*, which is why
the interval keeps its coverage, and a positive width, where a count is zero.

References
----------
.. [1] Wilson (1927). :doi:`10.1080/01621459.1927.10502953`
.. [2] Koopman (1984). :doi:`10.2307/2531405`
"""

import math
from collections.abc import Callable

from scipy.optimize import brentq

from refusal_index.stats.estimate import Estimate

Triple = tuple[float, float, float]


def wilson_interval(successes: float, n: float, quantile: float) -> tuple[float, float]:
    """Score interval for a proportion, `quantile` standard errors to either side; n is positive."""
    square = quantile * quantile
    share = successes / n
    centre = share + square / (2 * n)
    reach = quantile * math.sqrt((share * (1 - share) + square / (4 * n)) / n)
    # At a share of 0 or 1 one end is that share, but for rounding.
    low = 0.0 if successes == 0 else (centre - reach) / (1 + square / n)
    high = 1.0 if successes == n else (centre + reach) / (1 + square / n)
    return low, high


def ratio_score_interval(
    counts: Triple, numerator: Triple, denominator: Triple, quantile: float
) -> tuple[float, float, float]:
    """Estimate ``sum(p * numerator) / sum(p * denominator)``, p the probabilities behind three counts.

    Returns the estimate and the ends of its score interval.

    The weights of the denominator are positive. With two categories of the same weights this is Wilson's interval.
    """
    ratios = [top / bottom for top, bottom in zip(numerator, denominator, strict=True)]
    quotient = _weighted_sum(counts, numerator) / _weighted_sum(counts, denominator)
    # Where all questions are alike, rounding can push the quotient past the end of its range.
    estimate = min(max(quotient, min(ratios)), max(ratios))

    def excess(value: float) -> float:
        scores = tuple(top - value * bottom for top, bottom in zip(numerator, denominator, strict=True))
        return abs(_score_statistic(counts, (scores[0], scores[1], scores[2]))) - quantile

    return estimate, _crossing(excess, estimate, min(ratios)), _crossing(excess, estimate, max(ratios))


def proportion(name: str, successes: float, n: float, quantile: float, undefined: str | None) -> Estimate:
    """Estimate a proportion with Wilson's interval; `undefined` is the reason why there is none."""
    if undefined:
        return Estimate(None, status="undefined", reason=undefined, name=name, method="wilson")
    return Estimate(successes / n, *wilson_interval(successes, n, quantile), name=name, method="wilson")


def ratio(
    name: str, counts: Triple, weights: tuple[Triple, Triple], quantile: float, undefined: str | None
) -> Estimate:
    """Estimate a ratio of two weighted sums over the questions answered right, answered wrong and refused."""
    if undefined:
        return Estimate(None, status="undefined", reason=undefined, name=name, method="score")
    return Estimate(*ratio_score_interval(counts, *weights, quantile), name=name, method="score")


def _crossing(excess: Callable[[float], float], estimate: float, end: float) -> float:
    if estimate == end:
        return end
    # At the very end of the range the statistic is infinite, and no usual level comes so near to it.
    near_end = end + 1e-6 * (estimate - end)
    return float(brentq(excess, estimate, near_end, xtol=1e-14)) if excess(near_end) > 0 else end


def _weighted_sum(values: Triple, weights: Triple) -> float:
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True))


def _score_statistic(counts: Triple, scores: Triple) -> float:
    """Sum of the scores over its standard deviation, under the likeliest probabilities that make its mean zero.

    Those are ``p = count / (n (1 + multiplier * score))``. The multiplier solves a quadratic equation, of whose roots
    the one that vanishes with the sum keeps all p positive; the squared statistic is the multiplier times the sum.
    """
    (x1, x2, x3), (w1, w2, w3) = counts, scores
    total = _weighted_sum(counts, scores)
    if total == 0:
        return 0.0
    linear = x1 * w1 * (w2 + w3) + x2 * w2 * (w1 + w3) + x3 * w3 * (w1 + w2)
    quadratic = w1 * w2 * w3 * (x1 + x2 + x3)
    root = math.sqrt(max(linear * linear - 4 * quadratic * total, 0.0))
    # Two forms of the same root: each subtracts like numbers where the other adds them.
    multiplier = 2 * total / (root - linear) if linear <= 0 else -(root + linear) / (2 * quadratic)
    return math.copysign(math.sqrt(max(multiplier * total, 0.0)), total)
