"""One Refusal Index from several prompts over the same questions, and models compared by it."""

import math

import numpy as np
import pytest
from benchmarks.coverage import joint as simulation
from benchmarks.coverage.joint_comparison import EQUAL, SCENARIOS, difference_rows, ranking_row
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2
from tests.tiers import others_nightly

from refusal_index import ContingencyTable, refusal_index
from refusal_index.stats import (
    compare_joint,
    compare_metrics,
    influence_function,
    joint_refusal_index,
    rank_joint,
    rank_runs,
)
from refusal_index.stats.intervals import spearman_slope
from refusal_index.stats.joint import BetweenPrompts, JointRefusalIndexResult, deviation_of_index, spread_of

# --- One Refusal Index from several prompts over the same questions

SCENARIO = simulation.Scenario(800, (0.3, 0.5, 0.7), 0.6, 0.5, 0.7)


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    refused, wrong, _ = SCENARIO.draw(np.random.default_rng(seed))
    return refused, np.array(wrong)


def outcomes(*counts) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([True, True, False, False], counts), np.repeat([True, False, True, False], counts)


def test_joint_index_against_brute_force_sums_over_questions() -> None:
    refused, wrong = drawn(1)
    scored = np.random.default_rng(2).random(refused.shape) < 0.7
    n_questions, z, influence = refused.shape[1], [], []
    for r, w, s in zip(refused, wrong, scored, strict=True):
        rho = refusal_index(refused=r[s], wrong=w[s]).rho
        row = np.zeros(n_questions)
        row[s] = influence_function(r[s], w[s]) / (spearman_slope(rho) * (1 - rho**2) * s.sum())
        z.append(math.atanh(rho))
        influence.append(row)
    covariance = np.array(influence) @ np.array(influence).T
    weights = 1 / np.diagonal(covariance) / sum(1 / np.diagonal(covariance))
    mean = np.average(z, weights=weights)
    # What each question adds to the three weighted deviations; pairs of different questions make the second moment.
    added = [np.sqrt(weights) * (column - weights @ column) for column in np.array(influence).T]
    trace = sum(float(one @ one) for one in added)
    products = np.array(added) @ np.array(added).T
    others = ~np.eye(n_questions, dtype=bool)
    freedom = np.outer(products.diagonal(), products.diagonal())[others].sum() / (products**2)[others].sum()
    left_over = weights @ (z - mean) ** 2

    result = joint_refusal_index(refused, wrong, scored)
    assert result.rho == pytest.approx(math.tanh(mean), rel=1e-12)
    assert result.weights == pytest.approx(weights.tolist())
    assert result.homogeneity.degrees_of_freedom == pytest.approx(freedom, rel=1e-9)
    assert result.homogeneity.statistic == pytest.approx(left_over * freedom / trace, rel=1e-9)
    assert result.homogeneity.pvalue == pytest.approx(chi2.sf(left_over * freedom / trace, freedom), rel=1e-9)
    low, high = result.confidence_interval(0.9, prompts="fixed")
    reach = 1.6448536269514722 * math.sqrt(weights @ covariance @ weights)
    assert (low, high) == pytest.approx([6 / math.pi * math.asin(math.tanh(mean + x) / 2) for x in (-reach, reach)])


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
    assert result.homogeneity.statistic == pytest.approx(expected, rel=1e-9)
    assert result.homogeneity.degrees_of_freedom == pytest.approx(1, rel=1e-9)


def test_standard_error_against_resampling_of_questions() -> None:
    refused, wrong = drawn(3)
    rng = np.random.default_rng(4)
    estimates = []
    for _ in range(600):
        chosen = rng.integers(0, 800, size=800)
        estimates.append(joint_refusal_index(refused[:, chosen], wrong[:, chosen]).estimate)
    # The sampling error of a standard deviation from 600 draws is 3%.
    assert joint_refusal_index(refused, wrong).standard_error == pytest.approx(np.std(estimates), rel=0.1)


def test_joint_estimate_of_one_variant_equals_its_estimate() -> None:
    refused, wrong = outcomes(710, 30, 210, 50)
    result, alone = joint_refusal_index([refused], [wrong]), refusal_index(ContingencyTable(710, 30, 210, 50))
    assert result.estimate == pytest.approx(alone.estimate, abs=1e-12)
    assert result.standard_error == pytest.approx(alone.standard_error, rel=1e-12)
    assert result.confidence_interval() == pytest.approx(alone.confidence_interval(method="delta"), abs=1e-12)
    assert (result.status, result.reason, result.weights) == ("ok", None, (pytest.approx(1.0),))
    assert (result.homogeneity.status, result.homogeneity.reason) == ("undefined", "fewer_than_two_variants")
    assert result.homogeneity.pvalue is None


@given(st.integers(0, 1000), st.permutations(range(3)))
def test_order_of_variants_does_not_matter(seed: int, order) -> None:
    refused, wrong = drawn(seed)
    result = joint_refusal_index(refused, wrong)
    # Duplicated prompts carry the same total weight as single ones.
    for rows in (list(order), [0, 0, 1, 1, 2, 2]):
        other = joint_refusal_index(refused[rows], wrong[rows])
        assert other.estimate == pytest.approx(result.estimate, abs=1e-9)
        assert other.standard_error == pytest.approx(result.standard_error, rel=1e-9)
        # Of three prompts there are at most two degrees of freedom, and of six as many as are found.
        ratio = other.homogeneity.degrees_of_freedom / result.homogeneity.degrees_of_freedom
        assert ratio == pytest.approx(1) or result.homogeneity.degrees_of_freedom == 2
        assert other.homogeneity.statistic == pytest.approx(ratio * result.homogeneity.statistic, abs=1e-7)


def test_identical_variants_count_as_one() -> None:
    refused, wrong = drawn(5)
    result = joint_refusal_index(refused[[1, 1, 1]], wrong[[1, 1, 1]])
    assert result.estimate == pytest.approx(result.variants[0].estimate, abs=1e-12)
    assert result.standard_error == pytest.approx(result.variants[0].standard_error, rel=1e-9)
    assert (result.homogeneity.reason, result.homogeneity.statistic) == ("variants_repeat_each_other", None)
    assert (result.between_prompts.reason, result.between_prompts.estimate) == ("variants_repeat_each_other", None)
    assert result.confidence_interval() == result.confidence_interval(prompts="fixed")
    assert np.isnan(result.prediction_interval()).all()
    assert np.isnan(result.between_prompts.confidence_interval()).all()


def test_joint_estimate_of_near_identical_variants_lies_between_them() -> None:
    refused, wrong = drawn(6)
    nearly = refused.copy()
    nearly[1] = refused[0]
    nearly[1, np.flatnonzero(refused[0])[:2]] = False
    result = joint_refusal_index(nearly[:2], wrong[:2])
    low, high = sorted(variant.estimate for variant in result.variants)
    assert low <= result.estimate <= high
    assert result.standard_error == pytest.approx(result.variants[0].standard_error, rel=0.01)


def many_noisy_prompts(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outcomes of 22 prompts of one index over 450 questions."""
    return simulation.MANY[2].draw(np.random.default_rng(seed))


def test_many_noisy_prompts_have_positive_weights_and_are_homogeneous() -> None:
    """The inverse of their covariance gave negative weights, and rejected two such data sets in three."""
    results = [joint_refusal_index(*many_noisy_prompts(seed)) for seed in range(20)]
    assert all((weight or 1) > 0 for result in results for weight in result.weights)
    tests = [result.homogeneity for result in results if result.homogeneity.status == "ok"]
    assert len(tests) >= 5
    assert sum(test.pvalue < 0.05 for test in tests) <= 2
    assert all(test.degrees_of_freedom <= 21 for test in tests)


def joint_of_spread_prompts(between: float, seed: int = 3) -> JointRefusalIndexResult:
    refused, wrong, _ = simulation.Spread(2000, (0.3, 0.4, 0.5, 0.6, 0.7), 0.6, 0.5, between).draw(
        np.random.default_rng(seed)
    )
    return joint_refusal_index(refused, wrong)


def test_prompt_spread_widens_interval_and_is_estimated() -> None:
    same, apart = joint_of_spread_prompts(0.0), joint_of_spread_prompts(0.3)
    for interval in (same.confidence_interval(prompts="fixed"), same.prediction_interval()):
        assert interval == pytest.approx(same.confidence_interval())
    assert same.between_prompts.estimate == 0
    low, high = apart.between_prompts.confidence_interval()
    assert 0.05 < low < apart.between_prompts.estimate < high < 1
    widths = [
        end - start
        for start, end in (
            apart.confidence_interval(prompts="fixed"),
            apart.confidence_interval(),
            apart.prediction_interval(),
        )
    ]
    assert widths == sorted(widths)
    assert widths[1] > 2 * widths[0]


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 14))
def test_a_handful_of_questions_gives_numbers_or_a_reason(seed: int, k: int, n: int) -> None:
    refused, wrong = np.random.default_rng(seed).random((2, k, n)) < 0.5
    result = joint_refusal_index(refused, wrong)
    between, test = result.between_prompts, result.homogeneity
    assert (between.estimate is None) == (between.status == "undefined")
    left_out = between.estimate is not None and any(variant.status == "boundary" for variant in result.variants)
    assert (test.pvalue is None) == (between.estimate is None or left_out)
    assert test.reason == ("variants_at_boundary" if left_out else between.reason)
    if between.estimate is not None:
        low, high = between.confidence_interval()
        assert 0 <= low <= high <= 1
        assert 0 <= between.estimate <= 1
        assert test.pvalue is None or 0 <= test.pvalue <= 1
    if result.status == "ok":
        assert -1 <= result.confidence_interval().low <= result.estimate <= result.confidence_interval().high <= 1


def test_random_prompt_error_adds_prompt_and_question_variance() -> None:
    result = joint_of_spread_prompts(0.3)
    spread, weights = result.between_prompts.spread, np.array(result.weights)
    slope = spearman_slope(result.rho) * (1 - result.rho**2)
    of_questions, between = (result.standard_error / slope) ** 2, spread.variance()
    error, quantile = spread.error_and_quantile(0.95)
    assert error == pytest.approx(math.sqrt(of_questions + weights @ weights * between))
    assert spread.error_and_quantile(0.95, new_prompt=True)[0] == pytest.approx(
        math.sqrt(of_questions + (weights @ weights + 1) * between)
    )
    # Between the quantiles of four degrees of freedom and of infinitely many.
    assert 1.96 < quantile < 3.5


def test_spread_interval_starts_at_zero_unless_homogeneity_is_rejected() -> None:
    for seed in range(12):
        result = joint_of_spread_prompts(0.05, seed)
        low, high = result.between_prompts.confidence_interval(0.9)
        assert (low == 0) == (result.homogeneity.pvalue >= 0.05)
        assert high > 0
        assert low <= result.between_prompts.estimate


def test_underdispersed_prompts_keep_spread_interval_of_median() -> None:
    spread = joint_of_spread_prompts(0.0).between_prompts.spread
    assert spread is not None
    luck = BetweenPrompts.of(0.5, spread._replace(sum_of_squares=1e-9))
    median = BetweenPrompts.of(0.5, spread._replace(sum_of_squares=spread.median()))
    assert luck.confidence_interval() == median.confidence_interval()
    assert luck.confidence_interval().high > 0.01


def test_standard_deviation_of_index_against_simulation() -> None:
    z = 0.6 + 0.3 * np.random.default_rng(1).standard_normal(400_000)
    drawn_index = 6 / math.pi * np.arcsin(np.tanh(z) / 2)
    assert deviation_of_index(0.6, 0.09) == pytest.approx(drawn_index.std(), rel=0.005)
    assert deviation_of_index(0.6, 0.0) == pytest.approx(0, abs=1e-9)
    # The extreme spread: half of the prompts at either end.
    assert deviation_of_index(0.0, 1e12) == pytest.approx(1, abs=0.02)


def test_spread_against_moments_of_simulated_estimates() -> None:
    rng = np.random.default_rng(8)
    influence = 0.1 * rng.standard_normal((4, 50))
    weights, variance = np.array([0.1, 0.2, 0.3, 0.4]), 0.4
    z = np.linalg.cholesky(influence @ influence.T + variance * np.eye(4)) @ rng.standard_normal((4, 100_000))
    squares = weights @ (z - weights @ z) ** 2
    spread = spread_of(z[:, 0], weights, influence)
    found = spread.traces(variance)
    assert squares.mean() == pytest.approx(found.trace[0], rel=0.02)
    # The second moment is one of questions apart; what each makes with itself belongs to that of this covariance.
    assert squares.var() == pytest.approx(2 * (found.of_square[0] + found.own[0]), rel=0.03)
    assert float(np.mean([spread._replace(sum_of_squares=q).pvalue(variance) < 0.05 for q in squares[:4000]])) < 0.07


def test_unknown_prompts_option_is_an_error() -> None:
    with pytest.raises(ValueError, match="prompts must be one of random, fixed"):
        joint_refusal_index(*drawn(1)).confidence_interval(prompts="mixed")


@given(st.integers(0, 1000))
def test_unscored_values_do_not_affect_joint_index(seed: int) -> None:
    refused, wrong = drawn(seed)
    rng = np.random.default_rng(seed)
    scored, noise = rng.random(refused.shape) < 0.6, rng.random(refused.shape) < 0.5
    result = joint_refusal_index(refused, wrong, scored)
    assert result == joint_refusal_index(np.where(scored, refused, noise), np.where(scored, wrong, ~noise), scored)


def test_joint_estimate_is_more_precise_than_each_variant() -> None:
    result = joint_refusal_index(*drawn(7))
    assert result.standard_error < min(variant.standard_error for variant in result.variants)


def test_boundary_and_undefined_variants_are_left_out() -> None:
    refused, wrong = drawn(8)
    refused[0] = refused[0] & wrong[0]
    refused[2] = True
    result = joint_refusal_index(refused, wrong)
    assert result.left_out == {0: "zero_cell:refused_right", 2: "everybody_refused"}
    assert result.weights == (None, pytest.approx(1.0), None)
    assert result.estimate == pytest.approx(result.variants[1].estimate, abs=1e-12)
    assert [variant.status for variant in result.variants] == ["boundary", "ok", "undefined"]


def with_a_prompt_at_the_boundary(scale: int) -> JointRefusalIndexResult:
    """Three prompts, of which the second has few right answers among its refusals, and the third none."""
    tables = [(40, 20, 20, 40), (40, 1, 40, 39), (20, 0, 50, 50)]
    cells = [np.repeat(np.arange(4), scale * np.array(table)) for table in tables]
    return joint_refusal_index([cell < 2 for cell in cells], [cell % 2 == 0 for cell in cells])


def test_homogeneity_is_not_tested_after_a_prompt_at_the_boundary_unless_the_others_are_well_filled() -> None:
    sparse, filled = with_a_prompt_at_the_boundary(1), with_a_prompt_at_the_boundary(5)
    assert list(sparse.left_out) == list(filled.left_out) == [2]
    assert (sparse.homogeneity.pvalue, sparse.homogeneity.reason) == (None, "variants_at_boundary")
    assert sparse.between_prompts.status == "ok"  # the interval still allows for the spread
    assert filled.homogeneity.status == "ok"


@pytest.mark.nightly
def test_homogeneity_after_prompts_at_the_boundary_keeps_its_size() -> None:
    rng = np.random.default_rng(3)
    rows = [row for scenario in simulation.SPARSE for row in simulation.sparse_rows(scenario, 400, rng)]
    assert sum("where it is made" in row.quantity for row in rows) >= 3
    assert all(row.holds for row in rows), rows


ALWAYS, NEVER = [True] * 6, [False] * 6
WRONG = [True, True, True, False, False, False]


@pytest.mark.parametrize(
    ("refused", "status", "reason", "estimate"),
    [
        ([ALWAYS, NEVER], "undefined", "all_variants_undefined", None),
        ([ALWAYS, ALWAYS], "undefined", "everybody_refused", None),
        ([WRONG, ALWAYS, WRONG], "boundary", "all_variants_at_boundary", 1.0),
        ([WRONG, WRONG[::-1]], "undefined", "variants_at_both_ends", None),
    ],
)
def test_joint_estimate_needs_a_variant_off_the_boundary(refused, status, reason, estimate) -> None:
    result = joint_refusal_index(refused, [WRONG] * len(refused))
    assert (result.status, result.reason, result.estimate, result.rho) == (status, reason, estimate, estimate)
    assert result.standard_error is None
    assert result.weights == (None,) * len(refused)
    assert np.isnan(result.confidence_interval()).all()
    assert len(result.left_out) == len(refused)


def test_joint_index_of_no_variants_is_undefined() -> None:
    empty = np.empty((0, 5), bool)
    result = joint_refusal_index(empty, empty)
    assert (result.status, result.reason, result.variants) == ("undefined", "no_variants", ())


@others_nightly("scenario", simulation.FAST_SCENARIOS, ids=str)
def test_coverage_and_size(scenario: simulation.Scenario) -> None:
    rows = list(simulation.rows_of(scenario, 400, np.random.default_rng(9)))
    assert len(rows) == 3
    assert all(row.holds for row in rows), rows


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", simulation.MANY, ids=str)
def test_size_of_the_copula_test_with_many_prompts(scenario: simulation.Scenario) -> None:
    row = simulation.copula_row(scenario, 400, np.random.default_rng(4))
    assert row.holds, row


@others_nightly("spread", simulation.SPREADS, ids=str)
def test_coverage_with_differing_prompts(spread: simulation.Spread) -> None:
    rows = list(simulation.spread_rows(spread, 300, np.random.default_rng(6)))
    assert len(rows) == 4
    assert all(row.holds for row in rows), rows


def test_one_dimensional_arrays_are_an_error() -> None:
    with pytest.raises(ValueError, match="refused must be two-dimensional"):
        joint_refusal_index([True, False], [True, False])


def test_confidence_level_in_percent_is_an_error() -> None:
    with pytest.raises(ValueError, match="is it a percentage"):
        joint_refusal_index(*drawn(1)).confidence_interval(95)


# --- Models compared by their joint index


def data(seed: int = 1, index: int = 2) -> tuple[np.ndarray, np.ndarray]:
    return SCENARIOS[index].draw(np.random.default_rng(seed))


def test_difference_equals_difference_of_joint_indices() -> None:
    refused, wrong = data()
    found = compare_joint(refused, wrong)
    assert found.first == joint_refusal_index(refused[0], wrong[0])
    assert found.estimate == found.first.estimate - found.second.estimate
    low, high = found.confidence_interval()
    assert (low + high) / 2 == pytest.approx(found.estimate)
    assert (high - low) / 2 == pytest.approx(1.959964 * found.standard_error, rel=1e-6)


def test_standard_error_against_resampled_questions() -> None:
    refused, wrong = data(3)
    found, rng = compare_joint(refused, wrong), np.random.default_rng(5)
    n = refused.shape[2]
    draws = [compare_joint(refused[..., i], wrong[..., i]).estimate for i in rng.integers(n, size=(400, n))]
    assert found.standard_error == pytest.approx(np.std(draws), rel=0.12)


def test_single_prompt_matches_comparison_of_two_runs() -> None:
    refused, wrong = (values[:, :1] for values in data())
    found, single = compare_joint(refused, wrong), compare_metrics(refused[:, 0], wrong[:, 0])["refusal_index"]
    assert found.estimate == pytest.approx(single.estimate, abs=1e-12)
    assert found.standard_error == pytest.approx(single.standard_error, rel=1e-9)
    assert found.pvalue == pytest.approx(single.pvalue, rel=1e-6)


def test_ranking_with_single_prompt_matches_ranking_of_runs() -> None:
    refused, wrong = EQUAL[1].draw(np.random.default_rng(2))
    joint, runs = rank_joint(refused[:, :1], wrong[:, :1], rng=4), rank_runs(refused[:, 0], wrong[:, 0], rng=4)
    assert [run.row for run in joint.runs] == [run.row for run in runs.runs]
    assert [run.letters for run in joint.runs] == [run.letters for run in runs.runs]
    for one, other in zip(joint.pairs, runs.pairs, strict=True):
        assert one.pvalue_max_t == pytest.approx(other.pvalue_max_t, abs=1e-3)
        assert one.standard_error == pytest.approx(other.standard_error, rel=1e-9)


def test_model_compared_with_itself_has_zero_difference() -> None:
    refused, wrong = data()
    found = compare_joint(refused[[0, 0]], wrong[[0, 0]])
    assert (found.estimate, found.standard_error, found.pvalue) == (0.0, 0.0, 1.0)


def test_only_graded_questions_count() -> None:
    refused, wrong = data()
    scored = np.random.default_rng(8).random(refused.shape) < 0.8
    garbled = compare_joint(np.where(scored, refused, ~refused), np.where(scored, wrong, ~wrong), scored)
    assert garbled == compare_joint(refused, wrong, scored)


@pytest.mark.parametrize(("end", "status"), [("never", "undefined"), ("perfect", "boundary")])
def test_missing_standard_error_gives_no_test_and_names_model(end: str, status: str) -> None:
    refused, wrong = data()
    refused = refused.copy()
    refused[1] = False if end == "never" else wrong[1]
    found = compare_joint(refused, wrong)
    assert (found.status, found.standard_error, found.pvalue) == (status, None, None)
    expected = "nobody_refused" if end == "never" else "all_variants_at_boundary"
    assert found.reason.startswith(f"second:{expected}")
    assert all(math.isnan(limit) for limit in found.confidence_interval())
    ranking = rank_joint(refused, wrong, rng=0)
    assert [run.row for run in ranking.runs] == [0]
    assert [(run.row, run.status) for run in ranking.unranked] == [(1, status)]


@pytest.mark.parametrize(
    ("refused", "wrong", "says"),
    [
        (np.zeros((2, 5), bool), np.zeros((2, 5), bool), "refused must be three-dimensional"),
        (np.zeros((2, 1, 5), bool), np.zeros((2, 1, 4), bool), "wrong must have the shape of refused"),
        (np.zeros((3, 1, 5), bool), np.zeros((3, 1, 5), bool), "exactly two models to compare, got 3"),
    ],
)
def test_arrays_of_wrong_shape_are_rejected(refused, wrong, says) -> None:
    with pytest.raises(ValueError, match=says):
        compare_joint(refused, wrong)


@pytest.mark.slow
@others_nightly("index", [1, 2])
def test_coverage_and_size_of_a_difference(index: int) -> None:
    for row in difference_rows(SCENARIOS[index], 400, np.random.default_rng(index)):
        assert row.holds, row


@pytest.mark.slow
def test_family_wise_error_of_a_ranking() -> None:
    row = ranking_row(EQUAL[0], 150, np.random.default_rng(1))
    assert row.holds, row


def test_ranking_one_model_raises() -> None:
    alone = np.array([[[True, False], [True, True]]])
    with pytest.raises(ValueError, match=r"refused must hold two models or more to rank, got 1"):
        rank_joint(alone, alone)
