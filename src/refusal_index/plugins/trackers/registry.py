"""The targets by name, and writing runs for one of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from refusal_index import entry_points
from refusal_index.data.errors import NotWrittenError, suggestion
from refusal_index.data.folder import run_around
from refusal_index.plugins.trackers.results import ExportedRun, ExportError, read_exported
from refusal_index.plugins.trackers.tracker import export_to


class Exporter(Protocol):
    """A module that writes runs in the format of another tool; a plugin registers it as ``refusal_index.exporters``.

    - `SUFFIX`: of the file that it writes; empty where it writes a folder.
    """

    SUFFIX: str

    def export(self, runs: Sequence[ExportedRun], out: Path) -> list[str]:
        """Write runs, and return what was written, a line each."""


def export_runs(paths: Sequence[Path], to: str, out: Path | None = None) -> list[str]:
    """Write runs in the format of another tool, or log them in a tracker; return what was written, a line each.

    Raises ExportError if there is no such target or it lacks something, TrackerError if a tracker takes no runs,
    NotWrittenError if files cannot be written, and what `read_exported` raises.

    - `paths`: runs' folders, folders of sets, and outcome tables.
    - `to`: the name of an exporter or a tracker.
    - `out`: the file or folder to write; a tracker takes none, as its own settings say where it is.
    """
    if "," in to:
        raise ExportError("to", f"expected one target at a time, got {to!r}")
    plugin = entry_points.find("exporters", to)
    if plugin is None and entry_points.find("trackers", to) is None:
        known = sorted({*entry_points.installed("exporters"), *entry_points.installed("trackers")})
        raise ExportError("to", f"expected one of {', '.join(known)}, got {to!r}{suggestion(to, known)}")
    if plugin is None:
        if out is not None:
            raise ExportError("out", f"expected nothing, got {out}; the settings of {to} say where it logs")
        runs, doubles = _once_each(read_exported(paths))
        return [*export_to(to, runs), *doubles, *_lacking(runs)]
    exporter: Exporter = entry_points.load(plugin)
    if out is None:
        raise ExportError("out", f"expected {'a file' if exporter.SUFFIX else 'a folder'} to write, got nothing")
    _check_place(exporter.SUFFIX, out, paths)
    runs, doubles = _once_each(read_exported(paths))
    try:
        said = exporter.export(runs, out)
    except NotWrittenError:
        raise
    except OSError as error:
        raise NotWrittenError(Path(error.filename or out), error) from error
    return [*said, *doubles, *_lacking(runs)]


def _once_each(runs: Sequence[ExportedRun]) -> tuple[list[ExportedRun], list[str]]:
    """Return every run once, and what must be said of those that were given again: a mean over rows counts each."""
    known: dict[str, ExportedRun] = {}
    doubles = [run for run in runs if known.setdefault(run.key, run) is not run]
    return [*known.values()], [f"{one.source}: the same run as {known[one.key].source}, taken once" for one in doubles]


def _lacking(runs: Sequence[ExportedRun]) -> list[str]:
    """Say what is incomplete, wherever its numbers went."""
    return [f"{run.source}: incomplete: {run.lacks}" for run in runs if run.lacks]


def _check_place(suffix: str, out: Path, paths: Sequence[Path]) -> None:
    """Raise ExportError if something that was paid for would be lost: a mistyped option should cost no run."""
    if any(path.resolve() == out.resolve() for path in paths):
        raise ExportError("out", f"{out} is one of the runs and would be lost; choose another place")
    if run_around(out) is not None:
        raise ExportError("out", f"{out} lies in the folder of a run, which is its own; choose another place")
    if suffix and out.suffix.lower() != suffix:
        raise ExportError("out", f"expected a file that ends in {suffix}, got {out}")
    place = out.parent if suffix else out
    if not place.is_dir() and (suffix or os.path.lexists(place)):
        raise ExportError("out", f"{out} cannot be written, as {place} is no folder; make it, or choose another place")
