"""Two models compared without the noise of single draws."""

import math

import numpy as np
import pytest
from benchmarks.coverage import corrected_difference as simulation
from hypothesis import given, settings
from hypothesis import strategies as st

from refusal_index.stats import compare_noise_corrected, noise_corrected_refusal_index
from refusal_index.stats.draws.difference import NoiseCorrectedDifference

RNG = np.random.default_rng


def model(n_draws: int, n: int, seed: int, slope: float = 2.0, rho: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """Refusals and errors; the difficulty of the questions is the same for all models."""
    x, own = RNG(99).standard_normal(n), RNG(seed)
    y = rho * x + math.sqrt(1 - rho * rho) * own.standard_normal(n)
    return tuple(slope * latent + own.standard_normal((n_draws, n)) > shift for latent, shift in ((x, 0.3), (y, -0.6)))


def with_gaps(n_draws: int, n: int, seed: int, share: float = 0.7, **kwargs) -> tuple[np.ndarray, ...]:
    return *model(n_draws, n, seed, **kwargs), RNG(seed + 50).random((n_draws, n)) < share


def test_the_estimate_is_the_difference_of_both_corrected_indices() -> None:
    first, second = with_gaps(4, 300, 1), with_gaps(2, 300, 2, share=0.9, rho=0.1)
    found = compare_noise_corrected(first, second, n_resamples=50, rng=1)
    alone = [noise_corrected_refusal_index(*each) for each in (first, second)]
    assert [found.first, found.second] == alone
    assert found.estimate == alone[0].estimate - alone[1].estimate
    twice = [each[2].sum(axis=0) >= 2 for each in (first, second)]
    assert found.n_shared == np.count_nonzero(twice[0] & twice[1])
    assert (found.status, found.reason) == ("ok", None)


def resampled_differences(first, second, samples) -> np.ndarray:
    """Differences over resampled columns, one pair of index arrays a resample."""
    return np.array(
        [
            noise_corrected_refusal_index(first[0][:, i], first[1][:, i]).estimate
            - noise_corrected_refusal_index(second[0][:, j], second[1][:, j]).estimate
            for i, j in samples
        ]
    )


def test_paired_interval_and_pvalue_against_their_definition() -> None:
    first, second, rng = model(3, 250, 1), model(2, 250, 2, rho=0.4), RNG(8)
    samples = [(i, i) for i in rng.integers(0, 250, (500, 250))]
    expected = resampled_differences(first, second, samples)
    found = compare_noise_corrected(first, second, n_resamples=4000, rng=9)
    assert found.confidence_interval(0.8) == pytest.approx(tuple(np.quantile(expected, [0.1, 0.9])), abs=0.025)
    assert found.pvalue == pytest.approx(2 * np.mean(expected <= 0), abs=0.05)


def unpaired(first, second) -> list[tuple[np.ndarray, ...]]:
    """Both models over the columns of both, each scored on its own."""
    wide = []
    for place, matrices in enumerate((first, second)):
        n = [each[0].shape[1] for each in (first, second)]
        gap = np.zeros((len(matrices[0]), n[1 - place]), bool)
        wide.append(
            tuple(np.hstack([m, gap] if place == 0 else [gap, m]) for m in (*matrices, np.ones_like(matrices[0])))
        )
    return wide


def test_unpaired_interval_against_its_definition_and_wider_than_paired() -> None:
    first, second, rng = model(3, 250, 1), model(3, 200, 2), RNG(8)
    samples = [(rng.integers(0, 250, 250), rng.integers(0, 200, 200)) for _ in range(500)]
    expected = np.quantile(resampled_differences(first, second, samples), [0.1, 0.9])
    found = compare_noise_corrected(*unpaired(first, second), n_resamples=4000, rng=9)
    assert found.n_shared == 0
    assert found.confidence_interval(0.8) == pytest.approx(tuple(expected), abs=0.025)


def width(found: NoiseCorrectedDifference) -> float:
    low, high = found.confidence_interval()
    return high - low


def test_questions_compared_with_themselves_give_a_narrower_interval() -> None:
    x = RNG(3).standard_normal((2, 500))
    latent = np.stack([x[0], 0.6 * x[0] + 0.8 * x[1]])
    first, second = (tuple(3 * z + RNG(s).standard_normal((2, 500)) > 0 for z in latent) for s in (1, 2))
    paired = compare_noise_corrected(first, second, rng=1)
    assert width(paired) < 0.8 * width(compare_noise_corrected(*unpaired(first, second), rng=1))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(10, 400), st.integers(1, 60), st.floats(0.5, 0.999))
def test_the_test_rejects_exactly_where_the_interval_excludes_zero(seed, n, n_resamples, level) -> None:
    found = compare_noise_corrected(
        model(2, n, seed), model(2, n, seed + 1, rho=0.2), n_resamples=n_resamples, rng=seed
    )
    if found.pvalue is None:
        assert np.isnan(found.confidence_interval(level)).all()
        return
    low, high = found.confidence_interval(level)
    assert -2 <= low <= high <= 2
    # Levels at which k + 1 meets the bound exactly are a matter of rounding.
    if abs(found.pvalue - (1 - level)) > 1e-6:
        assert (found.pvalue <= 1 - level) == (not low <= 0 <= high)


def test_exchanging_the_models_turns_the_sign() -> None:
    first, second = model(2, 300, 1), model(2, 300, 2, rho=0.1)
    one, other = (compare_noise_corrected(*pair, rng=3) for pair in ((first, second), (second, first)))
    assert one.estimate == -other.estimate
    assert one.confidence_interval() == pytest.approx([-end for end in other.confidence_interval()][::-1], abs=0.03)


def test_a_resample_without_estimate_rules_nothing_out() -> None:
    # So noisy that the reliability is not positive in many resamples.
    noisy = compare_noise_corrected(model(2, 100, 1, slope=0.3), model(2, 100, 2, slope=4), n_resamples=500, rng=1)
    assert noisy.status != "undefined"
    low, high = noisy.confidence_interval()
    known = noisy.second.estimate
    assert low < -0.9 - known + 0.1
    assert high > 0.9 - known
    assert noisy.pvalue > 0.2


def test_the_same_draws_differ_by_nothing_and_have_no_interval() -> None:
    draws = model(2, 200, 1)
    found = compare_noise_corrected(draws, draws, rng=1)
    assert (found.estimate, found.pvalue) == (0, 1)
    assert (found.status, found.reason) == ("boundary", "constant_difference")
    assert np.isnan(found.confidence_interval()).all()


YES, NO = [True] * 6, [False] * 6
MIXED, TURNED = [True, True, True, False, False, False], [False, False, False, True, True, True]
FINE = model(2, 6, 3)


@pytest.mark.parametrize(
    ("first", "second", "status", "reason"),
    [
        (
            ([NO, NO], [MIXED, MIXED]),
            ([MIXED, MIXED], [YES, YES]),
            "undefined",
            "first:nobody_refused;second:all_wrong",
        ),
        (
            ([MIXED, MIXED], [TURNED, TURNED]),
            ([MIXED, MIXED], [MIXED, MIXED], [YES, NO]),
            "undefined",
            "first:zero_cell:refused_wrong+answered_right;second:no_repeated_questions",
        ),
        (
            ([MIXED, MIXED], [TURNED, TURNED]),
            ([MIXED, MIXED], [MIXED, MIXED]),
            "boundary",
            "first:zero_cell:refused_wrong+answered_right;second:zero_cell:refused_right+answered_wrong",
        ),
    ],
)
def test_what_a_model_lacks_is_said_with_no_interval_and_no_pvalue(first, second, status, reason) -> None:
    found = compare_noise_corrected(first, second)
    assert (found.status, found.reason, found.pvalue) == (status, reason, None)
    assert found.estimate == (-2 if status == "boundary" else None)
    assert np.isnan(found.confidence_interval()).all()


def test_a_correction_beyond_one_is_at_the_boundary_but_has_an_interval() -> None:
    rng = RNG(2)
    beyond = 0.7 * rng.standard_normal(60) + rng.standard_normal((2, 2, 60)) > 0
    assert noise_corrected_refusal_index(*beyond).reason == "corrected_rho_reaches_one"
    found = compare_noise_corrected(beyond, model(2, 60, 4), rng=1)
    assert (found.status, found.reason) == ("boundary", "first:corrected_rho_reaches_one")
    low, high = found.confidence_interval()
    assert low < found.estimate <= high
    assert 0 < found.pvalue <= 1


def test_too_few_resamples_for_a_level_leave_the_whole_range() -> None:
    found = compare_noise_corrected(model(2, 300, 1), model(2, 300, 2, rho=-0.5), n_resamples=30, rng=1)
    assert found.pvalue == pytest.approx(2 / 31)
    assert found.confidence_interval(0.95) == (-2, 2)
    assert found.confidence_interval(0.9)[0] > 0


def test_comparisons_repeat_with_a_seed() -> None:
    models = model(2, 200, 1), model(2, 200, 2)
    one, same, other = (compare_noise_corrected(*models, rng=seed).confidence_interval() for seed in (3, 3, 4))
    assert one == same != other


@pytest.mark.parametrize(
    ("first", "second", "error", "message"),
    [
        (FINE, model(2, 7, 1), ValueError, "same questions as columns, got 6 and 7.*mark in scored"),
        (FINE, ([MIXED], [MIXED]), ValueError, "second: refused and wrong must have two or more rows"),
        (([[2, 0], [2, 0]], [[1, 0], [1, 0]]), FINE, TypeError, "first: refused must hold truth values"),
        (FINE, np.ones((4, 2, 6), bool), ValueError, r"second must be \(refused, wrong\).*got 4 items"),
    ],
)
def test_models_that_cannot_be_compared_are_an_error(first, second, error, message) -> None:
    with pytest.raises(error, match=message):
        compare_noise_corrected(first, second)


def test_arguments_out_of_range_are_an_error() -> None:
    with pytest.raises(ValueError, match="n_resamples must be at least 1, got 0"):
        compare_noise_corrected(FINE, FINE, n_resamples=0)
    with pytest.raises(ValueError, match="is it in per cent"):
        compare_noise_corrected(model(2, 50, 1), model(2, 50, 2), n_resamples=5).confidence_interval(95)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [simulation.SCENARIOS[i] for i in (1, 2, 4)], ids=str)
def test_simulated_coverage_beside_the_bias_of_first_draws(scenario: simulation.Scenario) -> None:
    for row in simulation.scenario_rows(scenario, 200, RNG(11)):
        assert row.holds, row
