"""Shared by tests of commands: a small run, the contents of its folder, and custom questions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl

LOW = ("run", "--limit", "20", "--variants", "low")
"""A small run of the embedded model."""
PIPELINE = ("--model", "python:tests.cli.some_pipeline:answer")


def outcomes(folder: str | Path) -> pl.DataFrame:
    return pl.read_parquet(Path(folder) / "outcomes.parquet")


def stored(folder: str | Path) -> list[tuple[object, ...]]:
    """Return every reply stored in a folder, verbatim and in order of arrival."""
    path = Path(folder) / "replies.sqlite"
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        try:
            return connection.execute("SELECT * FROM replies ORDER BY rowid").fetchall()
        except sqlite3.OperationalError:  # its tables are not made yet
            return []


def write_sums(path: str | Path, count: int, prefix: str = "q") -> str:
    """Write questions that a pipeline or a server of the tests can answer."""
    lines = [f"{prefix}{number},What is {number} plus {number}?,{2 * number}" for number in range(count)]
    Path(path).write_text("\n".join(["question_id,question,answer", *lines]))
    return str(path)
