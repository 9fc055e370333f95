"""Log probabilities as JSON."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data.text import sound_text
from refusal_index.protocol import TokenLogprob, read_logprobs, write_logprobs

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
        pairs = [(one.logprob, other.logprob), *((a, b) for (_, a), (_, b) in beside)]
        assert all(abs(a - b) <= 0.5000001e-6 for a, b in pairs)


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
    ("text", "message"),
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
def test_invalid_logprobs_are_rejected_with_the_expected_format(text, message):
    with pytest.raises(ValueError, match="logprobs: ") as error:
        read_logprobs(text)
    assert message in str(error.value)
    assert len(str(error.value)) < 400
