"""Two models compared by their Refusal Indices without the noise of single draws.

Single draws pull the index towards 0, and pull harder the more random a model's behaviour is. Two models of which one
is more random so differ in single draws although their probabilities have the same index; where both have repeated
draws, the corrected indices can be compared instead. Questions are resampled with all that both models did on them,
so that what makes a question hard for both is taken out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.draws.noise import (
    NoiseCorrectedResult,
    checked_draws,
    corrected_rho,
    estimate_from_patterns,
    has_interval,
)
from refusal_index.stats.draws.patterns import (
    N_RESAMPLES,
    DrawPatterns,
    IntArray,
    check_resampling,
    count_draws,
    pair_cells,
    question_counts,
    resample,
)
from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval, Status, reasons_of
from refusal_index.stats.intervals import Seed, normal_quantile
from refusal_index.stats.matrices import BoolArray


@dataclass(frozen=True, slots=True)
class NoiseCorrectedDifference:
    """By how much the noise-corrected Refusal Index of the first model exceeds that of the second.

    Attributes
    ----------
    first, second : NoiseCorrectedResult
        Of either model.
    estimate : float or None
        ``first - second``, in [-2, 2]; None where either is undefined.
    pvalue : float or None
        Of the hypothesis that there is no difference, two-sided: twice ``(k + 1) / (n_resamples + 1)``, at most 1,
        where k counts the resamples that do not lie above 0, or do not lie below, whichever are fewer. It is at most
        alpha exactly where the interval of level ``1 - alpha`` excludes 0. None where there is no interval.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: an estimate is exactly 1 or -1, or all resamples show the same difference.
    reason : str or None
        Why the status is not ``"ok"``: ``"first:"`` or ``"second:"`` with that model's reason, or both with ``";"``
        between them; or ``"constant_difference"``, as where both models have the same draws and an estimate in every
        resample.
    n_shared : int
        Questions with two draws or more of both models.
    n_resamples : int
    """

    first: NoiseCorrectedResult
    second: NoiseCorrectedResult
    estimate: float | None
    pvalue: float | None
    status: Status
    reason: str | None
    n_shared: int
    n_resamples: int
    _lowest: FloatArray = field(repr=False, compare=False)
    _highest: FloatArray = field(repr=False, compare=False)

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Percentile interval over the resampled questions, always the same ones.

        In a resample a model without an estimate rules nothing out: its index counts as -1 where that makes the
        difference smaller, for the lower end, and as 1 where it makes it larger, for the upper, or the other way
        round for the second model. An estimate beyond 1 or -1 counts as that.

        Parameters
        ----------
        confidence_level : float in (0, 1), default: 0.95

        Returns
        -------
        ConfidenceInterval
            In [-2, 2], and all of it where the resamples are too few for the level. Both ends NaN where either model
            is undefined or has an empty cell, which is empty in every resample, and where the difference is constant:
            an interval of no width would claim certainty.
        """
        normal_quantile(confidence_level)
        if not self._lowest.size:
            return NO_INTERVAL
        # The order statistics that the p-value counts up to; the sum guards against rounding.
        place = math.floor((1 - confidence_level) / 2 * (self.n_resamples + 1) + 1e-9)
        if place == 0:
            return ConfidenceInterval(-2.0, 2.0)
        return ConfidenceInterval(float(np.sort(self._lowest)[place - 1]), float(np.sort(self._highest)[-place]))


def compare_noise_corrected(
    first: Sequence[ArrayLike], second: Sequence[ArrayLike], *, n_resamples: int = N_RESAMPLES, rng: Seed = None
) -> NoiseCorrectedDifference:
    """Compare two models by the Refusal Indices of the probabilities behind their repeated draws.

    Parameters
    ----------
    first, second : (refused, wrong) or (refused, wrong, scored)
        Of either model, as for `noise_corrected_refusal_index`: array_like of bool, shape (n_draws, n_questions). Both
        have the same questions as columns; the numbers of draws may differ. For models over different questions give
        the columns of both, scored in one of them each: they are then resampled apart.
    n_resamples : int, default: 2000
        Of the questions; the smallest p-value is ``2 / (n_resamples + 1)``.
    rng : int or numpy.random.Generator, optional

    Returns
    -------
    NoiseCorrectedDifference

    Raises
    ------
    TypeError
        If a matrix does not hold truth values.
    ValueError
        If a model's matrices are not of one shape or have fewer than two rows, or the models' questions differ in
        number.

    Notes
    -----
    With 800 questions of two draws, indices of .582 and slopes of 3 and 1, as in `attenuated_refusal_index`, the
    interval covers the difference in .947 to .958 of the samples, paired or not, while the test of first draws rejects
    equality in .71 to .95. With slopes of 3 and 0.5 many resamples have no estimate, and the interval covers .975
    (`benchmarks/coverage/corrected_difference.py`).

    References
    ----------
    .. [1] Spearman (1904). :doi:`10.2307/1412159`

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x = rng.standard_normal(4000)
    >>> y = 0.6 * x + 0.8 * rng.standard_normal(4000)
    >>> steady, random = ([b * z + rng.standard_normal((2, 4000)) > 0 for z in (x, y)] for b in (3, 1))
    >>> difference = compare_noise_corrected(steady, random, rng=1)
    >>> round(difference.first.uncorrected - difference.second.uncorrected, 2), round(difference.estimate, 2)
    (0.24, -0.01)
    >>> difference.pvalue > 0.5
    True
    """
    check_resampling(0.95, n_resamples)
    models = [_checked_model(name, model) for name, model in (("first", first), ("second", second))]
    columns = [refused.shape[1] for refused, _, _ in models]
    if columns[0] != columns[1]:
        raise ValueError(
            f"first and second must have the same questions as columns, got {columns[0]} and {columns[1]} of them; "
            "give the columns of both and mark in scored what a model was not asked"
        )
    strata, cells, n_shared = _joint_patterns([question_counts(*model) for model in models])
    one, other = (estimate_from_patterns(count_draws(*model)) for model in models)
    indices = np.zeros((0, 2))
    if has_interval(one) and has_interval(other):
        indices = resample(strata, lambda w: np.stack([_index(w @ each) for each in cells], axis=1), n_resamples, rng)
    return _difference(one, other, indices, n_shared, n_resamples)


def _checked_model(name: str, model: Sequence[ArrayLike]) -> tuple[BoolArray, BoolArray, BoolArray]:
    if len(model) not in (2, 3):
        raise ValueError(
            f"{name} must be (refused, wrong) or (refused, wrong, scored), got {len(model)} items; is it the refusals "
            "alone?"
        )
    try:
        return checked_draws(*model)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


def _joint_patterns(counts: Sequence[IntArray]) -> tuple[list[IntArray], list[FloatArray], int]:
    """Put the questions together by what both models did on them.

    Returns the numbers of questions of each pattern, in strata by which of the models have repeated draws, the cells of
    either model for one question of each pattern, and how many questions both models share.
    """
    repeated = [np.where(each[:, :1] >= 2, each, 0) for each in counts]
    stratum = (repeated[0][:, :1] > 0) + 2 * (repeated[1][:, :1] > 0)
    rows = np.hstack([stratum, *repeated])[stratum[:, 0] > 0]
    patterns, questions = np.unique(rows, axis=0, return_counts=True)
    strata = [questions[patterns[:, 0] == each] for each in np.unique(patterns[:, 0])]
    _, *by_model = patterns.T
    cells = [pair_cells(DrawPatterns(m, r, w, both, questions)) for m, r, w, both in (by_model[:4], by_model[4:])]
    return strata, cells, int(np.count_nonzero(stratum == 3))


def _index(cells: FloatArray) -> FloatArray:
    """Corrected index of each row of cells, limited to [-1, 1]; NaN where undefined."""
    return np.asarray(np.arcsin(np.clip(corrected_rho(cells)[0], -1, 1) / 2) / math.asin(0.5))


def _difference(
    first: NoiseCorrectedResult, second: NoiseCorrectedResult, indices: FloatArray, n_shared: int, n_resamples: int
) -> NoiseCorrectedDifference:
    """Make the result of both models' estimates and their indices in the resamples, shape (n_resamples, 2) or empty."""
    estimate = None if first.estimate is None or second.estimate is None else first.estimate - second.estimate
    reason = reasons_of(first, second)
    # No number is made up: an index that a resample lacks may be anything, so each end of the interval takes its worst.
    smallest, largest = (np.nan_to_num(indices, nan=end).T for end in (-1.0, 1.0))
    lowest, highest = smallest[0] - largest[1], largest[0] - smallest[1]
    pvalue = None
    if indices.size:
        beyond = min(np.count_nonzero(lowest <= 0), np.count_nonzero(highest >= 0))
        pvalue = min(1.0, 2 * (int(beyond) + 1) / (n_resamples + 1))
        if n_resamples > 1 and highest.max() == lowest.min():
            reason, lowest, highest = reason or "constant_difference", lowest[:0], highest[:0]
    status: Status = "undefined" if estimate is None else "boundary" if reason else "ok"
    return NoiseCorrectedDifference(
        first, second, estimate, pvalue, status, reason, n_shared, n_resamples, lowest, highest
    )
