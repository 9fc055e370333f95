"""Is the grader there? Asked before anything is paid for."""

from __future__ import annotations

from inspect_ai.model import GenerateConfig, Model

from refusal_index.engines.engine import ModelError
from refusal_index.engines.inspect.error_messages import told
from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.question import Question
from refusal_index.protocol import grader_prompt, parse_grade

RIGHT_ANSWER = "Paris"
PLAIN_CASE = Question("check", "What is the capital of France?", RIGHT_ANSWER)
PATIENCE = GenerateConfig(max_retries=1, attempt_timeout=60)


async def check_grader(grader: Model) -> None:
    """Have the grader grade a plain case, and raise if its key, its name or its verdict is not right.

    Raises
    ------
    ModelError
        If the grader cannot be asked, or does not find a right answer right.
    """
    try:
        text = (await grader.generate(grader_prompt(PLAIN_CASE, RIGHT_ANSWER), config=PATIENCE)).completion
    except Exception as error:  # whatever the provider raises
        raise ModelError(f"grader '{grader}' did not answer: {told(error)}") from error
    if parse_grade(text) is not Grade.CORRECT:
        raise ModelError(
            f"grader '{grader}': expected the letter A for a plainly right answer, got {text[:80]!r}; "
            "choose another one"
        )
