"""Rules that grade answers: text, choices and patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Grade, Question
from refusal_index.data import text as data_text
from refusal_index.data.outcome import LETTERS
from refusal_index.protocol import (
    TWO_PASSES,
    GraderError,
    GraderKind,
    Pass,
    Reply,
    Role,
    check_gradable,
    grade_by_rule,
    next_step,
)
from refusal_index.protocol.grading import RULES, Rule, choice_grade, pattern_grade, unscored_reason
from refusal_index.protocol.reading import ReadAs, Reading, RecognisedBy, read_reply

LONG = 2**17
"""Characters of a reply. In quadratic time, reading it would take longer than a test may."""

RULE_KINDS = [kind for kind in GraderKind if not kind.models]


def read(text: str, choices: Sequence[str] = ()) -> Reading:
    return read_reply(text, choices=choices)


PLAIN = Question("plain", "Who?", "Ann")
CHOICES = Question("choices", "Who?", "Ann", choices=("Ann", "Bob"))
PATTERN = Question("pattern", "When?", "1945", pattern=r"(in )?1945( AD)?")
WITHOUT_GOLD = Question("none", "Who?", None)


@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        ("1945", Grade.CORRECT),
        ("In 1945 ad.", Grade.CORRECT),
        ('"1945"', Grade.CORRECT),
        ("1945 or 1946", Grade.INCORRECT),
        ("19451", Grade.INCORRECT),
        ("I don't know, 1945", Grade.CORRECT),
        ("In 1945, but I am not sure.", Grade.CORRECT),
        ("I don't know, 1946", Grade.INCORRECT),
    ],
)
def test_pattern_matches_whole_answer_ignoring_case_and_punctuation(answer, grade):
    assert grade_by_rule(GraderKind.REGEX, PATTERN, read(answer)) is grade


def test_pattern_may_allow_surrounding_text():
    question = Question("q", "?", "Lima", pattern=".*Lima.*")
    assert pattern_grade(question, read("It is\nLima, I think")) is Grade.CORRECT


@pytest.mark.parametrize("of", TWO_PASSES)
def test_pattern_timeout_leaves_the_question_unscored(of, monkeypatch):
    """This used to hang."""
    monkeypatch.setattr(data_text, "SECONDS", 0.1)
    endless = Question("q", "Who?", "a", pattern="(a|aa)+$")
    replies = [Reply(Pass.FIRST, Role.MODEL, "<answer>UNANSWERED</answer>")] if of is Pass.FORCED else []
    outcome = next_step(endless, [*replies, Reply(of, Role.MODEL, "a" * 60 + "!")], GraderKind.REGEX)
    assert (outcome.wrong, outcome.unscored_reason) == (None, f"{of}_pattern_timeout")


def test_exact_uses_choices_if_present_and_regex_uses_patterns():
    assert grade_by_rule(GraderKind.EXACT, CHOICES, read("A", CHOICES.choices)) is Grade.CORRECT
    assert grade_by_rule(GraderKind.EXACT, PLAIN, read("A")) is Grade.INCORRECT
    assert grade_by_rule(GraderKind.REGEX, PATTERN, read("in 1945")) is Grade.CORRECT
    assert grade_by_rule(GraderKind.EXACT, PATTERN, read("in 1945")) is Grade.INCORRECT


@pytest.mark.parametrize("kind", RULE_KINDS)
def test_rules_grade_nothing_correct_without_a_gold_answer(kind):
    answer = ["Ann", "nobody", "UNKNOWN", "None"]
    assert {grade_by_rule(kind, WITHOUT_GOLD, Reading(ReadAs.ANSWER, text)) for text in answer} == {Grade.INCORRECT}


@pytest.mark.parametrize("kind", RULE_KINDS)
@pytest.mark.parametrize("gold", ["Ann", "The text does not say", "unknown", None])
def test_no_rule_grades_a_refusal_whatever_the_gold_answer(kind, gold):
    question = Question("q", "Who?", gold, pattern=".*", choices=("Ann", "Bob") if kind is GraderKind.CHOICE else ())
    outcome = next_step(question, [Reply(Pass.FIRST, Role.MODEL, "The text does not say.")], kind, asks_forced=False)
    assert (outcome.refused, outcome.first_grade, outcome.reading) == (True, Grade.REFUSED, "wording")


@pytest.mark.parametrize("kind", [GraderKind.EXACT, GraderKind.MODEL, GraderKind.AGREE])
def test_most_graders_take_any_question(kind):
    check_gradable([PLAIN, CHOICES, PATTERN, WITHOUT_GOLD], kind)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [(GraderKind.CHOICE, "choices .* plain, pattern, none;"), (GraderKind.REGEX, "pattern .* plain, choices;")],
)
def test_grader_error_names_questions_without_the_required_field(kind, missing):
    with pytest.raises(GraderError, match=rf"grader '{kind}': expected (a )?{missing}"):
        check_gradable([PLAIN, CHOICES, PATTERN, WITHOUT_GOLD], kind)


def test_grader_error_counts_further_questions():
    questions = [Question(f"q{number}", "?", "!") for number in range(1205)]
    with pytest.raises(GraderError, match="in q0, q1, q2, q3, q4 and 1,200 more; name the column"):
        check_gradable(questions, GraderKind.CHOICE)


UNDECIDED = Rule("never", lambda _question, _reading: Grade.UNSCORED)


@pytest.mark.parametrize("kind", RULE_KINDS)
@pytest.mark.parametrize("of", TWO_PASSES)
def test_undecided_rule_gives_a_specific_unscored_reason(kind, of, monkeypatch):
    reason = "pattern_timeout" if kind is GraderKind.REGEX else "rule_undecided"
    monkeypatch.setitem(RULES, kind, replace(RULES[kind], grade=UNDECIDED.grade))
    replies = [Reply(Pass.FIRST, Role.MODEL, "<answer>UNANSWERED</answer>")] if of is Pass.FORCED else []
    outcome = next_step(PATTERN, [*replies, Reply(of, Role.MODEL, "<answer>1946</answer>")], kind)
    assert outcome.unscored_reason == f"{of}_{reason}"
    assert outcome.wrong is None
    assert unscored_reason(kind, PATTERN) == reason


# --- The multiple-choice grader

CAPITAL = Question(
    "q", "What is the capital of Peru?", "Lima", ("Ciudad de los Reyes",), choices=("Cuzco", "Lima", "Quito")
)


@pytest.mark.parametrize("kind", [GraderKind.CHOICE, GraderKind.EXACT])
@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        ("B", Grade.CORRECT),
        ("(b)", Grade.CORRECT),
        ("Lima", Grade.CORRECT),
        ("B) Lima", Grade.CORRECT),
        ("The answer is Lima", Grade.CORRECT),
        ("D) Lima", Grade.CORRECT),
        ("I am not sure, B", Grade.CORRECT),
        ("Ciudad de los Reyes", Grade.CORRECT),
        ("C", Grade.INCORRECT),
        ("The answer is Quito", Grade.INCORRECT),
        ("A or B", Grade.INCORRECT),
        ("Bogotá", Grade.INCORRECT),
    ],
)
def test_answer_is_graded_by_the_choice_that_it_names(kind, answer, grade):
    assert grade_by_rule(kind, CAPITAL, read(answer, CAPITAL.choices)) is grade


@pytest.mark.parametrize("kind", [GraderKind.CHOICE, GraderKind.EXACT, GraderKind.INCLUDES])
@pytest.mark.parametrize("gold", CAPITAL.choices)
@pytest.mark.parametrize("answer", ["A) Lima", "B) Cuzco", "A) Quito"])
def test_letter_and_text_that_contradict_each_other_are_unscored_whichever_is_right(kind, gold, answer):
    outcome = next_step(replace(CAPITAL, gold=gold, aliases=()), [Reply(Pass.FIRST, Role.MODEL, answer)], kind)
    assert (outcome.refused, outcome.wrong, outcome.unscored_reason) == (None, None, "first_choice_ambiguous")


@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        ("B", Grade.CORRECT),
        ("It was certainly Lima.", Grade.CORRECT),
        ("C", Grade.INCORRECT),
        ("Either Lima or Cuzco", Grade.INCORRECT),
        ("Lima, as opposed to Quito and Cuzco", Grade.INCORRECT),
    ],
)
def test_answer_that_includes_another_choice_is_wrong(answer, grade):
    assert grade_by_rule(GraderKind.INCLUDES, CAPITAL, read(answer, CAPITAL.choices)) is grade


def test_every_choice_is_wrong_without_a_right_answer():
    question = Question("q", "?", None, choices=CAPITAL.choices)
    grades = {choice_grade(question, read(answer, question.choices)) for answer in ("A", "B) Lima", "A or B", "Bonn")}
    assert grades == {Grade.INCORRECT}


@pytest.mark.parametrize("gold", ["Lima", "Insufficient information to answer the question", None])
@pytest.mark.parametrize("answer", ["C", "C) Insufficient information to answer the question"])
def test_declining_choice_is_a_refusal_whatever_the_gold_answer(gold, answer):
    choices = ("Cuzco", "Lima", "Insufficient information to answer the question")
    question = Question("q", "?", gold, choices=choices)
    outcome = next_step(question, [Reply(Pass.FIRST, Role.MODEL, answer)], GraderKind.CHOICE, asks_forced=False)
    assert (outcome.refused, outcome.reading) == (True, RecognisedBy.CHOICE)


WORDS = st.lists(
    st.sampled_from(["ash", "birch", "cedar", "fir", "oak", "pine", "yew"]), min_size=2, max_size=7, unique=True
)


@given(WORDS, st.data())
def test_property_every_way_of_naming_a_choice_is_recognised(choices, data):
    place = data.draw(st.integers(0, len(choices) - 1))
    gold = choices[data.draw(st.integers(0, len(choices) - 1))]
    question = Question("q", "Which tree?", gold, choices=tuple(choices))
    letter, text = LETTERS[place], choices[place]
    for answer in (letter, letter.lower(), f"({letter})", text, text.upper(), f"{letter}) {text}", f"Answer: {letter}"):
        reading = read(answer, question.choices)
        assert reading.choice == text
        assert choice_grade(question, reading) is (Grade.CORRECT if text == gold else Grade.INCORRECT)


@given(st.text(max_size=30))
def test_property_any_answer_is_right_or_wrong(answer):
    reading = Reading(ReadAs.ANSWER, answer)
    assert choice_grade(CAPITAL, reading) in {Grade.CORRECT, Grade.INCORRECT}


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        ("(" * LONG + "1", None),
        ("answer" + " " * LONG + "1", None),
        ("* (" * (LONG // 3), None),
        ("A" + ")" * LONG, "Cuzco"),
    ],
)
@pytest.mark.timeout(10)
def test_long_run_of_brackets_is_graded_in_linear_time(reply, choice):
    question = Question("q", "?", "Lima", choices=("Cuzco", "Lima"))
    reading = read(reply, question.choices)
    assert reading.choice == choice
    assert choice_grade(question, reading) is Grade.INCORRECT
