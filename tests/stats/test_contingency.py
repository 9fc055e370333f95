"""The table of counts: what it takes, what it refuses, what it derives."""

import math
from fractions import Fraction

import numpy as np
import pytest

from refusal_index import ContingencyTable, refusal_index_many
from refusal_index.stats import CELL_NAMES


def test_counts_and_rates() -> None:
    table = ContingencyTable(refused_wrong=710, refused_right=30, answered_wrong=210, answered_right=50)
    assert table.counts == (710, 30, 210, 50)
    assert (table.n, table.n_refused, table.n_answered) == (1000, 740, 260)
    assert (table.refusal_rate, table.error_rate, table.correct_rate) == (0.74, 0.92, 0.05)


def test_a_table_without_questions_is_valid_and_has_no_rates() -> None:
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


def test_from_arrays_takes_lists_and_nothing_at_all() -> None:
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
def test_arrays_of_counts_are_checked_alike(values, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^answered_wrong .*{message}"):
        refusal_index_many(1, 1, values, 1)
