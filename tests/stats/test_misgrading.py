"""Correction for errors of the grader, metrics from a few labels, and how many labels to plan."""

import itertools
import math

import numpy as np
import pytest
from benchmarks.coverage import misgrading as simulation
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from tests.tiers import others_nightly, reduced_examples

from refusal_index import ContingencyTable, refusal_index
from refusal_index.stats import (
    METRIC_NAMES,
    GraderLabels,
    compare_metrics,
    labels_for_half_width,
    metrics,
    misgrading_from_labels,
    prediction_powered,
    upper_orthant,
)
from refusal_index.stats.misgrading import correct_guessing, correct_misgrading, equal_numbers, misgrading_range

# --- The index corrected for errors of the grader

PERCENT = st.integers(0, 45)
HUNDREDS = st.tuples(*[st.integers(1, 50)] * 4)


def graded(cells, f_c, f_w) -> ContingencyTable:
    """Expected table under a grader with these rates; cells and rates are chosen so that it is integral."""
    groups = [
        (wrong * (1 - w) + right * c, wrong * w + right * (1 - c))
        for (wrong, right), c, w in zip((cells[:2], cells[2:]), f_c, f_w, strict=True)
    ]
    return ContingencyTable(*np.round(np.array(groups).ravel(), 6))


@given(HUNDREDS, *[st.tuples(PERCENT, PERCENT)] * 2)
def test_exact_shares_are_corrected_exactly(hundreds, f_c, f_w) -> None:
    cells = np.array(hundreds) * 100
    rates = tuple(tuple(x / 100 for x in rate) for rate in (f_c, f_w))
    result = correct_misgrading(graded(cells, *rates), *rates)
    assert result.cells == pytest.approx(tuple(cells), rel=1e-9)
    assert result.estimate == pytest.approx(refusal_index(ContingencyTable(*cells)).estimate, abs=1e-8)
    assert result.status == "ok"


def test_single_rate_correction_against_formulas() -> None:
    table, f_c, f_w = ContingencyTable(706, 34, 207, 53), 0.01, 0.02
    n11, _, n01, _ = correct_misgrading(table, f_c, f_w).cells
    assert n11 / 1000 == pytest.approx((0.706 - f_c * 0.74) / (1 - f_c - f_w), abs=1e-12)
    assert (n11 + n01) / 1000 == pytest.approx((0.913 - f_c) / (1 - f_c - f_w), abs=1e-12)


@pytest.mark.parametrize(("rate", "seen"), [(0.01, 0.454), (0.03, 0.393)])
def test_effect_of_grader_errors_against_facts(rate: float, seen: float) -> None:
    rho, r, mu = 2 * math.sin(math.pi / 6 * 0.492), 0.74, 0.92
    p11 = float(upper_orthant(norm.isf(r), norm.isf(mu), rho))
    cells = np.round(np.array([p11, r - p11, mu - p11, 1 - r - mu + p11]) * 1e6) * 100
    table = graded(cells, (rate, rate), (rate, rate))
    assert refusal_index(table).estimate == pytest.approx(seen, abs=1e-3)
    assert correct_misgrading(table, rate, rate).estimate == pytest.approx(0.492, abs=1e-5)


@given(HUNDREDS)
def test_perfect_grader_needs_no_correction(counts) -> None:
    result, plain = correct_misgrading(ContingencyTable(*counts), 0, 0), refusal_index(ContingencyTable(*counts))
    assert result.estimate == pytest.approx(plain.estimate, abs=1e-12)
    assert result.cells == counts


@pytest.mark.parametrize(
    ("counts", "rates", "reason"),
    [
        ((706, 4, 207, 53), (0.01, 0.01), "negative_cell:refused_right"),
        ((2, 300, 1, 400), (0.05, 0.0), "negative_cell:refused_wrong+answered_wrong"),
        ((0, 0, 20, 80), (0.1, 0.1), "nobody_refused"),
        ((20, 80, 0, 0), (0.1, 0.1), "everybody_refused"),
        ((0, 0, 0, 0), (0.1, 0.1), "no_questions"),
        ((90, 10, 180, 20), (0.0, 0.1), "all_wrong"),
        ((10, 90, 20, 180), (0.1, 0.0), "all_right"),
    ],
)
def test_impossible_rates_and_empty_margins_are_undefined(counts, rates, reason: str) -> None:
    result = correct_misgrading(ContingencyTable(*counts), *rates)
    assert (result.status, result.reason, result.estimate, result.rho) == ("undefined", reason, None, None)
    assert np.isnan(result.confidence_interval()).all()


def test_a_corrected_cell_of_zero_is_at_the_boundary() -> None:
    result = correct_misgrading(ContingencyTable(90, 10, 50, 150), 0.0, 0.1)
    assert (result.estimate, result.rho, result.status) == (1, 1, "boundary")
    assert result.reason == "zero_cell:refused_right"
    interval = result.confidence_interval(rng=2)
    assert interval.low < 1
    assert interval.high == 1


def test_guessing_correction_recovers_known_counts() -> None:
    # Of 1,200 questions not known, a quarter is guessed; 800 are known.
    known = np.array([400, 100, 800, 700])
    table = ContingencyTable(300, 200, 600, 900)
    assert correct_guessing(table, 4).cells == pytest.approx(tuple(known), abs=1e-9)
    assert correct_guessing(table, 4) == correct_misgrading(table, 0, 0.25)


@given(st.tuples(*[st.integers(20, 400)] * 4), *[st.tuples(st.floats(0, 0.08), st.floats(0, 0.08))] * 2)
def test_range_against_brute_force(counts, f_c, f_w) -> None:
    table, (f_c, f_w) = ContingencyTable(*counts), (sorted(f_c), sorted(f_w))
    bounds = misgrading_range(table, tuple(f_c), tuple(f_w), same_rates=True)
    grid = itertools.product(np.linspace(*f_c, 7), np.linspace(*f_w, 7))
    results = [correct_misgrading(table, c, w) for c, w in grid]
    if bounds.status == "undefined":
        assert results[-1].status == "undefined"
        assert bounds.reason == results[-1].reason or results[0].status == "undefined"
    else:
        estimates = [result.estimate for result in results]
        assert (bounds.low, bounds.high) == pytest.approx((min(estimates), max(estimates)), abs=1e-9)


def test_range_that_reaches_an_impossible_rate_has_no_bound() -> None:
    bounds = misgrading_range(ContingencyTable(706, 34, 207, 53), (0, 0.01), (0, 0.06), same_rates=True)
    assert (bounds.low, bounds.high, bounds.status) == (None, None, "undefined")
    assert bounds.reason == "negative_cell:refused_right"
    assert bounds.ends[0].status == "ok"


@pytest.mark.parametrize(
    ("counts", "same_rates", "low", "high"),
    [
        ((710, 30, 210, 50), True, 0.482, 0.677),
        ((710, 30, 210, 50), False, 0.428, 0.714),
    ],
)
def test_differing_rates_widen_range_against_facts(counts, same_rates: bool, low: float, high: float) -> None:
    bounds = misgrading_range(ContingencyTable(*counts), (0, 0.03), (0, 0.03), same_rates=same_rates)
    assert (bounds.low, bounds.high) == pytest.approx((low, high), abs=5e-4)


@reduced_examples(0.6)
@given(st.tuples(*[st.integers(0, 400)] * 4), *[st.tuples(st.floats(0, 0.2), st.floats(0, 0.2))] * 2)
def test_range_of_differing_rates_against_brute_force(counts, f_c, f_w) -> None:
    table, (f_c, f_w) = ContingencyTable(*counts), (sorted(f_c), sorted(f_w))
    bounds = misgrading_range(table, tuple(f_c), tuple(f_w))
    rates = itertools.product(np.linspace(*f_c, 3), np.linspace(*f_c, 3), np.linspace(*f_w, 3), np.linspace(*f_w, 3))
    results = [correct_misgrading(table, (c1, c0), (w1, w0)) for c1, c0, w1, w0 in rates]
    found = [result.estimate for result in results if result.estimate is not None]
    if bounds.status == "undefined":
        assert not found or "negative" not in bounds.reason
    elif found:
        assert bounds.low <= min(found) + 1e-9
        assert bounds.high >= max(found) - 1e-9
        if all(result.status == "ok" for result in results):
            assert (bounds.low, bounds.high) == pytest.approx((min(found), max(found)), abs=1e-9)


def test_range_of_differing_rates_ends_at_zero_cell() -> None:
    bounds = misgrading_range(ContingencyTable(706, 34, 207, 53), (0, 0.01), (0, 0.06))
    assert (bounds.high, bounds.status, bounds.reason) == (1, "boundary", "zero_cell:refused_right")
    assert bounds.low < refusal_index(ContingencyTable(706, 34, 207, 53)).estimate
    assert bounds.ends[1].cells[:2] == pytest.approx((740, 0))


def test_range_without_possible_rates_is_undefined() -> None:
    bounds = misgrading_range(ContingencyTable(2, 300, 1, 400), (0.05, 0.1), (0.0, 0.1))
    assert (bounds.low, bounds.high, bounds.status) == (None, None, "undefined")
    assert bounds.reason == "negative_cell:refused_wrong+answered_wrong"


def test_range_reason_comes_from_undefined_corner() -> None:
    bounds = misgrading_range(ContingencyTable(706, 34, 207, 0), (0, 0.01), (0, 0.06), same_rates=True)
    assert bounds.ends[0].reason == "zero_cell:answered_right"
    assert (bounds.status, bounds.reason) == ("undefined", bounds.ends[1].reason)
    assert bounds.reason == "negative_cell:refused_right+answered_right"


@given(st.lists(st.integers(1, 60), min_size=8, max_size=8))
def test_labelling_every_answer_recovers_the_labels(cells) -> None:
    by_group = np.array(cells).reshape(2, 2, 2)  # refused or answered, graded wrong or right, is wrong or right
    table = ContingencyTable(*by_group.sum(axis=2).ravel().tolist())
    refused, answered = (GraderLabels(*group.ravel().tolist()) for group in by_group)
    result = misgrading_from_labels(table, refused=refused, answered=answered)
    truth = by_group.sum(axis=1).ravel()
    assert result.cells == pytest.approx(tuple(truth), rel=1e-8)
    assert result.estimate == pytest.approx(refusal_index(ContingencyTable(*truth.tolist())).estimate, abs=1e-8)


@given(st.tuples(*[st.integers(1, 60)] * 4), st.integers(2, 9))
def test_label_counts_per_grade_do_not_affect_rates(labels, factor: int) -> None:
    table = ContingencyTable(220, 60, 180, 540)
    a, b, c, d = labels
    result = misgrading_from_labels(table, GraderLabels(a, b, c, d))
    more = misgrading_from_labels(table, GraderLabels(factor * a, factor * b, c, d))
    np.testing.assert_allclose(more.rates, result.rates, rtol=1e-12)
    # Bayes' rule, with shares of the grades in the whole table.
    wrong, right = 0.4, 0.6
    f_c = wrong * b / (a + b) / (wrong * b / (a + b) + right * d / (c + d))
    assert result.rates.graded_wrong_if_right == pytest.approx((f_c, f_c), rel=1e-12)


BOTH, WRONG, RIGHT = GraderLabels(80, 2, 3, 90), GraderLabels(90, 3, 0, 0), GraderLabels(0, 0, 3, 90)


@pytest.mark.parametrize(
    ("labels", "lacking"),
    [
        ({"labels": RIGHT}, "graded_wrong"),
        ({"labels": WRONG}, "graded_right"),
        ({"refused": WRONG, "answered": BOTH}, "refused_graded_right"),
        ({"refused": WRONG, "answered": RIGHT}, "refused_graded_right+answered_graded_wrong"),
    ],
)
def test_unlabelled_grade_is_undefined_and_named(labels, lacking: str) -> None:
    result = misgrading_from_labels(ContingencyTable(220, 60, 180, 540), **labels)
    assert (result.status, result.reason, result.rates, result.cells) == (
        "undefined",
        f"no_labels:{lacking}",
        None,
        None,
    )
    assert np.isnan(result.confidence_interval()).all()


def test_absent_answers_need_no_labels() -> None:
    table = ContingencyTable(200, 0, 180, 540)
    result = misgrading_from_labels(table, refused=GraderLabels(90, 10, 0, 0), answered=BOTH)
    wrong = 180 * 80 / 82 + 540 * 3 / 93
    assert result.cells == pytest.approx((180, 20, wrong, 720 - wrong), rel=1e-12)
    low, high = result.confidence_interval(rng=1)
    assert low < result.estimate < high


def test_interval_without_grader_errors_matches_plain_index() -> None:
    table = ContingencyTable(710, 30, 210, 50)
    plain = refusal_index(table).confidence_interval(method="jeffreys", n_resamples=40_000, rng=1)
    assert correct_misgrading(table, 0, 0).confidence_interval(n_resamples=40_000, rng=2) == pytest.approx(
        plain, abs=0.006
    )


def test_fewer_labels_give_a_wider_interval() -> None:
    table = ContingencyTable(220, 60, 180, 540)
    slices = [GraderLabels(195 * k, 5 * k, 4 * k, 96 * k) for k in (1, 100)]
    few, many = (misgrading_from_labels(table, labels).confidence_interval(rng=1) for labels in slices)
    rates = misgrading_from_labels(table, slices[0]).rates
    known = correct_misgrading(table, rates[0], rates[1]).confidence_interval(rng=1)
    assert few.high - few.low > 1.05 * (known.high - known.low)
    assert many == pytest.approx(known, abs=0.02)


@others_nightly("design", simulation.DESIGNS)
def test_simulated_bias_and_coverage(design: str) -> None:
    for row in simulation.design_rows(design, simulation.SCENARIOS[0], 200, np.random.default_rng(3)):
        assert row.holds, row


TABLE, LABELS = ContingencyTable(220, 60, 180, 540), GraderLabels(90, 5, 4, 80)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: correct_misgrading((1, 2, 3, 4), 0, 0), TypeError, "table must be a ContingencyTable"),
        (lambda: correct_misgrading(TABLE, 1.0, 0), ValueError, "graded_wrong_if_right must be one or two numbers"),
        (lambda: correct_misgrading(TABLE, 0, (0.1, 0.2, 0.3)), ValueError, "graded_right_if_wrong must be one or two"),
        (lambda: correct_misgrading(TABLE, 0.5, 0.5), ValueError, "must sum to less than 1, got 0.5 and 0.5"),
        (
            lambda: correct_misgrading(TABLE, (0.1, 0.9), (0.1, 0.5)),
            ValueError,
            "graded_wrong_if_right and graded_right",
        ),
        (lambda: correct_misgrading(TABLE, "0.1", 0), TypeError, "graded_wrong_if_right must be one or two numbers"),
        (lambda: correct_misgrading(TABLE, 0, (0.1, None)), TypeError, "graded_right_if_wrong must be one or two"),
        (lambda: misgrading_range(TABLE, (0.2, 0.1), (0, 0)), ValueError, "are they swapped"),
        (lambda: misgrading_range(TABLE, 0.2, (0, 0)), ValueError, "the smallest rate and the largest, got 0.2"),
        (lambda: misgrading_range(TABLE, (0, 0.6), (0, 0.4)), ValueError, "must sum to less than 1, got 0.6 and 0.4"),
        (lambda: misgrading_range(TABLE, (0, 0.1), ("0", "0.1")), TypeError, "graded_right_if_wrong must be one or"),
        (lambda: correct_guessing(TABLE, 0.25), ValueError, "n_choices must be a whole number"),
        (lambda: misgrading_from_labels(TABLE), TypeError, "one slice of labels, or both"),
        (lambda: misgrading_from_labels(TABLE, refused=LABELS), TypeError, "one slice of labels, or both"),
        (lambda: misgrading_from_labels(TABLE, LABELS, answered=LABELS), TypeError, "one slice of labels, or both"),
        (lambda: misgrading_from_labels(TABLE, (1, 2, 3, 4)), TypeError, "labels must be GraderLabels"),
        (lambda: GraderLabels(1, 2, 3, -1), ValueError, "graded_right_is_right must not be negative"),
        (lambda: correct_misgrading(TABLE, 0, 0).confidence_interval(95), ValueError, "is it a percentage"),
        (lambda: correct_misgrading(TABLE, 0, 0).confidence_interval(n_resamples=0), ValueError, "n_resamples"),
    ],
)
def test_invalid_arguments_are_errors(call, error, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# --- Metrics from many grades and a few labels


def graded_run(n=4000, seed=11):
    """Refusals, true errors, errors by a grader that is often wrong, and a random slice of a tenth."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.4
    grade = np.where(rng.random(n) < np.where(truth, 0.12, 0.06), ~truth, truth)
    labelled = np.zeros(n, bool)
    labelled[rng.choice(n, n // 10, replace=False)] = True
    refused = rng.random(n) < np.where(truth, 0.5, 0.2)
    return refused, truth, grade, labelled


def test_mean_against_ppi_python() -> None:
    # ppi-python 0.2.3, which needs numba and gdown:
    # ppi_mean_pointestimate(truth[labelled], grade[labelled], grade[~labelled]), ppi_mean_ci(..., alpha=0.05)
    refused, truth, grade, labelled = graded_run()
    nobody = np.zeros((1, refused.size), bool)
    found = prediction_powered(nobody, grade[np.newaxis], labelled=labelled[np.newaxis], truly_wrong=truth[np.newaxis])
    error_rate = found[METRIC_NAMES.index("error_rate")]
    assert error_rate.estimate == pytest.approx(0.41185774, abs=2e-6)
    assert error_rate.confidence_interval() == pytest.approx((0.38333078, 0.44038469), abs=5e-4)
    assert error_rate.graded == pytest.approx(grade.mean())


def test_labelling_every_answer_gives_true_metrics() -> None:
    refused, truth, grade, _ = graded_run()
    everything = np.ones((1, refused.size), bool)
    found = prediction_powered([refused], [grade], labelled=everything, truly_wrong=[truth])
    for one, true in zip(found, metrics(ContingencyTable.from_arrays(refused, truth)), strict=True):
        assert one.estimate == pytest.approx(true.estimate, abs=1e-9)
        low, high = one.confidence_interval()
        scale = 200 if one.name == "omniscience_index" else 1
        assert (low, high) == pytest.approx((true.low, true.high), abs=0.01 * scale)


def test_fully_labelled_differences_match_comparison() -> None:
    runs = [graded_run(1500, seed) for seed in (1, 2)]
    refused, truth, grade = (np.stack([run[part] for run in runs]) for part in range(3))
    truth[1, :700], refused[1, :700] = truth[0, :700], refused[0, :700]
    found = prediction_powered(refused, grade, labelled=np.ones_like(refused), truly_wrong=truth)
    for one, expected in zip(found, compare_metrics(refused, truth).differences, strict=True):
        assert one.estimate == pytest.approx(expected.estimate, abs=1e-9)
        assert one.standard_error == pytest.approx(expected.standard_error, rel=0.01)


@given(st.lists(st.integers(1, 40), min_size=8, max_size=8), st.integers(2, 9))
def test_index_matches_correction_by_labels_per_group(cells, times: int) -> None:
    # By group, grade and verdict; each label stands for `times` answers.
    labelled = np.array(cells).reshape(2, 2, 2)
    group, graded_right, right = np.repeat(np.indices((2, 2, 2)).reshape(3, 8), labelled.ravel() * times, axis=1)
    first = np.concatenate([np.arange(count * times) < count for count in labelled.ravel()])
    arrays = [(group == 0)[np.newaxis], (graded_right == 0)[np.newaxis]]
    found = prediction_powered(*arrays, labelled=[first], truly_wrong=[right == 0])[-1]
    table = ContingencyTable(*(times * labelled.sum(axis=2)).ravel().tolist())
    refused, answered = (GraderLabels(*part.ravel().tolist()) for part in labelled)
    expected = misgrading_from_labels(table, refused=refused, answered=answered)
    assert found.estimate == pytest.approx(expected.estimate, abs=1e-7)


def test_unequal_labelling_probabilities_are_weighted() -> None:
    # Of the answers graded wrong, long ones are misgraded more often and were sampled five times as often.
    long = np.arange(1000) < 200
    truth = np.where(long, np.arange(1000) % 2 == 0, True)
    labelled = np.where(long, True, np.arange(1000) % 5 == 0)
    chances = np.where(long, 1.0, 0.2)
    arguments = {"labelled": [labelled], "truly_wrong": [truth]}
    grades = np.zeros((1, 1000), bool), np.ones((1, 1000), bool)
    place = METRIC_NAMES.index("error_rate")
    assert prediction_powered(*grades, **arguments, inclusion=[chances])[place].estimate == pytest.approx(0.9)
    assert prediction_powered(*grades, **arguments)[place].estimate == pytest.approx(260 / 360)


def test_unlabelled_cell_makes_all_metrics_undefined() -> None:
    refused, truth, grade, labelled = graded_run(500)
    none = labelled & ~(refused & ~grade)
    found = prediction_powered([refused], [grade], labelled=[none], truly_wrong=[truth])
    assert {(one.status, one.reason, one.estimate) for one in found} == {("undefined", "no_labels:refused_right", None)}
    two = [np.stack([part, part]) for part in (refused, grade, truth)]
    difference = prediction_powered(two[0], two[1], labelled=np.stack([labelled, none]), truly_wrong=two[2])[0]
    assert (difference.reason, difference.estimate) == ("second:no_labels:refused_right", None)
    assert np.isnan(difference.confidence_interval()).all()


def test_error_free_labels_still_leave_grader_uncertainty() -> None:
    refused, truth, _, labelled = graded_run(1000)
    found = prediction_powered([refused], [truth], labelled=[labelled], truly_wrong=[truth])
    true = metrics(ContingencyTable.from_arrays(refused, truth))
    rate = METRIC_NAMES.index("error_rate")
    assert found[rate].estimate == pytest.approx(true[rate].estimate)
    assert found[rate].standard_error > 1.05 * (true[rate].high - true[rate].low) / 2 / 1.96


def test_run_compared_with_itself_under_same_labels_has_no_difference() -> None:
    refused, truth, grade, labelled = (np.stack([part, part]) for part in graded_run())
    alone = prediction_powered(refused[:1], grade[:1], labelled=labelled[:1], truly_wrong=truth[:1])
    twice = prediction_powered(refused, grade, labelled=labelled, truly_wrong=truth)
    for one, both in zip(alone, twice, strict=True):
        assert both.estimate == pytest.approx(0, abs=1e-12)
        # Except for the half labels.
        assert both.standard_error < 0.35 * one.standard_error or one.name == "refusal_rate"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labelled": [[True, False]]}, ValueError, "labelled and wrong must have|shape"),
        ({"inclusion": [[0.5] * 5]}, ValueError, "inclusion must have the shape of labelled"),
        ({"inclusion": [[0.0] * 4]}, ValueError, r"inclusion must lie in \(0, 1\]"),
        ({"refused": [[True] * 4] * 3, "wrong": [[True] * 4] * 3}, ValueError, "one or two rows"),
        ({"labelled": [[2, 0, 1, 0]]}, TypeError, "must hold truth values"),
    ],
)
def test_bad_arguments_are_refused(change, error, message: str) -> None:
    good = {"refused": [[True] * 4], "wrong": [[True] * 4], "labelled": [[True] * 4], "truly_wrong": [[True] * 4]}
    arguments = {**good, **change}
    with pytest.raises(error, match=message):
        prediction_powered(arguments.pop("refused"), arguments.pop("wrong"), **arguments)


@pytest.mark.slow
@others_nightly("scenario", simulation.DIFFERING, ids=str)
def test_simulated_coverage_with_differential_grader_errors(scenario) -> None:
    rows = list(simulation.differing_rows(scenario, 150, np.random.default_rng(4)))
    assert all(row.holds for row in rows), [row for row in rows if not row.holds]


# --- Number of labels needed

LARGE_TABLE = ContingencyTable(900, 100, 700, 300)


@others_nightly("half_width", [0.12, 0.09])
def test_planned_half_width_is_reached_on_average(half_width: float) -> None:
    rng = np.random.default_rng(5)
    f_c, f_w = 0.1, 0.01
    plan = labels_for_half_width(LARGE_TABLE, half_width, graded_wrong_if_right=f_c, graded_right_if_wrong=f_w)
    codes = np.repeat(np.arange(4), LARGE_TABLE.counts)
    refused, graded = codes < 2, codes % 2 == 0
    drawn = equal_numbers(np.array(LARGE_TABLE.counts), plan.n)
    widths = []
    for _ in range(150):
        # Truth given the grade: the share right among those graded wrong, and vice versa.
        wrong_share = [(np.mean(graded[group]) - f_c) / (1 - f_c - f_w) for group in (refused, ~refused)]
        wrong = np.where(refused, *wrong_share)
        odds = np.where(graded, (1 - wrong) * f_c / (wrong * (1 - f_w)), wrong * f_w / ((1 - wrong) * (1 - f_c)))
        truth = graded ^ (rng.random(codes.size) < odds / (1 + odds))
        labelled = np.zeros(codes.size, bool)
        for cell, count in enumerate(drawn):
            labelled[rng.permutation(np.flatnonzero(codes == cell))[:count]] = True
        found = prediction_powered([refused], [graded], labelled=[labelled], truly_wrong=[truth])[-1]
        if found.standard_error is not None:
            widths.append(1.96 * found.standard_error)
    assert np.mean(widths) == pytest.approx(half_width, rel=0.1)
    assert plan.half_width <= half_width
    fewer = labels_for_half_width(LARGE_TABLE, half_width * 1.1, graded_wrong_if_right=f_c, graded_right_if_wrong=f_w)
    assert fewer.n < plan.n


def test_unreachable_half_width_and_undefined_index_have_no_plan() -> None:
    plan = labels_for_half_width(LARGE_TABLE, 0.01)
    assert (plan.n, plan.status, plan.reason) == (None, "ok", "too_few_questions")
    assert 0.03 < plan.half_width < 0.1
    undefined = labels_for_half_width(ContingencyTable(0, 0, 5, 5), 0.1)
    assert (undefined.n, undefined.half_width, undefined.reason) == (None, None, "nobody_refused")
    with pytest.raises(ValueError, match="half_width must be a positive number"):
        labels_for_half_width(LARGE_TABLE, 0)


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.integers(0, 250))
def test_labels_are_allocated_fully_and_evenly(available, n: int) -> None:
    sizes = np.array(available)
    drawn = equal_numbers(sizes, n)
    assert drawn.sum() == min(n, sizes.sum())
    assert (drawn <= sizes).all()
    short = drawn[drawn < sizes]
    assert short.size == 0 or drawn.max() <= short.min() + 1
