"""Sensitivity on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import typer
from rich.console import Console

from refusal_index.cli.harmless import harmless
from refusal_index.cli.show import COLUMNS, TABLE_WIDTH, UNDEFINED, plain_table, prose
from refusal_index.outcomes.counts import VariantGroup, contingency_table, variant_groups
from refusal_index.outcomes.labels import Labels, Source
from refusal_index.outcomes.matching import first_draws
from refusal_index.outcomes.sensitivity import RuleEstimate, TopicSummary, outcome_counts, sensitivity
from refusal_index.stats import (
    ConfidenceInterval,
    ContingencyTable,
    GraderLabels,
    MisgradingRange,
    MisgradingResult,
    correct_guessing,
    metrics,
    misgrading_from_labels,
    misgrading_range,
    missing_bounds,
    refusal_index,
)

SEED = 0
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
# What these say rests on which forced answers were refused again.
RULES_ON_REFUSED_AGAIN = ("refused_again_right", "refused_again_dropped", "all_lowest", "all_highest")
NOT_KNOWN = "not known"
NO_LABELS = "no_labels:"
KINDS = {
    "refused_graded_wrong": "forced answers graded incorrect",
    "refused_graded_right": "forced answers graded correct",
    "answered_graded_wrong": "first answers graded incorrect",
    "answered_graded_right": "first answers graded correct",
}
UNLABELLED = Labels(GraderLabels(0, 0, 0, 0), GraderLabels(0, 0, 0, 0), 0)


@dataclass(frozen=True)
class SensitivityOptions:
    """What to allow for.

    Attributes
    ----------
    labels
        What a person said about the grader's grades, by model and dataset, if anyone did.
    errors
        Largest rates of right answers graded wrong and of wrong ones graded right.
    choices
        Number of choices to correct for guessing among.
    penalty, confidence_level
        Of the weighted score, and of every interval.
    """

    labels: Mapping[Source, Labels] | None
    errors: tuple[float, float]
    choices: int | None
    penalty: float
    confidence_level: float


def print_sensitivity(outcomes: pl.DataFrame, options: SensitivityOptions) -> None:
    """Print what other decisions would have made of each variant."""
    for number, group in enumerate(variant_groups(outcomes)):
        rows = first_draws(group.outcomes)
        prose(("\n" if number else "") + _title(group.model, group.dataset, group.variant))
        _print_metrics(rows, options)
        _print_index(rows, group, options)
    for source, labels in (options.labels or {}).items():
        _print_labels(source, labels)


def _title(*parts: str | None) -> str:
    return harmless(", ".join(part for part in parts if part) or "all")


def _print_metrics(rows: pl.DataFrame, options: SensitivityOptions) -> None:
    found = sensitivity(rows, options.penalty, options.confidence_level)
    as_scored = {metric.name: metric for metric in metrics(contingency_table(rows), penalty=options.penalty)}
    table = plain_table(("metric", "as scored", "over all scoring rules"), left=("metric",))
    for one in found.ranges:
        spread = UNDEFINED if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"
        table.add_row({**COLUMNS, "refusal_index": "RI"}[one.name], _number(as_scored[one.name].estimate), spread)
    Console(highlight=False, width=TABLE_WIDTH).print(table)


def _print_index(rows: pl.DataFrame, group: VariantGroup, options: SensitivityOptions) -> None:
    table, level = contingency_table(rows), options.confidence_level
    shown = plain_table(("RI if", "estimate", f"{_percent(level)} interval", "status"), left=("RI if", "status"))
    found = sensitivity(rows, options.penalty, level)
    for cells in (*_scoring_rows(rows, found.rules), *_missing_rows(rows, level), *_topic_rows(found.topics)):
        shown.add_row(*cells)
    corrections = _corrections(table, group, options)
    for name, corrected in corrections:
        interval = _interval(corrected.confidence_interval(level, rng=SEED))
        shown.add_row(name, _number(corrected.estimate), interval, corrected.reason or "ok")
    f_c, f_w = options.errors
    spread = misgrading_range(table, (0.0, f_c), (0.0, f_w))
    name = f"the grader errs on up to {_percent(f_c)} of right and {_percent(f_w)} of wrong answers"
    shown.add_row(name, _range(spread), "", _range_status(spread))
    typer.echo()
    Console(highlight=False, width=TABLE_WIDTH).print(shown)
    if not _knows_refused_again(rows):
        prose("\nWhich forced answers were refused again is not known (no forced_grade): no range above allows for it.")
    for _, corrected in corrections:
        _print_what_to_label(corrected.reason)


def _knows_refused_again(rows: pl.DataFrame) -> bool:
    """Whether every graded forced answer says if it was another refusal."""
    return not rows.filter(pl.col("refused") & pl.col("wrong").is_not_null() & pl.col("forced_grade").is_null()).height


def _scoring_rows(rows: pl.DataFrame, rules: Sequence[RuleEstimate]) -> Iterator[tuple[str, ...]]:
    known = _knows_refused_again(rows)
    for rule in rules:
        if known:
            yield RULES[rule.rule], _number(rule.estimate), "", harmless(rule.reason or "ok")
        elif rule.rule in RULES_ON_REFUSED_AGAIN:
            yield RULES[rule.rule], NOT_KNOWN, "", "no_forced_grade"
        else:
            name = "as scored" if rule.rule == "refused_again_wrong" else RULES[rule.rule]
            yield name, _number(rule.estimate), "", harmless(rule.reason or "ok")


def _missing_rows(rows: pl.DataFrame, level: float) -> Iterator[tuple[str, ...]]:
    counts = outcome_counts(rows)
    graded = ContingencyTable(counts.refused_wrong, counts.refused_right, counts.answered_wrong, counts.answered_right)
    bounds = missing_bounds(graded, counts.refused_again + counts.unscored_forced, counts.unscored_first)
    ends = f"{_number(bounds.low)} to {_number(bounds.high)}"
    yield "whatever is missing is anything", ends, _interval(bounds.confidence_interval(level)), bounds.reason or "ok"


def _topic_rows(topics: TopicSummary | None) -> Iterator[tuple[str, ...]]:
    if topics is None:
        return
    within, told = topics.within, f"{topics.informative} of {topics.topics} topics say something"
    yield "within topics", _number(within.estimate), _ends(within.low, within.high), within.reason or told
    for one in topics.each[:MOST_TOPICS]:
        index, status = one.refusal_index, f"{one.questions:,} questions"
        name = f"  within {harmless(one.topic)}"
        yield name, _number(index.estimate), _ends(index.low, index.high), index.reason or status


def _corrections(
    table: ContingencyTable, group: VariantGroup, options: SensitivityOptions
) -> list[tuple[str, MisgradingResult]]:
    found = []
    if options.labels is not None:
        labels = options.labels.get((group.model, group.dataset), UNLABELLED)
        corrected = misgrading_from_labels(table, refused=labels.refused, answered=labels.answered)
        found.append((f"corrected by {labels.total:,} labels", corrected))
    if options.choices is not None and refusal_index(table).status != "undefined":
        found.append((f"corrected for guessing among {options.choices}", correct_guessing(table, options.choices)))
    return found


def _print_what_to_label(reason: str | None) -> None:
    if reason is None or not reason.startswith(NO_LABELS):
        return
    kinds = [KINDS[kind] for kind in reason.removeprefix(NO_LABELS).split("+")]
    prose(
        f"\nNot corrected by labels, since none says right or wrong of the {' or the '.join(kinds)}: label some of "
        "each, as 'refusal-index audit' with a larger --size draws them."
    )


def _print_labels(source: Source, labels: Labels) -> None:
    whose = f"{_title(*source)}: " if any(source) else ""
    for name, one in (("forced answers", labels.refused), ("first answers", labels.answered)):
        prose(
            f"\n{whose}labelled {name}: {one.graded_right_is_right:,} graded right and right, "
            f"{one.graded_right_is_wrong:,} graded right but wrong, "
            f"{one.graded_wrong_is_wrong:,} graded wrong and wrong, "
            f"{one.graded_wrong_is_right:,} graded wrong but right"
        )
    left = f"; {labels.neither:,} labelled as neither are left out" if labels.neither else ""
    prose(f"each pass is corrected by its own labels, which are pooled over variants{left}")


def _range(spread: MisgradingRange) -> str:
    """Both ends, or the one that is defined: larger rates move the index away from 0."""
    near = spread.at_smallest_rates.estimate
    if spread.status != "undefined" or near is None:
        return f"{_number(spread.low)} to {_number(spread.high)}"
    return f"{near:.3f} to {UNDEFINED}" if near >= 0 else f"{UNDEFINED} to {near:.3f}"


def _range_status(spread: MisgradingRange) -> str:
    only_far = spread.status == "undefined" and spread.at_smallest_rates.estimate is not None
    return f"{spread.reason} at the largest rates" if only_far else spread.reason or "ok"


def _percent(share: float) -> str:
    return f"{share * 100:g} %"


def _number(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.3f}"


def _ends(low: float | None, high: float | None) -> str:
    return UNDEFINED if low is None or high is None else f"[{low:.3f}, {high:.3f}]"


def _interval(interval: ConfidenceInterval) -> str:
    return _ends(*interval.or_none())
