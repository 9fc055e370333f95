"""Comparison of two runs: differences of metrics with standard errors, tests and intervals.

The variance of the difference of two estimates is computed from the difference of their influence functions, summed
over the questions. Shared questions are thus paired, which removes the variation in difficulty that both runs have in
common; questions of only one run are independent. Simulated coverage of nominal 95% intervals is .94 to .96 for every
metric, at the rates of published models with all, half or none of the questions shared
(`benchmarks/coverage/comparison.py`).

If a run has no standard error (an RI of -1 or +1, a rate of 0 or 1), a normal interval would be too narrow. The two
runs' own intervals are then combined by square-and-add (MOVER), and two RIs are tested by `equal_index_test`; neither
needs a standard error. With these intervals the coverage over all samples is .94 even if a cell has an expected count
of two or three. Given that a sample is at the boundary it is lower, .49 and .76 in two such scenarios, as it is for a
single run's profile interval, .25 and .70: an estimate of 1 far from the true RI is an unlucky sample.

Influence functions of the metrics:

The influence of a question is the effect of one more question like it on the estimate, times n. Sums over questions
give variances and covariances: for runs a and b with n_a and n_b scored questions,

    Cov(estimate_a, estimate_b) = sum_i influence_a,i influence_b,i / (n_a n_b),

where the influence of an unscored question is 0. So the same formula holds for runs that share all, some or none of
their questions.

All metrics except RI are ratios of two means over the questions; the influence on a ratio q of the means of u and v is
``(u - q v) / mean(v)``.

A test of equal RIs that needs no standard error, for tables with empty or nearly empty cells:

Both tables are fitted with a common rho, each with its own rates, and compared with the fit by a power divergence,

    D = 2 / (lambda (lambda + 1)) sum O ((O / E)^lambda - 1),    lambda = 1/3,

over the eight cells. lambda = 0 is the likelihood ratio, lambda = 1 Pearson's chi-squared. With expected counts of two
or three, the former rejects too often (.06 to .07 at the level .05) and the latter too rarely (.02 to .04); a value
between them keeps the level best [1]_.

D has one degree of freedom if the runs are independent and the rates known. Since runs share questions and rates are
estimated, D is rescaled by the ratio of the variance of the difference in that case to its actual variance. The
covariance is computed from the influence of the questions at the fit, which is defined for empty cells too. The signed
root of the scaled D is approximately standard normal, and signed roots of strata can be added.

References
----------
.. [1] Cressie, N. and Read, T. R. C. (1984). Multinomial goodness-of-fit tests. Journal of the Royal Statistical
   Society B, 46, 440-464. :doi:`10.1111/j.2517-6161.1984.tb01318.x`
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from refusal_index.stats.arguments import BoolArray, FloatArray, checked_matrices, checked_outcomes, group_codes, one_of
from refusal_index.stats.baseline import (
    DEFAULT_PAYOFFS,
    METRIC_NAMES,
    TRUTHFULNESS_WEIGHTS,
    Payoffs,
    Weights,
    checked_payoffs,
    metric_estimate,
    ratio_influence,
    why_undefined,
)
from refusal_index.stats.contingency import (
    ONE_CLUSTER,
    AnyTable,
    ContingencyTable,
    Counts,
    SampledTable,
    SamplingDesign,
    cell_codes,
    designed,
    row_tables,
    tables_of_rows,
)
from refusal_index.stats.estimate import (
    ConfidenceInterval,
    Result,
    ResultWithInterval,
    Status,
    reasons_of,
    square_and_add,
    two_sided_pvalue,
)
from refusal_index.stats.estimator import upper_orthant
from refusal_index.stats.intervals import cell_influence, refusal_index, spearman_slope

POWER = 1 / 3
# At z = 8 the odds ratio is several millions, more than any table with a question in each cell needs.
MAX_Z = 8.0
MIN_CELL = 1e-14
LEAST_LOG_WEIGHT = -20.0
# A variance of the difference below this share is rounding error: the runs agree on every question.
NEGLIGIBLE = 1e-9


@dataclass(frozen=True, slots=True)
class EqualIndexTest:
    """Test of the hypothesis that two runs have the same Refusal Index.

    Attributes
    ----------
    statistic : float or None
        Standard normal under the hypothesis, positive if the first RI is higher. None if undefined.
    pvalue : float or None
        Two-sided. 1 if the estimates are equal, also if both are at the same boundary.
    reason : str or None
        Why the test is undefined, as in `MetricDifference`; with strata, the reason of the first.
    n_strata : int
        Number of strata in which both RIs are defined; 1 without strata.
    """

    statistic: float | None
    pvalue: float | None
    reason: str | None
    n_strata: int


def equal_index_test(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None, *, strata: ArrayLike | None = None
) -> EqualIndexTest:
    """Test whether two runs have the same Refusal Index; valid also with empty cells.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (2, n)
        As for `compare_metrics`; the runs may share all, some or none of their questions.
    strata : array_like, shape (n,), optional
        Stratum of each question, such as its topic. The hypothesis is then that the two RIs are equal within each
        stratum; strata are pooled with weights proportional to their information.

    Returns
    -------
    EqualIndexTest
        Undefined only if an RI is: everything or nothing was refused, or all answers are wrong or right. With strata,
        only if that holds in every stratum.

    Raises
    ------
    TypeError, ValueError
        As for `checked_matrices`, or if there are not exactly two rows, or not one stratum per question.

    Notes
    -----
    With 500 questions, 15% refused and 90% wrong, and an RI of .38, the smallest cell has an expected count of 1.5,
    and in 39% of pairs a cell is empty, so that a test by standard errors is impossible. Using this test for such
    pairs, `compare_metrics` rejects .046 of the pairs of equal models at the level .05 (.043 with shared questions);
    this test over five strata rejects .046 and .042. With an expected count below one the test is conservative (.01 to
    .02), because few tables are extreme enough.

    References
    ----------
    .. [1] Cressie and Read (1984). :doi:`10.1111/j.2517-6161.1984.tb01318.x`

    Examples
    --------
    Of 75 questions refused by the first run, none would have been right; of those refused by the second run, 8:

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
    groups = [np.ones(codes.shape[1], bool)]
    if strata is not None:
        strata_codes = group_codes("strata", codes.shape[1], strata)
        groups = [strata_codes == code for code in range(int(strata_codes.max(initial=-1)) + 1)]
    roots = []
    reasons = []
    for group in groups:
        tables = row_tables(*(matrix[:, group] for matrix in matrices))
        results = [refusal_index(table) for table in tables]
        if any(result.estimate is None for result in results):
            reasons.append(reasons_of(*results))
        else:
            roots.append(signed_root(tables, codes[:, group]))
    if not roots:
        return EqualIndexTest(None, None, next(iter(reasons), "no_questions"), 0)
    total = sum(information for _, information in roots)
    # The weighted sum of independent standard normal roots is standard normal.
    statistic = sum(root * math.sqrt(information / total) for root, information in roots) if total > 0 else 0.0
    return EqualIndexTest(statistic, two_sided_pvalue(statistic), None, len(roots))


def signed_root(tables: Sequence[ContingencyTable], codes: NDArray[np.intp]) -> tuple[float, float]:
    """Return the signed root of the scaled divergence of two tables with defined RI, and its information.

    `codes` are from `cell_codes`, shape (2, n). The information is the inverse variance of the difference of
    atanh(rho); 0 if both estimates are at the same boundary.
    """
    # arctanh(1) is infinite, which is correct at the boundary.
    with np.errstate(divide="ignore"):
        first, second = np.arctanh([refusal_index(table).rho or 0.0 for table in tables]).tolist()
    if first == second and math.isinf(first):
        return 0.0, 0.0
    fit = _CommonFit(tables)
    rho = math.tanh(fit.common_z(min(first, second), max(first, second)))
    cells = fit.cells(rho)
    slopes = fit.log_slopes(rho)
    ratios = fit.counts / (fit.n * cells)
    divergence = 2 / (POWER * (POWER + 1)) * float(np.sum(fit.counts * (ratios**POWER - 1)))
    # Variances are scaled by exp(2 scale), because derivatives of the first cell can underflow.
    scale = float(slopes.min())
    size = np.exp(scale - slopes)
    information_if_known = float(
        np.sum(size**2 / np.sum(1 / cells, axis=0) / fit.n)
    )  # for independent runs with known rates
    influence = size * fit.first_cell_given_rates(rho)
    influence -= np.sum(cells * influence, axis=0)
    variances = np.sum(cells * influence**2, axis=0) / fit.n
    # The covariance over shared questions: observed correlation times fitted standard deviations.
    shared = codes[:, (codes < 4).all(axis=0)]
    of_first, of_second = (values[row] for values, row in zip(influence.T, shared, strict=True))
    norm = float(np.linalg.norm(of_first) * np.linalg.norm(of_second))
    share = shared.shape[1] / math.sqrt(float(np.prod(np.count_nonzero(codes < 4, axis=1))))
    covariance = float(of_first @ of_second / norm * share * math.sqrt(float(np.prod(variances)))) if norm else 0.0
    variance = float(variances.sum()) - 2 * covariance
    information = math.exp(2 * scale) / max(variance, NEGLIGIBLE * information_if_known)
    if variance <= NEGLIGIBLE * information_if_known:
        return 0.0, information * NEGLIGIBLE
    # If the fit agrees with both estimates, the divergence is a rounding error of either sign.
    root = math.sqrt(max(divergence, 0.0) * information_if_known / variance) if first != second else 0.0
    return math.copysign(root, first - second), information


class _CommonFit:
    """The fit of two tables with a common rho, each with its own rates; arrays have one column per table."""

    def __init__(self, tables: Sequence[ContingencyTable]) -> None:
        self.counts = np.array([table.counts for table in tables], float).T
        self.n = self.counts.sum(axis=0)
        self.r, self.mu = np.array([(table.refusal_rate, table.error_rate) for table in tables]).T
        self.h = -ndtri(self.r)
        self.k = -ndtri(self.mu)

    def cells(self, rho: float) -> FloatArray:
        """Return the cell probabilities, shape (4, 2)."""
        p11 = upper_orthant(self.h, self.k, rho)
        return np.asarray(np.maximum([p11, self.r - p11, self.mu - p11, 1 - self.r - self.mu + p11], MIN_CELL))

    def log_slopes(self, rho: float) -> FloatArray:
        """Return the logarithm of the derivative of the first cell with respect to atanh(rho)."""
        h = self.h
        k = self.k
        squared = (1 - rho) * (1 + rho)
        exponent = (h * h - 2 * rho * h * k + k * k) / (2 * squared)
        return np.asarray(0.5 * math.log(squared) - math.log(2 * math.pi) - exponent)

    def first_cell_given_rates(self, rho: float) -> FloatArray:
        """Return the influence of each cell on the first cell given the rates, up to a constant."""
        spread = math.sqrt((1 - rho) * (1 + rho))
        alpha = ndtr((rho * self.h - self.k) / spread)
        beta = ndtr((rho * self.k - self.h) / spread)
        return np.array([1 - alpha - beta, -alpha, -beta, np.zeros(2)])

    def common_z(self, low: float, high: float) -> float:
        """Return the common atanh(rho), between the two estimates, that maximises the joint log-likelihood."""
        low = max(low, -MAX_Z)
        high = min(high, MAX_Z)

        def slope(z: float) -> float:
            # The derivative of the log-likelihood is excess * weight. Both weights may underflow, so only their ratio
            # is used. It is limited, so that a rounding error in an excess of 0 does not outweigh the other table.
            rho = math.tanh(z)
            cells = self.cells(rho)
            log_weights = np.log(np.sum(1 / cells, axis=0)) + self.log_slopes(rho)
            relative = np.maximum(log_weights - log_weights.max(), LEAST_LOG_WEIGHT)
            return float((self.counts[0] - self.n * cells[0]) @ np.exp(relative))

        if slope(low) <= 0:
            return low
        return high if slope(high) >= 0 else float(brentq(slope, low, high, xtol=1e-10))


# An influence, or a share of a standard error, below this is rounding error: true ones are at least about 1/n.
ROUNDING = 1e-12
TINY = float(np.finfo(float).tiny)
NO_INFLUENCE: Counts = (math.nan, math.nan, math.nan, math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointEstimate(Result):
    """One metric of one table, and the influence of a question in each cell (NaN without a derivative).

    The status is ``"ok"`` only if the estimate has a standard error. A rate or score to which all questions of a run
    contribute equally is at the ``"boundary"`` (``"no_variation"``): its standard error would be 0.
    """

    by_cell: Counts = NO_INFLUENCE


def metric_influence(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    metric: str = "refusal_index",
    weighted_score_p: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
) -> FloatArray:
    """Return the influence of each question on a metric of each run.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (k, n)
        As for `checked_matrices`, with one row per run and one column per question.
    metric : str in `METRIC_NAMES`, default: "refusal_index"
    weighted_score_p : float, default: 1
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)

    Returns
    -------
    ndarray, shape (k, n)
        In units of the metric times n. Over the scored questions of a row, the mean is 0, and the sum of squares
        divided by the square of their number is the squared standard error. 0 for unscored questions. A row is NaN if
        its estimate is undefined, or is an RI at the boundary.

    Raises
    ------
    TypeError, ValueError
        As for `checked_matrices`, or if the metric is unknown, or `weighted_score_p` or the weights are out of range.

    References
    ----------
    .. [1] Hampel, F. R. (1974). The influence curve and its role in robust estimation. Journal of the American
       Statistical Association, 69, 383-393. :doi:`10.1080/01621459.1974.10482962`

    Examples
    --------
    >>> metric_influence([[True, False, False, False]], [[True, True, False, False]], metric="correct_rate")
    array([[-0.5, -0.5,  0.5,  0.5]])
    """
    matrices = checked_matrices(refused, wrong, scored)
    name = checked_metric(metric)
    payoffs = checked_payoffs(weighted_score_p, truthfulness_weights)
    points = [point_estimate(name, table, payoffs) for table in row_tables(*matrices)]
    return influence_of(points, cell_codes(*matrices))


def influence_function(refused: ArrayLike, wrong: ArrayLike) -> FloatArray:
    """Return the influence of each question on the Refusal Index.

    The mean over the questions is 0, and the population variance over n is the squared standard error. The standard
    error of a difference between two runs over the same questions follows from the differences of their influence,
    question by question.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (n,)
        As for `ContingencyTable.from_arrays`.

    Returns
    -------
    ndarray, shape (n,)
        All NaN if the estimate is undefined or at the boundary, where it has no derivative.

    Raises
    ------
    TypeError, ValueError
        As for `ContingencyTable.from_arrays`.

    References
    ----------
    .. [1] Hampel, F. R. (1974). The influence curve and its role in robust estimation. Journal of the American
       Statistical Association, 69, 383-393. :doi:`10.1080/01621459.1974.10482962`

    Examples
    --------
    >>> refused = np.repeat([True, False], [50, 50])
    >>> wrong = np.repeat([True, False, True, False], [40, 10, 20, 30])
    >>> influence = influence_function(refused, wrong)
    >>> round(float(np.sqrt(np.mean(influence**2) / 100)), 10)
    0.1154866168
    """
    r, w = checked_outcomes(refused, wrong)
    return np.asarray(metric_influence([r], [w])[0])


def checked_metric(metric: str) -> str:
    """Return the name of a metric; raises ValueError if it is unknown."""
    return one_of("metric", metric, METRIC_NAMES)


def point_estimate(metric: str, table: AnyTable, payoffs: Payoffs = DEFAULT_PAYOFFS) -> PointEstimate:
    """Estimate a metric of a table, and the influence of each cell, without an interval."""
    if metric == "refusal_index":
        result = refusal_index(table)
        if result.rho is None or result.status != "ok":
            return PointEstimate(result.estimate, result.status, result.reason)
        slope = spearman_slope(result.rho)
        w, x, y, z = cell_influence(table, result.rho)
        return PointEstimate(result.estimate, by_cell=(w * slope, x * slope, y * slope, z * slope))
    undefined = why_undefined(metric, table)
    if undefined:
        return PointEstimate(None, "undefined", undefined)
    ratio, (w, x, y, z) = ratio_influence(metric, table, payoffs)
    if isinstance(table, SampledTable) and table.has_one_cluster:
        return PointEstimate(ratio, "boundary", ONE_CLUSTER)
    by_cell = unrounded(w), unrounded(x), unrounded(y), unrounded(z)
    if any(value for value, count in zip(by_cell, table.counts, strict=True) if count):
        return PointEstimate(ratio, by_cell=by_cell)
    return PointEstimate(ratio, "boundary", "no_variation", by_cell=by_cell)


def influence_of(points: Sequence[PointEstimate], codes: NDArray[np.intp]) -> FloatArray:
    """Return the influence of each question, given that of its cell; `codes` are from `cell_codes`."""
    by_cell = np.array([(*point.by_cell, 0.0) for point in points]).reshape(-1, 5)
    # A row without an estimate is all NaN, including unscored questions.
    by_cell[np.isnan(by_cell[:, 0])] = np.nan
    return np.asarray(np.take_along_axis(by_cell, codes, axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class Influence:
    """The influence of questions on k estimates, scaled so that inner products of rows are covariances.

    Attributes
    ----------
    rows : ndarray, shape (k, n) or (k, clusters)
        Divided by the number of each row's scored questions; with a design, weighted and summed within clusters.
    scored : ndarray of bool, shape (k, n)
        Questions that each estimate uses.
    design : SamplingDesign or None
    independent : ndarray, shape (k, n), or None
        With a design, the rows as if all questions were independent.
    """

    rows: FloatArray
    scored: BoolArray
    design: SamplingDesign | None = None
    independent: FloatArray | None = None
    _degrees_of_freedom: float | None = None

    @classmethod
    def of(cls, by_question: FloatArray, scored: BoolArray, design: SamplingDesign | None = None) -> Self:
        """Scale the influence of each question, shape (k, n)."""
        if design is None:
            return cls(by_question / np.maximum(np.count_nonzero(scored, axis=1, keepdims=True), 1), scored)
        weights = design.weights * scored
        shares = by_question * weights / np.maximum(weights.sum(axis=1, keepdims=True), TINY)
        each_alone = SamplingDesign(design.weights, np.arange(design.weights.size))
        return cls(design.sums(shares, scored), scored, design, each_alone.sums(shares, scored))

    def __getitem__(self, rows: Sequence[int]) -> Self:
        """Return the influence on a selection of the estimates."""
        independent = None if self.independent is None else self.independent[rows]
        return replace(self, rows=self.rows[rows], scored=self.scored[rows], independent=independent)

    @property
    def degrees_of_freedom(self) -> float | None:
        """The smallest of any row with at least two clusters; None for the normal distribution."""
        if self._degrees_of_freedom is not None or self.design is None:
            return self._degrees_of_freedom
        return float(np.nanmin(np.append(self.design.degrees_of_freedom(self.scored), np.inf)))

    def compare(self, first: int, second: int, difference: float) -> tuple[float, float]:
        """Return the standard error of the difference of two estimates and its two-sided p-value.

        The error is at least that of independent questions, because clusters can reduce it only by chance. If it is 0,
        the p-value is that of a sign test over shared questions or clusters.
        """
        parts = [self.rows] if self.independent is None else [self.rows, self.independent]
        error = max(difference_error((rows[first], rows[second])) for rows in parts)
        shared = self.scored[first] & self.scored[second]
        n = np.count_nonzero(shared) if self.design is None else np.unique(self.design.clusters[shared]).size
        return error, difference_pvalue(difference, error, int(n), self.degrees_of_freedom)


def difference_error(influence: Sequence[FloatArray] | FloatArray) -> float:
    """Return the standard error of a difference of two estimates, from their scaled influence, shape (2, n)."""
    first, second = influence
    error = float(np.linalg.norm(first - second))
    largest = float(np.linalg.norm(first) + np.linalg.norm(second))
    return error if error > ROUNDING * largest else 0.0


def difference_pvalue(estimate: float, error: float, n: int, degrees_of_freedom: float | None = None) -> float:
    """Return a two-sided p-value, normal or Student's, or that of a sign test over n units if `error` is 0."""
    if error > 0:
        return two_sided_pvalue(estimate / error, degrees_of_freedom)
    return 1.0 if estimate == 0 else min(1.0, 0.5 ** (n - 1))


def unrounded(value: float) -> float:
    """Return the value, or 0 if it is only a rounding error."""
    return value if abs(value) > ROUNDING else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDifference(ResultWithInterval):
    """The difference of a metric between two runs, first minus second.

    Attributes
    ----------
    name : str in `METRIC_NAMES`
    first, second : float or None
        The metric of each run; None if undefined.
    estimate : float or None
        ``first - second``; None if either is undefined.
    standard_error : float or None
        None if either run has none.
    pvalue : float or None
        Two-sided p-value of the hypothesis of no difference, by `method`. None if a metric is undefined, or if a rate
        or score does not vary within a run; with clusters or weights also if there is no standard error.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: a run has no standard error, or that of the difference is 0; use the interval.
    reason : str or None
        Why the status is not ``"ok"``. ``"first:"`` or ``"second:"`` followed by that run's reason, as in
        `RefusalIndexResult`, or by ``"no_variation"`` if all its questions contribute equally; both are joined by
        ``";"``. Or ``"constant_difference"``.
    """

    name: str
    first: float | None
    second: float | None
    pvalue: float | None
    _tables: tuple[AnyTable, ...] = field(repr=False)
    _payoffs: Payoffs = field(repr=False)

    @property
    def method(self) -> Literal["normal", "sign", "power_divergence"] | None:
        """The test that gives the p-value; None if there is none.

        ``"normal"``: from ``estimate / standard_error``, with Student's t for clusters or weights. ``"sign"``: the runs
        differ by the same amount on every question, so the standard error is 0; an exact sign test over questions or
        clusters, with a p-value of 1 if that amount is 0. ``"power_divergence"``: `equal_index_test`, for an RI of
        exactly -1 or 1.
        """
        if self.pvalue is None:
            return None
        if self.standard_error is None:
            return "power_divergence"
        return "normal" if self.standard_error > 0 else "sign"

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return a confidence interval of the difference.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            A normal interval, or Student's t with clusters or weights. At the boundary, the two runs' own intervals
            (Wilson, score, profile) are combined by square-and-add as if the runs were independent, which is
            conservative if they agree on many questions. Both ends are NaN if undefined.
        """
        if self.status != "boundary":
            return ResultWithInterval.confidence_interval(self, confidence_level)
        first, second = (metric_estimate(self.name, table, self._payoffs, confidence_level) for table in self._tables)
        return square_and_add(first, second)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences of every metric between two runs, first minus second.

    ``comparison["refusal_index"]`` is the difference of RI.

    Attributes
    ----------
    differences : tuple of MetricDifference
        In the order of `METRIC_NAMES`.
    n_first, n_second : int
        Number of scored questions of each run.
    n_shared : int
        Number of questions scored in both: all for fully paired runs, 0 for independent runs.
    """

    differences: tuple[MetricDifference, ...]
    n_first: int
    n_second: int
    n_shared: int

    def __getitem__(self, name: str) -> MetricDifference:
        return self.differences[METRIC_NAMES.index(checked_metric(name))]


def compare_metrics(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    weighted_score_p: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> Comparison:
    """Compare two runs: the difference of every metric, first minus second.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (2, n)
        As for `ContingencyTable.from_arrays`, with one row per run and one column per question.
    scored : array_like of bool, shape (2, n), optional
        False where a run has no grade for a question. By default all True. For runs over different questions, pass the
        columns of both, each scored in its own row only.
    weighted_score_p : float, default: 1
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)
    cluster, weight : array_like, shape (n,), optional
        Cluster and sampling weight of each question, as for `SamplingDesign.of`.

    Returns
    -------
    Comparison
        If a metric is undefined in either run, its difference has the status ``"undefined"``; there is no exception.

    Raises
    ------
    TypeError
        If an argument holds something other than truth values.
    ValueError
        If there are not exactly two rows, shapes differ, or `weighted_score_p` or the weights are out of range; also
        the errors of `SamplingDesign.of`.

    References
    ----------
    .. [1] Zou, G. Y. and Donner, A. (2008). Construction of confidence limits about effect measures: a general
       approach. Statistics in Medicine, 27, 1693-1702. :doi:`10.1002/sim.3095`

    Examples
    --------
    >>> refused = np.repeat([[True, False], [False, True]], 50, axis=1)
    >>> wrong = np.stack([np.arange(100) < 70, np.arange(100) % 3 == 0])
    >>> difference = compare_metrics(refused, wrong)["error_rate"]
    >>> round(difference.estimate, 3), round(difference.standard_error, 4), round(difference.pvalue, 5)
    (0.36, 0.0656, 0.0)
    >>> low, high = difference.confidence_interval()
    >>> round(low, 3), round(high, 3)
    (0.231, 0.489)
    """
    matrices = checked_matrices(refused, wrong, scored)
    payoffs = checked_payoffs(weighted_score_p, truthfulness_weights)
    if len(matrices[0]) != 2:
        raise ValueError(
            f"refused must have exactly two rows, the runs to compare, got {len(matrices[0])}; "
            "for more runs use rank_runs"
        )
    matrices, design = designed(matrices, cluster, weight)
    tables = tables_of_rows(matrices, design)
    codes = cell_codes(*matrices)
    differences = tuple(_difference(name, tables, codes, payoffs, design) for name in METRIC_NAMES)
    return Comparison(differences, tables[0].n, tables[1].n, int(np.count_nonzero(matrices[2].all(axis=0))))


def _difference(
    name: str, tables: tuple[AnyTable, ...], codes: NDArray[np.intp], payoffs: Payoffs, design: SamplingDesign | None
) -> MetricDifference:
    points = [point_estimate(name, table, payoffs) for table in tables]
    first, second = (point.estimate for point in points)
    estimate = error = pvalue = None
    influence = Influence.of(influence_of(points, codes), codes < 4, design)
    statuses = {point.status for point in points}
    reason = reasons_of(*points)
    status: Status = "undefined" if "undefined" in statuses else "boundary" if "boundary" in statuses else "ok"
    if first is not None and second is not None:
        estimate = unrounded(first - second)
    if estimate is not None and status == "ok":
        error, pvalue = influence.compare(0, 1, estimate)
        if error == 0:
            status = "boundary"
            reason = "constant_difference"
    elif estimate is not None and name == "refusal_index":
        counts = [table for table in tables if isinstance(table, ContingencyTable)]
        if len(counts) == len(tables):  # there is no such test with clusters or weights
            pvalue = two_sided_pvalue(signed_root(counts, codes)[0])
    return MetricDifference(
        estimate,
        status,
        reason,
        error,
        influence.degrees_of_freedom,
        name=name,
        first=first,
        second=second,
        pvalue=pvalue,
        _tables=tables,
        _payoffs=payoffs,
    )
