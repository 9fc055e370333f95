"""Scores of two runs by the same methods, compared: how well each orders right and wrong answers, and calibrates.

Where both runs scored the same questions, each question is compared with itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.outcomes.confidence_summary import difference_of, graded, scores_by_method
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.stats import Estimate, auroc, brier_score
from refusal_index.stats.calibration.auroc import auroc_influence

AUROC, BRIER = "auroc", "brier"

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ScoreComparison:
    """One measure of one method, in two runs.

    Attributes
    ----------
    measure
        ``"auroc"`` or ``"brier"``.
    method, variant, of
        Whose scores: see `MethodSummary`.
    paired
        Whether it is over the questions that both runs scored; else each run is taken on its own.
    questions
        How many each rests on, the first run's and the second's.
    first, second
        The measure in either run.
    difference
        The first less the second, with its interval.
    """

    measure: str
    method: str
    variant: str | None
    of: str | None
    paired: bool
    questions: tuple[int, int]
    first: float | None
    second: float | None
    difference: Estimate


def compare_confidence(
    first: ComparedRun, second: ComparedRun, *, variant: str | None = None, confidence_level: float = 0.95
) -> tuple[ScoreComparison, ...]:
    """Compare two runs by the methods that scored answers in both.

    Parameters
    ----------
    first, second
        The runs.
    variant
        The only variant to compare, beside scores that belong to all; None for all.
    confidence_level
        Of every interval.
    """
    if first.confidence is None or second.confidence is None:
        return ()
    ours, theirs = (scores_by_method(run.confidence) for run in (first, second) if run.confidence is not None)
    shared = [key for key in ours if key in theirs and (variant is None or key[1] in (None, variant))]
    return tuple(one for key in shared for one in _compared(key, ours[key], theirs[key], confidence_level))


def _compared(
    key: tuple[str, str | None, str | None], first: pl.DataFrame, second: pl.DataFrame, level: float
) -> Iterator[ScoreComparison]:
    ours, theirs, paired = _matched(first, second)
    sides = graded(ours), graded(theirs)
    sizes = (ours.height, theirs.height)
    for measure, found, influences in (
        (AUROC, [auroc(*side) for side in sides], [auroc_influence(*side) for side in sides]),
        (BRIER, [brier_score(*side) for side in sides], [_brier_influence(*side) for side in sides]),
    ):
        numbers = [one.estimate for one in found]
        difference = difference_of(found, influences if paired else _apart(*influences), level)
        yield ScoreComparison(measure, *key, paired, sizes, numbers[0], numbers[1], difference)


def _matched(first: pl.DataFrame, second: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, bool]:
    """Keep the questions that both have a score and a grade for, in one order, if they are half of the fewer or more.

    As with outcomes, runs that share fewer are compared as they are.
    """
    ours, theirs = (scores.drop_nulls(["confidence", "wrong"]).sort("question_id") for scores in (first, second))
    of_ours = ours.join(theirs, on="question_id", how="semi", maintain_order="left")
    of_theirs = theirs.join(ours, on="question_id", how="semi", maintain_order="left")
    if of_ours.height and 2 * of_ours.height >= min(ours.height, theirs.height):
        return of_ours, of_theirs, True
    return ours, theirs, False


def _brier_influence(score: FloatArray, right: NDArray[np.bool_]) -> FloatArray:
    losses = (score - right) ** 2
    return np.asarray((losses - losses.mean()) / losses.size) if losses.size else losses


def _apart(first: FloatArray, second: FloatArray) -> Sequence[FloatArray]:
    """Lay out the influence of questions of which no two are the same."""
    return np.pad(first, (0, second.size)), np.pad(second, (first.size, 0))
