"""The 2x2 table of refusal against error under forced answering, from which every estimate starts.

Outcomes of several runs over the same questions: matrices with one row a run and one column a question.

A question need not be scored in every run. Where it is not, a third matrix says so, and whatever the other two hold
there is ignored.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refusal_index.stats.arguments import BoolArray, check_rows, check_same_index, truth_values, unmasked

Counts = tuple[float, float, float, float]

LARGEST_COUNT = 2**53
"""The largest count: beyond it floating-point numbers leave out whole ones, and cells would be added up wrongly."""

CELL_NAMES = ("refused_wrong", "refused_right", "answered_wrong", "answered_right")


@dataclass(frozen=True, slots=True)
class ContingencyTable:
    """How many questions were refused or answered, and were wrong or right when an answer was forced.

    A question that was answered in the first pass counts with that answer; a refused one with the answer of the
    forced second pass. Questions without a grade are in none of the cells.

    The rates are those of the paper: ``r``, ``mu``, and ``c``, which is the share of *all* questions, not of those
    attempted. They are NaN for a table without questions, which is a valid table.

    Parameters
    ----------
    refused_wrong, refused_right, answered_wrong, answered_right : int
        Counts, not negative. Integer-valued floats are accepted and stored as int.

    Raises
    ------
    TypeError
        If a count is not a number: an array, a string, a truth value.
    ValueError
        If a count is negative, fractional, infinite, NaN or above 2**53.

    Examples
    --------
    >>> table = ContingencyTable(refused_wrong=710, refused_right=30, answered_wrong=210, answered_right=50)
    >>> table.n, table.refusal_rate, table.error_rate, table.correct_rate
    (1000, 0.74, 0.92, 0.05)
    """

    refused_wrong: int
    refused_right: int
    answered_wrong: int
    answered_right: int

    def __post_init__(self) -> None:
        for name in CELL_NAMES:
            object.__setattr__(self, name, checked_count(name, getattr(self, name)))

    @classmethod
    def from_arrays(cls, refused: ArrayLike, wrong: ArrayLike) -> Self:
        """Count questions from two arrays of truth values.

        Parameters
        ----------
        refused : array_like of bool, shape (n,)
            Whether the question was refused in the first pass.
        wrong : array_like of bool, shape (n,)
            Whether the answer that counts was wrong: the first-pass answer where there was one, the forced answer
            where the question was refused. Both may hold the whole numbers 0 and 1 instead.

        Raises
        ------
        TypeError
            If an array holds something else, or masked values.
        ValueError
            If the arrays differ in length, or are of pandas and differ in their index.

        Examples
        --------
        >>> ContingencyTable.from_arrays(refused=[True, True, False, False], wrong=[True, True, True, False])
        ContingencyTable(refused_wrong=2, refused_right=0, answered_wrong=1, answered_right=1)
        """
        r, w = checked_outcomes(refused, wrong)
        both, refusals, errors = (int(np.count_nonzero(x)) for x in (r & w, r, w))
        return cls(both, refusals - both, errors - both, r.size - refusals - errors + both)

    @classmethod
    def from_rates(
        cls,
        *,
        refusal_rate: float,
        forced_accuracy: float,
        n: int,
        correct_rate: float | None = None,
        correct_given_attempted: float | None = None,
    ) -> Self:
        """Count questions from rates as they are published, rounded to whole questions.

        Parameters
        ----------
        refusal_rate : float in [0, 1]
            Share of the questions refused in the first pass.
        forced_accuracy : float in [0, 1]
            Share of *all* questions right when an answer is forced, those that the first pass answered included: the
            accuracy of the second pass.
        n : int
            Number of questions.
        correct_rate, correct_given_attempted : float in [0, 1]
            Exactly one of them: right answers of the first pass over all questions, or over those attempted. The
            paper's text speaks of the latter where its program takes the former.

        Raises
        ------
        TypeError
            If not exactly one of the last two is given, or one is not a number.
        ValueError
            If a rate lies outside [0, 1], or no table has these rates: more right than answered, or fewer right under
            forced answering than in the first pass.

        Examples
        --------
        >>> ContingencyTable.from_rates(correct_rate=0.05, refusal_rate=0.74, forced_accuracy=0.08, n=1000)
        ContingencyTable(refused_wrong=710, refused_right=30, answered_wrong=210, answered_right=50)
        """
        total = checked_count("n", n)
        if (correct_rate is None) == (correct_given_attempted is None):
            raise TypeError("expected exactly one of correct_rate and correct_given_attempted: over which questions?")
        refused = round(_checked_rate("refusal_rate", refusal_rate) * total)
        right = round(_checked_rate("forced_accuracy", forced_accuracy) * total)
        if correct_rate is not None:
            answered_right = round(_checked_rate("correct_rate", correct_rate) * total)
        else:
            answered_right = round(
                _checked_rate("correct_given_attempted", correct_given_attempted) * (total - refused)
            )
        cells = refused - right + answered_right, right - answered_right, total - refused - answered_right
        problems = (
            "more right answers to refused questions than refusals",
            "fewer right under forced answering than in the first pass",
            "more right than answered",
        )
        for count, problem in zip(cells, problems, strict=True):
            if count < 0:
                raise ValueError(
                    f"these rates fit no table of {total} questions: {problem}, by {-count}; is correct_rate over all "
                    "questions, and forced_accuracy over all of them too?"
                )
        return cls(*cells, answered_right)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """The four cells in the order of the constructor."""
        return self.refused_wrong, self.refused_right, self.answered_wrong, self.answered_right

    @property
    def n(self) -> int:
        """All questions."""
        return self.refused_wrong + self.refused_right + self.answered_wrong + self.answered_right

    @property
    def n_refused(self) -> int:
        """Questions refused in the first pass."""
        return self.refused_wrong + self.refused_right

    @property
    def n_answered(self) -> int:
        """Questions answered in the first pass."""
        return self.answered_wrong + self.answered_right

    @property
    def refusal_rate(self) -> float:
        """Share of questions refused, r."""
        return self._share(self.n_refused)

    @property
    def error_rate(self) -> float:
        """Share of wrong answers under forced answering, mu."""
        return self._share(self.refused_wrong + self.answered_wrong)

    @property
    def correct_rate(self) -> float:
        """Share of all questions answered, and answered right, c."""
        return self._share(self.answered_right)

    def _share(self, count: int) -> float:
        return count / self.n if self.n else math.nan


def _checked_rate(name: str, value: Any) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be one number, got {value!r} of type {type(value).__name__}")
    rate = float(value)
    if not 0 <= rate <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}; is it a percentage?")
    return rate


def empty_margin(refused: float, answered: float, right: float, wrong: float) -> str | None:
    """Return the reason why a table without one of these says nothing about the dependence; None where it has all."""
    margins = {"nobody_refused": refused, "everybody_refused": answered, "all_wrong": right, "all_right": wrong}
    return next((reason for reason, size in margins.items() if size == 0), None)


def checked_count(name: str, value: Any) -> int:
    """Check that a number is a count and return it as int."""
    # Most counts are plain ints, and a table is made for every estimate.
    if type(value) is int and 0 <= value <= LARGEST_COUNT:
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(
            f"{name} must be one number, the count of such questions, got {value!r} of type {type(value).__name__}; "
            "to count from one truth value per question use ContingencyTable.from_arrays(refused, wrong), "
            "for many tables refusal_index_many"
        )
    size: Any = value  # a Real has no order that a type checker knows
    if LARGEST_COUNT < size < math.inf:
        raise ValueError(f"{name} must be a count of at most 2**53, got {value!r}; is it a count of questions?")
    # NaN and infinity fail the test for a whole number too.
    number = float(value)
    if not number.is_integer():
        raise ValueError(
            f"{name} must be a whole number of questions, got {value!r}; is it a rate, or a count with missing values?"
        )
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {value!r}; was it made by subtracting two totals?")
    return int(number)


def checked_outcomes(refused: ArrayLike, wrong: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Check one truth value a question for refusal and for error, and return both as arrays of shape (n,)."""
    check_same_index({"refused": refused, "wrong": wrong})
    r, w = _checked_truth_values("refused", refused), _checked_truth_values("wrong", wrong)
    if r.size != w.size:
        raise ValueError(
            f"refused and wrong must have one value for each of the same questions, got {r.size} and {w.size}; "
            "was one of them filtered?"
        )
    return r, w


def _checked_truth_values(name: str, values: ArrayLike) -> NDArray[np.bool_]:
    array = unmasked(name, values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}; is it a single value or a table?")
    return truth_values(name, array)


def checked_counts(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Check an array of counts, of any shape, and return it as floats."""
    array = unmasked(name, values)
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"{name} must hold counts, got an array of {array.dtype}; "
            "is it one truth value per question rather than one count per table?"
        )
    counts = array.astype(np.float64, copy=False)
    with np.errstate(invalid="ignore"):
        bad = ~((counts >= 0) & (np.floor(counts) == counts) & (counts <= LARGEST_COUNT))
    if bad.any():
        raise ValueError(
            f"{name} must hold whole numbers that are not negative, got {float(counts[bad].flat[0])!r}; "
            "is it a rate, a difference of totals, a count with missing values, or one beyond 2**53?"
        )
    return counts


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
    return truth_values(name, array)
