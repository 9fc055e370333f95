"""Whether a metric ranks models alike in all settings, beyond what correct rate and refusal rate say already.

The paper's procedure: Kendall's W and winner entropy of a metric over settings and models, as it is and after
removing the monotonic effects of correct rate, of refusal rate and of both. Each comes with its random baseline, which
goes through the same regressions: these tie models and tie their residuals to the covariates, so that 1/m is not what
random values give any more.

A metric that is a sum of monotonic functions of both rates, such as the weighted score ``c - penalty * (1 - r)`` and
the rates themselves, leaves nothing when both are removed. Its status says so; any ranking would be one of rounding
errors.

What Kendall's W and winner entropy are worth: their values for rankings that are made at random.

Residuals of a metric after removing what other metrics explain monotonically: (additive) isotonic regression.

The paper removes the monotonic effects of correct rate and refusal rate from a metric before it asks how stably the
metric ranks models. The sums of monotonic functions of the covariates form a convex cone, spanned by a constant and by
steps at the covariates' values, and the fit is the projection of the metric onto it. Non-negative least squares finds
that projection exactly, for any number of covariates, where backfitting (coordinate descent) stops somewhere near it.
Exactness matters: the residuals are ranked next, and what is left of nothing would be ranked by its rounding errors.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import nnls

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.estimate import Status
from refusal_index.stats.intervals import Seed, checked_resamples
from refusal_index.stats.stability.agreement import (
    average_ranks,
    checked_scores_matrix,
    concordance,
    entropy_of_winners,
    kendall_w,
    winner_entropy,
)

FitOver = Literal["all", "model"]

# Residuals that agree to as many digits, counted from the metric's largest value, are the same but for rounding.
RESOLUTION_DIGITS = 12


@dataclass(frozen=True, slots=True, eq=False)
class IsotonicResiduals:
    """What monotonic functions of the covariates leave of a metric.

    Attributes
    ----------
    residuals : ndarray, shape (m, n)
        Metric less fit, rounded to twelve digits, so that residuals which should be equal are.
    increasing : tuple of bool
        For each covariate whether the metric was taken to rise with it.
    """

    residuals: FloatArray
    increasing: tuple[bool, ...]


def isotonic_residuals(
    metric: ArrayLike, *covariates: ArrayLike, increasing: Sequence[bool] | None = None, fit_over: FitOver = "all"
) -> IsotonicResiduals:
    """Residuals of a metric from the best sum of one monotonic function of each covariate.

    Parameters
    ----------
    metric : array_like of float, shape (m, n)
        One row a setting, one column a model.
    *covariates : array_like of float, shape (m, n)
        One matrix for each effect to remove. Settings in which a covariate is equal get equal values of its function
        (ties are "secondary", de Leeuw's term).
    increasing : sequence of bool, optional
        For each covariate whether its function may only rise or only fall. If not given, the directions that leave the
        smallest sum of squares over all models together; where they leave the same, rising.
    fit_over : {"all", "model"}, default: "all"
        ``"all"``: the same functions for all models and settings. ``"model"``, as the paper words it: own functions
        for each model, over its settings. Those take each model's mean away with them, so that of a metric that is
        perfectly stable, one constant for each model, nothing is left to rank.

    Returns
    -------
    IsotonicResiduals

    Raises
    ------
    TypeError, ValueError
        If a matrix is not one of finite numbers, the shapes differ, there is no covariate, or not one direction for
        each.

    References
    ----------
    .. [1] Pan et al., as cited in `refusal_index`. Appendix "Isotonic Regression Procedure".
    .. [2] Bacchetti, P. (1989). Additive isotonic models. Journal of the American Statistical Association, 84,
       289-294. :doi:`10.1080/01621459.1989.10478768`

    Examples
    --------
    >>> result = isotonic_residuals([[0.2], [0.5], [0.3], [0.6]], [[0.1], [0.2], [0.3], [0.4]])
    >>> result.residuals.ravel().tolist(), result.increasing
    ([0.0, 0.1, -0.1, 0.0], (True,))
    """
    values = checked_scores_matrix("metric", metric)
    effects = [checked_covariate("covariate", covariate, values.shape) for covariate in covariates]
    if not effects:
        raise ValueError("isotonic_residuals needs at least one covariate whose effect to remove, got none")
    if increasing is not None and len(increasing) != len(effects):
        raise ValueError(f"increasing must hold one truth value for each covariate, {len(effects)}, got {increasing!r}")
    if fit_over not in get_args(FitOver):
        raise ValueError(f"fit_over must be one of {', '.join(get_args(FitOver))}, got {fit_over!r}")
    directions = tuple(bool(rising) for rising in increasing) if increasing is not None else None
    if fit_over == "model":
        return residuals_of(values, effects, directions)
    pooled = residuals_of(values.reshape(-1, 1), [effect.reshape(-1, 1) for effect in effects], directions)
    return IsotonicResiduals(pooled.residuals.reshape(values.shape), pooled.increasing)


def checked_covariate(name: str, covariate: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Check a covariate of a metric of that shape and return it as floats."""
    effect = checked_scores_matrix(name, covariate)
    if effect.shape != shape:
        raise ValueError(
            f"{name} must have a value for each setting and model of the metric, shape {shape}, "
            f"got shape {effect.shape}; is one of them transposed?"
        )
    return effect


def residuals_of(
    metric: FloatArray, effects: Sequence[FloatArray], increasing: tuple[bool, ...] | None
) -> IsotonicResiduals:
    """As `isotonic_residuals`, column by column, for checked matrices."""
    # A power of ten, so that rounding in units of it leaves short decimals short.
    scale = 10.0 ** np.ceil(np.log10(max(float(np.abs(metric).max()), np.finfo(float).tiny)))
    candidates = [increasing] if increasing else list(itertools.product((True, False), repeat=len(effects)))
    steps = [[_centred_steps(column) for column in effect.T] for effect in effects]
    fits = {directions: _all_columns(metric / scale, steps, directions) for directions in candidates}
    # Rounded, so that directions which fit equally well do not win by their last digit.
    best = min(fits, key=lambda directions: round(float(np.sum(fits[directions] ** 2)), RESOLUTION_DIGITS))
    return IsotonicResiduals(np.round(fits[best], RESOLUTION_DIGITS) * scale + 0.0, best)


def _centred_steps(covariate: FloatArray) -> FloatArray:
    """Make steps from 0 to 1 at every value of a covariate but its smallest, shape (m, values - 1), less their means.

    Centring takes the place of the constant. A falling step differs from a rising one then by its sign only.
    """
    steps = (covariate[:, np.newaxis] >= np.unique(covariate)[1:]).astype(float)
    return np.asarray(steps - steps.mean(axis=0))


def _all_columns(metric: FloatArray, steps: Sequence[Sequence[FloatArray]], directions: tuple[bool, ...]) -> FloatArray:
    signs = [1 if rising else -1 for rising in directions]
    cones = [
        np.hstack([sign * step for sign, step in zip(signs, of_model, strict=True)])
        for of_model in zip(*steps, strict=True)
    ]
    return np.column_stack([_residual(column, cone) for column, cone in zip(metric.T, cones, strict=True)])


def _residual(values: FloatArray, cone: FloatArray) -> FloatArray:
    """Distance of values from their projection onto the cone that the columns of a matrix span."""
    centred = values - values.mean()
    if not cone.shape[1]:
        return np.asarray(centred)
    return np.asarray(centred - cone @ nnls(cone, centred)[0])


QUANTILES = 0.05, 0.5, 0.95


@dataclass(frozen=True, slots=True)
class RandomDistribution:
    """A statistic over random rankings.

    Attributes
    ----------
    mean, low, median, high : float or None
        Mean and the quantiles at 5, 50 and 95 per cent; all None where the statistic was never defined.
    n_resamples : int
        How many random rankings it was defined for.
    """

    mean: float | None
    low: float | None
    median: float | None
    high: float | None
    n_resamples: int

    @classmethod
    def of(cls, values: FloatArray) -> Self:
        """Summarise values, those that are NaN left out."""
        defined = values[~np.isnan(values)]
        if not defined.size:
            return cls(None, None, None, None, 0)
        low, median, high = np.quantile(defined, QUANTILES).tolist()
        return cls(float(defined.mean()), low, median, high, defined.size)


def expected_kendall_w(n_settings: int) -> float:
    """Return the expectation of W for random rankings by m settings: 1/m, for any number of models.

    Parameters
    ----------
    n_settings : int
        m, at least 2.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If there are fewer than two settings.

    References
    ----------
    .. [1] Kendall and Babington Smith (1939). :doi:`10.1214/aoms/1177732186`

    Examples
    --------
    >>> expected_kendall_w(8)
    0.125
    """
    _check_sizes(n_settings, 2)
    return 1 / n_settings


def expected_winner_entropy(n_settings: int, n_models: int) -> float:
    """Return the expectation of winner entropy for random rankings without ties.

    Each model wins Binomial(m, 1/n) settings, so that it is ``-n E[(X/m) log_n(X/m)]``.

    Parameters
    ----------
    n_settings, n_models : int
        m and n, at least 2 each.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        If there are fewer than two settings or models.

    Examples
    --------
    >>> round(expected_winner_entropy(n_settings=8, n_models=8), 4)
    0.7486
    """
    _check_sizes(n_settings, n_models)
    wins = np.arange(n_settings + 1)
    log_probabilities = (
        special.gammaln(n_settings + 1)
        - special.gammaln(wins + 1)
        - special.gammaln(n_settings - wins + 1)
        + special.xlogy(n_settings - wins, n_models - 1)
        - n_settings * np.log(n_models)
    )
    entropies = special.entr(wins / n_settings) / np.log(n_models)
    return float(n_models * np.sum(np.exp(log_probabilities) * entropies))


def _check_sizes(n_settings: int, n_models: int) -> None:
    for name, size in (("n_settings", n_settings), ("n_models", n_models)):
        if size < 2:
            raise ValueError(f"{name} must be at least 2, got {size!r}: a single one is never ranked differently")


Removed = Literal["nothing", "correct_rate", "refusal_rate", "both"]


@dataclass(frozen=True, slots=True)
class RankingStability:
    """Agreement of the settings' rankings by one metric after one adjustment.

    Attributes
    ----------
    removed : {"nothing", "correct_rate", "refusal_rate", "both"}
        Whose monotonic effects were removed from the metric.
    kendall_w, winner_entropy : float or None
        As in `kendall_w` and `winner_entropy`; None where undefined.
    random_kendall_w, random_winner_entropy : RandomDistribution
        The same for the metric's values shuffled over the models within each setting, and adjusted likewise.
    increasing : tuple of bool
        For each effect removed whether the metric was taken to rise with it.
    status : {"ok", "undefined"}
    reason : str or None
        Where undefined the first that applies of ``"one_setting"``, ``"one_model"`` and ``"all_tied"``: the effects
        removed explain the metric completely.
    """

    removed: Removed
    kendall_w: float | None
    winner_entropy: float | None
    random_kendall_w: RandomDistribution
    random_winner_entropy: RandomDistribution
    increasing: tuple[bool, ...]
    status: Status
    reason: str | None


def ranking_stability(
    metric: ArrayLike,
    correct_rate: ArrayLike,
    refusal_rate: ArrayLike,
    *,
    increasing: Sequence[bool] | None = None,
    fit_over: FitOver = "all",
    correct_ties: bool = False,
    n_resamples: int = 1_000,
    rng: Seed = None,
) -> tuple[RankingStability, ...]:
    """Kendall's W and winner entropy of a metric, as it is and without the effects of correct and refusal rate.

    Parameters
    ----------
    metric : array_like of float, shape (m, n)
        One row a setting, one column a model; higher is better.
    correct_rate, refusal_rate : array_like of float, shape (m, n)
        Of the same settings and models.
    increasing : sequence of two bool, optional
        Whether the metric may only rise, or only fall, with the correct rate and with the refusal rate. If not given,
        the better fitting direction for each adjustment, as in `isotonic_residuals`; the baseline chooses as freely.
    fit_over : {"all", "model"}, default: "all"
        As for `isotonic_residuals`.
    correct_ties : bool, default: False
        As for `kendall_w`.
    n_resamples : int, default: 1,000
        Shuffles for the baseline.
    rng : int or numpy.random.Generator, optional

    Returns
    -------
    tuple of RankingStability
        With nothing removed, without the correct rate, without the refusal rate, without both.

    Raises
    ------
    TypeError, ValueError
        If a matrix is not one of finite numbers, the shapes differ, or an option is not one of those named.

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
    ...     print(f"{row.removed:12} {row.kendall_w:.2f}, random {row.random_kendall_w.mean:.2f}")
    nothing      0.91, random 0.13
    correct_rate 0.87, random 0.14
    refusal_rate 0.88, random 0.13
    both         0.79, random 0.14
    """
    values = checked_scores_matrix("metric", metric)
    effects = {"correct_rate": correct_rate, "refusal_rate": refusal_rate}
    covariates = [checked_covariate(name, effect, values.shape) for name, effect in effects.items()]
    if increasing is not None and len(increasing) != 2:
        raise ValueError(f"increasing must hold two truth values, for correct and refusal rate, got {increasing!r}")
    copies = np.broadcast_to(values, (checked_resamples(n_resamples), *values.shape))
    random = np.random.default_rng(rng).permuted(copies, axis=-1)

    def row(removed: Removed, chosen: tuple[int, ...]) -> RankingStability:
        def adjust(matrix: FloatArray) -> IsotonicResiduals:
            if not chosen:
                return IsotonicResiduals(matrix, ())
            directions = None if increasing is None else [increasing[i] for i in chosen]
            picked = [covariates[i] for i in chosen]
            return isotonic_residuals(matrix, *picked, increasing=directions, fit_over=fit_over)

        baseline = np.array([adjust(matrix).residuals for matrix in random])
        return _row(removed, adjust(values), baseline, correct_ties)

    return row("nothing", ()), row("correct_rate", (0,)), row("refusal_rate", (1,)), row("both", (0, 1))


def _row(removed: Removed, adjusted: IsotonicResiduals, random: FloatArray, correct_ties: bool) -> RankingStability:
    """Measure the agreement of adjusted scores, and of random ones of shape (n_resamples, m, n)."""
    baseline = (
        RandomDistribution.of(concordance(average_ranks(random), correct_ties=correct_ties)),
        RandomDistribution.of(entropy_of_winners(random)),
    )
    w, entropy = kendall_w(adjusted.residuals, correct_ties=correct_ties), winner_entropy(adjusted.residuals)
    return RankingStability(removed, w.estimate, entropy.estimate, *baseline, adjusted.increasing, w.status, w.reason)
