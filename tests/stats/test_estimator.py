"""The tetrachoric correlation, of many tables and of one, and the bivariate normal distribution behind it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks.estimator import plain_scipy
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import multivariate_normal, norm

from refusal_index.stats import density, tetrachoric, upper_orthant
from refusal_index.stats.estimator import tetrachoric_of_counts

# --- The tetrachoric correlation of many tables and of one

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
COUNTS = st.tuples(*[st.integers(1, 10**5)] * 4)

# mpmath 1.4, 40 digits: Newton's method on the orthant in asin(rho), thresholds at the margins.
HIGH_PRECISION = [
    ((9891, 104, 1, 4), 0.7969189845871257517),
    ((9891, 1, 104, 4), 0.7969189845871257517),
    ((104, 9891, 4, 1), -0.7969189845871257517),
    ((1, 999, 999, 8001), -0.65567572546622986949),
    ((5, 5, 5, 99985), 0.94348755621418685315),
    ((36241, 13793, 76682, 2), -0.95493264208931476163),
    ((1200, 100, 500, 200), 0.49719695985507271822),
    ((2000, 1, 1, 2324), 0.99999893587024185697),
    ((3, 1, 2, 9994), 0.97339980158357034162),
    ((1, 4, 1, 1), -0.47857631998479690309),
]
REFERENCES = HIGH_PRECISION + [(tuple(case["table"]), float(case["rho"])) for case in GOLDEN]


@pytest.mark.parametrize(("counts", "rho"), REFERENCES)
def test_tetrachoric_against_high_precision(counts, rho: float) -> None:
    assert abs(tetrachoric_of_counts(*counts) - rho) < 1e-12
    assert abs(tetrachoric(*counts) - rho) < 1e-12


@pytest.mark.parametrize(
    ("counts", "rho"),
    [
        # R: psych::tetrachoric(matrix(counts, 2, byrow=TRUE), correct=0)$rho, which stops its search at about 1e-5;
        # r/tetrachoric.R
        ((710, 30, 210, 50), 0.49958064),
        ((219, 41, 2595, 1471), 0.29221283),
        ((100, 900, 900, 100), -0.95105570),
        ((4, 36, 127, 4159), 0.23290180),
        ((40, 10, 20, 30), 0.60709210),
    ],
)
def test_tetrachoric_against_r_psych(counts, rho: float) -> None:
    assert tetrachoric_of_counts(*counts) == pytest.approx(rho, abs=3e-5)


@pytest.mark.parametrize("counts", [(710, 30, 210, 50), (219, 41, 2595, 1471), (30, 1, 2, 7), (1200, 100, 500, 200)])
def test_tetrachoric_against_papers_likelihood_maximised_by_scipy(counts) -> None:
    spearman = 6 / np.pi * np.arcsin(tetrachoric_of_counts(*counts) / 2)
    assert spearman == pytest.approx(plain_scipy(counts), abs=2e-5)


@pytest.mark.parametrize("counts", [(710, 30, 210, 50), (9891, 104, 1, 4), (36241, 13793, 76682, 2)])
def test_tetrachoric_against_bracketing_root_search(counts) -> None:
    n11, n10, n01, _ = counts
    n = sum(counts)
    h, k = norm.isf([(n11 + n10) / n, (n11 + n01) / n])
    expected = brentq(lambda rho: float(upper_orthant(h, k, rho)) - n11 / n, -0.9999999, 0.9999999, xtol=1e-15)
    assert tetrachoric_of_counts(*counts) == pytest.approx(expected, abs=1e-11)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_tetrachoric_against_theory_when_both_rates_are_one_half(concordant: int, discordant: int) -> None:
    p11 = concordant / (2 * (concordant + discordant))
    rho = tetrachoric_of_counts(concordant, discordant, discordant, concordant)
    assert rho == pytest.approx(np.sin(np.pi / 2 * (4 * p11 - 1)), abs=1e-12)


@given(*[st.integers(1, 1000)] * 4)
def test_independent_tables_give_exactly_zero(a: int, b: int, c: int, d: int) -> None:
    counts = (a * c, a * d, b * c, b * d)
    assert tetrachoric_of_counts(*counts) == 0
    assert tetrachoric(*counts) == 0


@settings(deadline=None)
@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(-0.9, 0.9))
def test_tetrachoric_inverts_the_orthant(h: float, k: float, rho: float) -> None:
    cells = upper_orthant([h, h, -h, -h], [k, -k, k, -k], [rho, -rho, -rho, rho])
    assume(cells.min() > 1e-9)
    # The smaller a cell, the more the rounding errors of the orthant count.
    assert tetrachoric(*cells) == pytest.approx(rho, abs=1e-12 + 1e-15 / cells.min())


@settings(deadline=None)
@given(COUNTS)
def test_one_table_agrees_with_many(counts) -> None:
    assert tetrachoric(*counts) == pytest.approx(tetrachoric_of_counts(*counts), abs=1e-11)


def test_one_table_agrees_with_many_over_several_chunks() -> None:
    tables = np.random.default_rng(7).integers(1, 3000, size=(40_000, 4))
    many = tetrachoric(*tables.T)
    picked = [0, 16_383, 16_384, 32_767, 32_768, 39_999]
    np.testing.assert_allclose(many[picked], [tetrachoric_of_counts(*tables[i]) for i in picked], atol=1e-13)


def test_every_table_of_a_wide_sample_is_solved() -> None:
    # Counts spread evenly over six decades meet every combination of common and rare margins.
    cells = np.round(10 ** np.random.default_rng(11).uniform(0, 6, size=(4, 20_000)))
    cells /= cells.sum(axis=0)
    h, k = norm.isf(cells[0] + cells[1]), norm.isf(cells[0] + cells[2])
    rho = tetrachoric(*cells)
    # Beyond this the cells depend on digits of rho that a double does not have.
    told_apart = np.abs(rho) < 0.9999
    assert told_apart.mean() > 0.9
    for cell, x, y, sign in zip(cells, (h, h, -h, -h), (k, -k, k, -k), (1, -1, -1, 1), strict=True):
        modelled = upper_orthant(x, y, sign * rho)
        np.testing.assert_allclose(modelled[told_apart], cell[told_apart], rtol=1e-12, atol=5e-15)


def test_zero_cells_and_degenerate_margins() -> None:
    tables = {
        (0, 3, 4, 5): -1,
        (3, 4, 5, 0): -1,
        (0, 3, 4, 0): -1,
        (3, 0, 4, 5): 1,
        (3, 4, 0, 5): 1,
        (3, 0, 0, 5): 1,
        (0, 0, 4, 5): np.nan,
        (3, 4, 0, 0): np.nan,
        (0, 3, 0, 5): np.nan,
        (3, 0, 4, 0): np.nan,
        (0, 0, 0, 5): np.nan,
        (0, 0, 0, 0): np.nan,
        (np.nan, 1, 1, 1): np.nan,
    }
    np.testing.assert_array_equal(tetrachoric(*np.transpose(list(tables))), list(tables.values()))


def test_cells_too_small_to_compute_with_count_as_zero() -> None:
    assert tetrachoric(1.0, 1e-200, 1.0, 1.0) == 1


def test_a_cell_of_1e_120_against_quadrature() -> None:
    rho, (h, k) = float(tetrachoric(1.0, 1e-120, 1.0, 1.0)), norm.isf([1 / 3, 2 / 3])
    spread = math.sqrt(1 - rho * rho)
    # The conditional probability has no absolute scale: the integrand is divided by its value at the threshold.
    at_h = norm.logpdf(h) + norm.logcdf((k - rho * h) / spread)
    share = quad(lambda x: math.exp(norm.logpdf(x) + norm.logcdf((k - rho * x) / spread) - at_h), h, h + 0.1)[0]
    assert math.log(share) + at_h == pytest.approx(math.log(1e-120 / 3), abs=1e-6)


def test_the_scale_of_the_cells_does_not_matter() -> None:
    cells = np.array([710, 30, 210, 50])
    np.testing.assert_allclose(tetrachoric(*(cells / 1000)), tetrachoric(*(cells * 7)), atol=1e-15)


def test_shapes_broadcast_and_empty_arrays_stay_empty() -> None:
    assert tetrachoric(np.ones((3, 1)), np.ones(2), 1, 1).shape == (3, 2)
    assert tetrachoric([], [], [], []).shape == (0,)


# --- The upper orthant of the bivariate normal distribution and its density

THRESHOLDS = st.floats(-5, 5)
CORRELATIONS = st.floats(-0.999999, 0.999999)

# mpmath 1.4, 40 digits: Q(h) Q(k) plus the integral over theta from 0 to asin(rho) of
# exp(-(h^2 + k^2 - 2 h k sin(theta)) / (2 cos(theta)^2)) / (2 pi).
ORTHANTS = [
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


@pytest.mark.parametrize(("h", "k", "rho", "expected"), ORTHANTS)
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


def test_orthant_at_infinite_or_nan_thresholds() -> None:
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
