"""Confidence tables for tests, built one score at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

import polars as pl

from refusal_index.data.outcome_table import CONFIDENCE_SCHEMA


@dataclass(frozen=True)
class Score:
    """One row of a confidence table."""

    question_id: str
    method: str
    confidence: float | None
    wrong: bool | None
    variant: str | None = None
    draw: int = 0
    of: str | None = "forced"
    fold: int | None = None


def confidence_table(scores: Iterable[Score]) -> pl.DataFrame:
    return pl.DataFrame(map(astuple, scores), schema=dict(CONFIDENCE_SCHEMA), orient="row")


def rows_of(table: pl.DataFrame) -> list[Score]:
    return [Score(*row) for row in table.iter_rows()]
