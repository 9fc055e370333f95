"""Utility of a table at a stated price of a wrong answer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import others_nightly

from refusal_index import ContingencyTable
from refusal_index.stats import metrics
from refusal_index.stats.baseline import omniscience_index, penalty_from_confidence, utility

COUNTS = st.tuples(*[st.integers(0, 40) | st.integers(0, 10**6)] * 4).filter(any)


@given(COUNTS, st.sampled_from([0, 0.5, 1, 3, 9]))
def test_utility_against_its_definition(counts, penalty: float) -> None:
    table = ContingencyTable(*counts)
    value = utility(table, penalty)
    expected = (table.answered_right - penalty * table.answered_wrong) / table.n
    assert value.estimate == pytest.approx(expected, abs=1e-12)
    assert -penalty <= value.low <= value.estimate <= value.high <= 1


@given(COUNTS, st.floats(0.05, 0.9))
def test_the_weighted_score_is_a_utility_on_another_scale(counts, weight: float) -> None:
    table = ContingencyTable(*counts)
    value = utility(table, float(penalty_from_confidence(weight)))
    (weighted,) = [metric for metric in metrics(table, penalty=weight) if metric.name == "weighted_score"]
    scaled = [(1 - weight) * end for end in (value.estimate, value.low, value.high)]
    assert scaled == pytest.approx([weighted.estimate, weighted.low, weighted.high], abs=1e-8)


@given(COUNTS)
def test_the_omniscience_index_is_a_hundred_times_the_utility_at_one(counts) -> None:
    table = ContingencyTable(*counts)
    index, value = omniscience_index(table, confidence_level=0.9), utility(table, 1, confidence_level=0.9)
    assert (index.estimate, index.low, index.high) == pytest.approx(
        (100 * value.estimate, 100 * value.low, 100 * value.high), abs=1e-5
    )
    assert index.name == "omniscience_index"


@pytest.mark.parametrize("penalty", [1, 3, 9])
def test_an_answer_at_the_target_confidence_is_worth_nothing(penalty: float) -> None:
    # Ten answers of the confidence t at which this penalty makes answering and refusing the same.
    confidence = penalty / (1 + penalty)
    assert penalty_from_confidence(confidence) == pytest.approx(penalty, rel=1e-12)
    right = round(1000 * confidence)
    value = utility(ContingencyTable(0, 0, 1000 - right, right), penalty)
    assert value.estimate == pytest.approx(0, abs=1e-12)


def test_refusing_everything_is_worth_nothing_and_nothing_is_undefined() -> None:
    assert utility(ContingencyTable(5, 4, 0, 0), 3).estimate == 0
    assert omniscience_index(ContingencyTable(5, 4, 0, 0)).estimate == 0
    for value in (utility(ContingencyTable(0, 0, 0, 0), 3), omniscience_index(ContingencyTable(0, 0, 0, 0))):
        assert (value.status, value.reason) == ("undefined", "no_questions")
        assert value.estimate is value.low is value.high is None


@pytest.mark.parametrize("penalty", [-0.1, np.inf, np.nan])
def test_impossible_penalties_are_errors(penalty: float) -> None:
    with pytest.raises(ValueError, match=r"penalty must be a number of at least 0, got .*; is it a confidence of 1"):
        utility(ContingencyTable(1, 1, 1, 1), penalty)


@pytest.mark.parametrize("confidence", [1.0, -0.1, [0.5, 75], np.nan])
def test_impossible_confidences_are_errors(confidence) -> None:
    with pytest.raises(ValueError, match=r"confidence must lie in \[0, 1\), got .*; is it a percentage"):
        penalty_from_confidence(confidence)


@others_nightly(("penalty", "n"), [(3, 200), (1, 200), (9, 1000)])
def test_coverage(penalty: float, n: int) -> None:
    cells = np.array([0.3, 0.1, 0.1, 0.5])
    truth = cells[3] - penalty * cells[2]
    tables = np.random.default_rng(4).multinomial(n, cells, size=1000).tolist()
    intervals = [utility(ContingencyTable(*counts), penalty) for counts in tables]
    # The standard error of the share is .007.
    assert 0.93 < np.mean([value.low <= truth <= value.high for value in intervals]) < 0.97
