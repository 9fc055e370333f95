"""Evidence for the grader of multiple choice: what names a choice, and what names none or two."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Grade, Question
from refusal_index.data.outcome import LETTERS
from refusal_index.protocol.grading import LABEL, GraderKind, choice_grade, grade_by_rule, named_choices

CAPITAL = Question(
    "q", "What is the capital of Peru?", "Lima", ("Ciudad de los Reyes",), choices=("Cuzco", "Lima", "Quito")
)

FORMS = {
    "B": "Lima",
    "b": "Lima",
    "B.": "Lima",
    "(B)": "Lima",
    "[b]": "Lima",
    "**B**": "Lima",
    "Answer: B": "Lima",
    "The correct answer is B": "Lima",
    "Option C": "Quito",
    "choice c)": "Quito",
    "B) Lima": "Lima",
    "B: lima.": "Lima",
    "B - Lima": "Lima",
    "(B) Ciudad de los Reyes": "Lima",
    "Lima": "Lima",
    "the LIMA": "Lima",
    "Ciudad de los Reyes": "Lima",
    "The answer is Quito": None,
    "D": None,
    "A or B": None,
    "A, B": None,
    "AB": None,
    "Bogotá": None,
    "Lima, B": None,
    "2": None,
}


@pytest.mark.parametrize("said", FORMS)
def test_a_choice_is_named_by_letter_text_or_both(said):
    assert named_choices(CAPITAL, said) == ({FORMS[said]} - {None})


@pytest.mark.parametrize(
    ("said", "grade"),
    [
        ("A) Lima", Grade.UNSCORED),
        ("B) Cuzco", Grade.UNSCORED),
        ("A) Quito", Grade.INCORRECT),
        ("D) Lima", Grade.CORRECT),
        ("I am not sure.", Grade.REFUSED),
        ("I am not sure, B", Grade.INCORRECT),
    ],
)
def test_contradictions_are_unscored_only_where_one_side_is_right(said, grade):
    assert grade_by_rule(GraderKind.CHOICE, CAPITAL, said) is grade


@pytest.mark.parametrize(
    ("choices", "said", "named"),
    [
        (("E. coli", "C. elegans"), "C. elegans", {"C. elegans"}),
        (("E. coli", "C. elegans"), "B) C. elegans", {"C. elegans"}),
        (("1854", "1855"), "1855", {"1855"}),
        (("1854", "1855"), "A: 1854", {"1854"}),
        (("A", "B"), "A", {"A"}),
        (("vitamin A", "vitamin B"), "A", {"vitamin A"}),
    ],
)
def test_choices_that_look_like_labels_are_told_apart(choices, said, named):
    assert named_choices(Question("q", "?", choices[0], choices=choices), said) == named


def test_without_a_right_answer_every_choice_is_wrong_and_none_is_ambiguous():
    question = Question("q", "?", None, choices=CAPITAL.choices)
    assert {choice_grade(question, said) for said in ("A", "B) Lima", "A) Lima", "Bonn")} == {Grade.INCORRECT}
    assert grade_by_rule(GraderKind.CHOICE, question, "I cannot say.") is Grade.REFUSED


def test_a_choice_that_declines_is_a_refusal_unless_it_is_the_right_one_or_only_tags_refuse():
    question = Question("q", "?", "Lima", choices=("Cuzco", "Lima", "Insufficient information to answer the question"))
    assert grade_by_rule(GraderKind.CHOICE, question, "C") is Grade.REFUSED
    assert (
        grade_by_rule(GraderKind.CHOICE, question, "C) Insufficient information to answer the question")
        is Grade.REFUSED
    )
    assert grade_by_rule(GraderKind.CHOICE, question, "C", None) is Grade.INCORRECT
    assert grade_by_rule(GraderKind.CHOICE, replace(question, gold=question.choices[2]), "C") is Grade.CORRECT


WORDS = st.lists(
    st.sampled_from(["ash", "birch", "cedar", "fir", "oak", "pine", "yew"]), min_size=2, max_size=7, unique=True
)


@given(WORDS, st.data())
def test_property_every_way_of_naming_a_choice_names_it(choices, data):
    place = data.draw(st.integers(0, len(choices) - 1))
    gold = choices[data.draw(st.integers(0, len(choices) - 1))]
    question = Question("q", "Which tree?", gold, choices=tuple(choices))
    letter, text = LETTERS[place], choices[place]
    for said in (letter, letter.lower(), f"({letter})", text, text.upper(), f"{letter}) {text}", f"Answer: {letter}"):
        assert named_choices(question, said) == {text}
        assert choice_grade(question, said) is (Grade.CORRECT if text == gold else Grade.INCORRECT)


@given(st.text(max_size=30))
def test_property_any_reply_has_a_grade(said):
    assert choice_grade(CAPITAL, said) in set(Grade)


BACKTRACKING = re.compile(
    r"\W*(?:(?:the\s+)?(?:(?:correct|right|best)\s+)?(?:answer|choice|option)\s*(?:is\b|:)?\s*)?"
    r"[(\[*]*(?P<letter>[A-Za-z])(?:[)\].:*]+|\s+-|\Z)\s*(?P<rest>.*)",
    re.DOTALL | re.IGNORECASE,
)
PARTS = st.sampled_from(
    [
        "the ",
        "correct ",
        "best",
        "answer",
        "Option",
        " is",
        "is ",
        ":",
        " ",
        "\n",
        "(",
        "[",
        "*",
        "A",
        "b",
        ")",
        "].",
        "-",
        "é",
        "1",
        "C. elegans",
        "_",
    ]
)


@given(st.lists(PARTS, max_size=9).map("".join))
def test_property_a_label_is_read_as_by_the_pattern_that_gave_back_what_repeats(text):
    one, other = LABEL.fullmatch(text), BACKTRACKING.fullmatch(text)
    assert (one and one.groupdict()) == (other and other.groupdict())


@pytest.mark.parametrize("reply", ["(" * 10**6 + "1", "answer" + " " * 10**6 + "1", "* (" * 300_000, "A" + ")" * 10**6])
def test_a_megabyte_of_brackets_is_graded_in_no_time(reply):
    """It took hours."""
    started = time.process_time()
    choice_grade(Question("q", "?", "Lima", choices=("Cuzco", "Lima")), reply)
    assert time.process_time() - started < 10
