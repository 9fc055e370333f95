"""The table of counts, and samples with clusters and weights."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import statsmodels.api as sm
from benchmarks.coverage import clusters as simulation
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, stats
from tests.tiers import others_nightly

from refusal_index import ContingencyTable, refusal_index, refusal_index_many
from refusal_index.stats import CELL_NAMES, METRIC_NAMES, SampledTable, SamplingDesign, metrics
from refusal_index.stats.baseline import Payoffs, ratio_influence
from refusal_index.stats.contingency import effective_number, satterthwaite
from refusal_index.stats.estimate import student_quantile, two_sided_pvalue
from refusal_index.stats.intervals import cell_influence, spearman_slope

# --- The table of counts


def test_counts_and_rates() -> None:
    table = ContingencyTable(refused_wrong=710, refused_right=30, answered_wrong=210, answered_right=50)
    assert table.counts == (710, 30, 210, 50)
    assert (table.n, table.n_refused, table.n_answered) == (1000, 740, 260)
    assert (table.refusal_rate, table.error_rate, table.correct_rate) == (0.74, 0.92, 0.05)


def test_empty_table_is_valid_and_has_no_rates() -> None:
    table = ContingencyTable(0, 0, 0, 0)
    assert table.n == 0
    assert all(math.isnan(rate) for rate in (table.refusal_rate, table.error_rate, table.correct_rate))


@pytest.mark.parametrize("count", [3, 3.0, np.int64(3), np.uint8(3), np.float32(3), Fraction(3)])
def test_whole_numbers_of_any_type_are_stored_as_int(count) -> None:
    table = ContingencyTable(count, 0, 0, 1)
    assert table.refused_wrong == 3
    assert type(table.refused_wrong) is int


def test_tables_are_frozen_and_compare_by_their_counts() -> None:
    table = ContingencyTable(1, 2, 3, 4)
    assert table == ContingencyTable(1.0, 2, 3, 4)
    with pytest.raises(AttributeError):
        table.refused_wrong = 5


@pytest.mark.parametrize("name", CELL_NAMES)
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (-1, ValueError, "must not be negative, got -1; was it made by subtracting"),
        (0.5, ValueError, r"must be a whole number of questions, got 0\.5; is it a rate"),
        (math.nan, ValueError, "must be a whole number of questions, got nan.*missing values"),
        (math.inf, ValueError, "must be a whole number of questions, got inf"),
        (True, TypeError, "got True of type bool; to count from one truth value per question use .*from_arrays"),
        (np.array([True, False]), TypeError, "of type ndarray; .* for many tables refusal_index_many"),
        ("3", TypeError, "got '3' of type str"),
        (None, TypeError, "got None of type NoneType"),
    ],
)
def test_errors_name_the_count_and_a_likely_cause(name: str, value, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{name} .*{message}"):
        ContingencyTable(**{**dict.fromkeys(CELL_NAMES, 1), name: value})


def test_from_arrays_counts_each_combination() -> None:
    counts = (5, 4, 3, 2)
    refused, wrong = np.repeat([True, True, False, False], counts), np.repeat([True, False, True, False], counts)
    order = np.random.default_rng(1).permutation(14)
    assert ContingencyTable.from_arrays(refused[order], wrong[order]).counts == counts


def test_from_arrays_accepts_lists_and_empty_input() -> None:
    assert ContingencyTable.from_arrays([True], [False]).counts == (0, 1, 0, 0)
    assert ContingencyTable.from_arrays([], []).n == 0


@pytest.mark.parametrize(
    ("refused", "wrong", "error", "message"),
    [
        ([True, False], [True], ValueError, "for each of the same questions, got 2 and 1; was one of them filtered"),
        ([[True], [False]], [True, False], ValueError, r"refused must be one-dimensional, got shape \(2, 1\)"),
        (True, [True], ValueError, r"refused must be one-dimensional, got shape \(\)"),
        ([2, 0], [True, False], TypeError, "refused must hold truth values, got an array of int64"),
        (
            [True, False],
            [True, None],
            TypeError,
            "wrong must hold .* of object; .* unscored questions that need dropping",
        ),
        (["refused", "correct"], [True, False], TypeError, "grades in it that need comparing"),
    ],
)
def test_from_arrays_errors_name_the_array_and_a_likely_cause(refused, wrong, error, message: str) -> None:
    with pytest.raises(error, match=message):
        ContingencyTable.from_arrays(refused, wrong)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([1, -2], ValueError, r"whole numbers that are not negative, got -2\.0"),
        ([1, 2.5], ValueError, r"got 2\.5; is it a rate"),
        ([1, math.nan], ValueError, "got nan; .* missing values"),
        ([1, math.inf], ValueError, "got inf"),
        ([True, False], TypeError, "must hold counts, got an array of bool; is it one truth value per question"),
        (["1"], TypeError, "got an array of <U1"),
    ],
)
def test_arrays_of_counts_are_validated(values, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^answered_wrong .*{message}"):
        refusal_index_many(1, 1, values, 1)


# --- Clusters and weights

SIZES = [1, 2, 3, 4, 5, 6, 7, 30]


def sample(seed: int = 0, n: int = 300, groups: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Refusals, errors, clusters of unequal size and weights."""
    rng = np.random.default_rng(seed)
    cluster = np.sort(np.minimum(rng.integers(0, groups, n), rng.integers(0, groups, n)))
    effect = rng.standard_normal((2, groups))[:, cluster]
    difficulty = 0.5 * effect[0] + rng.standard_normal(n)
    refused = 0.5 * difficulty + 0.5 * effect[1] + rng.standard_normal(n) > 0
    return refused, difficulty > -0.3, cluster, rng.uniform(0.5, 3, n)


def by_question(table: SampledTable, refused: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Influence of each question on the index."""
    rho = refusal_index(table).rho
    return (np.array(cell_influence(table, rho)) * spearman_slope(rho))[2 * ~refused + ~wrong]


@pytest.mark.parametrize("weighted", [False, True])
def test_variance_of_a_rate_against_statsmodels(weighted: bool) -> None:
    refused, wrong, cluster, weight = sample()
    weight = weight if weighted else np.ones(300)
    fit = sm.WLS(wrong.astype(float), np.ones(300), weights=weight)
    reference = fit.fit(cov_type="cluster", cov_kwds={"groups": cluster, "use_correction": False})
    design = SamplingDesign.of(300, cluster, weight)
    contributions = (weight * (wrong - np.average(wrong, weights=weight)) / weight.sum())[np.newaxis]
    scored = np.ones((1, 300), bool)
    uncorrected = design.sums(contributions, scored) * np.sqrt(1 - design.shares(scored))
    assert np.sum(uncorrected**2) == pytest.approx(float(reference.cov_params()[0, 0]), rel=1e-12)
    table = SampledTable.from_arrays(refused, wrong, cluster=cluster, weight=weight)
    rate, influence = ratio_influence("error_rate", table, Payoffs())
    assert rate == pytest.approx(float(reference.params[0]), rel=1e-12)
    assert table.variance(influence) == pytest.approx(np.sum(design.sums(contributions, scored) ** 2), rel=1e-12)


def test_equal_size_clusters_match_statsmodels_correction() -> None:
    refused, wrong, _, _ = sample()
    cluster = np.arange(300) // 10
    table = SampledTable.from_arrays(refused, wrong, cluster=cluster)
    fit = sm.OLS(by_question(table, refused, wrong), np.ones(300))
    reference = fit.fit(cov_type="cluster", cov_kwds={"groups": cluster, "use_correction": True})
    assert refusal_index(table).standard_error == pytest.approx(float(reference.bse[0]), rel=1e-12)


def test_unequal_clusters_against_the_matrices_of_bell_and_mccaffrey() -> None:
    # CR2 by its definition: the residuals of each cluster times (I - H_gg)^(-1/2), and the degrees of freedom
    # (sum of eigenvalues)^2 / (sum of their squares) of the quadratic form that the variance then is.
    cluster = np.repeat(np.arange(len(SIZES)), SIZES)
    n = cluster.size
    y = np.random.default_rng(2).standard_normal(n)
    residual_maker = np.eye(n) - 1 / n
    directions = []
    for g in range(len(SIZES)):
        members = cluster == g
        root = linalg.sqrtm(np.linalg.inv(residual_maker[np.ix_(members, members)])).real
        directions.append(root.sum(axis=0) @ residual_maker[members] / n)
    form = np.array(directions)
    eigenvalues = np.linalg.eigvalsh(form @ form.T)
    design = SamplingDesign.of(n, cluster)
    scored = np.ones((1, n), bool)
    sums = design.sums(((y - y.mean()) / n)[np.newaxis], scored)
    assert np.sum(sums**2) == pytest.approx(np.sum((form @ y) ** 2), rel=1e-10)
    (degrees,) = design.degrees_of_freedom(scored)
    assert degrees == pytest.approx(eigenvalues.sum() ** 2 / np.sum(eigenvalues**2), rel=1e-10)


def test_variance_is_unbiased_where_weights_are_inverse_variances() -> None:
    # The expectation of a quadratic form is a trace, so no simulation is needed.
    _, _, cluster, weight = sample(n=60, groups=8)
    total = weight.sum()
    centred = np.eye(60) - weight / total
    sums = SamplingDesign.of(60, cluster, weight).sums(
        (weight / total * centred.T).reshape(60, 60), np.ones((60, 60), bool)
    )
    assert np.trace(sums.T @ np.diag(1 / weight) @ sums) == pytest.approx(1 / total, rel=1e-10)


@pytest.mark.parametrize("groups", [2, 5, 40])
def test_equal_size_clusters_have_count_minus_one_degrees_of_freedom(groups: int) -> None:
    assert satterthwaite(np.full(groups, 1 / groups)) == pytest.approx(groups - 1)


def test_student_against_scipy() -> None:
    assert student_quantile(0.9, 7.5) == pytest.approx(stats.t.ppf(0.95, 7.5), rel=1e-12)
    assert two_sided_pvalue(-2.2, 7.5) == pytest.approx(2 * stats.t.sf(2.2, 7.5), rel=1e-12)
    assert student_quantile(0.95, None) == pytest.approx(stats.norm.ppf(0.975), rel=1e-14)


def test_singleton_clusters_match_ordinary_table_up_to_correction() -> None:
    refused, wrong, _, _ = sample()
    ordinary = refusal_index(refused=refused, wrong=wrong)
    own = refusal_index(refused=refused, wrong=wrong, cluster=np.arange(300))
    assert own.estimate == ordinary.estimate
    assert own.standard_error == pytest.approx(ordinary.standard_error * math.sqrt(300 / 299), rel=1e-12)
    for one, other in zip(metrics(own.table), metrics(ordinary.table), strict=True):
        scale = 200 if one.name == "omniscience_index" else 1
        assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=2e-3 * scale)


def test_interval_uses_effective_size_at_student_level() -> None:
    refused, wrong, cluster, weight = sample(3)
    result = refusal_index(refused=refused, wrong=wrong, cluster=cluster, weight=weight)
    table = result.table
    size = table.effective_size(cell_influence(table, result.rho))
    assert size < 0.9 * effective_number(weight)
    ordinary = refusal_index(ContingencyTable(*np.round(np.array(table.counts) * size / 300).astype(int)))
    assert ordinary.standard_error == pytest.approx(result.standard_error, rel=0.02)
    # The level at which the normal quantile equals Student's.
    level = 2 * stats.norm.cdf(stats.t.ppf(0.975, table.degrees_of_freedom)) - 1
    assert level > 0.955
    assert result.confidence_interval() == pytest.approx(ordinary.confidence_interval(level), abs=0.01)


def test_delta_interval_is_student_t_on_fisher_z_scale() -> None:
    refused, wrong, cluster, _ = sample()
    result = refusal_index(refused=refused, wrong=wrong, cluster=cluster)
    error = math.sqrt(result.table.variance(cell_influence(result.table, result.rho))) / (1 - result.rho**2)
    reach = stats.t.ppf(0.95, result.table.degrees_of_freedom) * error
    low, high = result.confidence_interval(0.9, method="delta")
    ends = [6 / math.pi * math.asin(math.tanh(math.atanh(result.rho) + side * reach) / 2) for side in (-1, 1)]
    assert (low, high) == pytest.approx(tuple(ends), rel=1e-9)


def test_copies_within_a_cluster_add_no_information() -> None:
    refused, wrong, _, _ = sample()
    copies = [np.repeat(values, 4) for values in (refused, wrong, np.arange(300))]
    copied = refusal_index(refused=copies[0], wrong=copies[1], cluster=copies[2])
    own = refusal_index(refused=refused, wrong=wrong, cluster=np.arange(300))
    assert copied.estimate == pytest.approx(own.estimate, rel=1e-12)
    assert copied.standard_error == pytest.approx(own.standard_error, rel=1e-9)
    assert copied.confidence_interval() == pytest.approx(own.confidence_interval(), abs=1e-9)


@given(st.integers(0, 10_000))
def test_weight_of_two_equals_two_copies_in_the_cluster(seed: int) -> None:
    refused, wrong, cluster, _ = sample(seed)
    twice = np.random.default_rng(seed).random(300) < 0.3
    weighted = metrics(SampledTable.from_arrays(refused, wrong, cluster=cluster, weight=1 + twice))
    rows = np.repeat(np.arange(300), 1 + twice)
    split = metrics(SampledTable.from_arrays(refused[rows], wrong[rows], cluster=cluster[rows]))
    for one, other in zip(weighted, split, strict=True):
        assert one.estimate == pytest.approx(other.estimate, rel=1e-9)


@given(st.integers(0, 10_000), st.floats(0.01, 100))
def test_only_weight_ratios_matter_and_equal_weights_have_no_effect(seed: int, factor: float) -> None:
    refused, wrong, cluster, weight = sample(seed)
    one, other, none = (
        metrics(SampledTable.from_arrays(refused, wrong, cluster=cluster, weight=values))
        for values in (weight, factor * weight, None)
    )
    equal = metrics(SampledTable.from_arrays(refused, wrong, cluster=cluster, weight=np.full(300, factor)))
    for a, b in (*zip(one, other, strict=True), *zip(equal, none, strict=True)):
        assert (a.estimate, a.low, a.high) == pytest.approx((b.estimate, b.low, b.high), rel=1e-7, abs=1e-9)


@given(st.integers(0, 10_000))
def test_order_and_names_of_clusters_do_not_matter(seed: int) -> None:
    refused, wrong, cluster, weight = sample(seed)
    order = np.random.default_rng(seed).permutation(300)
    names = np.array([f"cluster {number}" for number in cluster])
    one = metrics(SampledTable.from_arrays(refused, wrong, cluster=cluster, weight=weight))
    other = metrics(
        SampledTable.from_arrays(refused[order], wrong[order], cluster=names[order].tolist(), weight=weight[order])
    )
    for a, b in zip(one, other, strict=True):
        assert (a.estimate, a.low, a.high) == pytest.approx((b.estimate, b.low, b.high), rel=1e-7, abs=1e-9)


def test_question_with_zero_weight_is_left_out() -> None:
    refused, wrong, cluster, weight = sample()
    kept = np.random.default_rng(1).random(300) < 0.8
    zeroed = refusal_index(refused=refused, wrong=wrong, cluster=cluster, weight=weight * kept)
    without = refusal_index(refused=refused[kept], wrong=wrong[kept], cluster=cluster[kept], weight=weight[kept])
    assert zeroed.table.n == kept.sum()
    assert zeroed.estimate == pytest.approx(without.estimate, rel=1e-12)
    assert zeroed.confidence_interval() == pytest.approx(without.confidence_interval(), rel=1e-9)


def test_clusters_never_shorten_an_interval() -> None:
    # One of each cell in every cluster: between clusters nothing varies.
    refused, wrong = np.tile([True, True, False, False], 40), np.tile([True, False, True, False], 40)
    wrong[:12] = True
    table = SampledTable.from_arrays(refused, wrong, cluster=np.arange(160) // 4)
    ordinary = metrics(ContingencyTable.from_arrays(refused, wrong))
    for one, other in zip(metrics(table), ordinary, strict=True):
        assert one.high - one.low >= other.high - other.low


def test_constant_clusters_use_interval_of_cluster_count() -> None:
    table = SampledTable.from_arrays(
        np.tile([True, False], 50), np.tile([True, False], 50), cluster=np.arange(100) // 10
    )
    refusal = metrics(table)[METRIC_NAMES.index("refusal_rate")]
    # Wilson's interval of five out of ten with the quantile of nine degrees of freedom.
    reach = stats.t.ppf(0.975, 9)
    half = reach * math.sqrt(0.25 / 10 + reach**2 / 400) / (1 + reach**2 / 10)
    assert (refusal.low, refusal.high) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-9)
    assert effective_number(np.full(10, 0.1)) == pytest.approx(10)


def test_boundary_interval_is_based_on_clusters() -> None:
    refused, wrong = np.repeat([True, False, False], [30, 20, 50]), np.repeat([True, True, False], [30, 20, 50])
    result = refusal_index(refused=refused, wrong=wrong, cluster=np.arange(100) % 20)
    assert (result.estimate, result.status, result.reason) == (1.0, "boundary", "zero_cell:refused_right")
    assert result.confidence_interval() == pytest.approx(
        refusal_index(ContingencyTable(6, 0, 4, 10)).confidence_interval()
    )


def test_one_cluster_has_an_estimate_and_no_interval() -> None:
    refused, wrong, _, _ = sample()
    result = refusal_index(refused=refused, wrong=wrong, cluster=np.zeros(300, int))
    assert result.estimate == refusal_index(refused=refused, wrong=wrong).estimate
    assert (result.standard_error, result.status, result.reason) == (None, "boundary", "one_cluster")
    for found in metrics(result.table):
        assert found.estimate is not None
        assert (found.low, found.high, found.status, found.reason) == (None, None, "boundary", "one_cluster")


def test_undefined_index_stays_undefined_with_clusters() -> None:
    never = refusal_index(refused=[False, False], wrong=[True, False], cluster=[1, 2])
    assert (never.estimate, never.status, never.reason) == (None, "undefined", "nobody_refused")
    nothing = SampledTable.from_arrays([], [], cluster=[])
    assert [found.reason for found in metrics(nothing)] == ["no_questions"] * len(METRIC_NAMES)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"weight": [1, -1, 1]}, ValueError, "must not be negative or infinite, got -1.0"),
        ({"weight": [1, math.inf, 1]}, ValueError, "must not be negative or infinite, got inf"),
        ({"weight": [0, 0, 0]}, ValueError, "above 0 for some question"),
        ({"weight": [1, math.nan, 1]}, ValueError, "missing values"),
        ({"weight": [1, None, 1]}, ValueError, "missing values"),
        ({"weight": np.ma.masked_equal([1, 2, 1], 2)}, ValueError, "missing values"),
        ({"weight": ["a", "b", "c"]}, TypeError, "weight must hold numbers"),
        ({"weight": [True, False, True]}, TypeError, "weight must hold numbers"),
        ({"weight": [1, 2]}, ValueError, "for each of the 3 questions, got 2"),
        ({"weight": [[1, 2, 3]]}, ValueError, "weight must be one-dimensional"),
        ({"cluster": [1, 2]}, ValueError, "for each of the 3 questions, got 2"),
        ({"cluster": ["a", None, "b"]}, ValueError, r"got none for question 1 \(from 0\)"),
        ({"cluster": [1.0, 2.0, math.nan]}, ValueError, "got none for question 2"),
        ({"cluster": np.ma.masked_equal([1, 2, 3], 1)}, ValueError, "got none for question 0"),
        ({"cluster": 3}, ValueError, "cluster must be one-dimensional"),
    ],
)
def test_bad_input_is_named(given, error, message: str) -> None:
    with pytest.raises(error, match=message):
        refusal_index(refused=[True, False, True], wrong=[True, False, False], **given)


def test_methods_without_cluster_support_are_rejected() -> None:
    refused, wrong, cluster, _ = sample()
    result = refusal_index(refused=refused, wrong=wrong, cluster=cluster)
    with pytest.raises(ValueError, match="'profile' or 'delta' with clusters or weights, got 'bootstrap'"):
        result.confidence_interval(method="bootstrap")


def test_table_with_clusters_is_rejected() -> None:
    with pytest.raises(TypeError, match="not both"):
        refusal_index(ContingencyTable(1, 2, 3, 4), cluster=[1, 2])


@pytest.mark.slow
@others_nightly("scenario", [simulation.SCENARIOS[4], simulation.SCENARIOS[9]], ids=str)
def test_coverage_of_one_run(scenario: simulation.Scenario) -> None:
    rows = list(simulation.of_one_run(scenario, 600, np.random.default_rng(1)))
    assert [f"{row.quantity}: {row.value}" for row in rows if not row.holds] == []


@pytest.mark.slow
def test_coverage_with_weights() -> None:
    assert all(row.holds for row in simulation.of_weights(600, np.random.default_rng(2)))


def test_extreme_weights_give_an_uninformative_interval() -> None:
    refused, wrong = np.arange(300) % 3 == 0, np.arange(300) % 2 == 0
    for heavy in (2, 3):
        weight = np.where(np.arange(300) < heavy, 200_000.0, 1.0)
        result = refusal_index(SampledTable.from_arrays(refused, wrong, weight=weight))
        assert result.status == "ok"
        assert result.confidence_interval() == pytest.approx((-1, 1), abs=0.001)
