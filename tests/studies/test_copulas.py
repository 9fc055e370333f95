"""Copula families, their fit to one table, and the test whether several prompts share one."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks.coverage import copula_test as simulation
from benchmarks.coverage import joint as many
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri
from scipy.stats import chi2
from tests.tiers import others_nightly, reduced_examples

from refusal_index import ContingencyTable
from refusal_index.plugins.studies.copulas import (
    COPULA_NAMES,
    cell_and_rate_slopes,
    copula_family,
    copula_test,
    copula_tests,
    copula_upper_orthant,
    copula_win_rates,
    fit_common_strength,
    fit_copula,
    parameter_range,
    strength_slope,
)
from refusal_index.stats import upper_orthant
from refusal_index.stats.estimator import density, tetrachoric

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

GOLDEN = json.loads((Path(__file__).parents[1] / "stats/golden.json").read_text())
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


def test_criteria_against_the_paper_table() -> None:
    # Its rows satisfy AIC = 2 k - 2 log-likelihood and BIC - AIC = k (log 2000 - 2), with two parameters for t.
    rows = {row["family"]: row for row in copula_win_rates([ContingencyTable(1380, 60, 460, 100)])}
    for family, k in (("gaussian", 1), ("t", 2), ("gumbel", 1)):
        row = rows[family]
        assert row["aic"] == pytest.approx(2 * k - 2 * row["log_likelihood"], abs=1e-9)
        assert row["bic"] - row["aic"] == pytest.approx(k * 5.6009, abs=1e-4)


def test_win_rates_share_ties_and_count_negative_tables() -> None:
    undefined = ContingencyTable(0, 0, 4, 5)
    rows = copula_win_rates([POSITIVE, POSITIVE, POSITIVE, NEGATIVE, undefined])
    assert [row["family"] for row in rows] == list(COPULA_NAMES)
    for row in rows:
        wins, ties = (0.625, 0.75) if row["family"] in ONE_SIDED else (0.5, 1.0)
        assert (row["gaussian_wins_log_likelihood"], row["ties"]) == (wins, ties)
        if row["family"] != "t":
            assert row["gaussian_wins_aic"] == row["gaussian_wins_bic"] == wins
    expected = np.mean([saturated(table) for table in (POSITIVE, POSITIVE, POSITIVE, NEGATIVE)])
    frank = next(row for row in rows if row["family"] == "frank")
    assert frank["log_likelihood"] == pytest.approx(expected, rel=1e-12)


def test_t_loses_only_by_its_degrees_of_freedom_against_the_paper() -> None:
    row = copula_win_rates([POSITIVE, NEGATIVE])[1]
    wins = [row[f"gaussian_wins_{name}"] for name in ("log_likelihood", "aic", "bic")]
    assert (row["family"], wins) == ("t", [0.5, 1.0, 1.0])


def test_no_tables_give_no_rates() -> None:
    assert copula_win_rates([]) == []


def test_four_counts_are_not_a_table() -> None:
    with pytest.raises(TypeError, match="must be a ContingencyTable, got tuple"):
        fit_copula((1, 1, 1, 1))


# --- Whether prompts share one copula

COUNTS = [[2467, 41], [460, 22], [405, 27], [468, 54], [330, 52]]


def questions(counts) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes of nested prompts, laxest first, from their counts."""
    table = np.asarray(counts)
    level = np.repeat(np.repeat(np.arange(len(table)), 2), table.ravel())
    wrong = np.repeat(np.tile([True, False], len(table)), table.ravel())
    refused = level <= np.arange(len(table) - 1)[:, np.newaxis]
    return refused, np.broadcast_to(wrong, refused.shape)


def drawn(n: int, rho: float, seed: int, thresholds=(-0.8, 0.0, 0.8)) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes of prompts that are not nested."""
    rng = np.random.default_rng(seed)
    common, error = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], size=n, method="cholesky").T
    scores = common + 0.5 * rng.standard_normal((len(thresholds), n))
    refused = scores > np.array(thresholds)[:, np.newaxis]
    return refused, np.broadcast_to(error > -0.5, refused.shape)


def test_moments_against_brute_force() -> None:
    refused, wrong = drawn(600, 0.5, 1)
    scored = np.random.default_rng(2).random(refused.shape) < 0.8

    def parts(z: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Standardised moments, the contribution of each question, and their slopes in z."""
        gaps, added, slopes = [], [], []
        for r_row, w_row, s_row in zip(refused, wrong, scored, strict=True):
            r, w = r_row[s_row].astype(float), w_row[s_row].astype(float)
            h, k, rho = -ndtri(r.mean()), -ndtri(w.mean()), math.tanh(z)
            spread, p11 = math.sqrt(1 - rho**2), float(upper_orthant(h, k, rho))
            alpha, beta = ndtr((rho * h - k) / spread), ndtr((rho * k - h) / spread)
            values = r * w - alpha * r - beta * w
            # Each influence is scaled from its observed to its modelled standard deviation.
            cells = np.array([p11, r.mean() - p11, w.mean() - p11, 1 - r.mean() - w.mean() + p11])
            by_cell = np.array([1 - alpha - beta, -alpha, -beta, 0.0])
            modelled = math.sqrt((cells @ by_cell**2 - (cells @ by_cell) ** 2) / len(r))
            row = np.zeros(len(r_row))
            row[s_row] = (values - values.mean()) / values.std() / math.sqrt(len(r))
            gaps.append(((r * w).mean() - p11) / modelled)
            added.append(row)
            slopes.append(float(density(h, k, rho)) * (1 - rho**2) / modelled)
        return np.array(gaps), np.array(added), np.array(slopes)

    best = minimize_scalar(
        lambda z: float(np.sum(parts(z)[0] ** 2)), bounds=(0, 2), method="bounded", options={"xatol": 1e-10}
    )
    gaps, added, slopes = parts(best.x)
    direction = slopes / np.linalg.norm(slopes)
    added -= np.outer(direction, direction @ added)
    products, others = added.T @ added, ~np.eye(added.shape[1], dtype=bool)
    freedom = np.outer(products.diagonal(), products.diagonal())[others].sum() / (products**2)[others].sum()
    result = copula_test(refused, wrong, scored)
    assert math.atanh(result.parameter) == pytest.approx(best.x, abs=1e-5)
    assert result.degrees_of_freedom == pytest.approx(freedom, rel=1e-4)
    assert result.statistic == pytest.approx(gaps @ gaps * freedom / np.trace(products), rel=1e-4)
    assert result.pvalue == pytest.approx(chi2.sf(result.statistic, freedom), rel=1e-3)


def test_exactly_predicted_table_has_statistic_zero() -> None:
    rates, mu = np.array([0.2, 0.5, 0.8]), 0.6
    for family in COPULA_NAMES:
        spec = copula_family(family)
        wrong = np.diff([0, *spec.cell(rates, np.array(mu), np.array(0.4)), mu])
        counts = 1000 * np.stack([wrong, np.diff([0, *rates, 1]) - wrong], axis=1)[np.newaxis]
        by_moments = fit_common_strength(spec, simulation.nested_moments(counts))
        assert by_moments.statistic[0] == pytest.approx(0, abs=1e-8)
        assert by_moments.strength[0] == pytest.approx(0.4, abs=1e-5)


@others_nightly("name", ["C", "A"])
def test_size_and_power_against_facts(name: str) -> None:
    rng = np.random.default_rng(17)
    truths = ("gaussian", "gumbel", "t") if name == "A" else ("gaussian", "frank")
    rows = [row for truth in truths for row in simulation.nested_rows(simulation.SCENARIOS[name], truth, 250, rng)]
    assert len(rows) == len(truths)
    assert all(row.holds for row in rows), rows


@pytest.mark.nightly
def test_size_without_nested_prompts() -> None:
    row = simulation.free_row(simulation.SCENARIOS["B"], 1000, 400, np.random.default_rng(11))
    assert row.holds, row


@pytest.mark.nightly
def test_power_of_all_alternatives_against_facts() -> None:
    rng = np.random.default_rng(13)
    cells = [(name, truth) for name, power in simulation.POWER.items() for truth in power]
    rows = [row for name, truth in cells for row in simulation.nested_rows(simulation.SCENARIOS[name], truth, 250, rng)]
    assert len(rows) == 20
    assert [row for row in rows if not row.holds] == []


def test_families_are_sorted_by_fit() -> None:
    refused, wrong = questions(simulation.SCENARIOS["D"].tables("clayton", 1, np.random.default_rng(2))[0].astype(int))
    results = copula_tests(refused, wrong)
    assert {result.family for result in results} == set(COPULA_NAMES)
    assert sorted((result.pvalue for result in results), reverse=True) == [result.pvalue for result in results]
    assert results[0].family == "clayton"
    assert next(result for result in results if result.family == "gaussian").pvalue < 0.01


@reduced_examples(0.4)
@given(st.integers(0, 1000), st.permutations(range(3)))
def test_order_of_prompts_and_questions_does_not_matter(seed: int, order) -> None:
    refused, wrong = drawn(300, 0.4, seed)
    shuffled = np.random.default_rng(seed).permutation(300)
    result, other = copula_test(refused, wrong), copula_test(refused[order][:, shuffled], wrong[:, shuffled])
    assert other.statistic == pytest.approx(result.statistic, abs=1e-7)
    assert other.parameter == pytest.approx(result.parameter, abs=1e-5)


def test_duplicated_prompts_count_once() -> None:
    refused, wrong = drawn(500, 0.4, 5)
    twice = [0, 1, 2, 0, 1, 2]
    once, again = copula_test(refused, wrong), copula_test(refused[twice], wrong[[0] * 6])
    assert again.degrees_of_freedom == pytest.approx(once.degrees_of_freedom)
    assert again.statistic == pytest.approx(once.statistic, rel=1e-6)


def test_many_prompts_with_one_copula_are_not_rejected() -> None:
    """With the inverse of the covariance, a third of such data sets were rejected."""
    scenario = many.MANY[0]
    pvalues = [copula_test(*scenario.draw(np.random.default_rng(seed))).pvalue for seed in range(20)]
    assert sum(pvalue < 0.05 for pvalue in pvalues) <= 3


def test_identical_prompts_are_undefined() -> None:
    refused, wrong = drawn(500, 0.4, 5)
    result = copula_test(refused[[1, 1]], wrong[[1, 1]])
    assert (result.status, result.reason, result.statistic) == ("undefined", "tables_repeat_each_other", None)


def test_a_degenerate_prompt_is_left_out() -> None:
    refused, wrong = drawn(500, 0.4, 5)
    refused[1] = False
    result = copula_test(refused, wrong)
    assert (result.left_out, result.degrees_of_freedom, len(result.tables)) == ({1: "nobody_refused"}, 1, 3)
    assert result.statistic == copula_test(refused[[0, 2]], wrong[[0, 2]]).statistic
    alone = copula_test(refused[:2], wrong[:2])
    assert (alone.status, alone.reason, alone.pvalue) == ("undefined", "fewer_than_two_tables", None)


@reduced_examples(0.6)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(3, 12))
def test_a_handful_of_questions_gives_numbers_or_a_reason(seed: int, k: int, n: int) -> None:
    refused, wrong = np.random.default_rng(seed).random((2, k, n)) < 0.5
    for family in ("gaussian", "clayton", "frank"):
        result = copula_test(refused, wrong, family=family)
        assert (result.pvalue is None) == (result.statistic is None)
        assert result.pvalue is not None or result.reason
        assert result.pvalue is None or 0 <= result.pvalue <= 1


def test_tables_without_variation_have_no_statistic() -> None:
    refused = np.eye(8, dtype=bool)[[7, 2]] | np.eye(8, dtype=bool)[[7, 4]]
    wrong = np.zeros((2, 8), bool)
    wrong[0, [0, 6]] = wrong[1, [1, 3, 6, 7]] = True
    result = copula_test(refused, wrong, family="frank")
    assert (result.status, result.reason, result.pvalue) == ("undefined", "no_variation", None)


def test_table_with_an_empty_cell_is_included() -> None:
    result = copula_test(*questions([[40, 0], [200, 30], [200, 80], [150, 100]]))
    assert (result.status, result.left_out) == ("ok", {})
    assert 1 < result.degrees_of_freedom <= 2


@pytest.mark.parametrize("family", ["clayton", "survival_gumbel"])
def test_positive_only_family_is_tested_at_independence(family: str) -> None:
    counts = [[60, 90], [70, 80], [90, 90], [120, 40]]
    result = copula_test(*questions(counts), family=family)
    assert (result.status, result.reason) == ("boundary", "independence")
    assert result.parameter == (0 if family == "clayton" else 1)
    # No parameter was fitted, so none is subtracted.
    assert 2 < result.degrees_of_freedom <= 3


def test_perfect_dependence_has_no_statistic() -> None:
    counts = [[100, 0], [100, 0], [0, 100]]
    result = copula_test(*questions(counts))
    assert (result.status, result.reason, result.parameter) == ("boundary", "perfect_dependence", 1)
    assert result.statistic is result.pvalue is None


def test_an_unknown_family_is_an_error() -> None:
    with pytest.raises(ValueError, match="family must be one of gaussian"):
        copula_test([[True, False]], [[True, False]], family="joe")
