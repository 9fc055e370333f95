"""Bias and coverage of the within-topic Refusal Index, and the index of all topics pooled.

Within each topic, refusal and error have a Gaussian copula with an index of .39. The difficulty of a topic is a normal
variable that shifts both thresholds, so that all questions together have an index of .57.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from refusal_index.stats import upper_orthant
from refusal_index.stats.sensitivity import WithinTopicResult, within_topic_refusal_index

TRUE_INDEX = 0.39
POOLED_INDEX = 0.57
RHO, POOLED_RHO = (2 * math.sin(index * math.asin(0.5)) for index in (TRUE_INDEX, POOLED_INDEX))
# The variance of the difficulty, relative to that within a topic, that gives the pooled correlation.
VARIANCE = (POOLED_RHO - RHO) / (1 - POOLED_RHO)
CELLS = (np.array([True, True, False, False]), np.array([True, False, True, False]))


class Scenario(NamedTuple):
    """Number of topics, questions per topic, and overall refusal and error rate."""

    n_topics: int
    n_questions: int
    refusal_rate: float
    error_rate: float


SCENARIOS = (
    Scenario(10, 200, 0.5, 0.6),
    Scenario(20, 50, 0.5, 0.6),
    Scenario(20, 100, 0.74, 0.9),
    Scenario(100, 20, 0.4, 0.7),
)


def simulate(scenario: Scenario, rng: np.random.Generator) -> WithinTopicResult:
    """Draw topics and their questions, and estimate the index."""
    difficulty = rng.normal(0, math.sqrt(VARIANCE), scenario.n_topics)
    h, k = (-ndtri(rate) * math.sqrt(1 + VARIANCE) - difficulty for rate in scenario[2:])
    p11, r, mu = upper_orthant(h, k, RHO), ndtr(-h), ndtr(-k)
    cells = np.clip(np.stack([p11, r - p11, mu - p11, 1 - r - mu + p11], axis=1), 0, 1)
    counts: NDArray[np.int64] = rng.multinomial(scenario.n_questions, cells)
    refused, wrong = (np.repeat(np.tile(cell, scenario.n_topics), counts.ravel()) for cell in CELLS)
    return within_topic_refusal_index(refused, wrong, np.repeat(np.arange(scenario.n_topics), scenario.n_questions))


def scenario_rows(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Bias and coverage within topics, and the mean of the pooled index."""
    results = [simulate(scenario, rng) for _ in range(replicates)]
    estimates, pooled = (np.array([getattr(result, name) for result in results]) for name in ("estimate", "pooled"))
    intervals = [result.confidence_interval() for result in results]
    hits = sum(interval.low <= TRUE_INDEX <= interval.high for interval in intervals)
    name = f"{scenario.n_topics} topics of {scenario.n_questions}, r {scenario.refusal_rate:.2f}"
    errors = [float(values.std()) / math.sqrt(replicates) for values in (estimates, pooled)]
    yield Row(name, "bias within topics", float(estimates.mean()) - TRUE_INDEX, errors[0], -0.02, 0.02)
    yield Row(name, "pooled index", float(pooled.mean()), errors[1], 0.53, 0.61)
    yield share(name, "coverage", hits, replicates, 0.92, 0.97)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for scenario in SCENARIOS:
        yield from scenario_rows(scenario, replicates, rng)
