"""Rankings of eight models by the Refusal Index: false positives and true positives.

The models answer the same 1,000 questions, whose latent difficulty they partly share. If all eight are equal, any
significant pair is an error. If they are equal in pairs, significant differences within pairs are errors, and the
share of other pairs that are significant is the power, which shows the cost of an adjustment.

Run it: ``python -m benchmarks.coverage.ranking``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.special import ndtri

from refusal_index.stats.ranking import Ranking, rank_runs

N_QUESTIONS = 1_000
# Enough for an error rate, since only close decisions depend on the resamples.
N_RESAMPLES = 1_000
# Correlation between models of latent difficulty, and of the part of reluctance that is independent of it.
SHARED_DIFFICULTY = 0.7


@dataclass(frozen=True)
class Scenario:
    """The rates of all eight models, and the tetrachoric correlation of each."""

    refusal_rate: float
    error_rate: float
    rhos: tuple[float, ...]

    def __str__(self) -> str:
        rhos = f"rho {self.rhos[0]}" if len(set(self.rhos)) == 1 else f"rho {self.rhos[0]} to {self.rhos[-1]}, in pairs"
        return f"8 models, r {self.refusal_rate}, mu {self.error_rate}, {rhos}, n {N_QUESTIONS}"

    @property
    def true_indices(self) -> NDArray[np.float64]:
        """The true Refusal Index of each model."""
        return np.asarray(6 / np.pi * np.arcsin(np.array(self.rhos) / 2))


EQUAL = (Scenario(0.74, 0.92, (0.5,) * 8), Scenario(0.4, 0.7, (0.4,) * 8))
PLANTED = Scenario(0.4, 0.7, (0.2, 0.2, 0.35, 0.35, 0.5, 0.5, 0.65, 0.65))


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for scenario in EQUAL:
        yield from equal_rows(scenario, replicates, rng)
    yield from planted_rows(PLANTED, replicates, rng)


def equal_rows(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Family-wise error rate with eight equal models, and coverage of the simultaneous intervals."""
    results = np.array([_rejections_and_coverage(scenario, rng) for _ in range(replicates)])
    raw, holm, max_t = (int(errors) for errors in results[:, :3].any(axis=2).sum(axis=0))
    yield share(str(scenario), "any false difference, single tests", raw, replicates, 0.45, 0.63)
    yield share(str(scenario), "any false difference, Holm", holm, replicates, 0.0, 0.07)
    yield share(str(scenario), "any false difference, max-t", max_t, replicates, 0.03, 0.07)
    covered = int(results[:, 3].all(axis=1).sum())
    yield share(str(scenario), "simultaneous coverage of all intervals", covered, replicates, 0.93, 0.97)


def planted_rows(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Family-wise error rate among equal models, and share of the true differences that are significant."""
    results = np.array([_rejections_and_coverage(scenario, rng) for _ in range(replicates)])
    first, second = np.triu_indices(8, 1)
    equal = scenario.true_indices[first] == scenario.true_indices[second]
    for name, rejected in (("Holm", results[:, 1]), ("max-t", results[:, 2])):
        errors = int(rejected[:, equal].any(axis=1).sum())
        yield share(str(scenario), f"any false difference, {name}", errors, replicates, 0.0, 0.07)
        found = rejected[:, ~equal].mean(axis=1)
        # for information: the power depends on the true differences
        yield _mean(str(scenario), f"true differences found, {name}", found, 0.3, 0.9)
    gained = results[:, 2][:, ~equal].mean(axis=1) - results[:, 1][:, ~equal].mean(axis=1)
    yield _mean(str(scenario), "more true differences found by max-t than by Holm", gained, 0.0, 0.1)
    covered = int(results[:, 3].all(axis=1).sum())
    yield share(str(scenario), "simultaneous coverage of all intervals", covered, replicates, 0.93, 0.97)


def simulate(scenario: Scenario, rng: np.random.Generator) -> Ranking:
    """Draw the outcomes of all models on the same questions, and rank the models."""
    rho = np.array(scenario.rhos)[:, np.newaxis]
    own_share = np.sqrt(1 - SHARED_DIFFICULTY)
    common = np.sqrt(SHARED_DIFFICULTY) * rng.standard_normal((2, 1, N_QUESTIONS))
    difficulty, own = common + own_share * rng.standard_normal((2, len(rho), N_QUESTIONS))
    reluctance = rho * difficulty + np.sqrt(1 - rho * rho) * own
    refused, wrong = reluctance > -ndtri(scenario.refusal_rate), difficulty > -ndtri(scenario.error_rate)
    return rank_runs(refused, wrong, n_resamples=N_RESAMPLES, rng=rng)


def _rejections_and_coverage(scenario: Scenario, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return for each pair whether its single test, Holm and max-t reject, and its interval covers; shape (4, 28)."""
    truth = scenario.true_indices
    results = np.zeros((4, 8, 8), bool)
    results[3] = True
    for pair in simulate(scenario, rng).pairs:
        low, high = pair.simultaneous_interval
        covered = low <= truth[pair.first] - truth[pair.second] <= high
        rejected = (pvalue <= 0.05 for pvalue in (pair.pvalue, pair.pvalue_holm, pair.pvalue_max_t))
        results[:, min(pair.first, pair.second), max(pair.first, pair.second)] = (*rejected, covered)
    first, second = np.triu_indices(8, 1)
    return np.asarray(results[:, first, second])


def _mean(scenario: str, quantity: str, values: NDArray[np.float64], low: float, high: float) -> Row:
    return Row(scenario, quantity, float(values.mean()), float(values.std() / np.sqrt(len(values))), low, high)


if __name__ == "__main__":
    for row in rows(2_000, np.random.default_rng(20261120)):
        print(f"{row.scenario:62} {row.quantity:50} {row.value:.3f} {'' if row.holds else 'OUT OF RANGE'}")
