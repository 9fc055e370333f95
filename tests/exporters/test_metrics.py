"""What a summary says of what answers are worth, on which the ranges and descriptions of metrics depend."""

from __future__ import annotations

from typing import Any

import pytest

from refusal_index.findings.metrics import METRICS
from refusal_index.plugins.trackers.results import payoffs_of
from refusal_index.render.sentences import description
from refusal_index.stats.baseline import Payoffs


def test_weights_are_the_ends_of_the_range_and_part_of_the_description():
    payoffs = payoffs_of({"penalty": 3, "truthfulness_weights": [1.0, 0.25, 2]})
    assert payoffs == Payoffs(3, (1, 0.25, 2))
    assert METRICS["truthfulness_score"].range(payoffs) == (-2, 1)
    assert METRICS["weighted_score"].range(payoffs) == (-3, 0)
    assert "0.25 for a refusal" in description("truthfulness_score", payoffs)
    assert "minus 3 times" in description("weighted_score", payoffs)


@pytest.mark.parametrize(
    "weights", [None, "1,0,1", [1, 0], [1, 0, None], [1, 0, float("inf")], [1, 0, 10**400], [True] * 3]
)
def test_weights_that_are_none_leave_the_range_open(weights: Any):
    assert payoffs_of({"penalty": 1, "truthfulness_weights": weights}) is None
