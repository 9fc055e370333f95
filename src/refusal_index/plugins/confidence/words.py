"""What the command `confidence` says in words: methods, requests to come, what was done and added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from refusal_index.data.errors import listed
from refusal_index.data.outcome_table import place_of
from refusal_index.data.run_json import UNPRICED, Prices
from refusal_index.plugins.confidence.method import Method
from refusal_index.plugins.confidence.plan import PendingRequests
from refusal_index.plugins.confidence.scores import AddedScores, Confidence
from refusal_index.render.blocks import Block, Table
from refusal_index.runs.dry_run import REPLY_TOKENS


def methods_blocks(allowed: Mapping[Method, str | None]) -> Iterator[Block]:
    """Yield what each method is and needs, and whether the run allows it."""
    rows = [
        (method.name, method.about, ", ".join(sorted(method.needs)) or "nothing more", reason or "yes")
        for method, reason in allowed.items()
    ]
    columns = ("method", "what it is", "needs", "allowed")
    yield Table.of(columns, rows, left=columns)


def pending_blocks(pending: Sequence[PendingRequests], prices: Prices = UNPRICED) -> Iterator[Block]:
    """Yield what would be sent, and about what that costs where prices are known."""
    yield from ("Dry run: nothing is sent.", "")
    rows = [
        (one.name, f"{one.questions:,}", _range(one.requests, one.most), f"{one.input_tokens:,}") for one in pending
    ]
    least, most, tokens = (sum(getattr(one, name) for one in pending) for name in ("requests", "most", "input_tokens"))
    rows.append(("total", "", _range(least, most), f"{tokens:,}"))
    yield Table.of(("for", "questions", "requests", "about tokens in"), rows, left=("for",))
    cost = prices.cost((tokens, least * REPLY_TOKENS), (0, 0))
    if cost is not None:
        yield from ("", f"about ${cost:,.2f}, at {REPLY_TOKENS} tokens a reply and without graders")
    if least < most:
        yield ""
        yield (
            "The upper number applies if the model returns no log probabilities, so replies are sampled instead, or if "
            "an answer that was judged before changes."
        )


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def done_blocks(found: Confidence) -> Iterator[Block]:
    """Yield what was sent for the scores, why it ended early, and where they are."""
    if found.ended is not None:
        yield from ("", f"stopped early: {found.ended}; answers without a reply have no score")
    used = found.usage
    cost = "" if used.cost is None else f", ${used.cost:,.2f}"
    tokens = f"{used.input_tokens:,} tokens in, {used.output_tokens:,} out"
    if used.requests:
        yield f"Sent: {used.requests:,} requests, {tokens}{cost}"
    made = {one.name for one in found.methods}
    kept = [name for name in found.table["method"].unique(maintain_order=True) if name not in made]
    beside = f"; also holds scores of {', '.join(kept)}" if kept else ""
    yield f"{found.folder.path}: confidence.parquet, summary.json, report.html{beside}"


def added_blocks(added: AddedScores) -> Iterator[Block]:
    """Yield how far added scores cover the run, and what is not among them."""
    rows = [(one.method, f"{one.questions:,}", f"{one.empty:,}", f"{one.of:,}") for one in added.joined.coverage]
    yield Table.of(("method", "questions with a score", "with an empty one", "of the run"), rows, left=("method",))
    for remark in _remarks(added):
        yield from ("", remark)


def _remarks(added: AddedScores) -> Iterator[str]:
    if count := added.joined.unknown.height:
        are = "1 score belongs to an answer" if count == 1 else f"{count:,} scores belong to answers"
        first = place_of(added.joined.unknown.row(0, named=True))
        yield f"{are} that the run does not have; excluded (first: {first})."
    if added.joined.by_text:
        yield f"{added.joined.by_text:,} questions were matched by their text."
    if added.left_out:
        yield (
            f"Excluded: {listed(added.left_out)}, uncertainties that no formula turns into a confidence. Calibrate one "
            "on held-out questions, and name its column with --column confidence=NAME."
        )
    if added.replaced:
        yield f"Earlier scores of the same methods are replaced: {', '.join(added.replaced)}."
    if added.assumed:
        yield (
            "A score without a pass is assumed to belong to the answer that counts: that of the first pass if it "
            "answered, else the forced one. For any other answer, give its grade in a column 'correct'."
        )


def added_document(added: AddedScores) -> dict[str, Any]:
    """Return the same for JSON."""
    return {
        "coverage": [asdict(one) for one in added.joined.coverage],
        "unknown": added.joined.unknown.height,
        "by_text": added.joined.by_text,
        "left_out": list(added.left_out),
        "replaced": list(added.replaced),
    }
