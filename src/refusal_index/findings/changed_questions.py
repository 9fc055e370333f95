"""Questions on which a candidate differs most from its baseline, and whether by more than sampling noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

import polars as pl

SHOWN = 10
"""Number of questions that are shown."""

FALSE_DISCOVERIES = 0.05
"""False discovery rate of the questions that are said to have changed by more than sampling noise."""

WORTH = {"answered_right": 1.0, "refused_wrong": 0.0, "refused_right": 0.0, "answered_wrong": -1.0}
"""Worth of each of the four outcomes, used to measure a change."""


@dataclass(frozen=True)
class ChangedQuestion:
    """A question on which two models differ."""

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
    may_be_noise: bool  # whether further samples of one model may differ as much


def most_changed(
    candidate: pl.DataFrame, baseline: pl.DataFrame, shared: Collection[str], exact: bool, limit: int = SHOWN
) -> tuple[ChangedQuestion, ...]:
    """Find the questions that changed most: significant changes first, largest changes first, losses before gains.

    The draws that both runs have of a question are exchanged in every possible way; how often the mean worth then
    differs by at least as much is an exact p-value (permutation test). Benjamini and Hochberg's procedure keeps the
    share of false ones among the significant changes at `FALSE_DISCOVERIES`.

    - `candidate`, `baseline`: rows of one variant each, all draws.
    - `shared`: ids of the questions to compare.
    - `exact`: whether both models are deterministic, so that every change is beyond sampling noise.
    """
    both = _matched(candidate, baseline, shared)
    adjusted = [] if exact else _adjusted(both)
    noise = pl.Series(adjusted, dtype=pl.Float64) > FALSE_DISCOVERIES if adjusted else pl.lit(value=False)
    changed = (
        both.with_columns(may_be_noise=noise)
        .filter(pl.col("change") != 0)
        .sort("may_be_noise", -pl.col("change").abs(), "change", "question_id")
    )
    columns = ("question_id", "question", "cell_before", "cell", "draws_before", "draws", "change", "may_be_noise")
    return tuple(ChangedQuestion(*row) for row in changed.select(columns).head(limit).iter_rows())


def _adjusted(both: pl.DataFrame) -> list[float]:
    """Return the p-value of each question's change, adjusted for the number of questions."""
    from scipy.stats import false_discovery_control  # noqa: PLC0415 - takes half a second to import

    pvalues = [
        permutation_pvalue(tuple(now), tuple(before))
        for now, before in both.select("worths", "worths_before").iter_rows()
    ]
    return list(false_discovery_control(pvalues)) if pvalues else []


def change_limit(candidate: pl.DataFrame, baseline: pl.DataFrame, shared: Collection[str], exact: bool) -> str | None:
    """Return the code of the reason why no single question can change significantly; None if one can."""
    both = _matched(candidate, baseline, shared)
    samples = 0 if exact else max(map(len, both["worths"]), default=0)
    if samples < 2:
        return "single_responses" if samples else None
    # A question that went from always right to always wrong has the smallest p-value there is.
    smallest = both.height * 2 / math.comb(2 * samples, samples)
    return "too_few_samples" if smallest > FALSE_DISCOVERIES else None


@cache
def permutation_pvalue(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """Return the share of all exchanges of two samples that move their means at least as far apart as they are.

    >>> permutation_pvalue((1.0,) * 5, (-1.0,) * 5), permutation_pvalue((1.0, 1.0), (-1.0, -1.0))
    (0.007936507936507936, 0.3333333333333333)
    """
    values = first + second
    m = len(first)
    total = sum(values)
    observed = abs(sum(first) / m - sum(second) / len(second))
    counts: Counter[tuple[int, float]] = Counter({(0, 0.0): 1})
    for value in values:
        counts += Counter(
            {(size + 1, subtotal + value): count for (size, subtotal), count in counts.items() if size < m}
        )
    distances = {
        subtotal: abs(subtotal / m - (total - subtotal) / len(second)) for size, subtotal in counts if size == m
    }
    return sum(
        counts[m, subtotal] for subtotal, distance in distances.items() if distance >= observed - 1e-9
    ) / math.comb(len(values), m)


def _matched(candidate: pl.DataFrame, baseline: pl.DataFrame, shared: Collection[str]) -> pl.DataFrame:
    """Return the draws that are graded in both runs side by side, one row per question."""
    ids = pl.DataFrame({"question_id": list(shared)}, schema={"question_id": pl.String})
    candidate_rows, baseline_rows = (rows.join(ids, on="question_id", how="semi") for rows in (candidate, baseline))
    graded = [rows.drop_nulls(["refused", "wrong"]) for rows in (candidate_rows, baseline_rows)]
    draw_key = ["question_id", "draw"]
    now, before = (_by_question(rows.join(other, on=draw_key, how="semi")) for rows, other in (graded, graded[::-1]))
    return now.join(before, on="question_id", suffix="_before").with_columns(
        change=(pl.col("worth") - pl.col("worth_before")).round(9)
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
    mode = pl.col("cell").mode().sort().first()
    return counted.group_by("question_id").agg(
        pl.col("worth").mean(),
        pl.col("question").drop_nulls().first(),
        worths=pl.col("worth").sort(),
        cell=mode,
        draws=pl.format("{} of {}", (pl.col("cell") == mode).sum(), pl.len()),
    )
