"""The whole procedure: agreement of settings on a metric without the effects of correct rate and refusal rate."""

import numpy as np
import pytest

from refusal_index.plugins.studies.stability import isotonic_residuals, kendall_w, ranking_stability, winner_entropy

RNG = np.random.default_rng(20)
MODEL, SETTING = RNG.uniform(0, 0.3, 6), RNG.uniform(0, 0.2, (8, 1))
CORRECT = MODEL + SETTING + RNG.uniform(0, 0.05, (8, 6))
REFUSED = 0.8 - 1.5 * SETTING - MODEL[::-1] + RNG.uniform(0, 0.1, (8, 6))
STABLE = np.array([0.2, 0.5, 0.3, 0.6, 0.1, 0.4]) + RNG.normal(0, 0.02, (8, 6))


def stability(metric, **options):
    rows = ranking_stability(metric, CORRECT, REFUSED, n_resamples=50, rng=1, **options)
    return {row["removed"]: row for row in rows}


@pytest.mark.parametrize("fit_over", ["all", "model"])
def test_rows_are_the_agreement_of_the_residuals(fit_over: str) -> None:
    rows = stability(STABLE, fit_over=fit_over)
    expected = {
        "nothing": STABLE,
        "correct_rate": isotonic_residuals(STABLE, CORRECT, fit_over=fit_over),
        "refusal_rate": isotonic_residuals(STABLE, REFUSED, fit_over=fit_over),
        "both": isotonic_residuals(STABLE, CORRECT, REFUSED, fit_over=fit_over),
    }
    assert list(rows) == list(expected)
    for removed, residuals in expected.items():
        assert rows[removed]["fit_over"] == (None if removed == "nothing" else fit_over)
        assert rows[removed]["kendall_w"] == kendall_w(residuals).estimate
        assert rows[removed]["kendall_w_tie_corrected"] == kendall_w(residuals, correct_ties=True).estimate
        assert rows[removed]["winner_entropy"] == winner_entropy(residuals).estimate


@pytest.mark.parametrize("fit_over", ["all", "model"])
@pytest.mark.parametrize(
    ("metric", "explained"),
    [
        (CORRECT, {"correct_rate", "both"}),
        (REFUSED, {"refusal_rate", "both"}),
        # The weighted score is a sum of both rates, whatever its penalty, though the paper prints numbers for it.
        (CORRECT - 0.2 * (1 - REFUSED), {"both"}),
        (CORRECT - (1 - REFUSED), {"both"}),
    ],
)
def test_metrics_that_are_sums_of_the_rates_leave_nothing_to_rank(metric, explained, fit_over: str) -> None:
    rows = stability(metric, fit_over=fit_over)
    for removed, row in rows.items():
        assert (row["reason"] == "all_tied") == (row["kendall_w"] is None) == (removed in explained)


def test_fits_for_each_model_take_a_perfectly_stable_metric_away() -> None:
    constant = np.broadcast_to(np.add(MODEL, [0.1, 0, 0.3, 0, 0.2, 0]), (8, 6))
    by_model = stability(constant, fit_over="model")
    assert by_model["nothing"]["kendall_w"] == 1
    assert {row["reason"] for removed, row in by_model.items() if removed != "nothing"} == {"all_tied"}
    assert stability(constant)["correct_rate"]["kendall_w"] > 0.5


def test_a_stable_metric_stands_out_from_its_baseline_and_noise_does_not() -> None:
    for row in stability(STABLE).values():
        assert row["kendall_w"] > row["random_kendall_w_high"]
        assert row["winner_entropy"] < row["random_winner_entropy"]
    noise = np.random.default_rng(9).uniform(size=(8, 6))
    for row in stability(noise).values():
        assert row["kendall_w"] < 2 * row["random_kendall_w_high"]


def test_baseline_of_the_raw_metric_against_theory() -> None:
    row = ranking_stability(STABLE, CORRECT, REFUSED, n_resamples=800, rng=2)[0]
    assert row["random_kendall_w"] == pytest.approx(1 / 8, abs=0.008)


def test_regression_lowers_what_random_values_reach() -> None:
    by_model = stability(STABLE, fit_over="model")
    assert by_model["both"]["random_kendall_w"] < 0.3 * by_model["nothing"]["random_kendall_w"]


def test_seeds_repeat() -> None:
    assert stability(STABLE) == stability(STABLE)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((STABLE[:7], CORRECT, REFUSED), {}, r"correct_rate must have a value .* shape \(7, 6\), got shape \(8, 6\)"),
        ((STABLE, CORRECT, REFUSED.T), {}, "refusal_rate must have a value .* is one of them transposed"),
        ((STABLE, CORRECT, REFUSED), {"n_resamples": 0}, "n_resamples must be at least 1, got 0"),
    ],
)
def test_invalid_input_is_an_error(arguments, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ranking_stability(*arguments, **options)
