"""What methods ask, as data: every mistake is named, and words do not change under a name."""

from __future__ import annotations

import hashlib

import pytest

from refusal_index.plugins.confidence.prompts import read_prompts, shipped
from refusal_index.plugins.confidence.registry import METHODS
from refusal_index.protocol import PromptSetError

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
    found = {name: hashlib.sha256(one.template.encode()).hexdigest()[:16] for name, one in shipped().prompts.items()}
    assert found == WORDS


def test_every_prompt_is_asked_by_a_method_of_its_name():
    for name, prompt in shipped().prompts.items():
        assert METHODS[name].prompts == (prompt,)


@pytest.mark.parametrize("prompt", shipped().prompts.values(), ids=lambda one: one.name)
def test_question_and_answer_stand_in_the_prompt_word_for_word(prompt):
    asked = prompt.template.format(question="Who {wrote} Emma?", answer="{question} <b>")
    assert "Who {wrote} Emma?" in asked
    assert ("{question} <b>" in asked) is not prompt.is_graded


@pytest.mark.parametrize("name", ["verbalised-words", "verbalised-words-after"])
def test_the_phrases_are_named_in_their_order_and_their_values_are_not(name):
    template, scale = shipped().prompts[name].template, shipped().scale
    assert f": {', '.join(scale)}." in template
    assert not any(character.isdigit() for character in template)


def test_the_scale_rises_is_symmetric_and_lies_in_the_ranges_of_the_directive():
    scale = shipped().scale
    assert list(scale) == list(RANGES)
    assert all(low <= scale[phrase] <= high for phrase, (low, high) in RANGES.items())
    values = list(scale.values())
    assert values == sorted(values)
    assert [one + other for one, other in zip(values, reversed(values), strict=True)] == pytest.approx([1] * 7)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff", "own.toml: not valid TOML"),
        (b"prompts = ", "own.toml: not valid TOML"),
        (b"prompts = 3", "own.toml, prompts: expected a table, found 3"),
        (b"prompt.a.template = '{question}'", "own.toml: expected 'prompts', 'scale', found 'prompt'"),
        (b"prompts.a = 'x'", "own.toml, prompts.a: expected a table, found 'x'"),
        (b"[prompts.a]\ndraws = 2", "own.toml, prompts.a: expected a 'template', got none"),
        (b"[prompts.a]\ntemplate = 3", "'template' must be of type str, found 3"),
        (b"[prompts.a]\ntemplate = '{question}'\ndraws = true", "'draws' must be of type int, found True"),
        (b"[prompts.a]\ntemplate = '{question}'\ndraws = 0", "'draws' must be 1 or more, found 0"),
        (b"[prompts.a]\ntemplate = '{question}'\nis_graded = 1", "'is_graded' must be of type bool, found 1"),
        (b"[prompts.a]\ntemplate = '{question}'\ngraded = true", "found 'graded'"),
        (b"[prompts.a]\ntemplate = 'why?'", r"must have the field {question} and may have {answer}, found none"),
        (b"[prompts.a]\ntemplate = '{question} {anwser}'", "found {anwser}, {question}"),
        (b"[prompts.a]\ntemplate = '{question!r}'", "found {question!r}"),
        (b"[prompts.a]\ntemplate = '{question:>9}'", "found {question:>9}"),
        (b"[prompts.a]\ntemplate = '{question.x}'", "found {question.x}"),
        (b"[prompts.a]\ntemplate = '{question} {}'", "found {question}, {}"),
        (b"[prompts.a]\ntemplate = '{question'", "'template': .*; write a literal brace twice"),
        (b"[prompts.a]\ntemplate = '{question} {answer}'\nis_graded = true", "and no other, as its reply holds the"),
        (b"scale.likely = 75", "own.toml, scale, 'likely': expected a probability from 0 to 1, found 75"),
        (b"scale.likely = nan", "expected a probability from 0 to 1, found nan"),
        (b"scale.likely = true", "expected a probability from 0 to 1, found True"),
        (b"scale = []", r"own.toml, scale: expected a table, found \[\]"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_place(content, told):
    with pytest.raises(PromptSetError, match=told.replace("{", r"\{")):
        read_prompts(content, "own.toml")


def test_a_literal_brace_is_written_twice():
    (prompt,) = read_prompts(b"[prompts.a]\ntemplate = '{question} {{}}'", "own.toml").prompts.values()
    assert prompt.template.format(question="why?", answer="") == "why? {}"
