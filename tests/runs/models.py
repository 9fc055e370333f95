"""Model and grader functions for tests."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from typing import Any

ROWS = [{"id": f"q{n}", "question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(8)]
LOCAL: dict[str, Any] = {"variants": "high", "grader": "exact", "max_retries": 0}
ASKED = Counter[str]()
"""How often each message was requested; tests clear it."""

_lock = threading.Lock()


def number_in(text: str) -> int:
    return int(text.rsplit("What is ", 1)[1].split(maxsplit=1)[0])


def reply_to(message: str) -> str:
    """Refuse odd numbers unless forced; forced answers are right for multiples of 3."""
    number, forced = number_in(message), "leaving the question open is not allowed" in message
    if number % 2 and not forced:
        return "<answer>UNANSWERED</answer>"
    right = number % 3 == 0 if forced else number % 4 == 0
    return f"<answer>{2 * number if right else 'none'}</answer>"


def answer(messages: list[dict[str, str]]) -> str:
    message = messages[-1]["content"]
    with _lock:
        ASKED[message] += 1
    return reply_to(message)


async def answer_async(messages: list[dict[str, str]]) -> str:
    return answer(messages)


def awaited(messages: list[dict[str, str]]) -> Any:
    """Return an awaitable without being a coroutine function."""
    return answer_async(messages)


async def stopping(messages: list[dict[str, str]]) -> str:
    """Get interrupted during the sixth answer, as by Ctrl-C; `ASKED["go on"]` prevents it."""
    if ASKED.total() == 5:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.1)
    return answer(messages)


class Pipeline:
    def __call__(self, messages: list[dict[str, str]]) -> str:
        return answer(messages)


class AsyncPipeline:
    async def __call__(self, messages: list[dict[str, str]]) -> str:
        return answer(messages)


def broken(messages: list[dict[str, str]]) -> str:
    ASKED["broken"] += 1
    raise RuntimeError("the pipeline fell over")


def silent(messages: list[dict[str, str]]) -> None:
    return None


def judge(question: Any, text: str) -> bool:
    ASKED["judge"] += 1
    return text == question.gold


def judge_in_words(question: Any, text: str) -> str:
    return "correct" if text == question.gold else "refused" if text == "none" else "incorrect"


async def judge_async(question: Any, text: str) -> bool:
    return judge(question, text)


def judge_nonsense(question: Any, text: str) -> str:
    return "splendid"


TABLE = [
    ("q0", False, False),
    ("q1", True, True),
    ("q2", False, True),
    ("q3", True, False),
    ("q4", False, False),
    ("q5", True, True),
    ("q6", False, True),
    ("q7", True, True),
]
"""The outcomes of `answer` on `ROWS`: question, refused, wrong."""


def cells(run: Any) -> list[tuple[Any, ...]]:
    return run.outcomes.select("question_id", "refused", "wrong").rows()


def exhausted(messages):
    """Exhaust an iterator, as a retrieval over nothing does."""
    return next(iter(()))
