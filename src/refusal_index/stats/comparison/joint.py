r"""One Refusal Index of a model from several prompts over the same questions.

Answers to the same question under different prompts are not independent, so that the tables of the prompts must not be
added up, nor their estimates averaged as if they were. The joint estimate is the mean on Fisher's scale
``z = atanh(rho)``, weighted by the inverse variances, and its variance comes from the covariance that the influence
functions have over the questions,

    V_ab = sum over i of IF_a,i IF_b,i / (n_a n_b),

zero where a question is not scored under one of the two. The same covariance says whether the prompts share one index
at all, and how far theirs lie apart (`refusal_index.stats.comparison.between_prompts`).

Weights by the inverse of V (generalised least squares) would make a standard error at most 2 % smaller, and are not
used: that inverse rests on what the questions say worst. With 22 prompts of 450 questions intervals by it cover .79,
and the test of homogeneity by it rejects a true hypothesis two times in three.

Where questions come in clusters or with weights, the prompts keep the weights of independent questions, which rest on
more than a few clusters, and all variances are made of the influence summed within clusters.

Simulated coverage of the 95 % interval for 2 to 24 prompts of one index at 450 to 4,326 questions is .94 to .97, and
.93 to .97 for 3 prompts or more of different indices; the size of the test of homogeneity at .05 is .03 to .07. Prompts
taken for independent cover .41 to .90.
"""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.comparison.between_prompts import BetweenPrompts, no_spread, spread_of
from refusal_index.stats.comparison.metric_influence import fewest_degrees_of_freedom, scaled
from refusal_index.stats.design import ONE_CLUSTER, SamplingDesign, student_quantile
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Status
from refusal_index.stats.index import RefusalIndexResult, refusal_index
from refusal_index.stats.influence import cell_influence, spearman, spearman_slope_in_z
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.matrices import BoolArray, checked_matrices, repeat_each_other
from refusal_index.stats.sampled_table import tables_of_rows

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


@dataclass(frozen=True, slots=True)
class JointRefusalIndexResult:
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

    estimate: float | None
    rho: float | None
    standard_error: float | None
    status: Status
    reason: str | None
    between_prompts: BetweenPrompts
    variants: tuple[RefusalIndexResult, ...]
    weights: tuple[float | None, ...]
    _degrees_of_freedom: float | None = field(default=None, repr=False)

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
        normal_quantile(confidence_level)
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
    design = SamplingDesign.of(matrices[0].shape[1], cluster, weight)
    matrices = matrices if design is None else design.taking_part(matrices)
    variants = tuple(refusal_index(table) for table in tables_of_rows(matrices, design))
    kept = [row for row, variant in enumerate(variants) if variant.status == "ok"]
    if not kept:
        return _without_estimate(variants)
    influence = np.stack([_influence_on_z(variants[row], *(matrix[row] for matrix in matrices)) for row in kept])
    repeated = repeat_each_other(*(matrix[kept] for matrix in matrices))
    clustered, degrees_of_freedom = influence, None
    if design is not None:
        by_question = influence * np.array([[variants[row].table.n] for row in kept])
        influence = scaled(by_question, matrices[2][kept], design.without_clusters())
        clustered = scaled(by_question, matrices[2][kept], design)
        degrees_of_freedom = fewest_degrees_of_freedom(matrices[2][kept], design)
    return _combine(variants, kept, influence, clustered, repeated, degrees_of_freedom)


def _influence_on_z(variant: RefusalIndexResult, refused: BoolArray, wrong: BoolArray, scored: BoolArray) -> FloatArray:
    """Influence of each question on atanh(rho) over the number of questions scored, 0 for the others."""
    rho = variant.rho or 0.0
    by_cell = np.array(cell_influence(variant.table, rho)) / ((1 - rho) * (1 + rho) * variant.table.n)
    return np.asarray(by_cell[2 * ~refused + ~wrong] * scored)


def _combine(
    variants: tuple[RefusalIndexResult, ...],
    kept: list[int],
    influence: FloatArray,
    clustered: FloatArray,
    repeated: bool,
    degrees_of_freedom: float | None,
) -> JointRefusalIndexResult:
    """Combine prompts with weights by the influence of questions, and errors by that of clusters, if there are any."""
    z = np.array([math.atanh(variants[row].rho or 0.0) for row in kept])
    information = 1 / np.sum(influence**2, axis=1)
    weights = information / information.sum()
    mean, error = float(weights @ z), float(np.linalg.norm(weights @ clustered))
    if len(kept) < 2:
        between = no_spread("fewer_than_two_variants")
    elif repeated:
        between = no_spread("variants_repeat_each_other")
    elif degrees_of_freedom is not None and len(kept) > degrees_of_freedom:
        between = no_spread("fewer_clusters_than_variants")
    else:
        between = BetweenPrompts.of(mean, spread_of(z, weights, clustered))
    rho, by_row = math.tanh(mean), dict(zip(kept, weights.tolist(), strict=True))
    return JointRefusalIndexResult(
        spearman(rho),
        rho,
        error * spearman_slope_in_z(rho),
        "ok",
        None,
        between,
        variants,
        tuple(by_row.get(row) for row in range(len(variants))),
        degrees_of_freedom,
    )


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
    nothing = (None,) * len(variants)
    between = no_spread("fewer_than_two_variants")
    return JointRefusalIndexResult(end, end, None, status, reason, between, variants, nothing)
