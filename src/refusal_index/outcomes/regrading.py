"""Two graders on the same replies: what became of their grades, and of the cells that follow from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from refusal_index.outcomes.schema import GRADES, KEY
from refusal_index.stats.kappa import CohenKappaResult, cohen_kappa

UNSCORED_CELL = "unscored"


@dataclass(frozen=True)
class GradeAgreement:
    """How two graders graded the same replies of one pass."""

    # number of replies by the grade before and the grade now, in the order of `GRADES`; only grades that occur
    counts: Mapping[tuple[str, str], int]
    kappa: CohenKappaResult  # their agreement

    @property
    def grades(self) -> tuple[str, ...]:
        """The grades that occur, before or now."""
        return tuple(grade for grade in GRADES if any(grade in pair for pair in self.counts))


@dataclass(frozen=True)
class GradeChanges:
    """What another grader changes."""

    # first, forced: agreement over the replies of each pass; a forced answer that variants share is one
    first: GradeAgreement
    forced: GradeAgreement
    cells: Mapping[tuple[str, str], int]  # number of rows by their cell before and now, where the two differ
    n: int  # number of rows that were compared


def grade_changes(before: pl.DataFrame, now: pl.DataFrame | pl.LazyFrame) -> GradeChanges:
    """Compare two outcome tables of the same replies under two graders.

    - `before`, `now`: outcome tables; rows are matched by variant, question and draw, and those of one table alone are
      left out.

    >>> from refusal_index.outcomes import Grade, Outcome, Question
    >>> from refusal_index.outcomes.table import Identification, outcome_table
    >>> asked, question = Identification("m", "d", "normal"), Question("q1", "Capital of France?", "Paris")
    >>> before = outcome_table([(asked, question, Outcome(False, True, Grade.INCORRECT))])
    >>> now = outcome_table([(asked, question, Outcome(False, False, Grade.CORRECT))])
    >>> grade_changes(before, now).cells
    {('answered_wrong', 'answered_right'): 1}
    """
    # The model's name and the dataset's are the same in both; nulls among the variants match each other.
    key = [name for name in KEY if name not in {"model", "dataset"}]
    columns = ("refused", "wrong", "first_grade", "forced_grade", "forced_reply")
    then, after = (table.lazy().select(*key, *columns) for table in (before, now))
    both = then.join(after, on=key, suffix="_now", nulls_equal=True, maintain_order="left").collect()
    cells = Counter(zip(both.select(_cell()).to_series(), both.select(_cell("_now")).to_series(), strict=True))
    shared = both.unique(["question_id", "draw", "forced_reply"], keep="first", maintain_order=True)
    return GradeChanges(
        first=_agreement(both, "first_grade"),
        forced=_agreement(shared, "forced_grade"),
        cells={pair: count for pair, count in sorted(cells.items()) if pair[0] != pair[1]},
        n=both.height,
    )


def _agreement(rows: pl.DataFrame, column: str) -> GradeAgreement:
    graded = rows.select(column, f"{column}_now").drop_nulls()
    found = Counter(graded.iter_rows())
    counts = {(one, other): found[one, other] for one in GRADES for other in GRADES if found[one, other]}
    return GradeAgreement(counts, cohen_kappa([[found[one, other] for other in GRADES] for one in GRADES]))


def _cell(suffix: str = "") -> pl.Expr:
    refused, wrong = pl.col(f"refused{suffix}"), pl.col(f"wrong{suffix}")
    named = pl.concat_str(
        pl.when(refused).then(pl.lit("refused")).otherwise(pl.lit("answered")),
        pl.when(wrong).then(pl.lit("wrong")).otherwise(pl.lit("right")),
        separator="_",
    )
    known = refused.is_not_null() & wrong.is_not_null()
    return pl.when(known).then(named).otherwise(pl.lit(UNSCORED_CELL))


def changes_document(changes: GradeChanges) -> dict[str, Any]:
    """Give the changes as JSON holds them."""
    return {
        "n": changes.n,
        "cells": _pairs(changes.cells),
        "first": {**asdict(changes.first.kappa), "counts": _pairs(changes.first.counts)},
        "forced": {**asdict(changes.forced.kappa), "counts": _pairs(changes.forced.counts)},
    }


def _pairs(counts: Mapping[tuple[str, str], int]) -> Sequence[Mapping[str, Any]]:
    return [{"before": before, "now": now, "count": count} for (before, now), count in counts.items()]
