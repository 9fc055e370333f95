"""Estimates of runs as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from refusal_index.findings.dry_run import Range, RequestCounts, RunEstimate
from refusal_index.render.format import UNDEFINED, Block, Table, count, dollars, duration, title
from refusal_index.render.sentences import paragraphs, sentence

COLUMNS = ("first pass", "forced pass", "grading", "requests", "tokens in", "tokens out", "cost", "time")
SHOWN = 3
"""Models named before a sentence that does not apply to all."""


def dry_run_document(estimates: Sequence[RunEstimate]) -> dict[str, Any]:
    """Return estimates as a JSON-serialisable dictionary, with the caveats and notes on each run as its remark."""
    runs = [
        {**estimate.to_document(), "remark": "; ".join(map(sentence, (*estimate.caveats, *estimate.notes))) or None}
        for estimate in estimates
    ]
    return {"dry_run_version": 1, "runs": runs}


def estimate_blocks(estimate: RunEstimate) -> Iterator[Block]:
    """Yield the estimate of one run, and its assumptions."""
    yield from (f"{title(estimate.model, estimate.dataset)}: about {_amount(estimate)}", "")
    yield from dry_run_blocks([estimate])


def _amount(estimate: RunEstimate) -> str:
    cost = "" if estimate.cost is None else f", {dollars(estimate.cost.expected)}"
    return f"{count(estimate.requests.expected, 'request')}, {duration(estimate.seconds.expected)}{cost}"


def grading_line(estimate: RunEstimate) -> str:
    """Return the number of answers of a file to grade, and the requests, the time and the cost."""
    unknown = "; --grader-price adds the cost" if estimate.cost is None and estimate.checks else ""
    return f"the answers without a grade in {estimate.model}: about {_amount(estimate)}{unknown}"


def dry_run_blocks(estimates: Sequence[RunEstimate]) -> Iterator[Block]:
    """Yield the estimates of runs, and their assumptions."""
    names = ("model", "dataset")
    rows = []
    for estimate in estimates:
        n_done = len(estimate.variants) - len(estimate.pending)
        prompts = f"{len(estimate.variants)}{f', {n_done} done' if n_done else ''}"
        rows.append(
            (estimate.model, estimate.dataset, count(estimate.questions), prompts, *_numbers([estimate])),
        )
    if len(estimates) > 1:
        rows.append(("all", "", "", "", *_numbers(estimates)))
    yield Table.from_rows((*names, "questions", "prompts", *COLUMNS), rows, left=names)
    yield from paragraphs(_assumptions(estimates))


def _numbers(estimates: Sequence[RunEstimate]) -> Iterator[str]:
    remaining = sum((estimate.remaining for estimate in estimates), RequestCounts())
    checks = Range.exactly(sum(estimate.checks for estimate in estimates))
    requests = (remaining.first.requests, remaining.forced.requests, remaining.grading.requests + checks)
    yield from map(_range, (*requests, remaining.total.requests + checks))
    yield from map(_expected, (remaining.total.input_tokens, remaining.total.output_tokens))
    costs = [estimate.cost.expected for estimate in estimates if estimate.cost is not None]
    yield dollars(sum(costs)) if len(costs) == len(estimates) else UNDEFINED
    yield duration(sum(estimate.seconds.expected for estimate in estimates))


def _range(amount: Range) -> str:
    if amount.is_exact:
        return count(amount.most)
    return f"{count(amount.least)} to {count(amount.most)}, about {count(amount.expected)}"


def _expected(amount: Range) -> str:
    return count(amount.expected) if amount.is_exact else f"about {count(amount.expected)}"


def _assumptions(estimates: Sequence[RunEstimate]) -> Iterator[str]:
    """Yield each sentence once, with the models it applies to unless it applies to all."""
    models_by_sentence: dict[str, dict[str, None]] = {}
    for estimate in estimates:
        for statement in estimate.statements():
            models_by_sentence.setdefault(sentence(statement), {})[estimate.model] = None
    everyone = {estimate.model for estimate in estimates}
    for text, models in models_by_sentence.items():
        named = list(models)
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        yield text if len(named) == len(everyone) else f"{', '.join(named[:SHOWN])}{more}: {text}"
