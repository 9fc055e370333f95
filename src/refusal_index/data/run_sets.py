"""Sets of runs, folders with a summary that names their runs; and the runs in any folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refusal_index.data.files import read_json
from refusal_index.errors import RunFolderError, shortened

SET_VERSION = 2
"""Version of a set's summary."""

SUMMARY = "summary.json"
MAX_NAME_LENGTH = 255  # bytes, of most file systems
LEVELS = 2  # how far below a folder its runs are looked for; those of a set in it are two levels down
LAST_STEP = 10**12  # a training step; a larger number is a date or a hash


@dataclass(frozen=True)
class SetMember:
    """One run of a set."""

    folder: Path  # of the run; missing if the run has not started
    # model, dataset: their names in the set
    model: str
    dataset: str
    step: int | None = None  # training step, if the model is a checkpoint; None otherwise or if unknown


def set_members(path: Path) -> tuple[SetMember, ...]:
    """Return the runs of a set in order; empty if the folder is not a set's, or its summary is invalid.

    Raises RunFolderError for a set of another version.

    >>> set_members(Path("no/such/folder"))
    ()
    """
    document = set_document(path)
    check_set_version(path, document)
    runs = document.get("runs") if "set_version" in document else None
    return tuple(_members(path, runs)) if isinstance(runs, list) else ()


def check_set_version(path: Path, document: Mapping[str, Any]) -> None:
    """Raise RunFolderError if the summary of a set in the folder `path` has another version."""
    version = document.get("set_version", SET_VERSION)
    if version != SET_VERSION:
        anew = "repeat 'refusal-index run --config', which writes it again without repeating a request"
        advice = "use the release that wrote it, or watch into another folder"
        raise RunFolderError(
            f"{path / SUMMARY}: expected set_version {SET_VERSION}, got {shortened(version)}; "
            f"{anew if 'config' in document else advice}"
        )


def member_of_set(path: Path) -> SetMember | None:
    """Return the entry of a run's folder in its set; None if it is not in a set."""
    folder = path.resolve()
    try:
        members = set_members(folder.parent)
    except RunFolderError:
        return None
    return next((member for member in members if member.folder == folder), None)


def set_document(path: Path) -> dict[str, Any]:
    """Read the summary in a folder, of a run or a set; empty if it is missing or unreadable."""
    try:
        document = read_json(path / SUMMARY)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _members(path: Path, runs: Iterable[Any]) -> Iterator[SetMember]:
    """Parse the entries; those that are invalid or name a folder elsewhere are left out."""
    for run in runs:
        match run:
            case {"folder": str(name), "model": str(model), "dataset": str(dataset)}:
                step = run.get("step")
                is_valid = isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= LAST_STEP
                is_name = name == Path(name).name not in ("", "..") and "\0" not in name
                if is_name and len(name.encode()) <= MAX_NAME_LENGTH:
                    yield SetMember(path / name, model, dataset, step if is_valid else None)


def is_run(folder: Path) -> bool:
    """Whether a folder has a file like that of a run's settings, readable or not."""
    return os.path.lexists(folder / "run.json")


def folders_below(folder: Path, levels: int = LEVELS) -> list[Path]:
    """Return the folder of each run in a folder and in those in it, and each folder in it that holds no run."""
    if is_run(folder) or levels == 0:
        return [folder]
    inside = sorted(path for path in folder.glob("[!.]*") if path.is_dir())
    return [path for child in inside for path in folders_below(child, levels - 1)] or [folder]


def runs_below(path: Path) -> list[Path]:
    """Return the folders of the runs of a set, or in any folder; empty for the folder of a run, and for a file.

    Raises RunFolderError for a set of another version.
    """
    members = [member.folder for member in set_members(path)]
    return members or [folder for folder in folders_below(path) if folder != path and is_run(folder)]
