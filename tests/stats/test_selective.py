"""Selective answering by a score: curves, cuts, bounds on the risk, and value at a target."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom, binomtest
from tests.tiers import others_nightly

from refusal_index import ContingencyTable
from refusal_index.plugins.studies.curves import empirical_accuracy_refusal_curve
from refusal_index.stats.baseline import utility
from refusal_index.stats.calibration import auroc
from refusal_index.stats.intervals import wilson_interval
from refusal_index.stats.selective import (
    RiskThreshold,
    aurc,
    prediction_rejection_ratio,
    risk_controlling_threshold,
    risk_coverage_curve,
    selective_report,
    utility_threshold,
    value_at_target,
)

# --- Risk-coverage and accuracy-refusal curves and the areas under them

QUESTIONS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=25)


def arrays_of(questions) -> tuple[np.ndarray, np.ndarray]:
    score, outcome = np.array(questions, float).T
    return score, outcome.astype(bool)


@pytest.mark.parametrize("seed", range(4))
def test_curves_against_brute_force_over_tie_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, outcome = rng.integers(0, 3, 6), rng.random(6) < 0.5
    orders = [order for order in itertools.permutations(range(6)) if np.all(np.diff(score[list(order)]) <= 0)]
    wrong = np.mean([np.cumsum(~outcome[list(order)]) for order in orders], axis=0)
    coverage, risk = risk_coverage_curve(score, outcome)
    np.testing.assert_allclose(coverage, np.arange(1, 7) / 6, rtol=1e-15)
    np.testing.assert_allclose(risk, wrong / np.arange(1, 7), atol=1e-12)
    refusal_rate, correct_rate = empirical_accuracy_refusal_curve(score, outcome)
    right = np.mean([np.cumsum(outcome[list(order)]) for order in orders], axis=0)
    np.testing.assert_allclose(refusal_rate, np.arange(7) / 6, rtol=1e-15)
    np.testing.assert_allclose(correct_rate, np.append(right[::-1], 0) / 6, atol=1e-12)


@given(QUESTIONS)
def test_excess_against_the_best_and_the_worst_order(questions) -> None:
    score, outcome = arrays_of(questions)
    result = aurc(score, outcome)
    if result.status == "boundary":
        assert result.excess is None
        assert result.estimate == (0 if outcome.all() else 1)
        return
    best, worst = aurc(outcome, outcome), aurc(~outcome, outcome)
    assert best.excess == 0
    assert best.estimate - 1e-12 <= result.estimate <= worst.estimate + 1e-12
    assert result.excess == pytest.approx(result.estimate - best.estimate, abs=1e-12)
    # Equal scores for all give the error rate at every coverage.
    assert aurc(np.zeros(outcome.size), outcome).estimate == pytest.approx(1 - outcome.mean(), abs=1e-12)


@given(QUESTIONS)
def test_area_under_the_accuracy_refusal_curve_against_theory(questions) -> None:
    score, outcome = arrays_of(questions)
    area, right = auroc(score, outcome).estimate, outcome.mean()
    expected = right * (right / 2 + (1 - right) * area) if area is not None else right / 2
    refusal_rate, correct_rate = empirical_accuracy_refusal_curve(score, outcome)
    assert np.trapezoid(correct_rate, refusal_rate) == pytest.approx(expected, abs=1e-12)
    assert (correct_rate[0], correct_rate[-1]) == (right, 0)
    assert np.all(np.diff(correct_rate) <= 1e-15)


@given(QUESTIONS)
def test_curves_depend_only_on_score_order(questions) -> None:
    score, outcome = arrays_of(questions)
    for function in (risk_coverage_curve, empirical_accuracy_refusal_curve):
        np.testing.assert_array_equal(function(score, outcome), function(np.exp(score), outcome))
        np.testing.assert_allclose(function(score[::-1], outcome[::-1]), function(score, outcome), atol=1e-15)


def test_areas_against_facts_for_a_gaussian_refusal_score() -> None:
    # Latent refusal score and error with correlation .5, error rate .92: section 7 of the facts about the method.
    rng, n = np.random.default_rng(12), 400_000
    refusal, noise = rng.standard_normal((2, n))
    wrong = 0.5 * refusal + np.sqrt(0.75) * noise > ndtri(0.08)
    # Sampling errors are near .0005 (the area under the ROC curve has 32,000 right answers).
    assert auroc(-refusal, ~wrong).estimate == pytest.approx(0.77853, abs=0.005)
    result = aurc(ndtr(-refusal), ~wrong)
    assert result.estimate == pytest.approx(0.83667, abs=0.003)
    assert result.excess == pytest.approx(0.11872, abs=0.003)
    assert result.n_false == wrong.sum()


def test_least_area_against_theory_for_many_questions() -> None:
    outcome = np.arange(100_000) < 25_000
    least = aurc(outcome, outcome).estimate
    assert least == pytest.approx(0.75 + 0.25 * np.log(0.25), abs=2e-5)


def test_curves_without_questions_or_with_constant_outcomes() -> None:
    assert aurc([], []) == aurc(np.array([]), np.array([], bool))
    assert (aurc([], []).status, aurc([], []).reason) == ("undefined", "no_questions")
    assert (aurc([1, 2], [True, True]).reason, aurc([1, 2], [False, False]).reason) == ("all_true", "all_false")
    assert all(part.size == 0 for part in risk_coverage_curve([], []))
    assert all(np.isnan(part).all() for part in empirical_accuracy_refusal_curve([], []))


@pytest.mark.parametrize("function", [aurc, risk_coverage_curve, empirical_accuracy_refusal_curve])
def test_invalid_input_is_an_error(function) -> None:
    with pytest.raises(TypeError, match="outcome must hold truth values"):
        function([0.1, 0.2], [0, 2])
    with pytest.raises(ValueError, match="was one of them filtered"):
        function([0.1, 0.2], [True])


# --- Prediction rejection ratio

RIGHT_AND_WRONG = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=25).filter(
    lambda questions: len({right for _, right in questions}) == 2
)


def columns_of(questions) -> tuple[np.ndarray, np.ndarray]:
    score, outcome = (np.array(column) for column in zip(*questions, strict=True))
    return score, outcome


def area(kept_right: np.ndarray) -> float:
    """Mean share of right answers among the questions kept, most certain first, as lm-polygraph computes it."""
    return float(np.mean(np.cumsum(kept_right) / np.arange(1, kept_right.size + 1)))


@pytest.mark.parametrize("seed", range(3))
def test_ratio_against_areas_over_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, outcome = rng.integers(0, 3, 7), rng.permutation(7) < 4
    orders = [list(order) for order in itertools.permutations(range(7))]
    of_score = [area(outcome[order]) for order in orders if np.all(np.diff(score[order]) <= 0)]
    random = np.mean([area(outcome[order]) for order in orders])
    best = area(np.sort(outcome)[::-1])
    found = prediction_rejection_ratio(score, outcome)
    assert found.estimate == pytest.approx((np.mean(of_score) - random) / (best - random), abs=1e-9)
    assert (found.status, found.reason) == ("ok", None)


@given(RIGHT_AND_WRONG)
def test_ratio_against_the_areas_under_the_risk_coverage_curve(questions) -> None:
    score, outcome = columns_of(questions)
    found, curve, mu = prediction_rejection_ratio(score, outcome), aurc(score, outcome), 1 - outcome.mean()
    assert found.estimate == pytest.approx((mu - curve.estimate) / (mu - curve.estimate + curve.excess), abs=1e-9)
    assert found.estimate <= 1 + 1e-12
    assert prediction_rejection_ratio(outcome, outcome).estimate == pytest.approx(1, abs=1e-12)
    assert prediction_rejection_ratio(np.zeros(outcome.size), outcome).estimate == pytest.approx(0, abs=1e-12)


@given(RIGHT_AND_WRONG)
def test_malinin_gales_ratio_matches_roc_curve(questions) -> None:
    # Malinin and Gales: remaining errors over all questions; random rejection is a straight line to 0.
    score, outcome = columns_of(questions)

    def area_below(order) -> float:
        coverage, risk = risk_coverage_curve(order, outcome)
        return float(np.trapezoid(np.r_[0, risk * coverage], np.r_[0, coverage]))

    random = (1 - outcome.mean()) / 2
    ratio = (random - area_below(score)) / (random - area_below(outcome))
    assert ratio == pytest.approx(2 * auroc(score, outcome).estimate - 1, abs=1e-9)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [([], "no_questions"), ([True], "all_true"), ([True, True], "all_true"), ([False, False, False], "all_false")],
)
def test_ratio_is_undefined_for_empty_or_constant_outcomes(outcome, reason: str) -> None:
    found = prediction_rejection_ratio(np.zeros(len(outcome)), np.array(outcome, bool))
    assert (found.estimate, found.status, found.reason) == (None, "undefined", reason)


# --- Mean value at a confidence target

ANSWERED_QUESTIONS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)
TARGETS = st.sampled_from([0, 1 / 3, 0.5, 0.75, 0.9])


@given(ANSWERED_QUESTIONS, TARGETS)
def test_mean_and_standard_error_against_their_definition(questions, target: float) -> None:
    refused, wrong = (np.array(column) for column in zip(*questions, strict=True))
    values = np.where(refused, 0, np.where(wrong, -target / (1 - target), 1))
    found = value_at_target(refused, wrong, target)
    assert found.estimate == pytest.approx(values.mean(), abs=1e-12)
    counts = [np.sum(~refused & ~wrong), np.sum(~refused & wrong), np.sum(refused)]
    assert [found.n_right, found.n_wrong, found.n_declined] == counts
    assert (found.target, found.penalty) == (target, pytest.approx(target / (1 - target)))
    if np.ptp(values) == 0:
        assert (found.standard_error, found.status, found.reason) == (None, "boundary", "no_variation")
    else:
        assert found.standard_error == pytest.approx(values.std() / math.sqrt(values.size), rel=1e-9)
        assert (found.status, found.reason) == ("ok", None)


@given(ANSWERED_QUESTIONS, TARGETS)
def test_interval_matches_utility_interval(questions, target: float) -> None:
    refused, wrong = (np.array(column) for column in zip(*questions, strict=True))
    found = value_at_target(refused, wrong, target)
    expected = utility(ContingencyTable.from_arrays(refused, wrong), found.penalty, confidence_level=0.9)
    assert found.confidence_interval(0.9) == pytest.approx((expected.low, expected.high), abs=1e-12)
    low, high = found.confidence_interval()
    assert low <= found.estimate <= high


def test_answering_at_target_accuracy_has_value_0() -> None:
    wrong = np.arange(100) < 25
    assert value_at_target(np.zeros(100, bool), wrong, 0.75).estimate == pytest.approx(0, abs=1e-12)
    assert value_at_target(np.ones(100, bool), wrong, 0.75).estimate == 0


def test_value_is_undefined_without_questions() -> None:
    found = value_at_target([], [], 0.5)
    assert (found.estimate, found.standard_error) == (None, None)
    assert (found.status, found.reason) == ("undefined", "no_questions")
    assert (found.n_right, found.n_wrong, found.n_declined) == (0, 0, 0)
    assert all(math.isnan(end) for end in found.confidence_interval())


def test_invalid_input_of_the_value_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"confidence must lie in \[0, 1\), got 1.0"):
        value_at_target([True], [True], 1.0)
    with pytest.raises(ValueError, match="refused and wrong must have one value"):
        value_at_target([True], [True, False], 0.5)


# --- The threshold with the highest utility

SCORED_QUESTIONS = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=30)


@given(SCORED_QUESTIONS, st.sampled_from([0, 1 / 3, 1, 3]))
def test_utility_threshold_against_brute_force(questions, penalty: float) -> None:
    score, right = (np.array(column) for column in zip(*questions, strict=True))
    found = utility_threshold(score, right, penalty)
    cuts = [-math.inf, *np.unique(score)[1:].tolist(), math.inf]
    worth = [np.sum(np.where(right, 1, -penalty)[score >= cut]) / score.size for cut in cuts]
    assert found.utility == pytest.approx(max(worth), abs=1e-12)
    assert found.cut == next(cut for cut, one in zip(cuts, worth, strict=True) if one > max(worth) - 1e-9)
    assert found.coverage == pytest.approx(np.mean(score >= found.cut))
    assert (found.penalty, found.n) == (penalty, score.size)
    assert (found.status == "ok") == (found.reason is None) == math.isfinite(found.cut)


def test_utility_threshold_when_answering_all_or_none() -> None:
    assert utility_threshold([1, 2], [True, True], 9).cut == -math.inf
    assert utility_threshold([1, 2], [True, True], 9).reason == "answer_all"
    refuse = utility_threshold([1, 2], [False, False], 1)
    assert (refuse.cut, refuse.utility, refuse.coverage) == (math.inf, 0, 0)
    assert (refuse.status, refuse.reason) == ("boundary", "refuse_all")
    none = utility_threshold([], [], 1)
    assert (none.cut, none.utility, none.coverage) == (None, None, None)
    assert (none.status, none.reason, none.n) == ("undefined", "no_questions", 0)
    # Each of three wrong answers costs a third of the right one: answering all is worth 0, like refusing all.
    assert utility_threshold([1, 1, 1, 1], [True, False, False, False], 1 / 3).reason == "answer_all"


def test_report_counts_questions_at_cut_as_answered() -> None:
    score = np.repeat([1.0, 2.0, 3.0], [40, 30, 30])
    right = np.r_[np.zeros(40, bool), np.arange(30) < 18, np.arange(30) < 27]
    report = selective_report(score, right, 2.0, penalty=3, confidence_level=0.9)
    assert report.table == ContingencyTable(40, 0, 15, 45)
    assert (report.cut, report.penalty) == (2.0, 3)
    assert (report.coverage.estimate, report.coverage.name) == (0.6, "coverage")
    assert (report.coverage.low, report.coverage.high) == pytest.approx(wilson_interval(60, 100, 1.6448536269514722))
    exact = binomtest(15, 60).proportion_ci(0.9, method="exact")
    assert (report.error_rate.estimate, report.error_rate.name) == (0.25, "answered_error_rate")
    assert (report.error_rate.low, report.error_rate.high) == pytest.approx(exact, abs=1e-12)
    assert report.utility == utility(report.table, 3, confidence_level=0.9)


@pytest.mark.parametrize("right", [True, False])
def test_interval_of_error_rate_0_or_1_against_theory(right: bool) -> None:
    report = selective_report(np.zeros(20), np.full(20, right), 0.0)
    exact = binomtest(0 if right else 20, 20).proportion_ci(method="exact")
    assert (report.error_rate.low, report.error_rate.high) == pytest.approx(exact, abs=1e-12)
    assert report.penalty == 1


def test_report_is_undefined_without_answers_or_questions() -> None:
    refused = selective_report([1, 2], [True, False], math.inf)
    assert (refused.coverage.estimate, refused.utility.estimate) == (0, 0)
    assert (refused.error_rate.estimate, refused.error_rate.status) == (None, "undefined")
    assert refused.error_rate.reason == "everybody_refused"
    assert selective_report([1, 2], [True, False], -math.inf).coverage.estimate == 1
    empty = selective_report([], [], 0)
    for value in (empty.coverage, empty.error_rate, empty.utility):
        assert (value.estimate, value.status, value.reason) == (None, "undefined", "no_questions")


def test_invalid_cuts_and_penalties_are_errors() -> None:
    with pytest.raises(TypeError, match="cut must be a number, got None of type NoneType; was no cut found"):
        selective_report([0.5], [True], None)
    with pytest.raises(TypeError, match="cut must be a number, got True"):
        selective_report([0.5], [True], True)
    with pytest.raises(ValueError, match="cut must be a number, got NaN"):
        selective_report([0.5], [True], math.nan)
    with pytest.raises(ValueError, match="confidence_level must lie"):
        selective_report([0.5], [True], 0, confidence_level=95)
    for function in (
        lambda p: selective_report([0.5], [True], 0, penalty=p),
        lambda p: utility_threshold([1], [True], p),
    ):
        with pytest.raises(ValueError, match="penalty must be a number of at least 0"):
            function(-1)
    for function in (lambda r: selective_report([0.5], r, 0), lambda r: utility_threshold([0.5], r, 1)):
        with pytest.raises(ValueError, match="score and right must have one value"):
            function([True, False])


# --- The threshold that bounds the error rate

SAMPLES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), min_size=20, max_size=120)


def holds(errors: int, n: int, max_error: float, level: float) -> bool:
    return bool(binom.cdf(errors, n, max_error) <= 1 - level)


@given(SAMPLES, st.sampled_from([0.2, 0.4, 0.7]), st.sampled_from([0.6, 0.9]))
def test_sequential_tests_against_binomial_tail(questions, max_error: float, level: float) -> None:
    score, difficulty = (np.array(column, float) for column in zip(*questions, strict=True))
    wrong = difficulty > score / 3
    grid = np.array([3.0, 6, 9, 12, 15])
    found = risk_controlling_threshold(score, wrong, max_error, grid=grid, confidence_level=level)
    answered = [(int(np.sum(score >= cut)), int(np.sum(wrong[score >= cut]))) for cut in grid[::-1]]
    # A fifth of the grid lies at or above its highest cut, and so on down.
    expected = np.arange(1, 6) / 5 * score.size
    spare = expected * max_error / 2
    start = np.flatnonzero(beta.ppf(level, spare + 1, expected - spare) <= max_error)
    if not start.size:
        assert (found.cut, found.reason, found.tested) == (None, "too_few_questions", ())
        return
    passed = [bool(n) and holds(errors, n, max_error, level) for n, errors in answered[start[0] :]]
    n_tests = passed.index(False) + 1 if False in passed else len(passed)
    assert [one.cut for one in found.tested] == grid[::-1][start[0] :][:n_tests].tolist()
    assert [(one.n_answered, one.n_errors) for one in found.tested] == answered[start[0] :][:n_tests]
    for one in found.tested:
        bound = beta.ppf(level, one.n_errors + 1, one.n_answered - one.n_errors)
        assert one.upper_bound == pytest.approx(1 if one.n_errors == one.n_answered else bound)
    if not passed[0]:
        assert (found.cut, found.status, found.reason) == (None, "undefined", "no_cut_holds")
        assert (found.n_answered, found.n_errors, found.upper_bound) == (None,) * 3
        return
    last = found.tested[n_tests - 1 if passed[n_tests - 1] else n_tests - 2]
    assert (found.status, found.reason, found.max_error) == ("ok", None, max_error)
    assert (found.cut, found.n_answered, found.n_errors, found.upper_bound) == (
        last.cut,
        last.n_answered,
        last.n_errors,
        last.upper_bound,
    )


def test_testing_stops_at_first_failing_cut() -> None:
    # Three blocks of 100: wrong in none, in all, in none. Down to the last the rate is 1/3, within the bound again.
    score, wrong = np.repeat([3, 2, 1], 100), np.repeat([False, True, False], 100)
    found = risk_controlling_threshold(score, wrong, 0.45, grid=[1, 2, 3])
    assert (found.cut, found.n_answered, found.n_errors) == (3, 100, 0)
    assert [one.cut for one in found.tested] == [3, 2]


def test_first_tested_cut_depends_only_on_grid_and_question_count() -> None:
    rng = np.random.default_rng(1)
    firsts = {
        risk_controlling_threshold(rng.normal(0, scale, 300), rng.random(300) < 0.5, 0.3, grid=range(-5, 5))
        .tested[0]
        .cut
        for scale in (0.1, 1, 10, 100)
    }
    assert len(firsts) == 1
    # A value that occurs twice in the grid counts twice: of 90 questions, at a bound of .3, it takes 22.
    questions = np.zeros(90), np.ones(90, bool), 0.3
    assert risk_controlling_threshold(*questions, grid=range(-5, 5)).tested[0].cut == 2
    assert risk_controlling_threshold(*questions, grid=[*range(-5, 4), 4, 4, 4]).tested[0].cut == 4


def risk_above_cut(cut: float, risk) -> float:
    """Error rate among questions whose uniform score is at least the cut, given the error rate by score."""
    return float(risk(np.linspace(cut, 1, 2001)[1:]).mean())


PROFILES = {
    "a little above the bound wherever the score is high": lambda u: np.where(u > 0.1, 0.205, 0.6),
    "falling through the bound": lambda u: 0.5 * (1 - u),
    "lowest in the middle": lambda u: np.where(u > 0.9, 0.3, np.where(u > 0.5, 0.12, 0.32)),
}


@others_nightly("name", PROFILES)
def test_error_bound_holds_in_stated_share_of_samples(name: str) -> None:
    rng, risk, broken = np.random.default_rng(5), PROFILES[name], 0
    for _ in range(1000):
        score = rng.random(800)
        wrong = rng.random(800) < risk(score)
        grid = np.quantile(score[:400], np.arange(20) / 20)
        cut = risk_controlling_threshold(score[400:], wrong[400:], 0.2, grid=grid).cut
        broken += cut is not None and risk_above_cut(cut, risk) > 0.2
    # At most one in ten, with a standard error of .0095; tests that are too cautious would break none.
    assert broken / 1000 < 0.12
    if name == "a little above the bound wherever the score is high":
        assert broken / 1000 > 0.03


def test_no_cut_is_found_without_questions() -> None:
    found = risk_controlling_threshold([], [], 0.1, grid=[0.5])
    assert found == RiskThreshold(None, None, None, None, "undefined", "no_questions", 0.1, ())


def test_five_correct_answers_are_too_few_to_test() -> None:
    found = risk_controlling_threshold(np.arange(5.0, 10), np.zeros(5, bool), 0.2, grid=[5])
    assert (found.reason, found.tested) == ("too_few_questions", ())


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"max_error": 10}, ValueError, "max_error must lie strictly between 0 and 1, got 10; is it a percentage"),
        ({"confidence_level": 1}, ValueError, "confidence_level must lie strictly between 0 and 1"),
        ({"grid": []}, ValueError, "grid must be a list of at least one finite cut"),
        ({"grid": [[0.5]]}, ValueError, r"grid must be .* got shape \(1, 1\)"),
        ({"grid": [0.5, np.inf]}, ValueError, "at least one finite cut"),
        ({"grid": ["a"]}, TypeError, "grid must hold numbers, got an array of <U1"),
        ({"wrong": [2]}, TypeError, "wrong must hold truth values"),
        ({"wrong": [True, True]}, ValueError, "score and wrong must have one value"),
    ],
)
def test_invalid_risk_control_input_is_an_error(changed, error, message: str) -> None:
    options = {"score": [0.5], "wrong": [True], "max_error": 0.1, "grid": [0.5]} | changed
    with pytest.raises(error, match=message):
        risk_controlling_threshold(**options)
