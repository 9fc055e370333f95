"""Many choices of one response: packed and taken out again they are what came, in its order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, ModelOutput

from refusal_index.plugins.inspect.client import PACKED, choices_of, packed
from refusal_index.protocol import StopReason

REASONS = {"stop": StopReason.STOP, "max_tokens": StopReason.LENGTH, "content_filter": StopReason.CONTENT_FILTER}
CAME = st.lists(st.tuples(st.text(max_size=4), st.sampled_from(list(REASONS))), min_size=1, max_size=20)


def output(came: list[tuple[str, str]]) -> ModelOutput:
    choices = [
        ChatCompletionChoice(message=ChatMessageAssistant(content=text), stop_reason=reason) for text, reason in came
    ]
    return ModelOutput(model="m", choices=choices, metadata={"kept": 1})


@given(CAME)
def test_there_and_back(came):
    whole = output(came)
    expected = [(text, REASONS[reason]) for text, reason in came]
    assert choices_of(whole) == choices_of(packed(whole)) == expected
    again = ModelOutput.model_validate_json(packed(whole).model_dump_json())
    assert choices_of(again) == expected, "also from a log"


def test_what_is_packed_is_one_message_and_each_distinct_text_once():
    whole = output([("Lima", "stop")] * 99 + [("Cuzco", "stop")])
    one = packed(whole)
    assert len(one.choices) == 1
    assert one.metadata["kept"] == 1
    assert one.metadata[PACKED]["distinct"] == [["Lima", "stop"], ["Cuzco", "stop"]]
    assert len(whole.choices) == 100, "the response itself is left alone"


def test_a_single_choice_is_left_as_it_is():
    whole = output([("Lima", "stop")])
    assert packed(whole) is whole
