"""Influence functions of every metric, and the covariances they give."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusal_index import ContingencyTable
from refusal_index.stats import METRIC_NAMES, influence_function, metrics, tetrachoric
from refusal_index.stats.baseline import Payoffs
from refusal_index.stats.comparison import Influence, influence_of, metric_influence, point_estimate

COUNTS = st.tuples(*[st.integers(0, 40)] * 4)
PENALTY = 0.2
WEIGHTS = (1.0, 0.3, 2.0)
WORTH = Payoffs(PENALTY, WEIGHTS)


def metric_of(name: str, cells) -> np.ndarray:
    """Compute the metric from four cells of any sum, from its definition."""
    refused_wrong, refused_right, answered_wrong, answered_right = np.asarray(cells, float) / np.sum(cells, axis=0)
    r, c = refused_wrong + refused_right, answered_right
    return {
        "correct_rate": lambda: c,
        "refusal_rate": lambda: r,
        "correct_given_attempted": lambda: c / (1 - r),
        "f_score": lambda: 2 / (1 / c + (1 - r) / c),
        "weighted_score": lambda: c - PENALTY * (1 - r),
        "hallucination_rate": lambda: (1 - c - r) / (1 - c),
        "omniscience_index": lambda: 100 * (c - (1 - c - r)),
        "truthfulness_score": lambda: WEIGHTS[0] * c + WEIGHTS[1] * r - WEIGHTS[2] * (1 - c - r),
        "error_rate": lambda: refused_wrong + answered_wrong,
        "refusal_precision": lambda: refused_wrong / r,
        "refusal_recall": lambda: refused_wrong / (refused_wrong + answered_wrong),
        "over_refusal": lambda: refused_right / (refused_right + answered_right),
        "refusal_index": lambda: 6 / math.pi * np.arcsin(tetrachoric(*cells) / 2),
    }[name]()


def outcomes(counts) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([[True, True, False, False]], counts, axis=1), np.repeat([[True, False] * 2], counts, axis=1)


@pytest.mark.parametrize("name", METRIC_NAMES)
@pytest.mark.parametrize("counts", [(710, 30, 210, 50), (10, 90, 90, 10), (30, 1, 2, 7)])
def test_influence_of_a_cell_is_the_derivative_towards_one_more_question(name: str, counts) -> None:
    by_cell = point_estimate(name, ContingencyTable(*counts), WORTH).by_cell
    proportions, step = np.array(counts) / sum(counts), 1e-6
    for cell in range(4):
        towards = step * (np.eye(4)[cell] - proportions)
        slope = (metric_of(name, proportions + towards) - metric_of(name, proportions - towards)) / (2 * step)
        assert by_cell[cell] == pytest.approx(float(slope), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", METRIC_NAMES)
def test_influence_has_mean_zero_over_scored_questions_and_none_elsewhere(name: str) -> None:
    rng = np.random.default_rng(2)
    refused, wrong, scored = rng.random((3, 4, 300)) < np.array([0.4, 0.7, 0.8])[:, None, None]
    influence = metric_influence(refused, wrong, scored, metric=name)
    assert influence.shape == (4, 300)
    assert (influence[~scored] == 0).all()
    np.testing.assert_allclose(influence.sum(axis=1), 0, atol=1e-9)


def test_influence_on_the_refusal_index_is_that_of_a_single_run() -> None:
    refused, wrong = np.random.default_rng(3).random((2, 3, 200)) < 0.6
    expected = [influence_function(*run) for run in zip(refused, wrong, strict=True)]
    np.testing.assert_allclose(metric_influence(refused, wrong), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["correct_rate", "refusal_rate", "error_rate"])
def test_standard_error_of_a_rate_against_theory(name: str) -> None:
    counts = (71, 3, 21, 5)
    rate = metric_of(name, counts)
    variance = (metric_influence(*outcomes(counts), metric=name) ** 2).sum() / 100**2
    assert variance == pytest.approx(rate * (1 - rate) / 100, rel=1e-12)


@pytest.mark.parametrize("name", METRIC_NAMES)
@pytest.mark.parametrize("overlap", [1.0, 0.4, 0.0])
def test_covariance_of_two_runs_against_resampled_questions(name: str, overlap: float) -> None:
    # Codes of a question in the two runs: independent with probability one half, else the same; 4 where unscored.
    rng, n, cells = np.random.default_rng(11), 3_000, np.array([0.35, 0.1, 0.3, 0.25])
    codes = rng.choice(4, size=(2, n), p=cells)
    codes[1] = np.where(rng.random(n) < 0.5, codes[0], codes[1])
    alone = rng.random(n) >= overlap
    codes[rng.integers(2, size=n)[alone], np.flatnonzero(alone)] = 4
    points = [
        point_estimate(name, ContingencyTable(*np.bincount(row, minlength=5)[:4].tolist()), WORTH) for row in codes
    ]
    scaled = Influence.of(influence_of(points, codes), codes < 4).rows

    joint = np.bincount(5 * codes[0] + codes[1], minlength=25)
    resampled = rng.multinomial(n, joint / n, size=20_000).reshape(-1, 5, 5)
    estimates = [metric_of(name, resampled.sum(axis=axis)[:, :4].T) for axis in (2, 1)]
    expected = np.cov(estimates)
    # The sampling error of a variance from 20,000 draws is one per cent.
    np.testing.assert_allclose(scaled @ scaled.T, expected, atol=0.04 * math.sqrt(expected[0, 0] * expected[1, 1]))


@settings(deadline=None)
@given(COUNTS, st.sampled_from([0.0, 0.2, 1.0, 3.0]))
def test_estimates_are_those_of_metrics_and_ok_says_that_there_is_a_standard_error(counts, penalty: float) -> None:
    table = ContingencyTable(*counts)
    for metric in metrics(table, penalty=penalty, truthfulness_weights=WEIGHTS):
        point = point_estimate(metric.name, table, Payoffs(penalty, WEIGHTS))
        rounding = 1e-13 if metric.name == "omniscience_index" else 1e-15
        assert point.estimate == (None if metric.estimate is None else pytest.approx(metric.estimate, abs=rounding))
        variance = np.dot(counts, np.square(point.by_cell))
        assert (point.status == "ok") == (variance > 0)
        if point.reason == "no_variation":
            assert (metric.status, variance) == ("ok", 0)
        else:
            assert (point.status, point.reason) == (metric.status, metric.reason)


@pytest.mark.parametrize(
    ("counts", "name", "is_nan"),
    [
        ((3, 0, 4, 5), "refusal_index", True),
        ((0, 0, 4, 5), "refusal_index", True),
        ((3, 2, 0, 0), "f_score", True),
        ((3, 2, 0, 0), "correct_given_attempted", True),
        ((3, 2, 0, 0), "weighted_score", False),
        ((3, 2, 0, 0), "refusal_rate", False),
        ((0, 0, 0, 5), "hallucination_rate", True),
        ((3, 2, 0, 5), "hallucination_rate", False),
    ],
)
def test_influence_is_nan_without_a_derivative_and_zero_without_variation(counts, name: str, is_nan: bool) -> None:
    influence = metric_influence(*outcomes(counts), metric=name)
    np.testing.assert_array_equal(influence, np.full((1, sum(counts)), np.nan if is_nan else 0.0))


def test_a_row_without_an_estimate_leaves_the_others_alone() -> None:
    refused, wrong = outcomes((5, 3, 2, 4))
    influence = metric_influence(np.vstack([refused, np.zeros_like(refused)]), np.vstack([wrong, wrong]))
    np.testing.assert_array_equal(influence[0], metric_influence(refused, wrong)[0])
    assert np.isnan(influence[1]).all()


def test_errors_list_the_metrics_and_name_the_penalty() -> None:
    with pytest.raises(ValueError, match=r"^metric must be one of correct_rate, .*refusal_index, got 'accuracy'"):
        metric_influence(*outcomes((1, 1, 1, 1)), metric="accuracy")
    with pytest.raises(ValueError, match=r"^penalty must be a number of at least 0, got -1"):
        metric_influence(*outcomes((1, 1, 1, 1)), metric="weighted_score", penalty=-1)
