"""The command ``runs``, which lists the runs of a folder."""

from __future__ import annotations

from pathlib import Path

import typer

from refusal_index.cli import console


def runs(folder: Path = Path("runs"), /, json: bool = False) -> None:
    """List the runs of a folder with their results.

    Prints a row for each run in the folder, and in the sets and folders in it: model, dataset, number of graded
    questions (of those asked, if some have no grade), RI over all prompts with its interval, and the date of the run.
    Below the table is what runs lack, and which folders hold no run. Changes and computes nothing.

    Exit status: 0 done, 1 done without a run that could not be read, 2 bad input, or no run.

    - `folder` FOLDER: Folder with runs. [default: runs]
    - `json`: Print everything as JSON and nothing else.
    """
    from refusal_index.findings.run_list import listed_runs
    from refusal_index.render.run_list import run_list_blocks

    listed = listed_runs(folder)
    if all(run["status"] == "no_run" for run in listed):
        raise console.OptionError(
            f"runs: expected runs in {folder}, found none; name the folder in which your runs are"
        )
    if json:
        console.document({"folder": str(folder), "runs": listed})
    else:
        console.show(run_list_blocks(folder, listed, console.terminal().width))
        console.show(["", f"All in one page: refusal-index report {folder}"])
    if any(run["status"] == "unreadable" for run in listed):
        raise typer.Exit(console.INCOMPLETE)
