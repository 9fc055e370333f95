"""A number with its interval, and why it has none: the one shape in which estimates are summarised, shown and stored.

Results of statistics carry an estimate that is None where it is undefined, and give intervals that are NaN there, as
arrays of intervals need it. `Estimate` says both with None and a reason; nothing else translates.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

Status = Literal["ok", "boundary", "not_identified", "undefined"]


class ConfidenceInterval(NamedTuple):
    """Ends of a confidence interval; both NaN where there is none."""

    low: float
    high: float

    def or_none(self) -> tuple[float | None, float | None]:
        """Return both ends, with None in the place of NaN.

        Examples
        --------
        >>> ConfidenceInterval(0.25, float("nan")).or_none()
        (0.25, None)
        """
        low, high = (None if math.isnan(end) else float(end) for end in self)
        return low, high


NO_INTERVAL = ConfidenceInterval(math.nan, math.nan)


class Estimated(Protocol):
    """A result that has an estimate, with a reason where it has none."""

    @property
    def estimate(self) -> float | None: ...  # noqa: D102

    @property
    def status(self) -> Status: ...  # noqa: D102

    @property
    def reason(self) -> str | None: ...  # noqa: D102


def reasons_of(first: Estimated, second: Estimated) -> str | None:
    """Return the reasons of two results that are compared, each with whose it is; None where neither has one."""
    pair = (("first", first), ("second", second))
    return ";".join(f"{name}:{one.reason}" for name, one in pair if one.reason) or None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its confidence interval.

    Attributes
    ----------
    estimate, low, high : float or None
        The number and the ends of its interval; each None where there is none, all where the status is ``"undefined"``.
    status : {"ok", "boundary", "not_identified", "undefined"}
        ``"not_identified"``: the 95 % interval rules nothing out.
    reason : str or None
        As in `RefusalIndexResult` or `CorrectedRefusalIndexResult`.
    name : str
        Of a metric: one of `METRIC_NAMES`, an abstention metric, ``"utility"`` or ``"omniscience_index"``; else
        empty.
    method : {"wilson", "score", "profile"} or None
        How the interval of a metric was made.
    """

    estimate: float | None
    low: float | None = None
    high: float | None = None
    status: Status = "ok"
    reason: str | None = None
    name: str = ""
    method: Literal["wilson", "score", "profile"] | None = None

    @classmethod
    def of(cls, result: Estimated, interval: ConfidenceInterval) -> "Estimate":
        """Take a result of this package and an interval of it.

        Examples
        --------
        >>> from refusal_index import ContingencyTable, refusal_index
        >>> nobody_refused = refusal_index(ContingencyTable(0, 0, 60, 40))
        >>> found = Estimate.of(nobody_refused, nobody_refused.confidence_interval())
        >>> found.low is None, found.status, found.reason
        (True, 'undefined', 'nobody_refused')
        """
        return cls(result.estimate, *interval.or_none(), result.status, result.reason)

    def to_document(self) -> dict[str, Any]:
        """Give the number, its interval and its status by name."""
        return {key: getattr(self, key) for key in ("estimate", "low", "high", "status", "reason")}
