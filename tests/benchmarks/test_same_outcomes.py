"""The comparison of two revisions: what it takes for a difference, and what not."""

from __future__ import annotations

import polars as pl
import pytest
from benchmarks.same_outcomes import cases, differing_rows, differing_values

TABLE = pl.DataFrame(
    {
        "variant": ["low", "low", "high"],
        "question_id": ["a", "b", "a"],
        "draw": [0, 0, 0],
        "wrong": [True, None, False],
    }
)


def test_the_order_of_rows_does_not_count_and_each_cell_does():
    assert differing_rows(TABLE, TABLE.reverse()) == []
    assert differing_rows(TABLE, TABLE.with_columns(wrong=pl.Series([True, False, True]))) == ["wrong: 2 rows"]
    assert differing_rows(TABLE, TABLE.head(2))[0].startswith("rows: 3 here, 2 there")
    assert differing_rows(TABLE, TABLE.drop("wrong")) == ["column wrong: only here"]


@pytest.mark.parametrize(
    ("here", "there", "found"),
    [
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, []),
        ({"a": 0.1 + 0.2}, {"a": 0.3}, ["a: 0.30000000000000004 here, 0.3 there"]),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": 2}]}, ["a[1].b: null here, 2 there"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a: [1] here, [1, 2] there"]),
        ({"a": 1}, {"b": 1}, ["a: 1 here, null there", "b: null here, 1 there"]),
    ],
)
def test_values_that_differ_are_named_by_their_place(here, there, found):
    assert list(differing_values(here, there)) == found


def test_every_command_has_a_folder_of_its_own():
    assert len({case.folder for case in cases(200)}) == len(cases(200))
