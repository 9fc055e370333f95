"""Differences of two models' corrected Refusal Indices: coverage, and comparison with RI.

Each question has a latent error score and refusal score in each model, with copula correlation rho; the models share
part of both. The probabilities of refusal and error are probit functions of the scores with slope b; a smaller slope
means a more random model. Models with the same rho but different slopes have the same corrected index and different
RI. Test and interval agree, so for a true difference of 0 the coverage is one less the size of the test.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.special import ndtri

from refusal_index.stats import (
    CorrectedDifference,
    compare_corrected,
    compare_metrics,
    corrected_refusal_index,
)

BoolArray = NDArray[np.bool_]

RHO = 2 * math.sin(0.582 * math.asin(0.5))
# Share of the variance of the latent scores that is common to both models.
SHARED_DIFFICULTY = 0.6


class Scenario(NamedTuple):
    """Slope, correlation and draws of two models, their rates, number of questions, and whether these are shared."""

    slopes: tuple[float, float]
    rhos: tuple[float, float] = (RHO, RHO)
    draws: tuple[int, int] = (2, 2)
    rates: tuple[float, float] = (0.5, 0.5)
    n: int = 800
    paired: bool = True
    n_repeated: int | None = None  # questions drawn twice; None for all

    def __str__(self) -> str:
        pairing = "" if self.paired else " each"
        twice = "" if self.n_repeated is None else f", {self.n_repeated} twice"
        models = f"b {self.slopes[0]:g} and {self.slopes[1]:g}, rho {self.rhos[0]:.2g} and {self.rhos[1]:.2g}"
        return f"{models}, r {self.rates[0]:g}, mu {self.rates[1]:g}, draws {self.draws}, n {self.n}{pairing}{twice}"


SCENARIOS = (
    Scenario((3, 3)),
    Scenario((3, 1)),
    Scenario((3, 1), paired=False),
    Scenario((3, 1), rates=(0.74, 0.9)),
    Scenario((3, 1.5), rhos=(0.7, 0.3)),
    Scenario((3, 1), draws=(2, 5)),
    Scenario((1, 1), n=300),
    Scenario((3, 0.5)),
    Scenario((3, 1), rates=(0.4, 0.55), n=1000, n_repeated=200),
    Scenario((3, 1), rates=(0.4, 0.55), n=4326, n_repeated=400),
    Scenario((3, 1), rates=(0.74, 0.9), n=4326, n_repeated=400),
    Scenario((6, 2), rates=(0.4, 0.55), n=4326, n_repeated=400),
)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for scenario in SCENARIOS:
        yield from scenario_rows(scenario, replicates, rng)


def scenario_rows(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage, and for models with equal corrected indices the share of tests that reject equal RI."""
    indices = [math.asin(rho / 2) / math.asin(0.5) for rho in scenario.rhos]
    covered = rejected = 0
    for _ in range(replicates):
        corrected, pvalue = simulate(scenario, rng)
        low, high = corrected.confidence_interval()
        covered += low <= indices[0] - indices[1] <= high
        rejected += (1.0 if pvalue is None else pvalue) <= 0.05
    yield share(str(scenario), "coverage", covered, replicates, 0.93, 0.97)
    if indices[0] == indices[1]:
        low, high = (0.03, 0.07) if scenario.slopes[0] == scenario.slopes[1] else (0.5, 1.0)
        yield share(str(scenario), "rejections of equality by RI", rejected, replicates, low, high)


def simulate(scenario: Scenario, rng: np.random.Generator) -> tuple[CorrectedDifference, float | None]:
    """Compare two models once; return the corrected difference and the p-value of the difference in RI."""
    shared = rng.standard_normal((2, scenario.n))
    common = [shared, shared if scenario.paired else rng.standard_normal((2, scenario.n))]
    models = [_draws(scenario, model, scores, rng) for model, scores in enumerate(common)]
    apart = np.ones((2, scenario.n), bool) if scenario.paired else np.repeat(np.eye(2, dtype=bool), scenario.n, axis=1)
    times = apart.shape[1] // scenario.n
    wide = [tuple(np.tile(part, times) for part in model) for model in models]
    first = [np.stack([model[part][0] for model in wide]) for part in range(2)]
    repeated = scenario.n if scenario.n_repeated is None else scenario.n_repeated
    twice = np.arange(apart.shape[1]) % scenario.n < repeated
    results = [
        corrected_refusal_index(
            *model, np.tile(asked & twice, (len(model[0]), 1)), single=(model[0][0], model[1][0], asked)
        )
        for model, asked in zip(wide, apart, strict=True)
    ]
    return compare_corrected(*results), compare_metrics(*first, apart)["refusal_index"].pvalue


def _draws(
    scenario: Scenario, model: int, shared: NDArray[np.float64], rng: np.random.Generator
) -> tuple[BoolArray, BoolArray]:
    """Draw the refusals and forced errors of a model, shape (draws, n) each."""
    own = rng.standard_normal((2, scenario.n))
    error, other = math.sqrt(SHARED_DIFFICULTY) * shared + math.sqrt(1 - SHARED_DIFFICULTY) * own
    rho, slope = scenario.rhos[model], scenario.slopes[model]
    refusal = rho * error + math.sqrt(1 - rho * rho) * other
    shape, width = (scenario.draws[model], scenario.n), math.hypot(1, slope)
    refused, wrong = (
        slope * score + rng.standard_normal(shape) > -ndtri(rate) * width
        for score, rate in zip((refusal, error), scenario.rates, strict=True)
    )
    return refused, wrong
