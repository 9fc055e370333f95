"""Joint Refusal Index of a model from several prompts over the same questions.

Answers to the same question under different prompts are not independent, so the tables of the prompts cannot be added,
nor their estimates averaged as if independent. The joint estimate is the mean on Fisher's scale ``z = atanh(rho)``,
weighted by inverse variances. Its variance follows from the covariance of the influence functions over the questions,

    V_ab = sum over i of IF_a,i IF_b,i / (n_a n_b),

where a term is 0 if the question is not scored under both prompts. The same covariance is used to test homogeneity and
to estimate the variation between prompts. A prompt at -1 or +1 has no influence function and is left out.
Homogeneity is then tested only if each remaining prompt has at least five questions in every cell. Otherwise prompts
with sparse tables remain only if chance left them a question in each cell. That biases their RI, and a true hypothesis
was rejected in up to a quarter of such samples.

Weights from the inverse of V (generalised least squares) would reduce the standard error by at most 2%. They are not
used, because the inverse depends on the directions that are estimated worst: with 22 prompts and 450 questions,
intervals would have a coverage of .79, and the test of homogeneity would reject a true hypothesis in two thirds of the
samples.

With clusters or sampling weights, prompts keep the weights for independent questions, which do not depend on a few
clusters, and all variances are computed from influence summed within clusters.

Simulated coverage of the 95% interval is .94 to .97 for 2 to 24 prompts with equal RI and 450 to 4,326 questions, and
.93 to .97 for 3 or more prompts with different RI; the size of the test of homogeneity at .05 is .03 to .07. If prompts
were treated as independent, coverage would be .41 to .90.

Variation between prompts, as a random-effects model:

The z of a prompt is drawn from a normal distribution around the joint z, with variance tau^2. The estimates of k
prompts then have the covariance ``V + tau^2 I``, where V is the covariance of their influence functions over shared
questions. With the fixed weights w of the joint estimate,

    Q = sum of w_a (z_a - mean)^2

has a mean and a variance that are polynomials in tau^2. This gives a moment estimate of tau^2 [1]_, and an interval
that contains the values that a test based on Q does not reject [2]_. At tau = 0 this is the test of homogeneity.

If Q is below its median without variation between prompts, the upper end is computed from that median, since a small Q
by chance is no evidence that prompts do not matter.

Distribution of sums of squares with fixed weights:

The covariance of k estimates is estimated from the same questions as the estimates. Its inverse is dominated by the
directions with the smallest variance, which are estimated worst: with 8 tables of 450 questions, a statistic
``d' V^-1 d`` rejects a true hypothesis in a third of the samples. A sum of squares with weights that do not depend on
the correlations needs no inverse. If A is the covariance of the weighted deviations, it is distributed as a sum of
independent chi-squared variables multiplied by the eigenvalues of A, with mean tr A and variance 2 tr A^2. This is
approximated by a scaled chi-squared variable with the same mean and variance [3]_.

``tr A`` is a sum over questions with an unbiased estimate. ``(tr A)^2`` and ``tr A^2`` are sums over pairs of
questions; products of a question with itself are left out, since they would cause bias [4]_.

Comparison of models over the same prompts:

The joint z of a model is a weighted mean of the estimates of its prompts, so its influence function is the same mean of
their influence functions. Models over the same questions are compared by differences of these, like runs with a single
prompt. The weights are treated as fixed, since their error has only a second-order effect.

References
----------
.. [1] DerSimonian, R. and Kacker, R. (2007). Random-effects model for meta-analysis of clinical trials: an update.
   Contemporary Clinical Trials, 28, 105-114. :doi:`10.1016/j.cct.2006.04.004`
.. [2] Jackson, D. (2013). Confidence intervals for the between-study variance in random effects meta-analysis using
   generalised Cochran heterogeneity statistics. Research Synthesis Methods, 4, 220-229. :doi:`10.1002/jrsm.1081`
.. [3] Box, G. E. P. (1954). Some theorems on quadratic forms applied in the study of analysis of variance problems, I.
   The Annals of Mathematical Statistics, 25, 290-302. :doi:`10.1214/aoms/1177728786`
.. [4] Chen, S. X. and Qin, Y.-L. (2010). A two-sample test for high-dimensional data with applications to gene-set
   testing. The Annals of Statistics, 38, 808-835. :doi:`10.1214/09-AOS716`
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import brentq

from refusal_index.stats.arguments import FloatArray, check_rows, checked_matrices, one_of
from refusal_index.stats.comparison import Influence, influence_of, point_estimate, unrounded
from refusal_index.stats.contingency import (
    ONE_CLUSTER,
    Matrices,
    SamplingDesign,
    cell_codes,
    designed,
    repeat_each_other,
    tables_of_rows,
)
from refusal_index.stats.estimate import (
    NO_INTERVAL,
    ConfidenceInterval,
    Estimate,
    Result,
    ResultWithInterval,
    Status,
    reasons_of,
    square_and_add,
    student_quantile,
)
from refusal_index.stats.intervals import (
    RefusalIndexResult,
    Seed,
    normal_quantile,
    refusal_index,
    spearman,
    spearman_slope_in_z,
)
from refusal_index.stats.ranking import RESAMPLES, Adjustment, RankedRun, Ranking, rank_estimates

# Range of log(tau^2): below it prompts have no variance; above it all RIs are at -1 or +1.
MIN_LOG = -40.0
MAX_LOG = 40.0
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
# With a prompt left out for an empty cell, homogeneity is tested if no cell of the others has fewer questions.
LEAST_COUNT = 5


class Traces(NamedTuple):
    """Traces of the covariance A of the weighted deviations, for b data sets; arrays of shape (b,).

    `trace` is tr A, `of_square` an estimate of tr A^2 without the products of questions with themselves, and `own` the
    sum of these products.
    """

    trace: FloatArray
    of_square: FloatArray
    own: FloatArray

    def degrees_of_freedom(self, limit: ArrayLike) -> FloatArray:
        """Return the degrees of freedom of the approximating chi-squared variable, from 1 to `limit`."""
        with np.errstate(invalid="ignore", divide="ignore"):
            freedom = (self.trace**2 - self.own) / self.of_square
        return np.asarray(np.clip(np.where(np.isnan(freedom), 1.0, freedom), 1.0, limit))

    def scaled(self, sum_of_squares: FloatArray, limit: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the chi-squared statistic and its degrees of freedom; NaN if A is 0."""
        freedom = self.degrees_of_freedom(limit)
        with np.errstate(invalid="ignore", divide="ignore"):
            statistic = np.where(self.trace > 0, sum_of_squares * freedom / self.trace, np.nan)
        return statistic, freedom

    def pvalue(self, sum_of_squares: FloatArray, limit: ArrayLike) -> FloatArray:
        """Return the p-value of a sum of squares."""
        statistic, freedom = self.scaled(sum_of_squares, limit)
        return np.asarray(special.chdtrc(freedom, statistic))


def traces(deviations: FloatArray, counts: FloatArray) -> Traces:
    """Return the traces, from the contribution of each question to the k weighted deviations.

    `deviations` has shape (b, k, m), with one column per question or pattern of outcomes; `counts`, shape (b, m), is
    the number of questions of each column.
    """
    squares = np.einsum("bkm,bkm->bm", deviations, deviations)
    covariance = (deviations * counts[:, np.newaxis]) @ np.swapaxes(deviations, 1, 2)
    own_products = np.sum(counts * squares**2, axis=1)
    of_square = np.einsum("bkl,bkl->b", covariance, covariance) - own_products
    return Traces(np.sum(counts * squares, axis=1), of_square, own_products)


class Spread(NamedTuple):
    """Statistics of k estimates z with weights w, from which the variance between prompts is estimated.

    `sum_of_squares` is Q, and `sampling` (of one data set) describes its distribution without variance between prompts.
    With B the covariance of the weighted deviations for V = 0 and tau = 1, and A that for tau = 0, `trace` is tr B,
    `with_sampling` tr AB and `of_square` tr B^2. `error` is w' V w, the sampling variance of the weighted mean over
    questions, and `squared_weights` the sum of the squares of w.
    """

    sum_of_squares: float
    sampling: Traces
    trace: float
    with_sampling: float
    of_square: float
    error: float
    squared_weights: float
    n_prompts: int

    def variance(self) -> float:
        """Return the moment estimate of tau^2; 0 if Q is below its expectation without variance between prompts."""
        return max((self.sum_of_squares - float(self.sampling.trace[0])) / self.trace, 0.0)

    def traces(self, variance: float) -> Traces:
        """Return the traces of the covariance of the weighted deviations at a given tau^2."""
        sampling = self.sampling
        square = sampling.of_square + 2 * self.with_sampling * variance + self.of_square * variance**2
        return Traces(sampling.trace + self.trace * variance, square, sampling.own)

    def pvalue(self, variance: float = 0.0, sum_of_squares: float | None = None) -> float:
        """Return the p-value of Q at a given tau^2."""
        q = self.sum_of_squares if sum_of_squares is None else sum_of_squares
        return float(self.traces(variance).pvalue(np.array([q]), self.n_prompts - 1)[0])

    def variance_at(self, pvalue: float, sum_of_squares: float) -> float:
        """Return the tau^2 at which Q has a given p-value; 0 if the p-value is larger already at 0."""
        if self.pvalue(0.0, sum_of_squares) >= pvalue:
            return 0.0
        log_variance = brentq(lambda x: self.pvalue(math.exp(x), sum_of_squares) - pvalue, MIN_LOG, MAX_LOG, xtol=1e-9)
        return math.exp(log_variance)

    def median(self) -> float:
        """Return the median of Q without variance between prompts."""
        freedom = float(self.sampling.degrees_of_freedom(self.n_prompts - 1)[0])
        return float(special.chdtri(freedom, 0.5) * self.sampling.trace[0] / freedom)

    def error_and_quantile(self, confidence_level: float, new_prompt: bool = False) -> tuple[float, float]:
        """Return the standard error of the mean over similar prompts, or of a new prompt, and its quantile.

        The quantile is that of Student's t with degrees of freedom from the variance of the estimate of tau^2.
        """
        variance = self.variance()
        share = self.squared_weights + new_prompt
        total = self.error + share * variance
        if variance == 0:
            return math.sqrt(total), normal_quantile(confidence_level)
        uncertainty = 2 * float(self.traces(variance).of_square[0]) * (share / self.trace) ** 2
        freedom = 2 * total**2 / uncertainty
        return math.sqrt(total), float(special.stdtrit(freedom, (1 + confidence_level) / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class BetweenPrompts(Result):
    """Standard deviation of RI between prompts, beyond sampling error from the questions.

    Attributes
    ----------
    estimate : float or None
        In units of RI, for a population of similar prompts; 0 if their variation is no larger than expected by chance.
        None if undefined.
    status : {"ok", "undefined"}
    reason : str or None
        ``"fewer_than_two_variants"``, or ``"variants_repeat_each_other"`` if all have the same outcomes.
    z : float or None
        The joint ``atanh(rho)``.
    spread : Spread or None
        Statistics from which the interval is computed.
    """

    z: float | None = None
    spread: Spread | None = None

    @classmethod
    def of(cls, z: float, spread: Spread) -> BetweenPrompts:
        """Estimate the standard deviation from the spread around the joint z."""
        return cls(deviation_of_index(z, spread.variance()), z=z, spread=spread)

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return a confidence interval of the standard deviation; both ends are NaN if it is undefined.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            The lower end is 0 if the p-value of the test of homogeneity is above half of ``1 - confidence_level``.

        References
        ----------
        .. [1] Jackson (2013). :doi:`10.1002/jrsm.1081`
        """
        normal_quantile(confidence_level)
        if self.spread is None or self.z is None:
            return NO_INTERVAL
        tail = (1 - confidence_level) / 2
        q = self.spread.sum_of_squares
        low = self.spread.variance_at(tail, q)
        high = self.spread.variance_at(1 - tail, max(q, self.spread.median()))
        return ConfidenceInterval(deviation_of_index(self.z, low), deviation_of_index(self.z, high))


def spread_of(z: FloatArray, weights: FloatArray, influence: FloatArray) -> Spread:
    """Return the spread of k estimates with weights that add up to 1.

    `influence`, shape (k, m), is the contribution of each of m independent units, questions or clusters, to z.
    """
    k = len(z)
    centring = np.eye(k) - weights
    root = np.sqrt(weights)[:, np.newaxis] * centring
    deviations = root @ influence
    between = root @ root.T
    covariance = deviations @ deviations.T
    return Spread(
        float(weights @ (centring @ z) ** 2),
        traces(deviations[np.newaxis], np.ones((1, influence.shape[1]))),
        float(np.trace(between)),
        float(np.sum(covariance * between)),
        float(np.sum(between**2)),
        float(np.sum((weights @ influence) ** 2)),
        float(weights @ weights),
        k,
    )


def deviation_of_index(z: float, variance: float) -> float:
    """Return the standard deviation of RI if atanh(rho) is normal with mean z."""
    if variance == 0:
        return 0.0
    index = np.arcsin(np.tanh(z + math.sqrt(variance) * NODES) / 2) / math.asin(0.5)
    share = WEIGHTS / WEIGHTS.sum()
    return float(np.sqrt(share @ (index - share @ index) ** 2))


Prompts = Literal["random", "fixed"]


@dataclass(frozen=True, slots=True)
class HomogeneityTest:
    """Test of the hypothesis that all prompts have the same rho.

    Attributes
    ----------
    statistic : float or None
        Sum of squared deviations of the prompts' estimates from the joint estimate, divided by their variances, and
        scaled to be chi-squared under the hypothesis. None if undefined.
    degrees_of_freedom : float or None
        Degrees of freedom of the chi-squared variable with the same mean and variance: from 1 to the number of prompts
        minus one; fewer if the prompts are strongly correlated.
    pvalue : float or None
        P-value of the statistic. None if undefined.
    status : {"ok", "undefined"}
        Undefined if there are no prompts to compare.
    reason : str or None
        ``"fewer_than_two_variants"``, ``"variants_repeat_each_other"`` if all have the same outcomes,
        ``"fewer_clusters_than_variants"``, or ``"variants_at_boundary"`` if some variant is at -1 or +1 and another
        has fewer than five questions in a cell. The remaining variants are then those that escaped an empty cell by
        chance, and the test would reject a true hypothesis too often.
    """

    statistic: float | None
    degrees_of_freedom: float | None
    pvalue: float | None
    status: Status
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JointRefusalIndexResult(ResultWithInterval):
    """The joint Refusal Index of a model over several prompts.

    Attributes
    ----------
    estimate : float or None
        The joint Refusal Index. Exactly -1 or +1 at the boundary, None if undefined.
    rho : float or None
        The joint tetrachoric correlation, with the same conventions.
    standard_error : float or None
        Standard error of `estimate` due to sampling of questions. None unless the status is ``"ok"``.
    status : {"ok", "boundary", "undefined"}
        ``"ok"`` if it is for at least one variant; see `left_out` for the others. ``"boundary"``: all defined variants
        are at the same end.
    reason : str or None
        ``"all_variants_at_boundary"``; if undefined ``"no_variants"``, ``"all_variants_undefined"``,
        ``"variants_at_both_ends"``, ``"one_cluster"``, or the reason that all variants share.
    between_prompts : BetweenPrompts
        Variation of RI between variants beyond chance.
    variants : tuple of RefusalIndexResult
        One per row, including those left out.
    weights : tuple of float or None
        Weight of each row's ``atanh(rho)`` in the joint one, by inverse variance. The weights add up to 1; None for a
        row that is left out.
    """

    rho: float | None
    between_prompts: BetweenPrompts
    variants: tuple[RefusalIndexResult, ...]
    weights: tuple[float | None, ...]

    @property
    def left_out(self) -> dict[int, str]:
        """Rows left out, with the reason: those at the boundary or undefined have no influence function."""
        return {row: variant.reason or "" for row, variant in enumerate(self.variants) if variant.status != "ok"}

    @property
    def homogeneity(self) -> HomogeneityTest:
        """Test of the hypothesis that all variants have the same RI."""
        spread = self.between_prompts.spread
        if spread is None:
            return HomogeneityTest(None, None, None, "undefined", self.between_prompts.reason)
        if self._is_selected:
            return HomogeneityTest(None, None, None, "undefined", "variants_at_boundary")
        statistic, freedom = spread.sampling.scaled(np.array([spread.sum_of_squares]), spread.n_prompts - 1)
        return HomogeneityTest(float(statistic[0]), float(freedom[0]), spread.pvalue(), "ok", None)

    @property
    def _is_selected(self) -> bool:
        """Whether a variant with an empty cell was left out, and a remaining one escaped that narrowly."""
        statuses = [variant.status for variant in self.variants]
        remaining = [variant.table for variant in self.variants if variant.status == "ok"]
        return "boundary" in statuses and min(min(table.counts) for table in remaining) < LEAST_COUNT

    def confidence_interval(self, confidence_level: float = 0.95, *, prompts: Prompts = "random") -> ConfidenceInterval:
        """Return a confidence interval of the joint Refusal Index, transformed from one for ``atanh(rho)``.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        prompts : {"random", "fixed"}, default: "random"
            ``"random"``: for the mean over a population of similar prompts, accounting for variation between prompts
            and the uncertainty of its estimate from few prompts. ``"fixed"``: for these prompts only.

        Returns
        -------
        ConfidenceInterval
            ``(nan, nan)`` unless the status is ``"ok"``. Both kinds are equal if the variation between prompts is no
            larger than expected by chance, or there is only one prompt.

        Notes
        -----
        With only two prompts the variation is poorly estimated: if they differ strongly, the coverage of the wider
        interval is only .87.
        """
        one_of("prompts", prompts, get_args(Prompts))
        quantile = student_quantile(confidence_level, self._degrees_of_freedom)
        spread = self.between_prompts.spread
        if self.rho is None or self.standard_error is None:
            return NO_INTERVAL
        error = self.standard_error / spearman_slope_in_z(self.rho)
        if spread is not None and prompts == "random":
            error, of_prompts = spread.error_and_quantile(confidence_level)
            quantile = max(quantile, of_prompts)
        return _around(self.rho, quantile * error)

    def prediction_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return a prediction interval of RI for a new, similar prompt.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            For RI itself; its estimate also has a sampling error. ``(nan, nan)`` unless at least two variants differ in
            their outcomes and have the status ``"ok"``.

        References
        ----------
        .. [1] Higgins, J. P. T., Thompson, S. G. and Spiegelhalter, D. J. (2009). A re-evaluation of random-effects
           meta-analysis. Journal of the Royal Statistical Society A, 172, 137-159.
           :doi:`10.1111/j.1467-985X.2008.00552.x`
        """
        normal_quantile(confidence_level)
        if self.rho is None or self.between_prompts.spread is None:
            return NO_INTERVAL
        error, quantile = self.between_prompts.spread.error_and_quantile(confidence_level, new_prompt=True)
        return _around(self.rho, max(quantile, student_quantile(confidence_level, self._degrees_of_freedom)) * error)


def _around(rho: float, reach: float) -> ConfidenceInterval:
    z = math.atanh(rho)
    return ConfidenceInterval(spearman(math.tanh(z - reach)), spearman(math.tanh(z + reach)))


def joint_refusal_index(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> JointRefusalIndexResult:
    """Estimate a joint Refusal Index from several prompts of a model over the same questions.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (k, n)
        One row per prompt variant, one column per question; as for `ContingencyTable.from_arrays`.
    scored : array_like of bool, shape (k, n), optional
        False where a variant has no grade for a question. By default all True.
    cluster, weight : array_like, shape (n,), optional
        Cluster and sampling weight of each question, as for `SamplingDesign.of`.

    Returns
    -------
    JointRefusalIndexResult
        A variant at the boundary or undefined is left out and listed in `left_out`. With one remaining variant, the
        joint estimate is that of this variant, and homogeneity is undefined.

    Raises
    ------
    TypeError, ValueError
        If the matrices are not truth values of one shape; also the errors of `SamplingDesign.of`.

    Notes
    -----
    Variants are weighted by precision; identical variants both count. Leaving out a variant at +1 or -1, which has an
    empty cell, biases the joint estimate away from that end; this matters only if expected counts are small.

    References
    ----------
    .. [1] Box (1954). :doi:`10.1214/aoms/1177728786`
    .. [2] Jackson (2013). :doi:`10.1002/jrsm.1081`

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> refusal, noise = rng.standard_normal((2, 3000))
    >>> refused = refusal > np.array([[-0.8], [0.0], [0.8]])
    >>> wrong = np.broadcast_to(0.5 * refusal + 0.75**0.5 * noise > -0.4, refused.shape)
    >>> result = joint_refusal_index(refused, wrong)
    >>> [round(variant.estimate, 3) for variant in result.variants]
    [0.483, 0.48, 0.458]
    >>> round(result.estimate, 3), round(result.standard_error, 3), round(result.homogeneity.pvalue, 2)
    (0.475, 0.02, 0.66)
    >>> low, high = result.between_prompts.confidence_interval()
    >>> round(result.between_prompts.estimate, 2), round(low, 2), round(high, 2)
    (0.0, 0.0, 0.11)
    """
    matrices = checked_matrices(refused, wrong, scored)
    matrices, design = designed(matrices, cluster, weight)
    variants = tuple(refusal_index(table) for table in tables_of_rows(matrices, design))
    rows = [row for row, variant in enumerate(variants) if variant.status == "ok"]
    if not rows:
        return _without_estimate(variants)
    z = np.array([math.atanh(variants[row].rho or 0.0) for row in rows])
    influence = _influence_on_z(variants, matrices, design)
    degrees_of_freedom = influence.degrees_of_freedom
    # The weights use the influence of questions; the standard error that of clusters, if there are any.
    independent = influence.rows if influence.independent is None else influence.independent
    information = 1 / np.sum(independent**2, axis=1)
    weights = information / information.sum()
    mean = float(weights @ z)
    error = float(np.linalg.norm(weights @ influence.rows))
    reason = None
    if len(rows) < 2:
        reason = "fewer_than_two_variants"
    elif repeat_each_other(*(matrix[rows] for matrix in matrices)):
        reason = "variants_repeat_each_other"
    elif degrees_of_freedom is not None and len(rows) > degrees_of_freedom:
        reason = "fewer_clusters_than_variants"
    undefined = BetweenPrompts(None, "undefined", reason)
    between = undefined if reason else BetweenPrompts.of(mean, spread_of(z, weights, influence.rows))
    rho = math.tanh(mean)
    by_row = dict(zip(rows, weights.tolist(), strict=True))
    return JointRefusalIndexResult(
        spearman(rho),
        standard_error=error * spearman_slope_in_z(rho),
        rho=rho,
        between_prompts=between,
        variants=variants,
        weights=tuple(by_row.get(row) for row in range(len(variants))),
        _degrees_of_freedom=degrees_of_freedom,
    )


def _influence_on_z(
    variants: Sequence[RefusalIndexResult], matrices: Matrices, design: SamplingDesign | None
) -> Influence:
    """Return the influence of questions on atanh(rho) of the prompts with an estimate."""
    rows = [row for row, variant in enumerate(variants) if variant.status == "ok"]
    points = [point_estimate("refusal_index", variants[row].table) for row in rows]
    slopes = np.array([spearman_slope_in_z(variants[row].rho or 0.0) for row in rows])
    codes = cell_codes(*(matrix[rows] for matrix in matrices))
    return Influence.of(influence_of(points, codes) / slopes[:, np.newaxis], codes < 4, design)


def _without_estimate(variants: tuple[RefusalIndexResult, ...]) -> JointRefusalIndexResult:
    alone = any(variant.reason == ONE_CLUSTER for variant in variants)
    ends = {variant.estimate for variant in variants if variant.status == "boundary"} if not alone else set()
    end: float | None = None
    status: Status = "undefined"
    if len(ends) == 1:
        end = ends.pop()
        status = "boundary"
        reason = "all_variants_at_boundary"
    elif ends or alone:
        reason = ONE_CLUSTER if alone else "variants_at_both_ends"
    else:
        reasons = {str(variant.reason) for variant in variants} or {"no_variants"}
        reason = reasons.pop() if len(reasons) == 1 else "all_variants_undefined"
    between = BetweenPrompts(None, "undefined", "fewer_than_two_variants")
    no_weights = (None,) * len(variants)
    return JointRefusalIndexResult(
        end, status, reason, rho=end, between_prompts=between, variants=variants, weights=no_weights
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JointDifference(ResultWithInterval):
    """The difference of joint RI between two models, first minus second.

    Attributes
    ----------
    first, second : JointRefusalIndexResult
        Results of both models.
    estimate : float or None
        ``first - second``; None if either is undefined.
    standard_error, pvalue : float or None
        As in `MetricDifference`; None unless both estimates have a standard error.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        ``"first:"`` or ``"second:"`` followed by that model's reason, or both, joined by ``";"``; or
        ``"constant_difference"``.
    """

    first: JointRefusalIndexResult
    second: JointRefusalIndexResult
    pvalue: float | None = None

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return the normal or Student's t interval of the difference; both ends are NaN without a standard error.

        If the models do not differ on any question, the intervals of both are combined by square-and-add, since a
        normal interval would have width zero.
        """
        interval = ResultWithInterval.confidence_interval(self, confidence_level)
        if self.standard_error != 0:
            return interval
        first, second = (
            Estimate.of(result, result.confidence_interval(confidence_level, prompts="fixed"))
            for result in (self.first, self.second)
        )
        return square_and_add(first, second)


def compare_joint(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> JointDifference:
    """Compare two models by joint RI over the same prompts.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (2, v, n)
        Two models, v prompts, n questions.
    scored : array_like of bool, shape (2, v, n), optional
        False where there is no grade. By default all True.
    cluster, weight : array_like, shape (n,), optional
        Cluster and sampling weight of each question, as for `SamplingDesign.of`.

    Returns
    -------
    JointDifference

    Raises
    ------
    TypeError, ValueError
        If the arguments are not arrays of truth values of this shape; also the errors of `SamplingDesign.of`.

    References
    ----------
    .. [1] Zou and Donner (2008). :doi:`10.1002/sim.3095`

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> error, *noise = rng.standard_normal((3, 3000))
    >>> refusal = np.array([[0.7 * error + 0.7 * noise[0]], [0.2 * error + 0.98 * noise[1]]])
    >>> refused = refusal > np.array([[-0.8], [0.0], [0.8]])
    >>> difference = compare_joint(refused, np.broadcast_to(error > 0, refused.shape))
    >>> round(difference.first.estimate, 2), round(difference.second.estimate, 2), difference.pvalue < 1e-6
    (0.7, 0.19, True)
    """
    arrays, design = checked_models(refused, wrong, scored, cluster, weight)
    if len(arrays[0]) != 2:
        raise ValueError(
            f"refused must hold exactly two models to compare, got {len(arrays[0])}; use rank_joint for more"
        )
    first, second = (joint_refusal_index(*model, cluster=cluster, weight=weight) for model in zip(*arrays, strict=True))
    estimate = None if first.estimate is None or second.estimate is None else first.estimate - second.estimate
    if first.status != "ok" or second.status != "ok":
        status: Status = "undefined" if estimate is None else "boundary"
        return JointDifference(estimate, status, reasons_of(first, second), first=first, second=second)
    estimate = unrounded(estimate or 0.0)
    influence = _influence(arrays, (first, second), design)
    error, pvalue = influence.compare(0, 1, estimate)
    status, reason = ("ok", None) if error else ("boundary", "constant_difference")
    return JointDifference(
        estimate, status, reason, error, influence.degrees_of_freedom, first=first, second=second, pvalue=pvalue
    )


def rank_joint(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    confidence_level: float = 0.95,
    adjustment: Adjustment = "max-t",
    n_resamples: int = RESAMPLES,
    rng: Seed = None,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> Ranking:
    """Rank models by joint RI, as `rank_runs` ranks runs with a single prompt.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (k, v, n)
        k models (two or more), v prompts, n questions; as for `compare_joint`.
    confidence_level, adjustment, n_resamples, rng, cluster, weight
        As for `rank_runs`.

    Returns
    -------
    Ranking

    Raises
    ------
    TypeError, ValueError
        As for `compare_joint`, or if there are fewer than two models, or another argument is invalid.

    References
    ----------
    .. [1] Hothorn et al. (2008). :doi:`10.1002/bimj.200810425`
    .. [2] Holm (1979). https://www.jstor.org/stable/4615733

    Examples
    --------
    >>> rng = np.random.default_rng(4)
    >>> error, *noise = rng.standard_normal((3, 3000))
    >>> refusal = np.array([[0.2 * error + 0.98 * noise[0]], [0.7 * error + 0.7 * noise[1]]])
    >>> refused = refusal > np.array([[-0.8], [0.0], [0.8]])
    >>> ranking = rank_joint(refused, np.broadcast_to(error > 0, refused.shape), rng=1)
    >>> [(run.row, run.letters) for run in ranking.runs]
    [(1, 'a'), (0, 'b')]
    """
    arrays, design = checked_models(refused, wrong, scored, cluster, weight)
    if len(arrays[0]) < 2:
        raise ValueError(
            f"refused must hold two models or more to rank, got {len(arrays[0])}; "
            "for a single model use joint_refusal_index"
        )
    results = [joint_refusal_index(*model, cluster=cluster, weight=weight) for model in zip(*arrays, strict=True)]
    described = [
        RankedRun.of(row, result, result.confidence_interval(confidence_level)) for row, result in enumerate(results)
    ]
    influence = _influence(arrays, results, design)
    return rank_estimates("refusal_index", described, influence, confidence_level, adjustment, n_resamples, rng)


def checked_models(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None, cluster: ArrayLike | None, weight: ArrayLike | None
) -> tuple[Matrices, SamplingDesign | None]:
    """Check arrays of shape (k, v, n), as `checked_matrices` those of shape (k, n), and the sampling design."""
    matrices = {"refused": refused, "wrong": wrong, "scored": scored}
    for name, values in matrices.items():
        check_rows(name, values)
    shape = np.shape(refused)
    if len(shape) != 3:
        raise ValueError(
            f"refused must be three-dimensional, models by prompts by questions, got shape {shape}; "
            "for one prompt each use compare_metrics or rank_runs"
        )
    for name, values in matrices.items():
        if values is not None and np.shape(values) != shape:
            raise ValueError(
                f"{name} must have the shape of refused, {shape}, got {np.shape(values)}; was it filtered?"
            )
    rows = (np.ones(shape, bool) if values is None else values for values in matrices.values())
    flat = checked_matrices(*(np.reshape(values, (-1, shape[2])) for values in rows))
    flat, design = designed(flat, cluster, weight)
    r, w, s = (matrix.reshape(shape) for matrix in flat)
    return (r, w, s), design


def _influence(
    arrays: Matrices, results: Sequence[JointRefusalIndexResult], design: SamplingDesign | None
) -> Influence:
    """Return the influence of questions on the joint RI of every model; NaN if there is none."""
    rows = []
    independent = []
    for refused, wrong, scored, joint in zip(*arrays, results, strict=True):
        prompts = _influence_on_z(joint.variants, (refused, wrong, scored), design)
        weights = np.array([weight for weight in joint.weights if weight is not None])
        slope = spearman_slope_in_z(joint.rho) if weights.size and joint.rho is not None else math.nan
        rows.append(slope * (weights @ prompts.rows))
        if prompts.independent is not None:
            independent.append(slope * (weights @ prompts.independent))
    alone = np.array(independent) if independent else None
    return Influence(np.array(rows).reshape(len(results), -1), np.asarray(arrays[2].any(axis=1)), design, alone)


def joint_influence(refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None) -> FloatArray:
    """Return the influence of each question on the joint RI of each model, divided by its number of questions.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (k, v, n)
        As for `compare_joint`, for any number of models.

    Returns
    -------
    ndarray, shape (k, n)
        Inner products of rows are the covariances of the estimates; NaN for a model without a standard error.

    Examples
    --------
    >>> influence = joint_influence([[[True, True, False, False, False]]], [[[True, False, True, True, False]]])
    >>> joint = joint_refusal_index([[True, True, False, False, False]], [[True, False, True, True, False]])
    >>> bool(np.isclose(np.linalg.norm(influence), joint.standard_error))
    True
    """
    arrays, _ = checked_models(refused, wrong, scored, None, None)
    return _influence(arrays, [joint_refusal_index(*model) for model in zip(*arrays, strict=True)], None).rows
