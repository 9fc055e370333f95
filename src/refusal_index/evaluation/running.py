"""Running a coroutine from plain code, in a script, a thread or a notebook, whose event loop runs already."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


def run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result, whether a loop runs in this thread or not.

    Where one runs, as in a notebook, the coroutine runs in a thread with a loop of its own; an interruption cancels it
    there, so that what came before is kept.
    """
    return _in_thread(coroutine) if _is_running() else asyncio.run(coroutine)


def _is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    loops: list[asyncio.AbstractEventLoop] = []
    tasks: list[asyncio.Task[T]] = []
    results: list[T] = []
    errors: list[BaseException] = []

    async def main() -> T:
        loops.append(asyncio.get_running_loop())
        tasks.append(asyncio.ensure_future(coroutine))
        return await tasks[0]

    def work() -> None:
        try:
            results.append(asyncio.run(main()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=copy_context().run, args=(work,), name="refusal-index")
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        if loops and tasks:
            loops[0].call_soon_threadsafe(tasks[0].cancel)
        thread.join()
        raise
    if errors:
        raise errors[0]
    return results[0]
