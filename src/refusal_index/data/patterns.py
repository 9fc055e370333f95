"""Regular expressions that users give, in the dialect of the library `regex`, matched within a time limit."""

from __future__ import annotations

import re
from functools import lru_cache

import regex

from refusal_index.errors import RefusalIndexError

SECONDS = 1.0
"""Time limit of one match: ordinary patterns take microseconds."""

MOST_PARTS = 100_000
"""Most parts of a pattern with its repetitions written out, as `regex` holds them in memory."""

TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?P<times>\d+)(?:,\d*)?\}|.", re.DOTALL)


class PatternError(RefusalIndexError, ValueError):
    """A pattern that is no regular expression, or needs too much memory; the message says why."""


def matches(pattern: str, text: str) -> bool:
    r"""Whether a pattern matches a text from end to end, case ignored and line breaks matched by a dot.

    Raises PatternError if it is no pattern, and TimeoutError if the match takes longer than `SECONDS`.

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
    refusal_index.data.patterns.PatternError: missing ) at position 1
    """
    if (parts := _parts(pattern)) > MOST_PARTS:
        raise PatternError(f"its repetitions written out have {parts:,} parts, more than {MOST_PARTS:,}")
    try:
        return regex.compile(pattern, regex.IGNORECASE | regex.DOTALL)
    except (regex.error, RecursionError) as error:
        raise PatternError(str(error)) from error


def _parts(pattern: str) -> int:
    """Count the parts of a pattern, those that must be repeated as often as they must."""
    groups, last = [0], 0
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
