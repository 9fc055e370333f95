"""Every table of counts has a result: no exception, no warning, no NaN, and no interval without its estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import chi2, norm
from tests.tiers import reduced_examples

from refusal_index import ContingencyTable, refusal_index, refusal_index_many
from refusal_index.stats import (
    PlanningScenario,
    SampledTable,
    accuracy_refusal_curve,
    asymptotic_deviation,
    compare_metrics,
    correct_guessing,
    correct_misgrading,
    deterministic_refusal_index,
    equal_index_test,
    expected_half_width,
    influence_function,
    iso_refusal_index,
    joint_refusal_index,
    latent_auroc,
    metrics,
    mid_rank_spearman,
    misgrading_range,
    missing_bounds,
    omniscience_index,
    questions_for_half_width,
    rank_runs,
    upper_orthant,
    utility,
    value_at_target,
    within_topic_refusal_index,
)
from refusal_index.stats.intervals import _climb, _thresholds
from refusal_index.stats.non_inferiority import Guard, judge_guards
from refusal_index.stats.small_cells import SMALL_CELL, with_precise_small_cell

Counts = tuple[int, int, int, int]

LEVELS = (1e-300, 1e-12, 0.5, 0.95, 1 - 1e-9, 1 - 2**-53)

# Small and large counts in one table make cells of 1e-15.
COUNT = st.integers(0, 3) | st.integers(0, 1000) | st.floats(0, 15).map(lambda digits: int(10**digits))
TABLE = (
    st.tuples(COUNT, COUNT, COUNT, COUNT)
    | st.builds(lambda a, b, c: (a, b, c, a), COUNT, COUNT, COUNT)
    | st.builds(lambda a, b: (a, a, b, b), COUNT, COUNT)
)
KNOWN = [
    (192, 1, 697, 110),
    (58, 1, 302, 39),
    (0, 1, 2, 0),
    (1, 5, 2, 1),
    (10**8, 1, 1, 10**8),
    (10**9, 1, 1, 10**9),
    (1, 10**15, 10**15, 1),
    (10**15, 1, 3, 10**15),
    (10**15, 10**3, 7, 1),
    (10**15, 10**15, 1, 1),
    (5 * 10**14, 3, 10**8, 10**15),
    (362763215, 2, 1, 0),
    (0, 619728905893944, 8826005336, 2884),
]


def tables_of(n_questions: int) -> Iterator[Counts]:
    for n in range(n_questions + 1):
        for a in range(n + 1):
            for b in range(n + 1 - a):
                for c in range(n + 1 - a - b):
                    yield a, b, c, n - a - b - c


def check_intervals(counts: Counts) -> None:
    """The estimate and the intervals of a table exist, contain the estimate, and widen with the level."""
    result = refusal_index(ContingencyTable(*counts))
    many = float(refusal_index_many(*counts))
    if result.estimate is None:
        assert math.isnan(many)
        assert result.status == "undefined"
        return
    assert -1 <= result.estimate <= 1
    assert abs(many) <= 1
    assert many == pytest.approx(result.estimate, abs=1e-9)
    if result.status == "ok":
        assert abs(result.estimate) < 1
        assert 0 < result.standard_error < math.inf
    for method in ("profile", "delta") if result.status == "ok" else ("profile",):
        intervals = [result.confidence_interval(level, method) for level in LEVELS]
        for low, high in intervals:
            assert -1 <= low <= result.estimate <= high <= 1, (counts, method)
        lows, highs = np.transpose(intervals)
        assert (np.diff(lows) <= 1e-9).all(), (counts, method)
        assert (np.diff(highs) >= -1e-9).all(), (counts, method)


@pytest.mark.parametrize("counts", KNOWN)
def test_intervals_of_extreme_tables_contain_their_estimates(counts: Counts) -> None:
    check_intervals(counts)


@pytest.mark.parametrize(
    "n_questions", [4, pytest.param(8, marks=pytest.mark.slow), pytest.param(12, marks=pytest.mark.nightly)]
)
def test_intervals_of_all_small_tables_contain_their_estimates(n_questions: int) -> None:
    for counts in tables_of(n_questions):
        check_intervals(counts)


@given(TABLE)
def test_intervals_of_any_table_contain_their_estimates(counts: Counts) -> None:
    check_intervals(counts)


@reduced_examples(0.2)
@given(TABLE, st.sampled_from(["jeffreys", "bootstrap"]), st.sampled_from(LEVELS))
def test_resampling_intervals_of_any_table_contain_their_estimates(counts: Counts, method: str, level: float) -> None:
    result = refusal_index(ContingencyTable(*counts))
    low, high = result.confidence_interval(level, method, n_resamples=300, rng=1)
    if result.estimate is not None and (result.status == "ok" or method == "jeffreys"):
        assert -1 <= low <= result.estimate <= high <= 1


@given(st.tuples(*[st.floats(0, 15).map(lambda digits: int(10**digits))] * 4), st.sampled_from([0.5, 0.95, 1 - 1e-9]))
def test_profile_limits_of_any_table_are_where_the_likelihood_has_fallen(counts: Counts, level: float) -> None:
    result = refusal_index(ContingencyTable(*counts))
    floats = tuple(map(float, counts))
    for end in result.confidence_interval(level):
        rho = 2 * math.sin(math.pi / 6 * end)
        # Closer to 1, or to the estimate, the limit is rounded too much to compute the fall from it.
        if abs(rho) < 1 - 1e-9 and abs(end - result.estimate) > 1e-6:
            assert 2 * fall_at(floats, rho, result.rho) == pytest.approx(chi2.isf(1 - level, 1), rel=1e-3)


def fall_at(counts: tuple[float, ...], rho: float, estimate: float) -> float:
    """The fall of the log-likelihood, maximised over the thresholds in small steps from the estimate to rho."""
    start, end = math.atanh(estimate), math.atanh(rho)
    h, k = _thresholds(counts)
    for z in np.linspace(start, end, 2 + int(abs(end - start) / 0.2)):
        point = _climb(counts, (h, k, float(z)))
        h, k, _ = point.at
    return point.fall


def test_an_estimate_just_below_one_against_theory() -> None:
    # With both margins at 1/2, p10 is acos(rho) / (2 pi), so 1 - rho is (2 pi p10)^2 / 2.
    for n in (10**6, 10**7):
        rho = refusal_index(ContingencyTable(n, 1, 1, n)).rho
        assert 1 - rho == pytest.approx((math.pi / (n + 1)) ** 2 / 2, rel=1e-2, abs=0)
    assert refusal_index(ContingencyTable(10**9, 1, 1, 10**9)).estimate == pytest.approx(1, abs=3e-16)


def test_the_standard_error_just_below_one_against_theory() -> None:
    # The two questions off the diagonal have a relative error of 1 / sqrt(2), and 1 - rho is quadratic in their share.
    n = 10**8
    expected = 6 / (math.pi * math.sqrt(3)) * math.sqrt(2) * (math.pi / (n + 1)) ** 2 / 2
    assert refusal_index(ContingencyTable(n, 1, 1, n)).standard_error == pytest.approx(expected, rel=1e-6, abs=0)


def test_limits_at_the_highest_and_the_lowest_level_against_theory() -> None:
    # One question of each kind does not exclude rho = 1 at a level of 1 - 1e-16.
    assert refusal_index(ContingencyTable(1, 1, 1, 1)).confidence_interval(1 - 2**-53) == (-1, 1)
    # At a low level the profile is a parabola.
    result = refusal_index(ContingencyTable(71, 3, 21, 5))
    reach = norm.ppf(0.5 + 0.5e-8) * result.standard_error
    assert result.confidence_interval(1e-8).high - result.estimate == pytest.approx(reach, rel=1e-3)


def test_a_bootstrap_interval_of_a_low_level_is_extended_to_its_estimate() -> None:
    for counts in ((4, 1, 2, 1), (2, 4, 1, 3), (1, 2, 5, 2)):
        result = refusal_index(ContingencyTable(*counts))
        low, high = result.confidence_interval(1e-12, "bootstrap", rng=1)
        assert low <= result.estimate <= high


@pytest.mark.parametrize(
    ("h", "k", "rho"), [(2.0, -3.0, 0.9), (3.0, 4.0, -0.7), (-1.0, 4.5, 0.8), (0.0, 0.0, -0.99), (1.3, 1.3, -0.9)]
)
def test_small_cells_against_quadrature(h: float, k: float, rho: float) -> None:
    spread = math.sqrt((1 - rho) * (1 + rho))
    cells = with_precise_small_cell((0.0, 0.0, 0.0, 0.0), h, k, math.atanh(rho))
    reflected = ((h, k, rho), (h, -k, -rho), (-h, k, -rho), (-h, -k, rho))
    for cell, (x, y, correlation) in zip(cells, reflected, strict=True):
        points = [x, *(p for p in (y / correlation, x + 0.3, x + 1, x + 3) if x < p < x + 12), x + 12]
        pieces = zip(sorted(points), sorted(points)[1:], strict=False)
        expected = math.fsum(
            quad(
                lambda v, r, y=y: norm._pdf(v) * norm._cdf((r * v - y) / spread), *piece, args=(correlation,), epsabs=0
            )[0]
            for piece in pieces
        )
        assert cell == pytest.approx(expected, rel=1e-7, abs=0)


@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(-3, 3))
def test_precise_cells_agree_with_owens_formula(h: float, k: float, z: float) -> None:
    cells = with_precise_small_cell((0.0, 0.0, 0.0, 0.0), h, k, z)
    expected = [float(upper_orthant(x, y, side * math.tanh(z))) for x, y, side in ((h, k, 1), (h, -k, -1), (-h, k, -1))]
    np.testing.assert_allclose(cells[:3], expected, rtol=1e-8, atol=1e-6 * SMALL_CELL + 1e-15)
    assert sum(cells) == pytest.approx(1, abs=1e-8)


def check_result(result: object, name: str) -> None:
    """An estimate is not NaN, and lies in its intervals."""
    estimate = getattr(result, "estimate", None)
    if estimate is None:
        return
    assert not math.isnan(estimate), name
    ends = [(getattr(result, "low", None), getattr(result, "high", None))]
    if hasattr(result, "confidence_interval"):
        ends = [result.confidence_interval(level) for level in (1e-12, 0.95, 1 - 1e-12)]
    for low, high in ends:
        if low is not None and not math.isnan(low):
            assert low - 1e-12 <= estimate <= high + 1e-12, name


def judge_index(table: ContingencyTable) -> object:
    result = refusal_index(table)
    if result.estimate is None:
        return None
    limits = (-0.5, 0.2, 0.99)
    guards = [Guard("refusal_index", result.estimate, at, True, result.confidence_interval) for at in limits]
    tests = judge_guards(guards)
    assert all(0 <= test.pvalue_inside <= 1 for test in tests)
    return None


def plan(table: ContingencyTable) -> object:
    estimate = refusal_index(table).estimate
    if estimate is None or abs(estimate) == 1:
        return None
    r, mu = table.refusal_rate, table.error_rate
    if 0 < r < 1 and 0 < mu < 1:  # rates within 1e-16 of 1 are rounded to it
        assert not math.isnan(latent_auroc(refusal_index(table).rho, mu))
        assert not math.isnan(iso_refusal_index(r, estimate, mu))
        assert not math.isnan(asymptotic_deviation(r, mu, estimate))
        scenario = PlanningScenario.from_table(table)
        expected_half_width(scenario, 1000)
        questions_for_half_width(scenario, 0.1)
    return None


OF_A_TABLE: dict[str, Callable[[ContingencyTable], object]] = {
    "metrics": lambda table: [*metrics(table), *metrics(table, confidence_level=1 - 1e-12)],
    "utility": lambda table: [utility(table, penalty) for penalty in (0.0, 9.0, 1e6)],
    "omniscience_index": omniscience_index,
    "accuracy_refusal_curve": accuracy_refusal_curve,
    "correct_misgrading": lambda table: correct_misgrading(table, 0.01, 0.02),
    "correct_guessing": lambda table: correct_guessing(table, 4),
    "misgrading_range": lambda table: misgrading_range(table, (0, 0.03), (0, 0.03)),
    "missing_bounds": lambda table: [missing_bounds(table, n) for n in (0, 7, 10**6)],
    "guards": judge_index,
    "planning": plan,
}


@reduced_examples(0.3)
@given(TABLE)
def test_every_function_of_a_table_gives_a_result(counts: Counts) -> None:
    table = ContingencyTable(*counts)
    for name, function in OF_A_TABLE.items():
        found = function(table)
        for result in found if isinstance(found, list) else [found]:
            check_result(result, f"{name} of {counts}")


@pytest.mark.nightly
def test_every_function_of_all_small_tables_gives_a_result() -> None:
    for counts in tables_of(12):
        table = ContingencyTable(*counts)
        for name, function in OF_A_TABLE.items():
            found = function(table)
            for result in found if isinstance(found, list) else [found]:
                check_result(result, f"{name} of {counts}")


# Cells of three runs on up to twelve questions: 0 to 3, or 4 if it is not scored.
CODES = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 4), min_size=n, max_size=n), min_size=3, max_size=3)
)


@reduced_examples(0.3)
@given(CODES, st.integers(0, 2**31))
def test_every_comparison_of_runs_gives_a_result(codes: list[list[int]], seed: int) -> None:
    cells, rng = np.array(codes), np.random.default_rng(seed)
    scored, refused, wrong = cells < 4, cells < 2, cells % 2 == 0
    n = cells.shape[1]
    design = {"cluster": rng.integers(0, n, n), "weight": np.exp(rng.choice([0.1, 2, 5]) * rng.standard_normal(n))}
    for options in ({}, design):
        for difference in compare_metrics(refused[:2], wrong[:2], scored[:2], **options).differences:
            check_result(difference, difference.name)
            if difference.estimate is not None:
                judge_guards([Guard("any", difference.estimate, -0.05, True, difference.confidence_interval)])
        check_result(joint_refusal_index(refused, wrong, scored, **options), "joint")
    table = SampledTable.from_arrays(refused[0], wrong[0], **design)
    for result in (refusal_index(table), *metrics(table)):
        check_result(result, "with clusters and weights")
    equal_index_test(refused[:2], wrong[:2], scored[:2])
    rank_runs(refused, wrong, scored, rng=1)
    influence_function(refused[0], wrong[0])
    check_result(mid_rank_spearman(refused, wrong, scored), "mid_rank_spearman")
    check_result(deterministic_refusal_index(refused[0], wrong[0]), "deterministic")
    check_result(within_topic_refusal_index(refused[0], wrong[0], np.arange(n) % 3), "within topics")
    check_result(value_at_target(refused[0], wrong[0], 0.9), "value at a target")


def test_large_weights_change_nothing_and_unequal_ones_are_an_error() -> None:
    refused, wrong = np.arange(60) % 3 == 0, np.arange(60) % 2 == 0
    weight = 1.0 + np.arange(60) % 5
    plain, large = (refusal_index(refused=refused, wrong=wrong, weight=weight * size) for size in (1.0, 2.0**1020))
    assert large.estimate == plain.estimate
    assert large.confidence_interval() == plain.confidence_interval()
    weight[0] = 1e308
    with pytest.raises(ValueError, match="weight must not differ between questions by a factor of more than 1e"):
        refusal_index(refused=refused, wrong=wrong, weight=weight)
