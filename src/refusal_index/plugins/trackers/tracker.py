"""Exporting runs: to the format of another tool, or to an experiment tracker such as W&B and MLflow.

A plugin registers a module that writes files in the group ``refusal_index.exporters``, and the class of a tracker in
``refusal_index.trackers``.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol
from urllib.parse import urlsplit

import polars.selectors as cs

from refusal_index import entry_points
from refusal_index.data.errors import NotWrittenError, checked_path, suggestion
from refusal_index.data.folder import RunFolder, run_around
from refusal_index.errors import RefusalIndexError
from refusal_index.models.settings import SettingError, unknown
from refusal_index.plugins.trackers.results import (
    ExportedRun,
    ExportError,
    TrackerError,
    key_of,
    read_exported,
    read_folder,
)
from refusal_index.redaction import redacted, redacted_in
from refusal_index.runs.writing import Run

UNREACHABLE = re.compile(
    r"connection refused|connection reset|no such host|name resolution|name or service not known|nodename nor servname|"
    r"network is unreachable|no route to host|deadline exceeded|timed? ?out",
    re.IGNORECASE,
)
"""How clients say that no server answered: each has exceptions of its own, and the system's words within them."""

MAX_TITLE, MAX_REASON = 128, 300

MAX_ROWS = 100_000
"""Most outcomes of a table that a tracker shows; the file beside it holds all."""

PROJECT = "refusal-index"
"""The project or experiment that a run goes to where the tracker's own settings name none."""


@dataclass(frozen=True)
class Subject:
    """What a tracker gets of a run when it begins."""

    key: str  # the same whenever the same run is logged
    title: str
    config: Mapping[str, Any] = field(default_factory=dict)


class Tracker(Protocol):
    """A run in a tracker; every method may raise whatever the tracker's client raises."""

    def count(self, counts: Mapping[str, float]) -> None:
        """Log the progress of the run."""

    def finish(self, folder: Path) -> str:
        """Log all results of a run's folder, end the run, and return where it can be seen."""

    def abandon(self) -> None:
        """End the run as failed."""

    def wait(self) -> None:
        """Leave the run without results; the same command resumes it."""


class TrackerClass(Protocol):
    """The class of a tracker; calling it begins a run there.

    - `package`: the package that it imports.
    - `address`: the environment variable that holds the address of its server.
    """

    package: str
    address: str

    def __call__(self, subject: Subject) -> Tracker:
        """Begin a run; it raises whatever the tracker's client raises."""


class RunTracker(ABC):
    """A tracker that logs everything that is exported: a run's folder, or an outcome table."""

    def finish(self, folder: Path) -> str:
        """Log all results of a run's folder, end the run, and return where it can be seen."""
        return self.log(read_folder(folder))

    @abstractmethod
    def log(self, run: ExportedRun) -> str:
        """Log all results of a run, end it there, and return where it can be seen."""


def tracker_class(name: str) -> TrackerClass:
    """Find a tracker by name; raises SettingError if there is none of this name."""
    plugin = entry_points.find("trackers", name)
    if plugin is None:
        raise unknown("log_to", name, sorted(entry_points.installed("trackers")))
    loaded: TrackerClass = entry_points.load(plugin)
    return loaded


def check_trackers(names: Sequence[str]) -> None:
    """Raise SettingError if a tracker is unknown or its package is not installed.

    >>> check_trackers(["wandbb"])
    Traceback (most recent call last):
    refusal_index.models.settings.SettingError: log_to: expected one of mlflow, wandb, got 'wandbb'; did you mean ...
    """
    for name in names:
        package = tracker_class(name).package
        if find_spec(package) is None:
            raise SettingError(f"{{log_to}}: {package} is not installed; pip install 'refusal-index[{name}]'")


def subject_of(folder: RunFolder, title: str) -> Subject:
    """Return what a tracker gets of a folder that was just made; raises RunFolderError where there is none."""
    return _subject(key_of(folder), redacted(title), folder.read_settings(), folder.read_about())


def _subject(key: str, title: str, settings: Mapping[str, Any], about: Mapping[str, Any]) -> Subject:
    config = redacted_in({**settings, **({"about": dict(about)} if about else {})})
    return Subject(key, " ".join(title.split())[:MAX_TITLE], config)


def error_line(name: str, error: BaseException) -> str:
    """Return what went wrong in a tracker, on one line and without keys."""
    message = " ".join(str(error).split()) or "no reason given"
    if isinstance(error, RefusalIndexError):
        return redacted(message)
    unreachable = UNREACHABLE.search(message)
    if unreachable is not None:
        address = urlsplit(os.environ.get(tracker_class(name).address, ""))
        is_server = address.scheme.startswith("http")
        server = f"{address.scheme}://{address.netloc.rpartition('@')[2]}" if is_server else "its server"
        return f"{server} cannot be reached ({unreachable[0].lower()})"
    return shorten(redacted(f"{type(error).__name__}: {message}").rstrip("."), MAX_REASON, placeholder=" ...")


def export_to(name: str, runs: Sequence[ExportedRun]) -> list[str]:
    """Log every run in a tracker, and return where each can be seen; raises TrackerError where that fails."""
    try:
        check_trackers([name])
    except SettingError as error:
        raise ExportError("to", str(error).removeprefix("log_to: ")) from error
    lines = []
    for run in runs:
        settings = run.settings or {"model": run.model, "dataset": run.dataset, "source": run.source.name}
        try:
            tracker = tracker_class(name)(_subject(run.key, run.title, settings, run.about))
            lines.append(f"{name}: {_log(tracker, run)}")
        except Exception as error:
            raise TrackerError(f"{name}: {error_line(name, error)}") from error
    return lines


def _log(tracker: Tracker, run: ExportedRun) -> str:
    """Log a run; a run that a tracker took only in part ends there as failed."""
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
    """Return the outcome table by columns and rows, without keys; of a large table its beginning."""
    shown = run.outcomes.head(MAX_ROWS).with_columns(cs.float().fill_nan(None))
    return shown.columns, redacted_in([list(row) for row in shown.iter_rows()])


def withdrawn(before: Iterable[str], logged: Mapping[str, float]) -> list[str]:
    """Return the names of numbers that were logged before and are undefined by now; names of others are left alone.

    >>> withdrawn(["low/n", "low/refusal_index", "of_mine", "progress/cost"], {"penalty": 1.0, "low/n": 60.0})
    ['low/refusal_index']
    """
    variants = {name.partition("/")[0] for name in logged if "/" in name}
    return [name for name in before if name not in logged and name.partition("/")[0] in variants]


def completeness_of(run: ExportedRun) -> str:
    """Return ``complete``, or what the run lacks: numbers alone do not say whether they are sound."""
    return f"incomplete: {run.lacks}" if run.lacks else "complete"


def files_of(run: ExportedRun) -> list[tuple[Path, str]]:
    """Return the plain files of a run's folder with their names there; links and hidden files are left out."""
    if run.folder is None:
        return [(run.source, run.source.name)]
    files = []
    for path in sorted(run.source.rglob("*")):
        parts = path.relative_to(run.source).parts
        through_link = any(run.source.joinpath(*parts[: end + 1]).is_symlink() for end in range(len(parts)))
        if path.is_file() and not through_link and not parts[-1].startswith("."):
            files.append((path, "/".join(parts)))
    return files


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
    lines += [f"{run.source}: the same run as {distinct[run.key].source}, counted once" for run in repeated]
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
