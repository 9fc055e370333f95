"""How many questions it takes to tell two models apart by their Refusal Index.

The difference of two indices has the variance ``(sigma_1^2 + sigma_2^2 - 2 q sigma_1 sigma_2) / n``, with q the
correlation of the two influence functions over the questions. Models that are asked the same questions err and refuse
on the same ones in part, which makes q positive and saves questions; for models asked different questions, n each,
q is 0. A small pilot in which both answer the same questions gives q.

The power is that of the two-sided normal test of no difference, at the level of the confidence interval.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr

from refusal_index.stats.estimate import Status
from refusal_index.stats.influence import influence_function
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.matrices import checked_matrices
from refusal_index.stats.planning.sample_size import checked_questions, small_cell_reason, status_of
from refusal_index.stats.planning.scenario import PlanningScenario, metric_moments


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """A number of questions for each of two models, and how likely it tells them apart.

    Attributes
    ----------
    n : int or None
        Questions to ask each model.
    power : float or None
        Probability that the difference is significant, in either direction.
    correlation : float
        Correlation of the influence functions over shared questions; 0 where the models share none.
    confidence_level : float
        1 less the level of the test.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `SamplePlan`, of the first model that has one; ``"no_difference"`` where the indices are expected to be
        the same, and ``"no_variance"`` where the estimates would not differ by chance.
    first, second : PlanningScenario
    """

    n: int | None
    power: float | None
    correlation: float
    confidence_level: float
    status: Status
    reason: str | None
    first: PlanningScenario
    second: PlanningScenario

    @property
    def difference(self) -> float | None:
        """Expected index of the first model less that of the second."""
        indices = self.first.refusal_index, self.second.refusal_index
        return None if indices[0] is None or indices[1] is None else indices[0] - indices[1]


def questions_to_tell_apart(
    first: PlanningScenario,
    second: PlanningScenario,
    *,
    power: float = 0.8,
    correlation: float = 0.0,
    confidence_level: float = 0.95,
) -> PowerPlan:
    """Smallest number of questions at which two models are told apart with the wanted probability.

    Parameters
    ----------
    first, second : PlanningScenario
    power : float, default: 0.8
        Between 1 - confidence_level and 1.
    correlation : float, default: 0
        Of the influence functions over shared questions, in [-1, 1]: see `influence_correlation`.
    confidence_level : float, default: 0.95

    Returns
    -------
    PowerPlan

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Examples
    --------
    >>> models = PlanningScenario(0.5, 0.8, 0.42), PlanningScenario(0.42, 0.78, 0.30)
    >>> [questions_to_tell_apart(*models, correlation=q).n for q in (0, 0.3)]
    [2706, 1896]
    """
    quantile = normal_quantile(confidence_level)
    if not 1 - confidence_level < power < 1:
        raise ValueError(f"power must lie between {1 - confidence_level:.3g} and 1, got {power!r}; is it in per cent?")
    sigma, why = _difference_deviation(first, second, correlation)
    if why:
        return PowerPlan(None, None, correlation, confidence_level, status_of(why), why, first, second)
    shift = float(brentq(lambda shift: _power(shift, quantile) - power, 0.0, 2 * quantile + 40, xtol=1e-13))
    n = math.ceil((shift * sigma) ** 2)
    return power_to_tell_apart(first, second, n, correlation=correlation, confidence_level=confidence_level)


def questions_over_interval(plan: PowerPlan, low: float, high: float) -> tuple[int | None, int | None]:
    """Numbers of questions over the interval of a pilot's difference: for its largest difference, and its smallest.

    A number that rests on the observed difference alone says no more than the pilot's own p-value did. The difference
    may be any in its interval, and so may the number.

    Parameters
    ----------
    plan : PowerPlan
        Of `questions_to_tell_apart`, at the observed difference; its variance is kept.
    low, high : float
        Interval of the difference.

    Returns
    -------
    fewest, most : int or None
        Both None without a plan; `most` None where the interval holds 0, of which no number can tell a difference.

    Raises
    ------
    ValueError
        If the ends are in the wrong order or not numbers.

    References
    ----------
    .. [1] Hoenig, J. M. and Heisey, D. M. (2001). The abuse of power. The American Statistician, 55, 19-24.
       :doi:`10.1198/000313001300339897`

    Examples
    --------
    >>> plan = questions_to_tell_apart(PlanningScenario(0.5, 0.8, 0.42), PlanningScenario(0.42, 0.78, 0.30))
    >>> plan.n, questions_over_interval(plan, 0.05, 0.2), questions_over_interval(plan, -0.05, 0.2)
    (2706, (975, 15587), (975, None))
    """
    if not low <= high:
        raise ValueError(f"low and high must be the ends of an interval, got {low!r} and {high!r}; are they swapped?")
    if plan.n is None or not plan.difference:
        return None, None
    largest, smallest = max(abs(low), abs(high)), min(abs(low), abs(high))
    counts = (None if end == 0 else math.ceil(plan.n * (plan.difference / end) ** 2) for end in (largest, smallest))
    fewest, most = counts
    return fewest, None if low <= 0 <= high else most


def power_to_tell_apart(
    first: PlanningScenario,
    second: PlanningScenario,
    n: int,
    *,
    correlation: float = 0.0,
    confidence_level: float = 0.95,
) -> PowerPlan:
    """Probability of telling two models apart with a number of questions.

    Parameters
    ----------
    first, second : PlanningScenario
    n : int
        Questions for each model, at least one.
    correlation, confidence_level
        As for `questions_to_tell_apart`.

    Returns
    -------
    PowerPlan

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Examples
    --------
    >>> plan = power_to_tell_apart(PlanningScenario(0.5, 0.8, 0.42), PlanningScenario(0.42, 0.78, 0.30), n=1000)
    >>> round(plan.power, 3)
    0.399
    """
    checked_questions(n)
    quantile = normal_quantile(confidence_level)
    sigma, why = _difference_deviation(first, second, correlation)
    if why:
        return PowerPlan(n, None, correlation, confidence_level, status_of(why), why, first, second)
    caution = small_cell_reason(first.expected_cells(n), second.expected_cells(n))
    power = _power(math.sqrt(n) / sigma, quantile)
    return PowerPlan(n, power, correlation, confidence_level, "ok", caution, first, second)


def influence_correlation(refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None) -> float:
    """Correlation of two models' influence functions on the Refusal Index, over the questions they share.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (2, n)
        As for `checked_matrices`, one row a model. Questions that are not scored for both are left out.

    Returns
    -------
    float
        In [-1, 1]; 0 where no question is shared. NaN where the index of a model is undefined or at the boundary on the
        shared questions.

    Raises
    ------
    TypeError, ValueError
        If the matrices are invalid, or there are not exactly two rows.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> difficulty = rng.normal(size=500)
    >>> refused, wrong = (difficulty + rng.normal(size=(2, 500)) > 0 for _ in range(2))
    >>> round(influence_correlation(refused, wrong), 2)
    0.14
    """
    r, w, s = checked_matrices(refused, wrong, scored)
    if len(r) != 2:
        raise ValueError(f"refused must have two rows, one a model, got {len(r)}; is it one row a question?")
    shared = s.all(axis=0)
    if not shared.any():
        return 0.0
    influence = [influence_function(r[row, shared], w[row, shared]) for row in (0, 1)]
    if np.isnan(influence).any():
        return math.nan
    return float(np.asarray(np.corrcoef(influence))[0, 1])


def _difference_deviation(
    first: PlanningScenario, second: PlanningScenario, correlation: float
) -> tuple[float, str | None]:
    """Asymptotic standard deviation of the difference over the size of the difference, or why there is none."""
    if not -1 <= correlation <= 1:
        raise ValueError(
            f"correlation must lie in [-1, 1], got {correlation!r}; was it taken of a pilot whose index is undefined?"
        )
    index_1, sigma_1, why_1 = metric_moments(first, "refusal_index", 0.0)
    index_2, sigma_2, why_2 = metric_moments(second, "refusal_index", 0.0)
    difference = abs(index_1 - index_2)
    # The usual formula, in a form that does not cancel.
    variance = (sigma_1 - sigma_2) ** 2 + 2 * (1 - correlation) * sigma_1 * sigma_2
    why = why_1 or why_2 or ("no_difference" if difference == 0 else None) or ("no_variance" if variance <= 0 else None)
    return (math.nan, why) if why else (math.sqrt(variance) / difference, None)


def _power(shift: float, quantile: float) -> float:
    """Power of a two-sided normal test whose statistic has the mean `shift` and the variance 1."""
    return float(ndtr(shift - quantile) + ndtr(-shift - quantile))
