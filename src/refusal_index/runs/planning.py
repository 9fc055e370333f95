"""How many questions are needed, from Python and for the command."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.findings.planning import (
    PlanOptions,
    RunPlan,
    SampleSizes,
    plan_apart,
    plan_corrected,
    plan_scenario,
    scenarios_of,
    slopes_shown,
)
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.tallies import RunSource
from refusal_index.models.settings import SettingError
from refusal_index.runs.gate import compared_runs
from refusal_index.stats import PlanningScenario


def plan(
    pilot: RunSource | Sequence[RunSource] = (),
    *,
    refusal_rate: float | None = None,
    error_rate: float | None = None,
    refusal_index: float | None = None,
    half_width: float | None = None,
    questions: int | None = None,
    difference: float | None = None,
    power: float = 0.8,
    budget_requests: float | None = None,
    budget_cost: float | None = None,
    request_cost: float | None = None,
    refusal_slope: float | None = None,
    error_slope: float | None = None,
    corrected: bool = False,
    variant: str | None = None,
    **options: Any,
) -> SampleSizes:
    """Estimate how many questions are needed, as ``refusal-index plan`` does.

    Parameters
    ----------
    pilot
        A run to plan from: `RunResults`, a folder or an outcome table. A list of two plans a comparison of them, from
        their observed difference and correlation.
    refusal_rate, error_rate, refusal_index
        Without a pilot: the expected refusal rate, share wrong when every question must be answered, and RI.
    half_width
        Half-width of the interval to plan for; by default several.
    questions
        A number of questions, of which the precision is wanted instead.
    difference, power
        The smallest difference in RI between two models to detect, and the probability of detecting it.
    budget_requests, budget_cost, request_cost
        Requests to spend on the narrowest interval; or an amount of money, and the cost of a request with its grading.
    corrected, refusal_slope, error_slope
        Whether to plan for corrected RI, from questions sampled twice; and how constant the model is, as for
        `refusal_index.stats.split_budget`, by default as the pilot's repeated samples show.
    variant
        The prompt of the pilot to plan from; by default each of them.
    options
        Fields of `refusal_index.data.analysis.Analysis`, such as ``confidence_level``.

    Returns
    -------
    SampleSizes
        With ``questions``, the number needed, and ``plans`` by prompt.

    Raises
    ------
    RefusalIndexError
        If a run cannot be read, or the arguments do not go together.

    Examples
    --------
    >>> plan(refusal_rate=0.5, error_rate=0.7, refusal_index=0.4, half_width=0.1).questions
    773
    """
    slopes = (refusal_slope, error_slope)
    analysis = Analysis.of_options(options)
    budget = _budget(budget_requests, budget_cost, request_cost)
    chosen = PlanOptions(half_width, questions, difference, power, analysis, budget, request_cost, *slopes)
    _check(chosen, corrected=corrected)
    rates = (refusal_rate, error_rate, refusal_index)
    runs = _pilots(pilot, chosen)
    if runs and rates != (None, None, None):
        raise SettingError("plan: expected a pilot or expected rates, got both; leave out one of them")
    if variant is not None and not runs:
        raise SettingError("{variant}: expected a run with prompts, got expected rates; leave it out")
    if corrected and (difference is not None or len(runs) > 1):
        raise SettingError(
            "{corrected}: plans for one model, not for a difference between two; leave it out to plan for a "
            "difference in RI"
        )
    if len(runs) == 2:
        return SampleSizes(chosen, runs, pairs=plan_apart(runs, variant, chosen))
    scenarios = scenarios_of(runs[0], variant) if runs else {"expected": _expected(*rates)}
    plans: Mapping[str, RunPlan] = {name: plan_scenario(scenario, chosen) for name, scenario in scenarios.items()}
    if corrected:
        if runs and runs[0].is_deterministic:
            raise SettingError(
                "{corrected}: the run was sampled at temperature 0, where corrected RI equals RI; leave it out"
            )
        shown = slopes_shown(runs[0], variant) if runs else {}
        plans = {
            name: plan_corrected(scenario, chosen, shown.get(name), from_run=bool(runs))
            for name, scenario in scenarios.items()
        }
    return SampleSizes(chosen, runs, plans)


def _budget(requests: float | None, cost: float | None, request_cost: float | None) -> float | None:
    """Return the budget in requests, if there is one."""
    for name, value in (("budget_requests", requests), ("budget_cost", cost), ("request_cost", request_cost)):
        if value is not None and not 0 < value < math.inf:
            raise SettingError(f"{{{name}}}: expected a number above 0, got {value:g}")
    if cost is None:
        return requests
    if requests is not None:
        raise SettingError("plan: expected {budget_requests} or {budget_cost} with {request_cost}, got both")
    if request_cost is None:
        raise SettingError("plan: {budget_cost} needs {request_cost}; 'refusal-index run --dry-run' estimates the cost")
    return cost / request_cost


def _pilots(pilot: RunSource | Sequence[RunSource], options: PlanOptions) -> tuple[RunResults, ...]:
    runs = compared_runs(pilot, DEFAULT_ANALYSIS)
    if len(runs) > 2:
        raise SettingError(f"plan: expected one or two models, got {len(runs)}; name the runs of two at most")
    if len(runs) == 2 and (options.half_width, options.difference, options.budget) != (None, None, None):
        raise SettingError(
            "plan: two runs are planned for by the difference between them; leave out {half_width}, {difference} and "
            "budgets, or name one run only"
        )
    return runs


def _expected(refusal_rate: float | None, error_rate: float | None, refusal_index: float | None) -> PlanningScenario:
    if refusal_rate is None or error_rate is None or refusal_index is None:
        raise SettingError(
            "plan: expected a run to plan from, or {refusal_rate}, {error_rate} and {refusal_index} together, for "
            "instance .5, .7 and .4"
        )
    try:
        return PlanningScenario(refusal_rate, error_rate, refusal_index)
    except ValueError as error:
        raise SettingError(str(error)) from error


def _check(options: PlanOptions, *, corrected: bool) -> None:
    """Check the options before anything is read."""
    for name, value in (("half_width", options.half_width), ("difference", options.difference)):
        if value is not None and not 0 < value < 2:
            raise SettingError(f"{{{name}}}: expected a number above 0 and below 2, got {value}")
    for name, slope in (("refusal_slope", options.refusal_slope), ("error_slope", options.error_slope)):
        if slope is not None and not corrected:
            raise SettingError(
                "{refusal_slope}, {error_slope}: require {corrected}, which is missing; add it, or leave them out"
            )
        if slope is not None and not 0 < slope < math.inf:
            raise SettingError(
                f"{{{name}}}: expected a number above 0, got {slope:g}; to plan for a model without randomness, leave "
                "out {corrected}"
            )
    if options.half_width is not None and options.questions is not None:
        raise SettingError("plan: expected {half_width} or {questions}, got both; leave out one of them")
    error = 1 - options.analysis.confidence_level
    if options.power <= error:
        raise SettingError(
            f"{{power}}: expected more than {error:g}, the chance of a false difference, got {options.power:g}"
        )
