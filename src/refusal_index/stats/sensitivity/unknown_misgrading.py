"""Correction for a grader whose error rates are not known: from a checked slice of its grades, or over a range."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.estimate import Status
from refusal_index.stats.sensitivity.grader_labels import GraderLabels, grader_rates, labelled_cells
from refusal_index.stats.sensitivity.misgrading import (
    GraderRates,
    MisgradingResult,
    by_group,
    checked_rate,
    checked_rates,
    checked_table,
    correct_misgrading,
    estimate_from_cells,
    estimate_with_rates,
)

GROUPS = ("refused", "answered")
GRADES = ("graded_wrong", "graded_right")


def misgrading_from_labels(
    table: ContingencyTable,
    labels: GraderLabels | None = None,
    *,
    refused: GraderLabels | None = None,
    answered: GraderLabels | None = None,
) -> MisgradingResult:
    """Correct the Refusal Index for a grader by a slice of its grades that a person checked.

    Parameters
    ----------
    table : ContingencyTable
        Counts of the whole run by the grader's grades.
    labels : GraderLabels
        One slice for refused and answered questions alike, whose error rates are taken to be the same. It is a random
        sample of all answers that count, or of those of each grade, in any numbers. Give this or the next two.
    refused, answered : GraderLabels
        A slice for each, sampled in the same way; nothing is assumed to be the same.

    Returns
    -------
    MisgradingResult
        Undefined where the run has graded answers of a kind that no label is of: ``"no_labels:graded_right"`` of one
        slice, ``"no_labels:refused_graded_right"`` of two, several joined by ``+``. Answers that the run does not have
        need no labels.

    Raises
    ------
    TypeError
        If neither or both forms are given, or something is not of its type.

    Notes
    -----
    A slice that was chosen by the grader's grade says how often a person agrees with each *grade*, not how often the
    grader errs on right and on wrong answers. So the first is what is taken from the slice, which any choice by grade
    leaves intact, and f_c and f_w follow by Bayes' rule with the shares of the grades in the whole table. A slice in
    which refused questions are over-represented needs the second form. With a slice for each group, the corrected
    cells are the graded ones with the share moved that the labels say is mistaken, also where the rates that this
    implies sum to 1.

    The interval draws the cells, and the two error rates among the grades, from their posterior distributions.

    References
    ----------
    .. [1] Rogan and Gladen (1978). :doi:`10.1093/oxfordjournals.aje.a112510`

    Examples
    --------
    >>> labels = GraderLabels(
    ...     graded_wrong_is_wrong=395, graded_wrong_is_right=5, graded_right_is_wrong=10, graded_right_is_right=90
    ... )
    >>> result = misgrading_from_labels(ContingencyTable(220, 60, 180, 540), labels)
    >>> [round(rates[0], 4) for rates in result.rates], round(result.estimate, 3)
    ([0.0092, 0.1319], 0.816)
    """
    each = (refused, answered)
    if (labels is None) == (each == (None, None)) or (labels is None and None in each):
        raise TypeError("misgrading_from_labels needs one slice of labels, or both refused= and answered=")
    slices = tuple(piece for piece in (labels, *each) if piece is not None)
    for piece in slices:
        if not isinstance(piece, GraderLabels):
            raise TypeError(f"labels must be GraderLabels, got {type(piece).__name__}")
    cells, errors = by_group(checked_table(table)), np.stack([piece.errors for piece in slices])
    graded, labelled = cells.sum(axis=0, keepdims=True) if len(slices) == 1 else cells, errors.sum(axis=-1)
    if lacking := _kinds((graded > 0) & (labelled == 0)):
        return MisgradingResult(None, None, "undefined", f"no_labels:{lacking}", None, None, table, slices)
    shares = np.divide(errors[..., 0], labelled, out=np.zeros(labelled.shape), where=labelled > 0)
    f_c, f_w = ((float(x[0]), float(x[1])) for x in grader_rates(cells, shares))
    if len(slices) == 1:
        return estimate_with_rates(table, GraderRates(f_c, f_w), slices)
    return estimate_from_cells(labelled_cells(cells, shares), table, GraderRates(f_c, f_w), slices)


def _kinds(hits: NDArray[np.bool_]) -> str:
    """Name the kinds of graded answers that are hit, by grade, and by group where `hits` has a row for each."""
    names = GRADES if len(hits) == 1 else tuple(f"{group}_{grade}" for group in GROUPS for grade in GRADES)
    return "+".join(name for name, hit in zip(names, hits.ravel(), strict=True) if hit)


@dataclass(frozen=True, slots=True)
class MisgradingRange:
    """Smallest and largest corrected Refusal Index over a range of error rates of the grader.

    Attributes
    ----------
    low, high : float or None
        None where undefined. Where only the largest rates are impossible, the end at the smallest is still that of
        `at_smallest_rates`.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `MisgradingResult`: where undefined that of the corner that is, else of the one at the boundary; of the
        smallest rates if it is both.
    at_smallest_rates, at_largest_rates : MisgradingResult
        The corrections at the two corners.
    """

    low: float | None
    high: float | None
    status: Status
    reason: str | None
    at_smallest_rates: MisgradingResult
    at_largest_rates: MisgradingResult


def misgrading_range(
    table: ContingencyTable, graded_wrong_if_right: tuple[float, float], graded_right_if_wrong: tuple[float, float]
) -> MisgradingRange:
    """Range of the corrected Refusal Index while both error rates of the grader vary.

    Parameters
    ----------
    table : ContingencyTable
        Counts by the grader's grades.
    graded_wrong_if_right, graded_right_if_wrong : tuple of two floats
        Smallest and largest f_c and f_w, the same for refused and answered questions.

    Returns
    -------
    MisgradingRange
        Undefined where the smallest or the largest rates are impossible: the index then has no bound in the range.

    Raises
    ------
    TypeError
        If `table` is not a ContingencyTable, or a rate is not a number.
    ValueError
        If a rate is out of range, the ends of a range are in the wrong order, or the largest rates sum to 1 or more.

    Notes
    -----
    The correction never changes the sign of rho, and its size grows with either rate: in f_w the derivative of rho is
    proportional to ``p11 - beta mu``, with ``beta = P(refused | at the threshold of being wrong)``, which has the sign
    of rho since refusals are more frequent beyond that threshold than at it; likewise in f_c. So the ends of the range
    are those at the smallest and the largest rates.

    References
    ----------
    .. [1] Rogan and Gladen (1978). :doi:`10.1093/oxfordjournals.aje.a112510`

    Examples
    --------
    >>> bounds = misgrading_range(ContingencyTable(706, 34, 207, 53), (0.0, 0.02), (0.0, 0.01))
    >>> round(bounds.low, 3), round(bounds.high, 3)
    (0.473, 0.515)
    """
    names = ("graded_wrong_if_right", "graded_right_if_wrong")
    for name, ends in zip(names, (graded_wrong_if_right, graded_right_if_wrong), strict=True):
        low, high = checked_rate(name, ends)
        if np.ndim(ends) == 0 or low > high:
            raise ValueError(f"{name} must be the smallest rate and the largest, got {ends!r}; are they swapped?")
    checked_rates(graded_wrong_if_right[1], graded_right_if_wrong[1])
    corners = [correct_misgrading(table, graded_wrong_if_right[end], graded_right_if_wrong[end]) for end in (0, 1)]
    deciding = [corner for corner in corners if corner.status == "undefined"] or corners
    reason = next((corner.reason for corner in deciding if corner.reason), None)
    estimates = [corner.estimate for corner in corners if corner.estimate is not None]
    if len(estimates) < 2:
        return MisgradingRange(None, None, "undefined", reason, *corners)
    return MisgradingRange(min(estimates), max(estimates), "boundary" if reason else "ok", reason, *corners)
