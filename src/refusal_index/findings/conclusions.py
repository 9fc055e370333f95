"""Conclusions from a summary, as statements beside its tables.

A `Tally` holds what first passes alone show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, islice
from typing import Any

from refusal_index.data.analysis import Analysis
from refusal_index.data.outcome import FORCED_NOT_ASKED, NOT_FINISHED, REQUEST_FAILED
from refusal_index.data.run_json import STOPPED, UNTIL, Stop
from refusal_index.findings.draws import LARGE_SPREAD, PooledSummary
from refusal_index.findings.metrics import INDEX, Severity, Statement
from refusal_index.findings.summary import Summary, VariantSummary, half_width_of, is_complete
from refusal_index.stats import Estimate, refusal_index

NAMED = 8
"""Largest number of incomplete variants that are named."""


SERIOUS_SHIFT = 0.05
"""Possible change of RI from which a caveat is serious: about the half-width of an interval from 4,326 questions."""


SHOWN_SHIFT = 0.005
"""Smallest possible change of the index that is mentioned; a smaller one would be shown as 0.00."""


def missing_answers(summary: Summary) -> Statement | None:
    """State which variants lack too many questions or further draws; None if none does."""
    parts: list[dict[str, Any]] = []
    reasons: set[str] = set()
    for kind, field in (("questions", "completeness"), ("further_draws", "further_draws")):
        counted = [(variant, getattr(variant, field)) for variant in summary.variants]
        short = [(variant, counts) for variant, counts in counted if counts is not None and not counts.is_enough]
        names = [
            {"name": _name(summary, variant), "scored": counts.scored, "asked": counts.asked}
            for variant, counts in short[:NAMED]
        ]
        if short:
            parts.append({"what": kind, "variants": names, "more": max(len(short) - NAMED, 0)})
            reasons.update(*(counts.reasons for _, counts in short))
    if not parts:
        return None
    return Statement(
        "missing_answers", "serious", {"parts": parts, "resumable": bool(reasons & {NOT_FINISHED, REQUEST_FAILED})}
    )


def _name(summary: Summary, variant: VariantSummary) -> str:
    """Return a variant's name within a sentence; empty if there is only one and it has none."""
    return "" if len(summary.variants) == 1 and variant.variant is None else summary.label(variant)


def indices(summary: Summary, corrected_by_name: Mapping[str, Estimate] | None = None) -> tuple[Statement, ...]:
    """State RI, and the corrected index if there is one.

    - `corrected_by_name`: the corrected index by name; None for that of each variant.
    """
    corrected = [(variant, variant.corrected) for variant in summary.variants if variant.corrected is not None]
    scope = Statement("what_ri_is", "scope")
    if not corrected:
        return (scope,)
    if {variant.repeats_ri for variant, index in corrected if index.estimate is not None} == {True}:
        return scope, Statement("corrected_repeats_ri", "scope")
    by_name = corrected_by_name or {_name(summary, variant): index for variant, index in corrected}
    return scope, Statement("corrected_index", "conclusion", {"each": by_name})


def joint(summary: Summary, pooled: PooledSummary) -> Statement:
    """State the joint index of several variants, and how much they differ."""
    source = [] if summary.has_one_source else [part for part in (pooled.model, pooled.dataset) if part]
    if pooled.refusal_index.estimate is None:
        return Statement("joint_undefined", "conclusion", {"source": source, "reason": pooled.refusal_index.reason})
    values = {
        "source": source,
        "index": pooled.refusal_index,
        "corrected": pooled.corrected_refusal_index,
        "left_out": list(pooled.left_out),
        "these": pooled.these_prompts if pooled.two_prompts else None,
        **_spread(pooled),
    }
    return Statement("joint_index", "conclusion", values)


def _spread(pooled: PooledSummary) -> dict[str, Estimate]:
    return {"between": pooled.between_prompts, "new": pooled.new_prompt}


def variant_statements(variant: VariantSummary) -> Iterator[Statement]:
    """Yield the statements about a variant's numbers, with its caveats last."""
    yield from sampling(variant)
    complete = variant.completeness
    index = variant.index
    covered = {"incomplete"} | ({FORCED_NOT_ASKED} if set(complete.reasons) == {FORCED_NOT_ASKED} else set())
    if complete.unscored and not any(caveat.code in covered for caveat in variant.caveats):
        counts = {"missing": complete.unscored, "asked": complete.asked, "reasons": complete.reasons}
        yield Statement("unscored_questions", "note", counts)
    corrected = variant.corrected
    if corrected is not None and corrected.reason not in (None, index.reason):
        values = {"estimate": corrected.estimate, "status": corrected.status, "reason": corrected.reason}
        yield Statement("corrected_status", "serious", values)
    topics = variant.sensitivity.topics
    # a plus sign joins the names of a mix's datasets
    if topics is not None and "+" in (variant.dataset or ""):
        by_topic = {topic.topic: topic.refusal_index for topic in topics.each}
        yield Statement("within_sources", "conclusion", {"within": topics.within, "each": by_topic})
    yield from variant.caveats


def sampling(variant: VariantSummary) -> Iterator[Statement]:
    """State how the questions of a variant were sampled, if they have clusters or weights."""
    if (summary := variant.sampling) is not None:
        effective_questions = None if summary.few else summary.effective_questions  # too few clusters to tell
        yield Statement(
            "sampling", "note", {**asdict(summary), "effective_questions": effective_questions, "n": variant.table.n}
        )


def usage(summary: Summary) -> Statement | None:
    """State the total usage of all variants; None if unknown."""
    used = [variant.usage for variant in summary.variants if variant.usage is not None]
    if not used:
        return None
    return Statement(
        "usage", "note", {**asdict(summary.usage), "partly_priced": any(used_by.cost is not None for used_by in used)}
    )


def goal(about: Mapping[str, Any], summary: Summary) -> Statement | None:
    """State whether a run reached its target half-width; None without a target, or for a run that stopped early.

    - `about`: what the run's folder says of how it was made.
    - `summary`: of all questions asked so far.
    """
    until = about.get(UNTIL)
    if until is None or about.get(STOPPED):
        return None
    target = until["half_width"]
    half_width = half_width_of(summary)
    complete = is_complete(summary)
    is_reached = complete and half_width is not None and half_width <= target
    n_asked = max((variant.completeness.asked for variant in summary.variants), default=0)
    values = {"goal": f"half-width={target:g}", "half_width": half_width, "asked": n_asked, "is_complete": complete}
    return Statement("met_goal" if is_reached else "unmet_goal", "note" if is_reached else "serious", values)


def stopped(stop: Stop) -> Statement:
    """State at which look a run stopped."""
    return Statement("stopped", "scope", asdict(stop))


def summary_caveats(summary: Summary) -> tuple[Statement, ...]:
    """Collect the caveats about a run's index, serious ones first."""
    found = (
        *_variant_caveats(summary),
        *_possible_shifts(summary.variants),
        *chain.from_iterable(_disagreement(pooled, summary.analysis) for pooled in summary.pooled),
        *islice(chain.from_iterable(map(sampling, summary.variants)), 1),
    )
    return tuple(sorted(found, key=lambda caveat: caveat.severity != "serious"))


def _variant_caveats(summary: Summary) -> Iterator[Statement]:
    """Yield each kind of caveat once, with the values of the first variant that has it and the names of the others."""
    by_code: dict[str, list[tuple[str, Statement]]] = {}
    for variant in summary.variants:
        for caveat in variant.caveats:
            by_code.setdefault(caveat.code, []).append((summary.label(variant), caveat))
    for (first, statement), *others in by_code.values():
        yield Statement(
            "same_for",
            statement.severity,
            {
                "statement": statement,
                "first": first if len(summary.variants) > 1 else None,
                "is_prompt": summary.has_one_source,
                "others": [name for name, _ in others],
            },
        )


def _possible_shifts(variants: Sequence[VariantSummary]) -> Iterator[Statement]:
    """State how far missing grades and repeated refusals, too few for a caveat, could move RI."""
    codes = {caveat.code for variant in variants for caveat in variant.caveats}
    counts = [variant.completeness for variant in variants]
    unscored = sum(count.unscored for count in counts)
    n_asked = sum(count.asked for count in counts)
    if unscored and "incomplete" not in codes:
        ranges = ((variant, variant.missing) for variant in variants if variant.missing is not None)
        shift = max((_largest_shift(variant, missing.low, missing.high) for variant, missing in ranges), default=0.0)
        yield Statement("unscored_outcomes", *_by_shift({"missing": unscored, "asked": n_asked}, shift))
    defined = [variant for variant in variants if variant.index.estimate is not None]  # else "undefined" counts them
    share = max((variant.forced_refusals.share or 0.0 for variant in defined), default=0.0)
    if share and "forced_refusals" not in codes:
        shift = max(_largest_shift(variant, variant.sensitivity.range_of(INDEX).low) for variant in defined)
        yield Statement("some_forced_refusals", *_by_shift({"share": share}, shift))


def _by_shift(values: Mapping[str, Any], shift: float) -> tuple[Severity, dict[str, Any]]:
    """Return severity and values of a possible change of the index: serious if it is as large as the interval."""
    return "serious" if shift >= SERIOUS_SHIFT else "note", {**values, "shift": shift if shift > SHOWN_SHIFT else None}


def _largest_shift(variant: VariantSummary, low: float | None, high: float | None = None) -> float:
    """Return how far RI, unweighted, is from these ends; 0 where it is undefined, which is stated elsewhere."""
    estimate = refusal_index(variant.table).estimate
    if estimate is None or low is None:
        return 0.0
    return max(estimate - low, (estimate if high is None else high) - estimate)


def _disagreement(pooled: PooledSummary, analysis: Analysis) -> Iterator[Statement]:
    """State how much the prompts differ; the size decides whether it is serious, not a p-value."""
    if pooled.left_out and pooled.refusal_index.estimate is not None:
        yield Statement(
            "left_out",
            "serious",
            {"variants": pooled.left_out, "untested": pooled.homogeneity.reason == "variants_at_boundary"},
        )
    between = pooled.between_prompts
    if between.estimate is None or between.high is None:
        return
    if pooled.two_prompts:
        yield Statement("two_prompts", "serious", {"these": pooled.these_prompts})
    if pooled.disagree(analysis):
        yield Statement("prompts_disagree", "serious", _spread(pooled))
    elif not pooled.differ_by_chance(analysis):
        yield Statement("prompts_differ", "note", _spread(pooled))
    elif between.high > LARGE_SPREAD:
        yield Statement("prompts_may_differ", "note", _spread(pooled))
