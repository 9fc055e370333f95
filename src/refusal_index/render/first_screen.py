"""The first screen of a run: RI on a scale, the rates people act on, and reasons for caution, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from refusal_index.findings.conclusions import doubts, lacking, verdict
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.statement import Statement
from refusal_index.findings.summary import Summary, VariantSummary
from refusal_index.render.blocks import Block, Table
from refusal_index.render.format import abbreviated, count, interval_of, number, percent, with_interval
from refusal_index.render.sentences import sentence
from refusal_index.stats import Estimate, RankedRun

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
        index = summary.index
        shown = with_interval(index.estimate, index.low, index.high, index.reason, 2)
        yield f"{METRICS[INDEX].label} {shown}   {scale(index)}".rstrip()
        yield from (sentence(verdict(index)), "")
    yield from (_table(summary), "", sentence(Statement("rates_explained", "scope")))
    for doubt in doubts(summary):
        if doubt.severity == "grave" or doubt.code == "sampling":  # intervals depend on how questions were sampled
            yield from ("", f"{'Caution: ' if doubt.severity == 'grave' else ''}{sentence(doubt)}")


def _title(summary: Summary) -> str:
    first = summary.variants[0]
    source = " on ".join(part for part in (first.model, first.dataset) if part) or "Outcomes"
    prompts = f", {count(len(summary.variants), 'prompt')}" if len(summary.variants) > 1 else ""
    asked = max(variant.completeness.asked for variant in summary.variants)
    return f"{source}: {count(asked, 'question')}{prompts}"


def scale(index: Estimate) -> str:
    """Draw an index with its interval from chance level to 1, or from -1 where the interval reaches below chance.

    >>> scale(Estimate(0.5, 0.25, 0.75))
    '0 chance |-------[======O======]-------| 1 perfect'
    >>> scale(Estimate(-0.5, -0.75, -0.25))
    '-1 |----[==O==]---0--------------| 1 (0: chance)'
    """
    if index.low is None:
        return ""
    start = scale_start(index.low)
    left, right = ("-1", "1 (0: chance)") if start < 0 else ("0 chance", "1 perfect")
    return f"{left} |{marks(index, start)}| {right}"


def scale_start(low: float | None) -> int:
    """Return where the scale of an interval begins: at chance level, or at -1 if the interval reaches below it."""
    return -1 if low is not None and low < 0 else 0


def marks(index: Estimate | RankedRun, start: int, width: int = SCALE_WIDTH) -> str:
    """Draw an interval as ``[==O==]`` on a scale to 1; nothing without one."""
    if index.estimate is None or index.low is None or index.high is None:
        return ""
    low, middle, high, chance = (
        round((value - start) / (1 - start) * (width - 1)) for value in (index.low, index.estimate, index.high, 0)
    )
    drawn = ["-"] * width
    drawn[low : high + 1] = "=" * (high + 1 - low)
    if start < 0:
        drawn[chance] = "0"
    drawn[low], drawn[high], drawn[middle] = "[", "]", "O"
    return "".join(drawn)


def _table(summary: Summary) -> Table:
    heading = "prompt" if summary.has_one_source else "model, dataset, prompt"
    level = f"{percent(summary.confidence_level)} interval"
    has_missing = any(variant.completeness.unscored for variant in summary.variants)
    columns = (
        *(heading, METRICS[INDEX].column, level, "refused", "precision", "error", "over-refusal"),
        *(["unscored"] if has_missing else []),
    )
    rows = (_row(summary, variant, has_missing=has_missing) for variant in summary.variants)
    return Table.of(columns, rows, left=(heading,))


def _row(summary: Summary, variant: VariantSummary, *, has_missing: bool) -> Iterator[str]:
    label, right = summary.label(variant), variant.metric("correct_given_attempted").estimate
    yield abbreviated(label, LONGEST_NAME) if summary.has_one_source else label
    yield from (number(variant.index.estimate, 2), interval_of(variant.index, 2))
    yield from (percent(variant.metric(name).estimate, 0) for name in ("refusal_rate", "refusal_precision"))
    yield percent(None if right is None else 1 - right, 0)
    yield percent(variant.metric("over_refusal").estimate, 0)
    if has_missing:
        yield f"{count(variant.completeness.unscored)} ({percent(variant.completeness.missing_share, 1)})"
