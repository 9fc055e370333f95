"""A metric over the steps of a training run, which asks the same questions each time: bands, and since when it differs.

The estimates of k steps share their questions, and so much of their error. Their covariance is that of the influence of
the questions (`stats.comparison.metric_influence`), and both answers are simulated from the normal distribution that it
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

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.baseline import (
    SCORES,
    TRUTHFULNESS_WEIGHTS,
    Payoffs,
    Weights,
    checked_payoffs,
    ratio_weights,
)
from refusal_index.stats.change_point import JointErrors, Split, changes, drawn_errors, largest_of, pvalue_within
from refusal_index.stats.comparison.pair import (
    PointEstimate,
    checked_metric,
    fewest_degrees_of_freedom,
    point_estimate,
    scaled_influence,
    without_clusters,
)
from refusal_index.stats.design import AnyTable, SampledTable, SamplingDesign, tables_of_rows
from refusal_index.stats.estimate import Estimate
from refusal_index.stats.intervals import Seed, checked_resamples, normal_quantile
from refusal_index.stats.matrices import cell_codes, checked_matrices

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
    design = SamplingDesign.of(matrices[0].shape[1], cluster, weight)
    matrices = matrices if design is None else design.taking_part(matrices)
    codes = cell_codes(*matrices)
    tables = tables_of_rows(matrices, design)
    points = [point_estimate(name, table, worth) for table in tables]
    doubts = np.array([_doubt(name, *each, worth) for each in zip(points, tables, strict=True)])
    rows = [row for row, point in enumerate(points) if point.status == "ok" or doubts[row]]
    if not rows:
        return MetricOverSteps(
            name, tuple(_point(name, one) for one in points), None, (), (), None, None, None, confidence_level
        )
    influence = scaled_influence(points, codes, design)[rows]
    alone = without_clusters(points, codes, design)
    errors = JointErrors.of(influence, None if alone is None else alone[rows], doubts[rows])
    degrees = fewest_degrees_of_freedom(matrices[2][rows], design)
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
    top, bottom = np.array(ratio_weights(metric, worth), float)
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
    critical = largest_of(drawn[:, known], errors[known]).quantile(confidence_level)
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
