"""Residuals of a metric after removing what other metrics explain monotonically: (additive) isotonic regression.

The paper removes the monotonic effects of correct rate and refusal rate from a metric before it asks how stably the
metric ranks models. The sums of monotonic functions of the covariates form a convex cone, spanned by a constant and by
steps at the covariates' values, and the fit is the projection of the metric onto it. Non-negative least squares finds
that projection exactly, for any number of covariates, where backfitting (coordinate descent) stops somewhere near it.
Exactness matters: the residuals are ranked next, and what is left of nothing would be ranked by its rounding errors.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.stability.agreement import checked_scores_matrix

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
