"""Two models compared without the noise of single draws, and the influence of one question."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.coverage import corrected_difference as simulation
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.tiers import others_nightly

from refusal_index.stats import compare_corrected, corrected_refusal_index, rank_corrected
from refusal_index.stats.corrected import CorrectedDifference, influence_range

# --- Corrected differences between two models

RNG = np.random.default_rng


def model(n_draws: int, n: int, seed: int, slope: float = 2.0, rho: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """Refusals and errors; the difficulty of the questions is the same for all models."""
    x, own = RNG(99).standard_normal(n), RNG(seed)
    y = rho * x + math.sqrt(1 - rho * rho) * own.standard_normal(n)
    return tuple(slope * latent + own.standard_normal((n_draws, n)) > shift for latent, shift in ((x, 0.3), (y, -0.6)))


RANKED = ((1, 0.9), (2, 0.2))


def compared(first, second) -> CorrectedDifference:
    return compare_corrected(*(corrected_refusal_index(*each) for each in (first, second)))


def with_gaps(n_draws: int, n: int, seed: int, share: float = 0.7, **kwargs) -> tuple[np.ndarray, ...]:
    return *model(n_draws, n, seed, **kwargs), RNG(seed + 50).random((n_draws, n)) < share


def test_estimate_is_difference_of_corrected_indices() -> None:
    first, second = with_gaps(4, 300, 1), with_gaps(2, 300, 2, share=0.9, rho=0.1)
    found = compared(first, second)
    alone = [corrected_refusal_index(*each) for each in (first, second)]
    assert [found.first, found.second] == alone
    assert found.estimate == alone[0].estimate - alone[1].estimate
    twice = [each[2].sum(axis=0) >= 2 for each in (first, second)]
    assert found.n_shared == np.count_nonzero(twice[0] & twice[1])
    assert (found.status, found.reason) == ("ok", None)


def resampled_differences(first, second, samples) -> np.ndarray:
    """Differences over resampled columns, one pair of index arrays a resample."""
    return np.array(
        [
            corrected_refusal_index(first[0][:, i], first[1][:, i]).estimate
            - corrected_refusal_index(second[0][:, j], second[1][:, j]).estimate
            for i, j in samples
        ]
    )


@pytest.mark.slow
def test_paired_interval_and_pvalue_against_their_definition() -> None:
    first, second, rng = model(3, 250, 1), model(2, 250, 2, rho=0.4), RNG(8)
    samples = [(i, i) for i in rng.integers(0, 250, (500, 250))]
    expected = resampled_differences(first, second, samples)
    found = compared(first, second)
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


@pytest.mark.slow
def test_unpaired_interval_against_its_definition_and_wider_than_paired() -> None:
    first, second, rng = model(3, 250, 1), model(3, 200, 2), RNG(8)
    samples = [(rng.integers(0, 250, 250), rng.integers(0, 200, 200)) for _ in range(500)]
    expected = np.quantile(resampled_differences(first, second, samples), [0.1, 0.9])
    found = compared(*unpaired(first, second))
    assert found.n_shared == 0
    assert found.confidence_interval(0.8) == pytest.approx(tuple(expected), abs=0.025)


def width(found: CorrectedDifference) -> float:
    low, high = found.confidence_interval()
    return high - low


def test_paired_questions_give_a_narrower_interval() -> None:
    x = RNG(3).standard_normal((2, 500))
    latent = np.stack([x[0], 0.6 * x[0] + 0.8 * x[1]])
    first, second = (tuple(3 * z + RNG(s).standard_normal((2, 500)) > 0 for z in latent) for s in (1, 2))
    paired = compared(first, second)
    assert width(paired) < 0.8 * width(compared(*unpaired(first, second)))


@given(st.integers(0, 10_000), st.integers(10, 400), st.floats(0.5, 0.999))
def test_pvalue_is_significant_exactly_when_interval_excludes_zero(seed, n, level) -> None:
    found = compared(model(2, n, seed), model(2, n, seed + 1, rho=0.2))
    if found.pvalue is None:
        assert np.isnan(found.confidence_interval(level)).all()
        return
    low, high = found.confidence_interval(level)
    assert -2 <= low <= high <= 2
    # Where the interval just reaches 0 is a matter of rounding.
    if abs(found.pvalue - (1 - level)) > 1e-6:
        assert (found.pvalue <= 1 - level) == (not low <= 0 <= high)


def test_swapping_models_flips_sign() -> None:
    first, second = model(2, 300, 1), model(2, 300, 2, rho=0.1)
    one, other = (compared(*pair) for pair in ((first, second), (second, first)))
    assert one.estimate == -other.estimate
    assert one.pvalue == pytest.approx(other.pvalue, abs=1e-9)
    assert one.confidence_interval() == pytest.approx([-end for end in other.confidence_interval()][::-1], abs=1e-12)


def test_reliability_near_zero_gives_an_uninformative_interval() -> None:
    noisy = compared(model(2, 100, 1, slope=0.5), model(2, 100, 2, slope=4))
    assert noisy.status != "undefined"
    assert noisy.first.confidence_interval() == (-1, 1)
    low, high = noisy.confidence_interval()
    assert low < -0.9 - noisy.second.estimate + 0.1
    assert noisy.pvalue > 0.2
    assert high > 0


def test_identical_draws_have_zero_difference_and_no_interval() -> None:
    draws = model(2, 200, 1)
    found = compared(draws, draws)
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
    ],
)
def test_undefined_model_gives_reason_without_interval_or_pvalue(first, second, status, reason) -> None:
    found = compared(first, second)
    assert (found.status, found.reason, found.pvalue, found.estimate) == (status, reason, None, None)
    assert np.isnan(found.confidence_interval()).all()


def test_models_at_opposite_boundaries_differ_by_two() -> None:
    found = compared(([MIXED, MIXED], [TURNED, TURNED]), ([MIXED, MIXED], [MIXED, MIXED]))
    assert (found.estimate, found.status) == (-2, "boundary")
    assert found.reason == "first:zero_cell:refused_wrong+answered_right;second:zero_cell:refused_right+answered_wrong"
    low, high = found.confidence_interval()
    assert low == -2 < high


def test_correction_beyond_one_is_boundary_with_interval() -> None:
    rng = RNG(2)
    beyond = 0.7 * rng.standard_normal(60) + rng.standard_normal((2, 2, 60)) > 0
    assert corrected_refusal_index(*beyond).reason == "corrected_rho_reaches_one"
    found = compared(beyond, model(2, 60, 4))
    assert (found.status, found.reason) == ("boundary", "first:corrected_rho_reaches_one")
    low, high = found.confidence_interval()
    assert low < found.estimate <= high
    assert 0 < found.pvalue <= 1


def test_models_with_different_columns_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"same questions as columns, got 60 and 70.*mark in scored"):
        compared(model(2, 60, 3), model(2, 70, 1))


def test_confidence_level_in_percent_is_an_error() -> None:
    with pytest.raises(ValueError, match="is it a percentage"):
        compared(model(2, 50, 1), model(2, 50, 2)).confidence_interval(95)


def test_ranking_matches_pairs_and_lists_undefined_separately() -> None:
    results = [corrected_refusal_index(*model(2, 2000, seed, rho=rho)) for seed, rho in ((1, 0.8), (2, 0.2))]
    never = corrected_refusal_index(np.zeros((2, 2000), bool), model(2, 2000, 1)[1])
    ranking = rank_corrected([results[1], never, results[0]], rng=1)
    assert [(run.row, run.letters) for run in ranking.runs] == [(2, "a"), (0, "b")]
    assert [(run.row, run.reason) for run in ranking.unranked] == [(1, "nobody_refused")]
    (pair,) = ranking.pairs
    found = compare_corrected(*results)
    assert pair.estimate == found.estimate
    assert found.pvalue == pytest.approx(pair.pvalue, abs=0.01)


def test_clustered_ranking_matches_pairs() -> None:
    clusters = np.arange(1200) // 8
    results = [corrected_refusal_index(*model(2, 1200, seed, rho=rho), cluster=clusters) for seed, rho in RANKED]
    ranking = rank_corrected(results, rng=1)
    assert [run.row for run in ranking.runs] == [0, 1]
    (pair,) = ranking.pairs
    # Two models leave nothing to adjust for: the quantile is Student's with 149 degrees of freedom.
    assert pair.pvalue_holm == pair.pvalue
    assert pair.pvalue == pytest.approx(2 * stats.t.sf(pair.estimate / pair.standard_error, 149), rel=1e-9)
    plain = rank_corrected([corrected_refusal_index(*model(2, 1200, seed, rho=rho)) for seed, rho in RANKED])
    assert pair.standard_error == pytest.approx(plain.pairs[0].standard_error, rel=0.25)


def test_single_cluster_has_no_test_and_no_interval() -> None:
    results = [corrected_refusal_index(*model(2, 1200, seed, rho=rho), cluster=np.zeros(1200)) for seed, rho in RANKED]
    found = compare_corrected(*results)
    assert (found.status, found.reason) == ("boundary", "first:one_cluster;second:one_cluster")
    assert found.pvalue is None
    assert np.isnan(found.confidence_interval()).all()
    assert len(rank_corrected(results).unranked) == 2


def test_boundary_model_is_tested_against_ranked_models() -> None:
    rng = RNG(2)
    beyond = corrected_refusal_index(*(0.7 * rng.standard_normal(60) + rng.standard_normal((2, 2, 60)) > 0))
    others = [corrected_refusal_index(*model(2, 60, seed, slope=4, rho=-0.5)) for seed in (4, 5)]
    ranking = rank_corrected([beyond, *others], rng=1)
    assert [run.row for run in ranking.unranked] == [0]
    assert [(pair.first, pair.second) for pair in ranking.boundary_pairs] == [(0, 1), (0, 2)]
    for pair, other in zip(ranking.boundary_pairs, others, strict=True):
        assert pair.pvalue == compare_corrected(beyond, other).pvalue
        assert pair.pvalue <= pair.pvalue_holm <= 1


def test_fewer_than_two_models_cannot_be_ranked() -> None:
    with pytest.raises(ValueError, match="two models or more to rank, got 1"):
        rank_corrected([corrected_refusal_index(*model(2, 50, 1))])


def test_small_tables_with_empty_cells_have_a_pvalue() -> None:
    """The likelihood of an empty cell is nearly flat where the p-value is searched for."""
    places = [
        ([6, 8, 9, 13], [13, 14, 18], [4, 6, 8], [14]),
        ([3, 5, 11], [*range(0, 11, 2), 11, 12, 14, 15, 16, 18, 20]),
    ]
    first = [np.isin(np.arange(22), places[0][part]) for part in range(4)]
    second = [np.isin(np.arange(22), part) for part in (*places[1], [3, 11], [*places[1][1], 21])]
    results = [
        corrected_refusal_index(np.stack([a, c]), np.stack([b, d]), single=(a, b)) for a, b, c, d in (first, second)
    ]
    assert results[0].reason.startswith("estimated_from_single_responses")
    assert 0 <= compare_corrected(*results).pvalue <= 1


@pytest.mark.slow
@others_nightly("scenario", [simulation.SCENARIOS[i] for i in (1, 2, 4)], ids=str)
def test_simulated_coverage_and_bias_of_first_draws(scenario: simulation.Scenario) -> None:
    for row in simulation.scenario_rows(scenario, 200, RNG(11)):
        assert row.holds, row


# --- Influence of one question on the corrected index

N = 800


def simulated() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    hard, other = rng.standard_normal((2, N))
    noise = 0.7 * rng.standard_normal((2, 2, N))
    return 0.7 * hard + 0.7 * other + noise[0] > 0.3, hard + noise[1] > 0


@pytest.mark.parametrize("repeated", [N, N // 2])
def test_influence_range_against_replacing_single_questions(repeated):
    refused, wrong = simulated()
    scored = np.broadcast_to(np.arange(N) < repeated, refused.shape)

    def estimate(r: np.ndarray, w: np.ndarray):
        return corrected_refusal_index(r, w, scored, single=[r[0], w[0]])

    found = estimate(refused, wrong)

    def furthest(low: int, high: int) -> float:
        moved = [0.0]
        for to, by in np.random.default_rng(4).integers(low, max(high, low + 1), (120 * (high > low), 2)):
            r, w = refused.copy(), wrong.copy()
            r[:, to], w[:, to] = refused[:, by], wrong[:, by]
            moved.append(abs(estimate(r, w).estimate - found.estimate))
        return max(moved)

    seen = repeated * furthest(0, repeated) + (N - repeated) * furthest(repeated, N)
    assert 0.5 * influence_range(found) <= seen <= 1.25 * influence_range(found)
