"""Two runs compared within topics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.coverage import topics as simulation

from refusal_index.stats import compare_metrics, compare_within_topics

SCENARIO = simulation.Scenario(20, 50, 0.5, 0.6)


def alike(seed: int = 0):
    return simulation.simulate_difference(SCENARIO, np.random.default_rng(seed))


def drawn(n: int = 2000, topics: int = 20, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    topic = np.arange(n) % topics
    difficulty = (topic / topics - 0.5) * (topics > 1) + rng.standard_normal(n)
    refused = np.array([[0.7], [0.3]]) * difficulty + rng.standard_normal((2, n)) > 0
    return refused, np.tile(difficulty > -0.2, (2, 1)), topic


def test_standard_error_against_the_likelihood_ratio_interval() -> None:
    # Two runs over different questions of the same topics: their variances add up.
    refused, wrong, topic = drawn()
    scored = np.stack([np.arange(2000) < 1000, np.arange(2000) >= 1000])
    found = compare_within_topics(refused, wrong, topic, scored)
    widths = [
        (high - low) / 2 / 1.959964 for low, high in (x.confidence_interval() for x in (found.first, found.second))
    ]
    assert found.standard_error == pytest.approx(math.hypot(*widths), rel=0.04)


def test_one_topic_is_the_comparison_of_whole_runs() -> None:
    refused, wrong, topic = drawn(topics=1)
    within = compare_within_topics(refused, wrong, topic)
    whole = compare_metrics(refused, wrong)["refusal_index"]
    assert within.estimate == pytest.approx(whole.estimate, abs=0.002)
    assert within.standard_error == pytest.approx(whole.standard_error, rel=0.01)
    assert within.confidence_interval() == pytest.approx(whole.confidence_interval(), abs=0.003)


def test_topics_without_refusals_say_nothing() -> None:
    refused, wrong, topic = drawn()
    refused = refused & (topic >= 5)
    found = compare_within_topics(refused, wrong, topic)
    kept = topic >= 5
    without = compare_within_topics(refused[:, kept], wrong[:, kept], topic[kept])
    assert (found.first.n_uninformative, found.status) == (5, "ok")
    assert (found.estimate, found.standard_error) == pytest.approx((without.estimate, without.standard_error), rel=1e-9)
    never = compare_within_topics(np.zeros_like(refused), wrong, topic)
    assert (never.estimate, never.status) == (None, "undefined")
    assert never.reason == "first:no_informative_topic;second:no_informative_topic"
    assert np.isnan(never.confidence_interval()).all()


def test_the_same_run_twice_has_no_standard_error() -> None:
    refused, wrong, topic = drawn()
    same = compare_within_topics(refused[[0, 0]], wrong, topic)
    assert (same.estimate, same.standard_error, same.status) == (0.0, None, "boundary")
    assert same.reason == "constant_difference"


def test_exchanging_the_runs_changes_the_sign() -> None:
    refused, wrong, topic = drawn()
    one, other = compare_within_topics(refused, wrong, topic), compare_within_topics(refused[::-1], wrong, topic)
    assert one.estimate == pytest.approx(-other.estimate, rel=1e-9)
    assert (one.standard_error, one.pvalue) == pytest.approx((other.standard_error, other.pvalue), rel=1e-9)


def test_bad_input_is_named() -> None:
    refused, wrong, topic = drawn()
    with pytest.raises(ValueError, match="exactly two rows, the runs to compare, got 1"):
        compare_within_topics(refused[:1], wrong[:1], topic)
    with pytest.raises(ValueError, match="topic must have one value for each of the 2000 questions"):
        compare_within_topics(refused, wrong, topic[:5])


@pytest.mark.slow
def test_coverage() -> None:
    (row,) = simulation.difference_rows(SCENARIO, 400, np.random.default_rng(1))
    assert row.holds
