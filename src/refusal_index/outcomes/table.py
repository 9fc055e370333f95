"""The outcome table: one row a question, variant and draw.

Every engine fills it and every study starts from it. Two columns are enough to score, `refused` and `wrong`; the rest
says which question it was and why. Three file formats hold it, told apart by the suffix: Parquet, CSV and JSON Lines,
the last two also compressed as ``.gz``. What was written is read back exactly.

A CSV file is safe to open in a spreadsheet. A text cell that a spreadsheet could take for a formula (it begins with
``=``, ``+``, ``-``, ``@``, one of their full-width forms, a tab or a line break) is written with an apostrophe before
it. So that reading can take exactly that apostrophe away, text that itself begins with an apostrophe gets another one,
and text of no characters is written as a single apostrophe, whereas an empty cell is null. Apostrophes are taken away
only in files that carry the column `schema_version`: other tools' files are read as they are, with every empty cell
null.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from refusal_index.outcomes.errors import OutcomeTableError
from refusal_index.outcomes.files import sound_text, write_atomically
from refusal_index.outcomes.outcome import Outcome, Question
from refusal_index.outcomes.sampling import COLUMNS, OWN_COLUMNS, Sampling
from refusal_index.outcomes.schema import GROUP, KEY, OPTIONAL, SCHEMA, SCHEMA_VERSION, TEXT, check_rows
from refusal_index.outcomes.settings import file_format
from refusal_index.outcomes.tabular import parse, read_text

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
        raw = replace(raw, frame=undo_defused(raw.frame))
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
    content = (_csv_cells(table).write_csv() if kind == "csv" else table.write_ndjson()).encode()
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


def _csv_cells(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(defused(name) for name in TEXT)


def defused(name: str) -> pl.Expr:
    """Return the text column with an apostrophe before cells that a spreadsheet could take for a formula."""
    cell = pl.col(name)
    risky = cell.str.contains(f"^($|{_DEFUSED})")
    return pl.when(risky).then(pl.concat_str(pl.lit("'"), cell)).otherwise(cell).alias(name)


def undo_defused(cells: pl.DataFrame) -> pl.DataFrame:
    """Take away the apostrophes that `defused` has put before text."""
    cell = pl.all()
    return cells.with_columns(pl.when(cell.str.contains(f"^'($|{_DEFUSED})")).then(cell.str.slice(1)).otherwise(cell))
