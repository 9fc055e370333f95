"""What repeated draws add: how much of a model's behaviour is chance, and the index without that noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.outcomes.matching import OutcomeMatrix, draw_matrices, draw_matrix
from refusal_index.stats import (
    Estimate,
    NoiseCorrectedDifference,
    auroc,
    compare_noise_corrected,
    frequency_refusal_index,
)

SEED = 0
"""Of the resamples behind the intervals: the same outcomes give the same summary."""


@dataclass(frozen=True)
class DrawsSummary:
    """What the repeated draws of one variant show."""

    questions: int  # questions with at least two draws in which both passes have a grade
    draws: int  # the most draws of any of them
    noise_corrected: Estimate  # the Refusal Index of the probabilities behind the draws
    # what single draws of the same questions show, refusal and answer taken from different ones
    uncorrected: float | None
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
    found = frequency_refusal_index(*matrix.arrays)
    corrected, spearman = found.copula, found.spearman
    area = auroc(*p_answering(matrix))
    return DrawsSummary(
        questions=corrected.patterns.n_questions,
        draws=int(matrix.scored.sum(axis=0).max()),
        noise_corrected=Estimate.of(corrected, corrected.confidence_interval(confidence_level, rng=SEED)),
        uncorrected=corrected.uncorrected,
        refusal_reliability=corrected.refusal_reliability,
        error_reliability=corrected.error_reliability,
        mid_rank_spearman=Estimate.of(spearman, spearman.confidence_interval(confidence_level, rng=SEED)),
        p_answering_auroc=Estimate.of(area, area.confidence_interval(confidence_level)),
    )


def corrected_difference(first: pl.DataFrame, second: pl.DataFrame, seed: int) -> NoiseCorrectedDifference | None:
    """Compare one variant of two runs by their noise-corrected indices; None where a run has no question drawn twice.

    It rests on the questions with repeated draws in both, if these are half of the smaller number or more, as a
    comparison of first draws does, and otherwise on all that either has.
    """
    matrices = draw_matrices([first, second])
    repeated = np.stack([matrix.scored.any(axis=0) for matrix in matrices])
    shared = np.asarray(repeated.all(axis=0))
    fewest = repeated.sum(axis=1).min()
    if fewest == 0:
        return None
    if shared.sum() >= fewest / 2:
        matrices = tuple(matrix.of_questions(shared) for matrix in matrices)
    one, other = matrices
    return compare_noise_corrected(one.arrays, other.arrays, rng=seed)


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
