"""The AUROC as a function of rho and the error rate."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import cumulative_simpson, simpson
from scipy.stats import norm

from refusal_index.stats.baseline import latent_auroc, rho_from_refusal_index

RHO = st.floats(-1, 1)
RATE = st.floats(0.001, 0.999)
CASES = [(0.5, 0.92), (0.3, 0.65), (0.8, 0.75), (-0.6, 0.4), (0.0, 0.1), (0.95, 0.5), (-0.99, 0.9)]


def by_integration(rho: float, mu: float) -> float:
    """AUROC from its definition, over a fine grid of scores."""
    z = np.linspace(-9, 9, 40_001)
    density, wrong = norm.pdf(z), norm.cdf((rho * z - norm.isf(mu)) / math.sqrt(1 - rho * rho))
    right_below = cumulative_simpson(density * (1 - wrong), x=z, initial=0)
    return float(simpson(density * wrong * right_below, x=z) / (mu * (1 - mu)))


def test_auroc_against_facts() -> None:
    found = latent_auroc([0.5, 0.3, 0.8], [0.92, 0.65, 0.75])
    np.testing.assert_allclose(found, [0.77853, 0.63868, 0.89389], atol=1e-5)


@pytest.mark.parametrize(("rho", "mu"), CASES)
def test_auroc_against_the_integral_of_its_definition(rho: float, mu: float) -> None:
    assert latent_auroc(rho, mu) == pytest.approx(by_integration(rho, mu), abs=1e-9)


@pytest.mark.parametrize(("rho", "mu"), [(0.5, 0.92), (0.8, 0.3), (-0.4, 0.6)])
def test_auroc_against_brute_force(rho: float, mu: float) -> None:
    n = 200_000
    score, difficulty = (
        np.random.default_rng(3).multivariate_normal([0, 0], [[1, rho], [rho, 1]], size=n, method="cholesky").T
    )
    wrong = (difficulty > norm.isf(mu))[np.argsort(score)]
    right_below = np.cumsum(~wrong)
    # The standard error is about .001.
    assert latent_auroc(rho, mu) == pytest.approx(right_below[wrong].sum() / (wrong.sum() * (~wrong).sum()), abs=0.004)


@given(RHO)
def test_auroc_against_theory_where_half_is_wrong(rho: float) -> None:
    assert latent_auroc(rho, 0.5) == pytest.approx(0.5 + 2 / math.pi * math.asin(rho / math.sqrt(2)), abs=1e-14)


@given(RHO, RHO, RATE)
def test_a_higher_rho_ranks_better(one: float, other: float, mu: float) -> None:
    low, high = sorted((one, other))
    assert latent_auroc(low, mu) <= latent_auroc(high, mu) + 1e-11


@given(RHO, RATE)
def test_a_reversed_score_has_the_reversed_auroc(rho: float, mu: float) -> None:
    assert latent_auroc(-rho, mu) == pytest.approx(1 - latent_auroc(rho, mu), abs=1e-9)


def test_ends_of_the_ranges() -> None:
    # The perfect score, chance, and error rates at which there is nothing to rank.
    np.testing.assert_allclose(latent_auroc([1, 0, -1], 0.3), [1, 0.5, 0], atol=1e-15)
    assert np.isnan(latent_auroc(0.4, [0, 1])).all()


def test_shapes_broadcast_and_numbers_give_numbers() -> None:
    assert latent_auroc([0.1, 0.2, 0.9], [[0.5], [0.6]]).shape == (2, 3)
    assert isinstance(latent_auroc(0.1, 0.2), float)
    assert latent_auroc([0.1, 0.9], 0.3)[1] == pytest.approx(latent_auroc(0.9, 0.3), abs=1e-15)


@given(RHO)
def test_the_index_turns_back_into_rho(rho: float) -> None:
    assert rho_from_refusal_index(6 / math.pi * math.asin(rho / 2)) == pytest.approx(rho, abs=1e-15)


@pytest.mark.parametrize(
    ("rho", "mu", "message"),
    [
        (1.01, 0.5, r"rho must lie in \[-1, 1\], got 1.01; is it a percentage"),
        ([0.1, np.nan], 0.5, r"rho must lie in \[-1, 1\], got nan; is it a percentage, or missing"),
        (0.5, [0.2, 92], r"error_rate must lie in \[0, 1\], got 92.0"),
    ],
)
def test_impossible_parameters_are_errors(rho, mu, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        latent_auroc(rho, mu)
