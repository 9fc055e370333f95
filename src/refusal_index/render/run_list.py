"""The runs of a folder as text: a row for each run, and a line for each that is not complete or cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from refusal_index.findings.metrics import INDEX, METRICS, Statement
from refusal_index.render.format import TEXT_WIDTH, UNDEFINED, Block, Table, abbreviated, count, interval, number
from refusal_index.render.sentences import sentence

NAMES = ("folder", "model", "dataset")


def run_list_blocks(folder: Path, runs: Sequence[Mapping[str, Any]], width: int = TEXT_WIDTH) -> Iterator[Block]:
    """Yield a table of the runs that can be read, and why others are not complete.

    - `folder`: the folder that they are in, which is left out of their paths.
    - `runs`: as `listed_runs` returns them.
    - `width`: the width of the terminal; names are cut so that a row fits.
    """
    rows = [list(_row(folder, run)) for run in runs if "model" in run]
    if rows:
        levels = sorted({run["confidence_level"] for run in runs if run.get("confidence_level")})
        level = " or ".join(f"{100 * level:g}%" for level in levels)
        yield _fitted((*NAMES, "n", METRICS[INDEX].column, f"{level} interval".strip(), "date"), rows, width)
    remarks = [f"  {run['folder']}: {remark}" for run in runs for remark in _remarks(run)]
    if rows and remarks:
        yield ""
    yield from remarks


def _row(folder: Path, run: Mapping[str, Any]) -> Iterator[str]:
    index = run.get(INDEX) or {}
    yield str(run["folder"]).removeprefix(f"{folder}/")
    yield from (str(run["model"]), str(run["dataset"]))
    yield count(run.get("n")) if run.get("n") == run.get("asked") else f"{count(run['n'])}/{count(run['asked'])}"
    yield from (number(index.get("estimate"), 2), interval(index.get("low"), index.get("high"), 2))
    yield (run["created"] or UNDEFINED)[:10]


def _remarks(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a run is not complete or has no RI."""
    if "error" in run:
        yield run["error"].removeprefix(f"{run['folder']}: ").removeprefix(f"{run['folder']}/")
    elif run["status"] != "complete":
        yield sentence(Statement("run_incomplete" if "n" in run else "run_no_results", "serious", run))
    if INDEX in run and run[INDEX]["estimate"] is None:
        yield sentence(Statement("index_undefined", "serious", run[INDEX]))


def _fitted(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    """Return a table whose names are cut until it fits, the longest ones first.

    On a narrow terminal, which splits the table, two of them fit side by side.
    """
    shortest = len("dataset") if width >= TEXT_WIDTH else width // 2 - 1
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths[: len(NAMES)]) > shortest:
        widths[widths.index(max(widths[: len(NAMES)]))] -= 1
    cut = [[abbreviated(cell, longest) for cell, longest in zip(row, widths, strict=True)] for row in rows]
    return Table.from_rows(columns, cut, left=NAMES)
