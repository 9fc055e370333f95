"""Coverage of the difference of two models' joint indices, and false differences in rankings by joint index.

The models answer the same questions under four or 22 prompts. They share part of the latent difficulty, so their errors
are correlated; each has its own refusal scores, with noise for each prompt. The indices of the two models differ in
half of the scenarios.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.coverage.joint import described, evenly
from benchmarks.coverage.row import Row, share
from scipy.special import ndtri

from refusal_index.stats import compare_joint, rank_joint

SHARED_DIFFICULTY = 0.6
BETWEEN_PROMPTS = 0.8


@dataclass(frozen=True)
class Scenario:
    """Rates and correlations of models that answer the same questions."""

    n: int
    refusal_rates: tuple[float, ...]
    error_rate: float
    rhos: tuple[float, ...]

    def __str__(self) -> str:
        """Describe the scenario for the table of results."""
        rhos = " ".join(f"{rho:g}" for rho in self.rhos)
        return f"n {self.n}, r {described(self.refusal_rates)}, mu {self.error_rate:g}, rho {rhos}"

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw a data set: refused and wrong, shape (models, prompts, n)."""
        shared = rng.standard_normal(self.n)
        pairs = [self._model(rho, shared, rng) for rho in self.rhos]
        return np.stack([refused for refused, _ in pairs]), np.stack([wrong for _, wrong in pairs])

    def _model(self, rho: float, shared: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        error = _blend(shared, math.sqrt(SHARED_DIFFICULTY), rng)
        common = _blend(error, rho / math.sqrt(BETWEEN_PROMPTS), rng)
        scores = np.stack([_blend(common, math.sqrt(BETWEEN_PROMPTS), rng) for _ in self.refusal_rates])
        refused = scores > -ndtri(np.array(self.refusal_rates))[:, np.newaxis]
        return refused, np.broadcast_to(error > -ndtri(self.error_rate), refused.shape)


def _blend(variable: np.ndarray, correlation: float, rng: np.random.Generator) -> np.ndarray:
    return correlation * variable + math.sqrt(1 - correlation**2) * rng.standard_normal(variable.shape)


HIGH, EVEN = ((0.58, 0.69, 0.79, 0.90), 0.92), ((0.2, 0.4, 0.6, 0.8), 0.6)
SCENARIOS = [
    Scenario(n, *rates, rhos) for n in (1000, 4326) for rates in (HIGH, EVEN) for rhos in ((0.5, 0.5), (0.6, 0.2))
]
SCENARIOS += [Scenario(450, evenly(0.3, 0.8, 22), 0.85, rhos) for rhos in ((0.45, 0.45), (0.6, 0.2))]
EQUAL = [Scenario(1000, *rates, (0.4,) * 6) for rates in (HIGH, EVEN)]


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios; rankings with a fifth of the replicates."""
    for scenario in SCENARIOS:
        yield from difference_rows(scenario, replicates, rng)
    for scenario in EQUAL:
        yield ranking_row(scenario, max(replicates // 5, 20), rng)


def difference_rows(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage of the interval, and for equal models the size of the test."""
    truth = _index(scenario.rhos[0]) - _index(scenario.rhos[1])
    covered = tested = rejected = 0
    for _ in range(replicates):
        difference = compare_joint(*scenario.draw(rng))
        low, high = difference.confidence_interval()
        covered += low <= truth <= high
        tested += difference.pvalue is not None
        rejected += difference.pvalue is not None and difference.pvalue < 0.05
    yield share(str(scenario), "coverage of the difference", covered, replicates, 0.93, 0.97)
    if truth == 0:
        yield share(str(scenario), "size of the test", rejected, max(tested, 1), 0.03, 0.07)


def ranking_row(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Row:
    """Share of rankings of equal models with a false difference."""
    false = sum(
        _has_difference(rank_joint(*scenario.draw(rng), n_resamples=2000, rng=rng).runs) for _ in range(replicates)
    )
    return share(str(scenario), "family-wise error", false, replicates, 0.0, 0.07)


def _has_difference(runs: Sequence[object]) -> bool:
    return len({getattr(run, "letters", "") for run in runs}) > 1


def _index(rho: float) -> float:
    return math.asin(rho / 2) / math.asin(0.5)
