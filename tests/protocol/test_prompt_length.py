"""The length of a prompt, and of the longest that a run sends."""

from __future__ import annotations

import re

import pytest

from refusal_index.data import Question
from refusal_index.protocol import FORCED, load_prompt_set
from refusal_index.protocol.prompt_length import (
    PromptLengthError,
    about_tokens,
    check_lengths,
    longest_prompt,
    whole_prompt,
)

PROMPTS = load_prompt_set("default")
SHORT = Question("short", "Who?", "Ann")
LONG = [Question(f"long{n}", "Who?", "Ann", context="word " * 3000, choices=("Ann", "Bob")) for n in range(7)]


def test_longest_prompt_covers_all_variants_and_the_forced_pass():
    lengths = [len(whole_prompt(LONG[0], PROMPTS, variant)) for variant in (*PROMPTS.variants, FORCED)]
    assert longest_prompt(LONG[0], PROMPTS) == max(lengths)
    assert longest_prompt(LONG[0], PROMPTS, about_tokens) == -(-max(lengths) // 4)
    assert max(lengths) > 15_000


def test_prompts_that_are_too_long_are_named_and_counted():
    check_lengths([SHORT], PROMPTS, 1000)
    expected = "at most 1,000 tokens, got longer ones of long0, long1, long2, long3, long4 and 2 more, the longest with"
    with pytest.raises(PromptLengthError, match=re.escape(expected)):
        check_lengths([SHORT, *LONG], PROMPTS, 1000)


def test_tokens_may_be_counted_exactly():
    def words(text: str) -> int:
        return len(text.split())

    needed = longest_prompt(SHORT, PROMPTS, words)
    check_lengths([SHORT], PROMPTS, needed, words)
    with pytest.raises(PromptLengthError, match=f"the longest with {needed}"):
        check_lengths([SHORT], PROMPTS, needed - 1, words)
