"""Methods, what is still to be asked for them, and their scores, as paragraphs and tables of plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refusal_index.confidence.method import Method
from refusal_index.evaluation.confidence import Allowed, Confidence
from refusal_index.evaluation.confidence_asking import Pending
from refusal_index.evaluation.dry_run import REPLY_TOKENS
from refusal_index.outcomes.presentation import Block, Table
from refusal_index.outcomes.price import UNPRICED, Prices


def methods_blocks(allowed: Sequence[Allowed]) -> Iterator[Block]:
    """Yield what each method is and needs, and whether the run allows it."""
    rows = [(one.method.name, one.method.about, _needs(one.method), one.reason or "yes") for one in allowed]
    columns = ("method", "what it is", "needs", "allowed")
    yield Table.of(columns, rows, left=columns)


def _needs(method: Method) -> str:
    return ", ".join(sorted(method.needs)) or "nothing more"


def pending_blocks(pending: Sequence[Pending], prices: Prices = UNPRICED) -> Iterator[Block]:
    """Yield what would be sent, and about what that costs where prices say."""
    yield "dry run: nothing is sent"
    yield ""
    rows = [
        (one.name, f"{one.questions:,}", _range(one.requests, one.most), f"{one.input_tokens:,}") for one in pending
    ]
    least, most, tokens = (sum(getattr(one, name) for one in pending) for name in ("requests", "most", "input_tokens"))
    rows.append(("all", "", _range(least, most), f"{tokens:,}"))
    yield Table.of(("asked", "questions", "requests", "about tokens in"), rows, left=("asked",))
    cost = prices.cost((tokens, least * REPLY_TOKENS), (0, 0))
    if cost is not None:
        yield from ("", f"about ${cost:,.2f}, at {REPLY_TOKENS} tokens a reply and without graders")
    if least < most:
        yield ""
        yield (
            "The most are sent where no log probabilities come, so that replies are drawn instead, or where an answer "
            "that was judged comes out otherwise."
        )


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def done_blocks(found: Confidence) -> Iterator[Block]:
    """Yield what was sent for the scores, why it ended early, and where they lie."""
    if found.ended is not None:
        yield from ("", f"ended early: {found.ended}; what was not asked yet has no score")
    used = found.usage
    cost = "" if used.cost is None else f", ${used.cost:,.2f}"
    tokens = f"{used.input_tokens:,} tokens in, {used.output_tokens:,} out"
    yield from ("", f"asked now: {used.requests:,} requests, {tokens}{cost}")
    kept = [name for name in found.table["method"].unique(maintain_order=True) if name not in _names(found)]
    beside = f"; scores of {', '.join(kept)} beside these" if kept else ""
    yield f"{found.folder.path}: confidence.parquet, summary.json, report.html{beside}"


def _names(found: Confidence) -> set[str]:
    return {one.name for one in found.methods}
