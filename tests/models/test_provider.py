"""The embedded models behind Inspect's interface."""

from __future__ import annotations

import asyncio

import pytest
from inspect_ai.model import ChatMessageUser, GenerateConfig, ModelOutput, get_model

from refusal_index.data.datasets import load_dataset
from refusal_index.plugins.almanac.inspect_api import AlmanacAPI
from refusal_index.plugins.inspect.client import choices_of, resolve_model
from refusal_index.protocol import load_prompt_set

PROMPT = "\n\n".join(load_prompt_set("default").render("normal", load_dataset("almanac").questions[0].text))


def ask(**config: object) -> ModelOutput:
    async def once() -> ModelOutput:
        model = resolve_model("almanac/base")
        return await model.generate(PROMPT, config=GenerateConfig(**config))

    return asyncio.run(once())


def test_a_reply_has_text_tokens_and_a_stop_reason():
    output = ask(seed=1, max_tokens=200)
    assert "<answer>" in output.completion
    assert output.stop_reason == "stop"
    assert output.usage.input_tokens > 100
    assert 0 < output.usage.output_tokens < 200
    assert output.usage.total_tokens == output.usage.input_tokens + output.usage.output_tokens


def test_a_reply_cut_at_the_limit_says_so():
    output = ask(seed=1, max_tokens=2)
    assert output.stop_reason == "max_tokens"
    assert output.usage.output_tokens == 2


def test_the_same_seed_gives_the_same_reply_and_others_differ():
    hot = {"temperature": 1.5, "max_tokens": 30}
    replies = [ask(seed=seed, **hot).completion for seed in range(5)]
    assert [ask(seed=seed, **hot).completion for seed in range(5)] == replies
    assert len(set(replies)) > 1


def test_several_choices_are_drawn_apart_and_counted_together():
    output = ask(seed=1, temperature=1.5, max_tokens=30, num_choices=4)
    drawn = choices_of(output)
    assert len(drawn) == 4
    assert len(set(drawn)) > 1
    one = ask(seed=1, temperature=1.5, max_tokens=30)
    assert output.usage.input_tokens == one.usage.input_tokens, "a shared prompt is read once"
    assert output.usage.output_tokens > one.usage.output_tokens


def test_a_stop_sequence_ends_the_reply():
    assert "</answer>" not in ask(seed=1, stop_seqs=["</answer>"]).completion


def test_temperature_0_needs_no_seed():
    assert ask(temperature=0.0).completion == ask(temperature=0.0).completion


def test_a_conversation_that_cannot_be_read_is_an_error():
    async def once() -> None:
        await resolve_model("almanac/base").generate([ChatMessageUser(content="word " * 20_000)])

    with pytest.raises(Exception, match="shorten the messages"):
        asyncio.run(once())


def test_it_takes_no_arguments_and_is_found_by_inspect_itself():
    with pytest.raises(ValueError, match=r"almanac/base takes no model arguments, got device"):
        AlmanacAPI("base", device="cuda")
    assert isinstance(get_model("almanac/base", memoize=False).api, AlmanacAPI)
