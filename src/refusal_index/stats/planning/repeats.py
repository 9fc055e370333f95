r"""Repeated draws against more questions: how a budget is best split for the corrected index.

The corrected index has the correlation ``rho = c / sqrt(a b)``: c of one draw's refusal and another answer,
a and b the reliabilities, the tetrachoric correlations of two draws of the refusal and of the error. Of m
questions that are drawn twice all three are seen; of n, the cell of a single draw. To first order rho moves by

    dc / sqrt(a b) - rho (da / (2 a) + db / (2 b)),

a sum over the questions by the influence function of each term. With the m questions weighted to stand for the cells of
all n, its variance is what lies between the cells over n, and what lies within them over m. The probabilities of the
patterns of two draws of both and of an answer of the first pass, under the probit model, come by quadrature.

A question drawn once takes ``1 + r`` requests, its first pass and a forced answer where it was refused. One drawn twice
takes four, two of each: ``3 - r`` more.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.curves.closed_forms import rho_from_refusal_index
from refusal_index.stats.estimate import Status
from refusal_index.stats.estimator import density, upper_orthant
from refusal_index.stats.influence import spearman_slope
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.planning.sample_size import (
    PlanningScenario,
    checked_positive,
    checked_questions,
    metric_moments,
    status_of,
)

# Fewer questions drawn twice would not give reliabilities whose errors are small enough for a first order.
FEWEST_REPEATS = 50
REACH, POINTS = 7.0, 161
# The best split is flat: a hundred shares of the budget find it to a fraction of a per cent in the half-width.
SHARES = 100

# The patterns of refusals and forced errors in two draws, and of the error of a first pass that answers.
R1, R2, W1, W2, A1 = np.indices((2, 2, 2, 2, 2)).reshape(5, 32)
# The cell of the single draw: its answer is a forced one where it refused.
CELL = 2 * R1 + np.where(R1 == 1, W1, A1)


@dataclass(frozen=True, slots=True)
class RepeatPlan:
    """Questions, how many of them to draw twice, and what that buys.

    Attributes
    ----------
    n, repeated : int or None
        Questions, and those of them to be drawn twice.
    requests : float or None
        To be expected for all of them, both passes.
    half_width : float or None
        Expected half-width of the interval of the corrected index.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `SamplePlan`; ``"budget_too_small"`` where not even fifty questions can be drawn twice.
    """

    n: int | None
    repeated: int | None
    requests: float | None
    half_width: float | None
    status: Status
    reason: str | None


def repeats_half_width(
    scenario: PlanningScenario,
    n: int,
    repeated: int,
    *,
    refusal_slope: float = 2.0,
    error_slope: float = 2.0,
    confidence_level: float = 0.95,
) -> RepeatPlan:
    """Half-width to be expected of n questions of which some are drawn twice.

    Parameters
    ----------
    scenario : PlanningScenario
        Rates of a single draw, and the corrected index.
    n, repeated : int
        Questions, and those of them that are drawn twice; at least one, and no more than n.
    refusal_slope, error_slope : float, default: 2
        As for `attenuated_refusal_index`: positive; 1 is a very random model, 6 a nearly constant one.
    confidence_level : float, default: 0.95

    Returns
    -------
    RepeatPlan

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    References
    ----------
    .. [1] Spearman (1904). :doi:`10.2307/1412159`

    Examples
    --------
    >>> scenario = PlanningScenario(0.4, 0.6, 0.5)
    >>> [round(repeats_half_width(scenario, 2000, m).half_width, 3) for m in (100, 300, 2000)]
    [0.219, 0.13, 0.06]
    """
    quantile, slopes = normal_quantile(confidence_level), _checked_slopes(refusal_slope, error_slope)
    if not 1 <= checked_questions(repeated) <= checked_questions(n):
        raise ValueError(f"repeated must be from 1 to n, {n}, got {repeated!r}")
    why = metric_moments(scenario, "refusal_index", 0.0)[2]
    if why:
        return RepeatPlan(None, None, None, None, status_of(why), why)
    variances = _variances(scenario.refusal_rate, scenario.error_rate, float(scenario.refusal_index or 0), *slopes)
    return _plan(scenario, n, repeated, quantile, variances)


def split_budget(
    scenario: PlanningScenario,
    requests: float,
    *,
    refusal_slope: float = 2.0,
    error_slope: float = 2.0,
    most_questions: int | None = None,
    confidence_level: float = 0.95,
) -> RepeatPlan:
    """Split a budget of requests between questions and repeated draws for the narrowest interval.

    Parameters
    ----------
    scenario, refusal_slope, error_slope, confidence_level
        As for `repeats_half_width`.
    requests : float
        To be spent, positive.
    most_questions : int, optional
        As many as there are.

    Returns
    -------
    RepeatPlan
        Within the budget in expectation, with at least fifty questions drawn twice.

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    References
    ----------
    .. [1] Spearman (1904). :doi:`10.2307/1412159`

    Examples
    --------
    >>> plan = split_budget(PlanningScenario(0.4, 0.6, 0.5), 4000)
    >>> plan.n, plan.repeated, round(plan.requests), round(plan.half_width, 3)
    (1000, 1000, 4000, 0.085)
    """
    budget, quantile = checked_positive("requests", requests), normal_quantile(confidence_level)
    slopes = _checked_slopes(refusal_slope, error_slope)
    limit = math.inf if most_questions is None else checked_questions(most_questions)
    why = metric_moments(scenario, "refusal_index", 0.0)[2]
    if why is None and (budget < 4 * FEWEST_REPEATS or limit < FEWEST_REPEATS):
        return RepeatPlan(None, None, None, None, "undefined", "budget_too_small")
    if why:
        return RepeatPlan(None, None, None, None, status_of(why), why)
    r = scenario.refusal_rate
    variances = _variances(r, scenario.error_rate, float(scenario.refusal_index or 0), *slopes)
    plans = []
    for repeated in np.linspace(FEWEST_REPEATS, min(budget / 4, limit), SHARES).astype(int).tolist():
        n = int(min((budget - repeated * (3 - r)) / (1 + r), limit))
        plans.append(_plan(scenario, max(n, repeated), repeated, quantile, variances))
    return min(plans, key=lambda plan: plan.half_width or math.inf)


def _plan(
    scenario: PlanningScenario, n: int, repeated: int, quantile: float, variances: tuple[float, float]
) -> RepeatPlan:
    between, within = variances
    total = between / n + within / repeated
    requests = n * (1 + scenario.refusal_rate) + repeated * (3 - scenario.refusal_rate)
    return RepeatPlan(n, repeated, requests, quantile * math.sqrt(total), "ok", None)


def _checked_slopes(refusal_slope: float, error_slope: float) -> tuple[float, float]:
    for name, slope in (("refusal_slope", refusal_slope), ("error_slope", error_slope)):
        if not 0 < slope < math.inf:
            raise ValueError(
                f"{name} must be a positive number, got {slope!r}; a constant model needs no repeated draws"
            )
    return float(refusal_slope), float(error_slope)


@cache
def _variances(r: float, mu: float, index: float, refusal_slope: float, error_slope: float) -> tuple[float, float]:
    """Variances of a question's influence in units of the index: between the cells of its single draw, and within."""
    rho, h, k = float(rho_from_refusal_index(index)), -float(ndtri(r)), -float(ndtri(mu))
    squares = [slope**2 / (1 + slope**2) for slope in (refusal_slope, error_slope)]
    patterns = _patterns(h, k, rho, squares)
    attenuation = math.sqrt(squares[0] * squares[1])
    cross = (_influence(R1, W2, h, k, rho * attenuation) + _influence(R2, W1, h, k, rho * attenuation)) / 2
    reliabilities = (
        _influence(R1, R2, h, h, squares[0]) / squares[0] + _influence(W1, W2, k, k, squares[1]) / squares[1]
    )
    influence = cross / attenuation - rho * reliabilities / 2
    shares, sums = np.bincount(CELL, patterns), np.bincount(CELL, patterns * influence)
    between = float(np.sum(sums**2 / shares))
    scale = spearman_slope(rho) ** 2
    return scale * between, scale * (float(patterns @ influence**2) - between)


def _patterns(h: float, k: float, rho: float, squares: list[float]) -> FloatArray:
    """Probabilities of the patterns, by quadrature over what a question does to refusal and to error."""
    x = np.linspace(-REACH, REACH, POINTS)
    # An even grid, whose error falls faster than any power for such integrands.
    normal = np.exp(-0.5 * x**2)
    normal /= normal.sum()
    y = rho * x[:, np.newaxis] + math.sqrt(1 - rho**2) * x
    refuse, err = (
        ndtr((math.sqrt(square) * latent - threshold) / math.sqrt(1 - square))
        for square, latent, threshold in zip(squares, (x, y), (h, k), strict=True)
    )
    errors = np.stack([1 - err, err], axis=-1)
    # All draws of the error, then of the refusal, given the question.
    all_errors = np.einsum("y,xya,xyb,xyc->xabc", normal, errors, errors, errors, optimize=True)
    refusals = np.stack([1 - refuse, refuse], axis=-1)
    return np.asarray(np.einsum("x,xa,xb,xcde->abcde", normal, refusals, refusals, all_errors, optimize=True)).ravel()


def _influence(first: np.ndarray, second: np.ndarray, h: float, k: float, rho: float) -> FloatArray:
    """Influence of each pattern on the tetrachoric correlation of two of its draws."""
    spread = math.sqrt((1 - rho) * (1 + rho))
    alpha, beta = float(ndtr((rho * h - k) / spread)), float(ndtr((rho * k - h) / spread))
    centre = float(upper_orthant(h, k, rho)) - alpha * float(ndtr(-h)) - beta * float(ndtr(-k))
    return np.asarray((first * second - alpha * first - beta * second - centre) / float(density(h, k, rho)))
