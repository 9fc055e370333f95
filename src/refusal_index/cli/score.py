"""``refusal-index score``: the table from outcomes alone, or everything derived of a run anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli.bad_input import INCOMPLETE, OptionError, tells_bad_input


@tells_bad_input
def score(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Outcome tables (.csv, .jsonl, .parquet; columns refused and wrong are enough), or one run's folder.",
            metavar="FILE...",
        ),
    ],
    penalty: Annotated[float, typer.Option(help="Penalty of the Weighted score.", min=0)] = 1.0,
    confidence_level: Annotated[float, typer.Option(help="Of every interval.", min=0.5, max=0.9999)] = 0.95,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")] = False,
) -> None:
    """Compute the Refusal Index from outcomes.

    For a run's folder, rebuild its outcome table and its summary from its logs, without a request. Exit status: 0 done,
    1 more than 2 % of the questions unscored, 2 bad input.
    """
    from refusal_index.cli.results import is_complete, read_tables, show_run, show_tables, write_results
    from refusal_index.outcomes.folder import RunFolder
    from refusal_index.outcomes.summary import summarise

    folders = [path for path in files if path.is_dir()]
    if folders and len(files) > 1:
        raise OptionError(
            f"score: expected one run's folder or any number of files, got {len(files)} with the folder {folders[0]} "
            "among them; name its outcomes.parquet instead"
        )
    if folders:
        folder = RunFolder(folders[0])
        folder.read_settings()
        with folder.lock():
            results = write_results(folder, penalty=penalty, confidence_level=confidence_level)
        show_run(results, as_json=json)
        summary = results.summary
    else:
        summary = summarise(read_tables(files), penalty=penalty, confidence_level=confidence_level)
        show_tables(summary, as_json=json)
    if not is_complete(summary):
        raise typer.Exit(INCOMPLETE)
