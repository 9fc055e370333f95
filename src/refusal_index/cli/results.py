"""The results of a run's folder: made from its logs, written beside them, shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import typer

from refusal_index.cli.show import print_missing, print_places, print_summary, print_usage
from refusal_index.engines.inspect.derive import Missing, derive
from refusal_index.outcomes.cautions import MISSING_LIMIT
from refusal_index.outcomes.check import check_rows
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.price import Price
from refusal_index.outcomes.summary import Summary, summarise, summary_to_json
from refusal_index.outcomes.table import read_outcomes


@dataclass(frozen=True)
class RunResults:
    """What a run's folder holds: its outcome table, its summary, and the questions that ended in an error."""

    folder: RunFolder
    outcomes: pl.DataFrame
    summary: Summary
    missing: tuple[Missing, ...]


def write_results(
    folder: RunFolder, price: Price | None = None, *, penalty: float = 1.0, confidence_level: float = 0.95
) -> RunResults:
    """Derive the results of `folder` from its logs and write them into it; call it inside the folder's lock."""
    derived = derive(folder, price or _recorded_price(folder))
    summary = summarise(derived.outcomes, usage=derived.usage, penalty=penalty, confidence_level=confidence_level)
    folder.write_outcomes(derived.outcomes)
    folder.write_summary(summary_to_json(summary))
    return RunResults(folder, derived.outcomes, summary, derived.missing)


def read_tables(paths: Sequence[Path]) -> pl.DataFrame:
    """Read outcome tables into one; where several do not say which model they are about, their file names do."""
    tables = [read_outcomes(path) for path in paths]
    if len(paths) > 1:
        tables = [
            table.with_columns(pl.col("model").fill_null(path.stem)) for path, table in zip(paths, tables, strict=True)
        ]
    together = pl.concat(tables)
    check_rows(together, lambda row: f"row {row + 1} of all files together")
    return together


def is_complete(summary: Summary) -> bool:
    """Whether no variant lacks more than the tolerated share of its questions."""
    shares = [variant.completeness.missing_share for variant in summary.variants]
    return bool(shares) and all(share is not None and share <= MISSING_LIMIT for share in shares)


def show_run(results: RunResults, *, as_json: bool) -> None:
    """Print the results of a run."""
    if as_json:
        typer.echo(summary_to_json(results.summary), nl=False)
        return
    print_summary(results.summary)
    print_usage(results.summary)
    print_missing([(one.variant, one.question_id, one.error) for one in results.missing])
    print_places(results.folder.path, ("outcomes.parquet", "summary.json", "run.json", "logs/"))


def show_tables(summary: Summary, *, as_json: bool) -> None:
    """Print the results of outcome tables."""
    if as_json:
        typer.echo(summary_to_json(summary), nl=False)
    else:
        print_summary(summary)


def _recorded_price(folder: RunFolder) -> Price | None:
    recorded = folder.read_about().get("price")
    return None if recorded is None else Price(**recorded)
