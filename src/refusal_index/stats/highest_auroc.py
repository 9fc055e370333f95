"""The highest of several areas under the ROC curve: an interval that allows for the choice, and a test.

The highest of several estimates is too high on average, because sampling error helps to make it the highest. So an
ordinary interval of the best of 6 or 12 scores covers its area too rarely. Here the lower end is that of a
simultaneous bound of all areas: max-t, with the joint distribution of the areas from the influence of each question.
The upper end is the ordinary one, since an area that was chosen for being high is rarely underestimated.

The highest area also tends to have a standard error that is too small, since both rest on the same few answers. So the
lower end is the lower of DeLong's, on the logit scale, and Newcombe's, whose variance follows from the area.

Simulated coverage of nominal 95% intervals for the best of 6 and 12 scores is .98 to 1.00 with 20 or 50 wrong answers
and 20 to 950 right ones, for areas of .6 to .95. That of the ordinary interval falls to .50 (`benchmarks.coverage`,
topic `selection`), and that of DeLong's lower end alone to .76 with 20 wrong answers and .87 with 50.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from refusal_index.stats.arguments import FloatArray
from refusal_index.stats.calibration import AurocResult, auroc, auroc_influence
from refusal_index.stats.comparison import difference_error, difference_pvalue
from refusal_index.stats.estimate import ConfidenceInterval, ResultWithInterval, reasons_of
from refusal_index.stats.intervals import Seed, checked_resamples, normal_quantile, symmetric_root

N_DRAWS = 20_000
"""Draws of the joint normal distribution; the Monte Carlo error of a coverage of .975 is .001."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AurocDifference(ResultWithInterval):
    """The difference of two areas under the ROC curve, of scores of the same questions.

    Attributes
    ----------
    estimate : float or None
        First minus second, on the questions that have both scores.
    standard_error : float or None
        DeLong's; None unless the status is ``"ok"``.
    pvalue : float or None
        Two-sided, of no difference; None if the difference is undefined or an area is at its boundary.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: an area is at its boundary, or both scores rank all questions alike.
    reason : str or None
        The reasons of the two areas, or ``"constant_difference"``.
    n : int
        Number of questions with both scores.
    """

    pvalue: float | None = None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HighestAuroc:
    """The highest of several areas under the ROC curve.

    Attributes
    ----------
    place : int
        Which of the scores has it; the first of several with the same area.
    area : AurocResult
        The area.
    interval : ConfidenceInterval
        Interval of the area that allows for the choice.
    count : int
        Number of scores with an area, among which it was chosen.
    second : int or None
        Which of the scores has the second highest area; None if there is only one.
    difference : AurocDifference or None
        The highest minus the second, paired by question; None if there is only one score.
    """

    place: int
    area: AurocResult
    interval: ConfidenceInterval
    count: int
    second: int | None
    difference: AurocDifference | None


def highest_auroc(
    scores: ArrayLike,
    outcomes: ArrayLike,
    *,
    confidence_level: float = 0.95,
    n_draws: int = N_DRAWS,
    rng: Seed = 0,
) -> HighestAuroc | None:
    """Find the score with the highest area under the ROC curve, with an interval that allows for the choice.

    Parameters
    ----------
    scores : array_like of float, shape (k, n)
        Scores of n questions by k methods; NaN where a method has no score.
    outcomes : array_like of bool, shape (k, n) or (n,)
        Whether the scored answers are right; ignored where there is no score.
    confidence_level : float in (0, 1), default: 0.95
    n_draws : int, default: 20000
        Draws of the joint distribution of the areas.
    rng : int, numpy.random.Generator or None, default: 0
        Seed of the draws.

    Returns
    -------
    HighestAuroc or None
        None if no area is defined.

    Raises
    ------
    TypeError, ValueError
        If the values are not as described, or an option is out of range.

    Notes
    -----
    With c, the quantile of the largest of k standard normal variables with the correlation of the areas at
    ``(1 + confidence_level) / 2``, the lower end is that of DeLong's or Newcombe's interval of a single area at the
    level ``2 Phi(c) - 1``, whichever is lower; of one score, it is that of its ordinary interval. An area at its
    boundary is taken as independent of the others, which widens the interval.

    The test of the highest against the second needs no adjustment for the choice if the scores are alike [2]_: if
    several areas are equal, it is significant less often than its level.

    References
    ----------
    .. [1] DeLong, E. R., DeLong, D. M. and Clarke-Pearson, D. L. (1988). Comparing the areas under two or more
       correlated receiver operating characteristic curves. Biometrics, 44, 837-845. :doi:`10.2307/2531595`
    .. [2] Hung, K. and Fithian, W. (2019). Rank verification for exponential families. Annals of Statistics, 47,
       758-782. :doi:`10.1214/17-AOS1634`

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> right = np.arange(200) % 2 == 0
    >>> found = highest_auroc(right * [[0.8], [1.0], [0.9]] + rng.standard_normal((3, 200)), right)
    >>> found.place, round(found.area.estimate, 3), [round(end, 3) for end in found.interval]
    (1, 0.738, [0.644, 0.801])
    >>> [round(end, 3) for end in found.area.confidence_interval()]
    [0.663, 0.801]
    >>> found.second, round(found.difference.estimate, 3), round(found.difference.pvalue, 3)
    (0, 0.001, 0.977)
    """
    normal_quantile(confidence_level)
    values = np.asarray(scores, np.float64)
    if values.ndim != 2:
        raise ValueError(f"scores must have one row for each method, got shape {values.shape}")
    truths = np.broadcast_to(np.asarray(outcomes, bool), values.shape)
    has_score = ~np.isnan(values)
    sides = [(row[scored], truth[scored]) for row, truth, scored in zip(values, truths, has_score, strict=True)]
    areas = [auroc(*side) for side in sides]
    # Sorted by descending area; the first of several equal ones comes first.
    ranked = sorted(
        (place for place, area in enumerate(areas) if area.estimate is not None),
        key=lambda place: -(areas[place].estimate or 0.0),
    )
    if not ranked:
        return None
    influences = np.zeros((len(ranked), values.shape[1]))
    for row, place in zip(influences, ranked, strict=True):
        row[has_score[place]] = auroc_influence(*sides[place])
    best = areas[ranked[0]]
    low, high = best.confidence_interval(confidence_level)
    second = None
    if len(ranked) > 1:
        second = ranked[1]
        level = _simultaneous_level(influences, confidence_level, checked_resamples(n_draws), rng)
        # DeLong's end is NaN at an area of 1.
        low = float(np.nanmin([best.confidence_interval(level, method).low for method in ("delong", "newcombe")]))
    return HighestAuroc(
        place=ranked[0],
        area=best,
        interval=ConfidenceInterval(low, high),
        count=len(ranked),
        second=second,
        difference=None if second is None else auroc_difference(values[ranked[:2]], truths[ranked[:2]]),
    )


def auroc_difference(scores: ArrayLike, outcomes: ArrayLike) -> AurocDifference:
    """Return the difference of the areas of two scores, on the questions that have both, with DeLong's test.

    Parameters
    ----------
    scores : array_like of float, shape (2, n)
        NaN without a score.
    outcomes : array_like of bool, shape (2, n) or (n,)

    Returns
    -------
    AurocDifference

    Examples
    --------
    >>> found = auroc_difference([[0.9, 0.8, 0.7, 0.4, 0.3], [0.9, 0.2, 0.7, 0.4, 0.3]], [1, 1, 0, 0, 1])
    >>> round(found.estimate, 3), found.n
    (0.333, 5)
    """
    values = np.asarray(scores, np.float64)
    truths = np.broadcast_to(np.asarray(outcomes, bool), values.shape)
    shared = ~np.isnan(values).any(axis=0)
    sides = [(row[shared], truth[shared]) for row, truth in zip(values, truths, strict=True)]
    first, second = (auroc(*side) for side in sides)
    n = int(shared.sum())
    reason = reasons_of(first, second)
    if first.estimate is None or second.estimate is None:
        return AurocDifference(None, "undefined", reason, n=n)
    estimate = first.estimate - second.estimate
    if reason is not None:
        return AurocDifference(estimate, "boundary", reason, n=n)
    error = difference_error([auroc_influence(*side) for side in sides])
    pvalue = difference_pvalue(estimate, error, n)
    if error == 0:
        return AurocDifference(estimate, "boundary", "constant_difference", pvalue=pvalue, n=n)
    return AurocDifference(estimate, standard_error=error, pvalue=pvalue, n=n)


def _simultaneous_level(influences: FloatArray, level: float, n_draws: int, rng: Seed) -> float:
    """Return the confidence level of single intervals whose lower ends all hold with probability `(1 + level) / 2`."""
    lengths = np.linalg.norm(influences, axis=1)
    usable = np.isfinite(lengths) & (lengths > 0)
    unit = influences[usable] / lengths[usable, np.newaxis]
    correlation = np.eye(len(influences))
    correlation[np.ix_(usable, usable)] = unit @ unit.T
    np.fill_diagonal(correlation, 1.0)
    draws = np.random.default_rng(rng).standard_normal((n_draws, len(influences))) @ symmetric_root(correlation)
    return max(level, 2 * float(ndtr(np.quantile(draws.max(axis=1), (1 + level) / 2))) - 1)
