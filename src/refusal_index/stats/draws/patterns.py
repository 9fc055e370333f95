"""Questions with several draws, reduced to counts, and resampled.

What is estimated from repeated draws depends on a question only through how many of its draws were refused, wrong, and
both. Questions with the same counts are one pattern, and resampling questions is a multinomial draw over the patterns.

Spearman's correlation of the frequencies of many draws, which is not the corrected Refusal Index.

With many draws a question its frequencies of refusal and error stand in for its probabilities. Their rank correlation,
ties at their mid-ranks, says how well the observed frequencies agree. Noise pulls it towards 0 even at 100 draws a
question, and so do ties, at any number of draws: where 39 % of the probabilities are exactly 0 and as many exactly 1,
on both sides, a corrected index of .582 has a mid-rank Spearman of .484.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.stats.arguments import BoolArray, FloatArray
from refusal_index.stats.contingency import checked_matrices
from refusal_index.stats.estimate import ConfidenceInterval, Result
from refusal_index.stats.intervals import Seed, checked_resamples, normal_quantile

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


def resample(
    questions: IntArray, statistic: Callable[[IntArray], FloatArray], n_resamples: int, rng: Seed
) -> FloatArray:
    """Evaluate `statistic` on resamples of the questions, each a row of numbers of questions a pattern."""
    generator = np.random.default_rng(rng)
    chunk = max(1, CHUNK_WEIGHTS // questions.size)
    sizes = [min(chunk, n_resamples - start) for start in range(0, n_resamples, chunk)]
    # Questions of one pattern are alike, so resampling questions is drawing how many of each pattern there are.
    shares = questions / questions.sum()
    return np.concatenate([statistic(generator.multinomial(questions.sum(), shares, size=size)) for size in sizes])


def percentiles(resampled: FloatArray, confidence_level: float) -> tuple[float, float]:
    """Central percentiles of correlations; a NaN counts as -1 for the lower and 1 for the upper."""
    if not resampled.size:
        return math.nan, math.nan
    # Percentiles commute with a monotone map, so that the ends, not the estimates, are limited to the range.
    low, high = (np.clip(np.nan_to_num(resampled, nan=end), -1, 1) for end in (-1.0, 1.0))
    tail = (1 - confidence_level) / 2
    return float(np.quantile(low, tail)), float(np.quantile(high, 1 - tail))


def checked_draws(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Check the matrices of draws, of which there must be two at least."""
    matrices = checked_matrices(refused, wrong, scored)
    if len(matrices[0]) < 2:
        raise ValueError(
            "refused and wrong must have two or more rows, one a draw and one column a question, "
            f"got shape {matrices[0].shape}; is there a single draw, or are they transposed?"
        )
    return matrices


@dataclass(frozen=True, slots=True, kw_only=True)
class MidRankSpearman(Result):
    """Spearman's correlation of the frequencies of refusal and error over questions, ties at their mid-ranks.

    Attributes
    ----------
    estimate : float or None
        In [-1, 1]; None where undefined.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: the ranks agree perfectly, or are perfectly reversed.
    reason : str or None
        ``"perfect_rank_correlation"`` at the boundary; where undefined the first that applies of
        ``"no_repeated_questions"``, ``"refusal_frequency_constant"``, ``"error_frequency_constant"``.
    patterns : DrawPatterns
        The questions it came from, those with at least two draws.
    """

    patterns: DrawPatterns = field(compare=False, repr=False)

    def confidence_interval(
        self, confidence_level: float = 0.95, *, n_resamples: int = N_RESAMPLES, rng: Seed = None
    ) -> ConfidenceInterval:
        """Percentile interval over resampled questions; a resample without an estimate rules nothing out.

        It is one for the correlation at this number of draws, not for that of the probabilities. ``(nan, nan)``
        unless the status is ``"ok"``.
        """
        normal_quantile(confidence_level)
        checked_resamples(n_resamples)
        resampled = np.array([])
        if self.status == "ok":
            patterns = self.patterns
            resampled = resample(patterns.questions, lambda w: _spearman(patterns, w), n_resamples, rng)
        return ConfidenceInterval(*percentiles(resampled, confidence_level))


def mid_rank_spearman(refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None) -> MidRankSpearman:
    """Spearman's correlation over questions of how often they are refused and how often answered wrong.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (n_draws, n_questions)
        As for `corrected_refusal_index`: `wrong` is that of a forced answer to every question. Questions with
        fewer than two scored draws are left out.

    Returns
    -------
    MidRankSpearman

    Raises
    ------
    TypeError
        If the arguments do not hold truth values.
    ValueError
        If they are not matrices of one shape, or have fewer than two rows: one draw says nothing about noise.

    References
    ----------
    .. [1] Spearman (1904). :doi:`10.2307/1412159`

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x = rng.standard_normal(4000)
    >>> y = 0.6 * x + 0.8 * rng.standard_normal(4000)
    >>> refused, wrong = (latent + rng.standard_normal((20, 4000)) > 0 for latent in (x, y))
    >>> round(mid_rank_spearman(refused, wrong).estimate, 2)
    0.54
    """
    patterns = count_draws(*checked_draws(refused, wrong, scored))
    reason = _why_no_ranks(patterns)
    if reason:
        return MidRankSpearman(None, "undefined", reason, patterns=patterns)
    estimate = float(_spearman(patterns, patterns.questions[np.newaxis])[0])
    # Perfect agreement misses 1 by rounding; any other misses it by more than one over the questions' cube.
    if 1 - abs(estimate) < 1e-14:
        return MidRankSpearman(round(estimate), "boundary", "perfect_rank_correlation", patterns=patterns)
    return MidRankSpearman(estimate, patterns=patterns)


def _why_no_ranks(patterns: DrawPatterns) -> str | None:
    if patterns.n_questions == 0:
        return "no_repeated_questions"
    for name, counts in (("refusal", patterns.refused), ("error", patterns.wrong)):
        if np.ptp(counts / patterns.draws) == 0:
            return f"{name}_frequency_constant"
    return None


def _spearman(patterns: DrawPatterns, weights: IntArray) -> FloatArray:
    """Correlation of the mid-ranks for each row of `weights`; NaN where one of the frequencies is constant."""
    x, y = (_centred_ranks(counts / patterns.draws, weights) for counts in (patterns.refused, patterns.wrong))
    covariance, x_square, y_square = ((weights * product).sum(axis=1) for product in (x * y, x * x, y * y))
    spread = np.sqrt(x_square * y_square)
    return np.asarray(np.divide(covariance, spread, out=np.full(spread.shape, np.nan), where=spread > 0))


def _centred_ranks(frequencies: FloatArray, weights: IntArray) -> FloatArray:
    """Mid-rank of each pattern less the mean rank, for each row of `weights`."""
    order = np.argsort(frequencies)
    first, behind = (np.searchsorted(frequencies, frequencies, side, sorter=order) for side in ("left", "right"))
    below = np.zeros((weights.shape[0], weights.shape[1] + 1))
    np.cumsum(weights[:, order], axis=1, out=below[:, 1:])
    return np.asarray((below[:, first] + below[:, behind] - below[:, -1:]) / 2)
