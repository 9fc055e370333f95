"""The refusal rate that would be worth most, and what is lost by another.

Along its accuracy-refusal curve a model that is charged a penalty L for a wrong answer has the utility
``U(r) = c(r) - L (1 - r - c(r)) = (1 + L) c(r) - L (1 - r)``. Refusing a little more gives up the questions just below
the threshold h of the latent refusal score, so the best threshold is where these are worth nothing: where their
probability of being right, ``Phi((k - rho h) / sqrt(1 - rho^2))``, is ``t = L / (1 + L)``. For a positive rho

    h = (k - sqrt(1 - rho^2) probit(t)) / rho.

For any other rho a higher score is no reason to refuse, and the best is to answer all or to refuse all.

The regret is what today's point lacks to the best one. Near the best point it is quadratic, and its estimate cannot
be negative, so no interval of the usual kind covers. Its root, with the sign of refusing too much, is a regular
parameter: the interval is made for that, and squared. Where it holds 0, so does the interval of the regret.

How much a model that refuses as often as it errs still decides wrongly: what a well-chosen refusal rate leaves.

A refusal is right where the forced answer is wrong. With as many refusals as errors, mu of the questions, a model that
knows its errors decides every question rightly, one that refuses at random gets ``2 mu (1 - mu)`` wrong, and one on the
accuracy-refusal curve of rho ``2 (mu - P(R, W))``, with P the bivariate normal probability above both thresholds. The
share of the gap between chance and perfection that is left, ``(mu - P) / (mu (1 - mu))``, is one less Cohen's kappa of
refusals and errors.

The accuracy-refusal plane: fitted curves, iso-score curves, and a band for what was fitted.

A model that answers everything is right on a share ``1 - mu`` of the questions; one that refuses everything is right
on none. Between these ends its correct rate follows a curve over the refusal rate r, and the Refusal Index is that
curve's shape: under the Gaussian copula

    c(r) = Phi2(probit(1 - r), probit(1 - mu); rho),

which falls in r and rises in rho. The other metrics draw straight lines through the same plane.

The curve has two parameters, both estimated, and its derivatives in them are known, so the delta method gives a band.
It is made for the logit of the accuracy among answered questions, ``c / (1 - r)``, and therefore stays inside the
plane. With two parameters the simultaneous band is Scheffe's: the pointwise one with the root of a chi-squared
quantile of two degrees of freedom in place of the normal quantile, 2.45 for 1.96 at 95 %.

What a tetrachoric correlation and an error rate say in the units of other metrics.

Under the Gaussian copula behind the Refusal Index a question has a latent refusal score X and a latent difficulty Y,
standard normal with correlation rho, and is wrong where ``Y > k = probit(1 - mu)``. Every measure of how well
the score ranks wrong questions above right ones is then a function of rho and mu alone.

The area under the ROC curve needs no integral. It is the probability that a wrong question scores above a right
one, ``P(X > X', Y > k, Y' <= k) / (mu (1 - mu))``. With ``D = (X - X') / sqrt(2)``, which has correlation
``rho / sqrt(2)`` with Y, the event of a wrong question above *any* other has probability
``orthant(0, k, rho / sqrt(2))``; half of the pairs of two wrong questions, ``mu^2 / 2``, have to be taken away.

Abstention metrics: refusing as the detection of questions that would be answered wrongly.

A refusal is a positive call, a wrong answer under forced answering is what should be called. The 2x2 table then has
the precision, the recall and the F1 of any detector, and two shares that say what refusing costs: how many of the
questions that the model would get right it refuses, and how many of its refusals were needless.

All of them move with the refusal rate: refusing more raises the recall and the over-refusal of any model. They
describe one operating point, where the Refusal Index describes the ranking behind it.

What an operating point is worth where a wrong answer has a stated price.

A right answer earns 1, a refusal 0, and a wrong answer costs a penalty L, so that a table is worth ``c - L i`` a
question, with c and i the shares answered right and answered wrong. The penalty says from which confidence on an
answer pays: t = L / (1 + L), or ``L = t / (1 - t)``; the usual 1, 3 and 9 stand for a half, three quarters and nine
tenths.

The same scale under other names: the weighted score of `refusal_index.stats.weighted_score` with penalty p is
``(1 - p)`` times the utility at ``L = p / (1 - p)``, and the Omniscience Index is 100 times the utility at L = 1.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_ndtr, logit, ndtr, ndtri, xlog1py, xlogy

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.baseline import Payoffs, checked_penalty, rate_or_score
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Estimate, Result, Status
from refusal_index.stats.estimator import density, tetrachoric, upper_orthant
from refusal_index.stats.influence import cell_influence
from refusal_index.stats.intervals import (
    JEFFREYS_DRAWS,
    Seed,
    central_quantiles,
    checked_resamples,
    normal_quantile,
    proportion,
    ratio,
    refusal_index,
)

# Equal steps over the whole real line: for a smooth integrand under a normal density that is exact to rounding.
NODES = np.linspace(-9.0, 9.0, 181)
WEIGHTS = np.exp(-0.5 * NODES**2) * (NODES[1] - NODES[0]) / math.sqrt(2 * math.pi)
# Beyond this |rho| the error rate as a function of the score is so steep that its inverse is integrated instead.
STEEP = math.sqrt(0.5)


def latent_auroc(rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Area under the ROC curve of the latent refusal score, wrong questions being the positives.

    Parameters
    ----------
    rho : array_like of float in [-1, 1]
    error_rate : array_like of float
        Share of wrong answers under forced answering, mu, in [0, 1]. Both arguments broadcast.

    Returns
    -------
    ndarray
        In [0, 1]: one half for a score that knows nothing. NaN where all answers are right, or all are wrong.

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Notes
    -----
    At ``mu = 1/2`` it is ``1/2 + (2/pi) asin(rho / sqrt(2))``.

    Examples
    --------
    >>> latent_auroc(0.5, [0.92, 0.5, 1.0]).round(5).tolist()
    [0.77853, 0.73005, nan]
    """
    correlation, mu = checked_rho_and_error_rate(rho, error_rate)
    above_any = upper_orthant(0.0, -ndtri(mu), correlation * math.sqrt(0.5))
    pairs = mu * (1 - mu)
    return np.asarray(np.divide(above_any - mu * mu / 2, pairs, out=np.full(mu.shape, np.nan), where=pairs > 0))[()]


def accuracy_refusal_area(rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Area under the accuracy-refusal curve: the correct rate, averaged over all refusal rates.

    Parameters and broadcasting are those of `latent_auroc`.

    Returns
    -------
    ndarray
        ``(1 - mu) ((1 - mu) / 2 + mu AUROC)``, in [0, 1/2]. It is ``(1 - mu) / 2`` for refusals at random.

    Raises
    ------
    ValueError
        As `latent_auroc`.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Accuracy-refusal curve.

    Examples
    --------
    >>> round(float(accuracy_refusal_area(0.5, 0.92)), 5)
    0.0605
    """
    correlation, mu = checked_rho_and_error_rate(rho, error_rate)
    return np.asarray(0.5 - mu + upper_orthant(0.0, -ndtri(mu), correlation * math.sqrt(0.5)))[()]


def latent_aurc(rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Area under the risk-coverage curve: the error rate among answered questions, averaged over all coverages.

    Parameters and broadcasting are those of `latent_auroc`.

    Returns
    -------
    ndarray
        In [0, 1], lower is better; mu for refusals at random.

    Raises
    ------
    ValueError
        As `latent_auroc`.

    Notes
    -----
    The average is ``E[-log(U) w(U)]``, with U the rank of the score and w the share of wrong answers at that rank.
    Either that is summed, or, where w is steep, its integral by parts.

    References
    ----------
    .. [1] Geifman, Y., Uziel, G. and El-Yaniv, R. (2019). Bias-reduced uncertainty estimation for deep neural
       classifiers. ICLR. :arxiv:`1805.08206`

    Examples
    --------
    >>> latent_aurc([0.5, 0.0], 0.92).round(5).tolist()
    [0.83667, 0.92]
    """
    correlation, mu = checked_rho_and_error_rate(rho, error_rate)
    steep = np.abs(correlation) > STEEP
    k, spread = -ndtri(mu), np.sqrt((1 - correlation) * (1 + correlation))
    gentle = _aurc_by_score(np.where(steep, 0.0, correlation), k, np.where(steep, 1.0, spread))
    return np.where(steep, _aurc_by_parts(np.where(steep, correlation, 1.0), k, spread), gentle)[()]


def latent_excess_aurc(rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """E-AURC: how far `latent_aurc` lies above that of the perfect score, which refuses all wrong questions first.

    Parameters and broadcasting are those of `latent_auroc`.

    Returns
    -------
    ndarray
        ``AURC - mu - (1 - mu) log(1 - mu)``, not negative but for rounding; 0 at rho = 1.

    Raises
    ------
    ValueError
        As `latent_auroc`.

    References
    ----------
    .. [1] Geifman et al. (2019). :arxiv:`1805.08206`

    Examples
    --------
    >>> round(float(latent_excess_aurc(0.5, 0.92)), 5)
    0.11872
    """
    _, mu = checked_rho_and_error_rate(rho, error_rate)
    return np.asarray(latent_aurc(rho, mu) - mu - xlog1py(1 - mu, -mu))[()]


def rho_from_refusal_index(refusal_index: ArrayLike) -> FloatArray:
    """Tetrachoric correlation behind a Refusal Index, ``2 sin(pi RI / 6)``.

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
        If an index lies outside [-1, 1] or is NaN.

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


def _aurc_by_score(rho: FloatArray, k: FloatArray, spread: FloatArray) -> FloatArray:
    wrong_given_score = ndtr((np.multiply.outer(rho, NODES) - k[..., np.newaxis]) / spread[..., np.newaxis])
    return np.asarray(wrong_given_score @ (WEIGHTS * -log_ndtr(NODES)))


def _aurc_by_parts(rho: FloatArray, k: FloatArray, spread: FloatArray) -> FloatArray:
    rank = ndtr((np.multiply.outer(spread, NODES) + k[..., np.newaxis]) / rho[..., np.newaxis])
    # The antiderivative of -log(u) that vanishes at 0.
    answered = (rank - xlogy(rank, rank)) @ WEIGHTS
    return np.asarray(np.where(rho > 0, 1 - answered, answered))


def checked_rho_and_error_rate(rho: ArrayLike, error_rate: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Check the two parameters of a fitted model, and broadcast them against each other."""
    correlation, mu = np.broadcast_arrays(checked_range("rho", rho, -1), checked_range("error_rate", error_rate, 0))
    return correlation, mu


def checked_range(name: str, values: ArrayLike, low: float) -> FloatArray:
    """Check that all values lie between `low` and 1, and return them as an array."""
    array = np.asarray(values, float)
    bad = ~((array >= low) & (array <= 1))
    if bad.any():
        raise ValueError(
            f"{name} must lie in [{low}, 1], got {float(array[bad].flat[0])!r}; is it in per cent, or missing (NaN)?"
        )
    return array


def abstention_metrics(table: ContingencyTable, *, confidence_level: float = 0.95) -> tuple[Estimate, ...]:
    """Estimate every abstention metric of a table, in the order below.

    Parameters
    ----------
    table : ContingencyTable
    confidence_level : float in (0, 1), default: 0.95

    Returns
    -------
    tuple of Estimate
        - ``abstention_precision``: P(wrong | refused);
        - ``abstention_recall``: P(refused | wrong);
        - ``abstention_f1``: their harmonic mean, undefined where one of them is;
        - ``over_refusal_rate``: P(refused | right), the share of what the model knows that it keeps to itself;
        - ``recoverable_accuracy``: P(right | refused), what forcing an answer would gain, 1 less the precision.

        Those undefined say why: ``"no_questions"``, ``"nobody_refused"``, ``"all_right"`` or ``"all_wrong"``.

    Raises
    ------
    ValueError
        If `confidence_level` does not lie strictly between 0 and 1.

    Notes
    -----
    The intervals are Wilson's. F1 depends on the table only through the share of refused-and-wrong questions among
    those that were refused or wrong, J: it is ``2 J / (1 + J)``. So the interval of that share is its interval, on
    another scale.

    References
    ----------
    .. [1] Dice, L. R. (1945). Measures of the amount of ecologic association between species. Ecology, 26, 297-302:
       F1, and its relation to Jaccard's coefficient. :doi:`10.2307/1932409`

    Examples
    --------
    >>> for metric in abstention_metrics(ContingencyTable(710, 30, 210, 50)):
    ...     print(f"{metric.name:20} {metric.estimate:.3f} [{metric.low:.3f}, {metric.high:.3f}]")
    abstention_precision 0.959 [0.943, 0.971]
    abstention_recall    0.772 [0.744, 0.798]
    abstention_f1        0.855 [0.836, 0.873]
    over_refusal_rate    0.375 [0.277, 0.485]
    recoverable_accuracy 0.041 [0.029, 0.057]
    """
    quantile = normal_quantile(confidence_level)
    both, needless, missed, fine = table.counts
    no_data = None if table.n else "no_questions"
    no_refusal = no_data or (None if both + needless else "nobody_refused")
    no_error = no_data or (None if both + missed else "all_right")
    no_success = no_data or (None if needless + fine else "all_wrong")
    return (
        proportion("abstention_precision", both, both + needless, quantile, no_refusal),
        proportion("abstention_recall", both, both + missed, quantile, no_error),
        _f1(proportion("abstention_f1", both, both + needless + missed, quantile, no_refusal or no_error)),
        proportion("over_refusal_rate", needless, needless + fine, quantile, no_success),
        proportion("recoverable_accuracy", needless, both + needless, quantile, no_refusal),
    )


def _f1(jaccard: Estimate) -> Estimate:
    if jaccard.estimate is None or jaccard.low is None or jaccard.high is None:
        return jaccard
    estimate, low, high = (2 * share / (1 + share) for share in (jaccard.estimate, jaccard.low, jaccard.high))
    return replace(jaccard, estimate=estimate, low=low, high=high)


def penalty_from_confidence(confidence: ArrayLike) -> FloatArray:
    """Penalty at which an answer is worth giving from this probability of being right on, ``t / (1 - t)``.

    Parameters
    ----------
    confidence : array_like of float
        Confidence target t, in [0, 1).

    Returns
    -------
    ndarray
        Not negative.

    Raises
    ------
    ValueError
        If it lies outside its range.

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
        raise ValueError(f"confidence must lie in [0, 1), got {float(t[bad].flat[0])!r}; is it in per cent?")
    return np.asarray(t / (1 - t))[()]


def utility(table: ContingencyTable, penalty: float, *, confidence_level: float = 0.95) -> Estimate:
    """Mean utility of a question, ``c - penalty * i``: right answers less a price for wrong ones.

    Parameters
    ----------
    table : ContingencyTable
    penalty : float
        Price of a wrong answer, L, in right answers; not negative. It has no default, since it is what has to be said.
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
    counts, weights = (
        (table.answered_right, table.answered_wrong, table.n_refused),
        (1.0, -checked_penalty(penalty), 0.0),
    )
    undefined = None if table.n else "no_questions"
    return ratio("utility", counts, (weights, (1.0, 1.0, 1.0)), normal_quantile(confidence_level), undefined)


def omniscience_index(table: ContingencyTable, *, confidence_level: float = 0.95) -> Estimate:
    """Omniscience Index: 100 times the share answered right less the share answered wrong.

    Parameters
    ----------
    table : ContingencyTable
    confidence_level : float in (0, 1), default: 0.95

    Returns
    -------
    Estimate
        In [-100, 100]; 0 for a model that is right as often as wrong, or refuses everything. Undefined for a table
        without questions.

    Raises
    ------
    ValueError
        If `confidence_level` does not lie strictly between 0 and 1.

    References
    ----------
    .. [1] Jackson, D., Keating, W., Cameron, G. and Hill-Smith, M. (2025). AA-Omniscience: Evaluating Cross-Domain
       Knowledge Reliability in Large Language Models. The Omniscience Index, which knows partly correct answers too;
       they earn nothing there. :arxiv:`2511.13029`

    Examples
    --------
    >>> round(omniscience_index(ContingencyTable(710, 30, 210, 50)).estimate, 6)
    -16.0
    """
    return rate_or_score("omniscience_index", table, Payoffs(), confidence_level)


ScoreName = Literal["correct_given_attempted", "f_score", "weighted_score"]


class ConfidenceBand(NamedTuple):
    """Lower and upper end of a band, arrays of shape (m,); all NaN where there is none."""

    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class AccuracyRefusalCurve:
    """The accuracy-refusal curve fitted to one table.

    Attributes
    ----------
    refusal_rate, correct_rate : ndarray of float, shape (m,)
        Points of the curve. The correct rates are NaN where the curve is undefined.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `RefusalIndexResult`. At the boundary the curve is that of rho = -1 or +1, and has no band.
    rho : float or None
        Its tetrachoric correlation.
    table : ContingencyTable
        The counts. The curve runs through their own ``(refusal_rate, correct_rate)``.
    """

    refusal_rate: FloatArray
    correct_rate: FloatArray
    status: Status
    reason: str | None
    rho: float | None
    table: ContingencyTable

    def confidence_band(self, confidence_level: float = 0.95, *, simultaneous: bool = False) -> ConfidenceBand:
        """Confidence band of the correct rates, by the delta method on the logit of c / (1 - r).

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        simultaneous : bool, default: False
            If true the band holds the whole curve with this confidence (or a little more); if false each of its
            points by itself.

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
            nothing = np.full(self.refusal_rate.shape, math.nan)
            return ConfidenceBand(nothing, nothing.copy())
        reach = quantile * _standard_errors(self.table, self.rho, self.refusal_rate)
        return _logit_band(self.correct_rate, 1 - self.refusal_rate - self.correct_rate, reach)


def correct_rate_at(refusal_rate: ArrayLike, rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Correct rate of a model at each refusal rate: its accuracy-refusal curve.

    Parameters
    ----------
    refusal_rate : array_like of float
        Share of questions refused, r, in [0, 1].
    rho : array_like of float in [-1, 1]
    error_rate : array_like of float
        Share of wrong answers under forced answering, mu, in [0, 1]. All three arguments broadcast.

    Returns
    -------
    ndarray
        Share of all questions answered, and answered right, ``c(r)``: from ``1 - mu`` at r = 0 down to 0 at r = 1.

    Raises
    ------
    ValueError
        If an argument lies outside its range.

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
    # Rounding alone can make a probability of 0 negative.
    return np.asarray(np.maximum(correct, 0.0))[()]


def iso_refusal_index(refusal_rate: ArrayLike, refusal_index: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Correct rate that keeps the Refusal Index at a value, at each refusal rate: an iso-RI curve.

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
        If an argument lies outside its range.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Fixed Endpoints and Shape of Iso-RI Curves".

    Examples
    --------
    At a refusal rate of one half, for a model that is right on 40 % when it answers everything:

    >>> iso_refusal_index(0.5, [-1, 0, 0.5, 1], error_rate=0.6).round(4).tolist()
    [0.0, 0.2, 0.2836, 0.4]
    """
    return correct_rate_at(refusal_rate, rho_from_refusal_index(refusal_index), error_rate)


def iso_score(refusal_rate: ArrayLike, metric: ScoreName, value: ArrayLike, *, penalty: float = 1.0) -> FloatArray:
    """Correct rate that keeps another metric at a value, at each refusal rate: a straight line.

    Parameters
    ----------
    refusal_rate : array_like of float
        In [0, 1].
    metric : {"correct_given_attempted", "f_score", "weighted_score"}
        Which metric is kept.
    value : array_like of float
        Its value. Both arrays broadcast.
    penalty : float, default: 1
        Of the weighted score, not negative.

    Returns
    -------
    ndarray
        ``value (1 - r)``, ``value (2 - r) / 2`` or ``value + penalty (1 - r)``; NaN where no model can be, below 0 or
        above ``1 - r``.

    Raises
    ------
    ValueError
        If a refusal rate lies outside [0, 1], the metric is unknown, or the penalty is negative, infinite or NaN.

    Examples
    --------
    >>> iso_score([0.0, 0.5, 0.9], "f_score", 0.4).round(4).tolist()
    [0.4, 0.3, nan]
    """
    r, score = np.broadcast_arrays(checked_range("refusal_rate", refusal_rate, 0), np.asarray(value, float))
    cost = checked_penalty(penalty)
    if metric not in get_args(ScoreName):
        raise ValueError(f"metric must be one of {', '.join(get_args(ScoreName))}, got {metric!r}")
    lines = {
        "correct_given_attempted": score * (1 - r),
        "f_score": score * (2 - r) / 2,
        "weighted_score": score + cost * (1 - r),
    }
    line = lines[metric]
    return np.where((line >= 0) & (line <= 1 - r), line, np.nan)[()]


def accuracy_refusal_curve(table: ContingencyTable, refusal_rate: ArrayLike | None = None) -> AccuracyRefusalCurve:
    """Fit the accuracy-refusal curve of a table.

    Parameters
    ----------
    table : ContingencyTable
    refusal_rate : array_like of float, shape (m,), optional
        Where to evaluate the curve; 101 equal steps from 0 to 1 if not given.

    Returns
    -------
    AccuracyRefusalCurve
        With the table's own error rate and tetrachoric correlation, through its own point of the plane.

    Raises
    ------
    ValueError
        If a refusal rate lies outside [0, 1], or they are not one-dimensional.

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


def _standard_errors(table: ContingencyTable, rho: float, refusal_rate: FloatArray) -> FloatArray:
    """Return the standard error of the fitted correct rate at each fixed refusal rate."""
    mu = table.error_rate
    # Far enough out for any double below 1, and safe from infinity's undefined differences.
    x, k, spread = np.clip(-ndtri(refusal_rate), -40.0, 40.0), -ndtri(mu), math.sqrt((1 - rho) * (1 + rho))
    gradient = np.stack([-ndtr((x - rho * k) / spread), density(x, k, rho)])
    influence = np.array([(1 - mu, -mu, 1 - mu, -mu), cell_influence(table, rho)])
    covariance = (influence * table.counts) @ influence.T / table.n**2
    return np.asarray(np.sqrt(np.sum(gradient * (covariance @ gradient), axis=0)))


def _logit_band(right: FloatArray, wrong: FloatArray, reach: FloatArray) -> ConfidenceBand:
    """Band of the share right, from its reach, by the logit among the answered; no width where one of them is 0."""
    inside = (right > 0) & (wrong > 0)
    answered, share = right + wrong, np.divide(right, right + wrong, out=np.full(right.shape, 0.5), where=inside)
    shift = np.divide(reach * answered, right * wrong, out=np.zeros(right.shape), where=inside)
    low, high = (np.where(inside, answered * expit(logit(share) + side * shift), right) for side in (-1, 1))
    return ConfidenceBand(low, high)


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Where on its accuracy-refusal curve a model would be worth most, beside where it is.

    Attributes
    ----------
    refusal_rate : float or None
        The best one.
    utility, utility_today : float or None
        Utility at the best point and at the table's own.
    regret : float or None
        Their difference, not negative.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"`` where the table's rho is -1 or +1, or the best is to answer all or to refuse all.
    reason : str or None
        As in `RefusalIndexResult`, or ``"answer_all"`` or ``"refuse_all"``.
    penalty : float
        Price of a wrong answer.
    table : ContingencyTable
    """

    refusal_rate: float | None
    utility: float | None
    utility_today: float | None
    regret: float | None
    status: Status
    reason: str | None
    penalty: float
    table: ContingencyTable

    def confidence_interval(
        self, confidence_level: float = 0.95, *, n_resamples: int = JEFFREYS_DRAWS, rng: Seed = None
    ) -> ConfidenceInterval:
        """Confidence interval of the regret: posterior quantiles of its signed root, squared.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        n_resamples : int, default: 10,000
            Draws from the posterior of the four cells under Jeffreys' prior.
        rng : int or numpy.random.Generator, optional

        Returns
        -------
        ConfidenceInterval
            ``(low, high)``, with low = 0 where today's point may be the best; both NaN where the regret is undefined.

        Examples
        --------
        >>> point = best_operating_point(ContingencyTable(300, 100, 200, 400), penalty=1)
        >>> low, high = point.confidence_interval(rng=1)
        >>> round(low, 3), round(high, 3)
        (0.002, 0.016)
        """
        normal_quantile(confidence_level)
        checked_resamples(n_resamples)
        if self.regret is None:
            return NO_INTERVAL
        shapes = np.array(self.table.counts)[:, np.newaxis] + 0.5
        cells = np.random.default_rng(rng).standard_gamma(shapes, size=(4, n_resamples))
        roots = _signed_root_regret(cells / cells.sum(axis=0), self.penalty)
        low, high = central_quantiles(roots, confidence_level)
        nearest = 0.0 if low <= 0 <= high else min(low * low, high * high)
        return ConfidenceInterval(nearest, max(low * low, high * high))


def utility_at(refusal_rate: ArrayLike, rho: ArrayLike, error_rate: ArrayLike, penalty: float) -> FloatArray:
    """Mean utility of a question at each refusal rate, along an accuracy-refusal curve.

    Parameters
    ----------
    refusal_rate, rho, error_rate : array_like of float
        As for `correct_rate_at`; they broadcast.
    penalty : float
        Price of a wrong answer, not negative.

    Returns
    -------
    ndarray
        In [-penalty, 1].

    Raises
    ------
    ValueError
        If a rate or the correlation lies outside its range, or the penalty is negative, infinite or NaN.

    References
    ----------
    .. [1] Kalai et al. (2025). :arxiv:`2509.04664`

    Examples
    --------
    >>> utility_at([0, 0.5, 1], rho=0.5, error_rate=0.6, penalty=1).round(4).tolist()
    [-0.2, 0.0609, 0.0]
    """
    price, answered = checked_penalty(penalty), 1 - np.asarray(refusal_rate, float)
    return np.asarray((1 + price) * correct_rate_at(refusal_rate, rho, error_rate) - price * answered)[()]


def best_refusal_rate(rho: ArrayLike, error_rate: ArrayLike, penalty: float) -> FloatArray:
    """Refusal rate with the highest utility on an accuracy-refusal curve.

    Parameters
    ----------
    rho : array_like of float in [-1, 1]
    error_rate : array_like of float
        Share of wrong answers under forced answering, mu, in [0, 1]. Both arguments broadcast.
    penalty : float
        Price of a wrong answer, not negative.

    Returns
    -------
    ndarray
        In [0, 1]. For a rho of at most 0 it is 0 or 1, and 0 where both are worth the same.

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    References
    ----------
    .. [1] Chow, C. K. (1970). On optimum recognition error and reject tradeoff. IEEE Transactions on Information
       Theory, 16, 41-46. :doi:`10.1109/TIT.1970.1054406`

    Examples
    --------
    >>> best_refusal_rate([0.5, 0.5, 1.0, 0.0], [0.6, 0.2, 0.6, 0.6], penalty=1).round(4).tolist()
    [0.6938, 0.0462, 0.6, 1.0]
    """
    correlation, mu = checked_rho_and_error_rate(rho, error_rate)
    price = checked_penalty(penalty)
    worth_answering = 1 - mu >= price * mu
    ranks = (correlation > 0) & (mu > 0) & (mu < 1) & (price > 0)
    slope, k = np.where(ranks, correlation, 1.0), -ndtri(np.where(ranks, mu, 0.5))
    # A penalty of 0 never ranks; the probit of t is taken from its other tail, which does not round to 1.
    probit_t = -ndtri(1 / (1 + price)) if price else 0.0
    with np.errstate(over="ignore"):
        threshold = (k - np.sqrt((1 - slope) * (1 + slope)) * probit_t) / slope
    return np.where(ranks, ndtr(-threshold), np.where(worth_answering, 0.0, 1.0))[()]


def best_operating_point(table: ContingencyTable, penalty: float) -> OperatingPoint:
    """Find the best operating point on the accuracy-refusal curve fitted to a table, and the regret of its own.

    Parameters
    ----------
    table : ContingencyTable
    penalty : float
        Price of a wrong answer, not negative.

    Returns
    -------
    OperatingPoint
        All None where the Refusal Index is undefined, since there is no curve then.

    Raises
    ------
    ValueError
        If the penalty is negative, infinite or NaN.

    References
    ----------
    .. [1] Chow (1970). :doi:`10.1109/TIT.1970.1054406`

    Examples
    --------
    >>> point = best_operating_point(ContingencyTable(300, 100, 200, 400), penalty=1)
    >>> round(point.refusal_rate, 3), round(point.utility, 3), round(point.utility_today, 3), round(point.regret, 4)
    (0.5, 0.208, 0.2, 0.0077)
    """
    price, result = checked_penalty(penalty), refusal_index(table)
    if result.rho is None:
        return OperatingPoint(None, None, None, None, "undefined", result.reason, price, table)
    best = float(best_refusal_rate(result.rho, table.error_rate, price))
    value = float(utility_at(best, result.rho, table.error_rate, price))
    today = (table.answered_right - price * table.answered_wrong) / table.n
    end = {0.0: "answer_all", 1.0: "refuse_all"}.get(best)
    status: Status = "boundary" if end else result.status
    return OperatingPoint(best, value, today, max(value - today, 0.0), status, result.reason or end, price, table)


def _signed_root_regret(cells: FloatArray, penalty: float) -> FloatArray:
    """Root of the regret of tables of cell probabilities, negative where they refuse too little."""
    p11, p10, p01, p00 = cells
    rho, refused, mu = tetrachoric(p11, p10, p01, p00), p11 + p10, p11 + p01
    best = best_refusal_rate(rho, mu, penalty)
    regret = utility_at(best, rho, mu, penalty) - (p00 - penalty * p01)
    # At the best point itself rounding can make the difference negative.
    return np.asarray(np.sign(refused - best) * np.sqrt(np.maximum(regret, 0.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingGap(Result):
    """What is left to gain where the refusal rate equals the error rate.

    Attributes
    ----------
    estimate : float or None
        Share of the gap between refusing at random and refusing perfectly that is left: 0 is perfect, 1 chance, more
        than 1 worse than chance.
    wrong_decisions : float or None
        Share of all questions that are refused though the answer would be right, or answered wrongly.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `RefusalIndexResult`.
    table : ContingencyTable
    """

    wrong_decisions: float | None = None
    table: ContingencyTable

    def confidence_interval(
        self, confidence_level: float = 0.95, *, n_resamples: int = JEFFREYS_DRAWS, rng: Seed = None
    ) -> ConfidenceInterval:
        """Confidence interval of `estimate`: posterior quantiles under Jeffreys' prior on the four cells.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        n_resamples : int, default: 10,000
        rng : int or numpy.random.Generator, optional

        Returns
        -------
        ConfidenceInterval
            Both NaN where the gap is undefined.

        Examples
        --------
        >>> low, high = remaining_gap(ContingencyTable(710, 30, 210, 50)).confidence_interval(rng=1)
        >>> round(low, 2), round(high, 2)
        (0.68, 0.84)
        """
        normal_quantile(confidence_level)
        checked_resamples(n_resamples)
        if self.estimate is None:
            return NO_INTERVAL
        shapes = np.array(self.table.counts)[:, np.newaxis] + 0.5
        p11, p10, p01, p00 = np.random.default_rng(rng).standard_gamma(shapes, size=(4, n_resamples))
        error_rate = (p11 + p01) / (p11 + p10 + p01 + p00)
        gaps = gap_left(tetrachoric(p11, p10, p01, p00), error_rate)
        return ConfidenceInterval(*central_quantiles(gaps, confidence_level))


def gap_left(rho: ArrayLike, error_rate: ArrayLike) -> FloatArray:
    """Share of the gap between chance and perfection that is left where as many questions are refused as are wrong.

    Parameters
    ----------
    rho : array_like of float in [-1, 1]
    error_rate : array_like of float
        Share of wrong answers under forced answering, mu, in [0, 1]; both arguments broadcast.

    Returns
    -------
    ndarray
        NaN where mu is 0 or 1: there is nothing to decide.

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Examples
    --------
    >>> gap_left([1.0, 0.5, 0.0], 0.5).round(4).tolist()
    [0.0, 0.6667, 1.0]
    """
    correlation, mu = np.broadcast_arrays(*checked_rho_and_error_rate(rho, error_rate))
    inside = (mu > 0) & (mu < 1)
    rate = np.where(inside, mu, 0.5)
    both = upper_orthant(-ndtri(rate), -ndtri(rate), correlation)
    return np.asarray(np.where(inside, (rate - both) / (rate * (1 - rate)), math.nan))[()]


def remaining_gap(table: ContingencyTable) -> RemainingGap:
    """Find what a model would still decide wrongly if it refused as often as it errs.

    Parameters
    ----------
    table : ContingencyTable

    Returns
    -------
    RemainingGap
        All None where the Refusal Index is undefined.

    References
    ----------
    .. [1] Cohen, J. (1960). A coefficient of agreement for nominal scales. Educational and Psychological Measurement,
       20, 37-46. :doi:`10.1177/001316446002000104`

    Examples
    --------
    >>> found = remaining_gap(ContingencyTable(710, 30, 210, 50))
    >>> round(found.estimate, 3), round(found.wrong_decisions, 3)
    (0.766, 0.113)
    """
    result, mu = refusal_index(table), table.error_rate
    if result.rho is None:
        return RemainingGap(None, "undefined", result.reason, table=table)
    left = float(gap_left(result.rho, mu))
    return RemainingGap(left, result.status, result.reason, wrong_decisions=2 * left * mu * (1 - mu), table=table)
