"""Reliability, disattenuated correlations and the ceiling of Kendall's W, against theory and simulated truth."""

from __future__ import annotations

import numpy as np
import pytest

from refusal_index.plugins.studies.stability import disattenuated_correlation, kendall_w, kendall_w_ceiling, reliability


def test_reliability_is_one_less_mean_squared_error_over_variance_for_independent_estimates():
    values, errors = np.array([0.1, 0.3, 0.2, 0.6]), np.array([0.1, 0.05, 0.1, 0.15])
    found = reliability(values, errors**2)
    assert found.estimate == pytest.approx(1 - np.mean(errors**2) / values.var(ddof=1))
    assert found.true_variance == pytest.approx(values.var(ddof=1) - np.mean(errors**2))


def test_an_error_that_all_share_spreads_nothing():
    values = [0.1, 0.3, 0.2, 0.6]
    assert reliability(values, np.full((4, 4), 7.0)).estimate == pytest.approx(1)


def test_noise_beyond_the_spread_is_undefined_with_a_reason_and_not_clipped():
    found = reliability([0.1, 0.2, 0.15], [0.04] * 3)
    assert (found.estimate, found.status, found.reason) == (None, "undefined", "noise_exceeds_spread")
    assert found.true_variance == pytest.approx(0.0025 - 0.04)
    assert reliability([0.1, 0.2], [0.0, 0.0]).reason == "too_few_estimates"
    assert reliability([0.1] * 3, [0.0] * 3).reason == "no_variation"
    both = disattenuated_correlation([1, 2, 3], [1, 1, 1], [0.0] * 3, [0.0] * 3)
    assert (both.observed, both.estimate, both.reason) == (None, None, "second:no_variation")


def test_without_errors_nothing_is_corrected():
    x, y = [1.0, 2.0, 4.0, 3.0], [2.0, 1.0, 5.0, 3.0]
    found = disattenuated_correlation(x, y, [0.0] * 4, [0.0] * 4)
    assert found.estimate == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert (found.observed, found.ceiling) == (pytest.approx(found.estimate), 1)


def simulated(n_models: int, replicates: int, seed: int) -> np.ndarray:
    """Draw models of true correlation .6 and reliability .8; both sides share errors with their own and each other."""
    rng = np.random.default_rng(seed)
    shared = np.full((n_models, n_models), 0.125) + np.diag([0.125] * n_models)
    of_models, of_errors = np.linalg.cholesky([[0.5, 0.3], [0.3, 0.5]]), np.linalg.cholesky(shared)
    rows = []
    for _ in range(replicates):
        true = rng.standard_normal((n_models, 2)) @ of_models.T
        first = of_errors @ rng.standard_normal(n_models)
        second = 0.8 * first + 0.6 * of_errors @ rng.standard_normal(n_models)
        found = disattenuated_correlation(true[:, 0] + first, true[:, 1] + second, shared, shared, 0.8 * shared)
        rows.append([found.observed, found.estimate, found.first.estimate, found.ceiling])
    return np.array(rows, float)


def test_errors_that_both_sides_share_are_taken_out_of_a_simulated_correlation():
    observed, corrected, reliable, ceiling = np.nanmean(simulated(60, 150, 5), axis=0)
    # Theory: (.3 + .8 * .125) / (.5 + .125) = .64 as it is, .60 in truth, reliability .8; standard error about .008.
    assert observed == pytest.approx(0.64, abs=0.03)
    assert corrected == pytest.approx(0.60, abs=0.03)
    assert reliable == pytest.approx(0.80, abs=0.02)
    assert ceiling == pytest.approx(0.80, abs=0.02)


def test_settings_that_differ_by_errors_only_agree_as_far_as_the_ceiling():
    rng, settings, models = np.random.default_rng(2), 4, 8
    of_questions = np.kron(np.eye(settings), np.eye(models)) * 0.01
    covariance = of_questions + np.kron(np.ones((settings, settings)), np.eye(models)) * 0.004
    root, found, ceilings = np.linalg.cholesky(covariance), [], []
    for _ in range(120):
        true = rng.normal(0, 0.15, models)
        errors = root @ rng.standard_normal(settings * models)
        scores = (np.tile(true, settings) + errors).reshape(settings, models)
        ceiling = kendall_w_ceiling(scores, covariance, n_resamples=100, rng=rng)
        if ceiling.estimate is not None:
            found.append(kendall_w(scores).estimate)
            ceilings.append(ceiling.estimate)
    assert len(found) > 100
    # Over six seeds the ceiling is .015 too low on average; the standard error of the difference is .007.
    assert np.mean(found) == pytest.approx(np.mean(ceilings), abs=0.04)
    assert np.mean(found) < 0.85


def test_a_ceiling_without_rankings_or_beyond_the_noise_has_a_reason():
    assert kendall_w_ceiling([[0.1, 0.2, 0.3]], np.eye(3)).reason == "one_setting"
    assert kendall_w_ceiling([[0.1, 0.2, 0.3]] * 2, np.eye(6)).reason == "noise_exceeds_spread"
    exact = kendall_w_ceiling([[0.1, 0.2, 0.3]] * 2, np.zeros((6, 6)), rng=0)
    assert (exact.estimate, exact.low) == (pytest.approx(1), pytest.approx(1))


@pytest.mark.parametrize(
    ("values", "covariance", "message"),
    [
        ([[1.0]], [1.0], "one value a model or prompt"),
        ([1, 2, 3], [1.0, 2.0], "shape"),
        ([1, 2, 3], [np.nan] * 3, "finite"),
    ],
)
def test_what_does_not_fit_is_said(values, covariance, message):
    with pytest.raises(ValueError, match=message):
        reliability(values, covariance)
    with pytest.raises(ValueError, match="the same models"):
        disattenuated_correlation([1, 2, 3], [1, 2], [0] * 3, [0] * 2)
