"""Is the grader there? Asked before anything is paid for."""

from __future__ import annotations

from inspect_ai.model import GenerateConfig, Model

from refusal_index.engines.error_messages import told
from refusal_index.engines.inspect.session import chat_messages
from refusal_index.engines.preflight import PATIENCE, RETRIES, checked, plain_ask, unanswered
from refusal_index.protocol import Asked, Completion


async def check_grader(grader: Model, asked: Asked) -> Completion:
    """Have the grader grade a plain case, and return its reply, which is about no question of the run.

    Raises
    ------
    ModelError
        If its key, its name or its verdict is not right.
    """
    config = GenerateConfig(max_retries=RETRIES, attempt_timeout=PATIENCE)
    try:
        output = await grader.generate(chat_messages(plain_ask(asked).request), config=config)
    except Exception as error:  # whatever the provider raises
        raise unanswered(str(grader), told(error)) from error
    usage = output.usage
    tokens = (usage.input_tokens, usage.output_tokens) if usage else (0, 0)
    return checked(str(grader), asked, output.completion, *tokens)
