"""Evidence that patterns mean what they mean to Python's `re`, and that none takes for ever or fills the memory."""

from __future__ import annotations

import re
import time
import unicodedata
import warnings
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refusal_index.outcomes import patterns
from refusal_index.outcomes.patterns import PatternError, compiled, matches

FLAGS = re.IGNORECASE | re.DOTALL
OF_CLASSES = (
    *(r"\w", r"\W", r"\s", r"\S", r"\d", r"\D", r"[\w.-]", r"[^\w]", r"[^\W_]", r"[\s\W]", r"[^\s\W]", r"[^\S]"),
    *(r"[\W_]", "[[a]", "[]a]", "[^]a]", "[[:alpha:]", r"(?a)\w", r"(?a)[\W]"),
)
CHARACTERS = [  # of those in scripts that both libraries know, without the three that fold to others in one alone
    chr(number)
    for number in range(0x3000)
    if unicodedata.category(chr(number)) != "Cn" and number not in (0x130, 0x131, 0x345)
]


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@pytest.mark.parametrize("pattern", OF_CLASSES)
def test_classes_hold_the_characters_that_they_hold_for_python(pattern):
    mine, theirs = compiled(pattern), re.compile(pattern, FLAGS)
    different = [one for one in CHARACTERS if bool(mine.fullmatch(one)) != bool(theirs.fullmatch(one))]
    assert not different, [hex(ord(one)) for one in different]


PIECES = st.sampled_from(
    [
        *(
            "e\u0301",
            " ",
            *[
                r"a",
                r"b",
                r"é",
                r"1",
                r"²",
                r"_",
                r".",
                r"\w",
                r"\W",
                r"\b",
                r"\B",
                r"\s",
                r"[\w-]",
                r"[^\W]",
                r"\d+",
                r"{",
                r"}",
                r"{e<=1}",
                r"{}",
                r"(?:a|b)",
                r"(a)?",
                r"x{,2}",
                r"a{2}",
            ],
        ),
        *[r"[[a]", r"(?=a)", r"(?<!b)", r"|", r"\{", r"\[", r"*?"],
    ]
)
TEXTS = st.text(alphabet="abxeé\u0301²1 _-{<=}[", max_size=6)


@given(st.lists(PIECES, max_size=5).map("".join), TEXTS)
@example(r"\B", "")
def test_property_a_pattern_matches_where_it_does_for_python(pattern, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            theirs = re.compile(pattern, FLAGS)
        except re.error:
            with pytest.raises(PatternError):
                compiled(pattern)
            return
        assert matches(pattern, text) == (theirs.fullmatch(text) is not None)


@pytest.mark.parametrize("pattern", [r"(a|aa)+$", r"(a+)+$", r"(\w|\w\w)*x", r"(.*a){25}", r"(x+x+)+y"])
def test_nested_repetitions_end_in_time(pattern, monkeypatch):
    monkeypatch.setattr(patterns, "SECONDS", 0.1)
    started = time.process_time()
    with suppress(TimeoutError):
        assert not matches(pattern, "a" * 60 + "!")
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "unterminated subpattern"),
        ("[a", "unterminated character set"),
        ("(a{1000}){1000}", "1,000,000 parts"),
        ("((a{1000}){1000}){1000}", "1,000,000,000 parts"),
        ("a" * 200_000, "200,000 parts"),
        ("a{99999999999999999999}", "parts, more than 100,000"),
        ("(" * 5000 + ")" * 5000, "recursion"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_pattern_or_one_that_nothing_could_hold_says_why(pattern, why):
    with pytest.raises(PatternError, match=why):
        compiled(pattern)
