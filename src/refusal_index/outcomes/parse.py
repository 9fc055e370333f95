"""From the cells that a user handed in to the columns of the outcome table."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from refusal_index.outcomes.errors import nearest, shortened
from refusal_index.outcomes.sampling import COLUMNS, OWN_COLUMNS, Sampling
from refusal_index.outcomes.schema import GRADED, GRADES, KEY, OPTIONAL, REQUIRED, SCHEMA, SCHEMA_VERSION, check_rows
from refusal_index.outcomes.tabular import NOTHING, TRUTH, TextTable


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
