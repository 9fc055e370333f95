"""Sample size planning from expected rates, or from runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from refusal_index import stats
from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.rates import contingency_table, draw_matrix, first_draws, never_forced
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.draws import corrected_indices
from refusal_index.findings.matching import chosen_variant, matched_variants
from refusal_index.findings.metrics import Printable, Statement
from refusal_index.findings.run_results import RunResults
from refusal_index.stats.contingency import row_tables

HALF_WIDTHS = (0.2, 0.15, 0.1, 0.05)
USUAL_HALF_WIDTH = 0.1
"""Half-width to plan for if neither a half-width nor a number of questions is given."""
SIZES = (200, 500, 1000, 2000, 4326)
# Of models asked at a temperature of 1, as a rule; beyond the second a single response tells all there is.
TYPICAL_SLOPE = 2.0
MAX_CONSTANT = 20.0


@dataclass(frozen=True)
class PlanOptions:
    """What to plan for."""

    # half_width, questions: wanted half-width of the interval, or number of questions; None of both for a table of
    # several
    half_width: float | None = None
    questions: int | None = None
    # difference, power: of the index to another model's, and the chance of finding it
    difference: float | None = None
    power: float = 0.8
    analysis: Analysis = DEFAULT_ANALYSIS
    # budget: requests to spend
    budget: float | None = None
    request_cost: float | None = None  # of each request, grading included
    # refusal_slope, error_slope: how constant the model is, as for `split_budget`; None for what the pilot shows
    refusal_slope: float | None = None
    error_slope: float | None = None


@dataclass(frozen=True)
class PairPlan:
    """Sample sizes for detecting a difference between two models."""

    needed: stats.PowerPlan  # questions, if the difference is the one seen
    chance: stats.PowerPlan | None  # the power of the given number of questions, if one is given
    seen: stats.ConfidenceInterval  # of the difference
    # fewest, most: questions at the largest and the smallest difference of that interval; None where it holds 0
    fewest: int | None
    most: int | None


@dataclass(frozen=True)
class RunPlan:
    """Sample sizes for one model, for RI or, with slopes, for the corrected index."""

    scenario: stats.PlanningScenario  # what is expected, with the index that is planned for
    # the half-width to be expected of each number of questions, fewest first; one without a half-width where there is
    # no plan, with its reason
    sizes: tuple[stats.SamplePlan | stats.RepeatPlan, ...]
    slopes: tuple[float, float] | None = None  # of refusals and of errors, on which a plan of the corrected index rests
    # half-widths of other metrics with the most of these questions, by name
    other_metrics: Mapping[str, float] = field(default_factory=dict)
    # the questions for telling the model apart from one whose index is lower by the difference; None where that was not
    # asked, or no index is as low
    apart: stats.PowerPlan | None = None
    chance: stats.PowerPlan | None = None  # of telling them apart with the given number of questions

    def size_for(self, half_width: float) -> stats.SamplePlan | stats.RepeatPlan | None:
        """Return the smallest number of questions with this expected half-width."""
        fits = (size for size in self.sizes if size.half_width is not None and size.half_width <= half_width + 1e-9)
        return next(fits, None)

    def chosen_size(self) -> stats.SamplePlan | stats.RepeatPlan | None:
        """Return the given number of questions, or that for the usual half-width; None without a plan."""
        if len(self.sizes) > 1:
            return self.size_for(USUAL_HALF_WIDTH)
        return self.sizes[0] if self.sizes[0].half_width is not None else None

    def gaps(self, options: PlanOptions) -> Iterator[Statement]:
        """State why a requested number is undefined."""
        first = self.sizes[0]
        if first.half_width is None:
            status = first.status if isinstance(first, stats.SamplePlan) else None
            yield Statement("no_plan", "serious", {"status": status, "reason": first.reason})
        elif options.difference is not None and self.apart is None:
            yield Statement("no_lower_index", values={"difference": options.difference})
        elif self.apart is not None and self.apart.n is None:
            yield Statement("no_plan", "serious", {"status": None, "reason": self.apart.reason})


@dataclass(frozen=True, repr=False)
class SampleSizes(Printable):
    """How many questions are needed for one model, or to tell two apart."""

    options: PlanOptions  # what was planned for
    runs: tuple[RunResults, ...]  # the pilots; two of them if they are to be told apart
    plans: Mapping[str, RunPlan] = field(default_factory=dict)  # by prompt, of one model; "expected" for expected rates
    pairs: Mapping[str, PairPlan] = field(default_factory=dict)  # by prompt, of two models

    @property
    def questions(self) -> int | None:
        """The number of questions needed under every prompt; None without a plan."""
        answer = (
            pair_answer(self.pairs, self.options) if self.pairs else next(plan_answers(self.plans, self.options), None)
        )
        return None if answer is None else answer.values.get("questions")


def scenarios_of(run: RunResults, variant: str | None = None) -> dict[str, stats.PlanningScenario]:
    """Return the expected rates shown by a run, by variant.

    Raises OutcomeTableError if the run lacks the variant, or one has no forced pass or no scored question.
    """
    names = [chosen_variant([run], variant)] if variant else list(run.tables)
    _check_forced_pass(run, names)
    tables = {str(name or "all"): contingency_table(first_draws(run.tables[name])) for name in names}
    empty = [name for name, table in tables.items() if not table.n]
    if empty:
        raise OutcomeTableError(
            f"plan: expected scored questions to plan from, got none in {', '.join(empty)} of {run.label}"
        )
    return {name: stats.PlanningScenario.from_table(table) for name, table in tables.items()}


def _check_forced_pass(run: RunResults, variants: Sequence[str | None]) -> None:
    unforced = [str(name or "all") for name in variants if never_forced(first_draws(run.tables[name]))]
    if unforced:
        raise OutcomeTableError(
            f"plan: expected a run with a forced pass, without which the share wrong overall and RI are unknown; there "
            f"was none in {run.label} ({', '.join(unforced)}); plan from a run of both passes, or from expected rates"
        )


def plan_scenario(scenario: stats.PlanningScenario, options: PlanOptions) -> RunPlan:
    """Plan a run of one model."""
    plan = RunPlan(scenario, _sizes(scenario, options))
    index = scenario.refusal_index
    level = options.analysis.confidence_level
    if plan.sizes[0].half_width is None:
        return plan
    if (largest := plan.sizes[-1].n) is not None:
        others = (
            name
            for name in stats.METRIC_NAMES
            if name not in ("refusal_rate", "error_rate", "correct_rate", "refusal_index")
        )
        same = {
            name: stats.expected_half_width(scenario, largest, metric=name, confidence_level=level) for name in others
        }
        widths = {name: width.half_width for name, width in same.items() if width.half_width is not None}
        plan = replace(plan, other_metrics=widths)
    if index is None or options.difference is None or index - options.difference < -1:
        return plan
    lower = replace(scenario, refusal_index=index - options.difference)
    needed = stats.questions_to_tell_apart(scenario, lower, power=options.power, confidence_level=level)
    n = options.questions
    chance = stats.power_to_tell_apart(scenario, lower, n, confidence_level=level) if n else None
    return replace(plan, apart=needed, chance=chance)


def plan_answers(plans: Mapping[str, RunPlan], options: PlanOptions) -> Iterator[Statement]:
    """State how many questions the wanted precision takes under every prompt, and what they cost.

    Prompts without a plan follow, with the reason.
    """
    chosen = [(plan, size) for plan in plans.values() if (size := plan.chosen_size()) is not None]
    sizes = [size for _, size in chosen]
    some = {"prompts": len(plans), "planned": len(sizes)}
    if sizes:
        corrected = chosen[0][0].slopes is not None
        pick = max if options.budget is None else min
        n = pick(size.n for size in sizes if size.n is not None)
        repeated = pick(size.repeated or 0 for size in sizes if isinstance(size, stats.RepeatPlan)) if corrected else 0
        if options.budget is None:
            rates = [plan.scenario.refusal_rate for plan in plans.values()]
            requests = sum((n - repeated) * (1 + rate) + 4 * repeated for rate in rates)
        else:
            requests = sum(size.requests or 0 for size in sizes)
        cost = None if options.request_cost is None else requests * options.request_cost
        values = {
            **some,
            "corrected": corrected,
            "questions": n,
            "repeated": repeated,
            "half_width": max(size.half_width for size in sizes if size.half_width is not None),
            "level": options.analysis.confidence_level,
            "budget": options.budget,
        }
        yield Statement("questions_needed", "conclusion", values)
        yield Statement("questions_cost", values={**values, "requests": requests, "cost": cost})
    needed = [plan.apart.n for plan in plans.values() if plan.apart is not None and plan.apart.n is not None]
    if needed:
        values = {"questions": max(needed), "difference": options.difference, "power": options.power}
        yield Statement("questions_apart", "conclusion", {**values, "prompts": len(plans), "planned": len(needed)})
    chances = [plan.chance.power for plan in plans.values() if plan.chance and plan.chance.power is not None]
    if chances:
        yield Statement("chance_with", values={"questions": options.questions, "power": min(chances)})
    if any(size.reason for size in sizes):
        yield Statement("few_expected", "serious")


def pair_answer(plans: Mapping[str, PairPlan], options: PlanOptions) -> Statement | None:
    """State how many questions detect the difference of two models under every prompt; None without any plan."""
    planned = [plan for plan in plans.values() if plan.needed.n is not None]
    chances = [plan.chance.power for plan in planned if plan.chance and plan.chance.power is not None]
    values = {
        "questions": max((plan.needed.n or 0 for plan in planned), default=None),
        "power": options.power,
        "given": options.questions,
        "chance": min(chances, default=None),
    }
    values |= {"prompts": len(plans), "planned": len(planned)}
    return Statement("pair_needs", "conclusion", values) if planned else None


def plan_apart(runs: Sequence[RunResults], variant: str | None, options: PlanOptions) -> dict[str, PairPlan]:
    """Plan how to detect the difference of two models, given the correlation observed between their runs.

    Raises OutcomeTableError if the runs share no variant, or not the one asked for, or one has no forced pass.

    - returned: by variant.
    """
    for run in runs:
        _check_forced_pass(run, [variant] if variant in run.tables else list(run.tables))
    plans = {}
    level = options.analysis.confidence_level
    n = options.questions
    for name, match in matched_variants(runs, variant).items():
        matrices = stats.checked_matrices(match.matrix.refused, match.matrix.wrong, match.matrix.scored)
        first, second = (stats.PlanningScenario.from_table(table) for table in row_tables(*matrices))
        observed = stats.influence_correlation(*matrices)
        fixed = {"correlation": 0.0 if math.isnan(observed) else observed, "confidence_level": level}
        needed = stats.questions_to_tell_apart(first, second, power=options.power, **fixed)
        chance = stats.power_to_tell_apart(first, second, n, **fixed) if n else None
        interval = stats.compare_metrics(*matrices)["refusal_index"].confidence_interval(level)
        n_range = (None, None) if needed.n is None else stats.questions_over_interval(needed, *interval)
        plans[name] = PairPlan(needed, chance, interval, *n_range)
    return plans


def _sizes(scenario: stats.PlanningScenario, options: PlanOptions) -> tuple[stats.SamplePlan, ...]:
    level = options.analysis.confidence_level
    if options.budget is not None:
        n = int(options.budget / (1 + scenario.refusal_rate))
        return (stats.expected_half_width(scenario, max(1, min(n, options.questions or n)), confidence_level=level),)
    if options.half_width is not None:
        return (stats.questions_for_half_width(scenario, options.half_width, confidence_level=level),)
    if options.questions is not None:
        return (stats.expected_half_width(scenario, options.questions, confidence_level=level),)
    by_width = [stats.questions_for_half_width(scenario, width, confidence_level=level) for width in HALF_WIDTHS]
    by_size = [stats.expected_half_width(scenario, n, confidence_level=level) for n in SIZES]
    return tuple(sorted(by_width + by_size, key=lambda plan: plan.n or 0))


PilotSlopes = tuple[float, float, float | None]
"""What a pilot's repeated draws show: probit slopes of refusals and of errors, and the corrected index."""


def slopes_shown(run: RunResults, variant: str | None = None) -> dict[str, PilotSlopes]:
    """Return the slopes shown by a run's repeated draws, by variant."""
    names = [chosen_variant([run], variant)] if variant else list(run.tables)
    slopes_by_variant = {}
    for name in names:
        draws = draw_matrix(run.tables[name])
        if len(draws.refused) > 1:
            result = stats.corrected_refusal_index(*draws.arrays)
            refusals, errors = map(_slope, (result.refusal_reliability, result.error_reliability))
            if refusals is not None and errors is not None:
                (index,) = corrected_indices([run.tables[name]])
                estimate = index.estimate if index.status == "ok" else None
                slopes_by_variant[str(name or "all")] = refusals, errors, estimate
    return slopes_by_variant


def _slope(reliability: float | None) -> float | None:
    """Return the slope that implies this tetrachoric correlation of two draws; None if there is none."""
    if reliability is None or reliability <= 0:
        return None
    return min(math.sqrt(reliability / (1 - reliability)), MAX_CONSTANT) if reliability < 1 else MAX_CONSTANT


def plan_corrected(
    scenario: stats.PlanningScenario, options: PlanOptions, pilot: PilotSlopes | None = None, *, from_run: bool
) -> RunPlan:
    """Plan for the interval of the corrected index, every question being sampled twice, or as a budget is best split.

    Raises OutcomeTableError if the slopes imply more noise than the run's RI allows.

    - `pilot`: what the pilot's repeated draws show; its corrected index counts unless other slopes are given.
    - `from_run`: whether the index of `scenario` is RI of a run, which is first corrected for noise.
    """
    requested_slopes = (options.refusal_slope, options.error_slope)
    index = scenario.refusal_index
    *assumed, pilot_index = pilot or (TYPICAL_SLOPE, TYPICAL_SLOPE, None)
    first, second = (other if slope is None else slope for slope, other in zip(requested_slopes, assumed, strict=True))
    slopes = first, second
    if pilot_index is not None and requested_slopes == (None, None):
        index = pilot_index
    elif from_run and index is not None:
        rho = stats.rho_from_refusal_index(index)
        highest = float(stats.attenuated_refusal_index(1.0, *slopes))
        if abs(index) >= highest:
            raise OutcomeTableError(
                f"plan: expected slopes that leave room for the run's RI of {index:.3f}, got {slopes[0]:.3g} and "
                f"{slopes[1]:.3g}, with which it is at most {highest:.3f}; plan with higher slopes"
            )
        max_rho = stats.rho_from_refusal_index(highest)
        index = math.asin(float(rho / max_rho) / 2) / math.asin(0.5)
    expected = replace(scenario, refusal_index=index)
    fixed = {"refusal_slope": first, "error_slope": second, "confidence_level": options.analysis.confidence_level}
    if options.budget is not None:
        plans = [stats.split_budget(expected, options.budget, most_questions=options.questions, **fixed)]
    else:
        at_1000 = stats.repeats_half_width(expected, 1000, 1000, **fixed)
        if at_1000.half_width is None:
            return RunPlan(expected, (at_1000,), slopes)
        widths = () if options.questions else HALF_WIDTHS if options.half_width is None else (options.half_width,)
        sizes = (options.questions,) if options.questions else SIZES if options.half_width is None else ()
        needed = (math.ceil(1000 * (at_1000.half_width / width) ** 2) for width in widths)
        plans = [stats.repeats_half_width(expected, n, n, **fixed) for n in sorted({*needed, *sizes})]
    return RunPlan(expected, tuple(plans), slopes)
