"""A score compared with the model's own refusals at the same refusal rate."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import norm
from tests.tiers import others_nightly

from refusal_index import ContingencyTable, refusal_index
from refusal_index.stats import compare_metrics, tetrachoric, upper_orthant
from refusal_index.stats.selective import RefusalComparison, compare_with_refusals

QUESTIONS = st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), min_size=1, max_size=25)
SIX_VALUES = np.array([-0.8, -0.2, 0.3, 0.8, 1.3])


def spearman(rho: float) -> float:
    return 6 / math.pi * math.asin(rho / 2)


def drawn(n: int, rng: np.random.Generator, correlations=(0.5, 0.7, 0.4), rates=(0.3, 0.6), ends=None):
    """Sample score, refusal and error: correlations of refusal and error, of score and error, of score and refusal."""
    of_refusals, of_score, of_both = correlations
    root = np.linalg.cholesky([[1, of_both, of_refusals], [of_both, 1, of_score], [of_refusals, of_score, 1]])
    refusal, doubt, error = root @ rng.standard_normal((3, n))
    score = -doubt if ends is None else -np.searchsorted(ends, doubt).astype(float)
    return score, refusal > -ndtri(rates[0]), error > -ndtri(rates[1])


def share_refused(score: np.ndarray, m: int) -> np.ndarray:
    """Share of each question refused among the m lowest scores, question by question."""
    return np.array([np.clip((m - np.sum(score < s)) / np.sum(score == s), 0, 1) for s in score])


@pytest.mark.parametrize("seed", range(5))
def test_score_table_against_brute_force_over_tie_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, refused, wrong = rng.integers(0, 3, 6), np.arange(6) < 2 + seed % 3, rng.permutation(6) < 3
    orders = [order for order in itertools.permutations(range(6)) if np.all(np.diff(score[list(order)]) >= 0)]
    both = np.mean([wrong[list(order[: refused.sum()])].sum() for order in orders])
    found = compare_with_refusals(score, refused, wrong)
    m = refused.sum()
    assert found.score_cells == pytest.approx((both, m - both, 3 - both, 3 - m + both), abs=1e-12)
    assert found.cut == np.sort(score)[m - 1]
    assert found.table == ContingencyTable.from_arrays(refused, wrong)


@given(QUESTIONS)
def test_differences_match_two_tables_with_equal_margins(questions) -> None:
    score, refused, wrong = (np.array(column) for column in zip(*questions, strict=True))
    found = compare_with_refusals(score, refused, wrong)
    cells, counts = np.array(found.score_cells), np.array(found.table.counts)
    for margin in ([0, 1], [2, 3], [0, 2], [1, 3]):
        assert cells[margin].sum() == pytest.approx(counts[margin].sum(), abs=1e-9)
    assert cells.min() >= -1e-12
    index, rates = found.refusal_index, found.answered_error_rate
    if index.status != "undefined":
        assert index.refusals == pytest.approx(refusal_index(found.table).estimate, abs=1e-12)
        assert index.score == pytest.approx(spearman(float(tetrachoric(*np.abs(cells)))), abs=1e-9)
        assert rates.refusals == pytest.approx(counts[2] / counts[2:].sum())
        assert rates.score == pytest.approx(cells[2] / cells[2:].sum())
    correct = found.correct_rate
    assert (correct.score, correct.refusals) == pytest.approx((cells[3] / counts.sum(), counts[3] / counts.sum()))
    for one in (index, rates, correct):
        assert (one.standard_error is None) == (one.status != "ok") == (one.reason is not None)
        assert math.isnan(one.confidence_interval().low) == (one.status != "ok")
        if one.estimate is not None:
            assert one.estimate == one.score - one.refusals


@given(QUESTIONS)
def test_monotone_transform_and_question_order_do_not_matter(questions) -> None:
    score, refused, wrong = (np.array(column) for column in zip(*questions, strict=True))
    found, other = (
        compare_with_refusals(*columns)
        for columns in ((score, refused, wrong), (np.exp(score)[::-1], refused[::-1], wrong[::-1]))
    )
    for one, two in (
        (found.refusal_index, other.refusal_index),
        (found.answered_error_rate, other.answered_error_rate),
        (found.correct_rate, other.correct_rate),
    ):
        assert (one.status, one.reason) == (two.status, two.reason)
        assert (one.estimate, one.standard_error) == pytest.approx((two.estimate, two.standard_error), abs=1e-12)


def influence_by_hand(score, refused, wrong, ranks: int) -> tuple[np.ndarray, ...]:
    """Shares of questions refused by score, and influence of each on p11 by the score and by the model, r and mu."""
    m = int(refused.sum())
    share = share_refused(score, m)
    steps = share_refused(score, m + ranks) - share_refused(score, m - ranks)
    at_cut = (steps @ wrong) / (2 * ranks)
    by_score = share * wrong - at_cut * share + at_cut * refused
    return tuple(x - x.mean() for x in (by_score, refused & wrong, refused, wrong))


@pytest.mark.parametrize(("ends", "rate"), [(None, 0.3), (SIX_VALUES, 0.3), (SIX_VALUES, 0.04), (None, 0.96)])
def test_standard_errors_against_numerical_derivatives(ends, rate: float) -> None:
    score, refused, wrong = drawn(400, np.random.default_rng(8), (0.3, 0.2, 0.1), (rate, 0.6), ends)
    found = compare_with_refusals(score, refused, wrong)
    m = int(refused.sum())
    # 20 ranks to either side of the cut, the root of 400, but no further than to the nearer end.
    influence = influence_by_hand(score, refused, wrong, min(20, m, 400 - m))
    at = np.array([found.score_cells[0], found.table.refused_wrong, m, wrong.sum()]) / 400

    def index(both: float, r: float, mu: float) -> float:
        return spearman(float(tetrachoric(both, r - both, mu - both, 1 - r - mu + both)))

    for one, metric in (
        (found.refusal_index, index),
        (found.answered_error_rate, lambda both, r, mu: (mu - both) / (1 - r)),
        (found.correct_rate, lambda both, r, mu: 1 - r - mu + both),
    ):

        def difference(x, metric=metric) -> float:
            return metric(x[0], x[2], x[3]) - metric(x[1], x[2], x[3])

        slopes = [(difference(at + step) - difference(at - step)) / 2e-6 for step in 1e-6 * np.eye(4)]
        expected = np.linalg.norm(slopes @ np.array(influence)) / 400
        assert one.standard_error == pytest.approx(expected, rel=1e-5)
        assert one.estimate == pytest.approx(difference(at), abs=1e-12)


def test_wide_tie_at_cut_uses_only_its_own_error_rate() -> None:
    # 100 refused of 300 in three ties of 100: the cut moved into the middle of the second, 17 ranks to either side.
    score = np.repeat([0.0, 1.0, 2.0], [80, 140, 80])
    refused, wrong = np.arange(300) % 2 == 0, np.arange(300) % 3 == 0
    tied = score == 1
    share = (score == 0) + tied * (refused.sum() - 80) / 140
    gap = (share - refused) * (wrong - wrong[tied].mean())
    found = compare_with_refusals(score, refused, wrong).answered_error_rate
    influence = -(gap - gap.mean()) + found.estimate * (refused - refused.mean())
    expected = np.linalg.norm(influence / (1 - refused.mean())) / 300
    assert found.standard_error == pytest.approx(expected, rel=1e-12)


@others_nightly("ends", [SIX_VALUES, None])
def test_standard_errors_against_a_bootstrap_over_questions(ends) -> None:
    rng = np.random.default_rng(2)
    score, refused, wrong = drawn(500, rng, correlations=(0.4, 0.8, 0.2), ends=ends)
    found = compare_with_refusals(score, refused, wrong)
    rows = rng.integers(500, size=(600, 500))
    samples = [compare_with_refusals(score[i], refused[i], wrong[i]) for i in rows]
    for name in ("refusal_index", "answered_error_rate", "correct_rate"):
        bootstrap = np.std([getattr(sample, name).estimate for sample in samples])
        # The standard error of that deviation is 3%.
        assert getattr(found, name).standard_error == pytest.approx(bootstrap, rel=0.07)


def test_uninformative_score_has_index_0_and_overall_error_rate() -> None:
    _, refused, wrong = drawn(300, np.random.default_rng(3))
    found = compare_with_refusals(np.zeros(300), refused, wrong)
    own = refusal_index(found.table)
    assert found.refusal_index.score == pytest.approx(0, abs=1e-12)
    assert found.refusal_index.standard_error == pytest.approx(own.standard_error, rel=1e-9)
    assert found.answered_error_rate.score == pytest.approx(wrong.mean())


def test_two_valued_score_matches_comparison_of_two_runs() -> None:
    rng = np.random.default_rng(4)
    _, refused, wrong = drawn(200, rng)
    other = rng.permutation(refused)
    found = compare_with_refusals(~other, refused, wrong)
    two_runs = compare_metrics([other, refused], [wrong, wrong])["refusal_index"]
    assert found.refusal_index.estimate == pytest.approx(two_runs.estimate, abs=1e-12)


def test_interval_against_theory() -> None:
    found = compare_with_refusals(*drawn(300, np.random.default_rng(5)))
    for one in (found.refusal_index, found.answered_error_rate, found.correct_rate):
        reach = norm.ppf(0.9) * one.standard_error
        assert one.confidence_interval(0.8) == pytest.approx((one.estimate - reach, one.estimate + reach))


def test_refusing_the_same_questions_is_a_constant_difference() -> None:
    _, refused, wrong = drawn(200, np.random.default_rng(6))
    found = compare_with_refusals(~refused, refused, wrong)
    for one in (found.refusal_index, found.answered_error_rate, found.correct_rate):
        assert (one.estimate, one.standard_error) == (0, None)
        assert (one.status, one.reason) == ("boundary", "constant_difference")


def of_table(counts, score) -> RefusalComparison:
    codes = np.repeat(np.arange(4), counts)
    return compare_with_refusals(score, codes < 2, codes % 2 == 0)


@pytest.mark.parametrize(
    ("counts", "reason", "rate"),
    [
        ((0, 0, 0, 0), "no_questions", None),
        ((0, 0, 3, 1), "nobody_refused", 0.75),
        ((3, 1, 0, 0), "everybody_refused", None),
        ((2, 0, 2, 0), "all_wrong", 1.0),
        ((0, 2, 0, 2), "all_right", 0.0),
    ],
)
def test_degenerate_margin_makes_comparison_undefined(counts, reason: str, rate) -> None:
    found = of_table(counts, np.arange(sum(counts)))
    index, rates = found.refusal_index, found.answered_error_rate
    assert (index.score, index.refusals, index.estimate, index.standard_error) == (None,) * 4
    assert (index.status, index.reason, rates.reason) == ("undefined", reason, reason)
    assert (rates.score, rates.refusals, rates.standard_error) == (rate, rate, None)
    assert (rates.estimate, rates.status) == ((None, "undefined") if rate is None else (0, "boundary"))
    assert (found.cut, found.score_cells) == (None, counts)
    correct = counts[3] / sum(counts) if sum(counts) else None
    assert (found.correct_rate.score, found.correct_rate.refusals) == (correct, correct)
    assert (found.correct_rate.standard_error, found.correct_rate.reason) == (None, reason)


def test_empty_cell_has_estimate_but_no_interval() -> None:
    perfect = of_table((20, 10, 10, 20), np.repeat([0, 1, 0, 1], [20, 10, 10, 20]))
    assert perfect.refusal_index.reason == "score:zero_cell:refused_right+answered_wrong"
    assert (perfect.refusal_index.score, perfect.refusal_index.status) == (1, "boundary")
    assert perfect.refusal_index.estimate == 1 - refusal_index(perfect.table).estimate
    assert (perfect.answered_error_rate.score, perfect.answered_error_rate.reason) == (0, "score:no_variation")
    same = of_table((20, 0, 10, 20), np.arange(50))
    assert same.refusal_index.reason == "score:zero_cell:refused_right;refusals:zero_cell:refused_right"
    assert same.answered_error_rate.reason == "constant_difference"
    worst = of_table((20, 10, 0, 20), np.r_[np.full(19, 2), 0, np.arange(30) % 2])
    assert -1 < worst.refusal_index.score < 0
    assert worst.refusal_index.refusals == 1
    assert worst.refusal_index.reason == "refusals:zero_cell:answered_wrong"
    assert worst.answered_error_rate.reason == "refusals:no_variation"
    all_wrong = of_table((20, 10, 10, 0), np.arange(40) % 3)
    assert (all_wrong.answered_error_rate.refusals, all_wrong.answered_error_rate.standard_error) == (1, None)
    assert all_wrong.answered_error_rate.reason == "refusals:no_variation"


def test_invalid_input_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"score and wrong must have one value .* got shapes \(1,\) and \(2,\)"):
        compare_with_refusals([1], [True, False], [True, False])
    with pytest.raises(ValueError, match="refused and wrong must have one value"):
        compare_with_refusals([1, 2], [True], [True, False])
    with pytest.raises(ValueError, match="score must be finite"):
        compare_with_refusals([1, np.nan], [True, False], [True, False])
    with pytest.raises(TypeError, match="refused must hold truth values"):
        compare_with_refusals([1, 2], [0.5, 1], [True, False])


def true_differences(correlations, rates, ends) -> tuple[float, float, float]:
    (r, mu), (h, k) = rates, -ndtri(rates)
    both = [float(upper_orthant(h, k, rho)) for rho in correlations[:2]]
    if ends is not None:
        tails = np.r_[1, norm.sf(ends), 0]
        beyond = np.r_[mu, upper_orthant(ends, k, correlations[1]), 0]
        both[1] = float(np.interp(r, tails[::-1], beyond[::-1]))
    refusals, score = (spearman(float(tetrachoric(p, r - p, mu - p, 1 - r - mu + p))) for p in both)
    return score - refusals, (both[0] - both[1]) / (1 - r), both[1] - both[0]


@pytest.mark.nightly
@pytest.mark.parametrize("ends", [None, SIX_VALUES, norm.ppf([0.5, 0.6, 0.7, 0.8, 0.9])], ids=["all", "six", "edge"])
@pytest.mark.parametrize("correlations", [(0.5, 0.7, 0.4), (0.6, 0.3, 0.2)])
@pytest.mark.parametrize("rates", [(0.3, 0.6), (0.5, 0.6)])
def test_coverage_of_nominal_95_per_cent(rates, correlations, ends) -> None:
    # "edge": at a refusal rate of one half the cut lies where a tie ends, and jumps between it and the next.
    rng, truth = np.random.default_rng(12), true_differences(correlations, np.array(rates), ends)
    samples = [compare_with_refusals(*drawn(800, rng, correlations, rates, ends)) for _ in range(1000)]
    for i, name in enumerate(("refusal_index", "answered_error_rate", "correct_rate")):
        intervals = [getattr(sample, name).confidence_interval() for sample in samples]
        # The standard error of the share is .007.
        assert 0.93 <= np.mean([low <= truth[i] <= high for low, high in intervals]) <= 0.97
