"""The tetrachoric correlation of many tables and of one."""

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.estimator import plain_scipy
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from refusal_index.stats import tetrachoric, upper_orthant
from refusal_index.stats.estimator import tetrachoric_of_counts

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
def test_against_high_precision(counts, rho: float) -> None:
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
def test_against_r_psych(counts, rho: float) -> None:
    assert tetrachoric_of_counts(*counts) == pytest.approx(rho, abs=3e-5)


@pytest.mark.parametrize("counts", [(710, 30, 210, 50), (219, 41, 2595, 1471), (30, 1, 2, 7), (1200, 100, 500, 200)])
def test_against_maximising_the_papers_likelihood_with_scipy(counts) -> None:
    spearman = 6 / np.pi * np.arcsin(tetrachoric_of_counts(*counts) / 2)
    assert spearman == pytest.approx(plain_scipy(counts), abs=2e-5)


@pytest.mark.parametrize("counts", [(710, 30, 210, 50), (9891, 104, 1, 4), (36241, 13793, 76682, 2)])
def test_against_a_bracketing_root_search(counts) -> None:
    n11, n10, n01, _ = counts
    n = sum(counts)
    h, k = norm.isf([(n11 + n10) / n, (n11 + n01) / n])
    expected = brentq(lambda rho: float(upper_orthant(h, k, rho)) - n11 / n, -0.9999999, 0.9999999, xtol=1e-15)
    assert tetrachoric_of_counts(*counts) == pytest.approx(expected, abs=1e-11)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_against_theory_where_both_rates_are_one_half(concordant: int, discordant: int) -> None:
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
def test_inverts_the_orthant(h: float, k: float, rho: float) -> None:
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
    assert tetrachoric(1.0, 1e-120, 1.0, 1.0) == pytest.approx(1, abs=1e-12)


def test_the_scale_of_the_cells_does_not_matter() -> None:
    cells = np.array([710, 30, 210, 50])
    np.testing.assert_allclose(tetrachoric(*(cells / 1000)), tetrachoric(*(cells * 7)), atol=1e-15)


def test_shapes_broadcast_and_empty_arrays_stay_empty() -> None:
    assert tetrachoric(np.ones((3, 1)), np.ones(2), 1, 1).shape == (3, 2)
    assert tetrachoric([], [], [], []).shape == (0,)
