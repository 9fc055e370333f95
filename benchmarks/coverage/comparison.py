"""Differences of two runs: coverage of intervals, and size of tests.

Two models answer questions whose latent difficulty they partly share. The probabilities of the 4 x 4 cells of one run
against the other come from a large latent sample; the true difference is that of the metrics of these probabilities,
so the error of that sample does not matter. Tables are multinomial. Refusal and error rates are those of published
models, with 200 to 4,326 questions: all shared, half shared, or none.

Sparse pairs are two equal models with 500 questions, 15% refused and 90% wrong: every third pair has an empty cell,
so the test of equal indices cannot use standard errors. The size is over all pairs, with the test that
`compare_metrics` chooses; stratified, it is that of `equal_index_test` over five topics of 100 questions.

Run it: ``python -m benchmarks.coverage.comparison``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.special import ndtri

from refusal_index import refusal_index_many
from refusal_index.stats import METRIC_NAMES, correct_given_attempted, equal_index_test, f_score, weighted_score
from refusal_index.stats.comparison import Comparison, compare_metrics

Floats = NDArray[np.float64]

LATENT_DRAWS = 400_000
# Correlation between the two models of latent difficulty, and of the part of reluctance that is independent of it.
SHARED_DIFFICULTY = 0.7


@dataclass(frozen=True)
class Scenario:
    """Rates and correlations of two models, number of questions, and the share scored in both runs."""

    refusal_rates: tuple[float, float]
    error_rates: tuple[float, float]
    rhos: tuple[float, float]
    n: int
    overlap: float = 1.0

    def __str__(self) -> str:
        rates = f"r {self.refusal_rates}, mu {self.error_rates}, rho {self.rhos}"
        return f"{rates}, n {self.n}" + (f", {self.overlap:.0%} shared" if self.overlap < 1 else "")

    @property
    def equal(self) -> bool:
        """Whether the two models have the same metrics."""
        return all(len(set(pair)) == 1 for pair in (self.refusal_rates, self.error_rates, self.rhos))


MODELS = (
    ((0.74, 0.74), (0.92, 0.92), (0.5, 0.5)),
    ((0.74, 0.5), (0.92, 0.8), (0.5, 0.5)),
    ((0.3, 0.5), (0.75, 0.6), (0.4, 0.6)),
    ((0.06, 0.2), (0.65, 0.55), (0.3, 0.5)),
    ((0.9, 0.7), (0.92, 0.9), (0.2, 0.4)),
)
SCENARIOS = (
    *(Scenario(*models, n) for models in MODELS for n in (200, 1000, 4326)),
    *(Scenario(*models, 1000, overlap) for models in MODELS[1:3] for overlap in (0.5, 0.0)),
)
SPARSE = Scenario((0.15, 0.15), (0.9, 0.9), (0.4, 0.4), 500)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for scenario in SCENARIOS:
        yield from scenario_rows(scenario, replicates, rng)
    for shared in (None, 0.7):
        for stratified in (False, True):
            yield from sparse_rows(shared, replicates, rng, stratified=stratified)


def sparse_rows(
    shared: float | None, replicates: int, rng: np.random.Generator, *, stratified: bool = False
) -> Iterator[Row]:
    """Size of the test of equal indices with sparse tables, and share of pairs without a p-value."""
    cells = with_unscored(joint_probabilities(SPARSE, rng, shared or 0.0), 0.0 if shared is None else 1.0)
    n = 2 * SPARSE.n if shared is None else SPARSE.n
    draws = rng.multinomial(n, cells.ravel(), size=replicates)
    codes = [np.repeat(np.indices((5, 5)).reshape(2, 25), draw, axis=1) for draw in draws]
    pvalues = [sparse_pvalue(pair, rng, stratified=stratified) for pair in codes]
    tested = [pvalue for pvalue in pvalues if pvalue is not None]
    pairs = "unpaired" if shared is None else "on the same questions"
    name = f"sparse pairs, {SPARSE}, {pairs}" + (", five strata" if stratified else "")
    yield share(name, "rejections of equality", sum(p <= 0.05 for p in tested), len(tested), 0.03, 0.06)
    yield share(name, "pairs without a p-value", replicates - len(tested), replicates, 0.0, 0.0)


def sparse_pvalue(codes: NDArray[np.intp], rng: np.random.Generator, *, stratified: bool) -> float | None:
    """Return the p-value of a pair of runs, as a whole or stratified by five uninformative topics."""
    matrices = codes < 2, codes % 2 == 0, codes < 4
    if not stratified:
        return compare_metrics(*matrices)["refusal_index"].pvalue
    return equal_index_test(*matrices, strata=rng.integers(5, size=codes.shape[1])).pvalue


def scenario_rows(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage of each metric's difference, and for equal models the size of the test."""
    probabilities = joint_probabilities(scenario, rng)
    truth = true_metrics(probabilities.sum(axis=1)) - true_metrics(probabilities.sum(axis=0))
    cells = with_unscored(probabilities, scenario.overlap)
    comparisons = [simulate(cells, scenario.n, rng) for _ in range(replicates)]
    smallest = scenario.n * min(probabilities.sum(axis=0).min(), probabilities.sum(axis=1).min())
    for name, true in zip(METRIC_NAMES, truth, strict=True):
        differences = [comparison[name] for comparison in comparisons]
        defined = [difference for difference in differences if difference.estimate is not None]
        intervals = np.array([difference.confidence_interval() for difference in defined])
        covered = (intervals[:, 0] <= true) & (true <= intervals[:, 1])
        low, high = (0.93, 0.97) if smallest >= 5 else (0.92, 0.98)
        yield share(str(scenario), f"coverage, {name}", int(covered.sum()), len(defined), low, high)
        at_boundary = np.array([difference.status == "boundary" for difference in defined])
        if name == "refusal_index" and smallest < 5 and at_boundary.any():
            # for information: these are selected samples, so nominal coverage is not expected
            hits = int(np.count_nonzero(covered & at_boundary))
            yield share(str(scenario), f"coverage at the boundary, {name}", hits, int(at_boundary.sum()), 0.4, 1.0)
        if scenario.equal:
            tested = [difference.pvalue for difference in defined if difference.pvalue is not None]
            rejections = sum(pvalue <= 0.05 for pvalue in tested)
            yield share(str(scenario), f"rejections of equality, {name}", rejections, len(tested), 0.03, 0.07)


def joint_probabilities(
    scenario: Scenario, rng: np.random.Generator, shared_difficulty: float = SHARED_DIFFICULTY
) -> Floats:
    """Return the joint probabilities of the cells of the first model (rows) and the second, shape (4, 4)."""
    shared = np.sqrt(shared_difficulty) * rng.standard_normal((2, LATENT_DRAWS))
    codes = []
    for r, mu, rho in zip(scenario.refusal_rates, scenario.error_rates, scenario.rhos, strict=True):
        difficulty, own = shared + np.sqrt(1 - shared_difficulty) * rng.standard_normal((2, LATENT_DRAWS))
        reluctance = rho * difficulty + np.sqrt(1 - rho * rho) * own
        codes.append(2 * (reluctance <= -ndtri(r)) + (difficulty <= -ndtri(mu)))
    counts = np.bincount(4 * codes[0] + codes[1], minlength=16).reshape(4, 4)
    # make equal models exactly equal
    return np.asarray((counts + counts.T if scenario.equal else 2 * counts) / (2 * LATENT_DRAWS))


def with_unscored(probabilities: Floats, overlap: float) -> Floats:
    """Add a fifth cell, unscored: a question is scored in both runs with probability `overlap`, otherwise in one."""
    cells = np.zeros((5, 5))
    cells[:4, :4] = overlap * probabilities
    cells[:4, 4] = (1 - overlap) / 2 * probabilities.sum(axis=1)
    cells[4, :4] = (1 - overlap) / 2 * probabilities.sum(axis=0)
    return cells


def simulate(cells: Floats, n: int, rng: np.random.Generator) -> Comparison:
    """Draw n questions from the 5 x 5 cells, and compare the two runs."""
    codes = np.repeat(np.indices((5, 5)).reshape(2, 25), rng.multinomial(n, cells.ravel()), axis=1)
    return compare_metrics(codes < 2, codes % 2 == 0, codes < 4)


def true_metrics(cells: Floats) -> Floats:
    """Return all metrics of the four cell probabilities, in the order of `METRIC_NAMES`."""
    refusal_rate, error_rate, correct_rate = cells[0] + cells[1], cells[0] + cells[2], cells[3]
    return np.array(
        [
            correct_rate,
            refusal_rate,
            correct_given_attempted(correct_rate, refusal_rate),
            f_score(correct_rate, refusal_rate),
            weighted_score(correct_rate, refusal_rate, p=1),
            cells[2] / (1 - correct_rate),
            100 * (correct_rate - cells[2]),
            correct_rate - cells[2],
            error_rate,
            cells[0] / refusal_rate,
            cells[0] / error_rate,
            cells[1] / (1 - error_rate),
            # the probabilities are multiples of 1 / (2 LATENT_DRAWS), so these are exact counts
            refusal_index_many(*np.round(cells * 2 * LATENT_DRAWS)),
        ]
    )


if __name__ == "__main__":
    for row in rows(2_000, np.random.default_rng(20261120)):
        print(f"{row.scenario:70} {row.quantity:40} {row.value:.3f} {'' if row.holds else 'OUT OF RANGE'}")
