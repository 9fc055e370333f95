"""Unclear replies: they count as answers, and the forced pass asks them too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.protocol import (
    Completion,
    Conversation,
    FirstPassOnly,
    GraderKind,
    Pass,
    Regrading,
    Reply,
    Role,
    Step,
    TwoPass,
    next_requests,
    outcomes,
    partial_outcome,
    used_completions,
)
from refusal_index.protocol.reading import ReadAs, read_reply

QUESTION = Question("q", "When was the bridge of Ostrava built?", "1912")
UNCLEAR = "The town was founded in 1912. I do not know when the bridge was built."
RIGHT = "<answer>1912</answer>"
WRONG = "<answer>1850</answer>"
LETTERED = replace(QUESTION, choices=("1850", "1912", "1930"))
FORCED_STEP = Step(Pass.FORCED, Role.MODEL)


def model_reply(text: str, pass_: Pass = Pass.FIRST) -> Reply:
    return Reply(pass_, Role.MODEL, text)


def completion(text: str, pass_: Pass = Pass.FIRST, draw: int = 0, variant: str = "normal") -> Completion:
    return Completion("q", variant, draw, model_reply(text, pass_))


def test_sentences_of_this_file_are_unclear():
    assert read_reply(UNCLEAR, QUESTION.text).read_as is ReadAs.UNCLEAR
    assert read_reply("A or B", QUESTION.text, LETTERED.choices).read_as is ReadAs.UNCLEAR


@pytest.mark.parametrize(
    ("question", "reply", "kind", "wrong"),
    [
        (QUESTION, UNCLEAR, GraderKind.EXACT, True),
        (QUESTION, UNCLEAR, GraderKind.INCLUDES, False),
        (replace(QUESTION, gold="1913"), UNCLEAR, GraderKind.INCLUDES, True),
        (LETTERED, "A or B", GraderKind.CHOICE, True),
    ],
)
@pytest.mark.parametrize("forced", [RIGHT, WRONG])
def test_unclear_reply_counts_as_an_answer_and_its_question_is_forced(question, reply, kind, wrong, forced):
    procedure = TwoPass(kind)
    assert procedure.step(question, [model_reply(reply)]) == FORCED_STEP
    outcome = procedure.step(question, [model_reply(reply), model_reply(forced, Pass.FORCED)])
    assert isinstance(outcome, Outcome)
    assert (outcome.refused, outcome.wrong, outcome.reading) == (False, wrong, "unclear")
    is_right = (forced == RIGHT) == (question.gold == "1912")
    assert outcome.forced_grade is (Grade.CORRECT if is_right and question.gold == "1912" else Grade.INCORRECT)


@pytest.mark.parametrize("procedure", [FirstPassOnly(GraderKind.INCLUDES), Regrading(GraderKind.INCLUDES)])
def test_forced_answer_of_an_unclear_reply_is_not_requested_without_a_forced_pass(procedure):
    outcome = procedure.step(QUESTION, [model_reply(UNCLEAR)])
    assert isinstance(outcome, Outcome)
    assert (outcome.refused, outcome.wrong, outcome.forced_grade) == (False, False, None)
    assert (outcome.reading, outcome.unscored_reason) == ("unclear", None)


def test_regrading_grades_a_forced_answer_that_exists():
    outcome = Regrading(GraderKind.INCLUDES).step(QUESTION, [model_reply(UNCLEAR), model_reply(WRONG, Pass.FORCED)])
    assert isinstance(outcome, Outcome)
    assert (outcome.wrong, outcome.forced_grade, outcome.reading) == (False, Grade.INCORRECT, "unclear")


def test_regraded_refusal_without_a_forced_answer_is_unscored_and_not_wrong():
    outcome = Regrading(GraderKind.INCLUDES).step(QUESTION, [model_reply("I do not know.")])
    assert isinstance(outcome, Outcome)
    assert (outcome.refused, outcome.wrong, outcome.unscored_reason) == (True, None, "forced_not_asked")
    assert outcome.reading == "wording"


def test_unclear_reply_to_a_question_without_a_right_answer_needs_no_forced_request():
    outcome = TwoPass(GraderKind.EXACT).step(replace(QUESTION, gold=None), [model_reply(UNCLEAR)])
    assert isinstance(outcome, Outcome)
    assert (outcome.refused, outcome.wrong, outcome.reading) == (False, True, "unclear")
    assert (outcome.forced_grade, outcome.forced_reply) == (Grade.INCORRECT, None)


def test_several_draws_keep_their_readings():
    conversation = Conversation(QUESTION, "normal", TwoPass(GraderKind.INCLUDES), 3)
    firsts = [completion(text, draw=draw) for draw, text in enumerate((UNCLEAR, RIGHT, "I do not know."))]
    assert {pending.step.pass_ for pending in next_requests(conversation, firsts)} == {Pass.FORCED}
    drawn = outcomes(conversation, [*firsts, *(completion(WRONG, Pass.FORCED, draw) for draw in range(3))])
    assert [(one.reading, one.refused, one.wrong) for one in drawn] == [
        ("unclear", False, False),
        ("answer", False, False),
        ("wording", True, True),
    ]
    assert {one.forced_grade for one in drawn} == {Grade.INCORRECT}


def test_forced_answer_belongs_only_to_variants_that_need_it():
    forced = completion(WRONG, Pass.FORCED, variant="")
    for variant, first, used in (("low", UNCLEAR, 2), ("high", RIGHT, 1)):
        conversation = Conversation(QUESTION, variant, TwoPass(GraderKind.INCLUDES))
        replies = [completion(first, variant=variant), forced]
        assert len(used_completions(conversation, replies)) == used
        (outcome,) = outcomes(conversation, replies)
        assert outcome.forced_grade is (Grade.INCORRECT if used == 2 else None)


def test_unclear_reply_whose_forced_request_failed_is_an_answered_question():
    conversation = Conversation(QUESTION, "normal", TwoPass(GraderKind.INCLUDES))
    outcome = partial_outcome(conversation, [completion(UNCLEAR)], "api_error")
    assert (outcome.refused, outcome.wrong, outcome.first_grade) == (False, False, Grade.CORRECT)
    assert (outcome.reading, outcome.unscored_reason, outcome.forced_grade) == ("unclear", None, None)


def test_refusal_whose_forced_request_failed_keeps_its_reading():
    conversation = Conversation(QUESTION, "normal", TwoPass(GraderKind.INCLUDES))
    outcome = partial_outcome(conversation, [completion("I do not know.")], "api_error")
    assert (outcome.refused, outcome.wrong, outcome.unscored_reason) == (True, None, "api_error")
    assert outcome.reading == "wording"
