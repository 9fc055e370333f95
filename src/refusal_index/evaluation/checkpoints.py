"""Checkpoints that a training leaves in a folder: which there are, in which order, and whether each is whole.

A training writes a checkpoint while others look. One is whole where its configuration can be read, all files that it
says it has are there, tensors of safetensors reach to the end of their files, and nothing changes between two looks.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refusal_index.outcomes.errors import RunFolderError

CONFIGURATIONS = ("config.json", "adapter_config.json")
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
LONGEST_HEADER = 100_000_000
"""Bytes of the header of safetensors at most, as its own reader has it."""

_NAMED = re.compile(r"checkpoint-\d+")
"""What trainers call a checkpoint's folder: it is one from its first moment on, whatever it holds."""

_STEP = re.compile(r"(\d+)(?!.*\d)")

Signature = tuple[tuple[str, int, int], ...]
"""Name, size and time of every file."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder that holds a checkpoint, or will.

    Attributes
    ----------
    path
        The folder.
    step
        The last number in its name; None where it has none.
    signature
        Of its files as they are now.
    lacks
        What it lacks to be whole, in a few words; None where it is.
    """

    path: Path
    step: int | None
    signature: Signature
    lacks: str | None

    @property
    def name(self) -> str:
        """What to call it."""
        return self.path.name

    @property
    def changed(self) -> float:
        """When a file of it was last written, in seconds since the epoch."""
        return max((time for _, _, time in self.signature), default=0) / 1e9


def checkpoints_in(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints of a training: by step, and after those by time where the name tells none.

    A folder without any file of weights or configuration is none of them, unless it is called ``checkpoint-N``.

    Raises
    ------
    RunFolderError
        If the folder cannot be read.
    """
    try:
        places = [place for place in folder.iterdir() if not place.name.startswith((".", "tmp-"))]
    except OSError as error:
        raise RunFolderError(
            f"{folder}: expected the folder that a training writes checkpoints into ({error.strerror}); check the path"
        ) from error
    found = [one for place in places if (one := checkpoint_at(place)) is not None]
    return sorted(found, key=lambda one: (one.step is None, one.step or 0, one.changed, one.name))


def checkpoint_at(place: Path) -> Checkpoint | None:
    """Look at one folder; None where it is no checkpoint, or was removed meanwhile."""
    signature: Signature = ()
    try:
        signature = tuple(_signature(place))
        names = {name for name, _, _ in signature}
        if not names & {*CONFIGURATIONS, *WEIGHTS, *INDEXES} and not _NAMED.fullmatch(place.name):
            return None
        lacks = next(_lacking(place, names), None)
    except (FileNotFoundError, NotADirectoryError):  # trainings keep the last few only
        return None
    except OSError as error:  # another look may read it
        lacks = f"it cannot be read ({error.strerror})"
    return Checkpoint(place, step_of(place.name), signature, lacks)


def step_of(name: str) -> int | None:
    """Return the last number in a name.

    >>> step_of("checkpoint-2000"), step_of("epoch1-step500"), step_of("final")
    (2000, 500, None)
    """
    found = _STEP.search(name)
    return int(found[1]) if found and len(found[1]) <= 12 else None


def _signature(place: Path) -> Iterator[tuple[str, int, int]]:
    for file in sorted(place.iterdir()):
        if file.is_file():
            status = file.stat()
            yield file.name, status.st_size, status.st_mtime_ns


def _lacking(place: Path, names: set[str]) -> Iterator[str]:
    """Say what a checkpoint lacks to be whole."""
    configurations = [name for name in CONFIGURATIONS if name in names]
    indexes = [name for name in INDEXES if name in names]
    files = [name for name in WEIGHTS if name in names]
    if not configurations:
        yield f"no {CONFIGURATIONS[0]}"
    yield from (f"{name} is not complete" for name in configurations if not isinstance(_document(place / name), dict))
    for name in indexes:
        shards = _shards(place / name)
        files += shards
        if not shards:
            yield f"{name} is not complete"
    if not files:
        yield "no weights"
    for name in files:
        if name not in names:
            yield f"no {name}"
        elif name.endswith(".safetensors") and not is_whole(place / name):
            yield f"{name} is not complete"


def _document(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None


def _shards(path: Path) -> list[str]:
    """Return the files that an index names; none where it cannot be read."""
    document = _document(path)
    named = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(named, dict) or not named or not all(isinstance(one, str) for one in named.values()):
        return []
    return sorted(set(named.values()))


def is_whole(path: Path) -> bool:
    """Whether the tensors that the header of a file of safetensors names reach to its end, and not beyond."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 0 < length <= min(LONGEST_HEADER, size - 8):
            return False
        try:
            header = json.loads(file.read(length))
            ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
            return bool(8 + length + max(ends, default=0) == size)
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
            return False


class Settled:
    """Tells which checkpoints no longer change.

    Parameters
    ----------
    seconds
        How long nothing of a checkpoint may have changed.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: dict[Path, tuple[Signature, float]] = {}

    def __call__(self, one: Checkpoint) -> bool:
        """Whether a checkpoint is as it was so long ago, by what was seen of it or by the times of its files."""
        now = time.monotonic()
        signature, since = self._seen.get(one.path, (None, now))
        if signature != one.signature:
            self._seen[one.path] = one.signature, now
            since = now
        return now - since >= self._seconds or time.time() - one.changed >= self._seconds
