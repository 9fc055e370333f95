"""The comparison of two revisions: what counts as a difference, and what does not."""

from __future__ import annotations

import polars as pl
import pytest
from benchmarks.same_outcomes import differences, renamed, values_of


@pytest.mark.parametrize(
    ("here", "there", "found"),
    [
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, []),
        ({"a": 0.1 + 0.2}, {"a": 0.3}, []),
        ({"a": 0.3 + 1e-11}, {"a": 0.3}, ["a: 0.30000000001 here, 0.3 there"]),
        ({"a": 0.3}, {"a": None}, ["a: 0.3 here, null there"]),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": 2}]}, ["a[1].b: null here, 2 there"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a: [1] here, [1, 2] there"]),
        ({"a": 1}, {"b": 1}, ["a: 1 here, null there", "b: null here, 1 there"]),
        ({"reason": "few_refused"}, {"reason": "all_refused"}, ['reason: "few_refused" here, "all_refused" there']),
        ({"text": "Few were refused."}, {"text": "Few refusals."}, []),
        ({"run_seconds": 1.5}, {"run_seconds": 2.5}, []),
    ],
)
def test_values_that_differ_are_named_by_their_place(here, there, found):
    assert list(differences(here, there)) == found


def test_the_order_of_rows_in_an_outcome_table_does_not_count(tmp_path):
    table = pl.DataFrame({"question_id": ["a", "b"], "wrong": [True, None]})
    table.write_parquet(tmp_path / "one.parquet")
    table.reverse().write_parquet(tmp_path / "other.parquet")
    assert values_of(tmp_path / "one.parquet") == values_of(tmp_path / "other.parquet")


def test_names_that_changed_are_translated_in_keys_and_codes():
    older = {"index": [{"metric": "index", "text": "the index"}]}
    assert renamed(older, {"index": "refusal_index"}) == {
        "refusal_index": [{"metric": "refusal_index", "text": "the index"}]
    }
