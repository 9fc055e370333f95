"""Refusing as the detection of wrong answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from refusal_index import ContingencyTable
from refusal_index.plugins.studies.curves import abstention_metrics

ANY_COUNTS = st.tuples(*[st.integers(0, 40) | st.integers(0, 10**6)] * 4)


def named(counts, **arguments) -> dict:
    return {metric.name: metric for metric in abstention_metrics(ContingencyTable(*counts), **arguments)}


def test_the_metrics_against_counting_questions() -> None:
    rng = np.random.default_rng(6)
    refused, wrong = rng.random((2, 500)) < [[0.4], [0.7]]
    found = {
        metric.name: metric.estimate for metric in abstention_metrics(ContingencyTable.from_arrays(refused, wrong))
    }
    precision, recall = wrong[refused].mean(), refused[wrong].mean()
    expected = {
        "refusal_precision": precision,
        "refusal_recall": recall,
        "abstention_f1": 2 * precision * recall / (precision + recall),
        "over_refusal": refused[~wrong].mean(),
        "recoverable_accuracy": (~wrong)[refused].mean(),
    }
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "counts", "low", "high"),
    [
        # R: prop.test(successes, n, correct=FALSE)$conf.int with (710, 740), (710, 920), (30, 80), (0, 12), (7, 7)
        ("refusal_precision", (710, 30, 210, 50), 0.942716261717, 0.971457036822),
        ("refusal_recall", (710, 30, 210, 50), 0.743521103382, 0.797697300735),
        ("over_refusal", (710, 30, 210, 50), 0.276941787015, 0.484512745369),
        ("recoverable_accuracy", (12, 0, 1, 1), 0, 0.242494006655),
        ("refusal_recall", (7, 2, 0, 3), 0.645669564933, 1),
    ],
)
def test_intervals_against_r(name: str, counts, low: float, high: float) -> None:
    metric = named(counts)[name]
    assert (metric.low, metric.high) == pytest.approx((low, high), abs=1e-11)


@pytest.mark.parametrize("counts", [(30, 10, 20, 40), (3, 12, 40, 9)])
def test_interval_of_f1_against_the_score_test_that_makes_it(counts) -> None:
    # 2 n11 - f1 (2 n11 + n10 + n01) has mean zero under a true F1, and a variance that this F1 gives, among the m
    # questions that were refused or wrong.
    both, either = counts[0], counts[1] + counts[2]
    m = both + either

    def statistic(f1: float) -> float:
        share = f1 / (2 - f1)
        scores = np.array([2 - 2 * f1, -f1])
        spread = np.sqrt(m * (share * scores[0] ** 2 + (1 - share) * scores[1] ** 2))
        return float((both * scores[0] + either * scores[1]) / spread)

    metric = named(counts, confidence_level=0.9)["abstention_f1"]
    z = norm.ppf(0.95)
    low = brentq(lambda f1: statistic(f1) - z, 1e-6, metric.estimate)
    high = brentq(lambda f1: statistic(f1) + z, metric.estimate, 1 - 1e-6)
    assert (metric.low, metric.high) == pytest.approx((low, high), abs=1e-9)


@given(ANY_COUNTS)
def test_every_interval_holds_its_estimate_or_there_is_a_reason(counts) -> None:
    for metric in named(counts).values():
        if metric.status == "undefined":
            assert metric.reason
            assert metric.estimate is metric.low is metric.high is None
        else:
            assert 0 <= metric.low <= metric.estimate <= metric.high <= 1
            assert metric.low < metric.high


@pytest.mark.parametrize(
    ("counts", "reasons"),
    [
        ((0, 0, 0, 0), ["no_questions"] * 5),
        ((0, 0, 3, 4), ["nobody_refused", None, "nobody_refused", None, "nobody_refused"]),
        ((0, 3, 0, 4), [None, "all_right", "all_right", None, None]),
        ((3, 0, 4, 0), [None, None, None, "all_wrong", None]),
        ((0, 0, 0, 4), ["nobody_refused", "all_right", "nobody_refused", None, "nobody_refused"]),
    ],
)
def test_undefined_metrics_say_why(counts, reasons) -> None:
    assert [metric.reason for metric in named(counts).values()] == reasons


def test_coverage_of_f1() -> None:
    # The number of questions refused or wrong is random here, and the interval is made as if it were fixed.
    cells, n = np.array([0.25, 0.17, 0.35, 0.23]), 150
    truth = 2 * cells[0] / (2 * cells[0] + cells[1] + cells[2])
    tables = np.random.default_rng(8).multinomial(n, cells, size=2000).tolist()
    metrics = [named(counts)["abstention_f1"] for counts in tables]
    # The standard error of the share is .005.
    assert 0.935 < np.mean([metric.low <= truth <= metric.high for metric in metrics]) < 0.965
