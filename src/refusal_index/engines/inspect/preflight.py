"""Is the grader there? Asked before anything is paid for."""

from __future__ import annotations

from inspect_ai.model import GenerateConfig, Model

from refusal_index.engines.engine import ModelError
from refusal_index.engines.error_messages import told
from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.question import Question
from refusal_index.protocol import Asked, Completion, Pass, Reply, grader_prompt, parse_grade

RIGHT_ANSWER = "Paris"
PLAIN_CASE = Question("", "What is the capital of France?", RIGHT_ANSWER)
PATIENCE = GenerateConfig(max_retries=1, attempt_timeout=60)


async def check_grader(grader: Model, asked: Asked) -> Completion:
    """Have the grader grade a plain case, and return its reply, which is about no question of the run.

    Raises
    ------
    ModelError
        If its key, its name or its verdict is not right.
    """
    try:
        output = await grader.generate(grader_prompt(PLAIN_CASE, RIGHT_ANSWER), config=PATIENCE)
    except Exception as error:  # whatever the provider raises
        raise ModelError(f"grader '{grader}' did not answer: {told(error)}") from error
    text, usage = output.completion, output.usage
    if parse_grade(text) is not Grade.CORRECT:
        raise ModelError(
            f"grader '{grader}': expected the letter A for a plainly right answer, got {text[:80]!r}; "
            "choose another one"
        )
    tokens = (usage.input_tokens, usage.output_tokens) if usage else (0, 0)
    return Completion(PLAIN_CASE.question_id, "", 0, Reply(Pass.FIRST, asked, text), 0, *tokens)
