"""What was seen at each look of a run, and whether it is enough to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

from refusal_index.stats.estimate import NO_INTERVAL, ConfidenceInterval
from refusal_index.stats.sequential.designs import SequentialDesign

Side = Literal["above", "below"]


@dataclass(frozen=True, slots=True)
class Look:
    """An estimate after so many questions.

    Attributes
    ----------
    n : int
        Questions asked until then.
    estimate, standard_error : float or None
        None where there is none, as of an index where nobody has refused yet, or at its boundary: such a look says
        nothing, and cannot end a run.
    critical_value : float
        Half-width of its limits in standard errors.
    """

    n: int
    estimate: float | None
    standard_error: float | None
    critical_value: float

    @property
    def is_defined(self) -> bool:
        """Whether there is an estimate with a standard error above 0."""
        return self._both is not None

    def confidence_interval(self) -> ConfidenceInterval:
        """Return the repeated confidence interval: all those of a run's looks together hold with ``1 - 2 alpha``.

        So it holds at whatever look the run was stopped, for whatever reason. Both ends NaN where the look says
        nothing.
        """
        if self._both is None:
            return NO_INTERVAL
        estimate, error = self._both
        return ConfidenceInterval(estimate - self.critical_value * error, estimate + self.critical_value * error)

    def side_of(self, bound: float) -> Side | None:
        """Say on which side of a bound the estimate certainly is; None where that is open."""
        low, high = self.confidence_interval()
        return "above" if low > bound else "below" if high < bound else None

    def statistic(self, bound: float) -> float:
        """Return the distance from a bound in standard errors; NaN where the look says nothing."""
        return math.nan if self._both is None else (self._both[0] - bound) / self._both[1]

    @property
    def _both(self) -> tuple[float, float] | None:
        if self.estimate is None or self.standard_error is None:
            return None
        usable = math.isfinite(self.estimate) and math.isfinite(self.standard_error) and self.standard_error > 0
        return (self.estimate, self.standard_error) if usable else None


@dataclass(frozen=True, slots=True)
class Monitor:
    """A metric, or a difference of one, looked at while questions come in, until it is certainly beyond a bound.

    A monitor is not changed: `after` returns the one that has seen more.

    Parameters
    ----------
    design : GroupSequential or ConfidenceSequence
    bound : float
        Of the metric: of a difference minus the margin, say, to see whether a candidate is not worse by more than it.
    looks : tuple of Look
        What was seen.

    References
    ----------
    .. [1] Jennison and Turnbull (1989), as cited in `refusal_index.stats.sequential.designs`.

    Examples
    --------
    >>> from refusal_index.stats import GroupSequential
    >>> monitor = Monitor(GroupSequential.planned(2000), bound=0.2)
    >>> monitor = monitor.after(400, None, None).after(800, 0.38, 0.06)  # nobody had refused at the first look
    >>> monitor.decision, monitor.decided_at.n
    ('above', 800)
    >>> low, high = monitor.decided_at.confidence_interval()
    >>> round(low, 3), round(high, 3)
    (0.214, 0.546)
    """

    design: SequentialDesign
    bound: float
    looks: tuple[Look, ...] = ()

    def after(self, n: int, estimate: float | None, standard_error: float | None) -> Self:
        """Look at what n questions show, more of them than at the look before.

        Raises
        ------
        ValueError
            If there are no more questions than before, or a design has no look planned there.
        """
        if self.looks and n <= self.looks[-1].n:
            raise ValueError(f"n must be more than the {self.looks[-1].n} questions of the look before, got {n!r}")
        look = Look(n, estimate, standard_error, self.design.critical_value(n))
        return replace(self, looks=(*self.looks, look))

    @property
    def decided_at(self) -> Look | None:
        """The first look at which it was certain; None where it is open."""
        return next((look for look in self.looks if look.side_of(self.bound)), None)

    @property
    def decision(self) -> Side | None:
        """On which side of the bound it certainly is; None where that is open."""
        look = self.decided_at
        return None if look is None else look.side_of(self.bound)

    @property
    def pvalue(self) -> float:
        """One-sided p-value, that it is not above the bound, at the last look; NaN where that says nothing.

        It may be compared with alpha at every look.
        """
        if not self.looks:
            return math.nan
        look = self.looks[-1]
        return self.design.pvalue(look.n, look.statistic(self.bound))
