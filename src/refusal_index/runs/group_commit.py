"""Storing replies that arrive together in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from refusal_index.protocol import Completion
from refusal_index.runs.store import ReplyStore


class GroupCommit:
    """Writes replies to a store; those that arrive in one turn of the event loop share a transaction."""

    def __init__(self, store: ReplyStore) -> None:
        self._store = store
        self._waiting: list[tuple[Sequence[Completion], asyncio.Future[None]]] = []

    async def put(self, completions: Sequence[Completion]) -> None:
        """Store replies; they are committed when this returns.

        Raises
        ------
        StoreError
            If they cannot be written.
        """
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._write)
        done = loop.create_future()
        self._waiting.append((completions, done))
        await done

    def _write(self) -> None:
        waiting = self._waiting
        self._waiting = []
        failed = self._try_to_write([completion for completions, _ in waiting for completion in completions])
        for completions, done in waiting:
            # Only replies that cannot be stored on their own get the error.
            error = None if failed is None else self._try_to_write(completions)
            if done.done():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

    def _try_to_write(self, completions: Sequence[Completion]) -> Exception | None:
        try:
            self._store.put(completions)
        except Exception as error:
            return error
        return None
