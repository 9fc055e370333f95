"""The results of a run's folder: made from its logs, written beside them, shown.

Reading logs takes the engine; `tables` does without, for outcomes alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import typer

from refusal_index.cli.show import print_missing, print_places, print_summary, print_usage
from refusal_index.cli.tables import DEFAULT_CONFIDENCE_LEVEL, DEFAULT_PENALTY
from refusal_index.engines.inspect.derive import Missing, derive
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.price import Price
from refusal_index.outcomes.summary import Summary, summarise, summary_to_json


@dataclass(frozen=True)
class RunResults:
    """What a run's folder holds: its outcome table, its summary, and the questions that ended in an error."""

    folder: RunFolder
    outcomes: pl.DataFrame
    summary: Summary
    missing: tuple[Missing, ...]


def write_results(
    folder: RunFolder,
    price: Price | None = None,
    *,
    penalty: float | None = None,
    confidence_level: float = DEFAULT_CONFIDENCE_LEVEL,
) -> RunResults:
    """Derive the results of `folder` from its logs and write them into it; call it inside the folder's lock.

    Price and penalty are those that the folder was made with, unless others are given.

    Raises
    ------
    LogError
        If no variant was run to its end.
    RunFolderError
        If the folder is not a run's, or cannot be written.
    """
    about = folder.read_about()
    if price is None and about.get("price"):
        price = Price(**about["price"])
    if penalty is None:
        penalty = about.get("penalty", DEFAULT_PENALTY)
    derived = derive(folder, price)
    summary = summarise(derived.outcomes, usage=derived.usage, penalty=penalty, confidence_level=confidence_level)
    folder.write_outcomes(derived.outcomes)
    folder.write_summary(summary_to_json(summary))
    return RunResults(folder, derived.outcomes, summary, derived.missing)


def show_run(results: RunResults, *, as_json: bool) -> None:
    """Print the results of a run."""
    if as_json:
        typer.echo(summary_to_json(results.summary), nl=False)
        return
    print_summary(results.summary)
    print_usage(results.summary)
    print_missing([(one.variant, one.question_id, one.error) for one in results.missing])
    print_places(results.folder.path, ("outcomes.parquet", "summary.json", "run.json", "logs/"))
