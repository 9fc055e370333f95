"""User patterns: their meaning in the dialect of `regex`, and limits on time and memory."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from refusal_index.data import text
from refusal_index.data.text import PatternError, compiled, matches


@pytest.mark.parametrize(
    ("pattern", "text", "matched"),
    [
        (r"\w+", "Ørsted", True),
        (r"\w+", "Dvor\u030ca\u0301k", True),  # with combining accents, which `re` does not count as part of a word
        (r"m\w", "m²", False),  # a superscript, which `re` counts as one
        (r"a\sb", "a\x85b", True),
        (r"a\sb", "a\x1cb", False),
        ("[[:digit:]]+", "1945", True),
        (r"(?V1)[\w--\d]+", "abc", True),
        (r"(?V1)[\w--\d]+", "abc1", False),
        (r"\p{Greek}+", "Αθήνα", True),
        ("(?:Lima){e<=1}", "Lina", True),
        ("{}", "{}", True),
        ("a{,2}", "aa", True),
        (".*b", "a\nB", True),
    ],
)
@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
def test_patterns_match_as_in_the_regex_package(pattern, text, matched):
    assert matches(pattern, text) is matched


@pytest.mark.parametrize("pattern", [r"(a|aa)+$", r"(a+)+$", r"(\w|\w\w)*x", r"(.*a){25}", r"(x+x+)+y"])
def test_nested_repetitions_end_in_time(pattern, monkeypatch):
    monkeypatch.setattr(text, "SECONDS", 0.1)
    started = time.process_time()
    with suppress(TimeoutError):
        assert not matches(pattern, "a" * 60 + "!")
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing )"),
        ("[a", "unterminated character set"),
        ("{e<=1}", "nothing for fuzzy constraint"),
        ("(a{1000}){1000}", "1,000,000 parts"),
        ("((a{1000}){1000}){1000}", "1,000,000,000 parts"),
        ("a" * 200_000, "200,000 parts"),
        ("a{99999999999999999999}", "parts, more than 100,000"),
        ("(" * 5000 + ")" * 5000, "recursion"),
    ],
    ids=lambda text: text[:20],
)
def test_invalid_or_oversized_patterns_say_why(pattern, why):
    with pytest.raises(PatternError, match=why.replace(")", r"\)")):
        compiled(pattern)
