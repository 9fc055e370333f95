"""The confidence table: how likely an answer is right according to a method.

A row is a score in [0, 1] of one method for one answer. `pass` says which answer: the forced answer of a draw, that of
the first pass, or one that was given along with the score (`probe`); null stands for the answer that counts in the
outcome table. A variant is null where the score belongs to all of them, as that of a forced answer does. If a method
was asked for a score and gave none, `confidence` is null: such rows are counted, and never filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from refusal_index.data.errors import OutcomeTableError, shortened
from refusal_index.data.files import read_plain
from refusal_index.data.outcome_table import OPTIONAL

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
"""Columns of the table; `fold` is the part of the questions that a trained method was not trained on."""

PLACE = ("question_id", "method", "variant", "draw", "pass")
"""What tells its rows apart."""

GRADE_OF = MappingProxyType({"first": "first_grade", "forced": "forced_grade"})
"""The column of the outcome table that grades the answer of a pass."""

PASSES = (*GRADE_OF, "probe")
"""What `pass` may be, besides null."""


class ConfidenceError(OutcomeTableError):
    """A confidence table that cannot be used, or an unknown method."""


def check_scores(table: pl.DataFrame, source: str) -> None:
    """Raise ConfidenceError if a row has no draw, an unknown pass, or a score outside [0, 1], or occurs twice."""
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
    """Return the first row of which something holds, with its number from 1; None if there is none."""
    numbered = table if "row" in table.columns else table.with_row_index("row", 1)
    found = numbered.filter(is_wrong).head(1)
    return found.row(0, named=True) if found.height else None


def place_of(row: Mapping[str, Any], names: Iterable[str] = ("question_id", "variant", "draw")) -> str:
    """Return in words which answer a row is about.

    >>> place_of({"question_id": "q1", "variant": None, "draw": 0})
    "question_id 'q1', draw 0"
    """
    return ", ".join(f"{name} {shortened(row[name])}" for name in names if row[name] is not None)


def is_trained(scores: pl.DataFrame) -> bool:
    """Whether scores are those of a predictor that was trained on answers of the same run: they have a fold."""
    return scores["fold"].null_count() < scores.height


def scores_by_method(scores: pl.DataFrame) -> dict[tuple[str, str | None, str | None], pl.DataFrame]:
    """Split a confidence table by method, variant and pass, and keep the first draw of each question."""
    first = pl.col("draw").fill_null(0) == pl.col("draw").fill_null(0).min().over("question_id")
    groups = scores.group_by("method", "variant", "pass", maintain_order=True)
    return {(method, variant, pass_): rows.filter(first) for (method, variant, pass_), rows in groups}


def read_confidence(path: Path) -> pl.DataFrame:
    """Read the table of a run's folder.

    Raises
    ------
    ConfidenceError
        If it cannot be read, or is no confidence table.
    """
    try:
        table = pl.read_parquet(read_plain(path))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfidenceError(f"{path} cannot be read ({said[0]}); remove it, and run the methods again") from error
    if table.schema != pl.Schema(CONFIDENCE_SCHEMA):
        raise ConfidenceError(
            f"{path}: expected the columns {', '.join(CONFIDENCE_SCHEMA)}, got {', '.join(table.columns)}; remove it, "
            "and run the methods again"
        )
    check_scores(table, str(path))
    return table


METHOD_OF = {"p_answering": "p-answering", "confidence": "confidence"}
"""What the scores in columns of an outcome table are called as methods."""


def scores_of_outcomes(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Return the probabilities in an outcome table's own columns as a confidence table, of the answers that count.

    Parameters
    ----------
    outcomes
        An outcome table of one model and dataset, with columns of `OPTIONAL` or without.

    Returns
    -------
    polars.DataFrame
        With the columns of `CONFIDENCE_SCHEMA`; empty where the table has no such column, or nothing in it.
    """
    filled = [name for name in OPTIONAL if name in outcomes.columns and outcomes[name].null_count() < outcomes.height]
    blank = {"pass": pl.lit(None), "fold": pl.lit(None)}  # what the table does not say of an answer
    tables = [
        outcomes.select(
            said.get(column, pl.col(column)).cast(kind).alias(column) for column, kind in CONFIDENCE_SCHEMA.items()
        )
        for name in filled
        for said in [{**blank, "method": pl.lit(METHOD_OF[name]), "confidence": pl.col(name)}]
    ]
    return pl.concat(tables) if tables else pl.DataFrame(schema=dict(CONFIDENCE_SCHEMA))
