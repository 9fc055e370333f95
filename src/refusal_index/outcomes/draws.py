"""What repeated draws add: the index of the model's probabilities, and how much of what it does is chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.outcomes.matching import (
    DrawnOutcomes,
    OutcomeMatrix,
    draw_matrix,
    drawn_once,
    drawn_outcomes,
)
from refusal_index.stats import (
    CorrectedRefusalIndexResult,
    Estimate,
    auroc,
    corrected_refusal_index,
    frequency_refusal_index,
    joint_corrected_refusal_index,
)

INDEX = "refusal_index"
"""The index as it is defined: of the model's probabilities of refusing and of being wrong."""

SINGLE_DRAW = "single_draw_refusal_index"
"""The index of one reply a question: another number, the further from the first the more random the model is."""

NO_REPEATED_QUESTIONS = "no_repeated_questions"

SEED = 0
"""Of the resamples behind the intervals: the same outcomes give the same summary."""


@dataclass(frozen=True)
class DrawsSummary:
    """What the repeated draws of one variant show.

    With the index of single draws before them, `forced_for_all`, `uncorrected` and `refusal_index` lead to that of the
    probabilities, one change at a time, all weighted to stand for all questions.
    """

    questions: int  # questions with at least two draws in which both passes have a grade
    draws: int  # the most draws of any of them
    # forced_for_all: of a single draw, the answer to every question being a forced one
    forced_for_all: float | None
    # uncorrected: the same, with the refusal of one draw and the answer of another, which share no chance
    uncorrected: float | None
    # refusal_index: that of the probabilities, without the chance in either; single draws of all questions enter
    refusal_index: Estimate
    # refusal_reliability, error_reliability: tetrachoric correlation of two draws of the refusal, and of the error
    refusal_reliability: float | None
    error_reliability: float | None
    # rank correlation of the observed frequencies: noise and ties included, so another number than the index
    mid_rank_spearman: Estimate
    # how well the share of the further draws that answered, P(Answering), tells whether the first draw's answer was
    # right
    p_answering_auroc: Estimate


def draws_summary(outcomes: pl.DataFrame, confidence_level: float) -> DrawsSummary | None:
    """Return what the repeated draws of one variant show; None where no question was drawn twice."""
    matrix = draw_matrix(outcomes)
    if len(matrix.refused) < 2:
        return None
    (drawn,) = drawn_outcomes([outcomes])
    corrected, spearman = _corrected(drawn), frequency_refusal_index(*matrix.arrays).spearman
    area = auroc(*p_answering(matrix))
    return DrawsSummary(
        questions=corrected.n_repeated,
        draws=int(matrix.scored.sum(axis=0).max()),
        forced_for_all=corrected.forced_for_all,
        uncorrected=corrected.uncorrected,
        refusal_index=_named(corrected, confidence_level),
        refusal_reliability=corrected.refusal_reliability,
        error_reliability=corrected.error_reliability,
        mid_rank_spearman=Estimate.of(spearman, spearman.confidence_interval(confidence_level, rng=SEED)),
        p_answering_auroc=Estimate.of(area, area.confidence_interval(confidence_level)),
    )


def corrected_indices(
    tables: Sequence[pl.DataFrame], always_alike: Sequence[bool] | None = None
) -> tuple[CorrectedRefusalIndexResult | None, ...]:
    """Estimate the index of the probabilities of each of some variants, over the questions of all of them.

    - `tables`: rows of outcome tables, each of one model, dataset and variant.
    - `always_alike`: which of them always reply the same, so that a single draw shows their probabilities.
    - returned: None for one that has no question drawn twice.
    """
    alike = always_alike or [False] * len(tables)
    return tuple(
        _corrected(drawn) if len(drawn.repeated.refused) > 1 else _as_two_draws(drawn.single) if same else None
        for drawn, same in zip(drawn_outcomes(tables), alike, strict=True)
    )


def index_of_probabilities(outcomes: pl.DataFrame, always_alike: bool) -> CorrectedRefusalIndexResult:
    """Estimate the index of the probabilities of one variant; undefined where no question was drawn twice.

    - `outcomes`: rows of one model, dataset and variant.
    - `always_alike`: whether the model always replies the same, so that a single draw shows its probabilities.
    """
    (drawn,) = drawn_outcomes([outcomes])
    once = len(drawn.repeated.refused) < 2
    return _as_two_draws(drawn.single) if always_alike and once else _corrected(drawn)


def joint_corrected_index(tables: Sequence[pl.DataFrame], confidence_level: float) -> Estimate | None:
    """Estimate one index of the probabilities from all variants of a model; None where one has no repeated draws."""
    if any(map(drawn_once, tables)):
        return None
    found = [one for one in corrected_indices(tables) if one is not None]
    if len(found) < len(tables):
        return None
    return _named(joint_corrected_refusal_index(found), confidence_level)


def _corrected(drawn: DrawnOutcomes) -> CorrectedRefusalIndexResult:
    single, repeated = [row[0] for row in drawn.single.arrays], drawn.repeated.arrays
    if len(repeated[0]) < 2:
        nothing = np.zeros((2, len(single[0])), bool)
        repeated = nothing, nothing, nothing  # no question was drawn twice
    return corrected_refusal_index(*repeated, single=single, **drawn.single.design)


def _as_two_draws(single: OutcomeMatrix) -> CorrectedRefusalIndexResult:
    return corrected_refusal_index(*(np.repeat(row, 2, axis=0) for row in single.arrays), **single.design)


def _named(result: CorrectedRefusalIndexResult, confidence_level: float) -> Estimate:
    return replace(Estimate.of(result, result.confidence_interval(confidence_level)), name=INDEX)


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
