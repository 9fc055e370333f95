"""Agreement of rankings over settings, variability of metrics over prompts, and correction for sampling errors.

**Agreement of rankings.** A setting is a benchmark, a prompt or a run. Scores are a matrix with one row per setting and
one column per model; higher scores are better. Kendall's W compares whole rankings, winner entropy only the first
places. Random rankings agree as well: their W is 1/m on average for m settings, not 0, so that W has to be compared
with a random baseline.

**Variability** is how much a metric changes when prompts make the same model more or less cautious.

**Reliability.** Sampling errors reduce the agreement between estimates of several models. Estimates ``y_i = t_i + e_i``
of k models have a sample variance ``S`` whose expectation is the variance T of the true values plus a contribution of
the errors,

    E[S] = T + D,    D = mean_i V_ii - mean_{i != j} V_ij,

with V the covariance of the errors. Errors shared by all models, as those from the same questions partly are, add
nothing. ``S - D`` is an unbiased estimate of T. The reliability ``T / S`` is the share of the variance that is not
sampling error, and so the highest R squared that an error-free predictor could reach on average, the *noise ceiling*.
If D exceeds S, T is reported as unknown rather than clipped.

In 1,000 simulations of 12 models with reliability .8, a correlation of .5 between the models' errors and a true
correlation of .60, the median reliability is .78, the median observed correlation .50, and the disattenuated one has
the median .66 and the mean .61; with 40 models these are .80, .49, .62 and .61. In 300 simulations of 4 settings and 8
models whose settings differ by errors only, W is .670 on average, and its ceiling .673.

**Ranking stability** is the paper's test whether a metric ranks models alike in all settings, beyond the effects of
correct rate and refusal rate.

It computes Kendall's W and winner entropy of a metric before and after removing the monotonic effects of correct rate,
of refusal rate and of both. Each has a random baseline that goes through the same regressions: these make models tie
and their residuals depend on the covariates, so that the expectation for random values is no longer 1/m.

A metric that is a sum of monotonic functions of both rates, such as the weighted score ``c - p (1 - r)`` and
the rates themselves, has zero residuals when both are removed. Its status then is undefined, since any ranking would be
due to rounding errors.

**Isotonic residuals** are the residuals of an additive isotonic regression of a metric on other metrics.

The sums of monotonic functions of the covariates form a convex cone, spanned by a constant and by steps at the
covariates' values; the fit is the projection of the metric onto it. Non-negative least squares finds this projection
exactly for any number of covariates, whereas backfitting (coordinate descent) stops near it. Exactness matters because
the residuals are ranked: inexact zero residuals would be ranked by their rounding errors.

References
----------
.. [1] Spearman, C. (1904). The proof and measurement of association between two things. American Journal of
   Psychology, 15, 72-101. :doi:`10.2307/1412159`
.. [2] Fuller, W. A. (1987). Measurement Error Models. Wiley. Equation 1.2.3. :doi:`10.1002/9780470316665`
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import nnls
from scipy.stats import rankdata

from refusal_index.stats.arguments import FloatArray, unmasked
from refusal_index.stats.estimate import Estimate, Result
from refusal_index.stats.intervals import Seed, checked_resamples, symmetric_root


def kendall_w(scores: ArrayLike, *, correct_ties: bool = False) -> Result:
    """Return Kendall's W, the agreement of m rankings of the same n models.

    With R_i the sum of the ranks of model i over the settings, ``W = 12 sum((R_i - mean)^2) / (m^2 (n^3 - n))``. Ties
    get their average rank. They keep W below 1 even if all settings agree; the correction subtracts ``m sum(t^3 - t)``,
    over all groups of t tied models, from the denominator.

    Parameters
    ----------
    scores : array_like of float, shape (m, n)
        One row a setting, one column a model; higher is better.
    correct_ties : bool, default: False
        The paper's definition is without the correction. Without ties there is no difference.

    Returns
    -------
    Result
        W in [0, 1]: 1 if all settings rank alike, on average 1/m for random rankings. Undefined for a single setting
        (``"one_setting"``), a single model (``"one_model"``), and if every setting ties all models (``"all_tied"``).

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
    matrix = checked_numbers("scores", scores, 2)
    reason = why_unranked(matrix)
    if reason:
        return Result(None, "undefined", reason)
    return Result(float(concordance(average_ranks(matrix), correct_ties=correct_ties)))


def winner_entropy(scores: ArrayLike) -> Result:
    """Return the entropy of the winners, ``-sum(p_i log_n p_i)`` with p_i the share of settings that model i wins.

    Parameters are those of `kendall_w`.

    Returns
    -------
    Result
        In [0, 1]: 0 where one model always wins, 1 where all win equally often; tied models share the first place.
        Undefined if `kendall_w` is.

    Raises
    ------
    TypeError, ValueError
        As `kendall_w`.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Ranking Stability Metrics".

    Examples
    --------
    >>> round(winner_entropy([[0.36, 0.48, 0.54], [0.56, 0.60, 0.56], [0.22, 0.27, 0.22]]).estimate, 4)
    0.5794
    """
    matrix = checked_numbers("scores", scores, 2)
    reason = why_unranked(matrix)
    return Result(None, "undefined", reason) if reason else Result(float(entropy_of_winners(matrix)))


def checked_numbers(name: str, values: ArrayLike, dimensions: int) -> FloatArray:
    """Return finite numbers as an array of floats with a number of dimensions; raises for other values.

    A matrix has one row a setting and one column a model, at least one of each.
    """
    array = unmasked(name, values)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must hold numbers, got an array of {array.dtype}; are there names or None in it?")
    if array.ndim != dimensions or (dimensions == 2 and 0 in array.shape):
        needed = "one value a model or prompt" if dimensions == 1 else "one row a setting and one column a model"
        raise ValueError(f"{name} must have {needed}, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite, got {float(array[~np.isfinite(array)][0])!r}; "
            "leave out models, prompts and settings where it is undefined"
        )
    return array.astype(np.float64, copy=False)


def why_unranked(scores: FloatArray) -> str | None:
    """Return why a matrix of scores has no rankings to compare, None if it has."""
    m, n = scores.shape
    if m == 1:
        return "one_setting"
    if n == 1:
        return "one_model"
    return "all_tied" if np.all(scores == scores[:, :1]) else None


def average_ranks(scores: FloatArray) -> FloatArray:
    """Return ranks along the last axis, 1 for the best; ties get the average of their ranks."""
    return np.asarray(rankdata(-scores, axis=-1))


def concordance(ranks: FloatArray, *, correct_ties: bool) -> FloatArray:
    """Return W of rankings of shape (..., m, n): the spread of rank sums over its maximum; NaN if all tie."""
    m, n = ranks.shape[-2:]
    deviations = ranks - (n + 1) / 2
    between = np.sum(np.sum(deviations, axis=-2) ** 2, axis=-1)
    # A setting's ranks have the sum of squares (n^3 - n - sum(t^3 - t)) / 12, so ties need not be counted.
    spread = np.sum(deviations**2, axis=(-2, -1))
    largest = m * spread if correct_ties else np.full(spread.shape, m * m * (n**3 - n) / 12)
    return np.asarray(np.divide(between, largest, out=np.full(spread.shape, np.nan), where=spread > 0))[()]


def entropy_of_winners(scores: FloatArray) -> FloatArray:
    """Return the winner entropy of scores of shape (..., m, n), n at least 2; NaN if every setting ties all models."""
    first = scores == scores.max(axis=-1, keepdims=True)
    shares = np.mean(first / first.sum(axis=-1, keepdims=True), axis=-2)
    entropy = np.sum(special.entr(shares), axis=-1) / np.log(scores.shape[-1])
    all_tied = np.all(scores == scores[..., :1], axis=(-2, -1))
    return np.asarray(np.where(all_tied, np.nan, entropy))[()]


def normalized_difference(values: ArrayLike, refusal_rate: ArrayLike) -> Result:
    """Return the metric at the most cautious prompt minus that at the least cautious one, over its absolute mean.

    Parameters
    ----------
    values : array_like of float, shape (k,)
        The metric at each prompt.
    refusal_rate : array_like of float, shape (k,)
        Determines the prompts with the most and the fewest refusals; values of tied prompts are averaged.

    Returns
    -------
    Result
        Positive if the metric increases with refusal. Undefined for a single prompt (``"one_prompt"``), for equal
        refusal rates (``"equal_refusal_rates"``) and for a mean of zero (``"zero_mean"``).

    Raises
    ------
    TypeError, ValueError
        If the arrays are not finite numbers of equal length.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Table "Score variability across different refusal rates".

    Examples
    --------
    >>> round(normalized_difference([0.34, 0.33, 0.31, 0.36], [0.1, 0.4, 0.6, 0.8]).estimate, 4)
    0.0597
    """
    metric = checked_numbers("values", values, 1)
    refused = checked_numbers("refusal_rate", refusal_rate, 1)
    if metric.size != refused.size:
        raise ValueError(f"values and refusal_rate must be of one length, got {metric.size} and {refused.size}")
    if metric.size > 1 and refused.min() == refused.max():
        return Result(None, "undefined", "equal_refusal_rates")
    difference = metric[refused == refused.max()].mean() - metric[refused == refused.min()].mean()
    return _relative(float(difference), metric)


def coefficient_of_variation(values: ArrayLike, *, ddof: Literal[0, 1] = 0) -> Result:
    """Return the standard deviation of a metric over prompts, divided by the absolute value of its mean.

    Parameters
    ----------
    values : array_like of float, shape (k,)
        The metric at each prompt.
    ddof : {0, 1}, default: 0
        0 for the population standard deviation, as in the paper's table; 1 for the sample standard deviation.

    Returns
    -------
    Result
        Undefined for a single prompt (``"one_prompt"``) and for a mean of zero (``"zero_mean"``).

    Raises
    ------
    TypeError, ValueError
        If `values` are not finite numbers.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Table "Score variability across different refusal rates".

    Examples
    --------
    >>> round(coefficient_of_variation([0.34, 0.33, 0.31, 0.36]).estimate, 4)
    0.0538
    """
    metric = checked_numbers("values", values, 1)
    return _relative(float(metric.std(ddof=ddof)) if metric.size > 1 else 0.0, metric)


def _relative(spread: float, metric: FloatArray) -> Result:
    if metric.size == 1:
        return Result(None, "undefined", "one_prompt")
    mean = float(metric.mean())
    return Result(spread / abs(mean)) if mean else Result(None, "undefined", "zero_mean")


MIN_POINTS = 3
"""Minimum number of estimates or points: the variance of two is almost uninformative, and two always lie on a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityResult(Result):
    """Result of the share of the variance of several estimates that is not sampling error.

    Attributes
    ----------
    estimate : float or None
        True variance over variance of the estimates; above 1 only if errors are strongly correlated.
    true_variance : float or None
        ``S - D``, even if it is not positive and the reliability is undefined.
    status : {"ok", "undefined"}
    reason : str or None
        Where undefined the first that applies of ``"too_few_estimates"`` (fewer than three), ``"no_variation"`` and
        ``"noise_exceeds_spread"``.
    """

    true_variance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DisattenuatedCorrelation(Result):
    """A correlation over models, observed and corrected for the sampling errors of both sides.

    Attributes
    ----------
    observed : float or None
        Pearson's correlation of the estimates.
    ceiling : float or None
        ``sqrt(reliability_x reliability_y)``: approximately the highest absolute correlation possible with these
        errors.
    estimate : float or None
        The correlation of the true values. It is not clipped: values beyond -1 or +1 mean that the errors explain more
        than the estimates' deviation from a line.
    status : {"ok", "undefined"}
    reason : str or None
        Why the ceiling and the estimate are undefined: ``"first:"`` or ``"second:"`` with the reason of a
        `ReliabilityResult`.
    first, second : ReliabilityResult
        Reliability of each side.
    """

    observed: float | None
    ceiling: float | None = None
    first: ReliabilityResult
    second: ReliabilityResult


def reliability(values: ArrayLike, covariance: ArrayLike) -> ReliabilityResult:
    """Return the share of the variance of several estimates that is not sampling error.

    Parameters
    ----------
    values : array_like of float, shape (k,)
        One estimate per model.
        covariance : array_like of float, shape (k, k) or (k,)
            Covariance of the sampling errors, or the squared standard errors of independent estimates.

    Returns
    -------
    ReliabilityResult

    Raises
    ------
    ValueError
        If the shapes do not fit, or a number is not finite.

    Examples
    --------
    >>> found = reliability([0.1, 0.2, 0.4, 0.5], [0.01, 0.01, 0.01, 0.01])
    >>> round(found.true_variance, 4), round(found.estimate, 3)
    (0.0233, 0.7)
    >>> reliability([0.1, 0.2, 0.15], [0.04, 0.04, 0.04]).reason
    'noise_exceeds_spread'
    """
    y = checked_numbers("values", values, 1)
    errors = _checked_covariance("covariance", covariance, y.size)
    if y.size < MIN_POINTS:
        return ReliabilityResult(None, "undefined", "too_few_estimates")
    variance = float(y.var(ddof=1))
    true = variance - _spread(errors)
    reason = "no_variation" if np.ptp(y) == 0 else "noise_exceeds_spread" if true <= 0 else None
    if reason:
        return ReliabilityResult(None, "undefined", reason, true_variance=true)
    return ReliabilityResult(true / variance, true_variance=true)


def disattenuated_correlation(
    first: ArrayLike,
    second: ArrayLike,
    first_covariance: ArrayLike,
    second_covariance: ArrayLike,
    cross_covariance: ArrayLike | None = None,
) -> DisattenuatedCorrelation:
    """Correlate two estimates over models, and correct the correlation for the sampling errors of both.

    Parameters
    ----------
    first, second : array_like of float, shape (k,)
        Two estimates of each model.
    first_covariance, second_covariance : array_like of float, shape (k, k) or (k,)
        Covariances of their sampling errors, as for `reliability`.
    cross_covariance : array_like of float, shape (k, k) or (k,), optional
        Covariances of the errors of the first (rows) with those of the second; by default 0. Estimates from the same
        questions share errors, which would otherwise look like a correlation.

    Returns
    -------
    DisattenuatedCorrelation

    Raises
    ------
    ValueError
        As for `reliability`.

    Examples
    --------
    >>> found = disattenuated_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], [0.5] * 5, [0.5] * 5)
    >>> round(found.observed, 3), round(found.ceiling, 3), round(found.estimate, 3)
    (0.8, 0.8, 1.0)
    """
    x = checked_numbers("first", first, 1)
    y = checked_numbers("second", second, 1)
    if x.size != y.size:
        raise ValueError(f"first and second must hold one value for each of the same models, got {x.size} and {y.size}")
    shared = np.zeros(x.size) if cross_covariance is None else cross_covariance
    cross = _checked_covariance("cross_covariance", shared, x.size)
    result = reliability(x, first_covariance)
    other = reliability(y, second_covariance)
    constant = x.size < MIN_POINTS or np.ptp(x) == 0 or np.ptp(y) == 0
    observed = None if constant else float(np.corrcoef(x, y)[0, 1])
    bad = next(
        (f"{side}:{item.reason}" for side, item in (("first", result), ("second", other)) if item.reason),
        None,
    )
    if result.estimate is None or other.estimate is None or result.true_variance is None or other.true_variance is None:
        return DisattenuatedCorrelation(None, "undefined", bad, observed=observed, first=result, second=other)
    together = float(np.cov(x, y)[0, 1]) - _spread(cross)
    estimate = together / math.sqrt(result.true_variance * other.true_variance)
    ceiling = math.sqrt(result.estimate * other.estimate)
    return DisattenuatedCorrelation(estimate, observed=observed, ceiling=ceiling, first=result, second=other)


def kendall_w_ceiling(
    scores: ArrayLike, covariance: ArrayLike, *, n_resamples: int = 1_000, rng: Seed = None
) -> Estimate:
    """Return Kendall's W for settings that agree completely except for the sampling errors of these scores.

    Parameters
    ----------
    scores : array_like of float, shape (m, n)
        One row a setting, one column a model.
    covariance : array_like of float, shape (m n, m n)
        Covariance of the scores' sampling errors, with the scores in row-major order.
    n_resamples : int, default: 1,000
    rng : int or numpy.random.Generator, optional

    Returns
    -------
    Estimate
        Mean, 5% and 95% quantile; undefined as for `kendall_w`, or as for `ReliabilityResult` of the models'
        means over the settings.

    Raises
    ------
    TypeError, ValueError
        If the shapes do not fit, or a number is not finite.

    Notes
    -----
    The true values are the models' means over the settings, shrunk by the square root of their reliability so that they
    have the variance of true values rather than of estimates. Errors are normal. Errors shared by the settings, as
    those from the same questions partly are, increase their agreement, and do so in the ceiling as well.

    Examples
    --------
    >>> scores = [[0.1, 0.3, 0.5], [0.3, 0.2, 0.6]]
    >>> round(kendall_w_ceiling(scores, np.diag([0.01] * 6), rng=1).estimate, 2)
    0.86
    """
    matrix = checked_numbers("scores", scores, 2)
    m, n = matrix.shape
    errors = _checked_covariance("covariance", covariance, m * n)
    reason = why_unranked(matrix)
    means = matrix.mean(axis=0)
    result = reliability(means, errors.reshape(m, n, m, n).mean(axis=(0, 2)))
    if reason or result.estimate is None:
        return Estimate(None, status="undefined", reason=reason or result.reason)
    true = means.mean() + math.sqrt(result.estimate) * (means - means.mean())
    normal = np.random.default_rng(rng).standard_normal((checked_resamples(n_resamples), m * n))
    scattered = np.tile(true, m) + normal @ symmetric_root(errors)
    w = concordance(average_ranks(scattered.reshape(-1, m, n)), correct_ties=False)
    low, high = np.quantile(w, [0.05, 0.95])
    return Estimate(float(w.mean()), float(low), float(high))


def _spread(covariance: FloatArray) -> float:
    """Return the average contribution of errors with this covariance to a sample variance or covariance."""
    k = len(covariance)
    mean_variance = float(np.trace(covariance)) / k
    return mean_variance - (float(covariance.sum()) - mean_variance * k) / (k * (k - 1))


def _checked_covariance(name: str, covariance: ArrayLike, size: int) -> FloatArray:
    array = np.asarray(covariance, np.float64)
    array = np.diag(array) if array.ndim == 1 else array
    if array.shape != (size, size) or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite and of shape ({size}, {size}) or ({size},), got shape {np.shape(covariance)}; "
            "an estimate at the boundary has no standard error and is to be left out"
        )
    return array


FitOver = Literal["all", "model"]

# Residuals that agree to this many digits, relative to the metric's largest value, differ only by rounding.
RESOLUTION_DIGITS = 12


def isotonic_residuals(metric: ArrayLike, *covariates: ArrayLike, fit_over: FitOver = "all") -> FloatArray:
    """Return the residuals of a metric from the best-fitting sum of one monotonic function of each covariate.

    Parameters
    ----------
    metric : array_like of float, shape (m, n)
        One row a setting, one column a model.
    *covariates : array_like of float, shape (m, n)
        One matrix for each effect to remove, at least one. Settings in which a covariate is equal get equal values of
        its function (ties are "secondary", de Leeuw's term). Whether a function increases or decreases is what leaves
        the smallest residual sum of squares over all models; if several are tied, increasing.
    fit_over : {"all", "model"}, default: "all"
        ``"all"``: the same functions for all models and settings. ``"model"``, as in the paper's wording: separate
        functions for each model, over its settings. These also remove each model's mean, so that nothing remains to be
        ranked of a perfectly stable metric, which is constant for each model.

    Returns
    -------
    ndarray, shape (m, n)
        Metric minus fit, rounded to twelve digits, so that residuals that should be equal are.

    Raises
    ------
    TypeError, ValueError
        If a matrix does not contain finite numbers, or the shapes differ.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Isotonic Regression Procedure".
    .. [2] Bacchetti, P. (1989). Additive isotonic models. Journal of the American Statistical Association, 84,
       289-294. :doi:`10.1080/01621459.1989.10478768`

    Examples
    --------
    >>> isotonic_residuals([[0.2], [0.5], [0.3], [0.6]], [[0.1], [0.2], [0.3], [0.4]]).ravel().tolist()
    [0.0, 0.1, -0.1, 0.0]
    """
    values = checked_numbers("metric", metric, 2)
    effects = [_checked_covariate("covariate", covariate, values.shape) for covariate in covariates]
    shape = values.shape
    if fit_over == "all":
        values = values.reshape(-1, 1)
        effects = [effect.reshape(-1, 1) for effect in effects]
    # A power of ten, so that rounding to multiples of it keeps short decimals short.
    scale = 10.0 ** np.ceil(np.log10(max(float(np.abs(values).max()), np.finfo(float).tiny)))
    # Steps from 0 to 1 at every value of a covariate but its smallest, centred to replace the constant. A decreasing
    # step then is the negative of an increasing one.
    steps = [
        [(column[:, np.newaxis] >= np.unique(column)[1:]).astype(float) for column in effect.T] for effect in effects
    ]
    centred = values / scale - (values / scale).mean(axis=0)
    fits = []
    for signs in itertools.product((1, -1), repeat=len(effects)):
        cones = [
            np.hstack([sign * (step - step.mean(axis=0)) for sign, step in zip(signs, of_model, strict=True)])
            for of_model in zip(*steps, strict=True)
        ]
        # Distances from the projections onto the cones spanned by these columns.
        left = [
            column - cone @ nnls(cone, column)[0] if cone.shape[1] else column
            for column, cone in zip(centred.T, cones, strict=True)
        ]
        fits.append(np.column_stack(left))
    # Rounded, so that ties between directions are not decided by rounding errors.
    best = min(fits, key=lambda fit: round(float(np.sum(fit**2)), RESOLUTION_DIGITS))
    return np.asarray((np.round(best, RESOLUTION_DIGITS) * scale + 0.0).reshape(shape))


def _checked_covariate(name: str, covariate: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    effect = checked_numbers(name, covariate, 2)
    if effect.shape != shape:
        raise ValueError(
            f"{name} must have a value for each setting and model of the metric, shape {shape}, "
            f"got shape {effect.shape}; is one of them transposed?"
        )
    return effect


def expected_winner_entropy(n_settings: int, n_models: int) -> float:
    """Return the expectation of winner entropy for random rankings without ties.

    The number X of settings that a model wins is Binomial(m, 1/n), so the expectation is ``-n E[(X/m) log_n(X/m)]``.

    Parameters
    ----------
    n_settings, n_models : int
        m and n, at least 2 each.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> round(expected_winner_entropy(n_settings=8, n_models=8), 4)
    0.7486
    """
    n_wins = np.arange(n_settings + 1)
    log_probabilities = (
        special.gammaln(n_settings + 1)
        - special.gammaln(n_wins + 1)
        - special.gammaln(n_settings - n_wins + 1)
        + special.xlogy(n_settings - n_wins, n_models - 1)
        - n_settings * np.log(n_models)
    )
    entropies = special.entr(n_wins / n_settings) / np.log(n_models)
    return float(n_models * np.sum(np.exp(log_probabilities) * entropies))


def ranking_stability(
    metric: ArrayLike,
    correct_rate: ArrayLike,
    refusal_rate: ArrayLike,
    *,
    fit_over: FitOver = "all",
    n_resamples: int = 1_000,
    rng: Seed = None,
) -> list[dict[str, Any]]:
    """Return Kendall's W and winner entropy of a metric with and without the effects of correct and refusal rate.

    Parameters
    ----------
    metric : array_like of float, shape (m, n)
        One row a setting, one column a model; higher is better.
    correct_rate, refusal_rate : array_like of float, shape (m, n)
        The rates of the same settings and models.
    fit_over : {"all", "model"}, default: "all"
        As for `isotonic_residuals`.
    n_resamples : int, default: 1,000
        Number of permutations for the baseline.
    rng : int or numpy.random.Generator, optional

    Returns
    -------
    list of dict
        A row for each adjustment, with nothing, the correct rate, the refusal rate, and both removed: ``removed``;
        ``fit_over``, None without a regression; ``kendall_w``, ``kendall_w_tie_corrected`` and ``winner_entropy``, None
        where undefined; mean, 5% and 95% quantile of W (``random_kendall_w``, ``random_kendall_w_low``, and so on)
        and winner entropy of values permuted over the models within each setting and adjusted in the same way;
        ``n_settings`` and ``n_models``; ``status`` and ``reason`` as for `kendall_w`, where ``"all_tied"`` means that
        the removed effects explain the metric completely.

    Raises
    ------
    TypeError, ValueError
        If a matrix does not contain finite numbers, or the shapes differ.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Section "Can Refusal Index Consistently Rank Models?", appendix
       "Ranking Stability Metrics".

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> correct, refused, noise = rng.uniform(0, 0.4, size=(3, 8, 6))
    >>> metric = np.linspace(0.3, 0.6, 6) + noise / 3
    >>> for row in ranking_stability(metric, correct, refused, n_resamples=100, rng=1):
    ...     print(f"{row['removed']:12} {row['kendall_w']:.2f}, random {row['random_kendall_w']:.2f}")
    nothing      0.91, random 0.13
    correct_rate 0.87, random 0.14
    refusal_rate 0.88, random 0.13
    both         0.79, random 0.14
    """
    values = checked_numbers("metric", metric, 2)
    correct = _checked_covariate("correct_rate", correct_rate, values.shape)
    refused = _checked_covariate("refusal_rate", refusal_rate, values.shape)
    copies = np.broadcast_to(values, (checked_resamples(n_resamples), *values.shape))
    random = np.random.default_rng(rng).permuted(copies, axis=-1)
    effects = {"nothing": (), "correct_rate": (correct,), "refusal_rate": (refused,), "both": (correct, refused)}
    rows = []
    for removed, chosen in effects.items():
        left = values
        baseline = random
        if chosen:
            left = isotonic_residuals(values, *chosen, fit_over=fit_over)
            baseline = np.array([isotonic_residuals(matrix, *chosen, fit_over=fit_over) for matrix in random])
        w = kendall_w(left)
        rows.append(
            {
                "removed": removed,
                "fit_over": fit_over if chosen else None,
                "kendall_w": w.estimate,
                "kendall_w_tie_corrected": kendall_w(left, correct_ties=True).estimate,
                **_spread_columns("random_kendall_w", concordance(average_ranks(baseline), correct_ties=False)),
                "winner_entropy": winner_entropy(left).estimate,
                **_spread_columns("random_winner_entropy", entropy_of_winners(baseline)),
                "n_settings": values.shape[0],
                "n_models": values.shape[1],
                "status": w.status,
                "reason": w.reason,
            }
        )
    return rows


def _spread_columns(name: str, values: FloatArray) -> dict[str, float | None]:
    """Return the mean, the 5% and the 95% quantile of the values that are not NaN; None if there are none."""
    defined = values[~np.isnan(values)]
    numbers = [float(defined.mean()), *np.quantile(defined, [0.05, 0.95]).tolist()] if defined.size else [None] * 3
    return dict(zip((name, f"{name}_low", f"{name}_high"), numbers, strict=True))
