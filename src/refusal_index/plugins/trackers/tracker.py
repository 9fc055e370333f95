"""Logging exported runs in a tracker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs

from refusal_index.plugins.trackers.results import ExportedRun, ExportError, TrackerError, read_folder
from refusal_index.redaction import redacted_in
from refusal_index.runs.trackers import (
    Subject,
    Tracker,
    config_of,
    is_installed,
    not_installed,
    short_title,
    told,
    tracker_class,
)

PROJECT = "refusal-index"
"""The project or experiment that a run goes to where the tracker's own settings name none."""

MOST_ROWS = 100_000
"""Most outcomes of a table that a tracker shows; the file beside it holds all."""


class RunTracker(ABC):
    """A tracker that logs whatever is exported: a run's folder, or an outcome table."""

    def finish(self, folder: Path) -> str:
        """Log all results of a run's folder, end the run, and return where it is to be seen."""
        return self.log(read_folder(folder))

    @abstractmethod
    def log(self, run: ExportedRun) -> str:
        """Log all results of a run, end it there, and return where it is to be seen."""


def export_to(name: str, runs: Sequence[ExportedRun]) -> list[str]:
    """Log every run in a tracker, and return what must be said; raises TrackerError where that fails."""
    if not is_installed(name):
        raise ExportError("to", not_installed(name))
    said = []
    for run in runs:
        subject = Subject(run.key, short_title(run.title), config_of(run.settings, run.about) or _named(run))
        try:
            said.append(f"{name}: {_logged(tracker_class(name)(subject), run)}")
        except Exception as error:
            raise TrackerError(f"{name}: {told(name, error)}") from error
    return said


def _logged(tracker: Tracker, run: ExportedRun) -> str:
    """Log a run; one that a tracker took in part only does not stay there as one that goes on."""
    try:
        if run.folder is not None:
            return tracker.finish(run.source)
        if isinstance(tracker, RunTracker):
            return tracker.log(run)
        raise TrackerError(f"{run.source} is a table; give runs' folders")
    except BaseException:
        with suppress(Exception):
            tracker.abandon()
        raise


def table_of(run: ExportedRun) -> tuple[list[str], list[list[Any]]]:
    """Return the outcome table by columns and rows, without keys; of a large one its beginning."""
    shown = run.outcomes.head(MOST_ROWS)
    return shown.columns, redacted_in([list(row) for row in _without_nan(shown).iter_rows()])


def completeness_of(run: ExportedRun) -> str:
    """Return ``complete``, or what the run lacks: numbers alone do not say whether they are to be taken as sound."""
    return f"incomplete: {run.lacks}" if run.lacks else "complete"


def files_of(run: ExportedRun) -> list[tuple[Path, str]]:
    """Return the plain files of a run's folder with their names there; links lead elsewhere and stay behind."""
    if run.folder is None:
        return [(run.source, run.source.name)]
    found = []
    for path in sorted(run.source.rglob("*")):
        parts = path.relative_to(run.source).parts
        through_link = any(run.source.joinpath(*parts[: end + 1]).is_symlink() for end in range(len(parts)))
        if path.is_file() and not through_link and not parts[-1].startswith("."):
            found.append((path, "/".join(parts)))
    return found


def _named(run: ExportedRun) -> dict[str, Any]:
    named: dict[str, Any] = redacted_in({"model": run.model, "dataset": run.dataset, "source": run.source.name})
    return named


def _without_nan(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(cs.float().fill_nan(None))
