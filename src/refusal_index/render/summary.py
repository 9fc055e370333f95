"""A summary as text: one row a variant, then the caveats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refusal_index.data.files import plain
from refusal_index.data.outcome import FORCED_NOT_ASKED, NOT_FINISHED, REQUEST_FAILED
from refusal_index.data.rates import Completeness
from refusal_index.findings.draws import DrawsSummary, PooledSummary
from refusal_index.findings.labels import GradeAgreement, GradeChanges
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS
from refusal_index.findings.summary import Summary, Usage, VariantSummary, is_complete
from refusal_index.findings.tally import COUNTS, FIRST_PASS_METRICS, Tally
from refusal_index.render.blocks import Block, Table
from refusal_index.render.confidence import ONE_BY_ONE, measures_blocks
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
from refusal_index.render.sentences import sentence
from refusal_index.stats import Estimate

SUMMARY_VERSION = 3
"""Version of the JSON document."""


def summary_document(summary: Summary) -> dict[str, Any]:
    """Give the summary as JSON holds it: floats unrounded, None for what is not a number."""
    return {
        "summary_version": SUMMARY_VERSION,
        "complete": is_complete(summary),
        "confidence_level": summary.confidence_level,
        "penalty": summary.penalty,
        "truthfulness_weights": list(summary.truthfulness_weights),
        **summary.prices.to_document(),
        "variants": [_variant_document(variant) for variant in summary.variants],
        "pooled": [_pooled_document(pooled) for pooled in summary.pooled],
        "confidence": plain(summary.confidence),
    }


def summary_to_json(summary: Summary) -> str:
    """Write the summary as JSON text."""
    return json.dumps(summary_document(summary), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _variant_document(variant: VariantSummary) -> dict[str, Any]:
    return {
        **plain(variant),
        "warnings": [{**plain(one), "message": sentence(one)} for one in variant.warnings],
        "status": variant.status,
        "n": variant.table.n,
        "metrics": {one.name: {**one.to_document(), "method": one.method} for one in variant.metrics},
    }


def _pooled_document(pooled: PooledSummary) -> dict[str, Any]:
    return {
        "model": pooled.model,
        "dataset": pooled.dataset,
        "variants": pooled.variants,
        INDEX: {**pooled.refusal_index.to_document(), "standard_error": pooled.standard_error},
        CORRECTED: None if pooled.corrected_refusal_index is None else pooled.corrected_refusal_index.to_document(),
        "between_prompts": pooled.between_prompts.to_document(),
        "new_prompt": pooled.new_prompt.to_document(),
        "left_out": pooled.left_out,
        "homogeneity": plain(pooled.homogeneity),
    }


def spread_sentence(pooled: PooledSummary) -> str:
    """Say how far the prompts lie apart beyond chance, and where one more would lie."""
    between, new = pooled.between_prompts, pooled.new_prompt
    if between.estimate is None:
        return ""
    if not between.estimate:
        return (
            f". The prompts lie no farther apart than chance makes them (standard deviation up to {between.high:.2f})"
        )
    return (
        f". Between prompts RI has a standard deviation of {between.estimate:.2f} [{between.low:.2f}, "
        f"{between.high:.2f}]: one more prompt like these would show between {new.low:.2f} and {new.high:.2f}"
    )


MIX_SIGN = "+"
MISSING = "range of the missing"
OF_ERRORS = tuple(one.name for one in METRICS.values() if one.table == "errors")
"""The metrics that set wrong answers against refusals: they have a table of their own."""

RATES = tuple(one.name for one in METRICS.values() if one.table == "rates" and one.name not in (INDEX, CORRECTED))
"""The metrics with a column after the index."""

WHAT_RI_IS = (
    "RI is the Refusal Index as the paper reports it: the rank correlation between refusing a question and getting it "
    "wrong, estimated from one response per question."
)
WHAT_CORRECTED_RI_IS = (
    "RI estimated for the model's probabilities of refusing and of being wrong, from repeated samples of forced "
    "answers."
)
REPEATS_RI = "Corrected RI repeats RI: the model was asked at temperature 0, and no repeated sample differs."
STEPS = ("forced for all", "of another draw")
"""What changes from RI to the corrected RI, before sampling noise is removed."""

SHOWN = 8
"""Most variants to name at the top as incomplete."""


def summary_blocks(summary: Summary) -> Iterator[Block]:
    """Yield what is lacking, all variants, what they say together, what repeated draws add, warnings, and scores."""
    lacks = lacking(summary)
    if lacks is not None:
        yield from (lacks, "")
    yield from (summary_table(summary), "", errors_table(summary))
    for line in which_index(summary):
        yield from ("", line)
    for pooled in summary.pooled:
        yield from ("", _pooled(summary, pooled))
    if any(variant.draws for variant in summary.variants):
        yield from ("", _draws_table(summary))
    for variant in summary.variants:
        for message in _remarks(variant):
            yield from ("", f"{_title(summary, variant)}: {message}")
    yield from measures_blocks(summary.confidence)
    if summary.confidence and is_sampled(summary):
        yield from ("", ONE_BY_ONE)


def is_sampled(summary: Summary) -> bool:
    """Whether clusters or weights lie behind its metrics."""
    return any(variant.sampling is not None for variant in summary.variants)


def lacking(summary: Summary) -> str | None:
    """Say in a line which variants lack too many of their questions, or of further draws; None where none does."""
    parts = {
        "questions": [(one, one.completeness) for one in summary.variants],
        "further draws": [(one, one.further_draws) for one in summary.variants if one.further_draws is not None],
    }
    short = {what: [pair for pair in pairs if not pair[1].is_enough] for what, pairs in parts.items()}
    told = [f"{_scored_of(summary, pairs)} {what}" for what, pairs in short.items() if pairs]
    reasons = {reason for pairs in short.values() for _, found in pairs for reason in found.reasons}
    command = "; the run's own command asks for the rest" if reasons & {NOT_FINISHED, REQUEST_FAILED} else ""
    return f"Incomplete: {' and '.join(told)} scored{command}." if told else None


def _scored_of(summary: Summary, short: Sequence[tuple[VariantSummary, Completeness]]) -> str:
    """Say how much of each variant is scored, of many of some."""
    unnamed = len(summary.variants) == 1 and short[0][0].variant is None
    each = (
        f"{'' if unnamed else _title(summary, one) + ' '}{found.scored:,} of {found.asked:,}"
        for one, found in short[:SHOWN]
    )
    return ", ".join(each) + (f" and {len(short) - SHOWN:,} more" if len(short) > SHOWN else "")


def which_index(summary: Summary) -> Iterator[str]:
    """Say in a sentence each what RI is, and what the corrected index is and comes to, where there is one."""
    yield WHAT_RI_IS
    corrected = [(one, one.corrected) for one in summary.variants if one.corrected is not None]
    repeats = {one.repeats_ri for one, found in corrected if found.estimate is not None}
    if repeats == {True} or not corrected:
        yield from [REPEATS_RI] if corrected else []
        return
    unnamed = len(summary.variants) == 1 and corrected[0][0].variant is None
    each = (f"{'' if unnamed else _title(summary, one) + ' '}{_in_words(found)}" for one, found in corrected)
    yield f"Corrected RI is {', '.join(each)}: {WHAT_CORRECTED_RI_IS}"


def summary_table(summary: Summary) -> Table:
    """Make the table of all variants."""
    heading = "variant" if _shared_source(summary) else "model, dataset, variant"
    metrics = (METRICS[name].column for name in RATES)
    missing = (MISSING,) if _any_missing(summary) else ()
    level = f"{percent(summary.confidence_level)} interval"
    numbers = ("n", METRICS[INDEX].column, level, *metrics, *missing, "scoring rules")
    columns = (heading, *numbers, "status", "unscored", "forced refused")
    return Table.of(columns, (_row(summary, variant) for variant in summary.variants), left=(heading, "status"))


def errors_table(summary: Summary) -> Table:
    """Make the table of the scores that set wrong answers against refusals, at their weights."""
    weights = ",".join(f"{weight:g}" for weight in summary.truthfulness_weights)
    level = f"{percent(summary.confidence_level)} interval"
    names = (METRICS[OF_ERRORS[0]].column, METRICS[OF_ERRORS[1]].column, f"{METRICS[OF_ERRORS[2]].column} at {weights}")
    columns = ("wrong or refused", *(column for name in names for column in (name, level)))
    rows = ((_title(summary, one), *_errors_row(one)) for one in summary.variants)
    return Table.of(columns, rows, left=columns[:1])


def _errors_row(variant: VariantSummary) -> Iterator[str]:
    for name in OF_ERRORS:
        found, digits = variant.metric(name), METRICS[name].digits
        yield number(found.estimate, digits)
        yield interval(found.low, found.high, digits)


def _any_missing(summary: Summary) -> bool:
    return any(variant.missing is not None for variant in summary.variants)


def usage_text(summary: Summary) -> str | None:
    """Say what all variants took together; None where it is not known."""
    used = [variant.usage for variant in summary.variants if variant.usage is not None]
    if not used:
        return None
    total = Usage.total(used)
    tokens = f"{total.input_tokens:,} tokens in, {total.output_tokens:,} out"
    cost = "" if total.cost is None else f", ${total.cost:.2f}"
    if cost and total.unpriced_tokens:
        cost += f" without the {total.unpriced_tokens:,} tokens of graders (--grader-price)"
    if not cost and any(one.cost is not None for one in used):
        cost = ", at a cost that is not known of all"
    return f"answered in all: {total.requests:,} requests, {tokens}{cost}"


def _row(summary: Summary, variant: VariantSummary) -> Iterator[str]:
    rules = variant.sensitivity.range_of(INDEX)
    missing, forced = variant.completeness, variant.forced_refusals
    yield _title(summary, variant)
    yield f"{variant.table.n:,}"
    yield from (number(variant.index.estimate), interval_of(variant.index))
    yield from (number(variant.metric(name).estimate) for name in RATES)
    if _any_missing(summary):
        yield span(variant.missing.low, variant.missing.high) if variant.missing else UNDEFINED
    yield span(rules.low, rules.high) if variant.sensitivity.knows_refused_again else NOT_KNOWN
    yield variant.status
    yield f"{missing.unscored:,} ({missing.missing_share:.1%})" if missing.unscored else "0"
    yield UNDEFINED if forced.share is None else f"{forced.refused:,} ({forced.share:.1%})"


def _remarks(variant: VariantSummary) -> Iterator[str]:
    """Yield what must be said beside a variant's numbers: that some are missing, however few, comes before the rest."""
    if variant.sampling is not None:
        yield variant.sampling.sentence(variant.table.n)
    complete = variant.completeness
    said = {"incomplete"} | ({FORCED_NOT_ASKED} if set(complete.reasons) == {FORCED_NOT_ASKED} else set())
    if complete.unscored and not any(warning.code in said for warning in variant.warnings):
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in complete.reasons.items())
        yield f"{complete.unscored:,} of {complete.asked:,} questions could not be scored ({reasons})."
    corrected = variant.corrected
    if corrected is not None and corrected.reason not in (None, variant.index.reason):
        yield f"Corrected RI is {_why(corrected)}."
    yield from _within_sources(variant)
    for warning in variant.warnings:
        yield sentence(warning)


def _within_sources(variant: VariantSummary) -> Iterator[str]:
    """Say the index within each source of a mix: part of the mix's own is telling the sources apart."""
    topics = variant.sensitivity.topics
    if topics is None or MIX_SIGN not in (variant.dataset or ""):
        return
    each = ", ".join(f"{one.topic} {_in_words(one.refusal_index)}" for one in topics.each)
    yield (
        f"within the sources RI is {_in_words(topics.within)} ({each}); what the mix shows beyond that is "
        "telling its sources apart."
    )


def _pooled(summary: Summary, pooled: PooledSummary) -> str:
    """Say the joint estimate, and how far the variants lie apart."""
    known = [part for part in (pooled.model, pooled.dataset) if part]
    whose = "" if _shared_source(summary) else ", ".join(known) + ", "
    index, corrected, name = pooled.refusal_index, pooled.corrected_refusal_index, METRICS[INDEX].column
    if index.estimate is None:
        return f"{whose}all variants jointly: {name} undefined ({reason_text(index.reason)})."
    ends = f" {interval_of(index)}" if index.low is not None else ""
    if corrected is not None:
        ends += f", {METRICS[CORRECTED].column} {_in_words(corrected)}"
    left_out = f", without {', '.join(pooled.left_out)}" if pooled.left_out else ""
    told = spread_sentence(pooled)
    return f"{whose}all variants jointly: {name} {index.estimate:.3f}{ends}{left_out}{told}."


def _draws_table(summary: Summary) -> Table:
    columns = ("repeated draws", "questions", "draws", METRICS[INDEX].column, *STEPS, METRICS[CORRECTED].column)
    further = ("refusals repeat", "errors repeat", "Spearman of frequencies", "AUROC of P(Answering)")
    rows = ((_title(summary, one), *_draws_row(one, one.draws)) for one in summary.variants if one.draws is not None)
    return Table.of((*columns, *further), rows, left=("repeated draws",))


def _draws_row(variant: VariantSummary, draws: DrawsSummary) -> Iterator[str]:
    yield f"{draws.questions:,}"
    yield f"{draws.draws:,}"
    yield number(variant.index.estimate)
    yield from (number(value) for value in (draws.forced_for_all, draws.uncorrected))
    corrected = draws.corrected_refusal_index
    yield "not identified" if corrected.status == "not_identified" else number(corrected.estimate)
    yield from (number(value) for value in (draws.refusal_reliability, draws.error_reliability))
    for found in (draws.mid_rank_spearman, draws.p_answering_auroc):
        yield f"{number(found.estimate)} {interval_of(found)}"


def _why(index: Estimate) -> str:
    """Say why a corrected index is no plain number."""
    reason = index.reason or ""
    if reason == "corrected_rho_reaches_one":
        told = "the samples are as closely related as their noise allows"
    elif reason.endswith("not_positive"):
        told = "two samples of a question agree no more than by chance, or too few questions were sampled repeatedly"
    else:
        told = reason_text(reason)
    if index.status == "not_identified":
        return "not identified: the data are compatible with any value from -1 to 1"
    if reason.startswith("estimated_from"):
        return f"{told}; this takes the noise of refusals and of answers for independent, which its interval does not"
    if index.status == "boundary":
        return f"at its limit of {index.estimate:+.0f}, since {told}; go by the interval"
    return f"undefined: {told}"


def _in_words(found: Estimate) -> str:
    if found.status == "not_identified":
        return "not identified"
    return "undefined" if found.estimate is None else f"{number(found.estimate)} {interval_of(found)}"


def _title(summary: Summary, variant: VariantSummary) -> str:
    return title(variant.variant) if _shared_source(summary) else title(variant.model, variant.dataset, variant.variant)


def _shared_source(summary: Summary) -> bool:
    return len({(variant.model, variant.dataset) for variant in summary.variants}) <= 1


def changes_blocks(
    changes: GradeChanges, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None
) -> Iterator[Block]:
    """Yield how the grades of two graders go together, and which cells changed for it.

    - `changes`: as `grade_changes` returns them.
    - `before`, `now`: the graders, as a run's settings hold them.
    """
    yield from ("", f"Graded before by {_name(before)}, now by {_name(now)}.")
    for name, agreement in (("first pass", changes.first), ("forced pass", changes.forced)):
        yield from _agreement(name, agreement)
    moved = ", ".join(f"{one} to {other} {count:,}" for (one, other), count in changes.cells.items())
    share = sum(changes.cells.values())
    words = f": {moved.replace('_', ' ')}" if moved else ""
    yield from ("", f"{share:,} of {changes.n:,} are in another cell now{words}.")


def _agreement(title: str, agreement: GradeAgreement) -> Iterator[Block]:
    kappa, heading = agreement.kappa, f"{title}: before"
    if kappa.agreement is None:
        return
    counts = (
        (one, *(f"{agreement.counts.get((one, other), 0):,}" for other in agreement.grades)) for one in agreement.grades
    )
    columns = (heading, *(f"now {grade}" for grade in agreement.grades))
    told = f"{kappa.estimate:.3f}" if kappa.estimate is not None else f"undefined ({kappa.reason})"
    yield from ("", Table.of(columns, counts, left=(heading,)))
    yield f"{kappa.agreement:.1%} of {kappa.n:,} graded alike, Cohen's kappa {told}"


def _name(grader: Mapping[str, Any] | None) -> str:
    names = [grader.get("name"), grader.get("second")] if grader else []
    return " and ".join(str(name) for name in names if name) or "(not named)"


def tally_blocks(found: Sequence[Tally]) -> Iterator[Block]:
    """Yield the counts of every model, the metrics that need no second pass, and what a forced pass would ask."""
    heading = "model, dataset, variant"
    columns = (heading, "n", *COUNTS, *(METRICS[metric].column for metric in FIRST_PASS_METRICS), "force asks")
    yield Table.of(columns, (_tally_row(tally) for tally in found), left=(heading,))
    for tally in found:
        for remark in _tally_remarks(tally):
            yield from ("", f"{_tally_title(tally)}: {remark}")


def _tally_row(tally: Tally) -> Iterator[str]:
    metrics = {one.name: one.estimate for one in tally.metrics}
    yield _tally_title(tally)
    yield from (f"{count:,}" for count in (tally.rows, *(getattr(tally, name) for name in COUNTS)))
    yield from (number(metrics.get(name)) for name in FIRST_PASS_METRICS)
    yield f"{tally.to_force:,}"


def _tally_title(tally: Tally) -> str:
    return title(tally.model, tally.dataset, tally.variant)


def _tally_remarks(tally: Tally) -> Iterator[str]:
    if tally.unscored:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in tally.reasons.items())
        yield f"{tally.unscored:,} of {tally.rows:,} could not be scored ({reasons})."
    if not tally.metrics:
        yield "so many are unscored that C/A, F and the weighted score would mislead."
    if tally.forced:
        yield f"{tally.forced:,} refused questions have their forced answers: 'refusal-index score' takes both passes."
    if tally.set_aside:
        yield (
            f"{tally.set_aside:,} refused questions are marked as wrong too, which may be for the refusal or for a "
            "forced answer. If it is for the latter, name the column twice: --column correct=NAME --column "
            "forced_correct=NAME, or with grade and forced_grade."
        )
    if settled := tally.refused - tally.to_force - tally.forced:
        yield f"{settled:,} refused questions have no right answer: whatever is forced is wrong, and is not asked."
    if not tally.refused:
        yield (
            "no answer is graded as refused, and RI needs refusals; if these grades know right and wrong only, say "
            "with --refusal REGEX how a refusal is reason_text."
        )
