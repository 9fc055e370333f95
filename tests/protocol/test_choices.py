"""Which choice an answer names."""

# ruff: noqa: RUF001
from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data.outcome import LETTERS
from refusal_index.protocol.choices import ChoiceReading, read_choice
from refusal_index.protocol.final_answer import find_final_answer

METALS = ("Iron", "Nickel", "Copper", "Tin")

NICKEL = {
    "a letter": "B",
    "a small letter": "b.",
    "brackets": "(b)",
    "square brackets": "[B]",
    "bold type": "**B**",
    "quotation marks": "„B“",
    "apostrophes": "'B'",
    "a box": r"\boxed{B}",
    "a box with a bracket": r"\boxed{\text{(B)}}",
    "mathematics": "$B$",
    "a full-width letter": "Ｂ",
    "a full-width bracket": "（Ｂ）",
    "a label": "Answer: B",
    "an option": "Option B",
    "German": "Die richtige Antwort ist B.",
    "French": "La réponse est : B",
    "Spanish": "La respuesta es B",
    "Russian": "Ответ: B",
    "Chinese": "答案是B。",
    "a label and brackets": "The correct answer is (B).",
    "the best option": "The best option is B",
    "text": "nickel",
    "text with article and full stop": "The nickel.",
    "letter and text": "B) Nickel",
    "letter and text after a comma": "B, nickel",
    "letter and text after a dash": "B – nickel",
    "letter and text after a full stop": "B. Nickel (Ni)",
    "letter and text in bold": "**B.** Nickel",
    "letter, text and a reason": "Option B: Nickel because it has 28 protons",
    "letter and a reason": "B, because the others have fewer protons",
    "letter and text but not another": "B) Nickel, not Iron",
    "letter and explanation": "B\n\nA and C have other numbers of protons.",
    "letter on the last line": "It has 28 protons.\n\nB",
    "letter and text on the last line": "It has 28 protons.\n\nB) Nickel",
    "label in the middle": "It has 28 protons, so the answer is B.",
    "label after a wrong letter": "A is wrong, so the answer is B.",
    "last word": "I am not sure, B",
    "last word after a verb": "I would choose B.",
    "letter and judgement": "B is correct.",
    "text and letter": "Nickel (B)",
    "a sentence": "It is nickel.",
    "a sentence in German": "Es ist wohl Nickel.",
    "a sentence with a caveat": "It is nickel, but I'm not certain.",
    "a sentence with another choice negated": "It is nickel, not iron.",
    "a letter that does not exist": "F) Nickel",
    "letter but not another": "B, not A",
    "letter rather than others": "B rather than A or C",
    "JSON": '{"answer": "B"}',
    "JSON with text": '```json\n{"answer": "Nickel", "confidence": 0.9}\n```',
    "Chinese verb": "我选B。",
    "Japanese sentence": "答えはBです。",
    "letter after another one that was dropped": "My first thought was A, but the answer is B.",
    "a letter after a list": "A. Iron\nB. Nickel\nC. Copper\nD. Tin\n\nThe answer is B.",
    "an option after a list": "A. Iron\nB. Nickel\nC. Copper\nD. Tin\n\nB. Nickel",
    "a letter before a list": "The answer is B.\nA. Iron: no\nB. Nickel: yes",
    "a text after another one that was dropped": "It used to be iron, now it is nickel.",
    "a text after a question": "Iron? No, nickel.",
    "none other": "It is none other than nickel.",
}

NONE = {
    "a list with marks": "A. Iron ❌\nB. Nickel ✅\nC. Copper ❌\nD. Tin ❌",
    "a list with words": "A) Iron: no\nB) Nickel: yes",
    "a list with a line in bold": "A) Iron\n**B) Nickel**\nC) Copper\nD) Tin",
    "a list with bullets": "- A. Iron\n- B. Nickel\n- C. Copper\n- D. Tin",
    "a list in one line": "A. Iron B. Nickel C. Copper D. Tin",
    "anything but": "Anything but nickel.",
    "a doubt": "I doubt it is nickel.",
    "ruled out": "I ruled out nickel.",
    "a Chinese verb with a negation": "不选B",
    "two answers": "Some say the answer is A, but the answer is B.",
    "JSON with two answers": '{"answer": "B", "choice": "A"}',
    "nothing": "",
    "two letters": "A or B",
    "a list": "A, B",
    "letters below each other": "A\nB",
    "letters with a stroke": "A/B",
    "letters with brackets": "(A) or (B)",
    "two letters after a label": "The answer is B or C",
    "a second letter in another clause": "The answer is B, or maybe C",
    "two texts": "iron or nickel",
    "a letter and two texts": "B) Nickel or Iron",
    "a letter that does not exist": "F",
    "an article": "A metal",
    "a pronoun": "I think so",
    "an initial": "B. Franklin",
    "a letter with other text": "B) something else",
    "a letter in a word": "B12",
    "a letter with an apostrophe": "B's metal",
    "a negated letter": "The answer is not B",
    "a negated letter as the last word": "It can't be B",
    "a rejected letter": "B is wrong",
    "a negated text": "not nickel",
    "a negated text in a sentence": "It isn't nickel.",
    "a rejected text": "Nickel is wrong.",
    "a letter and another choice in brackets": "nickel (A) perhaps",
    "another word": "Bismuth",
    "both": "Both A and B",
    "part of a word": "It is tinged with ironing.",
}

CONTRADICTIONS = ["A) Nickel", "(B) Iron", "B, Tin", "The answer is A: Nickel", "**C** – Iron", "Answer: D. copper"]


@pytest.mark.parametrize("answer", NICKEL.values(), ids=NICKEL)
def test_choice_is_named_by_letter_text_or_both(answer):
    assert read_choice(answer, METALS) == ChoiceReading("Nickel")
    assert read_choice(find_final_answer(f"<answer>{answer}</answer>").text, METALS) == ChoiceReading("Nickel")


@pytest.mark.parametrize("answer", NONE.values(), ids=NONE)
def test_uncertain_answer_names_no_choice(answer):
    assert read_choice(answer, METALS) == ChoiceReading(None)


@pytest.mark.parametrize("answer", CONTRADICTIONS)
def test_letter_and_text_of_different_choices_contradict_each_other(answer):
    assert read_choice(answer, METALS) == ChoiceReading(None, is_contradiction=True)


@pytest.mark.parametrize(
    ("choices", "answer", "choice"),
    [
        (("E. coli", "C. elegans"), "C. elegans", "C. elegans"),
        (("E. coli", "C. elegans"), "B) C. elegans", "C. elegans"),
        (("E. coli", "C. elegans"), "It is C. elegans, a worm", "C. elegans"),
        (("vitamin A", "vitamin B", "vitamin C"), "It is vitamin C.", "vitamin C"),
        (("vitamin A", "vitamin B", "vitamin C"), "A", "vitamin A"),
        (("a cat", "a dog"), "A dog", "a dog"),
        (("a cat", "a dog"), "A cat", "a cat"),
        (("New York", "New York City"), "New York City", "New York City"),
        (("New York", "New York City"), "It is New York City.", "New York City"),
        (("New York", "New York City"), "B) New York City, I think", "New York City"),
        (("Yes", "No"), "No, it is not.", "No"),
        (("Yes", "No"), "Yes", "Yes"),
        (("10", "12", "15"), "It is 12.", "12"),
        (("10", "12", "15"), "between 10 and 12", None),
        (("3", "3.1"), "It is 3.1", "3.1"),
        (("1854", "1855"), "A: 1854", "1854"),
        (("5%", "$5"), "5", None),
        (("5%", "5"), "5", "5"),
        (("5%", "5"), "The answer is 5.", "5"),
        (("$5", "5"), "The answer is $5.", "$5"),
        (("p < 0.05", "p > 0.05"), "The answer is p > 0.05.", "p > 0.05"),
        (("10^6", "10^-6"), "It is 10^-6.", "10^-6"),
        (("guilty", "not guilty"), "guilty? No, not guilty.", "not guilty"),
        (("5%", "$5"), "$5", "$5"),
        (("5%", "$5"), "A) 5%", "5%"),
        (("5%", "$5"), "B. $5", "$5"),
        (("2.5", "-2.5"), "B) -2.5", "-2.5"),
        (("北京", "上海"), "首都是北京。", "北京"),
        (("He", "Ne", "Ar"), "He said so", None),
        (("He", "Ne", "Ar"), "Ne", "Ne"),
        (tuple("abcdefghij"), "I", "i"),
        (tuple("abcdefghij"), "I guess", None),
    ],
)
def test_choices_that_look_like_letters_numbers_or_each_other(choices, answer, choice):
    assert read_choice(answer, choices) == ChoiceReading(choice)


def test_letter_that_is_the_text_of_another_choice_contradicts_itself():
    assert read_choice("B", ("O", "A", "B", "AB")) == ChoiceReading(None, is_contradiction=True)
    assert read_choice("AB", ("O", "A", "B", "AB")).choice == "AB"


def test_gold_answer_is_no_parameter():
    assert list(inspect.signature(read_choice).parameters) == ["answer", "choices"]


TREES = ["ash", "birch", "cedar", "fir", "oak", "pine", "yew"]
CHOICES = st.lists(st.sampled_from(TREES), min_size=2, max_size=7, unique=True)
WAYS = st.sampled_from(
    [
        *(
            "{0}",
            "({0})",
            "{0}.",
            "Answer: {0}",
            "the answer is {0}",
            "$\\boxed{{{0}}}$",
            "{0}) {1}",
            "{0}, {1}",
            "{0}: {1}.",
        ),
        *("{0} – {1}", "{0}. {1} (a tree)", "Option {0}: {1} because it is tall", "{1}", "It is {1}.", "{1} ({0})"),
        *("I weighed all of them.\n{0}", "I weighed all.\nFinal answer: {0}", "Hence, the answer is {0}."),
    ]
)


@given(CHOICES, st.data(), WAYS)
def test_property_every_way_of_naming_a_choice_is_recognised(choices, data, way):
    place = data.draw(st.integers(0, len(choices) - 1))
    assert read_choice(way.format(LETTERS[place], choices[place]), choices) == ChoiceReading(choices[place])


@given(
    CHOICES, st.data(), st.sampled_from(["{0}) {1}", "{0}, {1}", "({0}) {1}.", "Answer: {0}. {1}", "{0}: {1}, I think"])
)
def test_property_different_letter_and_text_are_a_contradiction(choices, data, way):
    place = data.draw(st.integers(0, len(choices) - 1))
    other = data.draw(st.integers(0, len(choices) - 1).filter(lambda index: index != place))
    text = way.format(LETTERS[place], choices[other])
    assert read_choice(text, choices) == ChoiceReading(None, is_contradiction=True)


PIECES = st.sampled_from(
    [
        "A",
        "B",
        "C",
        "I",
        "a",
        " ",
        "(",
        ")",
        ".",
        ",",
        "\n",
        "or",
        "not ",
        "Answer: ",
        "the answer is ",
        "Lima",
        "Cuzco",
        "é",
        "$",
        "是",
    ]
)


@given(st.lists(PIECES | st.text(max_size=3), max_size=10).map("".join))
def test_property_any_answer_names_at_most_one_choice(answer):
    reading = read_choice(answer, ("Cuzco", "Lima", "Quito"))
    assert reading.choice in {None, "Cuzco", "Lima", "Quito"}
    assert not (reading.choice and reading.is_contradiction)


@given(
    st.sampled_from(
        ["{0} or {1}", "{0}, {1}", "{0} and {1}", "{0}/{1}", "either {0} or {1}", "The answer is {0} or {1}"]
    ),
    st.booleans(),
)
def test_property_two_choices_are_no_choice(way, by_letter):
    both = ("A", "C") if by_letter else ("Iron", "Copper")
    assert read_choice(way.format(*both), METALS).choice is None


@pytest.mark.parametrize(
    "unit",
    [
        "(",
        "* (",
        "answer ",
        "answer: ",
        "the ",
        "A",
        "A ",
        "A)",
        "B, ",
        "Lima ",
        "not ",
        " ",
        "\n",
        "答案",
        "it is ",
        "$",
    ],
)
@pytest.mark.timeout(10)
def test_long_repetition_of_anything_is_read_in_linear_time(unit):
    # In linear time, this takes 0.1 s; in quadratic time, minutes.
    assert read_choice(unit * (2**17 // len(unit)), ("Cuzco", "Quito")).choice is None
