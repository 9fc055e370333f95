"""The words of others for grades."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from refusal_index.datasets.imports.first_pass import FirstPassError
from refusal_index.outcomes.errors import shortened
from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.tabular import NOTHING, TRUTH

Vocabulary = Mapping[str, Grade]

WORDS: Vocabulary = {
    "CORRECT": Grade.CORRECT,
    "INCORRECT": Grade.INCORRECT,
    "NOT_ATTEMPTED": Grade.REFUSED,
    "REFUSED": Grade.REFUSED,
    "UNSCORED": Grade.UNSCORED,
}
"""Words that are clear anywhere, in any case, with a space or a dash in place of the underscore too."""

RIGHT_OR_WRONG: Vocabulary = {
    **dict.fromkeys(("1", "1.0", "TRUE"), Grade.CORRECT),
    **dict.fromkeys(("0", "0.0", "FALSE"), Grade.INCORRECT),
}
"""A mark that knows right and wrong only."""

SIMPLEQA_LETTERS: Vocabulary = {"A": Grade.CORRECT, "B": Grade.INCORRECT, "C": Grade.REFUSED}
"""The letters of SimpleQA's grader: C is NOT_ATTEMPTED."""

INSPECT_LETTERS: Vocabulary = {"C": Grade.CORRECT, "I": Grade.INCORRECT, "N": Grade.REFUSED}
"""The letters of Inspect's scores: C is CORRECT, N is NO ANSWER."""

GRADED: Vocabulary = {**WORDS, **SIMPLEQA_LETTERS, **RIGHT_OR_WRONG}
"""What a column of grades may hold."""


Translations = Mapping[str, str]
"""Words of a file, in lower case, and what they are to be read as."""

MEANINGS = (*(grade.value for grade in Grade), "true", "false")
"""What a word may be read as."""


def translated(value: Any, words: Translations) -> Any:
    """Return what a value is to be read as: itself where nobody said otherwise.

    >>> translated(" Pass ", {"pass": "refused"}), translated(1, {"pass": "refused"})
    ('refused', 1)
    """
    return words.get(str(value).strip().casefold(), value) if words and value is not None else value


def read_grade(value: Any, vocabulary: Vocabulary, place: str) -> Grade | None:
    """Return the grade that a value stands for, or None for an empty one.

    Raises FirstPassError if the word is not known; the message names the known ones.

    - `value`: as the file holds it.
    - `vocabulary`: the words it may use, in capitals.
    - `place`: for messages: the file, the line and the column.

    >>> read_grade("not attempted", GRADED, "x.csv, line 2")
    <Grade.REFUSED: 'refused'>
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    word = str(value).strip().upper().replace(" ", "_").replace("-", "_")
    if word.lower() in NOTHING:
        return None
    if word not in vocabulary:
        raise FirstPassError(
            f"{place}: expected a grade out of {', '.join(vocabulary)} (in any case) or nothing, "
            f"got {shortened(value)}; translate it into one of these first"
        )
    return vocabulary[word]


def flag(value: Any, place: str) -> bool | None:
    """Return a yes or no, or None for an empty value.

    Raises FirstPassError if it is neither.

    >>> flag("True", "x.csv, line 2"), flag("", "x.csv, line 3")
    (True, None)
    """
    word = "" if value is None else str(value).strip().casefold()
    if word in NOTHING:
        return None
    if word not in TRUTH:
        raise FirstPassError(f"{place}: expected true, false, 1, 0, yes, no or nothing, got {shortened(value)}")
    return TRUTH[word]
