"""Questions that come in clusters, or stand for different numbers of others: from the table's columns to the design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from refusal_index.outcomes.errors import OutcomeTableError, shortened
from refusal_index.stats import SampledTable, refusal_index
from refusal_index.stats.design import FEW_CLUSTERS, effective_number
from refusal_index.stats.influence import cell_influence

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

    def sentence(self, n: int) -> str:
        """Say how n questions were sampled and what they are worth."""
        parts = [f"{n:,} questions"]
        if self.cluster is not None:
            parts.append(f"in {self.clusters:,} clusters (column {self.cluster!r})")
        if self.weight is not None:
            parts.append(f"with weights (column {self.weight!r}) worth {self.effective_by_weight:,.0f} equal ones")
        known = None if self.few else self.effective_questions  # too few clusters to tell
        worth = "" if known is None else f": worth {known:,.0f} independent ones"
        rest = " Ranges over missing grades and scoring rules take all questions alike." if self.weight else ""
        return f"{' '.join(parts)}{worth}.{rest}"


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
    found: dict[str, Any] = {}
    if _is_filled(rows, "cluster"):
        found["cluster"] = rows["cluster"].to_numpy()
    if _is_filled(rows, "weight"):
        found["weight"] = rows["weight"].to_numpy()
    return found


def sampling_summary(outcomes: pl.DataFrame, table: SampledTable | None, sampling: Sampling) -> SamplingSummary | None:
    """Describe the sampling of one variant; None where its questions are independent and count alike."""
    if table is None:
        return None
    columns = [sampling.column(name) if _is_filled(outcomes, name) else None for name in COLUMNS]
    scored = outcomes.drop_nulls(["refused", "wrong"])
    weights = np.ones(table.n) if columns[1] is None else scored["weight"].to_numpy()
    degrees, size = table.degrees_of_freedom, _effective_questions(table)
    return SamplingSummary(
        cluster=columns[0],
        weight=columns[1],
        clusters=table.n_clusters,
        degrees_of_freedom=None if np.isnan(degrees) else degrees,
        effective_by_weight=effective_number(weights) if table.n else 0.0,
        effective_questions=size,
    )


def _effective_questions(table: SampledTable) -> float | None:
    result = refusal_index(table)
    if result.rho is None or result.status != "ok":
        return None
    return table.effective_size(cell_influence(table, result.rho))


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
        _refuse_contradictions(known.select("question_id", name).drop_nulls().unique(), name)
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


def _refuse_contradictions(known: pl.DataFrame, name: str) -> None:
    twice = known.filter(pl.len().over("question_id") > 1).sort("question_id", name)
    if twice.height:
        question_id, (one, other) = twice["question_id"][0], twice[name][:2]
        raise OutcomeTableError(
            f"question_id {shortened(question_id)} has the {name} {one!r} in one run and {other!r} in another; a "
            f"question has one {name}: correct it, or name another column with --{name}"
        )


def _is_filled(table: pl.DataFrame, name: str) -> bool:
    return name in table.columns and table[name].null_count() < table.height
