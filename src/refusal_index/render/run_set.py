"""A set of runs as text: one row for each run, and why runs are not complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from refusal_index.data.analysis import Analysis
from refusal_index.findings.conclusions import summary_caveats
from refusal_index.findings.metrics import INDEX, METRICS, Statement
from refusal_index.findings.summary import INCOMPLETE, Summary
from refusal_index.render.format import (
    UNDEFINED,
    Block,
    Table,
    abbreviated,
    count,
    interval_of,
    number,
    percent,
    reason_text,
)
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import used_blocks
from refusal_index.runs.engines import engine_of
from refusal_index.runs.run_set import SetRun

MAX_RUN_LENGTH = 32


def set_blocks(results: Sequence[SetRun]) -> Iterator[Block]:
    """Yield the results of a set, one row per run, and what is incomplete."""
    yield from result_blocks(results)
    unfinished = [result for result in results if result.status != "complete"]
    if unfinished:
        yield ""
        by_hand = all(
            result.is_waiting and not engine_of(result.plan.settings.sending.engine).sends for result in unfinished
        )
        values = {"unfinished": len(unfinished), "runs": len(results), "by_hand": by_hand}
        yield sentence(Statement("runs_unfinished", "serious", values))
    for result in unfinished:
        yield f"  {result.plan.called}: {why_unfinished(result)}"


def result_blocks(results: Sequence[SetRun]) -> Iterator[Block]:
    """Yield one row per run: RI over its prompts, and the rates of its prompts."""
    summaries = [result.results.summary for result in results if result.results is not None]
    if not summaries:
        return
    yield run_table(
        summaries[0].analysis,
        (
            (" on ".join(result.plan.title), result.results.summary if result.results else None, result.status)
            for result in results
        ),
    )
    yield from ("", sentence(Statement("results_explained", "scope")))
    serious = [
        summary for summary in summaries if any(doubt.severity == "serious" for doubt in summary_caveats(summary))
    ]
    if serious:
        yield sentence(Statement("serious_caveats", "serious", {"runs": len(serious)}))
    together = replace(summaries[0], variants=tuple(variant for summary in summaries for variant in summary.variants))
    yield from used_blocks(together)


def run_table(analysis: Analysis, runs: Iterable[tuple[str, Summary | None, str]]) -> Table:
    """Return a table of runs, each given by its name, its results and its status in a set."""
    level = f"{percent(analysis.confidence_level)} interval"
    columns = ("run", METRICS[INDEX].column, level, "refused %", "wrong %", "status")
    return Table.from_rows(columns, (_result_row(*run) for run in runs), left=("run", "status"))


def _result_row(name: str, summary: Summary | None, run_status: str) -> Iterator[str]:
    yield abbreviated(name, MAX_RUN_LENGTH)
    index = summary.index if summary else None
    if summary is None or index is None:
        yield from (UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, run_status)
        return
    yield from (number(index.estimate, 2), interval_of(index, 2))
    right = [variant.metric("correct_given_attempted").estimate for variant in summary.variants]
    yield _range([variant.metric("refusal_rate").estimate for variant in summary.variants])
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


def why_unfinished(result: SetRun) -> str:
    """Return why a run of a set has no results, or incomplete ones."""
    if result.error is not None:
        return result.error
    if result.results is not None and result.results.ended is not None:
        return result.results.ended
    if result.waits is not None:
        return result.waits
    return sentence(Statement("too_few_scored" if result.status == INCOMPLETE else "not_started", "serious"))
