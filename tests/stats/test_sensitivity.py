"""Bounds for missing grades, scoring rules, and the index within topics."""

import itertools
import math

import numpy as np
import pytest
from benchmarks.coverage import topics as simulation
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2, nchypergeom_fisher, norm
from tests.tiers import others_nightly, reduced_examples

from refusal_index import ContingencyTable, refusal_index, refusal_index_many
from refusal_index.stats import metrics, scoring_ranges, upper_orthant
from refusal_index.stats.sensitivity import (
    OutcomeCounts,
    missing_bounds,
    reading_bounds,
    scoring_rules,
    within_topic_refusal_index,
)

# --- Bounds for missing grades, and the estimate under every scoring rule

COUNTS = st.tuples(*[st.integers(1, 400)] * 4)


def completions(counts, unknown_refused: int, unscored: int, unknown_answered: int = 0) -> np.ndarray:
    """Every table that filling in the missing grades can give."""
    n11, n10, n01, n00 = counts
    tables = []
    for wrong, answered in itertools.product(range(unknown_refused + 1), range(unknown_answered + 1)):
        for a, b, c in itertools.product(range(unscored + 1), repeat=3):
            if a + b + c <= unscored:
                rest = unscored - a - b - c + unknown_answered - answered
                tables.append((n11 + wrong + a, n10 + unknown_refused - wrong + b, n01 + answered + c, n00 + rest))
    return np.array(tables)


@pytest.mark.parametrize(
    "missing", [(0, 0, 0), (2, 0, 0), (0, 3, 0), (1, 2, 0), (4, 1, 0), (0, 0, 2), (1, 1, 1), (2, 2, 3)]
)
def test_bounds_of_all_small_tables_against_brute_force(missing: tuple[int, int, int]) -> None:
    for counts in itertools.product(range(4), repeat=4):
        indices = refusal_index_many(*completions(counts, *missing).T)
        bounds = missing_bounds(ContingencyTable(*counts), *missing)
        if np.isnan(indices).all():
            assert (bounds.low, bounds.high, bounds.status) == (None, None, "undefined")
            assert bounds.reason == refusal_index(bounds.low_table).reason
            assert np.isnan(bounds.confidence_interval()).all()
        else:
            assert (bounds.low, bounds.high) == pytest.approx((np.nanmin(indices), np.nanmax(indices)), abs=1e-12)
            assert (bounds.status == "boundary") == (-1 in (bounds.low, bounds.high) or 1 in (bounds.low, bounds.high))


@given(COUNTS, st.integers(0, 12), st.integers(0, 6), st.integers(0, 4))
def test_bounds_against_brute_force(counts, unknown_refused: int, unscored: int, unknown_answered: int) -> None:
    indices = refusal_index_many(*completions(counts, unknown_refused, unscored, unknown_answered).T)
    bounds = missing_bounds(ContingencyTable(*counts), unknown_refused, unscored, unknown_answered)
    assert (bounds.low, bounds.high) == pytest.approx((indices.min(), indices.max()), abs=1e-12)
    assert refusal_index(bounds.low_table).estimate == bounds.low
    missing = unknown_refused + unscored + unknown_answered
    assert bounds.low_table.n == bounds.high_table.n == sum(counts) + missing


@given(COUNTS, *[st.integers(0, 40)] * 3, st.sampled_from(["refused", "either", "answered"]), st.integers(0, 3))
def test_bounds_shrink_as_answers_arrive(
    counts, refused: int, either: int, answered: int, came: str, cell: int
) -> None:
    before = missing_bounds(ContingencyTable(*counts), refused + 1, either + 1, answered + 1)
    cell = {"refused": cell % 2, "either": cell, "answered": 2 + cell % 2}[came]
    known = ContingencyTable(*np.add(counts, np.eye(4, dtype=int)[cell]))
    left = (refused + (came != "refused"), either + (came != "either"), answered + (came != "answered"))
    after = missing_bounds(known, *left)
    assert before.low - 1e-12 <= after.low <= after.high <= before.high + 1e-12


def test_bounds_with_many_missing_grades_against_brute_force() -> None:
    bounds = missing_bounds(ContingencyTable(700, 50, 200, 50), 300, 20_000, 100)
    for sign, found, cells in ((-1, bounds.low, (700, 350, 300, 50)), (1, bounds.high, (1000, 50, 200, 150))):
        moves = (0, 1, -1, 0) if sign < 0 else (1, 0, 0, -1)
        start = np.add(cells, (0, 0, 20_000, 0) if sign < 0 else (0, 0, 0, 20_000))
        every = start + np.arange(20_001)[:, None] * moves
        assert found == pytest.approx(sign * (sign * refusal_index_many(*every.T)).max(), abs=1e-12)


@pytest.mark.parametrize(("share", "low", "high"), [(0.02, 0.396, 0.497), (0.1, 0.137, 0.516)])
def test_bounds_against_facts(share: float, low: float, high: float) -> None:
    rho, r, mu = 2 * math.sin(math.pi / 6 * 0.492), 0.74, 0.92
    p11 = float(upper_orthant(norm.isf(r), norm.isf(mu), rho))
    cells = np.array([p11 * (1 - share), (r - p11) * (1 - share), mu - p11, 1 - r - mu + p11])
    table = ContingencyTable(*np.round(cells * 1e7).astype(int))
    bounds = missing_bounds(table, unknown_refused=round(share * r * 1e7))
    assert (bounds.low, bounds.high) == pytest.approx((low, high), abs=0.002)


@given(COUNTS, st.integers(0, 30), st.integers(0, 30))
def test_bounds_widen_with_missing_grades(counts, unknown_refused: int, unscored: int) -> None:
    table = ContingencyTable(*counts)
    less, more = missing_bounds(table, unknown_refused, unscored), missing_bounds(table, unknown_refused + 1, unscored)
    assert less.low <= refusal_index(table).estimate <= less.high or unknown_refused or unscored
    assert missing_bounds(table).low == missing_bounds(table).high == refusal_index(table).estimate
    # One more refused question, right in the lower completion and wrong in the upper one.
    assert more.low <= refusal_index_many(*np.add(less.low_table.counts, (0, 1, 0, 0))) + 1e-12
    assert more.high >= refusal_index_many(*np.add(less.high_table.counts, (1, 0, 0, 0))) - 1e-12


def test_bounds_interval_spans_both_completions() -> None:
    bounds = missing_bounds(ContingencyTable(710, 30, 210, 50), 15, 5)
    interval = bounds.confidence_interval(0.9)
    assert interval.low == refusal_index(bounds.low_table).confidence_interval(0.9).low < bounds.low
    assert interval.high == refusal_index(bounds.high_table).confidence_interval(0.9).high > bounds.high


@pytest.mark.parametrize(
    ("counts", "missing", "low", "high"),
    [
        (
            (0, 0, 5, 6),
            (0, 1, 0),
            -1,
            1,
        ),  # the missing grade is the only refusal, right or wrong, or there is no refusal
        ((5, 0, 6, 0), (3, 0, 0), -1, -1),  # if all are wrong, nothing is right
        ((0, 5, 0, 6), (3, 0, 0), 1, 1),
        ((5, 6, 0, 0), (0, 0, 1), -1, 1),
        ((4, 0, 0, 0), (0, 1, 0), 1, 1),  # defined only if the missing one is answered and right
    ],
)
def test_undefined_completions_are_left_out_of_bounds(counts, missing, low: float, high: float) -> None:
    bounds = missing_bounds(ContingencyTable(*counts), *missing)
    assert (bounds.low, bounds.high, bounds.status) == (low, high, "boundary")


@pytest.mark.parametrize(
    ("counts", "unknown_refused", "reason"),
    [((0, 0, 5, 6), 0, "nobody_refused"), ((5, 6, 0, 0), 2, "everybody_refused")],
)
def test_bounds_are_undefined_if_all_completions_are(counts, unknown_refused: int, reason: str) -> None:
    bounds = missing_bounds(ContingencyTable(*counts), unknown_refused)
    assert (bounds.status, bounds.reason, bounds.low, bounds.high) == ("undefined", reason, None, None)


def test_bound_at_boundary_has_boundary_status() -> None:
    bounds = missing_bounds(ContingencyTable(50, 0, 20, 30), unknown_refused=3)
    assert bounds.low < 1
    assert (bounds.high, bounds.status, bounds.reason) == (1, "boundary", "zero_cell:refused_right")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((1, 2, 3, 4),), TypeError, "table must be a ContingencyTable, got tuple"),
        ((ContingencyTable(1, 2, 3, 4), -1), ValueError, "unknown_refused must not be negative"),
        ((ContingencyTable(1, 2, 3, 4), 0, 0.5), ValueError, "unscored must be a whole number"),
        ((ContingencyTable(1, 2, 3, 4), 0, 0, -1), ValueError, "unknown_answered must not be negative"),
    ],
)
def test_invalid_arguments_are_errors(arguments, error, message: str) -> None:
    with pytest.raises(error, match=message):
        missing_bounds(*arguments)


def test_scoring_rules_against_their_tables() -> None:
    counts = OutcomeCounts(700, 30, 210, 50, refused_again=10, unscored_forced=4, unscored_first=5)
    tables = {rule: result.table.counts for rule, result in scoring_rules(counts).items()}
    assert tables["refused_again_wrong"] == (710, 30, 210, 50)
    assert tables["refused_again_right"] == (700, 40, 210, 50)
    assert tables["refused_again_dropped"] == (700, 30, 210, 50)
    for prefix, known, unknown in (("unscored", (710, 30, 210, 50), 4), ("all", (700, 30, 210, 50), 14)):
        every = completions(known, unknown, 5)
        indices = refusal_index_many(*every.T)
        assert tables[f"{prefix}_lowest"] == tuple(every[indices.argmin()])
        assert tables[f"{prefix}_highest"] == tuple(every[indices.argmax()])


@given(st.tuples(*[st.integers(0, 60)] * 8))
def test_scoring_rules_match_their_tables_and_lie_within_bounds(counts) -> None:
    results = scoring_rules(OutcomeCounts(*counts))
    assert all(result == refusal_index(result.table) for result in results.values())
    bounds = missing_bounds(ContingencyTable(*counts[:4]), counts[4] + counts[5], *counts[6:])
    if bounds.status != "undefined":
        assert (results["all_lowest"].estimate, results["all_highest"].estimate) == (bounds.low, bounds.high)
        inner = [results[f"unscored_{end}"].estimate for end in ("lowest", "highest")]
        if None not in inner:
            assert bounds.low - 1e-12 <= inner[0] <= inner[1] <= bounds.high + 1e-12


def test_invalid_count_is_an_error() -> None:
    with pytest.raises(TypeError, match="unscored_first must be one number"):
        OutcomeCounts(1, 2, 3, 4, unscored_first=None)


@pytest.mark.parametrize("missing", [(0, 0, 0, 3), (2, 0, 0, 2), (1, 1, 1, 1), (0, 2, 2, 1)])
def test_ranges_of_all_other_metrics_against_brute_force(missing: tuple[int, int, int, int]) -> None:
    known = (7, 3, 4, 6)
    either = [[(1, 0, 0, 0), (0, 1, 0, 0)], [(0, 0, 1, 0), (0, 0, 0, 1)]]
    kinds = (either[0], either[0], [*either[0], *either[1]], either[1])
    each = [kind for kind, count in zip(kinds, missing, strict=True) for _ in range(count)]
    tables = {tuple(np.sum([known, *chosen], axis=0).tolist()) for chosen in itertools.product(*each)}
    every = [metrics(ContingencyTable(*counts)) for counts in tables]
    for place, found in enumerate(scoring_ranges(OutcomeCounts(*known, *missing))):
        values = [one[place].estimate for one in every]
        if found.name != "refusal_index":
            assert (found.low, found.high) == pytest.approx((min(values), max(values))), found.name


def test_refusal_rate_unaffected_by_missing_grades_is_a_single_value() -> None:
    """Sixty questions, nine without a grade of their answer, all of which are known as refused or answered."""
    known = OutcomeCounts(13, 4, 17, 17, unscored_forced=4, unscored_answered=5)
    ranges = {found.name: found for found in scoring_ranges(known)}
    assert (ranges["refusal_rate"].low, ranges["refusal_rate"].high) == (0.35, 0.35)
    every = [
        refusal_index(ContingencyTable(13 + a, 4 + 4 - a, 17 + b, 17 + 5 - b)).estimate
        for a in range(5)
        for b in range(6)
    ]
    bounds = missing_bounds(ContingencyTable(13, 4, 17, 17), unknown_refused=4, unknown_answered=5)
    assert (bounds.low, bounds.high) == pytest.approx((min(every), max(every)), abs=1e-12)
    assert (ranges["refusal_index"].low, ranges["refusal_index"].high) == (bounds.low, bounds.high)


@pytest.mark.parametrize(
    ("counts", "metric", "reason"),
    [
        (OutcomeCounts(0, 0, 4, 6, refused_again=3), "refusal_index", "nobody_refused"),
        (OutcomeCounts(0, 0, 0, 0, refused_again=5, unscored_first=3), "correct_rate", "no_questions"),
        (OutcomeCounts(3, 2, 0, 0, unscored_first=3), "correct_given_attempted", "everybody_refused"),
    ],
)
def test_reason_comes_from_undefined_rule_not_boundary_rule(counts: OutcomeCounts, metric: str, reason: str) -> None:
    found = next(one for one in scoring_ranges(counts) if one.name == metric)
    assert (found.low, found.high, found.reason) == (None, None, reason)


# --- RI common to all topics

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
def test_single_large_topic_matches_plain_index(counts) -> None:
    result, plain = within_topics(counts), refusal_index(ContingencyTable(*counts))
    assert result.pooled == plain.estimate
    assert result.estimate == pytest.approx(plain.estimate, abs=0.003)
    # The likelihood takes the rates as known, which shortens the interval by a few per cent.
    interval, profile = result.confidence_interval(), plain.confidence_interval()
    assert interval.high - interval.low == pytest.approx(profile.high - profile.low, rel=0.06)


@reduced_examples(0.8)
@given(st.lists(st.tuples(*[st.integers(1, 20)] * 4), min_size=1, max_size=4), st.randoms())
def test_order_and_names_of_topics_do_not_matter(tables, random) -> None:
    shuffled = random.sample(tables, len(tables))
    result = within_topics(*tables)
    renamed = within_topics(*shuffled, names=[f"topic {i}" for i in range(len(tables))])
    assert renamed.estimate == pytest.approx(result.estimate, abs=1e-6)
    assert sorted(table.counts for table in renamed.tables.values()) == sorted(tables)


@reduced_examples(0.8)
@given(st.lists(st.tuples(*[st.integers(1, 20)] * 4), min_size=1, max_size=4))
def test_swapping_refused_and_answered_flips_sign(tables) -> None:
    result, turned = within_topics(*tables), within_topics(*[(c, d, a, b) for a, b, c, d in tables])
    assert turned.estimate == pytest.approx(-result.estimate, abs=1e-6)
    low, high = result.confidence_interval()
    assert turned.confidence_interval() == pytest.approx((-high, -low), abs=1e-6)


def test_uninformative_topics_are_ignored_and_counted() -> None:
    silent = [(0, 0, 4, 5), (4, 5, 0, 0), (4, 0, 5, 0), (0, 4, 0, 5), (1, 0, 0, 0)]
    result, alone = within_topics(*TOPICS, *silent), within_topics(*TOPICS)
    assert result.rho == alone.rho
    assert (result.n_uninformative, alone.n_uninformative) == (5, 0)
    assert result.pooled != alone.pooled


def test_topic_with_empty_cell_is_included() -> None:
    assert within_topics(*TOPICS[:2], (9, 0, 8, 9)).rho > within_topics(*TOPICS[:2]).rho


@pytest.mark.parametrize(("tables", "end"), [([(3, 0, 8, 9), (4, 5, 0, 6)], 1), ([(0, 3, 8, 9), (4, 5, 6, 0)], -1)])
def test_empty_cells_all_in_one_direction_give_boundary(tables, end: int) -> None:
    result = within_topics(*tables)
    assert (result.estimate, result.rho, result.status) == (end, end, "boundary")
    assert result.reason == "zero_cell_in_every_topic"
    low, high = result.confidence_interval()
    inner = low if end == 1 else high
    assert (high if end == 1 else low) == end
    # At the boundary the likelihood given the margins is 1.
    rho = 2 * math.sin(math.pi / 6 * inner)
    assert -2 * log_likelihood(rho, tables) == pytest.approx(chi2.ppf(0.95, 1), abs=1e-5)


def test_index_is_undefined_without_informative_topics() -> None:
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


def test_topics_may_be_object_array_of_strings() -> None:
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


# --- Bounds over how answers are read


def readings(counts, both: int, first: int, forced: int, neither: int) -> np.ndarray:
    """Every table that reading a part of these answers as refusals gives; their forced answers count then."""
    n11, n10, n01, n00 = counts
    parts = itertools.product(*(range(count + 1) for count in (both, first, forced, neither)))
    return np.array([(n11 + a + c, n10 + b + d, n01 - a - b, n00 - c - d) for a, b, c, d in parts])


@pytest.mark.parametrize(
    "unclear",
    [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (1, 1, 1, 1), (2, 1, 0, 1), (0, 2, 2, 0)],
)
def test_reading_bounds_of_all_small_tables_against_brute_force(unclear) -> None:
    both, first, forced, neither = unclear
    for counts in itertools.product(range(4), range(4), range(both + first, 4), range(forced + neither, 4)):
        indices = refusal_index_many(*readings(counts, *unclear).T)
        bounds = reading_bounds(ContingencyTable(*counts), *unclear)
        if np.isnan(indices).all():
            assert (bounds.low, bounds.high, bounds.status) == (None, None, "undefined")
        else:
            assert (bounds.low, bounds.high) == pytest.approx((np.nanmin(indices), np.nanmax(indices)), abs=1e-12)
            assert refusal_index(bounds.low_table).estimate == bounds.low
            assert refusal_index(bounds.high_table).estimate == bounds.high
            assert bounds.low_table.n == sum(counts)


@given(COUNTS, st.tuples(*[st.integers(0, 6)] * 4))
def test_reading_bounds_against_brute_force(counts, unclear) -> None:
    n11, n10, n01, n00 = counts
    both, first, forced, neither = unclear
    table = (n11, n10, n01 + both + first, n00 + forced + neither)
    indices = refusal_index_many(*readings(table, *unclear).T)
    bounds = reading_bounds(ContingencyTable(*table), *unclear)
    assert (bounds.low, bounds.high) == pytest.approx((indices.min(), indices.max()), abs=1e-12)


def test_reading_bounds_of_many_answers_contain_all_and_none_of_them_as_refusals() -> None:
    table = ContingencyTable(700, 60, 900, 900)
    bounds = reading_bounds(table, 300, 300, 300, 300)
    for moved in ((0, 0, 0, 0), (300, 300, 300, 300)):
        index = refusal_index_many(*readings_of(table, *moved))
        assert bounds.low <= index <= bounds.high
    none = reading_bounds(table)
    assert none.low == none.high == refusal_index(table).estimate


def readings_of(table: ContingencyTable, both: int, first: int, forced: int, neither: int) -> tuple[int, ...]:
    return (
        table.refused_wrong + both + forced,
        table.refused_right + first + neither,
        table.answered_wrong - both - first,
        table.answered_right - forced - neither,
    )


@pytest.mark.parametrize("unclear", [(2, 2, 0, 0), (0, 0, 3, 1), (0, 4, 0, 0)])
def test_reading_bounds_reject_more_answers_than_there_are(unclear) -> None:
    with pytest.raises(ValueError, match="expected at most 3 wrong and 3 right answers"):
        reading_bounds(ContingencyTable(5, 5, 3, 3), *unclear)


def test_reading_bounds_reject_other_arguments() -> None:
    with pytest.raises(TypeError, match="must be a ContingencyTable"):
        reading_bounds((5, 5, 3, 3))
    with pytest.raises(ValueError, match="wrong_both"):
        reading_bounds(ContingencyTable(5, 5, 3, 3), wrong_both=-1)
