"""Two models compared by their corrected Refusal Indices.

Sampling noise changes RI, and changes it more the more random a model is. Two models of which one is more random can so
differ in RI although their corrected indices are the same. The influences of both are matched question by question, so
that what makes a question hard for both is taken out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import ndtr

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.comparison.ranking import (
    RESAMPLES,
    Adjustment,
    RankedRun,
    Ranking,
    boundary_pairs,
    pairs_at_boundary,
    rank_estimates,
)
from refusal_index.stats.design import student_quantile, student_tails
from refusal_index.stats.draws.noise import CorrectedRefusalIndexResult
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Status, reasons_of
from refusal_index.stats.influence import spearman_slope
from refusal_index.stats.intervals import Seed, normal_quantile

# The p-value there is 1e-15: nothing is gained by looking further.
LARGEST_QUANTILE = 8.0
STEPS, HALVINGS = 32, 40
NO_DIFFERENCE = 1e-12


@dataclass(frozen=True, slots=True)
class CorrectedDifference:
    """By how much the corrected Refusal Index of the first model exceeds that of the second.

    Attributes
    ----------
    first, second : CorrectedRefusalIndexResult
        Of either model.
    estimate : float or None
        ``first - second``, in [-2, 2]; None where either is undefined.
    pvalue : float or None
        Of the hypothesis that there is no difference, two-sided: the level at which the interval just reaches 0. None
        where either is undefined or has no interval, as of a single cluster.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: that of an estimate is not ``"ok"``, or the models differ by nothing on any question.
    reason : str or None
        Why the status is not ``"ok"``: ``"first:"`` or ``"second:"`` with that model's reason, or both with ``";"``
        between them; or ``"constant_difference"``, as where both models have the same draws.
    n_shared : int
        Questions with two draws or more of both models.
    """

    first: CorrectedRefusalIndexResult
    second: CorrectedRefusalIndexResult
    estimate: float | None
    pvalue: float | None
    status: Status
    reason: str | None
    n_shared: int
    _correlation: float = field(repr=False, compare=False)

    @property
    def reliability_pvalue(self) -> float | None:
        """P-value of the hypothesis that both models are equally random: that their `reliability` is the same.

        Two-sided, by the normal distribution, or Student's with clusters or weights. None where either is undefined or
        both are the same, as of two models that always give the same response.
        """
        parts = self.first._quotient, self.second._quotient
        if (
            self.first.reliability == self.second.reliability
            or parts[0] is None
            or parts[1] is None
            or parts[0].influence.shape != parts[1].influence.shape
        ):
            return None
        error = float(np.linalg.norm(parts[0].influence[1] - parts[1].influence[1]))
        if not 0 < error < math.inf:
            return None
        quantile, freedom = abs(parts[0].scale - parts[1].scale) / error, _degrees_of_freedom(self.first, self.second)
        return float(2 * ndtr(-quantile)) if freedom is None else student_tails(quantile, freedom)

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Square-and-add of both models' own intervals, with the correlation of the two estimates.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            In [-2, 2]. Both ends NaN where there is no p-value, and where the difference is constant: an interval of no
            width would claim certainty.
        """
        normal_quantile(confidence_level)
        if self.pvalue is None or self.reason == "constant_difference":
            return NO_INTERVAL
        quantile = student_quantile(confidence_level, _degrees_of_freedom(self.first, self.second))
        return _square_and_add(self.first, self.second, self._correlation, quantile)


def compare_corrected(first: CorrectedRefusalIndexResult, second: CorrectedRefusalIndexResult) -> CorrectedDifference:
    """Compare two models by their corrected Refusal Indices.

    Parameters
    ----------
    first, second : CorrectedRefusalIndexResult
        Of either model, made of matrices whose columns are the same questions. For models over different questions
        give each the columns of both, scored where it was asked: they then count as independent.

    Returns
    -------
    CorrectedDifference

    Raises
    ------
    ValueError
        If the two were made of other numbers of columns.

    Notes
    -----
    With two draws of 800 questions, of 200 of 1,000 or of 400 of 4,326, indices of .582, refusal and error rates of .5
    and .5, .4 and .55 or .74 and .9, and slopes of 3 and 1 or 6 and 2, the interval covers the difference in .94 to
    .965 of the samples, paired or not, while the test of RI rejects equality in .71 to 1
    (`benchmarks/coverage/corrected_difference.py`).

    References
    ----------
    .. [1] Spearman (1904). :doi:`10.2307/1412159`
    .. [2] Zou and Donner (2008). :doi:`10.1002/sim.3095`

    Examples
    --------
    >>> from refusal_index.stats import corrected_refusal_index
    >>> rng = np.random.default_rng(1)
    >>> x = rng.standard_normal(4000)
    >>> y = 0.6 * x + 0.8 * rng.standard_normal(4000)
    >>> steady, random = ([b * z + rng.standard_normal((2, 4000)) > 0 for z in (x, y)] for b in (3, 1))
    >>> results = [corrected_refusal_index(*draws) for draws in (steady, random)]
    >>> difference = compare_corrected(*results)
    >>> round(results[0].uncorrected - results[1].uncorrected, 2), round(difference.estimate, 2)
    (0.24, -0.01)
    >>> difference.pvalue > 0.5
    True
    """
    parts = first._quotient, second._quotient
    if parts[0] is None or parts[1] is None or first.estimate is None or second.estimate is None:
        return CorrectedDifference(first, second, None, None, "undefined", reasons_of(first, second), 0, 0.0)
    if parts[0].influence.shape != parts[1].influence.shape:
        one, other = (part.influence.shape[1] for part in (parts[0], parts[1]))
        raise ValueError(
            f"first and second must be made of the same questions as columns, got {one} and {other} of them; "
            "give the columns of both and mark in scored what a model was not asked"
        )
    estimate = first.estimate - second.estimate
    influence = np.stack([_on_index(one) for one in (first, second)])
    covariance = influence @ influence.T
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    reason = reasons_of(first, second)
    shared = int(np.count_nonzero(parts[0].repeated & parts[1].repeated))
    if estimate == 0 and variance <= 1e-14 * covariance.trace():
        return CorrectedDifference(first, second, estimate, 1.0, "boundary", "constant_difference", shared, 1.0)
    if not np.isfinite(covariance).all():
        return CorrectedDifference(first, second, estimate, None, "boundary", reason, shared, 0.0)
    scale = math.sqrt(covariance[0, 0] * covariance[1, 1])
    correlation = float(covariance[0, 1] / scale) if scale > 0 else 0.0
    pvalue = _pvalue(first, second, correlation, estimate)
    status: Status = "boundary" if reason else "ok"
    return CorrectedDifference(first, second, estimate, pvalue, status, reason, shared, correlation)


def rank_corrected(
    results: Sequence[CorrectedRefusalIndexResult],
    *,
    confidence_level: float = 0.95,
    adjustment: Adjustment = "max-t",
    n_resamples: int = RESAMPLES,
    rng: Seed = None,
) -> Ranking:
    """Rank models by their corrected Refusal Indices, as `rank_runs` ranks by RI.

    Parameters
    ----------
    results : sequence of CorrectedRefusalIndexResult
        Two models or more, made of matrices whose columns are the same questions.
    confidence_level, adjustment, n_resamples, rng
        As for `rank_runs`.

    Returns
    -------
    Ranking

    Raises
    ------
    ValueError
        If there are fewer than two models, their columns differ in number, or another argument is not as described.

    Notes
    -----
    A false difference is found among eight models of one index and slopes from 1 to 8 in .06 of the samples by max-t
    and in .02 to .04 by Holm, with 200 of 1,000 questions drawn twice.

    References
    ----------
    .. [1] Hothorn et al. (2008). :doi:`10.1002/bimj.200810425`
    .. [2] Holm (1979). https://www.jstor.org/stable/4615733

    Examples
    --------
    >>> from refusal_index.stats import corrected_refusal_index
    >>> rng = np.random.default_rng(1)
    >>> x, y = rng.standard_normal((2, 2000))
    >>> wrong = x + rng.standard_normal((2, 2000)) > 0
    >>> scores = [0.7 * x + 0.7 * y, 0.2 * x + 0.98 * y]
    >>> results = [corrected_refusal_index(z + rng.standard_normal((2, 2000)) > 0, wrong) for z in scores]
    >>> [(run.row, run.letters) for run in rank_corrected(results, rng=1).runs]
    [(0, 'a'), (1, 'b')]
    """
    if len(results) < 2:
        raise ValueError(f"results must hold two models or more to rank, got {len(results)}")
    parts = [one._quotient for one in results if one._quotient is not None]
    if len({(part.repeated.size, part.influence.shape) for part in parts}) > 1:
        raise ValueError("results must be made of the same questions as columns, got other numbers of them")
    n, units = (parts[0].repeated.size, parts[0].influence.shape[1]) if parts else (0, 0)
    nothing, nowhere = np.full(units, math.nan), np.zeros(n, bool)
    influence = [nothing if one._quotient is None else _on_index(one) for one in results]
    repeated = [nowhere if one._quotient is None else one._quotient.repeated for one in results]
    described = [_described(row, one, confidence_level) for row, one in enumerate(results)]
    ranking = rank_estimates(
        "corrected_refusal_index",
        described,
        np.array(influence).reshape(len(results), units),
        np.array(repeated).reshape(len(results), n),
        confidence_level=confidence_level,
        adjustment=adjustment,
        n_resamples=n_resamples,
        rng=rng,
        degrees_of_freedom=_degrees_of_freedom(*(one for one in results if one.status == "ok")),
    )
    pairs = pairs_at_boundary(described)
    tested = [(pair, compare_corrected(results[pair[0]], results[pair[1]]).pvalue) for pair in pairs]
    known = {pair: pvalue for pair, pvalue in tested if pvalue is not None}
    return replace(ranking, boundary_pairs=boundary_pairs(list(known), list(known.values())))


def _described(row: int, result: CorrectedRefusalIndexResult, confidence_level: float) -> RankedRun:
    low, high = result.confidence_interval(confidence_level).or_none()
    return RankedRun(row, result.estimate, low, high, result.status, result.reason, "")


def influence_range(result: CorrectedRefusalIndexResult) -> float:
    """Return how far apart the influences of two questions on the index lie at most; NaN where it has none.

    Few of the questions may be drawn repeatedly, each standing for several: those add their range to that of the rest.
    """
    if result._quotient is None or result.estimate is None:
        return math.nan
    influence, repeated = _on_index(result), result._quotient.repeated
    whole = influence.size != repeated.size  # of clusters
    parts = [influence] if whole else [influence[repeated], influence[~repeated]]
    return float(sum(part.size * np.ptp(part) for part in parts if part.size))


def _on_index(result: CorrectedRefusalIndexResult) -> FloatArray:
    """Influence of every question on the index, over their number."""
    part, rho = result._quotient, result.rho
    if part is None or rho is None:
        raise ValueError("an index that is undefined has no influence")
    return part.linear(rho) / part.scale * spearman_slope(rho)


def _square_and_add(
    first: CorrectedRefusalIndexResult, second: CorrectedRefusalIndexResult, correlation: float, quantile: float
) -> ConfidenceInterval:
    a, b = first.estimate or 0.0, second.estimate or 0.0
    (low_a, high_a), (low_b, high_b) = (one.interval_at(quantile) for one in (first, second))
    return ConfidenceInterval(
        max(-2.0, a - b - _hypotenuse(a - low_a, high_b - b, correlation)),
        min(2.0, a - b + _hypotenuse(high_a - a, b - low_b, correlation)),
    )


def _hypotenuse(one: float, other: float, correlation: float) -> float:
    return math.sqrt(max(one * one + other * other - 2 * correlation * one * other, 0.0))


def _pvalue(
    first: CorrectedRefusalIndexResult, second: CorrectedRefusalIndexResult, correlation: float, estimate: float
) -> float:
    """Find the level at which the interval just reaches 0, by halving."""

    def holds(quantile: float) -> bool:
        ends = _square_and_add(first, second, correlation, quantile)
        return ends.low <= 0 <= ends.high

    # Intervals that end at 1 or -1 need not grow with the quantile: the first that holds 0 counts.
    steps = np.linspace(0, LARGEST_QUANTILE, STEPS + 1)[1:].tolist()
    high = next((one for one in steps if holds(one)), LARGEST_QUANTILE)
    low = max(high - LARGEST_QUANTILE / STEPS, 0.0) if abs(estimate) > NO_DIFFERENCE else 0.0
    for _ in range(HALVINGS if abs(estimate) > NO_DIFFERENCE else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    freedom = _degrees_of_freedom(first, second)
    return float(2 * ndtr(-low)) if freedom is None else student_tails(low, freedom)


def _degrees_of_freedom(*results: CorrectedRefusalIndexResult) -> float | None:
    parts = [one._quotient.degrees_of_freedom for one in results if one._quotient is not None]
    return min((one for one in parts if one is not None), default=None)
