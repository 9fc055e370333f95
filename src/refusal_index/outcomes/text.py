"""Text that every file, request and table can hold."""

from __future__ import annotations

from collections.abc import Iterable

from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.errors import shortened

NUL = "\0"


def sound_text(text: str) -> str:
    """Replace halves of surrogate pairs by U+FFFD.

    A reply cut inside an emoji can hold one, and so can JSON; no file format of a table and no request can.

    >>> sound_text("cut " + chr(0xD83D)) == "cut " + chr(0xFFFD)
    True
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def wrong_id(question_id: str) -> str | None:
    r"""Say what is wrong with the id of a question, if anything is: what cannot be written down names nothing.

    >>> wrong_id("a\0b")
    "expected an id without NUL, got 'a\\x00b'; remove that character"
    """
    if NUL in question_id:
        what = "NUL"
    elif not question_id.isascii() and question_id != sound_text(question_id):
        what = "halves of surrogate pairs"
    else:
        return None
    return f"expected an id without {what}, got {shortened(question_id)}; remove that character"


def check_ids(ids: Iterable[str], name: str, error: type[RefusalIndexError]) -> None:
    """Raise if some id could not be written down, so that nothing is paid for what could not be kept."""
    for question_id in ids:
        if (said := wrong_id(question_id)) is not None:
            raise error(f"{name}, question_id: {said}")
