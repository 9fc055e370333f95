"""One Refusal Index from several prompts over the same questions."""

import math

import numpy as np
import pytest
from benchmarks.coverage import joint as simulation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from tests.tiers import one_fast

from refusal_index import ContingencyTable, refusal_index
from refusal_index.stats import influence_function
from refusal_index.stats.comparison.joint import joint_refusal_index
from refusal_index.stats.influence import spearman_slope

SCENARIO = simulation.Scenario(800, (0.3, 0.5, 0.7), 0.6, 0.5, 0.7)


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    refused, wrong, _ = SCENARIO.draw(np.random.default_rng(seed))
    return refused, np.array(wrong)


def outcomes(*counts) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([True, True, False, False], counts), np.repeat([True, False, True, False], counts)


def test_against_brute_force_least_squares() -> None:
    refused, wrong = drawn(1)
    scored = np.random.default_rng(2).random(refused.shape) < 0.7
    n_questions, z, influence = refused.shape[1], [], []
    for r, w, s in zip(refused, wrong, scored, strict=True):
        rho = refusal_index(refused=r[s], wrong=w[s]).rho
        row = np.zeros(n_questions)
        row[s] = influence_function(r[s], w[s]) / (spearman_slope(rho) * (1 - rho**2) * s.sum())
        z.append(math.atanh(rho))
        influence.append(row)
    # Whitened, generalised least squares is ordinary least squares on a column of ones.
    root = np.linalg.cholesky(np.array(influence) @ np.array(influence).T)
    ones, observed = np.linalg.solve(root, np.ones(3)), np.linalg.solve(root, z)
    (mean,), (left_over,), *_ = np.linalg.lstsq(ones[:, np.newaxis], observed)

    result = joint_refusal_index(refused, wrong, scored)
    assert result.rho == pytest.approx(math.tanh(mean), rel=1e-12)
    assert result.homogeneity.statistic == pytest.approx(left_over, rel=1e-9)
    assert result.homogeneity.pvalue == pytest.approx(chi2.sf(left_over, 2), rel=1e-9)
    low, high = result.confidence_interval(0.9)
    reach = 1.6448536269514722 / math.sqrt(ones @ ones)
    assert (low, high) == pytest.approx([6 / math.pi * math.asin(math.tanh(mean + x) / 2) for x in (-reach, reach)])
    assert sum(result.weights) == pytest.approx(1, abs=1e-12)


def test_disjoint_questions_against_theory_of_independent_estimates() -> None:
    first, second = outcomes(71, 13, 21, 25), outcomes(30, 20, 25, 40)
    refused, wrong = (np.tile(np.concatenate(pair), (2, 1)) for pair in zip(first, second, strict=True))
    scored = np.repeat([[True, False], [False, True]], [130, 115], axis=1)
    result = joint_refusal_index(refused, wrong, scored)
    z = [math.atanh(variant.rho) for variant in result.variants]
    slopes = [spearman_slope(variant.rho) * (1 - variant.rho**2) for variant in result.variants]
    information = [(slope / v.standard_error) ** 2 for slope, v in zip(slopes, result.variants, strict=True)]
    assert math.atanh(result.rho) == pytest.approx(np.average(z, weights=information), rel=1e-12)
    expected = (z[0] - z[1]) ** 2 / (1 / information[0] + 1 / information[1])
    assert result.homogeneity.statistic == pytest.approx(expected, rel=1e-12)


def test_standard_error_against_resampling_of_questions() -> None:
    refused, wrong = drawn(3)
    rng = np.random.default_rng(4)
    estimates = []
    for _ in range(600):
        chosen = rng.integers(0, 800, size=800)
        estimates.append(joint_refusal_index(refused[:, chosen], wrong[:, chosen]).estimate)
    # The sampling error of a standard deviation from 600 draws is 3 %.
    assert joint_refusal_index(refused, wrong).standard_error == pytest.approx(np.std(estimates), rel=0.1)


def test_one_variant_is_its_own_joint_estimate() -> None:
    refused, wrong = outcomes(710, 30, 210, 50)
    result, alone = joint_refusal_index([refused], [wrong]), refusal_index(ContingencyTable(710, 30, 210, 50))
    assert result.estimate == pytest.approx(alone.estimate, abs=1e-12)
    assert result.standard_error == pytest.approx(alone.standard_error, rel=1e-12)
    assert result.confidence_interval() == pytest.approx(alone.confidence_interval(method="delta"), abs=1e-12)
    assert (result.status, result.reason, result.weights) == ("ok", None, (pytest.approx(1.0),))
    assert (result.homogeneity.status, result.homogeneity.reason) == ("undefined", "fewer_than_two_variants")
    assert result.homogeneity.pvalue is None


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000), st.permutations(range(3)))
def test_order_and_repetition_of_variants_do_not_matter(seed: int, order) -> None:
    refused, wrong = drawn(seed)
    result = joint_refusal_index(refused, wrong)
    for rows in (list(order), [0, 1, 2, 1], [0, 0, 1, 1, 2, 2]):
        other = joint_refusal_index(refused[rows], wrong[rows])
        assert other.estimate == pytest.approx(result.estimate, abs=1e-9)
        assert other.standard_error == pytest.approx(result.standard_error, rel=1e-9)
        assert other.homogeneity.statistic == pytest.approx(result.homogeneity.statistic, abs=1e-7)
        assert other.homogeneity.degrees_of_freedom == 2


def test_identical_variants_are_one() -> None:
    refused, wrong = drawn(5)
    result = joint_refusal_index(refused[[1, 1, 1]], wrong[[1, 1, 1]])
    assert result.estimate == pytest.approx(result.variants[0].estimate, abs=1e-12)
    assert result.standard_error == pytest.approx(result.variants[0].standard_error, rel=1e-9)
    assert (result.homogeneity.reason, result.homogeneity.statistic) == ("variants_repeat_each_other", None)


def test_variants_that_nearly_agree_stay_within_their_difference() -> None:
    refused, wrong = drawn(6)
    nearly = refused.copy()
    nearly[1] = refused[0]
    nearly[1, np.flatnonzero(refused[0])[:2]] = False
    result = joint_refusal_index(nearly[:2], wrong[:2])
    low, high = sorted(variant.estimate for variant in result.variants)
    assert low - 2 * (high - low) <= result.estimate <= high + 2 * (high - low)
    assert result.standard_error == pytest.approx(result.variants[0].standard_error, rel=0.01)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000))
def test_what_is_not_scored_does_not_matter(seed: int) -> None:
    refused, wrong = drawn(seed)
    rng = np.random.default_rng(seed)
    scored, noise = rng.random(refused.shape) < 0.6, rng.random(refused.shape) < 0.5
    result = joint_refusal_index(refused, wrong, scored)
    assert result == joint_refusal_index(np.where(scored, refused, noise), np.where(scored, wrong, ~noise), scored)


def test_joint_estimate_is_more_precise_than_each_variant() -> None:
    result = joint_refusal_index(*drawn(7))
    assert result.standard_error < min(variant.standard_error for variant in result.variants)


def test_variants_at_the_boundary_and_undefined_are_left_out() -> None:
    refused, wrong = drawn(8)
    refused[0] = refused[0] & wrong[0]
    refused[2] = True
    result = joint_refusal_index(refused, wrong)
    assert result.left_out == {0: "zero_cell:refused_right", 2: "everybody_refused"}
    assert result.weights == (None, pytest.approx(1.0), None)
    assert result.estimate == pytest.approx(result.variants[1].estimate, abs=1e-12)
    assert [variant.status for variant in result.variants] == ["boundary", "ok", "undefined"]


ALWAYS, NEVER = [True] * 6, [False] * 6
WRONG = [True, True, True, False, False, False]


@pytest.mark.parametrize(
    ("refused", "status", "reason", "estimate"),
    [
        ([ALWAYS, NEVER], "undefined", "all_variants_undefined", None),
        ([WRONG, ALWAYS, WRONG], "boundary", "all_variants_at_boundary", 1.0),
        ([WRONG, WRONG[::-1]], "undefined", "variants_at_both_ends", None),
    ],
)
def test_without_an_inner_variant_there_is_no_joint_estimate(refused, status, reason, estimate) -> None:
    result = joint_refusal_index(refused, [WRONG] * len(refused))
    assert (result.status, result.reason, result.estimate, result.rho) == (status, reason, estimate, estimate)
    assert result.standard_error is None
    assert result.weights == (None,) * len(refused)
    assert np.isnan(result.confidence_interval()).all()
    assert len(result.left_out) == len(refused)


def test_no_variants_are_undefined() -> None:
    empty = np.empty((0, 5), bool)
    result = joint_refusal_index(empty, empty)
    assert (result.status, result.reason, result.variants) == ("undefined", "no_variants", ())


@one_fast("scenario", simulation.FAST_SCENARIOS, ids=str)
def test_coverage_and_size(scenario: simulation.Scenario) -> None:
    rows = list(simulation.rows_of(scenario, 400, np.random.default_rng(9)))
    assert len(rows) == 3
    assert all(row.holds for row in rows), rows


def test_arrays_of_one_run_are_an_error() -> None:
    with pytest.raises(ValueError, match="refused must be two-dimensional"):
        joint_refusal_index([True, False], [True, False])


def test_a_level_in_per_cent_is_an_error() -> None:
    with pytest.raises(ValueError, match="is it in per cent"):
        joint_refusal_index(*drawn(1)).confidence_interval(95)
