"""Outcomes of several runs over the same questions: matrices with one row a run and one column a question.

A question need not be scored in every run. Where it is not, a third matrix says so, and whatever the other two hold
there is ignored.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.stats.arguments import check_rows, check_same_index, truth_values
from refusal_index.stats.contingency import ContingencyTable

BoolArray = NDArray[np.bool_]


def checked_matrices(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Check the outcomes of k runs over n questions and return them as three matrices of shape (k, n).

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (k, n)
        As for `ContingencyTable.from_arrays`, one row a run, one column a question.
    scored : array_like of bool, shape (k, n), optional
        False where that run has no grade for that question; all True if not given.

    Returns
    -------
    refused, wrong, scored : ndarray of bool, shape (k, n)
        `refused` and `wrong` are False wherever `scored` is, so that ignored values cannot leak into a count.

    Raises
    ------
    TypeError
        If an argument holds something other than truth values or 0 and 1, or masked values.
    ValueError
        If an argument is not two-dimensional, the shapes differ, or the indexes of pandas do.

    Examples
    --------
    >>> refused, wrong, scored = checked_matrices([[True, False, True]], [[True, True, False]], [[True, True, False]])
    >>> refused.tolist(), wrong.tolist()
    ([[True, False, False]], [[True, True, False]])
    """
    check_same_index({"refused": refused, "wrong": wrong, "scored": scored})
    r, w = _checked_matrix("refused", refused), _checked_matrix("wrong", wrong)
    s = np.ones_like(r) if scored is None else _checked_matrix("scored", scored)
    for name, matrix in (("wrong", w), ("scored", s)):
        if matrix.shape != r.shape:
            raise ValueError(
                f"refused and {name} must have one value for each of the same runs and questions, got shapes {r.shape} "
                f"and {matrix.shape}; was one of them filtered or transposed?"
            )
    return r & s, w & s, s


def cell_codes(refused: BoolArray, wrong: BoolArray, scored: BoolArray) -> NDArray[np.intp]:
    """Return the number of each question's cell, in the order of `CELL_NAMES`, or 4 where it is not scored.

    The matrices are those of `checked_matrices`.
    """
    return np.where(scored, 2 * ~refused + ~wrong, 4)


def repeat_each_other(*matrices: BoolArray) -> bool:
    """Whether all rows of each matrix are the same."""
    return all(bool((matrix == matrix[0]).all()) for matrix in matrices)


def row_tables(refused: BoolArray, wrong: BoolArray, scored: BoolArray) -> tuple[ContingencyTable, ...]:
    """Count the scored questions of each row; the matrices are those of `checked_matrices`."""
    rows = cell_codes(refused, wrong, scored)
    return tuple(ContingencyTable(*np.bincount(row, minlength=5)[:4].tolist()) for row in rows)


def _checked_matrix(name: str, values: ArrayLike) -> BoolArray:
    check_rows(name, values)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} must have rows of one length, one value a question, got rows that differ; "
            "was a question left out of one run? Mark it in scored instead"
        ) from error
    if array.ndim != 2:
        raise ValueError(
            f"{name} must be two-dimensional, one row a run and one column a question, got shape {array.shape}; "
            "is it the outcomes of a single run?"
        )
    likely = (
        "are there grades in it that need comparing (grade == 'refused'), or missing values that scored should mark?"
    )
    return truth_values(name, array, likely)
