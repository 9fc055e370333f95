"""How far several settings agree on the ranking of the same models: Kendall's W and winner entropy.

A setting is a benchmark, a prompt or a run. Scores are a matrix with one row a setting and one column a model, and a
higher score is a better one. W compares whole rankings, winner entropy only who comes first. Random rankings agree
too: with few settings their W is 1/m on average, not 0, so that no W means anything without its random baseline.

How much a metric moves when a prompt makes the same model more or less cautious.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.arguments import unmasked
from refusal_index.stats.estimate import Status
from refusal_index.stats.intervals import Seed, checked_resamples

# Two statistics that differ by less come from the same ranks in another order of summation.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class KendallWResult:
    """Kendall's coefficient of concordance of m settings over n models.

    Attributes
    ----------
    estimate : float or None
        W in [0, 1]: 1 where all settings rank alike, on average 1/m for random rankings.
    chi_squared : float or None
        ``m (n - 1) W``, which for random rankings without ties follows roughly a chi-squared distribution.
    degrees_of_freedom : int or None
        Of that distribution, n - 1.
    pvalue : float or None
        Its upper tail. It is too large with few models; `permutation_pvalue` has no such error.
    status : {"ok", "undefined"}
    reason : str or None
        Where undefined the first that applies of ``"one_setting"``, ``"one_model"`` and ``"all_tied"``.
    scores : ndarray, shape (m, n)
        As they came in.
    correct_ties : bool
        Whether W is related to the largest value that it can take with these ties.
    """

    estimate: float | None
    chi_squared: float | None
    degrees_of_freedom: int | None
    pvalue: float | None
    status: Status
    reason: str | None
    scores: FloatArray
    correct_ties: bool

    def permutation_pvalue(self, n_resamples: int = 9_999, *, rng: Seed = None) -> float | None:
        """Share of random rankings that agree as well, each setting's ranks being shuffled over the models.

        Parameters
        ----------
        n_resamples : int, default: 9,999
            The observed ranking counts as one more, so that the result is never 0.
        rng : int or numpy.random.Generator, optional

        Returns
        -------
        float or None
            In (0, 1]; None where W is undefined.

        Examples
        --------
        >>> kendall_w([[0.3, 0.2, 0.1], [0.6, 0.4, 0.5], [0.9, 0.8, 0.7]]).permutation_pvalue(rng=1)
        0.196
        """
        if self.estimate is None:
            return None
        shuffled = np.broadcast_to(average_ranks(self.scores), (checked_resamples(n_resamples), *self.scores.shape))
        random = concordance(np.random.default_rng(rng).permuted(shuffled, axis=-1), correct_ties=self.correct_ties)
        as_high = int(np.count_nonzero(random >= self.estimate - ROUNDING))
        return (1 + as_high) / (1 + n_resamples)


@dataclass(frozen=True, slots=True, eq=False)
class WinnerEntropyResult:
    """How evenly the first place is spread over the models.

    Attributes
    ----------
    estimate : float or None
        Entropy of `win_shares` to the base n, in [0, 1]: 0 where one model always wins, 1 where all win equally often.
    win_shares : ndarray of shape (n,), or None
        Share of the settings in which each model comes first; models that tie for the first place divide it.
    status : {"ok", "undefined"}
    reason : str or None
        Where undefined the first that applies of ``"one_setting"``, ``"one_model"`` and ``"all_tied"``.
    scores : ndarray, shape (m, n)
        As they came in.
    """

    estimate: float | None
    win_shares: FloatArray | None
    status: Status
    reason: str | None
    scores: FloatArray


def kendall_w(scores: ArrayLike, *, correct_ties: bool = False) -> KendallWResult:
    """Kendall's W, the agreement of m rankings of the same n models.

    With R_i the sum of the ranks of model i over the settings, ``W = 12 sum((R_i - mean)^2) / (m^2 (n^3 - n))``. Ties
    get their average rank. They keep W below 1 even where all settings agree; the correction subtracts
    ``m sum(t^3 - t)``, over all groups of t tied models, from the denominator.

    Parameters
    ----------
    scores : array_like of float, shape (m, n)
        One row a setting, one column a model; higher is better.
    correct_ties : bool, default: False
        The paper's definition is without the correction. Without ties there is no difference.

    Returns
    -------
    KendallWResult
        Undefined for a single setting (it agrees with itself), a single model, and where every setting ties all
        models: nothing was ranked there.

    Raises
    ------
    TypeError, ValueError
        If `scores` is not a matrix of finite numbers.

    References
    ----------
    .. [1] Kendall, M. G. and Babington Smith, B. (1939). The problem of m rankings. Annals of Mathematical Statistics,
       10, 275-287. :doi:`10.1214/aoms/1177732186`

    Examples
    --------
    >>> scores = [[0.36, 0.48, 0.54], [0.56, 0.60, 0.56], [0.22, 0.27, 0.22]]
    >>> round(kendall_w(scores).estimate, 4), round(kendall_w(scores, correct_ties=True).estimate, 4)
    (0.4444, 0.5333)
    """
    matrix = checked_scores_matrix("scores", scores)
    reason = why_unranked(matrix)
    if reason:
        return KendallWResult(None, None, None, None, "undefined", reason, matrix, correct_ties)
    m, n = matrix.shape
    w = float(concordance(average_ranks(matrix), correct_ties=correct_ties))
    chi_squared = m * (n - 1) * w
    pvalue = float(special.chdtrc(n - 1, chi_squared))
    return KendallWResult(w, chi_squared, n - 1, pvalue, "ok", None, matrix, correct_ties)


def winner_entropy(scores: ArrayLike) -> WinnerEntropyResult:
    """Entropy of the winners, ``-sum(p_i log_n p_i)`` with p_i the share of settings in which model i comes first.

    Parameters are those of `kendall_w`.

    Returns
    -------
    WinnerEntropyResult
        Undefined where `kendall_w` is.

    Raises
    ------
    TypeError, ValueError
        As `kendall_w`.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Ranking Stability Metrics".

    Examples
    --------
    >>> result = winner_entropy([[0.36, 0.48, 0.54], [0.56, 0.60, 0.56], [0.22, 0.27, 0.22]])
    >>> round(result.estimate, 4), result.win_shares
    (0.5794, array([0. , 0.66666667, 0.33333333]))
    """
    matrix = checked_scores_matrix("scores", scores)
    reason = why_unranked(matrix)
    if reason:
        return WinnerEntropyResult(None, None, "undefined", reason, matrix)
    return WinnerEntropyResult(float(entropy_of_winners(matrix)), win_shares(matrix), "ok", None, matrix)


def checked_scores_matrix(name: str, values: ArrayLike) -> FloatArray:
    """Check a matrix of settings by models and return it as floats, of shape (m, n)."""
    array = unmasked(name, values)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must hold numbers, got an array of {array.dtype}; are there names or None in it?")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{name} must have one row a setting and one column a model, at least one of each, got shape {array.shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite, got {float(array[~np.isfinite(array)][0])!r}; "
            "is the metric undefined for a model? Leave that model or that setting out"
        )
    return array.astype(np.float64, copy=False)


def why_unranked(scores: FloatArray) -> str | None:
    """Say why a matrix of scores holds no rankings to compare, or None where it does."""
    m, n = scores.shape
    if m == 1:
        return "one_setting"
    if n == 1:
        return "one_model"
    return "all_tied" if np.all(scores == scores[:, :1]) else None


def average_ranks(scores: FloatArray) -> FloatArray:
    """Ranks along the last axis, 1 for the best; ties get the average of the ranks that they cover."""
    mine, theirs = scores[..., :, np.newaxis], scores[..., np.newaxis, :]
    better, tied = np.count_nonzero(theirs > mine, axis=-1), np.count_nonzero(theirs == mine, axis=-1)
    return np.asarray(better + (tied + 1) / 2)


def concordance(ranks: FloatArray, *, correct_ties: bool) -> FloatArray:
    """W of rankings of shape (..., m, n): between the models' rank sums, over its largest value; NaN if all tie."""
    m, n = ranks.shape[-2:]
    deviations = ranks - (n + 1) / 2
    between = np.sum(np.sum(deviations, axis=-2) ** 2, axis=-1)
    # (n^3 - n - sum(t^3 - t)) / 12 is what a setting's ranks spread: with average ranks no tie need be counted.
    spread = np.sum(deviations**2, axis=(-2, -1))
    largest = m * spread if correct_ties else np.full(spread.shape, m * m * (n**3 - n) / 12)
    return np.asarray(np.divide(between, largest, out=np.full(spread.shape, np.nan), where=spread > 0))[()]


def win_shares(scores: FloatArray) -> FloatArray:
    """Share of the settings won by each model, of shape (..., n) for scores of shape (..., m, n)."""
    first = scores == scores.max(axis=-1, keepdims=True)
    return np.asarray(np.mean(first / first.sum(axis=-1, keepdims=True), axis=-2))


def entropy_of_winners(scores: FloatArray) -> FloatArray:
    """Winner entropy of scores of shape (..., m, n), n at least 2; NaN where every setting ties all models."""
    entropy = np.sum(special.entr(win_shares(scores)), axis=-1) / np.log(scores.shape[-1])
    all_tied = np.all(scores == scores[..., :1], axis=(-2, -1))
    return np.asarray(np.where(all_tied, np.nan, entropy))[()]


Denominator = Literal["absolute_mean", "mean"]


@dataclass(frozen=True, slots=True, eq=False)
class VariabilityResult:
    """A metric's variability over k prompts, relative to its mean.

    Attributes
    ----------
    estimate : float or None
    status : {"ok", "undefined"}
    reason : str or None
        Where undefined the first that applies of ``"one_prompt"``, ``"equal_refusal_rates"`` and ``"zero_mean"``.
    values : ndarray, shape (k,)
        As they came in.
    """

    estimate: float | None
    status: Status
    reason: str | None
    values: FloatArray


def normalized_difference(
    values: ArrayLike, refusal_rate: ArrayLike, *, denominator: Denominator = "absolute_mean"
) -> VariabilityResult:
    """Metric at the most-refusal prompt less metric at the least-refusal prompt, over its mean over all prompts.

    Parameters
    ----------
    values : array_like of float, shape (k,)
        The metric at each prompt.
    refusal_rate : array_like of float, shape (k,)
        Says which prompts refuse most and least; where several do, their values are averaged.
    denominator : {"absolute_mean", "mean"}, default: "absolute_mean"
        Over ``"absolute_mean"``, as in the paper's definition, a positive difference means that the metric rises with
        refusal. Over the signed ``"mean"`` the sign turns round for a metric with a negative mean, as for the weighted
        score in four of the five rows of the paper's table.

    Returns
    -------
    VariabilityResult
        Undefined for a single prompt, for equal refusal rates and for a mean of zero.

    Raises
    ------
    TypeError, ValueError
        If the arrays are not finite numbers of one length, or the denominator is not one of those named.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Table "Score variability across different refusal rates".

    Examples
    --------
    >>> round(normalized_difference([0.34, 0.33, 0.31, 0.36], [0.1, 0.4, 0.6, 0.8]).estimate, 4)
    0.0597
    """
    metric, refused = _checked("values", values), _checked("refusal_rate", refusal_rate)
    if metric.size != refused.size:
        raise ValueError(f"values and refusal_rate must be of one length, got {metric.size} and {refused.size}")
    if denominator not in get_args(Denominator):
        raise ValueError(f"denominator must be one of {', '.join(get_args(Denominator))}, got {denominator!r}")
    if metric.size > 1 and refused.min() == refused.max():
        return VariabilityResult(None, "undefined", "equal_refusal_rates", metric)
    difference = metric[refused == refused.max()].mean() - metric[refused == refused.min()].mean()
    return _relative(float(difference), metric, signed=denominator == "mean")


def coefficient_of_variation(values: ArrayLike, *, ddof: Literal[0, 1] = 0) -> VariabilityResult:
    """Divide the standard deviation of a metric over prompts by the absolute value of its mean.

    Parameters
    ----------
    values : array_like of float, shape (k,)
        The metric at each prompt.
    ddof : {0, 1}, default: 0
        0 for the population's standard deviation, as in the paper's table; 1 for the sample's.

    Returns
    -------
    VariabilityResult
        Undefined for a single prompt and for a mean of zero.

    Raises
    ------
    TypeError, ValueError
        If `values` are not finite numbers, or `ddof` is neither 0 nor 1.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Table "Score variability across different refusal rates".

    Examples
    --------
    >>> round(coefficient_of_variation([0.34, 0.33, 0.31, 0.36]).estimate, 4)
    0.0538
    """
    metric = _checked("values", values)
    if ddof not in (0, 1):
        raise ValueError(f"ddof must be 0, for the population, or 1, for the sample, got {ddof!r}")
    spread = float(metric.std(ddof=ddof)) if metric.size > 1 else 0.0
    return _relative(spread, metric, signed=False)


def _relative(spread: float, metric: FloatArray, *, signed: bool) -> VariabilityResult:
    if metric.size == 1:
        return VariabilityResult(None, "undefined", "one_prompt", metric)
    mean = float(metric.mean())
    if mean == 0:
        return VariabilityResult(None, "undefined", "zero_mean", metric)
    return VariabilityResult(spread / (mean if signed else abs(mean)), "ok", None, metric)


def _checked(name: str, values: ArrayLike) -> FloatArray:
    array = unmasked(name, values)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must hold numbers, got an array of {array.dtype}; is the metric None at a prompt?")
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must have one value a prompt, shape (k,), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array.tolist()!r}; leave out prompts where it is undefined")
    return array.astype(np.float64, copy=False)
