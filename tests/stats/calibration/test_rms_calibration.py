"""Root-mean-square calibration error."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.stats.calibration import (
    expected_calibration_error,
    reliability_table,
    rms_calibration_error,
)

QUESTIONS = st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=1, max_size=60)
BINNINGS = st.sampled_from(["equal_width", "equal_mass"])


def arrays_of(questions) -> tuple[np.ndarray, np.ndarray]:
    hundredths, outcome = (np.array(column) for column in zip(*questions, strict=True))
    return hundredths / 100, outcome


@given(QUESTIONS, BINNINGS, st.integers(1, 12))
def test_error_against_its_bins(questions, binning, n_bins: int) -> None:
    score, outcome = arrays_of(questions)
    result = rms_calibration_error(score, outcome, n_bins=n_bins, binning=binning)
    squares = [row.count * (row.mean_score - row.outcome_rate) ** 2 for row in result.bins if row.count]
    assert result.estimate == pytest.approx(math.sqrt(sum(squares) / score.size), abs=1e-12)
    assert result.bins == reliability_table(score, outcome, n_bins=n_bins, binning=binning)
    assert (result.status, result.reason, result.binning) == ("ok", None, binning)
    mean = expected_calibration_error(score, outcome, n_bins=n_bins, binning=binning).estimate
    assert mean - 1e-12 <= result.estimate <= 1


def test_without_questions_the_error_is_undefined() -> None:
    result = rms_calibration_error([], [])
    assert (result.estimate, result.status, result.reason) == (None, "undefined", "no_questions")
    assert len(result.bins) == 10


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"score": [50]}, ValueError, r"score must lie in \[0, 1\], got 50.0"),
        ({"n_bins": 0}, ValueError, "n_bins must be at least 1, got 0"),
        ({"outcome": [3]}, TypeError, "outcome must hold truth values"),
    ],
)
def test_invalid_input_is_an_error(changed, error, message: str) -> None:
    with pytest.raises(error, match=message):
        rms_calibration_error(**{"score": [0.5], "outcome": [True]} | changed)
