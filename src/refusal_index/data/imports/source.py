"""A file as it stands: its content, its records with their places, and what kind of file it is."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from refusal_index.data.files import sha256_of
from refusal_index.data.imports.first_pass import FirstPassError
from refusal_index.data.tables import (
    Column,
    Row,
    Source,
    file_format,
    present_columns,
    read_content,
    read_rows,
    resolve_columns,
)

ZIP, PARQUET, GZIP = b"PK\x03\x04", b"PAR1", b"\x1f\x8b"
SUFFIXES = (".gz", ".csv", ".jsonl", ".ndjson", ".json", ".parquet", ".eval")


@dataclass(frozen=True)
class SourceFile:
    """A file to import."""

    path: Path  # where it lies
    content: bytes  # its bytes

    @classmethod
    def read(cls, path: Path) -> SourceFile:
        """Read the file, or raise `DatasetError`."""
        return cls(path, read_content(path, FirstPassError))

    @property
    def sha256(self) -> str:
        """Its checksum."""
        return sha256_of(self.content)

    @property
    def stem(self) -> str:
        """Its name without the suffixes that say how it is written.

        >>> SourceFile(Path("results/llama-3.1.csv.gz"), b"").stem
        'llama-3.1'
        """
        name = self.path.name
        while (suffix := Path(name).suffix.lower()) in SUFFIXES:
            name = name[: -len(suffix)]
        return name

    @cached_property
    def is_inspect_log(self) -> bool:
        """Whether it is a log of Inspect, in either of its formats."""
        if self.content.startswith(ZIP):
            return _is_eval_archive(self.content)
        document = self.document
        return isinstance(document, dict) and "eval" in document and "version" in document

    @cached_property
    def document(self) -> Any:
        """The whole as one JSON value; None where it is not one, but for instance a JSON value a line."""
        start = self.content[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
        if not start.startswith((b"{", b"[", GZIP)):
            return None
        try:
            return json.loads(_unpacked(self.content).decode("utf-8-sig"))
        except (ValueError, RecursionError, OSError, EOFError, zlib.error):
            return None

    @cached_property
    def source(self) -> Source:
        """How it is read: Parquet is told by its content, JSON Lines from one JSON value by the suffix."""
        name = self.path.name.lower().removesuffix(".gz")
        if self.content.startswith(PARQUET):
            kind = "parquet"
        elif name.endswith(".json") or (self.document is not None and not name.endswith((".jsonl", ".ndjson"))):
            kind = "json"
        else:
            kind = file_format(self.path, FirstPassError)
        return Source(str(self.path), kind, "answer", FirstPassError)

    @cached_property
    def records(self) -> tuple[Row, ...]:
        """Its records, in their order; raises DatasetError if it holds none, or is malformed."""
        if self.source.kind != "json":
            return tuple(read_rows(self.source, self.content))
        if self.document is None:
            raise self.source.wrong("expected one JSON document, got something else; is it cut off?")
        return tuple(read_rows(self.source, _items(self.source, self.document)))

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column of any of its records."""
        return present_columns(self.records)

    def with_paths(self, columns: Iterable[str]) -> tuple[Row, ...]:
        """Return the records, with columns for what lies deeper, by paths such as ``result.grades.0``."""
        present = set(self.columns)
        paths = [column for column in columns if "." in column and column not in present]
        return tuple(replace(record, cells=with_paths(record.cells, paths)) for record in self.records)

    def resolved(self, given: Mapping[str, str], usual: Mapping[str, Column]) -> tuple[tuple[Row, ...], dict[str, str]]:
        """Return the records, with columns for paths, and the column of every role that has one; raises TableError.

        - `given`, `usual`: as `resolve_columns` takes them.
        """
        rows = self.with_paths(given.values())
        return rows, resolve_columns(self.source, present_columns(rows), given, usual)


def with_paths(cells: Mapping[str, Any], paths: Iterable[str]) -> Mapping[str, Any]:
    """Return the cells of a record, with one more for each path that leads somewhere.

    >>> with_paths({"result": {"grades": ["A"]}}, ["result.grades.0", "result.x"])
    {'result': {'grades': ['A']}, 'result.grades.0': 'A'}
    """
    reached = {path: _reached(cells, path.split(".")) for path in paths}
    return {**cells, **{path: value for path, value in reached.items() if value is not None}}


def _reached(value: Any, steps: Sequence[str]) -> Any:
    """Return what lies at the end of a path through objects and lists, also such as are written as JSON in a text."""
    for step in steps:
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return None
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def _unpacked(content: bytes) -> bytes:
    return gzip.decompress(content) if content.startswith(GZIP) else content


def _is_eval_archive(content: bytes) -> bool:
    try:
        names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    except zipfile.BadZipFile:  # torn, as an archive that was being written is; its reader says so
        return True
    return any(name in ("header.json", "_journal/start.json") for name in names)


def _items(source: Source, document: Any) -> list[Any]:
    """Find the list of answers: the document itself, or the only list of objects in it."""
    if isinstance(document, list):
        return document
    lists = [value for value in document.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if len(lists) == 1:
        return lists[0]
    raise source.wrong(
        "expected a list of answers, or an object that holds one such list, got an object with "
        f"{len(lists)} of them; save the list of answers alone, or one object a line as .jsonl"
    )
