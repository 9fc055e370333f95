"""``refusal-index score``: the table from outcomes alone, or everything derived of a run anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refusal_index.cli.bad_input import INCOMPLETE, OptionError, tells_bad_input

if TYPE_CHECKING:
    from refusal_index.outcomes.summary import Summary


@tells_bad_input
def score(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Outcome tables (.csv, .jsonl, .parquet; columns refused and wrong are enough), or one run's folder.",
            metavar="FILE",
        ),
    ],
    penalty: Annotated[
        float | None, typer.Option(help="Penalty of the Weighted score. [default: the run's own, else 1]", min=0)
    ] = None,
    confidence_level: Annotated[float, typer.Option(help="Of every interval.", min=0.5, max=0.9999)] = 0.95,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")] = False,
) -> None:
    """Compute the Refusal Index from outcomes.

    For a run's folder, rebuild its outcome table and its summary from its logs, without a request. Exit status: 0 done,
    1 more than 2 % of the questions unscored, 2 bad input.
    """
    from refusal_index.outcomes.summary import is_complete

    folders = [path for path in files if path.is_dir()]
    if folders and len(files) > 1:
        raise OptionError(
            f"score: expected one run's folder or any number of files, got {len(files)} with the folder {folders[0]} "
            "among them; name its outcomes.parquet instead"
        )
    if folders:
        summary = _score_run(folders[0], penalty, confidence_level, as_json=json)
    else:
        summary = _score_files(files, penalty, confidence_level, as_json=json)
    if not is_complete(summary):
        raise typer.Exit(INCOMPLETE)


def _score_run(path: Path, penalty: float | None, confidence_level: float, *, as_json: bool) -> Summary:
    from refusal_index.cli.forced_results import write_forced_results
    from refusal_index.cli.results import show_run, write_results
    from refusal_index.engines.inspect.derive_forced import is_forced_folder
    from refusal_index.outcomes.folder import RunFolder

    folder = RunFolder(path)
    # Before the lock, which makes a folder where there is none, the settings are read.
    write = write_forced_results if is_forced_folder(folder) else write_results
    with folder.lock():
        results = write(folder, penalty=penalty, confidence_level=confidence_level)
    show_run(results, as_json=as_json)
    return results.summary


def _score_files(files: list[Path], penalty: float | None, confidence_level: float, *, as_json: bool) -> Summary:
    from refusal_index.cli.show import show_tables
    from refusal_index.outcomes.summary import DEFAULT_PENALTY, summarise
    from refusal_index.outcomes.table import read_tables

    penalty = DEFAULT_PENALTY if penalty is None else penalty
    summary = summarise(read_tables(files), penalty=penalty, confidence_level=confidence_level)
    show_tables(summary, as_json=as_json)
    return summary
