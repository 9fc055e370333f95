"""What is said about imported files: what was not used, and what they lack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refusal_index.data.first_pass import FirstPasses
from refusal_index.findings.metrics import Statement
from refusal_index.findings.models_asked import incomplete_log


def reading_statements(read: FirstPasses) -> tuple[Statement, ...]:
    """Return what to say about how a file was read, apart from its counts."""
    statements = []
    if read.columns:
        statements.append(Statement("columns_read", "note", _columns_read(read.columns)))
    if read.not_used:
        statements.append(not_used(read.not_used, _role(read), (*read.grade_columns, *read.not_used)[0]))
    if read.other_scorers:
        statements.append(not_used(read.other_scorers, "scorer", read.other_scorers[0]))
    statements.extend(Statement("grades_differ", "serious", vars(conflict)) for conflict in read.conflicts)
    if read.repeated:
        statements.append(Statement("repeated_questions", "serious", {"rows": read.repeated}))
    if read.several_replies:
        statements.append(Statement("several_replies", "serious", {"samples": read.several_replies}))
    if read.overruled:
        statements.append(Statement("overruled_grades", "note", {"grades": read.overruled}))
    if read.incomplete is not None:
        statements.append(incomplete_log(vars(read.incomplete)))
    if read.compared_likelihoods:
        statements.append(Statement("compared_likelihoods", "serious"))
    lost = sum(bool(first.question.aliases or first.question.choices) for first in read.passes if first.needs_forcing)
    if lost:
        statements.append(Statement("not_in_table", "note", {"questions": lost}))
    return tuple(statements)


FLAGS = ("refused", "answered", "correct", "incorrect")
"""Roles of flags that give the grade."""


def _columns_read(columns: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns of the gold answer, the reply and the grade; a grade without one is read from flags."""
    flags = [columns[role] for role in FLAGS if role in columns]
    grade = [columns["grade"]] if "grade" in columns else flags
    return {"answer": columns.get("answer"), "reply": columns.get("reply"), "grade": grade}


def _role(read: FirstPasses) -> str:
    """Return as what an unused column can be named; see `not_used`."""
    if read.is_fixed:
        return "none"
    return "grade" if read.grade_columns else "column"


def not_used(columns: Sequence[str], role: str = "column", name: str = "") -> Statement:
    """Return the note about columns that were not used.

    - `role`: ``"grade"`` or ``"scorer"`` if `name` can be chosen as that, ``"column"`` if any can be named by its role,
      ``"none"`` if no other column can be read.
    """
    return Statement("not_used", "note", {"columns": columns, "role": role, "name": name})


def empty_replies(grades: int) -> Statement:
    """Return the note about grades that were not used because their replies are empty."""
    return Statement("empty_replies", "serious", {"grades": grades})
