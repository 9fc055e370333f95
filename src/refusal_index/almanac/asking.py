"""Many requests at once, and no more of them in memory than are under way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 256
"""Requests under way at a time: twice what a runtime has in the making, so that it never waits."""


async def in_order(
    items: Iterable[T], ask: Callable[[T], Awaitable[R]], most: int = AT_ONCE
) -> AsyncGenerator[R, None]:
    """Ask for each item with at most `most` under way, and yield what comes in the order of the items.

    What is under way when the caller leaves is cancelled.
    """
    waiting: deque[asyncio.Future[R]] = deque()
    try:
        for item in items:
            waiting.append(asyncio.ensure_future(ask(item)))
            if len(waiting) >= most:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
