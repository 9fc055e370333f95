"""Models compared by their joint Refusal Index over the same prompts.

The joint index of a model is a weighted mean of its prompts' estimates on the scale of ``atanh(rho)``, so that its
influence function is the same mean of theirs; models over the same questions are compared by the differences of these,
as runs of a single prompt are. The weights are taken as known: they change the estimate only in second order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.arguments import check_rows
from refusal_index.stats.comparison.joint import JointRefusalIndexResult, joint_refusal_index
from refusal_index.stats.comparison.metric_influence import (
    ROUNDING,
    difference_error,
    fewest_degrees_of_freedom,
    point_estimate,
    scaled_influence,
)
from refusal_index.stats.comparison.pair import difference_pvalue, units_shared
from refusal_index.stats.comparison.ranking import RESAMPLES, Adjustment, RankedRun, Ranking, rank_estimates
from refusal_index.stats.design import SamplingDesign, student_quantile
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Status, reasons_of
from refusal_index.stats.influence import spearman_slope_in_z
from refusal_index.stats.intervals import Seed, normal_quantile
from refusal_index.stats.matrices import BoolArray, cell_codes, checked_matrices


@dataclass(frozen=True, slots=True)
class JointDifference:
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
    estimate: float | None
    standard_error: float | None
    pvalue: float | None
    status: Status
    reason: str | None
    _degrees_of_freedom: float | None = field(default=None, repr=False)

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return the normal or Student's interval of the difference; both ends are NaN where it has no standard error.

        Where the models differ by nothing on any question, the intervals of both are combined by square-and-add: one of
        no width would claim certainty.
        """
        normal_quantile(confidence_level)
        if self.estimate is None or self.standard_error is None:
            return NO_INTERVAL
        if self.standard_error == 0:
            return self._square_and_add(confidence_level)
        reach = student_quantile(confidence_level, self._degrees_of_freedom) * self.standard_error
        return ConfidenceInterval(self.estimate - reach, self.estimate + reach)

    def _square_and_add(self, confidence_level: float) -> ConfidenceInterval:
        (low_1, high_1), (low_2, high_2) = (
            (end - (one.estimate or 0.0) for end in one.confidence_interval(confidence_level, prompts="fixed"))
            for one in (self.first, self.second)
        )
        estimate = self.estimate or 0.0
        return ConfidenceInterval(estimate - math.hypot(low_1, high_2), estimate + math.hypot(high_1, low_2))


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
        return JointDifference(first, second, estimate, None, None, status, reasons_of(first, second))
    alone = None if design is None else _influence(arrays, (first, second), design.without_clusters())
    independent = None if alone is None else (alone[0], alone[1])
    one, other = _influence(arrays, (first, second), design)
    error = difference_error(one, other, independent)
    asked = np.asarray(arrays[2].any(axis=1))
    degrees_of_freedom = fewest_degrees_of_freedom(asked, design)
    estimate = 0.0 if estimate is None or abs(estimate) <= ROUNDING else estimate
    pvalue = difference_pvalue(estimate, error, units_shared(asked, design), degrees_of_freedom)
    if error == 0:
        return JointDifference(first, second, estimate, error, pvalue, "boundary", "constant_difference")
    return JointDifference(first, second, estimate, error, pvalue, "ok", None, degrees_of_freedom)


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
    described = [_described(row, result, confidence_level) for row, result in enumerate(results)]
    return rank_estimates(
        "refusal_index",
        described,
        _influence(arrays, results, design),
        np.asarray(arrays[2].any(axis=1)),
        confidence_level=confidence_level,
        adjustment=adjustment,
        n_resamples=n_resamples,
        rng=rng,
        design=design,
        independent=None if design is None else _influence(arrays, results, design.without_clusters()),
    )


def _described(row: int, result: JointRefusalIndexResult, confidence_level: float) -> RankedRun:
    low, high = result.confidence_interval(confidence_level).or_none()
    return RankedRun(row, result.estimate, low, high, result.status, result.reason, "")


def _checked_models(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None,
    cluster: ArrayLike | None,
    weight: ArrayLike | None,
) -> tuple[tuple[BoolArray, BoolArray, BoolArray], SamplingDesign | None]:
    """Check arrays of shape (k, v, n) as `checked_matrices` does those of shape (k, n), and their questions."""
    for name, values in (("refused", refused), ("wrong", wrong), ("scored", scored)):
        check_rows(name, values)
    shape = np.shape(refused)
    if len(shape) != 3:
        raise ValueError(
            f"refused must be three-dimensional, models by prompts by questions, got shape {shape}; "
            "for one prompt each use compare_metrics or rank_runs"
        )
    for name, values in (("wrong", wrong), ("scored", scored)):
        if values is not None and np.shape(values) != shape:
            raise ValueError(
                f"{name} must have the shape of refused, {shape}, got {np.shape(values)}; was it filtered?"
            )
    rows = (-1, shape[2])
    flat = checked_matrices(
        np.reshape(refused, rows), np.reshape(wrong, rows), None if scored is None else np.reshape(scored, rows)
    )
    design = SamplingDesign.of(shape[2], cluster, weight)
    r, w, s = (matrix.reshape(shape) for matrix in (flat if design is None else design.taking_part(flat)))
    return (r, w, s), design


def _influence(
    arrays: tuple[BoolArray, BoolArray, BoolArray],
    results: Sequence[JointRefusalIndexResult],
    design: SamplingDesign | None,
) -> FloatArray:
    """Scaled influence of each question, or cluster, on every model's joint index."""
    rows = [_joint_influence(r, w, s, result, design) for r, w, s, result in zip(*arrays, results, strict=True)]
    return np.array(rows).reshape(len(results), -1)


def _joint_influence(
    refused: BoolArray,
    wrong: BoolArray,
    scored: BoolArray,
    joint: JointRefusalIndexResult,
    design: SamplingDesign | None,
) -> FloatArray:
    if joint.rho is None or joint.status != "ok":
        return np.full(refused.shape[1] if design is None else design.clusters.max(initial=-1) + 1, np.nan)
    kept = [row for row, weight in enumerate(joint.weights) if weight is not None]
    points = [point_estimate("refusal_index", joint.variants[row].table) for row in kept]
    on_index = scaled_influence(points, cell_codes(refused[kept], wrong[kept], scored[kept]), design)
    weights = [(joint.weights[row] or 0.0) / spearman_slope_in_z(joint.variants[row].rho or 0.0) for row in kept]
    return np.asarray(spearman_slope_in_z(joint.rho) * (np.array(weights) @ on_index))


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
    return _influence(arrays, [joint_refusal_index(*model) for model in zip(*arrays, strict=True)], None)
