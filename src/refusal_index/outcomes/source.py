"""Where the rows of a table come from, and what is said where something is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from refusal_index.outcomes.errors import OutcomeTableError, TableError, listed, shortened

SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
"""Format by suffix; those of text may be followed by .gz."""

UNITS = {"csv": "line", "jsonl": "line", "json": "item"}
"""What rows are counted by, where it is not by rows."""

Problems = list[TableError]
"""Gathers what is wrong row by row."""


@dataclass(frozen=True)
class Source:
    """Where rows come from."""

    name: str  # the file, or what data in memory are called
    # ``"csv"``, ``"jsonl"`` and ``"parquet"`` for files, ``"json"`` for a document of several rows, ``"memory"``
    kind: str
    holds: str  # what one row is, in words
    error: type[TableError]  # what is raised where something is wrong

    @classmethod
    def of(cls, path: str | Path, holds: str, error: type[TableError]) -> Source:
        """Return a file as a source, or raise where its suffix is not known."""
        return cls(str(path), file_format(path, error), holds, error)

    def place(self, *lines: int, most: int = 10) -> str:
        """Name rows in words.

        >>> Source("x.csv", "csv", "question", TableError).place(2, 4)
        'x.csv, lines 2, 4'
        """
        shown = ", ".join(map(str, lines[:most]))
        more = f" and {len(lines) - most:,} more" if len(lines) > most else ""
        return f"{self.name}, {UNITS.get(self.kind, 'row')}{'s' if len(lines) > 1 else ''} {shown}{more}"

    def wrong(self, said: str, lines: Sequence[int] = (), column: str | None = None) -> TableError:
        """Return the error that says what is wrong, with these rows, in this column, or with the whole."""
        place = self.place(*lines) if lines else self.name
        error = self.error(f"{place}{f', column {column!r}' if column else ''}: {said}")
        error.line, error.column = lines[0] if lines else 0, column
        return error

    def lacks(self, expected: str, present: Iterable[str], advice: str) -> TableError:
        """Return the error for columns that are not there."""
        return self.wrong(f"expected {expected}, got {listed(present)}{advice}")

    def broken(self, said: str) -> TableError:
        """Return the error for content that is not even a table."""
        return self.error(f"{self.name} cannot be {said}")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the line on which it begins, or else its number from 1, and its cells by column."""

    source: Source
    line: int
    cells: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Where it stands, in words."""
        return self.source.place(self.line)

    def wrong(self, said: str, column: str | None = None) -> TableError:
        """Return the error that says what is wrong with it."""
        return self.source.wrong(said, [self.line], column)


def file_format(path: str | Path, error: type[TableError] = OutcomeTableError) -> str:
    """Tell the format of a file from its suffix, or raise."""
    name = Path(path).name.lower()
    found = SUFFIXES.get(Path(name.removesuffix(".gz")).suffix)
    if found is None or (found == "parquet" and name.endswith(".gz")):
        *most, last = SUFFIXES
        raise error(
            f"{path}: expected a file that ends in {', '.join(most)} or {last} (text perhaps followed by .gz), got "
            f"{shortened(Path(path).suffix)}; convert it to one of these, or rename it if it is one of them"
        )
    return found


def opened(path: Path, error: type[TableError]) -> BinaryIO:
    """Open a file, or raise."""
    try:
        return path.open("rb")
    except OSError as problem:
        raise cannot_be_read(path, problem, error) from problem


def cannot_be_read(path: Path, problem: OSError, error: type[TableError]) -> TableError:
    """Return the error for a file that the operating system does not give."""
    missing = isinstance(problem, FileNotFoundError)
    why = "there is no such file or folder" if missing else problem.strerror
    return error(f"{path} cannot be read: {why}; check the path")


def read_content(path: Path, error: type[TableError]) -> bytes:
    """Read a whole file, or raise."""
    with opened(path, error) as file:
        return file.read()


def present_columns(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return every column of any of the rows."""
    return tuple(dict.fromkeys(column for row in rows for column in row.cells))


def is_in_memory(data: object) -> bool:
    """Tell a data frame, or dictionaries, from the paths of files."""
    if isinstance(data, Sequence) and not isinstance(data, str):
        return len(data) > 0 and isinstance(data[0], Mapping)
    return not isinstance(data, str | Path | None)
