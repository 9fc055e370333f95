"""Shards of results: one file each, whole or not there, in a folder on a disk or in object storage."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
from pyarrow import ArrowInvalid
from pyarrow.fs import FileSelector, FileSystem, FileType, FSSpecHandler, LocalFileSystem, PyFileSystem

from refusal_index.data.errors import shortened
from refusal_index.data.files import check_folder, check_plain, write_atomically
from refusal_index.models.failures import Failure, FailureKind
from refusal_index.models.requests import ModelError
from refusal_index.plugins.batches.formats import Result, ResultError, read_result
from refusal_index.redaction import redacted

ENDING, MARK = ".jsonl", "driver"
"""What the name of a shard ends in, and the file by which a process finds out whose folder it sees."""

NAME, OWN = "storage", re.compile(r"run-[0-9a-f]{32}")
"""The file in a run's folder that says what its part of a storage is called, and what such a name looks like."""


class Shards:
    r"""The shards of a run.

    Parameters
    ----------
    place
        A folder: a path, or a URL of any kind that pyarrow or fsspec knows.

    Raises
    ------
    ModelError
        If there is no such kind of storage here, or what reaches it is not installed.

    Examples
    --------
    >>> shards = Shards("memory://shards-of-an-example")
    >>> shards.write("a", "{}\n")
    >>> list(shards.read())
    [('a', ['{}'])]
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._files, self._folder = _storage(place)

    @property
    def is_remote(self) -> bool:
        """Whether every node reaches it alike, as it does not with a folder on a disk."""
        return bool(self._files.type_name != "local")

    def make(self) -> str:
        """Make the folder, leave a new mark in it, and return the mark."""
        try:
            self._files.create_dir(self._folder, recursive=True)
            mark = uuid.uuid4().hex
            self._put(MARK, mark)
        except OSError as error:
            raise ModelError(
                f"{{engine_option}}: storage {redacted(self.place)}: {redacted(str(error))[:300]}"
            ) from error
        return mark

    def has_mark(self, mark: str) -> bool:
        """Whether this is the folder in which somebody left a mark, and not one of the same name on another disk."""
        return self.get(MARK) == mark

    def write(self, name: str, content: str) -> None:
        """Write a shard, whole or not at all."""
        self._put(name + ENDING, content)

    def held(self, name: str) -> str | None:
        """Return what is in a shard; None where there is none."""
        return self.get(name + ENDING)

    def get(self, file: str) -> str | None:
        """Return what is in a file; None where there is none."""
        path = self._path(file)
        if self._files.get_file_info(path).type != FileType.File:
            return None
        with self._files.open_input_stream(path) as stream:
            return bytes(stream.read()).decode("utf-8", "replace")

    def read(self) -> Iterator[tuple[str, list[str]]]:
        """Yield every shard with its lines."""
        for found in self._files.get_file_info(FileSelector(self._folder, allow_not_found=True)):
            name = PurePosixPath(found.path).name
            if found.type == FileType.File and name.endswith(ENDING):
                yield name.removesuffix(ENDING), (self.get(name) or "").split("\n")[:-1]

    def remove(self, name: str) -> None:
        """Remove a shard."""
        self._delete(name + ENDING)

    def close(self) -> None:
        """Take the mark away; shards stay."""
        self._delete(MARK)

    def _delete(self, file: str) -> None:
        path = self._path(file)
        if self._files.get_file_info(path).type == FileType.File:
            self._files.delete_file(path)

    def _path(self, file: str) -> str:
        return f"{self._folder}/{file}"

    def _put(self, file: str, content: str) -> None:
        """Write a file; object storage shows none before all of it is there, and a disk none before it is renamed."""
        path = self._path(file)
        written = path if self.is_remote else f"{path}.{uuid.uuid4().hex}"
        with self._files.open_output_stream(written) as stream:
            stream.write(content.encode())
        if written != path:
            self._files.move(written, path)


def own_name(folder: Path) -> str:
    """Return what a run's part of a storage is called: a name that nobody else has, and that moves with its folder.

    Parameters
    ----------
    folder
        Where the name is kept; it is made where there is none.

    Raises
    ------
    ModelError
        If what is kept there is no such name, or none can be kept.
    """
    place = folder / NAME
    try:
        check_folder(folder).mkdir(exist_ok=True)
        if not os.path.lexists(place):
            write_atomically(place, f"run-{uuid.uuid4().hex}\n".encode())
        name = check_plain(place, most=100).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ModelError(f"{place}: the name of this run's shards cannot be kept ({error})") from error
    if not OWN.fullmatch(name):
        raise ModelError(
            f"{place}: expected the name of this run's shards, got {shortened(name)}; put it back, or remove it to "
            "have what lies in the storage asked again"
        )
    return name


def _storage(place: str) -> tuple[Any, str]:
    """Return a file system and the path of a folder in it."""
    try:
        if "://" not in place:
            return LocalFileSystem(), place
        try:
            files, path = FileSystem.from_uri(place)
        except ArrowInvalid:  # of a kind that pyarrow does not know
            found, path = fsspec.core.url_to_fs(place)
            files = PyFileSystem(FSSpecHandler(found))
    except (ValueError, ImportError, OSError) as error:
        raise ModelError(
            f"{{engine_option}}: expected the URL of a folder in storage, as in s3://bucket/path, got "
            f"{redacted(place)[:200]!r} ({redacted(str(error))[:200]})"
        ) from error
    return files, path.rstrip("/")


def failure_line(custom_id: str, failure: Failure) -> str:
    """Return the line of a request that failed for good, however often it was sent."""
    told = {"message": failure.message, "kind": failure.kind.name, "advice": failure.advice}
    return json.dumps({"custom_id": custom_id, "failure": told})


def read_shard(lines: Iterable[str], model: str) -> dict[str, Result]:
    """Return the results in the lines of a shard, by id; a line that holds none is passed over.

    Examples
    --------
    >>> line = failure_line("ri-1", Failure("no such model", "fake/any", FailureKind.LASTING))
    >>> read_shard([line], "fake/any")["ri-1"].failure.kind
    <FailureKind.LASTING: 2>
    """
    found = {}
    for line in lines:
        try:
            document = json.loads(line)
            result = _failed(document, model) or read_result(document, model)
        except (ResultError, ValueError, TypeError, KeyError, RecursionError):
            continue
        found[result.custom_id] = result
    return found


def _failed(document: Any, model: str) -> Result | None:
    told = document.get("failure") if isinstance(document, dict) else None
    if not isinstance(told, dict):
        return None
    failure = Failure(str(told["message"]), model, FailureKind[told["kind"]], str(told["advice"]))
    return Result(str(document["custom_id"]), failure=failure)
