"""Agreement of rankings, isotonic residuals, sampling noise and variability over prompts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import LinearConstraint, isotonic_regression, minimize
from scipy.stats import spearmanr
from tests.paper.printed import VARIABILITY, VARIABILITY_AVERAGES

from refusal_index.data.published import hallucination_rows
from refusal_index.plugins.studies.stability import (
    coefficient_of_variation,
    disattenuated_correlation,
    expected_winner_entropy,
    isotonic_residuals,
    kendall_w,
    kendall_w_ceiling,
    normalized_difference,
    ranking_stability,
    reliability,
    winner_entropy,
)

# --- Kendall's W, winner entropy and their values for random rankings

HALLUCINATION = hallucination_rows().drop("model").to_numpy().T.tolist()
"""The paper's RI: one row a benchmark, one column a model."""
TIED = [[1, 1, 2, 3, 3, 3], [2, 1, 2, 4, 4, 5], [0, 0, 0, 0, 0, 1], [1, 2, 3, 4, 5, 6], [6, 2, 3, 4, 5, 6]]
MATRICES = st.tuples(st.integers(2, 6), st.integers(2, 6)).flatmap(
    lambda shape: arrays(float, shape, elements=st.integers(-3, 3).map(float))
)


def test_agreement_against_the_papers_hallucination_table() -> None:
    assert np.mean(HALLUCINATION, axis=1) == pytest.approx([0.480, 0.560, 0.244, 0.318], abs=1e-12)
    assert kendall_w(HALLUCINATION).estimate == pytest.approx(0.2125, abs=1e-12)
    assert kendall_w(HALLUCINATION, correct_ties=True).estimate == pytest.approx(0.2179, abs=5e-5)
    assert winner_entropy(HALLUCINATION).estimate == pytest.approx(0.6460, abs=5e-5)


@pytest.mark.parametrize(
    ("scores", "plain", "corrected"),
    [
        # tests/stats/r/agreement.R: base R, and vegan::kendall.global(t(scores), nperm=0)
        (HALLUCINATION, 0.2125, 0.217948717949),
        (TIED, 0.580571428571, 0.691156462585),
    ],
)
def test_kendall_w_against_r(scores, plain: float, corrected: float) -> None:
    assert kendall_w(scores).estimate == pytest.approx(plain, abs=1e-11)
    assert kendall_w(scores, correct_ties=True).estimate == pytest.approx(corrected, abs=1e-11)


@pytest.mark.parametrize(("m", "n"), [(2, 3), (3, 8), (7, 5)])
def test_kendall_w_against_theory_is_the_mean_spearman_correlation(m: int, n: int) -> None:
    # Without ties W = (1 + (m - 1) mean pairwise Spearman) / m.
    scores = np.random.default_rng(m).standard_normal((m, n))
    pairs = [spearmanr(a, b).statistic for a, b in itertools.combinations(scores, 2)]
    for correct_ties in (False, True):
        w = kendall_w(scores, correct_ties=correct_ties).estimate
        assert w == pytest.approx((1 + (m - 1) * np.mean(pairs)) / m, abs=1e-12)


@given(MATRICES)
def test_ties_lower_w_unless_corrected(scores: np.ndarray) -> None:
    plain, corrected = kendall_w(scores), kendall_w(scores, correct_ties=True)
    if plain.status == "ok":
        assert plain.estimate <= corrected.estimate + 1e-12
        tied = any(len(set(row)) < len(row) for row in scores.tolist())
        assert (plain.estimate < corrected.estimate - 1e-12) == (tied and corrected.estimate > 1e-12)


@given(MATRICES, st.randoms(use_true_random=False))
def test_agreement_does_not_depend_on_order_or_scale(scores: np.ndarray, random) -> None:
    m, n = scores.shape
    shuffled = scores[random.sample(range(m), m)][:, random.sample(range(n), n)]
    rescaled = np.exp(shuffled * np.arange(1, m + 1)[:, np.newaxis])
    for function in (kendall_w, winner_entropy):
        ours, theirs = function(scores), function(rescaled)
        assert ours.reason == theirs.reason
        if ours.status == "ok":
            assert ours.estimate == pytest.approx(theirs.estimate, abs=1e-12)
            assert 0 <= ours.estimate <= 1 + 1e-12


def test_full_agreement_has_w_1_and_zero_winner_entropy() -> None:
    scores = np.array([[1, 2, 3, 4], [0.1, 0.5, 0.6, 0.9], [5, 6, 7, 8]])
    assert kendall_w(scores).estimate == 1
    assert winner_entropy(scores).estimate == 0
    assert kendall_w([[1, 1, 2], [3, 3, 5]], correct_ties=True).estimate == 1
    assert kendall_w([[1, 1, 2], [3, 3, 5]]).estimate == 0.75
    assert winner_entropy(np.eye(4)).estimate == pytest.approx(1)


@pytest.mark.parametrize(
    ("scores", "reason"),
    [([[1, 2, 3]], "one_setting"), ([[1], [2]], "one_model"), ([[2, 2, 2], [0, 0, 0]], "all_tied")],
)
def test_without_rankings_agreement_is_undefined(scores, reason: str) -> None:
    w, winners = kendall_w(scores), winner_entropy(scores)
    for found in (w, winners):
        assert (found.estimate, found.status, found.reason) == (None, "undefined", reason)


@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        ([["a", "b"]], TypeError, "scores must hold numbers, got an array of <U1"),
        ([[0.1, None]], TypeError, "names or None in it"),
        ([0.1, 0.2], ValueError, r"one row a setting and one column a model, got shape \(2,\)"),
        ([[0.1, math.nan], [1, 2]], ValueError, "scores must be finite, got nan; leave out models"),
    ],
)
def test_invalid_scores_are_errors(scores, error, message: str) -> None:
    for function in (kendall_w, winner_entropy):
        with pytest.raises(error, match=message):
            function(scores)


@pytest.mark.parametrize(("m", "n"), [(2, 3), (3, 2), (4, 3), (3, 4)])
def test_expected_winner_entropy_against_brute_force(m: int, n: int) -> None:
    # Every sequence of winners is equally likely.
    entropies = [winner_entropy(np.eye(n)[list(winners)]).estimate for winners in itertools.product(range(n), repeat=m)]
    assert expected_winner_entropy(m, n) == pytest.approx(np.mean(entropies), rel=1e-12)


# --- Isotonic and additive isotonic residuals

DIRECTIONS = tuple(itertools.product([True, False], repeat=2))
COLUMN = arrays(float, (6, 1), elements=st.integers(-20, 20).map(float))


def isotonic_fit(values: np.ndarray, covariate: np.ndarray, rising: bool) -> np.ndarray:
    """Fit by SciPy's pool-adjacent-violators, tied covariates averaged first."""
    levels, where, sizes = np.unique(covariate, return_inverse=True, return_counts=True)
    means = np.bincount(where, values) / sizes
    fit = isotonic_regression(means, weights=sizes, increasing=rising).x if levels.size > 1 else means
    return fit[where]


def best(fits: list[np.ndarray], metric: np.ndarray) -> np.ndarray:
    """Return the residuals of the fit with the smallest sum of squares."""
    return min((metric - fit for fit in fits), key=lambda residuals: float(np.sum(residuals**2)))


@pytest.mark.parametrize("levels", [1, 4, 1000])
def test_one_covariate_against_scipy(levels: int) -> None:
    rng = np.random.default_rng(levels)
    for size in (2, 3, 8, 40):
        metric, covariate = rng.standard_normal(size), rng.integers(0, levels, size).astype(float)
        residuals = isotonic_residuals(metric[:, None], covariate[:, None])[:, 0]
        expected = best([isotonic_fit(metric, covariate, rising) for rising in (True, False)], metric)
        np.testing.assert_allclose(residuals, expected, atol=1e-9)


def test_two_covariates_against_backfitting() -> None:
    rng = np.random.default_rng(7)
    for size in (4, 8, 24):
        metric, first, second = rng.standard_normal(size), rng.integers(0, 6, size), rng.random(size)
        fits = []
        for directions in DIRECTIONS:
            fit_first = fit_second = np.zeros(size)
            before = np.full(size, np.inf)
            while np.max(np.abs(fit_second - before)) > 1e-11:
                before = fit_second
                fit_first = isotonic_fit(metric - fit_second, first, directions[0])
                fit_second = isotonic_fit(metric - fit_first, second, directions[1])
            fits.append(fit_first + fit_second)
        residuals = isotonic_residuals(metric[:, None], first[:, None], second[:, None])
        np.testing.assert_allclose(residuals[:, 0], best(fits, metric), atol=1e-7)


def test_two_covariates_against_quadratic_programming() -> None:
    rng = np.random.default_rng(11)
    metric, first, second = rng.standard_normal((3, 7))
    # Unknown are the values of both functions at the seven points, each monotonic along its sorted covariate.
    rises, fits = np.diff(np.eye(7), axis=0), []
    for up_first, up_second in DIRECTIONS:
        constraint = np.zeros((12, 14))
        constraint[:6, :7] = (1 if up_first else -1) * rises[:, np.argsort(np.argsort(first))]
        constraint[6:, 7:] = (1 if up_second else -1) * rises[:, np.argsort(np.argsort(second))]
        solution = minimize(
            lambda g: float(np.sum((metric - g[:7] - g[7:]) ** 2)),
            np.zeros(14),
            jac=lambda g: np.tile(-2 * (metric - g[:7] - g[7:]), 2),
            constraints=[LinearConstraint(constraint, 0, np.inf)],
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 1_000},
        )
        fits.append(solution.x[:7] + solution.x[7:])
    residuals = isotonic_residuals(metric[:, None], first[:, None], second[:, None])
    np.testing.assert_allclose(residuals[:, 0], best(fits, metric), atol=1e-6)


@given(COLUMN, COLUMN, COLUMN)
def test_sums_of_monotonic_functions_leave_zero_residuals_property(first, second, noise) -> None:
    metric = np.cbrt(first) - np.exp(second / 9)
    assert not isotonic_residuals(metric, first, second).any()
    assert not isotonic_residuals(np.cbrt(first), first).any()
    assert not isotonic_residuals(noise, noise).any()


@settings(deadline=None)
@given(COLUMN, COLUMN, COLUMN)
def test_residuals_are_orthogonal_to_the_fit_property(metric, first, second) -> None:
    residuals = isotonic_residuals(metric, first, second)
    fit = metric - residuals
    assert abs(residuals.sum()) < 1e-6
    # The residual is orthogonal to the fit, and the fit itself leaves nothing: a second projection changes nothing.
    assert abs(np.sum(residuals * fit)) < 1e-5
    assert np.abs(isotonic_residuals(fit, first, second)).max() < 1e-7
    # More freedom never fits worse.
    assert np.sum(residuals**2) <= np.sum(isotonic_residuals(metric, first) ** 2) + 1e-6


def test_direction_is_chosen_over_all_models() -> None:
    # One model rises by little and one falls by much: the common direction leaves all of the rise.
    metric, covariate = np.array([[0.0, 5.0], [1.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    expected = [[-0.5, 0.0], [0.5, 0.0]]
    np.testing.assert_allclose(isotonic_residuals(metric, covariate, fit_over="model"), expected, atol=1e-12)


def test_fit_over_models_equals_separate_fits() -> None:
    rng = np.random.default_rng(5)
    metric, covariate = rng.random((2, 5, 3))
    metric = np.sort(metric, axis=0)
    covariate = np.sort(covariate, axis=0) + metric  # the function of each model increases
    together = isotonic_residuals(metric**3, covariate, fit_over="model")
    for model in range(3):
        alone = isotonic_residuals(metric[:, [model]] ** 3, covariate[:, [model]])
        np.testing.assert_allclose(together[:, [model]], alone, atol=1e-9)
    np.testing.assert_allclose(together.sum(axis=0), 0, atol=1e-9)


def test_equal_residuals_are_exactly_equal() -> None:
    # 0.3 - 0.2 and 0.2 - 0.1 differ in floating point; ranks must not tell them apart.
    metric = np.array([[0.1, 0.2], [0.2, 0.3]])
    residuals = isotonic_residuals(metric, np.zeros((2, 2)), fit_over="model")
    assert np.unique(residuals).size == 2


@pytest.mark.parametrize(
    ("metric", "covariate", "message"),
    [
        ([[1.0], [2.0]], [[1.0, 2.0]], r"shape \(2, 1\), got shape \(1, 2\); is one of them transposed"),
        ([[np.inf]], [[1.0]], "metric must be finite, got inf"),
        ([[1.0]], [[np.nan]], "covariate must be finite, got nan"),
    ],
)
def test_invalid_input_is_an_error(metric, covariate, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        isotonic_residuals(metric, covariate)


# --- The stability study

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
        # The weighted score is a sum of both rates, whatever its p, though the paper prints numbers for it.
        (CORRECT - 0.2 * (1 - REFUSED), {"both"}),
        (CORRECT - (1 - REFUSED), {"both"}),
    ],
)
def test_metrics_determined_by_the_rates_leave_no_ranking(metric, explained, fit_over: str) -> None:
    rows = stability(metric, fit_over=fit_over)
    for removed, row in rows.items():
        assert (row["reason"] == "all_tied") == (row["kendall_w"] is None) == (removed in explained)


def test_fits_per_model_remove_a_perfectly_stable_metric() -> None:
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


def test_regression_lowers_the_random_baseline() -> None:
    by_model = stability(STABLE, fit_over="model")
    assert by_model["both"]["random_kendall_w"] < 0.3 * by_model["nothing"]["random_kendall_w"]


def test_same_seed_gives_the_same_rows() -> None:
    assert stability(STABLE) == stability(STABLE)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((STABLE[:7], CORRECT, REFUSED), {}, r"correct_rate must have a value .* shape \(7, 6\), got shape \(8, 6\)"),
        ((STABLE, CORRECT, REFUSED.T), {}, "refusal_rate must have a value .* is one of them transposed"),
        ((STABLE, CORRECT, REFUSED), {"n_resamples": 0}, "n_resamples must be at least 1, got 0"),
    ],
)
def test_invalid_input_of_the_procedure_is_an_error(arguments, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ranking_stability(*arguments, **options)


# --- Reliability, disattenuated correlations and the ceiling of Kendall's W, against theory and simulated truth


def test_reliability_of_independent_estimates_against_its_formula():
    values, errors = np.array([0.1, 0.3, 0.2, 0.6]), np.array([0.1, 0.05, 0.1, 0.15])
    found = reliability(values, errors**2)
    assert found.estimate == pytest.approx(1 - np.mean(errors**2) / values.var(ddof=1))
    assert found.true_variance == pytest.approx(values.var(ddof=1) - np.mean(errors**2))


def test_common_error_does_not_lower_reliability():
    values = [0.1, 0.3, 0.2, 0.6]
    assert reliability(values, np.full((4, 4), 7.0)).estimate == pytest.approx(1)


def test_noise_exceeding_the_spread_is_undefined_with_a_reason():
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


def test_shared_errors_are_removed_from_a_simulated_correlation():
    observed, corrected, reliable, ceiling = np.nanmean(simulated(60, 150, 5), axis=0)
    # Theory: (.3 + .8 * .125) / (.5 + .125) = .64 as it is, .60 in truth, reliability .8; standard error about .008.
    assert observed == pytest.approx(0.64, abs=0.03)
    assert corrected == pytest.approx(0.60, abs=0.03)
    assert reliable == pytest.approx(0.80, abs=0.02)
    assert ceiling == pytest.approx(0.80, abs=0.02)


def test_settings_that_differ_only_by_noise_reach_the_ceiling():
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


def test_undefined_ceiling_has_a_reason():
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
def test_mismatched_values_and_covariances_raise(values, covariance, message):
    with pytest.raises(ValueError, match=message):
        reliability(values, covariance)
    with pytest.raises(ValueError, match="the same models"):
        disattenuated_correlation([1, 2, 3], [1, 2], [0] * 3, [0] * 2)


# --- Variability of a metric across prompts

DELTA, CV = (np.array([rows[part] for rows in VARIABILITY.values()]) for part in (0, 1))
FOUR = st.lists(st.floats(0.01, 1), min_size=4, max_size=4, unique=True)


def test_averages_against_the_papers_table() -> None:
    assert DELTA.mean(axis=0) == pytest.approx([-0.796, 0.978, 0.486, -0.542, -0.480, 0.072], abs=1e-12)
    assert CV.mean(axis=0) == pytest.approx([0.314, 0.388, 0.190, 0.220, 0.466, 0.092], abs=1e-12)
    printed_delta, printed_cv = VARIABILITY_AVERAGES
    assert DELTA.mean(axis=0) == pytest.approx(printed_delta, abs=0.005)
    assert CV.mean(axis=0) == pytest.approx(printed_cv, abs=0.005)


@given(FOUR)
def test_variation_of_four_values_is_bounded_by_their_range_property(values) -> None:
    refusal = np.argsort(np.argsort(values))
    delta = normalized_difference(values, refusal).estimate
    assert 1 / np.sqrt(8) - 1e-9 <= coefficient_of_variation(values).estimate / delta <= 1 / 2 + 1e-9
    sample = coefficient_of_variation(values, ddof=1).estimate / delta
    assert 1 / np.sqrt(6) - 1e-9 <= sample <= 1 / np.sqrt(3) + 1e-9


def test_paper_uses_the_population_coefficient_of_variation() -> None:
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


def test_difference_is_between_extreme_prompts_not_extreme_values() -> None:
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
def test_invalid_input_of_variability_is_an_error(call, error, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
