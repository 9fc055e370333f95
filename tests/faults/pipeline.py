"""A model and a grader as user functions, which call the same server with a client that does not retry."""

from __future__ import annotations

import os
from functools import cache

from openai import AsyncOpenAI

from refusal_index.data.outcome import Grade, Question
from refusal_index.protocol.grading import grader_prompt, read_verdict


@cache
def client() -> AsyncOpenAI:
    timeout = float(os.environ.get("FAKE_TIMEOUT", "2"))
    return AsyncOpenAI(
        base_url=os.environ["FAKE_BASE_URL"], api_key=os.environ["FAKE_API_KEY"], max_retries=0, timeout=timeout
    )


async def said(model: str, messages: list[dict[str, str]]) -> str:
    told = await client().chat.completions.create(model=model, messages=messages)
    return told.choices[0].message.content


async def answer(messages: list[dict[str, str]]) -> str:
    return await said("any", messages)


async def grade(question: Question, text: str) -> Grade:
    told = await said("grader", [{"role": "user", "content": grader_prompt(question, text)}])
    verdict = read_verdict(question, told)
    if verdict is None:
        raise ValueError(f"the grader said {told[:80]!r}")
    return verdict
