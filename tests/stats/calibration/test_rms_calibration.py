"""Root-mean-square calibration error, and that of Humanity's Last Exam."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.stats.calibration.reliability import expected_calibration_error, reliability_table
from refusal_index.stats.calibration.rms_calibration import hle_calibration_error, rms_calibration_error

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


def program_of_the_leaderboard(confidence: np.ndarray, correct: np.ndarray, size: int, skipped: int) -> float:
    """Error as the judge of Humanity's Last Exam works it out, `skipped` bins being left out at the end."""
    order = np.argsort(confidence)
    starts = [i * size for i in range(confidence.size // size)]
    total = 0.0
    for i in range(len(starts) - skipped):
        end = starts[i] + size if i + 1 < len(starts) else confidence.size
        rows = order[starts[i] : end]
        total += rows.size / confidence.size * (confidence[rows].mean() - correct[rows].mean()) ** 2
    return math.sqrt(total)


@pytest.mark.parametrize("size", [7, 10, 25])
def test_both_methods_against_the_program_without_ties(size: int) -> None:
    rng = np.random.default_rng(2)
    score, outcome = rng.permutation(np.linspace(0, 1, 64)), rng.random(64) < 0.3
    for method, skipped in (("all_bins", 0), ("as_printed", 1)):
        result = hle_calibration_error(score, outcome, bin_size=size, method=method)
        assert result.estimate == pytest.approx(program_of_the_leaderboard(score, outcome, size, skipped), abs=1e-12)
        assert (result.status, result.reason, result.method) == ("ok", None, method)
        assert result.n_bins == 64 // size
        assert result.n_left_out == (size + 64 % size if skipped else 0)


def test_what_is_printed_goes_by_the_order_of_ties_too() -> None:
    rng = np.random.default_rng(3)
    score, outcome = rng.integers(0, 5, 450) / 4, rng.random(450) < 0.5
    printed = hle_calibration_error(score, outcome, method="as_printed")
    assert printed.estimate == pytest.approx(program_of_the_leaderboard(score, outcome, 100, 1), abs=1e-12)
    assert (printed.n_bins, printed.n_left_out) == (4, 150)


def test_tied_scores_count_with_their_average_in_both_bins_that_they_are_parted_by() -> None:
    # Two bins of three; the four at .5, one of them right, lie two in either.
    score, outcome = np.array([0.5, 1, 0.5, 0, 0.5, 0.5]), np.array([True, True, False, False, False, False])
    expected = math.sqrt(((1 - 0.5) ** 2 + (2 - 1.5) ** 2) / 9 / 2)
    assert hle_calibration_error(score, outcome, bin_size=3).estimate == pytest.approx(expected, abs=1e-12)


@given(QUESTIONS, st.integers(1, 30))
def test_the_order_of_the_questions_does_not_matter(questions, size: int) -> None:
    score, outcome = arrays_of(questions)
    result, other = (
        hle_calibration_error(*rows, bin_size=size) for rows in ((score, outcome), (score[::-1], outcome[::-1]))
    )
    assert result.estimate == pytest.approx(other.estimate, abs=1e-12)
    assert abs(score.mean() - outcome.mean()) - 1e-12 <= result.estimate <= 1
    assert result.n_bins == max(score.size // size, 1)


def test_a_most_confident_bin_that_is_all_wrong_is_seen_and_was_not_printed() -> None:
    score = np.repeat([0.0, 1.0], 100)
    outcome = np.zeros(200, bool)
    assert hle_calibration_error(score, outcome).estimate == pytest.approx(math.sqrt(0.5))
    assert hle_calibration_error(score, outcome, method="as_printed").estimate == 0


@pytest.mark.parametrize(
    ("n", "reason", "n_bins", "left_out"),
    [
        (0, "no_questions", 0, 0),
        (99, "fewer_questions_than_a_bin", 1, 99),
        (100, "one_bin", 1, 100),
        (199, "one_bin", 1, 199),
    ],
)
def test_what_is_printed_is_undefined_where_nothing_is_measured(
    n: int, reason: str, n_bins: int, left_out: int
) -> None:
    result = hle_calibration_error(np.full(n, 0.5), np.zeros(n, bool), method="as_printed")
    assert (result.estimate, result.status, result.reason) == (None, "undefined", reason)
    assert (result.n_bins, result.n_left_out) == (n_bins, left_out)
    if n:
        assert hle_calibration_error(np.full(n, 0.5), np.zeros(n, bool)).estimate == pytest.approx(0.5)


def test_without_questions_the_errors_are_undefined() -> None:
    for result in (rms_calibration_error([], []), hle_calibration_error([], [])):
        assert (result.estimate, result.status, result.reason) == (None, "undefined", "no_questions")
    assert hle_calibration_error([], []).n_bins == 0
    assert len(rms_calibration_error([], []).bins) == 10


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"score": [50]}, ValueError, r"score must lie in \[0, 1\], got 50.0"),
        ({"bin_size": 0}, ValueError, "bin_size must be at least 1, got 0"),
        ({"bin_size": 2.5}, ValueError, "bin_size must be a whole number"),
        ({"method": "printed"}, ValueError, "method must be one of all_bins, as_printed, got 'printed'"),
        ({"outcome": [3]}, TypeError, "outcome must hold truth values"),
    ],
)
def test_invalid_input_is_an_error(changed, error, message: str) -> None:
    with pytest.raises(error, match=message):
        hle_calibration_error(**{"score": [0.5], "outcome": [True]} | changed)
    with pytest.raises(ValueError, match="n_bins must be at least 1, got 0"):
        rms_calibration_error([0.5], [True], n_bins=0)
