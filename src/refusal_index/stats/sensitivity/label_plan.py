"""How many labels of a grader's grades an interval of the Refusal Index takes."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refusal_index.stats._ops import FloatArray
from refusal_index.stats.comparison.metric_influence import point_estimate
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.estimate import Status
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.planning.sample_size import checked_positive
from refusal_index.stats.sensitivity.misgrading import correct_misgrading
from refusal_index.stats.sensitivity.prediction_powered import SHARES_OF


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
