"""Coverage of the confidence interval of the area under the ROC curve.

Each question has a normal latent score, higher by a constant where the answer is right, so that the area of the latent
score is known. What is seen is the score itself or, as for P(Answering), the share of ten draws in which the model
answers, whose probability of answering is a steep function of the latent score: then many scores are tied at 0 and 1.
Right answers are drawn with the rate given. Simulated is the interval a user gets by default: Newcombe's below 20
questions of a kind, DeLong's above.
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
    """Questions of one simulated run: how many, how often right, how well told apart, and how the score is seen."""

    n: int
    right: float
    latent_area: float
    frequencies: bool

    @property
    def shift(self) -> float:
        """By how much the latent score of right answers is higher."""
        return float(np.sqrt(2) * norm.ppf(self.latent_area))

    def scores(self, right: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw a score for each question."""
        latent = rng.standard_normal(right.size) + self.shift * right
        return rng.binomial(DRAWS, self.answering(latent)) / DRAWS if self.frequencies else latent

    def answering(self, latent: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability of answering at a latent score."""
        return np.asarray(norm.cdf(STEEPNESS * (latent - self.shift / 2 - 0.5)))

    def area(self) -> float:
        """Return the true area of the score as it is seen."""
        if not self.frequencies:
            return self.latent_area
        latent = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
        of_wrong, of_right = (self._distribution(latent + shift) for shift in (0.0, self.shift))
        return float(of_right @ (np.cumsum(of_wrong) - of_wrong / 2))

    def _distribution(self, latent: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probabilities of 0, 1, ... answers among the draws, averaged over latent scores."""
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
    """Simulate the coverage of nominal 95 % intervals in each scenario."""
    for scenario in scenarios:
        truth = scenario.area()
        hits = sum(_covers(scenario, truth, rng) for _ in range(replicates))
        kind = f"share of {DRAWS} draws" if scenario.frequencies else "continuous score"
        words = f"n {scenario.n}, right {scenario.right}, area {truth:.3f}, {kind}"
        # With few right answers the variance itself is hardly known.
        low, high = (0.93, 0.97) if scenario.n * scenario.right >= 50 else (0.92, 0.975)
        yield share(words, "coverage of the AUROC interval", hits, replicates, low, high)


def _covers(scenario: Scenario, truth: float, rng: np.random.Generator) -> bool:
    right = rng.random(scenario.n) < scenario.right
    low, high = auroc(scenario.scores(right, rng), right).confidence_interval()
    return low <= truth <= high
