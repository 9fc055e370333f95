"""Spearman's correlation of the frequencies of many draws, which is not the corrected Refusal Index.

With many draws a question its frequencies of refusal and error stand in for its probabilities. Their rank correlation,
ties at their mid-ranks, says how well the observed frequencies agree. Noise pulls it towards 0 even at 100 draws a
question, and so do ties, at any number of draws: where 39 % of the probabilities are exactly 0 and as many exactly 1,
on both sides, a corrected index of .582 has a mid-rank Spearman of .484.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.draws.noise import checked_draws
from refusal_index.stats.draws.patterns import (
    N_RESAMPLES,
    DrawPatterns,
    IntArray,
    check_resampling,
    count_draws,
    percentiles,
    resample,
)
from refusal_index.stats.estimate import ConfidenceInterval, Result
from refusal_index.stats.intervals import Seed


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
        check_resampling(confidence_level, n_resamples)
        resampled = np.array([])
        if self.status == "ok":
            patterns = self.patterns
            resampled = resample([patterns.questions], lambda w: _spearman(patterns, w), n_resamples, rng)
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
