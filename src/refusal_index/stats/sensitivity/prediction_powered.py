"""Metrics and their differences from many graded answers and a few that a person labelled.

The grade of an answer predicts what a person would say of it. The estimate is that of the grades, corrected by what the
labelled slice shows them to miss. In terms of influence functions, question by question,

    m(cell) + labelled / pi * (influence of the true cell - m(cell)),

where pi is the chance with which the question was drawn into the slice and m the mean influence of the true cell in
the question's graded cell, as the labels tell it. That is prediction-powered inference [1]_ with the best prediction
that a grade allows: it tunes itself [2]_, since where grades say nothing m does not depend on them. Sums of squares
over questions are variances, and products of two runs covariances, whichever questions they share and whichever of
these are labelled.

References
----------
.. [1] Angelopoulos, A. N., Bates, S., Fannjiang, C., Jordan, M. I. and Zrnic, T. (2023). Prediction-powered inference.
   Science, 382, 669-674. :doi:`10.1126/science.adi6000`
.. [2] Angelopoulos, A. N., Duchi, J. C. and Zrnic, T. (2023). PPI++: efficient prediction-powered inference.
   https://arxiv.org/abs/2311.01453

How many labels of a grader's grades an interval of the Refusal Index takes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.stats.arguments import BoolArray, FloatArray
from refusal_index.stats.baseline import METRIC_NAMES, TRUTHFULNESS_WEIGHTS, Payoffs, Weights, checked_payoffs
from refusal_index.stats.comparison.pair import PointEstimate, point_estimate
from refusal_index.stats.contingency import CELL_NAMES, ContingencyTable, cell_codes, checked_matrices
from refusal_index.stats.estimate import ResultWithInterval, Status, reasons_of
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.planning import checked_positive
from refusal_index.stats.sensitivity.misgrading import correct_misgrading

# Shares of cells are kept as counts of so many questions, which is as good as exact.
SHARES_OF = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionPowered(ResultWithInterval):
    """A metric of a run, or its difference between two, as a person would have graded it.

    Attributes
    ----------
    name : str in `METRIC_NAMES`
    estimate : float or None
        None where undefined.
    standard_error : float or None
        Of the questions and of the labels. None unless the status is ``"ok"``.
    graded : float or None
        The same by the grades alone.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `MetricDifference`, or ``"no_labels:"`` with the graded cells of which no answer is labelled; of a
        difference after ``"first:"`` or ``"second:"``.
    """

    name: str
    graded: float | None


def prediction_powered(
    refused: ArrayLike,
    wrong: ArrayLike,
    scored: ArrayLike | None = None,
    *,
    labelled: ArrayLike,
    truly_wrong: ArrayLike,
    inclusion: ArrayLike | None = None,
    penalty: float = 1.0,
    truthfulness_weights: Weights = TRUTHFULNESS_WEIGHTS,
) -> tuple[PredictionPowered, ...]:
    """Estimate every metric of a run, or its difference between two, from grades and a labelled slice.

    Parameters
    ----------
    refused, wrong, scored : array_like of bool, shape (1, n) or (2, n)
        By the grader, as for `checked_matrices`: one run, or two of which the first less the second is wanted.
    labelled, truly_wrong : array_like of bool, of the same shape
        Whether a person labelled the answer that counts, and whether it is wrong. What is not labelled is ignored.
    inclusion : array_like of float, of the same shape, optional
        Chance with which each answer was drawn into the slice, in (0, 1]; only that of labelled ones matters, and only
        in proportion to others of the same graded cell. The same for all of a cell if not given, as where so many of
        each cell were drawn.
    penalty : float, default: 1
    truthfulness_weights : tuple of three floats, default: (1, 0, 1)
        Of the weighted score.

    Returns
    -------
    tuple of PredictionPowered
        In the order of `METRIC_NAMES`.

    Raises
    ------
    TypeError, ValueError
        If the arguments are not of these types, shapes and ranges.

    Notes
    -----
    The estimate of the index is that of `misgrading_from_labels` with a slice for each group. Where a labelled cell
    shows no mistaken grade its variance is not taken to be 0: shares of mistaken grades enter it with half a label
    added to either verdict. Simulated 95 % intervals of the index, of 2,000 questions with 75 labels of each cell, by a
    grader that errs differently on refused and on answered questions, cover .96 to .97, those of the other metrics .95
    to .96, and those of differences of two runs .95 to .97 (`benchmarks/coverage/misgrading.py`).

    References
    ----------
    .. [1] Angelopoulos et al. (2023). :doi:`10.1126/science.adi6000`

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> truly_wrong = rng.random((1, 2000)) < 0.4
    >>> refused = rng.random((1, 2000)) < np.where(truly_wrong, 0.6, 0.2)
    >>> wrong = truly_wrong ^ (rng.random((1, 2000)) < 0.1)
    >>> labelled = rng.random((1, 2000)) < 0.2
    >>> found = prediction_powered(refused, wrong, labelled=labelled, truly_wrong=truly_wrong)[-1]
    >>> round(found.graded, 2), round(found.estimate, 2), round(found.standard_error, 2)
    (0.42, 0.57, 0.04)
    """
    matrices = checked_matrices(refused, wrong, scored)
    if len(matrices[0]) not in (1, 2):
        raise ValueError(f"refused must have one row or two, one a run, got {len(matrices[0])}")
    known, truth, _ = checked_matrices(labelled, truly_wrong)
    chances = _checked_inclusion(inclusion, known)
    if known.shape != matrices[0].shape:
        raise ValueError(f"labelled must have the shape of refused, {matrices[0].shape}, got {known.shape}")
    codes, worth = cell_codes(*matrices), checked_payoffs(penalty, truthfulness_weights)
    runs = [_LabelledRun.of(*row) for row in zip(codes, known, truth, chances, strict=True)]
    return tuple(_estimated(name, runs, worth) for name in METRIC_NAMES)


def _checked_inclusion(inclusion: ArrayLike | None, labelled: BoolArray) -> FloatArray:
    if inclusion is None:
        return np.ones(labelled.shape)
    chances = np.asarray(inclusion, float)
    if chances.shape != labelled.shape:
        raise ValueError(f"inclusion must have the shape of labelled, {labelled.shape}, got {chances.shape}")
    if not np.all((chances[labelled] > 0) & (chances[labelled] <= 1)):
        raise ValueError("inclusion must lie in (0, 1] wherever an answer is labelled; is one missing, or in per cent?")
    return chances


@dataclass(frozen=True, slots=True)
class _LabelledRun:
    """One run: graded cells by question, labels, and what they say of each graded cell."""

    codes: NDArray[np.intp]  # graded cell of each question, 4 where not scored
    labelled: BoolArray
    true_codes: NDArray[np.intp]  # true cell of each labelled question
    weights: FloatArray  # of each question: 0 unless labelled, summing to the questions of its graded cell
    mistaken: FloatArray  # share of mistaken grades of each graded cell, NaN without labels
    labels: NDArray[np.int64]  # of each graded cell

    @classmethod
    def of(cls, codes: NDArray[np.intp], labelled: BoolArray, wrong: BoolArray, chances: FloatArray) -> "_LabelledRun":
        known = labelled & (codes < 4)
        true_codes = np.where(codes < 4, 2 * (codes // 2) + ~wrong, 4)
        raw = np.where(known, 1 / np.where(known, chances, 1.0), 0.0)
        totals = np.bincount(codes, raw, minlength=5)
        sizes = np.bincount(codes, minlength=5)
        scale = np.divide(sizes, totals, out=np.zeros(5), where=totals > 0)
        hits = np.bincount(codes, raw * (true_codes != codes), minlength=5)
        mistaken = np.divide(hits, totals, out=np.full(5, np.nan), where=totals > 0)
        labels = np.bincount(codes[known], minlength=5)
        return cls(codes, known, true_codes, raw * scale[codes], mistaken[:4], labels[:4])

    @property
    def graded(self) -> FloatArray:
        """Questions of each graded cell."""
        return np.bincount(self.codes, minlength=5)[:4].astype(float)

    @property
    def lacking(self) -> str | None:
        """Why nothing can be said: graded cells without a label."""
        cells = (self.graded > 0) & (self.labels == 0)
        names = "+".join(name for name, hit in zip(CELL_NAMES, cells, strict=True) if hit)
        return f"no_labels:{names}" if names else None

    def true_table(self) -> ContingencyTable:
        """Shares of the true cells, as counts."""
        mistaken = self.graded * np.nan_to_num(self.mistaken)
        cells = self.graded - mistaken + mistaken[[1, 0, 3, 2]]
        # What rounding leaves of an empty cell is not a question.
        shares = np.where(cells < 1e-9, 0.0, cells) / max(self.graded.sum(), 1.0)
        return ContingencyTable(*(round(share * SHARES_OF) for share in shares.tolist()))

    def influence(self, point: PointEstimate) -> tuple[FloatArray, float]:
        """Influence of each question over their number, and the squared standard error."""
        by_cell, n = np.array(point.by_cell), self.graded.sum()
        jump = by_cell[[1, 0, 3, 2]] - by_cell
        mean = np.append(by_cell + np.nan_to_num(self.mistaken) * jump, 0.0)
        residual = np.append(by_cell, 0.0)[self.true_codes] - mean[self.codes]
        # Half a label of either verdict: what no label has shown is not impossible.
        shares = (np.nan_to_num(self.mistaken) * self.labels + 0.5) / (self.labels + 1)
        weights = self.weights * self.labelled
        squares = np.bincount(self.codes, weights**2, minlength=5)[:4]
        variance = float(self.graded @ mean[:4] ** 2 + squares @ (jump**2 * shares * (1 - shares)))
        return (mean[self.codes] + weights * residual) / n, variance / n**2


def _estimated(name: str, runs: Sequence[_LabelledRun], worth: Payoffs) -> PredictionPowered:
    plain = [point_estimate(name, ContingencyTable(*run.graded.tolist()), worth) for run in runs]
    points = [
        PointEstimate(None, "undefined", run.lacking) if run.lacking else point_estimate(name, run.true_table(), worth)
        for run in runs
    ]
    graded, estimate = _less([one.estimate for one in plain]), _less([one.estimate for one in points])
    reason = points[0].reason if len(points) == 1 else reasons_of(*points)
    if estimate is None or reason:
        status: Status = "undefined" if estimate is None else "boundary"
        return PredictionPowered(estimate, status, reason, name=name, graded=graded)
    influences, variances = zip(*(run.influence(point) for run, point in zip(runs, points, strict=True)), strict=True)
    variance = sum(variances) - (2 * float(influences[0] @ influences[1]) if len(runs) == 2 else 0.0)
    return PredictionPowered(estimate, standard_error=math.sqrt(max(variance, 0.0)), name=name, graded=graded)


def _less(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return known[0] if len(known) == 1 else known[0] - known[1]


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """A number of labels, as many of each graded cell as far as there are, and what they buy.

    Attributes
    ----------
    n : int or None
        Labels; None where no number of them is enough, or undefined.
    half_width : float or None
        Of the prediction-powered interval to be expected; where none is enough, that with a label of every answer.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        ``"too_few_questions"`` where none is enough, with the status ``"ok"``; else as of `correct_misgrading`.
    """

    n: int | None
    half_width: float | None
    status: Status
    reason: str | None


def labels_for_half_width(
    table: ContingencyTable,
    half_width: float,
    *,
    graded_wrong_if_right: float = 0.03,
    graded_right_if_wrong: float = 0.03,
    confidence_level: float = 0.95,
) -> LabelPlan:
    """Fewest labels whose prediction-powered interval of the index is expected to be no wider than wanted.

    Parameters
    ----------
    table : ContingencyTable
        Counts of the run by the grader's grades.
    half_width : float
        Wanted half-width, positive.
    graded_wrong_if_right, graded_right_if_wrong : float
        How often the grader is expected to err, as for `correct_misgrading`.
    confidence_level : float, default: 0.95

    Returns
    -------
    LabelPlan

    Raises
    ------
    TypeError, ValueError
        As for `correct_misgrading`, or if the half-width is not positive.

    References
    ----------
    .. [1] Angelopoulos et al. (2023). :doi:`10.1126/science.adi6000`

    Examples
    --------
    >>> [labels_for_half_width(ContingencyTable(600, 200, 400, 800), width).n for width in (0.12, 0.1, 0.08)]
    [86, 117, 181]
    """
    wanted, quantile = checked_positive("half_width", half_width), normal_quantile(confidence_level)
    corrected = correct_misgrading(table, graded_wrong_if_right, graded_right_if_wrong)
    if corrected.status != "ok" or corrected.cells is None:
        return LabelPlan(None, None, corrected.status, corrected.reason)
    graded = np.array(table.counts)
    errors = graded_wrong_if_right, graded_right_if_wrong
    questions, jumps, mistaken = _variances(graded, np.array(corrected.cells), errors)

    def width(n: int) -> float:
        drawn = equal_numbers(graded, n)
        # As `prediction_powered` counts them: few labels cannot show that mistakes are rare.
        shares = (drawn * mistaken + 0.5) / (drawn + 1)
        by_labels = jumps * shares * (1 - shares) / np.maximum(drawn, 1)
        return quantile * math.sqrt(questions + float(np.sum(by_labels)))

    least, most = int(np.count_nonzero(graded)), int(graded.sum())
    if width(most) > wanted:
        return LabelPlan(None, width(most), "ok", "too_few_questions")
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if width(middle) <= wanted else (middle + 1, most)
    return LabelPlan(most, width(most), "ok", None)


def equal_numbers(available: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Deal n labels to cells in turn, the first of them first, as far as there are answers."""
    drawn = np.zeros_like(available)
    while (left := n - int(drawn.sum())) > 0 and (open_cells := np.flatnonzero(drawn < available)).size:
        share = max(left // open_cells.size, 1)
        chosen = open_cells[:left]
        drawn[chosen] = np.minimum(drawn[chosen] + share, available[chosen])
    return drawn


def _variances(
    graded: NDArray[np.int64], true: FloatArray, errors: tuple[float, float]
) -> tuple[float, FloatArray, FloatArray]:
    """Variance of the index by its questions, and of each graded cell what a mistake moves and how many there are."""
    n, (f_c, f_w) = int(graded.sum()), errors
    point = point_estimate("refusal_index", ContingencyTable(*(round(x / n * SHARES_OF) for x in true.tolist())))
    by_cell = np.array(point.by_cell)
    jump = by_cell[[1, 0, 3, 2]] - by_cell
    # Of the answers graded wrong those that are right are mistaken, and the other way round.
    mistaken = np.divide(true[[1, 0, 3, 2]] * [f_c, f_w, f_c, f_w], graded, out=np.zeros(4), where=graded > 0)
    means = by_cell + mistaken * jump
    return float(graded @ means**2) / n**2, (graded * jump / n) ** 2, mistaken
