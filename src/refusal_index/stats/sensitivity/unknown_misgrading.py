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
        None where undefined.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        As in `MisgradingResult`, of the first of `ends` that has one, an undefined one before others.
    ends : tuple of two MisgradingResult
        Of rates that may differ: the corrections with the lowest and the highest index. Of rates that are the same:
        those at the smallest and the largest rates.
    """

    low: float | None
    high: float | None
    status: Status
    reason: str | None
    ends: tuple[MisgradingResult, MisgradingResult]


def misgrading_range(
    table: ContingencyTable,
    graded_wrong_if_right: tuple[float, float],
    graded_right_if_wrong: tuple[float, float],
    *,
    same_rates: bool = False,
) -> MisgradingRange:
    """Range of the corrected Refusal Index while both error rates of the grader vary.

    Parameters
    ----------
    table : ContingencyTable
        Counts by the grader's grades.
    graded_wrong_if_right, graded_right_if_wrong : tuple of two floats
        Smallest and largest f_c and f_w.
    same_rates : bool, default: False
        Whether the rates are the same for refused and answered questions. A grader sees other kinds of answers there,
        forced guesses and free replies, so that nothing says that they are.

    Returns
    -------
    MisgradingRange
        Rates that may differ: the sharp range over all that are possible, which ends at -1 or 1 where a cell can be
        corrected down to 0. Rates that are the same: undefined where the smallest or the largest are impossible.

    Raises
    ------
    TypeError
        If `table` is not a ContingencyTable, or a rate is not a number.
    ValueError
        If a rate is out of range, the ends of a range are in the wrong order, or the largest rates sum to 1 or more.

    Notes
    -----
    The index rises with the share of the refused that are wrong and falls with that of the answered. A corrected share
    rises with f_w and falls with f_c. So the highest index of rates that may differ is at the largest f_w and the
    smallest f_c of the refused and the other way round of the answered, and the lowest at the opposite corner. Rates
    that are the same never change the sign of rho, and its size grows with either: in f_w the derivative of rho is
    proportional to ``p11 - beta mu``, with ``beta = P(refused | at the threshold of being wrong)``, which has the sign
    of rho since refusals are more frequent beyond that threshold than at it; likewise in f_c.

    References
    ----------
    .. [1] Rogan and Gladen (1978). :doi:`10.1093/oxfordjournals.aje.a112510`

    Examples
    --------
    >>> table = ContingencyTable(710, 30, 210, 50)
    >>> for same in (False, True):
    ...     bounds = misgrading_range(table, (0.0, 0.03), (0.0, 0.03), same_rates=same)
    ...     print(round(bounds.low, 3), round(bounds.high, 3))
    0.428 0.714
    0.482 0.677
    """
    names = ("graded_wrong_if_right", "graded_right_if_wrong")
    for name, ends in zip(names, (graded_wrong_if_right, graded_right_if_wrong), strict=True):
        low, high = checked_rate(name, ends)
        if np.ndim(ends) == 0 or low > high:
            raise ValueError(f"{name} must be the smallest rate and the largest, got {ends!r}; are they swapped?")
    checked_rates(graded_wrong_if_right[1], graded_right_if_wrong[1])
    f_c, f_w = graded_wrong_if_right, graded_right_if_wrong
    if same_rates:
        return _range_between(*(correct_misgrading(table, f_c[end], f_w[end]) for end in (0, 1)))
    lowest = correct_misgrading(table, (f_c[1], f_c[0]), (f_w[0], f_w[1]))
    highest = correct_misgrading(table, (f_c[0], f_c[1]), (f_w[1], f_w[0]))
    if _some_are_possible(lowest, highest):
        lowest, highest = _as_far_as_possible(lowest), _as_far_as_possible(highest)
    return _range_between(lowest, highest)


def _some_are_possible(lowest: MisgradingResult, highest: MisgradingResult) -> bool:
    """Whether in both groups some rates between those of two corners leave no cell negative."""
    fewest, most = np.array(lowest.cells).reshape(2, 2), np.array(highest.cells).reshape(2, 2)
    # Of the refused the lowest index has the fewest wrong, of the answered the most.
    return bool(most[0, 0] >= 0 and fewest[0, 1] >= 0 and fewest[1, 0] >= 0 and most[1, 1] >= 0)


def _range_between(first: MisgradingResult, second: MisgradingResult) -> MisgradingRange:
    ends = first, second
    deciding = [end for end in ends if end.status == "undefined"] or ends
    reason = next((end.reason for end in deciding if end.reason), None)
    if first.estimate is None or second.estimate is None:
        return MisgradingRange(None, None, "undefined", reason, ends)
    low, high = sorted((first.estimate, second.estimate))
    return MisgradingRange(low, high, "boundary" if reason else "ok", reason, ends)


def _as_far_as_possible(corrected: MisgradingResult) -> MisgradingResult:
    """Correct no further than to an empty cell: rates beyond that cannot be."""
    cells = np.array(corrected.cells).reshape(2, 2)
    if corrected.rates is None or cells.min() >= 0:
        return corrected
    clipped = np.clip(cells, 0.0, cells.sum(axis=1, keepdims=True))
    return estimate_from_cells(clipped, corrected.table, corrected.rates, ())
