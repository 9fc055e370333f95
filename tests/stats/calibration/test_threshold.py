"""The cut of a score with the highest utility, and what a cut is worth on other questions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from refusal_index import ContingencyTable
from refusal_index.stats.baseline import utility
from refusal_index.stats.intervals import wilson_interval
from refusal_index.stats.selective import selective_report, utility_threshold

QUESTIONS = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=30)


@given(QUESTIONS, st.sampled_from([0, 1 / 3, 1, 3]))
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


def test_utility_threshold_at_its_ends() -> None:
    assert utility_threshold([1, 2], [True, True], 9).cut == -math.inf
    assert utility_threshold([1, 2], [True, True], 9).reason == "answer_all"
    refuse = utility_threshold([1, 2], [False, False], 1)
    assert (refuse.cut, refuse.utility, refuse.coverage) == (math.inf, 0, 0)
    assert (refuse.status, refuse.reason) == ("boundary", "refuse_all")
    none = utility_threshold([], [], 1)
    assert (none.cut, none.utility, none.coverage) == (None, None, None)
    assert (none.status, none.reason, none.n) == ("undefined", "no_questions", 0)
    # A third of a right answer for each of three wrong ones: worth nothing, as refusing them is.
    assert utility_threshold([1, 1, 1, 1], [True, False, False, False], 1 / 3).reason == "answer_all"


def test_a_report_counts_the_questions_at_the_cut_as_answered() -> None:
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
def test_interval_of_an_error_rate_of_0_or_1_against_theory(right: bool) -> None:
    report = selective_report(np.zeros(20), np.full(20, right), 0.0)
    exact = binomtest(0 if right else 20, 20).proportion_ci(method="exact")
    assert (report.error_rate.low, report.error_rate.high) == pytest.approx(exact, abs=1e-12)
    assert report.penalty == 1


def test_a_report_without_answers_or_questions_is_undefined() -> None:
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
