"""The outcome table (one row per question, variant and draw) and the confidence table (one row per score).

Runs write the outcome table; all results are computed from it. The columns `refused` and `wrong` are enough; the others
identify the question and give details. The suffix determines the file format: Parquet, CSV or JSON Lines, the last two
also compressed as ``.gz``. Tables are read back exactly as they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from refusal_index.data.cells import FLAG, NUMBER, WHOLE, Kind
from refusal_index.data.encodings import UTF_8
from refusal_index.data.files import read_plain
from refusal_index.data.outcome import Grade, Outcome, Question
from refusal_index.data.tables import (
    Column,
    TextTable,
    file_format,
    import_advice,
    read_text,
    resolve_columns,
    verbatim,
)
from refusal_index.data.text import sound_text
from refusal_index.data.written_tables import undo_safe, write_table
from refusal_index.errors import OutcomeTableError, nearest, shortened

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
        "answerable": pl.Boolean(),
        "reading": pl.String(),
        "first_reply": pl.String(),
        "forced_reply": pl.String(),
        "schema_version": pl.Int64(),
    }
)
"""Column names and types in the order in which they are written."""

OPTIONAL: Mapping[str, pl.DataType] = MappingProxyType({"p_answering": pl.Float64(), "confidence": pl.Float64()})
"""Optional columns, after the others: probabilities in [0, 1] from other tools or from the function that replied."""

CONFIDENCE = "confidence"
"""The optional column that also the runs of functions have which return a confidence beside their replies."""

REQUIRED = ("refused", "wrong")
"""The columns that scoring needs."""

GROUP = ("model", "dataset", "variant")
"""The columns that identify a variant's 2x2 table."""

KEY = (*GROUP, "question_id", "draw")
"""The key: the columns that identify a row."""

GRADES = tuple(grade.value for grade in Grade)

SAMPLING_COLUMNS = ("cluster", "weight")


@dataclass(frozen=True)
class Sampling:
    """Columns with the cluster and weight of each question; None: `cluster` and `weight`, if not empty."""

    cluster: str | None = None
    weight: str | None = None

    def column(self, name: str) -> str:
        """Return the name in a file of the column `name`, one of `SAMPLING_COLUMNS`."""
        return getattr(self, name) or name


OWN_COLUMNS = Sampling()

Where = Callable[[int], str]
"""Returns a description of a row's place, given its index."""


def check_rows(table: pl.DataFrame, where: Where) -> None:
    """Raise OutcomeTableError for the first invalid row."""

    def refuse(bad: pl.Expr, message: str) -> None:
        if row := first_row(table, bad):
            raise OutcomeTableError(where(row["row"] - 1) + message.format(**row))

    refuse(
        pl.col("draw") < 0,
        ", column 'draw': expected a whole number from 0, got {draw}; number the samples of a question 0, 1, 2, ...",
    )
    refuse(
        (pl.col("weight") < 0) | ~pl.col("weight").is_finite(),
        ", column 'weight': expected a number from 0, got {weight}; it is the number of questions in the population "
        "that this one represents",
    )
    missing = {name: table[name].null_count() for name in SAMPLING_COLUMNS}
    if missing["weight"] < table.height:
        refuse(
            pl.col("weight").is_not_null() & (pl.col("weight").sum().over(GROUP) == 0),
            ", column 'weight': all weights of its run are 0; give at least one question a weight above 0",
        )
    for name in (name for name in SAMPLING_COLUMNS if 0 < missing[name] < table.height):
        refuse(
            pl.col(name).is_null() & pl.col(name).is_not_null().any().over(GROUP),
            f" has no {name}, and other questions of its run have one; fill in the column: a question "
            "unlike all others is a cluster of its own, and one that represents none has weight 0",
        )
    row = first_row(table, ~pl.struct(KEY).is_first_distinct())
    if row is not None:
        earlier = first_row(table, pl.all_horizontal(pl.col(name).eq_missing(row[name]) for name in KEY)) or row
        shown = ", ".join(f"{name}={row[name]!r}" for name in KEY if row[name] is not None)
        raise OutcomeTableError(
            f"{where(row['row'] - 1)}: the same question again ({shown}), first at {where(earlier['row'] - 1)}; "
            "remove one of the two, or number repeated samples in a column 'draw' (0, 1, ...)"
        )
    for name in (name for name in OPTIONAL if name in table.columns):
        refuse(
            ~pl.col(name).is_between(0, 1),
            f", column {name!r}: expected a probability in [0, 1], got {{{name}}}; is it a percentage or a log "
            "probability?",
        )
    for broken, columns, rule in _RULES:
        shown = ", ".join(f"{name}={{{name}!r}}" for name in columns)
        refuse(
            broken,
            f" contradicts itself ({shown}): expected that {rule}; correct the row, or leave out the unreliable column",
        )


# Each rule: the rows that break it, the columns to show, and what must hold. Null means unknown and contradicts
# nothing, except an unscored grade beside a known result.
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


def _check_columns(raw: TextTable, *, can_name: bool) -> None:
    """Raise OutcomeTableError for another version, a missing column, or a misspelt key column.

    If a misspelt key column were ignored, different rows would be merged.
    """
    versions = raw.values("schema_version", WHOLE) if "schema_version" in raw.columns else pl.Series([SCHEMA_VERSION])
    for other in versions.drop_nulls().filter(versions.drop_nulls() != SCHEMA_VERSION):
        raise raw.source.wrong(
            f"expected schema_version {SCHEMA_VERSION}, got {other}; read the file with the release that wrote it"
        )
    for name in REQUIRED:
        if name not in raw.columns:
            guess = nearest(name, raw.columns)
            add = f"add a column {name!r} of true and false"
            advice = f"; rename {guess!r} to {name!r}" if guess else f"{_to_import(raw)} {add}"
            error = raw.source.lacks(f"a column {name!r}", raw.columns, advice + ", or name one" * can_name)
            raise error.with_remedy("column", f"{name}={guess or 'NAME'}") if can_name else error
    missing = [name for name in KEY if name not in raw.columns]
    for column in raw.columns:
        expected = None if column in SCHEMA else nearest(column.strip(), missing, cutoff=0.8)
        if expected:
            raise raw.source.wrong(
                f"column {column!r} looks like {expected!r}, which is missing; "
                f"rename it to {expected!r}, or to something less similar if it is something else"
            )


def _to_import(raw: TextTable) -> str:
    """Return the advice for a file that may hold the results of another tool."""
    return ";" if raw.source.kind == "memory" else f"; {import_advice(raw.source.name)}, or"


KINDS: Mapping[str, Kind] = {
    "draw": WHOLE,
    "refused": FLAG,
    "wrong": FLAG,
    "answerable": FLAG,
    **dict.fromkeys(
        ("first_grade", "forced_grade"),
        Kind(f"one of {', '.join(GRADES)} or nothing", {name: name for name in GRADES}, "translate the grades first"),
    ),
    "weight": NUMBER,
    **dict.fromkeys(OPTIONAL, NUMBER),
}
"""How cells are parsed; columns not listed are text."""


def _column(raw: TextTable, name: str, sampling: Sampling) -> pl.Series:
    height = len(raw.lines)
    kind = {**SCHEMA, **OPTIONAL}[name]
    column = sampling.column(name) if name in SAMPLING_COLUMNS else name
    if name == "schema_version":
        return pl.repeat(SCHEMA_VERSION, height, dtype=kind, eager=True).alias(name)
    chosen = column if name in SAMPLING_COLUMNS and getattr(sampling, name) is not None else None
    if chosen and chosen not in raw.columns:
        raise raw.source.lacks(f"a column {chosen!r} for --{name}", raw.columns, "; name one of these")
    if column in raw.columns:
        values = raw.values(column, KINDS[name]) if name in KINDS else raw.frame[column]
        if chosen and values.null_count() == height:
            message = f"expected a {name} for every question, got an empty column; name another"
            raise raw.source.wrong(message, column=column)
        if name == "question_id" and values.null_count():
            message = "expected an id, got an empty cell; give every question an id, or leave the column out to number "
            raise raw.source.wrong(f"{message}the rows", raw.lines.filter(values.is_null()).to_list()[:1], name)
        return (values.fill_null(0) if name == "draw" else values).alias(name)
    if name == "question_id":
        # with the file's name, so that rows of different files are different questions
        numbers = pl.int_range(1, height + 1, eager=True).cast(pl.String)
        return (f"{Path(raw.source.name).name} row " + numbers).alias(name)
    return pl.repeat(0 if name == "draw" else None, height, dtype=kind, eager=True).alias(name)


@dataclass(frozen=True)
class Group:
    """One model on one dataset under one prompt variant; each is None where a table does not say."""

    model: str | None
    dataset: str | None
    variant: str | None


@dataclass(frozen=True)
class Identification(Group):
    """What an outcome belongs to: the columns before the question."""

    draw: int = 0  # index of the repeated sample, from 0


def outcome_table(rows: Iterable[tuple[Identification, Question, Outcome]]) -> pl.DataFrame:
    """Build the table from records, in their order.

    Raises OutcomeTableError if a question occurs twice in one draw, or a row contradicts itself.

    - `rows`: identification, question and outcome of each row.
    - returned: with the columns of `SCHEMA`, and `confidence` if any outcome has one.

    >>> asked = Identification("almanac/base", "almanac", "normal")
    >>> table = outcome_table([(asked, Question("q1", "Capital of France?", "Paris"), Outcome(False, False))])
    >>> table.select("question_id", "refused", "wrong").rows()
    [('q1', False, False)]
    """
    rows = list(rows)
    columns = dict(zip(SCHEMA, zip(*(_record(*row) for row in rows), strict=True), strict=False))
    try:
        table = pl.DataFrame(columns, schema=dict(SCHEMA))  # much faster than by rows
    except UnicodeEncodeError:
        sound = {
            name: [sound_text(value) if isinstance(value, str) else value for value in values]
            for name, values in columns.items()
        }
        table = pl.DataFrame(sound, schema=dict(SCHEMA))
    confidence = pl.Series(CONFIDENCE, [outcome.confidence for *_, outcome in rows], pl.Float64)
    if confidence.is_not_null().any():
        table = table.with_columns(confidence)
    check_rows(table, lambda row: f"row {row + 1}")
    return table


def _record(run: Identification, question: Question, outcome: Outcome) -> tuple[str | int | bool | None, ...]:
    first = outcome.first_grade
    forced = outcome.forced_grade
    return (
        *(run.model, run.dataset, run.variant, question.question_id, run.draw, outcome.refused, outcome.wrong),
        *(first and str(first), forced and str(forced), outcome.unscored_reason, question.topic, None, None),
        *(question.text, question.gold, question.gold is not None),
        *(outcome.reading, outcome.first_reply, outcome.forced_reply, SCHEMA_VERSION),
    )


def read_outcomes(
    data: object,
    sampling: Sampling = OWN_COLUMNS,
    columns: Mapping[str, str] | None = None,
    encoding: str = UTF_8,
) -> pl.DataFrame:
    """Read an outcome table.

    Raises OutcomeTableError if a file cannot be read, is empty, lacks a column, has an invalid value, a duplicate row,
    a row that contradicts itself, or another `schema_version`.

    - `data`: the path of a Parquet, CSV or JSON Lines file (its suffix determines the format), a data frame (Polars,
      pandas or Arrow), or dictionaries, one per row. The columns `refused` and `wrong` are required; they hold true,
      false, t, f, 1, 0, yes or no in any case, or are empty: an empty cell, NaN, NA, null or none. Other columns of
      `SCHEMA` are filled in if missing: `draw` with 0, `question_id` with the file's name and row number,
      `answerable` by whether the question has a gold answer, others with null. Columns with other names are ignored.
    - `sampling`: names of the columns to read as `cluster` and `weight`.
    - `columns`: by column of `SCHEMA`, the name of the column to read it from; None if the user cannot name any.
    - `encoding`: encoding of a text file.
    - returned: the columns of `SCHEMA`; also those of `OPTIONAL` if `data` has them and `schema_version`.
    """
    named_columns = (columns or {}).values()
    names = tuple(dict.fromkeys((*SCHEMA, *OPTIONAL, *map(sampling.column, SAMPLING_COLUMNS), *named_columns)))
    raw = read_text(data, names, "row of outcomes", OutcomeTableError, encoding=encoding)
    if raw.source.kind == "csv" and "schema_version" in raw.columns:
        raw = replace(raw, frame=undo_safe(raw.frame))
    by_role = resolve_columns(raw.source, raw.columns, columns or {}, dict.fromkeys(SCHEMA, Column((), verbatim)))
    named = raw.frame.with_columns(pl.col(column).alias(name) for name, column in by_role.items())
    raw = replace(raw, frame=named, columns=(*raw.columns, *by_role))
    _check_columns(raw, can_name=columns is not None)
    # In other tools' tables, a column with the name of one of `OPTIONAL` may hold anything.
    probabilities = [name for name in OPTIONAL if {name, "schema_version"} <= set(raw.columns)]
    table = pl.DataFrame([_column(raw, name, sampling) for name in (*SCHEMA, *probabilities)])
    check_rows(table, raw.where)
    return table if "answerable" in raw.columns else table.with_columns(answerable=_HAS_GOLD)


_GOLD = pl.col("gold")
_HAS_GOLD = (
    pl.when(_GOLD.is_not_null())
    .then(pl.lit(value=True))
    .when((_GOLD.is_not_null().any() & ~(_GOLD.is_null() & ~_WRONG).any()).over(GROUP))
    .then(pl.lit(value=False))
)
"""Whether a question has a gold answer. Without one, it is unanswerable only if other questions of its run have one,
and no answer to a question without one is right; otherwise gold answers may be missing, and this is unknown."""


def unused_columns(present: Iterable[str], used: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the columns that are not those of an outcome table, in order.

    - `used`: further columns that are used.
    """
    known = {*SCHEMA, *OPTIONAL, *used}
    return tuple(name for name in dict.fromkeys(present) if name not in known)


def read_tables(
    paths: Sequence[Path],
    sampling: Sampling = OWN_COLUMNS,
    columns: Mapping[str, str] | None = None,
    encoding: str = UTF_8,
) -> pl.DataFrame:
    """Read and concatenate outcome tables; in several files, a missing model is filled in with the file's name.

    Raises OutcomeTableError if a file cannot be used, or two files share a row.
    """
    tables = [read_outcomes(path, sampling, columns, encoding) for path in paths]
    if len(paths) > 1:
        tables = [
            table.with_columns(pl.col("model").fill_null(path.stem)) for path, table in zip(paths, tables, strict=True)
        ]
    together = pl.concat(tables, how="diagonal")  # not every table has the columns of `OPTIONAL`
    locations = [(path, row) for path, table in zip(paths, tables, strict=True) for row in range(1, len(table) + 1)]
    check_rows(together, lambda row: "{}, row {}".format(*locations[row]))
    return together


def write_outcomes(table: pl.DataFrame, path: str | Path) -> None:
    """Write an outcome table; the file is replaced atomically.

    Raises OutcomeTableError if the table has other columns, a duplicate row or a row that contradicts itself, or the
    suffix is unknown.

    - `table`: with the columns of `SCHEMA`, as `outcome_table` and `read_outcomes` return it.
    - `path`: its suffix determines the format: Parquet, CSV or JSON Lines.
    """
    path = Path(path)
    file_format(path)
    expected = {**SCHEMA, **{name: kind for name, kind in OPTIONAL.items() if name in table.columns}}
    if table.schema != pl.Schema(expected):
        other = sorted(set(expected.items()) ^ set(table.schema.items()), key=str)
        raise OutcomeTableError(
            f"expected a table with the columns of SCHEMA in their order, got one that differs in {other or 'order'}; "
            "build it with outcome_table or read_outcomes"
        )
    check_rows(table, lambda row: f"row {row + 1}")
    write_table(table, path)


CONFIDENCE_SCHEMA: Mapping[str, pl.DataType] = MappingProxyType(
    {
        "question_id": pl.String(),
        "method": pl.String(),
        "confidence": pl.Float64(),
        "wrong": pl.Boolean(),
        "variant": pl.String(),
        "draw": pl.Int64(),
        "pass": pl.String(),
        "fold": pl.Int64(),
    }
)
"""Columns of the confidence table: probabilities that answers are right, by method.

A row is the score in [0, 1] of one method for one answer. `pass` identifies the answer: the forced answer of a draw
(`forced`), that of the first pass (`first`), or one given along with the score (`probe`); null means the answer that
the outcome table scores. `variant` is null if the score applies to all variants, as that of a forced answer does.
`confidence` is null if the method was asked for a score and gave none; such rows are counted and never imputed. `fold`
is the fold of the questions that was held out when a trained method was fitted.
"""

PLACE = ("question_id", "method", "variant", "draw", "pass")
"""The key of a confidence table."""

GRADE_OF = MappingProxyType({"first": "first_grade", "forced": "forced_grade"})
"""The column of the outcome table with the grade of a pass."""

PASSES = (*GRADE_OF, "probe")
"""Values of `pass`, besides null."""


class ConfidenceError(OutcomeTableError):
    """A confidence table that cannot be used, or an unknown method."""


def check_scores(table: pl.DataFrame, source: str) -> None:
    """Raise ConfidenceError if a row lacks a draw, has an unknown pass or a score outside [0, 1], or is a duplicate."""
    if row := first_row(table, pl.col("draw").is_null() | ~pl.col("pass").is_in(PASSES).fill_null(value=True)):
        raise ConfidenceError(
            f"{source}, row {row['row']}: expected a draw and a pass out of {', '.join(PASSES)} or none, got "
            f"{shortened(row['draw'])} and {shortened(row['pass'])}"
        )
    if row := first_row(table, ~pl.col("confidence").is_between(0, 1)):
        raise ConfidenceError(
            f"{source}, row {row['row']}, column 'confidence': expected a number in [0, 1], got {row['confidence']}; "
            "is it a percentage or a log probability?"
        )
    if row := first_row(table, ~pl.struct(PLACE).is_first_distinct()):
        raise ConfidenceError(
            f"{source}, row {row['row']}: the same score again ({place_of(row, PLACE)}); remove one of the two"
        )


def first_row(table: pl.DataFrame, is_wrong: pl.Expr) -> dict[str, Any] | None:
    """Return the first row for which an expression is true, with its number from 1; None if there is none."""
    index = table.select(is_wrong.fill_null(value=False).arg_true().first()).item()
    return None if index is None else {"row": index + 1, **table.row(index, named=True)}


def place_of(row: Mapping[str, Any], names: Iterable[str] = ("question_id", "variant", "draw")) -> str:
    """Return a description of the answer that a row is about.

    >>> place_of({"question_id": "q1", "variant": None, "draw": 0})
    "question_id 'q1', draw 0"
    """
    return ", ".join(f"{name} {shortened(row[name])}" for name in names if row[name] is not None)


def is_trained(scores: pl.DataFrame) -> bool:
    """Whether scores come from a predictor trained on answers of the same run, and so have a fold."""
    return scores["fold"].null_count() < scores.height


def scores_by_method(scores: pl.DataFrame) -> dict[tuple[str, str | None, str | None], pl.DataFrame]:
    """Split a confidence table by method, variant and pass, with the first draw of each question."""
    first = pl.col("draw").fill_null(0) == pl.col("draw").fill_null(0).min().over("question_id")
    groups = scores.group_by("method", "variant", "pass", maintain_order=True)
    return {(method, variant, pass_): rows.filter(first) for (method, variant, pass_), rows in groups}


def read_confidence(path: Path) -> pl.DataFrame:
    """Read the confidence table of a run's folder.

    Raises
    ------
    ConfidenceError
        If it cannot be read, or is not a confidence table.
    """
    try:
        table = pl.read_parquet(read_plain(path))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfidenceError(f"{path} cannot be read ({reason[0]}); remove it, and run the methods again") from error
    if table.schema != pl.Schema(CONFIDENCE_SCHEMA):
        raise ConfidenceError(
            f"{path}: expected the columns {', '.join(CONFIDENCE_SCHEMA)}, got {', '.join(table.columns)}; remove it, "
            "and run the methods again"
        )
    check_scores(table, str(path))
    return table


METHOD_OF = {"p_answering": "p-answering", "confidence": "confidence"}
"""Method names of the scores in the columns of `OPTIONAL`."""


def scores_of_outcomes(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of `OPTIONAL` in an outcome table as a confidence table.

    Parameters
    ----------
    outcomes
        An outcome table of one model and dataset, with or without columns of `OPTIONAL`.

    Returns
    -------
    polars.DataFrame
        With the columns of `CONFIDENCE_SCHEMA`; empty if the table has no such column, or only nulls in it.
    """
    tables = []
    for name in OPTIONAL:
        if name in outcomes.columns and outcomes[name].null_count() < outcomes.height:
            null = pl.lit(None)
            added = {"method": pl.lit(METHOD_OF[name]), "confidence": pl.col(name), "pass": null, "fold": null}
            tables.append(
                outcomes.with_columns(**added).select(pl.col(*CONFIDENCE_SCHEMA)).cast(pl.Schema(CONFIDENCE_SCHEMA))
            )
    return pl.concat(tables) if tables else pl.DataFrame(schema=dict(CONFIDENCE_SCHEMA))


def all_scores(in_folder: pl.DataFrame | None, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Return the scores of a run's folder, if there are any, and those of its outcome table under other names."""
    own = scores_of_outcomes(outcomes)
    if in_folder is None:
        return own
    return pl.concat([in_folder, own.join(in_folder.select("method").unique(), on="method", how="anti")])
