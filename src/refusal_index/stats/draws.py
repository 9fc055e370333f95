r"""The corrected correlation as a quotient, with the influence of each question on its two parts.

Let c be the tetrachoric correlation of a refusal and an error from different draws, and q the geometric mean of the
reliabilities, ``q = sqrt(tet(R, R') tet(W, W'))``. Then ``rho_L = c / q``. Both are smooth functions of proportions, so
their covariance follows from the influence of each question.

Only some questions are drawn repeatedly; every question has a single draw. The repeated questions are weighted so that
their single draws have the same distribution over the four cells of refusal and error as those of all questions
(post-stratification of a two-phase sample). This reduces the sampling error from the choice of repeated questions. It
does not assume that the answer of a single draw is a forced one, or that the noise of refusal and answer in a draw is
independent.

The interval is Fieller's: all rho for which c and ``rho q`` do not differ significantly, on Fisher's scale. It is valid
even if q is near 0, where the distribution of the quotient is far from normal.

If a cell of refusal and error is empty in all pairs of draws, c is 1 or -1 and has no influence function. The interval
is then one-sided: the limit of c from the likelihood of the empty cell, divided by a limit of q. The estimate uses c
from the table of single draws, if that has no empty cell.

Repeated draws, reduced to counts:

Estimates from repeated draws depend on a question only through the numbers of its draws that were refused, wrong, and
both. Questions with the same counts form one pattern, and resampling questions is multinomial sampling of patterns.

Spearman's correlation of observed frequencies, which differs from corrected RI:

With many draws per question, the frequencies of refusal and error estimate its probabilities. Their rank correlation,
with mid-ranks for ties, measures the agreement of the observed frequencies. Noise biases it towards 0 even at 100 draws
per question, and so do ties, at any number of draws: if 39% of the refusal and of the error probabilities are exactly
0 and as many exactly 1, a corrected RI of .582 gives a mid-rank Spearman correlation of .484.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.stats.arguments import BoolArray, FloatArray, checked_matrices
from refusal_index.stats.contingency import Counts, SamplingDesign, effective_number
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Result, two_sided_pvalue
from refusal_index.stats.estimator import tetrachoric_of_counts
from refusal_index.stats.intervals import Seed, boundary_limit, checked_resamples, normal_quantile, proportion_influence

IntArray = NDArray[np.int64]

N_RESAMPLES = 2_000
# Number of weights per pass over the resamples; working arrays then take a few tens of megabytes.
CHUNK_WEIGHTS = 1_000_000


@dataclass(frozen=True, slots=True)
class DrawPatterns:
    """Questions with at least two draws, grouped by their counts.

    Attributes
    ----------
    draws, refused, wrong, refused_and_wrong : ndarray of int, shape (n_patterns,)
        Number of scored draws of such a question, and how many of them were refused, wrong, and both.
    questions : ndarray of int, shape (n_patterns,)
        Number of questions with these counts.
    """

    draws: IntArray
    refused: IntArray
    wrong: IntArray
    refused_and_wrong: IntArray
    questions: IntArray

    @classmethod
    def of(cls, counts: IntArray, questions: IntArray) -> DrawPatterns:
        """Return patterns from rows of `question_counts`, and the number of questions with each."""
        draws, refused, wrong, both = counts.T
        return cls(draws, refused, wrong, both, questions)

    def pair_cells(self) -> FloatArray:
        """Return the share of pairs of different draws in each cell, by pattern; shape (n_patterns, 10).

        The cells are: four of refusal and error in the order of `CELL_NAMES`; both, one and neither draw refused; and
        the same for errors. "One" is the share for either order of the two draws, not their sum. All are 0 with fewer
        than two draws.
        """
        m = self.draws
        r = self.refused
        w = self.wrong
        both = r * w - self.refused_and_wrong
        only_r = r * (m - 1) - both
        only_w = w * (m - 1) - both
        pairs = m * (m - 1)
        cross = (both, only_r, only_w, pairs - both - only_r - only_w)
        repeats = [(x * (x - 1), x * (m - x), (m - x) * (m - x - 1)) for x in (r, w)]
        return np.asarray(np.stack([*cross, *repeats[0], *repeats[1]], axis=1) / np.maximum(pairs, 1)[:, np.newaxis])

    def same_draw_cells(self) -> FloatArray:
        """Return the share of draws in each cell of refusal and error, by pattern; shape (n_patterns, 4)."""
        both = self.refused_and_wrong
        neither = self.draws - self.refused - self.wrong + both
        cells = np.stack([both, self.refused - both, self.wrong - both, neither], axis=1)
        return np.asarray(cells / np.maximum(self.draws, 1)[:, np.newaxis])


def question_counts(refused: BoolArray, wrong: BoolArray, scored: BoolArray) -> IntArray:
    """Count each question's scored draws, and those refused, wrong, and both; shape (n_questions, 4)."""
    return np.stack([np.count_nonzero(x, axis=0) for x in (scored, refused, wrong, refused & wrong)], axis=1)


def percentiles(resampled: FloatArray, confidence_level: float) -> tuple[float, float]:
    """Return central percentiles of correlations; NaN counts as -1 for the lower and as 1 for the upper one."""
    low, high = (np.clip(np.nan_to_num(resampled, nan=end), -1, 1) for end in (-1.0, 1.0))
    tail = (1 - confidence_level) / 2
    return float(np.quantile(low, tail)), float(np.quantile(high, 1 - tail))


def checked_draws(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Check matrices of draws, as `checked_matrices`; raises ValueError for fewer than two draws."""
    matrices = checked_matrices(refused, wrong, scored)
    if len(matrices[0]) < 2:
        raise ValueError(
            "refused and wrong must have two or more rows, one per draw, and one column per question, "
            f"got shape {matrices[0].shape}; is there a single draw, or are they transposed?"
        )
    return matrices


@dataclass(frozen=True, slots=True, kw_only=True)
class MidRankSpearman(Result):
    """Spearman's correlation of the frequencies of refusal and error over questions, with mid-ranks for ties.

    Attributes
    ----------
    estimate : float or None
        In [-1, 1]; None if undefined.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: the ranks agree perfectly, or are perfectly reversed.
    reason : str or None
        ``"perfect_rank_correlation"`` at the boundary; if undefined, the first that applies of
        ``"no_repeated_questions"``, ``"refusal_frequency_constant"``, ``"error_frequency_constant"``.
    patterns : DrawPatterns
        The questions with at least two draws.
    """

    patterns: DrawPatterns = field(compare=False, repr=False)

    def confidence_interval(
        self, confidence_level: float = 0.95, *, n_resamples: int = N_RESAMPLES, rng: Seed = None
    ) -> ConfidenceInterval:
        """Return a percentile interval over resampled questions; undefined resamples widen it on both sides.

        It is an interval for the correlation at this number of draws, not for that of the probabilities. ``(nan, nan)``
        unless the status is ``"ok"``.
        """
        normal_quantile(confidence_level)
        checked_resamples(n_resamples)
        if self.estimate is None or self.status != "ok":
            return NO_INTERVAL
        questions = self.patterns.questions
        generator = np.random.default_rng(rng)
        chunk = max(1, CHUNK_WEIGHTS // questions.size)
        sizes = [min(chunk, n_resamples - start) for start in range(0, n_resamples, chunk)]
        # Resampling questions is the same as drawing the number of questions of each pattern.
        shares = questions / questions.sum()
        weights = (generator.multinomial(questions.sum(), shares, size=size) for size in sizes)
        resampled = np.concatenate([_spearman(self.patterns, row) for row in weights])
        low, high = percentiles(resampled, confidence_level)
        return ConfidenceInterval(min(low, self.estimate), max(high, self.estimate))


def mid_rank_spearman(refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None) -> MidRankSpearman:
    """Return Spearman's correlation over questions between the frequencies of refusal and of error.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (n_draws, n_questions)
        As for `corrected_refusal_index`: `wrong` refers to a forced answer to every question. Questions with fewer than
        two scored draws are left out.

    Returns
    -------
    MidRankSpearman

    Raises
    ------
    TypeError
        If the arguments do not hold truth values.
    ValueError
        If they are not matrices of the same shape, or have fewer than two rows (draws).

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
    counts = question_counts(*checked_draws(refused, wrong, scored))
    patterns_of_counts, questions = np.unique(counts[counts[:, 0] >= 2], axis=0, return_counts=True)
    patterns = DrawPatterns.of(patterns_of_counts, questions)
    shares = (("refusal", patterns.refused / patterns.draws), ("error", patterns.wrong / patterns.draws))
    constant = [f"{name}_frequency_constant" for name, share in shares if not len(share) or np.ptp(share) == 0]
    if constant:
        reason = constant[0] if questions.size else "no_repeated_questions"
        return MidRankSpearman(None, "undefined", reason, patterns=patterns)
    estimate = float(_spearman(patterns, patterns.questions[np.newaxis])[0])
    # Perfect agreement can differ from 1 by rounding; otherwise the difference is larger than 1/n^3.
    if 1 - abs(estimate) < 1e-14:
        return MidRankSpearman(round(estimate), "boundary", "perfect_rank_correlation", patterns=patterns)
    return MidRankSpearman(estimate, patterns=patterns)


def _spearman(patterns: DrawPatterns, weights: IntArray) -> FloatArray:
    """Return the correlation of the mid-ranks for each row of `weights`; NaN if a frequency is constant."""
    x, y = (_centred_ranks(counts / patterns.draws, weights) for counts in (patterns.refused, patterns.wrong))
    covariance, x_square, y_square = ((weights * product).sum(axis=1) for product in (x * y, x * x, y * y))
    spread = np.sqrt(x_square * y_square)
    return np.asarray(np.divide(covariance, spread, out=np.full(spread.shape, np.nan), where=spread > 0))


def _centred_ranks(frequencies: FloatArray, weights: IntArray) -> FloatArray:
    """Return the mid-rank of each pattern minus the mean rank, for each row of `weights`."""
    order = np.argsort(frequencies)
    first, behind = (np.searchsorted(frequencies, frequencies, side, sorter=order) for side in ("left", "right"))
    below = np.zeros((weights.shape[0], weights.shape[1] + 1))
    np.cumsum(weights[:, order], axis=1, out=below[:, 1:])
    return np.asarray((below[:, first] + below[:, behind] - below[:, -1:]) / 2)


GRID = np.linspace(-1, 1, 2001)
"""Grid of correlations that are tested for the interval."""

NO_LEVEL = 1e-9
"""At or below this confidence level, an interval is its point estimate."""

NEARLY_1 = float(np.nextafter(1, 0))

ESTIMATED = 5
"""Number of parameters estimated from repeated questions: two rates, two reliabilities, one correlation."""

MIN_IN_STRATUM = 2
"""Minimum number of repeated questions in a stratum; with fewer, their variance cannot be estimated."""

TINY = float(np.finfo(float).tiny)

NO_CELL = 4
"""Code of a question without a single draw, as in `cell_codes`."""


@dataclass(frozen=True, slots=True, eq=False)
class Quotient:
    """The quotient of a correlation c between different draws and the reliability q.

    Attributes
    ----------
    cross, scale : float
        c and q. If a table has an empty cell, half a question is added to each of its cells. If a cell of refusal and
        error is empty in all pairs of draws, c is that of the single draws.
    influence : ndarray, shape (2, n)
        Influence of every question or cluster on c and on q, divided by the number of questions, so that sums of
        products are covariances.
    repeated : ndarray of bool, shape (n,)
        Whether each question was drawn repeatedly.
    degrees_of_freedom : float or None
        Degrees of freedom of the covariance, with clusters or weights.
    by_question : ndarray, shape (2, n_questions), or None
        With clusters or weights, the influence before summation over clusters, which determines the weights of prompts.
    sparse : tuple of float or None
        If a cell of refusal and error is empty in all pairs of draws: the four cells, as counts of independent
        questions.
    """

    cross: float
    scale: float
    influence: FloatArray
    repeated: BoolArray
    degrees_of_freedom: float | None = None
    by_question: FloatArray | None = None
    sparse: Counts | None = None

    @classmethod
    def of(
        cls, cross: float, scale: float, influence: FloatArray, sample: TwoPhaseSample, sparse: Counts | None = None
    ) -> Quotient:
        """Return a quotient, with influence summed within clusters, if there are any."""
        by_question = None if sample.design is None else influence
        summed = sample.in_clusters(influence)
        freedom = sample.degrees_of_freedom()
        return cls(cross, scale, summed, sample.repeated, freedom, by_question, sparse)

    @classmethod
    def without_noise(cls, sample: TwoPhaseSample) -> Quotient:
        """Return the quotient for a deterministic model: the correlation of single draws, over 1."""
        cross, influence = sample.correlation()
        return cls.of(cross, 1.0, np.stack([influence, np.zeros_like(influence)]), sample)

    @classmethod
    def mean(cls, parts: Sequence[Quotient], weights: FloatArray) -> Quotient:
        """Return the quotient of weighted means of several c and q over the same questions."""

        def mean(values: Sequence[Any]) -> Any:
            return np.tensordot(weights, np.array(values), axes=1)

        by_question = [part.by_question for part in parts if part.by_question is not None]
        return cls(
            float(mean([part.cross for part in parts])),
            float(mean([part.scale for part in parts])),
            mean([part.influence for part in parts]),
            np.asarray(np.any([part.repeated for part in parts], axis=0)),
            min((part.degrees_of_freedom for part in parts if part.degrees_of_freedom is not None), default=None),
            mean(by_question) if by_question else None,
        )

    def linear(self, rho: float) -> FloatArray:
        """Return the influence of every question on ``c - rho q``, divided by the number of questions."""
        return np.asarray(self.influence[0] - rho * self.influence[1])

    def information(self, rho: float) -> float:
        """Return the inverse variance of ``c - rho q`` for independent questions; 0 if it does not vary."""
        c, q = self.influence if self.by_question is None else self.by_question
        variance = float(np.square(c - rho * q).sum())
        return 1 / variance if variance > 0 else 0.0

    def error(self, quantile: float) -> float:
        """Return the two-sided tail probability of a quantile."""
        return two_sided_pvalue(quantile, self.degrees_of_freedom)

    def interval(self, quantile: float) -> tuple[float, float]:
        """Return the ends of the interval of rho in [-1, 1], at a number of standard errors.

        It is the connected set of accepted values around the estimate; if q may be 0, it can be all of [-1, 1].
        """
        if self.sparse is not None:
            return self._beyond_empty_cell(self.sparse, quantile)
        # The difference of c and ``rho q`` on Fisher's scale, in standard errors, at each rho of the grid.
        (cc, cq), (_, qq) = (self.influence @ self.influence.T).tolist()
        expected = np.clip(GRID * self.scale, -NEARLY_1, NEARLY_1)
        of_c = 1 / (1 - self.cross**2)
        of_q = GRID / (1 - expected**2)
        variance = of_c**2 * cc - 2 * of_c * of_q * cq + of_q**2 * qq
        above = math.atanh(self.cross) - np.arctanh(expected)
        error = np.sqrt(np.maximum(variance, 0))
        # Without variance, a value is rejected unless it agrees exactly.
        certain = np.where(above == 0, 0.0, np.copysign(np.inf, above))
        statistics = np.divide(above, error, out=certain, where=error > 0)
        rho = min(1.0, max(-1.0, self.cross / self.scale))
        low = _crossing(GRID, statistics, rho, quantile)
        high = -_crossing(-GRID[::-1], -statistics[::-1], -rho, quantile)
        return low, high

    def _beyond_empty_cell(self, cells: Counts, quantile: float) -> tuple[float, float]:
        """Return the one-sided interval if a cell is empty; its other end is 1 or -1.

        At the limit of c, the cell is empty with the two-sided error probability, as for RI of a single table. q is at
        its limit on the side that makes the interval longer.
        """
        sign = 1.0 if 0 in cells[1:3] else -1.0
        error = self.error(quantile)
        q = self.scale
        try:
            c = sign * boundary_limit(cells, sign, math.sqrt(-2 * math.log(error))) if 1 - error > NO_LEVEL else 1.0
        except (ArithmeticError, ValueError):  # with very few questions the likelihood is uninformative
            c = -1.0
        if q < 1:
            reach = quantile * float(np.linalg.norm(self.influence[1])) / ((1 - q) * (1 + q))
            q = math.tanh(math.atanh(q) + math.copysign(reach, c))
        limit = -1.0 if q <= -c else min(1.0, c / q)
        return (limit, 1.0) if sign > 0 else (-1.0, -limit)


def _crossing(grid: FloatArray, statistics: FloatArray, rho: float, quantile: float) -> float:
    """Return the first point below rho where the statistic exceeds the quantile; the start of the grid if none."""
    beyond = np.flatnonzero((grid < rho) & (statistics > quantile))
    if not beyond.size:
        return float(grid[0])
    last = int(beyond[-1])
    next_place, next_value = (grid[last + 1], statistics[last + 1]) if last + 1 < grid.size else (rho, 0.0)
    if next_place > rho or next_value > quantile:
        next_place = rho
        next_value = 0.0
    if math.isinf(statistics[last]):
        return float(next_place)
    step = (statistics[last] - quantile) / (statistics[last] - next_value)
    return float(grid[last] + step * (next_place - grid[last]))


def precision_weights(parts: Sequence[Quotient]) -> FloatArray:
    """Return weights proportional to the inverse variance of ``c - rho q``, at the rho of equal weights.

    The weights are non-negative and add up to 1. The variances are those of independent questions, because estimates
    from few clusters are noisy.
    """
    pooled = sum(part.cross for part in parts) / sum(part.scale for part in parts)
    information = np.array([part.information(pooled) for part in parts])
    inverse = information if information.all() else np.ones(len(parts))
    return np.asarray(inverse / inverse.sum())


@dataclass(frozen=True, slots=True, eq=False)
class TwoPhaseSample:
    """All questions: which were drawn repeatedly, and the cell of each single draw.

    Attributes
    ----------
    repeated : ndarray of bool, shape (n,)
    stratum : ndarray of int, shape (n,)
        Stratum of each question; every stratum has repeated questions. -1 for a question without any draw.
    cells : ndarray of int, shape (n,)
        Cell of each single draw, as from `cell_codes`.
    design : SamplingDesign or None
        Clusters and weights of all questions.
    """

    repeated: BoolArray
    stratum: IntArray
    cells: IntArray
    design: SamplingDesign | None = None

    @classmethod
    def of(cls, repeated: BoolArray, cells: IntArray, design: SamplingDesign | None = None) -> TwoPhaseSample:
        """Use the finest strata that all have repeated questions: cells, refusals, or a single stratum."""
        usable = repeated | (cells != NO_CELL)
        unknown = cells == NO_CELL
        for strata in (cells, np.where(unknown, NO_CELL, cells // 2), np.zeros_like(cells)):
            every, some = (np.bincount(strata[chosen], minlength=NO_CELL + 1) for chosen in (usable, repeated))
            if np.all((every == some) | (some >= MIN_IN_STRATUM)):
                break
        return cls(repeated, np.where(usable, strata, -1), cells, design)

    @property
    def n(self) -> int:
        """Number of questions with single or repeated draws."""
        return int(np.count_nonzero(self.stratum >= 0))

    def weights(self) -> FloatArray:
        """Return the weight of each repeated question, adding up to 1; shape (n_repeated,)."""
        every, some = self._sizes(self._own)
        stratum = self.stratum[self.repeated]
        return np.asarray((every / np.maximum(some, TINY))[stratum] * self._own[self.repeated] / every.sum())

    def spread(self, values: FloatArray) -> FloatArray:
        """Return the influence of all questions, over their number, from that of repeated ones; (k, m) to (k, n).

        Every question gets the mean of its stratum; a repeated question also gets its deviation from that mean, times
        the number of questions it represents.
        """
        weights = self._own
        stratum = self.stratum[self.repeated]
        every, some = self._sizes(weights)
        sums = np.stack([np.bincount(stratum, row * weights[self.repeated], minlength=NO_CELL + 1) for row in values])
        means = sums / np.maximum(some, TINY)
        inside = self.stratum >= 0
        spread = np.where(inside, means[:, np.where(inside, self.stratum, 0)], 0.0)
        # Bessel's correction, unless all questions of the stratum are repeated.
        n_every, n_some = self._sizes(inside.astype(float))
        few = np.where(n_every > n_some, np.sqrt(n_some / np.maximum(n_some - 1, 1)), 1.0)
        spread[:, self.repeated] += (few * every / np.maximum(some, TINY))[stratum] * (values - means[:, stratum])
        return np.asarray(spread * weights / every.sum())

    @property
    def fills_every_cell(self) -> bool:
        """Whether each of the four cells has a single draw."""
        return bool(self._in_cells().min() > 0)

    def correlation(self) -> tuple[float, FloatArray]:
        """Return the correlation of single draws, and the influence of each question on it, over their number."""
        counts = self._in_cells()
        n = int(np.count_nonzero(self._own))
        total = float(counts.sum())
        rho, influence = _correlation(tuple((counts / total).tolist()), n)
        return rho, np.append(influence, 0.0)[self.cells] * self._own / total

    def _in_cells(self) -> FloatArray:
        """Return the total weight of the single draws in each cell."""
        return np.bincount(self.cells, self._own, minlength=NO_CELL)[:NO_CELL].astype(float)

    def effective_counts(self, means: FloatArray) -> Counts:
        """Return the cells of refusal and error of all pairs of draws, as counts of independent questions.

        The correlation within clusters cannot be estimated for an empty cell, so a cluster counts as one question.
        """
        weights = self.weights()
        if self.design is not None:
            weights = np.bincount(self.design.clusters[self.repeated], weights).astype(float)
        w, x, y, z = (effective_number(weights) * means[:4]).tolist()
        return w, x, y, z

    def in_clusters(self, influence: FloatArray) -> FloatArray:
        """Sum influence within clusters, if there are any; (k, n) to (k, clusters)."""
        return influence if self.design is None else self.design.sums(influence, self._scored(len(influence)))

    def degrees_of_freedom(self) -> float | None:
        """Return the degrees of freedom of the variance over clusters; None without a design."""
        return None if self.design is None else float(self.design.degrees_of_freedom(self._scored(1))[0])

    @property
    def _own(self) -> FloatArray:
        """Sampling weight of every question; 0 for those without any draw."""
        is_known = (self.stratum >= 0).astype(float)
        return is_known if self.design is None else is_known * self.design.weights

    def _scored(self, rows: int) -> BoolArray:
        return np.tile(self.stratum >= 0, (rows, 1))

    def _sizes(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        is_known = self.stratum >= 0
        every, some = (
            np.bincount(self.stratum[chosen], weights[chosen], minlength=NO_CELL + 1).astype(float)
            for chosen in (is_known, self.repeated)
        )
        return every, some


TABLES: tuple[slice | list[int], ...] = (slice(0, 4), [4, 5, 5, 6], [7, 8, 8, 9])
"""Columns of `DrawPatterns.pair_cells` for the tables of refusal and error, of two refusals, and of two errors."""


def quotient(cells: FloatArray, sample: TwoPhaseSample) -> Quotient | None:
    """Return the quotient from `DrawPatterns.pair_cells` of each repeated question, shape (m, 10).

    None if a reliability is not positive.
    """
    means = sample.weights() @ cells
    by_table = [_correlation(means[columns].tolist(), len(cells)) for columns in TABLES]
    correlations = [rho for rho, _ in by_table]
    if min(correlations[1:]) <= 0:
        return None
    influences = np.stack(
        [influence @ cells.T[columns] for (_, influence), columns in zip(by_table, TABLES, strict=True)]
    )
    scale = math.sqrt(correlations[1] * correlations[2])
    slopes = np.array([[1.0, 0.0, 0.0], [0.0, scale / (2 * correlations[1]), scale / (2 * correlations[2])]])
    few = math.sqrt(len(cells) / max(len(cells) - ESTIMATED, 1))
    cross = correlations[0]
    influence = few * sample.spread(slopes @ influences)
    sparse = None
    if means[:4].min() <= 0:
        sparse = sample.effective_counts(means)
        if sample.fills_every_cell:
            cross, influence[0] = sample.correlation()
        else:
            # factor by which an empty cell, filled with half a question, increases the standard error
            filled = (means[:4] * len(cells) + 0.5) / (len(cells) + 2)
            squares = by_table[0][1] ** 2
            influence[0] *= math.sqrt(float(filled @ squares / (means[:4] @ squares)))
    return Quotient.of(cross, scale, influence, sample, sparse)


def _correlation(table: Sequence[float], n: int) -> tuple[float, FloatArray]:
    """Return the tetrachoric correlation of a table of proportions, and the influence of each cell on it."""
    if min(table) <= 0:
        table = [(cell * n + 0.5) / (n + 2) for cell in table]
    rho = tetrachoric_of_counts(*table)
    both, only_first, only_second, _ = table
    return rho, np.array(proportion_influence(both, both + only_first, both + only_second, rho))
