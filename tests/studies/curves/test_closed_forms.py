"""Other metrics as functions of rho and the error rate."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import cumulative_simpson, simpson
from scipy.stats import kendalltau, multivariate_normal, norm

from refusal_index.plugins.studies.copulas import kendall_tau
from refusal_index.plugins.studies.curves import accuracy_refusal_area, latent_aurc, latent_excess_aurc
from refusal_index.stats.baseline import latent_auroc, rho_from_refusal_index

RHO = st.floats(-1, 1)
RATE = st.floats(0.001, 0.999)
CASES = [(0.5, 0.92), (0.3, 0.65), (0.8, 0.75), (-0.6, 0.4), (0.0, 0.1), (0.95, 0.5), (-0.99, 0.9)]


def by_integration(rho: float, mu: float) -> tuple[float, float]:
    """AUROC and AURC from their definitions, over a fine grid of scores."""
    z = np.linspace(-9, 9, 40_001)
    density, wrong = norm.pdf(z), norm.cdf((rho * z - norm.isf(mu)) / math.sqrt(1 - rho * rho))
    right_below = cumulative_simpson(density * (1 - wrong), x=z, initial=0)
    risk = cumulative_simpson(density * wrong, x=z, initial=0) / norm.cdf(z)
    auroc_ = simpson(density * wrong * right_below, x=z) / (mu * (1 - mu))
    return float(auroc_), float(simpson(density * risk, x=z))


def test_auroc_against_facts() -> None:
    found = latent_auroc([0.5, 0.3, 0.8], [0.92, 0.65, 0.75])
    np.testing.assert_allclose(found, [0.77853, 0.63868, 0.89389], atol=1e-5)


def test_aurc_against_facts() -> None:
    assert latent_aurc(0.5, 0.92) == pytest.approx(0.83667, abs=1e-5)
    assert latent_excess_aurc(0.5, 0.92) == pytest.approx(0.11872, abs=1e-5)


@pytest.mark.parametrize(("rho", "mu"), CASES)
def test_auroc_and_aurc_against_the_integrals_of_their_definitions(rho: float, mu: float) -> None:
    assert (latent_auroc(rho, mu), latent_aurc(rho, mu)) == pytest.approx(by_integration(rho, mu), abs=1e-9)


@pytest.mark.parametrize(("rho", "mu"), [(0.5, 0.92), (0.8, 0.3), (-0.4, 0.6)])
def test_all_of_them_against_brute_force(rho: float, mu: float) -> None:
    n = 200_000
    score, difficulty = (
        np.random.default_rng(3).multivariate_normal([0, 0], [[1, rho], [rho, 1]], size=n, method="cholesky").T
    )
    wrong = (difficulty > norm.isf(mu))[np.argsort(score)]
    risks = np.cumsum(wrong) / np.arange(1, n + 1)
    right_below = np.cumsum(~wrong)
    # The standard errors of these are about .001.
    assert latent_auroc(rho, mu) == pytest.approx(right_below[wrong].sum() / (wrong.sum() * (~wrong).sum()), abs=0.004)
    assert latent_aurc(rho, mu) == pytest.approx(risks.mean(), abs=0.004)
    assert accuracy_refusal_area(rho, mu) == pytest.approx(right_below.mean() / n, abs=0.004)
    best = np.cumsum(np.sort(wrong)) / np.arange(1, n + 1)
    assert latent_excess_aurc(rho, mu) == pytest.approx((risks - best).mean(), abs=0.004)
    assert kendall_tau(rho) == pytest.approx(kendalltau(score[:20_000], difficulty[:20_000]).statistic, abs=0.015)


@given(RHO)
def test_auroc_against_theory_where_half_is_wrong(rho: float) -> None:
    assert latent_auroc(rho, 0.5) == pytest.approx(0.5 + 2 / math.pi * math.asin(rho / math.sqrt(2)), abs=1e-14)


@given(RHO, RATE)
def test_area_against_the_auroc(rho: float, mu: float) -> None:
    expected = (1 - mu) * ((1 - mu) / 2 + mu * latent_auroc(rho, mu))
    assert accuracy_refusal_area(rho, mu) == pytest.approx(expected, abs=1e-14)


@given(RHO, RHO, RATE)
def test_a_higher_rho_ranks_better(one: float, other: float, mu: float) -> None:
    low, high = sorted((one, other))
    assert latent_auroc(low, mu) <= latent_auroc(high, mu) + 1e-11
    assert latent_aurc(high, mu) <= latent_aurc(low, mu) + 1e-11
    assert accuracy_refusal_area(low, mu) <= accuracy_refusal_area(high, mu) + 1e-14


@given(RHO, RATE)
def test_a_reversed_score_has_the_reversed_auroc(rho: float, mu: float) -> None:
    assert latent_auroc(-rho, mu) == pytest.approx(1 - latent_auroc(rho, mu), abs=1e-9)


def test_the_two_ways_to_the_aurc_meet() -> None:
    edge = math.sqrt(0.5)
    for mu in (0.01, 0.5, 0.92):
        assert latent_aurc(edge - 1e-12, mu) == pytest.approx(latent_aurc(edge + 1e-12, mu), abs=1e-11)
        assert latent_aurc(-edge + 1e-12, mu) == pytest.approx(latent_aurc(-edge - 1e-12, mu), abs=1e-11)


def test_ends_of_the_ranges() -> None:
    # The perfect score, chance, and error rates at which there is nothing to rank.
    np.testing.assert_allclose(latent_auroc([1, 0, -1], 0.3), [1, 0.5, 0], atol=1e-15)
    np.testing.assert_allclose(latent_aurc(0, [0.1, 0.7]), [0.1, 0.7], atol=1e-14)
    np.testing.assert_allclose(latent_excess_aurc(1, [0.1, 0.7, 0.999]), 0, atol=1e-13)
    np.testing.assert_allclose(accuracy_refusal_area(0.4, [0, 1]), [0.5, 0], atol=1e-15)
    assert np.isnan(latent_auroc(0.4, [0, 1])).all()
    np.testing.assert_allclose(latent_aurc([[0.4], [0.9], [-1]], [0, 1]), [[0, 1]] * 3, atol=1e-13)


def test_shapes_broadcast_and_numbers_give_numbers() -> None:
    for function in (latent_auroc, latent_aurc, latent_excess_aurc, accuracy_refusal_area):
        assert function([0.1, 0.2, 0.9], [[0.5], [0.6]]).shape == (2, 3)
        assert isinstance(function(0.1, 0.2), float)
        assert function([0.1, 0.9], 0.3)[1] == pytest.approx(function(0.9, 0.3), abs=1e-15)


@given(RHO)
def test_the_index_turns_back_into_rho(rho: float) -> None:
    assert rho_from_refusal_index(6 / math.pi * math.asin(rho / 2)) == pytest.approx(rho, abs=1e-15)


def test_kendall_tau_against_theory_is_twice_the_surplus_of_a_quadrant() -> None:
    for rho in (-0.7, 0.2, 0.9):
        quadrant = multivariate_normal.cdf([0, 0], cov=[[1, rho], [rho, 1]])
        assert kendall_tau(rho) == pytest.approx(4 * quadrant - 1, abs=1e-8)
    assert [kendall_tau(-1), kendall_tau(1)] == [-1, 1]


@pytest.mark.parametrize(
    ("rho", "mu", "message"),
    [
        (1.01, 0.5, r"rho must lie in \[-1, 1\], got 1.01; is it a percentage"),
        ([0.1, np.nan], 0.5, r"rho must lie in \[-1, 1\], got nan; is it a percentage, or missing"),
        (0.5, [0.2, 92], r"error_rate must lie in \[0, 1\], got 92.0"),
    ],
)
@pytest.mark.parametrize("function", [latent_auroc, latent_aurc, latent_excess_aurc, accuracy_refusal_area])
def test_impossible_parameters_are_errors(function, rho, mu, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(rho, mu)
