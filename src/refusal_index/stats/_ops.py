"""One set of formulas for two kinds of number.

A NumPy call on a single number costs more than the arithmetic it does, and a `math` call cannot take an array.
The formulas of this room are therefore written once, over the handful of functions collected in `Ops`, and run
with `SCALAR` (Python floats) or `ARRAY` (NumPy arrays).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.special import cython_special

FloatArray = NDArray[np.float64]
Number = TypeVar("Number", float, FloatArray)


@dataclass(frozen=True, slots=True)
class Ops(Generic[Number]):
    """The elementary functions for one kind of number; `ndtr` and `ndtri` are the normal cdf and its inverse."""

    exp: Callable[[Number], Number]
    log: Callable[[Number], Number]
    tan: Callable[[Number], Number]
    tanh: Callable[[Number], Number]
    ndtr: Callable[[Number], Number]
    ndtri: Callable[[Number], Number]
    owens_t: Callable[[Number, Number], Number]
    minimum: Callable[[Number, Number | float], Number]
    maximum: Callable[[Number, Number | float], Number]
    where: Callable[[Any, Number | float, Number | float], Number]


def _choose(condition: bool, if_true: float, if_false: float) -> float:
    return if_true if condition else if_false


SCALAR: Ops[float] = Ops(
    exp=math.exp,
    log=math.log,
    tan=math.tan,
    tanh=math.tanh,
    ndtr=cython_special.ndtr,
    ndtri=cython_special.ndtri,
    owens_t=cython_special.owens_t,
    minimum=min,
    maximum=max,
    where=_choose,
)

ARRAY: Ops[FloatArray] = Ops(
    exp=np.exp,
    log=np.log,
    tan=np.tan,
    tanh=np.tanh,
    ndtr=special.ndtr,
    ndtri=special.ndtri,
    owens_t=special.owens_t,
    minimum=np.minimum,
    maximum=np.maximum,
    where=np.where,
)
