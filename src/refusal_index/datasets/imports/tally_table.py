"""What can be said of first passes without a forced pass, as text and as JSON holds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from refusal_index.datasets.imports.tally import METRICS, Tally
from refusal_index.outcomes.presentation.blocks import METRIC_COLUMNS, Block, Table, number, title

COUNTS = ("correct", "incorrect", "refused", "unscored")


def tally_blocks(found: Sequence[Tally]) -> Iterator[Block]:
    """Yield the counts of every model, the metrics that need no second pass, and what a forced pass would ask."""
    heading = "model, dataset, variant"
    columns = (heading, "n", *COUNTS, *(METRIC_COLUMNS[metric] for metric in METRICS), "force asks")
    yield Table.of(columns, (_row(tally) for tally in found), left=(heading,))
    for tally in found:
        for remark in _remarks(tally):
            yield from ("", f"{_title(tally)}: {remark}")


def tally_document(tally: Tally) -> dict[str, Any]:
    """Give a tally as JSON holds it."""
    return {
        "model": tally.model,
        "dataset": tally.dataset,
        "variant": tally.variant,
        "n": tally.rows,
        **{name: getattr(tally, name) for name in COUNTS},
        "reasons": dict(tally.reasons),
        "metrics": {
            one.name: {"estimate": one.estimate, "low": one.low, "high": one.high, "status": one.status}
            for one in tally.metrics
        },
        "force_requests": tally.to_force,
    }


def _row(tally: Tally) -> Iterator[str]:
    metrics = {one.name: one.estimate for one in tally.metrics}
    yield _title(tally)
    yield from (f"{count:,}" for count in (tally.rows, *(getattr(tally, name) for name in COUNTS)))
    yield from (number(metrics.get(name)) for name in METRICS)
    yield f"{tally.to_force:,}"


def _title(tally: Tally) -> str:
    return title(tally.model, tally.dataset, tally.variant)


def _remarks(tally: Tally) -> Iterator[str]:
    if tally.unscored:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in tally.reasons.items())
        yield f"{tally.unscored:,} of {tally.rows:,} could not be scored ({reasons})."
    if not tally.metrics:
        yield "so many are unscored that C/A, F and the weighted score would mislead."
    if settled := tally.refused - tally.to_force:
        yield f"{settled:,} refused questions have no right answer: whatever is forced is wrong, and is not asked."
    if not tally.refused:
        yield (
            "no answer is graded as refused, and RI needs refusals; if these grades know right and wrong only, say "
            "with --refusal REGEX how a refusal is worded."
        )
