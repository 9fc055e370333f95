"""Coverage of the intervals of a single Refusal Index: profile, Jeffreys, delta and the paper's bootstrap.

Tables are drawn from a bivariate normal distribution with the refusal and error rates of published models. If every
cell is expected to hold five questions, the coverage of a nominal 95% profile interval should be .93 to .97, otherwise
at least .92. The bootstrap is shown for contrast: its coverage breaks down if a cell is nearly empty. Tables without an
estimate (a degenerate margin) are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from benchmarks.coverage.row import Row, share

from refusal_index import ContingencyTable, refusal_index
from refusal_index.stats import PlanningScenario

SCENARIOS = [
    (refusal_rate, error_rate, rho, n)
    for refusal_rate, error_rate in ((0.74, 0.92), (0.43, 0.67), (0.16, 0.95), (0.5, 0.5))
    for rho in (0.0, 0.3, 0.8)
    for n in (200, 1000, 4326)
]
SPARSE_LIMIT = 5
METHODS = ("profile", "jeffreys", "delta", "bootstrap")
RESAMPLES = 400


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Yield the coverage of each method in each scenario; Jeffreys and bootstrap with a tenth of the replicates."""
    for scenario in SCENARIOS:
        for method in METHODS:
            few = method in ("jeffreys", "bootstrap")
            yield coverage_of(scenario, method, max(replicates // 10, 20) if few else replicates, rng)


def coverage_of(
    scenario: tuple[float, float, float, int], method: str, replicates: int, rng: np.random.Generator
) -> Row:
    """Simulate a method in a scenario, given as refusal rate, error rate, rho and number of questions."""
    refusal_rate, error_rate, rho, n = scenario
    truth = 6 / math.pi * math.asin(rho / 2)
    cells = np.array(PlanningScenario(refusal_rate, error_rate, truth).cells)
    smallest = n * cells.min()
    hits = defined = 0
    for counts in rng.multinomial(n, cells / cells.sum(), size=replicates):
        result = refusal_index(ContingencyTable(*counts.tolist()))
        if result.status == "undefined":
            continue
        low, high = result.confidence_interval(method=method, n_resamples=RESAMPLES, rng=rng)
        defined += 1
        hits += low <= truth <= high
    name = f"r {refusal_rate}, mu {error_rate}, rho {rho}, n {n:,}, smallest expected cell {smallest:.1f}"
    return share(name, f"{method} coverage", hits, defined, *_range(method, smallest))


def _range(method: str, smallest: float) -> tuple[float, float]:
    if method == "profile":
        return (0.93, 0.97) if smallest >= SPARSE_LIMIT else (0.92, 1.0)
    # the other methods are for comparison: no claim is made for small cells or the bootstrap
    return (0.9, 1.0) if smallest >= SPARSE_LIMIT and method != "bootstrap" else (0.0, 1.0)
