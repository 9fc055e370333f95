"""Differences, rankings and joint indices over clusters and with weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from benchmarks.coverage import clusters as simulation
from scipy import stats

from refusal_index import refusal_index
from refusal_index.stats import (
    METRIC_NAMES,
    SamplingDesign,
    compare_joint,
    compare_metrics,
    joint_refusal_index,
    metric_influence,
    rank_joint,
    rank_runs,
)
from refusal_index.stats.comparison import Influence
from refusal_index.stats.ranking import PairwiseDifferences, adjusted_pvalues

SCENARIO = simulation.Scenario(24, 15, 0.5, 0.6, 0.5, equal=False)
EVEN = simulation.Scenario(30, 10, 0.5, 0.6, 0.5)


def drawn(scenario: simulation.Scenario, models: int, seed: int = 0, shifts=()) -> tuple:
    rng = np.random.default_rng(seed)
    cluster = scenario.draw_clusters(rng)
    return simulation.draw(scenario, cluster, models, rng, shifts), cluster, rng.uniform(0.5, 3, cluster.size)


def test_differences_against_statsmodels() -> None:
    (refused, wrong), cluster, _ = drawn(EVEN, 2)
    compared = compare_metrics(refused, wrong, cluster=cluster)
    for name in METRIC_NAMES:
        influence = metric_influence(refused, wrong, metric=name)
        fit = sm.OLS(influence[0] - influence[1], np.ones(cluster.size))
        reference = fit.fit(
            cov_type="cluster", cov_kwds={"groups": cluster, "use_correction": True, "df_correction": True}
        )
        # Never below that of independent questions.
        independent = (influence[0] - influence[1]).std(ddof=1) / math.sqrt(cluster.size)
        error = max(float(reference.bse[0]), independent)
        assert compared[name].standard_error == pytest.approx(error, rel=1e-9)
        reach = stats.t.ppf(0.975, 29) * compared[name].standard_error
        low, high = compared[name].confidence_interval()
        assert (low, high) == pytest.approx(
            (compared[name].estimate - reach, compared[name].estimate + reach), rel=1e-9
        )
        pvalue = 2 * stats.t.sf(abs(compared[name].estimate) / compared[name].standard_error, 29)
        assert compared[name].pvalue == pytest.approx(pvalue, rel=1e-9)


def test_weighted_difference_matches_weighted_runs() -> None:
    (refused, wrong), cluster, weight = drawn(SCENARIO, 2)
    compared = compare_metrics(refused, wrong, cluster=cluster, weight=weight)["refusal_index"]
    own = [
        refusal_index(refused=r, wrong=w, cluster=cluster, weight=weight) for r, w in zip(refused, wrong, strict=True)
    ]
    assert (compared.first, compared.second) == (own[0].estimate, own[1].estimate)


def test_runs_over_different_clusters_are_independent() -> None:
    (refused, wrong), cluster, weight = drawn(SCENARIO, 2)
    first = cluster < 12
    scored = np.stack([first, ~first])
    compared = compare_metrics(refused, wrong, scored, cluster=cluster, weight=weight)["refusal_index"]
    own, alone = (
        [
            refusal_index(refused=r[s], wrong=w[s], cluster=groups[s], weight=weight[s]).standard_error
            for r, w, s in zip(refused, wrong, scored, strict=True)
        ]
        for groups in (cluster, np.arange(cluster.size))
    )
    # Never below that of independent questions.
    assert compared.standard_error == pytest.approx(max(math.hypot(*own), math.hypot(*alone)), rel=1e-9)


def test_run_against_itself_uses_sign_test_over_clusters() -> None:
    (refused, wrong), cluster, _ = drawn(SCENARIO, 1)
    same = compare_metrics(np.tile(refused, (2, 1)), np.tile(wrong, (2, 1)), cluster=cluster)["refusal_index"]
    assert (same.estimate, same.standard_error, same.pvalue, same.reason) == (0.0, 0.0, 1.0, "constant_difference")
    # Six questions in three clusters: 2 (1/2)^3.
    design = SamplingDesign.of(6, [1, 1, 2, 2, 3, 3])
    influence = Influence.of(np.zeros((2, 6)), np.ones((2, 6), bool), design)
    assert influence.compare(0, 1, 0.5) == (0.0, 0.25)


def test_run_with_one_cluster_has_no_standard_error() -> None:
    (refused, wrong), cluster, _ = drawn(SCENARIO, 2)
    scored = np.stack([np.ones(cluster.size, bool), cluster == np.bincount(cluster).argmax()])
    compared = compare_metrics(refused, wrong, scored, cluster=cluster)["error_rate"]
    assert (compared.standard_error, compared.status, compared.reason) == (None, "boundary", "second:one_cluster")
    assert np.isnan(compared.confidence_interval()).all()


def test_ranking_of_two_runs_matches_their_comparison() -> None:
    (refused, wrong), cluster, weight = drawn(SCENARIO, 2, seed=4)
    ranking = rank_runs(refused, wrong, cluster=cluster, weight=weight, rng=1, n_resamples=200_000)
    compared = compare_metrics(refused, wrong, cluster=cluster, weight=weight)["refusal_index"]
    (pair,) = ranking.pairs
    assert pair.standard_error == pytest.approx(compared.standard_error, rel=1e-12)
    assert pair.pvalue == pytest.approx(compared.pvalue, rel=1e-12)
    low, high = compared.confidence_interval()
    assert ranking.critical_value == pytest.approx((high - low) / 2 / compared.standard_error, rel=0.02)


def test_simultaneous_intervals_against_studentized_maximum_modulus() -> None:
    # The largest of three |t| over a common chi-squared of 10 degrees of freedom, each the difference of two runs that
    # no other pair shares: 2.83 in the tables of Stoline and Ury (1979), simulated here from SciPy's distributions.
    first, second = np.array([0, 2, 4]), np.array([1, 3, 5])
    differences = PairwiseDifferences(
        np.eye(6), first, second, np.ones(3), np.full(3, math.sqrt(2)), np.full(3, 0.5), degrees_of_freedom=10.0
    )
    _, _, critical = adjusted_pvalues(differences, 0.95, 400_000, np.random.default_rng(1))
    assert critical == pytest.approx(2.83, abs=0.02)


def test_joint_index_of_one_prompt_equals_its_index() -> None:
    (refused, wrong), cluster, weight = drawn(SCENARIO, 1)
    joint = joint_refusal_index(refused, wrong, cluster=cluster, weight=weight)
    own = refusal_index(refused=refused[0], wrong=wrong[0], cluster=cluster, weight=weight)
    assert joint.estimate == pytest.approx(own.estimate, rel=1e-12)
    assert joint.standard_error == pytest.approx(own.standard_error, rel=1e-9)
    assert joint.confidence_interval() == pytest.approx(own.confidence_interval(method="delta"), rel=1e-9)


def test_singleton_clusters_match_unclustered_joint_index_up_to_correction() -> None:
    (refused, wrong), cluster, _ = drawn(SCENARIO, 1, shifts=simulation.PROMPTS)
    ordinary = joint_refusal_index(refused[0], wrong[0])
    own = joint_refusal_index(refused[0], wrong[0], cluster=np.arange(cluster.size))
    assert own.weights == pytest.approx(ordinary.weights, rel=1e-9)
    correction = math.sqrt(cluster.size / (cluster.size - 1))
    assert own.standard_error == pytest.approx(ordinary.standard_error * correction, rel=1e-9)
    assert own.homogeneity.statistic == pytest.approx(ordinary.homogeneity.statistic / correction**2, rel=1e-9)
    assert own.homogeneity.pvalue == pytest.approx(ordinary.homogeneity.pvalue, abs=0.02)


def test_homogeneity_with_singleton_clusters_matches_unclustered() -> None:
    (refused, wrong), cluster, _ = drawn(SCENARIO, 1, seed=2, shifts=simulation.PROMPTS)
    plain = joint_refusal_index(refused[0], wrong[0]).homogeneity
    own = joint_refusal_index(refused[0], wrong[0], cluster=np.arange(cluster.size)).homogeneity
    assert own.pvalue == pytest.approx(plain.pvalue, abs=0.01)
    twice = [np.tile(part, 2) for part in (refused[0], wrong[0])]
    again = joint_refusal_index(*twice, cluster=np.tile(np.arange(cluster.size), 2)).homogeneity
    assert again.pvalue == pytest.approx(plain.pvalue, abs=0.01)


def test_joint_differences_and_rankings_agree() -> None:
    (refused, wrong), cluster, weight = drawn(SCENARIO, 2, seed=1, shifts=simulation.PROMPTS)
    difference = compare_joint(refused, wrong, cluster=cluster, weight=weight)
    (pair,) = rank_joint(refused, wrong, cluster=cluster, weight=weight, rng=1).pairs
    assert abs(pair.estimate) == pytest.approx(abs(difference.estimate), rel=1e-12)
    assert pair.standard_error == pytest.approx(difference.standard_error, rel=1e-12)
    assert pair.pvalue == pytest.approx(difference.pvalue, rel=1e-12)
    low, high = difference.confidence_interval()
    degrees = difference.first.variants[0].table.degrees_of_freedom
    assert high - low == pytest.approx(2 * stats.t.ppf(0.975, degrees) * difference.standard_error, rel=1e-9)


def test_joint_index_with_one_cluster_or_fewer_clusters_than_prompts() -> None:
    (refused, wrong), cluster, _ = drawn(SCENARIO, 1, shifts=simulation.PROMPTS)
    alone = joint_refusal_index(refused[0], wrong[0], cluster=np.zeros_like(cluster))
    assert (alone.estimate, alone.status, alone.reason) == (None, "undefined", "one_cluster")
    few = joint_refusal_index(refused[0], wrong[0], cluster=cluster % 3)
    assert few.status == "ok"
    assert (few.homogeneity.status, few.homogeneity.reason) == ("undefined", "fewer_clusters_than_variants")


@pytest.mark.slow
def test_coverage_of_two_runs_and_of_prompts() -> None:
    scenario = simulation.OF_SEVERAL[0]
    rng = np.random.default_rng(3)
    rows = [*simulation.of_two_runs(scenario, 500, rng), *simulation.of_prompts(scenario, 500, rng)]
    assert [f"{row.quantity}: {row.value}" for row in rows if not row.holds] == []
