"""Text from outside: lone surrogates, and TOML and regular expressions from users."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from functools import lru_cache
from typing import Any

import regex

from refusal_index.errors import RefusalIndexError, shortened

NUL = "\0"


def sound_text(text: str) -> str:
    """Replace lone surrogates by U+FFFD.

    A reply that was cut inside an emoji can contain one, and so can JSON; table formats and requests cannot.

    >>> sound_text("cut " + chr(0xD83D)) == "cut " + chr(0xFFFD)
    True
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def plain_text(text: str) -> str:
    """Return a text with single spaces and without capitals, for comparisons."""
    return " ".join(text.split()).casefold()


def parse_toml(content: bytes) -> dict[str, Any]:
    """Parse a TOML document; raises ValueError if it is not valid, or nested too deeply.

    >>> parse_toml(b"limit = 30")
    {'limit': 30}
    """
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def folded(text: str) -> str:
    """Return `text` in lower case, without accents and invisible characters such as soft hyphens.

    >>> folded("Élysée")
    'elysee'
    """
    plain = unicodedata.normalize("NFKD", text).casefold()
    if plain.isascii():
        return plain
    silent = (sign for sign in set(plain) if unicodedata.combining(sign) or unicodedata.category(sign) == "Cf")
    return plain.translate(dict.fromkeys(map(ord, silent)))


BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and symbols that show nothing: the fillers of Hangul, and the empty pattern of Braille."""


def is_blank(text: str | None) -> bool:
    r"""Whether a text is missing, or shows nothing: white space, control, format and combining characters only.

    >>> is_blank(None), is_blank(" \u200b\n"), is_blank("?")
    (True, True, False)
    """
    return not any(unicodedata.category(character)[0] in "LNPS" and character not in BLANK for character in text or "")


def wrong_id(question_id: str) -> str | None:
    r"""Return why a question id cannot be used: it contains NUL or lone surrogates; None if it is valid.

    >>> wrong_id("a\0b")
    "expected an id without NUL, got 'a\\x00b'; remove that character"
    """
    if NUL in question_id:
        problem = "NUL"
    elif not question_id.isascii() and question_id != sound_text(question_id):
        problem = "lone surrogates"
    else:
        return None
    return f"expected an id without {problem}, got {shortened(question_id)}; remove that character"


SECONDS = 1.0
"""Time limit of one match in seconds; ordinary patterns take microseconds."""

MAX_PARTS = 100_000
"""Maximum number of parts of a pattern with its repetitions expanded, which `regex` keeps in memory."""

TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?P<times>\d+)(?:,\d*)?\}|.", re.DOTALL)


class PatternError(RefusalIndexError, ValueError):
    """A pattern that is not a valid regular expression, or needs too much memory; the message says which."""


def matches(pattern: str, text: str) -> bool:
    r"""Whether a pattern matches a whole text; case is ignored, and a dot matches line breaks.

    Raises PatternError if the pattern is invalid, and TimeoutError if the match takes longer than `SECONDS`.

    >>> matches(r"(in )?(may )?\d+", "In May 1945")
    True
    """
    return compiled(pattern).fullmatch(text, timeout=SECONDS) is not None


@lru_cache(maxsize=1000)
def compiled(pattern: str) -> regex.Pattern[str]:
    """Compile a pattern, or raise PatternError.

    >>> compiled("(")
    Traceback (most recent call last):
    ...
    refusal_index.data.text.PatternError: missing ) at position 1
    """
    if (parts := _parts(pattern)) > MAX_PARTS:
        raise PatternError(f"its repetitions written out have {parts:,} parts, more than {MAX_PARTS:,}")
    try:
        return regex.compile(pattern, regex.IGNORECASE | regex.DOTALL)
    except (regex.error, RecursionError) as error:
        raise PatternError(str(error)) from error


def _parts(pattern: str) -> int:
    """Count the parts of a pattern, repeated parts as often as they must match."""
    groups = [0]
    last = 0
    for token in TOKEN.finditer(pattern):
        if token[0] == "(":
            groups.append(0)
        elif token[0] == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        else:
            more = last * (int(token["times"]) - 1) if token["times"] else 1
            groups[-1] += max(more, 0)
            last = last + more if token["times"] else 1
    return sum(groups)
