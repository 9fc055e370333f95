"""Mean value at a confidence target."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index import ContingencyTable
from refusal_index.stats.baseline import utility
from refusal_index.stats.selective import value_at_target

QUESTIONS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)
TARGETS = st.sampled_from([0, 1 / 3, 0.5, 0.75, 0.9])


@given(QUESTIONS, TARGETS)
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


@given(QUESTIONS, TARGETS)
def test_interval_is_that_of_the_utility(questions, target: float) -> None:
    refused, wrong = (np.array(column) for column in zip(*questions, strict=True))
    found = value_at_target(refused, wrong, target)
    expected = utility(ContingencyTable.from_arrays(refused, wrong), found.penalty, confidence_level=0.9)
    assert found.confidence_interval(0.9) == pytest.approx((expected.low, expected.high), abs=1e-12)
    low, high = found.confidence_interval()
    assert low <= found.estimate <= high


def test_an_answer_at_the_target_is_worth_nothing() -> None:
    wrong = np.arange(100) < 25
    assert value_at_target(np.zeros(100, bool), wrong, 0.75).estimate == pytest.approx(0, abs=1e-12)
    assert value_at_target(np.ones(100, bool), wrong, 0.75).estimate == 0


def test_without_questions_the_value_is_undefined() -> None:
    found = value_at_target([], [], 0.5)
    assert (found.estimate, found.standard_error) == (None, None)
    assert (found.status, found.reason) == ("undefined", "no_questions")
    assert (found.n_right, found.n_wrong, found.n_declined) == (0, 0, 0)
    assert all(math.isnan(end) for end in found.confidence_interval())


def test_invalid_input_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"confidence must lie in \[0, 1\), got 1.0"):
        value_at_target([True], [True], 1.0)
    with pytest.raises(ValueError, match="refused and wrong must have one value"):
        value_at_target([True], [True, False], 0.5)
