"""Asynchronous functions called from code that is not, also where an event loop is running."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


def run_to_completion(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result, whether a loop runs in this thread or not.

    If a loop is running, as in a notebook, the coroutine runs in a thread with a loop of its own. An interruption
    cancels it there, so that earlier replies are kept.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    tasks: list[asyncio.Task[T]] = []

    async def main() -> T:
        tasks.append(asyncio.ensure_future(coroutine))
        return await tasks[0]

    with ThreadPoolExecutor(1, "refusal-index") as pool:  # leaving the block waits for the thread
        done = pool.submit(copy_context().run, asyncio.run, main())
        try:
            return done.result()
        except KeyboardInterrupt:
            if tasks and not done.done():
                tasks[0].get_loop().call_soon_threadsafe(tasks[0].cancel)
            raise
