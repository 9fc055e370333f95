r"""One Refusal Index of a model from several prompts over the same questions.

Answers to the same question under different prompts are not independent, so that the tables of the prompts must not be
added up, nor their estimates averaged as if they were. The estimates are combined by generalised least squares on
Fisher's scale ``z = atanh(rho)``, with the covariance that their influence functions have over the questions,

    V_ab = sum over i of IF_a,i IF_b,i / (n_a n_b),

zero where a question is not scored under one of the two. The same covariance gives the test of whether the prompts
share one index at all.

Where questions come in clusters or with weights, the prompts keep the weights of independent questions, which rest on
more than a few clusters, and the variance of the estimate that these make is the clustered one. The test of homogeneity
is then Hotelling's.

Simulated coverage of the 95 % interval for four prompts at 1,000 or 4,326 questions is .94 to .96 on the scale of z,
.92 to .96 on that of rho or of the index. Prompts taken for independent cover .76 to .86.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.comparison.metric_influence import fewest_degrees_of_freedom, scaled
from refusal_index.stats.copulas.moments import inverse_correlation
from refusal_index.stats.design import ONE_CLUSTER, SamplingDesign, student_quantile
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Status
from refusal_index.stats.index import RefusalIndexResult, refusal_index
from refusal_index.stats.influence import cell_influence, spearman, spearman_slope_in_z
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.matrices import BoolArray, checked_matrices
from refusal_index.stats.sampled_table import tables_of_rows


@dataclass(frozen=True, slots=True)
class HomogeneityTest:
    """Whether the prompts share one rho: chi-squared of what the joint estimate leaves over.

    Attributes
    ----------
    statistic : float or None
        Squared distance of the prompts' estimates from the joint one, in their covariance. None where undefined.
    degrees_of_freedom : int or None
        Prompts that say something new, less one.
    pvalue : float or None
        Probability of a statistic as large if all prompts have the same rho. None where undefined.
    status : {"ok", "undefined"}
        Undefined where there is nothing to compare.
    reason : str or None
        ``"fewer_than_two_variants"``, ``"variants_repeat_each_other"`` if all have the same outcomes, or
        ``"fewer_clusters_than_variants"``.
    """

    statistic: float | None
    degrees_of_freedom: int | None
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
        Standard error of `estimate`. None unless the status is ``"ok"``.
    status : {"ok", "boundary", "undefined"}
        ``"ok"`` if at least one variant is; see `left_out` for those that are not. ``"boundary"``: all variants that
        are defined are at the same end.
    reason : str or None
        ``"all_variants_at_boundary"``; or where undefined ``"no_variants"``, ``"all_variants_undefined"``,
        ``"variants_at_both_ends"``, ``"one_cluster"``.
    homogeneity : HomogeneityTest
        Whether the variants share one index.
    variants : tuple of RefusalIndexResult
        One a row, those left out included.
    weights : tuple of float or None
        Weight of each row's ``atanh(rho)`` in the joint one; they add up to 1, can be negative, and are None for a row
        left out.
    """

    estimate: float | None
    rho: float | None
    standard_error: float | None
    status: Status
    reason: str | None
    homogeneity: HomogeneityTest
    variants: tuple[RefusalIndexResult, ...]
    weights: tuple[float | None, ...]
    _degrees_of_freedom: float | None = field(default=None, repr=False)

    @property
    def left_out(self) -> dict[int, str]:
        """Rows at the boundary or undefined, each with its reason: they have no influence function to enter by."""
        return {row: variant.reason or "" for row, variant in enumerate(self.variants) if variant.status != "ok"}

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Confidence interval of the joint Refusal Index: a normal or Student's one for ``atanh(rho)``, transformed.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            ``(nan, nan)`` unless the status is ``"ok"``.
        """
        normal_quantile(confidence_level)
        if self.rho is None or self.standard_error is None:
            return NO_INTERVAL
        quantile = student_quantile(confidence_level, self._degrees_of_freedom)
        z, reach = math.atanh(self.rho), quantile * self.standard_error / spearman_slope_in_z(self.rho)
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
    Generalised least squares gives the smallest variance, not an average: where two variants are nearly the same,
    weights can be negative, and the joint estimate can lie outside the variants' estimates by about as much as those
    differ. A variant with the same outcomes as another counts once. Leaving a variant at +1 or -1 out, which takes an
    empty cell, pulls the joint estimate away from that end; it matters where cells are expected to be nearly empty.

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
    (0.475, 0.02, 0.7)
    """
    matrices = checked_matrices(refused, wrong, scored)
    design = SamplingDesign.of(matrices[0].shape[1], cluster, weight)
    matrices = matrices if design is None else design.taking_part(matrices)
    variants = tuple(refusal_index(table) for table in tables_of_rows(matrices, design))
    kept = [row for row, variant in enumerate(variants) if variant.status == "ok"]
    if not kept:
        return _without_estimate(variants)
    z = np.array([math.atanh(variants[row].rho or 0.0) for row in kept])
    influence = np.stack([_influence_on_z(variants[row], *(matrix[row] for matrix in matrices)) for row in kept])
    clustered = None
    if design is not None:
        by_question = influence * np.array([[variants[row].table.n] for row in kept])
        influence = scaled(by_question, matrices[2][kept], design.without_clusters())
        clustered = scaled(by_question, matrices[2][kept], design), fewest_degrees_of_freedom(matrices[2][kept], design)
    return _combine(variants, kept, z, influence, clustered)


def _influence_on_z(variant: RefusalIndexResult, refused: BoolArray, wrong: BoolArray, scored: BoolArray) -> FloatArray:
    """Influence of each question on atanh(rho) over the number of questions scored, 0 for the others."""
    rho = variant.rho or 0.0
    by_cell = np.array(cell_influence(variant.table, rho)) / ((1 - rho) * (1 + rho) * variant.table.n)
    return np.asarray(by_cell[2 * ~refused + ~wrong] * scored)


def _combine(
    variants: tuple[RefusalIndexResult, ...],
    kept: list[int],
    z: FloatArray,
    influence: FloatArray,
    clustered: tuple[FloatArray, float | None] | None,
) -> JointRefusalIndexResult:
    inverse, rank = _inverse(influence @ influence.T)
    information = inverse.sum()
    weights = inverse.sum(axis=0) / information
    mean = float(weights @ z)
    rho, error = math.tanh(mean), 1 / math.sqrt(information)
    homogeneity = _homogeneity(_left_over(z, inverse), len(kept), rank, None)
    degrees_of_freedom = None
    if clustered is not None:
        sums, degrees_of_freedom = clustered
        error = float(np.linalg.norm(weights @ sums))
        inverse, rank = _inverse(sums @ sums.T)
        homogeneity = _homogeneity(_left_over(z, inverse), len(kept), rank, degrees_of_freedom)
    by_row = dict(zip(kept, weights.tolist(), strict=True))
    return JointRefusalIndexResult(
        spearman(rho),
        rho,
        error * spearman_slope_in_z(rho),
        "ok",
        None,
        homogeneity,
        variants,
        tuple(by_row.get(row) for row in range(len(variants))),
        degrees_of_freedom,
    )


def _inverse(covariance: FloatArray) -> tuple[FloatArray, int]:
    deviation = np.sqrt(np.diagonal(covariance))
    correlation, rank = inverse_correlation(covariance)
    return correlation / np.outer(deviation, deviation), int(rank)


def _left_over(z: FloatArray, inverse: FloatArray) -> float:
    """Squared distance of estimates from their common value, in the covariance that has this inverse."""
    distance = z - float(inverse.sum(axis=0) / inverse.sum() @ z)
    return float(distance @ inverse @ distance)


def _homogeneity(statistic: float, n_variants: int, rank: int, degrees_of_freedom: float | None) -> HomogeneityTest:
    if n_variants < 2:
        return HomogeneityTest(None, None, None, "undefined", "fewer_than_two_variants")
    if rank < 2:
        return HomogeneityTest(None, None, None, "undefined", "variants_repeat_each_other")
    if degrees_of_freedom is None:
        return HomogeneityTest(statistic, rank - 1, float(special.chdtrc(rank - 1, statistic)), "ok", None)
    left = degrees_of_freedom - rank + 2
    if left < 1 or n_variants > degrees_of_freedom:
        return HomogeneityTest(None, None, None, "undefined", "fewer_clusters_than_variants")
    ratio = statistic * left / (degrees_of_freedom * (rank - 1))
    return HomogeneityTest(statistic, rank - 1, float(special.fdtrc(rank - 1, left, ratio)), "ok", None)


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
    return JointRefusalIndexResult(end, end, None, status, reason, _homogeneity(0.0, 0, 0, None), variants, nothing)
