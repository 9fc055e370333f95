"""Classes of results: estimates with status and confidence interval; and Cohen's kappa of two graders.

The estimate of a `Result` is None if it is undefined; its interval is then NaN, so that intervals can be put into
arrays. An `Estimate` holds one number and one interval, to be shown and stored; all are None if undefined.

References
----------
.. [1] Cohen, J. (1960). A coefficient of agreement for nominal scales. Educational and Psychological Measurement, 20,
   37-46. :doi:`10.1177/001316446002000104`
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, stdtr, stdtrit

from refusal_index.stats.arguments import share, unmasked
from refusal_index.stats.estimator import SCALAR

Status = Literal["ok", "boundary", "not_identified", "undefined"]


class ConfidenceInterval(NamedTuple):
    """The ends of a confidence interval; both NaN if there is none."""

    low: float
    high: float

    def or_none(self) -> tuple[float | None, float | None]:
        """Return both ends, with None instead of NaN.

        Examples
        --------
        >>> ConfidenceInterval(0.25, float("nan")).or_none()
        (0.25, None)
        """
        low, high = (None if math.isnan(end) else float(end) for end in self)
        return low, high


NO_INTERVAL = ConfidenceInterval(math.nan, math.nan)


def student_quantile(confidence_level: float, degrees_of_freedom: float | None) -> float:
    """Return the two-sided quantile of Student's t, or of the normal distribution if `degrees_of_freedom` is None."""
    tail = (1 - share("confidence_level", confidence_level)) / 2
    return float(-SCALAR.ndtri(tail) if degrees_of_freedom is None else -stdtrit(degrees_of_freedom, tail))


def two_sided_pvalue(statistic: float, degrees_of_freedom: float | None = None) -> float:
    """Return the two-sided p-value of a standard normal statistic, or of a t statistic with degrees of freedom."""
    below = -abs(statistic)
    return float(2 * (ndtr(below) if degrees_of_freedom is None else stdtr(degrees_of_freedom, below)))


@dataclass(frozen=True, slots=True)
class Result:
    """An estimate, or the reason why there is none; base class of the other results.

    Attributes
    ----------
    estimate : float or None
        None if undefined.
    status : {"ok", "boundary", "not_identified", "undefined"}
    reason : str or None
        Why the status is not ``"ok"``.
    """

    estimate: float | None
    status: Status = "ok"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ResultWithInterval(Result):
    """An estimate with a standard error (None if it has none) and a normal or Student's t interval."""

    standard_error: float | None = None
    _degrees_of_freedom: float | None = field(default=None, repr=False)

    def confidence_interval(self, confidence_level: float = 0.95) -> ConfidenceInterval:
        """Return the normal or Student's t interval; both ends are NaN if undefined or without a standard error."""
        quantile = student_quantile(confidence_level, self._degrees_of_freedom)
        if self.estimate is None or self.standard_error is None:
            return NO_INTERVAL
        reach = quantile * self.standard_error
        return ConfidenceInterval(self.estimate - reach, self.estimate + reach)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The smallest and the largest value that something unknown can give; base class of such results.

    Attributes
    ----------
    low, high : float or None
        None if undefined.
    status : {"ok", "boundary", "undefined"}
        ``"boundary"``: an end is exactly -1 or +1.
    reason : str or None
        Why the status is not ``"ok"``.
    """

    low: float | None
    high: float | None
    status: Status
    reason: str | None


@dataclass(frozen=True, slots=True)
class SizePlan:
    """A number of questions or labels, with the expected half-width of an interval; base class of plans.

    Attributes
    ----------
    n : int or None
    half_width : float or None
        None if undefined.
    status : {"ok", "boundary", "undefined"}
    reason : str or None
        Why the status is not ``"ok"``, or a caution.
    """

    n: int | None
    half_width: float | None
    status: Status
    reason: str | None


def reasons_of(first: Result, second: Result) -> str | None:
    """Return the reasons of two compared results, prefixed with "first:" or "second:"; None if there are none."""
    pair = (("first", first), ("second", second))
    return ";".join(f"{name}:{estimate.reason}" for name, estimate in pair if estimate.reason) or None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its confidence interval.

    Attributes
    ----------
    estimate, low, high : float or None
        The number and the ends of its interval; None if there is none, as for the status ``"undefined"``.
    status : {"ok", "boundary", "not_identified", "undefined"}
        ``"not_identified"``: the 95% interval is the whole range.
    reason : str or None
        As in `RefusalIndexResult` or `CorrectedRefusalIndexResult`.
    name : str
        Name of a metric: one of `METRIC_NAMES`, an abstention metric, ``"utility"`` or ``"omniscience_index"``;
        otherwise empty.
    method : {"wilson", "score", "profile"} or None
        Method of the interval of a metric.
    """

    estimate: float | None
    low: float | None = None
    high: float | None = None
    status: Status = "ok"
    reason: str | None = None
    name: str = ""
    method: Literal["wilson", "score", "profile"] | None = None

    @classmethod
    def of(cls, result: Result, interval: ConfidenceInterval) -> "Estimate":
        """Return a result with one of its intervals as an `Estimate`.

        Examples
        --------
        >>> from refusal_index import ContingencyTable, refusal_index
        >>> nobody_refused = refusal_index(ContingencyTable(0, 0, 60, 40))
        >>> found = Estimate.of(nobody_refused, nobody_refused.confidence_interval())
        >>> found.low is None, found.status, found.reason
        (True, 'undefined', 'nobody_refused')
        """
        return cls(result.estimate, *interval.or_none(), result.status, result.reason)

    @property
    def interval(self) -> ConfidenceInterval:
        """Its interval; NaN where there is none."""
        return ConfidenceInterval(*(math.nan if end is None else end for end in (self.low, self.high)))

    def to_document(self) -> dict[str, Any]:
        """Return the estimate, its interval, status and reason as a dictionary."""
        return {key: getattr(self, key) for key in ("estimate", "low", "high", "status", "reason")}


def square_and_add(first: Estimate, second: Estimate, correlation: float = 0.0) -> ConfidenceInterval:
    """Return the square-and-add (MOVER) interval of a difference of two estimates; NaN if an end is missing."""
    ends = ((estimate.estimate, estimate.low, estimate.high) for estimate in (first, second))
    (a, low_a, high_a), (b, low_b, high_b) = ((math.nan if end is None else end for end in bounds) for bounds in ends)

    def hypotenuse(x: float, y: float) -> float:
        return math.sqrt(max(x * x + y * y - 2 * correlation * x * y, 0.0))

    return ConfidenceInterval(a - b - hypotenuse(a - low_a, high_b - b), a - b + hypotenuse(high_a - a, b - low_b))


@dataclass(frozen=True, slots=True, kw_only=True)
class CohenKappaResult(Result):
    """Cohen's kappa of two graders: 1 for perfect agreement, 0 for agreement at chance level."""

    agreement: float | None = None  # share of answers on which they agree; None without answers
    n: int  # number of answers


def cohen_kappa(counts: ArrayLike) -> CohenKappaResult:
    """Return Cohen's kappa of two graders from the table of their grades.

    Raises ValueError if the table is not square, or has values that are not counts.

    - `counts`: table of counts, shape (k, k): rows are grades of the first grader, columns those of the second, in the
      same order.

    >>> cohen_kappa([[20, 5], [10, 15]])
    CohenKappaResult(estimate=0.4, status='ok', reason=None, agreement=0.7, n=50)
    >>> cohen_kappa([[9, 0], [0, 0]]).reason
    'both graders gave every answer the same one grade'
    """
    table = unmasked("counts", counts).astype(float)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"counts: expected a square table, got one of shape {table.shape}")
    if not np.all((table >= 0) & (table == np.floor(table)) & np.isfinite(table)):
        raise ValueError("counts: expected non-negative whole numbers; pass counts, not shares")
    n = int(table.sum())
    if n == 0:
        return CohenKappaResult(None, "undefined", "there is no answer that both graded", n=0)
    agreeing = np.trace(table)
    by_chance = table.sum(axis=0) @ table.sum(axis=1) / n
    share = float(agreeing / n)
    if by_chance == n:
        reason = "both graders gave every answer the same one grade"
        return CohenKappaResult(None, "undefined", reason, agreement=share, n=n)
    return CohenKappaResult(float((agreeing - by_chance) / (n - by_chance)), agreement=share, n=n)
