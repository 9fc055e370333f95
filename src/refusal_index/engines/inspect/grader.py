"""Is the grader there? Asked before anything is paid for."""

from __future__ import annotations

import asyncio

from inspect_ai.model import GenerateConfig, Model

from refusal_index.engines.inspect.models import ModelError, resolve_model
from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.question import Question
from refusal_index.protocol import grader_prompt, parse_grade

PLAIN_CASE = Question("check", "What is the capital of France?", "Paris")


def check_grader(name: str) -> None:
    """Have the grader grade a plain case, and raise if its key, its name or its verdict is not right.

    Raises
    ------
    ModelError
        If the grader cannot be asked, or does not find a right answer right.
    """
    model = resolve_model(name, GenerateConfig(max_retries=1, attempt_timeout=60))
    try:
        text = asyncio.run(_verdict(model))
    except Exception as error:  # whatever the provider raises
        raise ModelError(f"grader {name!r} did not answer: {' '.join(str(error).split())[-300:]}") from error
    if parse_grade(text) is not Grade.CORRECT:
        raise ModelError(
            f"grader {name!r}: expected the letter A for a plainly right answer, got {text[:80]!r}; choose another one"
        )


async def _verdict(model: Model) -> str:
    try:
        output = await model.generate(grader_prompt(PLAIN_CASE, "Paris"))
        return output.completion
    finally:
        await model.api.aclose()
