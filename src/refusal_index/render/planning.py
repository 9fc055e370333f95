"""Plans, as a first screen of 80 columns and in full, and the results of other decisions, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from refusal_index.data.analysis import Analysis
from refusal_index.findings.metrics import INDEX, METRICS, Statement
from refusal_index.findings.planning import (
    HALF_WIDTHS,
    PairPlan,
    PlanOptions,
    RunPlan,
    SampleSizes,
    pair_answer,
    plan_answers,
)
from refusal_index.findings.run_differences import missing_statements
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.sensitivity import DecisionOptions, Decisions, SensitivityAnalysis
from refusal_index.findings.summary import summarise
from refusal_index.render.comparison import MAX_NAME_LENGTH
from refusal_index.render.format import (
    NOT_KNOWN,
    UNDEFINED,
    Block,
    Table,
    abbreviated,
    count,
    interval,
    interval_of,
    number,
    percent,
    reason_text,
    span,
    title,
)
from refusal_index.render.gate import baseline_blocks, scenario_blocks
from refusal_index.render.sentences import caveat_line, phrase, sentence
from refusal_index.stats import Estimate, MisgradingRange, PlanningScenario, RepeatPlan, SamplePlan


def sample_size_blocks(sizes: SampleSizes, *, full: bool = False) -> Iterator[Block]:
    """Yield how many questions are needed, and as the baseline of a gate; with `full`, every sample size."""
    yield from map(sentence, missing_statements(sizes.runs))
    if sizes.pairs:
        yield from apart_screen(sizes.pairs, sizes.options)
        return
    yield from (plan_blocks if full else plan_screen)(sizes.plans, sizes.options)
    if len(sizes.plans) > 1:
        return
    ((name, plan),) = sizes.plans.items()
    if plan.slopes is None:
        recommended = list(_for_gate(sizes.runs, name, plan.scenario))
        yield from ["", *recommended] if recommended else []


def _for_gate(runs: Sequence[RunResults], name: str, scenario: PlanningScenario) -> Iterator[Block]:
    """Yield how many questions a gate needs with this run, or these expected rates, as its baseline."""
    if not runs:
        yield from scenario_blocks(scenario)
        return
    tables = runs[0].tables
    yield from baseline_blocks(summarise(next(iter(tables.values())) if len(tables) == 1 else tables[name]))


def plan_screen(plans: Mapping[str, RunPlan], options: PlanOptions) -> Iterator[Block]:
    """Yield how many questions are needed and their cost, and a row for each prompt."""
    for answer in plan_answers(plans, options):
        yield caveat_line(answer)
    by_width = any(len(plan.sizes) > 1 for plan in plans.values())
    widths = [f"+-{width:.2f}" for width in HALF_WIDTHS] if by_width else ["questions", "+-", "requests"]
    slopes = list(dict.fromkeys(plan.slopes for plan in plans.values() if plan.slopes))
    index = "corrected" if slopes else METRICS[INDEX].column
    columns = [
        "prompt",
        index,
        "refused",
        "wrong overall",
        *widths,
        *(["apart"] if options.difference is not None else []),
    ]
    rows = (_plan_row(name, plan, options, by_width=by_width) for name, plan in plans.items())
    yield from ("", Table.from_rows(columns, rows, left=("prompt",)), "")
    yield sentence(
        Statement("plan_explained", "scope", {"by_width": by_width, "difference": options.difference, "slopes": slopes})
    )
    for name, plan in plans.items():
        for gap in plan.gaps(options):
            yield f"{name}: {sentence(gap)}"


def _plan_row(name: str, plan: RunPlan, options: PlanOptions, *, by_width: bool) -> Iterator[str]:
    scenario = plan.scenario
    size = plan.chosen_size()
    yield from (abbreviated(name, MAX_NAME_LENGTH), number(scenario.refusal_index, 2))
    yield from (percent(scenario.refusal_rate, 0), percent(scenario.error_rate, 0))
    if by_width:
        yield from (count(planned.n) if (planned := plan.size_for(width)) else UNDEFINED for width in HALF_WIDTHS)
    elif size is None:
        yield from (UNDEFINED, UNDEFINED, UNDEFINED)
    else:
        yield from (count(size.n), number(size.half_width), count(size.requests))
    if options.difference is not None:
        yield count(plan.apart.n) if plan.apart else UNDEFINED


def plan_blocks(plans: Mapping[str, RunPlan], options: PlanOptions) -> Iterator[Block]:
    """Yield the first screen, and further numbers of questions and other metrics for each prompt."""
    yield from plan_screen(plans, options)
    for name, plan in plans.items():
        sizes = [size for size in plan.sizes if size.half_width is not None]
        if not sizes:
            continue
        columns = ["questions", "of them sampled twice", "requests", "corrected RI +-"]
        if plan.slopes is None:
            columns = ["questions", "RI +-", "forced requests", "smallest cell", ""]
        yield from ("", name, Table.from_rows(columns, map(_size_row, sizes), left=("",)))
        if plan.other_metrics:
            values = {"questions": sizes[-1].n, "widths": list(plan.other_metrics.items())}
            yield sentence(Statement("other_half_widths", values=values))


def _size_row(size: SamplePlan | RepeatPlan) -> Iterator[str]:
    yield f"{size.n:,}"
    if isinstance(size, RepeatPlan):
        yield from (f"{size.repeated:,}", f"{size.requests:,.0f}", number(size.half_width))
    else:
        yield from (number(size.half_width), count(size.forced_requests), number(size.smallest_expected_cell, 1))
        yield sentence(Statement("few_expected", "serious")) if size.reason else ""


def apart_screen(plans: Mapping[str, PairPlan], options: PlanOptions) -> Iterator[Block]:
    """Yield how many questions detect the difference of two models, and a row for each prompt."""
    if (answer := pair_answer(plans, options)) is not None:
        yield from (sentence(answer), "")
    level = f"{percent(options.analysis.confidence_level)} interval"
    heading = f"with {options.questions:,}" if options.questions else "correlation"
    rows = (
        (
            abbreviated(name, MAX_NAME_LENGTH),
            number(plan.needed.difference, 2),
            interval(*plan.seen.or_none(), 2),
            percent(plan.chance.power, 0) if plan.chance else number(plan.needed.correlation, 2),
            count(plan.needed.n),
            _over_interval(plan),
        )
        for name, plan in plans.items()
    )
    columns = ("prompt", "difference", level, heading, "questions", "for the interval")
    yield from (Table.from_rows(columns, rows, left=("prompt",)), "")
    for name, plan in plans.items():
        if plan.needed.n is None:
            yield f"{name}: {sentence(Statement('no_plan', 'serious', {'status': None, 'reason': plan.needed.reason}))}"
    yield sentence(Statement("post_hoc_power", "serious"))


def _over_interval(plan: PairPlan) -> str:
    if plan.fewest is None:
        return UNDEFINED
    return f"{plan.fewest:,} or more" if plan.most is None else f"{plan.fewest:,} to {plan.most:,}"


SEED = 0
"""Seed of the resamples behind the intervals of corrected indices: the same outcomes give the same numbers."""

MAX_TOPICS = 12
RULES_ON_REFUSED_AGAIN = ("refused_again_right", "refused_again_dropped", "all_lowest", "all_highest")
"""Scoring rules that depend on which forced answers were refused again."""

Row = tuple[str, str, str, str]


def decisions_blocks(analysis: SensitivityAnalysis) -> Iterator[Block]:
    """Yield the metrics of each variant under other decisions, and the labels' estimates of grader errors."""
    options = analysis.options
    level = f"{percent(options.analysis.confidence_level)} interval"
    for position, variant in enumerate(analysis.variants):
        yield from [""] * bool(position)
        heading = title(variant.model, variant.dataset, variant.variant)
        yield from (heading, "", sentence(variant.conclusion), "")
        by_labels = ("by labels", level) if variant.powered else ()
        columns = ("metric", "as scored", "scoring rules", *by_labels)
        yield Table.from_rows(columns, _metric_rows(variant, options.analysis), left=("metric",))
        rows = list(_index_rows(variant, options))
        yield from ("", Table.from_rows(("RI if", "estimate", level), (row[:3] for row in rows), left=("RI if",)))
        yield from (f"  {name.strip()}: {reason}" for name, _, _, reason in rows if reason)
        for statement in variant.statements:
            yield from ("", sentence(statement))
    for source, labels in (options.labels or {}).items():
        run_title = title(*source) if any(source) else None
        for kind, counts in (("refused", labels.refused), ("answered", labels.answered)):
            yield from (
                "",
                sentence(Statement("labelled", "scope", {"whose": run_title, "kind": kind, "labels": counts})),
            )
        yield sentence(Statement("labels_pooled", "scope", {"neither": labels.neither}))


def _metric_rows(variant: Decisions, analysis: Analysis) -> Iterator[tuple[str, ...]]:
    """Yield every metric as scored, over the scoring rules, and as the labels of this variant correct it."""
    for ends in variant.scoring.ranges:
        name = ends.name
        digits = METRICS[ends.name].digits
        powered = variant.powered.get(ends.name)
        as_scored = number(variant.as_scored[name].estimate, digits)
        row = METRICS[name].column, as_scored, span(ends.low, ends.high, digits)
        if powered is None:
            yield row
        else:
            low, high = powered.confidence_interval(analysis.confidence_level).or_none()
            yield (*row, number(powered.estimate, digits), interval(low, high, digits))


def _index_rows(variant: Decisions, options: DecisionOptions) -> Iterator[Row]:
    """Yield the index under each decision, and what leads from RI to the corrected index, one change at a time."""
    level = options.analysis.confidence_level
    missing = variant.missing
    same = variant.misgrading_same_rates
    is_known = variant.scoring.knows_refused_again
    for rule in variant.scoring.rules:
        name = phrase(rule.rule, "scoring_rule")
        if not is_known and rule.rule in RULES_ON_REFUSED_AGAIN:
            yield name, NOT_KNOWN, "", "no forced grade"
        else:
            as_scored = not is_known and rule.rule == "refused_again_wrong"
            yield "as scored" if as_scored else name, number(rule.estimate), "", _reason(rule.reason)
    if (draws := variant.draws) is not None:
        steps = {"every answer is a forced one": draws.forced_for_all, "  from different samples": draws.uncorrected}
        for name, value in steps.items():
            yield name, number(value), "", ""
        yield _estimate_row("  without sampling noise: corrected RI", draws.corrected_refusal_index)
    ends = f"{number(missing.low)} to {number(missing.high)}"
    ends_interval = interval(*missing.confidence_interval(level).or_none())
    yield "missing answers (any grade)", ends, ends_interval, _reason(missing.reason)
    if variant.as_refusals is not None:
        yield _estimate_row("unclear replies are refusals", variant.as_refusals)
    if variant.unclear is not None:
        any_of_them = f"{number(variant.unclear.low)} to {number(variant.unclear.high)}"
        spread = interval(*variant.unclear.confidence_interval(level).or_none())
        yield "  any of them are refusals", any_of_them, spread, _reason(variant.unclear.reason)
    if (topics := variant.scoring.topics) is not None:
        yield _estimate_row(f"within topics ({topics.informative} of {topics.topics} informative)", topics.within)
        for topic in topics.each[:MAX_TOPICS]:
            yield _estimate_row(f"  within {topic.topic} ({topic.questions:,})", topic.refusal_index)
    for name, corrected in variant.corrections.items():
        spread = interval(*corrected.confidence_interval(level, rng=SEED).or_none())
        yield name, number(corrected.estimate), spread, _reason(corrected.reason)
    right, wrong = (percent(rate) for rate in options.errors)
    yield f"misgraded: {right} of right, {wrong} of wrong", *_range_cells(variant.misgrading)
    yield "  the same if refused or answered", *_range_cells(same)


def _estimate_row(name: str, index: Estimate) -> Row:
    return name, number(index.estimate), interval_of(index), _reason(index.reason)


def _range_cells(spread: MisgradingRange) -> tuple[str, str, str]:
    """Return both ends, or the one that is defined: larger rates move the index away from 0."""
    near = spread.ends[0].estimate
    if spread.status != "undefined" or near is None:
        return f"{number(spread.low)} to {number(spread.high)}", "", _reason(spread.reason)
    ends = f"{near:.3f} to {UNDEFINED}" if near >= 0 else f"{UNDEFINED} to {near:.3f}"
    return ends, "", f"{reason_text(spread.reason)} at the largest rates"


def _reason(code: str | None) -> str:
    return "" if code is None else reason_text(code)
