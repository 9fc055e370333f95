"""A gate's verdict as text: why in one sentence, every guard, what is missing, and what changed most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refusal_index.data.errors import shortened
from refusal_index.findings.gate import GateResult, GuardResult
from refusal_index.findings.metrics import METRICS
from refusal_index.render.blocks import Block, Table, shows
from refusal_index.render.format import UNDEFINED, number, percent, pvalue, signed
from refusal_index.render.sentences import phrase, selected, sentence


@shows(GateResult)
def gate_blocks(found: GateResult) -> Iterator[Block]:
    """Yield the verdict, the guards, what to do where it is open, and what changed most."""
    why, judged, *notes = map(sentence, found.statements)
    yield from (f"{found.verdict.upper()}: {why}", "", judged)
    if found.guards:
        yield from ("", guard_table(found))
    for line in notes:
        yield from ("", line)
    if found.changed:
        yield from ("", "Changed by more than sampling noise, most changed first:", changed_table(found))


def gate_document(found: GateResult) -> dict[str, Any]:
    """Give all of a verdict as JSON holds it, with the sentences on why and at which look."""
    document = found.to_document()
    first = {"gate_version": document["gate_version"], "verdict": found.verdict, "why": sentence(found.statements[0])}
    return {**first, **document, "looked": next(selected(found, "look"), None)}


def guard_table(found: GateResult) -> Table:
    """Return every guard as a row."""
    worst = f"at worst ({percent(1 - found.alpha)})"
    columns = ("guard", "baseline", "candidate", "difference", worst, "limit", "p beyond, Holm", "verdict")
    return Table.of(columns, map(_cells, found.guards), left=("guard", "verdict"))


def _cells(row: GuardResult) -> Iterator[str]:
    estimate, test = row.guard.estimate, row.test
    is_known = estimate is not None and test.pvalue_beyond is not None
    yield METRICS[row.guard.name].column
    yield from (number(row.baseline), number(row.candidate))
    yield from ((signed(estimate), signed(test.worst)) if row.against_baseline else (UNDEFINED, number(test.worst)))
    yield from (sentence(row.limit), pvalue(test.pvalue_holm) if is_known else UNDEFINED, test.verdict)


def changed_table(found: GateResult) -> Table:
    """Return the questions that changed most as rows."""
    rows = (
        (
            one.question_id,
            f"{phrase(one.baseline, 'response')} ({one.draws_baseline})",
            f"{phrase(one.candidate, 'response')} ({one.draws_candidate})",
            shortened(one.question)[1:-1] if one.question else UNDEFINED,
        )
        for one in found.changed
    )
    return Table.of(names := ("question_id", "before", "now", "question"), rows, left=names)
