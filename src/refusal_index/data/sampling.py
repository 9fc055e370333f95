"""Clusters and weights of questions, and matrices of outcomes with one row a run and one column a question.

Statistics over several runs need to know which outcomes belong to the same question. Rows are matched by question id;
a question that a run was not asked, or that has no grade there, is a gap in that row and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.data.errors import OutcomeTableError, shortened
from refusal_index.data.outcome import Grade
from refusal_index.stats import SampledTable, refusal_index
from refusal_index.stats.contingency import FEW_CLUSTERS, effective_number
from refusal_index.stats.intervals import cell_influence

COLUMNS = ("cluster", "weight")


@dataclass(frozen=True)
class Sampling:
    """Which columns say how questions were sampled; None for those called `cluster` and `weight`, where filled."""

    cluster: str | None = None
    weight: str | None = None

    def column(self, name: str) -> str:
        """Return what the column `name`, one of `COLUMNS`, is called in a file."""
        return getattr(self, name) or name


OWN_COLUMNS = Sampling()


@dataclass(frozen=True)
class SamplingSummary:
    """How the questions behind a variant's numbers were sampled."""

    # cluster, weight: the columns that say so; None where none does
    cluster: str | None
    weight: str | None
    clusters: int  # clusters with a scored question; questions where they are independent
    degrees_of_freedom: float | None  # of every standard error; None for a single cluster
    # questions that weights of one size would need; the number of questions where weights are equal
    effective_by_weight: float
    # independent questions that would give the index the same standard error; None where it has none
    effective_questions: float | None

    @property
    def few(self) -> bool:
        """Whether there are fewer clusters than an interval should rest on."""
        return self.cluster is not None and self.clusters < FEW_CLUSTERS


def sampled_table(outcomes: pl.DataFrame) -> SampledTable | None:
    """Count the scored rows of one variant with their clusters and weights; None where it has neither.

    - `outcomes`: rows of one model, dataset and variant, one draw a question.
    """
    if not any(_is_filled(outcomes, name) for name in COLUMNS):
        return None
    rows = outcomes.drop_nulls(["refused", "wrong"]).filter(pl.col("weight").fill_null(1) > 0)
    return SampledTable.from_arrays(rows["refused"].to_numpy(), rows["wrong"].to_numpy(), **design_of(rows))


def design_of(rows: pl.DataFrame) -> dict[str, Any]:
    """Give clusters and weights as the functions of `refusal_index.stats` take them; empty where there are none."""
    return {name: rows[name].to_numpy() for name in COLUMNS if _is_filled(rows, name)}


def sampling_summary(outcomes: pl.DataFrame, table: SampledTable | None, sampling: Sampling) -> SamplingSummary | None:
    """Describe the sampling of one variant; None where its questions are independent and count alike."""
    if table is None:
        return None
    columns = [sampling.column(name) if _is_filled(outcomes, name) else None for name in COLUMNS]
    scored = outcomes.drop_nulls(["refused", "wrong"])
    weights = np.ones(table.n) if columns[1] is None else scored["weight"].to_numpy()
    degrees, index = table.degrees_of_freedom, refusal_index(table)
    rho = index.rho if index.status == "ok" else None
    return SamplingSummary(
        cluster=columns[0],
        weight=columns[1],
        clusters=table.n_clusters,
        degrees_of_freedom=None if np.isnan(degrees) else degrees,
        effective_by_weight=effective_number(weights) if table.n else 0.0,
        effective_questions=None if rho is None else table.effective_size(cell_influence(table, rho)),
    )


def describe(design: Mapping[str, Any], sampling: Sampling) -> dict[str, Any] | None:
    """Describe the sampling of matched questions as JSON holds it; None where they are independent and count alike."""
    if not design:
        return None
    cluster, weight = design.get("cluster"), design.get("weight")
    return {
        "cluster": None if cluster is None else sampling.column("cluster"),
        "weight": None if weight is None else sampling.column("weight"),
        "clusters": None if cluster is None else len(set(cluster.tolist())),
        "effective_by_weight": None if weight is None else effective_number(weight),
    }


def matched_design(tables: Sequence[pl.DataFrame], ids: pl.DataFrame) -> dict[str, Any]:
    """Give clusters and weights of questions that several runs share, in the order of `ids`.

    Raises OutcomeTableError if runs disagree about a question, or none says what others say of theirs.
    """
    filled = [name for name in COLUMNS if any(_is_filled(table, name) for table in tables)]
    if not filled:
        return {}
    known = pl.concat([table.select("question_id", *COLUMNS) for table in tables])
    for name in filled:
        values = known.select("question_id", name).drop_nulls().unique()
        twice = values.filter(pl.len().over("question_id") > 1).sort("question_id", name)
        if twice.height:
            raise OutcomeTableError(
                f"question_id {shortened(twice['question_id'][0])} has the {name} {twice[name][0]!r} in one run and "
                f"{twice[name][1]!r} in another; a question has one {name}: correct it, or name another column with "
                f"--{name}"
            )
    rows = ids.join(
        known.group_by("question_id").agg(pl.col(name).drop_nulls().first() for name in COLUMNS),
        on="question_id",
        how="left",
        maintain_order="left",
    )
    for name in filled:
        lacking = rows.filter(pl.col(name).is_null())
        if lacking.height:
            raise OutcomeTableError(
                f"question_id {shortened(lacking['question_id'][0])} has no {name}, and other questions have one; give "
                f"all runs a column {name!r}, or name one that they have with --{name}"
            )
    return design_of(rows)


def _is_filled(table: pl.DataFrame, name: str) -> bool:
    return name in table.columns and table[name].null_count() < table.height


BoolMatrix = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class OutcomeMatrix:
    """Outcomes side by side."""

    question_ids: tuple[str, ...]  # the n questions that occur anywhere, in the order in which they appear
    # refused, wrong: shape (k, n); False where the question has no outcome
    refused: BoolMatrix
    wrong: BoolMatrix
    scored: BoolMatrix  # shape (k, n); whether the question has one
    # clusters and weights of the questions, shape (n,) each, by the names under which `refusal_index.stats` takes them
    design: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arrays(self) -> tuple[BoolMatrix, BoolMatrix, BoolMatrix]:
        """`refused`, `wrong` and `scored`, as the functions of `refusal_index.stats` take them."""
        return self.refused, self.wrong, self.scored

    @property
    def shared(self) -> BoolMatrix:
        """The questions scored in every row, shape (n,)."""
        return np.asarray(self.scored.all(axis=0))

    def of_questions(self, chosen: BoolMatrix) -> OutcomeMatrix:
        """Keep some of the questions."""
        ids = tuple(question for question, keep in zip(self.question_ids, chosen, strict=True) if keep)
        design = {name: values[chosen] for name, values in self.design.items()}
        return OutcomeMatrix(ids, self.refused[:, chosen], self.wrong[:, chosen], self.scored[:, chosen], design)

    def of_rows(self, chosen: Sequence[int]) -> OutcomeMatrix:
        """Keep some of the rows, in this order."""
        rows = list(chosen)
        return OutcomeMatrix(self.question_ids, self.refused[rows], self.wrong[rows], self.scored[rows], self.design)


def first_draws(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Keep the first draw of each question: the draw of every number that rests on one draw.

    >>> rows = pl.DataFrame({"model": "m", "dataset": "d", "variant": "v", "question_id": ["a", "a"], "draw": [1, 0]})
    >>> first_draws(rows)["draw"].to_list()
    [0]
    """
    return outcomes if drawn_once(outcomes) else outcomes.filter(pl.col("draw") == _FIRST_DRAW)


def further_draws(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Keep all draws of each question but the first.

    >>> rows = pl.DataFrame({"model": "m", "dataset": "d", "variant": "v", "question_id": ["a", "a"], "draw": [1, 0]})
    >>> further_draws(rows)["draw"].to_list()
    [1]
    """
    return outcomes.clear() if drawn_once(outcomes) else outcomes.filter(pl.col("draw") > _FIRST_DRAW)


_FIRST_DRAW = pl.col("draw").min().over("model", "dataset", "variant", "question_id")


def drawn_once(outcomes: pl.DataFrame) -> bool:
    """Whether all rows are of the same draw, so that no question occurs twice; a quick check for the common case."""
    return bool(outcomes["draw"].min() == outcomes["draw"].max())


def outcome_matrix(tables: Sequence[pl.DataFrame]) -> OutcomeMatrix:
    """Match the first draws of several runs or variants by question id.

    Raises OutcomeTableError if two tables ask different questions under the same id.

    - `tables`: rows of outcome tables, each of one model, dataset and variant.

    >>> low = pl.DataFrame({"question_id": ["a", "b"], "refused": [False, True], "wrong": [True, None]})
    >>> high = pl.DataFrame({"question_id": ["a", "c"], "refused": [True, True], "wrong": [True, True]})
    >>> columns = pl.lit(None, pl.String).alias("question"), pl.lit(0).alias("draw")
    >>> groups = [pl.lit("m").alias(name) for name in ("model", "dataset", "variant")]
    >>> outcome_matrix([table.with_columns(*columns, *groups) for table in (low, high)]).scored.tolist()
    [[True, False, False], [True, False, True]]
    """
    rows = [first_draws(table) for table in tables]
    _check_texts(rows)
    ids = pl.concat([table.select("question_id") for table in rows]).unique(maintain_order=True)
    matrix = _matrix([table.select("question_id", "refused", "wrong") for table in rows], ids)
    return replace(matrix, design=matched_design(rows, ids))


@dataclass(frozen=True, eq=False)
class DrawnOutcomes:
    """Repeated draws of one variant beside a single draw of each of its questions, all over the same columns."""

    repeated: OutcomeMatrix  # a row a draw, as `draw_matrix` makes it; gaps where a question was drawn once
    single: OutcomeMatrix  # one row, as `outcome_matrix` makes it


def drawn_outcomes(tables: Sequence[pl.DataFrame]) -> tuple[DrawnOutcomes, ...]:
    """Put the single and the repeated draws of several runs side by side, by question id.

    Raises OutcomeTableError as `outcome_matrix`.

    - `tables`: as for `draw_matrices`.
    """
    singles = outcome_matrix(tables)
    ids = pl.DataFrame({"question_id": singles.question_ids}, schema={"question_id": pl.String})
    return tuple(
        DrawnOutcomes(_matrix(_by_draw(_repeated_draws(table)), ids), singles.of_rows([row]))
        for row, table in enumerate(tables)
    )


def draw_matrix(outcomes: pl.DataFrame) -> OutcomeMatrix:
    """Put the draws of one variant side by side, for the questions that were drawn more than once.

    `wrong` is that of the forced answer, whether the first pass refused or answered: the noise of an estimate is found
    by comparing like with like. A draw without a forced answer, or in which either pass has no grade, is a gap.

    - `outcomes`: rows of one model, dataset and variant.
    """
    return draw_matrices([outcomes])[0]


def draw_matrices(tables: Sequence[pl.DataFrame]) -> tuple[OutcomeMatrix, ...]:
    """Put the draws of several runs side by side, each run as `draw_matrix` does, all over the same questions.

    - `tables`: rows of outcome tables, each of one model, dataset and variant.
    - returned: one a table, with as many rows as it has draws. Its columns are the questions that were drawn more than
      once in any of the tables.
    """
    repeated = [_repeated_draws(table) for table in tables]
    ids = pl.concat([rows.select("question_id") for rows in repeated]).unique(maintain_order=True)
    return tuple(_matrix(_by_draw(rows), ids) for rows in repeated)


def _by_draw(rows: pl.DataFrame) -> list[pl.DataFrame]:
    return rows.sort("draw", maintain_order=True).partition_by("draw", maintain_order=True)


def _repeated_draws(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Keep the draws with grades in both passes of the questions that have more than one such draw."""
    forced = pl.col("forced_grade")
    outcomes = outcomes.clear() if drawn_once(outcomes) else outcomes
    graded = outcomes.filter(pl.col("refused").is_not_null() & forced.is_not_null() & (forced != Grade.UNSCORED.value))
    repeated = graded.filter(pl.len().over("question_id") > 1).with_columns(wrong=forced != Grade.CORRECT.value)
    return repeated.select("question_id", "draw", "refused", "wrong")


def _matrix(tables: Sequence[pl.DataFrame], ids: pl.DataFrame) -> OutcomeMatrix:
    """Put tables of at most one row a question side by side, as rows over the given questions."""
    shape = (len(tables), ids.height)
    aligned = [ids.join(table, on="question_id", how="left", maintain_order="left") for table in tables]
    scored = [(rows["refused"].is_not_null() & rows["wrong"].is_not_null()).to_numpy() for rows in aligned]
    refused, wrong = (
        [rows[name].fill_null(value=False).to_numpy() for rows in aligned] for name in ("refused", "wrong")
    )
    r, w, s = (np.array(part, bool).reshape(shape) for part in (refused, wrong, scored))
    return OutcomeMatrix(tuple(ids["question_id"]), r & s, w & s, s)


def _check_texts(tables: Sequence[pl.DataFrame]) -> None:
    """Raise `OutcomeTableError` where an id stands for two questions: matching them would compare unlike things."""
    texts = [table.select("question_id", "question").drop_nulls() for table in tables]
    # Hashes are counted first, as all texts together may take more memory than there is.
    ids, pairs = pl.concat(texts).select("question_id", pair=pl.struct("question_id", "question").hash())
    if pairs.n_unique() > ids.n_unique():
        ambiguous = pl.concat(texts).unique().filter(pl.col("question_id").is_duplicated())
        (question_id, text), (_, other) = ambiguous.sort("question_id", "question").head(2).iter_rows()
        raise OutcomeTableError(
            f"question_id {shortened(question_id)} stands for {shortened(text)} and for {shortened(other)}: expected "
            "the same question under the same id; give the questions ids of their own, or compare runs over one file"
        )
