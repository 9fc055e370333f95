"""Coverage of the joint Refusal Index and of the spread between prompts, and size of the homogeneity tests.

The prompts of a model threshold a latent refusal score at their rates. If refusals are nested, the score is the same
under all prompts; otherwise each prompt adds its own noise, so the scores of two prompts have a correlation of .7. The
error is the same under all prompts, and the score of each prompt has the same correlation with it. In some scenarios,
each prompt has a grade for a random 70% of the questions, or a prompt refuses so rarely that it often has an empty
cell. `MANY` has 2 to 24 prompts; with few questions and many prompts their covariance is hard to estimate. In
`SPREADS`, each prompt has its own index.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from benchmarks.coverage.row import Row, share
from scipy.special import ndtri

from refusal_index.plugins.studies.copulas import copula_test
from refusal_index.stats.intervals import spearman_slope
from refusal_index.stats.joint import JointRefusalIndexResult, deviation_of_index, joint_refusal_index

QUANTILE_95 = 1.959963984540054


@dataclass(frozen=True)
class Scenario:
    """Rates and dependence of one simulated model."""

    n: int
    refusal_rates: tuple[float, ...]
    error_rate: float
    rho: float
    between_prompts: float = 1.0
    graded: float = 1.0

    def __str__(self) -> str:
        """Describe the scenario for the table of results."""
        kind = "nested" if self.between_prompts == 1 else f"prompts correlate {self.between_prompts:g}"
        missing = "" if self.graded == 1 else f", {self.graded:.0%} graded"
        return (
            f"n {self.n}, r {described(self.refusal_rates)}, mu {self.error_rate:g}, rho {self.rho:g}, {kind}{missing}"
        )

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw a data set: refused, wrong, scored."""
        shape = len(self.refusal_rates), self.n
        common = rng.standard_normal(self.n)
        with_error = self.rho / math.sqrt(self.between_prompts)
        error = with_error * common + math.sqrt(1 - with_error**2) * rng.standard_normal(self.n)
        score = math.sqrt(self.between_prompts) * common + np.zeros(shape)
        if self.between_prompts < 1:
            score += math.sqrt(1 - self.between_prompts) * rng.standard_normal(shape)
        refused = score > -ndtri(np.array(self.refusal_rates))[:, np.newaxis]
        return refused, np.broadcast_to(error > -ndtri(self.error_rate), shape), rng.random(shape) < self.graded


@dataclass(frozen=True)
class Spread:
    """Prompts whose atanh(rho) is normal around `z` with standard deviation `between`."""

    n: int
    refusal_rates: tuple[float, ...]
    error_rate: float
    z: float
    between: float

    def __str__(self) -> str:
        """Describe the scenario for the table of results."""
        rates = described(self.refusal_rates)
        return f"n {self.n}, r {rates}, mu {self.error_rate:g}, z {self.z:g} with sd {self.between:g}"

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
        """Draw a data set, and the index of a new prompt."""
        rho = np.tanh(self.z + self.between * rng.standard_normal(len(self.refusal_rates) + 1))
        error, noise = rng.standard_normal((2, self.n))
        score = rho[:-1, np.newaxis] * error + np.sqrt(1 - rho[:-1, np.newaxis] ** 2) * noise
        refused = score > -ndtri(np.array(self.refusal_rates))[:, np.newaxis]
        return refused, np.broadcast_to(error > -ndtri(self.error_rate), refused.shape), _index(rho[-1])


def described(rates: tuple[float, ...]) -> str:
    """Format rates: all of a few, or the ends of many."""
    if len(rates) > 5:
        return f"{rates[0]:g} to {rates[-1]:g} in {len(rates)}"
    return " ".join(f"{rate:g}" for rate in rates)


def evenly(low: float, high: float, k: int) -> tuple[float, ...]:
    """Return k equally spaced rates."""
    return tuple(np.linspace(low, high, k).tolist())


def _index(rho: float) -> float:
    return math.asin(rho / 2) / math.asin(0.5)


HIGH, MIDDLE = ((0.58, 0.69, 0.79, 0.90), 0.92, 0.51), ((0.23, 0.36, 0.50, 0.63), 0.754, 0.405)
EVEN, WEAK = ((0.2, 0.4, 0.6, 0.8), 0.5, 0.45), ((0.05, 0.2, 0.4, 0.6), 0.35, 0.2)
SCENARIOS = (
    *(Scenario(n, *rates, stay) for n in (1000, 4326) for rates in (HIGH, MIDDLE, EVEN, WEAK) for stay in (1.0, 0.7)),
    Scenario(1000, *MIDDLE, 0.7, 0.7),
    Scenario(4326, *HIGH, 1.0, 0.7),
    Scenario(1000, (0.2, 0.4, 0.6, 0.8), 0.8, 0.75),
)
MANY = (
    Scenario(450, evenly(0.3, 0.9, 8), 0.90, 0.45),
    Scenario(450, evenly(0.3, 0.8, 22), 0.85, 0.45, 0.7),
    Scenario(450, evenly(0.4, 0.7, 22), 0.90, 0.45, 0.7),
    Scenario(500, (0.58, 0.90), 0.92, 0.51),
    Scenario(1000, (0.3, 0.7), 0.5, 0.45),
    Scenario(500, *HIGH),
    Scenario(1000, (0.2, 0.4, 0.6, 0.8), 0.5, 0.0),
    Scenario(1000, (0.58, 0.69, 0.79, 0.90), 0.92, 0.0),
    Scenario(1000, evenly(0.2, 0.8, 6), 0.8, 0.45),
    *(Scenario(n, evenly(0.15, 0.85, 8), 0.8, 0.45) for n in (1000, 2000)),
    Scenario(1000, evenly(0.1, 0.9, 24), 0.8, 0.45),
    Scenario(1000, evenly(0.2, 0.8, 24), 0.75, 0.4, 0.8),
)
SPREADS = tuple(
    Spread(n, rates, mu, 0.48, between)
    for n, rates, mu in (
        (1000, (0.3, 0.5, 0.7), 0.6),
        (500, HIGH[0], 0.92),
        (4326, (0.2, 0.4, 0.6, 0.8), 0.6),
        (1000, evenly(0.15, 0.85, 8), 0.8),
        (450, evenly(0.3, 0.8, 22), 0.85),
    )
    for between in (0.05, 0.1, 0.2)
)
# Prompts that refuse so rarely that some of them have an empty cell.
SPARSE = (
    Scenario(500, (0.05, 0.07, 0.1, 0.5, 0.7), 0.95, 0.4, 0.8),
    Scenario(500, (0.05, 0.07, 0.1, 0.5, 0.7), 0.8, 0.6, 0.8),
    Scenario(500, (0.03, 0.06, 0.1, 0.3), 0.95, 0.4, 0.8),
    Scenario(1000, (0.02, 0.05, 0.3, 0.8), 0.8, 0.6, 0.8),
)
FAST_SCENARIOS = (SCENARIOS[0], SCENARIOS[3], SCENARIOS[16], *MANY)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios; the copula test only for `MANY`."""
    for scenario in SCENARIOS:
        yield from rows_of(scenario, replicates, rng)
    for scenario in MANY:
        yield from rows_of(scenario, replicates, rng)
        yield copula_row(scenario, max(replicates // 2, 20), rng)
    for scenario in SPARSE:
        yield from sparse_rows(scenario, replicates, rng)
    for spread in SPREADS:
        yield from spread_rows(spread, replicates, rng)


def rows_of(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage of the joint interval and of one that treats prompts as independent; size of the homogeneity test."""
    truth = _index(scenario.rho)
    covered = as_independent = tested = rejected = 0
    for _ in range(replicates):
        result = joint_refusal_index(*scenario.draw(rng))
        low, high = result.confidence_interval()
        covered += low <= truth <= high
        as_independent += covers_as_independent(result, scenario.rho)
        pvalue = result.homogeneity.pvalue
        tested += pvalue is not None
        rejected += pvalue is not None and pvalue < 0.05
    yield share(str(scenario), "coverage of the joint interval", covered, replicates, 0.93, 0.97)
    yield share(str(scenario), "coverage if prompts are treated as independent", as_independent, replicates, 0.0, 0.93)
    yield share(str(scenario), "size of the homogeneity test", rejected, max(tested, 1), 0.03, 0.07)


def sparse_rows(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Size of the homogeneity test where prompts were left out at the boundary, with and without the rule for it."""
    left_out = rejected_by_all = tested = rejected = 0
    for _ in range(replicates):
        result = joint_refusal_index(*scenario.draw(rng))
        spread = result.between_prompts.spread
        if spread is None or all(variant.status != "boundary" for variant in result.variants):
            continue
        left_out += 1
        rejected_by_all += spread.pvalue() < 0.05
        pvalue = result.homogeneity.pvalue
        tested += pvalue is not None
        rejected += pvalue is not None and pvalue < 0.05
    name = f"{scenario}, prompts left out at the boundary"
    # for information: what the rule prevents, and what it costs
    yield share(name, "size if homogeneity were always tested", rejected_by_all, max(left_out, 1), 0.0, 0.3)
    yield share(name, "share in which homogeneity is tested", tested, max(left_out, 1), 0.0, 1.0)
    if tested:
        yield share(name, "size of the homogeneity test where it is made", rejected, tested, 0.0, 0.07)


def copula_row(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Row:
    """Size of the test for a common Gaussian copula of all prompts."""
    pvalues = [copula_test(*scenario.draw(rng)).pvalue for _ in range(replicates)]
    defined = [pvalue for pvalue in pvalues if pvalue is not None]
    rejected = sum(pvalue < 0.05 for pvalue in defined)
    return share(str(scenario), "size of the copula test", rejected, max(len(defined), 1), 0.03, 0.07)


def spread_rows(spread: Spread, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage of the intervals of the joint index, of the standard deviation, and for a new prompt."""
    truth, deviation = _index(math.tanh(spread.z)), deviation_of_index(spread.z, spread.between**2)
    covered = held = predicted = fixed = 0
    for _ in range(replicates):
        *outcomes, new = spread.draw(rng)
        result = joint_refusal_index(*outcomes)
        covered += _within(result.confidence_interval(), truth)
        fixed += _within(result.confidence_interval(prompts="fixed"), truth)
        held += _within(result.between_prompts.confidence_interval(), deviation)
        predicted += _within(result.prediction_interval(), new)
    yield share(str(spread), "coverage of the joint interval", covered, replicates, 0.92, 0.98)
    yield share(str(spread), "coverage of the interval for fixed prompts", fixed, replicates, 0.0, 0.97)
    yield share(str(spread), "coverage of the standard deviation", held, replicates, 0.91, 0.99)
    yield share(str(spread), "coverage of the interval for a new prompt", predicted, replicates, 0.92, 0.98)


def _within(interval: tuple[float, float], truth: float) -> bool:
    return interval[0] <= truth <= interval[1]


def covers_as_independent(result: JointRefusalIndexResult, rho: float) -> bool:
    """Whether the interval that sums the variants' information, as if they were independent, covers rho."""
    used = [(v.rho, v.standard_error) for v in result.variants if v.rho is not None and v.standard_error is not None]
    z = np.array([math.atanh(value) for value, _ in used])
    information = np.array([(spearman_slope(value) * (1 - value**2) / error) ** 2 for value, error in used])
    return bool(abs(information @ (z - math.atanh(rho))) < QUANTILE_95 * math.sqrt(information.sum()))
