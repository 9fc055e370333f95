"""Replies: their answers, log probabilities, and the length of a prompt."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refusal_index.data import Question
from refusal_index.data.text import sound_text
from refusal_index.protocol import FORCED, TokenLogprob, load_prompt_set, read_logprobs, write_logprobs
from refusal_index.protocol.replies import (
    PromptLengthError,
    Reading,
    StopReason,
    about_tokens,
    check_lengths,
    longest_prompt,
    read_reply,
    whole_prompt,
    without_reasoning,
)

# --- Reading replies

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
}

NOT_REFUSALS = {
    "taken back": "<answer>UNANSWERED</answer> Rather: <answer>Paris</answer>",
    "without a tag": "UNANSWERED",
    "in an unclosed tag": "<answer>UNANSWERED",
    "in the thoughts only": "<think><answer>UNANSWERED</answer></think> Paris",
    "with a reason": "<answer>UNANSWERED because I do not know</answer>",
    "as part of a name": "<answer>The Unanswered Question</answer>",
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
    assert reading.answer == answer
    assert reading.refused is False
    assert reading.unscored_reason is None


@pytest.mark.parametrize("reply", REFUSALS.values(), ids=REFUSALS)
def test_unanswered_in_the_last_tag_is_a_refusal(reply):
    reading = read_reply(reply)
    assert reading.refused
    assert reading.unscored_reason is None


@pytest.mark.parametrize("reply", NOT_REFUSALS.values(), ids=NOT_REFUSALS)
def test_unanswered_elsewhere_is_left_to_the_grader(reply):
    reading = read_reply(reply)
    assert not reading.refused
    assert reading.answer
    assert reading.unscored_reason is None


@pytest.mark.parametrize("reply", EMPTY.values(), ids=EMPTY)
def test_a_reply_that_says_nothing_is_unscored(reply):
    assert read_reply(reply) == Reading("", refused=False, well_formed=False, unscored_reason="empty")


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
    assert read_reply(reply, stop_reason) == Reading("", refused=False, well_formed=False, unscored_reason=reason)


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
    assert read_reply(reply).well_formed is well_formed


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


@given(REPLIES, st.sampled_from(StopReason))
@example("<answer>\u2060</answer>", StopReason.STOP)
def test_any_reply_has_an_answer_or_a_reason_and_never_both(reply, stop_reason):
    reading = read_reply(reply, stop_reason)
    assert bool(reading.answer) == (reading.unscored_reason is None)
    assert not (reading.unscored_reason and (reading.refused or reading.well_formed))


@given(REPLIES, REPLIES)
def test_leading_thoughts_do_not_change_the_reading(thought, said):
    thought = thought.replace("<", "(")
    assert read_reply(f"<think>{thought}</think>{said}") == read_reply(said)


def test_reasoning_is_cut_out_and_the_rest_is_kept():
    assert without_reasoning(" <think>a</think> b <thinking>c</thinking> d ") == "b  d"


# --- Log probabilities as JSON

LOGPROBS = st.floats(-1e4, 0)
TEXTS = st.text(max_size=4)
TOKENS = st.builds(TokenLogprob, TEXTS, LOGPROBS, st.lists(st.tuples(TEXTS, LOGPROBS), max_size=3).map(tuple))


@given(st.lists(TOKENS, max_size=5))
def test_logprobs_round_trip_to_six_digits_property(tokens):
    back = read_logprobs(write_logprobs(tokens))
    for one, other in zip(tokens, back, strict=True):
        assert (other.token, [text for text, _ in other.alternatives]) == (
            sound_text(one.token),
            [sound_text(text) for text, _ in one.alternatives],
        )
        beside = zip(one.alternatives, other.alternatives, strict=True)
        told = [(one.logprob, other.logprob), *((a, b) for (_, a), (_, b) in beside)]
        assert all(abs(a - b) <= 0.5000001e-6 for a, b in told)


@given(st.lists(TOKENS, max_size=5))
def test_written_logprobs_are_encodable_and_stable_property(tokens):
    written = write_logprobs(tokens)
    written.encode()
    assert write_logprobs(read_logprobs(written)) == written


def test_written_logprobs_are_compact():
    tokens = [TokenLogprob("<", -0.01), TokenLogprob("ä", -1.23456789, (("ä", -1.23456789), ("b", -2.0)))]
    assert write_logprobs(tokens) == (
        '[{"token":"<","logprob":-0.01},{"token":"ä","logprob":-1.234568,"top_logprobs":'
        '[{"token":"ä","logprob":-1.234568},{"token":"b","logprob":-2.0}]}]'
    )
    assert write_logprobs([]) == "[]"
    assert write_logprobs([TokenLogprob("a", -1e-9)]) == '[{"token":"a","logprob":0.0}]', "no minus zero"


def test_openai_format_is_read_and_extra_fields_ignored():
    """The example of OpenAI's reference, shortened."""
    text = json.dumps(
        [
            {
                "token": "Hello",
                "logprob": -0.31725305,
                "bytes": [72, 101, 108, 108, 111],
                "top_logprobs": [
                    {"token": "Hello", "logprob": -0.31725305, "bytes": [72, 101, 108, 108, 111]},
                    {"token": "Hi", "logprob": -1.3190403, "bytes": [72, 105]},
                ],
            },
            {"token": "!", "logprob": -0.02380986, "bytes": [33], "top_logprobs": []},
            {"token": "?", "logprob": 0, "top_logprobs": None},
        ]
    )
    assert read_logprobs(text) == (
        TokenLogprob("Hello", -0.31725305, (("Hello", -0.31725305), ("Hi", -1.3190403))),
        TokenLogprob("!", -0.02380986),
        TokenLogprob("?", 0.0),
    )


def test_none_reads_as_none_and_empty_list_as_no_tokens():
    assert read_logprobs(None) is None
    assert read_logprobs("[]") == ()


def test_zero_probability_is_written_as_openai_and_vllm_do():
    assert read_logprobs(write_logprobs([TokenLogprob("a", -math.inf)])) == (TokenLogprob("a", -9999.0),)


@pytest.mark.parametrize("logprob", [math.nan, math.inf])
def test_nan_and_positive_infinity_are_not_written(logprob):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_logprobs([TokenLogprob("a", logprob)])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected JSON, got ''"),
        ("[" * 100_000, "expected JSON"),
        ("null", "expected a list of tokens, got None"),
        ('{"content": []}', "expected a list of tokens"),
        ("[1]", "expected a list of tokens"),
        ('[{"token": "a"}]', "expected 'token' as text and 'logprob' as a number"),
        ('[{"token": "a", "logprob": true}]', "'logprob' as a number"),
        ('[{"token": "a", "logprob": "-1"}]', "'logprob' as a number"),
        ('[{"token": 5, "logprob": -1}]', "'token' as text"),
        ('[{"token": "a", "logprob": NaN}]', "NaN is not a number"),
        ('[{"token": "a", "logprob": -1e999}]', "'logprob' as a number"),
        (f'[{{"token": "a", "logprob": -{"9" * 400}}}]', "'logprob' as a number"),
        ('[{"token": "a", "logprob": -1, "top_logprobs": [1]}]', "top_logprobs: expected a list of tokens"),
        ('[{"token": "a", "logprob": -1, "top_logprobs": {"a": -1}}]', "top_logprobs: expected a list of tokens"),
    ],
)
def test_invalid_logprobs_are_rejected_with_the_expected_format(text, told):
    with pytest.raises(ValueError, match="logprobs: ") as error:
        read_logprobs(text)
    assert told in str(error.value)
    assert len(str(error.value)) < 400


# --- Prompt lengths

PROMPTS = load_prompt_set("default")
SHORT = Question("short", "Who?", "Ann")
LONG = [Question(f"long{n}", "Who?", "Ann", context="word " * 3000, choices=("Ann", "Bob")) for n in range(7)]


def test_longest_prompt_covers_all_variants_and_the_forced_pass():
    lengths = [len(whole_prompt(LONG[0], PROMPTS, variant)) for variant in (*PROMPTS.variants, FORCED)]
    assert longest_prompt(LONG[0], PROMPTS) == max(lengths)
    assert longest_prompt(LONG[0], PROMPTS, about_tokens) == -(-max(lengths) // 4)
    assert max(lengths) > 15_000


def test_prompts_that_are_too_long_are_named_and_counted():
    check_lengths([SHORT], PROMPTS, 1000)
    expected = "at most 1,000 tokens, got longer ones of long0, long1, long2, long3, long4 and 2 more, the longest with"
    with pytest.raises(PromptLengthError, match=re.escape(expected)):
        check_lengths([SHORT, *LONG], PROMPTS, 1000)


def test_tokens_may_be_counted_exactly():
    def words(text: str) -> int:
        return len(text.split())

    needed = longest_prompt(SHORT, PROMPTS, words)
    check_lengths([SHORT], PROMPTS, needed, words)
    with pytest.raises(PromptLengthError, match=f"the longest with {needed}"):
        check_lengths([SHORT], PROMPTS, needed - 1, words)
