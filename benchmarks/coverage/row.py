"""A simulated figure and its expected range."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A figure of a scenario.

    Attributes
    ----------
    scenario
        A description of the scenario.
    quantity
        The name of the figure, such as ``"coverage"``.
    value
        The figure.
    monte_carlo_error
        The standard error of the figure over the replicates.
    low, high
        The expected range.
    """

    scenario: str
    quantity: str
    value: float
    monte_carlo_error: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether the figure is within two Monte Carlo errors of its expected range."""
        tolerance = 2 * self.monte_carlo_error
        return self.low - tolerance <= self.value <= self.high + tolerance


def share(scenario: str, quantity: str, hits: int, replicates: int, low: float, high: float) -> Row:
    """Return the row for a share of the replicates, such as a coverage or the size of a test."""
    value = hits / replicates
    return Row(scenario, quantity, value, math.sqrt(value * (1 - value) / replicates), low, high)
