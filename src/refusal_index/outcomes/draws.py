"""What repeated samples add: the corrected Refusal Index, and how random the model is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.outcomes.matching import (
    DrawnOutcomes,
    OutcomeMatrix,
    draw_matrices,
    draw_matrix,
    drawn_once,
    drawn_outcomes,
)
from refusal_index.stats import (
    CorrectedRefusalIndexResult,
    Estimate,
    auroc,
    corrected_refusal_index,
    deterministic_refusal_index,
    joint_corrected_refusal_index,
    mid_rank_spearman,
)

INDEX = "refusal_index"
"""RI: the index of one response per question, the number that the paper reports."""

CORRECTED = "corrected_refusal_index"
"""RI estimated for the model's probabilities of refusing and of being wrong, from repeated samples."""

NO_REPEATED_QUESTIONS = "no_repeated_questions"

SEED = 0
"""Of the resamples behind the intervals: the same outcomes give the same summary."""


@dataclass(frozen=True)
class DrawsSummary:
    """What the repeated draws of one variant show.

    From RI, `forced_for_all` and `uncorrected` lead to the corrected index, one change at a time. All are weighted to
    stand for all questions.
    """

    questions: int  # questions with at least two draws in which both passes have a grade
    draws: int  # the most draws of any of them
    # forced_for_all: of a single draw, the answer to every question being a forced one
    forced_for_all: float | None
    # uncorrected: the same, with the refusal of one draw and the answer of another, which share no chance
    uncorrected: float | None
    corrected_refusal_index: Estimate  # sampling noise removed as well; the first draws of all questions enter
    # refusal_reliability, error_reliability: tetrachoric correlation of two draws of the refusal, and of the error
    refusal_reliability: float | None
    error_reliability: float | None
    # rank correlation of the observed frequencies: noise and ties included, so another number than the index
    mid_rank_spearman: Estimate
    # how well the share of the further draws that answered, P(Answering), tells whether the first draw's answer was
    # right
    p_answering_auroc: Estimate


def draws_summary(
    outcomes: pl.DataFrame, confidence_level: float, *, is_deterministic: bool = False
) -> DrawsSummary | None:
    """Return what the repeated draws of one variant show; None where no question was drawn twice.

    - `is_deterministic`: as for `corrected_indices`.
    """
    matrix = draw_matrix(outcomes)
    if len(matrix.refused) < 2:
        return None
    (drawn,) = drawn_outcomes([outcomes])
    corrected, spearman = _corrected(drawn, is_deterministic), mid_rank_spearman(*matrix.arrays)
    area = auroc(*p_answering(matrix))
    return DrawsSummary(
        questions=int(np.count_nonzero(matrix.scored.sum(axis=0) > 1)),
        draws=int(matrix.scored.sum(axis=0).max()),
        forced_for_all=corrected.forced_for_all,
        uncorrected=corrected.uncorrected,
        corrected_refusal_index=_named(corrected, confidence_level),
        refusal_reliability=corrected.refusal_reliability,
        error_reliability=corrected.error_reliability,
        mid_rank_spearman=Estimate.of(spearman, spearman.confidence_interval(confidence_level, rng=SEED)),
        p_answering_auroc=Estimate.of(area, area.confidence_interval(confidence_level)),
    )


def corrected_indices(
    tables: Sequence[pl.DataFrame], is_deterministic: Sequence[bool] | None = None
) -> tuple[CorrectedRefusalIndexResult, ...]:
    """Estimate the corrected index of each of some variants, over the questions of all of them.

    It is undefined as ``"no_repeated_questions"`` where no question was drawn twice, except where `is_deterministic`.

    - `tables`: rows of outcome tables, each of one model, dataset and variant.
    - `is_deterministic`: which models were asked at temperature 0. Their corrected index repeats RI, unless repeated
      draws of a question differ: hosted models are not exactly deterministic.
    """
    at_zero = is_deterministic or [False] * len(tables)
    return tuple(_corrected(drawn, same) for drawn, same in zip(drawn_outcomes(tables), at_zero, strict=True))


def is_defined(result: CorrectedRefusalIndexResult) -> bool:
    """Whether questions were drawn repeatedly, or need not be."""
    return result.reason != NO_REPEATED_QUESTIONS


def joint_corrected_index(
    tables: Sequence[pl.DataFrame], confidence_level: float, *, is_deterministic: bool
) -> Estimate | None:
    """Estimate one corrected index from all variants of a model; None where one has none."""
    if not is_deterministic and any(map(drawn_once, tables)):
        return None
    found = corrected_indices(tables, [is_deterministic] * len(tables))
    if not all(map(is_defined, found)):
        return None
    return _named(joint_corrected_refusal_index(found), confidence_level)


def _corrected(drawn: DrawnOutcomes, is_deterministic: bool) -> CorrectedRefusalIndexResult:
    single, repeated = drawn.single, drawn.repeated.arrays
    if is_deterministic and not _differ([drawn.repeated]):
        return deterministic_refusal_index(*(row[0] for row in single.arrays), **single.design)
    if len(repeated[0]) < 2:
        nothing = np.zeros((2, len(single.question_ids)), bool)
        repeated = nothing, nothing, nothing  # no question was drawn twice
    return corrected_refusal_index(*repeated, single=[row[0] for row in single.arrays], **single.design)


def repeats_ri(tables: Sequence[pl.DataFrame], *, is_deterministic: bool) -> bool:
    """Whether the corrected index is RI: of models at temperature 0 of which no two draws of a question differ.

    - `tables`: rows of outcome tables, each of one model, dataset and variant.
    """
    return is_deterministic and not _differ(draw_matrices(tables))


def _differ(repeated: Sequence[OutcomeMatrix]) -> bool:
    return any(
        bool(((part & one.scored).any(axis=0) & (~part & one.scored).any(axis=0)).any())
        for one in repeated
        for part in (one.refused, one.wrong)
    )


def _named(result: CorrectedRefusalIndexResult, confidence_level: float) -> Estimate:
    return replace(Estimate.of(result, result.confidence_interval(confidence_level)), name=CORRECTED)


def usable_questions(matrix: OutcomeMatrix) -> NDArray[np.bool_]:
    """Say which questions have a first and a further draw, shape (n,)."""
    return np.asarray(matrix.scored[0] & matrix.scored[1:].any(axis=0))


def p_answering(matrix: OutcomeMatrix) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """P(Answering) of every question with a first and a further draw, and whether its first forced answer was right.

    The first draw is left out of the share, so that a question's chance does not enter on both sides.
    """
    usable = usable_questions(matrix)
    scored, refused = matrix.scored[1:, usable], matrix.refused[1:, usable]
    share = (scored & ~refused).sum(axis=0) / scored.sum(axis=0)
    return share, ~matrix.wrong[0, usable]
