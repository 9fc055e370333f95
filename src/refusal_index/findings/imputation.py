"""Imputing missing answers of a gate, under assumptions that count against its verdict.

An answer is *missing* if its row has no grade, and for RI also if the forced pass refused again: such a row says that
the model refused, but not whether it would have been right. Missing answers may differ from the rest, so a verdict is
checked by delta-adjusted imputation [1]_: the missing answers of one run are spread over its four cells as its other
answers are, with `ODDS` times the odds of the cells that count against the verdict. Known parts are kept: a row that is
known to be a refusal stays one.

A tipping-point analysis [2]_ counts how many of the missing answers would have to fall into the worst cell before the
verdict changes.

References
----------
.. [1] National Research Council (2010). The Prevention and Treatment of Missing Data in Clinical Trials, chapter 5.
   :doi:`10.17226/12955`
.. [2] Yan, X., Lee, S. and Li, N. (2009). Missing data handling methods in medical device clinical trials. Journal of
   Biopharmaceutical Statistics, 19, 1085-1098. :doi:`10.1080/10543400903243009`
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.data.outcome import Grade
from refusal_index.data.outcome_table import GROUP, SAMPLING_COLUMNS
from refusal_index.data.rates import IS_UNANSWERABLE

ODDS = 2.0
"""Ratio by which the odds of cells that count against a verdict exceed those of the answers that are known."""

CELLS = ("answered_right", "answered_wrong", "refused_right", "refused_wrong")
"""The four cells; the position of a cell is twice `refused` plus `wrong`."""

SEED = 0
"""Seed of the choice of which missing answer gets which cell, so that a verdict is the same each time."""

IS_FORCED_REFUSAL = (pl.col("forced_grade") == Grade.REFUSED.value).fill_null(value=False) & (
    ~IS_UNANSWERABLE.fill_null(value=False)
)
"""Rows that the forced pass refused, of answered questions too."""

IS_REFUSED_AGAIN = (pl.col("refused") & IS_FORCED_REFUSAL).fill_null(value=False)
"""Rows that the forced pass refused again."""

Cells = NDArray[np.int64]


def without_refused_again(rows: pl.DataFrame) -> pl.DataFrame:
    """Remove the grade of each row that the forced pass refused again, and every forced grade that is a refusal."""
    return rows.with_columns(
        wrong=pl.when(IS_REFUSED_AGAIN).then(None).otherwise("wrong"),
        forced_grade=pl.when(IS_FORCED_REFUSAL).then(pl.lit(Grade.UNSCORED.value)).otherwise("forced_grade"),
    )


def with_forced_grades(rows: pl.DataFrame) -> pl.DataFrame:
    """Let `wrong` be that of the forced answer where there is one, and empty where it has no grade.

    >>> flags = {"refused": False, "wrong": [True, True, True], "forced_grade": ["correct", "unscored", None]}
    >>> with_forced_grades(pl.DataFrame(flags))["wrong"].to_list()
    [False, None, True]
    """
    grade = pl.col("forced_grade")
    is_wrong = pl.when(grade != Grade.UNSCORED.value).then(grade != Grade.CORRECT.value)
    return rows.with_columns(wrong=pl.when(grade.is_null()).then("wrong").otherwise(is_wrong))


def filled_in(rows: pl.DataFrame, completed: pl.DataFrame) -> pl.DataFrame:
    """Fill in missing flags and forced grades.

    - `completed`: `with_forced_grades` of the rows, after imputation.
    """
    before = with_forced_grades(rows)
    without_grade = before["refused"].is_null() | before["wrong"].is_null()
    grades = pl.when(completed["wrong"]).then(pl.lit(Grade.INCORRECT.value)).otherwise(pl.lit(Grade.CORRECT.value))
    grade = pl.col("forced_grade")
    return rows.with_columns(
        refused=completed["refused"],
        wrong=pl.coalesce("wrong", completed["wrong"]),
        forced_grade=pl.when(without_grade).then(grades.cast(rows["forced_grade"].dtype)).otherwise(grade),
    )


def knows_refused_again(rows: pl.DataFrame) -> bool:
    """Whether the rows say which questions were refused again: every refusal with a grade has a forced grade."""
    graded_refusal = pl.col("refused") & pl.col("wrong").is_not_null()
    return rows.filter(graded_refusal & pl.col("forced_grade").is_null()).is_empty()


def with_absent(
    rows: pl.DataFrame, question_ids: Collection[str], others: Sequence[pl.DataFrame] = (), n_unknown: int = 0
) -> pl.DataFrame:
    """Append a row without a grade for each question that is absent.

    - `question_ids`: the questions that should be there.
    - `others`: outcomes of other runs, from which text, gold answer, cluster and weight of these questions are taken.
    - `n_unknown`: number of further absent questions of which nothing is known. Each has a right answer, is a cluster
      of its own, and has the mean weight.
    """
    present = set(rows["question_id"])
    absent = sorted(question for question in question_ids if question not in present)
    unknown = [f"absent {number}" for number in range(n_unknown)]
    if not (absent or unknown) or rows.is_empty():
        return rows
    described = _described([rows, *others])
    supposed = {"answerable": pl.lit(value=True), "cluster": pl.col("question_id")}
    supposed |= {"weight": pl.lit(described["weight"].mean())}
    recorded = [name for name in supposed if described[name].is_not_null().any()]
    appended = pl.concat(
        [
            pl.DataFrame({"question_id": absent}, schema={"question_id": pl.String}).join(
                described, on="question_id", how="left", maintain_order="left"
            ),
            pl.DataFrame({"question_id": unknown}, schema={"question_id": pl.String}).with_columns(
                supposed[name].alias(name) for name in recorded
            ),
        ],
        how="diagonal_relaxed",
    )
    group = rows.select(GROUP).head(1)
    appended = appended.join(group, how="cross").with_columns(draw=rows["draw"].min())
    return pl.concat([rows, appended], how="diagonal_relaxed")


def _described(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return text, gold answer, cluster and weight of each question of some tables."""
    columns = ["question_id", "question", "gold", "answerable", *SAMPLING_COLUMNS]
    rows = pl.concat([table.select(columns) for table in tables], how="vertical_relaxed")
    return rows.group_by("question_id").agg(pl.all().drop_nulls().first()).sort("question_id")


def is_missing(rows: pl.DataFrame) -> pl.Series:
    """Return which rows have no grade."""
    return rows["refused"].is_null() | rows["wrong"].is_null()


def imputed(
    rows: pl.DataFrame, adverse: Collection[str], odds: float = ODDS, chosen: pl.Series | None = None
) -> pl.DataFrame:
    """Give rows without a grade one of the four cells.

    - `rows`: of one variant.
    - `adverse`: the cells that count against the verdict, of `CELLS`.
    - `odds`: ratio of the odds of these cells to those of the graded rows.
    - `chosen`: truth values, which of the rows without a grade are imputed; None for all. The others stay without one.

    >>> flags = {"refused": [True, True, True, False, None], "wrong": [True, False, None, False, None]}
    >>> rows = pl.DataFrame({"question_id": list("abcde"), "draw": 0, "answerable": True, **flags})
    >>> imputed(rows, ["refused_right"])["wrong"].to_list()
    [True, False, False, False, False]
    """
    known = _Known(rows, chosen)
    cells = known.cells
    for group in known.groups():
        cells[group] = known.spread(group, adverse, odds)
    return known.with_cells(cells)


def imputed_in_cells(rows: pl.DataFrame, cells: Sequence[str], count: int) -> pl.DataFrame:
    """Give `count` of the rows without a grade the first of these cells that they can be in; spread the others.

    - `rows`: of one variant.
    - `cells`: of `CELLS`, the worst first. Rows that can be in the worst one are chosen first.
    - `count`: a number of rows; fewer are given a cell if no more can be in any of them.

    >>> flags = {"refused": [True, False, True, None], "wrong": [True, False, None, None]}
    >>> rows = pl.DataFrame({"question_id": list("abcd"), "draw": 0, "question": "?", "answerable": True, **flags})
    >>> imputed_in_cells(rows, ["answered_wrong", "refused_right"], 2).select("refused", "wrong").rows()[2:]
    [(True, False), (False, True)]
    """
    known = _Known(rows)
    placed = known.cells
    left = count
    for group in known.groups(cells):
        cell = known.first_allowed(group, cells)
        chosen = group[:0] if cell is None else group[:left]
        if cell is not None:
            placed[chosen] = CELLS.index(cell)
        left -= len(chosen)
        others = group[len(chosen) :]
        placed[others] = known.spread(others, (), 1.0)
    return known.with_cells(placed)


def cells_used(rows: pl.DataFrame, cells: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the cells that `imputed_in_cells` gives to `count` rows, the worst first."""
    known = _Known(rows)
    used = []
    left = count
    for group in known.groups(cells):
        cell = known.first_allowed(group, cells)
        if cell is not None and left > 0:
            used.append(cell)
            left -= len(group)
    return tuple(dict.fromkeys(used))


class _Known:
    """What is known of the cell of each row."""

    def __init__(self, rows: pl.DataFrame, chosen: pl.Series | None = None) -> None:
        self.rows = rows
        missing = is_missing(rows)
        self._is_imputed = missing if chosen is None else missing & chosen
        # no answer to an unanswerable question is right
        if_unknown = pl.when(IS_UNANSWERABLE).then(pl.lit(value=True))
        flags = rows.select(
            refused=pl.col("refused").cast(pl.Int64).fill_null(-1),
            wrong=pl.coalesce("wrong", if_unknown).cast(pl.Int64).fill_null(-1),
            order=pl.arg_sort_by("question_id", "draw"),
        )
        # -1 where unknown
        self._refused: Cells = flags["refused"].to_numpy()
        self._wrong: Cells = flags["wrong"].to_numpy()
        self._order: Cells = flags["order"].to_numpy()
        self._is_graded = ~missing.to_numpy()
        self.cells: Cells = np.where(self._is_graded, 2 * self._refused + self._wrong, -1)
        self._counts = np.bincount(self.cells[self._is_graded], minlength=len(CELLS)).astype(float)

    def first_allowed(self, group: Cells, cells: Sequence[str]) -> str | None:
        """Return the first of some cells that the rows of a group can be in; None if there is none."""
        allowed = self._allowed(group)
        return next((cell for cell in cells if allowed[CELLS.index(cell)]), None)

    def groups(self, cells: Sequence[str] = ()) -> list[Cells]:
        """Return the rows without a grade, grouped by what is known of them, in random order.

        - `cells`: groups that can be in the first of these cells come first, then those that can be in the second.
        """
        order = np.random.default_rng(SEED).permutation(self._order)
        unknown = order[self._is_imputed.to_numpy()[order]]
        found = []
        for refused in (-1, 0, 1):
            for wrong in (-1, 0, 1):
                group = unknown[(self._refused[unknown] == refused) & (self._wrong[unknown] == wrong)]
                if len(group):
                    found.append(group)

        def rank(group: Cells) -> int:
            cell = self.first_allowed(group, cells)
            return len(cells) if cell is None else cells.index(cell)

        return sorted(found, key=rank)

    def spread(self, group: Cells, adverse: Collection[str], odds: float) -> Cells:
        """Return a cell for each row of a group, in proportion to the graded rows and the odds."""
        if not len(group):
            return group
        allowed = self._allowed(group)
        shares = np.where(allowed, self._counts, 0.0)
        if not shares.any():
            shares = allowed.astype(float)
        shares = shares * [odds if cell in adverse else 1.0 for cell in CELLS]
        return np.repeat(np.arange(len(CELLS)), _apportioned(len(group), shares))

    def with_cells(self, cells: Cells) -> pl.DataFrame:
        """Return the rows, those to be imputed with the flags of these cells."""
        flags = {"refused": cells // 2, "wrong": cells % 2}
        return self.rows.with_columns(
            pl.when(self._is_imputed).then(pl.Series(values).cast(pl.Boolean)).otherwise(name).alias(name)
            for name, values in flags.items()
        )

    def _allowed(self, group: Cells) -> NDArray[np.bool_]:
        refused = self._refused[group[0]]
        wrong = self._wrong[group[0]]
        places = np.arange(len(CELLS))
        fits_refused = (refused < 0) | (places // 2 == refused)
        fits_wrong = (wrong < 0) | (places % 2 == wrong)
        return np.asarray(fits_refused & fits_wrong)


def _apportioned(number: int, shares: Sequence[float] | NDArray[np.float64]) -> Cells:
    """Return whole numbers with this sum, in proportion to the shares, by the largest remainders.

    >>> _apportioned(7, [1.0, 1.0, 2.0]).tolist()
    [2, 2, 3]
    """
    exact = number * np.asarray(shares) / np.sum(shares)
    whole = np.floor(exact).astype(np.int64)
    largest = np.argsort(whole - exact, kind="stable")
    whole[largest[: number - whole.sum()]] += 1
    return whole
