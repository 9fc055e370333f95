r"""Are two indices the same? A test that needs no standard error, for tables with cells that are nearly or quite empty.

Both tables are fitted with one common rho, each with its own rates, and held against the fit by a power divergence,

    D = 2 / (lambda (lambda + 1)) sum O ((O / E)^lambda - 1),    lambda = 1/3,

over the eight cells. lambda = 0 would be the likelihood ratio, 1 Pearson's chi-squared. Where a cell expects two or
three questions the first rejects too often (.06 to .07 at the level .05) and the second too rarely (.02 to .04);
between them lies what keeps its level best [1]_.

D has one degree of freedom if the runs are independent and the rates known. Runs over the same questions are not, and
the rates are estimated, so that D is scaled by the variance that the difference really has over the one that it would
have then. The covariance is that of the influence of the questions at the fit, which an empty cell does not trouble.
The signed root of the scaled D is about standard normal, and such roots add up over strata.

References
----------
.. [1] Cressie, N. and Read, T. R. C. (1984). Multinomial goodness-of-fit tests. Journal of the Royal Statistical
   Society B, 46, 440-464. :doi:`10.1111/j.2517-6161.1984.tb01318.x`
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.design import group_codes
from refusal_index.stats.estimate import reasons_of
from refusal_index.stats.estimator import upper_orthant
from refusal_index.stats.index import refusal_index
from refusal_index.stats.matrices import cell_codes, checked_matrices, row_tables

POWER = 1 / 3
# tanh(8) leaves an odds ratio of several millions: no table with a question in each cell is fitted by more.
LARGEST_Z = 8.0
SMALLEST_CELL = 1e-14
LEAST_LOG_WEIGHT = -20.0
# Below this share the variance of a difference is rounding: the runs are the same on every question.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class EqualIndexTest:
    """Whether two runs have the same Refusal Index.

    Attributes
    ----------
    statistic : float or None
        Standard normal if they have, positive where the first is higher. None where undefined.
    pvalue : float or None
        Two-sided. 1 where the estimates are equal, also at the same boundary.
    reason : str or None
        Why it is undefined: as in `MetricDifference`, of the first stratum where there are several.
    n_strata : int
        Strata in which both runs have an index; 1 where there are no strata.
    """

    statistic: float | None
    pvalue: float | None
    reason: str | None
    n_strata: int


def equal_index_test(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None, *, strata: ArrayLike | None = None
) -> EqualIndexTest:
    """Test whether two runs have the same Refusal Index, whatever cells are empty.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (2, n)
        As for `compare_metrics`: the runs may share all, some or none of their questions.
    strata : array_like, shape (n,), optional
        What each question belongs to, such as its topic. The hypothesis is then that the two indices are the same
        within each stratum, and evidence is pooled over strata in proportion to the information that they hold.

    Returns
    -------
    EqualIndexTest
        Undefined only where an index is: nobody refused, everybody, all wrong or all right; of strata, in every one.

    Raises
    ------
    TypeError, ValueError
        As for `checked_matrices`, or if there are not two rows, or not one stratum for every question.

    Notes
    -----
    With 500 questions of which 15 % are refused and 90 % wrong, at an index of .38, the smallest cell expects 1.5
    questions and 39 % of pairs have an empty one, for which there is no test by standard errors. With this test there
    `compare_metrics` rejects .046 of the pairs of equal models at the level .05, .043 where they share their
    questions, and this test over five strata .046 and .042. Where a cell expects less than one question, too few tables
    are surprising for a test to reject as often as its level (.01 to .02).

    References
    ----------
    .. [1] Cressie and Read (1984). :doi:`10.1111/j.2517-6161.1984.tb01318.x`

    Examples
    --------
    No question that the first run refused would have been right, of 75; of the second run's it were 8:

    >>> refused = np.tile(np.arange(500) < 75, (2, 1))
    >>> wrong = np.stack([np.arange(500) < 450, (np.arange(500) < 67) | (np.arange(500) >= 117)])
    >>> test = equal_index_test(refused, wrong)
    >>> round(test.statistic, 2), round(test.pvalue, 4)
    (3.09, 0.002)
    """
    matrices = checked_matrices(refused, wrong, scored)
    if len(matrices[0]) != 2:
        raise ValueError(f"refused must have exactly two rows, the runs to compare, got {len(matrices[0])}")
    codes = cell_codes(*matrices)
    groups = _groups(strata, codes.shape[1])
    found = [_stratum(row_tables(*(m[:, group] for m in matrices)), codes[:, group]) for group in groups]
    roots = [one for one in found if isinstance(one, tuple)]
    if not roots:
        return EqualIndexTest(None, None, next((one for one in found if isinstance(one, str)), "no_questions"), 0)
    statistic = pooled_root(roots)
    return EqualIndexTest(statistic, float(2 * ndtr(-abs(statistic))), None, len(roots))


def pooled_root(roots: Sequence[tuple[float, float]]) -> float:
    """Add signed roots, each with its information, to one that is standard normal if they are."""
    total = sum(information for _, information in roots)
    return sum(root * math.sqrt(information / total) for root, information in roots) if total > 0 else 0.0


def signed_root(tables: Sequence[ContingencyTable], codes: NDArray[np.intp]) -> tuple[float, float]:
    """Return the signed root of the scaled divergence of two tables with defined indices, and its information.

    `codes` are those of `cell_codes`, shape (2, n). The information is the inverse variance of the difference of
    atanh(rho); 0 where both estimates are at the same boundary, where nothing is known.
    """
    first, second = (_atanh_estimate(table) for table in tables)
    if first == second and math.isinf(first):
        return 0.0, 0.0
    rho = math.tanh(_common_z(tables, min(first, second), max(first, second)))
    divergence = sum(_divergence(table, rho) for table in tables)
    known, variance, log_scale = _variances(tables, codes, rho)
    information = math.exp(2 * log_scale) / max(variance, ROUNDING * known)
    if variance <= ROUNDING * known:
        return 0.0, information * ROUNDING
    # Where the fit reaches both estimates, the divergence is rounding, of either sign.
    root = math.sqrt(max(divergence, 0.0) * known / variance) if first != second else 0.0
    return math.copysign(root, first - second), information


def _groups(strata: ArrayLike | None, n: int) -> list[NDArray[np.bool_]]:
    if strata is None:
        return [np.ones(n, bool)]
    places = group_codes("strata", n, strata)
    return [places == place for place in range(int(places.max(initial=-1)) + 1)]


def _stratum(tables: tuple[ContingencyTable, ...], codes: NDArray[np.intp]) -> tuple[float, float] | str | None:
    results = [refusal_index(table) for table in tables]
    if any(result.estimate is None for result in results):
        return reasons_of(*results)
    return signed_root(tables, codes)


def _atanh_estimate(table: ContingencyTable) -> float:
    rho = refusal_index(table).rho or 0.0
    return math.copysign(math.inf, rho) if abs(rho) == 1 else math.atanh(rho)


def _thresholds(table: ContingencyTable) -> tuple[float, float]:
    return -float(ndtri(table.refusal_rate)), -float(ndtri(table.error_rate))


def _fitted_cells(table: ContingencyTable, rho: float) -> FloatArray:
    """Cell probabilities at the rates of the table and the given rho."""
    r, mu = table.refusal_rate, table.error_rate
    p11 = float(upper_orthant(*_thresholds(table), rho))
    return np.maximum([p11, r - p11, mu - p11, 1 - r - mu + p11], SMALLEST_CELL)


def _common_z(tables: Sequence[ContingencyTable], low: float, high: float) -> float:
    """Maximise the sum of the two log-likelihoods over a common atanh(rho), between the two estimates."""
    low, high = max(low, -LARGEST_Z), min(high, LARGEST_Z)

    def slope(z: float) -> float:
        # The log-likelihood rises by excess * weight. Both weights may underflow: what counts is their ratio. It is
        # limited, since an excess of 0 is rounded, and must not outweigh a real one.
        rho = math.tanh(z)
        excess, log_weight = zip(*(_slope_parts(table, rho) for table in tables), strict=True)
        relative = (max(w - max(log_weight), LEAST_LOG_WEIGHT) for w in log_weight)
        return float(sum(e * math.exp(w) for e, w in zip(excess, relative, strict=True)))

    if slope(low) <= 0:
        return low
    return high if slope(high) >= 0 else float(brentq(slope, low, high, xtol=1e-10))


def _slope_parts(table: ContingencyTable, rho: float) -> tuple[float, float]:
    cells = _fitted_cells(table, rho)
    return table.refused_wrong - table.n * float(cells[0]), math.log(float(np.sum(1 / cells))) + _log_slope(table, rho)


def _log_slope(table: ContingencyTable, rho: float) -> float:
    """Logarithm of the derivative of the first cell in atanh(rho)."""
    h, k = _thresholds(table)
    squared = (1 - rho) * (1 + rho)
    return 0.5 * math.log(squared) - math.log(2 * math.pi) - (h * h - 2 * rho * h * k + k * k) / (2 * squared)


def _divergence(table: ContingencyTable, rho: float) -> float:
    counts = np.array(table.counts, float)
    ratios = counts / (table.n * _fitted_cells(table, rho))
    excess = float(counts @ (ratios**POWER - 1))
    return 2 / (POWER * (POWER + 1)) * excess


def _variances(tables: Sequence[ContingencyTable], codes: NDArray[np.intp], rho: float) -> tuple[float, float, float]:
    """Variance of the difference of atanh(rho): of independent runs of known rates, and as it is, and their scale.

    Both are to be divided by exp(2 scale): slopes of the first cell may be too small for a number.
    """
    slopes = [_log_slope(table, rho) for table in tables]
    known, influence, variances = 0.0, [], []
    for table, slope in zip(tables, slopes, strict=True):
        size, cells = math.exp(min(slopes) - slope), _fitted_cells(table, rho)
        known += size**2 / float(np.sum(1 / cells)) / table.n
        weights = size * _first_cell_given_rates(table, rho)
        centred = weights - cells @ weights
        variances.append(float(cells @ centred**2) / table.n)
        influence.append(np.append(centred, 0.0))
    return known, sum(variances) - 2 * _covariance(influence, variances, codes), min(slopes)


def _first_cell_given_rates(table: ContingencyTable, rho: float) -> FloatArray:
    """Influence of a question in each cell on the first cell beyond what the rates say, up to a constant."""
    h, k = _thresholds(table)
    spread = math.sqrt((1 - rho) * (1 + rho))
    alpha, beta = float(ndtr((rho * h - k) / spread)), float(ndtr((rho * k - h) / spread))
    return np.array([1 - alpha - beta, -alpha, -beta, 0.0])


def _covariance(influence: Sequence[FloatArray], variances: Sequence[float], codes: NDArray[np.intp]) -> float:
    """Covariance of two fits over the questions that both runs share: the correlation seen, times what the fit says."""
    shared = codes[:, (codes < 4).all(axis=0)]
    first, second = (values[row] for values, row in zip(influence, shared, strict=True))
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    if size == 0:
        return 0.0
    n_first, n_second = (float(np.count_nonzero(row < 4)) for row in codes)
    share = float(shared.shape[1]) / math.sqrt(n_first * n_second)
    return float(first @ second) / size * share * math.sqrt(variances[0] * variances[1])
