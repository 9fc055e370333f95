"""Several runs on the command line: those that can be read, and why the others are left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from refusal_index.cli import console

if TYPE_CHECKING:
    from refusal_index.data.runs import ComparedRun, FoundRuns
    from refusal_index.data.sampling import Sampling


def readable_runs(paths: Sequence[Path], sampling: Sampling | None = None) -> FoundRuns:
    """Read the runs that can be read, and say of the others why not.

    Raises
    ------
    RunFolderError, OutcomeTableError
        If a path is not there, or none can be read.
    """
    from refusal_index.data.runs import find_runs
    from refusal_index.data.sampling import OWN_COLUMNS

    found = find_runs(paths, sampling or OWN_COLUMNS)
    tell_left_out(found.left_out)
    return found


def tell_missing(runs: Sequence[ComparedRun]) -> None:
    """Say which runs lack grades, before what is made of them."""
    from refusal_index.render.comparison import missing_lines

    for line in missing_lines(runs):
        console.note(line)


def tell_left_out(sentences: Iterable[str]) -> None:
    """Say why runs are left out; a command that then ends well has the exit status `INCOMPLETE`."""
    for sentence in sentences:
        console.note(f"left out: {sentence}")
