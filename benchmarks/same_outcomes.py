"""The same commands by this revision and by another, whose results are compared to the row.

    python -m benchmarks.same_outcomes REV

Checks REV out into a worktree of its own, runs the same commands of the command line with either tree's sources in an
empty folder each, within the process of the embedded models and without a network, and compares what lies in the
folders: outcome tables row by row, whatever their order, the settings in ``run.json``, and the metrics in
``summary.json`` to the bit. `regrade` and `force` take what REV made, by both trees. What tells trees apart on
purpose (versions, places of folders) is not compared. Exit status: 0 all is the same, 1 something differs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-c", "from refusal_index.cli import main; main()"]
KEYS = ("variant", "question_id", "draw")
COMPARED = ("variants", "pooled")
"""What of a summary is compared: all estimates, intervals, cautions and tokens."""

INCOMPLETE = 1  # the exit status of a run that leaves too much unscored, which has its outcomes all the same
SHOWN = 3
THEIRS, FIRST_PASS = "theirs", "first.csv"
"""In either folder: the first run as the other revision made it, and its first pass alone."""


@dataclass(frozen=True)
class Case:
    """A command, and the folder that comes of it.

    Attributes
    ----------
    folder, arguments
        What it is called, and the command without ``--out``.
    """

    folder: str
    arguments: tuple[str, ...]


def cases(limit: int) -> list[Case]:
    """Return the commands, later ones over the folders of earlier ones."""
    run = ("run", "--limit", str(limit))
    return [
        *(Case(name, (*run, "--model", f"almanac/{name}")) for name in ("base", "small", "rash")),
        Case("draws", (*run, "--draws", "3", "--repeat-questions", str(min(40, limit)), "--variants", "low,high")),
        Case("system", (*run, "--placement", "system", "--variants", "normal")),
        Case("regraded", ("regrade", THEIRS, "--grader", "exact")),
        Case("forced", ("force", FIRST_PASS, "--model", "almanac/base")),
    ]


def hand_on(run: Path, folder: Path) -> None:
    """Copy a run into a folder, and write its first pass as somebody who asked no second one would have it."""
    shutil.copytree(run, folder / THEIRS)
    table = pl.read_parquet(run / "outcomes.parquet")
    grades = pl.col("first_grade").replace_strict({"correct": "A", "incorrect": "B", "refused": "C"}, default=None)
    known = ("model", "dataset", "variant", "question_id", "topic", "question", "gold", "first_reply")
    table.filter(pl.col("first_grade") != "unscored").select(*known, grade=grades).write_csv(folder / FIRST_PASS)


@contextmanager
def worktree(revision: str) -> Iterator[Path]:
    """Check a revision out for the length of a block."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "there"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", place, revision], cwd=ROOT, check=True)
        try:
            yield place
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", place], cwd=ROOT, check=True)


def run_case(case: Case, tree: Path, folder: Path) -> None:
    """Run a command with the sources of a tree; a failure that leaves no outcomes is an error."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "INSPECT_DISPLAY": "none"}
    command = [*COMMAND, *case.arguments, "--out", case.folder]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, INCOMPLETE) or not (folder / case.folder / "outcomes.parquet").exists():
        raise SystemExit(f"{' '.join(command[3:])} ended with {done.returncode} in {tree}:\n{done.stderr[-2000:]}")


def differing_rows(here: pl.DataFrame, there: pl.DataFrame) -> list[str]:
    """Say which columns and rows of two outcome tables differ; their order does not count."""
    shared = [name for name in here.columns if there.schema.get(name) == here.schema[name]]
    lone = [f"column {name}: only {where}" for name, where in _lone(here, there, shared)]
    if not set(KEYS) <= set(shared):
        return lone
    one, other = (table.select(shared).sort(KEYS) for table in (here, there))
    if one.height != other.height or not one.select(KEYS).equals(other.select(KEYS)):
        return [f"rows: {one.height} here, {other.height} there, or of other questions"]
    differing = ((name, ~one[name].eq_missing(other[name])) for name in shared)
    return [*lone, *(f"{name}: {rows.sum()} rows" for name, rows in differing if rows.any())]


def _lone(here: pl.DataFrame, there: pl.DataFrame, shared: list[str]) -> Iterator[tuple[str, str]]:
    """Name the columns that one of two tables lacks, or has of another type."""
    for table, where in ((here, "here"), (there, "there")):
        yield from ((name, where) for name in table.columns if name not in shared)


def differing_values(here: Any, there: Any, place: str = "") -> Iterator[str]:
    """Name every value of two JSON documents that differs, by its place."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in dict.fromkeys([*here, *there]):
            yield from differing_values(here.get(key), there.get(key), f"{place}.{key}")
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for number, (one, other) in enumerate(zip(here, there, strict=True)):
            yield from differing_values(one, other, f"{place}[{number}]")
    elif here != there:
        yield f"{place.lstrip('.')}: {json.dumps(here)[:60]} here, {json.dumps(there)[:60]} there"


def differences(case: Case, here: Path, there: Path) -> dict[str, list[str]]:
    """Return what differs between what two trees made of a command: in its outcomes, its settings, its summary."""
    tables = [pl.read_parquet(folder / case.folder / "outcomes.parquet") for folder in (here, there)]
    settings = [_document(folder / case.folder / "run.json")["settings"] for folder in (here, there)]
    summaries = [
        {key: _document(folder / case.folder / "summary.json").get(key) for key in COMPARED} for folder in (here, there)
    ]
    return {
        "outcomes": differing_rows(*tables),
        "settings": list(differing_values(*settings)),
        "summary": list(differing_values(*summaries)),
    }


def _document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def compare(revision: str, chosen: Sequence[Case]) -> bool:
    """Run all commands with both trees, print what differs, and return whether nothing does."""
    same = True
    print(f"| command | rows | outcomes | settings | summary |\n|{'---|' * 5}")
    with worktree(revision) as tree, tempfile.TemporaryDirectory() as folder:
        here, there = Path(folder, "here"), Path(folder, "there")
        here.mkdir()
        there.mkdir()
        for case in chosen:
            run_case(case, ROOT, here)
            run_case(case, tree, there)
            if case is chosen[0]:
                for folder_of_tree in (here, there):
                    hand_on(there / case.folder, folder_of_tree)
            found = differences(case, here, there)
            rows = pl.read_parquet(here / case.folder / "outcomes.parquet").height
            told = " | ".join("same" if not lines else f"{len(lines)} differ" for lines in found.values())
            print(f"| `{' '.join(case.arguments)}` | {rows:,} | {told} |", flush=True)
            for kind, lines in found.items():
                for line in lines[:SHOWN]:
                    print(f"  {kind}: {line}", file=sys.stderr)
                same &= not lines
    return same


def main() -> None:
    """Compare this tree with the revision that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", metavar="REV", help="a revision of this repository, as git names it")
    parser.add_argument("--limit", type=int, default=200, help="questions of every run (default: 200)")
    arguments = parser.parse_args()
    if not compare(arguments.revision, cases(arguments.limit)):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
