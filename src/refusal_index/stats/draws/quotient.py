r"""The corrected correlation as a quotient, and what each question contributes to its two parts.

Let c be the tetrachoric correlation of a refusal and an error from different draws, and q the geometric mean of the
reliabilities, ``q = sqrt(tet(R, R') tet(W, W'))``. Then ``rho_L = c / q``. Both are smooth functions of proportions, so
that each question has an influence on either, and the sums of these give their covariance.

Only some questions are drawn repeatedly; of the others a single draw is known, of which every question has one. The
repeated questions are therefore weighted so that their first draws fall into the four cells of refusal and error as
often as those of all questions do (post-stratification of a two-phase sample). It takes out the chance of which
questions were drawn twice, without assuming that a single draw's answer is one of the forced pass, or that refusal
and answer of one draw share no chance.

The interval is Fieller's: all rho for which c is no further from ``rho q`` than chance takes it, on Fisher's scale. It
stays valid where q is near 0, and a quotient of estimates is anything but normal.

Where no pair of draws fills a cell of refusal and error, c is 1 or -1 and has no influence. The interval then has one
limit only, that of c by the likelihood of the empty cell, over the limit of q on the same side; and c is taken from
the table of single draws, if that has no empty cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from refusal_index.stats.arguments import BoolArray, FloatArray
from refusal_index.stats.contingency import Counts
from refusal_index.stats.design import SamplingDesign, effective_number, student_tails
from refusal_index.stats.draws.patterns import IntArray
from refusal_index.stats.estimator import tetrachoric_of_counts
from refusal_index.stats.intervals import boundary_limit, proportion_influence

GRID = np.linspace(-1, 1, 2001)
"""Where a correlation is tested for the interval."""

NO_LEVEL = 1e-9
"""Confidence level up to which an interval is its estimate."""

NEARLY_1 = float(np.nextafter(1, 0))

ESTIMATED = 5
"""What is estimated of the repeated questions: two rates, two reliabilities, one correlation of both."""

FEWEST_IN_STRATUM = 2
"""Repeated questions that a stratum must have to be weighted by: of fewer nothing is known of their variance."""

TINY = float(np.finfo(float).tiny)

NO_CELL = 4
"""Stands for a question of which there is no single draw, as in `cell_codes`."""


@dataclass(frozen=True, slots=True, eq=False)
class Quotient:
    """A correlation c of single draws over the q that noise leaves of it.

    Attributes
    ----------
    cross, scale : float
        c and q, both of tables without an empty cell: half a question is added to each cell of one that has. Where no
        pair of draws fills a cell of refusal and error, c is that of the single draws.
    influence : ndarray, shape (2, n)
        Of every question, or cluster of questions, on c and on q, over the number of questions: its products sum to
        their covariance.
    repeated : ndarray of bool, shape (n,)
        Which questions were drawn repeatedly.
    degrees_of_freedom : float or None
        Of the covariance, with clusters or weights.
    by_question : ndarray, shape (2, n_questions), or None
        With clusters or weights the influence before it is summed: what prompts are weighted by.
    sparse : tuple of float or None
        The four cells of refusal and error where no pair of draws fills one of them, as of so many independent
        questions.
    """

    cross: float
    scale: float
    influence: FloatArray
    repeated: BoolArray
    degrees_of_freedom: float | None = None
    by_question: FloatArray | None = None
    sparse: Counts | None = None

    def linear(self, rho: float) -> FloatArray:
        """Influence of every question on ``c - rho q``, over the number of questions."""
        return np.asarray(self.influence[0] - rho * self.influence[1])

    def information(self, rho: float) -> float:
        """Inverse variance of ``c - rho q`` if questions were independent; 0 where it does not vary."""
        c, q = self.influence if self.by_question is None else self.by_question
        variance = float(np.square(c - rho * q).sum())
        return 1 / variance if variance > 0 else 0.0

    def error(self, quantile: float) -> float:
        """Return the probability of an error of more standard errors than this, either way."""
        freedom = self.degrees_of_freedom
        return 2 * float(ndtr(-quantile)) if freedom is None else student_tails(quantile, freedom)

    def interval(self, quantile: float) -> tuple[float, float]:
        """Return both ends of the values of rho in [-1, 1] that `quantile` standard errors do not rule out.

        Those around the estimate, that is: where the scale may be 0, chance may not rule out any.
        """
        if self.sparse is not None:
            return self._beyond_empty_cell(self.sparse, quantile)
        statistics, rho = self._statistics(), min(1.0, max(-1.0, self.cross / self.scale))
        low = _crossing(GRID, statistics, rho, quantile)
        high = -_crossing(-GRID[::-1], -statistics[::-1], -rho, quantile)
        return low, high

    def _beyond_empty_cell(self, cells: Counts, quantile: float) -> tuple[float, float]:
        """Return the one limit that an empty cell sets, with the error of both ends; the other end is 1 or -1.

        At that limit of c the cell stays empty with this error, as for the index of a single table. q is at its own
        limit on the side that makes the interval longer.
        """
        sign = 1.0 if 0 in cells[1:3] else -1.0
        error, q = self.error(quantile), self.scale
        try:
            c = sign * boundary_limit(cells, sign, math.sqrt(-2 * math.log(error))) if 1 - error > NO_LEVEL else 1.0
        except (ArithmeticError, ValueError):  # of next to no questions the likelihood says nothing
            c = -1.0
        if q < 1:
            reach = quantile * float(np.linalg.norm(self.influence[1])) / ((1 - q) * (1 + q))
            q = math.tanh(math.atanh(q) + math.copysign(reach, c))
        limit = -1.0 if q <= -c else min(1.0, c / q)
        return (limit, 1.0) if sign > 0 else (-1.0, -limit)

    def _statistics(self) -> FloatArray:
        """Return by how many standard errors c lies above ``rho q`` on Fisher's scale, for each rho of the grid."""
        (cc, cq), (_, qq) = (self.influence @ self.influence.T).tolist()
        expected = np.clip(GRID * self.scale, -NEARLY_1, NEARLY_1)
        of_c, of_q = 1 / (1 - self.cross**2), GRID / (1 - expected**2)
        variance = of_c**2 * cc - 2 * of_c * of_q * cq + of_q**2 * qq
        above, error = math.atanh(self.cross) - np.arctanh(expected), np.sqrt(np.maximum(variance, 0))
        # What does not vary at all is certain: it is ruled out unless it agrees exactly.
        certain = np.where(above == 0, 0.0, np.copysign(np.inf, above))
        return np.asarray(np.divide(above, error, out=certain, where=error > 0))


def _crossing(grid: FloatArray, statistics: FloatArray, rho: float, quantile: float) -> float:
    """Return the place below rho where the statistics first exceed the quantile; the grid's beginning if nowhere."""
    beyond = np.flatnonzero((grid < rho) & (statistics > quantile))
    if not beyond.size:
        return float(grid[0])
    at = int(beyond[-1])
    next_place, next_value = (grid[at + 1], statistics[at + 1]) if at + 1 < grid.size else (rho, 0.0)
    if next_place > rho or next_value > quantile:
        next_place, next_value = rho, 0.0
    if math.isinf(statistics[at]):
        return float(next_place)
    step = (statistics[at] - quantile) / (statistics[at] - next_value)
    return float(grid[at] + step * (next_place - grid[at]))


def precision_weights(parts: Sequence[Quotient]) -> FloatArray:
    """Weigh each part by the inverse variance of its ``c - rho q`` at the rho that equal weights give.

    Parts of which little is known count little, and no weight is negative; they add up to 1. The variances are those of
    independent questions: what a few clusters say of them is mostly noise.
    """
    pooled = sum(one.cross for one in parts) / sum(one.scale for one in parts)
    known = np.array([one.information(pooled) for one in parts])
    inverse = known if known.all() else np.ones(len(parts))
    return np.asarray(inverse / inverse.sum())


def mean_quotient(parts: Sequence[Quotient], weights: FloatArray) -> Quotient:
    """Return the quotient of weighted means of several c and q over the same questions."""
    by_question = [one.by_question for one in parts if one.by_question is not None]
    return Quotient(
        float(sum(w * one.cross for w, one in zip(weights, parts, strict=True))),
        float(sum(w * one.scale for w, one in zip(weights, parts, strict=True))),
        _mean([one.influence for one in parts], weights),
        np.asarray(np.any([one.repeated for one in parts], axis=0)),
        min((one.degrees_of_freedom for one in parts if one.degrees_of_freedom is not None), default=None),
        _mean(by_question, weights) if by_question else None,
    )


def _mean(arrays: Sequence[FloatArray], weights: FloatArray) -> FloatArray:
    return np.asarray(np.tensordot(weights, np.stack(arrays), axes=1))


@dataclass(frozen=True, slots=True, eq=False)
class TwoPhaseSample:
    """Which questions were drawn repeatedly, out of all, and in which cell each one's single draw lies.

    Attributes
    ----------
    repeated : ndarray of bool, shape (n,)
    stratum : ndarray of int, shape (n,)
        Every stratum in which there are questions has repeated ones; -1 where nothing is known of a question.
    cells : ndarray of int, shape (n,)
        Of the single draws, as `cell_codes`.
    design : SamplingDesign or None
        Clusters and weights of all questions.
    """

    repeated: BoolArray
    stratum: IntArray
    cells: IntArray
    design: SamplingDesign | None = None

    @classmethod
    def of(cls, repeated: BoolArray, cells: IntArray, design: SamplingDesign | None = None) -> TwoPhaseSample:
        """Take the finest strata of which every one has repeated questions: cells, refusals, or none at all."""
        usable = repeated | (cells != NO_CELL)
        unknown = cells == NO_CELL
        for strata in (cells, np.where(unknown, NO_CELL, cells // 2), np.zeros_like(cells)):
            every, some = (np.bincount(strata[chosen], minlength=NO_CELL + 1) for chosen in (usable, repeated))
            if np.all((every == some) | (some >= FEWEST_IN_STRATUM)):
                break
        return cls(repeated, np.where(usable, strata, -1), cells, design)

    @property
    def n(self) -> int:
        """Questions with a single draw or repeated ones."""
        return int(np.count_nonzero(self.stratum >= 0))

    def weights(self) -> FloatArray:
        """Weight of each repeated question, adding up to 1; shape (n_repeated,)."""
        every, some = self._sizes(self._own)
        mine = self.stratum[self.repeated]
        return np.asarray((every / np.maximum(some, TINY))[mine] * self._own[self.repeated] / every.sum())

    def spread(self, values: FloatArray) -> FloatArray:
        """Turn the influence of the repeated questions into that of all, over their number; (k, m) to (k, n).

        A stratum's mean counts for all of its questions, and what a repeated question differs from it by for as many
        as it stands for.
        """
        own, mine = self._own, self.stratum[self.repeated]
        every, some = self._sizes(own)
        sums = np.stack([np.bincount(mine, row * own[self.repeated], minlength=NO_CELL + 1) for row in values])
        means = sums / np.maximum(some, TINY)
        inside = self.stratum >= 0
        spread = np.where(inside, means[:, np.where(inside, self.stratum, 0)], 0.0)
        # A sample's variance counts one question fewer, unless nobody was left out of a stratum.
        n_every, n_some = self._sizes(inside.astype(float))
        few = np.where(n_every > n_some, np.sqrt(n_some / np.maximum(n_some - 1, 1)), 1.0)
        spread[:, self.repeated] += (few * every / np.maximum(some, TINY))[mine] * (values - means[:, mine])
        return np.asarray(spread * own / every.sum())

    @property
    def fills_every_cell(self) -> bool:
        """Whether a single draw lies in each of the four cells."""
        return bool(self._in_cells().min() > 0)

    def correlation(self) -> tuple[float, FloatArray]:
        """Correlation of the single draws, and the influence of every question on it, over their number."""
        counts, n = self._in_cells(), int(np.count_nonzero(self._own))
        total = float(counts.sum())
        rho, influence = _correlation(tuple((counts / total).tolist()), n)
        return rho, np.append(influence, 0.0)[self.cells] * self._own / total

    def _in_cells(self) -> FloatArray:
        """Weight of the single draws in each of the four cells."""
        return np.bincount(self.cells, self._own, minlength=NO_CELL)[:NO_CELL].astype(float)

    def effective_counts(self, means: FloatArray) -> Counts:
        """Cells of refusal and error of all pairs of draws, as of independent questions with these weights.

        What questions of a cluster have in common cannot be known of an empty cell: they count as one.
        """
        weights = self.weights()
        if self.design is not None:
            weights = np.bincount(self.design.clusters[self.repeated], weights).astype(float)
        w, x, y, z = (effective_number(weights) * means[:4]).tolist()
        return w, x, y, z

    def in_clusters(self, influence: FloatArray) -> FloatArray:
        """Sum the influence of all questions within clusters, if there are any; (k, n) to (k, clusters)."""
        return influence if self.design is None else self.design.sums(influence, self._scored(len(influence)))

    def degrees_of_freedom(self) -> float | None:
        """Return those of the variance over clusters; None without a design."""
        return None if self.design is None else float(self.design.degrees_of_freedom(self._scored(1))[0])

    @property
    def _own(self) -> FloatArray:
        """Weight of every question by itself, 0 for those of which nothing is known."""
        known = (self.stratum >= 0).astype(float)
        return known if self.design is None else known * self.design.weights

    def _scored(self, rows: int) -> BoolArray:
        return np.tile(self.stratum >= 0, (rows, 1))

    def _sizes(self, own: FloatArray) -> tuple[FloatArray, FloatArray]:
        known = self.stratum >= 0
        every, some = (
            np.bincount(self.stratum[chosen], own[chosen], minlength=NO_CELL + 1).astype(float)
            for chosen in (known, self.repeated)
        )
        return every, some


def quotient(cells: FloatArray, sample: TwoPhaseSample) -> Quotient | None:
    """Make the quotient of the cells of each repeated question's pairs of draws, shape (m, 10), as `pair_cells`.

    None where a reliability is not positive.
    """
    means = sample.weights() @ cells
    by_table = [_correlation(table, len(cells)) for table in tables(means)]
    correlations = [rho for rho, _ in by_table]
    if min(correlations[1:]) <= 0:
        return None
    each = np.stack([influence @ one for (_, influence), one in zip(by_table, _by_question(cells), strict=True)])
    scale = math.sqrt(correlations[1] * correlations[2])
    slopes = np.array([[1.0, 0.0, 0.0], [0.0, scale / (2 * correlations[1]), scale / (2 * correlations[2])]])
    few = math.sqrt(len(cells) / max(len(cells) - ESTIMATED, 1))
    cross, influence, sparse = correlations[0], few * sample.spread(slopes @ each), None
    if means[:4].min() <= 0:
        sparse = sample.effective_counts(means)
        if sample.fills_every_cell:
            cross, influence[0] = sample.correlation()
        else:
            influence[0] *= _unseen(by_table[0][1], means[:4], len(cells))
    return Quotient(
        cross,
        scale,
        sample.in_clusters(influence),
        sample.repeated,
        sample.degrees_of_freedom(),
        None if sample.design is None else influence,
        sparse,
    )


def quotient_without_noise(sample: TwoPhaseSample) -> Quotient:
    """Make the quotient of single draws that need no second one: their correlation, over 1."""
    cross, influence = sample.correlation()
    both = np.stack([influence, np.zeros_like(influence)])
    return Quotient(
        cross,
        1.0,
        sample.in_clusters(both),
        sample.repeated,
        sample.degrees_of_freedom(),
        None if sample.design is None else both,
    )


def tables(means: FloatArray) -> list[tuple[float, ...]]:
    """Return the cells of refusal and error, of two refusals, and of two errors, out of the ten of `pair_cells`."""
    c = means.tolist()
    return [tuple(c[:4]), (c[4], c[5], c[5], c[6]), (c[7], c[8], c[8], c[9])]


def _by_question(cells: FloatArray) -> list[FloatArray]:
    columns = cells.T
    return [columns[:4], columns[[4, 5, 5, 6]], columns[[7, 8, 8, 9]]]


def _unseen(influence: FloatArray, cells: FloatArray, n: int) -> float:
    """Return by how much a cell that no question fills adds to the standard error that the questions show."""
    filled = (cells * n + 0.5) / (n + 2)
    return math.sqrt(float(filled @ influence**2 / (cells @ influence**2)))


def _correlation(table: tuple[float, ...], n: int) -> tuple[float, FloatArray]:
    """Return the correlation of a table of proportions, and the influence of each cell on it."""
    if min(table) <= 0:
        table = tuple((cell * n + 0.5) / (n + 2) for cell in table)
    rho = tetrachoric_of_counts(*table)
    both, only_first, only_second, _ = table
    return rho, np.array(proportion_influence(both, both + only_first, both + only_second, rho))
