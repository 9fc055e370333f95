"""The metrics the Refusal Index is compared with, and all of them together for one table.

With c the share of all questions answered right and r the share refused, in the first pass:

- correct given attempted, C/A = c / (1 - r);
- F-score, the harmonic mean of c and C/A, F = 2c / (2 - r);
- weighted score, c - penalty * (1 - r): a right answer earns ``1 - penalty``, a wrong one costs ``penalty``.

All three change with the refusal rate of one and the same model, which the Refusal Index is made not to do.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.arguments import check_same_index, unmasked
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.estimate import Estimate
from refusal_index.stats.index import refusal_index
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.score_interval import proportion, ratio

METRIC_NAMES = (
    "correct_rate",
    "refusal_rate",
    "correct_given_attempted",
    "f_score",
    "weighted_score",
    "error_rate",
    "refusal_index",
)


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
            raise ValueError(f"{name} must lie in [0, 1], got {rates.tolist()!r}; is it in per cent, or a count?")
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


def metrics(table: ContingencyTable, *, penalty: float = 1.0, confidence_level: float = 0.95) -> tuple[Estimate, ...]:
    """Every metric of a table with its confidence interval, in the order of `METRIC_NAMES`.

    Parameters
    ----------
    table : ContingencyTable
    penalty : float, default: 1
        Of the weighted score. A penalty of 1 is what the paper's results table shows.
    confidence_level : float, default: 0.95

    Returns
    -------
    tuple of Estimate
        Rates and C/A (among the questions attempted) with Wilson intervals, F and weighted score with score intervals,
        which are Wilson's made for three categories, and the Refusal Index with its profile interval.

    Raises
    ------
    ValueError
        If the penalty is negative, infinite or NaN, or `confidence_level` does not lie strictly between 0 and 1.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Section "Experimental Setup".
    .. [2] Wilson, E. B. (1927). Probable inference, the law of succession, and statistical inference. Journal of the
       American Statistical Association, 22, 209-212. :doi:`10.1080/01621459.1927.10502953`
    .. [3] Koopman, P. A. R. (1984). Confidence intervals for the ratio of two binomial proportions. Biometrics, 40,
       513-517. :doi:`10.2307/2531405`
    .. [4] Venzon, D. J. and Moolgavkar, S. H. (1988). A method for computing profile-likelihood-based confidence
       intervals. Applied Statistics, 37, 87-94. :doi:`10.2307/2347496`

    Examples
    --------
    >>> for metric in metrics(ContingencyTable(710, 30, 210, 50)):
    ...     print(f"{metric.name:24} {metric.estimate:6.3f} [{metric.low:.3f}, {metric.high:.3f}]")
    correct_rate              0.050 [0.038, 0.065]
    refusal_rate              0.740 [0.712, 0.766]
    correct_given_attempted   0.192 [0.149, 0.245]
    f_score                   0.079 [0.061, 0.103]
    weighted_score           -0.210 [-0.236, -0.186]
    error_rate                0.920 [0.902, 0.935]
    refusal_index             0.482 [0.360, 0.592]
    """
    quantile, cost = normal_quantile(confidence_level), checked_penalty(penalty)
    right, answered, n = table.answered_right, table.n_answered, table.n
    scored = right, table.answered_wrong, table.n_refused
    no_data = None if n else "no_questions"
    no_attempt = no_data or (None if answered else "everybody_refused")
    return (
        proportion("correct_rate", right, n, quantile, no_data),
        proportion("refusal_rate", table.n_refused, n, quantile, no_data),
        proportion("correct_given_attempted", right, answered, quantile, no_attempt),
        ratio("f_score", scored, ((2, 0, 0), (2, 2, 1)), quantile, no_attempt),
        ratio("weighted_score", scored, ((1 - cost, -cost, 0), (1, 1, 1)), quantile, no_data),
        proportion("error_rate", table.refused_wrong + table.answered_wrong, n, quantile, no_data),
        _refusal_index(table, confidence_level),
    )


def _refusal_index(table: ContingencyTable, confidence_level: float) -> Estimate:
    result = refusal_index(table)
    return replace(
        Estimate.of(result, result.confidence_interval(confidence_level)), name="refusal_index", method="profile"
    )
