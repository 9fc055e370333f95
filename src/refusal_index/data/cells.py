"""Kinds of cells: truth values, numbers, and words, as people and programs write them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from refusal_index.errors import shortened

NOTHING = ("", "nan", "na", "null", "none", "n/a", "#n/a", "<na>")
"""Words of pandas, R, SQL and spreadsheets for an empty cell of truth values, grades or numbers, in lower case."""


@dataclass(frozen=True)
class Kind:
    """A type of cells: one of `words`, or a number if there are none; an empty cell means None."""

    expected: str  # in words
    words: Mapping[str, Any] = field(default_factory=dict)  # values by word, in lower case
    advice: str = ""
    # low, high: range of a number
    low: float = -math.inf
    high: float = math.inf
    is_whole: bool = False

    def __call__(self, cell: Any) -> Any:
        """Return the value of a cell; raises ValueError if it is not of this kind.

        >>> FLAG("Yes"), FLAG(None), PROBABILITY(" 0.5 ")
        (True, None, 0.5)
        """
        word = "" if cell is None else str(cell).strip().casefold()
        if word in NOTHING:
            return None
        if (key := re.sub("[ -]", "_", word.strip("().")) if self.words else word) in self.words:
            return self.words[key]
        with suppress(ValueError):
            number = math.nan if self.words else float(word.replace(",", ".") if self.high == 1 else word)
            if self.low <= number <= self.high and (number == number // 1 or not self.is_whole):
                return int(number) if self.is_whole else number
        raise ValueError(self.wrong(cell))

    def wrong(self, cell: Any) -> str:
        """Return the message for a cell that is not of this kind."""
        return f"expected {self.expected}, got {shortened(cell)}{self.advice and f'; {self.advice}'}"


# in German, French, Spanish, Italian, Portuguese, Dutch, Polish, Russian, Chinese and Japanese
YES = (
    *("ja", "wahr", "richtig", "oui", "vrai", "sí", "si", "verdadero", "sì", "vero", "sim", "verdadeiro", "waar"),
    *("tak", "prawda", "да", "истина", "是", "真", "はい", "✓", "✔", "✅"),
)
NO = (
    *("nein", "falsch", "non", "faux", "falso", "não", "nao", "nee", "onwaar", "nie", "fałsz", "нет", "ложь"),
    *("否", "假", "いいえ", "✗", "✘", "❌"),
)
"""Words and marks for true and false as people and spreadsheets of other languages write them, in lower case."""

FLAG = Kind(
    "true, false, 1, 0, yes, no or nothing",
    # pandas writes a column of 0 and 1 with gaps as "0.0" and "1.0"
    {
        **dict.fromkeys(("true", "t", "1", "yes", "y", "1.0", "1,0", *YES), True),
        **dict.fromkeys(("false", "f", "0", "no", "n", "0.0", "0,0", *NO), False),
    },
    "write true or false; where neither is known, leave the cell empty",
)
NUMBER = Kind("a number", advice="write it with a point, as in 2.5")
PROBABILITY = Kind(
    "a probability in [0, 1]",
    advice="divide a percentage by 100, and take the exponential of a log probability",
    low=0,
    high=1,
)
WHOLE = Kind("a whole number", advice="write digits only", is_whole=True)
