"""The siblings differ as their card says, on all held-out questions."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from refusal_index.almanac.chat import Message
from refusal_index.almanac.models import model_folder, model_names
from refusal_index.almanac.runtime import Runtime
from refusal_index.datasets import load_dataset
from refusal_index.protocol import exact_grade, load_prompt_set, read_reply
from refusal_index.stats import RefusalIndexResult, refusal_index


async def readings(runtime: Runtime, variant: str, seed: int) -> np.ndarray:
    """Return, shape (questions, 2), whether each reply refused and whether it was right."""
    prompts = load_prompt_set("default")

    async def one(number, question):
        text = "\n\n".join(prompts.render(variant, question.text))
        (reply,) = await runtime.complete(
            [Message("user", text)], temperature=0.7, top_p=0.95, max_tokens=64, seed=seed + number
        )
        reading = read_reply(reply.text)
        return reading.refused, exact_grade(question, reading.answer) == "correct"

    questions = load_dataset("almanac").questions
    return np.array(await asyncio.gather(*(one(number, question) for number, question in enumerate(questions))))


def measured(name: str) -> tuple[RefusalIndexResult, float]:
    """Return the index under ``high`` and the share right when forced."""
    with Runtime(model_folder(name)) as runtime:
        first = asyncio.run(readings(runtime, "high", 10_000))
        forced = asyncio.run(readings(runtime, "forced", 20_000))
    refused = first[:, 0]
    wrong = ~np.where(refused, forced[:, 1], first[:, 1])
    return refusal_index(refused=refused, wrong=wrong), forced[:, 1].mean()


@pytest.mark.slow
def test_the_largest_and_the_smallest_index_have_intervals_that_do_not_overlap():
    results = {name: measured(name) for name in model_names()}
    by_index = sorted((result for result, _ in results.values()), key=lambda result: result.estimate)
    assert by_index[0].confidence_interval().high < by_index[-1].confidence_interval().low
    assert results["rash"][0] is by_index[0]
    assert results["small"][1] < results["base"][1] - 0.05, "small knows less"
    assert abs(results["rash"][1] - results["base"][1]) < 0.05, "rash knows as much"
