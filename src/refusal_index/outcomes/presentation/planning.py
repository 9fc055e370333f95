"""Plans as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refusal_index.outcomes.planning import PairPlan, PlanOptions, ScenarioPlan
from refusal_index.outcomes.presentation.blocks import UNDEFINED, Block, Table, number, percent
from refusal_index.stats import SamplePlan


def scenario_blocks(plan: ScenarioPlan, options: PlanOptions) -> Iterator[Block]:
    """Yield what a run of one model takes."""
    expected = plan.scenario
    yield (
        f"{plan.name}: refusal rate {expected.refusal_rate:.3f}, error rate {expected.error_rate:.3f}, "
        f"RI {number(expected.refusal_index)}"
    )
    if plan.sizes[0].half_width is None:
        yield from (f"  no plan: {plan.sizes[0].status} ({plan.sizes[0].reason})", "")
        return
    yield f"  half-width of the {percent(options.confidence_level)} interval to be expected"
    columns = ("questions", "RI +-", "forced requests", "smallest cell", "")
    yield Table.of(columns, map(_size_row, plan.sizes), left=("",))
    if (n := plan.sizes[-1].n) is not None:
        widths = ", ".join(f"{metric} +-{width:.3f}" for metric, width in plan.other_metrics)
        yield f"  with {n:,} questions also: {widths}"
    if plan.lower is not None:
        yield from _difference(plan, plan.lower, options)
    yield ""


def apart_blocks(labels: Sequence[str], plans: Sequence[PairPlan], options: PlanOptions) -> Iterator[Block]:
    """Yield what it takes to tell two models apart that were asked the same questions."""
    power = ("power",) if options.questions else ()
    yield (
        f"{labels[0]} and {labels[1]}: questions to ask both, to tell them apart "
        f"with a chance of {percent(options.power)}, if they differ by as much as here"
    )
    columns = ("variant", "RI of either", "difference", "correlation", "questions", *power)
    yield from ("", Table.of(columns, (_apart_row(plan) for plan in plans), left=("variant",)))


def _size_row(plan: SamplePlan) -> Iterator[str]:
    yield f"{plan.n:,}"
    yield f"{plan.half_width:.3f}"
    yield f"{plan.forced_requests:,.0f}"
    yield f"{plan.smallest_expected_cell:.1f}"
    yield "fewer than 5 expected in a cell: RI may come out at +1 or -1" if plan.reason else ""


def _difference(plan: ScenarioPlan, lower: float, options: PlanOptions) -> Iterator[str]:
    if plan.apart is None:
        yield f"  no model has an index lower by {options.difference:g}"
        return
    start = f"  to tell it apart from a model with RI {lower:.3f}"
    if plan.apart.n is None:
        yield f"{start}: no plan ({plan.apart.reason})"
        return
    yield (
        f"{start} with a chance of {percent(options.power)}: {plan.apart.n:,} "
        "questions each (fewer where both are asked the same ones: plan from two runs)"
    )
    if plan.chance is not None and plan.chance.power is not None:
        yield f"  with {options.questions:,} questions each the chance is {plan.chance.power:.0%}"


def _apart_row(plan: PairPlan) -> Iterator[str]:
    yield plan.variant
    yield " ".join(number(one.refusal_index) for one in (plan.first, plan.second))
    yield number(plan.needed.difference)
    yield f"{plan.needed.correlation:.2f}"
    yield f"{plan.needed.n:,}" if plan.needed.n is not None else f"{UNDEFINED} ({plan.needed.reason})"
    if plan.chance is not None:
        chance = plan.chance
        yield UNDEFINED if chance.power is None else f"{chance.power:.0%} with {chance.n:,}"
