"""The paper's comparison of copulas over single tables, and the test whether several prompts share one."""

import math

import numpy as np
import pytest
from benchmarks.coverage import copula_test as simulation
from benchmarks.coverage import joint as many
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri
from scipy.stats import chi2
from tests.tiers import others_nightly, reduced_examples

from refusal_index import ContingencyTable
from refusal_index.plugins.studies.copulas import copula_test, copula_tests, copula_win_rates, fit_common_strength
from refusal_index.stats import upper_orthant
from refusal_index.stats.copulas import COPULA_NAMES, copula_family
from refusal_index.stats.estimator import density

# --- Copulas compared over single tables

POSITIVE, NEGATIVE = ContingencyTable(710, 30, 210, 50), ContingencyTable(400, 50, 500, 50)
ONE_SIDED = ("clayton", "gumbel", "survival_clayton", "survival_gumbel")


def saturated(table: ContingencyTable) -> float:
    return sum(count * math.log(count / table.n) for count in table.counts if count)


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
    gaussian, *others = rows
    assert (
        {gaussian[f"gaussian_wins_{name}"] for name in ("log_likelihood", "aic", "bic")} == {gaussian["ties"]} == {None}
    )
    for row in others:
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
