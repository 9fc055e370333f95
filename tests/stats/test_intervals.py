"""Confidence intervals of the Refusal Index, and the influence functions behind standard errors."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks.coverage.intervals import coverage_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq, minimize
from scipy.stats import chi2, norm
from tests.tiers import others_nightly, reduced_examples

from refusal_index import ConfidenceInterval, ContingencyTable, refusal_index, refusal_index_many
from refusal_index.stats import influence_function, intervals, tetrachoric, upper_orthant
from refusal_index.stats.intervals import cell_influence, spearman_slope, standard_error

# --- Confidence intervals of the Refusal Index

COUNTS = st.tuples(*[st.integers(1, 3000)] * 4)
METHODS = ("profile", "jeffreys", "delta", "bootstrap")


def spearman(rho: float) -> float:
    return 6 / math.pi * math.asin(rho / 2)


def log_likelihood_by_quadrature(counts, h: float, k: float, rho: float) -> float:
    """The multinomial log-likelihood from the definition, the orthant as one integral over the first variable."""
    spread = math.sqrt(1 - rho * rho)
    p11 = quad(lambda x: norm._pdf(x) * norm._sf((k - rho * x) / spread), h, max(h, 0) + 10, epsabs=1e-12)[0]
    r, mu = norm.sf(h), norm.sf(k)
    cells = (p11, r - p11, mu - p11, 1 - r - mu + p11)
    return sum(n * math.log(max(p, 1e-300)) for n, p in zip(counts, cells, strict=True) if n)


def profile_by_brute_force(counts, rho: float) -> float:
    """Twice the log-likelihood ratio of the saturated fit to the best fit with this rho."""
    n = sum(counts)
    start = norm.isf([(counts[0] + counts[1]) / n, (counts[0] + counts[2]) / n])
    best = minimize(
        lambda x: -log_likelihood_by_quadrature(counts, x[0], x[1], rho),
        start,
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-10},
    )
    return 2 * (sum(c * math.log(c / n) for c in counts if c) + best.fun)


@pytest.mark.parametrize(
    ("counts", "level"), [((71, 3, 21, 5), 0.95), ((100, 900, 900, 100), 0.99), ((4, 36, 127, 4159), 0.95)]
)
def test_profile_ends_against_brute_force(counts, level: float) -> None:
    result = refusal_index(ContingencyTable(*counts))
    for end, bound in zip(result.confidence_interval(level), (-0.9999, 0.9999), strict=True):
        rho = brentq(lambda rho: profile_by_brute_force(counts, rho) - chi2.ppf(level, 1), bound, result.rho, xtol=1e-7)
        assert end == pytest.approx(spearman(rho), abs=1e-6)


@pytest.mark.parametrize("counts", [(0, 30, 40, 50), (60, 0, 20, 10), (30, 4, 0, 9), (12, 5, 7, 0), (8, 0, 0, 9)])
def test_profile_of_a_zero_cell_against_brute_force(counts) -> None:
    result = refusal_index(ContingencyTable(*counts))
    low, high = result.confidence_interval()
    inner = low if result.estimate == 1 else high
    assert (low, high)[result.estimate == 1] == result.estimate
    rho = 2 * math.sin(math.pi / 6 * inner)
    assert profile_by_brute_force(counts, rho) == pytest.approx(-2 * math.log(0.05), abs=1e-6)


@given(COUNTS | st.tuples(*[st.integers(1, 6)] * 4), st.sampled_from([0.2, 0.68, 0.95, 0.999]))
def test_profile_ends_match_drop_of_maximised_likelihood(counts, level: float) -> None:
    result = refusal_index(ContingencyTable(*counts))
    low, high = result.confidence_interval(level)
    assert low < result.estimate < high
    for end in (low, high):
        rho = 2 * math.sin(math.pi / 6 * end)
        if abs(rho) > 1 - 1e-9:
            # So near the end of the range rho itself is rounded; a limit of 1 is right to the last digit.
            continue
        n = sum(counts)
        start = (*norm.isf([(counts[0] + counts[1]) / n, (counts[0] + counts[2]) / n]), math.atanh(rho))
        point = intervals._climb(tuple(map(float, counts)), start)
        assert point.h == pytest.approx(0, abs=1e-6 * n)
        assert 2 * point.fall == pytest.approx(chi2.ppf(level, 1), rel=1e-5)


@given(COUNTS)
def test_ridge_search_agrees_with_the_joint_newton_iteration(counts) -> None:
    # The search is the fallback where the iteration fails, which is rare.
    result = refusal_index(ContingencyTable(*counts))
    numbers, quantile = tuple(map(float, counts)), norm.ppf(0.975)
    best = (*intervals._thresholds(numbers), math.atanh(result.rho))
    searched = [math.tanh(intervals._ridge_search(numbers, best, side, quantile)) for side in (-1.0, 1.0)]
    for end, rho in zip(result.confidence_interval(), searched, strict=True):
        assert end == pytest.approx(spearman(rho), abs=1e-9)


def test_profile_slopes_and_curvatures_are_derivatives() -> None:
    counts, at, step = (71.0, 10.0, 20.0, 33.0), np.array([0.3, -0.4, 0.6]), 1e-5
    point = intervals._evaluate(counts, tuple(at))
    moved = [[intervals._evaluate(counts, tuple(at + side * step * axis)) for side in (1, -1)] for axis in np.eye(3)]
    slopes = [(down.fall - up.fall) / (2 * step) for up, down in moved]
    np.testing.assert_allclose(slopes, (point.h, point.k, point.z), rtol=1e-7)
    curvatures = [[(getattr(up, x) - getattr(down, x)) / (2 * step) for x in "hk"] for up, down in moved]
    np.testing.assert_allclose(
        curvatures, [[point.hh, point.hk], [point.hk, point.kk], [point.hz, point.kz]], rtol=1e-7
    )


@pytest.mark.parametrize("counts", [(1, 4, 5, 2), (4, 1, 1, 1), (0, 2, 1, 0), (0, 1, 2, 0)])
def test_profile_of_a_few_questions_at_a_high_level_against_brute_force(counts) -> None:
    # Newton's iteration alone diverges to the other side of the estimate, or to infinity, for all of these.
    result = refusal_index(ContingencyTable(*counts))
    low, high = result.confidence_interval(0.9999)
    assert low <= result.estimate <= high
    for end in {low, high} - {-1, 1}:
        rho = 2 * math.sin(math.pi / 6 * end)
        fall = chi2.ppf(0.9999, 1) if result.status == "ok" else -2 * math.log(1e-4)
        assert profile_by_brute_force(counts, rho) == pytest.approx(fall, abs=1e-4)


@given(COUNTS, st.sampled_from(["profile", "delta"]))
def test_intervals_mirror_when_table_is_swapped(counts, method: str) -> None:
    a, b, c, d = counts
    low, high = refusal_index(ContingencyTable(a, b, c, d)).confidence_interval(method=method)
    turned = refusal_index(ContingencyTable(c, d, a, b)).confidence_interval(method=method)
    assert turned == pytest.approx((-high, -low), abs=1e-9)


@reduced_examples(0.8)
@given(COUNTS, st.sampled_from(METHODS))
def test_a_higher_level_gives_a_wider_interval(counts, method: str) -> None:
    result = refusal_index(ContingencyTable(*counts))
    narrow, wide = (result.confidence_interval(level, method, n_resamples=500, rng=1) for level in (0.8, 0.99))
    assert wide.low <= narrow.low <= narrow.high <= wide.high


@pytest.mark.parametrize("method", METHODS)
def test_methods_agree_on_a_large_table(method: str) -> None:
    result = refusal_index(ContingencyTable(71_000, 3_000, 21_000, 5_000))
    low, high = result.confidence_interval(method=method, rng=8)
    reach = norm.ppf(0.975) * result.standard_error
    assert low == pytest.approx(result.estimate - reach, abs=0.1 * reach)
    assert high == pytest.approx(result.estimate + reach, abs=0.1 * reach)


def test_delta_against_its_definition() -> None:
    result = refusal_index(ContingencyTable(710, 30, 210, 50))
    rho_error = result.standard_error * math.pi * math.sqrt(4 - result.rho**2) / 6
    z, reach = math.atanh(result.rho), norm.ppf(0.95) * rho_error / (1 - result.rho**2)
    expected = spearman(math.tanh(z - reach)), spearman(math.tanh(z + reach))
    assert result.confidence_interval(0.9, "delta") == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("counts", [(40, 10, 20, 30), (4, 1, 2, 3)])
def test_jeffreys_against_its_definition(counts) -> None:
    draws = np.random.default_rng(4).dirichlet(np.array(counts) + 0.5, size=100_000)
    # Whole numbers large enough that rounding the draws to them does not show.
    posterior = refusal_index_many(*np.round(draws.T * 1e9))
    interval = refusal_index(ContingencyTable(*counts)).confidence_interval(0.9, "jeffreys", n_resamples=100_000, rng=1)
    assert interval == pytest.approx(tuple(np.quantile(posterior, [0.05, 0.95])), abs=0.01)


def test_bootstrap_against_its_definition() -> None:
    resamples = np.random.default_rng(4).multinomial(100, [0.4, 0.1, 0.2, 0.3], size=1000)
    expected = np.quantile(refusal_index_many(*resamples.T), [0.025, 0.975])
    interval = refusal_index(ContingencyTable(40, 10, 20, 30)).confidence_interval(method="bootstrap", rng=4)
    # Not to the last digit: between two resamples the percentile is interpolated on the scale of rho.
    assert interval == pytest.approx(tuple(expected), abs=1e-6)


def test_bootstrap_leaves_out_resamples_without_an_estimate() -> None:
    counts = (3, 1, 1, 1)
    resamples = refusal_index_many(*np.random.default_rng(2).multinomial(6, np.array(counts) / 6, size=1000).T)
    assert np.isnan(resamples).mean() > 0.15
    interval = refusal_index(ContingencyTable(*counts)).confidence_interval(0.2, "bootstrap", rng=2)
    assert interval == pytest.approx(tuple(np.nanquantile(resamples, [0.4, 0.6])), abs=1e-6)


@pytest.mark.parametrize("method", ["jeffreys", "bootstrap"])
def test_seed_repeats_draws_and_generator_advances(method: str) -> None:
    result = refusal_index(ContingencyTable(40, 10, 20, 30))
    assert result.confidence_interval(method=method, rng=3) == result.confidence_interval(method=method, rng=3)
    generator = np.random.default_rng(3)
    first, second = (result.confidence_interval(method=method, rng=generator) for _ in range(2))
    assert first == result.confidence_interval(method=method, rng=3)
    assert first != second


@pytest.mark.parametrize("method", METHODS)
def test_an_undefined_estimate_has_no_interval(method: str) -> None:
    interval = refusal_index(ContingencyTable(0, 0, 4, 5)).confidence_interval(method=method)
    assert isinstance(interval, ConfidenceInterval)
    assert np.isnan(interval).all()


@pytest.mark.parametrize(("counts", "end"), [((30, 0, 40, 50), 1), ((30, 40, 50, 0), -1)])
def test_boundary_intervals_end_at_boundary_or_are_nan(counts, end: int) -> None:
    result = refusal_index(ContingencyTable(*counts))
    for method in ("profile", "jeffreys"):
        interval = result.confidence_interval(method=method, rng=6)
        assert interval.high == 1 if end == 1 else interval.low == -1
        assert interval.low < interval.high
    for method in ("delta", "bootstrap"):
        assert np.isnan(result.confidence_interval(method=method)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"confidence_level": 95}, "must lie strictly between 0 and 1, got 95; is it a percentage"),
        ({"confidence_level": 1.0}, "must lie strictly between 0 and 1"),
        ({"method": "wald"}, "method must be one of profile, jeffreys, delta, bootstrap, got 'wald'"),
        ({"method": "bootstrap", "n_resamples": 0}, "n_resamples must be at least 1, got 0"),
    ],
)
@pytest.mark.parametrize("counts", [(4, 3, 2, 1), (0, 0, 2, 1)])
def test_invalid_arguments_are_errors_whatever_the_table(counts, arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        refusal_index(ContingencyTable(*counts)).confidence_interval(**arguments)


def covered(method: str, scenario, replicates: int) -> float:
    """Share of simulated 95% intervals that hold the true index."""
    n, r, mu, rho = scenario
    p11 = float(upper_orthant(norm.isf(r), norm.isf(mu), rho))
    rng = np.random.default_rng(2025)
    tables = rng.multinomial(n, [p11, r - p11, mu - p11, 1 - r - mu + p11], size=replicates)
    intervals = np.array(
        [
            refusal_index(ContingencyTable(*counts)).confidence_interval(method=method, n_resamples=1000, rng=rng)
            for counts in tables.tolist()
        ]
    )
    return float(np.mean((intervals[:, 0] <= spearman(rho)) & (spearman(rho) <= intervals[:, 1])))


# Questions, refusal rate, error rate, rho; every cell is expected to hold five questions or more.
SCENARIOS = [(200, 0.42, 0.8, 0.5), (1000, 0.74, 0.92, 0.5), (4326, 0.06, 0.65, 0.3)]


@others_nightly("scenario", SCENARIOS)
@pytest.mark.parametrize("method", ["profile", "delta"])
def test_coverage(method: str, scenario) -> None:
    # The standard error of the share is .005.
    assert 0.935 < covered(method, scenario, replicates=2000) < 0.97


@pytest.mark.slow
@others_nightly("scenario", SCENARIOS[:2])
@pytest.mark.parametrize("method", ["jeffreys", "bootstrap"])
def test_coverage_of_the_resampling_methods(method: str, scenario) -> None:
    # The standard error of the share is .011, and the bootstrap's coverage is .92 to .96.
    assert 0.895 < covered(method, scenario, replicates=400) < 0.985


def test_profile_keeps_its_coverage_where_cells_are_often_empty() -> None:
    scenario = (200, 0.06, 0.65, 0.3)
    assert covered("profile", scenario, replicates=1000) > 0.92


@others_nightly("n", [840, 1080, 4326])
def test_profile_coverage_where_a_cell_is_often_empty(n: int) -> None:
    # Two questions or fewer expected in the smallest cell: a fall of half a chi-squared quantile would cover .90.
    row = coverage_of((0.16, 0.95, 0.3, n), "profile", 1500, np.random.default_rng(n))
    assert row.holds, row


def test_the_empty_cell_limit_against_theory_of_a_poisson_count() -> None:
    # With the other cells large, the open end is where the empty cell is expected to hold 3.0 questions.
    table = ContingencyTable(40_000, 0, 40_000, 60_000)
    low, high = refusal_index(table).confidence_interval()
    rho = 2 * math.sin(math.pi / 6 * low)
    h, k = norm.isf(table.refusal_rate), norm.isf(table.error_rate)
    p11 = quad(lambda x: norm._pdf(x) * norm._sf((k - rho * x) / math.sqrt(1 - rho * rho)), h, 10, epsabs=1e-13)[0]
    assert high == 1
    assert table.n * (table.refusal_rate - p11) == pytest.approx(-math.log(0.05), abs=0.02)


# --- Influence functions and the standard errors they give

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
TABLES = [(710, 30, 210, 50), (219, 41, 2595, 1471), (100, 900, 900, 100), (30, 1, 2, 7)]


def outcomes(counts) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([True, True, False, False], counts), np.repeat([True, False, True, False], counts)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(case["table"]))
def test_standard_error_of_rho_against_reference(case) -> None:
    error = standard_error(ContingencyTable(*case["table"]), float(case["rho"]))
    assert abs(error - float(case["se_rho"])) < 1e-9


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        # R: polycor::polychor(matrix(counts, 2, byrow=TRUE), ML=TRUE, std.err=TRUE), sqrt(var[1, 1]); its rho is good
        # to about 1e-5 only, and its error as good as that; r/tetrachoric.R
        ((710, 30, 210, 50), 0.06042800),
        ((219, 41, 2595, 1471), 0.03955629),
        ((100, 900, 900, 100), 0.00650902),
        ((4, 36, 127, 4159), 0.10770831),
        ((40, 10, 20, 30), 0.11522568),
    ],
)
def test_standard_error_of_rho_against_r_polycor(counts, error: float) -> None:
    table = ContingencyTable(*counts)
    assert standard_error(table, refusal_index(table).rho) == pytest.approx(error, rel=1e-3)


@pytest.mark.parametrize(("refused", "wrong", "n"), [(0.3, 0.6, 1000), (0.5, 0.5, 4), (0.9, 0.8, 500)])
def test_standard_error_against_theory_at_independence(refused: float, wrong: float, n: int) -> None:
    # Pearson (1913): at rho = 0 the error is sqrt(r (1-r) mu (1-mu) / n) over the product of the two densities.
    cells = np.outer([refused, 1 - refused], [wrong, 1 - wrong]).ravel() * n
    table = ContingencyTable(*np.round(cells).astype(int))
    spread = math.sqrt(refused * (1 - refused) * wrong * (1 - wrong) / n)
    expected = spread / (norm.pdf(norm.ppf(refused)) * norm.pdf(norm.ppf(wrong)))
    assert standard_error(table, 0.0) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("counts", TABLES)
def test_cell_influence_matches_numerical_derivative(counts) -> None:
    proportions, step = np.array(counts) / sum(counts), 1e-6
    influence = cell_influence(ContingencyTable(*counts), float(tetrachoric(*counts)))
    for cell in range(4):
        towards = np.eye(4)[cell] - proportions
        slope = (tetrachoric(*(proportions + step * towards)) - tetrachoric(*(proportions - step * towards))) / (
            2 * step
        )
        assert influence[cell] == pytest.approx(float(slope), rel=1e-6)


@pytest.mark.parametrize("rho", [-0.99, -0.4, 0.0, 0.7, 1.0])
def test_slope_of_the_index_is_its_derivative(rho: float) -> None:
    index = [6 / math.pi * math.asin((rho + step) / 2) for step in (1e-6, -1e-6)]
    assert spearman_slope(rho) == pytest.approx((index[0] - index[1]) / 2e-6, rel=1e-8)


@pytest.mark.parametrize("counts", TABLES)
def test_influence_of_questions_has_mean_zero_and_the_variance_of_the_estimate(counts) -> None:
    influence = influence_function(*outcomes(counts))
    result = refusal_index(ContingencyTable(*counts))
    assert abs(influence.mean()) < 1e-9
    assert influence.std() / math.sqrt(sum(counts)) == pytest.approx(result.standard_error, rel=1e-9)


def test_influence_follows_the_order_of_the_questions() -> None:
    refused, wrong = outcomes((4, 3, 2, 5))
    order = np.random.default_rng(5).permutation(14)
    np.testing.assert_array_equal(
        influence_function(refused[order], wrong[order]), influence_function(refused, wrong)[order]
    )


def test_standard_error_against_resampling() -> None:
    counts = np.array([710, 30, 210, 50])
    resamples = np.random.default_rng(3).multinomial(1000, counts / 1000, size=20_000)
    # The sampling error of a standard deviation from 20,000 draws is half a per cent.
    spread = refusal_index_many(*resamples.T).std()
    assert refusal_index(ContingencyTable(*counts)).standard_error == pytest.approx(spread, rel=0.03)


@pytest.mark.parametrize("counts", [(3, 0, 4, 5), (0, 0, 4, 5), (0, 0, 0, 0)])
def test_influence_is_nan_where_the_estimate_has_no_derivative(counts) -> None:
    influence = influence_function(*outcomes(counts))
    assert influence.shape == (sum(counts),)
    assert np.isnan(influence).all()
