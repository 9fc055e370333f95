"""Coverage of the confidence interval of the area under the ROC curve.

Each question has a normal latent score, which is shifted for right answers, so the area of the latent score is known.
The observed score is the latent score itself or, as for P(Answering), the share of ten draws in which the model
answers. The probability of answering is a steep function of the latent score, so many scores are tied at 0 and 1. The
interval is the default one: Newcombe's with fewer than 20 right or wrong answers, DeLong's otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.special import comb
from scipy.stats import norm

from refusal_index.stats.calibration import auroc

DRAWS = 10
STEEPNESS = 3.0


@dataclass(frozen=True)
class Scenario:
    """Number of questions, share of right answers, area of the latent score, and whether frequencies are observed."""

    n: int
    right: float
    latent_area: float
    frequencies: bool

    @property
    def shift(self) -> float:
        """The shift of the latent score of right answers."""
        return float(np.sqrt(2) * norm.ppf(self.latent_area))

    def scores(self, right: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw a score for each question."""
        latent = rng.standard_normal(right.size) + self.shift * right
        return rng.binomial(DRAWS, self.answering(latent)) / DRAWS if self.frequencies else latent

    def answering(self, latent: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of answering at a latent score."""
        return np.asarray(norm.cdf(STEEPNESS * (latent - self.shift / 2 - 0.5)))

    def area(self) -> float:
        """Return the true area of the observed score."""
        if not self.frequencies:
            return self.latent_area
        latent = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
        of_wrong, of_right = (self._distribution(latent + shift) for shift in (0.0, self.shift))
        return float(of_right @ (np.cumsum(of_wrong) - of_wrong / 2))

    def _distribution(self, latent: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probabilities of 0, 1, ... answers in the draws, averaged over latent scores."""
        answers, probability = np.arange(DRAWS + 1), self.answering(latent)[:, np.newaxis]
        likelihoods = comb(DRAWS, answers) * probability**answers * (1 - probability) ** (DRAWS - answers)
        return np.asarray(likelihoods.mean(axis=0))


SCENARIOS = tuple(
    Scenario(n, right, area, frequencies)
    for n, right in ((200, 0.05), (200, 0.3), (1000, 0.05), (1000, 0.5), (1000, 0.9))
    for area in (0.65, 0.9)
    for frequencies in (False, True)
)


def rows(replicates: int, rng: np.random.Generator, scenarios: tuple[Scenario, ...] = SCENARIOS) -> Iterator[Row]:
    """Simulate the coverage of nominal 95% intervals in each scenario."""
    for scenario in scenarios:
        truth = scenario.area()
        hits = sum(_covers(scenario, truth, rng) for _ in range(replicates))
        kind = f"share of {DRAWS} draws" if scenario.frequencies else "continuous score"
        name = f"n {scenario.n}, right {scenario.right}, area {truth:.3f}, {kind}"
        # with few right answers the variance is poorly estimated
        low, high = (0.93, 0.97) if scenario.n * scenario.right >= 50 else (0.92, 0.975)
        yield share(name, "coverage of the AUROC interval", hits, replicates, low, high)


def _covers(scenario: Scenario, truth: float, rng: np.random.Generator) -> bool:
    right = rng.random(scenario.n) < scenario.right
    low, high = auroc(scenario.scores(right, rng), right).confidence_interval()
    return low <= truth <= high
