"""The exact grader: what counts as the same answer, as a different one, and as none."""

from __future__ import annotations

import csv
import json
import time
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refusal_index.data import Grade, Question
from refusal_index.protocol import GraderKind, grade_by_rule
from refusal_index.protocol.grading import FOLDED, NUMBER, TOKEN, _quantity, _words, normalise


def grade(gold: str, prediction: str, *aliases: str) -> Grade:
    return grade_by_rule(GraderKind.EXACT, Question("q", "What is it?", gold, aliases), prediction)


SAME = [
    ("Paris", "Paris"),
    ("Paris", "paris"),
    ("Paris", "  PARIS.\n"),
    ("Paris", '"Paris"'),
    ("Paris", "**Paris**"),
    ("New York", "New-York"),
    ("New York", "new \n york"),
    ("Jean-Jacques Rousseau", "Jean Jacques Rousseau"),
    ("O'Brien", "O\u2019Brien"),
    ("O'Brien", "OBrien"),
    ("Guns N' Roses", "Guns N Roses"),
    ("J. K. Rowling", "J.K. Rowling"),
    # accents, and letters that carry a stroke
    ("Élysée", "Elysee"),
    ("Élysée", "E\u0301lyse\u0301e"),
    ("Jorn Utzon", "Jørn Utzon"),
    ("Łódź", "Lodz"),
    ("Straße", "Strasse"),
    ("Æsop", "AEsop"),
    ("Đà Nẵng", "Da Nang"),
    ("İzmir", "Izmir"),
    ("東京", "東京"),
    ("Москва", "москва"),
    ("CO\u2082", "CO2"),
    ("Par\u00adis", "Paris"),
    ("Pa\u200bris", "Paris"),
    # articles
    ("The Night Watch", "Night Watch"),
    ("Night Watch", "the Night Watch"),
    ("A Tale of Two Cities", "Tale of Two Cities"),
    ("University of the Arts", "University of Arts"),
    # answers that look like articles
    ("A", "a"),
    ("vitamin A", "Vitamin a"),
    ("The The", "the the"),
    # answers that end in a sign, or are one
    ("C#", "c#"),
    ("C++", "C++."),
    ("O-", "O\u2212"),
    ("+", " + "),
    ("?!", "?!"),
    # names with a number inside
    ("B52", "b52"),
    ("B-52", "B 52"),
    ("3rd", "the 3rd"),
    ("1914-1918", "1914\u20131918"),
    ("4 July 1776", "4 July, 1776"),
    ("COVID-19", "Covid 19"),
    # answers that look like a refusal
    ("Unknown Pleasures", "Unknown Pleasures"),
    ("Unknown", "unknown"),
    ("Not known", "It is not known.", "It is not known"),
]

DIFFERENT = [
    ("Paris", "Rome"),
    ("Paris", "Paris, Texas"),
    ("Paris", "It is Paris"),
    ("Paris, France", "Paris"),
    ("Closer", "Unknown Pleasures"),
    ("Paris", "?"),
    ("the Netherlands", "Holland"),
    ("vitamin A", "vitamin"),
    ("Hepatitis A virus", "Hepatitis virus"),
    ("A", "the"),
    ("C#", "C"),
    ("C#", "C++"),
    ("B\u266d", "B"),
    ("AB+", "AB-"),
    ("+", "-"),
    ("+", "Paris"),
    ("B52", "52"),
    ("B52", "B 52 bomber"),
    ("3rd", "3"),
    ("1914-1918", "1914-1919"),
    ("two", "2"),
]

SAME_NUMBER = [
    ("403 rooms", "403"),
    ("403 rooms", "403 Rooms."),
    ("403 rooms", "the 403"),
    ("120,000 euros", "120000"),
    ("120000", "120,000"),
    ("120,000 euros", "€120,000"),
    ("1,234,567.8", "1234567.8"),
    ("3.14", "3.14"),
    ("3.14", "3.1416"),
    ("3.14", "3.136"),
    ("3.0", "3"),
    ("3", "3.0"),
    ("0.5", ".5"),
    ("42", "42."),
    ("42", "...42"),
    ("42", "+42"),
    ("42", "042"),
    ("-5", "-5"),
    ("-5", "\u22125"),
    ("-5 °C", "\u22125 °c"),
    ("25%", "25"),
    ("25", "25 %"),
    ("1879", "1879"),
    ("Boeing 747", "747"),
    ("1.5 million", "1,500,000"),
    ("1.5 million people", "1.5 Million people"),
    ("1,500,000", "1.5 million"),
    ("2 hundred", "200"),
    ("1" + "0" * 40, "1" + "0" * 40),
    ("\u0661\u0662", "12"),
]

OTHER_NUMBER = [
    ("403 rooms", "404"),
    ("403 rooms", "403 halls"),
    ("403", "403 rooms"),
    ("3.14", "3.2"),
    ("3.14", "3.1"),
    ("3.14", "3.15"),
    ("3.14", "3.145"),
    ("4-inch", "3.5-inch"),
    ("5", ".5"),
    ("5", "-5"),
    ("-5", "5"),
    ("-5", "\u22126"),
    ("1879", "1880"),
    ("1879", "1879.5"),
    ("1879", "18790"),
    ("747", "Boeing 747"),
    ("10 million", "10"),
    ("10 million", "10 billion"),
    ("10", "10 million"),
    ("1" + "0" * 40, "1" + "0" * 39 + "1"),
    ("42", "9" * 1_000_001),
    ("42", "9" * 999_999 + " trillion"),
    ("42", "42 or 43"),
]

DECLINES = [
    "I don't know",
    "I don\u2019t know.",
    "I do not know the answer to this question.",
    "Sorry, I really don't know that.",
    "I am not sure.",
    "I'm unsure",
    "I cannot answer",
    "I can't say for certain",
    "I could not determine the answer",
    "It cannot be determined.",
    "I do not have enough information to answer that question.",
    "There is not enough information.",
    "The passage does not contain enough information to answer this question.",
    "no idea",
    "No answer.",
    "N/A",
    "Unknown",
    "The answer is unknown.",
    "unanswered",
    "<UNANSWERED>",
    "NOT_ATTEMPTED",
    "not attempted",
    "I am unable to answer this",
]

ATTEMPTS = [
    "I am not sure, but Paris",
    "I don't know, maybe 1923",
    "Unknown Pleasures",
    "The Unknown Soldier",
    "Perhaps Paris, I cannot say for sure",
    "It is certain",
    "Sorry",
    "nothing",
    "No",
    "Nobody knows",
    "The answer",
    "",
    "?",
]


@pytest.mark.parametrize(("gold", "prediction", "aliases"), [(gold, said, aliases) for gold, said, *aliases in SAME])
def test_same_text_is_correct(gold, prediction, aliases):
    assert grade(gold, prediction, *aliases) is Grade.CORRECT


@pytest.mark.parametrize(("gold", "prediction"), DIFFERENT)
def test_other_text_is_incorrect(gold, prediction):
    assert grade(gold, prediction) is Grade.INCORRECT


@pytest.mark.parametrize(("gold", "prediction"), SAME_NUMBER)
def test_number_that_agrees_to_the_last_figure_is_correct(gold, prediction):
    assert grade(gold, prediction) is Grade.CORRECT


@pytest.mark.parametrize(("gold", "prediction"), OTHER_NUMBER, ids=lambda text: text[:20])
def test_number_that_does_not_agree_is_incorrect(gold, prediction):
    assert grade(gold, prediction) is Grade.INCORRECT


@pytest.mark.parametrize("prediction", DECLINES)
def test_pure_decline_is_refused(prediction):
    assert grade("Paris", prediction) is Grade.REFUSED


@pytest.mark.parametrize("prediction", ATTEMPTS)
def test_an_answer_given_with_a_hedge_is_an_attempt(prediction):
    assert grade("Rome", prediction) is Grade.INCORRECT


def test_any_alias_is_as_good_as_the_gold_answer():
    aliases = ("Sankt-Peterburg", "Leningrad", "1,703")
    for prediction in ("Saint Petersburg", "leningrad", "Sankt Peterburg", "1703"):
        assert grade("Saint Petersburg", prediction, *aliases) is Grade.CORRECT
    assert grade("Saint Petersburg", "Petrograd", *aliases) is Grade.INCORRECT


@pytest.mark.parametrize(
    "unit", ["<", " ", "1", "1,", "1,111", "1 ", "..5", "-", "'", "a ", "the ", "not ", "i do not ", "é"]
)
def test_a_hundred_kilobytes_of_anything_are_graded(unit):
    prediction = unit * (100_000 // len(unit))
    assert grade("Paris", prediction) is Grade.INCORRECT
    assert grade("120,000 euros", prediction) is Grade.INCORRECT


TEXTS = st.text(max_size=20) | st.from_regex(r"[-+]?[0-9]{1,6}(\.[0-9]{1,3})?( million| rooms|%)?", fullmatch=True)


@given(TEXTS.filter(str.strip), TEXTS)
@example("\u00bd", "1/2")
@example("1,2345", "1.2.3")
def test_gold_answer_itself_is_always_correct_and_grading_never_fails(gold, prediction):
    assert grade(gold, gold) is Grade.CORRECT
    assert grade(gold, f" {gold}\n") is Grade.CORRECT
    assert grade(gold, prediction, prediction) is Grade.CORRECT or not prediction.strip()
    assert grade(gold, prediction) in {Grade.CORRECT, Grade.INCORRECT, Grade.REFUSED}


@given(st.text(max_size=30))
def test_normalised_text_has_one_case_and_single_spaces(text):
    plain = normalise(text)
    assert plain == " ".join(plain.split())
    assert plain == plain.casefold()


def test_every_simpleqa_gold_answer_is_correct_and_not_a_decline(shared_file):
    for name, size in (("simple_qa_test_set.csv", 4_326), ("simpleqa_verified.csv", 1_000)):
        with shared_file(f"simpleqa/{name}").open(encoding="utf-8", newline="") as file:
            answers = [row["answer"] for row in csv.DictReader(file)]
        assert len(answers) == size
        assert {grade(gold, gold) for gold in answers} == {Grade.CORRECT}
        assert {grade("Ouagadougou", gold) for gold in answers} == {Grade.INCORRECT}


def test_plausible_wrong_answers_to_real_questions_are_not_correct(shared_file):
    """The few that remain differ in signs and letter case that carry meaning only in formulas."""
    path = shared_file("precise_wiki/precisewiki_negative_answers.json")
    pairs = json.loads(path.read_text(encoding="utf-8")).values()
    grades = [grade(pair["correct_answer"], pair["incorrect_answer"]) for pair in pairs]
    assert len(grades) == 9_999
    assert grades.count(Grade.CORRECT) <= 3


def test_real_attempts_are_rarely_refusals_and_abstentions_nearly_always_are(shared_file):
    """A real model's replies about passages, labelled by their source as abstentions or attempts.

    Most of the attempts that count as refusals do decline: the labels of the source are made by rules.
    """
    grades: dict[bool, list[Grade]] = {True: [], False: []}
    for name in ("explicit_n500.jsonl", "implicit_n500.jsonl"):
        for line in shared_file(f"squad2_refusal/{name}").read_text(encoding="utf-8").splitlines():
            reply = json.loads(line)
            grades[reply["abstained"]].append(grade("Ouagadougou", reply["model_output"]))
    assert grades[False].count(Grade.REFUSED) < 0.02 * len(grades[False])
    assert grades[True].count(Grade.REFUSED) > 0.95 * len(grades[True])


def words_by_character(text: str) -> list[str]:
    """Split text as `normalise` did when it worked character by character."""
    folded = unicodedata.normalize("NFKD", text).casefold().translate(FOLDED)
    seen = (one for one in folded if not unicodedata.combining(one) and unicodedata.category(one) != "Cf")
    return TOKEN.findall("".join(seen))


@given(st.text(max_size=40) | st.text(alphabet="aé\u0301\u00ad\u200b' -+#♯1.,", max_size=40))
def test_property_words_agree_with_character_by_character_splitting(text):
    assert _words(text) == words_by_character(text)


@given(st.text(alphabet="12., -aé", max_size=20))
def test_property_quantity_requires_exactly_one_number(text):
    assert (_quantity(text) is None) >= (len(NUMBER.findall(text)) != 1)


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["é ž ", "1 2 ", "don't know ", "a-", "\u0301", "(", "1,111"])
def test_megabyte_reply_is_graded_quickly_with_many_aliases(piece):
    question = Question("q", "?", "Lima", aliases=tuple(f"Lima {number}" for number in range(50)))
    started = time.process_time()
    grade_by_rule(GraderKind.EXACT, question, piece * (2**20 // len(piece)))
    assert time.process_time() - started < 10
