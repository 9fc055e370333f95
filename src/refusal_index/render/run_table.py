"""Runs as a table: one row for each, with RI over its prompts and the range of its rates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from refusal_index.data.analysis import Analysis
from refusal_index.data.rates import BY_ANSWERABLE
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.summary import INCOMPLETE, Summary
from refusal_index.render.format import (
    UNDEFINED,
    Table,
    abbreviated,
    count,
    interval_of,
    number,
    percent,
    reason_text,
)

MAX_RUN_LENGTH = 32


def run_table(analysis: Analysis, runs: Iterable[tuple[str, Summary | None, str]]) -> Table:
    """Return a table of runs, each given by its name, its results and its status in a set."""
    listed = tuple(runs)
    metrics = _metrics_shown(summary for _, summary, _ in listed if summary)
    rates = (f"{METRICS[name].column} %" for name in metrics)
    level = f"{percent(analysis.confidence_level)} interval"
    columns = ("run", METRICS[INDEX].column, level, *rates, "wrong %", "status")
    return Table.from_rows(columns, (_result_row(*run, metrics) for run in listed), left=("run", "status"))


def _metrics_shown(summaries: Iterable[Summary]) -> tuple[str, ...]:
    """Return the refusal rates by answerability if any run has unanswerable questions, else that of all questions."""
    variants = [variant for summary in summaries for variant in summary.variants]
    is_known = any(variant.metric("refused_unanswerable").estimate is not None for variant in variants)
    return tuple(BY_ANSWERABLE) if is_known else ("refusal_rate",)


def _result_row(name: str, summary: Summary | None, run_status: str, metrics: Sequence[str]) -> Iterator[str]:
    yield abbreviated(name, MAX_RUN_LENGTH)
    index = summary.index if summary else None
    if summary is None or index is None:
        yield from (*[UNDEFINED] * (3 + len(metrics)), run_status)
        return
    yield from (number(index.estimate, 2), interval_of(index, 2))
    right = [variant.metric("correct_given_attempted").estimate for variant in summary.variants]
    for metric in metrics:
        yield _range([variant.metric(metric).estimate for variant in summary.variants])
    yield _range([None if value is None else 1 - value for value in right])
    unscored = sum(variant.completeness.unscored for variant in summary.variants)
    status = INCOMPLETE if run_status == INCOMPLETE else index.status
    reason = f" ({reason_text(index.reason)})" if index.reason else ""
    yield f"{status}{reason}" + (f", {count(unscored)} unscored" if unscored else "")


def _range(shares: Sequence[float | None]) -> str:
    """Format a range of shares in per cent."""
    defined = sorted(share for share in shares if share is not None)
    ends = dict.fromkeys(number(100 * share, 0) for share in (*defined[:1], *defined[-1:]))
    return " to ".join(ends) or UNDEFINED
