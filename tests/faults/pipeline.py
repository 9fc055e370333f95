"""A model and a grader as user functions, which call the same server with a client that does not retry.

The server can make the model fail in ways of its own: by one of the texts below.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import cache

from openai import AsyncOpenAI

from refusal_index.data.outcome import Grade, Question
from refusal_index.protocol.grader_model import read_verdict
from refusal_index.protocol.grader_prompt import default_grader_prompt

GRADER_PROMPT = default_grader_prompt()


@cache
def client() -> AsyncOpenAI:
    timeout = float(os.environ.get("FAKE_TIMEOUT", "2"))
    return AsyncOpenAI(
        base_url=os.environ["FAKE_BASE_URL"], api_key=os.environ["FAKE_API_KEY"], max_retries=0, timeout=timeout
    )


async def complete(model: str, messages: list[dict[str, str]]) -> str:
    completion = await client().chat.completions.create(model=model, messages=messages)
    return completion.choices[0].message.content


EXITS, CANCELS, HANGS, SHOWS_NOTHING = "(exits)", "(cancels)", "(hangs)", "(raises an error without text)"


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


async def answer(messages: list[dict[str, str]]) -> str:
    text = await complete("any", messages)
    if text == EXITS:
        sys.exit()
    if text == CANCELS:
        raise asyncio.CancelledError
    if text == HANGS:
        await asyncio.sleep(3600)
    if text == SHOWS_NOTHING:
        raise UnreadableError
    return text


async def grade(question: Question, text: str) -> Grade:
    completion = await complete("grader", [{"role": "user", "content": GRADER_PROMPT.message(question, text)}])
    verdict = read_verdict(question, completion)
    if verdict is None:
        raise ValueError(f"the grader said {completion[:80]!r}")
    return verdict
