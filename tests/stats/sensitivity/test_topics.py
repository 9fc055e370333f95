"""The index that topics share."""

import math

import numpy as np
import pytest
from benchmarks.coverage import topics as simulation
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2, nchypergeom_fisher, norm
from tests.tiers import dear_examples, others_nightly

from refusal_index import ContingencyTable, refusal_index
from refusal_index.stats import upper_orthant
from refusal_index.stats.sensitivity import within_topic_refusal_index

CELLS = (np.array([True, True, False, False]), np.array([True, False, True, False]))


def within_topics(*tables, names=None):
    """Estimate from one table of counts a topic."""
    refused, wrong = (np.concatenate([np.repeat(cell, counts) for counts in tables]) for cell in CELLS)
    names = range(len(tables)) if names is None else names
    return within_topic_refusal_index(refused, wrong, np.repeat(list(names), [sum(counts) for counts in tables]))


def odds_ratio(rho: float, counts) -> float:
    """Odds ratio of a Gaussian copula with this rho at the rates of a topic."""
    n11, n10, n01, n00 = counts
    n = n11 + n10 + n01 + n00
    r, mu = (n11 + n10 + 0.5) / (n + 1), (n11 + n01 + 0.5) / (n + 1)
    p11 = float(upper_orthant(norm.isf(r), norm.isf(mu), rho))
    return p11 * (1 - r - mu + p11) / ((r - p11) * (mu - p11))


def log_likelihood(rho: float, tables) -> float:
    """Log-likelihood from SciPy's noncentral hypergeometric distribution."""
    return sum(
        nchypergeom_fisher.logpmf(a, a + b + c + d, a + b, a + c, odds_ratio(rho, (a, b, c, d)))
        for a, b, c, d in tables
    )


TOPICS = [(12, 8, 9, 21), (30, 10, 5, 3), (3, 0, 8, 9), (0, 4, 6, 3)]


def test_estimate_and_interval_against_scipys_hypergeometric_distribution() -> None:
    result = within_topics(*TOPICS)
    best = minimize_scalar(lambda rho: -log_likelihood(rho, TOPICS), bounds=(-0.99, 0.99), options={"xatol": 1e-9})
    assert result.rho == pytest.approx(best.x, abs=1e-6)
    assert result.estimate == pytest.approx(6 / math.pi * math.asin(best.x / 2), abs=1e-6)
    drop = chi2.ppf(0.9, 1)
    ends = [
        brentq(lambda rho: -2 * (log_likelihood(rho, TOPICS) + best.fun) - drop, best.x, end) for end in (-0.8, 0.95)
    ]
    expected = [6 / math.pi * math.asin(end / 2) for end in ends]
    assert result.confidence_interval(0.9) == pytest.approx(tuple(expected), abs=1e-6)


def test_topics_of_the_same_rates_against_r() -> None:
    # R: mantelhaen.test(strata, exact = TRUE)$estimate, the common odds ratio, good to four digits; see r/topics.R
    tables = [(25, 5, 10, 10), (22, 8, 13, 7), (24, 6, 11, 9)]
    assert odds_ratio(within_topics(*tables).rho, tables[0]) == pytest.approx(2.79405771374, rel=2e-4)


@given(st.tuples(*[st.integers(200, 3000)] * 4))
def test_a_single_large_topic_is_the_plain_index(counts) -> None:
    result, plain = within_topics(counts), refusal_index(ContingencyTable(*counts))
    assert result.pooled == plain.estimate
    assert result.estimate == pytest.approx(plain.estimate, abs=0.003)
    # The likelihood takes the rates as known, which shortens the interval by a few per cent.
    interval, profile = result.confidence_interval(), plain.confidence_interval()
    assert interval.high - interval.low == pytest.approx(profile.high - profile.low, rel=0.06)


@dear_examples(0.8)
@given(st.lists(st.tuples(*[st.integers(1, 20)] * 4), min_size=1, max_size=4), st.randoms())
def test_neither_the_order_nor_the_names_of_topics_matter(tables, random) -> None:
    shuffled = random.sample(tables, len(tables))
    result = within_topics(*tables)
    renamed = within_topics(*shuffled, names=[f"topic {i}" for i in range(len(tables))])
    assert renamed.estimate == pytest.approx(result.estimate, abs=1e-6)
    assert sorted(table.counts for table in renamed.tables.values()) == sorted(tables)


@dear_examples(0.8)
@given(st.lists(st.tuples(*[st.integers(1, 20)] * 4), min_size=1, max_size=4))
def test_exchanging_refused_and_answered_turns_the_sign(tables) -> None:
    result, turned = within_topics(*tables), within_topics(*[(c, d, a, b) for a, b, c, d in tables])
    assert turned.estimate == pytest.approx(-result.estimate, abs=1e-6)
    low, high = result.confidence_interval()
    assert turned.confidence_interval() == pytest.approx((-high, -low), abs=1e-6)


def test_topics_that_say_nothing_change_nothing_and_are_counted() -> None:
    silent = [(0, 0, 4, 5), (4, 5, 0, 0), (4, 0, 5, 0), (0, 4, 0, 5), (1, 0, 0, 0)]
    result, alone = within_topics(*TOPICS, *silent), within_topics(*TOPICS)
    assert result.rho == alone.rho
    assert (result.n_uninformative, alone.n_uninformative) == (5, 0)
    assert result.pooled != alone.pooled


def test_a_topic_with_an_empty_cell_takes_part() -> None:
    assert within_topics(*TOPICS[:2], (9, 0, 8, 9)).rho > within_topics(*TOPICS[:2]).rho


@pytest.mark.parametrize(("tables", "end"), [([(3, 0, 8, 9), (4, 5, 0, 6)], 1), ([(0, 3, 8, 9), (4, 5, 6, 0)], -1)])
def test_empty_cells_that_all_pull_one_way_are_at_the_boundary(tables, end: int) -> None:
    result = within_topics(*tables)
    assert (result.estimate, result.rho, result.status) == (end, end, "boundary")
    assert result.reason == "zero_cell_in_every_topic"
    low, high = result.confidence_interval()
    inner = low if end == 1 else high
    assert (high if end == 1 else low) == end
    # At the boundary the likelihood given the margins is 1.
    rho = 2 * math.sin(math.pi / 6 * inner)
    assert -2 * log_likelihood(rho, tables) == pytest.approx(chi2.ppf(0.95, 1), abs=1e-5)


def test_no_topic_that_says_anything_is_undefined() -> None:
    result = within_topics((0, 0, 4, 5), (4, 5, 0, 0))
    assert (result.estimate, result.rho, result.status, result.reason) == (
        None,
        None,
        "undefined",
        "no_informative_topic",
    )
    assert result.pooled == refusal_index(ContingencyTable(4, 5, 4, 5)).estimate
    assert np.isnan(result.confidence_interval()).all()


@pytest.mark.slow
@others_nightly("scenario", simulation.SCENARIOS, ids=lambda s: f"{s.n_topics} of {s.n_questions}")
def test_simulated_bias_and_coverage_against_facts(scenario: simulation.Scenario) -> None:
    for row in simulation.scenario_rows(scenario, 100, np.random.default_rng(6)):
        assert row.holds, row


def test_topics_may_be_text_in_an_array_of_objects() -> None:
    arguments = [True, False, True, False, True], [True, False, False, False, True]
    names = np.array(["a", "b", "a", "b", "a"], dtype=object)
    assert set(within_topic_refusal_index(*arguments, names).tables) == {"a", "b"}


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (["a"], ValueError, r"one value for each of the 2 questions, got shape \(1,\)"),
        (["a", None], TypeError, "is a topic missing"),
        ([1.0, math.nan], TypeError, "must hold text or whole numbers, got an array of float64"),
    ],
)
def test_invalid_topics_are_errors(topic, error, message: str) -> None:
    with pytest.raises(error, match=message):
        within_topic_refusal_index([True, False], [True, False], topic)
