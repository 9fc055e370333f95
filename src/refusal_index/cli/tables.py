"""Outcome tables, wherever they came from: read into one, judged complete or not, shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import typer

from refusal_index.cli.show import print_summary
from refusal_index.outcomes.cautions import MISSING_LIMIT
from refusal_index.outcomes.check import check_rows
from refusal_index.outcomes.summary import Summary, summary_to_json
from refusal_index.outcomes.table import read_outcomes

DEFAULT_PENALTY = 1.0
DEFAULT_CONFIDENCE_LEVEL = 0.95


def read_tables(paths: Sequence[Path]) -> pl.DataFrame:
    """Read outcome tables into one; where several do not say which model they are about, their file names do.

    Raises
    ------
    OutcomeTableError
        If a file cannot be used, or a row of one occurs in another.
    """
    tables = [read_outcomes(path) for path in paths]
    if len(paths) > 1:
        tables = [
            table.with_columns(pl.col("model").fill_null(path.stem)) for path, table in zip(paths, tables, strict=True)
        ]
    together = pl.concat(tables)
    check_rows(together, lambda row: _place(paths, tables, row))
    return together


def is_complete(summary: Summary) -> bool:
    """Whether no variant lacks more than the tolerated share of its questions."""
    shares = [variant.completeness.missing_share for variant in summary.variants]
    return bool(shares) and all(share is not None and share <= MISSING_LIMIT for share in shares)


def show_tables(summary: Summary, *, as_json: bool) -> None:
    """Print the results of outcome tables."""
    if as_json:
        typer.echo(summary_to_json(summary), nl=False)
    else:
        print_summary(summary)


def _place(paths: Sequence[Path], tables: Sequence[pl.DataFrame], row: int) -> str:
    """Name the file of a row of all tables together, and its place in there."""
    for path, table in zip(paths, tables, strict=True):
        if row < len(table):
            return f"{path}, row {row + 1}"
        row -= len(table)
    return f"row {row + 1}"
