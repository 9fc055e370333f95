r"""Tables as users provide them, and the outcome table: CSV, JSON Lines, Parquet, data frames, dictionaries.

The one reader of all of them. It knows where each row stands, so that every message can name the place; what the cells
mean is up to whoever asks for them, as rows (`read_rows`) or as columns of text (`read_text`).

Every engine fills it and every study starts from it. Two columns are enough to score, `refused` and `wrong`; the rest
says which question it was and why. Three file formats hold it, told apart by the suffix: Parquet, CSV and JSON Lines,
the last two also compressed as ``.gz``. What was written is read back exactly.

A CSV file is safe to open in a spreadsheet. A text cell that a spreadsheet could take for a formula (it begins with
``=``, ``+``, ``-``, ``@``, one of their full-width forms, a tab or a line break) is written with an apostrophe before
it. So that reading can take exactly that apostrophe away, text that itself begins with an apostrophe gets another one,
and text of no characters is written as a single apostrophe, whereas an empty cell is null. It is safe to print as well:
a control character other than a tab or a line break is written as an escape (``\x1b``), and a backslash before what
looks like one is doubled. Both are undone only in files that carry the column `schema_version`: other tools' files are
read as they are, with every empty cell null.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import math
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from refusal_index.data.errors import OutcomeTableError, TableError, nearest, other_separator, shortened
from refusal_index.data.files import sound_text, write_atomically
from refusal_index.data.outcome import Outcome, Question
from refusal_index.data.sampling import COLUMNS, OWN_COLUMNS, Sampling
from refusal_index.data.schema import GRADED, GRADES, GROUP, KEY, OPTIONAL, REQUIRED, SCHEMA, SCHEMA_VERSION, check_rows
from refusal_index.data.settings import Problems, Row, Source, file_format, opened, present_columns

TRUTH = {
    **dict.fromkeys(("true", "t", "1", "yes", "1.0"), True),
    **dict.fromkeys(("false", "f", "0", "no", "0.0"), False),
}
"""Words for yes and no, in lower case; "1.0" and "0.0" are what a table with gaps becomes on its way through pandas."""

NOTHING = ("", "nan", "na", "null", "none")
"""Words for an empty cell, in lower case, where a truth value, a grade or a number is expected: of pandas, R, SQL."""

ROWS_AT_A_TIME = 1000
ROWS_OF_PARQUET = 100_000
LONGEST_CELL = 2**31 - 1  # a page or a context can be longer than the csv module takes unless told
STAND_IN = "\ud80d"  # half of a surrogate pair, which no text in UTF-8 holds

Record = tuple[int, Mapping[str, Any]]


@dataclass(frozen=True)
class TextTable:
    """The columns of a table as text."""

    source: Source  # where they come from
    columns: tuple[str, ...]  # all that are there, in their order
    # Those that were asked for. An empty cell of a CSV file is null, and so is a number that is none.
    frame: pl.DataFrame = field(repr=False)
    lines: pl.Series = field(repr=False)  # the line on which each row begins, or else its number from 1

    def where(self, row: int) -> str:
        """Name the place of a row in words."""
        return self.source.place(self.lines[row])


def read_rows(source: Source, data: object, problems: Problems | None = None) -> list[Row]:
    """Read all rows.

    Raises TableError as the source has it, if `data` cannot be read, or there is no row.

    - `source`: what `data` is.
    - `data`: the content of a file, or a data frame or dictionaries.
    - `problems`: gathers what is wrong with single rows, which are then left out; None raises the first of them.
    """
    found = list(iter_rows(source, data, problems))
    if not found and not problems:
        raise no_rows(source)
    return found


def iter_rows(source: Source, data: object, problems: Problems | None = None) -> Iterator[Row]:
    """Yield the rows as they are read, none where there is none; everything else is as with `read_rows`.

    - `data`: also an open file.
    """
    return _rows(source, io.BytesIO(data) if isinstance(data, bytes) else data, problems)


def read_text(
    data: object, wanted: Sequence[str], holds: str, error: type[TableError], *, first_of_lists: bool = False
) -> TextTable:
    """Read those of the columns `wanted` that are there, as text.

    Raises TableError as `error` has it, if `data` cannot be read, a cell holds more than one value, or there is no row.

    - `data`: the path of a file, a data frame, or dictionaries.
    - `wanted`: columns.
    - `holds`, `error`: as in `Source`.
    - `first_of_lists`: whether the first entry stands for a cell that holds a list; otherwise that is an error.
    """
    if isinstance(data, str | Path):
        with opened(Path(data), error) as file:
            table = _text(Source.of(data, holds, error), file, wanted, first_of_lists)
    else:
        table = _text(Source("the table", "memory", holds, error), data, wanted, first_of_lists)
    if table.lines.is_empty():
        raise no_rows(table.source)
    return table


def no_rows(source: Source) -> TableError:
    """Return the error for a table without rows."""
    where = "there are any" if source.kind == "memory" else "it is the right file, and whole"
    return source.wrong(f"expected at least one {source.holds}, got none; check that {where}")


def _rows(source: Source, data: Any, problems: Problems | None) -> Iterator[Row]:
    records: Iterable[Record]
    if source.kind == "csv":
        records = _csv_records(source, _lines(source, data), problems)
    elif source.kind == "jsonl":
        records = _json_records(source, _lines(source, data), problems)
    elif source.kind == "parquet":
        slices = (frame.iter_rows(named=True) for frame in _slices(source, data))
        records = enumerate(itertools.chain.from_iterable(slices), start=1)
    else:
        frame = _frame(source, data)
        cells = _dictionaries(source, data) if frame is None else frame.iter_rows(named=True)
        records = enumerate(cells, start=1)
    return (Row(source, line, cells) for line, cells in records)


def _slices(source: Source, file: BinaryIO) -> Iterator[pl.DataFrame]:
    """Yield a file of Parquet part by part, as the whole can take a multiple of its size."""
    for start in itertools.count(0, ROWS_OF_PARQUET):
        with _telling_what_is_broken(source):
            file.seek(0)
            frame = pl.scan_parquet(file).slice(start, ROWS_OF_PARQUET).collect()
        if frame.is_empty():
            return
        yield frame


def _parquet(source: Source, file: BinaryIO, wanted: Collection[str]) -> pl.DataFrame:
    with _telling_what_is_broken(source):
        columns = list(pl.read_parquet_schema(file))
        file.seek(0)
        chosen = [name for name in columns if name in wanted] or columns[:1]
        frame = pl.read_parquet(file, columns=chosen)
    return frame.with_columns(pl.lit(None).alias(name) for name in columns if name not in chosen).select(columns)


@contextmanager
def _telling_what_is_broken(source: Source) -> Iterator[None]:
    try:  # a broken file can make Polars panic, which is no Exception
        yield
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise source.broken(f"read as Parquet ({why[0]}); check that it is complete") from error


def _frame(source: Source, data: Any) -> pl.DataFrame | None:
    """Return a data frame as Polars has it; None for what is no frame, or pandas', which can mix types in a column."""
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
        data = _records_of_pandas(source, data)
    if isinstance(data, Mapping | str | bytes) or not isinstance(data, Iterable):
        said = f"expected a data frame, or a list of dictionaries, one a {source.holds}, got {shortened(data)}"
        raise source.wrong(said)
    for number, cells in enumerate(data, start=1):
        if not isinstance(cells, Mapping):
            said = f"expected an object (a dictionary) from columns to cells, got {shortened(cells)}"
            raise source.wrong(said, [number])
        yield {str(name): _plain(cell) for name, cell in cells.items()}


def _records_of_pandas(source: Source, data: Any) -> Iterator[dict[str, Any]]:
    names = _each_once(source, [str(name) for name in data.columns])
    columns = (_cells_of_pandas(data.iloc[:, place]) for place in range(len(names)))
    return (dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True))


def _cells_of_pandas(column: Any) -> list[Any]:
    """Return the cells of a column; whole numbers that pandas made fractions of, to have gaps, are whole again."""
    there = column.notna()
    cells: list[Any] = column.astype(object).where(there, None).tolist()
    if column.dtype.kind == "f" and not there.all() and all(cell is None or cell == cell // 1 for cell in cells):
        return [cell if cell is None or math.isinf(cell) else int(cell) for cell in cells]
    return cells


def _plain(cell: Any) -> Any:
    """Return a cell as JSON would have it, without arrays and tuples."""
    cell = cell.tolist() if hasattr(cell, "tolist") else cell
    if isinstance(cell, Mapping):
        return {name: _plain(part) for name, part in cell.items()}
    return [_plain(part) for part in cell] if isinstance(cell, list | tuple) else cell


def _lines(source: Source, file: BinaryIO) -> Iterator[str]:
    """Yield lines of text, which end at line feeds only: a JSON string may hold other characters that end lines."""
    packed = source.name.lower().endswith(".gz")
    coded: Iterable[bytes] = gzip.GzipFile(fileobj=file) if packed else file
    number = 0
    try:
        for number, line in enumerate(coded, start=1):
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise source.wrong("expected text in UTF-8, got other bytes; save it as UTF-8", [number]) from error
    except (OSError, EOFError, zlib.error) as error:
        what = "unpacked ({}); check that it is complete and is gzip" if packed else "read ({}); try again"
        raise source.broken(what.format(error)) from error


def _csv_records(source: Source, lines: Iterable[str], problems: Problems | None) -> Iterator[Record]:
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(_csv_lines(lines), strict=True)
    header: list[str] | None = None
    line = 1
    try:
        for found in reader:
            begins, line = line, reader.line_num + 1
            cells = [cell.replace(STAND_IN, "\r") for cell in found] if STAND_IN in "".join(found) else found
            if not any(map(str.strip, cells)) and not _may_be_unscored(header, cells):
                continue
            if header is None:
                header = _checked_header(source, cells)
            elif len(cells) == len(header):
                yield begins, dict(zip(header, cells, strict=True))
            elif len(cells) > len(header):
                said = f"expected {len(header)} cells as in the header, got {len(cells)}"
                _tell(source.wrong(f"{said}; put quotes around text that holds commas", [begins]), problems)
            else:
                yield begins, dict(itertools.zip_longest(header, cells, fillvalue=""))
    except csv.Error as error:
        _tell(source.wrong(f"malformed CSV ({error}); check the quotes in this place", [line]), problems)


def _may_be_unscored(header: list[str] | None, cells: list[str]) -> bool:
    """Whether a row without a word is a question without a grade: in a table of nothing but grades."""
    return header is not None and set(header) == {"refused", "wrong"} and len(cells) == len(header)


def _csv_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines with carriage returns that stand alone out of the csv module's sight: many tools do not quote them.

    Only where the header ends in one do they end lines, as in files of old Macintoshes.
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
    if len(header) == 1 and (separator := other_separator(header[0])):
        raise source.wrong(f"expected cells separated by commas, found {separator!r}; save it with commas")
    return _each_once(source, header)


def _each_once(source: Source, names: list[str]) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise source.wrong(f"expected every column once, got {twice[0]!r} twice; rename or remove one of the two")
    return names


def _json_records(source: Source, lines: Iterable[str], problems: Problems | None) -> Iterator[Record]:
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            said = f"expected one JSON object, got {shortened(text[:100])} ({error}); mend the line"
            _tell(source.wrong(said, [line]), problems)
            continue
        if isinstance(record, dict):
            yield line, record
        else:
            said = f"expected a JSON object, got {shortened(record)}; write one object a line"
            _tell(source.wrong(said, [line]), problems)


def _tell(problem: TableError, problems: Problems | None) -> None:
    """Gather a problem, or raise it where nobody gathers."""
    if problems is None:
        raise problem
    problems.append(problem)


def _text(source: Source, data: Any, wanted: Sequence[str], first_of_lists: bool) -> TextTable:
    frame = _parquet(source, data, wanted) if source.kind == "parquet" else None
    frame = _frame(source, data) if source.kind == "memory" else frame
    if frame is None:
        return _text_of_rows(source, _rows(source, data, None), wanted, first_of_lists)
    present = [name for name in frame.columns if name in wanted]
    columns = [_text_column(source, frame[name], first_of_lists) for name in present]
    return TextTable(source, tuple(frame.columns), pl.DataFrame(columns), pl.int_range(1, frame.height + 1, eager=True))


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
    """Read some rows at a time, as Python's own text takes twice the memory of a column."""
    schema = dict.fromkeys(wanted, pl.String)
    found: dict[str, None] = {}
    lines: list[int] = []
    chunks = [pl.DataFrame(schema=schema)]
    while some := list(itertools.islice(rows, ROWS_AT_A_TIME)):
        lines += [row.line for row in some]
        found |= dict.fromkeys(present_columns(some))
        cells = {name: [_text_cell(row, name, first_of_lists) for row in some] for name in schema}
        chunks.append(pl.DataFrame(cells, schema))
    frame = pl.concat(chunks).select(name for name in schema if name in found)
    return TextTable(source, tuple(found), frame, pl.Series(lines, dtype=pl.Int64))


def _text_cell(row: Row, column: str, first_of_lists: bool) -> str | None:
    value = row.cells.get(column)
    if row.source.kind == "csv":
        return value or None
    if first_of_lists and isinstance(value, list):
        value = value[0] if value else None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return sound_text(str(value))
    said = f"expected a single value, got {shortened(value)}; write text, a number, true, false or null"
    raise row.wrong(said, column)


def parse(raw: TextTable, sampling: Sampling = OWN_COLUMNS) -> pl.DataFrame:
    """Understand every column, fill in those that may be left out, and check the rows.

    - `sampling`: which columns to take for `cluster` and `weight`.
    """
    _check_version(raw)
    for name in REQUIRED:
        _require(raw, name)
    _refuse_misspelt(raw)
    own = [_column(raw, name) for name in SCHEMA if name not in COLUMNS]
    sampled = (_sampled_column(raw, name, sampling) for name in COLUMNS)
    # In tables of other tools a column that is called so may hold anything.
    probabilities = [name for name in OPTIONAL if {name, "schema_version"} <= set(raw.columns)]
    table = pl.DataFrame([*own, *sampled, *(_probabilities(raw, name) for name in probabilities)])
    table = table.select(*SCHEMA, *probabilities)
    check_rows(table, raw.where)
    return table


def _column(raw: TextTable, name: str) -> pl.Series:
    kind = SCHEMA[name]
    if name == "schema_version":
        return pl.repeat(SCHEMA_VERSION, len(raw.lines), dtype=kind, eager=True).alias(name)
    if name not in raw.columns:
        return _absent(raw, name)
    if kind == pl.Boolean:
        return _booleans(raw, name)
    if kind == pl.Int64:
        return _whole_numbers(raw, name).fill_null(0)
    if name in GRADED:
        return _grades(raw, name)
    return _question_ids(raw) if name == "question_id" else raw.frame[name]


def _sampled_column(raw: TextTable, name: str, sampling: Sampling) -> pl.Series:
    column = sampling.column(name)
    if column not in raw.columns:
        if getattr(sampling, name) is None:
            return _absent(raw, name)
        raise raw.source.lacks(f"a column {column!r} for --{name}", raw.columns, "; name one of these")
    found = raw.frame[column] if name == "cluster" else _numbers(raw, column)
    if getattr(sampling, name) is not None and found.null_count() == found.len():
        raise raw.source.wrong(
            f"expected a {name} for every question, got an empty column; name another", column=column
        )
    return found.alias(name)


def _absent(raw: TextTable, name: str) -> pl.Series:
    height = len(raw.lines)
    if name == "question_id":
        # with the file's name, so that rows of different files are never taken for the same question
        numbers = pl.int_range(1, height + 1, eager=True).cast(pl.String)
        return (f"{Path(raw.source.name).name} row " + numbers).alias(name)
    return pl.repeat(0 if name == "draw" else None, height, dtype=SCHEMA[name], eager=True).alias(name)


def _tidied(raw: TextTable, name: str) -> pl.Series:
    """Text in lower case without surrounding space, null where nothing is left or a word says so."""
    text = raw.frame[name].str.strip_chars().str.to_lowercase()
    return text.set(text.is_in(NOTHING), None)


def _booleans(raw: TextTable, name: str) -> pl.Series:
    text = _tidied(raw, name)
    values = text.replace_strict(TRUTH, default=None, return_dtype=pl.Boolean)
    expected = "true, false, 1, 0, yes, no or nothing"
    _refuse_first(raw, name, text.is_not_null() & values.is_null(), expected, "an unscored question has an empty cell")
    return values


def _whole_numbers(raw: TextTable, name: str) -> pl.Series:
    text = _tidied(raw, name)
    numbers = text.str.strip_suffix(".0").cast(pl.Int64, strict=False)
    _refuse_first(raw, name, text.is_not_null() & numbers.is_null(), "a whole number", "write digits only")
    return numbers


def _probabilities(raw: TextTable, name: str) -> pl.Series:
    text = _tidied(raw, name)
    numbers = text.cast(pl.Float64, strict=False)
    _refuse_first(raw, name, text.is_not_null() & numbers.is_null(), "a probability", "write it as a decimal fraction")
    return numbers


def _numbers(raw: TextTable, name: str) -> pl.Series:
    text = _tidied(raw, name)
    numbers = text.cast(pl.Float64, strict=False)
    _refuse_first(raw, name, text.is_not_null() & numbers.is_null(), "a number", "write it with a point, as in 2.5")
    return numbers


def _grades(raw: TextTable, name: str) -> pl.Series:
    grades = _tidied(raw, name)
    bad = grades.is_not_null() & ~grades.is_in(GRADES)
    _refuse_first(raw, name, bad, f"one of {', '.join(GRADES)} or nothing", "translate the grades first")
    return grades


def _question_ids(raw: TextTable) -> pl.Series:
    ids = raw.frame["question_id"]
    advice = "give every question an id, or leave the column out to number the rows"
    _refuse_first(raw, "question_id", ids.is_null(), "an id", advice)
    return ids


def _refuse_first(raw: TextTable, name: str, bad: pl.Series, expected: str, advice: str) -> None:
    row = bad.arg_max()
    if row is None or not bad[row]:
        return
    got = raw.frame[name][row]
    shown = "an empty cell" if got is None else shortened(got)
    raise raw.source.wrong(f"expected {expected}, got {shown}; {advice}", [raw.lines[row]], name)


def _check_version(raw: TextTable) -> None:
    if "schema_version" not in raw.columns:
        return
    found = _whole_numbers(raw, "schema_version").drop_nulls()
    other = found.filter(found != SCHEMA_VERSION)
    if len(other):
        raise raw.source.wrong(
            f"expected schema_version {SCHEMA_VERSION}, got {other[0]}; read the file with the release that wrote it"
        )


def _require(raw: TextTable, name: str) -> None:
    if name not in raw.columns:
        guess = nearest(name, raw.columns)
        advice = f"; rename {guess!r} to {name!r}" if guess else f"; add a column {name!r} of true and false"
        raise raw.source.lacks(f"a column {name!r}", raw.columns, advice)


def _refuse_misspelt(raw: TextTable) -> None:
    """Stop where a column that tells rows apart is misspelt: ignored, it would merge what belongs apart."""
    missing = [name for name in KEY if name not in raw.columns]
    for found in raw.columns:
        meant = None if found in SCHEMA else nearest(found.strip(), missing, cutoff=0.8)
        if meant:
            raise raw.source.wrong(
                f"column {found!r} looks like {meant!r}, which is missing; "
                f"rename it to {meant!r}, or to something less similar if it is something else"
            )


__all__ = [
    "GROUP",
    "KEY",
    "SCHEMA",
    "SCHEMA_VERSION",
    "Identification",
    "OutcomeTableError",
    "outcome_table",
    "read_outcomes",
    "read_tables",
    "write_outcomes",
]

# Spreadsheets of some languages take the full-width forms of the first four for formulas too.
_DEFUSED = "[=+\\-@\uff1d\uff0b\uff0d\uff20\t\r\n']"


@dataclass(frozen=True)
class Identification:
    """Whose outcome it is: the columns that come before the question."""

    # model, dataset, variant: who was asked what under which prompt
    model: str | None
    dataset: str | None
    variant: str | None
    draw: int = 0  # number of the repetition, from 0


def outcome_table(rows: Iterable[tuple[Identification, Question, Outcome]]) -> pl.DataFrame:
    """Build the table from records, in their order.

    Raises OutcomeTableError if a question occurs twice in one draw, or a row contradicts itself.

    - `rows`: for each outcome whose it is, the question and what became of it.
    - returned: with the columns of `SCHEMA`.

    >>> asked = Identification("almanac/base", "almanac", "normal")
    >>> table = outcome_table([(asked, Question("q1", "Capital of France?", "Paris"), Outcome(False, False))])
    >>> table.select("question_id", "refused", "wrong").rows()
    [('q1', False, False)]
    """
    columns = zip(*(_record(*row) for row in rows), strict=True)  # which Polars takes much faster than rows
    table = pl.DataFrame(dict(zip(SCHEMA, columns, strict=False)), schema=dict(SCHEMA))
    check_rows(table, lambda row: f"row {row + 1}")
    return table


def _record(asked: Identification, question: Question, outcome: Outcome) -> tuple[str | int | bool | None, ...]:
    values = (
        *(asked.model, asked.dataset, asked.variant, question.question_id, asked.draw, outcome.refused, outcome.wrong),
        *(_value(outcome.first_grade), _value(outcome.forced_grade), outcome.unscored_reason),
        *(question.topic, None, None, question.text, question.gold),
        *(outcome.first_reply, outcome.forced_reply, SCHEMA_VERSION),
    )
    return tuple(value if not isinstance(value, str) or value.isascii() else sound_text(value) for value in values)


def _value(grade: str | None) -> str | None:
    return None if grade is None else str(grade)


def read_outcomes(data: object, sampling: Sampling = OWN_COLUMNS) -> pl.DataFrame:
    """Read an outcome table.

    Raises OutcomeTableError if a file cannot be read, lacks a column, holds a value that is not what its column
    expects, a row twice or a row that contradicts itself, is empty, or has another `schema_version`.

    - `data`: the path of a Parquet, CSV or JSON Lines file, told by its suffix, or a data frame (of Polars, pandas or
      Arrow), or dictionaries, one a row. It needs the columns `refused` and `wrong`, which hold true, false, t, f, 1,
      0, yes or no in any case, or nothing: an empty cell, NaN, NA, null or none. Of the other columns of `SCHEMA`,
      those that are missing are filled: draw 0, the file's name and the number of the row as `question_id`, null
      elsewhere. Columns of other names are ignored.
    - `sampling`: the columns to take for `cluster` and `weight`, of any name.
    - returned: with the columns of `SCHEMA`, and those of `OPTIONAL` that are there, if it has `schema_version` too.
    """
    wanted = tuple(dict.fromkeys((*SCHEMA, *OPTIONAL, *map(sampling.column, COLUMNS))))
    raw = read_text(data, wanted, "row of outcomes", OutcomeTableError)
    if raw.source.kind == "csv" and "schema_version" in raw.columns:
        raw = replace(raw, frame=undo_safe(raw.frame))
    return parse(raw, sampling)


def read_tables(paths: Sequence[Path], sampling: Sampling = OWN_COLUMNS) -> pl.DataFrame:
    """Read outcome tables into one; where several do not say which model they are about, their file names do.

    Raises OutcomeTableError if a file cannot be used, or a row of one occurs in another.
    """
    tables = [read_outcomes(path, sampling) for path in paths]
    if len(paths) > 1:
        tables = [
            table.with_columns(pl.col("model").fill_null(path.stem)) for path, table in zip(paths, tables, strict=True)
        ]
    together = pl.concat(tables, how="diagonal")  # columns of `OPTIONAL` need not be in all
    places = [(path, row) for path, table in zip(paths, tables, strict=True) for row in range(1, len(table) + 1)]
    check_rows(together, lambda row: "{}, row {}".format(*places[row]))
    return together


def write_outcomes(table: pl.DataFrame, path: str | Path) -> None:
    """Write an outcome table, replacing the file at once or not at all.

    Raises OutcomeTableError if the table has other columns, a row twice or a row that contradicts itself, or the suffix
    is not known.

    - `table`: with the columns of `SCHEMA`, as `outcome_table` and `read_outcomes` return it.
    - `path`: the suffix says the format: Parquet, CSV or JSON Lines.
    """
    path = Path(path)
    kind = file_format(path)
    _check_columns(table)
    check_rows(table, lambda row: f"row {row + 1}")
    if kind == "parquet":
        whole = io.BytesIO()
        table.write_parquet(whole)
        write_atomically(path, whole.getvalue())
        return
    content = (csv_text(table) if kind == "csv" else table.write_ndjson()).encode()
    # A fixed time stamp: the same table gives the same bytes.
    write_atomically(path, gzip.compress(content, mtime=0) if path.name.lower().endswith(".gz") else content)


def _check_columns(table: pl.DataFrame) -> None:
    expected = {**SCHEMA, **{name: kind for name, kind in OPTIONAL.items() if name in table.columns}}
    if table.schema != pl.Schema(expected):
        other = sorted(set(expected.items()) ^ set(table.schema.items()), key=str)
        raise OutcomeTableError(
            f"expected a table with the columns of SCHEMA in their order, got one that differs in {other or 'order'}; "
            "build it with outcome_table or read_outcomes"
        )


def csv_text(table: pl.DataFrame) -> str:
    r"""Return a table as CSV that neither a spreadsheet nor a terminal obeys; `undo_safe` reads its cells back.

    >>> csv_text(pl.DataFrame({"reply": ["=1+1", "\x1b[2J"]})).split()
    ['reply', "'=1+1", '\\x1b[2J']
    """
    cell = pl.col(pl.String).map_batches(_escaped, return_dtype=pl.String)
    risky = cell.str.contains(f"^($|{_DEFUSED})")
    quoted = pl.when(risky).then(pl.lit("'") + cell).otherwise(cell)
    return table.with_columns(quoted.name.keep()).write_csv()


def undo_safe(cells: pl.DataFrame) -> pl.DataFrame:
    """Take away the apostrophes and the escapes that `csv_text` has put into text."""
    cell = pl.col(pl.String)
    bare = pl.when(cell.str.contains(f"^'($|{_DEFUSED})")).then(cell.str.slice(1)).otherwise(cell)
    return cells.with_columns(bare.map_batches(_unescaped, return_dtype=pl.String))


def _escaped(cells: pl.Series) -> pl.Series:
    return _substituted(cells, _TO_ESCAPE, lambda found: found[1] * 2 + (_escape(ord(found[2])) if found[2] else ""))


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _unescaped(cells: pl.Series) -> pl.Series:
    def undone(found: re.Match[str]) -> str:
        times, odd = divmod(len(found[1]), 2)
        return "\\" * times + (chr(int(found[2][1:], 16)) if odd else found[2])

    return _substituted(cells, _ESCAPED, undone)


def _substituted(cells: pl.Series, pattern: re.Pattern[str], instead: Callable[[re.Match[str]], str]) -> pl.Series:
    if not cells.str.contains(rf"[{_CONTROLS}\r]|\\[xu]").any():
        return cells
    return pl.Series(cells.name, [text and pattern.sub(instead, text) for text in cells], pl.String)


_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""What a terminal obeys, and what turns the direction of text; breaks of lines and tabs are text."""
_CODE = "x(?:0[0-8b-f]|1[0-9a-f]|7f|[89][0-9a-f])|u(?:061c|200[ef]|202[89a-e]|206[6-9])"
# Backslashes before a code, or before what becomes one, are doubled, so that reading tells one from the other.
_TO_ESCAPE = re.compile(rf"(?<!\\)(\\*+)([{_CONTROLS}]|\r(?!\n)|(?={_CODE}))")
_ESCAPED = re.compile(rf"(?<!\\)(\\++)({_CODE})")
