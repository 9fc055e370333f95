"""Many conversations carried at once in this process, so many questions at a time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

from refusal_index.engines.asks import Send
from refusal_index.engines.engine import Assignment, Explain, converse
from refusal_index.engines.failures import RequestFailedError
from refusal_index.protocol import Conversation


async def carry_concurrently(assignment: Assignment, send: Send, explain: Explain, at_once: int) -> None:
    """Ask whatever is due about every question, until nothing is or the run has ended.

    Parameters
    ----------
    assignment
        What is asked.
    send, explain
        Sends one request, and says what an error comes down to.
    at_once
        How many questions are asked at a time, each one request after the other.
    """
    waiting = iter(assignment.conversations)

    async def work() -> None:
        for conversation in waiting:
            if assignment.breaker.reason is not None:
                return
            await _settle(assignment, conversation, send, explain)

    with seldom_collecting():
        ended = await asyncio.gather(*(work() for _ in range(at_once)), return_exceptions=True)
    for error in ended:  # told once all the others have come to their end, and what they paid for is kept
        if error is not None:
            raise error


async def _settle(assignment: Assignment, conversation: Conversation, send: Send, explain: Explain) -> None:
    try:
        await converse(assignment, conversation, send, explain)
    except RequestFailedError:
        pass  # the store holds it
    except Exception:
        if assignment.breaker.reason is None:
            raise  # else the breaker tells it


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Collect garbage rarely while the block runs.

    A run keeps much and drops little in cycles: looking for them at the usual pace takes a fifth of its processor time.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
