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
def gate_blocks(result: GateResult) -> Iterator[Block]:
    """Yield the verdict, the guards, what to do where it is open, and what changed most."""
    why, judged, *notes = map(sentence, result.statements)
    yield from (f"{result.verdict.upper()}: {why}", "", judged)
    if result.guards:
        yield from ("", guard_table(result).without("difference", "p beyond, Holm"))
    for line in notes:
        yield from ("", line)
    if result.changed:
        yield from ("", "Changed by more than sampling noise, most changed first:", changed_table(result))


def gate_document(result: GateResult) -> dict[str, Any]:
    """Give all of a verdict as JSON holds it, with the sentences on why and at which look."""
    document = result.to_document()
    first = {"gate_version": document["gate_version"], "verdict": result.verdict, "why": sentence(result.statements[0])}
    return {**first, **document, "looked": next(selected(result, "look"), None)}


def guard_table(result: GateResult) -> Table:
    """Return every guard as a row."""
    worst = f"worst ({percent(1 - result.alpha)})"
    columns = ("guard", "baseline", "candidate", "difference", worst, "limit", "p beyond, Holm", "verdict")
    return Table.of(columns, map(_cells, result.guards), left=("guard", "verdict"))


def _cells(row: GuardResult) -> Iterator[str]:
    estimate, test = row.guard.estimate, row.test
    is_known = estimate is not None and test.pvalue_beyond is not None
    yield METRICS[row.guard.name].column
    yield from (number(row.baseline), number(row.candidate))
    yield from ((signed(estimate), signed(test.worst)) if row.against_baseline else (UNDEFINED, number(test.worst)))
    yield from (sentence(row.limit), pvalue(test.pvalue_holm) if is_known else UNDEFINED, test.verdict)


def changed_table(result: GateResult) -> Table:
    """Return the questions that changed most as rows."""
    rows = (
        (
            question.question_id,
            f"{phrase(question.baseline, 'response')} ({question.draws_baseline})",
            f"{phrase(question.candidate, 'response')} ({question.draws_candidate})",
            shortened(question.question)[1:-1] if question.question else UNDEFINED,
        )
        for question in result.changed
    )
    return Table.of(names := ("question_id", "before", "now", "question"), rows, left=names)
