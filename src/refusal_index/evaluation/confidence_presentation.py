"""Methods, what is still to be asked for them, and their scores, as paragraphs and tables of plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refusal_index.confidence.method import Method
from refusal_index.evaluation.confidence import Allowed, Pending
from refusal_index.outcomes.presentation import Block, Table


def methods_blocks(allowed: Sequence[Allowed]) -> Iterator[Block]:
    """Yield what each method is and needs, and whether the run allows it."""
    rows = [(one.method.name, one.method.about, _needs(one.method), one.reason or "yes") for one in allowed]
    columns = ("method", "what it is", "needs", "allowed")
    yield Table.of(columns, rows, left=columns)


def _needs(method: Method) -> str:
    return ", ".join(sorted(method.needs)) or "nothing more"


def pending_blocks(pending: Sequence[Pending]) -> Iterator[Block]:
    """Yield what would be sent."""
    yield "dry run: nothing is sent"
    yield ""
    rows = [(one.name, f"{one.questions:,}", f"{one.requests:,}", f"{one.input_tokens:,}") for one in pending]
    requests, tokens = (sum(getattr(one, name) for one in pending) for name in ("requests", "input_tokens"))
    rows.append(("all", "", f"{requests:,}", f"{tokens:,}"))
    yield Table.of(("asked", "questions", "requests", "about tokens in"), rows, left=("asked",))
