"""Exports from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from refusal_index.data.errors import checked_path
from refusal_index.plugins.trackers.registry import export_runs
from refusal_index.runs.writing import Run


def export(runs: Run | str | Path | Sequence[Run | str | Path], to: str, out: str | Path | None = None) -> list[str]:
    """Write runs in the format of another tool, or log them in a tracker of experiments.

    Parameters
    ----------
    runs
        Runs, their folders, folders of sets, or outcome tables.
    to
        ``"csv"``, ``"every-eval-ever"``, ``"hf-eval-results"``, ``"inspect"``, ``"mlflow"`` or ``"wandb"``.
    out
        The file or folder to write; a tracker takes none, as its own settings say where it logs.

    Returns
    -------
    list of str
        What was written, a line each.

    Raises
    ------
    RefusalIndexError
        If there is no such target, it cannot take the runs, or these have no results.
    """
    several = [runs] if isinstance(runs, Run | str | Path) else runs
    places = [one.path if isinstance(one, Run) else checked_path(one, "runs") for one in several]
    return export_runs(places, to, None if out is None else checked_path(out, "out"))
