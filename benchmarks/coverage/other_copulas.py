"""Differences of RI between runs that refuse unequally often, and how often the caveat about copulas is printed.

Two models refuse 15% and 60% of 1,000 questions each, and would get 70% wrong. If both have the same copula, any
difference between them is false. Its dependence is that of a Gaussian copula with rho .45 at a refusal rate of .4. A
difference of RI is significant at .05; the caveat is printed if it is not significant under a t copula with 4 degrees
of freedom, a Clayton copula or a survival Clayton copula.

With a Gaussian copula and different rho, the difference is real. The caveat then appears where the difference is not so
large that every copula shows it. Which of the two runs is the more cautious matters: a copula other than the Gaussian
may explain a higher RI of the one or of the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from benchmarks.coverage.row import Row, share

from refusal_index.stats import OTHER_COPULAS, ComparedCopula, compare_under_copula
from refusal_index.stats.copulas import copula_family, copula_upper_orthant, strength_of_table

RATES = (0.15, 0.6)
ERROR_RATE = 0.7
RHO, RATE_OF_RHO = 0.45, 0.4
# Share of the replicates with a significant difference of RI, though the copula is the same.
FALSE_DIFFERENCES: dict[ComparedCopula, float] = {
    "gaussian": 0.05,
    "t": 0.33,
    "survival_clayton": 0.38,
    "clayton": 0.53,
}
MONTE_CARLO = 0.06
"""Half the width of expected ranges: the known shares are from other simulations, at slightly different rates."""


@dataclass(frozen=True)
class Scenario:
    """The copula of two models, the rho of each where it is Gaussian, and the number of questions."""

    truth: ComparedCopula = "gaussian"
    rhos: tuple[float, float] = (RHO, RHO)
    n: int = 1000

    def __str__(self) -> str:
        """Describe the scenario for the table of results."""
        rhos = f"rho {self.rhos[0]:g}" if len(set(self.rhos)) == 1 else f"rho {self.rhos[0]:g} and {self.rhos[1]:g}"
        return f"{self.truth}, r {RATES[0]:g} and {RATES[1]:g}, mu {ERROR_RATE:g}, {rhos}, n {self.n}"

    def cells(self) -> np.ndarray:
        """Return the cell probabilities of both models, shape (2, 4)."""
        family, cells = copula_family(self.truth), []
        for rate, rho in zip(RATES, self.rhos, strict=True):
            matched = float(copula_upper_orthant(RATE_OF_RHO, ERROR_RATE, rho))
            strength = strength_of_table(family, RATE_OF_RHO, ERROR_RATE, matched)
            p11 = float(family.cell(np.array(rate), np.array(ERROR_RATE), np.array(strength)))
            cells.append([p11, rate - p11, ERROR_RATE - p11, 1 - rate - ERROR_RATE + p11])
        return np.array(cells)


EQUAL = tuple(Scenario(truth) for truth in FALSE_DIFFERENCES)
DIFFERENT = tuple(Scenario(rhos=rhos, n=n) for n in (1000, 4000) for rhos in ((0.65, 0.35), (0.35, 0.65), (0.7, 0.1)))


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for scenario in EQUAL:
        known = FALSE_DIFFERENCES[scenario.truth]
        spread = 0.02 if scenario.truth == "gaussian" else MONTE_CARLO
        significant, with_caveat = simulate(scenario, replicates, rng)
        name = f"equal, {scenario}"
        yield share(name, "significant difference of RI", significant, replicates, known - spread, known + spread)
        yield share(name, "of these with the caveat", with_caveat, max(significant, 1), 0.8, 1.0)
        yield share(name, "false difference without the caveat", significant - with_caveat, replicates, 0.0, 0.06)
    for scenario in DIFFERENT:
        significant, with_caveat = simulate(scenario, replicates, rng)
        name = f"different, {scenario}"
        # for information: both depend on the size of the difference
        yield share(name, "significant difference of RI", significant, replicates, 0.0, 1.0)
        yield share(name, "of these with the caveat", with_caveat, max(significant, 1), 0.0, 1.0)


def simulate(scenario: Scenario, replicates: int, rng: np.random.Generator) -> tuple[int, int]:
    """Return how many replicates have a significant difference of RI, and how many of these the caveat."""
    cells, significant, with_caveat = scenario.cells(), 0, 0
    for _ in range(replicates):
        matrices = outcomes(scenario.n, cells, rng)
        if not is_significant(compare_under_copula(*matrices, family="gaussian").pvalue):
            continue
        significant += 1
        others = (compare_under_copula(*matrices, family=family).pvalue for family in OTHER_COPULAS)
        with_caveat += not all(map(is_significant, others))
    return significant, with_caveat


def outcomes(n: int, cells: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw n questions of each model: refused, wrong and scored, shape (2, 1, 2 n)."""
    codes = np.full((2, 1, 2 * n), 4)
    for row, probabilities in enumerate(cells):
        codes[row, 0, row * n : (row + 1) * n] = np.repeat(np.arange(4), rng.multinomial(n, probabilities))
    return codes < 2, codes % 2 == 0, codes < 4


def is_significant(pvalue: float | None) -> bool:
    """Whether a p-value is below .05; without one nothing is known."""
    return pvalue is not None and not math.isnan(pvalue) and pvalue < 0.05
