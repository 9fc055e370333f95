"""The runs of a folder as text: a row for each run, and a line for each that is not complete or cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from refusal_index.findings.metrics import INDEX, METRICS, Statement
from refusal_index.findings.run_list import ListedRun
from refusal_index.render.format import (
    TEXT_WIDTH,
    UNDEFINED,
    Block,
    Table,
    abbreviated,
    count,
    interval_of,
    number,
    percent,
)
from refusal_index.render.sentences import sentence

NAMES = ("folder", "model", "dataset")
SHORTEST = 8
"""Fewest characters to which a name is cut."""


def run_list_blocks(folder: Path, runs: Sequence[ListedRun], width: int = TEXT_WIDTH) -> Iterator[Block]:
    """Yield a table of the runs that can be read, and why others are not complete.

    - `folder`: the folder that they are in, which is left out of their paths.
    - `width`: the width of the terminal; names are cut so that a row fits.
    """
    readable = [run for run in runs if run.error is None]
    if readable:
        levels = {run.confidence_level for run in readable} - {None}
        level = f"{percent(min(levels))} interval" if len(levels) == 1 else "interval"
        rows = [[*_names(folder, run), *_numbers(run)] for run in readable]
        columns = (*NAMES, "n", METRICS[INDEX].column, level, "date")
        yield _fitted(Table.from_rows(columns, rows, left=NAMES), width)
    remarks = [(str(run.folder), remark) for run in runs for remark in _remarks(run)]
    if readable and remarks:
        yield ""
    for place, remark in remarks:
        yield f"  {place}: {remark}"


def _names(folder: Path, run: ListedRun) -> Iterator[str]:
    is_below = run.folder != folder and run.folder.is_relative_to(folder)
    yield str(run.folder.relative_to(folder) if is_below else run.folder)
    yield from (run.model or UNDEFINED, run.dataset or UNDEFINED)


def _numbers(run: ListedRun) -> Iterator[str]:
    yield count(run.n) if run.n == run.asked else f"{count(run.n)}/{count(run.asked)}"
    if run.index is None:
        yield from (UNDEFINED, UNDEFINED)
    else:
        yield from (number(run.index.estimate, 2), interval_of(run.index, 2))
    yield (run.created or UNDEFINED)[:10]


def _remarks(run: ListedRun) -> Iterator[str]:
    """Yield why a run is not complete or has no RI."""
    if run.error is not None:
        yield run.error.removeprefix(f"{run.folder}: ").removeprefix(f"{run.folder}/")
    elif run.index is None:
        yield sentence(Statement("no_results_yet", "serious", {"folder": str(run.folder)}))
    else:
        if run.lacks is not None:
            yield sentence(Statement("run_incomplete", "serious", {"lacks": run.lacks}))
        if run.index.estimate is None:
            yield sentence(Statement("index_undefined", "serious", {"reason": run.index.reason}))


def _fitted(table: Table, width: int) -> Table:
    """Cut the longest names of a table until it fits."""
    widths = [max(map(len, column)) for column in zip(table.columns, *table.rows, strict=True)]
    room = width - sum(widths[len(NAMES) :]) - 2 * (len(widths) - 1)
    limits = widths[: len(NAMES)]
    while sum(limits) > room and max(limits) > SHORTEST:
        limits[limits.index(max(limits))] -= 1
    rows = (
        (*(abbreviated(name, limit) for name, limit in zip(row, limits, strict=False)), *row[len(NAMES) :])
        for row in table.rows
    )
    return Table.from_rows(table.columns, rows, table.left)
