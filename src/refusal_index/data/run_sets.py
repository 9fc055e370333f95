"""The folder of a set of runs, as it is read: which runs it holds, and what the set calls them.

`refusal-index run --config` and `watch` write it: a folder for each run, and a summary of all. The names are kept in
the summary alone and enter no run's settings, so that a new name costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refusal_index.data.errors import RunFolderError, shortened
from refusal_index.data.files import read_json

SET_VERSION = 2
"""Version of the set's summary."""

SUMMARY = "summary.json"
LONGEST_NAME = 255  # bytes, of most file systems
LAST_STEP = 10**12  # of a training; a larger number is a date or a hash


@dataclass(frozen=True)
class SetMember:
    """One run of a set."""

    folder: Path  # of the run; a run that has not begun has none yet
    # model, dataset: what the set calls them
    model: str
    dataset: str
    step: int | None = None  # of the training that the model is a checkpoint of; None where it is none, or not known


def set_members(path: Path) -> tuple[SetMember, ...]:
    """Return the runs of a set in its order; none where the folder is not one of a set, or its summary is broken.

    Raises RunFolderError for a set of another version.

    >>> set_members(Path("no/such/folder"))
    ()
    """
    document = set_document(path)
    check_set_version(path, document)
    runs = document.get("runs") if "set_version" in document else None
    members = [_member(path, run) for run in runs] if isinstance(runs, list) else []
    return tuple(member for member in members if member is not None)


def check_set_version(path: Path, document: Mapping[str, Any]) -> None:
    """Raise RunFolderError if the summary of a set in the folder `path` has another version."""
    version = document.get("set_version", SET_VERSION)
    if version != SET_VERSION:
        anew = "repeat 'refusal-index run --config', which writes it anew and asks no question again"
        elsewhere = "use the release that wrote it, or watch into another folder"
        raise RunFolderError(
            f"{path / SUMMARY}: expected set_version {SET_VERSION}, got {shortened(version)}; "
            f"{anew if 'config' in document else elsewhere}"
        )


def member_of_set(path: Path) -> SetMember | None:
    """Find a run's folder in the set that it lies in; None where it lies in none, or the set has dropped it."""
    place = path.resolve()
    try:
        members = set_members(place.parent)
    except RunFolderError:
        return None
    return next((member for member in members if member.folder == place), None)


def set_document(path: Path) -> dict[str, Any]:
    """Read the summary in a folder, whatever it is of; nothing where there is none that can be read."""
    try:
        document = read_json(path / SUMMARY)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _member(path: Path, run: Any) -> SetMember | None:
    """Read one entry; a folder elsewhere is none of the set's."""
    match run:
        case {"folder": str(name), "model": str(model), "dataset": str(dataset)} if _is_name(name):
            step = run.get("step")
            known = isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= LAST_STEP
            return SetMember(path / name, model, dataset, step if known else None)
    return None


def _is_name(name: str) -> bool:
    """Whether it can name a folder directly in another one."""
    return bool(name) and name == Path(name).name != ".." and "\0" not in name and len(name.encode()) <= LONGEST_NAME
