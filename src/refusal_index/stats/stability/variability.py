"""How much a metric moves when a prompt makes the same model more or less cautious."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.arguments import unmasked
from refusal_index.stats.estimate import Status

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
