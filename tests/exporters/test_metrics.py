"""What is known of each metric where a format asks for it."""

from __future__ import annotations

from typing import Any

import pytest

from refusal_index.plugins.trackers.results import METRICS, described
from refusal_index.stats import METRIC_NAMES


def test_every_metric_is_described():
    assert {*METRIC_NAMES} <= {*METRICS}


def test_weights_are_the_ends_of_the_range():
    known = described("truthfulness_score", {"truthfulness_weights": [1.0, 0.25, 2]})
    assert known is not None
    assert (known.low, known.high) == (-2, 1)


@pytest.mark.parametrize(
    "weights", [None, "1,0,1", [1, 0], [1, 0, None], [1, 0, float("inf")], [1, 0, 10**400], [True] * 3]
)
def test_weights_that_are_none_leave_the_range_open(weights: Any):
    assert described("truthfulness_score", {"truthfulness_weights": weights}) is None
