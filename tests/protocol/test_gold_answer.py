"""The right answer changes no reading: it first appears when answers are graded."""

from __future__ import annotations

import inspect
from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusal_index.data import Outcome, Question
from refusal_index.protocol import (
    GraderKind,
    Pass,
    Regrading,
    Reply,
    Role,
    Step,
    StopReason,
    TwoPass,
    final_answer,
    phrases,
    reading,
    wording,
)
from refusal_index.protocol import choices as choices_module
from refusal_index.protocol.refusals import TAG, WORDING, RefusalRule

MODULES = (reading, wording, phrases, choices_module, final_answer)
FORBIDDEN = {"gold", "golds", "alias", "aliases", "pattern", "grade", "grades", "accepted", "outcome"}


def functions_of(module: ModuleType) -> list[object]:
    """Return the functions of a module, and the methods of its classes."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    found = []
    for value in own:
        found += [member for member in vars(value).values() if callable(member)] if inspect.isclass(value) else [value]
    return [inspect.unwrap(function) for function in found if inspect.isroutine(inspect.unwrap(function))]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_no_function_that_reads_takes_the_right_answer_or_a_grade(module):
    functions = functions_of(module)
    assert len(functions) > 2
    for function in functions:
        for name, parameter in inspect.signature(function).parameters.items():
            assert name not in FORBIDDEN, function
            assert "Question" not in str(parameter.annotation), function
            assert "Grade" not in str(parameter.annotation), function


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_no_module_that_reads_imports_questions_or_grades(module):
    assert not {"Question", "Grade", "Outcome"} & set(vars(module))


CHOICES = ("Lima", "Cuzco", "Quito", "Cannot be determined")
NAMES = st.sampled_from(["Lima", "Cuzco", "Quito", "La Paz", "1535", "403 rooms", "unknown", "none of them", "No"])
PHRASES = st.sampled_from(
    [
        *("I don't know", "I'm not sure", "but I think it was", "perhaps", "The text does not say", "Unknown", "It is"),
        *("I cannot verify it", "nevím", "ale myslím, že", "Das ist nicht bekannt", "Je ne sais pas", "我不知道"),
        *("The capital is", "There is no information about", "no comment", "Sorry", "No"),
    ]
)
LETTERS = st.sampled_from(["A", "B)", "(c)", "D.", "A or B", "Answer: B", "E"])
SIGNS = st.sampled_from([". ", ", ", " ", "\n", "; ", " (", ") ", "? "])
PARTS = st.lists(PHRASES | NAMES | LETTERS | SIGNS, min_size=1, max_size=7).map(" ".join)
REPLIES = st.one_of(
    PARTS,
    PARTS.map("<answer>{}</answer>".format),
    PARTS.map("<think>Lima?</think>{}".format),
    st.just("<answer>UNANSWERED</answer>"),
)
GOLDS = st.none() | NAMES | st.sampled_from([*CHOICES, "I don't know", "The text does not say"])
RULES = st.sampled_from(
    [
        WORDING,
        TAG,
        RefusalRule(phrase="no comment|La Paz"),
        RefusalRule(by_wording=False, function=lambda answer: "Lima" in answer),
        RefusalRule(by_wording=False, asks_model=True),
    ]
)
KINDS = st.sampled_from([GraderKind.EXACT, GraderKind.INCLUDES, GraderKind.CHOICE, GraderKind.REGEX])
STOPS = st.sampled_from([StopReason.STOP] * 4 + list(StopReason))


@st.composite
def right_answers(draw: st.DrawFn, question: Question) -> Question:
    """Return a question with another right answer."""
    gold = draw(st.sampled_from(question.choices) if question.choices else GOLDS.filter(bool))
    aliases = () if question.choices else tuple(draw(st.lists(NAMES, max_size=2)))
    return replace(question, gold=gold, aliases=aliases, pattern=draw(st.sampled_from([".*", "Lima", "x", "1.*"])))


@settings(max_examples=300)
@given(st.data(), REPLIES, STOPS, RULES, KINDS, st.booleans(), st.sampled_from(["B", "C"]))
def test_property_right_answer_changes_no_reading_and_no_request_of_the_first_pass(
    data, text, stop_reason, rule, kind, is_choice, verdict
):
    asked = Question("q", "What is the capital of Peru?", "", choices=CHOICES if is_choice else ())
    questions = [data.draw(right_answers(asked)) for _ in range(2)]
    procedure = TwoPass(kind, refusals=rule)
    regrading = Regrading(kind, refusals=rule)
    reply = Reply(Pass.FIRST, Role.MODEL, text, stop_reason)
    judged = Reply(Pass.FIRST, Role.GRADER, verdict)
    one, other = (procedure.step(question, [reply]) for question in questions)
    if isinstance(one, Step) or isinstance(other, Step):
        assert one == other  # a verdict about the first reply, or the forced answer, is needed or it is not
    replies = [reply, judged] if isinstance(one, Step) and one.role is Role.GRADER else [reply]
    first, second = (regrading.step(question, replies) for question in questions)
    assert isinstance(first, Outcome)
    assert isinstance(second, Outcome)
    assert (first.reading, first.refused) == (second.reading, second.refused)
    assert (first.first_grade == "refused") == (second.first_grade == "refused")


@given(REPLIES, STOPS, RULES, GOLDS)
def test_property_question_without_a_right_answer_is_read_like_any_other(text, stop_reason, rule, gold):
    question = Question("q", "What is the capital of Peru?", gold)
    reply = Reply(Pass.FIRST, Role.MODEL, text, stop_reason)
    judged = Reply(Pass.FIRST, Role.GRADER, "C")
    procedure = Regrading(GraderKind.INCLUDES, refusals=rule)
    one = procedure.step(question, [reply, judged])
    other = procedure.step(replace(question, gold=None), [reply, judged])
    assert isinstance(one, Outcome)
    assert isinstance(other, Outcome)
    assert (one.reading, one.refused) == (other.reading, other.refused)
