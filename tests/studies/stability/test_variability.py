"""Variability of a metric over prompts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.plugins.studies.stability import coefficient_of_variation, normalized_difference

# The paper's table "Score variability across different refusal rates", as printed: accuracy, refusal, C/A, F-score,
# weighted score and RI, for Mistral-123B, Qwen3-235B ("Qwen2-35B"), Qwen2.5-72B, Qwen3-32B and Gemma-3-12B.
DELTA = np.array(
    [
        [-0.40, 0.93, 0.37, -0.16, -0.83, 0.06],
        [-0.47, 0.95, 0.12, -0.31, -0.62, -0.19],
        [-0.84, 0.43, 0.50, -0.60, -1.32, -0.07],
        [-0.96, 0.54, 0.48, -0.71, -1.42, 0.14],
        [-1.31, 2.04, 0.96, -0.93, 1.79, 0.42],
    ]
)
CV = np.array(
    [
        [0.16, 0.35, 0.14, 0.06, 0.31, 0.04],
        [0.22, 0.47, 0.06, 0.14, 0.32, 0.09],
        [0.35, 0.17, 0.19, 0.26, 0.53, 0.03],
        [0.35, 0.19, 0.17, 0.28, 0.51, 0.07],
        [0.49, 0.76, 0.39, 0.36, 0.66, 0.23],
    ]
)
FOUR = st.lists(st.floats(0.01, 1), min_size=4, max_size=4, unique=True)


def test_averages_against_the_papers_table() -> None:
    assert DELTA.mean(axis=0) == pytest.approx([-0.796, 0.978, 0.486, -0.542, -0.480, 0.072], abs=1e-12)
    assert CV.mean(axis=0) == pytest.approx([0.314, 0.388, 0.190, 0.220, 0.466, 0.092], abs=1e-12)
    printed_delta, printed_cv = [-0.80, 0.98, 0.49, -0.54, -0.48, 0.07], [0.31, 0.39, 0.19, 0.22, 0.47, 0.09]
    assert DELTA.mean(axis=0) == pytest.approx(printed_delta, abs=0.005)
    assert CV.mean(axis=0) == pytest.approx(printed_cv, abs=0.005)


@given(FOUR)
def test_four_values_bound_the_variation_by_their_range(values) -> None:
    refusal = np.argsort(np.argsort(values))
    delta = normalized_difference(values, refusal).estimate
    assert 1 / np.sqrt(8) - 1e-9 <= coefficient_of_variation(values).estimate / delta <= 1 / 2 + 1e-9
    sample = coefficient_of_variation(values, ddof=1).estimate / delta
    assert 1 / np.sqrt(6) - 1e-9 <= sample <= 1 / np.sqrt(3) + 1e-9


def test_the_papers_variation_is_the_populations() -> None:
    # The refusal rate is largest and smallest at the ends of Delta by definition, so the bounds above apply.
    ratios_low, ratios_high = (CV[:, 1] - 0.005) / (DELTA[:, 1] + 0.005), (CV[:, 1] + 0.005) / (DELTA[:, 1] - 0.005)
    assert np.all(ratios_high > 1 / np.sqrt(8))
    assert np.all(ratios_low < 1 / 2)
    assert np.any(ratios_high < 1 / np.sqrt(6))


def test_signs_of_a_metric_with_a_negative_mean() -> None:
    # A weighted score that rises with refusal, from -0.79 to -0.21.
    values, refusal = [-0.79, -0.60, -0.40, -0.21], [0.16, 0.3, 0.5, 0.74]
    result = normalized_difference(values, refusal)
    assert result.estimate == pytest.approx(0.58 / 0.5, rel=1e-12)
    reverse = normalized_difference(values[::-1], refusal[::-1])
    assert reverse.estimate == pytest.approx(result.estimate, rel=1e-12)


def test_the_difference_is_between_prompts_not_between_extremes_of_the_metric() -> None:
    assert normalized_difference([0.3, 0.9, 0.1, 0.3], [1, 2, 3, 4]).estimate == 0
    assert normalized_difference([0.2, 0.4, 0.1, 0.5], [1, 1, 2, 2]).estimate == pytest.approx(0, abs=1e-12)


def test_coefficient_of_variation_against_theory() -> None:
    assert coefficient_of_variation([1, 3]).estimate == 0.5
    assert coefficient_of_variation([-1, -3], ddof=1).estimate == pytest.approx(np.sqrt(2) / 2, rel=1e-12)


@pytest.mark.parametrize(
    ("values", "refusal", "difference", "variation"),
    [
        ([0.3], [0.5], "one_prompt", "one_prompt"),
        ([-0.5, 0.5], [0.1, 0.2], "zero_mean", "zero_mean"),
        ([0.2, 0.5], [0.3, 0.3], "equal_refusal_rates", None),
    ],
)
def test_undefined_variability_says_why(values, refusal, difference: str, variation: str | None) -> None:
    for result, reason in (
        (normalized_difference(values, refusal), difference),
        (coefficient_of_variation(values), variation),
    ):
        assert result.reason == reason
        assert (result.estimate is None) == (result.status == "undefined") == (reason is not None)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: coefficient_of_variation([0.1, None]), TypeError, "values must hold numbers, .* None in it"),
        (lambda: coefficient_of_variation([0.1, np.nan]), ValueError, "values must be finite"),
        (lambda: normalized_difference([1, 2], [1, 2, 3]), ValueError, "of one length, got 2 and 3"),
    ],
)
def test_invalid_input_is_an_error(call, error, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
