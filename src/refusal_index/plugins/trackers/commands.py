"""``refusal-index export``: write runs in another tool's format, or log them to an experiment tracker."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.shared_options import output

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers for a full disk; every other error means that the output path itself is unusable."""


def export(
    runs: list[Path],
    /,
    to: str,
    out: Annotated[Path | None, output()] = None,
) -> None:
    """Export runs to another tool or an experiment tracker.

    Metrics keep their names from summary.json, prefixed with the prompt: normal/refusal_index/low. Exporting
    again replaces the earlier export.

    Exit status: 0 done, 1 a tracker rejected the runs or the disk is full, 2 bad input.

    - `runs` RUN: Folders of runs or of several runs, or outcome tables (.csv, .jsonl, .parquet).
    - `to`: Format: csv, every-eval-ever, hf-eval-results, inspect (files), or mlflow, wandb (trackers, which must be
      configured).
    - `out` PATH: File (csv) or folder to write; not used for a tracker.
    """
    from refusal_index.errors import NotWrittenError
    from refusal_index.plugins.trackers.tracker import ExportError, TrackerError, export_runs

    try:
        lines = export_runs(runs, to, out)
    except ExportError as error:
        raise console.OptionError(f"{console.option(error.argument)}: {error.message}") from error
    except NotWrittenError as error:
        if error.errno in FULL:
            raise
        raise console.OptionError(f"--out: {error}") from error
    except TrackerError as error:
        console.error(error)
        raise typer.Exit(console.INCOMPLETE) from error
    for line in lines:
        console.say(line)
