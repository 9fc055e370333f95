"""Trackers of experiments: what each of them can do, and opening one by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import polars.selectors as cs

from refusal_index.exporters.results import ExportedRun, ExportError, TrackerError, key_of
from refusal_index.outcomes.folder import RunFolder
from refusal_index.redaction import redacted, redacted_in

TRACKERS = {
    "wandb": ("wandb", "refusal_index.exporters.wandb_tracker:WandbTracker"),
    "mlflow": ("mlflow", "refusal_index.exporters.mlflow_tracker:MlflowTracker"),
}
"""The trackers by name: the package that each needs, and where it is."""

PROJECT = "refusal-index"
"""The project or experiment that a run goes to where the tracker's own settings name none."""

MOST_ROWS = 100_000
"""Most outcomes of a table that a tracker shows; the file beside it holds all."""

LONGEST_TITLE = 128

LEFT_BEHIND = "cache"
"""What is not handed on of a folder: pickles of an earlier release."""


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
            said.append(f"{name}: {open_tracker(name, subject).finish(run)}")
        except Exception as error:
            raise TrackerError(f"{name}: {told(error)}") from error
    return said


def subject_of(folder: RunFolder, title: str) -> Subject:
    """Return what a tracker is told of a folder that was just made; raises RunFolderError where there is none."""
    config = config_of(folder.read_settings(), folder.read_about())
    return Subject(key_of(folder), _short(redacted(title)), config)


def config_of(settings: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run was asked, as `run.json` holds it, without keys; empty where nothing is known."""
    found: dict[str, Any] = redacted_in({**settings, **({"about": dict(about)} if about else {})})
    return found


def told(error: BaseException) -> str:
    """Return what went wrong, on one line and without keys."""
    said = " ".join(str(error).split()) or "no reason given"
    return redacted(f"{type(error).__name__}: {said}")[:300].rstrip(".")


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
        if path.is_file() and not through_link and parts[0] != LEFT_BEHIND and not parts[-1].startswith("."):
            found.append((path, "/".join(parts)))
    return found


def _named(run: ExportedRun) -> dict[str, Any]:
    named: dict[str, Any] = redacted_in({"model": run.model, "dataset": run.dataset, "source": run.source.name})
    return named


def _short(title: str) -> str:
    return " ".join(title.split())[:LONGEST_TITLE]


def _without_nan(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(cs.float().fill_nan(None))
