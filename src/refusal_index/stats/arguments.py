"""Checks of arguments: masked values, whole numbers, ranges, shapes, and matching pandas indexes.

NumPy silently uses the values under a mask, and ignores the index of a pandas Series. Either would count the wrong
questions. So masked values and different indexes are errors here.
"""

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def unmasked(name: str, values: Any) -> NDArray[Any]:
    """Return values as an array; raises the errors of `check_rows`."""
    check_rows(name, values)
    return np.asarray(values)


def check_rows(name: str, values: Any) -> None:
    """Raise TypeError if a value is masked, and ValueError if rows of a list have different pandas indexes."""
    masked = _count_masked(values)
    if masked:
        raise TypeError(
            f"{name} must hold no masked values, got {masked:,} of them; leave these questions out of all "
            "arrays, or mark them in scored if there is such an argument"
        )
    check_same_index({f"{name}[{number}]": row for number, row in enumerate(_rows(values))})


def _rows(values: Any) -> list[Any]:
    """Return the rows of a list of arrays or lists; for anything else a list of itself, without iterating over it."""
    return list(values) if isinstance(values, list | tuple) and values and not np.isscalar(values[0]) else [values]


def _count_masked(values: Any) -> int:
    if isinstance(values, np.ma.MaskedArray):
        return int(np.ma.getmaskarray(values).sum())
    rows = _rows(values)
    return 0 if rows[0] is values else sum(map(_count_masked, rows))


def check_same_index(named: dict[str, Any]) -> None:
    """Raise ValueError if pandas arguments have different indexes, since their values would be paired by position."""
    indexed = [
        (name, values.index)
        for name, values in named.items()
        if type(values).__module__.partition(".")[0] == "pandas" and hasattr(values, "index")
    ]
    for name, index in indexed[1:]:
        first, expected = indexed[0]
        if not index.equals(expected):
            raise ValueError(
                f"{first} and {name} must have the same index, got different ones; reindex one like the other, or "
                "pass both with .to_numpy() if they are in the same order"
            )


def truth_values(name: str, values: Any) -> NDArray[Any]:
    """Return truth values, which may be given as the integers 0 and 1, as an array of bool of the same shape.

    Raises TypeError for anything else.
    """
    array = unmasked(name, values)
    if array.dtype == bool or not array.size:
        return array.astype(bool, copy=False)
    if array.dtype.kind in "iu" and ((array == 0) | (array == 1)).all():
        return array.astype(bool)
    if array.dtype.kind == "O" and all(isinstance(value, bool | np.bool_) for value in array.flat):
        return array.astype(bool)
    other = next((value for value in array.flat if array.dtype.kind in "iu" and value not in (0, 1)), None)
    raise TypeError(
        f"{name} must hold truth values, got an array of {array.dtype}"
        + ("" if other is None else f" with {other} in it")
        + "; are there grades in it that need comparing (grade == 'refused'), or missing values of unscored questions "
        "that need dropping or marking in scored?"
    )


def one_of(name: str, value: str, names: Iterable[str]) -> str:
    """Return the value of an argument; raises ValueError unless it is one of these names."""
    if value not in names:
        raise ValueError(f"{name} must be one of {', '.join(names)}, got {value!r}")
    return value


def whole_number(name: str, value: Any, low: int, likely: str = "") -> int:
    """Return a whole number of at least `low` as int; NumPy integers are accepted.

    Raises TypeError if it is not a number, such as a truth value, and ValueError if it is a fraction or below `low`;
    `likely` is added to the messages.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a whole number, got {value!r} of type {type(value).__name__}{likely}")
    if not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, got {value!r}{likely}")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value!r}{likely}")
    return int(value)


def share(name: str, value: Any) -> float:
    """Return a number strictly between 0 and 1, or raise TypeError or ValueError."""
    if not isinstance(value, Real):
        raise TypeError(
            f"{name} must be a number strictly between 0 and 1, got {value!r} of type {type(value).__name__}"
        )
    number = float(value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}; is it a percentage?")
    return number


MAX_COUNT = 2**53
"""The largest count: larger integers are not exact in floating point, and sums of cells would be wrong."""


def checked_count(name: str, value: Any) -> int:
    """Return a count as int; raises TypeError or ValueError if it is not one."""
    # A fast path for int, since every estimate creates a table.
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(
            f"{name} must be one number, the count of such questions, got {value!r} of type {type(value).__name__}; "
            "to count from one truth value per question use ContingencyTable.from_arrays(refused, wrong), "
            "for many tables refusal_index_many"
        )
    size: Any = value  # type checkers do not know that Real is ordered
    if MAX_COUNT < size < math.inf:
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


def checked_share(name: str, value: Any) -> float:
    """Return a number from 0 to 1, or raise TypeError or ValueError."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be one number, got {value!r} of type {type(value).__name__}")
    rate = float(value)
    if not 0 <= rate <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}; is it a percentage?")
    return rate


def checked_counts(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return an array of counts, of any shape, as floats; raises TypeError or ValueError if one is not a count."""
    array = unmasked(name, values)
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"{name} must hold counts, got an array of {array.dtype}; "
            "is it one truth value per question rather than one count per table?"
        )
    counts = array.astype(np.float64, copy=False)
    with np.errstate(invalid="ignore"):
        bad = ~((counts >= 0) & (np.floor(counts) == counts) & (counts <= MAX_COUNT))
    if bad.any():
        raise ValueError(
            f"{name} must hold whole numbers that are not negative, got {float(counts[bad].flat[0])!r}; "
            "is it a rate, a difference of totals, a count with missing values, or one beyond 2**53?"
        )
    return counts


def checked_outcomes(refused: ArrayLike, wrong: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Check the refusal and the error of each question, and return both as bool arrays of shape (n,)."""
    check_same_index({"refused": refused, "wrong": wrong})
    r = _checked_truth_values("refused", refused)
    w = _checked_truth_values("wrong", wrong)
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


def checked_matrices(
    refused: ArrayLike, wrong: ArrayLike, scored: ArrayLike | None = None
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Check the outcomes of k runs on n questions, and return them as three matrices of shape (k, n).

    Parameters
    ----------
    refused, wrong : array_like of bool, shape (k, n)
        As for `ContingencyTable.from_arrays`, with one row per run and one column per question.
    scored : array_like of bool, shape (k, n), optional
        False where a run has no grade for a question. By default all True.

    Returns
    -------
    refused, wrong, scored : ndarray of bool, shape (k, n)
        `refused` and `wrong` are set to False where `scored` is False, so that these values cannot affect a count.

    Raises
    ------
    TypeError
        If an argument holds something other than truth values or 0 and 1, or masked values.
    ValueError
        If an argument is not two-dimensional, or shapes or pandas indexes differ.

    Examples
    --------
    >>> refused, wrong, scored = checked_matrices([[True, False, True]], [[True, True, False]], [[True, True, False]])
    >>> refused.tolist(), wrong.tolist()
    ([[True, False, False]], [[True, True, False]])
    """
    check_same_index({"refused": refused, "wrong": wrong, "scored": scored})
    r = _checked_matrix("refused", refused)
    w = _checked_matrix("wrong", wrong)
    s = np.ones_like(r) if scored is None else _checked_matrix("scored", scored)
    for name, matrix in (("wrong", w), ("scored", s)):
        if matrix.shape != r.shape:
            raise ValueError(
                f"refused and {name} must have one value for each of the same runs and questions, got shapes {r.shape} "
                f"and {matrix.shape}; was one of them filtered or transposed?"
            )
    return r & s, w & s, s


def _checked_matrix(name: str, values: ArrayLike) -> BoolArray:
    check_rows(name, values)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} must have rows of equal length, one value per question, got different lengths; "
            "was a question left out of one run? Mark it in scored instead"
        ) from error
    if array.ndim != 2:
        raise ValueError(
            f"{name} must be two-dimensional, one row per run and one column per question, got shape {array.shape}; "
            "is it the outcomes of a single run?"
        )
    return truth_values(name, array)


MAX_WEIGHT_RATIO = 1e15
"""Questions whose weights differ by more than this cannot be added in floating point."""


def checked_weights(n: int, weight: ArrayLike) -> FloatArray:
    """Return the weights of n questions; raises TypeError or ValueError if they are invalid."""
    array = np.asarray(weight)
    _check_shape("weight", array, n)
    objects = array.tolist() if array.dtype == object else []
    missing = _count_masked(weight) > 0 or any(map(_is_missing, objects))
    is_numeric = array.dtype.kind in "iuf" or (objects and all(isinstance(value, int | float) for value in objects))
    if not missing and not is_numeric:
        raise TypeError(f"weight must hold numbers, got an array of {array.dtype}; are there names in it?")
    weights = np.asarray([math.nan] if missing else array, float)
    if np.isnan(weights).any():
        raise ValueError(
            "weight must have a number for every question, got missing values; give questions that represent none "
            "the weight 0"
        )
    bad = (weights < 0) | np.isinf(weights)
    if bad.any():
        raise ValueError(
            f"weight must not be negative or infinite, got {float(weights[bad][0])!r}; it is the number of "
            "questions in the population that a question represents"
        )
    if n and not weights.any():
        raise ValueError("weight must be above 0 for some question, got only zeros; were weights lost in a join?")
    largest = float(weights.max(initial=0.0))
    smallest = float(weights.min(initial=math.inf, where=weights > 0))
    if largest > MAX_WEIGHT_RATIO * smallest:
        raise ValueError(
            f"weight must not differ between questions by a factor of more than {MAX_WEIGHT_RATIO:.0e}, got "
            f"{smallest:.3g} and {largest:.3g}; a question that counts for so little needs the weight 0"
        )
    # Only ratios matter. A power of 2 changes no digit, and keeps the sum of large weights finite.
    return np.asarray(np.ldexp(weights, -math.frexp(largest)[1]))


def group_codes(name: str, n: int, groups: ArrayLike) -> NDArray[np.intp]:
    """Return the group of each of n questions as a number from 0; raises ValueError if one is missing."""
    array = np.asarray(groups)
    _check_shape(name, array, n)
    values: Iterable[Any] = array.tolist()
    if array.dtype.kind in "fcOmM" or isinstance(groups, np.ma.MaskedArray):
        values = groups.tolist() if isinstance(groups, np.ma.MaskedArray) else array.tolist()
        missing = next((index for index, value in enumerate(values) if _is_missing(value)), None)
        if missing is not None:
            raise ValueError(
                f"{name} must have a value for every question, got none for question {missing} (from 0); give a "
                "question without a group one of its own"
            )
    if array.dtype.kind in "iub":
        return np.asarray(np.unique(array, return_inverse=True)[1])
    numbers: dict[Any, int] = {}
    return np.fromiter((numbers.setdefault(value, len(numbers)) for value in values), np.intp, n)


def _is_missing(value: object) -> bool:
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and math.isnan(value)


def _check_shape(name: str, array: NDArray[Any], n: int) -> None:
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, one value per question, got shape {array.shape}")
    if array.size != n:
        raise ValueError(
            f"{name} must have one value for each of the {n:,} questions, got {array.size:,}; was one of them filtered?"
        )
