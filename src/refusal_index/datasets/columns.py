"""Which column holds what: as the user says, or under its usual names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from refusal_index.outcomes.errors import TableError, nearest, suggestion
from refusal_index.outcomes.source import Row, Source, present_columns

Names = Mapping[str, Sequence[str]]
"""Usual column names by role, in lower case; they are found in any case."""


def resolve_columns(
    source: Source, present: Collection[str], given: Mapping[str, str], usual: Names, *, strict: bool = False
) -> dict[str, str]:
    """Find the column of every role that has one.

    Raises TableError if a role is not known, or a column that was named is not there.

    - `source`: for messages.
    - `present`: the columns that are there.
    - `given`: column by role, as the user says; the other roles are looked for under their usual names.
    - `usual`: the roles with their usual names; the first that is there counts.
    - `strict`: whether two columns of usual names for one role are an error.

    >>> usual = {"question": ("question", "problem"), "grade": ("grade", "verdict")}
    >>> source = Source("x.csv", "csv", "answer", TableError)
    >>> resolve_columns(source, ["Problem", "my_grade"], {"grade": "my_grade"}, usual)
    {'question': 'Problem', 'grade': 'my_grade'}
    """
    for role, column in given.items():
        if role not in usual:
            said = f"columns (--column): expected roles out of {', '.join(usual)}, got {role!r}"
            raise source.error(said + suggestion(role, usual))
        if column not in present:
            raise missing_column(source, present, role, column)
    taken = () if strict else given.values()  # what was pointed out as something else
    free = [column for column in present if column not in taken]
    found = {}
    for role, names in usual.items():
        columns = [column for name in names for column in free if column.casefold() == name]
        if role in given:
            found[role] = given[role]
        elif strict and len(columns) > 1:
            said = f"both {columns[0]!r} and {columns[1]!r} could hold the {role}; say which, for instance "
            raise source.wrong(f"{said}{role}={columns[0]}")
        elif columns:
            found[role] = columns[0]
    return found


def missing_column(source: Source, present: Collection[str], role: str, column: str) -> TableError:
    """Return the error for a column that is not there."""
    guess = nearest(column, present)
    advice = f"{suggestion(column, present) or ';'} say which column it is with --column {role}={guess or 'NAME'}"
    return source.lacks(f"a column {column!r} with the {role}", present, advice)


def check_columns(rows: Sequence[Row], needed: Collection[str], dataset: str) -> None:
    """Raise where a copy of a dataset lacks one of its columns."""
    present = present_columns(rows)
    for column in needed:
        if column not in present:
            expected = f"the columns of {dataset}, among them {column!r}"
            raise rows[0].source.lacks(expected, present, "; is it another file?")
