"""Inspect's metrics are the statistics of the same counts, and NaN wherever those are undefined."""

from __future__ import annotations

import math

import pytest
from inspect_ai.scorer import SampleScore, Score

from refusal_index import ContingencyTable, refusal_index
from refusal_index.data import Outcome
from refusal_index.plugins.inspect.tasks import cell_of, two_pass_metrics


def metrics(unscored: int = 0, **counts: int) -> dict[str, float]:
    cells = [cell for cell, count in {**counts, "unscored": unscored}.items() for _ in range(count)]
    return two_pass_metrics()([SampleScore(score=Score(value=cell)) for cell in cells])


FULL = {"refused_wrong": 71, "refused_right": 3, "answered_wrong": 21, "answered_right": 5}


@pytest.mark.parametrize("unscored", [0, 25])
def test_they_are_the_statistics_of_the_cells_and_the_share_of_the_rest(unscored):
    computed = metrics(unscored, **FULL)
    table = ContingencyTable(**FULL)
    assert computed == {
        "refusal_index": refusal_index(table).estimate,
        "standard_error": refusal_index(table).standard_error,
        "correct_rate": table.correct_rate,
        "refusal_rate": table.refusal_rate,
        "error_rate": table.error_rate,
        "unscored": unscored / (100 + unscored),
    }


def test_nobody_refused_leaves_the_index_undefined_and_the_rates_known():
    computed = metrics(answered_wrong=3, answered_right=1)
    assert math.isnan(computed["refusal_index"])
    assert math.isnan(computed["standard_error"])
    assert (computed["correct_rate"], computed["refusal_rate"], computed["error_rate"]) == (0.25, 0.0, 0.75)


def test_at_the_boundary_the_index_is_1_and_has_no_standard_error():
    computed = metrics(refused_wrong=40, answered_wrong=20, answered_right=40)
    assert computed["refusal_index"] == 1.0
    assert math.isnan(computed["standard_error"])


def test_nothing_scored_makes_everything_nan_but_the_share():
    computed = metrics(unscored=4)
    assert computed.pop("unscored") == 1.0
    assert all(math.isnan(value) for value in computed.values())


def test_nothing_at_all_is_nan_throughout():
    assert all(math.isnan(value) for value in metrics().values())


@pytest.mark.parametrize(
    ("refused", "wrong", "cell"),
    [
        (True, True, "refused_wrong"),
        (True, False, "refused_right"),
        (False, True, "answered_wrong"),
        (False, False, "answered_right"),
    ],
)
def test_every_cell_has_its_name(refused, wrong, cell):
    assert cell_of(Outcome(refused, wrong)) == cell


@pytest.mark.parametrize(("refused", "wrong"), [(None, None), (True, None)])
def test_half_an_outcome_is_unscored(refused, wrong):
    assert cell_of(Outcome(refused, wrong, unscored_reason="x")) == "unscored"
