"""From the outcome table to the counts that everything is computed from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.schema import GRADES, GROUP
from refusal_index.stats import ContingencyTable

MISSING_LIMIT = 0.02
"""Share of unscored questions above which a result is incomplete."""

NOT_STATED = "not_stated"
"""Reason of an unscored row that gives none."""


def _whether_there(name: str) -> pl.Expr:
    return pl.when(pl.col(name).is_not_null()).then(pl.lit("")).alias(name)


SHORT = {
    "question": pl.when(pl.col("question").is_not_null()).then(pl.col("question").hash()).alias("question"),
    "gold": _whether_there("gold"),
    "forced_reply": _whether_there("forced_reply"),
    "forced_grade": pl.col("forced_grade").cast(pl.Enum(GRADES)),
}
"""What stands for texts where there may be too many of them: which are the same, or whether there is one at all."""

_SCORED = pl.col("refused").is_not_null() & pl.col("wrong").is_not_null()


@dataclass(frozen=True)
class Completeness:
    """How much of what was asked could be scored."""

    # asked, scored, unscored: numbers of rows; the first is the sum of the others
    asked: int
    scored: int
    unscored: int
    reasons: Mapping[str, int]  # number of unscored rows by reason, the most frequent first
    missing_share: float | None  # unscored over asked; None when nothing was asked

    @property
    def is_enough(self) -> bool:
        """Whether something was asked, and no more of it is missing than is tolerated."""
        return self.missing_share is not None and self.missing_share <= MISSING_LIMIT


@dataclass(frozen=True)
class ForcedRefusals:
    """How often the forced pass refused what the first had refused."""

    asked: int  # rows with a graded forced answer
    refused: int  # those that refused again
    share: float | None  # refused over asked; None when nothing was asked


@dataclass(frozen=True)
class VariantGroup:
    """The rows of one model on one dataset under one prompt variant."""

    model: str | None
    dataset: str | None
    variant: str | None
    outcomes: pl.DataFrame


def variant_groups(table: pl.DataFrame) -> tuple[VariantGroup, ...]:
    """Split the table by model, dataset and variant.

    The groups come in the order in which they appear, which in a run's own table is from the lowest to the highest
    variant.
    """
    return tuple(
        VariantGroup(model, dataset, variant, rows)
        for (model, dataset, variant), rows in table.group_by(GROUP, maintain_order=True)
    )


def each_group(table: pl.DataFrame | pl.LazyFrame, columns: Sequence[str]) -> Iterator[VariantGroup]:
    """Yield what `variant_groups` returns, with some of the columns; of a table in a file only one group is in memory.

    - `table`: in memory, or in a file.
    - `columns`: those that are there of these are kept. Of a table in a file texts are kept as short as they can be
      (`SHORT`), as there may be more of them than there is memory.
    """
    if isinstance(table, pl.DataFrame):
        yield from variant_groups(table.select(*GROUP, *(name for name in columns if name in table.columns)))
        return
    known = table.collect_schema()
    kept = [SHORT.get(name, pl.col(name)) for name in columns if name in known]
    for key in table.select(GROUP).unique(maintain_order=True).collect().iter_rows():
        named = tuple(zip(GROUP, key, strict=True))
        mine = (pl.col(name).is_null() if one is None else pl.col(name) == one for name, one in named)
        names = (pl.lit(one, pl.Enum([] if one is None else [one])).alias(name) for name, one in named)
        rows = table.filter(*mine).select(*kept).with_columns(*names)
        model, dataset, variant = key
        yield VariantGroup(model, dataset, variant, rows.collect(engine="streaming"))


def contingency_table(outcomes: pl.DataFrame) -> ContingencyTable:
    """Count the scored rows by refusal and error; unscored rows are in none of the four cells.

    >>> contingency_table(pl.DataFrame({"refused": [True, True, False, None], "wrong": [True, None, False, None]}))
    ContingencyTable(refused_wrong=1, refused_right=0, answered_wrong=0, answered_right=1)
    """
    scored = outcomes.filter(_SCORED)
    return ContingencyTable.from_arrays(scored["refused"].to_numpy(), scored["wrong"].to_numpy())


def completeness(outcomes: pl.DataFrame) -> Completeness:
    """Count what is missing, and why."""
    missing = outcomes.filter(~_SCORED)["unscored_reason"].fill_null(NOT_STATED)
    counted = missing.value_counts(name="rows").sort("rows", "unscored_reason", descending=[True, False])
    asked, unscored = outcomes.height, missing.len()
    share = unscored / asked if asked else None
    return Completeness(asked, asked - unscored, unscored, dict(counted.iter_rows()), share)


def forced_refusals(outcomes: pl.DataFrame) -> ForcedRefusals:
    """Count the forced answers that refused again; those to questions that the first pass answered are left out."""
    grades = outcomes.filter(pl.col("refused"))["forced_grade"].drop_nulls()
    asked, refused = grades.len(), int((grades == Grade.REFUSED.value).sum())
    return ForcedRefusals(asked, refused, refused / asked if asked else None)
