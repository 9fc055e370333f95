"""Two graders on the same replies: planted tables, and what of them counts once."""

from __future__ import annotations

import json

import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.findings.labels import changes_document, grade_changes

RIGHT, WRONG, REFUSED, UNKNOWN = Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED, Grade.UNSCORED


def table(*rows: tuple[str, str, Grade, Grade | None]):
    """Build an outcome table from variant, question, first grade and forced grade."""
    return outcome_table(
        (Identification("m", "d", variant), Question(name, f"{name}?", "!"), outcome(first, forced))
        for variant, name, first, forced in rows
    )


def outcome(first: Grade, forced: Grade | None) -> Outcome:
    counts = forced if first is REFUSED else first
    return Outcome(
        refused=None if first is UNKNOWN else first is REFUSED,
        wrong=None if counts in {None, UNKNOWN} else counts is not RIGHT,
        first_grade=first,
        forced_grade=forced,
        unscored_reason="x" if counts in {None, UNKNOWN} else None,
        forced_reply="it" if forced else None,
    )


BEFORE = table(
    ("low", "a", RIGHT, None), ("low", "b", WRONG, None), ("low", "c", REFUSED, WRONG), ("low", "d", WRONG, None)
)
NOW = table(
    ("low", "a", RIGHT, None), ("low", "b", RIGHT, None), ("low", "c", REFUSED, RIGHT), ("low", "d", REFUSED, None)
)


def test_grades_and_cells_are_counted():
    changes = grade_changes(BEFORE, NOW)
    assert changes.first.counts == {
        ("correct", "correct"): 1,
        ("incorrect", "correct"): 1,
        ("incorrect", "refused"): 1,
        ("refused", "refused"): 1,
    }
    assert changes.first.kappa.agreement == 0.5
    assert changes.forced.counts == {("incorrect", "correct"): 1}
    assert changes.cells == {
        ("answered_wrong", "answered_right"): 1,
        ("answered_wrong", "unscored"): 1,
        ("refused_wrong", "refused_right"): 1,
    }
    assert changes.n == 4
    assert changes.first.grades == ("correct", "incorrect", "refused")


def test_a_forced_answer_that_variants_share_is_one_answer():
    both = table(("low", "c", REFUSED, WRONG), ("high", "c", REFUSED, WRONG))
    changes = grade_changes(both, both)
    assert (changes.first.kappa.n, changes.forced.kappa.n, changes.cells) == (2, 1, {})


def test_rows_of_one_table_alone_are_left_out():
    assert grade_changes(BEFORE, NOW.filter(question_id="a")).n == 1


def test_without_a_forced_answer_there_is_nothing_to_agree_on():
    kappa = grade_changes(BEFORE.head(2), NOW.head(2)).forced.kappa
    assert (kappa.n, kappa.agreement, kappa.status) == (0, None, "undefined")


def test_the_document_is_json_and_holds_every_count():
    document = changes_document(grade_changes(BEFORE, NOW))
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["cells"][0] == {"before": "answered_wrong", "now": "answered_right", "count": 1}
    assert document["first"]["estimate"] == pytest.approx(1 / 3)
