"""What methods ask, as data: words do not change under a name."""

from __future__ import annotations

import hashlib

import pytest

from refusal_index.plugins.confidence.model_scores import PROMPTS, SCALE
from refusal_index.plugins.confidence.plan import METHODS

WORDS = {
    "verbalised-number": "3567b255a3038641",
    "verbalised-words": "913238118f8a0002",
    "verbalised-number-after": "1c3b16c2498a4a49",
    "verbalised-words-after": "c2cf1c2b91d3fbe3",
    "p-true": "ce078a685f845810",
}
RANGES = {  # Intelligence Community Directive 203 (2015), 2.e
    "almost no chance": (0.01, 0.05),
    "very unlikely": (0.05, 0.20),
    "unlikely": (0.20, 0.45),
    "about even": (0.45, 0.55),
    "likely": (0.55, 0.80),
    "very likely": (0.80, 0.95),
    "almost certain": (0.95, 0.99),
}


def test_words_under_a_name_stay_as_they_are():
    """Replies are kept by the prompt's name: whoever changes the words gives them another one."""
    found = {name: hashlib.sha256(one.template.encode()).hexdigest()[:16] for name, one in PROMPTS.items()}
    assert found == WORDS


def test_every_prompt_is_asked_by_a_method_of_its_name():
    for name, prompt in PROMPTS.items():
        assert METHODS[name].prompts == (prompt,)


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=lambda one: one.name)
def test_question_and_answer_stand_in_the_prompt_word_for_word(prompt):
    asked = prompt.template.format(question="Who {wrote} Emma?", answer="{question} <b>")
    assert "Who {wrote} Emma?" in asked
    assert ("{question} <b>" in asked) is not prompt.is_graded


@pytest.mark.parametrize("name", ["verbalised-words", "verbalised-words-after"])
def test_the_phrases_are_named_in_their_order_and_their_values_are_not(name):
    template, scale = PROMPTS[name].template, SCALE
    assert f": {', '.join(scale)}." in template
    assert not any(character.isdigit() for character in template)


def test_the_scale_rises_is_symmetric_and_lies_in_the_ranges_of_the_directive():
    scale = SCALE
    assert list(scale) == list(RANGES)
    assert all(low <= scale[phrase] <= high for phrase, (low, high) in RANGES.items())
    values = list(scale.values())
    assert values == sorted(values)
    assert [one + other for one, other in zip(values, reversed(values), strict=True)] == pytest.approx([1] * 7)
