"""Worked examples of a prompt set that a dataset asks: the prompts show an answer to these questions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from refusal_index.data.outcome import Question
from refusal_index.data.text import folded
from refusal_index.protocol.prompts import PromptSet

NOT_WORDS = re.compile(r"[\W_]+")


def example_finder(prompts: PromptSet) -> Callable[[str], int | None]:
    """Return a function that takes a question's text and returns the number of the worked example that asks the same.

    Case, accents, punctuation and white space are ignored.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> example_of = example_finder(load_prompt_set("default"))
    >>> example_of("what is the capital of  BURKINA FASO"), example_of("What is the capital of Peru?")
    (1, None)
    """
    numbers = {_words(example.question): number for number, example in enumerate(prompts.examples, start=1)}
    return lambda text: numbers.get(_words(text))


def examples_asked(prompts: PromptSet, questions: Iterable[Question]) -> list[tuple[int, str]]:
    """Return the number of each worked example that is among the questions, and the text of that question."""
    example_of = example_finder(prompts)
    found = ((example_of(question.text), question.text) for question in questions)
    return [(number, text) for number, text in found if number is not None]


def _words(text: str) -> str:
    return NOT_WORDS.sub(" ", folded(text)).strip()
