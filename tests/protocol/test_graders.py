"""Evidence for the rules of the graders that are no model, and for what each of them needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refusal_index.data import Grade, Question, text
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
from refusal_index.protocol.grading import RULES, Rule, pattern_grade, unscored_reason
from refusal_index.protocol.replies import FUNCTIONS, detector_of

PLAIN = Question("plain", "Who?", "Ann")
CHOICES = Question("choices", "Who?", "Ann", choices=("Ann", "Bob"))
PATTERN = Question("pattern", "When?", "1945", pattern=r"(in )?1945( AD)?")
NO_GOLD = Question("none", "Who?", None)


@pytest.mark.parametrize(
    ("said", "grade"),
    [
        ("1945", Grade.CORRECT),
        ("In 1945 ad.", Grade.CORRECT),
        ('"1945"', Grade.CORRECT),
        ("1945 or 1946", Grade.INCORRECT),
        ("19451", Grade.INCORRECT),
        ("I don't know", Grade.REFUSED),
        ("I don't know, 1945", Grade.INCORRECT),
    ],
)
def test_a_pattern_matches_from_end_to_end_whatever_the_case_and_the_punctuation_around(said, grade):
    assert grade_by_rule(GraderKind.REGEX, PATTERN, said) is grade


def test_a_pattern_may_let_more_through():
    assert pattern_grade(Question("q", "?", "Lima", pattern=".*Lima.*"), "It is\nLima, I think") is Grade.CORRECT


@pytest.mark.parametrize("of", TWO_PASSES)
def test_a_pattern_that_takes_for_ever_leaves_the_question_unscored_and_says_so(of, monkeypatch):
    """It hung for good."""
    monkeypatch.setattr(text, "SECONDS", 0.1)
    endless = Question("q", "Who?", "a", pattern="(a|aa)+$")
    replies = [Reply(Pass.FIRST, Role.MODEL, "<answer>UNANSWERED</answer>")] if of is Pass.FORCED else []
    outcome = next_step(endless, [*replies, Reply(of, Role.MODEL, "a" * 60 + "!")], GraderKind.REGEX)
    assert (outcome.wrong, outcome.unscored_reason) == (None, f"{of}_pattern_timeout")


def test_exact_goes_by_choices_where_there_are_such_and_regex_by_patterns():
    assert grade_by_rule(GraderKind.EXACT, CHOICES, "A") is Grade.CORRECT
    assert grade_by_rule(GraderKind.EXACT, PLAIN, "A") is Grade.INCORRECT
    assert grade_by_rule(GraderKind.REGEX, PATTERN, "in 1945") is Grade.CORRECT
    assert grade_by_rule(GraderKind.EXACT, PATTERN, "in 1945") is Grade.INCORRECT


def test_what_recognises_refusals_can_be_replaced(monkeypatch):
    said = "The passage does not say."
    assert grade_by_rule(GraderKind.EXACT, PLAIN, said, detector_of("wording")) is Grade.REFUSED
    assert grade_by_rule(GraderKind.EXACT, PLAIN, said, detector_of("tag")) is Grade.INCORRECT
    assert grade_by_rule(GraderKind.EXACT, PLAIN, said, detector_of("NOT say")) is Grade.REFUSED
    assert grade_by_rule(GraderKind.EXACT, PLAIN, said, detector_of("no comment")) is Grade.INCORRECT
    assert grade_by_rule(GraderKind.EXACT, PLAIN, "Ann", detector_of("ann")) is Grade.CORRECT
    for refused in ("(", "python:mine:declines"):
        with pytest.raises(text.PatternError):
            detector_of(refused)
    monkeypatch.setitem(FUNCTIONS, "python:mine:declines", lambda reply: reply.endswith("say."))
    assert grade_by_rule(GraderKind.EXACT, PLAIN, said, detector_of("python:mine:declines")) is Grade.REFUSED


def test_a_pattern_of_refusals_that_takes_for_ever_leaves_the_question_unscored(monkeypatch):
    monkeypatch.setattr("refusal_index.protocol.replies.SECONDS", 0.1)
    said = Reply(Pass.FIRST, Role.MODEL, "a" * 60 + "!")
    outcome = next_step(PLAIN, [said], GraderKind.EXACT, detector=detector_of("(a|aa)+$"))
    assert (outcome.refused, outcome.unscored_reason) == (None, "first_rule_undecided")


@pytest.mark.parametrize("kind", [kind for kind in GraderKind if not kind.models])
def test_nothing_is_right_where_there_is_no_right_answer(kind):
    said = ["Ann", "nobody", "UNKNOWN", "", "None"]
    assert Grade.CORRECT not in {grade_by_rule(kind, NO_GOLD, text) for text in said}
    assert grade_by_rule(kind, NO_GOLD, "The text does not say.") is Grade.REFUSED


@pytest.mark.parametrize("kind", [GraderKind.EXACT, GraderKind.MODEL, GraderKind.AGREE])
def test_most_graders_take_any_question(kind):
    check_gradable([PLAIN, CHOICES, PATTERN, NO_GOLD], kind)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [(GraderKind.CHOICE, "choices .* plain, pattern, none;"), (GraderKind.REGEX, "pattern .* plain, choices;")],
)
def test_a_grader_that_goes_by_something_names_the_questions_without(kind, missing):
    with pytest.raises(GraderError, match=rf"grader '{kind}': expected (a )?{missing}"):
        check_gradable([PLAIN, CHOICES, PATTERN, NO_GOLD], kind)


def test_many_questions_without_are_counted():
    questions = [Question(f"q{number}", "?", "!") for number in range(1205)]
    with pytest.raises(GraderError, match="in q0, q1, q2, q3, q4 and 1,200 more; name the column"):
        check_gradable(questions, GraderKind.CHOICE)


UNDECIDED = Rule(lambda _question, _prediction: Grade.UNSCORED)


@pytest.mark.parametrize("kind", [kind for kind in GraderKind if not kind.models])
@pytest.mark.parametrize("of", TWO_PASSES)
def test_what_a_rule_cannot_decide_is_unscored_for_a_reason_of_its_own(kind, of, monkeypatch):
    """Only of choices can an answer be ambiguous; another rule that leaves one open is not called so."""
    question, reason = PATTERN, "rule_undecided"
    if kind is GraderKind.CHOICE:
        question, reason = CHOICES, "choice_ambiguous"
    else:
        reason = "pattern_timeout" if kind is GraderKind.REGEX else reason
        monkeypatch.setitem(RULES, kind, replace(RULES[kind], grade=UNDECIDED.grade))
    replies = [Reply(Pass.FIRST, Role.MODEL, "<answer>UNANSWERED</answer>")] if of is Pass.FORCED else []
    outcome = next_step(question, [*replies, Reply(of, Role.MODEL, "<answer>A) Bob</answer>")], kind)
    assert outcome.unscored_reason == f"{of}_{reason}"
    assert outcome.wrong is None
    assert unscored_reason(GraderKind.EXACT, CHOICES) == "choice_ambiguous", "choices are compared as such"
