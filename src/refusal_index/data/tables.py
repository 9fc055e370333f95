"""Tables in files (CSV, JSON Lines, Parquet, workbooks) and in memory (data frames, dictionaries), as they are read.

A table is read as rows (`read_rows`) or as columns of text (`read_text`). Each row has its line number, so that error
messages name the file, the line and the column. An importer declares its columns by role: a `Column` has the usual
names in other tools' files and a function to parse its cells, such as `text` or a `Kind` of word or number.
`resolve_columns` finds the column of each role, and `values_by_role` parses the cells of a row.
"""

from __future__ import annotations

import csv
import errno
import gzip
import io
import itertools
import json
import math
import os
import re
import shlex
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from refusal_index.data.cells import NOTHING, Kind
from refusal_index.data.encodings import UTF_8, checked_encoding, encoding_of, wrong_encoding
from refusal_index.data.text import sound_text
from refusal_index.data.workbooks import workbook_rows
from refusal_index.errors import (
    OutcomeTableError,
    TableError,
    listed,
    nearest,
    shortened,
    suggestion,
)

SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
"""Format by suffix of a table that is written; text formats may be followed by .gz."""

READABLE = {**SUFFIXES, ".tsv": "csv", ".txt": "csv", ".xlsx": "xlsx"}
"""Format by suffix of a table that is read."""

UNITS = {"csv": "line", "jsonl": "line", "json": "item"}
"""What a row's number counts, by format; rows if not listed."""

Problems = list[TableError]
"""A list to which the errors of single rows are added."""


@dataclass(frozen=True)
class Source:
    """The origin of rows."""

    name: str  # the file, or a name for data in memory
    # ``"csv"``, ``"jsonl"`` and ``"parquet"`` for files, ``"json"`` for a document of several rows, ``"memory"``
    kind: str
    holds: str  # what a row is, in words
    error: type[TableError]  # the class of errors about it
    encoding: str = UTF_8  # of text in files
    part: str | None = None  # the sheet of a workbook; None to find it

    @classmethod
    def from_path(cls, path: str | Path, holds: str, error: type[TableError], encoding: str = UTF_8) -> Source:
        """Return a file as a source; raises `error` if its suffix or the encoding is unknown."""
        return cls(str(path), file_format(path, error, READABLE), holds, error, checked_encoding(encoding, error))

    def place(self, *lines: int, limit: int = 10) -> str:
        """Return a description of the place of some rows.

        >>> Source("x.csv", "csv", "question", TableError).place(2, 4)
        'x.csv, lines 2, 4'
        """
        shown = ", ".join(map(str, lines[:limit]))
        more = f" and {len(lines) - limit:,} more" if len(lines) > limit else ""
        return f"{self.name}, {UNITS.get(self.kind, 'row')}{'s' if len(lines) > 1 else ''} {shown}{more}"

    def wrong(self, message: str, lines: Sequence[int] = (), column: str | None = None) -> TableError:
        """Return an error about some rows and a column, or about the whole table."""
        location = self.place(*lines) if lines else self.name
        error = self.error(f"{location}{f', column {column!r}' if column else ''}: {message}")
        error.line = lines[0] if lines else 0
        error.column = column
        return error

    def lacks(self, expected: str, present: Iterable[str], advice: str) -> TableError:
        """Return the error for missing columns."""
        return self.wrong(f"expected {expected}, got {listed(present)}{advice}")

    def in_another_encoding(self, error: UnicodeDecodeError, line: int) -> TableError:
        """Return the error for text that cannot be decoded.

        - `line`: number of lines before the text that was to be decoded.
        """
        problem, encoding = wrong_encoding(error)
        message = f"expected text in {self.encoding.upper()}, got other bytes; {problem}, read it"
        lines = [] if self.kind == "json" else [line + 1 + error.object[: error.start].count(b"\n")]
        return self.wrong(message, lines).with_remedy("encoding", encoding)

    def broken(self, message: str) -> TableError:
        """Return the error for content that is not a table."""
        return self.error(f"{self.name} cannot be {message}")


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its first line (or its number from 1, if not in a text file), and its cells by column."""

    source: Source
    line: int
    cells: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Description of its place."""
        return self.source.place(self.line)

    def wrong(self, message: str, column: str | None = None) -> TableError:
        """Return an error about the row."""
        return self.source.wrong(message, [self.line], column)


def file_format(
    path: str | Path, error: type[TableError] = OutcomeTableError, formats: Mapping[str, str] = SUFFIXES
) -> str:
    """Return the format of a file by its suffix; raises `error` if it is unknown.

    - `formats`: `SUFFIXES` for a file to write, `READABLE` for one to read.
    """
    name = Path(path).name.lower()
    kind = formats.get(Path(name.removesuffix(".gz")).suffix)
    if kind is None or (kind in ("parquet", "xlsx") and name.endswith(".gz")):
        *suffixes, last = formats
        if error is OutcomeTableError and formats is READABLE and Path(name).suffix in (".json", ".eval"):
            raise error(f"{path}: expected a run or an outcome table, got another kind of file; {import_advice(path)}")
        raise error(
            f"{path}: expected a file that ends in {', '.join(suffixes)} or {last} (text perhaps followed by .gz), got "
            f"{shortened(Path(path).suffix)}; convert it to one of these, or rename it if it is one of them"
        )
    return kind


def import_advice(path: str | Path) -> str:
    """Return the advice for a file of another tool where an outcome table was expected."""
    command = shlex.join(["refusal-index", "import", str(path), "--out", "outcomes.parquet"])
    return f"if it holds graded answers or a log, write a table of them: {command}"


def opened(path: Path, error: type[TableError]) -> BinaryIO:
    """Open a file; raises `error` if that fails."""
    try:
        return path.open("rb")
    except OSError as problem:
        raise cannot_be_read(path, problem, error) from problem


def cannot_be_read(path: Path, problem: OSError, error: type[TableError]) -> TableError:
    """Return the error for a file that cannot be opened or read."""
    missing = isinstance(problem, FileNotFoundError)
    why = "there is no such file or folder" if missing else problem.strerror
    remedy = "name a file in it" if isinstance(problem, IsADirectoryError) else "check the path"
    return error(f"{path} cannot be read: {why}; {remedy}")


def read_content(path: Path, error: type[TableError]) -> bytes:
    """Read a whole file; raises `error` if that fails."""
    with opened(path, error) as file:
        return file.read()


def present_columns(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the columns that occur in any row."""
    return tuple(dict.fromkeys(column for row in rows for column in row.cells))


def column_names(path: Path, error: type[TableError], encoding: str = UTF_8) -> tuple[str, ...]:
    """Return the columns of a file, for JSON Lines those of its first row; raises `error` if it cannot be read."""
    source = Source.from_path(path, "row", error, encoding)
    with opened(path, error) as file:
        if source.kind == "parquet":
            with _parquet_errors(source):
                return tuple(pl.read_parquet_schema(file))
        first = next(iter_rows(source, file), None)
    return () if first is None else tuple(first.cells)


def is_in_memory(data: object) -> bool:
    """Whether `data` is a data frame or dictionaries, rather than paths of files."""
    if isinstance(data, Sequence) and not isinstance(data, str):
        return len(data) > 0 and isinstance(data[0], Mapping)
    return not isinstance(data, str | Path | None)


SEPARATORS = ",;\t|"
"""Separators of cells in CSV; spreadsheets write semicolons in many locales."""

LINES_TO_HEADER = 10
"""Lines in which the header is expected, perhaps below a title."""

RULE = re.compile(r"(:?-{3,}:?)?")
"""A cell of a row that holds nothing, or the line below a header in Markdown."""

SEPARATOR_HINTS = tuple(f"sep={mark}".strip() for mark in SEPARATORS)


ROWS_AT_A_TIME = 1000
ROWS_OF_PARQUET = 100_000
MAX_CELL_LENGTH = 2**31 - 1  # the csv module's default limit is too small for a page or a context
STAND_IN = "\ud80d"  # a lone surrogate, which cannot occur in UTF-8

Record = tuple[int, Mapping[str, Any]]


@dataclass(frozen=True)
class TextTable:
    """The columns of a table as text."""

    source: Source  # origin
    columns: tuple[str, ...]  # all columns of the file, in order
    # the requested columns; empty CSV cells and NaN are null
    frame: pl.DataFrame = field(repr=False)
    lines: pl.Series = field(repr=False)  # the first line of each row, or its number from 1

    def where(self, row: int) -> str:
        """Return a description of a row's place."""
        return self.source.place(self.lines[row])

    def values(self, name: str, kind: Kind) -> pl.Series:
        """Return the values of a column; raises the source's error for the first cell that is not of this kind."""
        text = self.frame[name].str.strip_chars().str.to_lowercase()
        text = text.set(text.is_in(NOTHING), None)
        if kind.words:
            dtype = pl.Boolean if True in kind.words.values() else pl.String
            values = text.replace_strict(kind.words, default=None, return_dtype=dtype)
        elif kind.is_whole:
            values = text.str.strip_suffix(".0").cast(pl.Int64, strict=False)
        else:
            points = text.str.replace(",", ".") if kind.high == 1 else text
            values = points.cast(pl.Float64, strict=False)
            values = values.set(~values.is_between(kind.low, kind.high), None)
        for row in (text.is_not_null() & values.is_null()).arg_true().head(1):
            raise self.source.wrong(kind.wrong(self.frame[name][row]), [self.lines[row]], name)
        return values


def read_rows(source: Source, data: object) -> list[Row]:
    """Read all rows.

    Raises the source's TableError if `data` cannot be read, or has no rows.

    - `source`: description of `data`.
    - `data`: the content of a file, or a data frame or dictionaries.
    """
    return some_rows(source, iter_rows(source, data))


def some_rows(source: Source, rows: Iterable[Row]) -> list[Row]:
    """Return all rows; raises the source's error if there are none."""
    read = list(rows)
    if not read:
        raise no_rows(source)
    return read


def iter_rows(source: Source, data: Any, problems: Problems | None = None) -> Iterator[Row]:
    """Yield rows one by one, as `read_rows`; no rows are not an error.

    - `data`: also an open file.
    - `problems`: list for errors of single rows, which are then skipped; if None, the first such error is raised.
    """
    data = io.BytesIO(data) if isinstance(data, bytes) else data
    records: Iterable[Record]
    if source.kind == "csv":
        records = _csv_records(source, _lines(source, data), problems)
    elif source.kind == "jsonl":
        records = _json_records(source, _lines(source, data), problems)
    elif source.kind == "xlsx":
        records = _workbook_records(source, data)
    elif source.kind == "parquet":
        slices = (frame.iter_rows(named=True) for frame in _slices(source, data))
        records = enumerate(itertools.chain.from_iterable(slices), start=1)
    else:
        frame = _frame(source, data)
        cells = _dictionaries(source, data) if frame is None else frame.iter_rows(named=True)
        records = enumerate(cells, start=1)
    return (Row(source, line, cells) for line, cells in records)


def read_text(
    data: object,
    columns: Sequence[str],
    holds: str,
    error: type[TableError],
    *,
    first_of_lists: bool = False,
    encoding: str = UTF_8,
) -> TextTable:
    """Read the columns `columns` that are present, as text.

    Raises `error` if `data` cannot be read, a cell holds more than one value, or there are no rows.

    - `data`: the path of a file, a data frame, or dictionaries.
    - `columns`: names of columns.
    - `holds`, `error`, `encoding`: as in `Source`.
    - `first_of_lists`: whether to take the first entry of a cell that holds a list; otherwise a list is an error.
    """
    if isinstance(data, str | Path):
        with opened(Path(data), error) as file:
            table = _text(Source.from_path(data, holds, error, encoding), file, columns, first_of_lists)
    else:
        table = _text(Source("the table", "memory", holds, error), data, columns, first_of_lists)
    if table.lines.is_empty():
        raise no_rows(table.source)
    return table


def no_rows(source: Source) -> TableError:
    """Return the error for a table without rows."""
    where = "there are any" if source.kind == "memory" else "it is the right file, and complete"
    return source.wrong(f"expected at least one {source.holds}, got none; check that {where}")


def _slices(source: Source, file: BinaryIO) -> Iterator[pl.DataFrame]:
    """Yield slices of a Parquet file: in memory, the whole can take several times its size."""
    for start in itertools.count(0, ROWS_OF_PARQUET):
        with _parquet_errors(source):
            file.seek(0)
            frame = pl.scan_parquet(file).slice(start, ROWS_OF_PARQUET).collect()
        if frame.is_empty():
            return
        yield frame


@contextmanager
def _parquet_errors(source: Source) -> Iterator[None]:
    try:  # on a broken file Polars can raise PanicException, which is not an Exception
        yield
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise source.broken(f"read as Parquet ({why[0]}); check that it is complete") from error


def _frame(source: Source, data: Any) -> pl.DataFrame | None:
    """Return data as a Polars frame; None for other data and for pandas, whose columns can mix types."""
    if not hasattr(data, "__arrow_c_stream__") or _is_of_pandas(data):
        return None
    try:
        return pl.DataFrame(data)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise source.broken(f"read as a data frame ({error}); give dictionaries, one a row") from error


def _is_of_pandas(data: object) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas"


def _dictionaries(source: Source, data: Any) -> Iterator[dict[str, Any]]:
    if _is_of_pandas(data):
        names = _each_once(source, [str(name) for name in data.columns])
        columns = (_cells_of_pandas(data.iloc[:, index]) for index in range(len(names)))
        data = (dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True))
    if isinstance(data, Mapping | str | bytes) or not isinstance(data, Iterable):
        message = f"expected a data frame, or a list of dictionaries, one a {source.holds}, got {shortened(data)}"
        raise source.wrong(message)
    for number, cells in enumerate(data, start=1):
        if not isinstance(cells, Mapping):
            message = f"expected an object (a dictionary) from columns to cells, got {shortened(cells)}"
            raise source.wrong(message, [number])
        yield {str(name): _plain(cell) for name, cell in cells.items()}


def _cells_of_pandas(column: Any) -> list[Any]:
    """Return the cells of a pandas column; integers that became floats because of missing values are restored."""
    is_present = column.notna()
    cells: list[Any] = column.astype(object).where(is_present, None).tolist()
    if column.dtype.kind == "f" and not is_present.all() and all(cell is None or cell == cell // 1 for cell in cells):
        return [cell if cell is None or math.isinf(cell) else int(cell) for cell in cells]
    return cells


def _plain(cell: Any) -> Any:
    """Return a cell with arrays and tuples converted to lists."""
    cell = cell.tolist() if hasattr(cell, "tolist") else cell
    if isinstance(cell, Mapping):
        return {name: _plain(part) for name, part in cell.items()}
    return [_plain(part) for part in cell] if isinstance(cell, list | tuple) else cell


MAX_LINE = 64 << 20
"""Maximum length of a line in characters."""

GZIP = b"\x1f\x8b"
"""The first bytes of a compressed file."""

MAX_UNPACKED = 256 << 20
MAX_RATIO = 100
"""A compressed file may unpack to this many bytes, or to this many times its own size if that is more."""

MAX_UNPACKED_LINES = 2_000_000
"""Maximum number of lines of a compressed file."""

INTENDED = "unpack it yourself if this is intended"


def unpack(content: bytes) -> bytes:
    """Return the content of a gzip file; raises OSError if it is too large.

    Examples
    --------
    >>> unpack(gzip.compress(b"Lima"))
    b'Lima'
    """
    most = max(MAX_UNPACKED, MAX_RATIO * len(content))
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        unpacked = file.read(most + 1)
    if len(unpacked) > most:
        raise OSError(errno.EFBIG, f"it unpacks to more than {most:,} bytes")
    return unpacked


def _lines(source: Source, file: BinaryIO) -> Iterator[str]:
    """Yield lines, which end at line feeds only: JSON strings may contain other line separators."""
    packed = source.name.lower().endswith(".gz") or file.read(len(GZIP)) == GZIP
    file.seek(0)
    try:
        yield from _coded_lines(source, file, packed=packed)
    except (OSError, EOFError, zlib.error) as error:
        broken = "unpacked ({}); check that it is complete and is gzip" if packed else "read ({}); try again"
        raise source.broken(broken.format(error)) from error


def _coded_lines(source: Source, file: BinaryIO, *, packed: bool) -> Iterator[str]:
    """Yield the lines of a file; a compressed one is not trusted to be as large as it looks."""
    most = max(MAX_UNPACKED, MAX_RATIO * file.seek(0, os.SEEK_END)) if packed else math.inf
    file.seek(0)
    stream = gzip.GzipFile(fileobj=file) if packed else file
    encoding = encoding_of(stream.read(4), source.encoding)
    stream.seek(0)
    lines = io.TextIOWrapper(stream, encoding, newline="\n")
    try:
        for number in itertools.count(1):
            line = lines.readline(MAX_LINE + 1)
            if len(line) > MAX_LINE:
                message = f"expected lines of at most {MAX_LINE:,} characters, got a longer one; split it"
                raise source.wrong(message, [number])
            if packed and stream.tell() > most:
                raise source.wrong(f"it unpacks to more than {most:,} bytes; {INTENDED}")
            if packed and number > MAX_UNPACKED_LINES:
                raise source.wrong(f"it unpacks to more than {MAX_UNPACKED_LINES:,} lines; {INTENDED}")
            if not line:
                return
            yield line
    except UnicodeDecodeError as error:
        raise source.in_another_encoding(error, number - 1) from error
    finally:
        with suppress(ValueError):  # of a file that its opener has closed, which is not for this function to do
            lines.detach()


def _csv_records(source: Source, lines: Iterable[str], problems: Problems | None) -> Iterator[Record]:
    csv.field_size_limit(MAX_CELL_LENGTH)
    before, separator = _separator(rows := _csv_lines(lines))
    reader = csv.reader(itertools.chain(before, rows), strict=True, delimiter=separator)
    header: list[str] | None = None
    has_rows = False
    line = 1
    try:
        for record in reader:
            begins = line
            line = reader.line_num + 1
            cells = [cell.replace(STAND_IN, "\r") for cell in record] if STAND_IN in "".join(record) else record
            # In a table with only grades, an empty row is a question without a grade.
            is_unscored = header is not None and set(header) == {"refused", "wrong"} and len(cells) == len(header)
            if all(RULE.fullmatch(cell.strip()) for cell in cells) and not is_unscored:
                continue
            is_title = header is not None and len(header) == 1 < len(cells) and " " in header[0] and not has_rows
            if header is None or is_title:
                header = _checked_header(source, cells)
                continue
            has_rows = True
            if len(cells) == len(header):
                yield begins, dict(zip(header, cells, strict=True))
            elif len(cells) > len(header):
                message = f"expected {len(header)} cells as in the header, got {len(cells)}"
                _report(source.wrong(f"{message}; put quotes around text that holds {separator!r}", [begins]), problems)
            else:
                yield begins, dict(itertools.zip_longest(header, cells, fillvalue=""))
    except csv.Error as error:
        _report(source.wrong(f"malformed CSV ({error}); check the quotes in this place", [line]), problems)


def _separator(lines: Iterator[str]) -> tuple[list[str], str]:
    """Return the lines up to the first one with several cells, and the separator that splits it into the most.

    A first line such as ``sep=;``, which tells a spreadsheet the separator, is emptied.
    """
    before: list[str] = []
    sizes = dict.fromkeys(SEPARATORS, 0)
    for line in itertools.islice(lines, LINES_TO_HEADER):
        is_hint = not before and line.strip().casefold() in SEPARATOR_HINTS
        before.append("\n" if is_hint else line)
        sizes = {mark: len(next(csv.reader(before[-1:], delimiter=mark), ())) for mark in SEPARATORS}
        if max(sizes.values()) > 1:
            break
    return before, max(SEPARATORS, key=sizes.__getitem__)


def _csv_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines with lone carriage returns hidden from the csv module: many tools do not quote them.

    If the header has one, they are line ends, as in files of old Macintoshes.
    """
    are_ends = False
    for number, line in enumerate(lines):
        body = line.rstrip("\r\n")
        are_ends = "\r" in body if number == 0 else are_ends
        if are_ends:
            yield from io.StringIO(line, newline="")
        else:
            yield body.replace("\r", STAND_IN) + line[len(body) :]


def _checked_header(source: Source, header: list[str]) -> list[str]:
    header = [column.strip() for column in header]
    # columns of promptfoo's CSV
    return _each_once(source, _numbered(header) if set(header) >= {"Status", "Grader Reason"} else header)


def _numbered(header: list[str]) -> list[str]:
    """Return the header of promptfoo's CSV, which repeats columns for every prompt, with numbers for repetitions."""
    before = [header[:index].count(name) for index, name in enumerate(header)]
    return [f"{name} {number + 1}" if number else name for name, number in zip(header, before, strict=True)]


def _each_once(source: Source, names: list[str]) -> list[str]:
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise source.wrong(f"expected every column once, got {twice[0]!r} twice; rename or remove one of the two")
    return names


def _workbook_records(source: Source, data: BinaryIO) -> Iterator[Record]:
    """Yield the rows of the first sheet of a workbook below its header."""
    try:
        rows = list(workbook_rows(data, source.part))
    except ValueError as error:
        message, *sheets = error.args
        broken = source.broken(f"read as a workbook: {message}")
        raise (broken.with_remedy("rows", *sheets) if sheets and source.holds == "answer" else broken) from error
    if rows:
        header = _each_once(source, [str(cell or "").strip() for cell in rows[0][1]])
        for number, cells in rows[1:]:
            yield number, dict(itertools.zip_longest(header, cells[: len(header)]))


def _json_records(source: Source, lines: Iterable[str], problems: Problems | None) -> Iterator[Record]:
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            message = f"expected one JSON object, got {shortened(text[:100])} ({error}); correct the line"
            _report(source.wrong(message, [line]), problems)
            continue
        if isinstance(record, dict):
            yield line, record
        else:
            message = f"expected a JSON object, got {shortened(record)}; write one object a line"
            _report(source.wrong(message, [line]), problems)


def _report(problem: TableError, problems: Problems | None) -> None:
    """Add an error to `problems`, or raise it if `problems` is None."""
    if problems is None:
        raise problem
    problems.append(problem)


def _text(source: Source, data: Any, wanted: Sequence[str], first_of_lists: bool) -> TextTable:
    frame: pl.DataFrame | None = None
    if source.kind == "parquet":
        with _parquet_errors(source):
            names = list(pl.read_parquet_schema(data))
            data.seek(0)
            frame = pl.read_parquet(data, columns=[name for name in names if name in wanted] or names[:1])
    elif source.kind == "memory" and (frame := _frame(source, data)) is not None:
        names = frame.columns
    if frame is None:
        return _text_of_rows(source, iter_rows(source, data), wanted, first_of_lists)
    columns = [_text_column(source, frame[name], first_of_lists) for name in names if name in wanted]
    return TextTable(source, tuple(names), pl.DataFrame(columns), pl.int_range(1, frame.height + 1, eager=True))


def _text_column(source: Source, column: pl.Series, first_of_lists: bool) -> pl.Series:
    if first_of_lists and isinstance(column.dtype, pl.List):
        column = column.list.first()
    wrong = source.wrong(f"expected single values, got {column.dtype}; write one value a row", column=column.name)
    if column.dtype.is_nested():
        raise wrong
    try:
        return (column.fill_nan(None) if column.dtype.is_float() else column).cast(pl.String)
    except pl.exceptions.PolarsError as error:
        raise wrong from error


def _text_of_rows(source: Source, rows: Iterator[Row], wanted: Sequence[str], first_of_lists: bool) -> TextTable:
    """Read rows in chunks, because Python strings take twice the memory of a Polars column."""
    schema = dict.fromkeys(wanted, pl.String)
    names: dict[str, None] = {}
    lines: list[int] = []
    chunks = [pl.DataFrame(schema=schema)]
    while some := list(itertools.islice(rows, ROWS_AT_A_TIME)):
        lines += [row.line for row in some]
        names |= dict.fromkeys(present_columns(some))
        cells = {name: [_text_cell(row, name, first_of_lists) for row in some] for name in schema}
        chunks.append(pl.DataFrame(cells, schema))
    frame = pl.concat(chunks).select(name for name in schema if name in names)
    return TextTable(source, tuple(names), frame, pl.Series(lines, dtype=pl.Int64))


def _text_cell(row: Row, column: str, first_of_lists: bool) -> str | None:
    value = row.cells.get(column)
    if row.source.kind == "csv":
        return value or None
    if first_of_lists and isinstance(value, list):
        value = value[0] if value else None
    try:
        return verbatim(value)
    except ValueError as error:
        raise row.wrong(str(error), column) from None


@dataclass(frozen=True)
class Column:
    """A column of other tools' files: its usual names, in lower case, and how to parse its cells."""

    names: tuple[str, ...]  # matched as `plain_name`; the first one present is used
    read: Callable[[Any], Any]  # returns the value of a cell, None for an empty one; raises ValueError

    def value(self, row: Row, column: str) -> Any:
        """Return the value of a cell, or raise TableError."""
        try:
            return self.read(row.cells.get(column))
        except ValueError as error:
            raise row.wrong(str(error), column) from None


def plain_name(column: str) -> str:
    """Return the name of a column in lower case, with underscores between words.

    >>> plain_name("Judge Label"), plain_name("actualOutput")
    ('judge_label', 'actual_output')
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.strip())
    return apart.casefold().replace(" ", "_").replace("-", "_")


def verbatim(cell: Any) -> str | None:
    """Return a cell as text; None if it is empty."""
    if isinstance(cell, str):
        return sound_text(cell)
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    if not isinstance(cell, int | float):
        raise ValueError(
            f"expected a single value, got {shortened(cell)}; write one, or name a value in it by its path as its "
            "column, as in response.text or choices.0.text"
        )
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def text(cell: Any) -> str | None:
    """Return a cell as text without surrounding white space; None if it is empty."""
    return (verbatim(cell) or "").strip() or None


def values_by_role(row: Row, names: Mapping[str, str], columns: Mapping[str, Column]) -> dict[str, Any]:
    """Return the values of a row by role, None for a role without a column; raises TableError for an invalid cell.

    - `names`: column by role, from `resolve_columns`.
    - `columns`: how to parse the cells of each role.
    """
    return {role: columns[role].value(row, names[role]) if role in names else None for role in columns}


def resolve_columns(
    source: Source,
    present: Collection[str],
    names: Mapping[str, str],
    usual: Mapping[str, Column],
    *,
    strict: bool = False,
) -> dict[str, str]:
    """Return the column of every role that has one.

    Raises TableError if a role is unknown, or a given column is missing.

    - `source`: for messages.
    - `present`: the columns of the table.
    - `names`: column by role, from the user; other roles are found by their usual names.
    - `usual`: the roles and their usual columns.
    - `strict`: whether it is an error if two columns match one role.

    >>> usual = {"question": Column(("question", "problem"), text), "grade": Column(("grade", "verdict"), text)}
    >>> source = Source("x.csv", "csv", "answer", TableError)
    >>> resolve_columns(source, ["Problem", "my_grade"], {"grade": "my_grade"}, usual)
    {'question': 'Problem', 'grade': 'my_grade'}
    """
    for role, name in names.items():
        if role not in usual:
            message = f"columns (--column): expected roles out of {', '.join(usual)}, got {role!r}"
            raise source.error(message + suggestion(role, usual))
        if name not in present:
            raise missing_column(source, present, role, name)
    taken = () if strict else names.values()  # given for another role
    free = [column for column in present if column not in taken]
    by_role: dict[str, str] = {}
    for role, column in usual.items():
        free = [name for name in free if name not in by_role.values()]
        matching = [name for usual_name in column.names for name in free if plain_name(name) == usual_name]
        if role in names:
            by_role[role] = names[role]
        elif strict and len(matching) > 1:
            message = f"both {matching[0]!r} and {matching[1]!r} could hold the {role}; say which, for instance "
            raise source.wrong(f"{message}{role}={matching[0]}")
        elif matching:
            by_role[role] = matching[0]
    return by_role


def missing_column(source: Source, present: Collection[str], role: str, column: str) -> TableError:
    """Return the error for a missing column of a role."""
    by_beginning = {name.partition(".")[0]: name for name in reversed([*present])}  # `answers`: answers.text
    similar = nearest(column, by_beginning, cutoff=0.7)
    guess = by_beginning[similar] if similar else None
    advice = f"{f'; did you mean {guess!r}?' if guess else ';'} say which column it is"
    beginning = next((name for name in present if column.startswith(plain_name(name))), "NAME")
    error = source.lacks(f"a column {column!r} with the {role}", present, advice)
    return error.with_remedy("column", f"{role}={guess or beginning}")
