"""Evidence on the models that come with the package."""

from __future__ import annotations

import asyncio

import pytest

from refusal_index.plugins.almanac.models import model_folder, model_names
from refusal_index.plugins.almanac.runtime import Runtime
from refusal_index.protocol import Message
from refusal_index.protocol.prompts import load_prompt_set


@pytest.fixture(params=model_names())
def runtime(request):
    return Runtime(model_folder(request.param))


def replies(runtime, variant, questions):
    prompts = load_prompt_set("default")

    async def ask():
        messages = ["\n\n".join(prompts.render(variant, question)) for question in questions]
        asked = [
            runtime.complete([Message("user", text)], temperature=0.7, top_p=0.95, max_tokens=32, seed=seed)
            for seed, text in enumerate(messages)
        ]
        return [reply for (reply,) in await asyncio.gather(*asked)]

    return asyncio.run(ask())


QUESTIONS = [f"In what year was the bridge of {town} opened?" for town in ("Bramwick", "Ostrow", "Kell", "Varna")]


@pytest.mark.parametrize("variant", ["low", "highest", "forced"])
def test_replies_are_short_ended_and_well_formed(runtime, variant):
    for reply in replies(runtime, variant, QUESTIONS * 3):
        assert reply.finish_reason == "stop"
        assert reply.text.startswith("<answer>")
        assert reply.text.endswith("</answer>")


def test_replies_do_not_depend_on_the_company(runtime):
    together = replies(runtime, "normal", QUESTIONS)
    alone = replies(runtime, "normal", QUESTIONS[:1])
    assert together[:1] == alone
