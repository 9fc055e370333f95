"""Copula families, and their fit to one table."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from refusal_index import ContingencyTable
from refusal_index.stats import upper_orthant
from refusal_index.stats.copulas import (
    COPULA_NAMES,
    cell_and_rate_slopes,
    copula_family,
    copula_upper_orthant,
    fit_copula,
    parameter_range,
    strength_slope,
)
from refusal_index.stats.estimator import tetrachoric

# --- Copula families

RATES = st.floats(0.001, 0.999)
FAMILIES = st.sampled_from(COPULA_NAMES)


@pytest.mark.parametrize(
    ("r", "mu", "rho", "df", "expected"),
    [
        # R: tests/stats/r/copulas.R, student(r, mu, rho, df)
        (0.74, 0.92, 0.5, 4, 0.7123871296207692),
        (0.03, 0.9, 0.52, 4, 0.02874002474569769),
        (0.97, 0.9, 0.52, 4, 0.8869856005256277),
        (0.3, 0.3, -0.8, 4, 0.009646894053341537),
        (0.1, 0.1, 0.999, 4, 0.09717647538456588),
        (0.5, 0.2, 0.0, 1, 0.1),
        (0.6, 0.35, -0.3, 11, 0.165402604842404),
    ],
)
def test_t_orthant_against_r_mvtnorm(r: float, mu: float, rho: float, df: float, expected: float) -> None:
    assert abs(float(copula_upper_orthant(r, mu, rho, "t", df=df)) - expected) < 1e-14


@pytest.mark.parametrize(
    ("r", "mu", "parameter", "family", "expected"),
    [
        # R: tests/stats/r/copulas.R, the generators of the three families
        (0.74, 0.92, 0.6, "clayton", 0.7134807416725364),
        (0.74, 0.92, 1.57, "gumbel", 0.7054817044489958),
        (0.74, 0.92, 3.2, "frank", 0.7045954418630344),
        (0.74, 0.92, 0.6, "survival_clayton", 0.69005107603811011),
        (0.74, 0.92, 1.57, "survival_gumbel", 0.72175651634167859),
        (0.3, 0.6, -5.0, "frank", 0.07441933474407619),
    ],
)
def test_archimedean_orthants_against_r(r: float, mu: float, parameter: float, family: str, expected: float) -> None:
    assert abs(float(copula_upper_orthant(r, mu, parameter, family)) - expected) < 1e-14


@pytest.mark.parametrize("df", [2.5, 4.0, 30.0])
@pytest.mark.parametrize(("r", "mu", "rho"), [(0.2, 0.7, 0.6), (0.05, 0.05, 0.95), (0.9, 0.4, -0.4)])
def test_t_orthant_against_brute_force_over_the_mixture(r: float, mu: float, rho: float, df: float) -> None:
    # A t vector is a normal one over the root of a chi-squared variable divided by df: integrate over the latter.
    h, k = -special.stdtrit(df, r), -special.stdtrit(df, mu)
    log_constant = (df / 2 - 1) * math.log(2) + math.lgamma(df / 2)

    def integrand(x: float) -> float:
        scale = x / math.sqrt(df)
        log_density = (df - 1) * math.log(x) - x * x / 2 - log_constant
        return float(upper_orthant(h * scale, k * scale, rho)) * math.exp(log_density)

    expected, _ = quad(integrand, 0, 40, epsabs=1e-13, epsrel=1e-12, limit=400)
    assert abs(float(copula_upper_orthant(r, mu, rho, "t", df=df)) - expected) < 1e-11


def test_the_gaussian_copula_is_the_tetrachoric_model() -> None:
    assert copula_upper_orthant(0.3, 0.6, 0.4) == upper_orthant(-special.ndtri(0.3), -special.ndtri(0.6), 0.4)


def test_t_copula_limit_and_quadrant_against_theory() -> None:
    assert float(copula_upper_orthant(0.3, 0.6, 0.4, "t", df=1e9)) == pytest.approx(
        float(copula_upper_orthant(0.3, 0.6, 0.4)), abs=1e-8
    )
    # Sheppard's formula holds for every elliptical distribution.
    np.testing.assert_allclose(
        copula_upper_orthant(0.5, 0.5, [-0.9, 0, 0.6], "t"),
        0.25 + np.arcsin([-0.9, 0, 0.6]) / (2 * np.pi),
        atol=1e-15,
    )


@settings(deadline=None)
@given(FAMILIES, RATES, RATES, st.floats(-6, 6), st.floats(0.01, 3))
def test_cell_is_within_bounds_and_increases_with_strength_property(family, r, mu, strength, more) -> None:
    spec = copula_family(family)
    strengths = np.clip([strength, strength + more], *spec.limits)
    weaker, stronger = spec.cell(np.array(r), np.array(mu), strengths)
    assert max(r + mu - 1, 0) - 1e-14 < weaker <= stronger + 1e-14
    assert stronger < min(r, mu) + 1e-14


@settings(deadline=None)
@given(FAMILIES, RATES, RATES, st.floats(-3, 3))
def test_refusal_and_error_can_be_exchanged(family, r, mu, strength) -> None:
    spec = copula_family(family)
    strength = np.clip(strength, *spec.limits)
    a, b = np.array(r), np.array(mu)
    assert abs(spec.cell(a, b, strength) - spec.cell(b, a, strength)) < 1e-14


@settings(deadline=None)
@given(st.sampled_from(["clayton", "gumbel"]), RATES, RATES, st.floats(0, 6))
def test_survival_copula_is_the_reflected_copula_property(family, r, mu, strength) -> None:
    parameter = float(copula_family(family).parameter(np.array(strength)))
    turned = r + mu - 1 + float(copula_upper_orthant(1 - r, 1 - mu, parameter, f"survival_{family}"))
    assert float(copula_upper_orthant(r, mu, parameter, family)) == pytest.approx(turned, abs=1e-14)


@given(st.sampled_from([name for name in COPULA_NAMES if name != "t"]), RATES, RATES)
def test_strength_zero_is_independence(family, r, mu) -> None:
    cell = copula_family(family).cell(np.array(r), np.array(mu), np.array(0.0))
    assert abs(cell - r * mu) < 1e-15


def test_frank_is_smooth_where_its_two_formulas_meet() -> None:
    theta = np.array([1 - 1e-9, 1 + 1e-9])
    for sign in (1, -1):
        low, high = copula_upper_orthant(0.2, 0.7, sign * theta, "frank")
        assert abs(high - low) < 1e-9
    # 1 - C(0.5, 0.5) is log(2) / theta below one half for a strong dependence.
    assert float(copula_upper_orthant(0.5, 0.5, 1e6, "frank")) == pytest.approx(0.5 - math.log(2) / 1e6, abs=1e-15)


@pytest.mark.parametrize("family", COPULA_NAMES)
def test_limits_of_rates_and_parameter(family: str) -> None:
    parameter = float(copula_family(family).parameter(np.array(0.5)))
    np.testing.assert_allclose(
        copula_upper_orthant([0, 1, 0.3], [0.4, 0.4, 1], parameter, family), [0, 0.4, 0.3], atol=1e-14
    )
    _, strongest = parameter_range(family)
    assert float(copula_upper_orthant(0.3, 0.6, strongest, family)) == pytest.approx(0.3, abs=1e-11)


def test_slopes_against_normal_theory() -> None:
    r, mu, rho = np.array([0.03, 0.4, 0.97]), np.array([0.9, 0.9, 0.5]), 0.45
    h, k, spread = -special.ndtri(r), -special.ndtri(mu), math.sqrt(1 - rho * rho)
    spec, z = copula_family("gaussian"), np.full(3, math.atanh(rho))
    _, alpha, beta = cell_and_rate_slopes(spec, r, mu, z)
    np.testing.assert_allclose(alpha, special.ndtr((rho * h - k) / spread), rtol=1e-7)
    np.testing.assert_allclose(beta, special.ndtr((rho * k - h) / spread), rtol=1e-7)
    density = np.exp(-(h * h - 2 * rho * h * k + k * k) / (2 * spread**2)) / (2 * np.pi * spread)
    np.testing.assert_allclose(strength_slope(spec, r, mu, z), density * spread**2, rtol=1e-7)


def test_index_of_a_t_copula_drifts_with_refusal_rate_against_facts() -> None:
    # Matched to the Gaussian of rho .45 at the mean rate, mu .90: the index of one prompt runs from .61 to .18.
    spec, mu, rates = copula_family("t"), 0.9, np.array([0.97, 0.45, 0.03])
    wanted, strengths = float(copula_upper_orthant(0.45, mu, 0.45)), np.linspace(0.3, 0.9, 601)
    cells = spec.cell(np.array(0.45), np.array(mu), strengths)
    p11 = spec.cell(rates, np.array(mu), np.interp(wanted, cells, strengths))
    index = 6 / np.pi * np.arcsin(tetrachoric(p11, rates - p11, mu - p11, 1 - rates - mu + p11) / 2)
    np.testing.assert_allclose(index, [0.61, 0.43, 0.18], atol=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.5, 0.5, 0.5, "joe"), "family must be one of gaussian, t, .* got 'joe'"),
        ((50, 0.5, 0.5), r"refusal_rate must lie in \[0, 1\], got 50; is it a percentage"),
        ((0.5, 0.5, -0.1, "clayton"), r"parameter of the clayton copula must lie in \[0, inf\]"),
        ((0.5, 0.5, 1.2), r"parameter of the gaussian copula must lie in \[-1, 1\]"),
    ],
)
def test_invalid_arguments_are_an_error(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        copula_upper_orthant(*arguments)


def test_degrees_of_freedom_must_be_positive() -> None:
    with pytest.raises(ValueError, match="df must be positive and finite, got 0"):
        copula_upper_orthant(0.5, 0.5, 0.5, "t", df=0)


# --- Copulas fitted to one table

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
POSITIVE, NEGATIVE = ContingencyTable(710, 30, 210, 50), ContingencyTable(400, 50, 500, 50)
ONE_SIDED = ("clayton", "gumbel", "survival_clayton", "survival_gumbel")


def saturated(table: ContingencyTable) -> float:
    return sum(count * math.log(count / table.n) for count in table.counts if count)


@given(st.tuples(*[st.integers(1, 1500)] * 4))
def test_covering_families_reach_the_saturated_likelihood_against_facts(counts) -> None:
    table = ContingencyTable(*counts)
    for family in COPULA_NAMES:
        fit = fit_copula(table, family)
        if fit.status == "ok":
            assert fit.log_likelihood == pytest.approx(saturated(table), rel=5e-13)
        else:
            assert fit.reason == "negative_dependence"
            assert fit.log_likelihood <= saturated(table)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(case["table"]))
def test_the_gaussian_fit_is_the_refusal_index(case) -> None:
    fit = fit_copula(ContingencyTable(*case["table"]))
    assert fit.parameter == pytest.approx(float(case["rho"]), abs=1e-9)


@pytest.mark.parametrize("family", COPULA_NAMES)
def test_a_fit_against_brute_force_maximisation(family: str) -> None:
    r, mu = POSITIVE.refusal_rate, POSITIVE.error_rate
    fit = fit_copula(POSITIVE, family)

    def deviance(parameter: float) -> float:
        p11 = float(copula_upper_orthant(r, mu, parameter, family))
        cells = p11, r - p11, mu - p11, 1 - r - mu + p11
        return -sum(count * math.log(cell) for count, cell in zip(POSITIVE.counts, cells, strict=True))

    bounds = (-0.99, 0.99) if family in {"gaussian", "t"} else (1.001, 9.0)
    found = minimize_scalar(deviance, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    if fit.parameter > bounds[0]:
        assert fit.parameter == pytest.approx(found.x, rel=1e-5)
    assert fit.log_likelihood >= -found.fun - 1e-9


@pytest.mark.parametrize("family", ONE_SIDED)
def test_positive_only_family_falls_back_to_independence(family: str) -> None:
    fit = fit_copula(NEGATIVE, family)
    assert (fit.status, fit.reason) == ("boundary", "negative_dependence")
    assert fit.parameter == (1 if "gumbel" in family else 0)
    # The likelihood ratio of independence against the saturated table, which the others reach.
    expected = np.outer([0.45, 0.55], [0.9, 0.1]).ravel()
    independence = float(np.sum(np.array(NEGATIVE.counts) * np.log(expected)))
    assert fit.log_likelihood == pytest.approx(independence, rel=1e-13)
    assert fit.log_likelihood < fit_copula(NEGATIVE).log_likelihood


@pytest.mark.parametrize(
    ("counts", "family", "end"),
    [
        ((40, 0, 30, 30), "gaussian", 1),
        ((40, 0, 30, 30), "clayton", math.inf),
        ((0, 40, 30, 30), "frank", -math.inf),
        ((0, 40, 30, 30), "t", -1),
    ],
)
def test_zero_cell_gives_perfect_dependence(counts, family: str, end: float) -> None:
    table = ContingencyTable(*counts)
    fit = fit_copula(table, family)
    assert (fit.status, fit.parameter) == ("boundary", end)
    assert fit.reason.startswith("zero_cell:")
    assert fit.log_likelihood == pytest.approx(saturated(table), rel=1e-12)


def test_a_degenerate_margin_is_undefined() -> None:
    fit = fit_copula(ContingencyTable(0, 0, 4, 5), "gumbel")
    assert (fit.status, fit.reason) == ("undefined", "nobody_refused")
    assert fit.parameter is fit.log_likelihood is None


def test_four_counts_are_not_a_table() -> None:
    with pytest.raises(TypeError, match="must be a ContingencyTable, got tuple"):
        fit_copula((1, 1, 1, 1))
