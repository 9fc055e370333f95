"""The benchmark of many choices, tiny: that it counts what it says it counts. It asserts no speed."""

from __future__ import annotations

import pytest
from benchmarks.many_choices import Measured, bench


@pytest.mark.slow
def test_a_tiny_run_sends_one_request_a_question_and_pass():
    with bench(connections=4) as runs:
        many = runs.measure(questions=2, draws=5, max_choices=5)
    assert (many.completions, many.requests) == (20, 4)
    assert many.cpu > 0
    assert 0 < many.asking <= many.memory


def test_what_starting_takes_is_taken_off():
    start = Measured(1, 1, 1, cpu=2.0, asking=1, memory=1)
    assert Measured(10, 1000, 10, cpu=5.0, asking=1, memory=1).per_thousand(start) == pytest.approx(3.0)
