"""A gate's verdict as text: why in one sentence, every guard, and caveats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refusal_index.data.errors import shortened
from refusal_index.findings.gate import GateResult, GuardResult
from refusal_index.findings.gate_guards import SHOWN, questions_for_margins
from refusal_index.findings.gate_policy import Policy
from refusal_index.findings.metrics import METRICS
from refusal_index.findings.statement import Statement
from refusal_index.findings.summary import Summary
from refusal_index.render.blocks import Block, Table, shows
from refusal_index.render.format import UNDEFINED, interval, number, percent, pvalue, signed
from refusal_index.render.sentences import phrase, selected, sentence


@shows(GateResult)
def gate_blocks(result: GateResult) -> Iterator[Block]:
    """Yield the verdict, what was judged, the guards, and what to know or to do; files have the rest."""
    why, judged, *others = result.statements
    yield from (f"{result.verdict.upper()}: {sentence(why)}", "", sentence(judged))
    if result.guards:
        margins = any(guard.against_baseline for guard in result.guards)
        left_out = () if margins else ("change",)
        yield from ("", guard_table(result).without("baseline", "p beyond, Holm", *left_out), "")
        yield sentence(Statement("guards_explained", "scope", {"margins": margins}))
    for one in others:
        if one.severity != "note":
            yield from ("", f"{'Caution: ' if one.severity == 'grave' else ''}{sentence(one)}")
    if result.changed:
        yield from ("", sentence(Statement("changed", values={"count": len(result.changed), "most": SHOWN})))


def baseline_blocks(summary: Summary) -> Iterator[Block]:
    """Yield how many questions a gate's default margins need of a run of one prompt, where that is known."""
    if len(summary.variants) == 1:
        questions = questions_for_margins(summary.variants[0], summary.confidence_level, Policy())
        if questions is not None:
            yield sentence(Statement("baseline_needs", "scope", {"questions": questions}))


def gate_document(result: GateResult) -> dict[str, Any]:
    """Give all of a verdict as JSON holds it, with the sentences on why and at which look."""
    document = result.to_document()
    first = {"gate_version": document["gate_version"], "verdict": result.verdict, "why": sentence(result.statements[0])}
    return {**first, **document, "looked": next(selected(result, "look"), None)}


def guard_table(result: GateResult) -> Table:
    """Return every guard as a row."""
    level = f"{percent(1 - 2 * result.alpha)} interval"
    columns = ("guard", "baseline", "candidate", "change", level, "limit", "p beyond, Holm", "verdict")
    return Table.of(columns, map(_cells, result.guards), left=("guard", "verdict"))


def _cells(row: GuardResult) -> Iterator[str]:
    estimate, test = row.guard.estimate, row.test
    is_known = estimate is not None and test.pvalue_beyond is not None
    low, high = (test.worst, test.best) if row.guard.higher_is_better else (test.best, test.worst)
    yield METRICS[row.guard.name].column
    yield from (number(row.baseline), number(row.candidate))
    yield from (signed(estimate) if row.against_baseline else UNDEFINED, interval(low, high))
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
