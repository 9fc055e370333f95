"""`read_reply` and `grade_reply`: what they accept, and the error for everything else."""

from __future__ import annotations

import re

import numpy as np
import pytest

from refusal_index import grade_reply, read_reply
from refusal_index.data import Grade
from refusal_index.replies import ReplyError

GASES = ("Oxygen", "Nitrogen", "Argon", "Neon")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": None}, "text: expected a string, got None"),
        ({"question": 5}, "question: expected a string, got 5"),
        ({"choices": "abc"}, "choices: expected a list of strings, got 'abc'"),
        ({"refusal": None}, "refusal: expected 'wording', 'tag', +REGEX or a function, got None"),
        ({"refusal": "+"}, "'+' must be followed by a regular expression"),
        ({"refusal": "+ "}, "'+' must be followed by a regular expression"),
        ({"refusal": "python:mine:declines"}, "pass the function itself: refusal=FUNCTION"),
        ({"refusal": "@phrases.txt"}, "a file is read only on the command line and in configurations"),
        ({"refusal": lambda answer: answer}, "expected a function that returns True or False, got 'x'"),
        ({"reasoning": ""}, "reasoning: '' cannot be used: it is empty"),
        ({"reasoning": "("}, "reasoning: '(' cannot be used: missing )"),
    ],
)
def test_unusable_arguments_of_a_reading_are_named(arguments, message):
    with pytest.raises(ReplyError, match=re.escape(message)):
        read_reply(**{"text": "x", **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gold": 5}, "gold: expected a string or None, got 5"),
        ({"gold": "Helium", "choices": GASES}, "gold: expected one of the choices, by its text or its letter"),
        ({"aliases": "abc"}, "aliases: expected a list of strings, got 'abc'"),
        ({"aliases": [1]}, "aliases: expected a list of strings, got 1 in it"),
        ({"grader": None}, "grader: expected exact, includes, choice or a function, got None"),
    ],
)
def test_unusable_arguments_of_a_grade_are_named(arguments, message):
    with pytest.raises(ReplyError, match=re.escape(message)):
        grade_reply(**{"text": "x", "gold": "x", **arguments})


@pytest.mark.parametrize("grader", ["exact", "choice", "includes"])
@pytest.mark.parametrize("gold", ["B", "b", "nitrogen", "Nitrogen"])
def test_gold_answer_names_a_choice_by_letter_or_text_as_in_question_files(grader, gold):
    assert grade_reply("B", gold, choices=GASES, grader=grader) is Grade.CORRECT
    assert grade_reply("A", gold, choices=GASES, grader=grader) is Grade.INCORRECT


def test_functions_may_return_a_bool_of_numpy():
    assert read_reply("x", refusal=lambda answer: np.bool_(answer == "x")).refused
    assert grade_reply("x", "y", grader=lambda question, answer: np.bool_(answer == "x")) is Grade.CORRECT
