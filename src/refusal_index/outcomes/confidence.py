"""The confidence table: what a method says of how likely an answer is right, beside the outcomes of a run.

A row is a score in [0, 1] of one method for one answer. Which answer that is, `pass` says: the forced answer of a draw,
the first pass's, or one that was given along with the score (`probe`); where it is null, the answer that counts in the
outcome table. A variant is null where the score belongs to all of them, as that of a forced answer does. A score that a
method was asked for and did not give is a row whose `confidence` is null: it is counted, and never filled in.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from types import MappingProxyType

import polars as pl

from refusal_index.outcomes.errors import OutcomeTableError, shortened
from refusal_index.outcomes.files import read_plain, write_atomically
from refusal_index.outcomes.source import file_format
from refusal_index.outcomes.table import defused

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
    """A confidence table that cannot be used; the message names the place."""


@dataclass(frozen=True)
class Score:
    """What a method says of one answer.

    Attributes
    ----------
    question_id, method
        Of which question, and by which method.
    confidence
        In [0, 1]; None where the method was asked for it and gave none.
    wrong
        Whether the answer is wrong; None while it is unscored.
    variant
        None where the score belongs to all.
    draw, of
        Of the answer: its repetition, and its pass.
    fold
        Which part of the questions it lies in, of a method that was trained on the others.
    """

    question_id: str
    method: str
    confidence: float | None
    wrong: bool | None
    variant: str | None = None
    draw: int = 0
    of: str | None = "forced"
    fold: int | None = None


def confidence_table(scores: Iterable[Score]) -> pl.DataFrame:
    """Build the table, in the order of the scores.

    Raises
    ------
    ConfidenceError
        If a score is outside [0, 1], or one is there twice.

    Examples
    --------
    >>> confidence_table([Score("q1", "likelihood", 0.9, False)])["confidence"].to_list()
    [0.9]
    """
    table = pl.DataFrame(map(astuple, scores), schema=dict(CONFIDENCE_SCHEMA), orient="row")
    _check(table, "a score")
    return table


def _check(table: pl.DataFrame, source: str) -> None:
    strange = table.with_row_index("row").filter(
        pl.col("draw").is_null() | ~pl.col("pass").is_in(PASSES).fill_null(value=True)
    )
    if strange.height:
        row = strange.row(0, named=True)
        raise ConfidenceError(
            f"{source}, row {row['row'] + 1}: expected a draw and a pass out of {', '.join(PASSES)} or none, got "
            f"{shortened(row['draw'])} and {shortened(row['pass'])}"
        )
    outside = table.with_row_index("row").filter(~pl.col("confidence").is_between(0, 1))
    if outside.height:
        row = outside.row(0, named=True)
        raise ConfidenceError(
            f"{source}, row {row['row'] + 1}, column 'confidence': expected a number in [0, 1], got "
            f"{row['confidence']}; is it in per cent, or a log probability?"
        )
    again = table.with_row_index("row").filter(~pl.struct(PLACE).is_first_distinct())
    if again.height:
        row = again.row(0, named=True)
        shown = ", ".join(f"{name}={shortened(row[name])}" for name in PLACE if row[name] is not None)
        raise ConfidenceError(f"{source}, row {row['row'] + 1}: the same score again ({shown}); remove one of the two")


def is_trained(scores: pl.DataFrame) -> bool:
    """Whether scores are those of a predictor that was trained on answers of the same run: they have a fold."""
    return scores["fold"].null_count() < scores.height


def write_confidence(table: pl.DataFrame, path: str | Path) -> None:
    """Write the table, replacing the file at once or not at all; the suffix says whether Parquet, CSV or JSON Lines."""
    path = Path(path)
    kind = file_format(path)
    if kind == "parquet":
        whole = io.BytesIO()
        table.write_parquet(whole)
        write_atomically(path, whole.getvalue())
        return
    texts = [name for name, held in CONFIDENCE_SCHEMA.items() if held == pl.String()]
    cells = table.with_columns(defused(name) for name in texts)
    content = (cells.write_csv() if kind == "csv" else table.write_ndjson()).encode()
    write_atomically(path, gzip.compress(content, mtime=0) if path.name.lower().endswith(".gz") else content)


def with_scores(before: pl.DataFrame | None, table: pl.DataFrame) -> pl.DataFrame:
    """Put scores beside those of other methods, in the place of what the same methods gave before."""
    if before is None:
        return table
    return pl.concat([before.filter(~pl.col("method").is_in(table["method"].unique().to_list())), table])


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
        raise ConfidenceError(
            f"{path} cannot be read ({said[0]}); remove it, and have the methods score again"
        ) from error
    if table.schema != pl.Schema(CONFIDENCE_SCHEMA):
        raise ConfidenceError(
            f"{path}: expected the columns {', '.join(CONFIDENCE_SCHEMA)}, got {', '.join(table.columns)}; remove it, "
            "and have the methods score again"
        )
    _check(table, str(path))
    return table
