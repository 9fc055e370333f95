"""Plans, and the results of other decisions, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from refusal_index.findings.labels import Labels, Source
from refusal_index.findings.metrics import METRICS
from refusal_index.findings.planning import CorrectedPlan, PairPlan, PlanOptions, ScenarioPlan
from refusal_index.findings.sensitivity import DecisionOptions, Decisions
from refusal_index.render.blocks import Block, Table
from refusal_index.render.format import (
    NOT_KNOWN,
    UNDEFINED,
    interval,
    interval_of,
    number,
    percent,
    reason_text,
    span,
    title,
)
from refusal_index.stats import MisgradingRange, PredictionPowered, RepeatPlan, SamplePlan


def scenario_blocks(plan: ScenarioPlan, options: PlanOptions) -> Iterator[Block]:
    """Yield what a run of one model takes."""
    expected = plan.scenario
    yield (
        f"{plan.name}: refusal rate {expected.refusal_rate:.3f}, error rate {expected.error_rate:.3f}, "
        f"RI {number(expected.refusal_index)}"
    )
    if plan.sizes[0].half_width is None:
        yield from (f"  no plan: {plan.sizes[0].status} ({reason_text(plan.sizes[0].reason)})", "")
        return
    yield f"  half-width of the {percent(options.confidence_level)} interval to be expected"
    columns = ("questions", "RI +-", "forced requests", "smallest cell", "")
    yield Table.of(columns, map(_size_row, plan.sizes), left=("",))
    if (n := plan.sizes[-1].n) is not None:
        widths = ", ".join(f"{METRICS[metric].column} +-{width:.3f}" for metric, width in plan.other_metrics.items())
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
        yield from (f"  no plan: {reason_text(found.sizes[0].reason)}", "")
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
        yield f"{start}: no plan ({reason_text(plan.apart.reason)})"
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
    yield f"{needed.n:,}" if needed.n is not None else f"{UNDEFINED} ({reason_text(needed.reason)})"
    yield (
        UNDEFINED
        if plan.fewest is None
        else f"{plan.fewest:,} to {'any number' if plan.most is None else f'{plan.most:,}'}"
    )
    if plan.chance is not None:
        yield UNDEFINED if plan.chance.power is None else f"{plan.chance.power:.0%} with {plan.chance.n:,}"


SEED = 0
"""Of the draws behind the intervals of corrected indices: the same outcomes give the same numbers."""

MOST_TOPICS = 12
RULES = {
    "refused_again_wrong": "refused again is wrong (as scored)",
    "refused_again_right": "refused again is right",
    "refused_again_dropped": "refused again is dropped",
    "unscored_lowest": "unscored as low as can be",
    "unscored_highest": "unscored as high as can be",
    "all_lowest": "both as low as can be",
    "all_highest": "both as high as can be",
}
RULES_ON_REFUSED_AGAIN = ("refused_again_right", "refused_again_dropped", "all_lowest", "all_highest")
"""What these say rests on which forced answers were refused again."""

NO_LABELS = "no_labels:"
KINDS = {
    "refused_graded_wrong": "forced answers graded incorrect",
    "refused_graded_right": "forced answers graded correct",
    "answered_graded_wrong": "first answers graded incorrect",
    "answered_graded_right": "first answers graded correct",
}

Row = tuple[str, str, str, str]


def decisions_blocks(found: Sequence[Decisions], options: DecisionOptions) -> Iterator[Block]:
    """Yield what other decisions would have made of each variant, and what the labels say of the grader."""
    for place, one in enumerate(found):
        yield from [""] * bool(place)
        yield title(one.model, one.dataset, one.variant)
        yield _metrics_table(one, options)
        level = percent(options.confidence_level)
        columns = ("RI if", "estimate", f"{level} interval", "status")
        yield from ("", Table.of(columns, _index_rows(one, options), left=("RI if", "status")))
        for line in _notes(one):
            yield from ("", line)
    for source, labels in (options.labels or {}).items():
        yield from _labels(source, labels)


def _metrics_table(found: Decisions, options: DecisionOptions) -> Table:
    rows = (
        (
            METRICS[one.name].column,
            number(found.as_scored[one.name].estimate),
            span(one.low, one.high),
            *_powered(found.powered.get(one.name), options.confidence_level),
        )
        for one in found.scoring.ranges
    )
    by_labels = ("by labels", f"{percent(options.confidence_level)} interval") if found.powered else ()
    return Table.of(("metric", "as scored", "whatever is missing", *by_labels), rows, left=("metric",))


def _powered(found: PredictionPowered | None, level: float) -> Iterator[str]:
    """Yield a metric as the labels of this variant correct it."""
    if found is not None:
        yield number(found.estimate)
        yield interval(*found.confidence_interval(level).or_none())


def _index_rows(found: Decisions, options: DecisionOptions) -> Iterator[Row]:
    yield from _scoring_rows(found)
    yield from _draws_rows(found)
    missing, level = found.missing, options.confidence_level
    ends = f"{number(missing.low)} to {number(missing.high)}"
    ends_interval = interval(*missing.confidence_interval(level).or_none())
    yield "whatever is missing is anything", ends, ends_interval, _status(missing.reason)
    yield from _topic_rows(found)
    for name, corrected in found.corrections.items():
        spread = interval(*corrected.confidence_interval(level, rng=SEED).or_none())
        yield name, number(corrected.estimate), spread, _status(corrected.reason)
    right, wrong = (percent(rate) for rate in options.errors)
    name = f"the grader errs on up to {right} of right and {wrong} of wrong answers"
    yield name, _range(found.misgrading), "", _range_status(found.misgrading)
    same = found.misgrading_same_rates
    yield "  and alike on refused and answered questions", _range(same), "", _range_status(same)


def _scoring_rows(found: Decisions) -> Iterator[Row]:
    known = found.scoring.knows_refused_again
    for rule in found.scoring.rules:
        if not known and rule.rule in RULES_ON_REFUSED_AGAIN:
            yield RULES[rule.rule], NOT_KNOWN, "", "no forced grade"
        else:
            name = "as scored" if not known and rule.rule == "refused_again_wrong" else RULES[rule.rule]
            yield name, number(rule.estimate), "", _status(rule.reason)


def _draws_rows(found: Decisions) -> Iterator[Row]:
    """Yield what leads from RI to the corrected index, one change at a time."""
    draws = found.draws
    if draws is None:
        return
    for name, value in (
        ("every answer is a forced one", draws.forced_for_all),
        ("  of another draw", draws.uncorrected),
    ):
        yield name, number(value), "", UNDEFINED if value is None else "ok"
    index = draws.corrected_refusal_index
    yield "  without sampling noise: corrected RI", number(index.estimate), interval_of(index), _status(index.reason)


def _topic_rows(found: Decisions) -> Iterator[Row]:
    topics = found.scoring.topics
    if topics is None:
        return
    within, told = topics.within, f"{topics.informative} of {topics.topics} topics say something"
    yield "within topics", number(within.estimate), interval_of(within), _status(within.reason, told)
    for one in topics.each[:MOST_TOPICS]:
        index, status = one.refusal_index, f"{one.questions:,} questions"
        yield f"  within {one.topic}", number(index.estimate), interval_of(index), _status(index.reason, status)


def _notes(found: Decisions) -> Iterator[str]:
    if found.missing_grades:
        yield "As scored, questions without a grade are left out; ranges keep them, and may lie beside what is scored."
    if not found.scoring.knows_refused_again:
        yield "Which forced answers were refused again is not known (no forced_grade): no range above allows for it."
    if found.powered and all(one.reason and one.reason.startswith(NO_LABELS) for one in found.powered.values()):
        yield (
            "By labels is not known, since some kind of answer of this variant has none: 'refusal-index audit' with a "
            "larger --size draws more."
        )
    elif found.powered:
        yield "By labels: prediction-powered, by the grades of all answers and the labels of this variant's."
    for reason in (corrected.reason for corrected in found.corrections.values()):
        if reason is not None and reason.startswith(NO_LABELS):
            kinds = [KINDS[kind] for kind in reason.removeprefix(NO_LABELS).split("+")]
            yield (
                f"Not corrected by labels, since none says right or wrong of the {' or the '.join(kinds)}: label some "
                "of each, as 'refusal-index audit' with a larger --size draws them."
            )


def _labels(source: Source, labels: Labels) -> Iterator[str]:
    whose = f"{title(*source)}: " if any(source) else ""
    for name, one in (("forced answers", labels.refused), ("first answers", labels.answered)):
        yield ""
        yield (
            f"{whose}labelled {name}: {one.graded_right_is_right:,} graded right and right, "
            f"{one.graded_right_is_wrong:,} graded right but wrong, "
            f"{one.graded_wrong_is_wrong:,} graded wrong and wrong, "
            f"{one.graded_wrong_is_right:,} graded wrong but right"
        )
    left = f"; {labels.neither:,} labelled as neither are left out" if labels.neither else ""
    yield f"each pass is corrected by its own labels, which are pooled over variants{left}"


def _range(spread: MisgradingRange) -> str:
    """Both ends, or the one that is defined: larger rates move the index away from 0."""
    near = spread.ends[0].estimate
    if spread.status != "undefined" or near is None:
        return f"{number(spread.low)} to {number(spread.high)}"
    return f"{near:.3f} to {UNDEFINED}" if near >= 0 else f"{UNDEFINED} to {near:.3f}"


def _range_status(spread: MisgradingRange) -> str:
    only_far = spread.status == "undefined" and spread.ends[0].estimate is not None
    return f"{reason_text(spread.reason)} at the largest rates" if only_far else _status(spread.reason)


def _status(reason: str | None, otherwise: str = "ok") -> str:
    return otherwise if reason is None else reason_text(reason)
