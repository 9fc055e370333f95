"""Questions with several draws, reduced to counts, and resampled.

What is estimated from repeated draws depends on a question only through how many of its draws were refused, wrong, and
both. Questions with the same counts are one pattern, and resampling questions is a multinomial draw over the patterns.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.intervals import Seed, checked_resamples, normal_quantile
from refusal_index.stats.matrices import BoolArray

IntArray = NDArray[np.int64]

N_RESAMPLES = 2_000
# Weights a pass over the resamples; its working arrays then take a few tens of megabytes.
CHUNK_WEIGHTS = 1_000_000


@dataclass(frozen=True, slots=True)
class DrawPatterns:
    """The questions with at least two draws, those with the same counts put together.

    Attributes
    ----------
    draws, refused, wrong, refused_and_wrong : ndarray of int, shape (n_patterns,)
        Scored draws of such a question, and how many of them were refused, wrong, both at once.
    questions : ndarray of int, shape (n_patterns,)
        How many questions have these counts.
    """

    draws: IntArray
    refused: IntArray
    wrong: IntArray
    refused_and_wrong: IntArray
    questions: IntArray

    @property
    def n_questions(self) -> int:
        """Questions with at least two scored draws."""
        return int(self.questions.sum())


def count_draws(refused: BoolArray, wrong: BoolArray, scored: BoolArray) -> DrawPatterns:
    """Put the questions with two or more scored draws together by their counts."""
    per_question = question_counts(refused, wrong, scored)
    patterns, questions = np.unique(per_question[per_question[:, 0] >= 2], axis=0, return_counts=True)
    draws, refusals, errors, both = patterns.T
    return DrawPatterns(draws, refusals, errors, both, questions)


def question_counts(refused: BoolArray, wrong: BoolArray, scored: BoolArray) -> IntArray:
    """Count each question's draws, and those refused, wrong, and both; shape (n_questions, 4)."""
    return np.stack([np.count_nonzero(x, axis=0) for x in (scored, refused, wrong, refused & wrong)], axis=1)


def pair_cells(patterns: DrawPatterns) -> FloatArray:
    """Share of the pairs of different draws in each cell, for one question of each pattern; shape (n_patterns, 10).

    Four cells of refusal and error in the order of `CELL_NAMES`, then both, one, neither refused, and likewise for
    errors, where the order of the two draws does not matter and "one" is the share of either order. All are 0 where
    there are fewer than two draws.
    """
    m, r, w = patterns.draws, patterns.refused, patterns.wrong
    both = r * w - patterns.refused_and_wrong
    only_r, only_w, pairs = r * (m - 1) - both, w * (m - 1) - both, m * (m - 1)
    cross = (both, only_r, only_w, pairs - both - only_r - only_w)
    repeats = [(x * (x - 1), x * (m - x), (m - x) * (m - x - 1)) for x in (r, w)]
    return np.asarray(np.stack([*cross, *repeats[0], *repeats[1]], axis=1) / np.maximum(pairs, 1)[:, np.newaxis])


def same_draw_cells(patterns: DrawPatterns) -> FloatArray:
    """Share of the draws in each cell of refusal and error, for one question of each pattern; shape (n_patterns, 4)."""
    m, r, w, both = patterns.draws, patterns.refused, patterns.wrong, patterns.refused_and_wrong
    cells = np.stack([both, r - both, w - both, m - r - w + both], axis=1)
    return np.asarray(cells / np.maximum(m, 1)[:, np.newaxis])


def check_resampling(confidence_level: float, n_resamples: int) -> None:
    """Raise ValueError if the level is not one, or there are no resamples."""
    normal_quantile(confidence_level)
    checked_resamples(n_resamples)


def resample(
    strata: Sequence[IntArray], statistic: Callable[[IntArray], FloatArray], n_resamples: int, rng: Seed
) -> FloatArray:
    """Evaluate `statistic` on resamples of the questions, each a row of numbers of questions a pattern.

    Each stratum holds how many questions its patterns have, one or more in all, and is resampled to its own number of
    questions; the rows hold the strata one after the other.
    """
    generator = np.random.default_rng(rng)
    chunk = max(1, CHUNK_WEIGHTS // sum(questions.size for questions in strata))
    sizes = [min(chunk, n_resamples - start) for start in range(0, n_resamples, chunk)]
    # Questions of one pattern are alike, so resampling questions is drawing how many of each pattern there are.
    return np.concatenate([statistic(np.hstack([_drawn(generator, each, size) for each in strata])) for size in sizes])


def _drawn(generator: np.random.Generator, questions: IntArray, size: int) -> IntArray:
    return generator.multinomial(questions.sum(), questions / questions.sum(), size=size)


def percentiles(resampled: FloatArray, confidence_level: float) -> tuple[float, float]:
    """Central percentiles of correlations; a NaN counts as -1 for the lower and 1 for the upper."""
    if not resampled.size:
        return math.nan, math.nan
    # Percentiles commute with a monotone map, so that the ends, not the estimates, are limited to the range.
    low, high = (np.clip(np.nan_to_num(resampled, nan=end), -1, 1) for end in (-1.0, 1.0))
    tail = (1 - confidence_level) / 2
    return float(np.quantile(low, tail)), float(np.quantile(high, 1 - tail))
