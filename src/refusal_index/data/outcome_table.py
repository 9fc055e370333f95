"""The outcome table: one row a question, variant and draw, read, checked and written.

Every engine fills it and every study starts from it. Two columns are enough to score, `refused` and `wrong`; the rest
says which question it was and why. Three file formats hold it, told apart by the suffix: Parquet, CSV and JSON Lines,
the last two also compressed as ``.gz``. What was written is read back exactly.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import polars as pl

from refusal_index.data.errors import OutcomeTableError, nearest, shortened
from refusal_index.data.files import write_atomically
from refusal_index.data.outcome import Grade, Outcome, Question
from refusal_index.data.sampling import COLUMNS, OWN_COLUMNS, Sampling
from refusal_index.data.tables import NOTHING, TRUTH, TextTable, csv_text, file_format, read_text, undo_safe
from refusal_index.data.text import sound_text

SCHEMA_VERSION = 1
"""Version of the columns below; a file with another one is refused."""

SCHEMA: Mapping[str, pl.DataType] = MappingProxyType(
    {
        "model": pl.String(),
        "dataset": pl.String(),
        "variant": pl.String(),
        "question_id": pl.String(),
        "draw": pl.Int64(),
        "refused": pl.Boolean(),
        "wrong": pl.Boolean(),
        "first_grade": pl.String(),
        "forced_grade": pl.String(),
        "unscored_reason": pl.String(),
        "topic": pl.String(),
        "cluster": pl.String(),
        "weight": pl.Float64(),
        "question": pl.String(),
        "gold": pl.String(),
        "first_reply": pl.String(),
        "forced_reply": pl.String(),
        "schema_version": pl.Int64(),
    }
)
"""Column names and types in the order in which they are written."""

OPTIONAL: Mapping[str, pl.DataType] = MappingProxyType({"p_answering": pl.Float64(), "confidence": pl.Float64()})
"""Probabilities of others, each in [0, 1]: columns of imported tables that have them, after the rest."""

REQUIRED = ("refused", "wrong")
"""The columns without which nothing can be scored."""

GROUP = ("model", "dataset", "variant")
"""The columns that share one 2x2 table."""

KEY = (*GROUP, "question_id", "draw")
"""The columns that tell the rows apart."""

GRADED = ("first_grade", "forced_grade")
"""The columns that hold a grade."""

GRADES = tuple(grade.value for grade in Grade)

TEXT = tuple(name for name, kind in SCHEMA.items() if kind == pl.String)
"""The columns that hold text."""


Where = Callable[[int], str]
"""From a row's index to the words that name its place."""


def check_rows(table: pl.DataFrame, where: Where) -> None:
    """Raise `OutcomeTableError` for the first row that may not be there."""
    _check_draws(table, where)
    _check_sampling(table, where)
    _check_duplicates(table, where)
    _check_probabilities(table, where)
    _check_contradictions(table, where)


def _check_draws(table: pl.DataFrame, where: Where) -> None:
    row = _first(table, pl.col("draw") < 0)
    if row is not None:
        raise OutcomeTableError(
            f"{where(row)}, column 'draw': expected a whole number from 0, got {table['draw'][row]}; "
            "number the draws of a question 0, 1, 2 and so on"
        )


def _check_probabilities(table: pl.DataFrame, where: Where) -> None:
    for name in (name for name in OPTIONAL if name in table.columns):
        row = _first(table, ~pl.col(name).is_between(0, 1))
        if row is not None:
            raise OutcomeTableError(
                f"{where(row)}, column {name!r}: expected a probability in [0, 1], got {table[name][row]!r}; "
                "is it in per cent, or a log probability?"
            )


def _check_sampling(table: pl.DataFrame, where: Where) -> None:
    """Refuse a weight that is none, and a row without a cluster or weight among others that have one."""
    weight = pl.col("weight")
    row = _first(table, (weight < 0) | ~weight.is_finite())
    if row is not None:
        raise OutcomeTableError(
            f"{where(row)}, column 'weight': expected a number from 0, got {table['weight'][row]}; it says for how "
            "many questions of the population this one stands"
        )
    filled = table["weight"].null_count() < table.height
    row = _first(table, weight.is_not_null() & (weight.sum().over(GROUP) == 0)) if filled else None
    if row is not None:
        raise OutcomeTableError(
            f"{where(row)}, column 'weight': all weights of its run are 0; give those that stand for others a weight"
        )
    for name in ("cluster", "weight"):
        missing = table[name].null_count()
        others = pl.col(name).is_not_null().any().over(GROUP)
        row = _first(table, pl.col(name).is_null() & others) if 0 < missing < table.height else None
        if row is not None:
            raise OutcomeTableError(
                f"{where(row)} has no {name}, and other questions of its run have one; fill the column: a question "
                "like no other is a cluster of its own, and one that stands for none has the weight 0"
            )


def _check_duplicates(table: pl.DataFrame, where: Where) -> None:
    row = _first(table, ~pl.struct(KEY).is_first_distinct())
    if row is None:
        return
    key = table.row(row, named=True)
    earlier = _first(table, pl.all_horizontal(pl.col(name).eq_missing(key[name]) for name in KEY))
    shown = ", ".join(f"{name}={key[name]!r}" for name in KEY if key[name] is not None)
    raise OutcomeTableError(
        f"{where(row)}: the same question again ({shown}), first at {where(earlier or 0)}; "
        "remove one of the two, or tell repeated draws apart in a column 'draw' (0, 1, ...)"
    )


# Each rule: the rows that break it, the columns to show, and what must hold. A null on either side is "not known" and
# contradicts nothing, except an unscored grade beside a known result.
_REFUSED = pl.col("refused")
_WRONG = pl.col("wrong")
_FIRST = pl.col("first_grade")
_FORCED = pl.col("forced_grade")
_RULES: tuple[tuple[pl.Expr, tuple[str, ...], str], ...] = (
    (
        (_FIRST == "refused") != _REFUSED,
        ("refused", "first_grade"),
        "refused is true exactly when first_grade is 'refused'",
    ),
    (
        _FIRST.is_in(["correct", "incorrect", "refused"]) & _REFUSED.is_null(),
        ("refused", "first_grade"),
        "refused is empty only where first_grade is 'unscored'",
    ),
    (
        (_FIRST == "unscored") & ~_REFUSED & _WRONG.is_not_null(),
        ("refused", "wrong", "first_grade"),
        "where first_grade is 'unscored' and refused false, since the model did answer, wrong is empty",
    ),
    (
        ~_REFUSED & _FIRST.is_in(["correct", "incorrect"]) & (_WRONG.eq_missing(_FIRST == "incorrect").not_()),
        ("refused", "wrong", "first_grade"),
        "where the first pass answered, wrong is true for 'incorrect' and false for 'correct'",
    ),
    (
        _REFUSED & _FORCED.is_in(["correct", "incorrect", "refused"]) & _WRONG.eq_missing(_FORCED != "correct").not_(),
        ("refused", "wrong", "forced_grade"),
        "where the first pass refused, wrong is false exactly when forced_grade is 'correct'",
    ),
    (
        _REFUSED & (_FORCED == "unscored") & _WRONG.is_not_null(),
        ("refused", "wrong", "forced_grade"),
        "where the first pass refused and forced_grade is 'unscored', wrong is empty",
    ),
    (
        pl.col("unscored_reason").is_not_null() & _REFUSED.is_not_null() & _WRONG.is_not_null(),
        ("refused", "wrong", "unscored_reason"),
        "unscored_reason is empty where refused and wrong are both known",
    ),
)


def _check_contradictions(table: pl.DataFrame, where: Where) -> None:
    for broken, columns, rule in _RULES:
        row = _first(table, broken)
        if row is not None:
            shown = ", ".join(f"{name}={table[name][row]!r}" for name in columns)
            raise OutcomeTableError(
                f"{where(row)} contradicts itself ({shown}): expected that {rule}; "
                "correct the row, or leave out the column that is not to be relied on"
            )


def _first(table: pl.DataFrame, condition: pl.Expr) -> int | None:
    """Index of the first row for which the condition is true."""
    row: int | None = table.select(condition.fill_null(value=False).arg_true().first()).item()
    return row


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
