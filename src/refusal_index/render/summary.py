"""A summary as text: one row a variant, then the caveats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refusal_index.data.outcome import FORCED_NOT_ASKED, NOT_FINISHED, REQUEST_FAILED
from refusal_index.data.rates import Completeness
from refusal_index.findings.draws import CORRECTED, INDEX, DrawsSummary, PooledSummary
from refusal_index.findings.labels import GradeAgreement, GradeChanges
from refusal_index.findings.summary import Summary, Usage, VariantSummary
from refusal_index.render import METRIC_COLUMNS, NOT_KNOWN, UNDEFINED, Block, Table
from refusal_index.render.blocks import interval, interval_of, number, percent, span, title, worded
from refusal_index.render.confidence import ONE_BY_ONE, measures_blocks
from refusal_index.stats import Estimate


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
OF_ERRORS = ("hallucination_rate", "omniscience_index", "truthfulness_score")
"""The metrics that set wrong answers against refusals: they have a table of their own."""

METRICS = tuple(name for name in METRIC_COLUMNS if name not in (INDEX, CORRECTED, *OF_ERRORS))
"""The metrics that have a column behind the index."""

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
    metrics = (METRIC_COLUMNS[name] for name in METRICS)
    missing = (MISSING,) if _any_missing(summary) else ()
    level = f"{percent(summary.confidence_level)} interval"
    numbers = ("n", METRIC_COLUMNS[INDEX], level, *metrics, *missing, "scoring rules")
    columns = (heading, *numbers, "status", "unscored", "forced refused")
    return Table.of(columns, (_row(summary, variant) for variant in summary.variants), left=(heading, "status"))


def errors_table(summary: Summary) -> Table:
    """Make the table of the scores that set wrong answers against refusals, at their weights."""
    weights = ",".join(f"{weight:g}" for weight in summary.truthfulness_weights)
    level = f"{percent(summary.confidence_level)} interval"
    names = (METRIC_COLUMNS[OF_ERRORS[0]], METRIC_COLUMNS[OF_ERRORS[1]], f"{METRIC_COLUMNS[OF_ERRORS[2]]} at {weights}")
    columns = ("wrong or refused", *(column for name in names for column in (name, level)))
    rows = ((_title(summary, one), *_errors_row(one)) for one in summary.variants)
    return Table.of(columns, rows, left=columns[:1])


def _errors_row(variant: VariantSummary) -> Iterator[str]:
    for name in OF_ERRORS:
        found, digits = variant.metric(name), 1 if name == "omniscience_index" else 3
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
    yield from (number(variant.metric(name).estimate) for name in METRICS)
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
        yield warning.message


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
    index, corrected, name = pooled.refusal_index, pooled.corrected_refusal_index, METRIC_COLUMNS[INDEX]
    if index.estimate is None:
        return f"{whose}all variants jointly: {name} undefined ({worded(index.reason)})."
    ends = f" {interval_of(index)}" if index.low is not None else ""
    if corrected is not None:
        ends += f", {METRIC_COLUMNS[CORRECTED]} {_in_words(corrected)}"
    left_out = f", without {', '.join(pooled.left_out)}" if pooled.left_out else ""
    told = spread_sentence(pooled)
    return f"{whose}all variants jointly: {name} {index.estimate:.3f}{ends}{left_out}{told}."


def _draws_table(summary: Summary) -> Table:
    columns = ("repeated draws", "questions", "draws", METRIC_COLUMNS[INDEX], *STEPS, METRIC_COLUMNS[CORRECTED])
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
        told = worded(reason)
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
