"""A metric over the steps of a training run: simultaneous bands and a change-point test.

All steps are asked the same questions, so the errors of their k estimates are correlated. The covariance is that of the
questions' influence functions (`metric_influence`). Bands and tests are simulated from the normal distribution with
this covariance, the same distribution that a multiplier bootstrap over the questions samples:

- *simultaneous bands*: the critical value is a quantile of the largest of the k absolute studentised errors, so that
  all intervals hold simultaneously. Rates and the Refusal Index have their intervals on the logit scale of their range;
- *change point*: for each split of the steps, the mean after the split minus the mean before it, studentised. The
  largest is compared with its distribution under the hypothesis that all steps have the same value, which accounts for
  the search over the splits. The intervals of the differences hold for all splits simultaneously, hence also for the
  split that the data select. Both sides of that split are tested for a further change in the same way; if there is one,
  the metric changed more than once, or drifted.

The standard error of a rate based on few or no refusals is too small or zero: if all steps refuse 2 of 200 questions
and one happens to refuse none, that one would always differ significantly. So the variance of each rate and score is
the larger of the usual one and the one with half a question added to each cell; the addition is independent across
steps. A change from no refusals to a third is still detected. In simulations with 1 to 16 refusals of 200 questions and
four or eight steps without a change, the test rejects in 0 to 6% of cases, and in up to a third without the half
question.

The test is about whether the model differs between these steps on questions like these. Whether it differs by what it
learnt or by the noise of its training cannot be determined from a single training run.

References
----------
.. [1] Hothorn, T., Bretz, F. and Westfall, P. (2008). Simultaneous inference in general parametric models. Biometrical
   Journal, 50, 346-363. :doi:`10.1002/bimj.200810425`
.. [2] Chernozhukov, V., Chetverikov, D. and Kato, K. (2013). Gaussian approximations and multiplier bootstrap for
   maxima of sums of high-dimensional random vectors. Annals of Statistics, 41, 2786-2819. :arxiv:`1212.6906`
.. [3] Hawkins, D. M. (1977). Testing a sequence of observations for a shift in location. Journal of the American
   Statistical Association, 72, 180-186. :doi:`10.1080/01621459.1977.10479935`
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from refusal_index.stats.arguments import FloatArray, checked_matrices
from refusal_index.stats.baseline import SCORES, TRUTHFULNESS_WEIGHTS, Payoffs, Weights, checked_payoffs, ratio_weights
from refusal_index.stats.comparison import (
    ROUNDING,
    Influence,
    PointEstimate,
    checked_metric,
    influence_of,
    point_estimate,
)
from refusal_index.stats.contingency import AnyTable, SampledTable, cell_codes, designed, tables_of_rows
from refusal_index.stats.estimate import Estimate
from refusal_index.stats.intervals import Seed, checked_resamples, normal_quantile, symmetric_root

RESAMPLES = 10_000
ADDED = 0.5
"""Number of questions added to each cell for the variance of a rate or score."""


@dataclass(frozen=True, slots=True)
class MetricOverSteps:
    """One metric over the steps.

    Attributes
    ----------
    metric : str in `METRIC_NAMES`
    points : tuple of Estimate
        One for each step. Intervals are simultaneous; a step without a standard error has no interval but a reason.
    critical_value : float or None
        Half-width of the bands in standard errors; None if no step has a standard error.
    rows : tuple of int
        The steps that are compared: those with a standard error, and rates and scores with the same outcome for every
        question. Undefined values, and a Refusal Index at its boundary, are excluded.
    splits : tuple of Split
        All splits of the compared steps, in order; empty if fewer than two steps are compared.
    change : Split or None
        The split with the largest studentised difference.
    pvalue : float or None
        p-value of the hypothesis that all steps have the same value, adjusted for the choice of the split.
    pvalue_within : float or None
        p-value of the hypothesis that the value is constant on each side of `change`, that is, that there was no second
        change. None if neither side has two steps.
    confidence_level : float
    """

    metric: str
    points: tuple[Estimate, ...]
    critical_value: float | None
    rows: tuple[int, ...]
    splits: tuple[Split, ...]
    change: Split | None
    pvalue: float | None
    pvalue_within: float | None
    confidence_level: float


def metric_over_steps(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    metric: str = "refusal_index",
    weighted_score_p: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
    confidence_level: float = 0.95,
    n_resamples: int = RESAMPLES,
    rng: Seed = None,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> MetricOverSteps:
    """Estimate a metric at each step of a training run, with simultaneous bands, and test whether it changed.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (k, n)
        As for `checked_matrices`; rows are steps in order, columns are questions.
    metric : str in `METRIC_NAMES`, default: "refusal_index"
    weighted_score_p : float, default: 1
    truthfulness_weights : tuple of float
        As for `metrics`.
    confidence_level : float, default: 0.95
        Simultaneous level of all intervals.
    n_resamples : int, default: 10,000
        Number of draws from the simulated distributions.
    rng : int or numpy.random.Generator, optional
    cluster, weight : array_like, shape (n,), optional
        As for `SamplingDesign.of`; with them, t distributions replace the normal ones.

    Returns
    -------
    MetricOverSteps

    Raises
    ------
    TypeError, ValueError
        As for `checked_matrices` and `SamplingDesign.of`, or if another argument is not as described.

    Examples
    --------
    A model that refuses more from the fourth step on, with an unchanged error rate:

    >>> rng = np.random.default_rng(1)
    >>> doubt = rng.standard_normal(400)
    >>> wrong = np.tile(doubt + rng.standard_normal(400) > 0, (6, 1))
    >>> caution = np.repeat([-1.0, -0.6], 3)[:, None]
    >>> refused = doubt + 0.5 * rng.standard_normal((6, 400)) + caution > 0
    >>> refusal_rate = metric_over_steps(refused, wrong, metric="refusal_rate", rng=1)
    >>> refusal_rate.change.row, refusal_rate.pvalue < 0.001
    (3, True)
    >>> metric_over_steps(refused, wrong, metric="refusal_index", rng=1).pvalue > 0.05
    True
    """
    matrices = checked_matrices(refused, wrong, scored)
    name = checked_metric(metric)
    payoffs = checked_payoffs(weighted_score_p, truthfulness_weights)
    normal_quantile(confidence_level)
    checked_resamples(n_resamples)
    matrices, design = designed(matrices, cluster, weight)
    codes = cell_codes(*matrices)
    tables = tables_of_rows(matrices, design)
    points = [point_estimate(name, table, payoffs) for table in tables]
    doubts = np.array([_doubt(name, *point_and_table, payoffs) for point_and_table in zip(points, tables, strict=True)])
    rows = [row for row, point in enumerate(points) if point.status == "ok" or doubts[row]]
    if not rows:
        shown = tuple(_point(name, point) for point in points)
        return MetricOverSteps(name, shown, None, (), (), None, None, None, confidence_level)
    influence = Influence.of(influence_of(points, codes), matrices[2], design)[rows]
    errors = JointErrors.from_influence(influence.rows, influence.independent, doubts[rows])
    degrees = influence.degrees_of_freedom
    samples = drawn_errors(errors.covariance, n_resamples, np.random.default_rng(rng), degrees)
    values = np.array([points[row].estimate for row in rows], float)
    critical, shown = _banded(name, points, rows, errors.of_steps(), samples, confidence_level)
    if len(rows) < 2:
        return MetricOverSteps(name, shown, critical, tuple(rows), (), None, None, None, confidence_level)
    splits, best, pvalue = changes(rows, values, errors, samples, confidence_level)
    within = pvalue_within(best + 1, values, errors, samples)
    return MetricOverSteps(name, shown, critical, tuple(rows), splits, splits[best], pvalue, within, confidence_level)


def _doubt(metric: str, point: PointEstimate, table: AnyTable, payoffs: Payoffs) -> float:
    """Return the standard error to add to a rate or score that is based on few or no questions."""
    if metric == "refusal_index" or math.isnan(point.by_cell[0]):
        return 0.0
    influence = point.by_cell if point.status == "ok" else None
    counts = np.array(table.effective_counts(influence) if isinstance(table, SampledTable) else table.counts, float)
    top, bottom = np.array(ratio_weights(payoffs)[metric], float)
    variance = _variance(counts, top, bottom)
    rarer = _variance(counts + ADDED, top, bottom)
    return math.sqrt(max(rarer - variance, 0.0))


def _variance(counts: FloatArray, top: FloatArray, bottom: FloatArray) -> float:
    """Return the variance of a ratio of two weighted sums over independent questions."""
    total = counts @ bottom
    residuals = top - bottom * (counts @ top) / total
    return float(counts @ (residuals * residuals) / total**2)


def _banded(
    metric: str,
    points: Sequence[PointEstimate],
    rows: Sequence[int],
    errors: FloatArray,
    samples: FloatArray,
    confidence_level: float,
) -> tuple[float | None, tuple[Estimate, ...]]:
    """Return the half-width of the bands in standard errors, and the estimates of all steps with their intervals."""
    defined = [index for index, row in enumerate(rows) if points[row].status == "ok"]
    if not defined:
        return None, tuple(_point(metric, point) for point in points)
    critical = float(np.quantile(largest_of(samples[:, defined], errors[defined]), confidence_level))
    values = np.array([points[rows[index]].estimate for index in defined], float)
    bands = iter(zip(*_band(metric, values, critical * errors[defined]), strict=True))
    return critical, tuple(
        _point(metric, point, *(next(bands) if point.status == "ok" else (None, None))) for point in points
    )


def _band(metric: str, values: FloatArray, reach: FloatArray) -> tuple[list[float], list[float]]:
    """Return the lower and upper ends of intervals, computed on the logit scale if the metric has a fixed range."""
    if metric in SCORES:
        return (values - reach).tolist(), (values + reach).tolist()
    low = -1.0 if metric == "refusal_index" else 0.0
    width = 1 - low
    share = (values - low) / width
    centre = logit(share)
    half = reach / (width * share * (1 - share))
    return (low + width * expit(centre - half)).tolist(), (low + width * expit(centre + half)).tolist()


def _point(metric: str, point: PointEstimate, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(point.estimate, low, high, point.status, point.reason, metric)


@dataclass(frozen=True, slots=True)
class Split:
    """The steps of a panel, split into an earlier and a later part.

    Attributes
    ----------
    row : int
        The first step of the later part.
    before, after : float
        Mean of the estimates in each part.
    estimate, low, high : float
        ``after - before`` and its interval, simultaneous over all splits.
    """

    row: int
    before: float
    after: float
    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class JointErrors:
    """Joint standard errors of the estimates.

    With clusters, a standard error is never below that for independent questions: a smaller one would be due to chance.
    """

    influences: tuple[FloatArray, ...]

    @classmethod
    def from_influence(cls, influence: FloatArray, independent: FloatArray | None, doubts: FloatArray) -> JointErrors:
        """Combine the scaled influences of the estimates with the additional standard error of each step."""
        own_errors = np.diag(doubts)  # independent across steps
        influences = (influence,) if independent is None else (influence, independent)
        return cls(tuple(np.hstack([scaled, own_errors]) for scaled in influences))

    @property
    def covariance(self) -> FloatArray:
        """Covariance matrix of the estimates."""
        return np.asarray(self.influences[0] @ self.influences[0].T)

    def of_steps(self) -> FloatArray:
        """Return the standard errors of the estimates."""
        return self.of_contrasts(np.eye(len(self.influences[0])))

    def of_contrasts(self, contrasts: FloatArray) -> FloatArray:
        """Return the standard errors of the contrasts, one per row of weights; 0 within rounding error of 0."""
        by_influence = [np.linalg.norm(contrasts @ influence, axis=1) for influence in self.influences]
        largest = np.abs(contrasts) @ np.linalg.norm(self.influences[0], axis=1)
        errors = np.max(by_influence, axis=0)
        return np.asarray(np.where(errors > ROUNDING * largest, errors, 0.0))


def largest_of(samples: FloatArray, errors: FloatArray) -> FloatArray:
    """Return the largest absolute studentised error in each draw."""
    return np.asarray(np.max(_studentised(samples, errors), axis=1))


def share_as_large(draws: FloatArray, observed: FloatArray) -> float:
    """Return the p-value: the share of draws whose largest value reaches the largest observed one."""
    # The data count as one draw, which keeps the test valid for any number of draws.
    return float((np.count_nonzero(draws >= observed.max()) + 1) / (len(draws) + 1))


def _studentised(values: FloatArray, errors: FloatArray) -> FloatArray:
    return np.divide(np.abs(values), errors, out=np.zeros(values.shape), where=errors > 0)


def drawn_errors(
    covariance: FloatArray, n_resamples: int, rng: np.random.Generator, degrees_of_freedom: float | None
) -> FloatArray:
    """Draw errors of the estimates from their joint distribution, shape (draws, k)."""
    samples = rng.standard_normal((n_resamples, len(covariance))) @ symmetric_root(covariance)
    if degrees_of_freedom is not None:
        samples /= np.sqrt(rng.chisquare(degrees_of_freedom, (n_resamples, 1)) / degrees_of_freedom)
    return np.asarray(samples)


def changes(
    rows: Sequence[int], values: FloatArray, errors: JointErrors, samples: FloatArray, confidence_level: float
) -> tuple[tuple[Split, ...], int, float]:
    """Return all splits, the position of the one with the largest studentised difference, and its p-value."""
    contrasts = _splits(len(rows))
    split_errors = errors.of_contrasts(contrasts)
    differences = np.where(split_errors > 0, contrasts @ values, 0.0)
    largest = largest_of(samples @ contrasts.T, split_errors)
    observed = _studentised(differences, split_errors)
    reach = float(np.quantile(largest, confidence_level)) * split_errors
    means = [(float(values[:cut].mean()), float(values[cut:].mean())) for cut in range(1, len(rows))]
    splits = tuple(
        Split(row, *parts, difference, difference - half, difference + half)
        for row, parts, difference, half in zip(rows[1:], means, differences.tolist(), reach.tolist(), strict=True)
    )
    return splits, int(np.argmax(observed)), share_as_large(largest, observed)


def pvalue_within(cut: int, values: FloatArray, errors: JointErrors, samples: FloatArray) -> float | None:
    """Return the p-value of the hypothesis that the values are constant before the cut and after it."""
    k = len(values)
    before = _splits(cut)
    after = _splits(k - cut)
    contrasts = np.zeros((k - 2, k))
    contrasts[: cut - 1, :cut] = before
    contrasts[cut - 1 :, cut:] = after
    split_errors = errors.of_contrasts(contrasts)
    if not split_errors.any():
        return None
    return share_as_large(
        largest_of(samples @ contrasts.T, split_errors), _studentised(contrasts @ values, split_errors)
    )


def _splits(k: int) -> FloatArray:
    """Return the contrasts of all splits of k steps, shape (k - 1, k): the mean after minus the mean before.

    >>> _splits(3).tolist()
    [[-1.0, 0.5, 0.5], [-0.5, -0.5, 1.0]]
    """
    positions = np.arange(k)
    cuts = np.arange(1, k)[:, None]
    return np.where(positions < cuts, -1 / cuts, 1 / (k - cuts))
