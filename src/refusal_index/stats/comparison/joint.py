r"""One Refusal Index of a model from several prompts over the same questions.

Answers to the same question under different prompts are not independent, so that the tables of the prompts must not be
added up, nor their estimates averaged as if they were. The estimates are combined by generalised least squares on
Fisher's scale ``z = atanh(rho)``, with the covariance that their influence functions have over the questions,

    V_ab = sum over i of IF_a,i IF_b,i / (n_a n_b),

zero where a question is not scored under one of the two. The same covariance gives the test of whether the prompts
share one index at all.

Simulated coverage of the 95 % interval for four prompts at 1,000 or 4,326 questions is .94 to .96 on the scale of z,
.92 to .96 on that of rho or of the index. Prompts taken for independent cover .76 to .86.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.copulas.moments import inverse_correlation
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Status
from refusal_index.stats.index import RefusalIndexResult, refusal_index
from refusal_index.stats.influence import cell_influence, spearman, spearman_slope_in_z
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.matrices import BoolArray, checked_matrices, row_tables


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
        ``"fewer_than_two_variants"``, or ``"variants_repeat_each_other"`` if all have the same outcomes.
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
        ``"variants_at_both_ends"``.
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

    @property
    def left_out(self) -> dict[int, str]:
        """Rows at the boundary or undefined, each with its reason: they have no influence function to enter by."""
        return {row: variant.reason or "" for row, variant in enumerate(self.variants) if variant.status != "ok"}

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Confidence interval of the joint Refusal Index: a normal one for ``atanh(rho)``, transformed.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            ``(nan, nan)`` unless the status is ``"ok"``.
        """
        quantile = normal_quantile(confidence_level)
        if self.rho is None or self.standard_error is None:
            return NO_INTERVAL
        z, reach = math.atanh(self.rho), quantile * self.standard_error / spearman_slope_in_z(self.rho)
        return ConfidenceInterval(spearman(math.tanh(z - reach)), spearman(math.tanh(z + reach)))


def joint_refusal_index(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None
) -> JointRefusalIndexResult:
    """Estimate one Refusal Index from several prompts of a model over the same questions.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (k, n)
        One row a prompt variant, one column a question; as for `ContingencyTable.from_arrays`.
    scored : array_like of bool, shape (k, n), optional
        False where a variant has no grade for a question; all True if not given.

    Returns
    -------
    JointRefusalIndexResult
        A variant at the boundary or undefined is left out and named in `left_out`. With one variant left the joint
        estimate is its own, and the homogeneity undefined.

    Raises
    ------
    TypeError, ValueError
        If the matrices are not truth values of one shape.

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
    variants = tuple(refusal_index(table) for table in row_tables(*matrices))
    kept = [row for row, variant in enumerate(variants) if variant.status == "ok"]
    if not kept:
        return _without_estimate(variants)
    z = np.array([math.atanh(variants[row].rho or 0.0) for row in kept])
    influence = np.stack([_influence_on_z(variants[row], *(matrix[row] for matrix in matrices)) for row in kept])
    return _combine(variants, kept, z, influence @ influence.T)


def _influence_on_z(variant: RefusalIndexResult, refused: BoolArray, wrong: BoolArray, scored: BoolArray) -> FloatArray:
    """Influence of each question on atanh(rho) over the number of questions scored, 0 for the others."""
    rho = variant.rho or 0.0
    by_cell = np.array(cell_influence(variant.table, rho)) / ((1 - rho) * (1 + rho) * variant.table.n)
    return np.asarray(by_cell[2 * ~refused + ~wrong] * scored)


def _combine(
    variants: tuple[RefusalIndexResult, ...], kept: list[int], z: FloatArray, covariance: FloatArray
) -> JointRefusalIndexResult:
    deviation = np.sqrt(np.diagonal(covariance))
    correlation, rank = inverse_correlation(covariance)
    inverse = correlation / np.outer(deviation, deviation)
    information = inverse.sum()
    weights = inverse.sum(axis=0) / information
    mean = float(weights @ z)
    rho, error = math.tanh(mean), 1 / math.sqrt(information)
    left_over = float((z - mean) @ inverse @ (z - mean))
    by_row = dict(zip(kept, weights.tolist(), strict=True))
    return JointRefusalIndexResult(
        spearman(rho),
        rho,
        error * spearman_slope_in_z(rho),
        "ok",
        None,
        _homogeneity(left_over, len(kept), int(rank)),
        variants,
        tuple(by_row.get(row) for row in range(len(variants))),
    )


def _homogeneity(statistic: float, n_variants: int, rank: int) -> HomogeneityTest:
    if n_variants < 2:
        return HomogeneityTest(None, None, None, "undefined", "fewer_than_two_variants")
    if rank < 2:
        return HomogeneityTest(None, None, None, "undefined", "variants_repeat_each_other")
    return HomogeneityTest(statistic, rank - 1, float(special.chdtrc(rank - 1, statistic)), "ok", None)


def _without_estimate(variants: tuple[RefusalIndexResult, ...]) -> JointRefusalIndexResult:
    ends = {variant.estimate for variant in variants if variant.status == "boundary"}
    end: float | None = None
    status: Status = "undefined"
    if len(ends) == 1:
        end, status, reason = ends.pop(), "boundary", "all_variants_at_boundary"
    elif ends:
        reason = "variants_at_both_ends"
    else:
        reason = "all_variants_undefined" if variants else "no_variants"
    nothing = (None,) * len(variants)
    return JointRefusalIndexResult(end, end, None, status, reason, _homogeneity(0.0, 0, 0), variants, nothing)
