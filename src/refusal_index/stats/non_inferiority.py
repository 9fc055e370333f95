r"""Tests of whether a model keeps several limits at once: pass, fail or inconclusive.

A guard is a number with a limit, such as a difference from a baseline with a non-inferiority margin, or a rate with a
bound. Two families of tests are applied to the guards:

- pass: for every guard, the one-sided confidence limit at ``1 - alpha`` is within the limit. Since every test must
  reject, a model that is beyond any limit passes with a probability of at most alpha, under any dependence: the
  intersection-union test [1]_, which needs no adjustment.
- fail: at least one guard is significantly beyond its limit. Since one rejection is enough, p-values are adjusted by
  Holm's method, and a model that is within all limits fails with a probability of at most alpha.

Otherwise the verdict is inconclusive: there are too few questions.

RI is undefined, and has no interval, if the model refused nothing or everything. Such a guard never passes. It fails if
this would be unlikely for a model that refuses, or answers, a share `HARDLY_EVER` of the questions.

`GroupSequential` adjusts the results of one look (an estimate and its standard error) for repeated looks: it gives a
critical value instead of the normal quantile, and p-values that may be compared with alpha at each look. The looks are
planned in advance, with O'Brien and Fleming's boundary [3]_ [4]_: early looks stop only for very strong evidence, and
the critical value of the last look is little larger than without interim looks.

The method assumes normal estimates, and that estimates are averages over independent questions. If looks share clusters
of questions, or an estimate uses repeated draws that were complete at the first look, the statistics of two looks are
more strongly correlated, and the boundary is conservative (Slepian's inequality).

After a share t of all questions, the estimate in standard errors, times the square root of t, is a Brownian motion at
time t. The density of paths that have not crossed the boundary is propagated from one look to the next by numerical
integration [5]_, which gives the crossing probability at each look to about twelve digits.

References
----------
.. [1] Berger, R. L. (1982). Multiparameter hypothesis testing and acceptance sampling. Technometrics, 24, 295-300.
   :doi:`10.2307/1267823`
.. [2] Hanley, J. A. and Lippman-Hand, A. (1983). If nothing goes wrong, is everything all right? Interpreting zero
   numerators. JAMA, 249, 1743-1745. :doi:`10.1001/jama.1983.03330370053031`
.. [3] O'Brien, P. C. and Fleming, T. R. (1979). A multiple testing procedure for clinical trials. Biometrics, 35,
   549-556. :doi:`10.2307/2530245`
.. [4] Jennison, C. and Turnbull, B. W. (1989). Interim analyses: the repeated confidence interval approach. Journal of
   the Royal Statistical Society B, 51, 305-361. :doi:`10.1111/j.2517-6161.1989.tb01446.x`
.. [5] Armitage, P., McPherson, C. K. and Rowe, B. C. (1969). Repeated significance tests on accumulating data. Journal
   of the Royal Statistical Society A, 132, 235-244. :doi:`10.2307/2343787`
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from refusal_index.stats.arguments import FloatArray, share, whole_number
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval
from refusal_index.stats.estimator import SCALAR
from refusal_index.stats.ranking import holm

FARTHEST = 9.0
"""Distance in standard deviations beyond which the normal density is negligible in double precision."""

MAX_CONSTANT = 40.0
"""Beyond this the normal tail probability underflows."""

NODES = 40
"""Minimum number of quadrature nodes."""

NODES_A_DEVIATION = 3
"""Quadrature nodes per standard deviation of the step between two looks."""


def crossing_probabilities(boundary: ArrayLike, fractions: ArrayLike) -> FloatArray:
    """Return the probability of first crossing a boundary at each look if there is no effect.

    Parameters
    ----------
    boundary : array_like of float
        Boundary at each look, in standard errors.
    fractions : array_like of float
        Share of the questions seen at each look, increasing and above 0.

    Returns
    -------
    ndarray, shape (looks,)
    """
    bounds = np.asarray(boundary, float) * np.sqrt(fractions)
    times = np.asarray(fractions, float)
    steps = np.sqrt(np.diff(times, prepend=0.0))
    reach = 2 * FARTHEST * math.sqrt(times[-1])  # the number of points on [0, 1] resolves the shortest step
    nodes, shares = np.polynomial.legendre.leggauss(NODES + math.ceil(NODES_A_DEVIATION * reach / float(steps.min())))
    points = (nodes + 1) / 2
    weights = shares / 2
    chances = [SCALAR.ndtr(-bounds[0] / steps[0])]
    scaled_points, mass = _placed(points, weights, bounds[0], times[0])
    mass = mass * np.exp(-((scaled_points / steps[0]) ** 2) / 2) / (steps[0] * math.sqrt(2 * math.pi))
    for bound, time, step in zip(bounds[1:], times[1:], steps[1:], strict=True):
        chances.append(float(mass @ ndtr((scaled_points - bound) / step)))
        new, width = _placed(points, weights, bound, time)
        kernel = np.exp(-(((new[:, np.newaxis] - scaled_points) / step) ** 2) / 2) / (step * math.sqrt(2 * math.pi))
        scaled_points = new
        mass = width * (kernel @ mass)
    return np.array(chances)


def obrien_fleming_level(constant: float, fractions: ArrayLike) -> float:
    """Return the probability of crossing an O'Brien-Fleming boundary at any look if there is no effect.

    Parameters
    ----------
    constant : float
        Boundary at the last look, in standard errors; at a share t of the questions, the boundary is the constant
        divided by the square root of t.
    fractions : array_like of float
        As for `crossing_probabilities`; the last is 1.
    """
    finite = min(max(constant, -FARTHEST), MAX_CONSTANT)
    return float(crossing_probabilities(finite / np.sqrt(fractions), fractions).sum())


@lru_cache(maxsize=64)
def obrien_fleming_constant(fractions: tuple[float, ...], alpha: float) -> float:
    """Return the constant of the O'Brien-Fleming boundary with crossing probability `alpha` if there is no effect.

    Examples
    --------
    >>> round(obrien_fleming_constant((0.2, 0.4, 0.6, 0.8, 1.0), 0.05), 4)
    1.7509
    """
    low = -SCALAR.ndtri(alpha)  # a single look
    return float(brentq(lambda constant: obrien_fleming_level(constant, fractions) - alpha, low - 1e-9, low + 3))


def _placed(points: FloatArray, weights: FloatArray, bound: float, time: float) -> tuple[FloatArray, FloatArray]:
    """Return quadrature nodes and weights between the lower end of the density and the boundary, or its upper end."""
    reach = FARTHEST * math.sqrt(time)
    low = min(-reach, bound)
    high = min(bound, reach)
    return low + (high - low) * points, (high - low) * weights


DEFAULT_LOOKS = 5
MAX_LOOKS = 100


@dataclass(frozen=True)
class GroupSequential:
    """A group-sequential design: looks planned before the first question is asked.

    Parameters
    ----------
    sizes : tuple of int
        Number of questions at each look, increasing; the last is the total.
    alpha : float, default: 0.05
        One-sided error probability over all looks together; two-sided limits have the level ``1 - 2 alpha``.

    Raises
    ------
    TypeError, ValueError
        If there are no looks or more than 100, the sizes are not increasing, or alpha is not below 1/2.

    Examples
    --------
    >>> design = GroupSequential.planned(2000)
    >>> design.sizes, [round(design.critical_value(n), 3) for n in design.sizes]
    ((400, 800, 1200, 1600, 2000), [3.915, 2.768, 2.26, 1.958, 1.751])
    """

    sizes: tuple[int, ...]
    alpha: float = 0.05

    def __post_init__(self) -> None:
        if not 1 <= len(self.sizes) <= MAX_LOOKS:
            raise ValueError(f"sizes must be of 1 to {MAX_LOOKS} looks, got {len(self.sizes)}")
        sizes = [whole_number("sizes", size, 1) for size in self.sizes]
        if any(later <= size for size, later in pairwise(sizes)):
            raise ValueError(f"sizes must rise from look to look, got {self.sizes}")
        if share("alpha", self.alpha) >= 0.5:
            raise ValueError(f"alpha must be below 0.5, got {self.alpha!r}; is it a confidence level?")

    @classmethod
    def planned(cls, n_questions: int, looks: int = DEFAULT_LOOKS, alpha: float = 0.05) -> Self:
        """Plan looks at equal intervals; at most as many as there are questions."""
        n = whole_number("n_questions", n_questions, 1)
        looks = min(whole_number("looks", looks, 1), n)
        return cls(tuple(math.ceil(n * look / looks) for look in range(1, looks + 1)), alpha)

    @cached_property
    def fractions(self) -> tuple[float, ...]:
        """Share of the questions at each look."""
        return tuple(size / self.sizes[-1] for size in self.sizes)

    def critical_value(self, n: int) -> float:
        """Return the one-sided critical value at the look after n questions, in standard errors.

        Raises
        ------
        ValueError
            If no look was planned after n questions.
        """
        return obrien_fleming_constant(self.fractions, self.alpha) / math.sqrt(self._fraction(n))

    def pvalue(self, n: int, statistic: float) -> float:
        """Return the one-sided p-value of a test statistic: the smallest alpha at which the boundary is crossed here.

        Raises
        ------
        ValueError
            If no look was planned after n questions.
        """
        constant = statistic * math.sqrt(self._fraction(n))
        return constant if math.isnan(constant) else min(1.0, obrien_fleming_level(constant, self.fractions))

    def times(self, n: int, statistic: float, spare: float, n_tests: int) -> float:
        """Return the multiple of n questions at which a test statistic exceeds the critical value by `spare`.

        That is the first later look at which it does; if there is none, more than the planned number of questions.
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


@dataclass(frozen=True, slots=True)
class AtLook:
    """Adjusts levels and p-values of ordinary tests at one look of a group-sequential design.

    Attributes
    ----------
    design : GroupSequential
    n : int
        Number of questions at this look.

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
        """One-sided level of an ordinary test at this look that keeps the design's alpha."""
        return SCALAR.ndtr(-self.design.critical_value(self.n))

    def pvalue(self, ordinary: float) -> float:
        """Return the adjusted p-value, which may be compared with alpha at every look."""
        return self.design.pvalue(self.n, -SCALAR.ndtri(ordinary))


Verdict = Literal["pass", "fail", "inconclusive"]

HARDLY_EVER = 0.05
"""Share of refusals, or of answers, against which a model without any is tested."""

POWER = 0.8
"""Power at which numbers of questions are planned for inconclusive guards."""

MAX_TIMES = 100.0
"""Multiples of the current number of questions above this are reported as None."""

MAX_QUANTILE = 8.0
MIN_QUANTILE = 1e-6


@dataclass(frozen=True, slots=True)
class Guard:
    """A number and its limit.

    Attributes
    ----------
    name : str
    estimate : float or None
        None if undefined.
    limit : float
        The worst acceptable value.
    higher_is_better : bool
        Whether the number should be above the limit rather than below it.
    interval : callable
        Returns the interval of the number at a two-sided confidence level; both ends are NaN if there is none.
    pvalue_beyond : float or None
        If the number is undefined: the p-value of that for a model within the limit. Otherwise None.
    is_constant : bool
        Whether the number was the same on every question: its interval then shrinks in proportion to 1/n instead of
        1/sqrt(n).
    imputed : tuple of callable
        Intervals, as `interval`, of the number after missing answers were imputed under adverse assumptions. The guard
        passes only if it is within its limit by all of them, too. Empty if no answer is missing.
    """

    name: str
    estimate: float | None
    limit: float
    higher_is_better: bool
    interval: Callable[[float], ConfidenceInterval] = lambda _: NO_INTERVAL
    pvalue_beyond: float | None = None
    is_constant: bool = False
    imputed: tuple[Callable[[float], ConfidenceInterval], ...] = ()

    def distance(self, value: float) -> float:
        """Return the distance of a value from the limit; negative if it is beyond the limit."""
        return value - self.limit if self.higher_is_better else self.limit - value

    def reach(self, tail: float) -> tuple[float, float]:
        """Return both one-sided confidence limits of the distance, at a tail probability; NaN if there are none."""
        return self._distances(self.interval(1 - 2 * tail))

    def imputed_reach(self, tail: float) -> float | None:
        """Return the smallest one-sided confidence limit of the distance after imputation; NaN if one has none.

        None if no answer is missing.
        """
        lows = [self._distances(interval(1 - 2 * tail))[0] for interval in self.imputed]
        if any(map(math.isnan, lows)):
            return math.nan
        return min(lows, default=None)

    def _distances(self, interval: ConfidenceInterval) -> tuple[float, float]:
        ends = sorted(self.distance(end) for end in interval)
        return (math.nan, math.nan) if any(map(math.isnan, ends)) else (ends[0], ends[1])


@dataclass(frozen=True, slots=True)
class GuardTest:
    """The test result of one guard.

    Attributes
    ----------
    guard : Guard
    verdict : {"pass", "fail", "inconclusive"}
    worst : float or None
        One-sided confidence limit at ``1 - alpha`` on the side of the guard's limit; the guard passes if it is within
        the limit.
    best : float or None
        The one-sided confidence limit on the other side.
    worst_imputed : float or None
        As `worst`, the worst after missing answers were imputed under adverse assumptions; the guard passes only if it
        is within the limit, too. None if no answer is missing, or `worst` is beyond the limit anyway, and NaN if the
        number is undefined after imputation.
    pvalue_inside : float or None
        One-sided p-value of the hypothesis that the number is beyond its limit; small if it is within.
    pvalue_beyond : float or None
        One-sided p-value of the hypothesis that it is within its limit; small if it is beyond.
    pvalue_holm : float
        `pvalue_beyond`, adjusted for the number of guards; 1 if it is None.
    times : float or None
        Multiple of the current number of questions at which the guard would be decided with probability `POWER`, if the
        estimate is the true value. None if it is decided, or if no number of questions would be enough: the estimate is
        at the limit, or undefined.
    """

    guard: Guard
    verdict: Verdict
    worst: float | None
    best: float | None
    pvalue_inside: float | None
    pvalue_beyond: float | None
    pvalue_holm: float = 1.0
    times: float | None = None
    worst_imputed: float | None = None

    @property
    def is_within(self) -> bool:
        """Whether the guard is within its limit by the answers that are not missing."""
        return self.worst is not None and self.guard.distance(self.worst) > 0

    @property
    def is_blocked(self) -> bool:
        """Whether the guard is within its limit, and only the imputation of missing answers keeps it from passing."""
        return self.verdict == "inconclusive" and self.is_within


def judge_guards(guards: Sequence[Guard], alpha: float = 0.05, look: AtLook | None = None) -> tuple[GuardTest, ...]:
    """Test each guard for being within and for being beyond its limit.

    Parameters
    ----------
    guards : sequence of Guard
    alpha : float in (0, 0.5), default: 0.05
        Maximum probability of passing a model that is beyond a limit, and of failing one that is within all limits.
    look : AtLook, optional
        The current look, if there are several; the design's alpha, for all looks together, is then used instead of
        `alpha`.

    Returns
    -------
    tuple of GuardTest
        In the order of the guards.

    Raises
    ------
    ValueError
        If there are no guards, or alpha is out of range.

    References
    ----------
    .. [1] Berger (1982). :doi:`10.2307/1267823`

    Examples
    --------
    >>> within = lambda level: ConfidenceInterval(-0.04, 0.06)
    >>> beyond = lambda level: ConfidenceInterval(0.5 - level / 2, 0.7 + level / 2)
    >>> guards = Guard("correct_rate", 0.01, -0.05, True, within), Guard("refusal_rate", 0.6, 0.1, False, beyond)
    >>> [one.verdict for one in judge_guards(guards)]
    ['pass', 'inconclusive']
    """
    if not guards or not 0 < alpha < 0.5:
        raise ValueError(f"expected one guard or more and an alpha in (0, 0.5), got {len(guards)} guards and {alpha}")
    level, alpha = (alpha, alpha) if look is None else (look.level, look.design.alpha)
    tested = []
    for guard in guards:
        low, high = guard.reach(level)
        if guard.estimate is None or math.isnan(low):
            tested.append(GuardTest(guard, "inconclusive", None, None, None, guard.pvalue_beyond))
            continue
        beyond = _pvalue_beyond(guard)
        imputed_low = guard.imputed_reach(level) if low > 0 else None
        passes = low > 0 and (imputed_low is None or imputed_low > 0)
        tested.append(
            GuardTest(
                guard,
                verdict="pass" if passes else "inconclusive",
                worst=_at_distance(guard, low),
                best=_at_distance(guard, high),
                pvalue_inside=1 - beyond,
                pvalue_beyond=beyond,
                worst_imputed=None if imputed_low is None else _at_distance(guard, imputed_low),
            )
        )
    pvalues = [1.0 if test.pvalue_beyond is None else test.pvalue_beyond for test in tested]
    adjusted = holm(pvalues if look is None else [look.pvalue(pvalue) for pvalue in pvalues]).tolist()
    judged = (
        replace(test, verdict="fail" if pvalue <= alpha else test.verdict, pvalue_holm=pvalue)
        for test, pvalue in zip(tested, adjusted, strict=True)
    )
    return tuple(
        replace(test, times=_times(test, level, len(guards), look)) if test.verdict == "inconclusive" else test
        for test in judged
    )


def verdict_of(tests: Sequence[GuardTest]) -> Verdict:
    """Return the overall verdict: fail if any guard fails, pass if all pass, otherwise inconclusive.

    Examples
    --------
    >>> guard = Guard("correct_rate", 0.0, -0.05, True, lambda level: ConfidenceInterval(-0.01, 0.01))
    >>> verdict_of(judge_guards([guard]))
    'pass'
    """
    verdicts = {test.verdict for test in tests}
    if "fail" in verdicts:
        return "fail"
    return "pass" if verdicts == {"pass"} else "inconclusive"


def times_to_settle(tests: Sequence[GuardTest]) -> float | None:
    """Return the multiple of the questions that would decide an inconclusive verdict; None if none would.

    One guard shown to be beyond its limit is enough; otherwise all undecided guards must be shown to be within.
    """
    open_ones = [test for test in tests if test.verdict == "inconclusive"]
    beyond = [test.times for test in open_ones if test.times is not None and _is_beyond(test.guard)]
    if beyond:
        return min(beyond)
    within = [test.times for test in open_ones]
    return None if None in within else max((times for times in within if times is not None), default=None)


def times_to_decide(tests: Sequence[GuardTest], alpha: float, level: float) -> float | None:
    """Return the multiple of the questions that `questions_to_decide` recommends.

    None if a guard has no interval or no margin, or its interval shows that the candidate is worse.

    - `tests`: tests of differences from a baseline.
    - `alpha`: level of each test at that number of questions.
    - `level`: level of the current tests.

    >>> guard = Guard("correct_rate", -0.04, -0.05, True, lambda level: ConfidenceInterval(-0.1, 0.02))
    >>> round(times_to_decide(judge_guards([guard]), 0.05, 0.05), 2)
    3.29
    """
    deviations = []
    total = 0.0
    for test in tests:
        guard = test.guard
        worst = test.worst
        best = test.best
        if (
            guard.estimate is None
            or worst is None
            or best is None
            or guard.limit == 0
            or (best if guard.higher_is_better else -best) < 0
        ):
            return None
        reach = abs(guard.estimate - worst) / abs(guard.limit)
        if guard.is_constant:
            total = max(total, reach)
        else:
            deviations.append(reach / -float(ndtri(level)))
    return max(total, questions_to_decide(deviations, alpha))


def questions_to_decide(deviations: Sequence[float], alpha: float) -> float:
    r"""Return the recommended number of questions of a gate.

    With it, a candidate equal to its baseline passes all guards with probability `POWER`, and one that is worse by
    twice a margin fails with probability `POWER`: with K guards, whose p-values are adjusted,
    :math:`n = ((z_{1-\alpha/K} + z_{0.8}) d)^2` for the largest deviation d.

    - `deviations`: for each difference, the standard deviation of a question's contribution divided by the margin.
    - `alpha`: level of the gate.

    >>> round(questions_to_decide([14.0, 8.0, 9.0, 5.0], 0.05)), round(questions_to_decide([14.0], 0.05))
    (1863, 1212)
    """
    if not deviations:
        return 0.0
    to_fail = (max(deviations) * (float(ndtri(POWER)) - float(ndtri(alpha / len(deviations))))) ** 2
    return max(questions_if_equal(deviations, alpha), to_fail)


def questions_if_equal(deviations: Iterable[float], alpha: float) -> float:
    """Return the number of questions at which a candidate equal to its baseline passes all guards with `POWER`.

    The probabilities of missing each guard are added (Bonferroni), since their dependence is unknown.

    - `deviations`: for each difference, the standard deviation of a question's contribution divided by the margin.
    """
    positive = [deviation for deviation in deviations if deviation > 0]
    if not positive:
        return 0.0
    quantile = -float(ndtri(alpha))

    def spare(n: float) -> float:
        return 1 - POWER - sum(float(ndtr(quantile - math.sqrt(n) / deviation)) for deviation in positive)

    highest = (max(positive) * (quantile - float(ndtri((1 - POWER) / len(positive))))) ** 2
    return float(brentq(spare, 0.0, highest * (1 + 1e-9), rtol=1e-9))


def constant_interval(estimate: float, influence_range: float, n: int, confidence_level: float) -> ConfidenceInterval:
    """Return an interval of a difference that is the same on every question, so that its standard error is 0.

    The models differ on at most a share ``1 - tail ** (1 / n)`` of the questions, since otherwise one of n questions
    would probably have shown it (a two-sided rule of three [1]_). Each such question changes the difference by at most
    the range of its influence.

    Examples
    --------
    >>> low, high = constant_interval(0.0, 1.0, 200, 0.9)
    >>> round(low, 3), round(high, 3)
    (-0.015, 0.015)

    References
    ----------
    .. [1] Hanley and Lippman-Hand (1983). :doi:`10.1001/jama.1983.03330370053031`
    """
    tail = (1 - confidence_level) / 2
    share = -math.expm1(math.log(tail) / n) if n else 1.0
    reach = share * influence_range
    return ConfidenceInterval(estimate - reach, estimate + reach)


def pvalue_of_none(n: int) -> float:
    """Return the probability that none of n questions has a property with frequency `HARDLY_EVER`.

    Examples
    --------
    >>> round(pvalue_of_none(59), 3)
    0.048
    """
    return float((1 - HARDLY_EVER) ** n)


def _at_distance(guard: Guard, distance: float) -> float:
    """Return the number at a distance from the guard's limit, positive if within."""
    return guard.limit + distance if guard.higher_is_better else guard.limit - distance


def _pvalue_beyond(guard: Guard) -> float:
    """Return the tail probability at which the one-sided confidence limit reaches the guard's limit."""
    distance = guard.distance(guard.estimate or 0.0)
    side = 0 if distance > 0 else 1

    def end(quantile: float) -> float:
        return guard.reach(float(ndtr(-quantile)))[side]

    if distance == 0 or end(MIN_QUANTILE) * distance <= 0:
        return 0.5
    if end(MAX_QUANTILE) * distance > 0:
        tail = float(ndtr(-MAX_QUANTILE))
    else:
        tail = float(ndtr(-brentq(end, MIN_QUANTILE, MAX_QUANTILE, xtol=1e-6)))
    return 1 - tail if distance > 0 else tail


def _times(test: GuardTest, alpha: float, n_guards: int, look: AtLook | None) -> float | None:
    """Return the multiple of the questions that would decide a guard, with standard errors proportional to 1/sqrt(n).

    Later looks have smaller critical values.
    """
    guard = test.guard
    end = test.best if _is_beyond(test.guard) else test.worst
    if guard.estimate is None or end is None or guard.estimate in {guard.limit, end} or test.is_blocked:
        return None
    distance = abs(guard.distance(guard.estimate))
    if guard.is_constant:
        times = abs(guard.estimate - end) / distance
        return times if times < MAX_TIMES else None
    error = abs(guard.estimate - end) / -float(ndtri(alpha))
    spare = float(ndtri(POWER))
    n_tests = n_guards if _is_beyond(guard) else 1
    if look is not None:
        times = look.design.times(look.n, distance / error, spare, n_tests)
    else:
        times = ((-float(ndtri(alpha / n_tests)) + spare) * error / distance) ** 2
    return times if times < MAX_TIMES else None


def _is_beyond(guard: Guard) -> bool:
    return guard.estimate is not None and guard.distance(guard.estimate) < 0
