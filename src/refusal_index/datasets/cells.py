"""What a cell holds: text, a list of texts, or yes or no. Each reader raises for anything else."""

from __future__ import annotations

import json
import math
from typing import Any

from refusal_index.outcomes.errors import TableError, shortened
from refusal_index.outcomes.source import Row
from refusal_index.outcomes.tabular import TRUTH


def text_cell(row: Row, column: str) -> str:
    """Read one text, without surrounding white space; empty where the cell is."""
    value = _value(row, column)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value).strip()
    said = f"expected text, got {shortened(value)}; write one text, and further answers into a column of aliases"
    raise row.wrong(said, column)


def list_cell(row: Row, column: str) -> tuple[str, ...]:
    """Read a JSON list of texts, or texts separated by ``|``."""
    value = _value(row, column)
    if isinstance(value, str):
        text = value.strip()
        value = parsed(row, column, text) if text.startswith("[") else text.split("|") if text else None
    if not isinstance(value, list | None) or any(isinstance(item, list | dict) for item in value or ()):
        raise not_a_list(row, column, value)
    return tuple("" if item is None else str(item).strip() for item in value or ())


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
