"""``csv``: one long table with a row for each run, variant and metric."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from refusal_index.data.files import write_atomically
from refusal_index.data.tables import csv_text
from refusal_index.plugins.trackers.results import ExportedRun

SUFFIX = ".csv"
COLUMNS = {
    "run": pl.String(),
    "model": pl.String(),
    "dataset": pl.String(),
    "variant": pl.String(),
    "metric": pl.String(),
    "estimate": pl.Float64(),
    "low": pl.Float64(),
    "high": pl.Float64(),
    "status": pl.String(),
    "reason": pl.String(),
    "n": pl.Int64(),
    "missing": pl.Int64(),
    "missing_further_draws": pl.Int64(),
}


def metrics_table(runs: Sequence[ExportedRun]) -> pl.DataFrame:
    """Return one row for each run, variant and metric; numbers are unrounded, and null where undefined."""
    rows = [
        {
            "run": str(run.source),
            "model": run.model,
            "dataset": run.dataset,
            "variant": variant.name,
            "metric": metric.name,
            **{name: getattr(metric, name) for name in ("estimate", "low", "high", "reason")},
            "status": variant.status_of(metric),
            "n": variant.n,
            "missing": variant.missing,
            "missing_further_draws": variant.further_missing,
        }
        for run in runs
        for variant in run.variants
        for metric in variant.metrics
    ]
    return pl.DataFrame(rows, schema=COLUMNS)


def export(runs: Sequence[ExportedRun], out: Path) -> list[str]:
    """Write the table as CSV and return a line that describes it."""
    table = metrics_table(runs)
    write_atomically(out, csv_text(table).encode())
    return [f"{out}: {table.height:,} rows"]
