"""The Refusal Index of one or many tables, its standard error, and confidence intervals by four methods.

Simulated coverage of nominal 95% intervals, for 200 to 4,326 questions, refusal and error rates of published models,
and expected counts of at least five in every cell:

- profile likelihood, with both thresholds free (the default): .94 to .96. If a cell is empty, the interval ends at the
  estimate on one side. The other limit is that of an exact one-sided interval for the empty cell in its Poisson limit,
  where a cell with m expected questions is empty with probability ``exp(-m)``: the log-likelihood may fall by
  ``-log(1 - level)``, 3.0 at 95%, instead of half a chi-squared quantile, 1.9, which would give a coverage of .90 with
  two expected questions.
- jeffreys: equal-tailed posterior quantiles under a Dirichlet(1/2, 1/2, 1/2, 1/2) prior: .94 to .96.
- delta: a normal interval for ``atanh(rho)``: .95 to .96. On the scale of RI itself it would be .91 to .95.
- bootstrap: percentiles over resampled questions: .92 to .96, but as low as .01 with smaller expected counts.

Metrics have score intervals: Wilson's for a proportion [1]_, and its generalisation to a ratio of two means over three
categories [2]_.

A score interval contains the values that a score test does not reject. The test compares the observed mean of a score
that has expectation zero under the tested value with its standard deviation *under that value*. So the interval keeps
its coverage and a positive width if a count is zero.

Limits of the profile-likelihood interval of a tetrachoric correlation, with both thresholds free [3]_:

The multinomial likelihood has three parameters: two thresholds h and k, and ``z = atanh(rho)``. The limits are the two
points where the log-likelihood, maximised over h and k, has fallen by half a chi-squared quantile. They are the
solution of three equations in (h, k, z): zero derivatives in h and k, and the wanted fall of the log-likelihood.
Newton's method usually takes three evaluations per limit.

A cell probability is the integral of a log-concave density over a shifted quadrant, hence log-concave in (h, k) for a
fixed rho (Prekopa). So the log-likelihood is concave in (h, k): a zero of the derivatives is the maximum, and it only
remains to check on which side of the estimate the solution lies. If Newton's method fails, a bracketed search over z is
used, with the likelihood maximised over h and k at each z.

The fall is a sum of a term per cell, each of them accurate however many questions there are, and small cells are
computed with full relative precision (`small_cells`). So limits exist at any level; one that is within 1e-14 of rho = 1
or -1 is reported as 1 or -1.

Influence functions and standard errors of rho and of the Refusal Index:

The estimate is a smooth function of four cell proportions. Its influence function is the effect of one more question in
a cell on the estimate, times n; its sample variance over n is the squared standard error. The terms ``alpha`` and
``beta`` account for the estimation of the thresholds: treating these as known would make the standard error up to 4%
too small.

References
----------
.. [1] Wilson (1927). :doi:`10.1080/01621459.1927.10502953`
.. [2] Koopman (1984). :doi:`10.2307/2531405`
.. [3] Venzon, D. J. and Moolgavkar, S. H. (1988). A method for computing profile-likelihood-based confidence
   intervals. Applied Statistics, 37, 87-94. :doi:`10.2307/2347496`
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from refusal_index.stats.arguments import FloatArray, checked_counts, one_of, whole_number
from refusal_index.stats.contingency import (
    CELL_NAMES,
    ONE_CLUSTER,
    AnyTable,
    ContingencyTable,
    Counts,
    SampledTable,
    cell_names,
    empty_margin,
    weighted_sum,
)
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Estimate, ResultWithInterval, student_quantile
from refusal_index.stats.estimator import SCALAR, log_kernel, orthant, precise_z, tetrachoric, tetrachoric_of_counts
from refusal_index.stats.small_cells import with_precise_small_cell

Position = tuple[float, float, float]
"""Both thresholds and atanh(rho)."""


def spearman(rho: float) -> float:
    """Return ``RI = 6/pi asin(rho/2)``; NaN stays NaN."""
    # Dividing by asin(1/2), the double nearest to pi/6, makes the extreme values exactly -1 and +1.
    return math.asin(rho / 2) / math.asin(0.5)


def spearman_slope_in_z(rho: float) -> float:
    """Return the derivative of RI with respect to atanh(rho)."""
    return spearman_slope(rho) * (1 - rho) * (1 + rho)


def spearman_slope(rho: float) -> float:
    """Return the derivative of ``RI = 6/pi asin(rho/2)`` with respect to rho."""
    return 6 / (math.pi * math.sqrt(4 - rho * rho))


def cell_influence(table: AnyTable, rho: float) -> Counts:
    """Return the influence on rho of a question in each cell, in the order of `ContingencyTable.counts`.

    `rho` is the estimate of that table and lies strictly between -1 and 1.
    """
    counts: Counts = table.counts
    return _influence_of(counts, (*_thresholds(counts), precise_z(counts, rho)))


def proportion_influence(both: float, r: float, mu: float, rho: float) -> Counts:
    """Return the influence on rho of each cell, given the proportion of the first cell and both margins."""
    return _influence_at((-SCALAR.ndtri(r), -SCALAR.ndtri(mu), math.atanh(rho)), both, r, mu)


def _influence_of(counts: Counts, position: Position) -> Counts:
    n11, n10, n01, n00 = counts
    n = n11 + n10 + n01 + n00
    return _influence_at(position, n11 / n, (n11 + n10) / n, (n11 + n01) / n)


def _influence_at(position: Position, both: float, r: float, mu: float) -> Counts:
    _, _, density, alpha_at, beta_at = _conditionals(position)
    alpha = SCALAR.ndtr(alpha_at)
    beta = SCALAR.ndtr(beta_at)
    centre = both - alpha * r - beta * mu
    w = 1 - alpha - beta - centre
    x = -alpha - centre
    y = -beta - centre
    z = -centre
    return w / density, x / density, y / density, z / density


def symmetric_root(covariance: FloatArray) -> FloatArray:
    """Return the symmetric positive semidefinite square root of a covariance matrix, shape (k, k).

    This root is unique, also for singular matrices. So normal samples drawn with it depend only on the seed, not on the
    sign or order of the eigenvectors that the linear algebra library returns.

    >>> symmetric_root(np.array([[2.0, 1.0], [1.0, 2.0]])).round(3).tolist()
    [[1.366, 0.366], [0.366, 1.366]]
    """
    eigenvalues, vectors = np.linalg.eigh(covariance)
    # An eigenvalue of 0 can be 1e-16 by rounding, and its root would be 1e-8.
    eigenvalues[eigenvalues < len(eigenvalues) * np.finfo(float).eps * eigenvalues.max(initial=0.0)] = 0.0
    return np.asarray(vectors * np.sqrt(eigenvalues) @ vectors.T)


def standard_error(table: AnyTable, rho: float) -> float:
    """Return the standard error of rho at the estimate `rho` of `table`, with estimated thresholds.

    NaN if all questions belong to one cluster.
    """
    influence = cell_influence(table, rho)
    if isinstance(table, SampledTable):
        return math.sqrt(table.variance(influence))
    return _error_of(table.counts, influence)


def _error_of(counts: Counts, influence: Counts) -> float:
    total = sum(count * value * value for count, value in zip(counts, influence, strict=True))
    return math.sqrt(total) / sum(counts)


# A fall below this share of the number of questions is rounding error.
LEAST_FALL = 1e-28
# Beyond this, rho is within 1e-14 of 1 and counts as 1: thresholds are too coarse to follow the likelihood.
MAX_Z = 17.0
JOINT_STEPS = 15
# Newton's method doubles the number of correct digits: after a step of this size about 14 are correct.
JOINT_TOLERANCE = 1e-7
# The square root of the fall is nearly linear in z: the limits of a shorter reach are right to 1e-12 without iteration.
LINEAR_REACH = 1e-6
# Beyond this multiple of the wanted fall, the derivatives say little about the location of the limit.
HOPELESS_FALL = 3.0
HALVINGS = 30
INNER_STEPS = 50
# A step with so small a gain reaches the maximum to floating-point precision.
INNER_TOLERANCE = 1e-10
# A smaller relative change of the fall is rounding error.
ROUNDING = 1e-13


class _Point(NamedTuple):
    """The log-likelihood at one (h, k, z): its fall below the maximum, and its first and second derivatives."""

    at: Position
    fall: float
    h: float
    k: float
    z: float
    hh: float
    hk: float
    kk: float
    hz: float
    kz: float

    @property
    def root_fall(self) -> float:
        """Square root of the likelihood-ratio statistic."""
        return math.sqrt(2 * max(self.fall, 0.0))

    @property
    def is_concave(self) -> bool:
        """Whether the Hessian in h and k is negative definite, which can only fail by rounding."""
        return self.hh < 0 and self.hh * self.kk > self.hk * self.hk

    def margins_step(self, slope_h: float, slope_k: float) -> tuple[float, float]:
        """Return the Newton step in (h, k) that removes the given derivatives."""
        determinant = self.hh * self.kk - self.hk * self.hk
        return (
            (self.hk * slope_k - self.kk * slope_h) / determinant,
            (self.hk * slope_h - self.hh * slope_k) / determinant,
        )

    def along_ridge(self, dz: float) -> Position:
        """Return the step with the given dz along which the derivatives in h and k do not change."""
        along_h, along_k = self.margins_step(self.hz, self.kz)
        return along_h * dz, along_k * dz, dz


def profile_limits(counts: Counts, rho: float, root_chi2: float) -> tuple[float, float]:
    """Return the lower and upper profile limits of rho for a table with four positive cells.

    `rho` is the estimate. `root_chi2` is the square root of the chi-squared quantile
    with one degree of freedom, which is the normal quantile of the two-sided level.
    """
    z = precise_z(counts, rho)
    best = _evaluate(counts, (*_thresholds(counts), min(max(z, -MAX_Z), MAX_Z)))
    reach = root_chi2 * _error_of(counts, _influence_of(counts, (*best.at[:2], z))) * math.cosh(z) ** 2
    limits = []
    for outward in (-1.0, 1.0):
        if abs(best.at[2]) == MAX_Z and (z * outward > 0 or best.root_fall > root_chi2):
            # The estimate, and perhaps the limit on the other side of it, round to -1 or 1.
            limits.append(math.copysign(1.0, z))
            continue
        if reach < LINEAR_REACH:
            limits.append(math.tanh(z + outward * reach))
            continue
        limit = _joint_newton(counts, best.at, best.along_ridge(outward * reach), root_chi2)
        if limit is None or (limit - best.at[2]) * outward <= 0:
            limit = _ridge_search(counts, best.at, outward, root_chi2)
        limits.append(_rho_at(limit))
    # Limits so close to the estimate that they differ by rounding only may lie on its other side.
    return min(limits[0], rho), max(limits[1], rho)


def boundary_limit(counts: Counts, rho: float, root_chi2: float) -> float:
    """Return the limit opposite the estimate `rho`, which is +1 or -1 because a cell of the table is zero."""
    # At about this expected count an empty cell becomes plausible, so the limit is near the estimate of the table
    # filled with it.
    n11, n10, n01, n00 = counts
    expectation = max(root_chi2 * root_chi2 / 2, LEAST_FALL * (n11 + n10 + n01 + n00))
    root_chi2 = math.sqrt(2 * expectation)
    filled = (n11 or expectation, n10 or expectation, n01 or expectation, n00 or expectation)
    z = precise_z(filled, tetrachoric_of_counts(*filled))
    start = (*_thresholds(filled), min(max(z, -MAX_Z), MAX_Z))
    limit = _joint_newton(counts, start, (0.0, 0.0, 0.0), root_chi2)
    return _rho_at(_ridge_search(counts, start, -rho, root_chi2) if limit is None else limit)


def _rho_at(z: float) -> float:
    return math.tanh(z) if abs(z) < MAX_Z else math.copysign(1.0, z)


def _thresholds(counts: Counts) -> tuple[float, float]:
    n11, n10, n01, n00 = counts
    return _threshold(n11 + n10, n01 + n00), _threshold(n11 + n01, n10 + n00)


def _threshold(above: float, below: float) -> float:
    """Return the threshold that so many values exceed; of two complementary shares, the smaller is exact."""
    n = above + below
    return -SCALAR.ndtri(above / n) if above <= below else SCALAR.ndtri(below / n)


def _joint_newton(counts: Counts, position: Position, step: Position, root_chi2: float) -> float | None:
    """Solve for zero derivatives in h and k and the wanted fall jointly, starting with `step` from `position`.

    Returns z, or None if the iteration does not converge.
    """
    for _ in range(JOINT_STEPS):
        point = _damped_move(counts, position, step, HOPELESS_FALL * root_chi2)
        if point is None or not point.is_concave:
            return None
        position = point.at
        step_h, step_k = point.margins_step(point.h, point.k)
        along_h, along_k, _ = point.along_ridge(1.0)
        # The square root of the fall is nearly linear in z, so the Newton step is taken on it.
        change = point.root_fall * (point.root_fall - root_chi2) - point.h * step_h - point.k * step_k
        slope = point.z + point.h * along_h + point.k * along_k
        if slope == 0:
            return None
        dz = change / slope
        step = (step_h + along_h * dz, step_k + along_k * dz, dz)
        if max(map(abs, step)) < JOINT_TOLERANCE:
            return position[2] + dz
    return None


def _damped_move(counts: Counts, position: Position, step: Position, largest_fall: float) -> _Point | None:
    """Take the step, halved until the square root of the fall is at most `largest_fall`; None if that fails."""
    for halvings in range(HALVINGS):
        h, k, z = (x + dx * 0.5**halvings for x, dx in zip(position, step, strict=True))
        if abs(z) <= MAX_Z:
            point = _evaluate(counts, (h, k, z))
            if point.root_fall <= largest_fall:
                return point
    return None


def _ridge_search(counts: Counts, start: Position, outward: float, root_chi2: float) -> float:
    """Find the limit by bracketing along the ridge of the likelihood and root finding: slow but robust."""
    point = _climb(counts, start)
    falling = point.root_fall < root_chi2
    dz = math.copysign(0.5, outward if falling else -outward)
    while True:
        if abs(point.at[2]) == MAX_Z:
            return math.copysign(MAX_Z, dz)
        dz = min(max(dz, -MAX_Z - point.at[2]), MAX_Z - point.at[2])
        moved = None
        if point.is_concave:
            largest_fall = max(HOPELESS_FALL * root_chi2, point.root_fall)
            moved = _damped_move(counts, point.at, point.along_ridge(dz), largest_fall)
        if moved is None:  # rounding hides the ridge; the end of the range is a limit too, only a wider one
            return math.copysign(MAX_Z, outward)
        next_point = _climb(counts, moved.at)
        if (next_point.root_fall < root_chi2) != falling:
            break
        point = next_point
        dz = 1.5 * dz
    (h, k, low) = point.at
    (next_h, next_k, high) = next_point.at

    def excess(z: float) -> float:
        share = (z - low) / (high - low)
        guess = h + share * (next_h - h), k + share * (next_k - k), z
        return _climb(counts, guess).root_fall - root_chi2

    if excess(low) * excess(high) > 0:  # the likelihood is nearly flat, and the signs are rounding errors
        return high
    # To 1e-13 in rho, which changes little with z far from 0.
    farther = max(abs(low), abs(high)) - 1
    return float(brentq(excess, low, high, xtol=1e-13 * min(math.cosh(max(farther, 0.0)) ** 2, 1e6)))


def _climb(counts: Counts, position: Position) -> _Point:
    """Maximise the likelihood over the thresholds at a fixed z, by damped Newton steps."""
    point = _evaluate(counts, position)
    for _ in range(INNER_STEPS):
        if not point.is_concave:
            break
        step_h, step_k = point.margins_step(point.h, point.k)
        moved = _damped_move(counts, point.at, (step_h, step_k, 0.0), point.root_fall)
        gain = point.h * step_h + point.k * step_k
        progress = 0.0 if moved is None else point.fall - moved.fall
        point = moved or point
        if gain < INNER_TOLERANCE or progress < ROUNDING * point.fall:
            break
    return point


def _evaluate(counts: Counts, position: Position) -> _Point:
    h, k, _ = position
    n11, n10, n01, n00 = counts
    n = n11 + n10 + n01 + n00
    rho, spread, density, alpha_at, beta_at = _conditionals(position)
    p11, p10, p01, p00 = _cells(position)
    fall = _divergence(n11, n * p11) + _divergence(n10, n * p10) + _divergence(n01, n * p01) + _divergence(n00, n * p00)

    # Derivatives of the margins, of the first cell, and of the logarithms of the cells.
    r_h = _minus_density(h)
    mu_k = _minus_density(k)
    p_z = spread * spread * density
    alpha = r_h * SCALAR.ndtr(alpha_at)
    not_alpha = r_h * SCALAR.ndtr(-alpha_at)
    beta = mu_k * SCALAR.ndtr(beta_at)
    not_beta = mu_k * SCALAR.ndtr(-beta_at)
    h11 = alpha / p11
    h10 = not_alpha / p10
    h01 = -alpha / p01
    h00 = -not_alpha / p00
    k11 = beta / p11
    k10 = -beta / p10
    k01 = not_beta / p01
    k00 = -not_beta / p00
    z11 = p_z / p11
    z10 = -p_z / p10
    z01 = -p_z / p01
    z00 = p_z / p00

    slope_h = n11 * h11 + n10 * h10 + n01 * h01 + n00 * h00
    slope_k = n11 * k11 + n10 * k10 + n01 * k01 + n00 * k00
    # The density times the sum of counts over cells, with the signs of the derivative in rho.
    mixed = (n11 / p11 - n10 / p10 - n01 / p01 + n00 / p00) * density
    return _Point(
        position,
        fall,
        slope_h,
        slope_k,
        n11 * z11 + n10 * z10 + n01 * z01 + n00 * z00,
        hh=-h * slope_h - rho * mixed - (n11 * h11 * h11 + n10 * h10 * h10 + n01 * h01 * h01 + n00 * h00 * h00),
        kk=-k * slope_k - rho * mixed - (n11 * k11 * k11 + n10 * k10 * k10 + n01 * k01 * k01 + n00 * k00 * k00),
        hk=mixed - (n11 * h11 * k11 + n10 * h10 * k10 + n01 * h01 * k01 + n00 * h00 * k00),
        hz=mixed * spread * beta_at - (n11 * h11 * z11 + n10 * h10 * z10 + n01 * h01 * z01 + n00 * h00 * z00),
        kz=mixed * spread * alpha_at - (n11 * k11 * z11 + n10 * k10 * z10 + n01 * k01 * z01 + n00 * k00 * z00),
    )


def _cells(position: Position) -> Counts:
    h, k, z = position
    r = SCALAR.ndtr(-h)
    mu = SCALAR.ndtr(-k)
    p11 = orthant(SCALAR, h, k, math.exp(-z))
    return with_precise_small_cell((p11, r - p11, mu - p11, (1 - r) - (mu - p11)), h, k, z)


def _divergence(count: float, expected: float) -> float:
    """Return the term of a cell in the fall of the log-likelihood, without cancellation between the cells."""
    if count == 0:
        return expected
    excess = (expected - count) / count
    return count * (excess - (math.log1p(excess) if excess > -0.5 else math.log(expected / count)))


def _conditionals(position: Position) -> tuple[float, float, float, float, float]:
    """Return rho, sqrt(1 - rho^2), the density at (h, k), and the normal quantiles of two conditional probabilities.

    These are P(Y > k | X = h) and P(X > h | Y = k). Nothing cancels near rho = -1 and 1, since Y and k are reflected if
    rho is negative.
    """
    h, k, z = position
    sign = 1.0 if z >= 0 else -1.0
    t = math.exp(-abs(z))
    spread = 2 * t / (1 + t * t)
    rho = sign * (1 - t * t) / (1 + t * t)
    gap = (k - sign * h) / spread
    density = math.exp(log_kernel(h, sign * k, spread, t)) / (2 * math.pi * spread)
    return rho, spread, density, -gap - sign * h * t, sign * (gap - k * t)


def _minus_density(x: float) -> float:
    return -math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


IntervalMethod = Literal["profile", "jeffreys", "delta", "bootstrap"]
Seed = int | np.random.Generator | None

# Student's t has no variance below this: one or two questions outweigh all others, and the interval is [-1, 1].
MIN_DEGREES = 2
# Effective number of questions below which a cell counts as nearly empty.
NEARLY_EMPTY = 0.5
BOOTSTRAP_RESAMPLES = 1_000
JEFFREYS_DRAWS = 10_000


def checked_resamples(n_resamples: int) -> int:
    """Return the number of resamples if there is at least one."""
    return whole_number("n_resamples", n_resamples, 1)


def normal_quantile(confidence_level: float) -> float:
    """Return the two-sided normal quantile; its square is a chi-squared quantile."""
    return student_quantile(confidence_level, None)


def _profile(table: AnyTable, rho: float, root_chi2: float, level: float) -> ConfidenceInterval:
    interior = abs(rho) < 1
    cells: Counts = table.counts
    if isinstance(table, SampledTable):
        if table.degrees_of_freedom < MIN_DEGREES:
            return ConfidenceInterval(-1.0, 1.0)
        cells = table.effective_counts(cell_influence(table, rho) if interior else None)
        if min(cells) < NEARLY_EMPTY:
            # The influence of so few questions says nothing about the variance, as where a cell is empty.
            cells = min(cells, table.effective_counts(None), key=sum)
    n11, n10, n01, n00 = map(float, cells)
    counts = n11, n10, n01, n00
    if interior:
        return ConfidenceInterval(*profile_limits(counts, rho, root_chi2))
    limit = boundary_limit(counts, rho, math.sqrt(-2 * math.log1p(-level)))
    return ConfidenceInterval(min(rho, limit), max(rho, limit))


def _delta(table: AnyTable, rho: float, quantile: float) -> ConfidenceInterval:
    if abs(rho) == 1:
        return NO_INTERVAL
    z = precise_z(table.counts, rho)
    reach = quantile * standard_error(table, rho) * math.cosh(z) ** 2
    return ConfidenceInterval(min(math.tanh(z - reach), rho), max(math.tanh(z + reach), rho))


def _jeffreys(table: AnyTable, rho: float, level: float, n_draws: int, rng: Seed) -> ConfidenceInterval:
    shapes = np.array(table.counts)[:, np.newaxis] + 0.5
    # Normalised gamma variables have a Dirichlet distribution, and rho does not depend on their sum.
    posterior = tetrachoric(*np.random.default_rng(rng).standard_gamma(shapes, size=(4, n_draws)))
    low, high = central_quantiles(posterior, level)
    # The interval must contain the estimate, as for a proportion of 0 or 1.
    return ConfidenceInterval(min(low, rho), max(high, rho))


def _bootstrap(table: AnyTable, rho: float, level: float, n_resamples: int, rng: Seed) -> ConfidenceInterval:
    if abs(rho) == 1:
        # An empty cell is empty in every resample, so the bootstrap interval would have width zero.
        return NO_INTERVAL
    proportions = np.array(table.counts) / table.n
    resamples = np.random.default_rng(rng).multinomial(table.n, proportions, size=n_resamples)
    estimates = tetrachoric(*resamples.T)
    low, high = central_quantiles(estimates[~np.isnan(estimates)], level)
    return ConfidenceInterval(min(low, rho), max(high, rho))  # NaN without resamples that have an estimate


def central_quantiles(values: FloatArray, level: float) -> tuple[float, float]:
    """Return the equal-tailed quantiles of draws at a confidence level; NaN without draws."""
    if not values.size:
        return math.nan, math.nan
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


Triple = tuple[float, float, float]


def wilson_interval(successes: float, n: float, quantile: float) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion; n is positive."""
    square = quantile * quantile
    share = successes / n
    centre = share + square / (2 * n)
    reach = quantile * math.sqrt((share * (1 - share) + square / (4 * n)) / n)
    # At a proportion of 0 or 1 one end equals it, except for rounding.
    low = 0.0 if successes == 0 else (centre - reach) / (1 + square / n)
    high = 1.0 if successes == n else (centre + reach) / (1 + square / n)
    return low, high


def ratio_score_interval(
    counts: Triple, numerator: Triple, denominator: Triple, quantile: float
) -> tuple[float, float, float]:
    """Estimate ``sum(p * numerator) / sum(p * denominator)``, where p are the probabilities of three categories.

    Returns the estimate and the ends of its score interval.

    The weights of the denominator must be positive. If two categories have the same weights, this is Wilson's interval.
    """
    ratios = [top / bottom for top, bottom in zip(numerator, denominator, strict=True)]
    quotient = weighted_sum(counts, numerator) / weighted_sum(counts, denominator)
    # If all questions are in one category, rounding can push the quotient out of its range.
    estimate = min(max(quotient, min(ratios)), max(ratios))

    def excess(value: float) -> float:
        scores = tuple(top - value * bottom for top, bottom in zip(numerator, denominator, strict=True))
        return abs(_score_statistic(counts, (scores[0], scores[1], scores[2]))) - quantile

    return estimate, _crossing(excess, estimate, min(ratios)), _crossing(excess, estimate, max(ratios))


def proportion(name: str, successes: float, n: float, quantile: float, undefined: str | None) -> Estimate:
    """Estimate a proportion with Wilson's interval; `undefined` is the reason if it is undefined."""
    if undefined:
        return Estimate(None, status="undefined", reason=undefined, name=name, method="wilson")
    return Estimate(successes / n, *wilson_interval(successes, n, quantile), name=name, method="wilson")


def ratio(
    name: str, counts: Triple, weights: tuple[Triple, Triple], quantile: float, undefined: str | None
) -> Estimate:
    """Estimate a ratio of two weighted sums over right answers, wrong answers and refusals, with its score interval."""
    if undefined:
        return Estimate(None, status="undefined", reason=undefined, name=name, method="score")
    return Estimate(*ratio_score_interval(counts, *weights, quantile), name=name, method="score")


def _crossing(excess: Callable[[float], float], estimate: float, end: float) -> float:
    if estimate == end:
        return end
    # At the end of the range the statistic is infinite; no practical confidence level comes closer to it.
    near_end = end + 1e-6 * (estimate - end)
    if excess(near_end) <= 0:
        return end
    # The statistic is 0 at the estimate except for rounding, which may exceed the quantile of a level close to 0.
    return float(brentq(excess, estimate, near_end, xtol=1e-14)) if excess(estimate) < 0 else estimate


def _score_statistic(counts: Triple, scores: Triple) -> float:
    """Return the sum of scores over its standard deviation, under the most likely probabilities with mean zero.

    These are ``p = count / (n (1 + multiplier * score))``. The multiplier is the root of a quadratic equation that goes
    to 0 with the sum, which keeps all p positive. The squared statistic is the multiplier times the sum.
    """
    (x1, x2, x3) = counts
    (w1, w2, w3) = scores
    total = weighted_sum(counts, scores)
    if total == 0:
        return 0.0
    linear = x1 * w1 * (w2 + w3) + x2 * w2 * (w1 + w3) + x3 * w3 * (w1 + w2)
    quadratic = w1 * w2 * w3 * (x1 + x2 + x3)
    root = math.sqrt(max(linear * linear - 4 * quadratic * total, 0.0))
    # Two forms of the same root; the one without cancellation is used.
    top, bottom = (2 * total, root - linear) if linear <= 0 else (-root - linear, 2 * quadratic)
    if bottom == 0:  # scores of one sign, one of them 0: no probabilities have mean zero
        return math.copysign(math.inf, total)
    multiplier = top / bottom
    return math.copysign(math.sqrt(max(multiplier * total, 0.0)), total)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalIndexResult(ResultWithInterval):
    """The Refusal Index of one table, with its status and standard error.

    It prints with its 95% profile-likelihood interval.

    Attributes
    ----------
    estimate : float or None
        The Refusal Index, in [-1, 1]. Exactly -1 or +1 at the boundary, None if undefined.
    rho : float or None
        The tetrachoric correlation, with the same conventions.
    standard_error : float or None
        Standard error of `estimate`, including the estimation of the refusal and error rates. None unless the status is
        ``"ok"``.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: a cell is empty, so the likelihood is largest at rho = -1 or +1; or there is only one cluster.
        ``"undefined"``: the data contain no information about rho.
    reason : str or None
        Why the status is not ``"ok"``. At the boundary: ``"zero_cell:"`` with the empty cells, joined by ``+``, or
        ``"one_cluster"``, with which the standard error is unknown. If undefined: the first that applies of
        ``"no_questions"``, ``"nobody_refused"``, ``"everybody_refused"``, ``"all_wrong"``, ``"all_right"``.
    table : ContingencyTable or SampledTable
    """

    rho: float | None = field(default=None, repr=False)
    table: AnyTable = field(repr=False)

    def __repr__(self) -> str:
        if self.estimate is None:
            return f"RefusalIndexResult(undefined, {self.reason})"
        low, high = self.confidence_interval()
        why = "" if self.reason is None else f", {self.reason}"
        return f"RefusalIndexResult({self.estimate:.3f} [{low:.3f}, {high:.3f}]{why})"

    def confidence_interval(
        self,
        confidence_level: float = 0.95,
        method: IntervalMethod = "profile",
        *,
        n_resamples: int | None = None,
        rng: Seed = None,
    ) -> ConfidenceInterval:
        """Return a confidence interval of the Refusal Index.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        method : {"profile", "jeffreys", "delta", "bootstrap"}
            ``"profile"``: profile-likelihood interval over both thresholds; at the boundary one-sided. ``"jeffreys"``:
            posterior quantiles under Jeffreys' prior for the four cells. ``"delta"``: normal interval for
            ``atanh(rho)``. ``"bootstrap"``: percentiles over resampled questions, as in the paper; resamples with an
            undefined RI are left out. With clusters or weights only ``"profile"`` and ``"delta"`` are available.
        n_resamples : int, optional
            Number of posterior draws (default: 10,000) or bootstrap resamples (default: 1,000).
        rng : int or numpy.random.Generator, optional

        Returns
        -------
        ConfidenceInterval
            ``(low, high)``. At the boundary, profile and Jeffreys intervals end at the estimate, and delta and
            bootstrap intervals, which are not valid with an empty cell, are ``(nan, nan)``. All are ``(nan, nan)`` if
            RI is undefined, and for a single cluster. The interval always contains the estimate: posterior or bootstrap
            quantiles that exclude it, as they may at a low level, are extended to it.

        Examples
        --------
        >>> result = refusal_index(ContingencyTable(710, 30, 210, 50))
        >>> low, high = result.confidence_interval()
        >>> round(low, 4), round(high, 4)
        (0.3596, 0.5922)
        """
        quantile = normal_quantile(confidence_level)
        one_of("method", method, get_args(IntervalMethod))
        if n_resamples is not None:
            checked_resamples(n_resamples)
        if isinstance(self.table, SampledTable):
            if method not in {"profile", "delta"}:
                raise ValueError(f"method must be 'profile' or 'delta' with clusters or weights, got {method!r}")
            quantile = self.table.quantile(confidence_level)
        if self.rho is None or math.isnan(quantile):
            return NO_INTERVAL
        if method == "profile":
            ends = _profile(self.table, self.rho, quantile, confidence_level)
        elif method == "delta":
            ends = _delta(self.table, self.rho, quantile)
        elif method == "jeffreys":
            ends = _jeffreys(self.table, self.rho, confidence_level, n_resamples or JEFFREYS_DRAWS, rng)
        else:
            ends = _bootstrap(self.table, self.rho, confidence_level, n_resamples or BOOTSTRAP_RESAMPLES, rng)
        return ConfidenceInterval(*map(spearman, ends))


@overload
def refusal_index(table: AnyTable, /) -> RefusalIndexResult: ...
@overload
def refusal_index(
    refused: ArrayLike, wrong: ArrayLike, /, *, cluster: ArrayLike | None = None, weight: ArrayLike | None = None
) -> RefusalIndexResult: ...
@overload
def refusal_index(
    *, refused: ArrayLike, wrong: ArrayLike, cluster: ArrayLike | None = None, weight: ArrayLike | None = None
) -> RefusalIndexResult: ...


def refusal_index(
    table: AnyTable | ArrayLike | None = None,
    /,
    wrong: ArrayLike | None = None,
    *,
    refused: ArrayLike | None = None,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> RefusalIndexResult:
    """Estimate the Refusal Index from a table of counts, or from one outcome per question.

    The Refusal Index is Spearman's rank correlation between the probability that a model refuses a question and the
    probability that it would answer it wrongly, under a Gaussian copula. Two passes over the same questions measure it:
    in the first, the model may refuse; in the second, it is forced to answer what it refused. From the 2x2 table of
    refusal and error, the tetrachoric correlation rho is estimated by maximum likelihood, and

        RI = 6 / pi * asin(rho / 2)

    Parameters
    ----------
    table : ContingencyTable or SampledTable
        Counts of questions. Give this or both arrays: ``refusal_index(table)``, ``refusal_index(refused, wrong)`` and
        ``refusal_index(refused=refused, wrong=wrong)`` are valid calls.
    refused, wrong : array_like of bool, shape (n,)
        As for `ContingencyTable.from_arrays`.
    cluster, weight : array_like, shape (n,), optional
        Cluster and sampling weight of each question, as for `SamplingDesign.of`. The estimate uses weighted cells; the
        standard error and the interval account for clusters and weights.

    Returns
    -------
    RefusalIndexResult
        Valid data without information on RI, such as a run without refusals, give the status ``"undefined"``, not an
        exception.

    Raises
    ------
    TypeError, ValueError
        If neither or both forms are given, or the arrays are not truth values of one length; also the errors of
        `SamplingDesign.of`.

    Notes
    -----
    The estimate maximises the multinomial likelihood over rho, with the thresholds at the observed rates. The model is
    saturated, so at the maximum the modelled share of refused and wrong questions equals the observed one. It is found
    by root finding, with an error below 1e-12 if every cell holds more than 1e-5 of the questions.

    References
    ----------
    .. [1] Pan, W., Xu, J., Chen, Q., et al. Can LLMs Refuse Questions They Do Not Know? Measuring Knowledge-Aware
       Refusal in Factual Tasks. Definition, section "Refusal Index"; likelihood, section "Two-Pass Evaluation".
    .. [2] Pearson, K. (1900). Mathematical contributions to the theory of evolution. VII. On the correlation of
       characters not quantitatively measurable. Philosophical Transactions of the Royal Society A, 195, 1-47.
       :doi:`10.1098/rsta.1900.0022`
    .. [3] Hamdan, M. A. (1970). The equivalence of tetrachoric and maximum likelihood estimates of rho in 2x2 tables.
       Biometrika, 57, 212-215. :doi:`10.1093/biomet/57.1.212`

    Examples
    --------
    >>> result = refusal_index(ContingencyTable(710, 30, 210, 50))
    >>> round(result.estimate, 6), round(result.rho, 6), round(result.standard_error, 6)
    (0.482169, 0.49958, 0.059594)

    RI is undefined for a model that never refuses:

    >>> nobody = refusal_index(refused=[False, False, False], wrong=[True, False, True])
    >>> nobody.estimate is None, nobody.status, nobody.reason
    (True, 'undefined', 'nobody_refused')
    """
    if table is not None and wrong is not None and refused is None and not isinstance(table, AnyTable):
        table, refused = None, table
    if table is None:
        if refused is None or wrong is None:
            raise TypeError("refusal_index needs a ContingencyTable, or both refused and wrong")
        if cluster is None and weight is None:
            table = ContingencyTable.from_arrays(refused, wrong)
        else:
            table = SampledTable.from_arrays(refused, wrong, cluster=cluster, weight=weight)
    elif any(argument is not None for argument in (refused, wrong, cluster, weight)):
        raise TypeError("refusal_index takes a ContingencyTable or the arrays refused= and wrong=, not both")
    elif not isinstance(table, AnyTable):
        raise TypeError(
            f"table must be a ContingencyTable, got {type(table).__name__}; "
            "for four counts write refusal_index(ContingencyTable(...)), for one outcome per question "
            "refusal_index(refused, wrong), for arrays of counts refusal_index_many(...)"
        )
    margins = table.margins
    if 0 in margins:
        undefined = empty_margin(*margins) if table.n else "no_questions"
        return RefusalIndexResult(None, "undefined", undefined, table=table)
    if 0 in table.counts:
        empty = f"zero_cell:{cell_names(count == 0 for count in table.counts)}"
        end = 1.0 if table.refused_right == 0 or table.answered_wrong == 0 else -1.0
        return RefusalIndexResult(end, "boundary", empty, rho=end, table=table)
    rho = tetrachoric_of_counts(*table.counts)
    error = standard_error(table, rho) * spearman_slope(rho)
    if math.isnan(error):
        return RefusalIndexResult(spearman(rho), "boundary", ONE_CLUSTER, rho=rho, table=table)
    return RefusalIndexResult(spearman(rho), standard_error=error, rho=rho, table=table)


def refusal_index_many(
    refused_wrong: ArrayLike, refused_right: ArrayLike, answered_wrong: ArrayLike, answered_right: ArrayLike
) -> FloatArray:
    """Estimate the Refusal Index of many tables at once, in less than a microsecond each.

    Parameters
    ----------
    refused_wrong, refused_right, answered_wrong, answered_right : array_like of int
        Non-negative counts, of shapes that broadcast. Integer-valued floats are accepted.

    Returns
    -------
    ndarray
        Refusal Index of each table, in the broadcast shape (a NumPy float for scalar arguments). Exactly -1 or +1 at
        the boundary and NaN if undefined, as in `RefusalIndexResult`.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If a count is negative, fractional, infinite or NaN, or the shapes do not broadcast.

    References
    ----------
    .. [1] Pan et al. Definition, section "Refusal Index"; likelihood, section "Two-Pass Evaluation".

    Examples
    --------
    >>> refusal_index_many([710, 40, 5, 0], [30, 10, 0, 0], [210, 20, 3, 7], [50, 30, 4, 9])
    array([0.48216949, 0.58900441, 1. , nan])
    """
    arguments = (refused_wrong, refused_right, answered_wrong, answered_right)
    rho = tetrachoric(*(checked_counts(name, values) for name, values in zip(CELL_NAMES, arguments, strict=True)))
    return np.asarray(np.arcsin(rho / 2) / math.asin(0.5))[()]
