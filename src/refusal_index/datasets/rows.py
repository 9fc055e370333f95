"""The rows of a CSV or JSON Lines file, each with the line on which it begins."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import itertools
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refusal_index.datasets.dataset import DatasetError
from refusal_index.outcomes.errors import other_separator, shortened


@dataclass(frozen=True)
class Row:
    """One row: the line on which it begins, and its cells by column."""

    line: int
    cells: Mapping[str, Any]


def read_source(path: Path) -> bytes:
    """Read a local file or raise `DatasetError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}); check the path") from error


def sha256_of(content: bytes) -> str:
    """Checksum in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def parse_rows(name: str | Path, content: bytes) -> list[Row]:
    """Parse the content of a file whose suffix is .csv, .jsonl or .ndjson, perhaps followed by .gz.

    Parameters
    ----------
    name
        The file, for its suffix and for messages.
    content
        Its bytes.

    Raises
    ------
    DatasetError
        If the suffix is another one, the content is malformed (the message names the line), or there is no row.
    """
    stem = str(name).lower().removesuffix(".gz")
    if not stem.endswith((".csv", ".jsonl", ".ndjson")):
        raise DatasetError(
            f"{name}: expected a file that ends in .csv, .jsonl or .ndjson (or one of these and .gz); "
            "convert it to one of these, or rename it if it is one of them"
        )
    text = _text(name, content)
    rows = list(_csv_rows(name, text) if stem.endswith(".csv") else _json_rows(name, text))
    if not rows:
        raise DatasetError(f"{name}: expected at least one question, got none; check that it is the right file")
    return rows


def _text(name: str | Path, content: bytes) -> str:
    try:
        plain = gzip.decompress(content) if str(name).lower().endswith(".gz") else content
        return plain.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = plain[: error.start].count(b"\n") + 1
        raise DatasetError(f"{name}, line {line}: expected text in UTF-8, got other bytes; save it as UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{name} cannot be unpacked ({error}); check that it is complete and is gzip") from error


def _csv_rows(name: str | Path, text: str) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    line = 1
    try:
        for cells in reader:
            begins, line = line, reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            if header is None:
                header = _checked_header(name, cells)
            else:
                yield Row(begins, _checked_cells(name, begins, header, cells))
    except csv.Error as error:
        raise DatasetError(f"{name}, line {line}: malformed CSV ({error}); check the quotes in this place") from error


def _checked_header(name: str | Path, header: list[str]) -> list[str]:
    header = [column.strip() for column in header]
    if len(header) == 1 and (separator := other_separator(header[0])):
        raise DatasetError(f"{name}: expected cells separated by commas, found {separator!r}; save it with commas")
    twice = sorted({column for column in header if header.count(column) > 1})
    if twice:
        raise DatasetError(
            f"{name}: expected every column once, got {twice[0]!r} twice; rename or remove one of the two"
        )
    return header


def _checked_cells(name: str | Path, line: int, header: list[str], cells: list[str]) -> dict[str, str]:
    if len(cells) > len(header):
        raise DatasetError(
            f"{name}, line {line}: expected {len(header)} cells as in the header, got {len(cells)}; "
            "put quotes around text that holds commas"
        )
    return dict(itertools.zip_longest(header, cells, fillvalue=""))


def _json_rows(name: str | Path, text: str) -> Iterator[Row]:
    # Split at line feeds only: a JSON string may hold other characters that str.splitlines takes for a line's end.
    for line, encoded in enumerate(text.split("\n"), start=1):
        if not encoded.strip():
            continue
        try:
            record = json.loads(encoded)
        except (ValueError, RecursionError) as error:
            raise DatasetError(
                f"{name}, line {line}: expected one JSON object, got {shortened(encoded)} ({error}); mend the line"
            ) from error
        if not isinstance(record, dict):
            raise DatasetError(
                f"{name}, line {line}: expected a JSON object with the question and its answer, "
                f"got {shortened(record)}; write one object a line"
            )
        yield Row(line, record)
