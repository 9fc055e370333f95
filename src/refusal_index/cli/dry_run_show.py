"""What a dry run found, on the terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from refusal_index.cli.console import TABLE_WIDTH, plain_table
from refusal_index.cli.dry_run import CellEstimate, counts_exactly, estimate_cell
from refusal_index.cli.execution import Prepared
from refusal_index.cli.show import prose
from refusal_index.outcomes.presentation import UNDEFINED
from refusal_index.outcomes.presentation import escape as harmless
from refusal_index.outcomes.price import Prices
from refusal_index.protocol.amounts import Range

COLUMNS = ("first pass", "forced pass", "grading", "requests", "tokens in", "tokens out", "cost", "time")
SHOWN = 3


def show_dry_run(runs: Sequence[Prepared], *, as_json: bool) -> bool:
    """Print what `runs` would send, and return True: nothing can be incomplete."""
    cells = [estimate_cell(prepared) for prepared in runs]
    if as_json:
        typer.echo(json.dumps(dry_run_document(cells), indent=2, ensure_ascii=False))
        return True
    typer.echo("dry run: nothing is sent\n")
    names = ("model", "dataset")
    table = plain_table((*names, "questions", "variants", *COLUMNS), left=names)
    for cell in cells:
        table.add_row(*(Text(harmless(text)) for text in (*_heading(cell), *_numbers([cell]))))
    if len(cells) > 1:
        table.add_row("all", "", "", "", *_numbers(cells))
    Console(highlight=False, width=TABLE_WIDTH).print(table)
    for line in _grouped(cells):
        prose(f"\n{harmless(line)}")
    return True


def dry_run_document(cells: Sequence[CellEstimate]) -> dict[str, Any]:
    """Give what was found as JSON holds it, every range with what is least, expected and most."""
    return {
        "dry_run_version": 1,
        "runs": [
            {
                "model": cell.prepared.model,
                "dataset": cell.prepared.dataset,
                "folder": str(cell.prepared.folder.path),
                "questions": len(cell.prepared.plan.dataset.questions),
                "variants": list(cell.prepared.plan.variants),
                "pending": list(cell.pending),
                "there": cell.found.there,
                "foreseen": cell.foreseen,
                "first": asdict(cell.found.first),
                "forced": asdict(cell.found.forced),
                "grading": asdict(cell.found.grading),
                "grader_checks": cell.checks,
                "requests": asdict(cell.requests),
                "cost": None if cell.cost is None else asdict(cell.cost),
                "seconds": asdict(cell.seconds),
                "assumed": {**asdict(cell.assumed), "connections": cell.connections},
                "remark": cell.remark,
            }
            for cell in cells
        ],
    }


def _heading(cell: CellEstimate) -> tuple[str, ...]:
    plan = cell.prepared.plan
    done = len(plan.variants) - len(cell.pending)
    variants = f"{len(plan.variants)}, {done} done" if done else f"{len(plan.variants)}"
    return cell.prepared.model, cell.prepared.dataset, f"{len(plan.dataset.questions):,}", variants


def _numbers(cells: Sequence[CellEstimate]) -> Iterator[str]:
    yield _count(_sum(cell.found.first.requests for cell in cells))
    yield _count(_sum(cell.found.forced.requests for cell in cells))
    yield _count(_sum(cell.found.grading.requests + Range.exactly(cell.checks) for cell in cells))
    yield _count(_sum(cell.requests for cell in cells))
    yield _about(_sum(cell.found.total.input_tokens for cell in cells))
    yield _about(_sum(cell.found.total.output_tokens for cell in cells))
    costs = [cell.cost for cell in cells if cell.cost is not None]
    yield f"${_sum(costs).expected:,.2f}" if len(costs) == len(cells) else UNDEFINED
    yield _time(_sum(cell.seconds for cell in cells).expected)


def _sum(ranges: Any) -> Range:
    return sum(ranges, Range())


def _count(number: Range) -> str:
    if number.least == number.most:
        return f"{number.most:,.0f}"
    return f"{number.least:,.0f} to {number.most:,.0f}, about {number.expected:,.0f}"


def _about(number: Range) -> str:
    return f"{number.expected:,.0f}" if number.least == number.most else f"about {number.expected:,.0f}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:,.1f} h"


def _grouped(cells: Sequence[CellEstimate]) -> Iterator[str]:
    """Yield every remark once, with the models that it is about unless it is about all."""
    about: dict[str, dict[str, None]] = {}
    for cell in cells:
        for remark in _remarks(cell):
            about.setdefault(remark, {})[cell.prepared.model] = None
    everyone = {cell.prepared.model for cell in cells}
    for remark, models in about.items():
        named = list(models)
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        yield remark if len(named) == len(everyone) else f"{', '.join(named[:SHOWN])}{more}: {remark}"


def _remarks(cell: CellEstimate) -> Iterator[str]:
    """Say on what the numbers of a run rest."""
    options, plan, assumed = cell.prepared.options, cell.prepared.plan, cell.assumed
    if cell.found.there:
        yield f"On {cell.prepared.dataset}, {cell.found.there:,} requests of unfinished variants were answered before."
    if cell.remark:
        yield f"On {cell.prepared.dataset}, {cell.remark}."
    if not cell.pending:
        return
    if cell.foreseen:
        yield (
            f"The embedded model was asked, within this process, what it refuses: {cell.foreseen:,} first passes. "
            "--assume-refusal assumes a share instead. Variants share a question's forced answer."
        )
    else:
        yield (
            f"Assumed: {assumed.refusal_share:.0%} of the questions are refused, the same ones under every variant "
            "(--assume-refusal); variants share a question's forced answer."
        )
    which = "reply that is not known" if cell.foreseen else "reply"
    yield (
        f"Assumed: {assumed.reply_tokens:,} tokens a {which} (--reply-tokens), {options.seconds_per_request:g} s a "
        f"request (--seconds-per-request), {cell.connections} at a time (--max-connections). Tokens in are "
        + ("counted as the model counts them." if counts_exactly(plan.model) else "estimated, 4 characters each.")
    )
    if plan.draws > 1 and assumed.choices.least < assumed.choices.most:
        yield f"Assumed: a request brings up to {assumed.choices.expected:,.0f} of a question's draws."
    if plan.grader:
        yield _about_grading(cell)


def _about_grading(cell: CellEstimate) -> str:
    plan = cell.prepared.plan
    who = " and ".join(name for name in (plan.grader, plan.second_grader) if name)
    alike = " as if no two draws were alike," if plan.draws > 1 else ""
    return f"Every answer is graded by {who},{alike} at most twice{_about_cost(cell.prepared.prices)}."


def _about_cost(prices: Prices) -> str:
    """Say whose tokens the cost is of, where it is not of all."""
    if prices.model and not prices.grader:
        return "; the cost is that of the model without its graders (--grader-price)"
    if prices.grader and not prices.model:
        return "; what the model costs is not known (--price)"
    return ""
