"""``csv``: one long table with a row for each run, variant and metric."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from refusal_index.data.files import write_atomically
from refusal_index.data.tables import csv_text
from refusal_index.plugins.trackers.results import ExportedRun

SUFFIX = ".csv"
COLUMNS = ("model", "dataset", "variant", "metric", "estimate", "low", "high", "status", "reason", "n", "missing")


def metrics_table(runs: Sequence[ExportedRun]) -> pl.DataFrame:
    """Return one row for each run, variant and metric; numbers are unrounded, and null where undefined."""
    return pl.concat(
        run.metrics.select(
            pl.lit(str(run.source)).alias("run"),
            *COLUMNS,
            pl.col("further_missing").alias("missing_further_draws"),
        )
        for run in runs
    )


def export(runs: Sequence[ExportedRun], out: Path) -> list[str]:
    """Write the table as CSV and return a line that describes it."""
    table = metrics_table(runs)
    write_atomically(out, csv_text(table).encode())
    return [f"{out}: {table.height:,} rows"]
