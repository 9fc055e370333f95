"""An interval of the calibration error that covers small errors, too."""

import numpy as np
import pytest
from tests.tiers import others_nightly

from refusal_index.plugins.studies.calibrator_comparison import calibration_error_interval
from refusal_index.stats import expected_calibration_error


def drawn(n: int, rng: np.random.Generator, claim) -> tuple[np.ndarray, np.ndarray]:
    """Draw scores and outcomes: what is claimed is a function of the probability."""
    probability = rng.random(n)
    return claim(probability), rng.random(n) < probability


def test_the_same_seed_gives_the_same_interval_around_the_estimate() -> None:
    score, right = drawn(300, np.random.default_rng(0), np.sqrt)
    found = calibration_error_interval(score, right, rng=3)
    assert found == calibration_error_interval(score, right, rng=3)
    assert 0 < found.low < expected_calibration_error(score, right).estimate < found.high < 1
    wider = calibration_error_interval(score, right, rng=3, confidence_level=0.99)
    assert wider.low < found.low < found.high < wider.high


def test_the_gaps_are_those_of_the_bins_also_of_frequencies_at_their_ends() -> None:
    # 0.07 * 100 is not 7 in floating point; with so many questions the interval is next to the estimate.
    share = np.repeat(np.arange(101) / 100, 400)
    right = np.tile(np.arange(400) < 100, 101)
    found = calibration_error_interval(share, right, n_bins=100, rng=0, n_resamples=100)
    error = expected_calibration_error(share, right, n_bins=100).estimate
    assert error == pytest.approx(np.mean(np.abs(np.arange(101) / 100 - 0.25)), abs=1e-3)
    assert found.low == pytest.approx(error, abs=0.01)
    assert found.high == pytest.approx(error, abs=0.01)


@pytest.mark.parametrize(("score", "right"), [([], []), ([1.0] * 9, [True] * 9), ([0.0, 1.0] * 5, [False, True] * 5)])
def test_without_any_gap_there_is_no_interval(score, right) -> None:
    assert np.isnan(calibration_error_interval(score, np.array(right, bool))).all()


def test_an_interval_lies_within_0_and_1_and_reaches_to_the_estimate() -> None:
    right = np.random.default_rng(1).random(60) < 0.5
    worst = calibration_error_interval(np.where(right, 0.01, 0.99), right, rng=0)
    assert 0.9 < worst.low <= worst.high <= 1
    exact = calibration_error_interval(np.full(60, right.mean()), right, rng=0)
    assert exact.low == 0
    assert exact.high >= expected_calibration_error(np.full(60, right.mean()), right).estimate


def test_invalid_input_is_an_error() -> None:
    with pytest.raises(ValueError, match="score must lie in"):
        calibration_error_interval([50.0], [True])
    with pytest.raises(ValueError, match="confidence_level must lie strictly between 0 and 1"):
        calibration_error_interval([0.5], [True], confidence_level=95)


def test_of_calibrated_scores_the_error_of_nought_is_covered() -> None:
    # The plain error of 200 questions is .07 on average. Of 40 intervals of 95% fewer than 34 hold 0 three times in
    # a thousand.
    rng = np.random.default_rng(7)
    found = [calibration_error_interval(*drawn(200, rng, lambda p: p), rng=rng, n_resamples=200) for _ in range(40)]
    assert sum(interval.low == 0 for interval in found) >= 34


@pytest.mark.slow
@others_nightly(
    ("claim", "n", "error"),
    [
        (lambda p: p, 200, 0.0),
        (lambda p: p, 1000, 0.0),
        (lambda p: p**2, 200, 1 / 6),
        (lambda p: p**2, 1000, 1 / 6),
        (lambda p: 0.9 * p + 0.03, 400, 0.029),
    ],
)
def test_coverage_of_nominal_95_per_cent(claim, n: int, error: float) -> None:
    rng = np.random.default_rng(7)
    intervals = [calibration_error_interval(*drawn(n, rng, claim), rng=rng, n_resamples=200) for _ in range(300)]
    # The standard error of the share is .013.
    assert np.mean([low <= error <= high for low, high in intervals]) >= 0.9
