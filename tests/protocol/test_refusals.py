"""How refusals without the tag are recognised: the setting `refusal` and its rules."""

from __future__ import annotations

import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.text import PatternError
from refusal_index.protocol import (
    TWO_PASSES,
    Completion,
    Conversation,
    GraderKind,
    Pass,
    Reply,
    Role,
    Step,
    TwoPass,
    next_requests,
    outcomes,
)
from refusal_index.protocol.grader_prompt import default_grader_prompt
from refusal_index.protocol.reading import ReadAs, RecognisedBy, read_reply
from refusal_index.protocol.refusals import (
    LEFT_TO_GRADER,
    TAG,
    WORDING,
    RefusalRule,
    phrases_from_file,
    refusal_rule,
)
from refusal_index.protocol.steps import GRADE_ATTEMPTS

GRADER_PROMPT = default_grader_prompt()
DECLINED = "I am afraid that I cannot answer this."
OWN_PHRASE = "Please ask our legal team."
ANSWERED = "It was Nora Kvist."
TAGGED = "<answer>Nora Kvist</answer>"
REFUSED = "<answer>UNANSWERED</answer>"


def recognised_by(reply: str, rule: RefusalRule) -> RecognisedBy | None:
    return read_reply(reply, "Who built it?", refusals=rule).recognised_by


# --- The setting


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        ("wording", WORDING),
        ("tag", TAG),
        ("+legal team", RefusalRule(phrase="legal team")),
        ("model:openai/gpt-4.1", RefusalRule(by_wording=False, asks_model=True)),
    ],
)
def test_setting_names_a_rule(setting, rule):
    assert refusal_rule(setting) == rule


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("legal team", r"write it as '\+legal team'"),
        ("+(", "missing"),
        ("python:mine:declines", "only runs if you name it"),
    ],
)
def test_other_settings_are_rejected_with_what_to_do(setting, message):
    with pytest.raises(PatternError, match=message):
        refusal_rule(setting)


@pytest.mark.parametrize(
    ("rule", "by_wording", "by_phrase"),
    [
        (WORDING, RecognisedBy.WORDING, None),
        (TAG, None, None),
        (LEFT_TO_GRADER, None, None),
        (refusal_rule("+LEGAL team"), RecognisedBy.WORDING, RecognisedBy.PHRASE),
        (refusal_rule("model:openai/gpt-4.1"), None, None),
    ],
    ids=["wording", "tag", "grader", "phrase", "model"],
)
def test_each_rule_recognises_its_refusals(rule, by_wording, by_phrase):
    assert recognised_by(REFUSED, rule) is RecognisedBy.TAG
    assert recognised_by(DECLINED, rule) is by_wording
    assert recognised_by(OWN_PHRASE, rule) is by_phrase
    assert recognised_by(ANSWERED, rule) is recognised_by(TAGGED, rule) is None


def test_phrase_is_found_in_the_answer_and_not_in_the_reasoning():
    rule = refusal_rule("+legal team")
    assert recognised_by(f"<think>{OWN_PHRASE}</think>{ANSWERED}", rule) is None
    assert recognised_by(f"{OWN_PHRASE} {TAGGED}", rule) is None
    assert recognised_by(f"<answer>{OWN_PHRASE}</answer>", rule) is RecognisedBy.PHRASE


def test_function_replaces_the_wording_and_sees_only_the_answer():
    seen = []

    def declines(answer: str) -> bool:
        seen.append(answer)
        return "legal" in answer

    rule = refusal_rule("python:mine:declines", declines)
    assert recognised_by(f"<think>Who?</think><answer>{OWN_PHRASE}</answer>", rule) is RecognisedBy.FUNCTION
    assert recognised_by(DECLINED, rule) is None
    assert recognised_by(REFUSED, rule) is RecognisedBy.TAG
    assert seen == [OWN_PHRASE, DECLINED]


def test_phrase_that_takes_too_long_leaves_the_reply_unscored(monkeypatch):
    monkeypatch.setattr("refusal_index.protocol.refusals.SECONDS", 0.1)
    reading = read_reply("a" * 60 + "!", refusals=refusal_rule("+(a|aa)+$"))
    assert (reading.read_as, reading.unscored_reason) == (ReadAs.UNSCORED, "pattern_timeout")


# --- The phrases of a file


def test_phrases_of_a_file_are_alternatives():
    setting = phrases_from_file("# legal\nlegal team\n\n  no comment|pass \n")
    assert setting == "+(?:legal team)|(?:no comment|pass)"
    assert recognised_by(OWN_PHRASE, refusal_rule(setting)) is RecognisedBy.PHRASE
    assert recognised_by("No comment here", refusal_rule(setting)) is RecognisedBy.PHRASE


@pytest.mark.parametrize(
    ("content", "message"), [("", "no regular expression"), ("# a\n", "no regular expression"), ("a\n(", "line 2")]
)
def test_file_without_usable_phrases_is_rejected(content, message):
    with pytest.raises(PatternError, match=message):
        phrases_from_file(content)


# --- A model that is asked only whether a reply attempts an answer

QUESTION = Question("q", "Who built it?", "Nora Kvist", aliases=("Kvist",))
BY_MODEL = TwoPass(GraderKind.EXACT, refusals=refusal_rule("model:openai/gpt-4.1"))


def model_reply(text: str, pass_: Pass = Pass.FIRST) -> Reply:
    return Reply(pass_, Role.MODEL, text)


def verdict(text: str, pass_: Pass = Pass.FIRST) -> Reply:
    return Reply(pass_, Role.GRADER, text)


def test_model_is_asked_about_replies_without_a_tag():
    step = BY_MODEL.step(QUESTION, [model_reply(DECLINED)])
    assert step == Step(Pass.FIRST, Role.GRADER, prediction=DECLINED, only_attempt=True)
    request = BY_MODEL.request(step, QUESTION)
    assert request.role is Role.GRADER
    assert [message.content for message in request.messages] == [GRADER_PROMPT.attempt_message(QUESTION, DECLINED)]
    assert "Kvist" not in request.messages[0].content


@pytest.mark.parametrize(("reply", "grade"), [(TAGGED, Grade.CORRECT), ("<answer>Ann</answer>", Grade.INCORRECT)])
def test_model_is_not_asked_about_replies_with_a_tag(reply, grade):
    outcome = BY_MODEL.step(QUESTION, [model_reply(reply)])
    assert isinstance(outcome, Outcome)
    assert (outcome.first_grade, outcome.reading) == (grade, "answer")
    assert BY_MODEL.step(QUESTION, [model_reply(REFUSED)]) == Step(Pass.FORCED, Role.MODEL)


def test_reply_that_attempts_an_answer_is_graded_by_the_rule():
    outcome = BY_MODEL.step(QUESTION, [model_reply("Nora Kvist"), verdict("B")])
    assert isinstance(outcome, Outcome)
    assert (outcome.refused, outcome.wrong, outcome.reading) == (False, False, "answer")


def test_reply_that_attempts_none_is_a_refusal_by_the_model():
    replies = [model_reply(DECLINED), verdict("C")]
    assert BY_MODEL.step(QUESTION, replies) == Step(Pass.FORCED, Role.MODEL)
    outcome = BY_MODEL.step(QUESTION, [*replies, model_reply(TAGGED, Pass.FORCED)])
    assert isinstance(outcome, Outcome)
    assert (outcome.refused, outcome.wrong, outcome.reading) == (True, False, "model")


def test_model_is_asked_about_forced_replies_too():
    replies = [model_reply(REFUSED), model_reply(DECLINED, Pass.FORCED)]
    assert BY_MODEL.step(QUESTION, replies) == Step(Pass.FORCED, Role.GRADER, prediction=DECLINED, only_attempt=True)
    outcome = BY_MODEL.step(QUESTION, [*replies, verdict("C", Pass.FORCED)])
    assert isinstance(outcome, Outcome)
    assert (outcome.wrong, outcome.forced_grade) == (True, Grade.REFUSED)


@pytest.mark.parametrize("unreadable", ["", "A", "B or C"])
def test_unreadable_verdict_is_asked_for_once_more_and_then_leaves_the_question_unscored(unreadable):
    replies = [model_reply(DECLINED), verdict(unreadable)]
    again = BY_MODEL.step(QUESTION, replies)
    assert again == Step(Pass.FIRST, Role.GRADER, attempt=1, prediction=DECLINED, only_attempt=True)
    assert GRADE_ATTEMPTS == 2
    outcome = BY_MODEL.step(QUESTION, [*replies, verdict(unreadable)])
    assert isinstance(outcome, Outcome)
    assert (outcome.refused, outcome.wrong, outcome.unscored_reason) == (None, None, "first_grade_unreadable")
    assert BY_MODEL.step(QUESTION, [*replies, verdict("C")]) == Step(Pass.FORCED, Role.MODEL)


def test_question_without_a_right_answer_needs_the_verdict_alone():
    unanswerable = Question("q", "Who built it?", None)
    outcome = BY_MODEL.step(unanswerable, [model_reply(DECLINED), verdict("C")])
    assert isinstance(outcome, Outcome)
    assert (outcome.refused, outcome.wrong, outcome.reading) == (True, True, "model")


def test_equal_replies_of_several_draws_get_one_verdict():
    conversation = Conversation(QUESTION, "normal", BY_MODEL, 3)
    replies = [DECLINED, TAGGED, DECLINED]
    completions = [
        Completion("q", "normal", draw, model_reply(reply, pass_))
        for pass_ in TWO_PASSES
        for draw, reply in enumerate(replies if pass_ is Pass.FIRST else [TAGGED] * 3)
    ]
    (pending,) = next_requests(conversation, completions)
    assert pending.step == Step(Pass.FIRST, Role.GRADER, prediction=DECLINED, only_attempt=True)
    drawn = outcomes(conversation, [*completions, Completion("q", "normal", 0, verdict("C"))])
    assert [outcome.reading for outcome in drawn] == ["model", "answer", "model"]
