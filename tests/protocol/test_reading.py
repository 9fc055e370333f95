"""What a reply is read as: an answer and its text, a refusal and how it was recognised, unclear, or unscored."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refusal_index.protocol.reading import ReadAs, Reading, RecognisedBy, StopReason, read_reply
from refusal_index.protocol.refusals import LEFT_TO_GRADER, TAG, WORDING, RefusalRule

HOSTILE_LENGTH = 100_000

ANSWERS = {
    "a tag": ("It is <answer>Paris</answer>.", "Paris"),
    "white space in the tag": ("<answer>\n  Paris \t</answer>", "Paris"),
    "several lines in the tag": ("<answer>Paris,\nFrance</answer>", "Paris,\nFrance"),
    "an upper-case tag": ("<ANSWER>Paris</Answer>", "Paris"),
    "the last of two tags": ("<answer>Rome</answer> No: <answer>Paris</answer>", "Paris"),
    "the last complete tag before an unclosed one": ("<answer>Paris</answer> or <answer>Rome", "Paris"),
    "the inner of nested tags": ("<answer>I say <answer>Paris</answer></answer>", "Paris"),
    "a tag opened twice": ("<answer>Rome <answer>Paris</answer>", "Paris"),
    "a tag closed twice": ("<answer>Paris</answer> is it</answer>", "Paris"),
    "no tag": ("  Paris\n", "Paris"),
    "an unclosed tag": ("<answer>Paris", "Paris"),
    "a closing mark alone": ("Paris</answer>", "Paris"),
    "marks the wrong way round": ("</answer>Paris<answer>", "Paris"),
    "another tag": ("<response>Paris</response>", "<response>Paris</response>"),
    "a spaced tag, which is not ours": ("< answer >Paris</ answer >", "< answer >Paris</ answer >"),
    "another language": ("<answer>東京都</answer>", "東京都"),
    "right to left": ("<answer>\u05e4\u05e8\u05d9\u05d6</answer>", "\u05e4\u05e8\u05d9\u05d6"),
    "signs only": ("<answer>+</answer>", "+"),
    "control characters beside text": ("<answer>\x00Paris\x07</answer>", "\x00Paris\x07"),
    "markup of the answer": ("<answer>x < 3 > y</answer>", "x < 3 > y"),
    "a tag in the thoughts": ("<think><answer>Rome</answer></think><answer>Paris</answer>", "Paris"),
    "a tag in the thoughts only": ("<think><answer>Rome</answer></think>Paris", "Paris"),
    "a tag before the thoughts": ("<answer>Paris</answer><think><answer>Rome</answer></think>", "Paris"),
    "thoughts in several blocks": ("<think>a</think>Par<think>b</think>is", "Paris"),
    "thoughts without an opening": ("Is it <answer>Rome</answer>? No.</think><answer>Paris</answer>", "Paris"),
    "nested thoughts": ("<think>a <think>b</think> <answer>Rome</answer></think>Paris", "Paris"),
    "thoughts under other names": ("<thinking>a</thinking><REASONING>b</REASONING>Paris", "Paris"),
    "unclosed thoughts after the answer": ("<answer>Paris</answer><think>or <answer>Rome</answer>", "Paris"),
}

REFUSALS = {
    "the tag": "<answer>UNANSWERED</answer>",
    "in lower case": "<answer>unanswered</answer>",
    "in mixed case": "<Answer>Unanswered</answer>",
    "with spaces": "<answer>  UNANSWERED\n</answer>",
    "with a full stop": "<answer>UNANSWERED.</answer>",
    "with a space before the full stop": "<answer>UNANSWERED .</answer>",
    "in quotation marks": '<answer>"UNANSWERED"</answer>',
    "in bold type": "<answer>**UNANSWERED**</answer>",
    "after an answer that was taken back": "<answer>Paris</answer> Rather: <answer>UNANSWERED</answer>",
    "after thoughts": "<think><answer>Paris</answer>?</think> <answer>UNANSWERED</answer>",
    "with a reason": "<answer>UNANSWERED because I do not know</answer>",
    "with a caveat": "<answer>UNANSWERED (not sure)</answer>",
    "beside an answer": "<answer>Paris or UNANSWERED</answer>",
}

NOT_REFUSALS = {
    "taken back": "<answer>UNANSWERED</answer> Rather: <answer>Paris</answer>",
    "in the thoughts only": "<think><answer>UNANSWERED</answer></think> Paris",
    "as part of a name": "<answer>The Unanswered Question</answer>",
}

NOT_TAGS = {
    "without a tag": "UNANSWERED",
    "in an unclosed tag": "<answer>UNANSWERED",
    "an answer that declines in other words": "<answer>I do not know</answer>",
}

EMPTY = {
    "nothing": "",
    "white space": " \n\t\u00a0",
    "an empty tag": "<answer></answer>",
    "a blank tag": "<answer> \n </answer>",
    "an empty last tag": "<answer>Paris</answer><answer></answer>",
    "an opening mark": "<answer>",
    "control characters": "<answer>\x00\x1b</answer>",
    "zero-width characters": "\u200b\ufeff",
    "closed thoughts and nothing else": "<think><answer>Paris</answer></think>",
    "thoughts that never end": "<think>Perhaps <answer>Paris</answer>",
    "thoughts whose closing ends the reply": "Perhaps <answer>Paris</answer></think>",
}


@pytest.mark.parametrize(("reply", "answer"), ANSWERS.values(), ids=ANSWERS)
def test_answer_is_the_text_of_the_last_complete_tag_outside_the_thoughts(reply, answer):
    reading = read_reply(reply)
    assert (reading.read_as, reading.answer) == (ReadAs.ANSWER, answer)
    assert (reading.refused, reading.recognised_by, reading.unscored_reason) == (False, None, None)


@pytest.mark.parametrize("rule", [WORDING, TAG, LEFT_TO_GRADER])
@pytest.mark.parametrize("reply", REFUSALS.values(), ids=REFUSALS)
def test_unanswered_in_the_last_tag_is_a_refusal_under_any_rule(reply, rule):
    reading = read_reply(reply, refusals=rule)
    assert (reading.read_as, reading.recognised_by) == (ReadAs.REFUSAL, RecognisedBy.TAG)
    assert reading.is_tagged
    assert reading.unscored_reason is None


@pytest.mark.parametrize("reply", NOT_REFUSALS.values(), ids=NOT_REFUSALS)
def test_unanswered_elsewhere_is_an_answer(reply):
    reading = read_reply(reply)
    assert reading.read_as is ReadAs.ANSWER
    assert reading.answer
    assert reading.unscored_reason is None


@pytest.mark.parametrize("rule", [WORDING, TAG, LEFT_TO_GRADER])
@pytest.mark.parametrize("end", ["UNANSWERED", "UNANSWERED.", "  UNANSWERED \n"])
def test_unanswered_alone_in_the_last_of_several_lines_is_a_refusal_under_any_rule(end, rule):
    reading = read_reply(f"I looked it up, and submit my answer.\n\n{end}", refusals=rule)
    assert (reading.refused, reading.recognised_by, reading.is_tagged) == (True, RecognisedBy.TAG, False)


@pytest.mark.parametrize("end", ["unanswered", "The letter stayed UNANSWERED", "UNANSWERED\nLima"])
def test_unanswered_elsewhere_in_several_lines_is_no_tag(end):
    assert read_reply(f"I looked it up.\n\n{end}", refusals=TAG).read_as is ReadAs.ANSWER


@pytest.mark.parametrize("reply", NOT_TAGS.values(), ids=NOT_TAGS)
def test_refusal_outside_a_tag_is_recognised_by_wording_or_left_to_the_grader(reply):
    assert read_reply(reply).recognised_by is RecognisedBy.WORDING
    assert read_reply(reply, refusals=TAG).read_as is ReadAs.ANSWER
    left = read_reply(reply, refusals=LEFT_TO_GRADER)
    assert (left.read_as, bool(left.answer)) == (ReadAs.ANSWER, True)


@pytest.mark.parametrize("reply", EMPTY.values(), ids=EMPTY)
def test_a_reply_that_says_nothing_is_unscored(reply):
    assert read_reply(reply) == Reading(ReadAs.UNSCORED, unscored_reason="empty")


@pytest.mark.parametrize(
    ("stop_reason", "reason"),
    [
        (StopReason.LENGTH, "truncated"),
        (StopReason.CONTENT_FILTER, "content_filter"),
        (StopReason.TOOL_CALL, "tool_call"),
    ],
)
@pytest.mark.parametrize("reply", ["<answer>Paris</answer>", "<answer>UNANSWERED</answer>", "<answer>Par", ""])
def test_reply_that_did_not_stop_normally_is_unscored(reply, stop_reason, reason):
    assert read_reply(reply, stop_reason=stop_reason) == Reading(ReadAs.UNSCORED, unscored_reason=reason)


@pytest.mark.parametrize("rule", [WORDING, TAG, LEFT_TO_GRADER])
@pytest.mark.parametrize("reply", ["", "I can't help with that.", "<answer>Paris</answer>"])
def test_refusal_that_the_provider_marks_is_a_refusal_by_flag(reply, rule):
    expected = Reading(ReadAs.REFUSAL, reply, RecognisedBy.FLAG)
    assert read_reply(reply, choices=("Paris", "Rome"), stop_reason=StopReason.REFUSAL, refusals=rule) == expected


@pytest.mark.parametrize(
    ("reply", "well_formed"),
    [
        ("<answer>Paris</answer>", True),
        ("Let me see. <ANSWER>Paris</ANSWER> Done.", True),
        ("<answer>UNANSWERED</answer>", True),
        ("<think><answer>Rome</answer></think><answer>Paris</answer>", True),
        ("Paris", False),
        ("<answer>Paris", False),
        ("Paris</answer>", False),
        ("<answer>Rome</answer><answer>Paris</answer>", False),
        ("<answer>Rome<answer>Paris</answer>", False),
        ("<answer>Paris</answer></answer>", False),
    ],
)
def test_well_formed_is_exactly_one_complete_tag(reply, well_formed):
    reading = read_reply(reply)
    assert reading.well_formed is well_formed
    assert reading.is_tagged == ("</answer>" in reply.lower() and "<answer>" in reply.lower())


@pytest.mark.parametrize(
    ("unit", "answer"),
    [
        ("<answer>", ""),
        ("</answer>", ""),
        ("<answer>a", "a" * (HOSTILE_LENGTH // 9)),
        ("<answer>a</answer>", "a"),
        ("<think>", ""),
        ("</think>", ""),
        ("<think></think>", ""),
        ("<think></reasoning>", ""),
        ("<think", "<think" * (HOSTILE_LENGTH // 6)),
        ("</think", "</think" * (HOSTILE_LENGTH // 7)),
        ("<", "<" * HOSTILE_LENGTH),
        (".", "." * HOSTILE_LENGTH),
    ],
)
def test_a_hundred_kilobytes_of_repeated_markup_are_read(unit, answer):
    assert read_reply(unit * (HOSTILE_LENGTH // len(unit))).answer == answer


MARKUP = st.sampled_from(
    [
        "<answer>",
        "</answer>",
        "<think>",
        "</think>",
        "<ANSWER>",
        "UNANSWERED",
        "<reasoning>",
        "</thinking>",
        " ",
        "\x00",
    ]
)
REPLIES = st.lists(MARKUP | st.text(max_size=8), max_size=12).map("".join)


@given(REPLIES, st.sampled_from(StopReason), st.sampled_from([WORDING, TAG, LEFT_TO_GRADER]))
@example("<answer>\u2060</answer>", StopReason.STOP, WORDING)
def test_property_any_reply_is_read_as_one_thing_with_its_reason(reply, stop_reason, rule):
    reading = read_reply(reply, stop_reason=stop_reason, refusals=rule)
    assert (reading.unscored_reason is not None) == (reading.read_as is ReadAs.UNSCORED)
    assert (reading.recognised_by is not None) == reading.refused == (reading.read_as is ReadAs.REFUSAL)
    if reading.recognised_by is not RecognisedBy.FLAG:  # which may come without a text
        assert bool(reading.answer) == (reading.unscored_reason is None)
    assert not reading.well_formed or reading.is_tagged


@given(REPLIES, REPLIES)
def test_leading_thoughts_do_not_change_the_reading(thought, reply):
    thought = thought.replace("<", "(")
    assert read_reply(f"<think>{thought}</think>{reply}") == read_reply(reply)


def test_own_marks_of_reasoning_are_removed():
    text = "[[It may be <answer>Rome</answer>.]] <answer>Paris</answer>"
    rule = RefusalRule(reasoning=r"\[\[.*?\]\]")
    assert read_reply(text, refusals=rule) == read_reply("<answer>Paris</answer>")


# --- Answers with a caveat

CAVEATS = {
    "a caveat after a comma": ("Nora Kvist, but I'm not certain.", "Nora Kvist"),
    "a caveat before it": ("I'm not sure, but I think it was 1871.", "it was 1871."),
    "a caveat in brackets": ("Tartu (I am not sure)", "Tartu"),
    "what else is missing": ("The code is K-17. I could not find any other code.", "The code is K-17."),
    "German": ("Ich bin nicht sicher, aber es war Graz.", "es war Graz."),
    "Czech": ("Nejsem si jistý, ale bylo to Brno.", "bylo to Brno."),
}


@pytest.mark.parametrize(("reply", "answer"), CAVEATS.values(), ids=CAVEATS)
def test_answer_with_a_caveat_is_an_answer_without_it(reply, answer):
    reading = read_reply(reply)
    assert reading.read_as is ReadAs.ANSWER
    assert reading.answer == answer


# --- Choices

GASES = ("Oxygen", "Nitrogen", "Cannot be determined from the text")


@pytest.mark.parametrize(
    ("reply", "read_as", "choice"),
    [
        ("<answer>A</answer>", ReadAs.ANSWER, "Oxygen"),
        ("B. Nitrogen (N2)", ReadAs.ANSWER, "Nitrogen"),
        ("The answer is B.", ReadAs.ANSWER, "Nitrogen"),
        ("I am not sure, but it is nitrogen.", ReadAs.ANSWER, "Nitrogen"),
        ("A or B", ReadAs.UNCLEAR, None),
        ("It is a gas.", ReadAs.UNCLEAR, None),
        ("D", ReadAs.UNCLEAR, None),
    ],
)
def test_answer_to_a_question_with_choices_names_one_or_is_unclear(reply, read_as, choice):
    reading = read_reply(reply, "Which gas is it?", GASES)
    assert (reading.read_as, reading.choice) == (read_as, choice)
    assert reading.answer


@pytest.mark.parametrize("rule", [WORDING, TAG])
@pytest.mark.parametrize("reply", ["C", "<answer>(c)</answer>", "C) Cannot be determined from the text"])
def test_choice_that_declines_is_a_refusal_by_choice(reply, rule):
    reading = read_reply(reply, "Which gas is it?", GASES, refusals=rule)
    assert (reading.read_as, reading.recognised_by) == (ReadAs.REFUSAL, RecognisedBy.CHOICE)


def test_wording_without_a_choice_is_a_refusal_by_wording():
    reading = read_reply("I am not sure.", "Which gas is it?", GASES)
    assert reading.recognised_by is RecognisedBy.WORDING
    assert read_reply("I am not sure.", "Which gas is it?", GASES, refusals=TAG).read_as is ReadAs.UNCLEAR


@pytest.mark.parametrize("reply", ["A) Nitrogen", "<answer>B: oxygen</answer>", "The answer is C: Oxygen"])
def test_letter_and_text_that_contradict_each_other_are_unscored(reply):
    assert read_reply(reply, "Which gas is it?", GASES) == Reading(ReadAs.UNSCORED, unscored_reason="choice_ambiguous")


@pytest.mark.parametrize("reply", ["C", "A) Nitrogen", "A or B", "<answer>I cannot say</answer>"])
def test_choices_are_left_to_a_grading_model(reply):
    reading = read_reply(reply, "Which gas is it?", GASES, refusals=LEFT_TO_GRADER)
    assert (reading.read_as, reading.choice) == (ReadAs.ANSWER, None)
