"""The columns of the outcome table, and what none may hold: the same row twice, or a row that contradicts itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import polars as pl

from refusal_index.outcomes.errors import OutcomeTableError
from refusal_index.outcomes.outcome import Grade

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
