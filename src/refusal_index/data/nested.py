"""Values inside nested cells, named by paths such as ``answers.text``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def with_paths(cells: Mapping[str, Any], paths: Iterable[str]) -> Mapping[str, Any]:
    """Return the cells of a record, with one more for each path that exists.

    >>> with_paths({"result": {"grades": ["A"]}}, ["result.grades.0", "result.x"])
    {'result': {'grades': ['A']}, 'result.grades.0': 'A'}
    """
    found = {path: reached(cells, path.split(".")) for path in paths}
    return {**cells, **{path: value for path, value in found.items() if value is not None}}


def reached(value: Any, steps: Sequence[str]) -> Any:
    """Return the value at a path through objects and lists, including JSON in texts; None if there is none."""
    for step in steps:
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return None
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def nested_columns(cells: Mapping[str, Any]) -> list[str]:
    """Return the paths of the values in the cells of a row that are objects.

    >>> nested_columns({"id": 1, "answers": {"text": ["Ann"], "start": [4]}})
    ['answers.text', 'answers.start']
    """
    return [f"{name}.{key}" for name, cell in cells.items() if isinstance(cell, Mapping) for key in cell]
