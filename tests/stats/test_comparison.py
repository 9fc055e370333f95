"""Two runs compared: differences, influence functions, and tables with empty cells."""

import itertools
import math
from dataclasses import fields
from functools import cache

import numpy as np
import pytest
from benchmarks.coverage import comparison as simulation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binomtest, norm, power_divergence
from tests.tiers import others_nightly

from refusal_index import ContingencyTable, refusal_index
from refusal_index.stats import (
    METRIC_NAMES,
    compare_metrics,
    equal_index_test,
    influence_function,
    metrics,
    rank_runs,
    tetrachoric,
    upper_orthant,
)
from refusal_index.stats.baseline import Payoffs
from refusal_index.stats.comparison import (
    Comparison,
    Influence,
    MetricDifference,
    influence_of,
    metric_influence,
    point_estimate,
)

# --- Two runs compared


def runs(seed: int = 1, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Sample two runs over the same questions, correlated with each other and within themselves."""
    rng = np.random.default_rng(seed)
    hard = rng.standard_normal(n)
    wrong = hard + rng.standard_normal((2, n)) > [[-0.3], [0.2]]
    return 0.7 * hard + rng.standard_normal((2, n)) > 0.4, wrong


def from_codes(codes) -> Comparison:
    """Compare two runs given as codes of cells, 4 where unscored."""
    codes = np.asarray(codes)
    return compare_metrics(codes < 2, codes % 2 == 0, codes < 4)


def unpaired(first, second) -> Comparison:
    """Compare two tables over different questions."""
    codes = [np.repeat(np.arange(4), counts) for counts in (first, second)]
    return from_codes([np.r_[codes[0], np.full(sum(second), 4)], np.r_[np.full(sum(first), 4), codes[1]]])


def test_estimates_are_first_run_minus_second() -> None:
    refused, wrong = runs()
    comparison = compare_metrics(refused, wrong)
    first, second = (metrics(ContingencyTable.from_arrays(r, w)) for r, w in zip(refused, wrong, strict=True))
    assert [difference.name for difference in comparison.differences] == list(METRIC_NAMES)
    for difference, a, b in zip(comparison.differences, first, second, strict=True):
        assert (difference.status, difference.reason) == ("ok", None)
        assert (difference.first, difference.second) == pytest.approx((a.estimate, b.estimate), abs=1e-15)
        assert difference.estimate == pytest.approx(a.estimate - b.estimate, abs=1e-15)


@pytest.mark.parametrize("name", ["correct_rate", "error_rate"])
def test_standard_error_of_paired_rates_against_theory(name: str) -> None:
    # McNemar's setting: b and c discordant pairs give the variance (b + c - (b - c)^2 / n) / n^2 (Fleiss 1981).
    refused, wrong = runs()
    hit = wrong if name == "error_rate" else ~refused & ~wrong
    b, c, n = (hit[0] & ~hit[1]).sum(), (hit[1] & ~hit[0]).sum(), hit.shape[1]
    difference = compare_metrics(refused, wrong)[name]
    assert difference.estimate == pytest.approx((b - c) / n)
    assert difference.standard_error == pytest.approx(math.sqrt(b + c - (b - c) ** 2 / n) / n, rel=1e-12)


@cache
def leave_one_out_comparisons() -> list[Comparison]:
    refused, wrong = runs(seed=5)
    return [compare_metrics(np.delete(refused, i, 1), np.delete(wrong, i, 1)) for i in range(400)]


@pytest.mark.parametrize("name", METRIC_NAMES)
def test_standard_error_against_the_jackknife_over_questions(name: str) -> None:
    jackknife = math.sqrt(399) * np.std([comparison[name].estimate for comparison in leave_one_out_comparisons()])
    assert compare_metrics(*runs(seed=5))[name].standard_error == pytest.approx(jackknife, rel=0.02)


def test_unpaired_standard_errors_add_in_quadrature() -> None:
    first, second = (710, 30, 210, 50), (100, 90, 80, 120)
    comparison = unpaired(first, second)
    errors = [refusal_index(ContingencyTable(*counts)).standard_error for counts in (first, second)]
    assert (comparison.n_first, comparison.n_second, comparison.n_shared) == (1000, 390, 0)
    assert comparison["refusal_index"].standard_error == pytest.approx(math.hypot(*errors), rel=1e-12)


def test_partial_overlap_uses_shared_and_unshared_questions() -> None:
    refused, wrong = runs(n=600)
    scored = np.ones((2, 600), bool)
    scored[0, :200] = scored[1, 400:] = False
    comparison = compare_metrics(refused, wrong, scored)
    assert (comparison.n_first, comparison.n_second, comparison.n_shared) == (400, 400, 200)
    apart = [refusal_index(refused=r[s], wrong=w[s]) for r, w, s in zip(refused, wrong, scored, strict=True)]
    difference = comparison["refusal_index"]
    assert difference.estimate == apart[0].estimate - apart[1].estimate
    pairs_alone = compare_metrics(refused[:, 200:400], wrong[:, 200:400])["refusal_index"]
    unpaired_error = math.hypot(*(result.standard_error for result in apart))
    assert difference.standard_error < min(pairs_alone.standard_error, unpaired_error)


def test_pvalue_and_interval_against_theory() -> None:
    for difference in compare_metrics(*runs()).differences:
        z = difference.estimate / difference.standard_error
        assert difference.pvalue == pytest.approx(2 * norm.sf(abs(z)), rel=1e-10)
        for level in (0.5, 0.95):
            reach = norm.ppf((1 + level) / 2) * difference.standard_error
            expected = (difference.estimate - reach, difference.estimate + reach)
            assert difference.confidence_interval(level) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        # Newcombe (1998), Statistics in Medicine 17, 873-890, table II, method 10; those with a rate of 0 or 1
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
        ((10, 10), (0, 10), 0.6075, 1.0),
    ],
)
def test_boundary_interval_of_rates_against_newcombes_table(first, second, low: float, high: float) -> None:
    tables = [(hits, 0, n - hits, 0) for hits, n in (first, second)]
    difference = unpaired(*tables)["refusal_rate"]
    assert (difference.status, difference.standard_error, difference.pvalue) == ("boundary", None, None)
    assert difference.confidence_interval() == pytest.approx((low, high), abs=5e-5)


def test_boundary_interval_of_the_index_against_square_and_add() -> None:
    first, second = (40, 0, 30, 30), (60, 20, 30, 40)
    difference = unpaired(first, second)["refusal_index"]
    assert (difference.status, difference.reason) == ("boundary", "first:zero_cell:refused_right")
    assert (difference.first, difference.standard_error, difference.method) == (1.0, None, "power_divergence")
    (low_a, _), (low_b, high_b) = (
        refusal_index(ContingencyTable(*t)).confidence_interval(0.9) for t in (first, second)
    )
    low, high = difference.confidence_interval(0.9)
    assert low == pytest.approx(1 - difference.second - math.hypot(1 - low_a, high_b - difference.second))
    assert high == pytest.approx(1 - low_b)


@pytest.mark.parametrize(
    ("first", "second", "name", "reason"),
    [
        ((0, 0, 5, 5), (4, 3, 2, 1), "refusal_index", "first:nobody_refused"),
        ((4, 3, 2, 1), (0, 0, 0, 0), "correct_rate", "second:no_questions"),
        ((4, 3, 0, 0), (5, 0, 5, 0), "refusal_index", "first:everybody_refused;second:all_wrong"),
        ((4, 0, 2, 1), (0, 0, 5, 5), "refusal_index", "first:zero_cell:refused_right;second:nobody_refused"),
        ((4, 3, 2, 1), (4, 3, 0, 0), "f_score", "second:everybody_refused"),
    ],
)
def test_undefined_differences_name_the_run_and_its_reason(first, second, name: str, reason: str) -> None:
    difference = unpaired(first, second)[name]
    assert (difference.status, difference.reason) == ("undefined", reason)
    assert difference.estimate is difference.standard_error is difference.pvalue is None
    assert all(math.isnan(end) for end in difference.confidence_interval())


def test_identical_runs_have_zero_difference_and_an_interval() -> None:
    codes = np.repeat(np.arange(4), (30, 10, 20, 25))
    for difference in from_codes([codes, codes]).differences:
        assert (difference.estimate, difference.standard_error, difference.pvalue) == (0.0, 0.0, 1.0)
        assert (difference.status, difference.reason) == ("boundary", "constant_difference")
        low, high = difference.confidence_interval()
        assert low < 0 < high


def test_constant_difference_uses_sign_test() -> None:
    # The score of an answer is 1/2 if right and -1/2 if wrong, so the runs differ by 1/2 on every question.
    first, second = np.repeat([3, 0], 6), np.repeat([0, 2], 6)
    codes = np.stack([first, second])
    difference = compare_metrics(codes < 2, codes % 2 == 0, weighted_score_p=0.5)["weighted_score"]
    assert (difference.estimate, difference.standard_error) == (0.5, 0.0)
    assert difference.reason == "constant_difference"
    assert difference.pvalue == pytest.approx(binomtest(12, 12).pvalue)


def test_swapping_refused_and_wrong_gives_zero_index_difference() -> None:
    # The index treats refusals and errors alike; only rounding tells these two apart.
    refused, wrong = runs()
    difference = compare_metrics(np.stack([refused[0], wrong[0]]), np.stack([wrong[0], refused[0]]))["refusal_index"]
    assert (difference.estimate, difference.standard_error, difference.pvalue) == (0.0, 0.0, 1.0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=40))
def test_none_values_match_status_and_signs_flip_when_runs_are_swapped(pairs) -> None:
    codes = np.array(pairs, int).reshape(-1, 2).T
    for difference, turned in zip(from_codes(codes).differences, from_codes(codes[::-1]).differences, strict=True):
        assert (difference.estimate is None) == (difference.status == "undefined")
        assert (difference.reason is None) == (difference.status == "ok")
        assert (difference.pvalue is None) == (difference.method is None)
        if difference.name == "refusal_index":
            assert (difference.pvalue is None) == (difference.status == "undefined")
        elif difference.pvalue is None:
            assert difference.standard_error is None
        if difference.status == "ok":
            assert difference.standard_error > 0
        low, high = difference.confidence_interval()
        if difference.estimate is None:
            assert turned.estimate is None
            assert math.isnan(low)
            assert math.isnan(high)
        else:
            assert low <= difference.estimate <= high
            assert turned.estimate == -difference.estimate
            assert turned.confidence_interval() == pytest.approx((-high, -low), abs=1e-12)


def test_at_most_eight_fields_are_public() -> None:
    assert len([field for field in fields(MetricDifference) if not field.name.startswith("_")]) == 8
    assert "ContingencyTable" not in repr(compare_metrics(*runs()))


def test_errors_say_what_is_wrong() -> None:
    refused, wrong = runs()
    with pytest.raises(ValueError, match=r"^refused must have exactly two rows, .*got 3; for more runs use rank_runs"):
        compare_metrics(refused[[0, 1, 1]], wrong[[0, 1, 1]])
    with pytest.raises(ValueError, match=r"^weighted_score_p must be a number of at least 0, got nan"):
        compare_metrics(refused, wrong, weighted_score_p=math.nan)
    with pytest.raises(ValueError, match=r"^metric must be one of .*, got 'accuracy'"):
        compare_metrics(refused, wrong)["accuracy"]
    with pytest.raises(ValueError, match=r"^confidence_level must lie strictly between 0 and 1, got 95"):
        compare_metrics(refused, wrong)["f_score"].confidence_interval(95)


@others_nightly("scenario", [simulation.SCENARIOS[i] for i in (0, 6, 9, 15)], ids=str)
def test_coverage_and_size(scenario: simulation.Scenario) -> None:
    rows = list(simulation.scenario_rows(scenario, 400, np.random.default_rng(7)))
    assert len(rows) == {0: 26, 6: 13, 9: 14, 15: 13}[simulation.SCENARIOS.index(scenario)]
    assert [row for row in rows if not row.holds] == []


# --- Influence functions of every metric, and the covariances they give

COUNTS = st.tuples(*[st.integers(0, 40)] * 4)
WEIGHTED_SCORE_P = 0.2
WEIGHTS = (1.0, 0.3, 2.0)
WORTH = Payoffs(WEIGHTED_SCORE_P, WEIGHTS)


def metric_of(name: str, cells) -> np.ndarray:
    """Compute the metric from four cells of any sum, from its definition."""
    refused_wrong, refused_right, answered_wrong, answered_right = np.asarray(cells, float) / np.sum(cells, axis=0)
    r, c = refused_wrong + refused_right, answered_right
    return {
        "correct_rate": lambda: c,
        "refusal_rate": lambda: r,
        "correct_given_attempted": lambda: c / (1 - r),
        "f_score": lambda: 2 / (1 / c + (1 - r) / c),
        "weighted_score": lambda: c - WEIGHTED_SCORE_P * (1 - r),
        "hallucination_rate": lambda: (1 - c - r) / (1 - c),
        "omniscience_index": lambda: 100 * (c - (1 - c - r)),
        "truthfulness_score": lambda: WEIGHTS[0] * c + WEIGHTS[1] * r - WEIGHTS[2] * (1 - c - r),
        "error_rate": lambda: refused_wrong + answered_wrong,
        "refusal_precision": lambda: refused_wrong / r,
        "refusal_recall": lambda: refused_wrong / (refused_wrong + answered_wrong),
        "over_refusal": lambda: refused_right / (refused_right + answered_right),
        "refusal_index": lambda: 6 / math.pi * np.arcsin(tetrachoric(*cells) / 2),
    }[name]()


def outcomes(counts) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([[True, True, False, False]], counts, axis=1), np.repeat([[True, False] * 2], counts, axis=1)


@pytest.mark.parametrize("name", METRIC_NAMES)
@pytest.mark.parametrize("counts", [(710, 30, 210, 50), (10, 90, 90, 10), (30, 1, 2, 7)])
def test_metric_cell_influence_matches_numerical_derivative(name: str, counts) -> None:
    by_cell = point_estimate(name, ContingencyTable(*counts), WORTH).by_cell
    proportions, step = np.array(counts) / sum(counts), 1e-6
    for cell in range(4):
        towards = step * (np.eye(4)[cell] - proportions)
        slope = (metric_of(name, proportions + towards) - metric_of(name, proportions - towards)) / (2 * step)
        assert by_cell[cell] == pytest.approx(float(slope), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", METRIC_NAMES)
def test_influence_averages_zero_and_is_zero_where_unscored(name: str) -> None:
    rng = np.random.default_rng(2)
    refused, wrong, scored = rng.random((3, 4, 300)) < np.array([0.4, 0.7, 0.8])[:, None, None]
    influence = metric_influence(refused, wrong, scored, metric=name)
    assert influence.shape == (4, 300)
    assert (influence[~scored] == 0).all()
    np.testing.assert_allclose(influence.sum(axis=1), 0, atol=1e-9)


def test_refusal_index_influence_matches_single_run() -> None:
    refused, wrong = np.random.default_rng(3).random((2, 3, 200)) < 0.6
    expected = [influence_function(*run) for run in zip(refused, wrong, strict=True)]
    np.testing.assert_allclose(metric_influence(refused, wrong), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["correct_rate", "refusal_rate", "error_rate"])
def test_standard_error_of_a_rate_against_theory(name: str) -> None:
    counts = (71, 3, 21, 5)
    rate = metric_of(name, counts)
    variance = (metric_influence(*outcomes(counts), metric=name) ** 2).sum() / 100**2
    assert variance == pytest.approx(rate * (1 - rate) / 100, rel=1e-12)


@pytest.mark.parametrize("name", METRIC_NAMES)
@pytest.mark.parametrize("overlap", [1.0, 0.4, 0.0])
def test_covariance_of_two_runs_against_resampled_questions(name: str, overlap: float) -> None:
    # Codes of a question in the two runs: independent with probability one half, else the same; 4 where unscored.
    rng, n, cells = np.random.default_rng(11), 3_000, np.array([0.35, 0.1, 0.3, 0.25])
    codes = rng.choice(4, size=(2, n), p=cells)
    codes[1] = np.where(rng.random(n) < 0.5, codes[0], codes[1])
    alone = rng.random(n) >= overlap
    codes[rng.integers(2, size=n)[alone], np.flatnonzero(alone)] = 4
    points = [
        point_estimate(name, ContingencyTable(*np.bincount(row, minlength=5)[:4].tolist()), WORTH) for row in codes
    ]
    scaled = Influence.of(influence_of(points, codes), codes < 4).rows

    joint = np.bincount(5 * codes[0] + codes[1], minlength=25)
    resampled = rng.multinomial(n, joint / n, size=20_000).reshape(-1, 5, 5)
    estimates = [metric_of(name, resampled.sum(axis=axis)[:, :4].T) for axis in (2, 1)]
    expected = np.cov(estimates)
    # The sampling error of a variance from 20,000 draws is one per cent.
    np.testing.assert_allclose(scaled @ scaled.T, expected, atol=0.04 * math.sqrt(expected[0, 0] * expected[1, 1]))


@settings(deadline=None)
@given(COUNTS, st.sampled_from([0.0, 0.2, 1.0, 3.0]))
def test_point_estimates_match_metrics_and_ok_implies_standard_error(counts, p: float) -> None:
    table = ContingencyTable(*counts)
    for metric in metrics(table, weighted_score_p=p, truthfulness_weights=WEIGHTS):
        point = point_estimate(metric.name, table, Payoffs(p, WEIGHTS))
        rounding = 1e-13 if metric.name == "omniscience_index" else 1e-15
        assert point.estimate == (None if metric.estimate is None else pytest.approx(metric.estimate, abs=rounding))
        variance = np.dot(counts, np.square(point.by_cell))
        assert (point.status == "ok") == (variance > 0)
        if point.reason == "no_variation":
            assert (metric.status, variance) == ("ok", 0)
        else:
            assert (point.status, point.reason) == (metric.status, metric.reason)


@pytest.mark.parametrize(
    ("counts", "name", "is_nan"),
    [
        ((3, 0, 4, 5), "refusal_index", True),
        ((0, 0, 4, 5), "refusal_index", True),
        ((3, 2, 0, 0), "f_score", True),
        ((3, 2, 0, 0), "correct_given_attempted", True),
        ((3, 2, 0, 0), "weighted_score", False),
        ((3, 2, 0, 0), "refusal_rate", False),
        ((0, 0, 0, 5), "hallucination_rate", True),
        ((3, 2, 0, 5), "hallucination_rate", False),
    ],
)
def test_influence_is_nan_without_a_derivative_and_zero_without_variation(counts, name: str, is_nan: bool) -> None:
    influence = metric_influence(*outcomes(counts), metric=name)
    np.testing.assert_array_equal(influence, np.full((1, sum(counts)), np.nan if is_nan else 0.0))


def test_undefined_row_does_not_affect_other_rows() -> None:
    refused, wrong = outcomes((5, 3, 2, 4))
    influence = metric_influence(np.vstack([refused, np.zeros_like(refused)]), np.vstack([wrong, wrong]))
    np.testing.assert_array_equal(influence[0], metric_influence(refused, wrong)[0])
    assert np.isnan(influence[1]).all()


def test_errors_list_the_metrics_and_name_p() -> None:
    with pytest.raises(ValueError, match=r"^metric must be one of correct_rate, .*refusal_index, got 'accuracy'"):
        metric_influence(*outcomes((1, 1, 1, 1)), metric="accuracy")
    with pytest.raises(ValueError, match=r"^weighted_score_p must be a number of at least 0, got -1"):
        metric_influence(*outcomes((1, 1, 1, 1)), metric="weighted_score", weighted_score_p=-1)


# --- Two indices with sparse cells

CELLS = st.integers(0, 15)


def from_cells(joint) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Build two runs from counts of questions by the cells of the first and the second run; 4 means not scored."""
    joint = np.asarray(joint)
    codes = np.repeat(np.indices(joint.shape).reshape(2, -1), joint.ravel(), axis=1)
    return codes < 2, codes % 2 == 0, codes < 4


def unpaired_counts(first, second) -> np.ndarray:
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
    test = equal_index_test(*from_cells(unpaired_counts(first, second)))
    # The remaining difference, less than .01, comes from estimating the rates.
    assert test.statistic == pytest.approx(math.sqrt(divergence), rel=0.01)
    assert abs(test.statistic) < math.sqrt(divergence)
    assert test.pvalue == pytest.approx(2 * norm.sf(abs(test.statistic)))


def test_pvalue_agrees_with_wald_test_when_cells_are_full() -> None:
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


def test_same_boundary_is_equal_and_opposite_boundaries_differ() -> None:
    high, low = (40, 0, 30, 30), (0, 40, 50, 10)
    assert equal_index_test(*from_cells(unpaired_counts(high, high[::-1]))).pvalue == 1
    assert equal_index_test(*from_cells(unpaired_counts(high, low))).pvalue < 1e-6


def test_shared_questions_give_a_smaller_pvalue() -> None:
    # The runs agree on all questions but five, which only the second run refuses although it would be right.
    joint = np.diag([60, 0, 385, 45])
    joint[3, 1] = 5
    alone = unpaired_counts(joint.sum(axis=1), joint.sum(axis=0))
    assert equal_index_test(*from_cells(joint)).pvalue < equal_index_test(*from_cells(alone)).pvalue


def test_strata_pool_evidence_in_the_same_direction() -> None:
    weak = unpaired_counts((38, 0, 190, 25), (35, 2, 190, 25))
    refused, wrong, scored = from_cells(weak)
    once = equal_index_test(refused, wrong, scored)
    matrices = [np.tile(matrix, 4) for matrix in (refused, wrong, scored)]
    strata = np.repeat(list("abcd"), refused.shape[1])
    pooled = equal_index_test(*matrices, strata=strata)
    assert pooled.statistic == pytest.approx(2 * once.statistic)
    assert (once.n_strata, pooled.n_strata) == (1, 4)


def test_undefined_strata_are_skipped_and_all_undefined_is_undefined() -> None:
    told, silent = unpaired_counts((38, 0, 190, 25), (30, 7, 190, 25)), unpaired_counts((0, 0, 9, 9), (3, 3, 3, 3))
    parts = [from_cells(told), from_cells(silent)]
    strata = np.repeat([0, 1], [part[0].shape[1] for part in parts])
    both = equal_index_test(*(np.hstack(matrix) for matrix in zip(*parts, strict=True)), strata=strata)
    assert (both.pvalue, both.n_strata) == (equal_index_test(*parts[0]).pvalue, 1)
    alone = equal_index_test(*parts[1])
    assert (alone.statistic, alone.pvalue, alone.reason, alone.n_strata) == (None, None, "first:nobody_refused", 0)


def test_wrong_number_of_strata_or_rows_is_rejected() -> None:
    refused, wrong, scored = from_cells(unpaired_counts((3, 1, 2, 4), (3, 1, 2, 4)))
    with pytest.raises(ValueError, match="strata must have one value for each of the 20 questions, got 3"):
        equal_index_test(refused, wrong, scored, strata=[1, 2, 3])
    for nothing in (None, math.nan):
        with pytest.raises(ValueError, match=r"strata must have a value for every question, got none for question 19"):
            equal_index_test(refused, wrong, scored, strata=np.array([*range(19), nothing]))
    with pytest.raises(ValueError, match="exactly two rows"):
        equal_index_test(refused[:1], wrong[:1])


def test_ranking_uses_equal_index_test_for_boundary_runs() -> None:
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
