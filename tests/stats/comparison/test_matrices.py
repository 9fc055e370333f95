"""The matrices of several runs: what they take, what they refuse, what is counted from them."""

import numpy as np
import pytest

from refusal_index import ContingencyTable
from refusal_index.stats.arguments import checked_matrices
from refusal_index.stats.contingency import cell_codes, row_tables

REFUSED = np.array([[True, True, False, False], [False, True, False, True]])
WRONG = np.array([[True, False, True, False], [True, True, False, False]])
SCORED = np.array([[True, True, True, True], [False, True, True, False]])


def test_everything_is_scored_unless_said_otherwise() -> None:
    refused, wrong, scored = checked_matrices(REFUSED.tolist(), WRONG.tolist())
    np.testing.assert_array_equal(refused, REFUSED)
    np.testing.assert_array_equal(wrong, WRONG)
    assert scored.all()
    assert {matrix.dtype for matrix in (refused, wrong, scored)} == {np.dtype(bool)}


def test_values_that_are_not_scored_are_ignored() -> None:
    before = checked_matrices(REFUSED, WRONG, SCORED)
    after = checked_matrices(REFUSED ^ ~SCORED, WRONG ^ ~SCORED, SCORED)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not (before[0] | before[1])[~SCORED].any()


def test_cells_are_numbered_in_the_order_of_a_table() -> None:
    codes = cell_codes(*checked_matrices(REFUSED, WRONG, SCORED))
    assert codes.tolist() == [[0, 1, 2, 3], [4, 0, 3, 4]]


def test_tables_count_the_scored_questions_of_each_row() -> None:
    tables = row_tables(*checked_matrices(REFUSED, WRONG, SCORED))
    by_hand = (
        ContingencyTable.from_arrays(refused[s], wrong[s])
        for refused, wrong, s in zip(REFUSED, WRONG, SCORED, strict=True)
    )
    assert tables == tuple(by_hand)


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (3, 0)])
def test_no_runs_and_no_questions_are_valid(shape: tuple[int, int]) -> None:
    matrices = checked_matrices(np.zeros(shape), np.zeros(shape))
    assert row_tables(*matrices) == (ContingencyTable(0, 0, 0, 0),) * shape[0]


def test_arguments_are_left_as_they_were() -> None:
    refused, wrong, scored = REFUSED.copy(), WRONG.copy(), SCORED.copy()
    checked_matrices(refused, wrong, scored)[0][:] = True
    np.testing.assert_array_equal(refused, REFUSED)
    np.testing.assert_array_equal(wrong, WRONG)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"refused": [True, False]}, ValueError, r"refused must be two-dimensional, .*got shape \(2,\); is it the out"),
        ({"wrong": [[True, False], [True]]}, ValueError, "wrong must have rows of equal length.*left out of one run"),
        ({"wrong": WRONG.T}, ValueError, r"refused and wrong .* got shapes \(2, 4\) and \(4, 2\); was one.*transposed"),
        ({"scored": SCORED[:1]}, ValueError, r"refused and scored .* got shapes \(2, 4\) and \(1, 4\)"),
        ({"refused": 2 * REFUSED.astype(int)}, TypeError, "refused must hold truth values, got an array of int64"),
        ({"wrong": [["wrong"] * 4] * 2}, TypeError, "wrong must hold truth values, got an array of <U5; are there gra"),
        (
            {"wrong": [[None] * 4] * 2},
            TypeError,
            "wrong must hold truth values, got an array of object.*marking in scored",
        ),
    ],
)
def test_errors_name_the_argument_and_a_likely_cause(change: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        checked_matrices(**({"refused": REFUSED, "wrong": WRONG, "scored": SCORED} | change))
