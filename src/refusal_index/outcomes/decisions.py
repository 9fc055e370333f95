"""What other decisions would have made of a run's numbers: on missing answers, refusals again, a grader's errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from refusal_index.outcomes.counts import VariantGroup, contingency_table, variant_groups
from refusal_index.outcomes.labels import Labels, Source
from refusal_index.outcomes.matching import first_draws
from refusal_index.outcomes.sensitivity import Sensitivity, outcome_counts, sensitivity
from refusal_index.stats import (
    ContingencyTable,
    Estimate,
    GraderLabels,
    MisgradingRange,
    MisgradingResult,
    MissingBounds,
    correct_guessing,
    metrics,
    misgrading_from_labels,
    misgrading_range,
    missing_bounds,
    refusal_index,
)

UNLABELLED = Labels(GraderLabels(0, 0, 0, 0), GraderLabels(0, 0, 0, 0), 0)


@dataclass(frozen=True)
class DecisionOptions:
    """What to allow for."""

    # what a person said about the grader's grades, by model and dataset, if anyone did
    labels: Mapping[Source, Labels] | None = None
    # largest rates of right answers graded wrong and of wrong ones graded right
    errors: tuple[float, float] = (0.03, 0.03)
    choices: int | None = None  # number of choices to correct for guessing among
    # penalty, confidence_level: of the weighted score, and of every interval
    penalty: float = 1.0
    confidence_level: float = 0.95


@dataclass(frozen=True)
class Decisions:
    """One variant, with every decision taken otherwise."""

    # model, dataset, variant: what was asked whom; None where the table does not say
    model: str | None
    dataset: str | None
    variant: str | None
    as_scored: Mapping[str, Estimate]  # every metric as scored, by name
    scoring: Sensitivity  # under other scoring rules, and within topics
    knows_refused_again: bool  # whether every graded forced answer says if it was another refusal
    missing: MissingBounds  # the index with whatever is missing taken for anything
    corrections: Mapping[str, MisgradingResult]  # the index corrected by labels or for guessing, by what for
    misgrading: MisgradingRange  # the index with a grader that errs as much as it may


def decide_otherwise(outcomes: pl.DataFrame, options: DecisionOptions) -> tuple[Decisions, ...]:
    """Return what other decisions would have made of each variant of an outcome table, by its first draws."""
    return tuple(_decisions(group, options) for group in variant_groups(outcomes))


def _decisions(group: VariantGroup, options: DecisionOptions) -> Decisions:
    rows = first_draws(group.outcomes)
    table, counts = contingency_table(rows), outcome_counts(rows)
    graded = ContingencyTable(counts.refused_wrong, counts.refused_right, counts.answered_wrong, counts.answered_right)
    right, wrong = options.errors
    return Decisions(
        model=group.model,
        dataset=group.dataset,
        variant=group.variant,
        as_scored={metric.name: metric for metric in metrics(table, penalty=options.penalty)},
        scoring=sensitivity(rows, options.penalty, options.confidence_level),
        knows_refused_again=_knows_refused_again(rows),
        missing=missing_bounds(graded, counts.refused_again + counts.unscored_forced, counts.unscored_first),
        corrections=dict(_corrections(table, group, options)),
        misgrading=misgrading_range(table, (0.0, right), (0.0, wrong)),
    )


def _knows_refused_again(rows: pl.DataFrame) -> bool:
    return not rows.filter(pl.col("refused") & pl.col("wrong").is_not_null() & pl.col("forced_grade").is_null()).height


def _corrections(
    table: ContingencyTable, group: VariantGroup, options: DecisionOptions
) -> Iterator[tuple[str, MisgradingResult]]:
    if options.labels is not None:
        labels = options.labels.get((group.model, group.dataset), UNLABELLED)
        corrected = misgrading_from_labels(table, refused=labels.refused, answered=labels.answered)
        yield f"corrected by {labels.total:,} labels", corrected
    if options.choices is not None and refusal_index(table).status != "undefined":
        yield f"corrected for guessing among {options.choices}", correct_guessing(table, options.choices)
