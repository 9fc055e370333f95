"""Exports: the targets by name, and writing runs for one of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from refusal_index import entry_points
from refusal_index.data.errors import NotWrittenError, checked_path, suggestion
from refusal_index.data.folder import run_around
from refusal_index.plugins.trackers.results import ExportedRun, ExportError, read_exported
from refusal_index.plugins.trackers.tracker import export_to
from refusal_index.runs.writing import Run


class Exporter(Protocol):
    """A module that writes runs in the format of another tool; a plugin registers it as ``refusal_index.exporters``.

    - `SUFFIX`: of the file that it writes; empty where it writes a folder.
    """

    SUFFIX: str

    def export(self, runs: Sequence[ExportedRun], out: Path) -> list[str]:
        """Write runs, and return what was written, a line each."""


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
        A line about each file or run that was written.

    Raises
    ------
    RefusalIndexError
        If there is no such target, it cannot take the runs, or these have no results.
    """
    given = [runs] if isinstance(runs, Run | str | Path) else runs
    places = [run.path if isinstance(run, Run) else checked_path(run, "runs") for run in given]
    return export_runs(places, to, None if out is None else checked_path(out, "out"))


def export_runs(paths: Sequence[Path], to: str, out: Path | None = None) -> list[str]:
    """Write runs in the format of another tool, or log them in a tracker; return a line about each.

    Raises ExportError if there is no such target or it lacks something, TrackerError if a tracker does not accept runs,
    NotWrittenError if files cannot be written, and what `read_exported` raises.

    - `paths`: runs' folders, folders of sets, and outcome tables.
    - `to`: the name of an exporter or a tracker.
    - `out`: the file or folder to write; a tracker takes none, as its own settings say where it is.
    """
    if "," in to:
        raise ExportError("to", f"expected one target at a time, got {to!r}")
    plugin = entry_points.find("exporters", to)
    if plugin is None and entry_points.find("trackers", to) is None:
        names = sorted({*entry_points.installed("exporters"), *entry_points.installed("trackers")})
        raise ExportError("to", f"expected one of {', '.join(names)}, got {to!r}{suggestion(to, names)}")
    exporter: Exporter | None = None if plugin is None else entry_points.load(plugin)
    _check_place(exporter, to, out, paths)
    distinct: dict[str, ExportedRun] = {}
    given = read_exported(paths)
    repeated = [run for run in given if distinct.setdefault(run.key, run) is not run]  # a mean would count a run twice
    runs = [*distinct.values()]
    try:
        lines = export_to(to, runs) if exporter is None or out is None else exporter.export(runs, out)
    except NotWrittenError:
        raise
    except OSError as error:
        raise NotWrittenError(Path(error.filename or out or "."), error) from error
    lines += [f"{run.source}: the same run as {distinct[run.key].source}, taken once" for run in repeated]
    return lines + [f"{run.source}: incomplete: {run.lacks}" for run in runs if run.lacks]


def _check_place(exporter: Exporter | None, to: str, out: Path | None, paths: Sequence[Path]) -> None:
    """Raise ExportError if the output is missing, would replace a run, lies in its folder, or cannot be written."""
    if exporter is None:
        if out is not None:
            raise ExportError("out", f"expected nothing, got {out}; the settings of {to} say where it logs")
        return
    suffix = exporter.SUFFIX
    if out is None:
        raise ExportError("out", f"expected {'a file' if suffix else 'a folder'} to write, got nothing")
    if any(path.resolve() == out.resolve() for path in paths):
        raise ExportError("out", f"{out} is one of the runs; choose another place")
    if run_around(out) is not None:
        raise ExportError("out", f"{out} lies in the folder of a run; choose another place")
    if suffix and out.suffix.lower() != suffix:
        raise ExportError("out", f"expected a file that ends in {suffix}, got {out}")
    place = out.parent if suffix else out
    if not place.is_dir() and (suffix or os.path.lexists(place)):
        raise ExportError(
            "out", f"{out} cannot be written, as {place} is not a folder; create it, or choose another place"
        )
