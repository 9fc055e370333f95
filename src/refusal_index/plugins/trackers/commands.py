"""``refusal-index export``: runs in the format of another tool, or in a tracker of experiments."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE, OptionError, option
from refusal_index.cli.shared_options import Runs, output

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a valid place that is full; any other error is due to the place itself."""


def export(
    runs: Runs,
    to: str,
    out: Annotated[Path | None, output()] = None,
) -> None:
    """Write runs for another tool, or log them in a tracker.

    Every number has the name that it has in summary.json, with the variant before: normal/refusal_index/low. Exporting
    again replaces what was there. Exit status: 0 done, 1 a tracker did not take them or the disk is full, 2 bad input.

    - `to`: csv, every-eval-ever, hf-eval-results, inspect (files), mlflow, wandb (trackers, as they are set up).
    - `out`: The file (csv) or folder to write; a tracker takes none.
    """
    from refusal_index.data.errors import NotWrittenError
    from refusal_index.plugins.trackers.registry import export_runs
    from refusal_index.plugins.trackers.results import ExportError, TrackerError

    try:
        lines = export_runs(runs, to, out)
    except ExportError as error:
        raise OptionError(f"{option(error.argument)}: {error.message}") from error
    except NotWrittenError as error:
        if error.errno in FULL:
            raise
        raise OptionError(f"--out: {error}") from error
    except TrackerError as error:
        console.error(error)
        raise typer.Exit(INCOMPLETE) from error
    for line in lines:
        console.say(line)
