"""What a tetrachoric correlation and an error rate say in the units of other metrics.

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
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri, xlog1py, xlogy

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.baseline import Payoffs, checked_penalty, rate_or_score
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.estimate import Estimate
from refusal_index.stats.estimator import upper_orthant
from refusal_index.stats.intervals import normal_quantile, proportion, ratio

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
