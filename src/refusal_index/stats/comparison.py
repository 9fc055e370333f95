"""Two runs compared metric by metric: differences, their standard errors, tests and intervals.

The difference of two estimates has the variance of the difference of their influence functions, summed over the
questions. Questions that both runs share are so compared with themselves, which takes out what makes a question hard
for either; questions of one run alone count as independent. Simulated coverage of nominal 95 % intervals is .94 to .96
for every metric, at the rates of published models and with all, half or none of the questions shared
(`benchmarks/coverage/comparison.py`).

Where one of the runs has no standard error (an index of -1 or +1, a rate of 0 or 1), the normal interval would claim
too much. There the two runs' own intervals are combined by square-and-add, and two indices are tested by
`equal_index_test`; neither needs a standard error. With these intervals the coverage over all samples stays at .94
even where a cell is expected to hold two or three questions. Among the samples at the boundary alone it is lower, .49
and .76 in two such scenarios, as is that of one run's own profile interval, .25 and .70: an index of 1 where the truth
is far from it is an unlucky sample to begin with.

Influence functions of every metric, question by question, from which runs over the same questions are compared.

The influence of a question says how far one more like it would move the estimate, times n. Summed over questions it
gives variances and covariances: for runs a and b with n_a and n_b scored questions,

    Cov(estimate_a, estimate_b) = sum_i influence_a,i influence_b,i / (n_a n_b),

where an unscored question has no influence. One formula so serves runs that share all, some or none of their
questions.

All metrics but the Refusal Index are ratios of two means over the questions, and a ratio q of the means of u and v
has the influence ``(u - q v) / mean(v)``.

Are two indices the same? A test that needs no standard error, for tables with cells that are nearly or quite empty.

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
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from refusal_index.stats.arguments import BoolArray, FloatArray, checked_matrices, checked_outcomes, group_codes
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
# tanh(8) leaves an odds ratio of several millions: no table with a question in each cell is fitted by more.
LARGEST_Z = 8.0
SMALLEST_CELL = 1e-14
LEAST_LOG_WEIGHT = -20.0
# Below this share the variance of a difference is rounding: the runs are the same on every question.
NEGLIGIBLE = 1e-9


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
    groups = [np.ones(codes.shape[1], bool)]
    if strata is not None:
        places = group_codes("strata", codes.shape[1], strata)
        groups = [places == place for place in range(int(places.max(initial=-1)) + 1)]
    roots, reasons = [], []
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
    # Signed roots add up, each weighted so that the sum is standard normal if they are.
    statistic = sum(root * math.sqrt(information / total) for root, information in roots) if total > 0 else 0.0
    return EqualIndexTest(statistic, two_sided_pvalue(statistic), None, len(roots))


def signed_root(tables: Sequence[ContingencyTable], codes: NDArray[np.intp]) -> tuple[float, float]:
    """Return the signed root of the scaled divergence of two tables with defined indices, and its information.

    `codes` are those of `cell_codes`, shape (2, n). The information is the inverse variance of the difference of
    atanh(rho); 0 where both estimates are at the same boundary, where nothing is known.
    """
    # arctanh(1) is infinite, as it should be at the boundary.
    with np.errstate(divide="ignore"):
        first, second = np.arctanh([refusal_index(table).rho or 0.0 for table in tables]).tolist()
    if first == second and math.isinf(first):
        return 0.0, 0.0
    fit = _CommonFit(tables)
    rho = math.tanh(fit.common_z(min(first, second), max(first, second)))
    cells, slopes = fit.cells(rho), fit.log_slopes(rho)
    ratios = fit.counts / (fit.n * cells)
    divergence = 2 / (POWER * (POWER + 1)) * float(np.sum(fit.counts * (ratios**POWER - 1)))
    # Variances are to be divided by exp(2 scale): slopes of the first cell may be too small for a number.
    scale = float(slopes.min())
    size = np.exp(scale - slopes)
    known = float(np.sum(size**2 / np.sum(1 / cells, axis=0) / fit.n))  # of independent runs of known rates
    influence = size * fit.first_cell_given_rates(rho)
    influence -= np.sum(cells * influence, axis=0)
    variances = np.sum(cells * influence**2, axis=0) / fit.n
    # The covariance over the questions that both runs share: the correlation seen, times what the fit says.
    shared = codes[:, (codes < 4).all(axis=0)]
    of_first, of_second = (values[row] for values, row in zip(influence.T, shared, strict=True))
    seen = float(np.linalg.norm(of_first) * np.linalg.norm(of_second))
    share = shared.shape[1] / math.sqrt(float(np.prod(np.count_nonzero(codes < 4, axis=1))))
    covariance = float(of_first @ of_second / seen * share * math.sqrt(float(np.prod(variances)))) if seen else 0.0
    variance = float(variances.sum()) - 2 * covariance
    information = math.exp(2 * scale) / max(variance, NEGLIGIBLE * known)
    if variance <= NEGLIGIBLE * known:
        return 0.0, information * NEGLIGIBLE
    # Where the fit reaches both estimates, the divergence is rounding, of either sign.
    root = math.sqrt(max(divergence, 0.0) * known / variance) if first != second else 0.0
    return math.copysign(root, first - second), information


class _CommonFit:
    """Two tables fitted with one rho, each with its own rates; arrays hold one column a table."""

    def __init__(self, tables: Sequence[ContingencyTable]) -> None:
        self.counts = np.array([table.counts for table in tables], float).T
        self.n = self.counts.sum(axis=0)
        self.r, self.mu = np.array([(table.refusal_rate, table.error_rate) for table in tables]).T
        self.h, self.k = -ndtri(self.r), -ndtri(self.mu)

    def cells(self, rho: float) -> FloatArray:
        """Cell probabilities, shape (4, 2)."""
        p11 = upper_orthant(self.h, self.k, rho)
        return np.asarray(np.maximum([p11, self.r - p11, self.mu - p11, 1 - self.r - self.mu + p11], SMALLEST_CELL))

    def log_slopes(self, rho: float) -> FloatArray:
        """Logarithm of the derivative of the first cell in atanh(rho)."""
        h, k, squared = self.h, self.k, (1 - rho) * (1 + rho)
        exponent = (h * h - 2 * rho * h * k + k * k) / (2 * squared)
        return np.asarray(0.5 * math.log(squared) - math.log(2 * math.pi) - exponent)

    def first_cell_given_rates(self, rho: float) -> FloatArray:
        """Influence of a question in each cell on the first cell beyond what the rates say, up to a constant."""
        spread = math.sqrt((1 - rho) * (1 + rho))
        alpha, beta = ndtr((rho * self.h - self.k) / spread), ndtr((rho * self.k - self.h) / spread)
        return np.array([1 - alpha - beta, -alpha, -beta, np.zeros(2)])

    def common_z(self, low: float, high: float) -> float:
        """Maximise the sum of the two log-likelihoods over a common atanh(rho), between the two estimates."""
        low, high = max(low, -LARGEST_Z), min(high, LARGEST_Z)

        def slope(z: float) -> float:
            # The log-likelihood rises by excess * weight. Both weights may underflow: what counts is their ratio. It is
            # limited, since an excess of 0 is rounded, and must not outweigh a real one.
            rho = math.tanh(z)
            cells = self.cells(rho)
            log_weights = np.log(np.sum(1 / cells, axis=0)) + self.log_slopes(rho)
            relative = np.maximum(log_weights - log_weights.max(), LEAST_LOG_WEIGHT)
            return float((self.counts[0] - self.n * cells[0]) @ np.exp(relative))

        if slope(low) <= 0:
            return low
        return high if slope(high) >= 0 else float(brentq(slope, low, high, xtol=1e-10))


# An influence, or a share of a standard error, this small is rounding: the smallest true one is about 1/n.
ROUNDING = 1e-12
TINY = float(np.finfo(float).tiny)
NO_INFLUENCE: Counts = (math.nan, math.nan, math.nan, math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointEstimate(Result):
    """One metric of one table, and the influence of a question in each cell (NaN where there is no derivative).

    The status is ``"ok"`` only where the estimate has a standard error. A rate or score of a run in which all
    questions count alike is at the ``"boundary"`` (``"no_variation"``): its standard error would be 0.
    """

    by_cell: Counts = NO_INFLUENCE


def metric_influence(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    metric: str = "refusal_index",
    penalty: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
) -> FloatArray:
    """Influence of each question on a metric of each run.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (k, n)
        As for `checked_matrices`, one row a run, one column a question.
    metric : str in `METRIC_NAMES`, default: "refusal_index"
    penalty : float, default: 1
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)

    Returns
    -------
    ndarray, shape (k, n)
        In units of the metric times n. Over the scored questions of a row the mean is 0, and the sum of squares over
        the square of their number is the squared standard error; 0 where a question is not scored. Rows whose
        estimate is undefined, or a Refusal Index at the boundary, are NaN.

    Raises
    ------
    TypeError, ValueError
        As for `checked_matrices`, or if the metric has another name, or the penalty or the weights are out
        of range.

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
    name, worth = checked_metric(metric), checked_payoffs(penalty, truthfulness_weights)
    points = [point_estimate(name, table, worth) for table in row_tables(*matrices)]
    return influence_of(points, cell_codes(*matrices))


def influence_function(refused: ArrayLike, wrong: ArrayLike) -> FloatArray:
    """Influence of each question on the Refusal Index.

    The mean over the questions is 0, and their population variance over n is the squared standard error. Two runs
    over the same questions are compared by the difference of their influence functions, question by question.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (n,)
        As for `ContingencyTable.from_arrays`.

    Returns
    -------
    ndarray, shape (n,)
        All NaN where the estimate is undefined or at the boundary, since it has no derivative there.

    Raises
    ------
    TypeError, ValueError
        As `ContingencyTable.from_arrays`.

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
    """Return the name of a metric, or raise an error that lists them."""
    if metric not in METRIC_NAMES:
        raise ValueError(f"metric must be one of {', '.join(METRIC_NAMES)}, got {metric!r}")
    return metric


def point_estimate(metric: str, table: AnyTable, worth: Payoffs = DEFAULT_PAYOFFS) -> PointEstimate:
    """Estimate a metric of a table and the influence of its cells; the intervals of `metrics` are left out."""
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
    ratio, (w, x, y, z) = ratio_influence(metric, table, worth)
    if isinstance(table, SampledTable) and table.n_clusters < 2:
        return PointEstimate(ratio, "boundary", ONE_CLUSTER)
    by_cell = unrounded(w), unrounded(x), unrounded(y), unrounded(z)
    if any(value for value, count in zip(by_cell, table.counts, strict=True) if count):
        return PointEstimate(ratio, by_cell=by_cell)
    return PointEstimate(ratio, "boundary", "no_variation", by_cell=by_cell)


def influence_of(points: Sequence[PointEstimate], codes: NDArray[np.intp]) -> FloatArray:
    """Spread the influence of cells over the questions in them; `codes` are those of `cell_codes`."""
    by_cell = np.array([(*point.by_cell, 0.0) for point in points]).reshape(-1, 5)
    # A row without an estimate is NaN throughout, unscored questions included.
    by_cell[np.isnan(by_cell[:, 0])] = np.nan
    return np.asarray(np.take_along_axis(by_cell, codes, axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class Influence:
    """Influence of questions on k estimates, scaled so that products of its rows sum to their covariances.

    Attributes
    ----------
    rows : ndarray, shape (k, n) or (k, clusters)
        Divided by each row's scored questions; with a design weighted, and summed within clusters.
    scored : ndarray of bool, shape (k, n)
        On which questions an estimate rests.
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
        """Return that on some of the estimates."""
        independent = None if self.independent is None else self.independent[rows]
        return replace(self, rows=self.rows[rows], scored=self.scored[rows], independent=independent)

    @property
    def degrees_of_freedom(self) -> float | None:
        """The fewest of any row with two clusters or more; None for a normal distribution."""
        if self._degrees_of_freedom is not None or self.design is None:
            return self._degrees_of_freedom
        return float(np.nanmin(np.append(self.design.degrees_of_freedom(self.scored), np.inf)))

    def compare(self, first: int, second: int, difference: float) -> tuple[float, float]:
        """Return the standard error of the difference of two estimates and its two-sided p-value.

        Clusters never make the error smaller: that would be chance. Where it is 0, the p-value is that of a sign test
        over what both share, questions or clusters.
        """
        found = [self.rows] if self.independent is None else [self.rows, self.independent]
        error = max(difference_error((rows[first], rows[second])) for rows in found)
        shared = self.scored[first] & self.scored[second]
        n = np.count_nonzero(shared) if self.design is None else np.unique(self.design.clusters[shared]).size
        return error, difference_pvalue(difference, error, int(n), self.degrees_of_freedom)


def difference_error(influence: Sequence[FloatArray] | FloatArray) -> float:
    """Return the standard error of the difference of two estimates, from their scaled influence, shape (2, n)."""
    first, second = influence
    error = float(np.linalg.norm(first - second))
    largest = float(np.linalg.norm(first) + np.linalg.norm(second))
    return error if error > ROUNDING * largest else 0.0


def difference_pvalue(estimate: float, error: float, n: int, degrees_of_freedom: float | None = None) -> float:
    """Two-sided p-value of a difference, normal or Student's or, where `error` is 0, of a sign test over n units."""
    if error > 0:
        return two_sided_pvalue(estimate / error, degrees_of_freedom)
    return 1.0 if estimate == 0 else min(1.0, 0.5 ** (n - 1))


def unrounded(value: float) -> float:
    """Return 0 for what is only rounding."""
    return value if abs(value) > ROUNDING else 0.0


TestMethod = Literal["normal", "sign", "power_divergence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDifference(ResultWithInterval):
    """By how much a metric of the first run exceeds that of the second.

    Attributes
    ----------
    name : str in `METRIC_NAMES`
    first, second : float or None
        The metric of either run; None where undefined.
    estimate : float or None
        ``first - second``; None where either is undefined.
    standard_error : float or None
        None where either run has none.
    pvalue : float or None
        Of the hypothesis that there is no difference, two-sided, by `method`. None where a metric is undefined, and of
        a rate or score that does not vary in a run; with clusters or weights also where there is no standard error.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: a run has no standard error, or the difference has one of 0; go by the interval.
    reason : str or None
        Why the status is not ``"ok"``. ``"first:"`` or ``"second:"`` with that run's reason, as in
        `RefusalIndexResult`, or ``"no_variation"`` where all its questions count alike; with ``";"`` between them
        where both have one. Or ``"constant_difference"``.
    """

    name: str
    first: float | None
    second: float | None
    pvalue: float | None
    _tables: tuple[AnyTable, ...] = field(repr=False)
    _worth: Payoffs = field(repr=False)

    @property
    def method(self) -> TestMethod | None:
        """How the p-value came about; None where there is none.

        ``"normal"``: from ``estimate / standard_error``, by Student's distribution with clusters or weights.
        ``"sign"``: the runs differ by the same amount on every question, so that the standard error is 0, and this is
        the exact sign test, in which a cluster counts once, 1 if that amount is 0.
        ``"power_divergence"``: of an index of exactly -1 or 1, `equal_index_test`.
        """
        if self.pvalue is None:
            return None
        if self.standard_error is None:
            return "power_divergence"
        return "normal" if self.standard_error > 0 else "sign"

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Confidence interval of the difference.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            Normal, or Student's with clusters or weights, unless at the boundary: there the two runs' own intervals
            (Wilson, score, profile) are combined by square-and-add as if the runs were independent, which is wide
            where they agree on many questions. Both ends NaN where undefined.
        """
        if self.status != "boundary":
            return ResultWithInterval.confidence_interval(self, confidence_level)
        first, second = (metric_estimate(self.name, table, self._worth, confidence_level) for table in self._tables)
        return square_and_add(first, second)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every metric of two runs compared, the first minus the second.

    ``comparison["refusal_index"]`` is the difference of that name.

    Attributes
    ----------
    differences : tuple of MetricDifference
        In the order of `METRIC_NAMES`.
    n_first, n_second : int
        Scored questions of either run.
    n_shared : int
        Questions scored in both: all of them if the runs are fully paired, 0 if they are independent.
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
    penalty: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> Comparison:
    """Compare two runs by how much each metric of the first exceeds that of the second.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (2, n)
        As for `ContingencyTable.from_arrays`; the first row is one run, the second the other, and a column is one
        question.
    scored : array_like of bool, shape (2, n), optional
        False where that run has no grade for that question; all True if not given. For runs over different questions
        give the columns of both, scored in one row each.
    penalty : float, default: 1
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)
    cluster, weight : array_like, shape (n,), optional
        Which questions are alike, and for how many each stands, as for `SamplingDesign.of`.

    Returns
    -------
    Comparison
        A metric that is undefined in either run has a difference with the status ``"undefined"``, not an exception.

    Raises
    ------
    TypeError
        If an argument holds something other than truth values.
    ValueError
        If there are not exactly two rows, the shapes differ, the penalty or the weights are out of range, or as
        `SamplingDesign.of`.

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
    worth = checked_payoffs(penalty, truthfulness_weights)
    if len(matrices[0]) != 2:
        raise ValueError(
            f"refused must have exactly two rows, the runs to compare, got {len(matrices[0])}; "
            "for more runs use rank_runs"
        )
    matrices, design = designed(matrices, cluster, weight)
    tables, codes = tables_of_rows(matrices, design), cell_codes(*matrices)
    differences = tuple(_difference(name, tables, codes, worth, design) for name in METRIC_NAMES)
    return Comparison(differences, tables[0].n, tables[1].n, int(np.count_nonzero(matrices[2].all(axis=0))))


def _difference(
    name: str, tables: tuple[AnyTable, ...], codes: NDArray[np.intp], worth: Payoffs, design: SamplingDesign | None
) -> MetricDifference:
    points = [point_estimate(name, table, worth) for table in tables]
    first, second = (point.estimate for point in points)
    estimate = error = pvalue = None
    influence = Influence.of(influence_of(points, codes), codes < 4, design)
    statuses, reason = {point.status for point in points}, reasons_of(*points)
    status: Status = "undefined" if "undefined" in statuses else "boundary" if "boundary" in statuses else "ok"
    if first is not None and second is not None:
        estimate = unrounded(first - second)
    if estimate is not None and status == "ok":
        error, pvalue = influence.compare(0, 1, estimate)
        if error == 0:
            status, reason = "boundary", "constant_difference"
    elif estimate is not None and name == "refusal_index":
        counts = [table for table in tables if isinstance(table, ContingencyTable)]
        if len(counts) == len(tables):  # clusters and weights have no such test
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
        _worth=worth,
    )
