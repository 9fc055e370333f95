"""What counts as the same answer and as another: text, numbers and their units."""

# ruff: noqa: RUF001

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
from refusal_index.protocol.comparison import FOLDED, INITIALS, TOKEN, _amount, _joined, _words, normalise, same
from refusal_index.protocol.quantities import NUMBER
from refusal_index.protocol.reading import ReadAs, Reading


def grade(gold: str, prediction: str, *aliases: str) -> Grade:
    reading = Reading(ReadAs.ANSWER, prediction)
    return grade_by_rule(GraderKind.EXACT, Question("q", "What is it?", gold, aliases), reading)


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
    # initials, signs with a name, full-width characters and LaTeX
    ("C. S. Lewis", "CS Lewis", "C.S. Lewis"),
    ("E.E. Cummings", "e. e. cummings"),
    ("U.K.", "UK"),
    ("Washington D.C.", "Washington DC"),
    ("Marks & Spencer", "Marks and Spencer"),
    ("Ｓａｌｔｏ", "Salto"),
    ("B", "Ｂ"),
    ("Salto del Agua", r"\text{Salto del Agua}"),
    ("\u00bd", "1/2"),
    (r"\frac{3}{4}", "3/4"),
    # symbols in other forms
    (">=5", "≥5", "≥ 5", r"\geq 5"),
    ("x <= 5", "x ≤ 5", "x≤5"),
    ("10^6", "10⁶", "10^{6}", "10**6", "10<sup>6</sup>"),
    ("10^-6", "10⁻⁶", "10^{-6}"),
    ("x²", "x^2", "x2"),
    ("√2", r"\sqrt{2}", "sqrt(2)"),
    ("±5", "+/-5", r"\pm 5"),
    ("x != 5", "x ≠ 5", r"x \neq 5"),
    ("3 × 4", "3 x 4"),
    ("2 + 3", "2+3"),
    ("p < 0.05", "p<0.05"),
    # marks that mean nothing
    ("Salto", "<b>Salto</b>", "> Salto", "<Salto>", "Salto<br>"),
    ("A -> B", "A → B"),
    # measures
    ("5 km", "5km", "5 kilometres", "5 kilomètres"),
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
    ("Not known", "not known."),
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
    ("A. B. Smith", "B. Smith"),
    ("vitamin C. A", "vitamin CA"),
    # fractions, decimal numbers and ranges
    ("3/4", "3.4"),
    ("3.4", "3/4"),
    ("3/4", "3/5"),
    ("0.75", "3/4"),
    ("9/11", "9.11"),
    ("7-5", "7.5"),
    # symbols that carry meaning
    ("10^6", "10^-6"),
    ("10⁶", "10⁻⁶"),
    ("10⁶", "106"),
    ("10^6", "10 6"),
    (">5", "<5"),
    ("5", ">5"),
    (">5", "5"),
    ("≥5", "≤5"),
    ("√2", "2"),
    ("2", "√2"),
    ("-√2", "√2"),
    ("±5", "5"),
    ("p > 0.05", "p < 0.05"),
    ("x >= 5", "x <= 5"),
    ("x ≠ 5", "x = 5"),
    ("x + 5", "x - 5"),
    ("(3, -4)", "(3, 4)"),
    ("-3/4", "3/4"),
    ("-$5", "$5"),
    ("A♠", "A♣"),
    # signs beside several numbers
    ("€3 or €4", "3% or 4%"),
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
    # units
    ("35%", "35 percent"),
    ("35%", "35 per cent"),
    ("35 Prozent", "35%"),
    ("€7", "7"),
    ("€7", "7 euros"),
    ("EUR 7", "7€"),
    ("7 euros", "€7"),
    ("$7", "USD 7", "US$7"),
    ("A$7", "$7"),
    ("7 Canadian dollars", "C$7"),
    ("¥700", "700 yuan", "700 yen"),
    ("120 Kč", "CZK 120"),
    ("30 °C", "30 degrees Celsius", "30℃"),
    ("30°", "30 °C"),
    (r"30^\circ", "30°"),
    ("7%", "7％"),
    ("7 EUR", "7EUR"),
    # minus signs, groups of three digits, decimal commas
    ("-12", "\u201312", "\u201212"),
    ("12 500", "12500"),
    ("12500", "12\u00a0500"),
    ("12,500", "12\u2009500"),
    ("1234567", "1\u202f234\u202f567"),
    ("12'500", "12500"),
    ("2,5", "2.5"),
    ("0,125", "0.125"),
    (r"12{,}500", "12500"),
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
    ("35%", "$35"),
    ("$35", "35%"),
    ("€35", "$35"),
    ("£35", "€35"),
    ("35 USD", "35 EUR"),
    ("AUD 35", "CAD 35"),
    ("35 °C", "35 °F"),
    ("35 °C", "35%"),
    ("35%", "35\u2030"),
    ("700 yen", "700 yuan"),
    ("Airbus 380", "$380"),
    ("380 guests", "380%"),
    ("COVID-19", "19"),
    ("12", "\u201312"),
    ("12 500", "12"),
    ("2,500", "2.5"),
]


@pytest.mark.parametrize(("gold", "prediction"), [(gold, text) for gold, *all_said in SAME for text in all_said])
def test_same_text_is_correct(gold, prediction):
    assert grade(gold, prediction) is Grade.CORRECT


@pytest.mark.parametrize(("gold", "prediction"), DIFFERENT)
def test_other_text_is_incorrect(gold, prediction):
    assert grade(gold, prediction) is Grade.INCORRECT


@pytest.mark.parametrize(("gold", "prediction"), [(gold, text) for gold, *all_said in SAME_NUMBER for text in all_said])
def test_number_that_agrees_to_the_last_figure_is_correct(gold, prediction):
    assert grade(gold, prediction) is Grade.CORRECT


@pytest.mark.parametrize(("gold", "prediction"), OTHER_NUMBER, ids=lambda text: text[:20])
def test_number_that_does_not_agree_is_incorrect(gold, prediction):
    assert grade(gold, prediction) is Grade.INCORRECT


def test_any_alias_is_as_good_as_the_gold_answer():
    aliases = ("Sankt-Peterburg", "Leningrad", "1,703")
    for prediction in ("Saint Petersburg", "leningrad", "Sankt Peterburg", "1703"):
        assert grade("Saint Petersburg", prediction, *aliases) is Grade.CORRECT
    assert grade("Saint Petersburg", "Petrograd", *aliases) is Grade.INCORRECT


@pytest.mark.parametrize(
    "unit",
    [
        "<",
        " ",
        "1",
        "1,",
        "1,111",
        "1 ",
        "..5",
        "-",
        "'",
        "a ",
        "the ",
        "not ",
        "i do not ",
        "é",
        "a.",
        "1/",
        "$",
        "\\frac{",
    ],
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
    assert same(gold, gold)
    assert grade(gold, prediction, prediction) is Grade.CORRECT or not prediction.strip()
    assert grade(gold, prediction) in {Grade.CORRECT, Grade.INCORRECT}


@given(st.text(max_size=30))
def test_normalised_text_has_one_case_and_single_spaces(text):
    plain = normalise(text)
    assert plain == " ".join(plain.split())
    assert plain == plain.casefold()


def test_every_simpleqa_gold_answer_is_correct_and_another_is_not(shared_file):
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
    assert grades.count(Grade.CORRECT) <= 2


def words_by_character(text: str) -> list[str]:
    """Split text as `normalise` did when it worked character by character."""
    folded = unicodedata.normalize("NFKD", text).casefold().translate(FOLDED)
    seen = (one for one in folded if not unicodedata.combining(one) and unicodedata.category(one) != "Cf")
    return TOKEN.findall(INITIALS.sub(_joined, "".join(seen)))


@given(st.text(max_size=40) | st.text(alphabet="aé\u0301\u00ad\u200b' -+#♯1.,", max_size=40))
def test_property_words_agree_with_character_by_character_splitting(text):
    assert _words(text) == words_by_character(text)


SIGNS = {
    "$": "USD",
    "€": "EUR",
    "£": "GBP",
    "%": "percent",
    "\u2030": None,
    "°C": "degrees Celsius",
    "°F": "fahrenheit",
}


@given(st.sampled_from(list(SIGNS)), st.sampled_from(list(SIGNS)), st.integers(0, 10**6), st.booleans())
def test_property_two_signs_agree_only_if_they_are_the_same(sign, other, number, in_words):
    written = (SIGNS[other] if in_words else None) or other
    assert same(f"{number} {sign}", f"{number} {written}") is (sign == other)
    assert same(f"{number}", f"{number} {written}")
    assert same(f"{number} {sign}", f"{number}")


@given(st.integers(1000, 10**12), st.sampled_from([",", " ", "\u00a0", "\u2009", "\u202f", "'"]))
def test_property_grouped_digits_are_the_number(number, separator):
    assert same(str(number), f"{number:,}".replace(",", separator))
    assert not same(str(number + 1), f"{number:,}".replace(",", separator))


@given(st.text(alphabet="12., -aé", max_size=20))
def test_property_quantity_requires_exactly_one_number(text):
    assert (_amount(text) is None) >= (len(NUMBER.findall(text)) != 1)


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["é ž ", "1 2 ", "don't know ", "a-", "\u0301", "(", "1,111"])
def test_megabyte_reply_is_graded_quickly_with_many_aliases(piece):
    question = Question("q", "?", "Lima", aliases=tuple(f"Lima {number}" for number in range(50)))
    started = time.process_time()
    grade_by_rule(GraderKind.EXACT, question, Reading(ReadAs.ANSWER, piece * (2**20 // len(piece))))
    assert time.process_time() - started < 10
