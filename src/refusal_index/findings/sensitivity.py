"""Sensitivity of a variant's metrics to scoring decisions and to missing grades.

Decisions concern missing grades, repeated refusals, topics and errors of the grader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from refusal_index import stats
from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.outcome import Grade
from refusal_index.data.outcome_table import Group
from refusal_index.data.rates import (
    VariantGroup,
    contingency_table,
    first_draws,
    never_forced,
    variant_groups,
    variant_metrics,
)
from refusal_index.findings.draws import DrawsSummary, draws_summary
from refusal_index.findings.labels import Labels, Source, labelled_arrays
from refusal_index.findings.metrics import INDEX, Printable, Statement
from refusal_index.findings.unclear import unclear_bounds, unclear_replies
from refusal_index.stats.estimate import Bounds


@dataclass(frozen=True)
class RuleEstimate:
    """The Refusal Index under one scoring rule; the estimate is None where it is undefined."""

    rule: str
    estimate: float | None
    reason: str | None


@dataclass(frozen=True)
class TopicEstimate:
    """The Refusal Index of one topic, or of one source of a mix."""

    topic: str
    questions: int
    refusal_index: stats.Estimate


@dataclass(frozen=True)
class TopicSummary:
    """The Refusal Index within topics, without the contribution of differences between topics."""

    # topics, informative: number of topics, and of those that say anything about the index
    topics: int
    informative: int
    within: stats.Estimate  # the common index of all topics
    each: tuple[TopicEstimate, ...]  # every topic on its own, the largest first


@dataclass(frozen=True)
class Sensitivity:
    """Metrics under other scoring decisions."""

    ranges: tuple[stats.ScoringRange, ...]  # smallest and largest value of every metric over the scoring rules
    rules: tuple[RuleEstimate, ...]  # the Refusal Index under each rule
    topics: TopicSummary | None  # None where fewer than two topics are known
    # whether every graded forced answer says if it was another refusal: if not, no range allows for those that were
    knows_refused_again: bool = True

    def range_of(self, name: str) -> stats.ScoringRange:
        """Return the range of a metric by name."""
        return next(scoring_range for scoring_range in self.ranges if scoring_range.name == name)


def sensitivity(outcomes: pl.DataFrame, analysis: Analysis) -> Sensitivity:
    """Return the metrics of one variant, one row per question, under other scoring decisions."""
    counts = outcome_counts(outcomes)
    payoffs = analysis.payoffs
    rules = (RuleEstimate(rule, result.estimate, result.reason) for rule, result in stats.scoring_rules(counts).items())
    ranges = stats.scoring_ranges(
        counts, weighted_score_p=payoffs.weighted_score_p, truthfulness_weights=payoffs.truthfulness
    )
    answered_again = pl.col("refused") & pl.col("wrong").is_not_null()
    knows_refused_again = outcomes.filter(answered_again & pl.col("forced_grade").is_null()).is_empty()
    return Sensitivity(tuple(ranges), tuple(rules), _topics(outcomes, analysis), knows_refused_again)


def outcome_counts(outcomes: pl.DataFrame) -> stats.OutcomeCounts:
    """Count the questions by outcome, with the reasons of incomplete ones."""
    refused = pl.col("refused")
    wrong = pl.col("wrong")
    is_refused_again = (refused & (pl.col("forced_grade") == Grade.REFUSED.value)).fill_null(value=False)
    graded = contingency_table(outcomes.filter(~is_refused_again))
    return stats.OutcomeCounts(
        *graded.counts,
        refused_again=outcomes.filter(is_refused_again).height,
        unscored_forced=outcomes.filter(refused & wrong.is_null()).height,
        unscored_first=outcomes.filter(refused.is_null()).height,
        unscored_answered=outcomes.filter(~refused & wrong.is_null()).height,
    )


def _topics(outcomes: pl.DataFrame, analysis: Analysis) -> TopicSummary | None:
    scored = outcomes.drop_nulls(["refused", "wrong", "topic"])
    if scored["topic"].n_unique() < 2:
        return None
    result = stats.within_topic_refusal_index(
        scored["refused"].to_numpy(), scored["wrong"].to_numpy(), scored["topic"].to_list()
    )
    by_size = sorted(result.tables.items(), key=lambda item: (-item[1].n, str(item[0])))
    return TopicSummary(
        topics=len(by_size),
        informative=len(by_size) - result.n_uninformative,
        within=_estimate(result, analysis),
        each=tuple(
            TopicEstimate(str(topic), table.n, _estimate(stats.refusal_index(table), analysis))
            for topic, table in by_size
        ),
    )


def _estimate(result: stats.RefusalIndexResult | stats.WithinTopicResult, analysis: Analysis) -> stats.Estimate:
    return stats.Estimate.of(result, result.confidence_interval(analysis.confidence_level))


NO_LABELS = "no_labels:"
"""Prefix of the reason that lists kinds of answers without labels."""

UNLABELLED = Labels(stats.GraderLabels(0, 0, 0, 0), stats.GraderLabels(0, 0, 0, 0), 0)


@dataclass(frozen=True)
class DecisionOptions:
    """Options of a sensitivity analysis."""

    # what a person said about the grader's grades, by model and dataset, if anyone did
    labels: Mapping[Source, Labels] | None = None
    # largest rates of right answers graded wrong and of wrong ones graded right
    errors: tuple[float, float] = (0.03, 0.03)
    choices: int | None = None  # number of choices to correct for guessing among
    analysis: Analysis = DEFAULT_ANALYSIS  # of every metric
    is_deterministic: bool = False  # whether the model was sent temperature 0, where corrected RI equals RI


@dataclass(frozen=True)
class Decisions(Group):
    """One variant under all other scoring decisions."""

    as_scored: Mapping[str, stats.Estimate]  # every metric as scored, by name
    scoring: Sensitivity  # under other scoring rules, and within topics
    missing: stats.MissingBounds  # the index with whatever is missing taken for anything
    corrections: Mapping[str, stats.MisgradingResult]  # the index corrected by labels or for guessing, by what for
    unclear: stats.MissingBounds | None  # the index with any of the unclear replies as refusals; None without such
    as_refusals: stats.Estimate | None  # the index with all of them as refusals; None without such
    missing_grades: int  # questions that are left out as scored
    # the index with a grader that errs as much as it may: differently on refused and on answered questions, or alike
    misgrading: stats.MisgradingRange
    misgrading_same_rates: stats.MisgradingRange
    # every metric as the labels of this variant correct it, by name; empty without labels
    powered: Mapping[str, stats.PredictionPowered]
    draws: DrawsSummary | None  # what leads from RI to the corrected index

    @property
    def conclusion(self) -> Statement:
        """Between which values RI lies under these decisions, and whether some leave it undefined or unknown."""
        ends = [self.missing.low, self.missing.high]
        for misgraded in (self.misgrading, self.misgrading_same_rates):
            ends += [misgraded.low, misgraded.high]
        if self.unclear is not None:
            ends += [self.unclear.low, self.unclear.high]
        ends += [rule.estimate for rule in self.scoring.rules]
        ends += [corrected.estimate for corrected in self.corrections.values()]
        ends += [self.scoring.topics.within.estimate] if self.scoring.topics else []
        defined = [end for end in ends if end is not None]
        as_scored = self.as_scored[INDEX].estimate
        is_partial = None in ends or not self.scoring.knows_refused_again
        low = min(defined, default=None)
        high = max(defined, default=None)
        values = {"estimate": as_scored, "low": low, "high": high, "is_partial": is_partial}
        return Statement("index_over_decisions", "conclusion", values)

    @property
    def statements(self) -> Iterator[Statement]:
        """Its statements: what the numbers leave out, and what the labels correct."""
        if self.missing_grades:
            yield Statement("missing_left_out")
        if not self.scoring.knows_refused_again:
            yield Statement("refused_again_unknown", "serious")
        if self.powered:
            lacks = all((metric.reason or "").startswith(NO_LABELS) for metric in self.powered.values())
            yield Statement("labels_missing" if lacks else "by_labels", "serious" if lacks else "note")
        for reason in (corrected.reason or "" for corrected in self.corrections.values()):
            if reason.startswith(NO_LABELS):
                yield Statement("not_corrected", "serious", {"kinds": reason.removeprefix(NO_LABELS).split("+")})


@dataclass(frozen=True, repr=False)
class SensitivityAnalysis(Printable):
    """The variants of an outcome table under other scoring decisions."""

    variants: tuple[Decisions, ...]
    options: DecisionOptions  # which decisions


def decide_otherwise(outcomes: pl.DataFrame, options: DecisionOptions) -> tuple[Decisions, ...]:
    """Return the metrics of each variant of an outcome table under other scoring decisions."""
    return tuple(_decisions(group, options) for group in variant_groups(outcomes))


def _decisions(group: VariantGroup, options: DecisionOptions) -> Decisions:
    rows = first_draws(group.outcomes)
    table = contingency_table(rows)
    counts = outcome_counts(rows)
    graded = stats.ContingencyTable(*(getattr(counts, cell) for cell in stats.CELL_NAMES))
    payoffs = options.analysis.payoffs
    right, wrong = options.errors
    corrections: dict[str, stats.MisgradingResult] = {}
    labels = None if options.labels is None else options.labels.get((group.model, group.dataset), UNLABELLED)
    powered: dict[str, stats.PredictionPowered] = {}
    if labels is not None:
        arrays = labelled_arrays(rows.drop_nulls(["refused", "wrong"]), labels, group.variant)
        metrics = stats.prediction_powered(
            **arrays, weighted_score_p=payoffs.weighted_score_p, truthfulness_weights=payoffs.truthfulness
        )
        powered = {metric.name: metric for metric in metrics}
        corrected = stats.misgrading_from_labels(table, refused=labels.refused, answered=labels.answered)
        corrections[f"corrected by {labels.total:,} labels"] = corrected
    if options.choices is not None and stats.refusal_index(table).status != "undefined":
        corrections[f"corrected for guessing among {options.choices}"] = stats.correct_guessing(table, options.choices)
    unclear = unclear_replies(rows, options.analysis)
    return Decisions(
        unclear=unclear_bounds(rows),
        as_refusals=None if unclear is None else unclear.as_refusals,
        model=group.model,
        dataset=group.dataset,
        variant=group.variant,
        as_scored={metric.name: metric for metric in variant_metrics(rows, options.analysis)},
        scoring=sensitivity(rows, options.analysis),
        missing=stats.missing_bounds(
            graded, counts.refused_again + counts.unscored_forced, counts.unscored_first, counts.unscored_answered
        ),
        corrections=corrections,
        misgrading=stats.misgrading_range(table, (0.0, right), (0.0, wrong)),
        missing_grades=rows.height - table.n,
        misgrading_same_rates=stats.misgrading_range(table, (0.0, right), (0.0, wrong), same_rates=True),
        powered=powered,
        draws=draws_summary(group.outcomes, options.analysis, is_deterministic=options.is_deterministic),
    )


MIN_FAILURES = 5
"""Refused questions without a grade below which they say nothing of where failures fall."""

LEVEL = 0.05
"""Level of the test of whether failures are associated with refusals."""


@dataclass(frozen=True)
class MissingRange(Bounds):
    """Range of the Refusal Index over all possible grades of unscored questions, without sampling error."""

    # refused, answered, unknown: what is missing, by what the first pass is known to have done
    refused: int
    answered: int
    unknown: int

    @property
    def questions(self) -> int:
        """How many are missing."""
        return self.refused + self.answered + self.unknown


def missing_range(outcomes: pl.DataFrame) -> MissingRange | None:
    """Return the range of the index over missing grades of one variant, one row per question; None if none is missing.

    >>> refused, wrong = [True, True, False, False, True], [True, False, True, False, None]
    >>> found = missing_range(pl.DataFrame({"refused": refused, "wrong": wrong, "forced_grade": [None] * 5}))
    >>> round(found.low, 3), round(found.high, 3), found.refused
    (-0.252, 0.252, 1)
    """
    counts = outcome_counts(outcomes)
    refused = counts.unscored_forced
    answered = counts.unscored_answered
    unknown = counts.unscored_first
    if not refused + answered + unknown:
        return None
    bounds = stats.missing_bounds(contingency_table(outcomes), refused, unknown, answered)
    return MissingRange(bounds.low, bounds.high, bounds.status, bounds.reason, refused, answered, unknown)


def missing_ranges(variants: Mapping[str | None, pl.DataFrame]) -> dict[str | None, MissingRange]:
    """Return the range of the index of every variant with missing grades, from its first draws.

    Variants without a forced pass are left out: their index is not measured at all.
    """
    first = {variant: first_draws(rows) for variant, rows in variants.items()}
    ranges = {variant: missing_range(rows) for variant, rows in first.items() if not never_forced(rows)}
    return {variant: missing for variant, missing in ranges.items() if missing is not None}


def failure_pvalue(table: stats.ContingencyTable, refused_failed: int, answered_failed: int) -> float | None:
    """Test whether failures are associated with refusals; None if there is no significant association.

    The p-value is one-sided, of Fisher's exact test: small where more grades of refused questions are missing.
    Too few failures to say so are none either: fewer than `MIN_FAILURES` refused questions, or a p-value above
    `LEVEL`.

    - `table`: the scored questions.
    - `refused_failed`, `answered_failed`: questions without a grade that the first pass refused, and answered.

    >>> f"{failure_pvalue(stats.ContingencyTable(200, 50, 400, 340), 10, 0):.1e}"
    '1.2e-06'
    >>> failure_pvalue(stats.ContingencyTable(200, 50, 400, 340), 4, 0) is None
    True
    """
    if refused_failed < MIN_FAILURES:
        return None
    from scipy.stats import fisher_exact  # noqa: PLC0415 - takes a while to import, and most runs need it not

    counts = [[refused_failed, table.n_refused], [answered_failed, table.n_answered]]
    pvalue = float(fisher_exact(counts, alternative="greater").pvalue)
    return pvalue if pvalue <= LEVEL else None
