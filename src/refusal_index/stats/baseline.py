"""The metrics that the Refusal Index is compared with, and curves in the accuracy-refusal plane.

With c the share of all questions answered right in the first pass, and r the share refused:

- correct given attempted, C/A = c / (1 - r);
- F-score, the harmonic mean of c and C/A, F = 2c / (2 - r);
- weighted score, c - p (1 - r): the share answered right minus p times the share answered. A right answer scores
  ``1 - p``, a wrong one ``-p``.

With i = 1 - c - r the share answered wrong, and three weights w1, w2 and w3:

- hallucination rate, i / (i + r): the share answered among questions not answered right;
- Omniscience Index, 100 (c - i);
- truthfulness score, w1 c + w2 r - w3 i.

With the forced pass, refusals as predictions of wrong answers:

- refusal precision, the share of refused questions that are wrong when forced;
- refusal recall, the share of questions with a wrong answer that are refused;
- over-refusal, the share of questions with a right answer that are refused.

All of these change with a model's refusal rate; the Refusal Index is designed not to.

A model that answers everything is right on a share ``1 - mu`` of the questions; a model that refuses everything, on
none. Between these ends the correct rate is a function of the refusal rate r, the accuracy-refusal curve, whose shape
is given by the Refusal Index: under the Gaussian copula

    c(r) = Phi2(probit(1 - r), probit(1 - mu); rho),

which decreases in r and increases in rho. Lines of constant value of the other metrics are straight in this plane.

The confidence band of the curve follows from the delta method for its two estimated parameters. It is computed for the
logit of the accuracy among answered questions, ``c / (1 - r)``, and so stays within its range. The simultaneous band is
Scheffe's: the normal quantile is replaced by the root of the chi-squared quantile with two degrees of freedom, 2.45
instead of 1.96 at 95%.

Under the Gaussian copula a question has a latent refusal score X and a latent difficulty Y, standard normal with
correlation rho, and is wrong if ``Y > k = probit(1 - mu)``. Any measure of how well the score ranks wrong questions
above right ones is then a function of rho and mu alone.

The area under the ROC curve is the probability that a wrong question scores above a right one,
``P(X > X', Y > k, Y' <= k) / (mu (1 - mu))``. With ``D = (X - X') / sqrt(2)``, which has correlation ``rho / sqrt(2)``
with Y, a wrong question scores above *any* other with probability ``orthant(0, k, rho / sqrt(2))``. Subtracting half of
the pairs of two wrong questions, ``mu^2 / 2``, gives the numerator.

For the utility, a right answer scores 1, a refusal 0, and a wrong answer minus a penalty L, so the mean utility per
question is ``c - L i``. Answering has a positive expected utility if the probability of being right exceeds t = L / (1
+ L), so that ``L = t / (1 - t)``; the usual penalties 1, 3 and 9 correspond to t = 1/2, 3/4 and 9/10.

Other metrics are on the same scale: the weighted score is ``(1 - p)`` times the utility at
``L = p / (1 - p)``, and the Omniscience Index is 100 times the utility at L = 1.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtr, ndtri

from refusal_index.stats.arguments import FloatArray, check_same_index, unmasked
from refusal_index.stats.contingency import ONE_CLUSTER, AnyTable, ContingencyTable, Counts, SampledTable, weighted_sum
from refusal_index.stats.estimate import Estimate, Status
from refusal_index.stats.estimator import density, upper_orthant
from refusal_index.stats.intervals import cell_influence, normal_quantile, proportion, ratio, refusal_index

SCORES = ("f_score", "weighted_score", "omniscience_index", "truthfulness_score")
"""The metrics that combine right answers, wrong answers and refusals with weights."""

Weights = tuple[float, float, float]

TRUTHFULNESS_WEIGHTS: Weights = (1.0, 0.0, 1.0)
"""Default weights of the truthfulness score: added for a right answer and a refusal, subtracted for a wrong one.

These are the weights of CRAG (:arxiv:`2406.04744`), which TruthRL (:arxiv:`2509.25760`) uses in the three-weight form.
The score is then the Omniscience Index divided by 100.
"""


@dataclass(frozen=True, slots=True)
class Payoffs:
    """p of the weighted score, and weights of the truthfulness score; see `checked_payoffs`."""

    weighted_score_p: float = 1.0
    truthfulness: Weights = TRUTHFULNESS_WEIGHTS


DEFAULT_PAYOFFS = Payoffs()


def ratio_weights(payoffs: Payoffs) -> dict[str, tuple[Counts, Counts]]:
    """Return the weights of the four cells in numerator and denominator of every metric except RI."""
    every: Counts = (1, 1, 1, 1)
    p = payoffs.weighted_score_p
    (right, refused, wrong) = payoffs.truthfulness
    return {
        "correct_rate": ((0, 0, 0, 1), every),
        "refusal_rate": ((1, 1, 0, 0), every),
        "correct_given_attempted": ((0, 0, 0, 1), (0, 0, 1, 1)),
        "f_score": ((0, 0, 0, 2), (1, 1, 2, 2)),
        "weighted_score": ((0, 0, -p, 1 - p), every),
        "hallucination_rate": ((0, 0, 1, 0), (1, 1, 1, 0)),
        "omniscience_index": ((0, 0, -100, 100), every),
        "truthfulness_score": ((refused, refused, -wrong, right), every),
        "error_rate": ((1, 0, 1, 0), every),
        "refusal_precision": ((1, 0, 0, 0), (1, 1, 0, 0)),
        "refusal_recall": ((1, 0, 0, 0), (1, 0, 1, 0)),
        "over_refusal": ((0, 1, 0, 0), (0, 1, 0, 1)),
    }


METRIC_NAMES = (*ratio_weights(DEFAULT_PAYOFFS), "refusal_index")


def correct_given_attempted(correct_rate: ArrayLike, refusal_rate: ArrayLike) -> FloatArray:
    """Return the share of right answers among attempted questions, ``c / (1 - r)``.

    Parameters
    ----------
    correct_rate, refusal_rate : array_like of float
        Shares of all questions answered right and refused, in [0, 1] and with a sum of at most 1. They broadcast.

    Returns
    -------
    ndarray
        In [0, 1]; NaN if everything was refused.

    Raises
    ------
    ValueError
        If a rate is outside [0, 1] or NaN, or their sum exceeds 1.

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
    """Return the F-score, the harmonic mean of the correct rate and of C/A, ``2c / (2 - r)``.

    Parameters are those of `correct_given_attempted`.

    Returns
    -------
    ndarray
        In [0, 1]; NaN if everything was refused, since C/A is then undefined.

    Raises
    ------
    ValueError
        As for `correct_given_attempted`.

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


def weighted_score(correct_rate: ArrayLike, refusal_rate: ArrayLike, p: float) -> FloatArray:
    """Return the correct rate minus p times the share answered, ``c - p * (1 - r)``.

    Parameters
    ----------
    correct_rate, refusal_rate : array_like of float
        As for `correct_given_attempted`.
    p : float
        Deducted for every answer, right or wrong; non-negative. There is no default because the paper uses two values:
        its text names 0.2, and its results table uses 1.

    Returns
    -------
    ndarray
        In [-p, 1 - p], or 0 if everything was refused.

    Raises
    ------
    ValueError
        As for `correct_given_attempted`, or if p is negative, infinite or NaN.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Section "Experimental Setup".

    Examples
    --------
    >>> round(float(weighted_score(0.19, 0.43, p=1)), 3)
    -0.38
    """
    c, r = _checked_rates(correct_rate, refusal_rate)
    return np.asarray(c - checked_p(p, "p") * (1 - r))[()]


def _checked_rates(correct_rate: ArrayLike, refusal_rate: ArrayLike) -> tuple[FloatArray, FloatArray]:
    rates_by_name = {"correct_rate": correct_rate, "refusal_rate": refusal_rate}
    check_same_index(rates_by_name)
    c, r = np.broadcast_arrays(*(unmasked(name, rates).astype(float) for name, rates in rates_by_name.items()))
    for name, rates in (("correct_rate", c), ("refusal_rate", r)):
        if not np.all((rates >= 0) & (rates <= 1)):
            raise ValueError(f"{name} must lie in [0, 1], got {rates.tolist()!r}; is it a percentage, or a count?")
    # The sum of rates computed from counts may exceed 1 by rounding.
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
    """Return the penalty of a wrong answer; raises ValueError if it is out of range."""
    if not 0 <= penalty < math.inf:
        raise ValueError(
            f"penalty must be a number of at least 0, got {penalty!r}; "
            "is it a confidence of 1, for which no penalty is high enough?"
        )
    return penalty


def checked_p(p: float, name: str = "weighted_score_p") -> float:
    """Return p of the weighted score; raises ValueError, with the name of the argument, if it is out of range."""
    if not 0 <= p < math.inf:
        raise ValueError(
            f"{name} must be a number of at least 0, got {p!r}; it is p of the weighted score c - p(1 - r)"
        )
    return p


def checked_payoffs(weighted_score_p: float, truthfulness_weights: Weights) -> Payoffs:
    """Return p and weights as `Payoffs`; raises ValueError if they are out of range."""
    weights = tuple(truthfulness_weights)
    if len(weights) != 3 or not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise ValueError(
            "truthfulness_weights must be three numbers of at least 0, not all of them 0, for a right answer, a "
            f"refusal and a wrong answer, got {truthfulness_weights!r}; the last is subtracted, so it has no sign"
        )
    return Payoffs(checked_p(weighted_score_p), (weights[0], weights[1], weights[2]))


def metrics(
    table: AnyTable,
    *,
    weighted_score_p: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
    confidence_level: float = 0.95,
) -> tuple[Estimate, ...]:
    """Return every metric of a table with its confidence interval, in the order of `METRIC_NAMES`.

    Parameters
    ----------
    table : ContingencyTable or SampledTable
    weighted_score_p : float, default: 1
        p of the weighted score; 1 in the paper's results table.
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)
        Weights of the truthfulness score: added for a right answer and a refusal, subtracted for a wrong answer.
    confidence_level : float, default: 0.95

    Returns
    -------
    tuple of Estimate
        Rates, including C/A, have Wilson intervals. F-score and scores have score intervals, which generalise Wilson's
        to three categories. RI has its profile interval. For questions sampled in clusters or with weights, the
        intervals are adjusted as described in `SampledTable`; for a single cluster there are none, and the status is
        ``"boundary"`` (``"one_cluster"``).

    Raises
    ------
    ValueError
        If `weighted_score_p` is negative, infinite or NaN, if the weights are not three non-negative numbers or all 0,
        or if `confidence_level` is not strictly between 0 and 1.

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
    payoffs = checked_payoffs(weighted_score_p, truthfulness_weights)
    return tuple(metric_estimate(name, table, payoffs, confidence_level) for name in METRIC_NAMES)


def metric_estimate(name: str, table: AnyTable, payoffs: Payoffs, level: float) -> Estimate:
    """Estimate a metric with its interval."""
    if name != "refusal_index":
        return rate_or_score(name, table, payoffs, level)
    result = refusal_index(table)
    return replace(Estimate.of(result, result.confidence_interval(level)), name=name, method="profile")


EMPTY_DENOMINATORS = {
    "correct_given_attempted": "everybody_refused",
    "f_score": "everybody_refused",
    "hallucination_rate": "all_right",
    "refusal_precision": "nobody_refused",
    "refusal_recall": "all_right",
    "over_refusal": "all_wrong",
}
"""Reason why a metric is undefined if its denominator is 0."""


def why_undefined(metric: str, table: AnyTable) -> str | None:
    """Return the reason why a rate or score of a table is undefined; None if it is defined."""
    if table.n == 0:
        return "no_questions"
    # the F-score is undefined if C/A is
    _, denominator = ratio_weights(DEFAULT_PAYOFFS)["correct_given_attempted" if metric == "f_score" else metric]
    return EMPTY_DENOMINATORS.get(metric) if weighted_sum(table.counts, denominator) == 0 else None


def ratio_influence(metric: str, table: AnyTable, payoffs: Payoffs) -> tuple[float, Counts]:
    """Return a rate or score, and the influence on it of a question in each cell; it must be defined."""
    numerator, denominator = ratio_weights(payoffs)[metric]
    total = weighted_sum(table.counts, denominator)
    value = weighted_sum(table.counts, numerator) / total
    w, x, y, z = ((top - value * bottom) * table.n / total for top, bottom in zip(numerator, denominator, strict=True))
    return value, (w, x, y, z)


def rate_or_score(name: str, table: AnyTable, payoffs: Payoffs, level: float) -> Estimate:
    """Estimate a metric other than RI with its interval."""
    undefined = why_undefined(name, table)
    if undefined or not isinstance(table, SampledTable):
        return _of_counts(name, table.counts, normal_quantile(level), payoffs, undefined)
    if table.has_one_cluster:
        alone = _of_counts(name, table.counts, normal_quantile(level), payoffs, None)
        return replace(alone, low=None, high=None, status="boundary", reason=ONE_CLUSTER)
    counts = table.effective_counts(ratio_influence(name, table, payoffs)[1])
    return _of_counts(name, counts, table.quantile(level), payoffs, None)


def _of_counts(name: str, counts: Counts, quantile: float, payoffs: Payoffs, undefined: str | None) -> Estimate:
    top, bottom = ratio_weights(payoffs)[name]
    if name not in SCORES:
        return proportion(name, weighted_sum(counts, top), weighted_sum(counts, bottom), quantile, undefined)
    # Scores do not distinguish refusals by their forced answers.
    scored = counts[3], counts[2], counts[0] + counts[1]
    return ratio(name, scored, ((top[3], top[2], top[0]), (bottom[3], bottom[2], bottom[0])), quantile, undefined)


def latent_auroc(rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Return the area under the ROC curve of the latent refusal score, with wrong questions as positives.

    Parameters
    ----------
    rho : array_like of float in [-1, 1]
    error_rate : array_like of float
        Share of wrong answers under forced answering, mu, in [0, 1]. Both arguments broadcast.

    Returns
    -------
    ndarray
        In [0, 1]; 1/2 for an uninformative score. NaN if all answers are right or all are wrong.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    At ``mu = 1/2`` the area is ``1/2 + (2/pi) asin(rho / sqrt(2))``.

    Examples
    --------
    >>> latent_auroc(0.5, [0.92, 0.5, 1.0]).round(5).tolist()
    [0.77853, 0.73005, nan]
    """
    correlation, mu = checked_rho_and_error_rate(rho, error_rate)
    above_any = upper_orthant(0.0, -ndtri(mu), correlation * math.sqrt(0.5))
    pairs = mu * (1 - mu)
    return np.asarray(np.divide(above_any - mu * mu / 2, pairs, out=np.full(mu.shape, np.nan), where=pairs > 0))[()]


def rho_from_refusal_index(refusal_index: ArrayLike) -> FloatArray:
    """Return the tetrachoric correlation that gives a Refusal Index, ``2 sin(pi RI / 6)``.

    Parameters
    ----------
    refusal_index : array_like of float
        In [-1, 1].

    Returns
    -------
    ndarray
        In [-1, 1].

    Raises
    ------
    ValueError
        If an index is outside [-1, 1] or NaN.

    References
    ----------
    .. [1] Kruskal, W. H. (1958). Ordinal measures of association. Journal of the American Statistical Association, 53,
       814-861. Kendall's and Spearman's measures of a normal distribution. :doi:`10.1080/01621459.1958.10501481`

    Examples
    --------
    >>> rho_from_refusal_index([-1, 0, 0.4826]).round(4).tolist()
    [-1.0, 0.0, 0.5]
    """
    return np.asarray(2 * np.sin(checked_range("refusal_index", refusal_index, -1) * math.asin(0.5)))[()]


def checked_rho_and_error_rate(rho: ArrayLike, error_rate: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Check the two parameters of a fitted model, and broadcast them."""
    correlation, mu = np.broadcast_arrays(checked_range("rho", rho, -1), checked_range("error_rate", error_rate, 0))
    return correlation, mu


def checked_range(name: str, values: ArrayLike, low: float) -> FloatArray:
    """Return values as an array; raises ValueError unless all are between `low` and 1."""
    array = np.asarray(values, float)
    bad = ~((array >= low) & (array <= 1))
    if bad.any():
        raise ValueError(
            f"{name} must lie in [{low}, 1], got {float(array[bad].flat[0])!r}; is it a percentage, or missing (NaN)?"
        )
    return array


def penalty_from_confidence(confidence: ArrayLike) -> FloatArray:
    """Return the penalty at which answering pays if the probability of being right exceeds t, ``t / (1 - t)``.

    Parameters
    ----------
    confidence : array_like of float
        Confidence target t, in [0, 1).

    Returns
    -------
    ndarray
        Non-negative.

    Raises
    ------
    ValueError
        If it is out of range.

    References
    ----------
    .. [1] Kalai, A. T., Nachum, O., Vempala, S. S. and Zhang, E. (2025). Why Language Models Hallucinate. Explicit
       confidence targets t with a penalty of t / (1 - t). :arxiv:`2509.04664`

    Examples
    --------
    >>> penalty_from_confidence([0.0, 0.5, 0.75, 0.9]).round(12).tolist()
    [0.0, 1.0, 3.0, 9.0]
    """
    t = np.asarray(confidence, float)
    bad = ~((t >= 0) & (t < 1))
    if bad.any():
        raise ValueError(f"confidence must lie in [0, 1), got {float(t[bad].flat[0])!r}; is it a percentage?")
    return np.asarray(t / (1 - t))[()]


def utility(table: ContingencyTable, penalty: float, *, confidence_level: float = 0.95) -> Estimate:
    """Return the mean utility per question, ``c - penalty * i``, with a score interval.

    Parameters
    ----------
    table : ContingencyTable
    penalty : float
        Penalty L of a wrong answer, in units of a right answer; non-negative.
    confidence_level : float in (0, 1), default: 0.95

    Returns
    -------
    Estimate
        In [-penalty, 1], with a score interval; undefined for a table without questions.

    Raises
    ------
    ValueError
        If the penalty is negative, infinite or NaN.

    References
    ----------
    .. [1] Kalai et al. (2025). :arxiv:`2509.04664`

    Examples
    --------
    >>> for penalty in (1, 3, 9):
    ...     value = utility(ContingencyTable(710, 30, 210, 50), penalty)
    ...     print(f"{penalty} {value.estimate:.2f} [{value.low:.3f}, {value.high:.3f}]")
    1 -0.16 [-0.190, -0.130]
    3 -0.58 [-0.662, -0.505]
    9 -1.84 [-2.079, -1.621]
    """
    counts = table.answered_right, table.answered_wrong, table.n_refused
    weights = (1.0, -checked_penalty(penalty), 0.0), (1.0, 1.0, 1.0)
    undefined = None if table.n else "no_questions"
    return ratio("utility", counts, weights, normal_quantile(confidence_level), undefined)


def omniscience_index(table: ContingencyTable, *, confidence_level: float = 0.95) -> Estimate:
    """Return the Omniscience Index: 100 times the share answered right minus the share answered wrong.

    Parameters
    ----------
    table : ContingencyTable
    confidence_level : float in (0, 1), default: 0.95

    Returns
    -------
    Estimate
        In [-100, 100]; 0 if right and wrong answers are equally frequent, or everything is refused. Undefined for a
        table without questions.

    Raises
    ------
    ValueError
        If `confidence_level` is not strictly between 0 and 1.

    References
    ----------
    .. [1] Jackson, D., Keating, W., Cameron, G. and Hill-Smith, M. (2025). AA-Omniscience: Evaluating Cross-Domain
       Knowledge Reliability in Large Language Models. Defines the Omniscience Index, also with partly correct answers,
       which score 0. :arxiv:`2511.13029`

    Examples
    --------
    >>> round(omniscience_index(ContingencyTable(710, 30, 210, 50)).estimate, 6)
    -16.0
    """
    return rate_or_score("omniscience_index", table, Payoffs(), confidence_level)


class ConfidenceBand(NamedTuple):
    """The lower and upper ends of a confidence band, arrays of shape (m,); all NaN if there is none."""

    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class AccuracyRefusalCurve:
    """The accuracy-refusal curve fitted to a table.

    Attributes
    ----------
    refusal_rate, correct_rate : ndarray of float, shape (m,)
        Points of the curve. The correct rates are NaN if the curve is undefined.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `RefusalIndexResult`. At the boundary the curve is that of rho = -1 or +1, and has no band.
    rho : float or None
        The tetrachoric correlation of the table.
    table : ContingencyTable
        The counts. The curve passes through their ``(refusal_rate, correct_rate)``.
    """

    refusal_rate: FloatArray
    correct_rate: FloatArray
    status: Status
    reason: str | None
    rho: float | None
    table: ContingencyTable

    def confidence_band(self, confidence_level: float = 0.95, *, simultaneous: bool = False) -> ConfidenceBand:
        """Return a confidence band of the correct rates, by the delta method on the logit of c / (1 - r).

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        simultaneous : bool, default: False
            Whether the band covers the whole curve at this confidence level (slightly conservative) instead of each
            point separately.

        Returns
        -------
        ConfidenceBand
            ``(low, high)``, all NaN unless the status is ``"ok"``.

        Examples
        --------
        >>> curve = accuracy_refusal_curve(ContingencyTable(710, 30, 210, 50), [0.0, 0.74])
        >>> low, high = curve.confidence_band()
        >>> low.round(4).tolist(), high.round(4).tolist()
        ([0.0647, 0.0385], [0.0985, 0.0639])
        """
        quantile = normal_quantile(confidence_level)
        if simultaneous:  # a chi-squared variable with two degrees of freedom is exponential
            quantile = math.sqrt(-2 * math.log1p(-confidence_level))
        if self.rho is None or self.status != "ok":
            undefined = np.full(self.refusal_rate.shape, math.nan)
            return ConfidenceBand(undefined, undefined.copy())
        mu = self.table.error_rate
        rho = self.rho
        # 40 is beyond the quantile of any double below 1, and avoids undefined differences of infinities.
        x = np.clip(-ndtri(self.refusal_rate), -40.0, 40.0)
        k = -ndtri(mu)
        spread = math.sqrt((1 - rho) * (1 + rho))
        gradient = np.stack([-ndtr((x - rho * k) / spread), density(x, k, rho)])
        influence = np.array([(1 - mu, -mu, 1 - mu, -mu), cell_influence(self.table, rho)])
        covariance = (influence * self.table.counts) @ influence.T / self.table.n**2
        reach = quantile * np.sqrt(np.sum(gradient * (covariance @ gradient), axis=0))
        right = self.correct_rate
        answered = 1 - self.refusal_rate
        inside = (right > 0) & (answered > right)
        share = np.divide(right, answered, out=np.full(right.shape, 0.5), where=inside)
        shift = np.divide(reach, answered * share * (1 - share), out=np.zeros(right.shape), where=inside)
        low, high = (np.where(inside, answered * expit(logit(share) + side * shift), right) for side in (-1, 1))
        return ConfidenceBand(low, high)


def correct_rate_at(refusal_rate: ArrayLike, rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Return the correct rate of a model at each refusal rate: its accuracy-refusal curve.

    Parameters
    ----------
    refusal_rate : array_like of float
        Share of refused questions, r, in [0, 1].
    rho : array_like of float in [-1, 1]
    error_rate : array_like of float
        Share of wrong answers under forced answering, mu, in [0, 1]. All three arguments broadcast.

    Returns
    -------
    ndarray
        Share of all questions answered right, ``c(r)``, from ``1 - mu`` at r = 0 to 0 at r = 1.

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Fixed Endpoints and Shape of Iso-RI Curves".

    Examples
    --------
    >>> correct_rate_at([0, 0.5, 0.74, 1], rho=0.5, error_rate=0.92).round(4).tolist()
    [0.08, 0.0682, 0.05, 0.0]
    """
    correlation, mu = checked_rho_and_error_rate(rho, error_rate)
    correct = upper_orthant(ndtri(checked_range("refusal_rate", refusal_rate, 0)), ndtri(mu), correlation)
    # A probability of 0 can be negative by rounding.
    return np.asarray(np.maximum(correct, 0.0))[()]


def iso_refusal_index(refusal_rate: ArrayLike, refusal_index: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Return the correct rate at each refusal rate for a constant Refusal Index: an iso-RI curve.

    Parameters
    ----------
    refusal_rate, error_rate : array_like of float
        As for `correct_rate_at`.
    refusal_index : array_like of float
        In [-1, 1]. All three arguments broadcast.

    Returns
    -------
    ndarray
        In [0, 1 - r].

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Fixed Endpoints and Shape of Iso-RI Curves".

    Examples
    --------
    At a refusal rate of 1/2, for a model that is right on 40% of the questions when it answers all:

    >>> iso_refusal_index(0.5, [-1, 0, 0.5, 1], error_rate=0.6).round(4).tolist()
    [0.0, 0.2, 0.2836, 0.4]
    """
    return correct_rate_at(refusal_rate, rho_from_refusal_index(refusal_index), error_rate)


def accuracy_refusal_curve(table: ContingencyTable, refusal_rate: ArrayLike | None = None) -> AccuracyRefusalCurve:
    """Fit the accuracy-refusal curve of a table.

    Parameters
    ----------
    table : ContingencyTable
    refusal_rate : array_like of float, shape (m,), optional
        Refusal rates at which to evaluate the curve. By default 101 values from 0 to 1.

    Returns
    -------
    AccuracyRefusalCurve
        Curve with the table's error rate and tetrachoric correlation, through the table's point.

    Raises
    ------
    ValueError
        If a refusal rate is outside [0, 1], or `refusal_rate` is not one-dimensional.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Fixed Endpoints and Shape of Iso-RI Curves".
    .. [2] Scheffe, H. (1953). A method for judging all contrasts in the analysis of variance. Biometrika, 40, 87-104.
       :doi:`10.1093/biomet/40.1-2.87`

    Examples
    --------
    >>> curve = accuracy_refusal_curve(ContingencyTable(710, 30, 210, 50), [0.0, 0.74, 1.0])
    >>> curve.correct_rate.round(4).tolist(), curve.status
    ([0.08, 0.05, 0.0], 'ok')
    """
    rates = checked_range("refusal_rate", np.linspace(0, 1, 101) if refusal_rate is None else refusal_rate, 0)
    if rates.ndim != 1:
        raise ValueError(f"refusal_rate must be one-dimensional, got shape {rates.shape}; is it a single value?")
    result = refusal_index(table)
    if result.rho is None:
        correct = np.full(rates.shape, math.nan)
    else:
        correct = correct_rate_at(rates, result.rho, table.error_rate)
    return AccuracyRefusalCurve(rates, correct, result.status, result.reason, result.rho, table)
