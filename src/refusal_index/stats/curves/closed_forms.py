r"""What a tetrachoric correlation and an error rate say in the units of other metrics.

Under the Gaussian copula behind the Refusal Index a question has a latent refusal score X and a latent difficulty Y,
standard normal with correlation rho, and is wrong where ``Y > k = probit(1 - mu)``. Every measure of how well
the score ranks wrong questions above right ones is then a function of rho and mu alone.

The area under the ROC curve needs no integral. It is the probability that a wrong question scores above a right
one, ``P(X > X', Y > k, Y' <= k) / (mu (1 - mu))``. With ``D = (X - X') / sqrt(2)``, which has correlation
``rho / sqrt(2)`` with Y, the event of a wrong question above *any* other has probability
``orthant(0, k, rho / sqrt(2))``; half of the pairs of two wrong questions, ``mu^2 / 2``, have to be taken away.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri, xlog1py, xlogy

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.bivariate_normal import upper_orthant

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
