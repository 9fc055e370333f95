"""Size and power of the moment test for a common copula of several prompts.

Nested data are multinomial tables with five levels of refusal and two of error, 4,326 questions, in four scenarios A to
D of refusal rates, error rate and rho. The parameter of a true copula other than the Gaussian gives the same 2x2 table
at the mean refusal rate as the scenario's rho. Data that are not nested are simulated per question: the refusal scores
of two prompts have a correlation of .7, and their errors of .8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from benchmarks.coverage.row import Row, share
from scipy.special import ndtri

from refusal_index.plugins.studies.copulas import Moments, fit_common_strength, moments
from refusal_index.stats.copulas import (
    COPULA_NAMES,
    CopulaName,
    copula_family,
    copula_upper_orthant,
    strength_of_table,
)

N = 4326
# Power of the Gaussian test against each true copula, from 2,000 replicates. It detects trends, not curvature.
POWER: dict[str, dict[CopulaName, float]] = {
    "A": {"t": 0.96, "clayton": 0.92, "survival_gumbel": 0.98, "gumbel": 0.06, "frank": 0.60},
    "B": {"t": 0.93, "clayton": 0.99, "survival_gumbel": 0.91, "gumbel": 0.13, "frank": 0.15},
    "C": {"t": 1.00, "clayton": 1.00, "survival_gumbel": 1.00, "gumbel": 0.12, "frank": 0.68},
    "D": {"t": 0.11, "clayton": 1.00, "survival_gumbel": 0.87, "gumbel": 0.87, "frank": 0.32},
}
# Fitting a t copula needs a quadrature per cell, hence fewer replicates.
MAX_REPLICATES_OF_T = 200


@dataclass(frozen=True)
class Scenario:
    """Rates and correlation; the name is the key of the expected power."""

    name: str
    refusal_rates: tuple[float, ...]
    error_rate: float
    rho: float

    def strength(self, truth: CopulaName) -> float:
        """Return the parameter of a family that gives the Gaussian table at the mean refusal rate."""
        rate = float(np.mean(self.refusal_rates))
        cell = float(copula_upper_orthant(rate, self.error_rate, self.rho))
        return strength_of_table(copula_family(truth), rate, self.error_rate, cell)

    def tables(self, truth: CopulaName, replicates: int, rng: np.random.Generator) -> np.ndarray:
        """Draw nested tables of counts, shape (replicates, k + 1, 2)."""
        rates = np.array(self.refusal_rates)
        cells = copula_family(truth).cell(rates, np.array(self.error_rate), np.array(self.strength(truth)))
        wrong = np.diff([0.0, *cells, self.error_rate])
        proportions = np.stack([wrong, np.diff([0.0, *rates, 1.0]) - wrong], axis=1)
        return rng.multinomial(N, proportions.ravel(), size=replicates).reshape(replicates, -1, 2).astype(float)


SCENARIOS = {
    "A": Scenario("A", (0.58, 0.69, 0.79, 0.90), 0.92, 0.51),
    "B": Scenario("B", (0.23, 0.36, 0.50, 0.63), 0.754, 0.405),
    "C": Scenario("C", (0.03, 0.2, 0.6, 0.97), 0.90, 0.45),
    "D": Scenario("D", (0.2, 0.4, 0.6, 0.8), 0.5, 0.45),
}


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios: size, size without nesting, size of the other families, power."""
    for scenario in SCENARIOS.values():
        yield from nested_rows(scenario, "gaussian", replicates, rng)
        yield free_row(scenario, 1000, replicates, rng)
        yield free_row(scenario, N, replicates, rng)
    for family in COPULA_NAMES[1:]:
        for scenario in (SCENARIOS["A"], SCENARIOS["B"]):
            fewer = min(replicates, MAX_REPLICATES_OF_T) if family == "t" else replicates
            yield from nested_rows(scenario, family, fewer, rng, family=family)
    for name, power in POWER.items():
        for truth in power:
            yield from nested_rows(SCENARIOS[name], truth, replicates, rng)


def nested_rows(
    scenario: Scenario, truth: CopulaName, replicates: int, rng: np.random.Generator, family: CopulaName = "gaussian"
) -> Iterator[Row]:
    """Share of nested tables from `truth` for which the test rejects `family`."""
    pvalues = fit_common_strength(copula_family(family), nested_moments(scenario.tables(truth, replicates, rng))).pvalue
    what = f"size, {family}" if truth == family else f"power of {family}, truth {truth}"
    low, high = (0.03, 0.07) if truth == family else _around(POWER[scenario.name][truth])
    hits = int(np.count_nonzero(pvalues < 0.05))
    yield share(f"{scenario.name}, nested, n {N}", what, hits, replicates, low, high)


def free_row(scenario: Scenario, n: int, replicates: int, rng: np.random.Generator) -> Row:
    """Size of the Gaussian moment test if neither refusals nor errors are nested."""
    spec = copula_family("gaussian")
    pvalues = [fit_common_strength(spec, free_moments(scenario, n, rng)).pvalue[0] for _ in range(replicates)]
    hits = int(np.count_nonzero(np.array(pvalues) < 0.05))
    return share(f"{scenario.name}, not nested, n {n}", "size, gaussian", hits, replicates, 0.03, 0.07)


def nested_moments(counts: np.ndarray) -> Moments:
    """Return the moments of nested tables; prompt k refuses the levels 0 to k."""
    levels = counts.shape[1]
    level, wrong = np.repeat(np.arange(levels), 2), np.tile([True, False], (levels - 1, levels))
    refused = level <= np.arange(levels - 1)[:, np.newaxis]
    return moments(refused, wrong, np.ones_like(refused), counts.reshape(len(counts), -1))


def free_moments(scenario: Scenario, n: int, rng: np.random.Generator) -> Moments:
    """Simulate a data set with between-prompt correlations of .7 (refusal scores) and .8 (errors); return moments."""
    k, between, between_errors = len(scenario.refusal_rates), 0.7, 0.8
    with_error = scenario.rho / np.sqrt(between * between_errors)
    common = rng.standard_normal(n)
    common_error = with_error * common + np.sqrt(1 - with_error**2) * rng.standard_normal(n)
    score = np.sqrt(between) * common + np.sqrt(1 - between) * rng.standard_normal((k, n))
    error = np.sqrt(between_errors) * common_error + np.sqrt(1 - between_errors) * rng.standard_normal((k, n))
    refused = score > -ndtri(np.array(scenario.refusal_rates))[:, np.newaxis]
    return moments(refused, error > -ndtri(scenario.error_rate), np.ones_like(refused), np.ones((1, n)))


def _around(power: float) -> tuple[float, float]:
    return max(power - 0.08, 0.0), min(power + 0.08, 1.0)
