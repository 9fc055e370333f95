"""The accuracy-refusal curve, and the AUROC as a function of rho and the error rate."""

import math

import numpy as np
import pytest
from benchmarks.coverage import curves as simulation
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.integrate import cumulative_simpson, quad, simpson
from scipy.stats import multivariate_normal, norm
from tests.tiers import others_nightly

from refusal_index import ContingencyTable, refusal_index
from refusal_index.plugins.studies.curves import iso_score
from refusal_index.stats import correct_given_attempted, f_score, tetrachoric, weighted_score
from refusal_index.stats.baseline import (
    accuracy_refusal_curve,
    correct_rate_at,
    iso_refusal_index,
    latent_auroc,
    rho_from_refusal_index,
)

# --- The accuracy-refusal plane and the curve fitted in it

COUNTS = st.tuples(*[st.integers(1, 3000)] * 4)
RATE = st.floats(0, 1)
RHO = st.floats(-1, 1)
GRID = np.linspace(0, 1, 41)


@pytest.mark.parametrize(("r", "rho", "mu"), [(0.74, 0.5, 0.92), (0.06, 0.3, 0.65), (0.5, -0.8, 0.3)])
def test_curve_against_scipys_bivariate_cdf(r: float, rho: float, mu: float) -> None:
    expected = multivariate_normal.cdf([norm.isf(r), norm.isf(mu)], cov=[[1, rho], [rho, 1]])
    assert correct_rate_at(r, rho, mu) == pytest.approx(expected, abs=1e-7)


@given(RHO, RATE)
def test_curves_share_their_endpoints_from_paper_proposition_1(rho: float, mu: float) -> None:
    # Proposition 1 of the paper; its mu is the correct rate, here 1 - mu.
    np.testing.assert_allclose(correct_rate_at([0, 1], rho, mu), [1 - mu, 0], atol=1e-15)


@given(RHO, RATE)
def test_curve_is_decreasing_property(rho: float, mu: float) -> None:
    curve = correct_rate_at(GRID, rho, mu)
    assert (np.diff(curve) <= 1e-15).all()
    assert ((curve >= 0) & (curve <= 1 - GRID + 1e-15)).all()


@given(st.floats(-0.99, 0.99), st.floats(0.01, 0.99), st.floats(0.001, 0.01), st.floats(0.1, 0.9))
def test_curve_increases_with_rho_from_paper_proposition_2(rho: float, mu: float, step: float, r: float) -> None:
    # Proposition 2, with its identity: the slope in rho is the bivariate density.
    higher = min(rho + step, 1.0)
    rise = correct_rate_at(r, higher, mu) - correct_rate_at(r, rho, mu)
    slope = quad(lambda q: multivariate_normal.pdf([norm.isf(r), norm.isf(mu)], cov=[[1, q], [q, 1]]), rho, higher)[0]
    assert rise == pytest.approx(slope, rel=1e-6, abs=1e-14)
    assume(slope > 1e-14)
    assert rise > 0


@given(RHO, st.floats(0.01, 0.99))
def test_curvature_follows_the_sign_of_rho_property(rho: float, mu: float) -> None:
    # Concave for a positive rho, convex for a negative one, straight at 0.
    bend = np.diff(correct_rate_at(GRID, rho, mu), 2)
    assert (np.sign(rho) * bend <= 1e-14).all()
    np.testing.assert_allclose(correct_rate_at(GRID, 0, mu), (1 - mu) * (1 - GRID), atol=1e-15)


@pytest.mark.parametrize(("rho", "mu"), [(0.5, 0.92), (-0.3, 0.4)])
def test_area_below_a_curve_against_its_closed_form(rho: float, mu: float) -> None:
    area = quad(lambda r: correct_rate_at(r, rho, mu), 0, 1, epsabs=1e-10)[0]
    assert area == pytest.approx((1 - mu) * ((1 - mu) / 2 + mu * latent_auroc(rho, mu)), abs=1e-8)


@given(st.floats(-0.95, 0.95), st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_every_point_of_an_iso_curve_has_its_index(index: float, mu: float, r: float) -> None:
    c = float(iso_refusal_index(r, index, mu))
    cells = r + mu + c - 1, 1 - mu - c, 1 - r - c, c
    assume(min(cells) > 1e-6)
    assert 6 / np.pi * np.arcsin(tetrachoric(*cells) / 2) == pytest.approx(index, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "value", "metric"),
    [
        ("correct_given_attempted", 0.4, correct_given_attempted),
        ("f_score", 0.3, f_score),
        ("weighted_score", -0.2, lambda c, r: weighted_score(c, r, p=0.7)),
    ],
)
def test_every_point_of_an_iso_score_line_has_its_score(name, value: float, metric) -> None:
    r = GRID[:-1]
    c = iso_score(r, name, value, weighted_score_p=0.7)
    possible = ~np.isnan(c)
    assert possible.any()
    np.testing.assert_allclose(metric(c[possible], r[possible]), value, atol=1e-12)
    # Where the line leaves the plane no correct rate has that score.
    for impossible in r[~possible]:
        scores = metric(np.linspace(0, 1 - impossible, 11), np.full(11, impossible))
        assert not scores.min() <= value <= scores.max()


@given(COUNTS)
def test_a_fitted_curve_runs_through_its_table(counts) -> None:
    table = ContingencyTable(*counts)
    curve = accuracy_refusal_curve(table, [0, table.refusal_rate, 1])
    np.testing.assert_allclose(curve.correct_rate, [1 - table.error_rate, table.correct_rate, 0], atol=1e-10)
    assert (curve.status, curve.rho) == ("ok", refusal_index(table).rho)


@given(COUNTS, st.booleans())
def test_band_contains_its_curve_and_stays_in_the_plane_property(counts, simultaneous: bool) -> None:
    curve = accuracy_refusal_curve(ContingencyTable(*counts))
    low, high = curve.confidence_band(simultaneous=simultaneous)
    assert (low <= curve.correct_rate + 1e-12).all()
    assert (curve.correct_rate <= high + 1e-12).all()
    assert (low >= 0).all()
    assert (high <= 1 - curve.refusal_rate + 1e-12).all()
    wide = curve.confidence_band(0.99, simultaneous=simultaneous)
    assert (wide.low <= low + 1e-12).all()
    assert (wide.high >= high - 1e-12).all()


def test_band_against_resampling() -> None:
    table, grid = ContingencyTable(710, 30, 210, 50), np.array([0.0, 0.2, 0.5, 0.74, 0.95])
    resamples = np.random.default_rng(1).multinomial(1000, np.array(table.counts) / 1000, size=20_000).T
    rho, mu = tetrachoric(*resamples), (resamples[0] + resamples[2]) / 1000
    scaled = correct_rate_at(grid[:, np.newaxis], rho, mu) / (1 - grid[:, np.newaxis])
    spread = np.log(scaled / (1 - scaled)).std(axis=1)
    low, high = accuracy_refusal_curve(table, grid).confidence_band() / (1 - grid)
    logit_width = np.log(high / (1 - high)) - np.log(low / (1 - low))
    np.testing.assert_allclose(logit_width, 2 * norm.ppf(0.975) * spread, rtol=0.04)


def test_band_without_refusals_is_the_interval_of_the_error_rate() -> None:
    curve = accuracy_refusal_curve(ContingencyTable(400, 100, 200, 300), [0.0])
    low, high = curve.confidence_band(0.9)
    logit, reach = np.log(0.4 / 0.6), norm.ppf(0.95) / np.sqrt(1000 * 0.4 * 0.6)
    expected = 1 / (1 + np.exp(-(logit + np.array([-reach, reach]))))
    np.testing.assert_allclose(np.concatenate([low, high]), expected, rtol=1e-12)


def test_a_boundary_table_has_a_curve_without_a_band() -> None:
    curve = accuracy_refusal_curve(ContingencyTable(5, 0, 2, 3), [0.0, 0.5, 1.0])
    np.testing.assert_allclose(curve.correct_rate, [0.3, 0.3, 0], atol=1e-12)
    assert (curve.status, curve.reason) == ("boundary", "zero_cell:refused_right")
    assert np.isnan(curve.confidence_band()).all()


def test_an_undefined_table_has_no_curve() -> None:
    curve = accuracy_refusal_curve(ContingencyTable(0, 0, 2, 3))
    assert (curve.status, curve.reason, curve.rho) == ("undefined", "nobody_refused", None)
    assert np.isnan(curve.correct_rate).all()
    assert curve.correct_rate.shape == curve.confidence_band().low.shape == (101,)


def test_impossible_arguments_are_errors() -> None:
    table = ContingencyTable(4, 3, 2, 1)
    with pytest.raises(ValueError, match=r"refusal_rate must lie in \[0, 1\], got 74.0"):
        accuracy_refusal_curve(table, [0.5, 74])
    with pytest.raises(ValueError, match=r"refusal_rate must be one-dimensional, got shape \(\); is it a single"):
        accuracy_refusal_curve(table, 0.5)
    with pytest.raises(ValueError, match="metric must be one of correct_given_attempted, f_score"):
        iso_score(0.5, "accuracy", 0.3)
    for simultaneous in (True, False):
        with pytest.raises(ValueError, match="confidence_level must lie strictly between 0 and 1"):
            accuracy_refusal_curve(table).confidence_band(95, simultaneous=simultaneous)


@others_nightly("scenario", simulation.SCENARIOS[:2])
def test_coverage_of_the_bands(scenario) -> None:
    for row in simulation.band_rows(*scenario, 600, np.random.default_rng(11)):
        assert row.holds, row


# --- The AUROC as a function of rho and the error rate

INNER_RATE = st.floats(0.001, 0.999)
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
def test_auroc_at_error_rate_one_half_against_theory(rho: float) -> None:
    assert latent_auroc(rho, 0.5) == pytest.approx(0.5 + 2 / math.pi * math.asin(rho / math.sqrt(2)), abs=1e-14)


@given(RHO, RHO, INNER_RATE)
def test_auroc_increases_with_rho_property(one: float, other: float, mu: float) -> None:
    low, high = sorted((one, other))
    assert latent_auroc(low, mu) <= latent_auroc(high, mu) + 1e-11


@given(RHO, INNER_RATE)
def test_a_reversed_score_has_the_reversed_auroc(rho: float, mu: float) -> None:
    assert latent_auroc(-rho, mu) == pytest.approx(1 - latent_auroc(rho, mu), abs=1e-9)


def test_auroc_at_the_limits_of_its_ranges() -> None:
    # The perfect score, chance, and error rates at which there is nothing to rank.
    np.testing.assert_allclose(latent_auroc([1, 0, -1], 0.3), [1, 0.5, 0], atol=1e-15)
    assert np.isnan(latent_auroc(0.4, [0, 1])).all()


def test_shapes_broadcast_and_numbers_give_numbers() -> None:
    assert latent_auroc([0.1, 0.2, 0.9], [[0.5], [0.6]]).shape == (2, 3)
    assert isinstance(latent_auroc(0.1, 0.2), float)
    assert latent_auroc([0.1, 0.9], 0.3)[1] == pytest.approx(latent_auroc(0.9, 0.3), abs=1e-15)


@given(RHO)
def test_rho_round_trips_through_the_index_property(rho: float) -> None:
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
