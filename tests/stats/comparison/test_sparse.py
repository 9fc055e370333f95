"""Two indices tested where a cell is too empty for a standard error."""

import itertools
import math

import numpy as np
import pytest
from benchmarks.coverage import comparison as simulation
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import norm, power_divergence
from tests.tiers import others_nightly

from refusal_index.stats import compare_metrics, equal_index_test, rank_runs, upper_orthant

CELLS = st.integers(0, 15)


def from_cells(joint) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two runs with these numbers of questions by the cell of the first and of the second; 4 is not scored."""
    joint = np.asarray(joint)
    codes = np.repeat(np.indices(joint.shape).reshape(2, -1), joint.ravel(), axis=1)
    return codes < 2, codes % 2 == 0, codes < 4


def unpaired(first, second) -> np.ndarray:
    joint = np.zeros((5, 5), int)
    joint[:4, 4], joint[4, :4] = first, second
    return joint


def fitted(counts, rho: float) -> np.ndarray:
    """Expected counts at the rates of a table and the given rho."""
    n11, n10, n01, _ = counts
    n = sum(counts)
    p11 = float(upper_orthant(norm.isf((n11 + n10) / n), norm.isf((n11 + n01) / n), rho))
    r, mu = (n11 + n10) / n, (n11 + n01) / n
    return n * np.array([p11, r - p11, mu - p11, 1 - r - mu + p11])


@pytest.mark.parametrize(
    ("first", "second"), [((75, 0, 375, 50), (70, 5, 380, 45)), ((40, 3, 30, 27), (20, 9, 31, 40))]
)
def test_statistic_of_independent_runs_against_scipys_power_divergence(first, second) -> None:
    def likelihood(z) -> float:
        expected = np.concatenate([fitted(counts, math.tanh(z[0])) for counts in (first, second)])
        return -float(np.array([*first, *second]) @ np.log(np.maximum(expected, 1e-300)))

    best = minimize(likelihood, [0.4], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12})
    divergence = sum(
        power_divergence(counts, fitted(counts, math.tanh(best.x[0])), lambda_=1 / 3).statistic
        for counts in (first, second)
    )
    test = equal_index_test(*from_cells(unpaired(first, second)))
    # What is left is that the rates are estimated, which makes a difference of less than a hundredth.
    assert test.statistic == pytest.approx(math.sqrt(divergence), rel=0.01)
    assert abs(test.statistic) < math.sqrt(divergence)
    assert test.pvalue == pytest.approx(2 * norm.sf(abs(test.statistic)))


def test_agrees_with_the_test_by_standard_errors_where_cells_are_full() -> None:
    rng = np.random.default_rng(2)
    shared, own = rng.standard_normal((2, 1, 20_000)), rng.standard_normal((2, 2, 20_000))
    difficulty, reluctance = shared + own
    refused = np.array([[0.6], [0.5]]) * difficulty + np.sqrt(1 - np.array([[0.36], [0.25]])) * reluctance > 0.5
    wrong = difficulty > -0.7
    difference = compare_metrics(refused, wrong)["refusal_index"]
    z = difference.estimate / difference.standard_error
    assert difference.method == "normal"
    assert equal_index_test(refused, wrong).statistic == pytest.approx(z, rel=0.02)


@given(st.lists(CELLS, min_size=16, max_size=16))
def test_a_pair_has_a_pvalue_wherever_both_indices_are_defined(cells) -> None:
    joint = np.array(cells).reshape(4, 4)
    test, difference = equal_index_test(*from_cells(joint)), compare_metrics(*from_cells(joint))["refusal_index"]
    assert (test.pvalue is None) == (difference.estimate is None)
    if test.pvalue is None:
        assert test.reason == difference.reason
        return
    turned = equal_index_test(*from_cells(joint.T))
    assert turned.statistic == pytest.approx(-test.statistic, abs=1e-6)
    assert 0 <= test.pvalue <= 1
    if difference.standard_error is None:
        assert (difference.pvalue, difference.method) == (pytest.approx(test.pvalue), "power_divergence")


def test_two_runs_at_the_same_boundary_do_not_differ_and_at_opposite_ones_do() -> None:
    high, low = (40, 0, 30, 30), (0, 40, 50, 10)
    assert equal_index_test(*from_cells(unpaired(high, high[::-1]))).pvalue == 1
    assert equal_index_test(*from_cells(unpaired(high, low))).pvalue < 1e-6


def test_runs_that_share_their_questions_are_told_apart_more_easily() -> None:
    # On all questions but five, which only the second run refuses to no avail, they do the same.
    joint = np.diag([60, 0, 385, 45])
    joint[3, 1] = 5
    alone = unpaired(joint.sum(axis=1), joint.sum(axis=0))
    assert equal_index_test(*from_cells(joint)).pvalue < equal_index_test(*from_cells(alone)).pvalue


def test_strata_pool_what_they_say_in_the_same_direction() -> None:
    weak = unpaired((38, 0, 190, 25), (35, 2, 190, 25))
    refused, wrong, scored = from_cells(weak)
    once = equal_index_test(refused, wrong, scored)
    matrices = [np.tile(matrix, 4) for matrix in (refused, wrong, scored)]
    strata = np.repeat(list("abcd"), refused.shape[1])
    pooled = equal_index_test(*matrices, strata=strata)
    assert pooled.statistic == pytest.approx(2 * once.statistic)
    assert (once.n_strata, pooled.n_strata) == (1, 4)


def test_a_stratum_without_an_index_is_left_out_and_all_of_them_undefined() -> None:
    told, silent = unpaired((38, 0, 190, 25), (30, 7, 190, 25)), unpaired((0, 0, 9, 9), (3, 3, 3, 3))
    parts = [from_cells(told), from_cells(silent)]
    strata = np.repeat([0, 1], [part[0].shape[1] for part in parts])
    both = equal_index_test(*(np.hstack(matrix) for matrix in zip(*parts, strict=True)), strata=strata)
    assert (both.pvalue, both.n_strata) == (equal_index_test(*parts[0]).pvalue, 1)
    alone = equal_index_test(*parts[1])
    assert (alone.statistic, alone.pvalue, alone.reason, alone.n_strata) == (None, None, "first:nobody_refused", 0)


def test_strata_of_the_wrong_number_and_rows_that_are_not_two_are_refused() -> None:
    refused, wrong, scored = from_cells(unpaired((3, 1, 2, 4), (3, 1, 2, 4)))
    with pytest.raises(ValueError, match="strata must have one value for each of the 20 questions, got 3"):
        equal_index_test(refused, wrong, scored, strata=[1, 2, 3])
    for nothing in (None, math.nan):
        with pytest.raises(ValueError, match=r"strata must have a value for every question, got none for question 19"):
            equal_index_test(refused, wrong, scored, strata=np.array([*range(19), nothing]))
    with pytest.raises(ValueError, match="exactly two rows"):
        equal_index_test(refused[:1], wrong[:1])


def test_a_ranking_tests_its_runs_at_the_boundary_by_the_same_test() -> None:
    tables = [(70, 5, 380, 45), (75, 0, 375, 50), (60, 15, 380, 45), (75, 0, 370, 55), (0, 0, 50, 450)]
    codes = np.stack([np.random.default_rng(7).permutation(np.repeat(np.arange(4), table)) for table in tables])
    refused, wrong = codes < 2, codes % 2 == 0
    pairs = rank_runs(refused, wrong, rng=1).boundary_pairs
    assert [(pair.first, pair.second) for pair in pairs] == [(0, 1), (0, 3), (1, 2), (1, 3), (2, 3)]
    for pair in pairs:
        rows = [pair.first, pair.second]
        assert pair.pvalue == pytest.approx(equal_index_test(refused[rows], wrong[rows]).pvalue)
        assert pair.pvalue_holm >= pair.pvalue
    assert pairs[3].pvalue == 1
    assert rank_runs(refused, wrong, metric="refusal_rate").boundary_pairs == ()


@pytest.mark.slow
@others_nightly(("shared", "stratified"), list(itertools.product((None, 0.7), (False, True))))
def test_simulated_size_is_near_its_level(shared, stratified: bool) -> None:
    rows = list(simulation.sparse_rows(shared, 800, np.random.default_rng(3), stratified=stratified))
    assert all(row.holds for row in rows), rows
