"""Clustered and weighted questions: coverage of intervals, and size of tests.

A question's latent difficulty and a model's latent reluctance have an intra-cluster correlation of .3, and correlate by
rho both between and within clusters, so their overall correlation is rho. Two models share part of both. Clusters have
equal sizes, or exponential sizes with that mean, in which case the largest of thirty is as large as the smallest
fifteen together. For contrast, intervals that treat questions as independent are shown; they cover too little.

Run it: ``python -m benchmarks.coverage clusters``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from benchmarks.coverage.row import Row, share
from numpy.typing import NDArray
from scipy.special import ndtri

from refusal_index import ContingencyTable, refusal_index, refusal_index_many
from refusal_index.stats import (
    METRIC_NAMES,
    SampledTable,
    compare_joint,
    compare_metrics,
    correct_given_attempted,
    f_score,
    joint_refusal_index,
    metrics,
    rank_runs,
    upper_orthant,
    weighted_score,
)
from refusal_index.stats.intervals import spearman

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

INTRA_CLUSTER = 0.3
SHARED = 0.7  # correlation of difficulty, and of reluctance, between two models
PROMPTS = (-0.6, -0.2, 0.2, 0.6)  # shift of the refusal threshold by each of four prompts


@dataclass(frozen=True)
class Scenario:
    """Number of clusters, their mean size, and the rates and correlation of a model."""

    clusters: int
    size: int
    refusal_rate: float
    error_rate: float
    rho: float
    equal: bool = True

    def __str__(self) -> str:
        sizes = f"{self.size} each" if self.equal else f"{self.size} on average"
        return f"r {self.refusal_rate}, mu {self.error_rate}, rho {self.rho}, {self.clusters} clusters of {sizes}"

    def draw_clusters(self, rng: np.random.Generator) -> NDArray[np.intp]:
        """Draw the cluster of each question."""
        sizes = np.full(self.clusters, self.size)
        if not self.equal:
            sizes = np.maximum(1, np.round(rng.exponential(self.size, self.clusters))).astype(int)
        return np.repeat(np.arange(self.clusters), sizes)


RATES = ((0.5, 0.6, 0.5), (0.74, 0.92, 0.5), (0.3, 0.65, 0.0))
SIZES = ((30, 10, True), (30, 20, True), (50, 20, True), (30, 20, False), (50, 20, False))
SCENARIOS = tuple(Scenario(clusters, size, *rates, equal=equal) for clusters, size, equal in SIZES for rates in RATES)
OF_SEVERAL = tuple(scenario for scenario in SCENARIOS if scenario.rho and scenario.size == 20)


def rows(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulate all scenarios."""
    for scenario in SCENARIOS:
        yield from of_one_run(scenario, replicates, rng)
    for scenario in OF_SEVERAL:
        yield from of_two_runs(scenario, max(replicates // 2, 1), rng)
        if scenario.error_rate < 0.9:  # the topic "joint" covers sparse cells
            yield from of_prompts(scenario, max(replicates // 2, 1), rng)
    yield from of_a_ranking(SCENARIOS[3], max(replicates // 4, 1), rng)
    yield from of_weights(replicates, rng)


def of_one_run(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage of each metric's interval, and of the interval of the index that ignores clusters."""
    truth = true_metrics(scenario)
    hits, independent, defined = np.zeros(len(METRIC_NAMES), int), 0, 0
    for _ in range(replicates):
        cluster = scenario.draw_clusters(rng)
        (refused,), (wrong,) = draw(scenario, cluster, 1, rng)
        found = metrics(SampledTable.from_arrays(refused, wrong, cluster=cluster))
        if found[-1].low is None or found[-1].high is None:
            continue
        defined += 1
        hits += [(one.low or 0.0) <= true <= (one.high or 0.0) for one, true in zip(found, truth, strict=True)]
        low, high = refusal_index(ContingencyTable.from_arrays(refused, wrong)).confidence_interval()
        independent += low <= truth[-1] <= high
    yield share(str(scenario), "coverage without clusters, refusal_index", independent, defined, 0.75, 0.94)
    for name, covered in zip(METRIC_NAMES, hits.tolist(), strict=True):
        yield share(
            str(scenario), f"coverage, {name}", covered, defined, 0.94 if name == "refusal_index" else 0.92, 0.97
        )


def of_two_runs(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage of the differences of two models with the same metrics, which is one less the size of the tests."""
    covered = {name: [] for name in METRIC_NAMES}
    for _ in range(replicates):
        cluster = scenario.draw_clusters(rng)
        compared = compare_metrics(*draw(scenario, cluster, 2, rng), cluster=cluster)
        for name in METRIC_NAMES:
            if compared[name].pvalue is not None:
                covered[name].append(compared[name].pvalue > 0.05)
    for name, hits in covered.items():
        yield share(str(scenario), f"coverage of differences, {name}", sum(hits), len(hits), 0.93, 0.97)


def of_prompts(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage of the joint index of four prompts and of its differences, and size of the homogeneity test."""
    joint: list[bool] = []
    difference: list[bool] = []
    rejected: list[bool] = []
    for _ in range(replicates):
        cluster = scenario.draw_clusters(rng)
        refused, wrong = draw(scenario, cluster, 2, rng, PROMPTS)
        found = joint_refusal_index(refused[0], wrong[0], cluster=cluster)
        if found.standard_error is None or found.left_out:
            continue
        low, high = found.confidence_interval()
        joint.append(low <= spearman(scenario.rho) <= high)
        if found.homogeneity.pvalue is not None:
            rejected.append(found.homogeneity.pvalue <= 0.05)
        pvalue = compare_joint(refused, wrong, cluster=cluster).pvalue
        difference += [] if pvalue is None else [pvalue > 0.05]
    yield share(str(scenario), "coverage, joint index of four prompts", sum(joint), len(joint), 0.93, 0.97)
    yield share(
        str(scenario), "rejections of homogeneity, four prompts", sum(rejected), max(len(rejected), 1), 0.03, 0.07
    )
    yield share(str(scenario), "coverage of joint differences", sum(difference), len(difference), 0.93, 0.97)


def of_a_ranking(scenario: Scenario, replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Share of rankings of five equal models with a significant difference."""
    told_apart = ranked = 0
    for _ in range(replicates):
        cluster = scenario.draw_clusters(rng)
        ranking = rank_runs(*draw(scenario, cluster, 5, rng), cluster=cluster, n_resamples=1000, rng=rng)
        ranked += not ranking.unranked
        told_apart += not ranking.unranked and min(pair.pvalue_max_t for pair in ranking.pairs) <= 0.05
    yield share(str(scenario), "five equal models told apart, max-t", told_apart, ranked, 0.03, 0.07)


def of_weights(replicates: int, rng: np.random.Generator) -> Iterator[Row]:
    """Coverage of the index of a population whose easy half is sampled four times as often as its hard half."""
    rates = ((0.3, 0.4), (0.7, 0.85))
    cells = np.mean([true_cells(r, mu, 0.5) for r, mu in rates], axis=0)
    truth = float(refusal_index_many(*np.round(cells * 1e12)))
    for n in (250, 1000):
        covered = 0
        for _ in range(replicates):
            hard = rng.random(n) < 0.2
            reluctance, difficulty = correlated(0.5, rng.standard_normal((2, n)))
            refused, wrong = (
                latent > -ndtri(np.where(hard, *pair))
                for latent, pair in zip((reluctance, difficulty), zip(*reversed(rates), strict=True), strict=True)
            )
            weight = np.where(hard, 0.5 / 0.2, 0.5 / 0.8)
            low, high = refusal_index(refused=refused, wrong=wrong, weight=weight).confidence_interval()
            covered += low <= truth <= high
        yield share(
            f"n {n}, a fifth of them represents half the population",
            "coverage, weighted index",
            covered,
            replicates,
            0.93,
            0.97,
        )


def draw(
    scenario: Scenario,
    cluster: NDArray[np.intp],
    models: int,
    rng: np.random.Generator,
    shifts: tuple[float, ...] = (),
) -> tuple[Bools, Bools]:
    """Draw the refusals and errors of models, shape (models, n), or (models, prompts, n) with shifts."""

    def latent() -> Floats:
        common, own = in_clusters(cluster, (2, 1), rng), in_clusters(cluster, (2, models), rng)
        return np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * own

    reluctance, difficulty = correlated(scenario.rho, latent())
    refused = reluctance > -ndtri(scenario.refusal_rate)
    wrong = difficulty > -ndtri(scenario.error_rate)
    if shifts:
        refused = reluctance[:, np.newaxis] > -ndtri(scenario.refusal_rate) + np.array(shifts)[:, np.newaxis]
        wrong = np.broadcast_to(wrong[:, np.newaxis], refused.shape)
    return refused, wrong


def in_clusters(cluster: NDArray[np.intp], shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Draw standard normal variables with the intra-cluster correlation; the last axis is questions."""
    between = rng.standard_normal((*shape, int(cluster.max()) + 1))[..., cluster]
    within = rng.standard_normal((*shape, cluster.size))
    return np.asarray(np.sqrt(INTRA_CLUSTER) * between + np.sqrt(1 - INTRA_CLUSTER) * within)


def correlated(rho: float, independent: Floats) -> tuple[Floats, Floats]:
    """Return two normal variables with correlation `rho`, made from two independent ones."""
    first, second = independent
    return rho * second + np.sqrt(1 - rho * rho) * first, second


def true_cells(refusal_rate: float, error_rate: float, rho: float) -> Floats:
    """Return the probabilities of the four cells."""
    both = float(upper_orthant(-ndtri(refusal_rate), -ndtri(error_rate), rho))
    return np.array([both, refusal_rate - both, error_rate - both, 1 - refusal_rate - error_rate + both])


def true_metrics(scenario: Scenario) -> tuple[float, ...]:
    """Return all metrics, in the order of `METRIC_NAMES`."""
    r, mu = scenario.refusal_rate, scenario.error_rate
    refused_wrong, refused_right, _, c = true_cells(r, mu, scenario.rho).tolist()
    scores: tuple[Callable[..., Floats], ...] = (correct_given_attempted, f_score)
    found = (float(score(c, r)) for score in scores)
    i = 1 - c - r
    weighted = float(weighted_score(c, r, p=1))
    of_refusals = refused_wrong / r, refused_wrong / mu, refused_right / (1 - mu)
    return c, r, *found, weighted, i / (1 - c), 100 * (c - i), c - i, mu, *of_refusals, spearman(scenario.rho)


if __name__ == "__main__":
    for row in rows(1000, np.random.default_rng(1)):
        print(f"{row.scenario:60} {row.quantity:45} {row.value:.3f} {'' if row.holds else 'OUT OF RANGE'}", flush=True)
