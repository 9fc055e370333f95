"""The summary of a run, as a pure function of its outcome table.

Every number but the corrected Refusal Index is of one response per question: the first draw, where there are several.
The number over all variants is the joint estimate: they share their questions, so their tables must not be added up.
What a reader must know before believing a number is a caveat, a statement that `render.sentences` words.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from refusal_index.data import rates
from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.outcome import FORCED_NOT_ASKED
from refusal_index.data.outcome_table import SAMPLING_COLUMNS, Group
from refusal_index.data.run_json import UNPRICED, Prices
from refusal_index.errors import OutcomeTableError, escape, suggestion
from refusal_index.findings.draws import NO_REPEATED_QUESTIONS, POOLED, DrawsSummary, PooledSummary, draws_summary, pool
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS, Statement
from refusal_index.findings.reply_checks import ReplyChecks, reply_caveats
from refusal_index.findings.sensitivity import (
    LEVEL,
    MissingRange,
    Sensitivity,
    failure_pvalue,
    missing_range,
    sensitivity,
)
from refusal_index.findings.unclear import UnclearReplies, unclear_caveats, unclear_replies
from refusal_index.stats import CELL_NAMES, ContingencyTable, Estimate, missing_bounds
from refusal_index.stats.contingency import FEW_CLUSTERS, FEW_IN_CELL, ONE_CLUSTER

KNOWLEDGE_LIMIT = 0.01
"""Share of right answers under forced answering below which RI says little."""

SMALL_CELL = 5
"""Observed or expected cell count below which the interval may miss its nominal coverage."""

FEW_REPEATED = 50
"""Number of repeated questions below which reliabilities are mostly noise."""


def table_caveats(
    table: ContingencyTable,
    refusal_index: Estimate,
    completeness: rates.Completeness,
    missing: MissingRange | None,
    forced: rates.ForcedRefusals,
) -> Iterator[Statement]:
    """Yield the caveats about one variant, the most serious first.

    - `table`: its counts.
    - `refusal_index`: the estimate made from them.
    - `completeness`, `missing`, `forced`: what is missing, and how often the forced pass refused.
    """
    only_first = refusal_index.reason == FORCED_NOT_ASKED
    if not_forced := completeness.reasons.get(FORCED_NOT_ASKED, 0):
        exact = completeness.unscored == not_forced and only_first
        yield Statement(
            FORCED_NOT_ASKED,
            "serious",
            {"questions": not_forced, "others_are_exact": exact, "only_first": only_first},
        )
    is_undefined = refusal_index.status == "undefined"
    yield from _incomplete(completeness, only_first=only_first)
    yield from _unscored_refusals(table, completeness, missing)
    if forced.are_many and not is_undefined:
        yield Statement("forced_refusals", "serious", {"refused": forced.refused, "asked": forced.asked})
    if not only_first:
        if is_undefined:
            values = {"reason": refusal_index.reason, "refused_again": forced.refused, "asked": forced.asked}
            yield Statement("undefined", "serious", values)
        yield from _estimate(table, refusal_index)


def sampling_caveats(sampling: rates.SamplingSummary | None) -> Iterator[Statement]:
    """Yield the caveats about few clusters and about few questions with most of the weight."""
    if sampling is None:
        return
    if sampling.few_dominate:
        worth = {"worth": sampling.effective_by_weight, "in_cell": sampling.effective_in_smallest_cell}
        yield Statement("few_dominate", "serious", {"column": sampling.weight, "limit": FEW_IN_CELL, **worth})
    values = {"clusters": sampling.clusters, "column": sampling.cluster, "limit": FEW_CLUSTERS}
    if sampling.clusters == 1:
        yield Statement(ONE_CLUSTER, "serious", values)
    elif sampling.few:
        yield Statement("few_clusters", "serious", values)


def answerable_caveats(rows: pl.DataFrame, counts: Mapping[str, int]) -> Iterator[Statement]:
    """Yield the caveats that some questions, not all, are unmarked, and that unanswerable ones count as right."""
    if counts["unknown"] and counts["unanswerable"]:
        values = {"unknown": counts["unknown"], "asked": sum(counts.values())}
        yield Statement("answerable_unknown", "serious", values)
    if right := rows.filter(rates.IS_UNANSWERABLE & ~pl.col("wrong")).height:
        yield Statement("unanswerable_right", "serious", {"right": right, "unanswerable": counts["unanswerable"]})


def _estimate(table: ContingencyTable, estimate: Estimate) -> Iterator[Statement]:
    if estimate.status == "boundary" and estimate.low is not None:
        cells = (estimate.reason or "").removeprefix("zero_cell:").split("+")
        ends = {"low": estimate.low, "high": estimate.high}
        yield Statement("boundary", "serious", {"estimate": estimate.estimate, **ends, "cells": cells})
    if table.n > 0 and 1 - table.error_rate < KNOWLEDGE_LIMIT and estimate.reason != "all_wrong":
        right = table.refused_right + table.answered_right
        yield Statement("next_to_no_knowledge", "serious", {"right": right, "n": table.n})
    elif estimate.status == "ok":
        yield from _small_cells(table)


def _small_cells(table: ContingencyTable) -> Iterator[Statement]:
    """Yield a caveat if an observed or expected cell count is small."""
    counts = dict(zip(CELL_NAMES, table.counts, strict=True))
    expected = expected_counts(table)
    smallest = min(CELL_NAMES, key=lambda cell: min(counts[cell], expected[cell]))
    if min(counts[smallest], expected[smallest]) >= SMALL_CELL:
        return
    right = table.refused_right + table.answered_right
    by_right = smallest in ("refused_right", "answered_right") and right <= table.n - right
    values = {"cell": smallest, "found": counts[smallest], "expected": expected[smallest], "right": right}
    yield Statement("few_right_answers" if by_right else "small_cell", "serious", values)


def expected_counts(table: ContingencyTable) -> dict[str, float]:
    """Return the four counts expected from the margins if refusal and error were independent.

    >>> expected_counts(ContingencyTable(40, 10, 20, 30))
    {'refused_wrong': 30.0, 'refused_right': 20.0, 'answered_wrong': 30.0, 'answered_right': 20.0}
    """
    wrong = table.refused_wrong + table.answered_wrong
    margins = [(a, b) for a in (table.n_refused, table.n_answered) for b in (wrong, table.n - wrong)]
    return {cell: a * b / table.n for cell, (a, b) in zip(CELL_NAMES, margins, strict=True)}


def _incomplete(completeness: rates.Completeness, *, only_first: bool) -> Iterator[Statement]:
    """Yield a caveat if too much is missing, from the first pass alone if there was no forced pass."""
    reasons = {name: n for name, n in completeness.reasons.items() if not (only_first and name == FORCED_NOT_ASKED)}
    missing = sum(reasons.values())
    n_asked = completeness.asked
    if rates.too_many_missing(missing, n_asked):
        values = {"missing": missing, "asked": n_asked, "reasons": reasons, "only_first": only_first}
        yield Statement("incomplete", "serious", values)


def _unscored_refusals(
    table: ContingencyTable, completeness: rates.Completeness, missing: MissingRange | None
) -> Iterator[Statement]:
    """Yield a caveat if refused questions fail more often; questions not asked are not failures."""
    if missing is None:
        return
    failed = missing.refused - completeness.reasons.get(FORCED_NOT_ASKED, 0)
    pvalue = failure_pvalue(table, failed, missing.answered)
    if pvalue is not None:
        ends = missing_bounds(table, unknown_refused=failed)
        values = {
            "refused": table.n_refused + failed,
            "refused_failed": failed,
            "answered": table.n_answered + missing.answered,
            "answered_failed": missing.answered,
            "pvalue": pvalue,
            "level": LEVEL,
            "low": ends.low,
            "high": ends.high,
        }
        yield Statement("unscored_refusals", "serious", values)


def draws_caveats(
    outcomes: pl.DataFrame,
    draws: DrawsSummary | None,
    further: rates.Completeness | None,
    *,
    answered_only: bool = False,
) -> Iterator[Statement]:
    """Yield the caveats about repeated draws: some are missing, cannot be used, or are too few."""
    if further is None:
        return
    if not further.is_enough:
        values = {"missing": further.unscored, "asked": further.asked, "reasons": further.reasons}
        yield Statement("incomplete_draws", "serious", values)
    if answered_only:
        samples = outcomes.drop_nulls("refused").group_by("question_id").len()["len"]
        most = samples.max()
        yield Statement("first_pass_samples", "note", {"questions": samples.filter(samples > 1).len(), "draws": most})
        return
    scored = outcomes.drop_nulls(["refused", "wrong"])
    repeated = scored.filter(pl.len().over("question_id") > 1)["question_id"].n_unique()
    if draws is None and repeated:
        yield Statement("repeated_draws_unused", "serious", {"questions": repeated})
    elif draws is not None and draws.questions < FEW_REPEATED:
        yield Statement("few_repeated", "serious", {"questions": draws.questions, "limit": FEW_REPEATED})


CAUTION_LEVELS = ("low", "normal", "high", "highest")
"""Names of the default set's prompts, which ask for more and more caution."""

INCOMPLETE = "incomplete"
"""Status of a variant with too many missing questions, whatever its index."""


@dataclass(frozen=True)
class Usage:
    """Requests, tokens and cost of a variant."""

    # input_tokens, output_tokens, requests: sums over both passes and the grader
    input_tokens: int
    output_tokens: int
    requests: int
    # in US dollars, of the models whose price is known; None where none is, or that of the model under evaluation is
    # not, or where a reply has no usable token counts
    cost: float | None = None
    unpriced_tokens: int = 0  # of graders whose price is not known: in the other sums, and not in the cost

    @classmethod
    def total(cls, usages: Iterable[Usage]) -> Usage:
        """Add up; a cost of which a part is not known is not known.

        >>> Usage.total([Usage(100, 5, 2, 0.5), Usage(100, 5, 2, 0.25, 20)])
        Usage(input_tokens=200, output_tokens=10, requests=4, cost=0.75, unpriced_tokens=20)
        >>> Usage.total([Usage(100, 5, 2, 0.5), Usage(100, 5, 2)]).cost is None
        True
        """
        parts = tuple(usages)
        costs = [part.cost for part in parts if part.cost is not None]
        names = ("input_tokens", "output_tokens", "requests", "unpriced_tokens")
        sums = {name: sum(getattr(part, name) for part in parts) for name in names}
        return cls(**sums, cost=sum(costs) if len(costs) == len(parts) else None)


@dataclass(frozen=True)
class VariantSummary(Group):
    """One model on one dataset under one prompt variant."""

    table: ContingencyTable  # counts of the scored questions
    # each with interval and status: those of `refusal_index.stats.METRIC_NAMES`, those of `BY_ANSWERABLE`, which are
    # undefined without questions of their kind, and the corrected index, which is undefined without repeated draws
    metrics: tuple[Estimate, ...]
    # completeness, forced_refusals: what is missing, and how often the forced pass refused
    completeness: rates.Completeness
    forced_refusals: rates.ForcedRefusals
    answerability: Mapping[
        str, int
    ]  # how many of its questions are answerable, unanswerable, or neither as far as known
    caveats: tuple[Statement, ...]  # to show next to the numbers, the most serious first
    sensitivity: Sensitivity  # what other decisions on missing grades and refusals of the forced pass would have given
    draws: DrawsSummary | None = None  # what repeated draws show; None where no question was drawn twice
    usage: Usage | None = None  # tokens, requests and cost; None where not known
    missing: MissingRange | None = None  # the index over all that the unscored may have been; None where none are
    sampling: rates.SamplingSummary | None = None  # clusters and weights behind the metrics; None where there are none
    further_draws: rates.Completeness | None = None  # what is missing of the draws behind the first; None without such
    replies: ReplyChecks | None = None  # how its replies were read; None where that is not known
    unclear: UnclearReplies | None = None  # what unclear replies could change; None where there are none

    @property
    def name(self) -> str:
        """The name of the variant; "all" if the table names none."""
        return self.variant or "all"

    @property
    def is_complete(self) -> bool:
        """Whether at most the tolerated share of questions and further draws is missing."""
        return self.completeness.is_enough and (self.further_draws is None or self.further_draws.is_enough)

    @property
    def status(self) -> str:
        """Status of its index, or ``"incomplete"`` if too many questions are missing."""
        return self.index.status if self.is_complete else INCOMPLETE

    @property
    def index(self) -> Estimate:
        """RI: the index of one response per question."""
        return self.metric(INDEX)

    @property
    def corrected(self) -> Estimate | None:
        """The corrected index; None where no question was drawn repeatedly."""
        index = self.metric(CORRECTED)
        return None if index.reason == NO_REPEATED_QUESTIONS else index

    @property
    def repeats_ri(self) -> bool:
        """Whether the corrected index is RI, as at temperature 0."""
        ends = [(index.estimate, index.low, index.high) for index in (self.index, self.metric(CORRECTED))]
        return ends[0] == ends[1] and self.index.estimate is not None

    def metric(self, name: str) -> Estimate:
        """Return a metric by name; raises OutcomeTableError if it is unknown."""
        return _by_name(self.metrics, name)


@dataclass(frozen=True, repr=False)
class Summary:
    """Summaries of all variants of an outcome table, in table order, and joint estimates."""

    variants: tuple[VariantSummary, ...]  # each on its own
    pooled: tuple[PooledSummary, ...]  # the joint estimate of every model and dataset with two variants or more
    analysis: Analysis  # how they were computed
    prices: Prices = UNPRICED  # that the costs were computed with
    sections: Mapping[str, Any] = field(default_factory=dict)  # what plugins add, by name: see `render.sections`

    def __repr__(self) -> str:
        sources = dict.fromkeys(" on ".join(filter(None, (one.model, one.dataset))) for one in self.variants)
        return f"Summary({escape('; '.join(sources))}; variants: {len(self.variants)})"

    @property
    def has_one_source(self) -> bool:
        """Whether all variants are of one model and dataset."""
        return len({(variant.model, variant.dataset) for variant in self.variants}) <= 1

    @property
    def has_caution_levels(self) -> bool:
        """Whether its prompts have the names of the default set, which say how much caution they ask for."""
        return bool(self.variants) and all(variant.variant in CAUTION_LEVELS for variant in self.variants)

    @property
    def usage(self) -> Usage:
        """Total usage of all variants with known usage."""
        return Usage.total(variant.usage for variant in self.variants if variant.usage is not None)

    @property
    def is_sampled(self) -> bool:
        """Whether its metrics account for clusters or weights."""
        return any(variant.sampling is not None for variant in self.variants)

    @property
    def unanswerable(self) -> int:
        """The number of questions that are known to have no right answer."""
        return max((variant.answerability["unanswerable"] for variant in self.variants), default=0)

    def records(self, name: str) -> bool:
        """Whether its dataset supports a metric: those of `BY_ANSWERABLE` need questions without a right answer."""
        return name not in rates.BY_ANSWERABLE or self.unanswerable > 0

    def label(self, variant: VariantSummary) -> str:
        """Return a label for a variant, with model and dataset if there are several."""
        source = () if self.has_one_source else (variant.model, variant.dataset)
        return ", ".join(part for part in (*source, variant.variant) if part) or variant.name

    @property
    def index(self) -> Estimate | None:
        """Joint RI over all variants of the only model and dataset; None if there are several, or none."""
        if not self.has_one_source or not self.variants:
            return None
        return self.pooled[0].refusal_index if self.pooled else self.variants[0].index

    @property
    def corrected(self) -> Estimate | None:
        """Joint corrected index over all variants; None if there is none."""
        if self.index is None:
            return None
        return self.pooled[0].corrected_refusal_index if self.pooled else self.variants[0].corrected


COUNTED = (
    *("question_id", "draw", "refused", "wrong", "forced_grade", "unscored_reason", "topic", *SAMPLING_COLUMNS),
    *("question", "gold", "answerable", "forced_reply", "reading"),
)
"""Columns needed for a variant's summary."""


def summarise(
    table: pl.DataFrame | pl.LazyFrame,
    analysis: Analysis = DEFAULT_ANALYSIS,
    *,
    usage: Mapping[str | None, Usage] | None = None,
    replies: Mapping[str | None, ReplyChecks] | None = None,
    prices: Prices = UNPRICED,
    is_deterministic: bool = False,
    answered_only: bool = False,
    run_caveats: Sequence[Statement] = (),
) -> Summary:
    """Compute every metric of every variant.

    - `table`: an outcome table, in memory or in a file; rows of different models and datasets are kept apart.
    - `analysis`: how to compute them; its sampling columns are those of the file that the table comes from.
    - `usage`: what each variant took, by its name.
    - `replies`: how the replies of each variant were read, by its name.
    - `prices`: that the costs in `usage` were computed with.
    - `is_deterministic`: whether the models were asked at temperature 0, where the corrected index repeats RI.
    - `answered_only`: whether only the first pass was planned: then a run without RI is complete.
    - `run_caveats`: caveats about the run as a whole, which every variant shows.

    >>> from refusal_index.data import Outcome, Question
    >>> from refusal_index.data.outcome_table import Identification, outcome_table
    >>> asked, question = Identification("m", "d", "normal"), Question("q1", "Capital of France?", "Paris")
    >>> (normal,) = summarise(outcome_table([(asked, question, Outcome(refused=False, wrong=True))])).variants
    >>> normal.metric("refusal_rate").estimate, normal.index.name, normal.index.reason
    (0.0, 'refusal_index', 'nobody_refused')
    """
    usage_by_variant = usage or {}
    checks = replies or {}
    columns = (*COUNTED, "first_reply") if any(check.wrong is not None for check in checks.values()) else COUNTED

    def summarised(group: rates.VariantGroup) -> VariantSummary:
        rows = rates.first_draws(group.outcomes)
        further_rows = rates.further_draws(group.outcomes)
        further = rates.completeness(further_rows, answered_only=answered_only) if further_rows.height else None
        counts = rates.contingency_table(rows)
        forced = rates.forced_refusals(rows)
        complete = rates.completeness(rows, answered_only=answered_only)
        missing = None if answered_only else missing_range(rows)
        estimates = rates.variant_metrics(rows, analysis)
        index = _by_name(estimates, INDEX)
        draws = draws_summary(group.outcomes, analysis, is_deterministic=is_deterministic)
        if draws is not None:
            corrected = draws.corrected_refusal_index
        elif is_deterministic:  # a model without sampling noise
            corrected = replace(index, name=CORRECTED)
        else:
            corrected = Estimate(None, status="undefined", reason=NO_REPEATED_QUESTIONS, name=CORRECTED)
        answerable = rates.answerability(rows)
        unclear = unclear_replies(rows, analysis)
        sampled = rates.sampling_summary(rows, rates.sampled_table(rows), analysis.sampling)
        return VariantSummary(
            model=group.model,
            dataset=group.dataset,
            variant=group.variant,
            table=counts,
            metrics=(*estimates, *rates.answerable_metrics(rows, analysis), corrected),
            completeness=complete,
            forced_refusals=forced,
            answerability=answerable,
            caveats=(
                *run_caveats,
                *sampling_caveats(sampled),
                *reply_caveats(rows, checks.get(group.variant)),
                *unclear_caveats(index, unclear, checks.get(group.variant)),
                *draws_caveats(group.outcomes, draws, further, answered_only=answered_only),
                *answerable_caveats(rows, answerable),
                *table_caveats(counts, index, complete, missing, forced),
            ),
            sensitivity=sensitivity(rows, analysis),
            draws=draws,
            usage=usage_by_variant.get(group.variant),
            missing=missing,
            sampling=sampled,
            further_draws=further,
            replies=checks.get(group.variant),
            unclear=unclear,
        )

    variants = tuple(map(summarised, rates.each_group(table, columns)))
    unforced = {
        (variant.model, variant.dataset, str(variant.variant))
        for variant in variants
        if variant.index.reason == FORCED_NOT_ASKED
    }
    pooled = tuple(
        _naming_unforced(combined, unforced)
        for combined in pool(rates.each_group(table, POOLED), analysis, is_deterministic=is_deterministic)
    )
    return Summary(variants, pooled, analysis, prices)


def by_topic(outcomes: pl.DataFrame, analysis: Analysis = DEFAULT_ANALYSIS) -> Summary:
    """Summarise each topic as a dataset of its own; the model and the prompt are not named if there is only one.

    Raises OutcomeTableError if no question has a topic.
    """
    if outcomes["topic"].is_null().all():
        raise OutcomeTableError("expected topics, got none; write the topic of each question in a column 'topic'")
    single = [pl.lit(None, pl.String).alias(name) for name in ("model", "variant") if outcomes[name].n_unique() == 1]
    return summarise(outcomes.with_columns(*single, dataset=pl.col("topic").fill_null("(no topic)")), analysis)


def _naming_unforced(pooled: PooledSummary, unforced: Container[tuple[str | None, str | None, str]]) -> PooledSummary:
    """Return a joint estimate that says which variants it leaves out for lack of a forced pass.

    - `unforced`: model, dataset and name of the variants without one.
    """
    left_out = {
        name: FORCED_NOT_ASKED if (pooled.model, pooled.dataset, name) in unforced else reason
        for name, reason in pooled.left_out.items()
    }
    index = pooled.refusal_index
    if index.estimate is None and set(left_out.values()) == {FORCED_NOT_ASKED}:
        index = replace(index, reason=FORCED_NOT_ASKED)
    return replace(pooled, left_out=left_out, refusal_index=index)


def summarise_rates(rows: Sequence[rates.PublishedRates], analysis: Analysis = DEFAULT_ANALYSIS) -> Summary:
    """Summarise published rates; the intervals cover all rates that round to these.

    - `analysis`: as `summarise` takes it.
    """
    summary = summarise(rates.rates_outcomes(rows), analysis)
    wider_metrics = [row.metrics(analysis) for row in rows]
    variants = (
        replace(variant, metrics=tuple(wider.get(metric.name, metric) for metric in variant.metrics))
        for variant, wider in zip(summary.variants, wider_metrics, strict=True)
    )
    return replace(summary, variants=tuple(variants))


def is_complete(summary: Summary) -> bool:
    """Whether there are variants, and none has too many missing questions."""
    return bool(summary.variants) and all(variant.is_complete for variant in summary.variants)


def _by_name(estimates: tuple[Estimate, ...], name: str) -> Estimate:
    match = next((estimate for estimate in estimates if estimate.name == name), None)
    if match is None:
        names = [estimate.name for estimate in estimates]
        metric_name = next(
            (metric.name for metric in METRICS.values() if metric.label.casefold() == name.casefold()), name
        )
        advice = suggestion(metric_name, names)
        raise OutcomeTableError(f"metric: expected one of {', '.join(names)}, got {name!r}{advice}")
    return match


def usage_of(document: Mapping[str, Any]) -> Usage:
    """Read usage from a JSON document; raises ValueError or TypeError if it is invalid."""
    usage = Usage(**document)
    if any(isinstance(value, bool) or not isinstance(value, int | float | None) for value in vars(usage).values()):
        raise TypeError("expected numbers")
    return usage


def half_width_of(summary: Summary) -> float | None:
    """Return the half-width of the interval of a run's Refusal Index; None if it is not usable."""
    index = summary.index
    if index is None or index.status != "ok" or index.low is None or index.high is None:
        return None
    return (index.high - index.low) / 2
