"""Planning of sample sizes: for intervals of RI and other metrics, comparisons of models, and repeated draws.

Plans are based on the asymptotic standard deviation sigma of a metric, which is its standard error times the square
root of the number of questions. An interval of half-width w needs ``n = (z sigma / w)^2`` questions, a coefficient of
variation v needs ``(sigma / (v estimate))^2``. Half-widths of profile intervals are within 3% of the planned ones.

Sample sizes should be planned in advance. Looking repeatedly at a 95% interval and reporting it at a time of one's
choice is not valid: with looks after every 100 of 4,300 questions, it excludes the true value at least once in 30% of
the runs. Stopping once the *width* of the interval is below a bound fixed in advance is valid, since the width is
nearly independent of the sign of the error: the interval keeps its coverage of .95. ``benchmarks/coverage/planning.py``
simulates both.

Comparison of two models:

The variance of a difference of two RIs is ``(sigma_1^2 + sigma_2^2 - 2 q sigma_1 sigma_2) / n``, where q is the
correlation of the influence functions over the questions. With the same questions q is usually positive, because models
tend to err and to refuse on the same ones, and fewer questions are needed; with different questions, n for each model,
q is 0. q can be estimated from a small pilot in which both models answer the same questions.

Power is that of the two-sided normal test of no difference, at the level of the confidence interval.

Standard deviations of metrics:

For RI, sigma is the standard deviation of its influence function, with both thresholds estimated. Every other metric is
a ratio of two means over the questions, ``sum(p a) / sum(p b)``, and sigma is the standard deviation of the linearised
ratio, ``(a - ratio * b) / sum(p b)``.

Optimal split of a budget between questions and repeated draws, for corrected RI:

The corrected correlation is ``rho = c / sqrt(a b)``, where c is the tetrachoric correlation of refusal and error in
different draws, and a and b are the reliabilities, the tetrachoric correlations of two draws of the refusal and of the
error. All three are observed for m questions that are drawn twice; for all n, only the cell of a single draw. To first
order, the change of rho is

    dc / sqrt(a b) - rho (da / (2 a) + db / (2 b)),

which is a sum of influence over the questions. If the m questions are weighted by post-stratification to the cells of
all n, its variance is the variance between cells divided by n plus the variance within cells divided by m. The
probabilities of the patterns of two draws of refusal and error and of a first-pass answer, under the probit model, are
computed by quadrature.

A question drawn once needs ``1 + r`` requests: its first pass, and a forced answer if refused. A question drawn twice
needs four, two of each: ``3 - r`` more.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from refusal_index.stats.arguments import FloatArray, checked_matrices
from refusal_index.stats.baseline import (
    EMPTY_DENOMINATORS,
    Payoffs,
    checked_p,
    checked_range,
    iso_refusal_index,
    ratio_weights,
    rho_from_refusal_index,
)
from refusal_index.stats.comparison import checked_metric, influence_function
from refusal_index.stats.contingency import ContingencyTable, empty_margin
from refusal_index.stats.estimate import SizePlan, Status
from refusal_index.stats.estimator import density, upper_orthant
from refusal_index.stats.intervals import normal_quantile, proportion_influence, refusal_index, spearman_slope

# The rounding error of a cell, which is a difference of two probabilities, is about 1e-16.
RESOLVED_CELL = 1e-14


@dataclass(frozen=True, slots=True)
class PlanningScenario:
    """Expected results of a run, from a pilot, a published table or a guess.

    Parameters
    ----------
    refusal_rate, error_rate : float
        Expected r and mu, in [0, 1].
    refusal_index : float or None
        Expected RI, in [-1, 1]. None if it is undefined because a rate is 0 or 1, as in a pilot.

    Raises
    ------
    ValueError
        If a value is out of range, or RI is None although both rates are strictly between 0 and 1.

    Examples
    --------
    >>> scenario = PlanningScenario(refusal_rate=0.74, error_rate=0.92, refusal_index=0.48)
    >>> [round(cell, 1) for cell in scenario.expected_cells(200)]
    [142.0, 6.0, 42.0, 10.0]
    """

    refusal_rate: float
    error_rate: float
    refusal_index: float | None

    def __post_init__(self) -> None:
        rates = checked_range("refusal_rate", self.refusal_rate, 0), checked_range("error_rate", self.error_rate, 0)
        if self.refusal_index is not None:
            checked_range("refusal_index", self.refusal_index, -1)
        elif not {0.0, 1.0} & {float(rate) for rate in rates}:
            raise ValueError(
                f"refusal_index must be a number if both rates are inside (0, 1), got None with the rates "
                f"{self.refusal_rate!r} and {self.error_rate!r}; is it the estimate of another table?"
            )

    @classmethod
    def from_table(cls, table: ContingencyTable) -> Self:
        """Return the scenario with the results of a pilot or another run; raises ValueError without questions.

        Examples
        --------
        >>> round(PlanningScenario.from_table(ContingencyTable(71, 3, 21, 5)).refusal_index, 4)
        0.4822
        """
        if not table.n:
            raise ValueError("table must hold questions to plan from, got none; were all of them unscored?")
        return cls(table.refusal_rate, table.error_rate, refusal_index(table).estimate)

    @classmethod
    def from_published(cls, correct_rate: float, refusal_rate: float, refusal_index: float) -> Self:
        """Return the scenario with published correct rate, refusal rate and RI, from which the error rate is derived.

        Examples
        --------
        >>> scenario = PlanningScenario.from_published(correct_rate=0.05, refusal_rate=0.74, refusal_index=0.48)
        >>> round(scenario.error_rate, 3)
        0.92
        """
        r = float(checked_range("refusal_rate", refusal_rate, 0))
        c = float(checked_range("correct_rate", correct_rate, 0))
        if not (r < 1 and c <= 1 - r):
            raise ValueError(
                f"refusal_rate must be below 1 and correct_rate at most 1 - refusal_rate, got {refusal_rate!r} and "
                f"{correct_rate!r}; is the correct rate one over the attempted questions only?"
            )
        error = brentq(lambda mu: float(iso_refusal_index(r, refusal_index, mu)) - c, 0.0, 1.0 - c, xtol=1e-14)
        return cls(r, float(error), refusal_index)

    @property
    def cells(self) -> tuple[float, float, float, float]:
        """Probabilities of the four cells, in the order of `ContingencyTable.counts`."""
        # If a rate is 0 or 1, the cells do not depend on rho.
        rho = rho_from_refusal_index(self.refusal_index or 0.0)
        both = float(upper_orthant(-ndtri(self.refusal_rate), -ndtri(self.error_rate), rho))
        rest = self.refusal_rate - both, self.error_rate - both, 1 - self.refusal_rate - self.error_rate + both
        # A probability of 0 can be negative by rounding.
        p10, p01, p00 = (max(cell, 0.0) for cell in rest)
        return max(both, 0.0), p10, p01, p00

    def expected_cells(self, n: int) -> tuple[float, ...]:
        """Return the expected counts of the four cells among n questions."""
        return tuple(n * cell for cell in self.cells)


def asymptotic_deviation(refusal_rate: ArrayLike, error_rate: ArrayLike, refusal_index: ArrayLike) -> FloatArray:
    """Return the asymptotic standard deviation of RI: its standard error times sqrt(n).

    Parameters
    ----------
    refusal_rate, error_rate : array_like of float
        r and mu, in [0, 1].
    refusal_index : array_like of float
        In [-1, 1]. All three arguments broadcast.

    Returns
    -------
    ndarray
        NaN if a rate is 0 or 1, or RI is -1 or +1 or so near that a cell is a rounding error.

    Raises
    ------
    ValueError
        If an argument is out of range or NaN.

    Examples
    --------
    >>> round(float(asymptotic_deviation(0.74, 0.92, 0.482169486777911724)), 8)  # 0.0595939261 * sqrt(1000)
    1.88452541
    """
    ranges = ("refusal_rate", refusal_rate, 0), ("error_rate", error_rate, 0), ("refusal_index", refusal_index, -1)
    r, mu, index = np.broadcast_arrays(*(checked_range(*bounds) for bounds in ranges))
    inside = (r > 0) & (r < 1) & (mu > 0) & (mu < 1) & (abs(index) < 1)
    # Arbitrary values where the result is not used.
    r, mu, index = (np.where(inside, values, 0.5) for values in (r, mu, index))
    rho = rho_from_refusal_index(index)
    h = -ndtri(r)
    k = -ndtri(mu)
    spread = np.sqrt((1 - rho) * (1 + rho))
    alpha = ndtr((rho * h - k) / spread)
    beta = ndtr((rho * k - h) / spread)
    p11 = upper_orthant(h, k, rho)
    cells = np.stack([p11, r - p11, mu - p11, 1 - r - mu + p11])
    scores = np.stack([1 - alpha - beta, -alpha, -beta, np.zeros_like(alpha)])
    resolved = cells.min(axis=0) > RESOLVED_CELL
    variance = np.sum(cells * (scores - np.sum(cells * scores, axis=0)) ** 2, axis=0)
    slope = density(h, k, rho) * math.pi * np.sqrt(4 - rho**2) / 6
    squares = np.divide(variance, slope**2, out=np.full(inside.shape, np.nan), where=inside & resolved)
    return np.asarray(np.sqrt(squares))[()]


def metric_moments(scenario: PlanningScenario, metric: str, weighted_score_p: float) -> tuple[float, float, str | None]:
    """Return the expected value of a metric, its asymptotic standard deviation, and the reason if it has none."""
    name = checked_metric(metric)
    payoffs = Payoffs(checked_p(weighted_score_p))
    r = scenario.refusal_rate
    mu = scenario.error_rate
    index = scenario.refusal_index
    if name == "refusal_index":
        why = empty_margin(r, 1 - r, 1 - mu, mu) or ("perfect_correlation" if abs(index or 0.0) == 1 else None)
        index = math.nan if index is None else index
        sigma = math.nan if why else float(asymptotic_deviation(r, mu, index))
        return index, sigma, why or ("perfect_correlation" if math.isnan(sigma) else None)
    holds = {"nobody_refused": r == 0, "everybody_refused": r == 1, "all_right": mu == 0, "all_wrong": mu == 1}
    why = EMPTY_DENOMINATORS.get(metric)
    if why and holds[why] and not (metric == "hallucination_rate" and r > 0):  # the denominator includes refusals
        return math.nan, math.nan, why
    cells = np.array(scenario.cells)
    (top, bottom) = np.array(ratio_weights(payoffs)[metric], float)
    value = float(cells @ top / (cells @ bottom))
    sigma = math.sqrt(cells @ (top - value * bottom) ** 2) / float(cells @ bottom)
    return value, sigma, None if sigma > 0 else "no_variance"


# Below this expected count of a cell, intervals keep their coverage, but an empty cell and a boundary estimate are
# likely.
SMALL_CELL = 5


@dataclass(frozen=True, slots=True)
class SamplePlan(SizePlan):
    """A number of questions, with the expected half-width.

    Attributes
    ----------
    n : int or None
        Questions to ask.
    half_width : float or None
        Expected half-width of the confidence interval of the metric.
    metric : str in `METRIC_NAMES`
    confidence_level : float
    status : {"ok", "boundary", "undefined"}
        ``"boundary"`` if the expected RI is -1 or +1, where it has no standard error.
    reason : str or None
        With the status ``"ok"``: ``"expected_cell_below_5"`` if the expected count of a cell is below five, so that the
        estimate may be at the boundary. At the boundary: ``"perfect_correlation"``. If undefined: the reasons of
        `RefusalIndexResult`, or ``"no_variance"`` or ``"metric_is_zero"`` for other metrics.
    scenario : PlanningScenario
    """

    metric: str
    confidence_level: float
    scenario: PlanningScenario

    @property
    def smallest_expected_cell(self) -> float | None:
        """Expected count of the smallest cell."""
        return None if self.n is None else min(self.scenario.expected_cells(self.n))

    @property
    def forced_requests(self) -> float | None:
        """Expected number of refused questions, each of which needs a forced request."""
        return None if self.n is None else self.n * self.scenario.refusal_rate

    @property
    def requests(self) -> float | None:
        """Expected number of requests for both passes."""
        return None if self.n is None else self.n * (1 + self.scenario.refusal_rate)


def questions_for_half_width(
    scenario: PlanningScenario,
    half_width: float,
    *,
    metric: str = "refusal_index",
    weighted_score_p: float = 1.0,
    confidence_level: float = 0.95,
) -> SamplePlan:
    """Return the smallest number of questions for a wanted half-width of the confidence interval.

    Parameters
    ----------
    scenario : PlanningScenario
    half_width : float
        Wanted half-width of the interval, positive.
    metric : str in `METRIC_NAMES`, default: "refusal_index"
    weighted_score_p : float, default: 1
    confidence_level : float, default: 0.95

    Returns
    -------
    SamplePlan

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> plan = questions_for_half_width(PlanningScenario(0.74, 0.92, 0.48), half_width=0.1)
    >>> plan.n, round(plan.smallest_expected_cell, 1), round(plan.forced_requests)
    (1370, 41.3, 1014)
    """
    target = checked_positive("half_width", half_width)
    quantile = normal_quantile(confidence_level)
    _, sigma, why = metric_moments(scenario, metric, weighted_score_p)
    n = None if why else math.ceil((quantile * sigma / target) ** 2)
    return _plan(scenario, n, metric, confidence_level, sigma, why)


def questions_for_cv(
    scenario: PlanningScenario,
    cv: float = 0.1,
    *,
    metric: str = "refusal_index",
    weighted_score_p: float = 1.0,
    confidence_level: float = 0.95,
) -> SamplePlan:
    """Return the smallest number of questions for a wanted coefficient of variation of a metric.

    Parameters
    ----------
    scenario : PlanningScenario
    cv : float, default: 0.1
        Wanted ratio of standard error to absolute value of the metric, positive.
    metric, weighted_score_p, confidence_level
        As for `questions_for_half_width`.

    Returns
    -------
    SamplePlan

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> scenario = PlanningScenario(0.74, 0.92, 0.48)
    >>> [questions_for_cv(scenario, metric=name).n for name in ("refusal_index", "correct_given_attempted", "f_score")]
    [1547, 1622, 1801]
    """
    target = checked_positive("cv", cv)
    value, sigma, why = metric_moments(scenario, metric, weighted_score_p)
    why = why or (None if value else "metric_is_zero")
    n = None if why else math.ceil((sigma / (target * value)) ** 2)
    return _plan(scenario, n, metric, confidence_level, sigma, why)


def expected_half_width(
    scenario: PlanningScenario,
    n: int,
    *,
    metric: str = "refusal_index",
    weighted_score_p: float = 1.0,
    confidence_level: float = 0.95,
) -> SamplePlan:
    """Return the expected half-width of the confidence interval for a number of questions.

    Parameters
    ----------
    scenario : PlanningScenario
    n : int
        Number of questions, at least one.
    metric, weighted_score_p, confidence_level
        As for `questions_for_half_width`.

    Returns
    -------
    SamplePlan

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> plan = expected_half_width(PlanningScenario(0.74, 0.92, 0.48), n=150)
    >>> round(plan.half_width, 3), plan.reason
    (0.302, 'expected_cell_below_5')
    """
    checked_questions(n)
    _, sigma, why = metric_moments(scenario, metric, weighted_score_p)
    return _plan(scenario, n, metric, confidence_level, sigma, why)


def small_cell_reason(*expected: tuple[float, ...]) -> str | None:
    """Return the reason ``"expected_cell_below_5"`` if an expected count is below `SMALL_CELL`."""
    return "expected_cell_below_5" if min(map(min, expected)) < SMALL_CELL else None


def checked_questions(n: int) -> int:
    """Return a number of questions; raises ValueError unless it is a whole number of at least 1."""
    if n < 1 or n != math.floor(n):
        raise ValueError(f"n must be a whole number of at least 1, got {n!r}; is it a rate?")
    return int(n)


def checked_positive(name: str, value: float, hint: str = "is it a whole interval, low to high?") -> float:
    """Return a number, such as a wanted precision; raises ValueError unless it is positive."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive number, got {value!r}; {hint}")
    return value


def status_of(why: str | None) -> Status:
    """Return the status of a plan with this reason."""
    if why is None:
        return "ok"
    return "boundary" if why == "perfect_correlation" else "undefined"


def _plan(
    scenario: PlanningScenario, n: int | None, metric: str, level: float, sigma: float, why: str | None
) -> SamplePlan:
    if why or n is None:
        return SamplePlan(n, None, status_of(why), why, metric, level, scenario)
    caution = small_cell_reason(scenario.expected_cells(n)) if metric == "refusal_index" else None
    half_width = normal_quantile(level) * sigma / math.sqrt(n)
    return SamplePlan(n, half_width, "ok", caution, metric, level, scenario)


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """A number of questions for each of two models, with the power of their comparison.

    Attributes
    ----------
    n : int or None
        Number of questions to ask each model.
    power : float or None
        Probability of a significant difference, in either direction.
    correlation : float
        Correlation of the influence functions over shared questions; 0 without shared questions.
    confidence_level : float
        1 minus the level of the test.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `SamplePlan`, for the first model that has one; ``"no_difference"`` if the expected RIs are equal, and
        ``"no_variance"`` if the variance of the difference is 0.
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
        """Expected difference of RI, first minus second."""
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
    """Return the smallest number of questions for a wanted power of the comparison of two models.

    Parameters
    ----------
    first, second : PlanningScenario
    power : float, default: 0.8
        Between 1 - confidence_level and 1.
    correlation : float, default: 0
        Correlation of the influence functions over shared questions, in [-1, 1]; see `influence_correlation`.
    confidence_level : float, default: 0.95

    Returns
    -------
    PowerPlan

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> models = PlanningScenario(0.5, 0.8, 0.42), PlanningScenario(0.42, 0.78, 0.30)
    >>> [questions_to_tell_apart(*models, correlation=q).n for q in (0, 0.3)]
    [2706, 1896]
    """
    quantile = normal_quantile(confidence_level)
    if not 1 - confidence_level < power < 1:
        raise ValueError(f"power must lie between {1 - confidence_level:.3g} and 1, got {power!r}; is it a percentage?")
    sigma, why = _difference_deviation(first, second, correlation)
    if why:
        return PowerPlan(None, None, correlation, confidence_level, status_of(why), why, first, second)
    shift = float(brentq(lambda shift: _power(shift, quantile) - power, 0.0, 2 * quantile + 40, xtol=1e-13))
    n = math.ceil((shift * sigma) ** 2)
    return power_to_tell_apart(first, second, n, correlation=correlation, confidence_level=confidence_level)


def questions_over_interval(plan: PowerPlan, low: float, high: float) -> tuple[int | None, int | None]:
    """Return the numbers of questions for the largest and the smallest difference in a pilot's interval.

    A number computed from the observed difference alone contains no more information than the pilot's p-value. The true
    difference may be anywhere in its interval, so the number has a range, too.

    Parameters
    ----------
    plan : PowerPlan
        Plan of `questions_to_tell_apart` at the observed difference; its variance is used for all differences.
    low, high : float
        Interval of the difference.

    Returns
    -------
    fewest, most : int or None
        Both None if `plan` has no number; `most` is None if the interval contains 0, since no number is enough for a
        difference of 0.

    Raises
    ------
    ValueError
        If the ends are in the wrong order or NaN.

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
    largest = max(abs(low), abs(high))
    smallest = min(abs(low), abs(high))
    fewest, highest = (
        None if end == 0 else math.ceil(plan.n * (plan.difference / end) ** 2) for end in (largest, smallest)
    )
    return fewest, None if low <= 0 <= high else highest


def power_to_tell_apart(
    first: PlanningScenario,
    second: PlanningScenario,
    n: int,
    *,
    correlation: float = 0.0,
    confidence_level: float = 0.95,
) -> PowerPlan:
    """Return the power of the comparison of two models for a number of questions.

    Parameters
    ----------
    first, second : PlanningScenario
    n : int
        Number of questions for each model, at least one.
    correlation, confidence_level
        As for `questions_to_tell_apart`.

    Returns
    -------
    PowerPlan

    Raises
    ------
    ValueError
        If an argument is out of range.

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
    """Return the correlation of two models' influence functions on RI, over shared questions.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (2, n)
        As for `checked_matrices`, with one row per model. Questions that are not scored for both are left out.

    Returns
    -------
    float
        In [-1, 1]; 0 without shared questions. NaN if RI of a model is undefined or at the boundary on the shared
        questions.

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
        raise ValueError(f"refused must have two rows, one per model, got {len(r)}; does it have one row per question?")
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
    """Return the asymptotic standard deviation of the difference, divided by the difference, or why there is none."""
    if not -1 <= correlation <= 1:
        raise ValueError(
            f"correlation must lie in [-1, 1], got {correlation!r}; is it from a pilot in which RI is undefined?"
        )
    index_1, sigma_1, why_1 = metric_moments(first, "refusal_index", 0.0)
    index_2, sigma_2, why_2 = metric_moments(second, "refusal_index", 0.0)
    difference = abs(index_1 - index_2)
    # The usual formula, in a form without cancellation.
    variance = (sigma_1 - sigma_2) ** 2 + 2 * (1 - correlation) * sigma_1 * sigma_2
    why = why_1 or why_2 or ("no_difference" if difference == 0 else None) or ("no_variance" if variance <= 0 else None)
    return (math.nan, why) if why else (math.sqrt(variance) / difference, None)


def _power(shift: float, quantile: float) -> float:
    """Return the power of a two-sided normal test whose statistic has mean `shift` and variance 1."""
    return float(ndtr(shift - quantile) + ndtr(-shift - quantile))


# With fewer questions drawn twice, errors of the reliabilities are too large for a first-order approximation.
MIN_REPEATS = 50
REACH = 7.0
POINTS = 161
# The optimum is flat: with a hundred candidate splits, the half-width is optimal to a fraction of a per cent.
SHARES = 100

# Patterns of refusal and forced error in two draws, and of the error of a first-pass answer.
R1, R2, W1, W2, A1 = np.indices((2, 2, 2, 2, 2)).reshape(5, 32)
# Cell of the single draw, whose answer is the forced one if it refused.
CELL = 2 * R1 + np.where(R1 == 1, W1, A1)


@dataclass(frozen=True, slots=True)
class RepeatPlan(SizePlan):
    """Numbers of questions and of repeated draws, with the expected half-width.

    Attributes
    ----------
    n, repeated : int or None
        Number of questions, and of those to be drawn twice.
    requests : float or None
        Expected number of requests for all of them, both passes.
    half_width : float or None
        Expected half-width of the interval of corrected RI.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `SamplePlan`; ``"budget_too_small"`` if not even fifty questions can be drawn twice.
    """

    repeated: int | None = None
    requests: float | None = None


def repeats_half_width(
    scenario: PlanningScenario,
    n: int,
    repeated: int,
    *,
    refusal_slope: float = 2.0,
    error_slope: float = 2.0,
    confidence_level: float = 0.95,
) -> RepeatPlan:
    """Return the expected half-width for n questions of which some are drawn twice.

    Parameters
    ----------
    scenario : PlanningScenario
        Rates of a single draw, and corrected RI.
    n, repeated : int
        Number of questions, and of those that are drawn twice (1 to n).
    refusal_slope, error_slope : float, default: 2
        As for `attenuated_refusal_index`; positive. 1 is a very random model, 6 a nearly deterministic one.
    confidence_level : float, default: 0.95

    Returns
    -------
    RepeatPlan

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    .. [1] Spearman (1904). :doi:`10.2307/1412159`

    Examples
    --------
    >>> scenario = PlanningScenario(0.4, 0.6, 0.5)
    >>> [round(repeats_half_width(scenario, 2000, m).half_width, 3) for m in (100, 300, 2000)]
    [0.219, 0.13, 0.06]
    """
    quantile = normal_quantile(confidence_level)
    slopes = _checked_slopes(refusal_slope, error_slope)
    if not 1 <= checked_questions(repeated) <= checked_questions(n):
        raise ValueError(f"repeated must be from 1 to n, {n}, got {repeated!r}")
    why = metric_moments(scenario, "refusal_index", 0.0)[2]
    if why:
        return RepeatPlan(None, None, status_of(why), why)
    return _repeats_plan(scenario, n, repeated, quantile, slopes)


def split_budget(
    scenario: PlanningScenario,
    requests: float,
    *,
    refusal_slope: float = 2.0,
    error_slope: float = 2.0,
    most_questions: int | None = None,
    confidence_level: float = 0.95,
) -> RepeatPlan:
    """Return the split of a budget between questions and repeated draws with the narrowest interval.

    Parameters
    ----------
    scenario, refusal_slope, error_slope, confidence_level
        As for `repeats_half_width`.
    requests : float
        Budget of requests, positive.
    most_questions : int, optional
        Number of available questions.

    Returns
    -------
    RepeatPlan
        Plan within the budget in expectation, with at least fifty questions drawn twice.

    Raises
    ------
    ValueError
        If an argument is out of range.

    References
    ----------
    .. [1] Spearman (1904). :doi:`10.2307/1412159`

    Examples
    --------
    >>> plan = split_budget(PlanningScenario(0.4, 0.6, 0.5), 4000)
    >>> plan.n, plan.repeated, round(plan.requests), round(plan.half_width, 3)
    (1000, 1000, 4000, 0.085)
    """
    budget = checked_positive("requests", requests)
    quantile = normal_quantile(confidence_level)
    slopes = _checked_slopes(refusal_slope, error_slope)
    limit = math.inf if most_questions is None else checked_questions(most_questions)
    why = metric_moments(scenario, "refusal_index", 0.0)[2]
    if why is None and (budget < 4 * MIN_REPEATS or limit < MIN_REPEATS):
        why = "budget_too_small"
    if why:
        return RepeatPlan(None, None, status_of(why), why)
    r = scenario.refusal_rate
    plans = []
    for repeated in np.linspace(MIN_REPEATS, min(budget / 4, limit), SHARES).astype(int).tolist():
        n = int(min((budget - repeated * (3 - r)) / (1 + r), limit))
        plans.append(_repeats_plan(scenario, max(n, repeated), repeated, quantile, slopes))
    return min(plans, key=lambda plan: plan.half_width or math.inf)


def _repeats_plan(
    scenario: PlanningScenario, n: int, repeated: int, quantile: float, slopes: tuple[float, float]
) -> RepeatPlan:
    r = scenario.refusal_rate
    between, within = _variances(r, scenario.error_rate, float(scenario.refusal_index or 0), *slopes)
    requests = n * (1 + r) + repeated * (3 - r)
    half_width = quantile * math.sqrt(between / n + within / repeated)
    return RepeatPlan(n, half_width, "ok", None, repeated, requests)


def _checked_slopes(refusal_slope: float, error_slope: float) -> tuple[float, float]:
    hint = "a constant model needs no repeated draws"
    slopes = checked_positive("refusal_slope", refusal_slope, hint), checked_positive("error_slope", error_slope, hint)
    return float(slopes[0]), float(slopes[1])


@cache
def _variances(r: float, mu: float, index: float, refusal_slope: float, error_slope: float) -> tuple[float, float]:
    """Return the variances of a question's influence on RI between and within the cells of its single draw."""
    rho = float(rho_from_refusal_index(index))
    h = -float(ndtri(r))
    k = -float(ndtri(mu))
    squares = [slope**2 / (1 + slope**2) for slope in (refusal_slope, error_slope)]
    # Probabilities of the patterns, by quadrature over the question effects on refusal and error. On an even grid, the
    # error for such integrands decreases faster than any power of the step.
    x = np.linspace(-REACH, REACH, POINTS)
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
    patterns = np.einsum("x,xa,xb,xcde->abcde", normal, refusals, refusals, all_errors, optimize=True).ravel()
    attenuation = math.sqrt(squares[0] * squares[1])
    cross = (_influence(R1, W2, h, k, rho * attenuation) + _influence(R2, W1, h, k, rho * attenuation)) / 2
    reliabilities = (
        _influence(R1, R2, h, h, squares[0]) / squares[0] + _influence(W1, W2, k, k, squares[1]) / squares[1]
    )
    influence = cross / attenuation - rho * reliabilities / 2
    shares = np.bincount(CELL, patterns)
    sums = np.bincount(CELL, patterns * influence)
    between = float(np.sum(sums**2 / shares))
    scale = spearman_slope(rho) ** 2
    return scale * between, scale * (float(patterns @ influence**2) - between)


def _influence(first: np.ndarray, second: np.ndarray, h: float, k: float, rho: float) -> FloatArray:
    """Return the influence of each pattern on the tetrachoric correlation of two of its draws."""
    r = float(ndtr(-h))
    mu = float(ndtr(-k))
    both = float(upper_orthant(h, k, rho))
    return np.asarray(np.array(proportion_influence(both, r, mu, rho))[3 - 2 * first - second])
