"""The choices of a question and the key that says which of them is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refusal_index.datasets.cells import list_cell, not_a_list, parsed
from refusal_index.outcomes.errors import shortened
from refusal_index.outcomes.question import LETTERS
from refusal_index.outcomes.source import Row


@dataclass(frozen=True)
class Choices:
    """The answers to choose from, and what the source itself calls them, where it does."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()

    def keyed(self, key: str) -> str | None:
        """Return the choice that `key` points to: by the source's label, by its text or by its letter.

        A number is no letter: nobody knows whether it counts from 0 or from 1.

        Examples
        --------
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
    return Choices(tuple(str(text).strip() for text in texts), tuple(str(label).strip() for label in labels))


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
