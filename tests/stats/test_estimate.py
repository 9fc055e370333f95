"""The one shape of an estimate: None with a reason where results have NaN intervals."""

import math

import pytest

from refusal_index import ConfidenceInterval, ContingencyTable, refusal_index
from refusal_index.stats import Estimate, metrics


@pytest.mark.parametrize("counts", [(710, 30, 210, 50), (5, 0, 3, 2), (0, 0, 60, 40), (0, 0, 0, 0)])
def test_an_estimate_says_what_its_result_and_interval_say(counts: tuple[int, int, int, int]) -> None:
    result = refusal_index(ContingencyTable(*counts))
    interval = result.confidence_interval()
    found = Estimate.of(result, interval)
    assert (found.estimate, found.status, found.reason) == (result.estimate, result.status, result.reason)
    for end, expected in zip((found.low, found.high), interval, strict=True):
        assert end is None if math.isnan(expected) else end == expected
    assert (found.status == "undefined") == (found.low is None)
    assert metrics(ContingencyTable(*counts))[-1].to_document() == found.to_document()


def test_each_end_is_translated_by_itself() -> None:
    assert ConfidenceInterval(-0.5, math.nan).or_none() == (-0.5, None)
    assert ConfidenceInterval(math.nan, 0.0).or_none() == (None, 0.0)
