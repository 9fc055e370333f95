"""The columns of the outcome table and the keys of `run.json`, checked when they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from refusal_index.data.errors import OutcomeTableError, RunFolderError, shortened
from refusal_index.data.outcome import Grade

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


Holds = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_price(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {"input", "output"}


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


def _is_weights(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_amount, value)) and any(value)


def _is_stop(value: Any) -> bool:
    counts = ("asked", "of", "look", "looks")
    if not isinstance(value, Mapping) or value.keys() != {*counts, "why"}:
        return False
    return all(_is_whole(value[name]) and value[name] > 0 for name in counts) and _is_text(value["why"])


def _is_until(value: Any) -> bool:
    if not isinstance(value, Mapping) or value.keys() != {"half_width"}:
        return False
    return _is_amount(value["half_width"]) and 0 < value["half_width"] < 1


def _is_gate_looks(value: Any) -> bool:
    if not isinstance(value, Mapping) or value.keys() != {"of", "looks"}:
        return False
    return all(_is_whole(count) and count > 0 for count in value.values())


def _or_null(holds: Holds) -> Holds:
    return lambda value: value is None or holds(value)


A_TEXT, WHOLE, OBJECT = ("text", _is_text), ("a whole number", _is_whole), ("an object", _is_object)
AMOUNT = ("a number from 0", _is_amount)
PRICE = ("input and output, or null", _or_null(_is_price))

SETTINGS: Mapping[str, tuple[str, Holds]] = {
    "model": A_TEXT,
    "dataset": OBJECT,
    "dataset.name": A_TEXT,
    "dataset.sha256": A_TEXT,
    "grader": ("an object or null", _or_null(_is_object)),
    "grader.name": A_TEXT,
    "grader.second": ("text or null", _or_null(_is_text)),
    "prompts": OBJECT,
    "prompts.variants": ("a list of names", _is_names),
    "seed": WHOLE,
    "comparability_version": WHOLE,
    "first_pass": OBJECT,
    "first_pass.model": ("text or null", _or_null(_is_text)),
    "regraded_from": OBJECT,
    "regraded_from.grader": ("an object or null", _or_null(_is_object)),
}
ABOUT: Mapping[str, tuple[str, Holds]] = {
    "run_id": A_TEXT,
    "penalty": AMOUNT,
    "truthfulness_weights": ("three numbers from 0, not all 0", _is_weights),
    "stopped": ("where it stopped, or null", _or_null(_is_stop)),
    "until": ("a half_width above 0 and below 1, or null", _or_null(_is_until)),
    "gate_looks": ("of and looks, or null", _or_null(_is_gate_looks)),
    "price": PRICE,
    "grader_price": PRICE,
    "batch_rate": ("a number from 0, or null", _or_null(_is_amount)),
    **{f"{price}.{way}": AMOUNT for price in ("price", "grader_price") for way in ("input", "output")},
}
NEEDED = ("model", "dataset.name", "dataset.sha256", "prompts.variants", "seed")
"""What the results of a run cannot be made without."""


def check_types(path: Path, section: str, document: Mapping[str, Any]) -> None:
    """Raise RunFolderError if a value of a section of `run.json` is not of its type; what is missing is not looked for.

    - `path`: of the file.
    - `section`: ``"settings"`` or ``"about"``.
    """
    for key, (expected, holds) in (SETTINGS if section == "settings" else ABOUT).items():
        found, value = _find(document, key)
        if found and not holds(value):
            raise RunFolderError(
                f"{path}: {section}, {key}: expected {expected}, got {shortened(value)}; restore the file"
            )


def check_complete(path: Path, settings: Mapping[str, Any]) -> None:
    """Raise RunFolderError if settings lack what the results of a run cannot be made without."""
    needed = list(NEEDED)
    needed += ["first_pass.model"] if "first_pass" in settings else []
    needed += ["regraded_from.grader"] if "regraded_from" in settings else []
    lacking = [key for key in needed if not _find(settings, key)[0]]
    if lacking:
        raise RunFolderError(f"{path}: settings: expected {', '.join(needed)}, lacks {lacking[0]}; restore the file")


def _find(document: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    """Return whether a key is there, the parts of which name what lies within each other, and its value."""
    value: Any = document
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = value[part]
    return True, value
