"""How far the numbers of a variant rest on what had to be decided: missing grades, answers refused again, topics."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from refusal_index.outcomes.counts import contingency_table
from refusal_index.outcomes.grade import Grade
from refusal_index.stats import (
    Estimate,
    OutcomeCounts,
    RefusalIndexResult,
    ScoringRange,
    WithinTopicResult,
    refusal_index,
    scoring_ranges,
    scoring_rules,
    within_topic_refusal_index,
)


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
    refusal_index: Estimate


@dataclass(frozen=True)
class TopicSummary:
    """The Refusal Index within topics: what is left when topics of different difficulty do not help."""

    # topics, informative: number of topics, and of those that say anything about the index
    topics: int
    informative: int
    within: Estimate  # the common index of all topics
    each: tuple[TopicEstimate, ...]  # every topic on its own, the largest first


@dataclass(frozen=True)
class Sensitivity:
    """What other decisions would have given."""

    ranges: tuple[ScoringRange, ...]  # smallest and largest value of every metric over the scoring rules
    rules: tuple[RuleEstimate, ...]  # the Refusal Index under each rule
    topics: TopicSummary | None  # None where fewer than two topics are known

    def range_of(self, name: str) -> ScoringRange:
        """Find the range of a metric by name."""
        return next(found for found in self.ranges if found.name == name)


def sensitivity(outcomes: pl.DataFrame, penalty: float, confidence_level: float) -> Sensitivity:
    """Return what other decisions would have made of one variant's outcomes, a row a question."""
    counts = outcome_counts(outcomes)
    rules = (RuleEstimate(rule, result.estimate, result.reason) for rule, result in scoring_rules(counts))
    return Sensitivity(scoring_ranges(counts, penalty=penalty), tuple(rules), _topics(outcomes, confidence_level))


def outcome_counts(outcomes: pl.DataFrame) -> OutcomeCounts:
    """Count the questions by how they ended, the incomplete ones told apart."""
    refused, wrong = pl.col("refused"), pl.col("wrong")
    again = (refused & (pl.col("forced_grade") == Grade.REFUSED.value)).fill_null(value=False)
    graded = contingency_table(outcomes.filter(~again))
    return OutcomeCounts(
        *graded.counts,
        refused_again=outcomes.filter(again).height,
        unscored_forced=outcomes.filter(refused & wrong.is_null()).height,
        unscored_first=outcomes.filter(refused.is_null() | (~refused & wrong.is_null())).height,
    )


def _topics(outcomes: pl.DataFrame, confidence_level: float) -> TopicSummary | None:
    scored = outcomes.drop_nulls(["refused", "wrong", "topic"])
    if scored["topic"].n_unique() < 2:
        return None
    result = within_topic_refusal_index(
        scored["refused"].to_numpy(), scored["wrong"].to_numpy(), scored["topic"].to_list()
    )
    each = sorted(result.tables.items(), key=lambda item: (-item[1].n, str(item[0])))
    return TopicSummary(
        topics=len(each),
        informative=len(each) - result.n_uninformative,
        within=_estimate(result, confidence_level),
        each=tuple(
            TopicEstimate(str(topic), table.n, _estimate(refusal_index(table), confidence_level))
            for topic, table in each
        ),
    )


def _estimate(result: RefusalIndexResult | WithinTopicResult, confidence_level: float) -> Estimate:
    return Estimate.of(result, result.confidence_interval(confidence_level))
