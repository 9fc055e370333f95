"""The grade in flags that other tools write beside a reply, or as parts of a score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refusal_index.data.cells import FLAG
from refusal_index.data.graded import COLUMNS
from refusal_index.data.outcome import Grade
from refusal_index.data.tables import plain_name

FLAGS = {
    **dict.fromkeys(COLUMNS["correct"].names, (True, Grade.CORRECT)),
    **dict.fromkeys(COLUMNS["incorrect"].names, (True, Grade.INCORRECT)),
    **dict.fromkeys(COLUMNS["refused"].names, (True, Grade.REFUSED)),
    **dict.fromkeys(COLUMNS["answered"].names, (False, Grade.REFUSED)),
}
"""Parts of a score that together give the grade: the value of each, and the grade that it stands for."""


def grade_of_flags(value: Mapping[str, Any]) -> Grade | None:
    """Return the grade in the parts of a score; raises ValueError if they give none, or several.

    >>> grade_of_flags({"is_correct": 0, "is_not_attempted": 1})
    <Grade.REFUSED: 'refused'>
    """
    parts = {plain_name(name): part for name, part in value.items()}
    if not FLAGS.keys() & parts.keys():
        raise ValueError(f"expected a grade, or the parts correct, incorrect and not_attempted, got {', '.join(value)}")
    flags = {name: _flag(name, parts[name]) for name in FLAGS if name in parts}
    grades = {FLAGS[name][1] for name, flag in flags.items() if flag is FLAGS[name][0]}
    if len(grades) > 1:
        raise ValueError(f"expected one grade, got {' and '.join(sorted(grades))}")
    if grades:
        return grades.pop()
    # without a part for wrong answers, an answer that is not right is wrong
    is_only_right = any(FLAGS[name][1] is Grade.CORRECT for name in flags) and not any(
        FLAGS[name][1] is Grade.INCORRECT for name in flags
    )
    is_wrong = is_only_right and not any(flag is None for flag in flags.values())
    return Grade.INCORRECT if is_wrong else None


def _flag(name: str, value: Any) -> bool | None:
    """Return a truth value; raises ValueError if it is not one."""
    try:
        flag: bool | None = FLAG(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return flag
