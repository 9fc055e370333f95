"""The metrics that the Refusal Index is compared with, and the utility of a table."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from tests.tiers import others_nightly

from refusal_index import ContingencyTable, refusal_index
from refusal_index.data.published import paper_rows
from refusal_index.stats import (
    METRIC_NAMES,
    correct_given_attempted,
    f_score,
    metrics,
    omniscience_index,
    weighted_score,
)
from refusal_index.stats.baseline import penalty_from_confidence, utility
from refusal_index.stats.intervals import ratio_score_interval, wilson_interval

# --- The metrics the Refusal Index is compared with, and their intervals

ANY_COUNTS = st.tuples(*[st.integers(0, 40) | st.integers(0, 10**6)] * 4)

COLUMNS = ("model", "correct_rate", "refusal_rate", "correct_given_attempted", "f_score", "weighted_score")
PRINTED = paper_rows().select(COLUMNS).rows()


def is_a_rounding_of(printed: float, metric, correct: float, refused: float) -> bool:
    """Whether some rates that round to the printed ones give a metric that rounds to the printed one."""
    half = 0.005 + 1e-9
    # All three metrics are monotone in both rates.
    corners = [float(metric(correct + dc, refused + dr)) for dc, dr in itertools.product((-half, half), repeat=2)]
    return min(corners) - half <= printed <= max(corners) + half


def misfits(column: int, metric) -> set[str]:
    return {row[0] for row in PRINTED if not is_a_rounding_of(row[column], metric, row[1], row[2])}


def test_correct_given_attempted_against_the_papers_table() -> None:
    # The printed .12 of this row would need a correct rate of .038, printed .03.
    assert misfits(3, correct_given_attempted) == {"Qwen3-32B"}


def test_f_score_against_the_papers_table() -> None:
    # Its printed rates give .456 to .471, not .45.
    assert misfits(4, f_score) == {"Qwen3-235B"}


def test_weighted_score_against_the_papers_table_needs_p_of_one() -> None:
    assert misfits(5, lambda c, r: weighted_score(c, r, p=1)) == set()
    # The p that the paper names fits none of the sixteen rows.
    assert len(misfits(5, lambda c, r: weighted_score(c, r, p=0.2))) == 16


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_f_score_against_theory_is_the_harmonic_mean(right: int, wrong: int, refused: int) -> None:
    n = right + wrong + refused
    if right == 0 or n == 0:
        return
    expected = 2 / (n / right + (right + wrong) / right)
    assert float(f_score(right / n, refused / n)) == pytest.approx(expected, rel=1e-12)


def test_only_weighted_score_is_defined_without_attempts() -> None:
    assert np.isnan(correct_given_attempted(0, 1))
    assert np.isnan(f_score(0, 1))
    assert weighted_score(0, 1, p=1) == 0


def test_p_is_deducted_for_right_and_wrong_answers_alike_by_definition() -> None:
    assert weighted_score(1, 0, p=2) == -1
    assert weighted_score(0, 0, p=2) == -2


def test_functions_of_rates_broadcast() -> None:
    assert correct_given_attempted([0.1, 0.2], [[0.5], [0.6], [0.7]]).shape == (3, 2)
    assert isinstance(f_score(0.1, 0.2), float)


@pytest.mark.parametrize("function", [correct_given_attempted, f_score])
@pytest.mark.parametrize(
    ("correct", "refused", "message"),
    [
        (5, 0.1, r"correct_rate must lie in \[0, 1\], got 5.0; is it a percentage"),
        (0.1, np.nan, r"refusal_rate must lie in \[0, 1\], got nan"),
        (0.9, 0.5, r"must not exceed 1 together, got 0.9 and 0.5; is the correct rate one over the attempted"),
    ],
)
def test_impossible_rates_are_errors(function, correct, refused, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(correct, refused)


@pytest.mark.parametrize("p", [-0.1, np.inf, np.nan])
def test_impossible_p_of_the_weighted_score_is_an_error(p: float) -> None:
    with pytest.raises(ValueError, match=r"^p must be a number of at least 0, got .*c - p\(1 - r\)"):
        weighted_score(0.1, 0.2, p)
    with pytest.raises(ValueError, match=r"^weighted_score_p must be a number of at least 0, got"):
        metrics(ContingencyTable(1, 1, 1, 1), weighted_score_p=p)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # R: prop.test(successes, n, correct=FALSE)$conf.int
        (50, 1000, 0.0381302623927, 0.0653138202443),
        (0, 30, 0, 0.113513393174),
        (30, 30, 0.886486606826, 1),
        (3, 12, 0.0889416683941, 0.532305334934),
    ],
)
def test_wilson_interval_against_r(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n, norm.ppf(0.975)) == pytest.approx((low, high), abs=1e-11)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 60))
def test_score_interval_of_proportion_matches_wilson(right: int, wrong: int, refused: int) -> None:
    n = right + wrong + refused
    estimate, low, high = ratio_score_interval((right, wrong, refused), (1, 0, 0), (1, 1, 1), 1.96)
    assert estimate == right / n
    assert (low, high) == pytest.approx(wilson_interval(right, n, 1.96), abs=1e-9)


def score_statistic_by_brute_force(counts, scores) -> float:
    """Pearson's chi-squared of the counts against the likeliest probabilities whose mean score is zero."""
    n = sum(counts)
    # Such probabilities lie between two mixtures, of the one category of its sign with either of the others.
    (lone,) = [i for i in range(3) if all(scores[i] * scores[j] < 0 for j in range(3) if j != i)]
    ends = []
    for other in {0, 1, 2} - {lone}:
        end = np.zeros(3)
        end[[lone, other]] = scores[other], -scores[lone]
        ends.append(end / end.sum())

    def mixture(share: float) -> np.ndarray:
        return ends[0] * share + ends[1] * (1 - share)

    def negative_log_likelihood(share: float) -> float:
        return -sum(x * np.log(p) for x, p in zip(counts, mixture(share), strict=True) if x)

    best = minimize_scalar(negative_log_likelihood, bounds=(1e-9, 1 - 1e-9), method="bounded", options={"xatol": 1e-12})
    expected = n * mixture(best.x)
    return float(np.sum((counts - expected) ** 2 / expected))


@pytest.mark.parametrize("counts", [(50, 210, 740), (5, 3, 40), (1, 30, 2), (0, 12, 8), (9, 0, 4)])
@pytest.mark.parametrize(
    ("numerator", "denominator"), [((2, 0, 0), (2, 2, 1)), ((0.8, -0.2, 0), (1, 1, 1)), ((0.5, -0.5, 0), (1, 1, 1))]
)
def test_score_interval_against_brute_force(counts, numerator, denominator) -> None:
    quantile = norm.ppf(0.975)
    estimate, *ends = ratio_score_interval(counts, numerator, denominator, quantile)
    for end in ends:
        scores = np.array(numerator) - end * np.array(denominator)
        if end in (estimate, *np.divide(numerator, denominator)) or not np.all(scores):
            continue
        assert score_statistic_by_brute_force(counts, scores) == pytest.approx(quantile**2, rel=1e-5)


def test_metrics_of_a_table() -> None:
    table = ContingencyTable(710, 30, 210, 50)
    found = {metric.name: metric for metric in metrics(table, weighted_score_p=0.2, confidence_level=0.9)}
    assert tuple(found) == METRIC_NAMES
    assert found["correct_given_attempted"].estimate == correct_given_attempted(0.05, 0.74)
    assert found["f_score"].estimate == pytest.approx(float(f_score(0.05, 0.74)), rel=1e-15)
    assert found["weighted_score"].estimate == pytest.approx(float(weighted_score(0.05, 0.74, 0.2)), rel=1e-12)
    assert found["hallucination_rate"].estimate == 210 / 950
    assert found["refusal_precision"].estimate == 710 / 740
    assert found["refusal_recall"].estimate == 710 / 920
    assert found["over_refusal"].estimate == 30 / 80
    assert found["omniscience_index"] == omniscience_index(table, confidence_level=0.9)
    assert found["omniscience_index"].estimate == pytest.approx(-16)
    result = refusal_index(table)
    assert found["refusal_index"].estimate == result.estimate
    assert (found["refusal_index"].low, found["refusal_index"].high) == result.confidence_interval(0.9)


def test_truthfulness_score_is_omniscience_over_100_unless_weighted() -> None:
    table = ContingencyTable(710, 30, 210, 50)
    usual = {metric.name: metric for metric in metrics(table)}
    for end in ("estimate", "low", "high"):
        expected = getattr(usual["omniscience_index"], end) / 100
        assert getattr(usual["truthfulness_score"], end) == pytest.approx(expected, abs=1e-12)
    other = {metric.name: metric for metric in metrics(table, truthfulness_weights=(2, 0.25, 3))}
    assert other["truthfulness_score"].estimate == pytest.approx(2 * 0.05 + 0.25 * 0.74 - 3 * 0.21)
    assert {name for name in usual if usual[name] != other[name]} == {"truthfulness_score"}


@pytest.mark.parametrize("weights", [(1, 0), (1, 0, -1), (1, 0, math.inf), (0, 0, 0), (1, 0, math.nan)])
def test_invalid_truthfulness_weights_are_rejected(weights) -> None:
    with pytest.raises(ValueError, match="truthfulness_weights must be three numbers"):
        metrics(ContingencyTable(1, 1, 1, 1), truthfulness_weights=weights)


@settings(deadline=None)
@given(ANY_COUNTS, st.sampled_from([0, 0.2, 1, 3]))
def test_every_interval_contains_its_estimate(counts, p: float) -> None:
    for metric in metrics(ContingencyTable(*counts), weighted_score_p=p):
        if metric.status == "undefined":
            assert metric.reason
            assert metric.estimate is metric.low is metric.high is None
        else:
            assert metric.low <= metric.estimate <= metric.high
            assert metric.low < metric.high


def test_undefined_metrics_say_why() -> None:
    nothing = metrics(ContingencyTable(0, 0, 0, 0))
    assert {metric.reason for metric in nothing} == {"no_questions"}
    refused = {metric.name: metric for metric in metrics(ContingencyTable(5, 2, 0, 0))}
    undefined = {name for name, metric in refused.items() if metric.status == "undefined"}
    assert undefined == {"correct_given_attempted", "f_score", "refusal_index"}
    assert {refused[name].reason for name in undefined} == {"everybody_refused"}
    right = {metric.name: metric for metric in metrics(ContingencyTable(0, 0, 0, 5))}
    assert (right["hallucination_rate"].status, right["hallucination_rate"].reason) == ("undefined", "all_right")
    assert refused["weighted_score"].estimate == 0


@pytest.mark.parametrize(
    ("name", "counts", "reason"),
    [
        ("refusal_precision", (0, 0, 3, 4), "nobody_refused"),
        ("refusal_recall", (0, 3, 0, 4), "all_right"),
        ("over_refusal", (3, 0, 4, 0), "all_wrong"),
        ("over_refusal", (0, 0, 0, 0), "no_questions"),
    ],
)
def test_refusal_rates_are_undefined_for_empty_denominators(name, counts, reason) -> None:
    found = next(metric for metric in metrics(ContingencyTable(*counts)) if metric.name == name)
    assert (found.estimate, found.low, found.high) == (None, None, None)
    assert (found.status, found.reason) == ("undefined", reason)


def test_boundary_refusal_index_is_passed_through() -> None:
    metric = metrics(ContingencyTable(5, 0, 6, 7))[-1]
    assert (metric.estimate, metric.high, metric.status) == (1, 1, "boundary")
    assert metric.reason == "zero_cell:refused_right"


@others_nightly(("n", "correct", "refused"), [(200, 0.05, 0.74), (1000, 0.34, 0.06), (200, 0.02, 0.93)])
def test_coverage_of_nominal_95_per_cent(n: int, correct: float, refused: float) -> None:
    truth = {
        "correct_given_attempted": correct / (1 - refused),
        "f_score": 2 * correct / (2 - refused),
        "weighted_score": correct - 0.2 * (1 - refused),
        "hallucination_rate": (1 - correct - refused) / (1 - correct),
        "omniscience_index": 100 * (2 * correct + refused - 1),
    }
    cells = [0.9 * refused, 0.1 * refused, 1 - correct - refused, correct]
    tables = np.random.default_rng(17).multinomial(n, cells, size=600)
    hits = dict.fromkeys(truth, 0)
    for counts in tables.tolist():
        for metric in metrics(ContingencyTable(*counts), weighted_score_p=0.2):
            if metric.name in truth:
                hits[metric.name] += metric.low <= truth[metric.name] <= metric.high
    # The standard error of a share of 600 is .009; few right answers make the coverage jump about .95.
    for name, hit in hits.items():
        assert 0.92 < hit / 600 < 0.985, name


# --- Utility of a table at a stated price of a wrong answer

COUNTS = st.tuples(*[st.integers(0, 40) | st.integers(0, 10**6)] * 4).filter(any)


@given(COUNTS, st.sampled_from([0, 0.5, 1, 3, 9]))
def test_utility_against_its_definition(counts, penalty: float) -> None:
    table = ContingencyTable(*counts)
    value = utility(table, penalty)
    expected = (table.answered_right - penalty * table.answered_wrong) / table.n
    assert value.estimate == pytest.approx(expected, abs=1e-12)
    assert -penalty <= value.low <= value.estimate <= value.high <= 1


@given(COUNTS, st.floats(0.05, 0.9))
def test_weighted_score_is_a_rescaled_utility_property(counts, weight: float) -> None:
    table = ContingencyTable(*counts)
    value = utility(table, float(penalty_from_confidence(weight)))
    (weighted,) = [metric for metric in metrics(table, weighted_score_p=weight) if metric.name == "weighted_score"]
    scaled = [(1 - weight) * end for end in (value.estimate, value.low, value.high)]
    assert scaled == pytest.approx([weighted.estimate, weighted.low, weighted.high], abs=1e-8)


@given(COUNTS)
def test_omniscience_index_is_100_times_utility_at_penalty_1_property(counts) -> None:
    table = ContingencyTable(*counts)
    index, value = omniscience_index(table, confidence_level=0.9), utility(table, 1, confidence_level=0.9)
    assert (index.estimate, index.low, index.high) == pytest.approx(
        (100 * value.estimate, 100 * value.low, 100 * value.high), abs=1e-5
    )
    assert index.name == "omniscience_index"


@pytest.mark.parametrize("penalty", [1, 3, 9])
def test_answer_at_the_target_confidence_has_zero_utility(penalty: float) -> None:
    # Ten answers of the confidence t at which this penalty makes answering and refusing the same.
    confidence = penalty / (1 + penalty)
    assert penalty_from_confidence(confidence) == pytest.approx(penalty, rel=1e-12)
    right = round(1000 * confidence)
    value = utility(ContingencyTable(0, 0, 1000 - right, right), penalty)
    assert value.estimate == pytest.approx(0, abs=1e-12)


def test_utility_is_zero_if_all_is_refused_and_undefined_without_questions() -> None:
    assert utility(ContingencyTable(5, 4, 0, 0), 3).estimate == 0
    assert omniscience_index(ContingencyTable(5, 4, 0, 0)).estimate == 0
    for value in (utility(ContingencyTable(0, 0, 0, 0), 3), omniscience_index(ContingencyTable(0, 0, 0, 0))):
        assert (value.status, value.reason) == ("undefined", "no_questions")
        assert value.estimate is value.low is value.high is None


@pytest.mark.parametrize("penalty", [-0.1, np.inf, np.nan])
def test_impossible_penalties_of_utility_are_errors(penalty: float) -> None:
    with pytest.raises(ValueError, match=r"penalty must be a number of at least 0, got .*; is it a confidence of 1"):
        utility(ContingencyTable(1, 1, 1, 1), penalty)


@pytest.mark.parametrize("confidence", [1.0, -0.1, [0.5, 75], np.nan])
def test_impossible_confidences_are_errors(confidence) -> None:
    with pytest.raises(ValueError, match=r"confidence must lie in \[0, 1\), got .*; is it a percentage"):
        penalty_from_confidence(confidence)


@others_nightly(("penalty", "n"), [(3, 200), (1, 200), (9, 1000)])
def test_coverage(penalty: float, n: int) -> None:
    cells = np.array([0.3, 0.1, 0.1, 0.5])
    truth = cells[3] - penalty * cells[2]
    tables = np.random.default_rng(4).multinomial(n, cells, size=1000).tolist()
    intervals = [utility(ContingencyTable(*counts), penalty) for counts in tables]
    # The standard error of the share is .007.
    assert 0.93 < np.mean([value.low <= truth <= value.high for value in intervals]) < 0.97
