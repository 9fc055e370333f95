"""Trackers of experiments, such as W&B and MLflow: what each has to do, finding one by name, and logging runs in it.

A plugin registers the class of a tracker in the group ``refusal_index.trackers``.
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
from refusal_index.data.folder import RunFolder
from refusal_index.errors import RefusalIndexError
from refusal_index.models.settings import SettingError, unknown
from refusal_index.plugins.trackers.results import ExportedRun, ExportError, TrackerError, key_of, read_folder
from refusal_index.redaction import redacted, redacted_in

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
