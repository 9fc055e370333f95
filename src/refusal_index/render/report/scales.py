"""Axes of the report's pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from refusal_index.stats import Estimate


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`.

    >>> axis = Scale(-1.0, 1.0)
    >>> axis.at(0), axis.at(2)
    ('50.00%', '100.00%')
    """

    low: float
    high: float
    ticks: tuple[float, ...] = ()  # values marked on it

    def share(self, value: float) -> float:
        """Place of a value, in [0, 1]; what lies outside is drawn at the end."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def at(self, value: float) -> str:
        """Place of a value, as SVG takes it."""
        return f"{100 * self.share(value):.2f}%"

    def down(self, value: float) -> str:
        """Place of a value from the top."""
        return f"{100 * (1 - self.share(value)):.2f}%"


UNIT = Scale(0.0, 1.0)


def index_scale(cells: Iterable[Estimate]) -> Scale:
    """Return an axis of the Refusal Index from 0 to 1 that reaches below 0 as far as estimates and intervals do.

    >>> index_scale([Estimate(0.3, 0.2, 0.4), Estimate(None), Estimate(-0.08)])
    Scale(low=-0.25, high=1.0, ticks=(-0.25, 0.0, 0.25, 0.5, 0.75, 1.0))
    """
    values = [value for cell in cells for value in (cell.estimate, cell.low, cell.high) if value is not None]
    quarters = max(math.floor(min([0.0, *values]) * 4), -4)
    return Scale(quarters / 4, 1.0, tuple(quarter / 4 for quarter in range(quarters, 5)))
