"""Matching runs by question: which variants, and which questions of them, are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from refusal_index.data.rates import (
    OutcomeMatrix,
    by_answerable,
    first_draws,
    lacking_grades,
    never_forced,
    outcome_matrix,
    refusals_as_wrong,
    too_many_missing,
    without_grades,
)
from refusal_index.errors import OutcomeTableError, suggestion
from refusal_index.findings.run_differences import check_same_reading
from refusal_index.findings.run_results import RunResults

NEARLY_ALL = 0.9
"""Minimum share of the largest run's questions that all runs must share to be compared on these only."""


@dataclass(frozen=True)
class Match:
    """The questions that a comparison uses."""

    matrix: OutcomeMatrix  # one row per run
    # whether the matrix has only questions scored in every run; if not, each run keeps its own questions
    paired: bool
    left_out: tuple[int, ...]  # number of scored questions of each run that are not in the matrix
    # which runs have no forced pass, so that only metrics that need none can be computed from the matrix
    unforced: tuple[bool, ...] = ()
    # of each of these runs, why too many answers have no grade for metrics that count right ones; None if they have
    lacking: tuple[str | None, ...] = ()


def shared_variants(runs: Sequence[RunResults]) -> tuple[str | None, ...]:
    """Return the variants that every run has, in the order of the first run."""
    return tuple(variant for variant in runs[0].tables if all(variant in run.tables for run in runs))


def match(
    runs: Sequence[RunResults],
    variants: Sequence[str | None],
    *,
    without_forced_pass: bool = False,
    is_split: bool = False,
) -> Match:
    """Match the runs by question, one variant of each.

    Two runs are compared on the questions scored in both if these are at least half of the smaller run; more than two
    runs, on the questions scored in all if these are at least 90% of the largest run. Otherwise each run keeps all of
    its questions; those that two runs share are still paired. Raises OutcomeTableError if two different questions share
    an id.

    - `runs`, `variants`: the runs, and the variant of each.
    - `without_forced_pass`: whether runs without a forced pass keep the questions that they refused, as wrong; if too
      many of their answers have no grade, they keep these too.
    - `is_split`: whether `wrong` is that of `by_answerable`, whatever the grades.
    """
    tables = [run.tables[variant] for run, variant in zip(runs, variants, strict=True)]
    unforced = tuple(never_forced(first_draws(rows)) for rows in tables)
    lacking = tuple(
        lacking_grades(first_draws(rows)) if is_unforced else None
        for rows, is_unforced in zip(tables, unforced, strict=True)
    )
    if without_forced_pass:
        tables = [
            without_grades(rows) if lacks else refusals_as_wrong(rows) if is_unforced else rows
            for rows, is_unforced, lacks in zip(tables, unforced, lacking, strict=True)
        ]
    if is_split:
        return match_by_answerable(tables)
    return replace(match_tables(tables), unforced=unforced, lacking=lacking)


def refusals_are_known(tables: Iterable[pl.DataFrame]) -> bool:
    """Whether it is known of nearly every question if it was refused; the unknown ones may be refused more often."""
    return not any(too_many_missing(rows["refused"].null_count(), rows.height) for rows in tables)


def match_by_answerable(tables: Sequence[pl.DataFrame]) -> Match:
    """Match outcome tables with `wrong` for the unanswerable questions, whatever the grades, where that is known."""
    return match_tables([by_answerable(rows) for rows in tables])


def match_tables(tables: Sequence[pl.DataFrame]) -> Match:
    """Match outcome tables by question as `match` does, one variant of each run."""
    matrix = outcome_matrix(tables)
    scored = matrix.scored.sum(axis=1)
    shared = int(matrix.shared.sum())
    enough = scored.min() / 2 if len(tables) == 2 else NEARLY_ALL * scored.max()
    if shared < enough or shared == 0:
        return Match(matrix, paired=False, left_out=(0,) * len(tables))
    left_out = tuple((scored - shared).tolist())
    return Match(matrix.of_questions(matrix.shared), paired=True, left_out=left_out)


def chosen_variant(runs: Sequence[RunResults], name: str) -> str:
    """Return `name` if every run has this variant; raises OutcomeTableError if a run lacks it."""
    for run in runs:
        if run.has_no_variants:
            raise OutcomeTableError(
                f"{run.label} names no prompt, got {name!r} to compare; leave the option out, or name the prompt in a "
                "column 'variant'"
            )
        if name not in run.tables:
            names = [str(variant) for variant in run.tables]
            raise OutcomeTableError(
                f"{run.label} has no prompt {name!r}; expected one of {', '.join(names)}{suggestion(name, names)}"
            )
    return name


def matched_variants(
    runs: Sequence[RunResults], variant: str | None, *, without_forced_pass: bool = False, is_split: bool = False
) -> dict[str, Match]:
    """Match the questions of each variant to compare, by variant name.

    Runs of one variant each are compared whatever these are called: to compare two prompts of one model, say. A run
    without variants, as one that answers by a score, stands beside each variant of the others. Raises OutcomeTableError
    if they share no variant, or their refusals were recognised in different ways.

    - `without_forced_pass`, `is_split`: as for `match`.
    """
    check_same_reading(runs)
    return {
        name: match(runs, variants, without_forced_pass=without_forced_pass, is_split=is_split)
        for name, variants in variants_compared(runs, variant).items()
    }


def variants_compared(runs: Sequence[RunResults], variant: str | None) -> dict[str, tuple[str | None, ...]]:
    """Return the variants to compare of each run, by the name used in the comparison."""
    named = [run for run in runs if not run.has_no_variants]
    if variant is not None:
        return {variant: _beside(runs, chosen_variant(named or runs, variant))}
    shared = shared_variants(named or runs)
    if shared:
        return {name or "all": _beside(runs, name) for name in shared}
    if all(len(run.tables) == 1 for run in runs):
        only = tuple(next(iter(run.tables)) for run in runs)
        return {" / ".join(name or "all" for name in only): only}
    listed = "; ".join(f"{run.label}: {', '.join(name or 'no prompt' for name in run.tables)}" for run in runs)
    raise OutcomeTableError(
        f"expected runs that share a prompt, got none ({listed}); run one of them under a prompt of the other, or "
        "name it in a column 'variant' of a file"
    )


def _beside(runs: Sequence[RunResults], variant: str | None) -> tuple[str | None, ...]:
    return tuple(None if run.has_no_variants else variant for run in runs)


def stacked(matches: Mapping[str, Match]) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
    """Put the variants' matrices together, shape (runs, variants, questions), by question, with their sampling."""
    matrices = [match.matrix for match in matches.values()]
    questions = dict.fromkeys(question for matrix in matrices for question in matrix.question_ids)
    ids = {question: column for column, question in enumerate(questions)}
    stacked = [np.zeros((len(matrices[0].refused), len(matrices), len(ids)), bool) for _ in range(3)]
    design: dict[str, Any] = {}
    for row, matrix in enumerate(matrices):
        columns = [ids[question] for question in matrix.question_ids]
        for stack, part in zip(stacked, matrix.arrays, strict=True):
            stack[:, row, columns] = part
        for name, values in matrix.design.items():
            design.setdefault(name, np.zeros(len(ids), values.dtype))[columns] = values
    return tuple(stacked), design
