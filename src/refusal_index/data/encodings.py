"""Encodings of text files."""

from __future__ import annotations

import codecs
import re

from refusal_index.errors import TableError, shortened

UTF_8 = "utf-8"


def checked_encoding(name: str, error: type[TableError]) -> str:
    """Return the encoding of a text file; raises `error` if it is unknown, or its line ends are not single bytes."""
    try:
        ends = "\n".encode(name)
    except (LookupError, UnicodeError):
        ends = b""
    if ends != b"\n":
        raise error(f"encoding: expected utf-8, latin-1, cp1252 or the like, got {name!r}; save the file as UTF-8")
    return codecs.lookup(name).name


def other_encoding(encoding: str, error: UnicodeDecodeError) -> str:
    """Return the message for a line in another encoding, with one that old spreadsheets write.

    - `encoding`: the encoding that was tried.
    """
    line = error.object
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in line:
        return "expected text in UTF-8, got UTF-16; save it as UTF-8"
    # the bytes from 0x80 to 0x9f are control characters in Latin-1, and quotation marks in Windows' code page
    other = "cp1252" if any(0x80 <= byte < 0xA0 for byte in line) else "latin-1"
    word = next(word for word in re.split(rb"[\s,;\"]+", line) if not word.isascii())
    return (
        f"expected text in {encoding.upper()}, got other bytes; if {shortened(word.decode(other, 'replace'))} "
        f"is right, add --encoding {other}, otherwise save it as UTF-8"
    )
