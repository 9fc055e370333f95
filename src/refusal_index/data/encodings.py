"""Encodings of text files."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping

from refusal_index.errors import TableError, shortened

UTF_8 = "utf-8"

MARKED: Mapping[bytes, str] = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by the byte order mark at the start of a file; that of UTF-32 may begin like that of UTF-16."""


def checked_encoding(name: str, error: type[TableError]) -> str:
    """Return the encoding of a text file; raises `error` if it is unknown."""
    try:
        "\n".encode(name)
        return codecs.lookup(name).name
    except (LookupError, UnicodeError):
        raise error(
            f"encoding: expected utf-8, latin-1, cp1252 or the like, got {name!r}; save the file as UTF-8"
        ) from None


def encoding_of(start: bytes, encoding: str) -> str:
    """Return the encoding in which to read a file that begins with these bytes.

    - `encoding`: the encoding that was chosen; a byte order mark takes the place of the usual one.

    >>> encoding_of("\ufeffid".encode("utf-16-be"), "utf-8"), encoding_of(b"id", "utf-8")
    ('utf-16', 'utf-8-sig')
    """
    if encoding != UTF_8:
        return encoding
    return next((name for mark, name in MARKED.items() if start.startswith(mark)), "utf-8-sig")


def wrong_encoding(error: UnicodeDecodeError) -> tuple[str, str]:
    """Return the message for text in another encoding, and one that it may have, as old spreadsheets write it."""
    text = error.object
    if b"\0" in text:
        return "save it as UTF-8; if it is UTF-16", "utf-16-be" if text.startswith(b"\0") else "utf-16-le"
    begins = text.rfind(b"\n", 0, error.start) + 1
    line, _, _ = text[begins:].partition(b"\n")
    # the bytes from 0x80 to 0x9f are control characters in Latin-1, and quotation marks in Windows' code page
    other = "cp1252" if any(0x80 <= byte < 0xA0 for byte in line) else "latin-1"
    word = next((word for word in re.split(rb"[\s,;\"]+", line) if not word.isascii()), line)
    shown = shortened(word.decode(other, "replace"))
    return f"save it as UTF-8, or name its encoding, such as shift_jis, gbk or cp1251; if {shown} is right", other
