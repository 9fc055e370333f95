"""When may a run be looked at, and what must be seen then to stop it.

`GroupSequential` turns the ordinary numbers of one look (an estimate and its standard error) into ones that hold
whatever look the run is stopped at: a critical value in the place of the normal quantile, and p-values that may be
compared with alpha at each look. Its looks are planned beforehand, with O'Brien and Fleming's boundary: early looks
stop only where something is overwhelming, and the last one costs next to nothing.

It rests on normal limits, as intervals of any metric here do. Its boundary takes estimates for averages over questions
that are independent; where questions come in clusters that several looks share, or an estimate rests in part on
repeated draws that were all there at the first look, statistics of two looks are more alike than that, and a boundary
of this kind then errs less often than stated (Slepian's inequality).

References
----------
.. [1] O'Brien and Fleming (1979), as cited in `refusal_index.stats.sequential.designs`.
.. [2] Jennison, C. and Turnbull, B. W. (1989). Interim analyses: the repeated confidence interval approach. Journal of
   the Royal Statistical Society B, 51, 305-361. :doi:`10.1111/j.2517-6161.1989.tb01446.x`

How far a statistic must go at each of several looks, so that looking often errs no more often than looking once.

After a share t of all questions, the estimate in standard errors, times the root of t, is a Brownian motion at the
time t. Its density among the paths that have not crossed a boundary before is carried from one look to the next by
numerical integration (Armitage, McPherson and Rowe), which gives the chance to cross at each look to some twelve
digits.

References
----------
.. [1] Armitage, P., McPherson, C. K. and Rowe, B. C. (1969). Repeated significance tests on accumulating data. Journal
   of the Royal Statistical Society A, 132, 235-244. :doi:`10.2307/2343787`
.. [2] O'Brien, P. C. and Fleming, T. R. (1979). A multiple testing procedure for clinical trials. Biometrics, 35,
   549-556. :doi:`10.2307/2530245`
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr

from refusal_index.stats.arguments import FloatArray, share, whole_number
from refusal_index.stats.estimator import SCALAR

FARTHEST = 9.0
"""Standard deviations below which no density is left that a double could show in a sum."""

LARGEST_CONSTANT = 40.0
"""Beyond it the normal tail is below the smallest double."""

NODES, NODES_A_DEVIATION = 40, 3
"""Of the quadrature: at least so many, and so many for each standard deviation of the step between two looks."""


def crossing_probabilities(boundary: ArrayLike, fractions: ArrayLike) -> FloatArray:
    """Chance to be above a boundary for the first time at each look, where there is no effect.

    Parameters
    ----------
    boundary : array_like of float
        Of each look, in standard errors.
    fractions : array_like of float
        Share of the questions that each look has seen, rising, above 0.

    Returns
    -------
    ndarray, shape (looks,)
    """
    bounds, times = np.asarray(boundary, float) * np.sqrt(fractions), np.asarray(fractions, float)
    steps = np.sqrt(np.diff(times, prepend=0.0))
    reach = 2 * FARTHEST * math.sqrt(times[-1])  # so many points on [0, 1] resolve the shortest step
    nodes, shares = np.polynomial.legendre.leggauss(NODES + math.ceil(NODES_A_DEVIATION * reach / float(steps.min())))
    points, weights = (nodes + 1) / 2, shares / 2
    chances = [SCALAR.ndtr(-bounds[0] / steps[0])]
    place, mass = _placed(points, weights, bounds[0], times[0])
    mass = mass * np.exp(-((place / steps[0]) ** 2) / 2) / (steps[0] * math.sqrt(2 * math.pi))
    for bound, time, step in zip(bounds[1:], times[1:], steps[1:], strict=True):
        chances.append(float(mass @ ndtr((place - bound) / step)))
        new, width = _placed(points, weights, bound, time)
        kernel = np.exp(-(((new[:, np.newaxis] - place) / step) ** 2) / 2) / (step * math.sqrt(2 * math.pi))
        place, mass = new, width * (kernel @ mass)
    return np.array(chances)


def obrien_fleming_level(constant: float, fractions: ArrayLike) -> float:
    """Chance to cross O'Brien and Fleming's boundary of a constant at any of the looks, where there is no effect.

    Parameters
    ----------
    constant : float
        The boundary at the last look, in standard errors; at a share t of the questions it is the constant over the
        root of t.
    fractions : array_like of float
        As for `crossing_probabilities`; the last is 1.
    """
    finite = min(max(constant, -FARTHEST), LARGEST_CONSTANT)
    return float(crossing_probabilities(finite / np.sqrt(fractions), fractions).sum())


@lru_cache(maxsize=64)
def obrien_fleming_constant(fractions: tuple[float, ...], alpha: float) -> float:
    """Constant of the O'Brien-Fleming boundary that is crossed with the chance `alpha` where there is no effect.

    Examples
    --------
    >>> round(obrien_fleming_constant((0.2, 0.4, 0.6, 0.8, 1.0), 0.05), 4)
    1.7509
    """
    low = -SCALAR.ndtri(alpha)  # one look alone
    return float(brentq(lambda constant: obrien_fleming_level(constant, fractions) - alpha, low - 1e-9, low + 3))


def _placed(points: FloatArray, weights: FloatArray, bound: float, time: float) -> tuple[FloatArray, FloatArray]:
    """Place the quadrature between where nothing is left and the boundary, or where nothing is left above."""
    reach = FARTHEST * math.sqrt(time)
    low, high = min(-reach, bound), min(bound, reach)
    return low + (high - low) * points, (high - low) * weights


DEFAULT_LOOKS = 5
MOST_LOOKS = 100


@dataclass(frozen=True)
class GroupSequential:
    """A few looks, planned before the first question is asked.

    Parameters
    ----------
    sizes : tuple of int
        Questions after each look, rising; the last is all of them.
    alpha : float, default: 0.05
        Chance to be wrong on one side over all looks together; limits on both sides have the level ``1 - 2 alpha``.

    Raises
    ------
    TypeError, ValueError
        If there are no looks or more than 100, the sizes do not rise, or alpha is not below 1/2.

    Examples
    --------
    >>> design = GroupSequential.planned(2000)
    >>> design.sizes, [round(design.critical_value(n), 3) for n in design.sizes]
    ((400, 800, 1200, 1600, 2000), [3.915, 2.768, 2.26, 1.958, 1.751])
    """

    sizes: tuple[int, ...]
    alpha: float = 0.05

    def __post_init__(self) -> None:
        if not 1 <= len(self.sizes) <= MOST_LOOKS:
            raise ValueError(f"sizes must be of 1 to {MOST_LOOKS} looks, got {len(self.sizes)}")
        sizes = [whole_number("sizes", size, 1) for size in self.sizes]
        if any(later <= size for size, later in pairwise(sizes)):
            raise ValueError(f"sizes must rise from look to look, got {self.sizes}")
        checked_alpha(self.alpha)

    @classmethod
    def planned(cls, n_questions: int, looks: int = DEFAULT_LOOKS, alpha: float = 0.05) -> Self:
        """Plan looks after equal portions of the questions, fewer of them where there are fewer questions."""
        n = whole_number("n_questions", n_questions, 1)
        looks = min(whole_number("looks", looks, 1), n)
        return cls(tuple(math.ceil(n * look / looks) for look in range(1, looks + 1)), alpha)

    @cached_property
    def fractions(self) -> tuple[float, ...]:
        """Share of the questions after each look."""
        return tuple(size / self.sizes[-1] for size in self.sizes)

    def critical_value(self, n: int) -> float:
        """Return how many standard errors an estimate must be from a bound, on one side of it, to be certain.

        Raises
        ------
        ValueError
            If no look was planned after n questions.
        """
        return obrien_fleming_constant(self.fractions, self.alpha) / math.sqrt(self._fraction(n))

    def pvalue(self, n: int, statistic: float) -> float:
        """Return the one-sided p-value of a distance in standard errors: the least alpha that would end a run here.

        Raises
        ------
        ValueError
            If no look was planned after n questions.
        """
        constant = statistic * math.sqrt(self._fraction(n))
        return constant if math.isnan(constant) else min(1.0, obrien_fleming_level(constant, self.fractions))

    def times(self, n: int, statistic: float, spare: float, n_tests: int = 1) -> float:
        """Return how many times n questions bring a distance in standard errors so far beyond the critical value.

        That is at the first of the looks to come where it is, and beyond all of them where it is at none.
        """
        shared = replace(self, alpha=self.alpha / n_tests)
        for size in self.sizes:
            if size > n and statistic * math.sqrt(size / n) >= shared.critical_value(size) + spare:
                return size / n
        return ((shared.critical_value(self.sizes[-1]) + spare) / statistic) ** 2

    def _fraction(self, n: int) -> float:
        if n not in self.sizes:
            raise ValueError(f"n must be that of a planned look, one of {', '.join(map(str, self.sizes))}, got {n!r}")
        return self.fractions[self.sizes.index(n)]


def checked_alpha(alpha: float) -> float:
    """Return alpha if it is a chance below one half."""
    if share("alpha", alpha) >= 0.5:
        raise ValueError(f"alpha must be below 0.5, got {alpha!r}; is it a confidence level?")
    return alpha


@dataclass(frozen=True, slots=True)
class AtLook:
    """What becomes of an ordinary test at one look, for whoever has levels and p-values and no standard errors.

    Attributes
    ----------
    design : GroupSequential
    n : int
        Questions until then.

    Examples
    --------
    >>> look = AtLook(GroupSequential.planned(2000), 800)
    >>> round(look.level, 5), round(look.pvalue(look.level), 5)
    (0.00282, 0.05)
    """

    design: GroupSequential
    n: int

    @property
    def level(self) -> float:
        """One-sided level of the ordinary test that keeps the design's alpha at this look."""
        return SCALAR.ndtr(-self.design.critical_value(self.n))

    def pvalue(self, ordinary: float) -> float:
        """Return an ordinary one-sided p-value as one that may be compared with alpha at every look, and adjusted."""
        return self.design.pvalue(self.n, -SCALAR.ndtri(ordinary))

    def times(self, statistic: float, spare: float, n_tests: int = 1) -> float:
        """Return how many times the questions so far would settle a test that they do not, as the design says it."""
        return self.design.times(self.n, statistic, spare, n_tests)
