"""Confidence intervals of the Refusal Index, by four methods.

Coverage of nominal 95 % intervals, simulated for 200 to 4,326 questions at the refusal and error rates of published
models, where every cell is expected to hold at least five questions:

- profile likelihood, with both thresholds free: .94 to .96. The default. Where a cell is empty nothing can lie beyond
  the estimate, and the one open end is that of an exact one-sided interval of the empty cell's Poisson limit, where
  none of m expected questions is seen with probability ``exp(-m)``: the likelihood may fall by ``-log(1 - level)``,
  3.0 at 95 %, not by half a chi-squared quantile, 1.9, which would cover .90 with two questions expected in the cell.
- jeffreys, equal-tailed posterior quantiles under a Dirichlet(1/2, 1/2, 1/2, 1/2) prior: .94 to .96.
- delta, a normal interval for ``atanh(rho)``: .95 to .96. (On the scale of the index itself: .91 to .95.)
- bootstrap, percentiles over resampled questions: .92 to .96, but with emptier cells it can fall to .01.
"""

import math
from typing import Literal, get_args

import numpy as np

from refusal_index.stats._ops import SCALAR, FloatArray
from refusal_index.stats.arguments import share, whole_number
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval
from refusal_index.stats.estimator import tetrachoric
from refusal_index.stats.influence import cell_influence, standard_error
from refusal_index.stats.profile import boundary_limit, profile_limits
from refusal_index.stats.sampled_table import AnyTable, SampledTable

IntervalMethod = Literal["profile", "jeffreys", "delta", "bootstrap"]
Seed = int | np.random.Generator | None

# Student's distribution has no variance below: a question or two outweigh all others, and nothing is ruled out.
FEWEST_DEGREES = 2
BOOTSTRAP_RESAMPLES = 1_000
JEFFREYS_DRAWS = 10_000


def rho_interval(
    table: AnyTable,
    rho: float | None,
    confidence_level: float,
    method: IntervalMethod,
    *,
    n_resamples: int | None,
    rng: Seed,
) -> ConfidenceInterval:
    """Interval for the tetrachoric correlation of a table whose estimate is `rho`."""
    quantile = normal_quantile(confidence_level)
    if method not in get_args(IntervalMethod):
        raise ValueError(f"method must be one of {', '.join(get_args(IntervalMethod))}, got {method!r}")
    if n_resamples is not None:
        checked_resamples(n_resamples)
    if isinstance(table, SampledTable):
        _check_sampled(method)
        quantile = table.quantile(confidence_level)
    if rho is None or math.isnan(quantile):
        return NO_INTERVAL
    if method == "profile":
        return _profile(table, rho, quantile, confidence_level)
    if method == "delta":
        return _delta(table, rho, quantile)
    if method == "jeffreys":
        return _jeffreys(table, rho, confidence_level, n_resamples or JEFFREYS_DRAWS, rng)
    return _bootstrap(table, rho, confidence_level, n_resamples or BOOTSTRAP_RESAMPLES, rng)


def checked_resamples(n_resamples: int) -> int:
    """Return the number of resamples if there is at least one."""
    return whole_number("n_resamples", n_resamples, 1)


def normal_quantile(confidence_level: float) -> float:
    """Half-width of a two-sided normal interval in standard errors; its square is a chi-squared quantile."""
    return float(-SCALAR.ndtri((1 - share("confidence_level", confidence_level)) / 2))


def normal_interval(
    estimate: float | None, standard_error: float | None, confidence_level: float
) -> ConfidenceInterval:
    """Return the normal interval of an estimate; both ends NaN where it is undefined or has no standard error."""
    quantile = normal_quantile(confidence_level)
    if estimate is None or standard_error is None:
        return NO_INTERVAL
    reach = quantile * standard_error
    return ConfidenceInterval(estimate - reach, estimate + reach)


def _check_sampled(method: str) -> None:
    if method not in {"profile", "delta"}:
        raise ValueError(f"method must be 'profile' or 'delta' with clusters or weights, got {method!r}")


def _profile(table: AnyTable, rho: float, root_chi2: float, level: float) -> ConfidenceInterval:
    interior = abs(rho) < 1
    if isinstance(table, SampledTable) and table.degrees_of_freedom < FEWEST_DEGREES:
        return ConfidenceInterval(-1.0, 1.0)
    if isinstance(table, SampledTable):
        n11, n10, n01, n00 = table.effective_counts(cell_influence(table, rho) if interior else None)
    else:
        n11, n10, n01, n00 = table.counts
    counts = float(n11), float(n10), float(n01), float(n00)
    if interior:
        try:
            return ConfidenceInterval(*profile_limits(counts, rho, standard_error(table, rho), root_chi2))
        except ArithmeticError:
            # With a cell of next to nothing and a quantile as large the likelihood is flat to the last digit.
            if not isinstance(table, SampledTable):
                raise
            return ConfidenceInterval(-1.0, 1.0)
    limit = boundary_limit(counts, rho, math.sqrt(-2 * math.log1p(-level)))
    return ConfidenceInterval(min(rho, limit), max(rho, limit))


def _delta(table: AnyTable, rho: float, quantile: float) -> ConfidenceInterval:
    if abs(rho) == 1:
        return NO_INTERVAL
    z, reach = math.atanh(rho), quantile * standard_error(table, rho) / ((1 - rho) * (1 + rho))
    return ConfidenceInterval(math.tanh(z - reach), math.tanh(z + reach))


def _jeffreys(table: AnyTable, rho: float, level: float, n_draws: int, rng: Seed) -> ConfidenceInterval:
    shapes = np.array(table.counts)[:, np.newaxis] + 0.5
    # Gamma variables are Dirichlet ones up to their sum, on which rho does not depend.
    posterior = tetrachoric(*np.random.default_rng(rng).standard_gamma(shapes, size=(4, n_draws)))
    low, high = central_quantiles(posterior, level)
    # As for a proportion of 0 or 1, an interval that left out its own estimate would be too short.
    return ConfidenceInterval(-1.0 if rho == -1 else low, 1.0 if rho == 1 else high)


def _bootstrap(table: AnyTable, rho: float, level: float, n_resamples: int, rng: Seed) -> ConfidenceInterval:
    if abs(rho) == 1:
        # A cell that is empty once is empty in every resample, so that the bootstrap would claim certainty.
        return NO_INTERVAL
    proportions = np.array(table.counts) / table.n
    resamples = np.random.default_rng(rng).multinomial(table.n, proportions, size=n_resamples)
    estimates = tetrachoric(*resamples.T)
    return ConfidenceInterval(*central_quantiles(estimates[~np.isnan(estimates)], level))


def central_quantiles(values: FloatArray, level: float) -> tuple[float, float]:
    """Return the ends of the middle share `level` of some draws; NaN where there are none."""
    if not values.size:
        return math.nan, math.nan
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
