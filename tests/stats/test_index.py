"""The Refusal Index: estimate, standard error, undefined tables, the shape of an estimate, and Cohen's kappa."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusal_index import ConfidenceInterval, ContingencyTable, refusal_index, refusal_index_many
from refusal_index.stats import Estimate, metrics
from refusal_index.stats.estimate import cohen_kappa

# --- The estimate and its standard error

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
COUNTS = st.tuples(*[st.integers(1, 5000)] * 4)
ANY_COUNTS = st.tuples(*[st.integers(0, 4)] * 4)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(case["table"]))
def test_index_against_reference_estimates(case) -> None:
    result = refusal_index(ContingencyTable(*case["table"]))
    assert result.status == "ok"
    assert result.reason is None
    assert abs(result.estimate - float(case["RI"])) < 1e-12
    assert abs(result.rho - float(case["rho"])) < 1e-12
    assert abs(result.standard_error - float(case["se_RI"])) < 1e-9
    assert abs(refusal_index_many(*case["table"]) - float(case["RI"])) < 1e-12


def test_correct_rate_is_taken_over_all_questions() -> None:
    # The paper calls its first argument the accuracy on attempted questions, which would give 0.9960 here.
    assert refusal_index(ContingencyTable(1200, 100, 500, 200)).estimate == pytest.approx(0.4798, abs=5e-5)


def test_from_arrays_is_the_same_as_from_counts() -> None:
    refused, wrong = (
        np.repeat([True, True, False, False], [7, 2, 4, 6]),
        np.repeat([True, False, True, False], [7, 2, 4, 6]),
    )
    assert refusal_index(refused=refused, wrong=wrong) == refusal_index(ContingencyTable(7, 2, 4, 6))


@settings(deadline=None)
@given(COUNTS)
def test_swapping_refusal_and_error_leaves_the_estimate(counts) -> None:
    a, b, c, d = counts
    result, swapped = refusal_index(ContingencyTable(a, b, c, d)), refusal_index(ContingencyTable(a, c, b, d))
    assert swapped.estimate == pytest.approx(result.estimate, abs=1e-12)
    assert swapped.standard_error == pytest.approx(result.standard_error, rel=1e-9)


@settings(deadline=None)
@given(COUNTS)
def test_swapping_refused_and_answered_flips_sign(counts) -> None:
    a, b, c, d = counts
    result, turned = refusal_index(ContingencyTable(a, b, c, d)), refusal_index(ContingencyTable(c, d, a, b))
    assert turned.estimate == pytest.approx(-result.estimate, abs=1e-12)
    assert turned.standard_error == pytest.approx(result.standard_error, rel=1e-9)


@settings(deadline=None)
@given(COUNTS, st.integers(2, 50))
def test_scaling_counts_keeps_estimate_and_shrinks_standard_error(counts, factor: int) -> None:
    result = refusal_index(ContingencyTable(*counts))
    larger = refusal_index(ContingencyTable(*(factor * count for count in counts)))
    assert larger.estimate == pytest.approx(result.estimate, abs=1e-12)
    assert larger.standard_error == pytest.approx(result.standard_error / factor**0.5, rel=1e-9)


@settings(deadline=None)
@given(st.tuples(*[st.integers(2, 5000)] * 4))
def test_more_agreement_raises_the_estimate(counts) -> None:
    a, b, c, d = counts
    less, more = ContingencyTable(a, b, c, d), ContingencyTable(a + 1, b - 1, c - 1, d + 1)
    assert (less.refusal_rate, less.error_rate) == (more.refusal_rate, more.error_rate)
    assert refusal_index(more).estimate > refusal_index(less).estimate


@settings(deadline=None)
@given(ANY_COUNTS | COUNTS)
def test_refusal_index_agrees_with_refusal_index_many(counts) -> None:
    result, many = refusal_index(ContingencyTable(*counts)), refusal_index_many(*counts)
    if result.status == "undefined":
        assert np.isnan(many)
    elif result.status == "boundary":
        assert many == result.estimate
    else:
        assert many == pytest.approx(result.estimate, abs=1e-12)


@given(ANY_COUNTS)
def test_estimate_status_and_reason_are_consistent(counts) -> None:
    result = refusal_index(ContingencyTable(*counts))
    assert (result.reason is None) == (result.status == "ok") == (result.standard_error is not None)
    assert (result.estimate is None) == (result.rho is None) == (result.status == "undefined")
    assert (result.status == "boundary") == (result.estimate in (-1, 1) and 0 in counts)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ((0, 0, 0, 0), "no_questions"),
        ((0, 0, 4, 5), "nobody_refused"),
        ((4, 5, 0, 0), "everybody_refused"),
        ((4, 0, 5, 0), "all_wrong"),
        ((0, 4, 0, 5), "all_right"),
        ((0, 0, 5, 0), "nobody_refused"),
    ],
)
def test_a_degenerate_margin_is_undefined(counts, reason: str) -> None:
    result = refusal_index(ContingencyTable(*counts))
    assert (result.status, result.reason) == ("undefined", reason)
    assert result.estimate is result.rho is result.standard_error is None


@pytest.mark.parametrize(
    ("counts", "end", "reason"),
    [
        ((0, 3, 4, 5), -1, "zero_cell:refused_wrong"),
        ((3, 0, 4, 5), 1, "zero_cell:refused_right"),
        ((3, 4, 0, 5), 1, "zero_cell:answered_wrong"),
        ((3, 4, 5, 0), -1, "zero_cell:answered_right"),
        ((3, 0, 0, 5), 1, "zero_cell:refused_right+answered_wrong"),
        ((0, 3, 4, 0), -1, "zero_cell:refused_wrong+answered_right"),
    ],
)
def test_a_zero_cell_is_at_the_boundary(counts, end: int, reason: str) -> None:
    result = refusal_index(ContingencyTable(*counts))
    assert (result.status, result.reason, result.standard_error) == ("boundary", reason, None)
    assert result.estimate == result.rho == end


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs a ContingencyTable, or both"),
        ({"refused": [True]}, "needs a ContingencyTable, or both"),
    ],
)
def test_missing_arguments_are_an_error(arguments, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        refusal_index(**arguments)


def test_a_table_and_arrays_together_are_an_error() -> None:
    with pytest.raises(TypeError, match="not both"):
        refusal_index(ContingencyTable(1, 1, 1, 1), refused=[True], wrong=[True])


def test_counts_without_a_table_are_an_error() -> None:
    with pytest.raises(TypeError, match=r"must be a ContingencyTable, got tuple; for four counts write"):
        refusal_index((1, 1, 1, 1))


def test_many_keeps_broadcast_shape_and_returns_float_for_scalars() -> None:
    assert refusal_index_many(np.ones((3, 1), int), [1, 2], 1, 1).shape == (3, 2)
    assert isinstance(refusal_index_many(4, 1, 2, 3), float)


def test_many_accepts_integral_floats() -> None:
    assert refusal_index_many(4.0, 1.0, 2.0, 3.0) == refusal_index_many(4, 1, 2, 3)


# --- Estimates without a value


@pytest.mark.parametrize("counts", [(710, 30, 210, 50), (5, 0, 3, 2), (0, 0, 60, 40), (0, 0, 0, 0)])
def test_estimate_matches_its_result_and_interval(counts: tuple[int, int, int, int]) -> None:
    result = refusal_index(ContingencyTable(*counts))
    interval = result.confidence_interval()
    found = Estimate.of(result, interval)
    assert (found.estimate, found.status, found.reason) == (result.estimate, result.status, result.reason)
    for end, expected in zip((found.low, found.high), interval, strict=True):
        assert end is None if math.isnan(expected) else end == expected
    assert (found.status == "undefined") == (found.low is None)
    assert metrics(ContingencyTable(*counts))[-1].to_document() == found.to_document()


def test_each_interval_end_is_converted_independently() -> None:
    assert ConfidenceInterval(-0.5, math.nan).or_none() == (-0.5, None)
    assert ConfidenceInterval(math.nan, 0.0).or_none() == (None, 0.0)


# --- Cohen's kappa


def test_kappa_against_textbook_values():
    # Wikipedia, "Cohen's kappa", second pair of examples: 60% agreement each, kappa .1304 and .2593
    assert cohen_kappa([[45, 15], [25, 15]]).estimate == pytest.approx(0.1304, abs=5e-5)
    assert cohen_kappa([[25, 35], [5, 35]]).estimate == pytest.approx(0.2593, abs=5e-5)


def test_kappa_is_1_for_agreement_and_0_for_independence():
    assert cohen_kappa([[3, 0, 0], [0, 5, 0], [0, 0, 2]]).estimate == pytest.approx(1)
    assert cohen_kappa([[12, 24], [6, 12]]).estimate == pytest.approx(0)


@given(st.lists(st.integers(0, 50), min_size=9, max_size=9))
def test_kappa_is_symmetric_in_raters(counts):
    table = [counts[:3], counts[3:6], counts[6:]]
    turned = [list(column) for column in zip(*table, strict=True)]
    one, other = cohen_kappa(table), cohen_kappa(turned)
    assert (one.agreement, one.n, one.status) == (other.agreement, other.n, other.status)
    assert one.estimate == (other.estimate if other.estimate is None else pytest.approx(other.estimate))


@pytest.mark.parametrize(
    ("counts", "agreement", "reason"),
    [([[0, 0], [0, 0]], None, "no answer"), ([[7, 0], [0, 0]], 1.0, "the same one grade")],
)
def test_undefined_kappa_has_a_reason(counts, agreement, reason):
    result = cohen_kappa(counts)
    assert (result.estimate, result.agreement, result.status) == (None, agreement, "undefined")
    assert reason in result.reason


@pytest.mark.parametrize(
    "counts", [[[1, 2]], [1, 2], [[0.5, 1], [1, 1]], [[-1, 1], [1, 1]], [[float("nan"), 1], [1, 1]]]
)
def test_invalid_count_tables_are_rejected(counts):
    with pytest.raises(ValueError, match="counts: expected"):
        cohen_kappa(counts)
