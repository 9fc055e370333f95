"""One Refusal Index of a model from several prompts over the same questions.

Answers to the same question under different prompts are not independent, so that the tables of the prompts must not be
added up, nor their estimates averaged as if they were. The joint estimate is the mean on Fisher's scale
``z = atanh(rho)``, weighted by the inverse variances, and its variance comes from the covariance that the influence
functions have over the questions,

    V_ab = sum over i of IF_a,i IF_b,i / (n_a n_b),

zero where a question is not scored under one of the two. The same covariance says whether the prompts share one index
at all, and how far theirs lie apart.

Weights by the inverse of V (generalised least squares) would make a standard error at most 2 % smaller, and are not
used: that inverse rests on what the questions say worst. With 22 prompts of 450 questions intervals by it cover .79,
and the test of homogeneity by it rejects a true hypothesis two times in three.

Where questions come in clusters or with weights, the prompts keep the weights of independent questions, which rest on
more than a few clusters, and all variances are made of the influence summed within clusters.

Simulated coverage of the 95 % interval for 2 to 24 prompts of one index at 450 to 4,326 questions is .94 to .97, and
.93 to .97 for 3 prompts or more of different indices; the size of the test of homogeneity at .05 is .03 to .07. Prompts
taken for independent cover .41 to .90.

How far the prompts of a model lie apart beyond chance: the random-effects view of a joint Refusal Index.

The index of a prompt is taken for one drawn from a normal distribution on the scale of ``z = atanh(rho)``, with
variance tau^2 around the joint one. The estimates of k prompts then have the covariance ``V + tau^2 I``, where V is
that of their influence functions over the questions they share. With the fixed weights w of the joint estimate,

    Q = sum of w_a (z_a - mean)^2

has mean and variance that are polynomials in tau^2. That gives the estimate of tau^2 by moments [1]_, and its interval:
the values that a test by Q does not reject [2]_.
At tau = 0 the same test is the one of homogeneity.

Where the prompts happen to lie closer together than chance leaves them most of the time, the upper end is the one of a
median Q: such luck is no proof that prompts do not matter.

Sums of squares with fixed weights, and the chi-squared distribution that they are referred to.

Where k estimates rest on the same questions, their covariance is estimated from those questions too. Its inverse
stresses the directions with the least variance, which are the ones that are estimated worst: with 8 tables of 450
questions a statistic ``d' V^-1 d`` rejects a true hypothesis a third of the time. A sum of squares with weights that do
not depend on the correlations needs no inverse. If A is the covariance of the weighted deviations, it is distributed
as a sum of independent chi-squared variables with A's eigenvalues as factors, which has mean tr A and variance
2 tr A^2; the scaled chi-squared variable with these two moments is taken for it [3]_.

``tr A`` is a sum over questions and is estimated without bias; ``(tr A)^2`` and ``tr A^2`` are sums over pairs of
questions, and what a question makes with itself is left out of both, since it would stand for noise [4]_.

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

Models compared by their joint Refusal Index over the same prompts.

The joint index of a model is a weighted mean of its prompts' estimates on the scale of ``atanh(rho)``, so that its
influence function is the same mean of theirs; models over the same questions are compared by the differences of these,
as runs of a single prompt are. The weights are taken as known: they change the estimate only in second order.
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

from refusal_index.stats.arguments import FloatArray, check_rows, checked_matrices
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

# log(tau^2) beyond which prompts have no variance, and beyond which all of theirs are at -1 or +1.
SMALLEST_LOG, LARGEST_LOG = -40.0, 40.0
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)


class Traces(NamedTuple):
    """What is known of the covariance A of the weighted deviations of b data sets; arrays of shape (b,).

    `trace` is tr A, `of_square` an estimate of tr A^2 without a question's product with itself, and `own` the sum of
    these products.
    """

    trace: FloatArray
    of_square: FloatArray
    own: FloatArray

    def degrees_of_freedom(self, most: ArrayLike) -> FloatArray:
        """Effective number of squares, from 1 to `most`."""
        with np.errstate(invalid="ignore", divide="ignore"):
            found = (self.trace**2 - self.own) / self.of_square
        return np.asarray(np.clip(np.where(np.isnan(found), 1.0, found), 1.0, most))

    def scaled(self, sum_of_squares: FloatArray, most: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the statistic that is chi-squared, and its degrees of freedom; NaN where A is 0."""
        freedom = self.degrees_of_freedom(most)
        with np.errstate(invalid="ignore", divide="ignore"):
            statistic = np.where(self.trace > 0, sum_of_squares * freedom / self.trace, np.nan)
        return statistic, freedom

    def pvalue(self, sum_of_squares: FloatArray, most: ArrayLike) -> FloatArray:
        """Probability of a sum of squares as large."""
        statistic, freedom = self.scaled(sum_of_squares, most)
        return np.asarray(special.chdtrc(freedom, statistic))


def traces(deviations: FloatArray, counts: FloatArray) -> Traces:
    """Take the traces from what each question adds to the k weighted deviations.

    `deviations` has shape (b, k, m), one column a question or a pattern of outcomes, `counts` shape (b, m) says how
    many questions a column stands for.
    """
    squares = np.einsum("bkm,bkm->bm", deviations, deviations)
    covariance = (deviations * counts[:, np.newaxis]) @ np.swapaxes(deviations, 1, 2)
    own = np.sum(counts * squares**2, axis=1)
    of_square = np.einsum("bkl,bkl->b", covariance, covariance) - own
    return Traces(np.sum(counts * squares, axis=1), of_square, own)


class Spread(NamedTuple):
    """What k estimates z with weights w say of the variance between prompts.

    `sum_of_squares` is Q, and `sampling`, of one data set, belongs to its distribution without variance between
    prompts. With B the covariance of the weighted deviations for V = 0 and tau = 1, and A that for tau = 0,
    `trace` is tr B, `with_sampling` tr AB and `of_square` tr B^2. `error` is w' V w, the squared standard error of the
    weighted mean from questions, and `squared_weights` the sum of the squares of w.
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
        """Estimate of tau^2 by moments, 0 where chance alone would leave more."""
        return max((self.sum_of_squares - float(self.sampling.trace[0])) / self.trace, 0.0)

    def traces(self, variance: float) -> Traces:
        """Traces of the covariance of the weighted deviations at a given tau^2."""
        sampling = self.sampling
        square = sampling.of_square + 2 * self.with_sampling * variance + self.of_square * variance**2
        return Traces(sampling.trace + self.trace * variance, square, sampling.own)

    def pvalue(self, variance: float = 0.0, sum_of_squares: float | None = None) -> float:
        """Probability of a Q as large at a given tau^2."""
        q = self.sum_of_squares if sum_of_squares is None else sum_of_squares
        return float(self.traces(variance).pvalue(np.array([q]), self.n_prompts - 1)[0])

    def variance_at(self, pvalue: float, sum_of_squares: float) -> float:
        """Find the tau^2 at which a Q as large has a given probability; 0 where it is larger at 0 already."""
        if self.pvalue(0.0, sum_of_squares) >= pvalue:
            return 0.0
        found = brentq(
            lambda x: self.pvalue(math.exp(x), sum_of_squares) - pvalue, SMALLEST_LOG, LARGEST_LOG, xtol=1e-9
        )
        return math.exp(found)

    def median(self) -> float:
        """Median of Q without variance between prompts."""
        freedom = float(self.sampling.degrees_of_freedom(self.n_prompts - 1)[0])
        return float(special.chdtri(freedom, 0.5) * self.sampling.trace[0] / freedom)

    def error_and_quantile(self, confidence_level: float, new_prompt: bool = False) -> tuple[float, float]:
        """Return the standard error of the mean over prompts like these, or of one more prompt, and its quantile.

        The quantile is that of a t distribution whose degrees of freedom fit the variance of the estimate of tau^2.
        """
        variance, share = self.variance(), self.squared_weights + new_prompt
        total = self.error + share * variance
        if variance == 0:
            return math.sqrt(total), normal_quantile(confidence_level)
        uncertainty = 2 * float(self.traces(variance).of_square[0]) * (share / self.trace) ** 2
        freedom = 2 * total**2 / uncertainty
        return math.sqrt(total), float(special.stdtrit(freedom, (1 + confidence_level) / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class BetweenPrompts(Result):
    """Standard deviation of the Refusal Index between prompts, beyond what chance in the questions makes.

    Attributes
    ----------
    estimate : float or None
        In units of the index, of prompts like these; 0 where they lie no farther apart than chance leaves them. None
        where undefined.
    status : {"ok", "undefined"}
    reason : str or None
        ``"fewer_than_two_variants"``, or ``"variants_repeat_each_other"`` if all have the same outcomes.
    z : float or None
        The joint ``atanh(rho)``.
    spread : Spread or None
        What the interval is made from.
    """

    z: float | None = None
    spread: Spread | None = None

    @classmethod
    def of(cls, z: float, spread: Spread) -> BetweenPrompts:
        """Estimate the standard deviation from the spread around the joint z."""
        return cls(deviation_of_index(z, spread.variance()), z=z, spread=spread)

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Confidence interval of the standard deviation; both ends NaN where it is undefined.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            The low end is 0 where the test of homogeneity has a p-value above half of ``1 - confidence_level``.

        References
        ----------
        .. [1] Jackson (2013). :doi:`10.1002/jrsm.1081`
        """
        normal_quantile(confidence_level)
        if self.spread is None or self.z is None:
            return NO_INTERVAL
        tail, q = (1 - confidence_level) / 2, self.spread.sum_of_squares
        low = self.spread.variance_at(tail, q)
        high = self.spread.variance_at(1 - tail, max(q, self.spread.median()))
        return ConfidenceInterval(deviation_of_index(self.z, low), deviation_of_index(self.z, high))


def spread_of(z: FloatArray, weights: FloatArray, influence: FloatArray) -> Spread:
    """Measure the spread of k estimates with weights that add up to 1.

    `influence`, of shape (k, m), holds what each of m independent units adds to z: the questions, or clusters of them.
    """
    k = len(z)
    centring = np.eye(k) - weights
    root = np.sqrt(weights)[:, np.newaxis] * centring
    deviations, between = root @ influence, root @ root.T
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
    """Return the standard deviation of the index where atanh(rho) is normal with mean z."""
    if variance == 0:
        return 0.0
    index = np.arcsin(np.tanh(z + math.sqrt(variance) * NODES) / 2) / math.asin(0.5)
    share = WEIGHTS / WEIGHTS.sum()
    return float(np.sqrt(share @ (index - share @ index) ** 2))


Prompts = Literal["random", "fixed"]


@dataclass(frozen=True, slots=True)
class HomogeneityTest:
    """Whether the prompts share one rho.

    Attributes
    ----------
    statistic : float or None
        Sum of the squared deviations of the prompts' estimates from the joint one over their variances, scaled to be
        chi-squared if all prompts have the same rho. None where undefined.
    degrees_of_freedom : float or None
        Those of the chi-squared variable with the same mean and variance: from 1 to the number of prompts less one,
        the fewer the more the prompts say the same.
    pvalue : float or None
        Probability of a statistic as large if all prompts have the same rho. None where undefined.
    status : {"ok", "undefined"}
        Undefined where there is nothing to compare.
    reason : str or None
        ``"fewer_than_two_variants"``, ``"variants_repeat_each_other"`` if all have the same outcomes, or
        ``"fewer_clusters_than_variants"``.
    """

    statistic: float | None
    degrees_of_freedom: float | None
    pvalue: float | None
    status: Status
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JointRefusalIndexResult(ResultWithInterval):
    """The Refusal Index of a model over several prompts.

    Attributes
    ----------
    estimate : float or None
        The joint Refusal Index. At the boundary exactly -1 or +1, None where undefined.
    rho : float or None
        The tetrachoric correlation behind it, with the same conventions.
    standard_error : float or None
        Standard error of `estimate` from the choice of questions. None unless the status is ``"ok"``.
    status : {"ok", "boundary", "undefined"}
        ``"ok"`` if at least one variant is; see `left_out` for those that are not. ``"boundary"``: all variants that
        are defined are at the same end.
    reason : str or None
        ``"all_variants_at_boundary"``; or where undefined ``"no_variants"``, ``"all_variants_undefined"``,
        ``"variants_at_both_ends"``, ``"one_cluster"``.
    between_prompts : BetweenPrompts
        How far the variants' indices lie apart beyond chance.
    variants : tuple of RefusalIndexResult
        One a row, those left out included.
    weights : tuple of float or None
        Weight of each row's ``atanh(rho)`` in the joint one, by its inverse variance; they add up to 1 and are None
        for a row left out.
    """

    rho: float | None
    between_prompts: BetweenPrompts
    variants: tuple[RefusalIndexResult, ...]
    weights: tuple[float | None, ...]

    @property
    def left_out(self) -> dict[int, str]:
        """Rows at the boundary or undefined, each with its reason: they have no influence function to enter by."""
        return {row: variant.reason or "" for row, variant in enumerate(self.variants) if variant.status != "ok"}

    @property
    def homogeneity(self) -> HomogeneityTest:
        """Whether the variants share one index."""
        spread = self.between_prompts.spread
        if spread is None:
            return HomogeneityTest(None, None, None, "undefined", self.between_prompts.reason)
        statistic, freedom = spread.sampling.scaled(np.array([spread.sum_of_squares]), spread.n_prompts - 1)
        return HomogeneityTest(float(statistic[0]), float(freedom[0]), spread.pvalue(), "ok", None)

    def confidence_interval(self, confidence_level: float = 0.95, *, prompts: Prompts = "random") -> ConfidenceInterval:
        """Confidence interval of the joint Refusal Index: one for ``atanh(rho)``, transformed.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95
        prompts : {"random", "fixed"}, default: "random"
            ``"random"``: of the mean over prompts like these, which widens with the spread between them, and with how
            little a few prompts say of that spread. ``"fixed"``: of these very prompts.

        Returns
        -------
        ConfidenceInterval
            ``(nan, nan)`` unless the status is ``"ok"``. Both kinds are the same where the prompts lie no farther
            apart than chance leaves them, or there is only one.

        Notes
        -----
        Two prompts say so little of the spread that, where they differ much, the wider interval covers .87 only.
        """
        if prompts not in get_args(Prompts):
            raise ValueError(f"prompts must be 'random' or 'fixed', got {prompts!r}")
        quantile, spread = student_quantile(confidence_level, self._degrees_of_freedom), self.between_prompts.spread
        if self.rho is None or self.standard_error is None:
            return NO_INTERVAL
        error = self.standard_error / spearman_slope_in_z(self.rho)
        if spread is not None and prompts == "random":
            error, of_prompts = spread.error_and_quantile(confidence_level)
            quantile = max(quantile, of_prompts)
        return _around(self.rho, quantile * error)

    def prediction_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Interval for the Refusal Index of one more prompt like these.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            For the index itself; an estimate of it has an error of its own besides. ``(nan, nan)`` unless there are
            two variants that say something.

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
    """Estimate one Refusal Index from several prompts of a model over the same questions.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (k, n)
        One row a prompt variant, one column a question; as for `ContingencyTable.from_arrays`.
    scored : array_like of bool, shape (k, n), optional
        False where a variant has no grade for a question; all True if not given.
    cluster, weight : array_like, shape (n,), optional
        Which questions are alike, and for how many each stands, as for `SamplingDesign.of`.

    Returns
    -------
    JointRefusalIndexResult
        A variant at the boundary or undefined is left out and named in `left_out`. With one variant left the joint
        estimate is its own, and the homogeneity undefined.

    Raises
    ------
    TypeError, ValueError
        If the matrices are not truth values of one shape, or as `SamplingDesign.of`.

    Notes
    -----
    A variant counts by its precision, and one that repeats another counts twice. Leaving a variant at +1 or -1 out,
    which takes an empty cell, pulls the joint estimate away from that end; it matters where cells are expected to be
    nearly empty.

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
    kept = [row for row, variant in enumerate(variants) if variant.status == "ok"]
    if not kept:
        return _without_estimate(variants)
    z = np.array([math.atanh(variants[row].rho or 0.0) for row in kept])
    influence = _influence_on_z(variants, matrices, design)
    degrees_of_freedom = influence.degrees_of_freedom
    # Weights by the influence of questions, errors by that of clusters, if there are any.
    independent = influence.rows if influence.independent is None else influence.independent
    information = 1 / np.sum(independent**2, axis=1)
    weights = information / information.sum()
    mean, error = float(weights @ z), float(np.linalg.norm(weights @ influence.rows))
    reason = None
    if len(kept) < 2:
        reason = "fewer_than_two_variants"
    elif repeat_each_other(*(matrix[kept] for matrix in matrices)):
        reason = "variants_repeat_each_other"
    elif degrees_of_freedom is not None and len(kept) > degrees_of_freedom:
        reason = "fewer_clusters_than_variants"
    nothing = BetweenPrompts(None, "undefined", reason)
    between = nothing if reason else BetweenPrompts.of(mean, spread_of(z, weights, influence.rows))
    rho, by_row = math.tanh(mean), dict(zip(kept, weights.tolist(), strict=True))
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
    """Influence of questions on atanh(rho) of the prompts that have an estimate."""
    kept = [row for row, variant in enumerate(variants) if variant.status == "ok"]
    points = [point_estimate("refusal_index", variants[row].table) for row in kept]
    slopes = np.array([spearman_slope_in_z(variants[row].rho or 0.0) for row in kept])
    codes = cell_codes(*(matrix[kept] for matrix in matrices))
    return Influence.of(influence_of(points, codes) / slopes[:, np.newaxis], codes < 4, design)


def _without_estimate(variants: tuple[RefusalIndexResult, ...]) -> JointRefusalIndexResult:
    alone = any(variant.reason == ONE_CLUSTER for variant in variants)
    ends = {variant.estimate for variant in variants if variant.status == "boundary"} if not alone else set()
    end: float | None = None
    status: Status = "undefined"
    if len(ends) == 1:
        end, status, reason = ends.pop(), "boundary", "all_variants_at_boundary"
    elif ends or alone:
        reason = ONE_CLUSTER if alone else "variants_at_both_ends"
    else:
        reason = "all_variants_undefined" if variants else "no_variants"
    between = BetweenPrompts(None, "undefined", "fewer_than_two_variants")
    nothing = (None,) * len(variants)
    return JointRefusalIndexResult(
        end, status, reason, rho=end, between_prompts=between, variants=variants, weights=nothing
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JointDifference(ResultWithInterval):
    """By how much the joint Refusal Index of the first model exceeds that of the second.

    Attributes
    ----------
    first, second : JointRefusalIndexResult
        Of either model.
    estimate : float or None
        ``first - second``; None where either is undefined.
    standard_error, pvalue : float or None
        As in `MetricDifference`; None unless both estimates have a standard error.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        ``"first:"`` or ``"second:"`` with that model's reason, or both with ``";"`` between them; or
        ``"constant_difference"``.
    """

    first: JointRefusalIndexResult
    second: JointRefusalIndexResult
    pvalue: float | None = None

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return the normal or Student's interval of the difference; both ends are NaN where it has no standard error.

        Where the models differ by nothing on any question, the intervals of both are combined by square-and-add: one of
        no width would claim certainty.
        """
        interval = ResultWithInterval.confidence_interval(self, confidence_level)
        if self.standard_error != 0:
            return interval
        first, second = (
            Estimate.of(one, one.confidence_interval(confidence_level, prompts="fixed"))
            for one in (self.first, self.second)
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
    """Compare two models by their joint Refusal Index over the same prompts.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (2, v, n)
        Two models, v prompts, n questions.
    scored : array_like of bool, shape (2, v, n), optional
        False where there is no grade; all True if not given.
    cluster, weight : array_like, shape (n,), optional
        Which questions are alike, and for how many each stands, as for `SamplingDesign.of`.

    Returns
    -------
    JointDifference

    Raises
    ------
    TypeError, ValueError
        If the arguments are not arrays of truth values of one such shape, or as `SamplingDesign.of`.

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
    arrays, design = _checked_models(refused, wrong, scored, cluster, weight)
    if len(arrays[0]) != 2:
        raise ValueError(
            f"refused must hold exactly two models to compare, got {len(arrays[0])}; use rank_joint for more"
        )
    first, second = (joint_refusal_index(*model, cluster=cluster, weight=weight) for model in zip(*arrays, strict=True))
    estimate = None if first.estimate is None or second.estimate is None else first.estimate - second.estimate
    if first.status != "ok" or second.status != "ok":
        status: Status = "undefined" if estimate is None else "boundary"
        return JointDifference(estimate, status, reasons_of(first, second), first=first, second=second)
    estimate, influence = unrounded(estimate or 0.0), _influence(arrays, (first, second), design)
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
    """Rank models by their joint Refusal Index, as `rank_runs` ranks runs of a single prompt.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (k, v, n)
        k models, two or more, v prompts, n questions; as for `compare_joint`.
    confidence_level, adjustment, n_resamples, rng, cluster, weight
        As for `rank_runs`.

    Returns
    -------
    Ranking

    Raises
    ------
    TypeError, ValueError
        As for `compare_joint`, if there are fewer than two models, or if another argument is not as described.

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
    arrays, design = _checked_models(refused, wrong, scored, cluster, weight)
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


def _checked_models(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None, cluster: ArrayLike | None, weight: ArrayLike | None
) -> tuple[Matrices, SamplingDesign | None]:
    """Check arrays of shape (k, v, n) as `checked_matrices` does those of shape (k, n), and their questions."""
    given = {"refused": refused, "wrong": wrong, "scored": scored}
    for name, values in given.items():
        check_rows(name, values)
    shape = np.shape(refused)
    if len(shape) != 3:
        raise ValueError(
            f"refused must be three-dimensional, models by prompts by questions, got shape {shape}; "
            "for one prompt each use compare_metrics or rank_runs"
        )
    for name, values in given.items():
        if values is not None and np.shape(values) != shape:
            raise ValueError(
                f"{name} must have the shape of refused, {shape}, got {np.shape(values)}; was it filtered?"
            )
    rows = (np.ones(shape, bool) if values is None else values for values in given.values())
    flat = checked_matrices(*(np.reshape(values, (-1, shape[2])) for values in rows))
    flat, design = designed(flat, cluster, weight)
    r, w, s = (matrix.reshape(shape) for matrix in flat)
    return (r, w, s), design


def _influence(
    arrays: Matrices, results: Sequence[JointRefusalIndexResult], design: SamplingDesign | None
) -> Influence:
    """Influence of questions on every model's joint index; NaN where there is none."""
    rows, independent = [], []
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
    """Influence of each question on the joint Refusal Index of each model, over its number of questions.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (k, v, n)
        As for `compare_joint`, of any number of models.

    Returns
    -------
    ndarray, shape (k, n)
        Products of rows sum to the covariances of the estimates; NaN for a model without a standard error.

    Examples
    --------
    >>> influence = joint_influence([[[True, True, False, False, False]]], [[[True, False, True, True, False]]])
    >>> joint = joint_refusal_index([[True, True, False, False, False]], [[True, False, True, True, False]])
    >>> bool(np.isclose(np.linalg.norm(influence), joint.standard_error))
    True
    """
    arrays, _ = _checked_models(refused, wrong, scored, None, None)
    return _influence(arrays, [joint_refusal_index(*model) for model in zip(*arrays, strict=True)], None).rows
