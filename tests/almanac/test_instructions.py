"""The prompt sets without examples with the embedded models: they refuse neither all nor nothing."""

from __future__ import annotations

import asyncio

import pytest

from refusal_index import read_reply
from refusal_index.data.datasets import load_dataset, sample
from refusal_index.plugins.almanac.runtime import shared_runtime
from refusal_index.protocol import Message, load_prompt_set

MODELS = ("base", "small", "rash")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["instructions", "instructions-de"])
@pytest.mark.parametrize("model", MODELS)
def test_end_to_end_embedded_models_refuse_neither_all_nor_nothing(model, name):
    asked = [question.text for question in sample(load_dataset("almanac"), 120, 1).questions]

    async def refused(text: str) -> int:
        prompts = [f"{text}\n\n{question}" for question in asked]
        requests = (
            shared_runtime(model).complete(
                [Message("user", prompt)], temperature=0.7, top_p=0.95, max_tokens=60, stop=(), seed=1, n=1
            )
            for prompt in prompts
        )
        replies = [completions[0].text for completions in await asyncio.gather(*requests)]
        return sum(read_reply(reply, question).refused for reply, question in zip(replies, asked, strict=True))

    async def counts() -> dict[str, int]:
        preambles = load_prompt_set(name).preambles
        return {variant: await refused(preambles[variant]) for variant in ("normal", "forced")}

    found = asyncio.run(counts())
    assert 0 < found["normal"] < len(asked)
    assert found["forced"] < found["normal"]
