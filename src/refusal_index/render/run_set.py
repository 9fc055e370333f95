"""A set of runs as text: one row for each run, and why runs are not complete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from refusal_index.findings.conclusions import summary_caveats
from refusal_index.findings.metrics import Statement
from refusal_index.findings.summary import INCOMPLETE
from refusal_index.render.format import Block
from refusal_index.render.run_table import run_table
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import used_blocks
from refusal_index.runs.engines import engine_of
from refusal_index.runs.run_set import SetRun


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
    is_pooled = any(len(summary.variants) > 1 for summary in summaries)
    yield from ("", sentence(Statement("results_explained", "scope", {"is_pooled": is_pooled})))
    serious = [
        summary for summary in summaries if any(doubt.severity == "serious" for doubt in summary_caveats(summary))
    ]
    if serious:
        yield sentence(Statement("serious_caveats", "serious", {"runs": len(serious)}))
    together = replace(summaries[0], variants=tuple(variant for summary in summaries for variant in summary.variants))
    yield from used_blocks(together)


def why_unfinished(result: SetRun) -> str:
    """Return why a run of a set has no results, or incomplete ones."""
    if result.error is not None:
        return result.error
    if result.results is not None and result.results.ended is not None:
        return result.results.ended
    if result.waits is not None:
        return result.waits
    return sentence(Statement("too_few_scored" if result.status == INCOMPLETE else "not_started", "serious"))
