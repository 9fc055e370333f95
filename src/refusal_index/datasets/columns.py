"""Which column holds what: as the user says, or under its usual names.

What a cell holds: text, a list of texts, or yes or no. Each reader raises for anything else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refusal_index.outcomes.errors import TableError, nearest, shortened, suggestion
from refusal_index.outcomes.files import sound_text, wrong_id
from refusal_index.outcomes.outcome import LETTERS
from refusal_index.outcomes.settings import Row, Source, present_columns
from refusal_index.outcomes.tabular import TRUTH

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


def text_cell(row: Row, column: str) -> str:
    """Read one text, without surrounding white space; empty where the cell is."""
    value = row.cells.get(column)
    if isinstance(value, str):
        return sound_text(value).strip()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    said = f"expected text, got {shortened(value)}; write one text, and further answers into a column of aliases"
    raise row.wrong(said, column)


def id_cell(row: Row, column: str) -> str:
    """Read an id, which must be one that can be written down."""
    value = _value(row, column)
    if isinstance(value, str) and (said := wrong_id(value)) is not None:
        raise row.wrong(f"{said}, or remove the column to have ids made of the texts", column)
    return text_cell(row, column)


def list_cell(row: Row, column: str) -> tuple[str, ...]:
    """Read a JSON list of texts, or texts separated by ``|``."""
    value = _value(row, column)
    if isinstance(value, str):
        text = value.strip()
        value = parsed(row, column, text) if text.startswith("[") else text.split("|") if text else None
    if not isinstance(value, list | None) or any(isinstance(item, list | dict) for item in value or ()):
        raise not_a_list(row, column, value)
    return tuple("" if item is None else sound_text(str(item)).strip() for item in value or ())


def answers_cell(row: Row, column: str) -> tuple[str, ...]:
    """Read the gold answer, or a list of accepted answers with the gold one first; an empty cell holds none."""
    if isinstance(_value(row, column), list):
        return tuple(filter(None, list_cell(row, column)))
    answer = text_cell(row, column)
    return (answer,) if answer else ()


def flag_cell(row: Row, column: str) -> bool:
    """Read true or false, yes or no, 1 or 0."""
    truth = TRUTH.get(text_cell(row, column).casefold())
    if truth is None:
        raise row.wrong(f"expected true or false, got {shortened(_value(row, column))}", column)
    return truth


def parsed(row: Row, column: str, text: str) -> Any:
    """Read JSON inside a cell."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise not_a_list(row, column, text) from error


def not_a_list(row: Row, column: str, value: object) -> TableError:
    """Say what a list in a cell looks like."""
    said = f'expected a JSON list or texts separated by |, got {shortened(value)}; write ["one", "two"] or one|two'
    return row.wrong(said, column)


def _value(row: Row, column: str) -> Any:
    """Give a cell as it stands; a number that is none is nothing."""
    value = row.cells.get(column)
    return None if isinstance(value, float) and math.isnan(value) else value


@dataclass(frozen=True)
class Choices:
    """The answers to choose from, and what the source itself calls them, where it does."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()

    def keyed(self, key: str) -> str | None:
        """Return the choice that `key` points to: by the source's label, by its text or by its letter.

        A number is no letter: nobody knows whether it counts from 0 or from 1.

        >>> Choices(("Cuzco", "Lima")).keyed("B"), Choices(("2", "1"), ("1", "2")).keyed("1")
        ('Lima', '2')
        >>> Choices(("Cuzco", "Lima")).keyed("1") is None
        True
        """
        folded = [text.casefold() for text in self.texts]
        for names in (self.labels, self.texts):
            if key in names:
                return self.texts[names.index(key)]
        if key.casefold() in folded:
            return self.texts[folded.index(key.casefold())]
        letters = () if self.labels else tuple(LETTERS[: len(self.texts)])
        return self.texts[letters.index(key.upper())] if key.upper() in letters else None


def choices_cell(row: Row, column: str) -> Choices | None:
    """Read the choices of a row: a JSON list, texts separated by ``|``, or labels and texts; None if there are none.

    Raises TableError if there is only one, there are more than letters, two are the same, or one is called like
    another.
    """
    value = row.cells.get(column)
    if isinstance(value, str) and value.strip().startswith("{"):
        value = parsed(row, column, value.strip())
    choices = _labelled(row, column, value) if isinstance(value, dict) else Choices(list_cell(row, column))
    if not choices.texts:
        return None
    if (said := _wrong(choices.texts)) is not None:
        raise row.wrong(said, column)
    return choices


def _labelled(row: Row, column: str, value: dict[str, object]) -> Choices:
    labels, texts = value.get("label"), value.get("text")
    if not (isinstance(labels, list) and isinstance(texts, list) and len(labels) == len(texts)):
        raise not_a_list(row, column, value)
    text, label = ([sound_text(str(each)).strip() for each in some] for some in (texts, labels))
    return Choices(tuple(text), tuple(label))


def _wrong(texts: Sequence[str]) -> str | None:
    """Say what is wrong with choices, if anything is."""
    if not 2 <= len(texts) <= len(LETTERS):
        return f"expected from 2 to {len(LETTERS)} choices, got {len(texts)}"
    if len({text.casefold() for text in texts}) < len(texts) or "" in texts:
        return f"expected every choice once and none empty, got {shortened(list(texts))}; remove what is too much"
    letters = LETTERS[: len(texts)]
    for letter, text in zip(letters, texts, strict=True):
        if text.upper() in set(letters) - {letter}:
            return f"choice {letter} reads {shortened(text)}, which is the letter of another; reword the choices"
    return None
