"""Smooth expected calibration error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from refusal_index.stats.calibration import smooth_calibration_error

QUESTIONS = st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=40)

# relplot 1.0.3 (pip install relplot), which is not the package's own dependency:
#     from relplot import smECE
#     rng = np.random.default_rng(7)
#     for n, power in (...):
#         p = rng.random(n)
#         smECE(p**power, (rng.random(n) < p).astype(float))
RELPLOT: dict[tuple[int, float], float | None] = {
    (300, 1): 0.04183825008624012,
    (2000, 1): 0.027041131759118167,
    (300, 2): None,  # relplot: 0.16256, where the integral is 0.16129
    (2000, 0.7): 0.09806028703732017,
    (500, 1.5): 0.10369322666621118,
}


def test_error_against_relplot() -> None:
    rng = np.random.default_rng(7)
    for (n, power), value in RELPLOT.items():
        p = rng.random(n)
        outcome = rng.random(n) < p
        if value is not None:
            assert smooth_calibration_error(p**power, outcome).estimate == pytest.approx(value, abs=1e-3)


def worked_out(score: np.ndarray, outcome: np.ndarray, width: float) -> float:
    """Integral of the smoothed residuals, with the images of every score by reflection at 0 and 1."""
    at = (np.arange(1000) + 0.5) / 1000
    images = np.concatenate([2 * k + sign * score for k in range(-6, 7) for sign in (1, -1)])
    kernel = np.exp(-(((at[:, np.newaxis] - images) / width) ** 2) / 2) / (width * np.sqrt(2 * np.pi))
    return float(np.abs(kernel @ np.tile(outcome - score, 26)).mean() / score.size)


@pytest.mark.parametrize("seed", range(4))
def test_error_against_the_integral_worked_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Scores at the very ends, which relplot counts half, and errors that are large, for which it cuts off the kernel.
    score = np.array([rng.random(80), rng.integers(0, 6, 80) / 5, rng.integers(0, 2, 80), rng.random(80)][seed], float)
    outcome = rng.random(80) < (1 - score if seed == 3 else 0.5 + 0.3 * (score - 0.5))
    expected = brentq(lambda width: worked_out(score, outcome, width) - width, 0.01, 1, xtol=1e-9)
    assert smooth_calibration_error(score, outcome).estimate == pytest.approx(expected, abs=1e-5)


@given(QUESTIONS)
def test_error_lies_between_its_bounds(questions) -> None:
    score, outcome = (np.array(column) for column in zip(*questions, strict=True))
    result = smooth_calibration_error(score / 20, outcome)
    assert abs(np.mean(score / 20 - outcome)) - 1e-9 <= result.estimate <= np.mean(np.abs(score / 20 - outcome)) + 1e-9
    assert (result.status, result.reason) == ("ok", None)
    other = smooth_calibration_error(1 - score / 20, ~outcome)
    assert result.estimate == pytest.approx(other.estimate, abs=1e-9)


def test_error_against_theory_for_one_score() -> None:
    # The kernel only moves the residual about.
    for score, share in ((0.9, 0.3), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)):
        result = smooth_calibration_error(np.full(10, score), np.arange(10) < 10 * share)
        assert result.estimate == pytest.approx(abs(score - share), abs=1e-9)


def test_an_error_below_the_narrowest_bandwidth_is_that_at_it() -> None:
    assert smooth_calibration_error(np.full(5, 0.9995), np.ones(5, bool)).estimate == pytest.approx(5e-4, abs=1e-9)
    assert smooth_calibration_error([0.0, 1.0], [False, True]).estimate == 0


def test_without_questions_the_error_is_undefined() -> None:
    result = smooth_calibration_error([], [])
    assert (result.estimate, result.status, result.reason) == (None, "undefined", "no_questions")


def test_invalid_input_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"score must lie in \[0, 1\], got 50.0"):
        smooth_calibration_error([50], [True])
    with pytest.raises(TypeError, match="outcome must hold truth values"):
        smooth_calibration_error([0.5], [2])
