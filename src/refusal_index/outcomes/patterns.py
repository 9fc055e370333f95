r"""Regular expressions of others, matched within a time limit.

A pattern means what it means to Python's `re`, which also says whether it is one; only the matching is done by the
library `regex`, which can be told to give up. Where the two differ (what a letter is, what braces and brackets mean
that repeat nothing), the pattern is put into the words of `regex` before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import regex

from refusal_index.errors import RefusalIndexError

SECONDS = 1.0
"""Of the processor's time, for one match: right patterns take microseconds, and no text is worth more."""

MOST_PARTS = 100_000
"""Most parts of a pattern with its repetitions written out, as `regex` holds them in memory."""

WORD, SPACE = r"_\p{L}\p{N}", r"\s\x1c-\x1f"  # what `re` takes for such inside brackets
OUTSIDE = {
    r"\w": f"[{WORD}]",
    r"\W": f"[^{WORD}]",
    r"\s": f"[{SPACE}]",
    r"\S": f"[^{SPACE}]",
    r"\b": f"(?:(?<=[{WORD}])(?![{WORD}])|(?<![{WORD}])(?=[{WORD}]))",
    r"\B": f"(?:(?<=[{WORD}])(?=[{WORD}])|(?<![{WORD}])(?![{WORD}]))",
    "{": r"\{",
}
INSIDE = {r"\w": WORD, r"\s": SPACE, r"\W": "", r"\S": "", "[": r"\["}
TOKEN = re.compile(
    r"\\N\{[^}]*\}|\\.|\[(?P<not>\^?)(?P<within>\]?(?:\\.|[^\]\\])*)\]|\{(?!\})(?P<times>\d*)(?:,\d*)?\}|.", re.DOTALL
)
MEMBER = re.compile(r"\\.|.", re.DOTALL)
ASCII_ONLY = re.compile(r"\(\?[imsux]*a")


class PatternError(RefusalIndexError, ValueError):
    """A pattern that is no regular expression, or one that nothing could hold; the message says why."""


def matches(pattern: str, text: str) -> bool:
    r"""Whether a pattern matches a text from end to end, case ignored and line breaks matched by a dot.

    Raises PatternError if it is no pattern, and TimeoutError if it cannot be told within `SECONDS`.

    >>> matches(r"(in )?(may )?\d+", "In May 1945")
    True
    """
    found = compiled(pattern)
    if not text:  # nothing to run out of time on, where `regex` alone finds \B
        return re.fullmatch(pattern, text, re.IGNORECASE | re.DOTALL) is not None
    return found.fullmatch(text, timeout=SECONDS) is not None


@lru_cache(maxsize=1000)
def compiled(pattern: str) -> regex.Pattern[str]:
    """Compile a pattern, or raise PatternError.

    >>> compiled("(")
    Traceback (most recent call last):
    ...
    refusal_index.outcomes.patterns.PatternError: missing ), unterminated subpattern at position 0
    """
    if (parts := _parts(pattern)) > MOST_PARTS:
        raise PatternError(f"its repetitions written out have {parts:,} parts, more than {MOST_PARTS:,}")
    try:
        re.compile(pattern, re.IGNORECASE | re.DOTALL)
        return regex.compile("".join(_translated(pattern)), regex.IGNORECASE | regex.DOTALL)
    except (re.error, regex.error, OverflowError, RecursionError) as error:
        raise PatternError(str(error)) from error


def _parts(pattern: str) -> int:
    """Count the parts of a pattern, what must occur several times as often as it must."""
    groups, last = [0], 0
    for token in TOKEN.finditer(pattern):
        if token[0] == "(":
            groups.append(0)
        elif token[0] == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        else:
            more = last * (int(token["times"] or 1) - 1) if token["times"] is not None else 1
            groups[-1] += max(more, 0)
            last = last + more if token["times"] is not None else 1
    return sum(groups)


def _translated(pattern: str) -> Iterator[str]:
    ascii_only = ASCII_ONLY.search(pattern) is not None  # there the two libraries agree on letters
    for token in TOKEN.finditer(pattern):
        if token["within"] is not None:
            yield _class(token["within"], bool(token["not"]), ascii_only)
        elif ascii_only and token[0] != "{":
            yield token[0]
        else:
            yield OUTSIDE.get(token[0], token[0])


def _class(within: str, is_negated: bool, ascii_only: bool) -> str:
    r"""Translate what stands in brackets; what `\W` and `\S` add to it stands beside it."""
    members, head = MEMBER.findall(within), "[^" if is_negated else "["
    inside = {"[": INSIDE["["]} if ascii_only else INSIDE
    listed = "".join(inside.get(each, each) for each in members)
    beside = [] if ascii_only else [OUTSIDE[each] for each in (r"\W", r"\S") if each in members]
    if not beside:
        return f"{head}{listed}]"
    any_of = "|".join([f"[{listed}]", *beside] if listed else beside)
    return f"(?:(?!{any_of})(?s:.))" if is_negated else f"(?:{any_of})"
