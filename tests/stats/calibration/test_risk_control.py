"""The cut of a score that holds a bound on the error rate among the answered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom
from tests.tiers import others_nightly

from refusal_index.stats.selective import RiskThreshold, risk_controlling_threshold

SAMPLES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), min_size=20, max_size=120)


def holds(errors: int, n: int, max_error: float, level: float) -> bool:
    return bool(binom.cdf(errors, n, max_error) <= 1 - level)


@given(SAMPLES, st.sampled_from([0.2, 0.4, 0.7]), st.sampled_from([0.6, 0.9]))
def test_the_sequence_of_tests_against_the_binomial_tail(questions, max_error: float, level: float) -> None:
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


def test_nothing_is_tested_behind_a_cut_that_fails() -> None:
    # Three blocks of 100: wrong in none, in all, in none. Down to the last the rate is 1/3, within the bound again.
    score, wrong = np.repeat([3, 2, 1], 100), np.repeat([False, True, False], 100)
    found = risk_controlling_threshold(score, wrong, 0.45, grid=[1, 2, 3])
    assert (found.cut, found.n_answered, found.n_errors) == (3, 100, 0)
    assert [one.cut for one in found.tested] == [3, 2]


def test_which_cut_is_tested_first_depends_on_the_grid_and_the_number_of_questions_alone() -> None:
    rng = np.random.default_rng(1)
    firsts = {
        risk_controlling_threshold(rng.normal(0, scale, 300), rng.random(300) < 0.5, 0.3, grid=range(-5, 5))
        .tested[0]
        .cut
        for scale in (0.1, 1, 10, 100)
    }
    assert len(firsts) == 1
    # A value that stands twice in the grid counts twice: of 90 questions, at a bound of .3, it takes 22.
    questions = np.zeros(90), np.ones(90, bool), 0.3
    assert risk_controlling_threshold(*questions, grid=range(-5, 5)).tested[0].cut == 2
    assert risk_controlling_threshold(*questions, grid=[*range(-5, 4), 4, 4, 4]).tested[0].cut == 4


def risk_beyond(cut: float, risk) -> float:
    """Error rate among the questions whose uniform score is at least the cut, at a rate of errors by score."""
    return float(risk(np.linspace(cut, 1, 2001)[1:]).mean())


PROFILES = {
    "a little above the bound wherever the score is high": lambda u: np.where(u > 0.1, 0.205, 0.6),
    "falling through the bound": lambda u: 0.5 * (1 - u),
    "lowest in the middle": lambda u: np.where(u > 0.9, 0.3, np.where(u > 0.5, 0.12, 0.32)),
}


@others_nightly("name", PROFILES)
def test_the_bound_holds_in_the_stated_share_of_samples(name: str) -> None:
    rng, risk, broken = np.random.default_rng(5), PROFILES[name], 0
    for _ in range(1000):
        score = rng.random(800)
        wrong = rng.random(800) < risk(score)
        grid = np.quantile(score[:400], np.arange(20) / 20)
        cut = risk_controlling_threshold(score[400:], wrong[400:], 0.2, grid=grid).cut
        broken += cut is not None and risk_beyond(cut, risk) > 0.2
    # At most one in ten, with a standard error of .0095; tests that are too cautious would break none.
    assert broken / 1000 < 0.12
    if name == "a little above the bound wherever the score is high":
        assert broken / 1000 > 0.03


def test_without_questions_no_cut_holds() -> None:
    found = risk_controlling_threshold([], [], 0.1, grid=[0.5])
    assert found == RiskThreshold(None, None, None, None, "undefined", "no_questions", 0.1, ())


def test_five_right_answers_of_five_are_too_few_to_be_tried() -> None:
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
def test_invalid_input_of_the_test_is_an_error(changed, error, message: str) -> None:
    options = {"score": [0.5], "wrong": [True], "max_error": 0.1, "grid": [0.5]} | changed
    with pytest.raises(error, match=message):
        risk_controlling_threshold(**options)
