"""Evidence for the counts: against counting by hand, and refused never mixed with unscored."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.data.rates import NOT_STATED, completeness, contingency_table, forced_refusals, variant_groups

maybe = st.sampled_from([True, False, None])


def table_of(*outcomes: Outcome, variant: str = "normal") -> pl.DataFrame:
    asked = Identification("m", "d", variant)
    return outcome_table((asked, Question(f"q{i}", "?", "!"), outcome) for i, outcome in enumerate(outcomes))


@given(st.lists(st.tuples(maybe, maybe)))
def test_property_cells_and_missing_add_up_to_what_was_asked(pairs):
    table = table_of(*(Outcome(refused, wrong) for refused, wrong in pairs))
    cells = contingency_table(table).counts
    assert cells == tuple(pairs.count(pair) for pair in [(True, True), (True, False), (False, True), (False, False)])
    complete = completeness(table)
    assert (complete.asked, complete.scored) == (len(pairs), sum(cells))
    assert complete.asked == complete.scored + complete.unscored
    assert sum(complete.reasons.values()) == complete.unscored


def test_reasons_are_counted_with_the_most_frequent_first():
    reasons = ["b", "a", "c", "a", None, "c", "c"]
    complete = completeness(table_of(Outcome(True, False), *(Outcome(None, None, unscored_reason=r) for r in reasons)))
    assert list(complete.reasons.items()) == [("c", 3), ("a", 2), ("b", 1), (NOT_STATED, 1)]
    assert complete.missing_share == 7 / 8


def test_nothing_asked_has_no_share_rather_than_zero():
    table = table_of()
    assert completeness(table).missing_share is None
    assert forced_refusals(table).share is None
    assert contingency_table(table).n == 0


def test_forced_refusals_are_counted_among_forced_answers_to_what_was_refused():
    table = table_of(
        Outcome(True, True, Grade.REFUSED, Grade.REFUSED),
        Outcome(True, False, Grade.REFUSED, Grade.CORRECT),
        Outcome(False, True, Grade.INCORRECT, Grade.REFUSED),
        Outcome(False, False, Grade.CORRECT),
        Outcome(True, None, Grade.REFUSED, Grade.UNSCORED, "forced_truncated"),
    )
    found = forced_refusals(table)
    assert (found.asked, found.refused, found.share) == (3, 1, 1 / 3)


def test_groups_keep_the_order_of_appearance():
    names = ["low", "normal", "high", "highest"]
    table = pl.concat([table_of(Outcome(True, True), variant=name) for name in [*names, *names[:0]]])
    groups = variant_groups(table)
    assert [group.variant for group in groups] == names
    assert [group.outcomes.height for group in groups] == [1, 1, 1, 1]


@pytest.mark.parametrize("variant", [None, "low"])
def test_rows_without_a_model_or_variant_are_a_group_too(variant):
    asked = Identification(None, None, variant)
    (group,) = variant_groups(outcome_table([(asked, Question("q", "?", "!"), Outcome(True, True))]))
    assert (group.model, group.dataset, group.variant) == (None, None, variant)
