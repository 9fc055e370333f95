"""The upper orthant of the bivariate normal distribution and its density."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm

from refusal_index.stats import density, upper_orthant

THRESHOLDS = st.floats(-5, 5)
CORRELATIONS = st.floats(-0.999999, 0.999999)

# mpmath 1.4, 40 digits: Q(h) Q(k) plus the integral over theta from 0 to asin(rho) of
# exp(-(h^2 + k^2 - 2 h k sin(theta)) / (2 cos(theta)^2)) / (2 pi).
HIGH_PRECISION = [
    (0, 0, 0.5, 0.33333333333333333333),
    (0.3, -0.2, 0.5, 0.29754672426566915977),
    (-1.4, -0.6, 0.4, 0.69021957428893426346),
    (1.5, 1.5, 0.95, 0.050554204795644654997),
    (2, 2.0001, 0.999, 0.021784501567461811429),
    (-2, 2, -0.9, 0.0093888758211599200539),
    (1, -1, -0.999, 0.0043170579961866921196),
    (0, 1.2, 0.7, 0.1080666381817241867),
    (1.2, 0, -0.7, 0.0070030320399840899451),
    (3, 4, -0.3, 1.2682518168339112927e-10),
    (-3, 4, 0.6, 0.00003167124183301391676),
    (0.5, 0.5, -0.99, 5.9240079426808200273e-15),
    (4.5, 4.5, 0.1, 8.7369149608389911901e-11),
    (1e-9, -1e-9, 0.3, 0.29849334201033914318),
    (-2.5, -2.5, -0.95, 0.98758066934844772967),
    (1, 1, 0.999999, 0.15851873656915788595),
]


@pytest.mark.parametrize(("h", "k", "rho", "expected"), HIGH_PRECISION)
def test_orthant_against_high_precision_quadrature(h: float, k: float, rho: float, expected: float) -> None:
    assert abs(upper_orthant(h, k, rho) - expected) < 3e-16


@pytest.mark.parametrize(
    ("h", "k", "rho", "expected"),
    [
        # R: mvtnorm::pmvnorm(lower=c(h, k), upper=Inf, corr=matrix(c(1, rho, rho, 1), 2), algorithm=TVPACK(1e-16))
        (0.3, -0.2, 0.5, 0.2975467242656691),
        (2, 1, -0.6, 0.0000349709801744),
        (-1, 0.5, 0.9, 0.3085192596338551),
    ],
)
def test_orthant_against_r_mvtnorm(h: float, k: float, rho: float, expected: float) -> None:
    assert abs(upper_orthant(h, k, rho) - expected) < 1e-15


def test_orthant_of_small_margins_keeps_relative_accuracy() -> None:
    assert float(upper_orthant(4.5, 4.5, 0.1)) == pytest.approx(8.7369149608389911901e-11, rel=1e-9)


@given(THRESHOLDS, THRESHOLDS)
def test_orthant_against_theory_is_the_product_at_rho_zero(h: float, k: float) -> None:
    assert abs(upper_orthant(h, k, 0.0) - norm.sf(h) * norm.sf(k)) < 3e-16


@given(CORRELATIONS)
def test_orthant_against_theory_of_sheppard_at_zero_thresholds(rho: float) -> None:
    assert abs(upper_orthant(0.0, 0.0, rho) - (0.25 + math.asin(rho) / (2 * math.pi))) < 3e-16


@given(THRESHOLDS, THRESHOLDS)
def test_orthant_against_theory_at_perfect_correlation(h: float, k: float) -> None:
    both = norm.sf(h) + norm.sf(k)
    assert abs(upper_orthant(h, k, 1.0) - min(norm.sf(h), norm.sf(k))) < 3e-16
    assert abs(upper_orthant(h, k, -1.0) - max(both - 1, 0.0)) < 5e-16


@settings(deadline=None)
@given(THRESHOLDS, THRESHOLDS, CORRELATIONS)
def test_orthants_around_the_thresholds_add_up(h: float, k: float, rho: float) -> None:
    quadrants = upper_orthant([h, h, -h, -h], [k, -k, k, -k], [rho, -rho, -rho, rho])
    assert abs(quadrants.sum() - 1) < 1e-15
    assert abs(quadrants[:2].sum() - norm.sf(h)) < 6e-16


def test_orthant_at_infinity_and_beyond_is_a_margin_or_nothing() -> None:
    h = [np.inf, -np.inf, -np.inf, np.nan]
    np.testing.assert_allclose(upper_orthant(h, [0, 1, -np.inf, 0], 0.4), [0, norm.sf(1), 1, np.nan], atol=1e-16)


def test_arguments_broadcast() -> None:
    assert upper_orthant([[0.0], [1.0]], [0.0, 1.0, 2.0], 0.3).shape == (2, 3)


@pytest.mark.parametrize(("h", "k", "rho"), [(0.3, -0.2, 0.5), (2, 1.9, -0.6), (-1, 0.5, 0.97), (1, 1, 0.999)])
def test_density_against_scipy(h: float, k: float, rho: float) -> None:
    expected = multivariate_normal.pdf([h, k], cov=[[1, rho], [rho, 1]])
    assert float(density(h, k, rho)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("h", "k", "rho"), [(0.3, -0.2, 0.5), (1.2, 0.4, -0.6), (-1, 0.5, 0.9)])
def test_density_is_the_slope_of_the_orthant_in_rho(h: float, k: float, rho: float) -> None:
    step = 1e-5
    slope = (upper_orthant(h, k, rho + step) - upper_orthant(h, k, rho - step)) / (2 * step)
    assert float(density(h, k, rho)) == pytest.approx(float(slope), rel=1e-6)


@pytest.mark.parametrize("function", [upper_orthant, density])
def test_a_correlation_beyond_one_is_an_error(function) -> None:
    with pytest.raises(ValueError, match=r"rho must lie in \[-1, 1\], got 1.5; is it a covariance"):
        function(0.0, 0.0, 1.5)
