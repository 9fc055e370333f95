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


@pytest.mark.parametrize(
    "text",
    [
        "I looked it up and it is Lima, but I'm not sure.",
        "I have read that it is Lima, but I'm not certain.",
        "I searched and found 1999, but I'm not certain.",
        "Currently Ann Lee, but I do not know for sure.",
        "I understand it was Lima, but I can't be certain.",
        "At the moment it is Ann, but I'm not certain.",
        "From the context it is 42, but I can't confirm that.",
        "It seems to be Anna Stone 1, although the passage does not say so explicitly.",
        "It seems to have been 1912, though the document doesn't state it.",
        "I don't have the exact figure, but it is about 42.",
        "It lies outside the Oslo area.",
        "Don't mention the war.",
        "Never give the dog any chocolate.",
        "The document suggests Ann Lee, but it does not say so explicitly.",
        "J'ai lu que c'est Lima, mais je ne suis pas certain.",
        "He leído que es Lima, pero no estoy seguro.",
    ],
)
def test_answers_that_hedge_or_resemble_a_refusal_are_answers(text: str) -> None:
    """Made up: each names something that the question does not."""
    assert read_wording(text, "Who was it?").says is Says.ANSWER


@pytest.mark.parametrize(
    "text",
    [
        "I have carefully reviewed the documents that you provided. Regrettably, none of them contains the answer.",
        "The passage mentions Lima, but does not say who it was.",
        "The passage seems to be about Lima, but it does not name the winner.",
        "That's a great question. After checking the knowledge base, I was unable to find any details on this.",
        "I appreciate your patience, but this is outside the information available to me.",
        "I looked it up but found nothing.",
        "J'ai examiné attentivement les documents. Aucun d'entre eux ne contient cette information.",
        "He revisado los documentos. Ninguno contiene esta información.",
        "I looked everywhere, but I don't know.",
        "I understand you ask about the cup in Peru, but I'm not sure.",
        "As of my last update in October 2023, I'm not sure.",
    ],
)
def test_introductions_of_refusals_are_no_answers(text: str) -> None:
    assert read_wording(text, "Who won the cup in Peru?").says is Says.REFUSAL
