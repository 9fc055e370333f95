"""Trackers of experiments: what each of them can do, and opening one by its name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol
from urllib.parse import urlsplit

import polars as pl
import polars.selectors as cs

from refusal_index.data.folder import RunFolder
from refusal_index.errors import RefusalIndexError
from refusal_index.plugins.trackers.results import ExportedRun, ExportError, TrackerError, key_of
from refusal_index.redaction import redacted, redacted_in

TRACKERS = {
    "wandb": ("wandb", "refusal_index.plugins.trackers.wandb_tracker:WandbTracker"),
    "mlflow": ("mlflow", "refusal_index.plugins.trackers.mlflow_tracker:MlflowTracker"),
}
"""The trackers by name: the package that each needs, and where it is."""

ADDRESSES = {"wandb": "WANDB_BASE_URL", "mlflow": "MLFLOW_TRACKING_URI"}
"""The variable of the environment that holds the address of each."""

UNREACHABLE = re.compile(
    r"connection refused|connection reset|no such host|name resolution|name or service not known|nodename nor servname|"
    r"network is unreachable|no route to host|deadline exceeded|timed? ?out",
    re.IGNORECASE,
)
"""How clients say that no server answered: each has exceptions of its own, and the system's words within them."""

PROJECT = "refusal-index"
"""The project or experiment that a run goes to where the tracker's own settings name none."""

MOST_ROWS = 100_000
"""Most outcomes of a table that a tracker shows; the file beside it holds all."""

LONGEST_TITLE, LONGEST_REASON = 128, 300


@dataclass(frozen=True)
class Subject:
    """What a tracker is told of a run before anything was asked."""

    key: str  # the same whenever the same run is logged
    title: str
    config: Mapping[str, Any] = field(default_factory=dict)


class Tracker(Protocol):
    """A run in a tracker, begun when it is made; every method may raise whatever the tracker's client raises."""

    def count(self, found: Mapping[str, float]) -> None:
        """Log how far the run has come."""

    def finish(self, run: ExportedRun) -> str:
        """Log everything, bring the run to its end, and return where it is to be seen."""

    def abandon(self) -> None:
        """Bring the run to its end as one that failed."""

    def wait(self) -> None:
        """Leave the run as one that ended as it was told to, without results yet; the same command goes on."""


def is_installed(name: str) -> bool:
    """Whether the package that a tracker needs is there."""
    return find_spec(TRACKERS[name][0]) is not None


def not_installed(name: str) -> str:
    """Return what to do where it is not."""
    return f"{TRACKERS[name][0]} is not installed; pip install 'refusal-index[{name}]'"


def open_tracker(name: str, subject: Subject) -> Tracker:
    """Begin a run in a tracker; it raises whatever the tracker's client raises."""
    module, _, made = TRACKERS[name][1].partition(":")
    tracker: Tracker = getattr(import_module(module), made)(subject)
    return tracker


def export_to(name: str, runs: Sequence[ExportedRun]) -> list[str]:
    """Log every run in a tracker, and return what must be said; raises TrackerError where that fails."""
    if not is_installed(name):
        raise ExportError("to", not_installed(name))
    said = []
    for run in runs:
        subject = Subject(run.key, _short(run.title), config_of(run.settings, run.about) or _named(run))
        try:
            said.append(f"{name}: {_logged(open_tracker(name, subject), run)}")
        except Exception as error:
            raise TrackerError(f"{name}: {told(name, error)}") from error
    return said


def _logged(tracker: Tracker, run: ExportedRun) -> str:
    """Log a run; one that a tracker took in part only does not stay there as one that goes on."""
    try:
        return tracker.finish(run)
    except BaseException:
        with suppress(Exception):
            tracker.abandon()
        raise


def subject_of(folder: RunFolder, title: str) -> Subject:
    """Return what a tracker is told of a folder that was just made; raises RunFolderError where there is none."""
    config = config_of(folder.read_settings(), folder.read_about())
    return Subject(key_of(folder), _short(redacted(title)), config)


def config_of(settings: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run was asked, as `run.json` holds it, without keys; empty where nothing is known."""
    found: dict[str, Any] = redacted_in({**settings, **({"about": dict(about)} if about else {})})
    return found


def told(name: str, error: BaseException) -> str:
    """Return what went wrong in a tracker, on one line and without keys."""
    said = " ".join(str(error).split()) or "no reason given"
    if isinstance(error, RefusalIndexError):
        return redacted(said)
    unanswered = UNREACHABLE.search(said)
    if unanswered is not None:
        return f"{_address(name)} cannot be reached ({unanswered[0].lower()})"
    return shorten(redacted(f"{type(error).__name__}: {said}").rstrip("."), LONGEST_REASON, placeholder=" ...")


def _address(name: str) -> str:
    """Return where a tracker's server is, without who asks it."""
    found = urlsplit(os.environ.get(ADDRESSES[name], ""))
    return f"{found.scheme}://{found.netloc.rpartition('@')[2]}" if found.scheme.startswith("http") else "its server"


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


def _short(title: str) -> str:
    return " ".join(title.split())[:LONGEST_TITLE]


def _without_nan(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(cs.float().fill_nan(None))
