"""Text of others on the terminal."""

from __future__ import annotations

import unicodedata

OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # controls, direction marks, halves of pairs, line separators


def harmless(text: str) -> str:
    r"""Return `text` with control and direction characters shown as escapes, so that a terminal does not obey them.

    Examples
    --------
    >>> harmless('a\x1b[31mb')
    'a\\x1b[31mb'
    """
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in OBEYED else character
        for character in text
    )
