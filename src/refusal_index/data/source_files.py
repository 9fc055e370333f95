"""Files to import: their content, their format, and their records with their places."""

from __future__ import annotations

import errno
import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from refusal_index.data import tables
from refusal_index.data.encodings import UTF_8, checked_encoding
from refusal_index.data.files import sha256_of
from refusal_index.data.first_pass import FirstPassError
from refusal_index.data.nested import reached, with_paths
from refusal_index.data.tool_files import DEEPEVAL_CACHE, has_column, usual_rows
from refusal_index.errors import listed

ZIP = b"PK\x03\x04"
PARQUET = b"PAR1"
GZIP = b"\x1f\x8b"
SUFFIXES = (".gz", ".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx", ".eval")
DEEPEST = 4
"""Levels of objects in a document that are searched for lists of records."""


@dataclass(frozen=True)
class SourceFile:
    """A file to import."""

    path: Path  # path of the file
    content: bytes  # its bytes
    encoding: str = UTF_8  # of a text file
    rows: str | None = None  # path of the list of records in a document; None to find it

    @classmethod
    def read(cls, path: Path, encoding: str = UTF_8, rows: str | None = None) -> SourceFile:
        """Read the file, or raise `DatasetError`."""
        content = tables.read_content(path, FirstPassError)
        return cls(path, content, checked_encoding(encoding, FirstPassError), rows)

    @property
    def sha256(self) -> str:
        """SHA-256 of its content."""
        return sha256_of(self.content)

    @property
    def stem(self) -> str:
        """Its name without the suffixes of its format and compression.

        >>> SourceFile(Path("results/llama-3.1.csv.gz"), b"").stem
        'llama-3.1'
        """
        name = self.path.name
        while (suffix := Path(name).suffix.lower()) in SUFFIXES:
            name = name[: -len(suffix)]
        return name

    @cached_property
    def is_inspect_log(self) -> bool:
        """Whether it is an Inspect log, in either of Inspect's formats."""
        if self.content.startswith(ZIP):
            try:
                names = zipfile.ZipFile(io.BytesIO(self.content)).namelist()
            except zipfile.BadZipFile:  # truncated, for example while being written; the reader of logs reports it
                return True
            return any(name in ("header.json", "_journal/start.json") for name in names)
        document = self.document
        return isinstance(document, dict) and "eval" in document and "version" in document

    @cached_property
    def document(self) -> Any:
        """The content as one JSON value; None if it is not one, such as JSON Lines."""
        start = self.content[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
        if not start.startswith((b"{", b"[", GZIP)):
            return None
        try:
            content = tables.unpack(self.content) if self.content.startswith(GZIP) else self.content
            return json.loads(content.decode("utf-8-sig" if self.encoding == UTF_8 else self.encoding))
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise FirstPassError(
                    f"{self.path}: {error.strerror}; unpack it yourself if this is intended"
                ) from error
            return None
        except (ValueError, RecursionError, EOFError, zlib.error):
            return None

    @cached_property
    def source(self) -> tables.Source:
        """Its name and format. Parquet is detected from the content; JSON or JSON Lines mostly from the suffix."""
        name = self.path.name.lower().removesuffix(".gz")
        if self.content.startswith(PARQUET):
            kind = "parquet"
        elif name.endswith(".json") and self.document is None and self.content.count(b"\n{") > 0:
            kind = "jsonl"
        elif name.endswith(".json") or (self.document is not None and not name.endswith((".jsonl", ".ndjson"))):
            kind = "json"
        else:
            kind = tables.file_format(self.path, FirstPassError, tables.READABLE)
        return tables.Source(str(self.path), kind, "answer", FirstPassError, self.encoding)

    @cached_property
    def records(self) -> tuple[tables.Row, ...]:
        """Its records, in order; raises DatasetError if there are none, or the file is malformed."""
        if self.source.kind != "json":
            if self.rows is not None:
                raise self.source.wrong("--rows: expected one JSON document, got a table; leave it out")
            return usual_rows(tables.read_rows(self.source, self.content))
        if self.document is None:
            raise self.source.wrong("expected one JSON document, got something else; is it cut off?")
        return usual_rows(tables.read_rows(self.source, _items(self.source, self.document, self.rows)))

    def with_paths(self, columns: Iterable[str]) -> tuple[tables.Row, ...]:
        """Return the records, with additional columns for nested values, named by paths such as ``result.grades.0``."""
        present = tables.present_columns(self.records)
        paths = [column for column in columns if "." in column and column not in present]
        return tuple(replace(record, cells=with_paths(record.cells, paths)) for record in self.records)

    def resolved(
        self, chosen: Mapping[str, str], usual: Mapping[str, tables.Column]
    ) -> tuple[tuple[tables.Row, ...], dict[str, str]]:
        """Return the records with columns for paths, and the column of each role; raises TableError.

        - `chosen`, `usual`: as for `resolve_columns`.
        """
        rows = self.with_paths(chosen.values())
        return rows, tables.resolve_columns(self.source, tables.present_columns(rows), chosen, usual)


def _items(source: tables.Source, document: Any, path: str | None) -> list[Any]:
    """Return the records of a document: a list, the list of answers in it, or columns by name.

    - `path`: path of the list; None to find it.
    """
    if path is not None:
        chosen = reached(document, path.split("."))
        if isinstance(chosen, list):
            return chosen
        expected = "--rows: expected the path of a list, as in results.answers"
        raise source.wrong(f"{expected}, got {path!r}; {_found(document)}")
    if isinstance(document, list):
        return document
    columns = records_of_columns(document)
    if columns:
        return columns
    lists = _lists(document)
    fitting = {name: sum(has_column(items[0], role) for role in LISTED) for name, items in lists.items()}
    best = [name for name, roles in fitting.items() if roles == max(fitting.values()) and (roles or len(lists) == 1)]
    if len(best) == 1:
        return lists[best[0]]
    raise source.wrong(f"expected one list of answers; {_found(document)}")


LISTED = ("question", "reply", "grade", "correct", "refused")
"""Roles that distinguish a list of answers from other lists."""


def _found(document: Any) -> str:
    """Return what to do about a document in which the list of answers was not found."""
    if DEEPEVAL_CACHE in document:
        return "this is the cache of deepeval: write what its evaluate() returns as JSON, or give its test run file"
    names = list(_lists(document))
    if not names:
        return "there is no list of objects in it: save one object a line as .jsonl"
    return f"it holds lists at {listed(names)}: choose one with --rows {names[0]}"


def _lists(value: Any, path: str = "", depth: int = 0) -> dict[str, list[Any]]:
    """Return the lists of objects within the objects of a document, by path."""
    if isinstance(value, list):
        return {path: value} if value and isinstance(value[0], dict) and path else {}
    if not isinstance(value, dict) or depth > DEEPEST:
        return {}
    found: dict[str, list[Any]] = {}
    for name, part in value.items():
        found |= _lists(part, f"{path}.{name}" if path else name, depth + 1)
    return found


def records_of_columns(document: Any) -> list[dict[str, Any]]:
    """Return the records of columns by name, as pandas writes them; none for any other document.

    >>> records_of_columns({"data": {"question": {"0": "Who?"}, "answer": {"0": "Ann"}}})
    [{'question': 'Who?', 'answer': 'Ann'}]
    """
    if isinstance(document, dict) and isinstance(document.get("data"), dict):
        document = document["data"]
    cells = document.items() if isinstance(document, dict) else ()
    columns = {name: list(column.values()) if isinstance(column, dict) else column for name, column in cells}
    lengths = {len(column) if isinstance(column, list) else None for column in columns.values()}
    if len(lengths) != 1 or None in lengths or not any(has_column(columns, role) for role in LISTED):
        return []
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
