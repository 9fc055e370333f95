"""The first screen of a run: RI on a scale, the rates people act on, and reasons for caution, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from refusal_index.findings.conclusions import doubts, lacking, verdict
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.statement import Statement
from refusal_index.findings.summary import Summary, VariantSummary
from refusal_index.render.blocks import Block, Table
from refusal_index.render.format import count, estimate, interval_of, number, percent
from refusal_index.render.sentences import sentence
from refusal_index.stats import Estimate

SCALE_WIDTH = 29
"""Characters of the scale."""
LONGEST_NAME = 16
"""Characters of a prompt variant's name, so that its row fits into 80 columns."""


def first_screen(summary: Summary) -> Iterator[Block]:
    """Yield what is missing, the result of one model on one dataset, a row for each prompt, and serious caveats."""
    if (lacks := lacking(summary)) is not None:
        yield from (sentence(lacks), "")
    if summary.index is not None:
        yield from (_title(summary), "")
        shown = f"{METRICS[INDEX].label} {estimate(summary.index, 2)}"
        yield shown if summary.index.low is None else f"{shown}   {scale(summary.index)}"
        yield from (sentence(verdict(summary.index)), "")
    yield from (_table(summary), "", sentence(Statement("rates_explained", "scope")))
    for caveat in (one for one in doubts(summary) if one.severity == "grave"):
        yield from ("", f"Caution: {sentence(caveat)}")


def _title(summary: Summary) -> str:
    first = summary.variants[0]
    source = " on ".join(part for part in (first.model, first.dataset) if part) or "Outcomes"
    prompts = f", {count(len(summary.variants), 'prompt')}" if len(summary.variants) > 1 else ""
    return f"{source}: {count(max(variant.table.n for variant in summary.variants), 'question')}{prompts}"


def scale(index: Estimate) -> str:
    """Draw an index with its interval from chance level to 1, or from -1 where the interval reaches below chance.

    >>> scale(Estimate(0.5, 0.25, 0.75))
    '0 chance |-------[======O======]-------| 1 perfect'
    >>> scale(Estimate(-0.5, -0.75, -0.25))
    '-1 |----[==O===]---0--------------| 1 (0: chance)'
    """
    if index.estimate is None or index.low is None or index.high is None:
        return ""
    start = -1 if index.low < 0 else 0
    low, middle, high, chance = (
        round((value - start) / (1 - start) * (SCALE_WIDTH - 1)) for value in (index.low, index.estimate, index.high, 0)
    )
    marks = ["-"] * SCALE_WIDTH
    marks[low : high + 1] = "=" * (high + 1 - low)
    if start < 0:
        marks[chance] = "0"
    marks[low], marks[high], marks[middle] = "[", "]", "O"
    left, right = ("-1", "1 (0: chance)") if start < 0 else ("0 chance", "1 perfect")
    return f"{left} |{''.join(marks)}| {right}"


def _table(summary: Summary) -> Table:
    heading = "prompt" if summary.has_one_source else "model, dataset, prompt"
    level = f"{percent(summary.confidence_level)} interval"
    columns = (heading, METRICS[INDEX].column, level, "refused", "precision", "error", "over-refusal")
    return Table.of(columns, (_row(summary, variant) for variant in summary.variants), left=(heading,))


def _row(summary: Summary, variant: VariantSummary) -> Iterator[str]:
    label, right = summary.label(variant), variant.metric("correct_given_attempted").estimate
    yield label if not summary.has_one_source or len(label) <= LONGEST_NAME else f"{label[: LONGEST_NAME - 3]}..."
    yield from (number(variant.index.estimate, 2), interval_of(variant.index, 2))
    yield from (percent(variant.metric(name).estimate, 0) for name in ("refusal_rate", "refusal_precision"))
    yield percent(None if right is None else 1 - right, 0)
    yield percent(variant.metric("over_refusal").estimate, 0)
