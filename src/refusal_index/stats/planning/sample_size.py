"""How many questions a Refusal Index needs, and how many the metrics it is compared with.

Everything follows from one number a metric: its asymptotic standard deviation sigma, the standard error times the root
of the number of questions. An interval of half-width w takes ``n = (z sigma / w)^2`` questions, a coefficient of
variation v takes ``(sigma / (v estimate))^2``. Profile intervals come out within 3 % of the planned half-width.

Plan first, then ask. To watch a fixed 95 % interval as questions come in, and to report it at a moment of one's choice,
is another procedure: looked at after every 100 of 4,300 questions, it leaves the truth out at least once in 30 % of the
runs. To stop once the interval is no wider than a *width* fixed beforehand is harmless, since the width says next to
nothing about which way the estimate errs: the interval at the stop keeps its .95. ``benchmarks/coverage/planning.py``
simulates both.
"""

import math
from dataclasses import dataclass

from refusal_index.stats.estimate import Status
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.planning.scenario import PlanningScenario, metric_moments

# Below this expectation of a cell, intervals keep their coverage, but an empty cell and a boundary estimate are likely.
SMALL_CELL = 5


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """A number of questions, and what it buys.

    Attributes
    ----------
    n : int or None
        Questions to ask.
    half_width : float or None
        Expected half-width of the confidence interval of the metric.
    metric : str in `METRIC_NAMES`
    confidence_level : float
    status : {"ok", "boundary", "undefined"}
        ``"boundary"`` where the expected index is -1 or +1: it has no standard error there.
    reason : str or None
        With the status ``"ok"`` ``"expected_cell_below_5"``, if a cell is expected to hold fewer than five questions:
        the estimate may then be a boundary one. ``"perfect_correlation"`` at the boundary. Where undefined the reasons
        of `RefusalIndexResult`, or ``"no_variance"`` or ``"metric_is_zero"`` of another metric.
    scenario : PlanningScenario
    """

    n: int | None
    half_width: float | None
    metric: str
    confidence_level: float
    status: Status
    reason: str | None
    scenario: PlanningScenario

    @property
    def smallest_expected_cell(self) -> float | None:
        """Questions to be expected in the emptiest of the four cells."""
        return None if self.n is None else min(self.scenario.expected_cells(self.n))

    @property
    def forced_requests(self) -> float | None:
        """Refused questions to be expected, each of which takes a second, forced request."""
        return None if self.n is None else self.n * self.scenario.refusal_rate


def questions_for_half_width(
    scenario: PlanningScenario,
    half_width: float,
    *,
    metric: str = "refusal_index",
    penalty: float = 1.0,
    confidence_level: float = 0.95,
) -> SamplePlan:
    """Smallest number of questions whose confidence interval is expected to be no wider than wanted.

    Parameters
    ----------
    scenario : PlanningScenario
    half_width : float
        Wanted half-width of the interval, positive.
    metric : str in `METRIC_NAMES`, default: "refusal_index"
    penalty : float, default: 1
    confidence_level : float, default: 0.95

    Returns
    -------
    SamplePlan

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Examples
    --------
    >>> plan = questions_for_half_width(PlanningScenario(0.74, 0.92, 0.48), half_width=0.1)
    >>> plan.n, round(plan.smallest_expected_cell, 1), round(plan.forced_requests)
    (1370, 41.3, 1014)
    """
    wanted = checked_positive("half_width", half_width)
    quantile = normal_quantile(confidence_level)
    _, sigma, why = metric_moments(scenario, metric, penalty)
    n = None if why else math.ceil((quantile * sigma / wanted) ** 2)
    return _plan(scenario, n, metric, confidence_level, sigma, why)


def questions_for_cv(
    scenario: PlanningScenario,
    cv: float = 0.1,
    *,
    metric: str = "refusal_index",
    penalty: float = 1.0,
    confidence_level: float = 0.95,
) -> SamplePlan:
    """Smallest number of questions at which a metric's coefficient of variation is no larger than wanted.

    Parameters
    ----------
    scenario : PlanningScenario
    cv : float, default: 0.1
        Wanted standard error over the absolute value of the metric, positive.
    metric, penalty, confidence_level
        As for `questions_for_half_width`.

    Returns
    -------
    SamplePlan

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Examples
    --------
    >>> scenario = PlanningScenario(0.74, 0.92, 0.48)
    >>> [questions_for_cv(scenario, metric=name).n for name in ("refusal_index", "correct_given_attempted", "f_score")]
    [1547, 1622, 1801]
    """
    wanted = checked_positive("cv", cv)
    value, sigma, why = metric_moments(scenario, metric, penalty)
    why = why or (None if value else "metric_is_zero")
    n = None if why else math.ceil((sigma / (wanted * value)) ** 2)
    return _plan(scenario, n, metric, confidence_level, sigma, why)


def expected_half_width(
    scenario: PlanningScenario,
    n: int,
    *,
    metric: str = "refusal_index",
    penalty: float = 1.0,
    confidence_level: float = 0.95,
) -> SamplePlan:
    """Half-width of the confidence interval to be expected from a number of questions.

    Parameters
    ----------
    scenario : PlanningScenario
    n : int
        Questions, at least one.
    metric, penalty, confidence_level
        As for `questions_for_half_width`.

    Returns
    -------
    SamplePlan

    Raises
    ------
    ValueError
        If an argument lies outside its range.

    Examples
    --------
    >>> plan = expected_half_width(PlanningScenario(0.74, 0.92, 0.48), n=150)
    >>> round(plan.half_width, 3), plan.reason
    (0.302, 'expected_cell_below_5')
    """
    checked_questions(n)
    _, sigma, why = metric_moments(scenario, metric, penalty)
    return _plan(scenario, n, metric, confidence_level, sigma, why)


def small_cell_reason(*expected: tuple[float, ...]) -> str | None:
    """Return the caution for a Refusal Index whose cells are expected to hold so many questions."""
    return "expected_cell_below_5" if min(map(min, expected)) < SMALL_CELL else None


def checked_questions(n: int) -> int:
    """Check a number of questions, and return it."""
    if n < 1 or n != math.floor(n):
        raise ValueError(f"n must be a whole number of at least 1, got {n!r}; is it a rate?")
    return int(n)


def checked_positive(name: str, value: float) -> float:
    """Check that a wanted precision is a positive number, and return it."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive number, got {value!r}; is it a whole interval, low to high?")
    return value


def status_of(why: str | None) -> Status:
    """Return the status that a reason without a plan stands for."""
    if why is None:
        return "ok"
    return "boundary" if why == "perfect_correlation" else "undefined"


def _plan(
    scenario: PlanningScenario, n: int | None, metric: str, level: float, sigma: float, why: str | None
) -> SamplePlan:
    if why or n is None:
        return SamplePlan(n, None, metric, level, status_of(why), why, scenario)
    caution = small_cell_reason(scenario.expected_cells(n)) if metric == "refusal_index" else None
    half_width = normal_quantile(level) * sigma / math.sqrt(n)
    return SamplePlan(n, half_width, metric, level, "ok", caution, scenario)
