"""The corrected Refusal Index, from repeated draws."""

import itertools
import math

import numpy as np
import pytest
from benchmarks.coverage import corrected_index as simulation
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from scipy.stats import spearmanr
from tests.tiers import others_nightly

from refusal_index import ContingencyTable, refusal_index
from refusal_index.findings.guards import index_interval
from refusal_index.stats import compare_corrected, rank_corrected, tetrachoric
from refusal_index.stats.corrected import (
    attenuated_refusal_index,
    corrected_refusal_index,
    deterministic_refusal_index,
    joint_corrected_refusal_index,
)
from refusal_index.stats.draws import mid_rank_spearman, percentiles


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


def test_attenuation_leaves_deterministic_model_unchanged() -> None:
    np.testing.assert_allclose(attenuated_refusal_index([-1, 0.3, 1], np.inf, np.inf), [-1, 0.3, 1], atol=1e-15)
    assert attenuated_refusal_index(0.3, 0, 2) == 0


def many(refusal, error, rho: float = simulation.RHO, mood: float = 0.0) -> simulation.CorrectedRefusalIndexResult:
    """200,000 questions, all sampled twice: the remaining sampling error is .005."""
    drawn = simulation.draw(
        simulation.Scenario("", 200_000, refusal, error, mood, rho, 200_000), np.random.default_rng(3)
    )
    return simulation.corrected(drawn, of_all=False)


@pytest.mark.parametrize(("b_r", "b_w", "mood"), [(1, 1, 0.0), (3, 1, 0.0), (3, 3, 0.0), (1, 3, 0.6), (1, 1, 0.6)])
def test_correction_against_theory(b_r: float, b_w: float, mood: float) -> None:
    result = many(simulation.probit(b_r, 0.6), simulation.probit(b_w, 0.7), mood=mood)
    assert result.estimate == pytest.approx(0.582, abs=0.02)
    assert result.refusal_reliability == pytest.approx(b_r**2 / (1 + b_r**2), abs=0.01)
    assert result.error_reliability == pytest.approx(b_w**2 / (1 + b_w**2), abs=0.01)
    assert result.uncorrected == pytest.approx(float(attenuated_refusal_index(0.582, b_r, b_w)), abs=0.01)


def test_shared_noise_biases_one_draw_but_not_two_against_facts() -> None:
    result = many(*simulation.both(1, 0.5, 0.5), rho=0.0, mood=0.6)
    # Half of the variance of each is noise, and the noise has a correlation of .6.
    assert result.forced_for_all == pytest.approx(spearman(0.3), abs=0.02)
    assert result.estimate == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("scenario", simulation.OTHERS[-3:], ids=str)
def test_correction_is_within_0_02_for_non_probit_probabilities(scenario) -> None:
    assert many(scenario.refusal, scenario.error).estimate == pytest.approx(0.582, abs=0.02)


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
    result = corrected_refusal_index(refused, wrong, scored)
    cross, refusals, errors = correlations_by_brute_force(refused, wrong, scored)
    assert result.rho == pytest.approx(cross / math.sqrt(refusals * errors), abs=1e-9)
    assert result.uncorrected == pytest.approx(spearman(cross), abs=1e-9)
    assert (result.refusal_reliability, result.error_reliability) == pytest.approx((refusals, errors), abs=1e-9)
    assert result.n_repeated == np.count_nonzero(scored.sum(axis=0) >= 2)


@given(st.integers(0, 10_000))
def test_order_of_draws_and_questions_does_not_matter(seed: int) -> None:
    refused, wrong = draws(3, 300, seed, scale=2)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(3)[:, np.newaxis], rng.permutation(300)
    turned, result = (
        corrected_refusal_index(*each) for each in ((refused[rows, columns], wrong[rows, columns]), (refused, wrong))
    )
    assert (turned.status, turned.reason) == (result.status, result.reason)
    if result.estimate is not None:
        assert turned.estimate == pytest.approx(result.estimate, abs=1e-9)
        assert turned.confidence_interval() == pytest.approx(result.confidence_interval(), abs=1e-9)


def test_deterministic_model_needs_no_correction() -> None:
    refused, wrong = draws(1, 500, 7)
    result = corrected_refusal_index(np.tile(refused, (3, 1)), np.tile(wrong, (3, 1)))
    assert result.refusal_reliability == result.error_reliability == 1
    assert result.estimate == result.uncorrected
    assert result.estimate == pytest.approx(refusal_index(refused=refused[0], wrong=wrong[0]).estimate, abs=1e-12)


def test_questions_with_one_draw_are_left_out() -> None:
    refused, wrong = draws(2, 400, 3)
    scored = np.ones((2, 400), bool)
    scored[1, 300:] = False
    result = corrected_refusal_index(refused, wrong, scored)
    assert result == corrected_refusal_index(refused[:, :300], wrong[:, :300])
    assert result.n_repeated == result.n == 300


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
def test_undefined_result_has_reason_and_no_estimate(refused, wrong, reason: str) -> None:
    assert_undefined(corrected_refusal_index(refused, wrong), reason)


def test_result_is_undefined_without_repeated_questions() -> None:
    scored = [YES, NO]
    assert_undefined(corrected_refusal_index([MIXED, MIXED], [MIXED, MIXED], scored), "no_repeated_questions")
    spearman = mid_rank_spearman([MIXED, MIXED], [MIXED, MIXED], scored)
    assert (spearman.status, spearman.reason) == ("undefined", "no_repeated_questions")


@pytest.mark.parametrize("matrix", [[MIXED], np.zeros((0, 0), bool)])
@pytest.mark.parametrize("estimate", [corrected_refusal_index, mid_rank_spearman])
def test_fewer_than_two_draws_are_an_error(estimate, matrix) -> None:
    with pytest.raises(ValueError, match=r"refused and wrong must have two or more rows.*got shape \([01], [06]\)"):
        estimate(matrix, matrix)


def assert_undefined(result, reason: str) -> None:
    assert (result.status, result.reason, result.estimate, result.rho) == ("undefined", reason, None, None)
    assert np.isnan(result.confidence_interval()).all()


def test_correction_beyond_one_is_boundary_with_reason() -> None:
    rng = np.random.default_rng(1)
    latent = rng.standard_normal(60)
    refused, wrong = (0.7 * latent + rng.standard_normal((2, 2, 60))) > 0
    result = corrected_refusal_index(refused, wrong)
    rho = 2 * math.sin(math.pi / 6 * result.uncorrected)
    assert rho / math.sqrt(result.refusal_reliability * result.error_reliability) > 1
    assert (result.estimate, result.rho, result.status) == (1, 1, "boundary")
    assert result.reason == "corrected_rho_reaches_one"
    low, high = result.confidence_interval()
    assert low < 1
    assert high == 1


def outcomes_from_counts(*counts: int) -> tuple[np.ndarray, np.ndarray]:
    """Refusals and errors of a table in the order of `ContingencyTable`."""
    return tuple(np.repeat(column, counts) for column in ([True, True, False, False], [True, False, True, False]))


SPARSE = 40, 0, 232, 28
RHO_582 = simulation.RHO
FILLED = 40, 1, 231, 28


def test_empty_cell_of_deterministic_model_keeps_profile_limit() -> None:
    """The limit is .095 (facts, section 13); a table with half a question added would give [.345, .531]."""
    refused, wrong = outcomes_from_counts(*SPARSE)
    result = corrected_refusal_index([refused, refused], [wrong, wrong], single=(refused, wrong))
    assert (result.estimate, result.status, result.reason) == (1, "boundary", "zero_cell:refused_right")
    assert result.confidence_interval() == pytest.approx((0.095, 1), abs=5e-4)
    plain = refusal_index(ContingencyTable(*SPARSE))
    assert result.confidence_interval(0.8) == pytest.approx(plain.confidence_interval(0.8), abs=1e-4)


def test_the_other_empty_cell_mirrors_the_interval() -> None:
    refused, wrong = outcomes_from_counts(*SPARSE)
    results = [corrected_refusal_index([refused, refused], [one, one]) for one in (wrong, ~wrong)]
    assert results[1].reason == "zero_cell:refused_wrong"
    assert results[1].estimate == -1
    assert results[1].confidence_interval() == pytest.approx(
        [-end for end in reversed(results[0].confidence_interval())]
    )


def log_likelihood_drop(cells: np.ndarray, rho: float) -> float:
    """How far the log-likelihood of a table lies below its maximum at this rho, both thresholds free, by SciPy."""

    def lost(thresholds: np.ndarray) -> float:
        h, k = thresholds
        both = stats.multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([-h, -k])
        p = np.array([both, stats.norm.sf(h) - both, stats.norm.sf(k) - both, 0])
        p[3] = 1 - p.sum()
        return float(-np.sum(cells * np.log(np.maximum(p, 1e-300))))

    h, k = stats.norm.isf([(cells[0] + cells[1]) / cells.sum(), (cells[0] + cells[2]) / cells.sum()])
    filled = cells[cells > 0]
    best = optimize.minimize(lost, [h, k], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9}).fun
    return best + float(np.sum(filled * np.log(filled / cells.sum())))


@pytest.mark.parametrize("level", [0.5, 0.95, 0.9999999])
def test_empty_cell_limit_against_likelihood_and_jackknife(level: float) -> None:
    refused, wrong = (np.tile(part, (2, 1)) for part in outcomes_from_counts(*SPARSE))
    moved, other = np.arange(0, 8), np.arange(60, 100)
    refused[1, moved], wrong[1, other] = ~refused[1, moved], ~wrong[1, other]
    result = corrected_refusal_index(refused, wrong)
    assert result.reason == "zero_cell:refused_right"
    cells = np.zeros(4)
    for a, b in ((0, 1), (1, 0)):
        cells += np.bincount(2 * ~refused[a] + ~wrong[b], minlength=4) / 2
    limit = 2 * math.sin(result.confidence_interval(level).low * math.asin(0.5))
    reliabilities = [
        math.atanh(corrected_refusal_index(refused[:, one], wrong[:, one]).reliability)
        for one in ~np.eye(300, dtype=bool)[::5]
    ]
    error = math.sqrt(299**2 / 300 * np.var(reliabilities))
    # The limit of the reliability that makes the interval longer; at the last level the other limit is negative.
    assert (limit < 0) == (level > 0.95)
    q = math.tanh(math.atanh(result.reliability) + math.copysign(stats.norm.isf((1 - level) / 2), limit) * error)
    # For a Poisson cell with a count of 0, the expected count is at most -log(1 - level).
    assert log_likelihood_drop(cells, limit * q) == pytest.approx(-math.log(1 - level), rel=0.03)


def test_single_responses_fill_empty_cell_with_reason() -> None:
    refused, wrong = outcomes_from_counts(*FILLED)
    again = refused.copy(), wrong.copy()
    scored = np.tile(~(refused & ~wrong), (2, 1))  # the one question in the cell was sampled once
    result = corrected_refusal_index([refused, again[0]], [wrong, again[1]], scored, single=(refused, wrong))
    assert (result.status, result.reason) == ("boundary", "estimated_from_single_responses:refused_right")
    assert result.estimate == pytest.approx(refusal_index(ContingencyTable(*FILLED)).estimate, abs=1e-12)
    low, high = result.confidence_interval()
    assert low < result.estimate < high == 1


def test_single_response_estimate_beyond_pair_limit_widens_interval() -> None:
    refused, wrong = outcomes_from_counts(300, 30, 60, 110)
    scored = np.tile(~(refused & wrong), (2, 1))  # no pair of draws is refused and wrong
    found = corrected_refusal_index([refused, refused], [wrong, wrong], scored, single=(refused, wrong))
    assert found.reason == "estimated_from_single_responses:refused_wrong"
    low, high = found.confidence_interval()
    assert low == -1
    assert high == found.estimate > 0.5


def test_single_response_estimate_uses_their_standard_error() -> None:
    refused, wrong = outcomes_from_counts(*FILLED)
    scored = np.tile(~(refused & ~wrong), (2, 1))
    found = corrected_refusal_index([refused, refused], [wrong, wrong], scored, single=(refused, wrong))
    alone, questions = refusal_index(ContingencyTable(*FILLED)), found._quotient.influence
    slope = 6 / math.pi / math.sqrt(4 - alone.rho**2)
    assert np.linalg.norm(questions[0]) * slope == pytest.approx(alone.standard_error, rel=1e-6)


def test_gate_puts_all_error_on_one_side_for_boundary_index() -> None:
    """A bound is passed where the cell would be empty with a probability of .05, by the likelihood, not of .10."""
    index = refusal_index(ContingencyTable(*SPARSE))
    low, high = index_interval(index)(0.9)
    assert high == 1
    rho = 2 * math.sin(low * math.asin(0.5))
    assert log_likelihood_drop(np.array(SPARSE, float), rho) == pytest.approx(-math.log(0.05), rel=1e-3)


def test_full_range_interval_is_reported_as_not_identified() -> None:
    """A model that refuses and errs with constant probabilities carries no information about dependence."""
    rng = np.random.default_rng(3)
    found = [corrected_refusal_index(rng.random((2, 300)) < 0.4, rng.random((2, 300)) < 0.6) for _ in range(12)]
    defined = [one for one in found if one.estimate not in (None, -1, 1)]
    assert len(defined) > 2
    for one in defined:
        assert one.confidence_interval() == (-1, 1)
        assert (one.status, one.reason) == ("not_identified", "no_value_ruled_out")


def test_two_empty_cells_give_minus_one_with_a_wide_interval() -> None:
    result = corrected_refusal_index([MIXED, MIXED], [TURNED, TURNED])
    assert (result.estimate, result.status) == (-1, "boundary")
    assert result.reason == "zero_cell:refused_wrong+answered_right"
    low, high = result.confidence_interval()
    assert low == -1
    assert -1 < high < 1


@given(st.integers(0, 10_000), st.integers(5, 60), st.floats(0.02, 0.98), st.floats(0.02, 0.98), st.floats(0.2, 9))
def test_estimate_lies_in_every_interval_property(seed: int, n: int, r: float, mu: float, slope: float) -> None:
    rng = np.random.default_rng(seed)
    x, own = rng.standard_normal((2, n))
    width = math.hypot(1, slope)
    refused, wrong = (
        slope * score + rng.standard_normal((2, n)) > stats.norm.isf(rate) * width
        for score, rate in ((x, r), (0.6 * x + 0.8 * own, mu))
    )
    scored = np.tile(np.arange(n) < max(2, n // 2), (2, 1))
    found = corrected_refusal_index(refused, wrong, scored, single=(refused[0], wrong[0]))
    same = deterministic_refusal_index(refused[0], wrong[0])
    joint = joint_corrected_refusal_index([found, corrected_refusal_index(refused, wrong)])
    for one in (found, same, joint):
        low, high = one.confidence_interval()
        if one.estimate is None or one.reason == "one_cluster":
            assert math.isnan(low)
            assert one.reason
        else:
            assert low <= one.estimate <= high
            assert (one.status == "not_identified") == ((low, high) == (-1, 1)) or one is same


@pytest.mark.parametrize("counts", [SPARSE, FILLED, (710, 30, 210, 50), (0, 3, 5, 2)])
def test_deterministic_model_index_and_interval_equal_ri(counts) -> None:
    refused, wrong = outcomes_from_counts(*counts)
    found, expected = deterministic_refusal_index(refused, wrong), refusal_index(ContingencyTable(*counts))
    assert (found.estimate, found.rho, found.status, found.reason) == (
        expected.estimate,
        expected.rho,
        expected.status,
        expected.reason,
    )
    assert found.confidence_interval(0.9) == pytest.approx(expected.confidence_interval(0.9), abs=1e-12)
    assert (found.refusal_reliability, found.error_reliability, found.forced_for_all) == (1, 1, None)
    assert found.n == found.n_repeated == sum(counts)


def test_a_deterministic_model_without_refusals_is_undefined() -> None:
    assert_undefined(deterministic_refusal_index(NO, MIXED), "nobody_refused")
    found = deterministic_refusal_index(MIXED, NEARLY, NO)
    assert (found.estimate, found.reason) == (None, "no_questions")


def test_deterministic_models_are_compared_ranked_and_joined() -> None:
    (steady, wrong), (other, _) = draws(1, 800, 1, scale=50), draws(1, 800, 2, scale=50)
    results = [deterministic_refusal_index(one[0], wrong[0]) for one in (steady, other)]
    difference = compare_corrected(*results)
    assert difference.estimate == pytest.approx(results[0].estimate - results[1].estimate)
    assert difference.pvalue < 1e-4
    assert [run.row for run in rank_corrected(results, rng=1).runs] == [0, 1]
    alike = [deterministic_refusal_index(steady[0], wrong[0])] * 2
    joint = joint_corrected_refusal_index(alike)
    assert joint.estimate == pytest.approx(alike[0].estimate, abs=1e-12)
    assert joint.forced_for_all is None


@pytest.mark.parametrize("counts", [(37, 16, 6, 1), (20, 3, 8, 9), (30, 0, 0, 30)])
def test_deterministic_model_equals_identical_repeated_samples(counts) -> None:
    refused, wrong = outcomes_from_counts(*counts)
    alike = corrected_refusal_index([refused, refused], [wrong, wrong], single=(refused, wrong))
    difference = compare_corrected(alike, deterministic_refusal_index(refused, wrong))
    assert difference.estimate == pytest.approx(0, abs=1e-12)
    assert difference.pvalue == 1
    assert difference.reliability_pvalue is None


def test_prompt_with_empty_cell_has_little_weight() -> None:
    """Two prompts, of which one refuses 8% and has no question that was refused and right (an independent review)."""
    rng, found = np.random.default_rng(4), []
    for _ in range(60):
        x, own = rng.standard_normal((2, 300))
        y = RHO_582 * x + math.sqrt(1 - RHO_582**2) * own
        wrong = 3 * y + rng.standard_normal((2, 300)) > stats.norm.isf(0.93) * math.hypot(1, 3)
        refused = [3 * x + rng.standard_normal((2, 300)) > stats.norm.isf(r) * math.hypot(1, 3) for r in (0.08, 0.62)]
        prompts = [corrected_refusal_index(one, wrong, single=(one[0], wrong[0])) for one in refused]
        found.append(joint_corrected_refusal_index(prompts).estimate)
    assert np.median(found) == pytest.approx(0.582, abs=0.08)  # .38 if the added half question were taken at face value


@pytest.mark.parametrize("design", [{"weight": np.tile([1.0, 2.0], 250)}, {"cluster": np.arange(500) // 5}])
def test_deterministic_model_uses_interval_of_sampling_design(design) -> None:
    refused, wrong = (row[0] for row in draws(1, 500, 3, scale=3))
    found = deterministic_refusal_index(refused, wrong, **design)
    expected = refusal_index(refused=refused, wrong=wrong, **design)
    assert found.estimate == pytest.approx(expected.estimate, abs=1e-12)
    assert found.confidence_interval() == pytest.approx(expected.confidence_interval(), abs=1e-9)


def test_empty_cell_counts_each_cluster_as_one_question() -> None:
    refused, wrong = outcomes_from_counts(*SPARSE)
    cluster = np.arange(300) % 30
    lows = [
        corrected_refusal_index([refused, refused], [wrong, wrong], **design).confidence_interval().low
        for design in ({}, {"cluster": cluster})
    ]
    effective = refusal_index(refused=refused, wrong=wrong, cluster=cluster)
    assert lows[1] < lows[0]
    assert lows[1] == pytest.approx(effective.confidence_interval().low, abs=0.05)


@others_nightly("rates", simulation.SEVERAL_PROMPTS)
def test_coverage_when_one_prompt_has_an_empty_cell(rates) -> None:
    for row in simulation.joint_rows(rates, 1000, 60, np.random.default_rng(5)):
        assert row.holds, row


@others_nightly("scenario", simulation.SPARSE[:3], ids=str)
def test_coverage_with_empty_cells(scenario: simulation.Scenario) -> None:
    rng = np.random.default_rng(6)
    results = [simulation.corrected(simulation.draw(scenario, rng)) for _ in range(200)]
    assert sum((result.reason or "").startswith("zero_cell") for result in results) > 20
    for row in simulation.sparse_rows(str(scenario), scenario.index, results, 200):
        assert row.holds, row


@others_nightly("scenario", simulation.AT_TEMPERATURE_0, ids=str)
def test_coverage_at_temperature_0(scenario) -> None:
    refusal, error, index, n = scenario
    rng, rho = np.random.default_rng(7), 2 * math.sin(index * math.asin(0.5))
    results = [simulation.at_temperature_0(refusal, error, rho, n, rng) for _ in range(300)]
    for row in simulation.sparse_rows(str(scenario), index, results, 300):
        assert row.holds, row


def two_phase(seed: int, n: int = 3000, repeated: int = 500, slope: float = 3.0):
    """Repeated draws of some questions, and a single one of all."""
    refused, wrong = draws(2, n, seed, scale=slope)
    return refused, wrong, np.tile(np.arange(n) < repeated, (2, 1)), (refused[0], wrong[0])


def test_repeated_question_weights_match_explicit_copies() -> None:
    refused, wrong, scored, single = two_phase(1)
    cells = 2 * ~single[0] + ~single[1]
    every, some = np.bincount(cells), np.bincount(cells[:500])
    # As many copies of each question as it represents, to two decimals.
    copies = np.repeat(np.arange(500), np.round(100 * every[cells[:500]] / some[cells[:500]]).astype(int))
    expected = corrected_refusal_index(refused[:, copies], wrong[:, copies])
    result = corrected_refusal_index(refused, wrong, scored, single=single)
    assert (result.n_repeated, result.n) == (500, 3000)
    for name in ("estimate", "forced_for_all", "uncorrected", "refusal_reliability", "error_reliability"):
        assert getattr(result, name) == pytest.approx(getattr(expected, name), abs=1e-4), name


def test_single_draws_narrow_interval_only_if_some_questions_lack_repeats() -> None:
    refused, wrong, scored, single = two_phase(2)
    (low, high), (alone_low, alone_high) = (
        corrected_refusal_index(refused, wrong, scored, single=each).confidence_interval() for each in (single, None)
    )
    assert high - low < 0.85 * (alone_high - alone_low)
    everywhere = corrected_refusal_index(refused, wrong, single=single)
    assert everywhere == corrected_refusal_index(refused, wrong)
    assert everywhere.confidence_interval() == pytest.approx(
        corrected_refusal_index(refused, wrong).confidence_interval(), abs=1e-9
    )


def test_first_pass_answers_are_not_treated_as_forced_answers() -> None:
    refused, wrong, scored, single = two_phase(3)
    other = (single[0], np.where(single[0], single[1], ~single[1]))  # every first-pass answer with the opposite grade
    estimates = [corrected_refusal_index(refused, wrong, scored, single=each).estimate for each in (single, other)]
    assert estimates[1] == pytest.approx(estimates[0], abs=1e-9)


def test_interval_against_resampled_questions() -> None:
    refused, wrong, scored, single = two_phase(5)
    rng, found = np.random.default_rng(8), []
    for _ in range(200):
        i = np.concatenate([rng.integers(0, 500, 500), rng.integers(500, 3000, 2500)])
        drawn = corrected_refusal_index(refused[:, i], wrong[:, i], scored[:, i], single=(single[0][i], single[1][i]))
        found.append(drawn.estimate)
    interval = corrected_refusal_index(refused, wrong, scored, single=single).confidence_interval(0.8)
    assert interval == pytest.approx(tuple(np.quantile(found, [0.1, 0.9])), abs=0.02)


def test_stratum_without_repeats_is_merged_with_others() -> None:
    refused, wrong, scored, single = two_phase(6, n=600, repeated=60)
    cells = 2 * ~single[0] + ~single[1]
    scored = scored & (cells != 1)  # no question that was refused and right is sampled twice
    result = corrected_refusal_index(refused, wrong, scored, single=single)
    assert result.n == 600
    assert result.status != "undefined"


def test_interval_contains_estimate_and_matches_jackknife_width() -> None:
    """With unequal reliabilities and a correlation so high that their uncertainty matters."""
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((2, 400))
    wrong = 3 * x + rng.standard_normal((2, 400)) > -0.6
    refused = 2 * (0.9 * x + 0.19**0.5 * y) + rng.standard_normal((2, 400)) > 0.3
    result = corrected_refusal_index(refused, wrong)
    assert result.interval_at(1e-6) == pytest.approx((result.estimate, result.estimate), abs=1e-3)
    without = [corrected_refusal_index(refused[:, one], wrong[:, one]).estimate for one in ~np.eye(400, dtype=bool)]
    low, high = result.interval_at(0.5)
    assert high - low == pytest.approx(math.sqrt(399 * np.var(without)), rel=0.1)


def test_joint_index_sums_numerators_and_denominators_over_prompts() -> None:
    _, wrong = draws(2, 2000, 4, scale=2)
    prompts = [corrected_refusal_index(draws(2, 2000, 4, scale=b)[0], wrong) for b in (1, 4)]
    joint = joint_corrected_refusal_index(prompts)
    assert min(prompt.estimate for prompt in prompts) < joint.estimate < max(prompt.estimate for prompt in prompts)
    # With these prompts held fixed.
    widths = [high - low for low, high in (one.interval_at(1.96) for one in (joint, *prompts))]
    assert widths[0] < widths[1]
    assert joint_corrected_refusal_index(prompts[:1]) is prompts[0]
    never = corrected_refusal_index(np.zeros_like(wrong), wrong)
    assert joint_corrected_refusal_index([never, prompts[0]]) is prompts[0]
    assert joint_corrected_refusal_index([never]).reason == "nobody_refused"


def test_joint_interval_widens_with_prompt_spread_but_difference_does_not() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 4000))
    wrong = 3 * x + rng.standard_normal((2, 4000)) > 0

    def joint(rhos: tuple[float, ...]):
        scores = (rho * x + math.sqrt(1 - rho * rho) * y for rho in rhos)
        return joint_corrected_refusal_index(
            [corrected_refusal_index(3 * z + rng.standard_normal((2, 4000)) > 0, wrong) for z in scores]
        )

    alike, apart = joint((0.5, 0.5, 0.5)), joint((0.2, 0.5, 0.8))
    widths = [high - low for low, high in (one.confidence_interval() for one in (alike, apart))]
    assert widths[1] > 3 * widths[0]
    low, high = apart.confidence_interval()
    # Three prompts of .2, .5 and .8: by hand, on Fisher's scale, their deviation over the root of three, by Student's
    # distribution with two degrees of freedom, and fewer where prompts weigh unequally.
    by_hand = stats.t.ppf(0.975, 2) * np.std(np.arctanh([0.2, 0.5, 0.8]), ddof=1) / math.sqrt(3)
    at = [math.atanh(2 * math.sin(end * math.pi / 6)) for end in (low, high)]
    assert (at[1] - at[0]) / 2 == pytest.approx(by_hand, rel=0.35)
    fixed = compare_corrected(apart, alike).confidence_interval()
    assert fixed[1] - fixed[0] < widths[1]


def test_incompatible_joint_inputs_are_an_error() -> None:
    with pytest.raises(ValueError, match="one prompt or more, got none"):
        joint_corrected_refusal_index([])
    other = [corrected_refusal_index(*draws(2, n, 1, scale=2)) for n in (100, 200)]
    with pytest.raises(ValueError, match="same questions as columns"):
        joint_corrected_refusal_index(other)


@pytest.mark.parametrize(
    ("single", "message"),
    [
        (([True],), "single must be"),
        (([True, False], [True]), "single: refused and wrong must have one value"),
        (([True] * 5, [True] * 5), "one value for each of the 6 questions, got 5"),
    ],
)
def test_single_draws_of_wrong_shape_are_an_error(single, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corrected_refusal_index([MIXED, MIXED], [MIXED, MIXED], single=single)


def test_undefined_resample_widens_percentiles_to_full_range() -> None:
    values = np.array([0.2, 0.4, 0.6, np.nan, 7.0])
    assert percentiles(values, 0.9999) == pytest.approx((-1, 1), abs=1e-3)
    assert percentiles(np.array([0.2, 0.4]), 0.5) == pytest.approx((0.25, 0.35))


def test_intervals_are_reproducible_and_reject_bad_arguments() -> None:
    part, corrected = (estimate(*draws(2, 300, 5)) for estimate in (mid_rank_spearman, corrected_refusal_index))
    assert corrected.confidence_interval() == corrected.confidence_interval()
    assert part.confidence_interval(rng=3) == part.confidence_interval(rng=3)
    assert part.confidence_interval(rng=3) != part.confidence_interval(rng=4)
    with pytest.raises(ValueError, match="n_resamples must be at least 1, got 0"):
        part.confidence_interval(n_resamples=0)
    for each in (part, corrected):
        with pytest.raises(ValueError, match="is it a percentage"):
            each.confidence_interval(95)


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
    assert mid_rank_spearman(refused, wrong, scored).estimate == pytest.approx(
        spearmanr(*frequencies).statistic, abs=1e-12
    )


def test_interval_of_the_mid_rank_spearman_against_its_definition() -> None:
    refused, wrong = draws(4, 200, 6)
    counts, rng = np.stack([refused.sum(axis=0), wrong.sum(axis=0)]), np.random.default_rng(7)
    resampled = [spearmanr(*counts[:, rng.integers(0, 200, 200)]).statistic for _ in range(1500)]
    interval = mid_rank_spearman(refused, wrong).confidence_interval(0.8, n_resamples=4000, rng=9)
    assert interval == pytest.approx(tuple(np.quantile(resampled, [0.1, 0.9])), abs=0.015)


def test_correlations_differ_for_atomic_distributions_against_facts() -> None:
    scenario = next(scenario for scenario in simulation.OTHERS if "atoms" in scenario.name)
    rng = np.random.default_rng(4)
    x = rng.standard_normal(20_000)
    y = simulation.RHO * x + math.sqrt(1 - simulation.RHO**2) * rng.standard_normal(20_000)
    refused, wrong = (rng.random((60, 20_000)) < p for p in (scenario.refusal(x), scenario.error(y)))
    # Standard errors are .006; the 60 draws take another .002 off Spearman's.
    assert mid_rank_spearman(refused, wrong).estimate == pytest.approx(0.484, abs=0.02)
    assert corrected_refusal_index(refused, wrong).estimate == pytest.approx(0.582, abs=0.02)


@pytest.mark.parametrize(
    ("refused", "wrong", "status", "reason"),
    [
        ([YES, YES], [MIXED, MIXED], "undefined", "refusal_frequency_constant"),
        ([MIXED, MIXED], [MIXED, TURNED], "undefined", "error_frequency_constant"),
        ([MIXED, MIXED], [MIXED, MIXED], "boundary", "perfect_rank_correlation"),
    ],
)
def test_mid_rank_spearman_without_variation(refused, wrong, status: str, reason: str) -> None:
    result = mid_rank_spearman(refused, wrong)
    assert (result.status, result.reason) == (status, reason)
    assert result.estimate == (1 if status == "boundary" else None)
    assert np.isnan(result.confidence_interval()).all()


@pytest.mark.slow
@others_nightly("scenario", [simulation.ORDINARY[i] for i in (2, 4, 19)] + [*simulation.OTHERS[:2]], ids=str)
def test_simulated_bias_and_coverage(scenario: simulation.Scenario) -> None:
    for row in simulation.scenario_rows(scenario, 200, np.random.default_rng(11)):
        assert row.holds, row


def test_equal_weights_and_singleton_clusters_change_only_t_quantile() -> None:
    refused, wrong, scored, single = two_phase(7)
    plain = corrected_refusal_index(refused, wrong, scored, single=single)
    n = refused.shape[1]
    for design in ({"weight": np.full(n, 2.5)}, {"cluster": np.arange(n)}):
        found = corrected_refusal_index(refused, wrong, scored, single=single, **design)
        assert found.estimate == pytest.approx(plain.estimate, abs=1e-12)
        assert found.confidence_interval() == pytest.approx(plain.confidence_interval(), abs=2e-4)


def test_weight_of_two_equals_two_copies_of_a_question() -> None:
    refused, wrong, scored, single = two_phase(8, n=900, repeated=400)
    weight = np.where(np.arange(900) % 3 == 0, 2.0, 1.0)
    copies = np.repeat(np.arange(900), weight.astype(int))
    weighted = corrected_refusal_index(refused, wrong, scored, single=single, weight=weight)
    twice = corrected_refusal_index(
        refused[:, copies], wrong[:, copies], scored[:, copies], single=(single[0][copies], single[1][copies])
    )
    assert weighted.estimate == pytest.approx(twice.estimate, abs=1e-9)


def test_duplicates_within_a_cluster_add_no_information() -> None:
    refused, wrong, scored, single = two_phase(9, n=1500, repeated=400)
    plain = corrected_refusal_index(refused, wrong, scored, single=single)
    copies = np.tile(np.arange(1500), 2)
    again = corrected_refusal_index(
        refused[:, copies],
        wrong[:, copies],
        scored[:, copies],
        single=(single[0][copies], single[1][copies]),
        cluster=copies,
    )
    assert again.estimate == pytest.approx(plain.estimate, abs=1e-9)
    assert again.confidence_interval() == pytest.approx(plain.confidence_interval(), abs=0.005)


def test_single_cluster_has_no_interval_and_a_reason() -> None:
    refused, wrong, scored, single = two_phase(10)
    found = corrected_refusal_index(refused, wrong, scored, single=single, cluster=np.zeros(refused.shape[1]))
    assert (found.status, found.reason) == ("boundary", "one_cluster")
    assert np.isnan(found.confidence_interval()).all()


def test_clustered_prompts_keep_weights_of_independent_questions() -> None:
    wrong = draws(2, 900, 4, scale=2)[1]
    prompts = [draws(2, 900, 4, scale=b)[0] for b in (1, 4)]
    joint, over, alone = (
        joint_corrected_refusal_index([corrected_refusal_index(prompt, wrong, cluster=cluster) for prompt in prompts])
        for cluster in (None, np.arange(900) // 30, np.zeros(900))
    )
    assert over.estimate == pytest.approx(joint.estimate, abs=1e-12)
    assert over.confidence_interval() != joint.confidence_interval()
    assert alone.estimate == pytest.approx(joint.estimate, abs=1e-12)
    assert (alone.status, alone.reason) == ("boundary", "one_cluster")
    assert np.isnan(alone.confidence_interval()).all()
