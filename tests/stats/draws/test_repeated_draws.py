"""The index of the probabilities behind repeated draws."""

import itertools
import math

import numpy as np
import pytest
from benchmarks.coverage import repeated_draws as simulation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from tests.tiers import one_fast

from refusal_index import refusal_index
from refusal_index.stats import tetrachoric
from refusal_index.stats.draws.frequencies import frequency_refusal_index
from refusal_index.stats.draws.noise import (
    attenuated_refusal_index,
    estimate_from_patterns,
    noise_corrected_refusal_index,
)
from refusal_index.stats.draws.patterns import percentiles


def spearman(rho: float) -> float:
    return 6 / math.pi * math.asin(rho / 2)


def draws(n_draws: int, n: int, seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Refusals and errors of questions with a copula correlation of 0.6."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    y = 0.6 * x + 0.8 * rng.standard_normal(n)
    return tuple(scale * latent + rng.standard_normal((n_draws, n)) > shift for latent, shift in ((x, 0.3), (y, -0.6)))


@pytest.mark.parametrize(
    ("slope", "seen"), [(0.5, 0.1147), (1, 0.2876), (2, 0.4629), (3, 0.5222), (5, 0.5589), (20, 0.5805)]
)
def test_attenuation_against_facts(slope: float, seen: float) -> None:
    rho = 0.6  # the index is .582
    assert attenuated_refusal_index(spearman(rho), slope, slope) == pytest.approx(seen, abs=2e-4)


def test_attenuation_has_no_effect_on_a_model_that_always_does_the_same() -> None:
    np.testing.assert_allclose(attenuated_refusal_index([-1, 0.3, 1], np.inf, np.inf), [-1, 0.3, 1], atol=1e-15)
    assert attenuated_refusal_index(0.3, 0, 2) == 0


@pytest.mark.parametrize("scenario", simulation.SCENARIOS[:6], ids=lambda scenario: scenario.name)
def test_correction_of_exact_probabilities_against_theory(scenario: simulation.Scenario) -> None:
    counts = np.round(simulation.outcome_probabilities(scenario) * 1e9).astype(int)
    result = estimate_from_patterns(simulation.patterns(counts))
    b_r, b_w = (1, 3) if "and 3" in scenario.name else (3, 3) if "b = 3" in scenario.name else (1, 1)
    assert result.estimate == pytest.approx(0.582, abs=1e-5)
    assert result.refusal_reliability == pytest.approx(b_r**2 / (1 + b_r**2), abs=1e-5)
    assert result.error_reliability == pytest.approx(b_w**2 / (1 + b_w**2), abs=1e-5)
    assert result.uncorrected == pytest.approx(float(attenuated_refusal_index(0.582, b_r, b_w)), abs=1e-5)


@pytest.mark.parametrize("scenario", simulation.SCENARIOS[6:9], ids=lambda scenario: scenario.name)
def test_correction_of_probabilities_that_are_not_probit_is_within_a_hundredth(scenario: simulation.Scenario) -> None:
    counts = np.round(simulation.outcome_probabilities(scenario) * 1e9).astype(int)
    assert estimate_from_patterns(simulation.patterns(counts)).estimate == pytest.approx(0.582, abs=0.01)


def correlations_by_brute_force(refused, wrong, scored) -> list[float]:
    """Tetrachoric correlations over a list of all pairs of different draws, every question with a weight of one."""
    tables = np.zeros((3, 2, 2))
    for r, w, s in zip(refused.T, wrong.T, scored.T, strict=True):
        pairs = list(itertools.permutations(np.flatnonzero(s), 2))
        for a, b in pairs:
            for table, (first, second) in zip(tables, ((r[a], w[b]), (r[a], r[b]), (w[a], w[b])), strict=True):
                table[int(not first), int(not second)] += 1 / len(pairs)
    return [float(tetrachoric(*table.ravel())) for table in tables]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_pairs_of_draws_against_brute_force(seed: int) -> None:
    refused, wrong = draws(4, 150, seed, scale=2)
    scored = np.random.default_rng(seed).random((4, 150)) < 0.7
    result = noise_corrected_refusal_index(refused, wrong, scored)
    cross, refusals, errors = correlations_by_brute_force(refused, wrong, scored)
    assert result.rho == pytest.approx(cross / math.sqrt(refusals * errors), abs=1e-9)
    assert result.uncorrected == pytest.approx(spearman(cross), abs=1e-9)
    assert (result.refusal_reliability, result.error_reliability) == pytest.approx((refusals, errors), abs=1e-9)
    assert result.patterns.n_questions == np.count_nonzero(scored.sum(axis=0) >= 2)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000))
def test_neither_the_order_of_draws_nor_that_of_questions_matters(seed: int) -> None:
    refused, wrong = draws(3, 300, seed, scale=2)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(3)[:, np.newaxis], rng.permutation(300)
    assert noise_corrected_refusal_index(refused[rows, columns], wrong[rows, columns]) == (
        noise_corrected_refusal_index(refused, wrong)
    )


def test_a_model_that_always_does_the_same_needs_no_correction() -> None:
    refused, wrong = draws(1, 500, 7)
    result = noise_corrected_refusal_index(np.tile(refused, (3, 1)), np.tile(wrong, (3, 1)))
    assert result.refusal_reliability == result.error_reliability == 1
    assert result.estimate == result.uncorrected
    assert result.estimate == pytest.approx(refusal_index(refused=refused[0], wrong=wrong[0]).estimate, abs=1e-12)


def test_questions_with_one_draw_are_left_out() -> None:
    refused, wrong = draws(2, 400, 3)
    scored = np.ones((2, 400), bool)
    scored[1, 300:] = False
    result = noise_corrected_refusal_index(refused, wrong, scored)
    assert result == noise_corrected_refusal_index(refused[:, :300], wrong[:, :300])
    assert result.patterns.n_questions == 300


YES, NO = [True] * 6, [False] * 6
MIXED, TURNED = [True, True, True, False, False, False], [False, False, False, True, True, True]
NEARLY = [True, True, False, True, False, False]


@pytest.mark.parametrize(
    ("refused", "wrong", "reason"),
    [
        ([NO, NO], [MIXED, MIXED], "nobody_refused"),
        ([YES, YES], [MIXED, MIXED], "everybody_refused"),
        ([MIXED, MIXED], [YES, YES], "all_wrong"),
        ([MIXED, MIXED], [NO, NO], "all_right"),
        ([MIXED, TURNED], [NEARLY, MIXED], "refusal_reliability_not_positive"),
        ([NEARLY, MIXED], [MIXED, TURNED], "error_reliability_not_positive"),
    ],
)
def test_undefined_has_a_reason_and_no_estimate(refused, wrong, reason: str) -> None:
    assert_undefined(noise_corrected_refusal_index(refused, wrong), reason)


def test_without_a_question_of_two_scored_draws_it_is_undefined() -> None:
    scored = [YES, NO]
    assert_undefined(noise_corrected_refusal_index([MIXED, MIXED], [MIXED, MIXED], scored), "no_repeated_questions")
    spearman = frequency_refusal_index([MIXED, MIXED], [MIXED, MIXED], scored).spearman
    assert (spearman.status, spearman.reason) == ("undefined", "no_repeated_questions")


@pytest.mark.parametrize("matrix", [[MIXED], np.zeros((0, 0), bool)])
@pytest.mark.parametrize("estimate", [noise_corrected_refusal_index, frequency_refusal_index])
def test_fewer_than_two_draws_are_an_error(estimate, matrix) -> None:
    with pytest.raises(ValueError, match=r"refused and wrong must have two or more rows.*got shape \([01], [06]\)"):
        estimate(matrix, matrix)


def assert_undefined(result, reason: str) -> None:
    assert (result.status, result.reason, result.estimate, result.rho) == ("undefined", reason, None, None)
    assert np.isnan(result.confidence_interval()).all()


def test_a_correction_beyond_one_is_at_the_boundary_and_says_so() -> None:
    rng = np.random.default_rng(2)
    latent = rng.standard_normal(60)
    refused, wrong = (0.7 * latent + rng.standard_normal((2, 2, 60))) > 0
    result = noise_corrected_refusal_index(refused, wrong)
    rho = 2 * math.sin(math.pi / 6 * result.uncorrected)
    assert rho / math.sqrt(result.refusal_reliability * result.error_reliability) > 1
    assert (result.estimate, result.rho, result.status) == (1, 1, "boundary")
    assert result.reason == "corrected_rho_reaches_one"
    low, high = result.confidence_interval(rng=1)
    assert low < 1
    assert high == 1


def test_an_empty_cell_is_at_the_boundary_and_has_no_interval() -> None:
    result = noise_corrected_refusal_index([MIXED, MIXED], [TURNED, TURNED])
    assert (result.estimate, result.status) == (-1, "boundary")
    assert result.reason == "zero_cell:refused_wrong+answered_right"
    assert np.isnan(result.confidence_interval()).all()


def test_interval_against_its_definition() -> None:
    refused, wrong = draws(3, 250, 5, scale=2)
    rng = np.random.default_rng(8)
    samples = [rng.integers(0, 250, 250) for _ in range(1500)]
    resampled = [noise_corrected_refusal_index(refused[:, i], wrong[:, i]).estimate for i in samples]
    interval = noise_corrected_refusal_index(refused, wrong).confidence_interval(0.8, n_resamples=4000, rng=9)
    assert interval == pytest.approx(tuple(np.quantile(resampled, [0.1, 0.9])), abs=0.02)


def test_a_resample_without_estimate_rules_nothing_out() -> None:
    values = np.array([0.2, 0.4, 0.6, np.nan, 7.0])
    assert percentiles(values, 0.9999) == pytest.approx((-1, 1), abs=1e-3)
    assert percentiles(np.array([0.2, 0.4]), 0.5) == pytest.approx((0.25, 0.35))


def test_intervals_repeat_with_a_seed_and_refuse_bad_arguments() -> None:
    result = frequency_refusal_index(*draws(2, 300, 5))
    for part in (result.copula, result.spearman):
        assert part.confidence_interval(rng=3) == part.confidence_interval(rng=3)
        assert part.confidence_interval(rng=3) != part.confidence_interval(rng=4)
        with pytest.raises(ValueError, match="is it in per cent"):
            part.confidence_interval(95)
        with pytest.raises(ValueError, match="n_resamples must be at least 1, got 0"):
            part.confidence_interval(n_resamples=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((1.5, 1, 1), "refusal_index must lie in"), ((0.5, -1, 1), "refusal_slope must not be negative")],
)
def test_attenuation_outside_its_range_is_an_error(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attenuated_refusal_index(*arguments)


@pytest.mark.parametrize("seed", [1, 2])
def test_mid_rank_spearman_against_scipy(seed: int) -> None:
    refused, wrong = draws(5, 400, seed)
    scored = np.random.default_rng(seed).random((5, 400)) < 0.8
    kept = scored.sum(axis=0) >= 2
    frequencies = [((x & scored).sum(axis=0) / np.maximum(scored.sum(axis=0), 1))[kept] for x in (refused, wrong)]
    result = frequency_refusal_index(refused, wrong, scored)
    assert result.spearman.estimate == pytest.approx(spearmanr(*frequencies).statistic, abs=1e-12)
    assert result.copula == noise_corrected_refusal_index(refused, wrong, scored)


def test_interval_of_the_mid_rank_spearman_against_its_definition() -> None:
    refused, wrong = draws(4, 200, 6)
    counts, rng = np.stack([refused.sum(axis=0), wrong.sum(axis=0)]), np.random.default_rng(7)
    resampled = [spearmanr(*counts[:, rng.integers(0, 200, 200)]).statistic for _ in range(1500)]
    interval = frequency_refusal_index(refused, wrong).spearman.confidence_interval(0.8, n_resamples=4000, rng=9)
    assert interval == pytest.approx(tuple(np.quantile(resampled, [0.1, 0.9])), abs=0.015)


def test_with_atoms_the_two_correlations_differ_against_facts() -> None:
    scenario = next(scenario for scenario in simulation.SCENARIOS if "atoms" in scenario.name)
    rng = np.random.default_rng(4)
    x = rng.standard_normal(20_000)
    y = simulation.RHO * x + math.sqrt(1 - simulation.RHO**2) * rng.standard_normal(20_000)
    refused, wrong = (rng.random((60, 20_000)) < p for p in (scenario.refusal(x), scenario.error(y)))
    result = frequency_refusal_index(refused, wrong)
    # Standard errors are .006; the 60 draws take another .002 off Spearman's.
    assert result.spearman.estimate == pytest.approx(0.484, abs=0.02)
    assert result.copula.estimate == pytest.approx(0.582, abs=0.02)


@pytest.mark.parametrize(
    ("refused", "wrong", "status", "reason"),
    [
        ([YES, YES], [MIXED, MIXED], "undefined", "refusal_frequency_constant"),
        ([MIXED, MIXED], [MIXED, TURNED], "undefined", "error_frequency_constant"),
        ([MIXED, MIXED], [MIXED, MIXED], "boundary", "perfect_rank_correlation"),
    ],
)
def test_mid_rank_spearman_without_variation(refused, wrong, status: str, reason: str) -> None:
    result = frequency_refusal_index(refused, wrong).spearman
    assert (result.status, result.reason) == (status, reason)
    assert result.estimate == (1 if status == "boundary" else None)
    assert np.isnan(result.confidence_interval()).all()


@one_fast("scenario", [simulation.SCENARIOS[i] for i in (1, 5, 8, 9)], ids=lambda s: s.name)
def test_simulated_bias_and_coverage(scenario: simulation.Scenario) -> None:
    for row in simulation.scenario_rows(scenario, 200, np.random.default_rng(11)):
        assert row.holds, row
