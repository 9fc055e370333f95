"""Is the grader there? Asked about a plain case before anything is paid for."""

from __future__ import annotations

from refusal_index.engines.asks import Ask, ask_for
from refusal_index.engines.engine import ModelError
from refusal_index.engines.settings import Settings
from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.question import Question
from refusal_index.protocol import (
    Asked,
    Completion,
    Conversation,
    Due,
    GraderKind,
    Pass,
    Reply,
    Step,
    TwoPass,
    parse_grade,
)

RIGHT_ANSWER = "Paris"
PLAIN_CASE = Question("", "What is the capital of France?", RIGHT_ANSWER)
RETRIES, PATIENCE = 1, 60
"""How often the plain case is sent again at most, and the seconds to wait for a verdict."""


def plain_ask(asked: Asked) -> Ask:
    """Return the request that has a grader judge the plain case."""
    step = Step(Pass.FIRST, asked, prediction=RIGHT_ANSWER)
    return ask_for(Settings(), Conversation(PLAIN_CASE, "", TwoPass(GraderKind.MODEL)), Due(step))


def unanswered(grader: str, told: str) -> ModelError:
    """Return the error of a grader that did not answer."""
    return ModelError(f"grader '{grader}' did not answer: {told}")


def checked(grader: str, asked: Asked, text: str, input_tokens: int, output_tokens: int) -> Completion:
    """Return a grader's reply about the plain case, which is about no question of the run.

    Raises
    ------
    ModelError
        If its verdict is not right.
    """
    if parse_grade(text) is not Grade.CORRECT:
        raise ModelError(
            f"grader '{grader}': expected the letter A for a plainly right answer, got {text[:80]!r}; "
            "choose another one"
        )
    return Completion(PLAIN_CASE.question_id, "", 0, Reply(Pass.FIRST, asked, text), 0, input_tokens, output_tokens)
