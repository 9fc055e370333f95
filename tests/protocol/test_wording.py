"""The reading of an answer's wording, on replies written for the tests in ten languages."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from refusal_index.protocol.phrases import languages
from refusal_index.protocol.wording import Says, read_wording

CASES = tomllib.loads(Path(__file__).with_name("wording_cases.toml").read_text(encoding="utf-8"))


def cases(*kinds: str) -> list[tuple[str, str, str]]:
    """Return the language, question and reply of each case of these kinds."""
    found = [(language, case) for language, entry in CASES.items() for kind in kinds for case in entry[kind]]
    return [(language, *(("", case) if isinstance(case, str) else case)) for language, case in found]


def test_every_language_of_the_cases_has_phrases():
    assert set(CASES) <= set(languages())


@pytest.mark.parametrize(("language", "question", "reply"), cases("refusals"))
def test_a_handwritten_refusal_is_read_as_one(language, question, reply):
    assert read_wording(reply, question).says is Says.REFUSAL


@pytest.mark.parametrize(("language", "question", "reply"), cases("answers", "hedges"))
def test_a_handwritten_answer_is_not_a_refusal(language, question, reply):
    assert read_wording(reply, question).says is Says.ANSWER
