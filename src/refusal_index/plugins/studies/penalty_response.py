"""Whether a model refuses as its stated penalty asks: along its own curve, too little or too much.

A prompt can say what a wrong answer costs: right 1, wrong ``-t / (1 - t)``, declined 0, so that answering pays above a
confidence of t. Several such prompts over the same questions move the threshold of one latent refusal score, and how
far they should move it follows from the score itself: with the joint rho of the prompts and the error rate mu under
forced answering, the refusal rate that earns most is that of `best_refusal_rate`. The response is what the model does
beside that.

- The curve is one for all prompts: rho is the joint estimate on Fisher's scale, mu the share of wrong forced answers
  over all of them. It is the curve of single responses, since a single reply is what earns points.
- What is attainable is the utility at the best point of that curve: what the model's own order of the questions would
  earn, were its threshold placed where the rule says. Scores of confidence may order them better: they have a curve
  of their own.

Intervals of what rests on the curve are percentiles over resampled questions, all prompts of a question together; the
weights of the prompts in the joint rho stay as they were found. Those of rates are Wilson's, and that of the own move
is paired. A difference from the best takes its interval from those of its two sides by the method of variance estimates
recovery [1]_, as if they were independent: unlike percentiles it does not shrink to nothing where all or no questions
are refused. Simulated coverage at 400 and 2,000 questions is .92 to 1.

References
----------
.. [1] Zou, G. Y. and Donner, A. (2008). Construction of confidence limits about effect measures: a general approach.
   Statistics in Medicine, 27, 1693-1702. :doi:`10.1002/sim.3095`
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.plugins.studies.curves import best_refusal_rate, utility_at
from refusal_index.stats.arguments import FloatArray
from refusal_index.stats.comparison.joint import JointRefusalIndexResult, joint_refusal_index
from refusal_index.stats.comparison.pair import compare_metrics
from refusal_index.stats.contingency import ContingencyTable, cell_codes, checked_matrices, row_tables
from refusal_index.stats.curves import penalty_from_confidence, utility
from refusal_index.stats.estimate import Estimate, square_and_add
from refusal_index.stats.estimator import tetrachoric
from refusal_index.stats.intervals import Seed, checked_resamples, normal_quantile, proportion

RESAMPLES = 2000
AT_ONCE = 250
"""Resamples whose questions are held in memory together."""

LARGEST_RHO = 1 - 1e-6
"""What a resample with an empty cell counts as, where it is one of several prompts."""


@dataclass(frozen=True, slots=True)
class PenaltyPoint:
    """What a model does under one stated target, and what would have earned most.

    Attributes
    ----------
    target, penalty : float
        t, and what a wrong answer costs by it.
    table : ContingencyTable
    refusal_rate, utility : Estimate
        What it does, and what that earns a question at this penalty.
    best_refusal_rate, best_utility : Estimate
        The point of its curve that earns most, and what it earns; undefined where there is no curve.
    excess : Estimate
        Refusal rate less the best one.
    """

    target: float
    penalty: float
    table: ContingencyTable
    refusal_rate: Estimate
    utility: Estimate
    best_refusal_rate: Estimate
    best_utility: Estimate
    excess: Estimate


@dataclass(frozen=True, slots=True)
class PenaltyResponse:
    """How a model answers to stated penalties.

    Attributes
    ----------
    points : tuple of PenaltyPoint
        One a target, in rising order.
    move, best_move, move_excess : Estimate
        Refusal rate at the highest target less that at the lowest: its own, that of the best points, and the first less
        the second.
    rho, error_rate : float or None
        Of the curve; None where there is none.
    """

    points: tuple[PenaltyPoint, ...]
    move: Estimate
    best_move: Estimate
    move_excess: Estimate
    rho: float | None
    error_rate: float | None


def response_to_penalty(
    refused: ArrayLike,
    wrong: ArrayLike,
    targets: Sequence[float],
    scored: ArrayLike | None = None,
    *,
    confidence_level: float = 0.95,
    n_resamples: int = RESAMPLES,
    rng: Seed = None,
) -> PenaltyResponse:
    """Hold the refusals under stated confidence targets against those that would have earned most.

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (k, n)
        One row a prompt, one column a question; as for `joint_refusal_index`.
    targets : sequence of k floats in [0, 1)
        What each prompt states; no two alike.
    scored : array_like of bool, shape (k, n), optional
        False where a prompt has no grade for a question; all True if not given.
    confidence_level : float in (0, 1), default: 0.95
    n_resamples : int, default: 2000
    rng : int or numpy.random.Generator, optional

    Returns
    -------
    PenaltyResponse
        What rests on the curve is undefined where no prompt has a Refusal Index, for the reason that they have.

    Raises
    ------
    TypeError, ValueError
        If the matrices are not truth values of one shape, or the targets are not k different numbers in [0, 1).

    References
    ----------
    .. [1] Kalai et al. (2025), as cited in `penalty_from_confidence`. Behavioural calibration under explicit confidence
       targets. :arxiv:`2509.04664`

    Examples
    --------
    >>> rng = np.random.default_rng(5)
    >>> refusal, noise = rng.standard_normal((2, 4000))
    >>> wrong = np.tile(0.6 * refusal + 0.8 * noise > 0, (2, 1))
    >>> refused = refusal > np.array([[1.5], [0.5]])
    >>> found = response_to_penalty(refused, wrong, [0.0, 0.75], rng=1)
    >>> for point in found.points:
    ...     print(point.target, *(f"{rate.estimate:.2f}" for rate in (point.refusal_rate, point.best_refusal_rate)))
    0.0 0.07 0.00
    0.75 0.32 0.83
    >>> print(f"{found.move_excess.estimate:.2f} [{found.move_excess.low:.2f}, {found.move_excess.high:.2f}]")
    -0.58 [-0.61, -0.55]
    """
    normal_quantile(confidence_level)
    checked_resamples(n_resamples)
    matrices = checked_matrices(refused, wrong, scored)
    order, stated = _checked_targets(targets, len(matrices[0]))
    matrices = matrices[0][order], matrices[1][order], matrices[2][order]
    tables, penalties = row_tables(*matrices), np.atleast_1d(penalty_from_confidence(stated))
    joint = joint_refusal_index(*matrices)
    # Equal weights where all prompts that are defined are at the boundary.
    weights = np.array([weight or 0.0 for weight in joint.weights])
    weights = weights if weights.any() else np.array([float(one.rho is not None) for one in joint.variants])
    counts = np.array([table.counts for table in tables], float)
    best, worth = _best(counts, weights, penalties)
    drawn = _resampled(cell_codes(*matrices), weights, penalties, n_resamples, np.random.default_rng(rng))
    curve = _Curve(best, worth, *drawn, confidence_level, None if np.isfinite(best).any() else _why(joint))
    ends = compare_metrics(*(matrix[[-1, 0]] for matrix in matrices))["refusal_rate"]
    move, best_move = Estimate.of(ends, ends.confidence_interval(confidence_level)), curve.move()
    return PenaltyResponse(
        tuple(_point(k, float(stated[k]), float(penalties[k]), table, curve) for k, table in enumerate(tables)),
        move,
        best_move,
        _less(move, best_move),
        None if curve.reason else math.tanh(float(_joint_z(counts, weights))),
        None if curve.reason else float(_error_rate(counts)),
    )


@dataclass(frozen=True, slots=True)
class _Curve:
    """The best points of a curve, one a target, and those of resampled questions."""

    best: FloatArray
    worth: FloatArray
    best_drawn: FloatArray
    worth_drawn: FloatArray
    confidence_level: float
    reason: str | None  # why there is no curve

    def rate(self, k: int) -> Estimate:
        return self._estimate(self.best[k], self.best_drawn[:, k])

    def utility(self, k: int) -> Estimate:
        return self._estimate(self.worth[k], self.worth_drawn[:, k])

    def move(self) -> Estimate:
        return self._estimate(self.best[-1] - self.best[0], self.best_drawn[:, -1] - self.best_drawn[:, 0])

    def _estimate(self, value: float, draws: FloatArray) -> Estimate:
        if math.isnan(value):
            return Estimate(None, status="undefined", reason=self.reason)
        low, high = np.nanquantile(draws, [(1 - self.confidence_level) / 2, (1 + self.confidence_level) / 2])
        return Estimate(float(value), float(low), float(high))


def _point(k: int, target: float, penalty: float, table: ContingencyTable, curve: _Curve) -> PenaltyPoint:
    undefined, quantile = None if table.n else "no_questions", normal_quantile(curve.confidence_level)
    own = proportion("refusal_rate", table.n_refused, table.n, quantile, undefined)
    best_rate = curve.rate(k)
    return PenaltyPoint(
        target=target,
        penalty=penalty,
        table=table,
        refusal_rate=own,
        utility=utility(table, penalty, confidence_level=curve.confidence_level),
        best_refusal_rate=best_rate,
        best_utility=curve.utility(k),
        excess=_less(own, best_rate),
    )


def _checked_targets(targets: Sequence[float], k: int) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the order that makes targets rise, and the targets in it."""
    given = np.asarray(targets, float)
    if given.shape != (k,) or k < 2 or np.unique(given).size < k or not ((given >= 0) & (given < 1)).all():
        raise ValueError(
            f"targets must be {max(k, 2)} different confidences in [0, 1), one a row of at least two, got {targets!r}; "
            "are they in per cent?"
        )
    order = np.argsort(given)
    return order, given[order]


def _joint_z(counts: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted mean of atanh(rho) over the prompts of tables of counts, shape (..., k, 4); NaN where none has a rho."""
    rho = tetrachoric(*np.moveaxis(counts, -1, 0))
    defined = np.isfinite(rho)
    # Few of the resampled tables lie at the boundary, where atanh is infinite; a curve of rho 1 - 1e-6 is that of 1.
    z = np.arctanh(np.clip(np.where(defined, rho, 0.0), -LARGEST_RHO, LARGEST_RHO))
    held = np.where(defined, weights, 0.0)
    total = held.sum(axis=-1)
    return np.asarray(np.divide((held * z).sum(axis=-1), total, out=np.full(total.shape, np.nan), where=total > 0))


def _error_rate(counts: FloatArray) -> FloatArray:
    sizes = counts.sum(axis=(-1, -2))
    wrong = (counts[..., 0] + counts[..., 2]).sum(axis=-1)
    return np.asarray(np.divide(wrong, sizes, out=np.full(sizes.shape, np.nan), where=sizes > 0))


def _best(counts: FloatArray, weights: FloatArray, penalties: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the best refusal rates and what they earn, shape (..., k), of tables of counts, shape (..., k, 4)."""
    rho, mu = np.tanh(_joint_z(counts, weights)), _error_rate(counts)
    known = np.isfinite(rho) & np.isfinite(mu)
    best, worth = np.full(counts.shape[:-1], np.nan), np.full(counts.shape[:-1], np.nan)
    for k, penalty in enumerate(penalties.tolist()):
        rates = best_refusal_rate(rho[known], mu[known], penalty)
        best[known, k] = rates
        worth[known, k] = utility_at(rates, rho[known], mu[known], penalty)
    return best, worth


def _resampled(
    codes: NDArray[np.intp], weights: FloatArray, penalties: FloatArray, n_resamples: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Do the same over resampled questions, shape (n_resamples, k)."""
    patterns, sizes = np.unique(codes, axis=1, return_counts=True)
    cells = (patterns[:, :, np.newaxis] == np.arange(4)).transpose(1, 0, 2).astype(float)
    if not sizes.size:
        return 2 * (np.full((n_resamples, len(penalties)), np.nan),)
    shares, parts = sizes / sizes.sum(), []
    for start in range(0, n_resamples, AT_ONCE):
        drawn = rng.multinomial(int(sizes.sum()), shares, size=min(AT_ONCE, n_resamples - start))
        parts.append(_best(np.tensordot(drawn.astype(float), cells, axes=1), weights, penalties))
    best, worth = (np.concatenate(each) for each in zip(*parts, strict=True))
    return best, worth


def _less(first: Estimate, second: Estimate) -> Estimate:
    """Subtract estimates, with an interval made of theirs."""
    undefined = next((one.reason for one in (first, second) if one.estimate is None), None)
    if first.estimate is None or second.estimate is None:
        return Estimate(None, status="undefined", reason=undefined)
    return Estimate(first.estimate - second.estimate, *square_and_add(first, second))


def _why(joint: JointRefusalIndexResult) -> str:
    """Return the reason that all prompts share, else that of the joint estimate."""
    reasons = {one.reason for one in joint.variants}
    return (reasons.pop() if len(reasons) == 1 else joint.reason) or "undefined"
