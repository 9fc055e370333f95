"""A set of runs and a dry run as text.

What one does with finished runs from Python: compare and rank them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import refusal_index.render.comparison  # noqa: F401 - shows comparisons
from refusal_index.data.errors import checked_path
from refusal_index.data.run_json import Prices
from refusal_index.data.runs import ComparedRun, read_runs
from refusal_index.findings import ranking
from refusal_index.findings.comparison import PairComparison, compare_pair
from refusal_index.findings.conclusions import doubts
from refusal_index.findings.matching import CompareOptions
from refusal_index.findings.metrics import INDEX, METRICS
from refusal_index.findings.statement import Statement
from refusal_index.findings.summary import INCOMPLETE
from refusal_index.models.settings import SettingError
from refusal_index.protocol.cost import NOTHING, Range
from refusal_index.render.blocks import Block, Table
from refusal_index.render.display import used_blocks
from refusal_index.render.format import UNDEFINED, abbreviated, count, interval, number, percent, reason_text
from refusal_index.render.sections import compared_sections
from refusal_index.render.sentences import sentence
from refusal_index.runs.dry_run import RunEstimate, counts_exactly
from refusal_index.runs.engine import BATCH, FILES
from refusal_index.runs.sweep import CellResult, index_of
from refusal_index.runs.writing import Run

DRY_RUN_COLUMNS = ("first pass", "forced pass", "grading", "requests", "tokens in", "tokens out", "cost", "time")
SHOWN, LONGEST_RUN = 3, 32


def set_blocks(results: Sequence[CellResult]) -> Iterator[Block]:
    """Yield the results of a set, a row for each run, and what is not complete."""
    yield from result_blocks(results)
    unfinished = [result for result in results if result.status != "complete"]
    if unfinished:
        yield ""
        by_hand = all(result.is_waiting and result.plan.settings.sending.engine == FILES for result in unfinished)
        on = "" if by_hand else "; the same command goes on with them"
        yield f"{len(unfinished):,} of {len(results):,} runs are not complete{on}:"
    for result in unfinished:
        yield f"  {result.plan.called}: {why_unfinished(result)}"


def result_blocks(results: Sequence[CellResult]) -> Iterator[Block]:
    """Yield one row for each of several runs: RI over its prompts, and the rates of its prompts."""
    known = [result.labelled for result in results if result.labelled is not None]
    if not known:
        return
    level = f"{percent(known[0].confidence_level)} interval"
    columns = ("run", METRICS[INDEX].column, level, "refused %", "error %", "status")
    yield Table.of(columns, map(_result_row, results), left=("run", "status"))
    yield from ("", sentence(Statement("results_explained", "scope")))
    grave = [one for one in known if any(doubt.severity == "grave" for doubt in doubts(one))]
    if grave:
        yield sentence(Statement("serious_caveats", "grave", {"runs": len(grave)}))
    together = replace(known[0], variants=tuple(variant for summary in known for variant in summary.variants))
    yield from used_blocks(together)


def _result_row(result: CellResult) -> Iterator[str]:
    yield abbreviated(" on ".join(result.plan.title), LONGEST_RUN)
    summary = result.run.summary if result.run else None
    index = index_of(summary) if summary else None
    if summary is None or index is None:
        yield from (UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, result.status)
        return
    yield from (number(index["estimate"], 2), interval(index["low"], index["high"], 2))
    right = [variant.metric("correct_given_attempted").estimate for variant in summary.variants]
    yield _range([variant.metric("refusal_rate").estimate for variant in summary.variants])
    yield _range([None if value is None else 1 - value for value in right])
    unscored = sum(variant.completeness.unscored for variant in summary.variants)
    status = INCOMPLETE if result.status == INCOMPLETE else index["status"]
    reason = f" ({reason_text(index['reason'])})" if index["reason"] else ""
    yield f"{status}{reason}" + (f", {count(unscored)} unscored" if unscored else "")


def _range(shares: Sequence[float | None]) -> str:
    """Format shares in per cent, from the lowest to the highest."""
    known = sorted(share for share in shares if share is not None)
    ends = dict.fromkeys(number(100 * share, 0) for share in (*known[:1], *known[-1:]))
    return " to ".join(ends) or UNDEFINED


def why_unfinished(result: CellResult) -> str:
    """Return why a run of a set has no results, or not all of them."""
    if result.error is not None:
        return result.error
    if result.run is not None and result.run.ended is not None:
        return result.run.ended
    if result.waits is not None:
        return result.waits
    return "too many questions could not be scored" if result.status == "incomplete" else "not begun"


def dry_run_document(found: Sequence[RunEstimate]) -> dict[str, Any]:
    """Give what dry runs found as JSON holds it."""
    return {"dry_run_version": 1, "runs": [one.to_document() for one in found]}


def dry_run_blocks(found: Sequence[RunEstimate]) -> Iterator[Block]:
    """Yield what runs would send, and on what the numbers rest."""
    names = ("model", "dataset")
    rows = [(*_heading(one), *_numbers([one])) for one in found]
    if len(found) > 1:
        rows.append(("all", "", "", "", *_numbers(found)))
    yield Table.of((*names, "questions", "variants", *DRY_RUN_COLUMNS), rows, left=names)
    for line in _grouped(found):
        yield from ("", line)


def _heading(one: RunEstimate) -> tuple[str, ...]:
    variants = len(one.plan.procedures)
    done = variants - len(one.pending)
    return (
        *one.plan.title,
        f"{len(one.plan.dataset.questions):,}",
        f"{variants}, {done} done" if done else f"{variants}",
    )


def _numbers(found: Sequence[RunEstimate]) -> Iterator[str]:
    total = sum((one.found for one in found), NOTHING)
    checks = Range.exactly(sum(one.checks for one in found))
    yield _count(total.first.requests)
    yield _count(total.forced.requests)
    yield _count(total.grading.requests + checks)
    yield _count(total.total.requests + checks)
    yield _about(total.total.input_tokens)
    yield _about(total.total.output_tokens)
    costs = [one.cost.expected for one in found if one.cost is not None]
    yield f"${sum(costs):,.2f}" if len(costs) == len(found) else UNDEFINED
    yield _time(sum(one.seconds.expected for one in found))


def _count(amount: Range) -> str:
    if amount.least == amount.most:
        return f"{amount.most:,.0f}"
    return f"{amount.least:,.0f} to {amount.most:,.0f}, about {amount.expected:,.0f}"


def _about(amount: Range) -> str:
    return f"{amount.expected:,.0f}" if amount.least == amount.most else f"about {amount.expected:,.0f}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:,.1f} h"


def _grouped(found: Sequence[RunEstimate]) -> Iterator[str]:
    """Yield every remark once, with the models that it is about unless it is about all."""
    about: dict[str, dict[str, None]] = {}
    for one in found:
        for remark in _remarks(one):
            about.setdefault(remark, {})[one.plan.title[0]] = None
    everyone = {one.plan.title[0] for one in found}
    for remark, models in about.items():
        named = list(models)
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        yield remark if len(named) == len(everyone) else f"{', '.join(named[:SHOWN])}{more}: {remark}"


def _remarks(one: RunEstimate) -> Iterator[str]:
    """Yield what the numbers of a run rest on."""
    settings, assumed, dataset = one.plan.settings, one.assumed, one.plan.title[1]
    if one.found.there:
        yield f"On {dataset}, {one.found.there:,} requests of unfinished variants were answered before."
    if one.remark:
        yield f"On {dataset}, {one.remark}."
    if not one.pending:
        return
    draws, repeated = settings.repeats.draws or 1, settings.repeats.repeat_questions
    if draws > 1 and settings.decoding.temperature == 0:
        yield "At temperature 0 repeated samples should be equal: corrected RI then repeats RI."
    elif draws > 1:
        some = "all" if repeated is None else f"{repeated:,}"
        yield f"On {dataset}, {some} of the questions are sampled {draws} times, for corrected RI."
    if one.foreseen:
        yield (
            f"The embedded model was asked, within this process, what it refuses: {one.foreseen:,} first passes. "
            "--assume-refusal assumes a share instead. Variants share a question's forced answer."
        )
    else:
        yield (
            f"Assumed: {assumed.refusal_share:.0%} of the questions are refused, the same ones under every variant "
            "(--assume-refusal); variants share a question's forced answer."
        )
    which = "reply that is not known" if one.foreseen else "reply"
    pace = f", {settings.forecast.seconds_per_request:g} s a request (--seconds-per-request), {one.connections} at a "
    pace = "" if settings.sending.engine == BATCH else f"{pace}time (--max-connections)"
    yield (
        f"Assumed: {assumed.reply_tokens:,} tokens a {which} (--reply-tokens){pace}. Tokens in are "
        + ("counted as the model counts them." if counts_exactly(settings.model) else "estimated, 4 characters each.")
    )
    if draws > 1 and assumed.choices.least < assumed.choices.most:
        yield f"Assumed: a request brings up to {assumed.choices.expected:,.0f} of a question's draws."
    if one.plan.graders:
        alike = " as if no two draws were alike," if draws > 1 else ""
        graders = " and ".join(one.plan.graders)
        yield f"Every answer is graded by {graders},{alike} at most twice{_about_cost(one.plan.prices)}."


def _about_cost(prices: Prices) -> str:
    """Say whose tokens the cost is of, where it is not of all."""
    if prices.model and not prices.grader:
        return "; the cost is that of the model without its graders (--grader-price)"
    if prices.grader and not prices.model:
        return "; what the model costs is not known (--price)"
    return ""


def compare(first: Run | str | Path, second: Run | str | Path, **options: Any) -> PairComparison:
    """Compare two runs over the same questions, the first minus the second, with every difference's interval.

    Parameters
    ----------
    first, second
        Runs, their folders, or outcome tables.
    options
        As `refusal_index.findings.matching.CompareOptions` takes them.

    Raises
    ------
    RefusalIndexError
        If one of them cannot be read, or they have no variant in common.
    """
    chosen = CompareOptions(**options)
    found = compared_runs([first, second], chosen)
    if len(found) != 2:
        raise SettingError(f"compare: expected two runs of one model and dataset each, got {len(found)}")
    return compare_pair(found, chosen, compared_sections(found, chosen))


def rank(runs: Sequence[Run | str | Path], **options: Any) -> ranking.RunRanking:
    """Rank several runs by their Refusal Index, with the ties that their intervals leave; it takes the same options."""
    chosen = CompareOptions(**options)
    found = compared_runs([runs] if isinstance(runs, Run) else runs, chosen)
    if len(found) < 2:
        raise SettingError(f"rank: expected two runs or more, got {len(found)}")
    return ranking.rank(found, chosen)


def compared_runs(runs: Sequence[Run | str | Path], options: CompareOptions) -> tuple[ComparedRun, ...]:
    """Read finished runs for a comparison."""
    places = [one.path if isinstance(one, Run) else checked_path(one, "runs") for one in runs]
    return read_runs(places, options.sampling)
