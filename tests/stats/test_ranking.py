"""Rankings: order, ties, adjusted tests and compact letter display."""

import math
from dataclasses import fields, replace
from itertools import combinations

import numpy as np
import pytest
from benchmarks.coverage import ranking as simulation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from tests.tiers import others_nightly

from refusal_index import ContingencyTable, refusal_index
from refusal_index.stats import METRIC_NAMES, metrics
from refusal_index.stats.comparison import compare_metrics
from refusal_index.stats.ranking import (
    PairwiseDifference,
    PairwiseDifferences,
    RankedRun,
    Ranking,
    adjusted_pvalues,
    compact_letters,
    holm,
    rank_runs,
    step_down_max_t,
)

# --- Rankings


def runs(n: int = 800, k: int = 5, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Sample k runs over the same questions, with increasing Refusal Index."""
    rng = np.random.default_rng(seed)
    hard = rng.standard_normal(n)
    wrong = hard + rng.standard_normal((k, n)) > -0.3
    return np.linspace(0.2, 1.5, k)[:, None] * hard + rng.standard_normal((k, n)) > 0.4, wrong


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize("adjustment", ["max-t", "holm"])
def test_letters_are_shared_exactly_by_runs_that_do_not_differ(metric: str, adjustment: str) -> None:
    ranking = rank_runs(*runs(), metric=metric, weighted_score_p=0.2, adjustment=adjustment, rng=1)
    letters = {run.row: set(run.letters) for run in ranking.runs}
    assert len(ranking.pairs) == 10
    for pair in ranking.pairs:
        adjusted = pair.pvalue_holm if adjustment == "holm" else pair.pvalue_max_t
        assert bool(letters[pair.first] & letters[pair.second]) == (adjusted > 0.05)


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_runs_are_sorted_descending_with_their_own_intervals(metric: str) -> None:
    refused, wrong = runs()
    ranking = rank_runs(refused, wrong, metric=metric, weighted_score_p=0.2, confidence_level=0.9, rng=1)
    estimates = [run.estimate for run in ranking.runs]
    assert estimates == sorted(estimates, reverse=True)
    for run in ranking.runs:
        table = ContingencyTable.from_arrays(refused[run.row], wrong[run.row])
        (own,) = (one for one in metrics(table, weighted_score_p=0.2, confidence_level=0.9) if one.name == metric)
        assert (run.estimate, run.low, run.high) == (own.estimate, own.low, own.high)
        assert (run.status, run.reason) == ("ok", None)


@pytest.mark.parametrize("metric", ["refusal_index", "f_score"])
def test_pairs_match_comparison_of_two_runs(metric: str) -> None:
    refused, wrong = runs()
    scored = np.random.default_rng(8).random(refused.shape) < 0.8
    for pair in rank_runs(refused, wrong, scored, metric=metric, rng=1).pairs:
        both = [pair.first, pair.second]
        difference = compare_metrics(refused[both], wrong[both], scored[both])[metric]
        assert pair.estimate == pytest.approx(difference.estimate, rel=1e-12)
        assert pair.standard_error == pytest.approx(difference.standard_error, rel=1e-12)
        assert pair.pvalue == pytest.approx(difference.pvalue, rel=1e-9)
        assert pair.estimate >= 0


def test_adjusted_pvalues_are_bounded_by_each_other() -> None:
    for pair in rank_runs(*runs(), rng=1).pairs:
        assert pair.pvalue <= pair.pvalue_holm
        assert pair.pvalue_max_t <= pair.pvalue_holm


def test_simultaneous_intervals_use_critical_value() -> None:
    ranking = rank_runs(*runs(), rng=1)
    # Between the single-test quantile and Bonferroni's for ten tests.
    assert 1.960 < ranking.critical_value < 2.807
    for pair in ranking.pairs:
        reach = ranking.critical_value * pair.standard_error
        assert pair.simultaneous_interval == pytest.approx((pair.estimate - reach, pair.estimate + reach), rel=1e-12)
        # Step-down p-values reject whatever the single-step intervals reject.
        assert pair.simultaneous_interval.low <= 0 or pair.pvalue_max_t <= 0.05 + 1e-4


@pytest.mark.parametrize(
    ("k", "critical_value", "pvalue"),
    [
        # r/multiple_testing.R: qtukey(0.95, k, Inf) / sqrt(2) and ptukey(2.5 * sqrt(2), k, Inf, lower.tail = FALSE)
        (3, 2.34370058790214, 0.0332418034697279),
        (8, 3.0308785225952, 0.195220683713905),
    ],
)
def test_max_t_of_independent_estimates_against_r_tukey(k: int, critical_value: float, pvalue: float) -> None:
    first, second = np.triu_indices(k, 1)
    # The largest of the differences, and no other, is 2.5 standard errors.
    statistics = np.r_[2.5, np.zeros(len(first) - 1)]
    errors = np.full(len(first), math.sqrt(2))
    single = np.r_[2 * norm.sf(2.5), np.ones(len(first) - 1)]
    differences = PairwiseDifferences(np.eye(k), first, second, statistics * errors, errors, single)
    _, max_t, critical = adjusted_pvalues(differences, 0.95, 200_000, np.random.default_rng(4))
    # Four sampling errors of the share; the quantile's own error is .004.
    assert max_t[0] == pytest.approx(pvalue, abs=4 * math.sqrt(pvalue / 200_000))
    assert critical == pytest.approx(critical_value, abs=0.02)


def test_ranking_is_reproducible_by_seed_and_ignores_row_order() -> None:
    refused, wrong = runs()
    ranking = rank_runs(refused, wrong, rng=5)
    assert rank_runs(refused, wrong, rng=np.random.default_rng(5)) == ranking
    assert rank_runs(refused, wrong, rng=6) != ranking

    order = np.array([3, 0, 4, 1, 2])
    shuffled = rank_runs(refused[order], wrong[order], rng=5)
    assert [replace(run, row=int(order[run.row])) for run in shuffled.runs] == list(ranking.runs)
    assert [pair.pvalue_max_t for pair in shuffled.pairs] == [pair.pvalue_max_t for pair in ranking.pairs]


def test_runs_without_standard_error_are_listed_separately_with_reason() -> None:
    refused, wrong = runs(k=5)
    refused[1] = False
    wrong[3] |= refused[3]
    scored = np.ones_like(wrong)
    scored[4] = False
    ranking = rank_runs(refused, wrong, scored, rng=1)
    assert [run.row for run in ranking.runs] == [2, 0]
    assert len(ranking.pairs) == 1
    boundary = refusal_index(refused=refused[3], wrong=wrong[3])
    assert [(run.row, run.status, run.reason, run.letters) for run in ranking.unranked] == [
        (1, "undefined", "nobody_refused", ""),
        (3, "boundary", "zero_cell:refused_right", ""),
        (4, "undefined", "no_questions", ""),
    ]
    assert (ranking.unranked[0].estimate, ranking.unranked[0].low) == (None, None)
    assert (ranking.unranked[1].estimate, ranking.unranked[1].low) == (1.0, boundary.confidence_interval().low)
    assert rank_runs(refused, wrong, metric="refusal_rate").unranked[0].reason == "no_variation"


def test_identical_runs_tie() -> None:
    refused, wrong = runs(k=2)
    ranking = rank_runs(refused[[0, 1, 0]], wrong[[0, 1, 0]], rng=1)
    (pair,) = (pair for pair in ranking.pairs if {pair.first, pair.second} == {0, 2})
    assert (pair.estimate, pair.standard_error, pair.pvalue, pair.pvalue_max_t) == (0.0, 0.0, 1.0, 1.0)
    assert all(math.isnan(end) for end in pair.simultaneous_interval)
    letters = {run.row: run.letters for run in ranking.runs}
    assert letters[0] == letters[2]


def test_shared_questions_reduce_standard_errors_of_differences() -> None:
    # The same runs, over the same questions and over different ones.
    refused, wrong = runs(n=300)
    apart = [
        np.kron(np.eye(5, dtype=bool), np.ones((1, 300), bool)) & np.tile(matrix, 5) for matrix in (refused, wrong)
    ]
    scored = np.kron(np.eye(5, dtype=bool), np.ones((1, 300), bool))
    paired, unpaired = rank_runs(refused, wrong, rng=1), rank_runs(*apart, scored, rng=1)
    assert [run.estimate for run in paired.runs] == [run.estimate for run in unpaired.runs]
    errors = [[pair.standard_error for pair in ranking.pairs] for ranking in (paired, unpaired)]
    assert np.mean(errors[0]) < np.mean(errors[1])


@pytest.mark.parametrize("k", [0, 1])
def test_ranking_fewer_than_two_runs_raises(k: int) -> None:
    with pytest.raises(ValueError, match=rf"refused must have two rows or more, the runs to rank, got {k}"):
        rank_runs(*runs(k=k))


def test_single_rankable_run_has_no_pairs() -> None:
    refused, wrong = runs(k=2)
    refused[1] = False
    ranking = rank_runs(refused, wrong)
    assert [(run.row, run.letters) for run in ranking.runs] == [(0, "a")]
    assert [(run.row, run.reason) for run in ranking.unranked] == [(1, "nobody_refused")]
    assert (ranking.pairs, ranking.critical_value) == ((), None)


def test_at_most_eight_fields_are_public() -> None:
    assert max(len(fields(result)) for result in (RankedRun, PairwiseDifference, Ranking)) <= 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "ri"}, r"metric must be one of correct_rate, .*, got 'ri'"),
        ({"adjustment": "bonferroni"}, r"adjustment must be one of max-t, holm, got 'bonferroni'"),
        ({"confidence_level": 95}, r"confidence_level must lie strictly between 0 and 1, got 95"),
        ({"n_resamples": 0}, r"n_resamples must be at least 1, got 0"),
        ({"weighted_score_p": -1}, r"weighted_score_p must be a number of at least 0, got -1"),
    ],
)
def test_errors_name_the_argument(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        rank_runs(*runs(), **options)


@pytest.mark.slow
@others_nightly("scenario", simulation.EQUAL, ids=str)
def test_family_wise_error_of_equal_runs(scenario: simulation.Scenario) -> None:
    rows = list(simulation.equal_rows(scenario, 300, np.random.default_rng(12)))
    assert [row.quantity for row in rows if not row.holds] == []
    single, holm, max_t, _ = rows
    assert holm.value <= max_t.value < single.value


@pytest.mark.slow
def test_planted_differences_are_found_and_equal_runs_tie() -> None:
    rows = list(simulation.planted_rows(simulation.PLANTED, 300, np.random.default_rng(13)))
    assert len(rows) == 6
    assert [row.quantity for row in rows if not row.holds] == []


# --- Compact letter display


def matrix(k: int, pairs) -> np.ndarray:
    """Build the symmetric matrix in which the given pairs differ."""
    differs = np.zeros((k, k), bool)
    for i, j in pairs:
        differs[i, j] = differs[j, i] = True
    return differs


@st.composite
def significance(draw, largest: int = 9) -> np.ndarray:
    k = draw(st.integers(0, largest))
    pairs = list(combinations(range(k), 2))
    return matrix(k, [pair for pair in pairs if draw(st.booleans())])


def letter_sets(differs: np.ndarray) -> list[set[str]]:
    return [set(letters.split() if " " in letters else letters) for letters in compact_letters(differs)]


@settings(deadline=None)
@given(significance())
def test_items_share_a_letter_exactly_when_they_do_not_differ(differs: np.ndarray) -> None:
    letters = letter_sets(differs)
    for i, j in combinations(range(len(differs)), 2):
        assert bool(letters[i] & letters[j]) == (not differs[i, j])
    assert all(letters)


@settings(deadline=None)
@given(significance(largest=6))
def test_letters_against_brute_force_over_all_sets_of_ties(differs: np.ndarray) -> None:
    k = len(differs)
    every = [set(group) for size in range(1, k + 1) for group in combinations(range(k), size)]
    ties = [group for group in every if not differs[np.ix_(sorted(group), sorted(group))].any()]
    maximal = sorted(sorted(group) for group in ties if not any(group < other for other in ties))
    letters = letter_sets(differs)
    used = sorted(set().union(*letters))
    assert [[i for i in range(k) if letter in letters[i]] for letter in used] == maximal


@settings(deadline=None)
@given(st.lists(st.floats(0, 10), max_size=12))
def test_distance_based_letters_are_at_most_as_many_as_items(values) -> None:
    ordered = np.sort(values)
    letters = compact_letters(np.abs(ordered[:, None] - ordered) > 1)
    assert len(set("".join(letters))) <= len(values)
    # Each item's letters follow one another without a gap, and begin no earlier than those of the item before.
    assert all(word in "abcdefghijkl" for word in letters)
    assert list(letters) == sorted(letters, key=lambda word: (word[0], word[-1]))


@pytest.mark.parametrize(
    ("k", "pairs", "letters"),
    [
        (0, [], ()),
        (1, [], ("a",)),
        (3, [], ("a", "a", "a")),
        (3, [(0, 1), (0, 2), (1, 2)], ("a", "b", "c")),
        (4, [(0, 2), (0, 3), (1, 3)], ("a", "ab", "bc", "c")),
        (4, [(0, 1), (2, 3)], ("ab", "cd", "ac", "bd")),
    ],
)
def test_letters_of_small_cases(k: int, pairs, letters: tuple[str, ...]) -> None:
    assert compact_letters(matrix(k, pairs)) == letters


def test_letters_beyond_z_use_two_characters_and_separators() -> None:
    letters = compact_letters(~np.eye(28, dtype=bool))
    assert letters[25:] == ("z", "aa", "ab")
    chain = compact_letters(np.abs(np.subtract.outer(np.arange(29), np.arange(29))) > 1)
    assert chain[26:] == ("z aa", "aa ab", "ab")


@pytest.mark.parametrize(
    "differs",
    [np.zeros((2, 3), bool), np.triu(np.ones((3, 3), bool), 1), np.ones((2, 2), bool), np.zeros((2, 2)), [True]],
)
def test_errors_say_what_the_matrix_must_be(differs) -> None:
    with pytest.raises(ValueError, match=r"^differs must be a symmetric matrix of truth values.*matrix of p-values"):
        compact_letters(differs)


# --- Adjusted p-values

PVALUES = st.lists(st.floats(0, 1) | st.sampled_from([0.0, 0.01, 0.02, 1.0]), min_size=1, max_size=6)


def closed_test(m: int, pvalue_of_set) -> list[float]:
    """Adjust by the closure principle: the largest p-value of any intersection that a hypothesis is part of."""
    sets = [list(chosen) for size in range(1, m + 1) for chosen in combinations(range(m), size)]
    values = [pvalue_of_set(chosen) for chosen in sets]
    return [max(value for chosen, value in zip(sets, values, strict=True) if i in chosen) for i in range(m)]


def test_holm_against_r() -> None:
    # r/multiple_testing.R: p.adjust(p, method = "holm")
    pvalues = np.array([0.011, 0.02, 0.04, 0.0004, 0.5, 0.02, 0.9])
    np.testing.assert_allclose(holm(pvalues), [0.0660, 0.1000, 0.1200, 0.0028, 1, 0.1000, 1], rtol=1e-12)


@given(PVALUES)
def test_holm_against_the_closed_bonferroni_test(values) -> None:
    pvalues = np.array(values)
    expected = closed_test(len(values), lambda chosen: min(1.0, len(chosen) * pvalues[chosen].min()))
    np.testing.assert_allclose(holm(pvalues), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_max_t_against_the_closed_test_of_the_largest_statistic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n_draws = 5, 500
    draws = np.abs(rng.standard_normal((n_draws, m)) @ rng.standard_normal((m, m)))
    statistics = np.abs(rng.standard_normal(m)) * 4

    def pvalue_of_set(chosen) -> float:
        return (1 + (draws[:, chosen].max(axis=1) >= statistics[chosen].max()).sum()) / (n_draws + 1)

    # With p-values of 1 Holm's bound is 1.
    adjusted, largest = step_down_max_t(statistics, np.ones(m), [draws[:200], draws[200:]])
    np.testing.assert_allclose(adjusted, closed_test(m, pvalue_of_set), rtol=1e-12)
    np.testing.assert_array_equal(largest, draws.max(axis=1))


def test_max_t_is_bounded_by_holm_with_few_draws() -> None:
    pvalues = np.array([1e-12, 0.04, 0.3])
    adjusted, _ = step_down_max_t(np.array([7.1, 2.05, 1.04]), pvalues, [np.zeros((9, 3))])
    np.testing.assert_allclose(adjusted, [3e-12, 0.08, 0.1], rtol=1e-12)


def test_holm_of_no_hypotheses_is_empty() -> None:
    assert holm(np.array([])).shape == (0,)
