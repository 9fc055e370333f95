"""Grades as other tools write them: the words that are known, and how a column of them is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from refusal_index.data.cells import FLAG, NOTHING, Kind
from refusal_index.data.outcome import Grade
from refusal_index.errors import TableError, listed

Vocabulary = Mapping[str, Grade]
"""Grades by word, in lower case, with underscores in place of spaces and dashes."""

Translations = Mapping[str, str]
"""What to read words of a file as, in place of a grade; keys in lower case."""

WORDS: Vocabulary = {
    **dict.fromkeys(("correct", "right"), Grade.CORRECT),
    **dict.fromkeys(("incorrect", "wrong"), Grade.INCORRECT),
    **dict.fromkeys(("not_attempted", "unattempted", "refused", "refusal", "refuse", "refuses"), Grade.REFUSED),
    **dict.fromkeys(("abstained", "abstain", "abstains", "abstention", "declined", "unanswered"), Grade.REFUSED),
    "unscored": Grade.UNSCORED,
}
"""Unambiguous words for grades."""

RIGHT_OR_WRONG: Vocabulary = {
    **{word: Grade.CORRECT if flag else Grade.INCORRECT for word, flag in FLAG.words.items() if word not in "tyfn"},
    **dict.fromkeys(("pass", "passed"), Grade.CORRECT),
    **dict.fromkeys(("fail", "failed"), Grade.INCORRECT),
}
"""Marks for right and wrong only."""


ANSWERED = "answered"
"""The meaning of a word for an answer without a grade."""

MEANINGS = (*(grade.value for grade in Grade), ANSWERED)
"""What the user can map a word to."""

SHOWN = ("correct", "incorrect", "not_attempted", "refused", "unscored", "1", "0", "true", "false")
"""The words that a message names; the others are synonyms."""

MANY_WORDS = 10
"""A column with more unknown words than this hardly holds grades."""


def grade_kind(*vocabularies: Vocabulary) -> Kind:
    """Return a kind of cell that holds a grade in these words.

    >>> grade_kind(WORDS)("Not attempted")
    <Grade.REFUSED: 'refused'>
    """
    words = {word: grade for vocabulary in vocabularies for word, grade in vocabulary.items()}
    shown = [word for word in words if word in SHOWN or (len(word) == 1 and word.isascii())]
    return Kind(f"a grade out of {', '.join(word.upper() for word in shown)} (in any case) or nothing", words)


# the letters of SimpleQA's grader: C is NOT_ATTEMPTED
GRADE = grade_kind(WORDS, {"a": Grade.CORRECT, "b": Grade.INCORRECT, "c": Grade.REFUSED}, RIGHT_OR_WRONG)
"""The grades that a column can contain, if its letters are those of SimpleQA."""

# the letters of Inspect's scores: C is CORRECT, N is NO ANSWER
INSPECT_GRADE = grade_kind(WORDS, {"c": Grade.CORRECT, "i": Grade.INCORRECT, "n": Grade.REFUSED}, RIGHT_OR_WRONG)
"""The same with the letters of Inspect."""


def single(cell: Any) -> Any:
    """Return the only value of a list, also if it is written as JSON; any other cell as it is.

    >>> single(["C"]), single('["C", "C"]'), single(["A", "B"])
    ('C', 'C', ['A', 'B'])
    """
    value = cell
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            value = json.loads(cell)
    if not isinstance(value, list):
        return cell
    if not value:
        return None
    return single(value[0]) if all(item == value[0] for item in value) else cell


def _word(cell: Any) -> str:
    return "" if cell is None else str(cell).strip().casefold()


def translated(value: Any, words: Translations) -> Any:
    """Return the translation of a value in `words`; the value itself if there is none.

    >>> translated(" Pass ", {"pass": "refused"}), translated(1, {"pass": "refused"})
    ('refused', 1)
    """
    return words.get(_word(value), value) if words else value


def without_answered(cells: Sequence[Any], words: Translations) -> tuple[list[Any], list[bool]]:
    """Return the cells of a column with None for those that only say that the model answered, and which these are."""
    is_answered = [translated(single(cell), words) == ANSWERED for cell in cells]
    return [None if answered else cell for cell, answered in zip(cells, is_answered, strict=True)], is_answered


def read_grades(
    cells: Sequence[Any],
    words: Translations,
    location: Callable[[int, str], TableError],
    inspect_letters: bool | None = None,
    *,
    of_scorer: bool = False,
) -> list[Grade | None]:
    """Return the grade in every cell of a column, None for an empty cell.

    The letter C means CORRECT for Inspect and NOT_ATTEMPTED for SimpleQA, so all letters of the column decide. Raises
    FirstPassError for the first cell that is not a grade; its `unknown_words` are all such words of the column.

    - `cells`: texts, numbers, truth values, or lists of one of them.
    - `words`: translations of words.
    - `location`: returns an error, given the index of a cell and a message.
    - `inspect_letters`: whether a C without A, B, I or N means CORRECT.
    - `of_scorer`: whether the cells are scores, of which ``--scorer`` chooses others, rather than those of a column.
    """
    values = [translated(single(cell), words) for cell in cells]
    kind = _kind_of(values, is_default_inspect=bool(inspect_letters))
    grades: list[Grade | None] = []
    unknown: dict[str, int] = {}
    for index, value in enumerate(values):
        try:
            grades.append(kind(value))
        except ValueError:
            grades.append(None)
            unknown.setdefault(_word(value), index)
    if unknown:
        raise _unknown_words(kind, values, unknown, location, of_scorer=of_scorer)
    return grades


def _kind_of(values: Iterable[Any], *, is_default_inspect: bool) -> Kind:
    """Return the kind of grades of a column by the letters that occur in it."""
    letters = {_word(value) for value in values} & {"a", "b", "i", "n"}
    if letters & {"a", "b"}:
        return GRADE
    return INSPECT_GRADE if letters or is_default_inspect else GRADE


def _unknown_words(
    kind: Kind,
    values: Sequence[Any],
    unknown: Mapping[str, int],
    location: Callable[[int, str], TableError],
    *,
    of_scorer: bool,
) -> TableError:
    """Return the error for a column with words that are not grades."""
    first = next(iter(unknown.values()))
    message = kind.wrong(values[first])
    remedy: tuple[str, ...]
    is_nested = any(isinstance(values[index], list | dict) for index in unknown.values())
    are_numbers = all(map(_is_number, unknown))
    threshold = "; no threshold is assumed" if are_numbers else ""
    if of_scorer and (is_nested or len(unknown) > MANY_WORDS):
        advice = f"{threshold}; choose scores of right and wrong"
        remedy = "scorer", "NAME"
    elif is_nested:
        advice = "; name one value by its path"
        remedy = "column", "grade=NAME.0"
    elif len(unknown) > MANY_WORDS:
        advice = f"{threshold}; the column has {len(unknown):,} such values, so it may hold no grades: name another"
        remedy = "column", "grade=NAME"
    else:
        words = [str(values[index]).strip() for index in unknown.values()]
        others = f"; also unknown: {listed(words[1:])}" if len(words) > 1 else ""
        advice = f"{others}{threshold}; say what each means, one of {', '.join(MEANINGS)},"
        remedy = "map", *(f"{word}=GRADE" for word in words)
    return location(first, message + advice).with_remedy(*remedy)


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-?\d*[.,]?\d+%?", word) is not None


def are_grades(cells: Iterable[Any]) -> bool:
    """Whether a column holds unambiguous words for grades, and nothing else.

    >>> are_grades(["Correct", "", "not_attempted"]), are_grades(["correct", "blue"]), are_grades([""])
    (True, False, False)
    """
    kind = grade_kind(WORDS)
    has_any = False
    for cell in cells:
        value = single(cell)
        if isinstance(value, str | None):
            word = _word(value).replace(" ", "_").replace("-", "_")
            if word in NOTHING:
                continue
            if word in kind.words:
                has_any = True
                continue
        return False
    return has_any
