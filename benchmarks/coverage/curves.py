"""Coverage in the accuracy-refusal plane: bands of the fitted curve, intervals of the regret and of the remaining gap.

Tables are multinomial, so the true curve is that of the cell probabilities. The pointwise band should cover the true
correct rate at each refusal rate from .1 to .9, the simultaneous band at all of them at once; the latter is valid for
any two-parameter curve and so may be conservative. The regret is relative to the best point of the true curve under a
given penalty. In some scenarios it is 0, so the interval has to start at 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from benchmarks.coverage.row import Row, share

from refusal_index import ContingencyTable
from refusal_index.plugins.studies.curves import (
    best_operating_point,
    best_refusal_rate,
    gap_left,
    remaining_gap,
    utility_at,
)
from refusal_index.stats.baseline import accuracy_refusal_curve, iso_refusal_index, rho_from_refusal_index
from refusal_index.stats.planning import PlanningScenario

GRID = np.linspace(0.1, 0.9, 9)
SCENARIOS = (
    (200, PlanningScenario(0.42, 0.8, 0.5)),
    (1000, PlanningScenario(0.74, 0.92, 0.48)),
    (1000, PlanningScenario(0.36, 0.49, 0.33)),
    (4326, PlanningScenario(0.06, 0.65, 0.28)),
)
REGRET_DRAWS = 1000


def band_rows(n: int, scenario: PlanningScenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage of both bands."""
    truth = iso_refusal_index(GRID, scenario.refusal_index, scenario.error_rate)
    pointwise, together = np.zeros(GRID.size, int), 0
    for counts in rng.multinomial(n, scenario.cells, size=replicates).tolist():
        curve = accuracy_refusal_curve(ContingencyTable(*counts), GRID)
        low, high = curve.confidence_band()
        pointwise += (low <= truth) & (truth <= high)
        low, high = curve.confidence_band(simultaneous=True)
        together += bool(np.all((low <= truth) & (truth <= high)))
    name = f"n {n}, r {scenario.refusal_rate:g}, mu {scenario.error_rate:g}, RI {scenario.refusal_index:g}"
    for rate in (0, 4, 8):
        at = f"{name}, at r {GRID[rate]:.1f}"
        yield share(at, "pointwise coverage of the curve", int(pointwise[rate]), replicates, 0.93, 0.97)
    yield share(name, "simultaneous coverage of the curve", together, replicates, 0.93, 0.99)


def regret_row(n: int, scenario: PlanningScenario, penalty: float, replicates: int, rng: np.random.Generator) -> Row:
    """Coverage of the interval of the regret."""
    rho = rho_from_refusal_index(scenario.refusal_index)
    best = best_refusal_rate(rho, scenario.error_rate, penalty)
    _, _, p01, p00 = scenario.cells
    regret = float(utility_at(best, rho, scenario.error_rate, penalty)) - (p00 - penalty * p01)
    hits = 0
    for counts in rng.multinomial(n, scenario.cells, size=replicates).tolist():
        point = best_operating_point(ContingencyTable(*counts), penalty)
        low, high = point.confidence_interval(n_resamples=REGRET_DRAWS, rng=rng)
        # a regret of 0 has a rounding error
        hits += low - 1e-12 <= regret <= high
    rates = f"r {scenario.refusal_rate:.2g}, mu {scenario.error_rate:g}, RI {scenario.refusal_index:g}"
    name = f"n {n}, {rates}, penalty {penalty:g}, regret {regret:.4f}"
    return share(name, "coverage of the regret", hits, replicates, 0.93, 0.98)


def gap_row(n: int, scenario: PlanningScenario, replicates: int, rng: np.random.Generator) -> Row:
    """Coverage of the remaining gap, with the refusal rate equal to the error rate."""
    truth = float(gap_left(rho_from_refusal_index(scenario.refusal_index), scenario.error_rate))
    hits = 0
    for counts in rng.multinomial(n, scenario.cells, size=replicates).tolist():
        low, high = remaining_gap(ContingencyTable(*counts)).confidence_interval(n_resamples=REGRET_DRAWS, rng=rng)
        hits += low <= truth <= high
    name = f"n {n}, r {scenario.refusal_rate:g}, mu {scenario.error_rate:g}, RI {scenario.refusal_index:g}"
    return share(f"{name}, gap {truth:.3f}", "coverage of the remaining gap", hits, replicates, 0.93, 0.97)


def at_its_best(error_rate: float, refusal_index: float, penalty: float) -> PlanningScenario:
    """Return the scenario of a model with the optimal refusal rate, whose regret is 0."""
    best = float(best_refusal_rate(rho_from_refusal_index(refusal_index), error_rate, penalty))
    return PlanningScenario(best, error_rate, refusal_index)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for n, scenario in SCENARIOS:
        yield from band_rows(n, scenario, replicates, rng)
        yield gap_row(n, scenario, replicates, rng)
    for n, scenario, penalty in (
        (200, PlanningScenario(0.42, 0.6, 0.5), 1.0),
        (1000, PlanningScenario(0.36, 0.49, 0.33), 3.0),
        (1000, PlanningScenario(0.74, 0.92, 0.48), 1.0),
        (4326, PlanningScenario(0.06, 0.65, 0.28), 1.0),
        (1000, at_its_best(0.5, 0.6, 1.0), 1.0),
        (1000, at_its_best(0.3, 0.4, 3.0), 3.0),
    ):
        yield regret_row(n, scenario, penalty, replicates, rng)
