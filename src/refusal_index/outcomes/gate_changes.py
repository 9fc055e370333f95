"""Which questions changed most between two runs: what each model did with them, over all draws."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

SHOWN = 10
"""How many questions are shown."""

WORTH = {"answered_right": 1.0, "refused_wrong": 0.0, "refused_right": 0.0, "answered_wrong": -1.0}
"""What each of the four outcomes counts, by which a change is measured."""


@dataclass(frozen=True)
class ChangedQuestion:
    """A question with which two models did different things."""

    question_id: str
    question: str | None
    # baseline, candidate: the cell that most of its draws fall into, such as "answered_right"
    baseline: str
    candidate: str
    # draws_baseline, draws_candidate: how many of the draws that both runs have a grade for do, "3 of 5"
    draws_baseline: str
    draws_candidate: str
    # from -2, always right before and always wrong now, to 2; 0 where refusals alone changed in kind
    change: float


def most_changed(
    candidate: pl.DataFrame, baseline: pl.DataFrame, shared: Collection[str], most: int = SHOWN
) -> tuple[ChangedQuestion, ...]:
    """Find the questions that changed most, losses before gains of the same size, by the draws that both have.

    - `candidate`, `baseline`: rows of one variant each, all draws.
    - `shared`: ids of the questions to compare.
    """
    ids = pl.DataFrame({"question_id": list(shared)}, schema={"question_id": pl.String})
    ours, theirs = (rows.join(ids, on="question_id", how="semi") for rows in (candidate, baseline))
    graded = [rows.drop_nulls(["refused", "wrong"]) for rows in (ours, theirs)]
    drawn = ["question_id", "draw"]
    now, before = (_by_question(rows.join(other, on=drawn, how="semi")) for rows, other in (graded, graded[::-1]))
    both = now.join(before, on="question_id", suffix="_before").with_columns(
        change=(pl.col("worth") - pl.col("worth_before")).round(9)
    )
    told = ("cell", "draws")  # where the rest of several draws alone differs, no change could be seen
    looks_changed = pl.any_horizontal(pl.col(one) != pl.col(f"{one}_before") for one in told)
    changed = both.filter((pl.col("change") != 0) & looks_changed).sort(
        pl.col("change").abs(), -pl.col("change"), "question_id", descending=[True, True, False]
    )
    return tuple(
        ChangedQuestion(
            question_id=row["question_id"],
            question=row["question"],
            baseline=row["cell_before"],
            candidate=row["cell"],
            draws_baseline=row["draws_before"],
            draws_candidate=row["draws"],
            change=row["change"],
        )
        for row in changed.head(most).iter_rows(named=True)
    )


def _by_question(graded: pl.DataFrame) -> pl.DataFrame:
    """Sum up the graded draws of each question: mean worth, the most frequent cell, and how many fall into it."""
    cell = pl.concat_str(
        pl.when("refused").then(pl.lit("refused_")).otherwise(pl.lit("answered_")),
        pl.when("wrong").then(pl.lit("wrong")).otherwise(pl.lit("right")),
    )
    counted = graded.with_columns(cell=cell).with_columns(
        worth=pl.col("cell").replace_strict(WORTH, return_dtype=pl.Float64)
    )
    most = pl.col("cell").mode().sort().first()
    return counted.group_by("question_id").agg(
        pl.col("worth").mean(),
        pl.col("question").drop_nulls().first(),
        cell=most,
        draws=pl.format("{} of {}", (pl.col("cell") == most).sum(), pl.len()),
    )
