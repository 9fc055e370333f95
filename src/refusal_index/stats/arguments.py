"""What every argument is checked for: what must not be masked, must be whole, or must lie side by side.

NumPy takes the data below a mask for data, and reads a pandas Series without its index. Both would count questions that
nobody meant, in silence. So masked values and indexes that differ are errors here, whoever is to be right about them.
"""

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def unmasked(name: str, values: Any) -> NDArray[Any]:
    """Return values as an array; raises what `check_rows` does."""
    check_rows(name, values)
    return np.asarray(values)


def check_rows(name: str, values: Any) -> None:
    """Raise TypeError where a value is masked, in lists of arrays too, ValueError where rows differ in index."""
    masked = _count_masked(values)
    if masked:
        raise TypeError(
            f"{name} must hold no masked values, got {masked:,} of them; leave these questions out of all arrays "
            "alike, or mark them in scored where there is such an argument"
        )
    check_same_index({f"{name}[{number}]": row for number, row in enumerate(_rows(values))})


def _rows(values: Any) -> list[Any]:
    """Return the rows of a list of arrays or lists; of anything else itself alone, without going through its items."""
    return list(values) if isinstance(values, list | tuple) and values and not np.isscalar(values[0]) else [values]


def _count_masked(values: Any) -> int:
    if isinstance(values, np.ma.MaskedArray):
        return int(np.ma.getmaskarray(values).sum())
    rows = _rows(values)
    return 0 if rows[0] is values else sum(map(_count_masked, rows))


def check_same_index(named: dict[str, Any]) -> None:
    """Raise ValueError where two of these are of pandas and have different indexes: they would pair by position."""
    indexed = [
        (name, values.index)
        for name, values in named.items()
        if type(values).__module__.partition(".")[0] == "pandas" and hasattr(values, "index")
    ]
    for name, index in indexed[1:]:
        first, expected = indexed[0]
        if not index.equals(expected):
            raise ValueError(
                f"{first} and {name} must have the same index, got two that differ; bring one into the order of the "
                "other (reindex), or pass both with .to_numpy() if they are in one order already"
            )


def truth_values(name: str, values: Any) -> NDArray[Any]:
    """Return truth values, which may be written as the whole numbers 0 and 1, as an array of bool of any shape.

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


def whole_number(name: str, value: Any, low: int, likely: str = "") -> int:
    """Return a whole number of at least `low`, NumPy's own included, as int.

    Raises TypeError for what is not a number, such as a truth value, and ValueError for a fraction or a number below;
    `likely` ends the messages.
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


def pvalues_of(values: Any) -> NDArray[np.float64]:
    """Return p-values as an array of shape (m,), or raise TypeError or ValueError."""
    array = unmasked("pvalues", values)
    if array.size and array.dtype.kind not in "iuf":
        raise TypeError(f"pvalues must hold numbers, got an array of {array.dtype}; is one of them missing?")
    numbers = array.astype(np.float64)
    if numbers.ndim != 1:
        raise ValueError(f"pvalues must be one-dimensional, got shape {numbers.shape}")
    outside = numbers[~((numbers >= 0) & (numbers <= 1))]
    if outside.size:
        raise ValueError(f"pvalues must lie in [0, 1], got {float(outside[0])!r}; leave undefined ones out")
    return numbers
