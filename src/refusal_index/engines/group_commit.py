"""Replies that come in the same moment are written to the disk together: one commit for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from refusal_index.engines.store import ReplyStore
from refusal_index.protocol import Completion


class GroupCommit:
    """Puts replies into a store, those together that come within one turn of the event loop.

    Parameters
    ----------
    store
        Where they go.
    """

    def __init__(self, store: ReplyStore) -> None:
        self._store = store
        self._waiting: list[tuple[Sequence[Completion], asyncio.Future[None]]] = []

    async def put(self, completions: Sequence[Completion]) -> None:
        """Keep replies; they are safe when this returns.

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
        waiting, self._waiting = self._waiting, []
        try:
            self._store.put([one for completions, _ in waiting for one in completions])
        except Exception:  # what cannot be kept is told of itself alone
            for completions, done in waiting:
                self._write_one(completions, done)
            return
        for _, done in waiting:
            if not done.done():
                done.set_result(None)

    def _write_one(self, completions: Sequence[Completion], done: asyncio.Future[None]) -> None:
        try:
            self._store.put(completions)
        except Exception as error:
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(None)
