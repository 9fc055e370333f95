"""Plans as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from refusal_index.outcomes.planning import CorrectedPlan, PairPlan, PlanOptions, ScenarioPlan
from refusal_index.outcomes.presentation import UNDEFINED, Block, Table
from refusal_index.outcomes.presentation.blocks import METRIC_COLUMNS, interval, number, percent, worded
from refusal_index.stats import RepeatPlan, SamplePlan


def scenario_blocks(plan: ScenarioPlan, options: PlanOptions) -> Iterator[Block]:
    """Yield what a run of one model takes."""
    expected = plan.scenario
    yield (
        f"{plan.name}: refusal rate {expected.refusal_rate:.3f}, error rate {expected.error_rate:.3f}, "
        f"RI {number(expected.refusal_index)}"
    )
    if plan.sizes[0].half_width is None:
        yield from (f"  no plan: {plan.sizes[0].status} ({worded(plan.sizes[0].reason)})", "")
        return
    yield f"  half-width of the {percent(options.confidence_level)} interval to be expected"
    columns = ("questions", "RI +-", "forced requests", "smallest cell", "")
    yield Table.of(columns, map(_size_row, plan.sizes), left=("",))
    if (n := plan.sizes[-1].n) is not None:
        widths = ", ".join(f"{METRIC_COLUMNS[metric]} +-{width:.3f}" for metric, width in plan.other_metrics.items())
        yield f"  with {n:,} questions also: {widths}"
    if expected.refusal_index is not None and options.difference is not None:
        yield from _difference(plan, expected.refusal_index - options.difference, options)
    yield ""


def apart_blocks(labels: Sequence[str], plans: Mapping[str, PairPlan], options: PlanOptions) -> Iterator[Block]:
    """Yield what it takes to tell two models apart that were asked the same questions."""
    power = ("power",) if options.questions else ()
    level = percent(options.confidence_level)
    yield (
        f"{labels[0]} and {labels[1]}: questions to ask both, to tell them apart "
        f"with a chance of {percent(options.power)}, if they differ by as much as here, and over the interval of that"
    )
    columns = (
        "variant",
        "RI of either",
        "difference",
        f"{level} interval",
        "correlation",
        "questions",
        "over it",
        *power,
    )
    rows = (_apart_row(name, plan) for name, plan in plans.items())
    yield from ("", Table.of(columns, rows, left=("variant",)), "")
    yield (
        "The number for the difference seen only repeats how clear the pilot was (post-hoc power); the true difference "
        "may be any in its interval, so plan for the smallest of them that would matter to you: the number grows "
        "with the square of the ratio."
    )


def corrected_blocks(name: str, found: CorrectedPlan, options: PlanOptions) -> Iterator[Block]:
    """Yield what the interval of the corrected index takes."""
    expected, level = found.scenario, percent(options.confidence_level)
    yield (
        f"{name}: refusal rate {expected.refusal_rate:.3f}, error rate {expected.error_rate:.3f}, "
        f"corrected RI {number(expected.refusal_index)}, assuming probit slopes of {found.refusal_slope:.3g} "
        f"(refusals) and {found.error_slope:.3g} (errors)"
    )
    if found.sizes[0].half_width is None:
        yield from (f"  no plan: {worded(found.sizes[0].reason)}", "")
        return
    of_budget = "" if options.budget is None else f" with {options.budget:,.0f} requests under one prompt"
    yield f"  half-width of the {level} interval to be expected{of_budget}"
    columns = ("questions", "of them sampled twice", "requests", "corrected RI +-")
    yield Table.of(columns, (_corrected_row(plan) for plan in found.sizes))
    one = found.sizes[-1]
    some = "" if one.repeated == one.n else f" --repeat-questions {one.repeated}"
    yield from (f"  run --limit {one.n} --draws 2{some} asks as in the last row", "")


def _corrected_row(plan: RepeatPlan) -> Iterator[str]:
    yield from (f"{plan.n:,}", f"{plan.repeated:,}", f"{plan.requests:,.0f}", number(plan.half_width))


def _size_row(plan: SamplePlan) -> Iterator[str]:
    yield f"{plan.n:,}"
    yield f"{plan.half_width:.3f}"
    yield f"{plan.forced_requests:,.0f}"
    yield f"{plan.smallest_expected_cell:.1f}"
    yield "fewer than 5 expected in a cell: the index may come out at +1 or -1" if plan.reason else ""


def _difference(plan: ScenarioPlan, lower: float, options: PlanOptions) -> Iterator[str]:
    if plan.apart is None:
        yield f"  no model has an index lower by {options.difference:g}"
        return
    start = f"  to tell it apart from a model with RI {lower:.3f}"
    if plan.apart.n is None:
        yield f"{start}: no plan ({worded(plan.apart.reason)})"
        return
    yield (
        f"{start} with a chance of {percent(options.power)}: {plan.apart.n:,} "
        "questions each (fewer where both are asked the same ones: plan from two runs)"
    )
    if plan.chance is not None and plan.chance.power is not None:
        yield f"  with {options.questions:,} questions each the chance is {plan.chance.power:.0%}"


def _apart_row(variant: str, plan: PairPlan) -> Iterator[str]:
    needed = plan.needed
    yield variant
    yield " ".join(number(one.refusal_index) for one in (needed.first, needed.second))
    yield number(needed.difference)
    yield interval(*plan.seen.or_none())
    yield f"{needed.correlation:.2f}"
    yield f"{needed.n:,}" if needed.n is not None else f"{UNDEFINED} ({worded(needed.reason)})"
    yield (
        UNDEFINED
        if plan.fewest is None
        else f"{plan.fewest:,} to {'any number' if plan.most is None else f'{plan.most:,}'}"
    )
    if plan.chance is not None:
        yield UNDEFINED if plan.chance.power is None else f"{plan.chance.power:.0%} with {plan.chance.n:,}"
