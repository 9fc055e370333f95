"""Isotonic and additive isotonic residuals."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import LinearConstraint, isotonic_regression, minimize

from refusal_index.plugins.studies.stability import isotonic_residuals

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
def test_sums_of_monotonic_functions_leave_exactly_nothing(first, second, noise) -> None:
    metric = np.cbrt(first) - np.exp(second / 9)
    assert not isotonic_residuals(metric, first, second).any()
    assert not isotonic_residuals(np.cbrt(first), first).any()
    assert not isotonic_residuals(noise, noise).any()


@settings(deadline=None)
@given(COLUMN, COLUMN, COLUMN)
def test_residuals_are_those_of_a_projection(metric, first, second) -> None:
    residuals = isotonic_residuals(metric, first, second)
    fit = metric - residuals
    assert abs(residuals.sum()) < 1e-6
    # The residual is orthogonal to the fit, and the fit itself leaves nothing: a second projection changes nothing.
    assert abs(np.sum(residuals * fit)) < 1e-5
    assert np.abs(isotonic_residuals(fit, first, second)).max() < 1e-7
    # More freedom never fits worse.
    assert np.sum(residuals**2) <= np.sum(isotonic_residuals(metric, first) ** 2) + 1e-6


def test_the_direction_is_the_best_over_all_models() -> None:
    # One model rises by little and one falls by much: the common direction leaves all of the rise.
    metric, covariate = np.array([[0.0, 5.0], [1.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    expected = [[-0.5, 0.0], [0.5, 0.0]]
    np.testing.assert_allclose(isotonic_residuals(metric, covariate, fit_over="model"), expected, atol=1e-12)


def test_a_fit_over_models_is_one_for_each() -> None:
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
