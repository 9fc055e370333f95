"""Coverage of intervals of RI with unequal sampling weights, with and without the caveat about few questions.

Weights are log-normal and independent of the outcomes, so RI in the population is that of the copula. The caveat is
printed if the weights leave less than half of the questions (Kish's effective number) and fewer than five effective
questions in the smallest cell. Coverage without the caveat must be right; with it, it is shown for information.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from benchmarks.coverage.row import Row, share
from scipy.special import ndtri

from refusal_index.stats import SampledTable, refusal_index
from refusal_index.stats.contingency import FEW_IN_CELL, effective_in_smallest_cell, effective_number


@dataclass(frozen=True)
class Scenario:
    """Number of questions, standard deviation of the logarithm of weights, rates and dependence."""

    n: int
    log_deviation: float
    refusal_rate: float
    error_rate: float
    rho: float

    def __str__(self) -> str:
        """Describe the scenario for the table of results."""
        rates = f"r {self.refusal_rate:g}, mu {self.error_rate:g}, rho {self.rho:g}"
        return f"n {self.n}, log-sd {self.log_deviation:g}, {rates}"

    def draw(self, rng: np.random.Generator) -> tuple[SampledTable, float]:
        """Draw a table, and the effective number of questions."""
        error, noise = rng.standard_normal((2, self.n))
        score = self.rho * error + math.sqrt(1 - self.rho**2) * noise
        weight = np.exp(self.log_deviation * rng.standard_normal(self.n))
        refused, wrong = score > -ndtri(self.refusal_rate), error > -ndtri(self.error_rate)
        return SampledTable.from_arrays(refused, wrong, weight=weight), effective_number(weight)


MODELS = ((0.4, 0.6, 0.5), (0.2, 0.8, 0.4), (0.7, 0.9, 0.5))
SCENARIOS = tuple(
    Scenario(n, deviation, *model) for n in (600, 2000) for deviation in (0.5, 1.0, 2.0) for model in MODELS
)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    total = {True: [0, 0], False: [0, 0]}
    for scenario in SCENARIOS:
        truth, covered, found = math.asin(scenario.rho / 2) / math.asin(0.5), 0, 0
        caveats = 0
        for _ in range(replicates):
            table, effective = scenario.draw(rng)
            result = refusal_index(table)
            if result.estimate is None:
                continue
            low, high = result.confidence_interval()
            in_cell = effective_in_smallest_cell(table, effective)
            has_caveat = in_cell is not None and in_cell < FEW_IN_CELL
            is_covered = low <= truth <= high
            found += 1
            covered += is_covered
            caveats += has_caveat
            total[has_caveat][0] += is_covered
            total[has_caveat][1] += 1
        # for information: the share with the caveat, and coverage of all intervals
        yield share(str(scenario), "coverage", covered, found, 0.8, 1.0)
        yield share(str(scenario), "share with the caveat", caveats, found, 0.0, 1.0)
    yield share("all scenarios", "coverage without the caveat", *total[False], 0.93, 0.97)
    yield share("all scenarios", "coverage with the caveat", *total[True], 0.8, 0.93)
