"""Files to import: their content, their format, and their records with their places."""

from __future__ import annotations

import errno
import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from refusal_index.data import tables
from refusal_index.data.documents import parsed, records_of, rows_of_document
from refusal_index.data.encodings import UTF_8, checked_encoding
from refusal_index.data.files import sha256_of
from refusal_index.data.first_pass import FirstPassError
from refusal_index.data.nested import with_paths
from refusal_index.data.tool_files import usual_rows

ZIP = b"PK\x03\x04"
PARQUET = b"PAR1"
SUFFIXES = (".gz", ".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx", ".eval")


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
        start = self.content[:64].lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n")
        if not start.startswith((b"{", b"[", tables.GZIP)):
            return None
        try:
            return parsed(self.content, self.encoding)
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
        """Its name and format. Text formats other than JSON are recognised by the suffix."""
        name = self.path.name.lower().removesuffix(".gz")
        if self.content.startswith(PARQUET):
            kind = "parquet"
        elif self.content.startswith(ZIP):
            kind = "xlsx"
        elif (
            name.endswith(".json")
            or isinstance(self.document, list)
            or (self.document is not None and not name.endswith((".jsonl", ".ndjson")))
        ):
            kind = "json"
        else:
            kind = tables.file_format(self.path, FirstPassError, tables.READABLE)
        return tables.Source(str(self.path), kind, "answer", FirstPassError, self.encoding, self.rows)

    @cached_property
    def records(self) -> tuple[tables.Row, ...]:
        """Its records, in order; raises DatasetError if there are none, or the file is malformed."""
        if self.source.kind != "json":
            if self.rows is not None and self.source.kind != "xlsx":
                raise self.source.wrong("expected one JSON document, got a table; leave it out").about("rows")
            return usual_rows(tables.read_rows(self.source, self.content))
        if self.document is None:
            return usual_rows(tables.some_rows(self.source, rows_of_document(self.source, self.content)))
        return usual_rows(tables.read_rows(self.source, records_of(self.source, self.document, self.rows)))

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
