"""Cohen's kappa: against its definition on a textbook table, and what is undefined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.stats.estimate import cohen_kappa


def test_it_is_the_textbook_value():
    # Wikipedia, "Cohen's kappa", second pair of examples: 60% agreement each, kappa .1304 and .2593
    assert cohen_kappa([[45, 15], [25, 15]]).estimate == pytest.approx(0.1304, abs=5e-5)
    assert cohen_kappa([[25, 35], [5, 35]]).estimate == pytest.approx(0.2593, abs=5e-5)


def test_it_is_1_where_all_agree_and_0_where_grades_are_independent():
    assert cohen_kappa([[3, 0, 0], [0, 5, 0], [0, 0, 2]]).estimate == pytest.approx(1)
    assert cohen_kappa([[12, 24], [6, 12]]).estimate == pytest.approx(0)


@given(st.lists(st.integers(0, 50), min_size=9, max_size=9))
def test_who_is_first_does_not_matter(counts):
    table = [counts[:3], counts[3:6], counts[6:]]
    turned = [list(column) for column in zip(*table, strict=True)]
    one, other = cohen_kappa(table), cohen_kappa(turned)
    assert (one.agreement, one.n, one.status) == (other.agreement, other.n, other.status)
    assert one.estimate == (other.estimate if other.estimate is None else pytest.approx(other.estimate))


@pytest.mark.parametrize(
    ("counts", "agreement", "reason"),
    [([[0, 0], [0, 0]], None, "no answer"), ([[7, 0], [0, 0]], 1.0, "the same one grade")],
)
def test_what_is_undefined_says_why(counts, agreement, reason):
    result = cohen_kappa(counts)
    assert (result.estimate, result.agreement, result.status) == (None, agreement, "undefined")
    assert reason in result.reason


@pytest.mark.parametrize(
    "counts", [[[1, 2]], [1, 2], [[0.5, 1], [1, 1]], [[-1, 1], [1, 1]], [[float("nan"), 1], [1, 1]]]
)
def test_what_is_no_table_of_counts_is_refused(counts):
    with pytest.raises(ValueError, match="counts: expected"):
        cohen_kappa(counts)
