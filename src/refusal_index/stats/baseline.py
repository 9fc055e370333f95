"""The metrics the Refusal Index is compared with, and all of them together for one table.

With c the share of all questions answered right and r the share refused, in the first pass:

- correct given attempted, C/A = c / (1 - r);
- F-score, the harmonic mean of c and C/A, F = 2c / (2 - r);
- weighted score, c - penalty * (1 - r): a right answer earns ``1 - penalty``, a wrong one costs ``penalty``.

With i = 1 - c - r the share answered wrong, and three weights that are stated:

- hallucination rate, i / (i + r): of all that was not answered right, what was answered;
- Omniscience Index, 100 (c - i);
- truthfulness score, w1 c + w2 r - w3 i.

From the forced pass as well, of refusals as predictions of a wrong answer:

- refusal precision, the share of the refused questions that are wrong when forced;
- refusal recall, the share of what it gets wrong that it refused;
- over-refusal, the share of what it gets right that it refused.

All change with the refusal rate of one and the same model, which the Refusal Index is made not to do.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats.arguments import FloatArray, check_same_index, unmasked
from refusal_index.stats.contingency import ONE_CLUSTER, AnyTable, Counts, SampledTable, weighted_sum
from refusal_index.stats.estimate import Estimate
from refusal_index.stats.intervals import normal_quantile, proportion, ratio, refusal_index

METRIC_NAMES = (
    "correct_rate",
    "refusal_rate",
    "correct_given_attempted",
    "f_score",
    "weighted_score",
    "hallucination_rate",
    "omniscience_index",
    "truthfulness_score",
    "error_rate",
    "refusal_precision",
    "refusal_recall",
    "over_refusal",
    "refusal_index",
)

SCORES = ("f_score", "weighted_score", "omniscience_index", "truthfulness_score")
"""The metrics that weigh right answers, wrong ones and refusals against each other."""

Weights = tuple[float, float, float]

TRUTHFULNESS_WEIGHTS: Weights = (1.0, 0.0, 1.0)
"""What the truthfulness score gives for a right answer and a refusal, and takes for a wrong answer, unless told else.

A right answer earns 1, a refusal nothing, and a wrong answer costs 1: the weights of CRAG (:arxiv:`2406.04744`), which
TruthRL (:arxiv:`2509.25760`) takes over into the three-weight form. The score is then the Omniscience Index over 100.
"""


@dataclass(frozen=True, slots=True)
class Payoffs:
    """What answers are worth in the scores that are told it: checked where it is made of arguments."""

    penalty: float = 1.0
    truthfulness: Weights = TRUTHFULNESS_WEIGHTS


DEFAULT_PAYOFFS = Payoffs()


def correct_given_attempted(correct_rate: ArrayLike, refusal_rate: ArrayLike) -> FloatArray:
    """Share of right answers among the questions attempted, ``c / (1 - r)``.

    Parameters
    ----------
    correct_rate, refusal_rate : array_like of float
        Shares of all questions, answered right and refused; in [0, 1] with a sum of at most 1. They broadcast.

    Returns
    -------
    ndarray
        In [0, 1]; NaN where everything was refused.

    Raises
    ------
    ValueError
        If a rate lies outside [0, 1] or is NaN, or two exceed 1 together.

    References
    ----------
    .. [1] Wei, J., et al. (2024). Measuring short-form factuality in large language models. Metrics of SimpleQA.
       :arxiv:`2411.04368`

    Examples
    --------
    >>> round(float(correct_given_attempted(0.38, 0.36)), 3)
    0.594
    """
    c, r = _checked_rates(correct_rate, refusal_rate)
    return _divide_if_attempted(c, 1 - r, r)


def f_score(correct_rate: ArrayLike, refusal_rate: ArrayLike) -> FloatArray:
    """Harmonic mean of the correct rate and of C/A, ``2c / (2 - r)``.

    Parameters and broadcasting are those of `correct_given_attempted`.

    Returns
    -------
    ndarray
        In [0, 1]; NaN where everything was refused, since C/A is undefined there.

    Raises
    ------
    ValueError
        As `correct_given_attempted`.

    References
    ----------
    .. [1] Wei et al. (2024). :arxiv:`2411.04368`

    Examples
    --------
    >>> round(float(f_score(0.19, 0.43)), 3)
    0.242
    """
    c, r = _checked_rates(correct_rate, refusal_rate)
    return _divide_if_attempted(2 * c, 2 - r, r)


def weighted_score(correct_rate: ArrayLike, refusal_rate: ArrayLike, penalty: float) -> FloatArray:
    """Correct rate less a penalty for every question attempted, ``c - penalty * (1 - r)``.

    Parameters
    ----------
    correct_rate, refusal_rate : array_like of float
        As for `correct_given_attempted`.
    penalty : float
        Not negative. There is no default because the paper has two: its text names 0.2, and all the weighted scores
        of its results table are those of a penalty of 1.

    Returns
    -------
    ndarray
        In [-penalty, 1 - penalty], or 0 where everything was refused.

    Raises
    ------
    ValueError
        As `correct_given_attempted`, or if the penalty is negative, infinite or NaN.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Section "Experimental Setup".

    Examples
    --------
    >>> round(float(weighted_score(0.19, 0.43, penalty=1)), 3)
    -0.38
    """
    c, r = _checked_rates(correct_rate, refusal_rate)
    return np.asarray(c - checked_penalty(penalty) * (1 - r))[()]


def _checked_rates(correct_rate: ArrayLike, refusal_rate: ArrayLike) -> tuple[FloatArray, FloatArray]:
    given = {"correct_rate": correct_rate, "refusal_rate": refusal_rate}
    check_same_index(given)
    c, r = np.broadcast_arrays(*(unmasked(name, rates).astype(float) for name, rates in given.items()))
    for name, rates in (("correct_rate", c), ("refusal_rate", r)):
        if not np.all((rates >= 0) & (rates <= 1)):
            raise ValueError(f"{name} must lie in [0, 1], got {rates.tolist()!r}; is it a percentage, or a count?")
    # Rates that come from counts may miss a sum of 1 by rounding.
    if np.any(c + r > 1 + 1e-12):
        raise ValueError(
            f"correct_rate and refusal_rate must not exceed 1 together, got {c.tolist()!r} and {r.tolist()!r}; "
            "is the correct rate one over the attempted questions only?"
        )
    return c, r


def _divide_if_attempted(numerator: FloatArray, denominator: FloatArray, refusal_rate: FloatArray) -> FloatArray:
    undefined = np.full(refusal_rate.shape, np.nan)
    return np.asarray(np.divide(numerator, denominator, out=undefined, where=refusal_rate < 1))[()]


def checked_penalty(penalty: float) -> float:
    """Return the price of a wrong answer, or raise an error that says what it must be."""
    if not 0 <= penalty < math.inf:
        raise ValueError(
            f"penalty must be a number of at least 0, got {penalty!r}; "
            "is it a confidence of 1, for which no penalty is high enough?"
        )
    return penalty


def checked_payoffs(penalty: float, truthfulness_weights: Weights) -> Payoffs:
    """Return what answers are worth, or raise an error that says what it must be."""
    weights = tuple(truthfulness_weights)
    if len(weights) != 3 or not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise ValueError(
            "truthfulness_weights must be three numbers of at least 0, not all of them 0, for a right answer, a "
            f"refusal and a wrong answer, got {truthfulness_weights!r}; the last is taken off, so that it has no sign"
        )
    return Payoffs(checked_penalty(penalty), (weights[0], weights[1], weights[2]))


def metrics(
    table: AnyTable,
    *,
    penalty: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
    confidence_level: float = 0.95,
) -> tuple[Estimate, ...]:
    """Every metric of a table with its confidence interval, in the order of `METRIC_NAMES`.

    Parameters
    ----------
    table : ContingencyTable or SampledTable
    penalty : float, default: 1
        Of the weighted score. A penalty of 1 is what the paper's results table shows.
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)
        Of the truthfulness score: what a right answer and a refusal earn, and what a wrong answer costs.
    confidence_level : float, default: 0.95

    Returns
    -------
    tuple of Estimate
        Rates and C/A (among the questions attempted) with Wilson intervals, F and the scores with score intervals,
        which are Wilson's made for three categories, and the Refusal Index with its profile interval. Questions that
        are sampled in clusters or with weights have the same intervals, as `SampledTable` says; with a single cluster
        there are none, and the status is ``"boundary"`` (``"one_cluster"``).

    Raises
    ------
    ValueError
        If the penalty is negative, infinite or NaN, the weights are not three such numbers or all 0, or
        `confidence_level` does not lie strictly between 0 and 1.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Section "Experimental Setup".
    .. [2] Wilson, E. B. (1927). Probable inference, the law of succession, and statistical inference. Journal of the
       American Statistical Association, 22, 209-212. :doi:`10.1080/01621459.1927.10502953`
    .. [3] Koopman, P. A. R. (1984). Confidence intervals for the ratio of two binomial proportions. Biometrics, 40,
       513-517. :doi:`10.2307/2531405`
    .. [4] Venzon, D. J. and Moolgavkar, S. H. (1988). A method for computing profile-likelihood-based confidence
       intervals. Applied Statistics, 37, 87-94. :doi:`10.2307/2347496`
    .. [5] Jackson et al. (2025), as cited in `omniscience_index`. Hallucination rate and Omniscience Index.
       :arxiv:`2511.13029`
    .. [6] Wei, Z., et al. (2025). TruthRL: Incentivizing Truthful LLMs via Reinforcement Learning. The truthfulness
       score and its weights. :arxiv:`2509.25760`

    Examples
    --------
    >>> from refusal_index import ContingencyTable
    >>> for metric in metrics(ContingencyTable(710, 30, 210, 50)):
    ...     print(f"{metric.name:24} {metric.estimate:6.3f} [{metric.low:.3f}, {metric.high:.3f}]")
    correct_rate              0.050 [0.038, 0.065]
    refusal_rate              0.740 [0.712, 0.766]
    correct_given_attempted   0.192 [0.149, 0.245]
    f_score                   0.079 [0.061, 0.103]
    weighted_score           -0.210 [-0.236, -0.186]
    hallucination_rate        0.221 [0.196, 0.249]
    omniscience_index        -16.000 [-19.043, -13.025]
    truthfulness_score       -0.160 [-0.190, -0.130]
    error_rate                0.920 [0.902, 0.935]
    refusal_precision         0.959 [0.943, 0.971]
    refusal_recall            0.772 [0.744, 0.798]
    over_refusal              0.375 [0.277, 0.485]
    refusal_index             0.482 [0.360, 0.592]
    """
    normal_quantile(confidence_level)
    worth = checked_payoffs(penalty, truthfulness_weights)
    return tuple(metric_estimate(name, table, worth, confidence_level) for name in METRIC_NAMES)


def metric_estimate(name: str, table: AnyTable, worth: Payoffs, level: float) -> Estimate:
    """Estimate any metric with its interval."""
    if name != "refusal_index":
        return rate_or_score(name, table, worth, level)
    result = refusal_index(table)
    return replace(Estimate.of(result, result.confidence_interval(level)), name=name, method="profile")


def ratio_weights(metric: str, worth: Payoffs) -> tuple[Counts, Counts]:
    """Return the weights of the four cells in the numerator and the denominator of a metric."""
    every: Counts = (1, 1, 1, 1)
    penalty, (right, refused, wrong) = worth.penalty, worth.truthfulness
    weights: dict[str, tuple[Counts, Counts]] = {
        "correct_rate": ((0, 0, 0, 1), every),
        "refusal_rate": ((1, 1, 0, 0), every),
        "correct_given_attempted": ((0, 0, 0, 1), (0, 0, 1, 1)),
        "f_score": ((0, 0, 0, 2), (1, 1, 2, 2)),
        "weighted_score": ((0, 0, -penalty, 1 - penalty), every),
        "hallucination_rate": ((0, 0, 1, 0), (1, 1, 1, 0)),
        "omniscience_index": ((0, 0, -100, 100), every),
        "truthfulness_score": ((refused, refused, -wrong, right), every),
        "error_rate": ((1, 0, 1, 0), every),
        "refusal_precision": ((1, 0, 0, 0), (1, 1, 0, 0)),
        "refusal_recall": ((1, 0, 0, 0), (1, 0, 1, 0)),
        "over_refusal": ((0, 1, 0, 0), (0, 1, 0, 1)),
    }
    return weights[metric]


EMPTY_DENOMINATORS = {
    "correct_given_attempted": "everybody_refused",
    "f_score": "everybody_refused",
    "hallucination_rate": "all_right",
    "refusal_precision": "nobody_refused",
    "refusal_recall": "all_right",
    "over_refusal": "all_wrong",
}
"""Why a metric is undefined where there is no question in its denominator."""


def why_undefined(metric: str, table: AnyTable) -> str | None:
    """Return the reason why a rate or score of a table does not exist; None where it does."""
    if table.n == 0:
        return "no_questions"
    # F is a mean with C/A
    denominator = ratio_weights("correct_given_attempted" if metric == "f_score" else metric, DEFAULT_PAYOFFS)[1]
    return EMPTY_DENOMINATORS.get(metric) if weighted_sum(table.counts, denominator) == 0 else None


def ratio_influence(metric: str, table: AnyTable, worth: Payoffs) -> tuple[float, Counts]:
    """Return a rate or score that is defined, and the influence on it of a question in each cell."""
    numerator, denominator = ratio_weights(metric, worth)
    total = weighted_sum(table.counts, denominator)
    value = weighted_sum(table.counts, numerator) / total
    w, x, y, z = ((top - value * bottom) * table.n / total for top, bottom in zip(numerator, denominator, strict=True))
    return value, (w, x, y, z)


def rate_or_score(name: str, table: AnyTable, worth: Payoffs, level: float) -> Estimate:
    """Estimate any metric but the Refusal Index with its interval."""
    undefined = why_undefined(name, table)
    if undefined or not isinstance(table, SampledTable):
        return _of_counts(name, table.counts, normal_quantile(level), worth, undefined)
    if table.n_clusters < 2:
        alone = _of_counts(name, table.counts, normal_quantile(level), worth, None)
        return replace(alone, low=None, high=None, status="boundary", reason=ONE_CLUSTER)
    counts = table.effective_counts(ratio_influence(name, table, worth)[1])
    return _of_counts(name, counts, table.quantile(level), worth, None)


def _of_counts(name: str, counts: Counts, quantile: float, worth: Payoffs, undefined: str | None) -> Estimate:
    top, bottom = ratio_weights(name, worth)
    if name not in SCORES:
        return proportion(name, weighted_sum(counts, top), weighted_sum(counts, bottom), quantile, undefined)
    # All refusals are worth the same to a score.
    scored = counts[3], counts[2], counts[0] + counts[1]
    return ratio(name, scored, ((top[3], top[2], top[0]), (bottom[3], bottom[2], bottom[0])), quantile, undefined)
