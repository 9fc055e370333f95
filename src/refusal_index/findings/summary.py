"""The summary of a run, as a pure function of its outcome table.

Every number but the corrected Refusal Index is of one response per question: the first draw, where there are several.
The number over all variants is the joint estimate: they share their questions, so their tables must not be added up.
What a reader must know before believing a number is a caveat, a statement that `render.sentences` words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import polars as pl

from refusal_index.data import rates
from refusal_index.data.files import read_json
from refusal_index.data.folder import ComparedRun, RunFolder
from refusal_index.data.outcome import FORCED_NOT_ASKED
from refusal_index.data.outcome_table import OWN_COLUMNS, SAMPLING_COLUMNS, Sampling
from refusal_index.data.run_json import UNPRICED, Prices
from refusal_index.errors import OutcomeTableError, suggestion
from refusal_index.findings.draws import NO_REPEATED_QUESTIONS, POOLED, DrawsSummary, PooledSummary, draws_summary, pool
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS, Statement
from refusal_index.findings.sensitivity import (
    LEVEL,
    MissingRange,
    Sensitivity,
    failure_pvalue,
    missing_range,
    sensitivity,
)
from refusal_index.stats import CELL_NAMES, TRUTHFULNESS_WEIGHTS, ContingencyTable, Estimate, missing_bounds
from refusal_index.stats.baseline import Payoffs, Weights, checked_payoffs
from refusal_index.stats.contingency import FEW_CLUSTERS, ONE_CLUSTER

FORCED_REFUSAL_LIMIT = 0.05
"""Share of refusals in the forced pass above which a caveat is shown."""

KNOWLEDGE_LIMIT = 0.01
"""Share of right answers under forced answering below which RI says little."""

SMALL_CELL = 5
"""Observed or expected cell count below which the interval may miss its nominal coverage."""

REPEATED_LIMIT = 0.03
"""Share of wrong answers with the same first sentence above which they may be refusals."""

MIN_REPEATED = 5
"""Smallest number of wrong answers with the same first sentence for a caveat."""

MIN_WORDS = 4
"""Smallest number of words in such a sentence; a name alone may be a wrong answer to many questions."""

MAX_QUOTED_LENGTH = 200
"""Longest quotation, in characters."""

FEW_REPEATED = 50
"""Number of repeated questions below which reliabilities are mostly noise."""


def caveats(
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
        yield Statement(FORCED_NOT_ASKED, "serious", {"questions": not_forced, "others_are_exact": exact})
    if not only_first:
        yield from _estimate(table, refusal_index)
    yield from _incomplete(completeness, only_first=only_first)
    yield from _unscored_refusals(table, completeness, missing)
    if forced.share is not None and forced.share > FORCED_REFUSAL_LIMIT:
        yield Statement("forced_refusals", "serious", {"refused": forced.refused, "asked": forced.asked})


def sampling_caveats(sampling: rates.SamplingSummary | None) -> Iterator[Statement]:
    """Yield the caveat about few clusters, if there are clusters."""
    if sampling is None:
        return
    values = {"clusters": sampling.clusters, "column": sampling.cluster, "limit": FEW_CLUSTERS}
    if sampling.clusters == 1:
        yield Statement(ONE_CLUSTER, "serious", values)
    elif sampling.few:
        yield Statement("few_clusters", "serious", values)


def refusal_caveats(rows: pl.DataFrame, refusals: Mapping[str, int] | None) -> Iterator[Statement]:
    """Yield caveats that refusals may be missed: none were found, or wrong answers share a sentence.

        - `rows`: one variant, one row a question, with ``first_reply``.
    - `refusals`: how many were recognised by what; without ``wording`` no rule graded.
    """
    if refusals is None or "wording" not in refusals:
        return
    answered = rows.filter(pl.col("refused").not_())
    if answered.height and not rows["refused"].any():
        yield Statement("no_refusals_found", "note", {"answered": answered.height})
    wrong, sentence = answered.filter("wrong"), pl.col("sentence")
    is_sentence = sentence.str.count_matches(" ").ge(MIN_WORDS - 1) | sentence.str.contains(r"\x{3002}")
    tags = r"(?s)<(?:think|thinking|reasoning)>.*?</(?:think|thinking|reasoning)>|</?answer>"
    reply = pl.col("first_reply").str.replace_all(tags, "").str.replace_all(r"\s+", " ").str.strip_chars()
    first = pl.coalesce(reply.str.extract(r"^(.+?[.!?\x{3002}])(?: |$)"), reply).str.slice(0, MAX_QUOTED_LENGTH)
    sentences = wrong.select(sentence=first).filter(is_sentence)
    same = sentences.group_by(pl.col("sentence").str.to_lowercase().alias("key")).agg(pl.len(), pl.first("sentence"))
    most_common = same.sort("len", "key", descending=[True, False]).head(1)
    for _, count, quoted in most_common.iter_rows():
        if count >= MIN_REPEATED and count > REPEATED_LIMIT * wrong.height:
            yield Statement("repeated_sentence", "serious", {"sentence": quoted, "count": count, "wrong": wrong.height})


def _estimate(table: ContingencyTable, estimate: Estimate) -> Iterator[Statement]:
    if estimate.status == "undefined":
        yield Statement("undefined", "serious", {"reason": estimate.reason})
    elif estimate.status == "boundary" and estimate.low is not None:
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
    missing, n_asked = sum(reasons.values()), completeness.asked
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
    outcomes: pl.DataFrame, draws: DrawsSummary | None, further: rates.Completeness | None
) -> Iterator[Statement]:
    """Yield the caveats about repeated draws: some are missing, cannot be used, or are too few."""
    if further is None:
        return
    if not further.is_enough:
        values = {"missing": further.unscored, "asked": further.asked, "reasons": further.reasons}
        yield Statement("incomplete_draws", "serious", values)
    scored = outcomes.drop_nulls(["refused", "wrong"])
    repeated = scored.filter(pl.len().over("question_id") > 1)["question_id"].n_unique()
    if draws is None and repeated:
        yield Statement("repeated_draws_unused", "serious", {"questions": repeated})
    elif draws is not None and draws.questions < FEW_REPEATED:
        yield Statement("few_repeated", "serious", {"questions": draws.questions, "limit": FEW_REPEATED})


Value = TypeVar("Value")

CAUTION_LEVELS = ("low", "normal", "high", "highest")
"""Names of the default set's prompts, which ask for more and more caution."""

DEFAULT_PENALTY = 1.0
DEFAULT_CONFIDENCE_LEVEL = 0.95

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
    # not
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
class VariantSummary:
    """One model on one dataset under one prompt variant."""

    # model, dataset, variant: what was asked whom; None where the table does not say
    model: str | None
    dataset: str | None
    variant: str | None
    table: ContingencyTable  # counts of the scored questions
    # each with interval and status: those of `refusal_index.stats.METRIC_NAMES`, those of `BY_ANSWERABLE`, which are
    # undefined unless the dataset marks questions without an answer, and the corrected index, which is undefined
    # without repeated draws
    metrics: tuple[Estimate, ...]
    # completeness, forced_refusals: what is missing, and how often the forced pass refused
    completeness: rates.Completeness
    forced_refusals: rates.ForcedRefusals
    warnings: tuple[Statement, ...]  # caveats to show next to the numbers, the most serious first
    sensitivity: Sensitivity  # what other decisions on missing grades and refusals of the forced pass would have given
    draws: DrawsSummary | None = None  # what repeated draws show; None where no question was drawn twice
    usage: Usage | None = None  # tokens, requests and cost; None where not known
    missing: MissingRange | None = None  # the index over all that the unscored may have been; None where none are
    sampling: rates.SamplingSummary | None = None  # clusters and weights behind the metrics; None where there are none
    further_draws: rates.Completeness | None = None  # what is missing of the draws behind the first; None without such
    # how many refusals were recognised by tag, wording, choice or judge, of which only a rule counts wordings; None
    # where that is not known
    refusals: Mapping[str, int] | None = None

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
    # confidence_level, penalty: of every interval, and of the weighted score
    confidence_level: float
    penalty: float
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS  # of the truthfulness score
    prices: Prices = UNPRICED  # that the costs were computed with
    sections: Mapping[str, Any] = field(default_factory=dict)  # what plugins add, by name: see `render.sections`

    def __repr__(self) -> str:
        sources = dict.fromkeys(f"{variant.model} on {variant.dataset}" for variant in self.variants)
        return f"Summary({'; '.join(sources)}; {len(self.variants)} prompts)"

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

    def records(self, name: str) -> bool:
        """Whether its dataset supports a metric."""
        return any(variant.metric(name).reason != rates.ANSWERABLE_NOT_RECORDED for variant in self.variants)

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
    *("question", "gold", "forced_reply"),
)
"""Columns needed for a variant's summary."""


def summarise(
    table: pl.DataFrame | pl.LazyFrame,
    *,
    usage: Mapping[str | None, Usage] | None = None,
    refusals: Mapping[str | None, Mapping[str, int]] | None = None,
    prices: Prices = UNPRICED,
    penalty: float = DEFAULT_PENALTY,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
    confidence_level: float = DEFAULT_CONFIDENCE_LEVEL,
    is_deterministic: bool = False,
    answered_only: bool = False,
    sampling: Sampling = OWN_COLUMNS,
) -> Summary:
    """Compute every metric of every variant.

    - `table`: an outcome table, in memory or in a file; rows of different models and datasets are kept apart.
    - `usage`: what each variant took, by its name.
    - `refusals`: how many refusals of each variant were recognised by what, by its name.
    - `prices`: that the costs in `usage` were computed with.
    - `penalty`: of the weighted score.
    - `truthfulness_weights`: of the truthfulness score: of a right answer, a refusal and, taken off, a wrong answer.
    - `confidence_level`: of every interval.
    - `is_deterministic`: whether the models were asked at temperature 0, where the corrected index repeats RI.
    - `answered_only`: whether only the first pass was planned: then a run without RI is complete.
    - `sampling`: what the columns `cluster` and `weight` were called where they come from.

    >>> from refusal_index.data import Outcome, Question
    >>> from refusal_index.data.outcome_table import Identification, outcome_table
    >>> asked, question = Identification("m", "d", "normal"), Question("q1", "Capital of France?", "Paris")
    >>> (normal,) = summarise(outcome_table([(asked, question, Outcome(refused=False, wrong=True))])).variants
    >>> normal.metric("refusal_rate").estimate, normal.index.name, normal.index.reason
    (0.0, 'refusal_index', 'nobody_refused')
    """
    usage_by_variant, ways, payoffs = usage or {}, refusals or {}, checked_payoffs(penalty, truthfulness_weights)
    columns = (*COUNTED, "first_reply") if any("wording" in way for way in ways.values()) else COUNTED

    def summarised(group: rates.VariantGroup) -> VariantSummary:
        rows, further_rows = rates.first_draws(group.outcomes), rates.further_draws(group.outcomes)
        further = rates.completeness(further_rows, answered_only=answered_only) if further_rows.height else None
        counts, forced = rates.contingency_table(rows), rates.forced_refusals(rows)
        complete = rates.completeness(rows, answered_only=answered_only)
        missing = None if answered_only else missing_range(rows)
        estimates = rates.variant_metrics(rows, payoffs, confidence_level)
        index = _by_name(estimates, INDEX)
        draws = draws_summary(group.outcomes, confidence_level, is_deterministic=is_deterministic)
        if draws is not None:
            corrected = draws.corrected_refusal_index
        elif is_deterministic:  # a model without sampling noise
            corrected = replace(index, name=CORRECTED)
        else:
            corrected = Estimate(None, status="undefined", reason=NO_REPEATED_QUESTIONS, name=CORRECTED)
        sampled = rates.sampling_summary(rows, rates.sampled_table(rows), sampling)
        return VariantSummary(
            model=group.model,
            dataset=group.dataset,
            variant=group.variant,
            table=counts,
            metrics=(*estimates, *rates.answerable_metrics(rows, confidence_level), corrected),
            completeness=complete,
            forced_refusals=forced,
            warnings=(
                *sampling_caveats(sampled),
                *refusal_caveats(rows, ways.get(group.variant)),
                *draws_caveats(group.outcomes, draws, further),
                *caveats(counts, index, complete, missing, forced),
            ),
            sensitivity=sensitivity(rows, payoffs, confidence_level),
            draws=draws,
            usage=usage_by_variant.get(group.variant),
            missing=missing,
            sampling=sampled,
            further_draws=further,
            refusals=ways.get(group.variant),
        )

    variants = tuple(map(summarised, rates.each_group(table, columns)))
    unforced = {
        (variant.model, variant.dataset, str(variant.variant))
        for variant in variants
        if variant.index.reason == FORCED_NOT_ASKED
    }
    pooled = tuple(
        replace(
            combined,
            left_out={
                name: FORCED_NOT_ASKED if (combined.model, combined.dataset, name) in unforced else reason
                for name, reason in combined.left_out.items()
            },
        )
        for combined in pool(rates.each_group(table, POOLED), confidence_level, is_deterministic=is_deterministic)
    )
    return Summary(variants, pooled, confidence_level, penalty, payoffs.truthfulness, prices)


def summarise_rates(rows: Sequence[rates.PublishedRates], **settings: Any) -> Summary:
    """Summarise published rates; the intervals cover all rates that round to these.

    - `settings`: as `summarise` takes them.
    """
    summary = summarise(rates.rates_outcomes(rows), **settings)
    payoffs = Payoffs(summary.penalty, summary.truthfulness_weights)
    wider_metrics = [row.metrics(payoffs, summary.confidence_level) for row in rows]
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


def recorded_usage(run: ComparedRun) -> dict[str | None, Usage]:
    """Read the usage of each variant from the summary in a run's folder; empty if unknown."""
    return _recorded(run, "usage", usage_of)


def recorded_refusals(run: ComparedRun) -> dict[str | None, Mapping[str, int]]:
    """Read how each variant's refusals were recognised from the summary in a run's folder; empty without one."""
    return _recorded(run, "refusals", lambda ways: {str(way): int(count) for way, count in ways.items()})


def _recorded(run: ComparedRun, key: str, convert: Callable[[Any], Value]) -> dict[str | None, Value]:
    try:
        variants = read_json(RunFolder(run.source).summary)["variants"] if run.source.is_dir() else []
        matching = [
            variant for variant in variants if (variant["model"], variant["dataset"]) == (run.model_id, run.dataset_id)
        ]
        return {variant["variant"]: convert(variant[key]) for variant in matching if variant.get(key)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


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
