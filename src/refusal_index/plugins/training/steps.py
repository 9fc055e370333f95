"""A metric over the steps of a training run, which asks the same questions each time: bands, and since when it differs.

The estimates of k steps share their questions, and so much of their error. Their covariance is that of the influence of
the questions (`metric_influence`), and both answers are simulated from the normal distribution that it
gives, which is what a multiplier bootstrap over the questions draws from:

- *simultaneous bands*: the critical value is the quantile of the largest of the k absolute errors in standard errors,
  so that all intervals hold at once. Rates and the Refusal Index have theirs on the logit of their range;
- *change point*: for each split of the steps the mean after it less the mean before it, in standard errors. The largest
  is held against its distribution where all steps have one value, so that looking at every split costs nothing. The
  interval of the difference holds for all splits at once, hence also for the one that was chosen by the data. Whether
  either side of that split still changes within is tested alike: then there was more than one change, or a drift.

A rate that few questions make, or none, has too small a standard error, or none: of steps that refuse 2 of 200
questions, one that happens to refuse none would differ from the others for certain. Where half a question more in each
cell gives the greater variance, each rate and score has that instead; what is added is independent of the other steps.
So a model that never refused, and then refuses a third, changed; simulated at 1 to 16 refusals of 200 questions, four
or eight steps without a change show one in 0 to 6 % of cases, and in up to a third without that half.

What is tested is whether the model at these steps differs on questions like these. That it differs by what it learnt
and not by the noise of its training, a single training run cannot tell.

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
"""Questions added to each cell for the variance of a rate or score."""


@dataclass(frozen=True, slots=True)
class MetricOverSteps:
    """One metric over the steps.

    Attributes
    ----------
    metric : str in `METRIC_NAMES`
    points : tuple of Estimate
        One a step. The intervals hold at once, those of steps with a standard error; others have none, and a reason.
    critical_value : float or None
        Half-width of the bands in standard errors; None where no step has one.
    rows : tuple of int
        The steps that are compared: those with a standard error, and rates and scores of questions that all count
        alike. What is undefined, and an index at its boundary, is left out.
    splits : tuple of Split
        All splits of the steps that are compared, in their order; empty where there are fewer than two.
    change : Split or None
        The one whose difference is largest in standard errors.
    pvalue : float or None
        Of the hypothesis that all steps have one value, the choice of the split allowed for.
    pvalue_within : float or None
        Of the hypothesis that the steps on either side of that split have one value each: whether there is more to it
        than one change. None where neither side has two steps.
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
    penalty: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
    confidence_level: float = 0.95,
    n_resamples: int = RESAMPLES,
    rng: Seed = None,
    cluster: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> MetricOverSteps:
    """Follow a metric over the steps of a training run, all asked the same questions.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (k, n)
        As for `checked_matrices`, one row a step in their order, one column a question.
    metric : str in `METRIC_NAMES`, default: "refusal_index"
    penalty : float, default: 1
    truthfulness_weights : tuple of float
        As for `metrics`.
    confidence_level : float, default: 0.95
        Of all intervals at once.
    n_resamples : int, default: 10,000
        Draws of the simulated distributions.
    rng : int or numpy.random.Generator, optional
    cluster, weight : array_like, shape (n,), optional
        As for `SamplingDesign.of`; the distributions are then Student's.

    Returns
    -------
    MetricOverSteps

    Raises
    ------
    TypeError, ValueError
        As for `checked_matrices` and `SamplingDesign.of`, or if another argument is not as described.

    Examples
    --------
    A model that refuses more from its fourth step on, and errs as it always did:

    >>> rng = np.random.default_rng(1)
    >>> doubt = rng.standard_normal(400)
    >>> wrong = np.tile(doubt + rng.standard_normal(400) > 0, (6, 1))
    >>> caution = np.repeat([-1.0, -0.6], 3)[:, None]
    >>> refused = doubt + 0.5 * rng.standard_normal((6, 400)) + caution > 0
    >>> found = metric_over_steps(refused, wrong, metric="refusal_rate", rng=1)
    >>> found.change.row, found.pvalue < 0.001
    (3, True)
    >>> metric_over_steps(refused, wrong, metric="refusal_index", rng=1).pvalue > 0.05
    True
    """
    matrices = checked_matrices(refused, wrong, scored)
    name, worth = checked_metric(metric), checked_payoffs(penalty, truthfulness_weights)
    normal_quantile(confidence_level)
    checked_resamples(n_resamples)
    matrices, design = designed(matrices, cluster, weight)
    codes = cell_codes(*matrices)
    tables = tables_of_rows(matrices, design)
    points = [point_estimate(name, table, worth) for table in tables]
    doubts = np.array([_doubt(name, *each, worth) for each in zip(points, tables, strict=True)])
    rows = [row for row, point in enumerate(points) if point.status == "ok" or doubts[row]]
    if not rows:
        shown = tuple(_point(name, point) for point in points)
        return MetricOverSteps(name, shown, None, (), (), None, None, None, confidence_level)
    influence = Influence.of(influence_of(points, codes), matrices[2], design)[rows]
    errors = JointErrors.of(influence.rows, influence.independent, doubts[rows])
    degrees = influence.degrees_of_freedom
    drawn = drawn_errors(errors.covariance, n_resamples, np.random.default_rng(rng), degrees)
    values = np.array([points[row].estimate for row in rows], float)
    critical, shown = _banded(name, points, rows, errors.of_steps(), drawn, confidence_level)
    if len(rows) < 2:
        return MetricOverSteps(name, shown, critical, tuple(rows), (), None, None, None, confidence_level)
    splits, best, pvalue = changes(rows, values, errors, drawn, confidence_level)
    within = pvalue_within(best + 1, values, errors, drawn)
    return MetricOverSteps(name, shown, critical, tuple(rows), splits, splits[best], pvalue, within, confidence_level)


def _doubt(metric: str, point: PointEstimate, table: AnyTable, worth: Payoffs) -> float:
    """Return the standard error that a rate or score lacks for having been seen in few questions, or in none."""
    if metric == "refusal_index" or math.isnan(point.by_cell[0]):
        return 0.0
    influence = point.by_cell if point.status == "ok" else None
    counts = np.array(table.effective_counts(influence) if isinstance(table, SampledTable) else table.counts, float)
    top, bottom = np.array(ratio_weights(worth)[metric], float)
    own, rarer = _variance(counts, top, bottom), _variance(counts + ADDED, top, bottom)
    return math.sqrt(max(rarer - own, 0.0))


def _variance(counts: FloatArray, top: FloatArray, bottom: FloatArray) -> float:
    """Variance of a ratio of two weighted sums over independent questions."""
    total = counts @ bottom
    residuals = top - bottom * (counts @ top) / total
    return float(counts @ (residuals * residuals) / total**2)


def _banded(
    metric: str,
    points: Sequence[PointEstimate],
    rows: Sequence[int],
    errors: FloatArray,
    drawn: FloatArray,
    confidence_level: float,
) -> tuple[float | None, tuple[Estimate, ...]]:
    """Return the half-width of the bands in standard errors, and all steps with their intervals."""
    known = [place for place, row in enumerate(rows) if points[row].status == "ok"]
    if not known:
        return None, tuple(_point(metric, point) for point in points)
    critical = float(np.quantile(largest_of(drawn[:, known], errors[known]), confidence_level))
    values = np.array([points[rows[place]].estimate for place in known], float)
    bands = iter(zip(*_band(metric, values, critical * errors[known]), strict=True))
    return critical, tuple(
        _point(metric, point, *(next(bands) if point.status == "ok" else (None, None))) for point in points
    )


def _band(metric: str, values: FloatArray, reach: FloatArray) -> tuple[list[float], list[float]]:
    """Return the ends of intervals of such a reach, on the logit of the metric's range where it has one."""
    if metric in SCORES:
        return (values - reach).tolist(), (values + reach).tolist()
    least = -1.0 if metric == "refusal_index" else 0.0
    width = 1 - least
    share = (values - least) / width
    centre, half = logit(share), reach / (width * share * (1 - share))
    return (least + width * expit(centre - half)).tolist(), (least + width * expit(centre + half)).tolist()


def _point(metric: str, point: PointEstimate, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(point.estimate, low, high, point.status, point.reason, metric)


@dataclass(frozen=True, slots=True)
class Split:
    """The steps of a panel, cut in two.

    Attributes
    ----------
    row : int
        The first step of the second part.
    before, after : float
        Mean of the estimates of either part.
    estimate, low, high : float
        ``after - before``, and an interval; those of all splits hold at once.
    """

    row: int
    before: float
    after: float
    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class JointErrors:
    """Standard errors of sums of the estimates; clusters never make them smaller, which would be chance."""

    influences: tuple[FloatArray, ...]

    @classmethod
    def of(cls, influence: FloatArray, independent: FloatArray | None, doubts: FloatArray) -> JointErrors:
        """Take the scaled influence of the estimates, and what each has beside it as standard error of its own."""
        own = np.diag(doubts)  # of each step alone, as if it had questions of its own
        found = (influence,) if independent is None else (influence, independent)
        return cls(tuple(np.hstack([one, own]) for one in found))

    @property
    def covariance(self) -> FloatArray:
        """Of the estimates."""
        return np.asarray(self.influences[0] @ self.influences[0].T)

    def of_steps(self) -> FloatArray:
        """Return those of the estimates themselves."""
        return self.of_contrasts(np.eye(len(self.influences[0])))

    def of_contrasts(self, contrasts: FloatArray) -> FloatArray:
        """Return those of sums of the estimates with the weights of each row; 0 where it is rounding."""
        found = [np.linalg.norm(contrasts @ one, axis=1) for one in self.influences]
        largest = np.abs(contrasts) @ np.linalg.norm(self.influences[0], axis=1)
        errors = np.max(found, axis=0)
        return np.asarray(np.where(errors > ROUNDING * largest, errors, 0.0))


def largest_of(drawn: FloatArray, errors: FloatArray) -> FloatArray:
    """Return the largest of drawn errors of estimates, in standard errors, in each draw."""
    return np.asarray(np.max(_studentised(drawn, errors), axis=1))


def share_as_large(draws: FloatArray, observed: FloatArray) -> float:
    """Return in how many draws the largest is as large as the largest that was observed."""
    # The data count as one draw, which keeps the test valid for any number of draws.
    return float((np.count_nonzero(draws >= observed.max()) + 1) / (len(draws) + 1))


def _studentised(values: FloatArray, errors: FloatArray) -> FloatArray:
    return np.divide(np.abs(values), errors, out=np.zeros(values.shape), where=errors > 0)


def drawn_errors(
    covariance: FloatArray, n_resamples: int, rng: np.random.Generator, degrees_of_freedom: float | None
) -> FloatArray:
    """Errors of the estimates, shape (draws, k), from their joint distribution."""
    drawn = rng.standard_normal((n_resamples, len(covariance))) @ symmetric_root(covariance)
    if degrees_of_freedom is not None:
        drawn /= np.sqrt(rng.chisquare(degrees_of_freedom, (n_resamples, 1)) / degrees_of_freedom)
    return np.asarray(drawn)


def changes(
    rows: Sequence[int], values: FloatArray, errors: JointErrors, drawn: FloatArray, confidence_level: float
) -> tuple[tuple[Split, ...], int, float]:
    """Return all splits, the number of the one that tells most, and the p-value of it."""
    contrasts = _splits(len(rows))
    of_splits = errors.of_contrasts(contrasts)
    differences = np.where(of_splits > 0, contrasts @ values, 0.0)
    largest = largest_of(drawn @ contrasts.T, of_splits)
    observed = _studentised(differences, of_splits)
    reach = float(np.quantile(largest, confidence_level)) * of_splits
    means = [(float(values[:cut].mean()), float(values[cut:].mean())) for cut in range(1, len(rows))]
    splits = tuple(
        Split(row, *parts, difference, difference - half, difference + half)
        for row, parts, difference, half in zip(rows[1:], means, differences.tolist(), reach.tolist(), strict=True)
    )
    return splits, int(np.argmax(observed)), share_as_large(largest, observed)


def pvalue_within(cut: int, values: FloatArray, errors: JointErrors, drawn: FloatArray) -> float | None:
    """Test whether the values before a cut are one, and those after it."""
    k = len(values)
    before, after = _splits(cut), _splits(k - cut)
    contrasts = np.zeros((k - 2, k))
    contrasts[: cut - 1, :cut] = before
    contrasts[cut - 1 :, cut:] = after
    of_splits = errors.of_contrasts(contrasts)
    if not of_splits.any():
        return None
    return share_as_large(largest_of(drawn @ contrasts.T, of_splits), _studentised(contrasts @ values, of_splits))


def _splits(k: int) -> FloatArray:
    """Return the contrasts of all splits of k steps, shape (k - 1, k): the mean after less the mean before.

    >>> _splits(3).tolist()
    [[-1.0, 0.5, 0.5], [-0.5, -0.5, 1.0]]
    """
    places, cuts = np.arange(k), np.arange(1, k)[:, None]
    return np.where(places < cuts, -1 / cuts, 1 / (k - cuts))
