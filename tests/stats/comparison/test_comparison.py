"""Two runs compared: differences, standard errors, tests and intervals."""

import math
from dataclasses import fields
from functools import cache

import numpy as np
import pytest
from benchmarks.coverage import comparison as simulation
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm
from tests.tiers import others_nightly

from refusal_index import ContingencyTable, refusal_index
from refusal_index.stats import METRIC_NAMES, metrics
from refusal_index.stats.comparison import Comparison, MetricDifference, compare_metrics


def runs(seed: int = 1, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Draw two runs over the same questions, related to each other and within themselves."""
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


def test_estimates_are_the_first_run_less_the_second() -> None:
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
def without_each_question() -> list[Comparison]:
    refused, wrong = runs(seed=5)
    return [compare_metrics(np.delete(refused, i, 1), np.delete(wrong, i, 1)) for i in range(400)]


@pytest.mark.parametrize("name", METRIC_NAMES)
def test_standard_error_against_the_jackknife_over_questions(name: str) -> None:
    jackknife = math.sqrt(399) * np.std([comparison[name].estimate for comparison in without_each_question()])
    assert compare_metrics(*runs(seed=5))[name].standard_error == pytest.approx(jackknife, rel=0.02)


def test_unpaired_errors_add_up_as_squares() -> None:
    first, second = (710, 30, 210, 50), (100, 90, 80, 120)
    comparison = unpaired(first, second)
    errors = [refusal_index(ContingencyTable(*counts)).standard_error for counts in (first, second)]
    assert (comparison.n_first, comparison.n_second, comparison.n_shared) == (1000, 390, 0)
    assert comparison["refusal_index"].standard_error == pytest.approx(math.hypot(*errors), rel=1e-12)


def test_a_partial_overlap_uses_both_the_pairs_and_the_questions_of_one_run() -> None:
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


def test_runs_with_the_same_answers_differ_by_zero_but_not_with_certainty() -> None:
    codes = np.repeat(np.arange(4), (30, 10, 20, 25))
    for difference in from_codes([codes, codes]).differences:
        assert (difference.estimate, difference.standard_error, difference.pvalue) == (0.0, 0.0, 1.0)
        assert (difference.status, difference.reason) == ("boundary", "constant_difference")
        low, high = difference.confidence_interval()
        assert low < 0 < high


def test_a_constant_difference_is_tested_by_the_signs() -> None:
    # With a penalty of one half an answer earns 1/2 if right, -1/2 if wrong: on every question the runs differ by 1/2.
    first, second = np.repeat([3, 0], 6), np.repeat([0, 2], 6)
    codes = np.stack([first, second])
    difference = compare_metrics(codes < 2, codes % 2 == 0, penalty=0.5)["weighted_score"]
    assert (difference.estimate, difference.standard_error) == (0.5, 0.0)
    assert difference.reason == "constant_difference"
    assert difference.pvalue == pytest.approx(binomtest(12, 12).pvalue)


def test_a_run_and_its_mirror_image_have_the_same_index() -> None:
    # The index treats refusals and errors alike; only rounding tells these two apart.
    refused, wrong = runs()
    difference = compare_metrics(np.stack([refused[0], wrong[0]]), np.stack([wrong[0], refused[0]]))["refusal_index"]
    assert (difference.estimate, difference.standard_error, difference.pvalue) == (0.0, 0.0, 1.0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=40))
def test_results_hold_none_where_the_status_says_so_and_turn_round_with_the_runs(pairs) -> None:
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
    with pytest.raises(ValueError, match=r"^penalty must be a number of at least 0, got nan"):
        compare_metrics(refused, wrong, penalty=math.nan)
    with pytest.raises(ValueError, match=r"^metric must be one of .*, got 'accuracy'"):
        compare_metrics(refused, wrong)["accuracy"]
    with pytest.raises(ValueError, match=r"^confidence_level must lie strictly between 0 and 1, got 95"):
        compare_metrics(refused, wrong)["f_score"].confidence_interval(95)


@others_nightly("scenario", [simulation.SCENARIOS[i] for i in (0, 6, 9, 15)], ids=str)
def test_coverage_and_size(scenario: simulation.Scenario) -> None:
    rows = list(simulation.scenario_rows(scenario, 400, np.random.default_rng(7)))
    assert len(rows) == {0: 26, 6: 13, 9: 14, 15: 13}[simulation.SCENARIOS.index(scenario)]
    assert [row for row in rows if not row.holds] == []
