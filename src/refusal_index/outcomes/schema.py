"""The columns of the outcome table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from refusal_index.outcomes.grade import Grade

SCHEMA_VERSION = 1
"""Version of the columns below; a file with a higher one comes from a newer release and is refused."""

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
        "question": pl.String(),
        "gold": pl.String(),
        "first_reply": pl.String(),
        "forced_reply": pl.String(),
        "schema_version": pl.Int64(),
    }
)
"""Column names and types in the order in which they are written."""

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
