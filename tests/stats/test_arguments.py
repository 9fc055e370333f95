"""Arguments that are refused by name, and the matrices of several runs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from refusal_index import ContingencyTable, refusal_index, refusal_index_many, stats
from refusal_index.plugins.studies import stability
from refusal_index.stats.arguments import checked_matrices
from refusal_index.stats.contingency import cell_codes, row_tables
from refusal_index.stats.estimate import cohen_kappa

# --- Invalid arguments

REFUSED, WRONG = [True, True, False, False, True], [True, False, True, False, True]
TABLE = ContingencyTable(710, 30, 210, 50)
HIDDEN = np.ma.array(REFUSED, mask=[0, 0, 0, 0, 1])


@pytest.mark.parametrize(
    "call",
    [
        lambda: refusal_index(refused=HIDDEN, wrong=WRONG),
        lambda: stats.rank_runs([HIDDEN, HIDDEN], [WRONG, WRONG]),
        lambda: stats.compare_metrics(np.ma.array([REFUSED] * 2, mask=[[0, 0, 0, 0, 1]] * 2), [WRONG] * 2),
        lambda: stats.compare_joint([[HIDDEN] * 2] * 2, [[WRONG] * 2] * 2),
        lambda: stats.auroc(np.ma.array([0.1, 0.2], mask=[0, 1]), [True, False]),
        lambda: stats.auroc([0.1, 0.2], np.ma.array([True, False], mask=[0, 1])),
        lambda: stats.within_topic_refusal_index(REFUSED, WRONG, np.ma.array(["a"] * 5, mask=[1, 0, 0, 0, 0])),
        lambda: refusal_index_many(np.ma.array([1, 2], mask=[0, 1]), 1, 1, 1),
        lambda: stats.tetrachoric(np.ma.array([1, 2], mask=[0, 1]), 1, 1, 1),
        lambda: cohen_kappa(np.ma.array([[5, 1], [1, 5]], mask=[[1, 0], [0, 0]])),
        lambda: stability.coefficient_of_variation(np.ma.array([0.1, 0.2], mask=[0, 1])),
        lambda: stability.kendall_w(np.ma.array([[1, 2], [2, 1]], mask=[[1, 0], [0, 0]])),
        lambda: stats.f_score(np.ma.array([0.1, 0.2], mask=[0, 1]), 0.3),
        lambda: stats.holm(np.ma.array([0.1, 0.2], mask=[0, 1])),
    ],
)
def test_masked_values_are_rejected(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="must hold no masked values, got "):
        call()


def test_empty_mask_is_accepted() -> None:
    found = refusal_index(refused=np.ma.array(REFUSED), wrong=np.ma.array(WRONG))
    assert found == refusal_index(refused=REFUSED, wrong=WRONG)


def test_series_with_same_index_are_accepted() -> None:
    rows = pd.DataFrame({"refused": REFUSED, "wrong": WRONG}, index=list("abcde"))
    assert refusal_index(refused=rows["refused"], wrong=rows["wrong"]) == refusal_index(refused=REFUSED, wrong=WRONG)


@pytest.mark.parametrize("order", [list("edcba"), list("abcdf")])
def test_series_with_different_indexes_are_rejected(order: list[str]) -> None:
    refused, wrong = pd.Series(REFUSED, index=list("abcde")), pd.Series(WRONG, index=order)
    for call in (
        lambda: refusal_index(refused=refused, wrong=wrong),
        lambda: stats.compare_metrics([refused, wrong], [refused, wrong]),
        lambda: stats.auroc(refused.astype(float), wrong),
        lambda: stats.within_topic_refusal_index(refused, refused, wrong.astype(str)),
    ):
        with pytest.raises(ValueError, match="must have the same index, got different ones"):
            call()
    assert refusal_index(refused=refused.to_numpy(), wrong=wrong.to_numpy()).table.n == 5


def test_0_and_1_are_accepted_as_booleans() -> None:
    refused, wrong = np.array(REFUSED, int), [int(one) for one in WRONG]
    assert ContingencyTable.from_arrays(refused, wrong) == ContingencyTable.from_arrays(REFUSED, WRONG)
    rows = stats.checked_matrices([refused, refused], [wrong, wrong], np.ones((2, 5), np.uint8))
    assert all(row.dtype == bool for row in rows)
    assert stats.auroc([0.1, 0.2, 0.3, 0.4, 0.5], wrong) == stats.auroc([0.1, 0.2, 0.3, 0.4, 0.5], WRONG)
    mixed = pd.array(REFUSED, dtype="boolean").astype(object)
    assert ContingencyTable.from_arrays(mixed, WRONG) == ContingencyTable.from_arrays(REFUSED, WRONG)


@pytest.mark.parametrize("bad", [[0, 1, 2, 0, 0], [0.0, 1.0, 0.0, 1.0, 1.0], ["0", "1", "0", "1", "1"], [None] * 5])
def test_non_boolean_values_are_an_error(bad: list[Any]) -> None:
    with pytest.raises(TypeError, match="refused must hold truth values, got an array of "):
        refusal_index(refused=bad, wrong=WRONG)


@pytest.mark.parametrize("cells", [(-5, 1, 1, 1), (1, -5, 1, 1), (1, 1, [1, -5], 1), (1, 1, 1, -np.inf)])
def test_negative_cell_is_an_error(cells: Any) -> None:
    with pytest.raises(ValueError, match=r"p\d\d must not be negative, got -"):
        stats.tetrachoric(*cells)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: refusal_index(TABLE).confidence_interval("a"),
            TypeError,
            "confidence_level must be a number strictly",
        ),
        (lambda: stats.metrics(TABLE, confidence_level=None), TypeError, "confidence_level must be a number strictly"),  # type: ignore[arg-type]
        (lambda: refusal_index(TABLE).confidence_interval(n_resamples=1.5), ValueError, "n_resamples must be a whole"),
        (lambda: refusal_index(TABLE).confidence_interval(n_resamples="9"), TypeError, "n_resamples must be a whole"),
        (lambda: stats.holm([0.1, np.nan]), ValueError, r"pvalues must lie in \[0, 1\], got nan"),
        (lambda: stats.holm([[0.1]]), ValueError, "pvalues must be one-dimensional"),
        (lambda: stats.holm(["a"]), TypeError, "pvalues must hold numbers"),
        (lambda: ContingencyTable(1e300, 1, 1, 1), ValueError, r"refused_wrong must be a count of at most 2\*\*53"),
        (lambda: ContingencyTable(10**400, 1, 1, 1), ValueError, r"refused_wrong must be a count of at most 2\*\*53"),
        (lambda: refusal_index_many(1e300, 1, 1, 1), ValueError, r"refused_wrong must hold .* beyond 2\*\*53"),
        (lambda: stats.correct_guessing(TABLE, 2.5), ValueError, "n_choices must be a whole number, got 2.5"),
    ],
)
def test_invalid_argument_is_named(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_numpy_scalars_and_lists_are_accepted() -> None:
    assert stats.correct_guessing(TABLE, np.int64(4)) == stats.correct_guessing(TABLE, 4)
    assert stats.holm([0.01, 0.04]).tolist() == stats.holm(np.array([0.01, 0.04])).tolist() == [0.02, 0.04]
    level, n = np.float32(0.9), np.int64(50)
    assert refusal_index(TABLE).confidence_interval(level, "bootstrap", n_resamples=n, rng=0).low < 0.5


def test_the_largest_count_still_gives_an_index() -> None:
    many = refusal_index(ContingencyTable(2**53, 2**50, 2**52, 2**52))
    assert many.estimate == pytest.approx(refusal_index(ContingencyTable(8, 1, 4, 4)).estimate, abs=1e-12)


# --- The matrices of several runs

REFUSED_IN_RUNS = np.array([[True, True, False, False], [False, True, False, True]])
WRONG_IN_RUNS = np.array([[True, False, True, False], [True, True, False, False]])
SCORED = np.array([[True, True, True, True], [False, True, True, False]])


def test_scored_defaults_to_all_questions() -> None:
    refused, wrong, scored = checked_matrices(REFUSED_IN_RUNS.tolist(), WRONG_IN_RUNS.tolist())
    np.testing.assert_array_equal(refused, REFUSED_IN_RUNS)
    np.testing.assert_array_equal(wrong, WRONG_IN_RUNS)
    assert scored.all()
    assert {matrix.dtype for matrix in (refused, wrong, scored)} == {np.dtype(bool)}


def test_values_that_are_not_scored_are_ignored() -> None:
    before = checked_matrices(REFUSED_IN_RUNS, WRONG_IN_RUNS, SCORED)
    after = checked_matrices(REFUSED_IN_RUNS ^ ~SCORED, WRONG_IN_RUNS ^ ~SCORED, SCORED)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not (before[0] | before[1])[~SCORED].any()


def test_cell_codes_follow_table_order() -> None:
    codes = cell_codes(*checked_matrices(REFUSED_IN_RUNS, WRONG_IN_RUNS, SCORED))
    assert codes.tolist() == [[0, 1, 2, 3], [4, 0, 3, 4]]


def test_tables_count_the_scored_questions_of_each_row() -> None:
    tables = row_tables(*checked_matrices(REFUSED_IN_RUNS, WRONG_IN_RUNS, SCORED))
    by_hand = (
        ContingencyTable.from_arrays(refused[s], wrong[s])
        for refused, wrong, s in zip(REFUSED_IN_RUNS, WRONG_IN_RUNS, SCORED, strict=True)
    )
    assert tables == tuple(by_hand)


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (3, 0)])
def test_no_runs_and_no_questions_are_valid(shape: tuple[int, int]) -> None:
    matrices = checked_matrices(np.zeros(shape), np.zeros(shape))
    assert row_tables(*matrices) == (ContingencyTable(0, 0, 0, 0),) * shape[0]


def test_arguments_are_not_modified() -> None:
    refused, wrong, scored = REFUSED_IN_RUNS.copy(), WRONG_IN_RUNS.copy(), SCORED.copy()
    checked_matrices(refused, wrong, scored)[0][:] = True
    np.testing.assert_array_equal(refused, REFUSED_IN_RUNS)
    np.testing.assert_array_equal(wrong, WRONG_IN_RUNS)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"refused": [True, False]}, ValueError, r"refused must be two-dimensional, .*got shape \(2,\); is it the out"),
        ({"wrong": [[True, False], [True]]}, ValueError, "wrong must have rows of equal length.*left out of one run"),
        (
            {"wrong": WRONG_IN_RUNS.T},
            ValueError,
            r"refused and wrong .* got shapes \(2, 4\) and \(4, 2\); was one.*transposed",
        ),
        ({"scored": SCORED[:1]}, ValueError, r"refused and scored .* got shapes \(2, 4\) and \(1, 4\)"),
        (
            {"refused": 2 * REFUSED_IN_RUNS.astype(int)},
            TypeError,
            "refused must hold truth values, got an array of int64",
        ),
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
        checked_matrices(**({"refused": REFUSED_IN_RUNS, "wrong": WRONG_IN_RUNS, "scored": SCORED} | change))
