"""Anthropic's message batches, by the official client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from refusal_index.engines.waves.batch_provider import State, client_package, hosted, lines_of
from refusal_index.engines.waves.formats import format_of

URL = "https://api.anthropic.com"
CHUNK = 1 << 16


class AnthropicBatches:
    """Anthropic's message batches; these keep no key of ours.

    Parameters
    ----------
    name
        Of the model.
    timeout
        Seconds that the server may take for any step of a request.
    """

    keeps_keys = False

    def __init__(self, name: str, timeout: float) -> None:
        self.account, self.style, self._timeout = hosted(name, URL), format_of(name), timeout
        self._package = client_package(name, "anthropic", "anthropic")
        self._client: Any = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Make the client, which sends nothing again by itself."""
        account = self.account
        async with self._package.AsyncAnthropic(
            api_key=account.api_key, base_url=account.base_url, max_retries=0, timeout=self._timeout
        ) as self._client:
            yield

    async def upload(self, path: Path, key: str) -> None:
        """Do nothing: requests go with the batch."""

    async def submit(self, path: Path, file: str | None, key: str) -> State:  # noqa: ARG002 - as providers do
        """Begin a batch."""
        with path.open("rb") as lines:
            requests = [json.loads(line) for line in lines]
        return _state(await self._client.messages.batches.create(requests=requests))

    async def look(self, batch: str) -> State:
        """Tell how a batch stands."""
        return _state(await self._client.messages.batches.retrieve(batch))

    async def batches(self) -> AsyncIterator[State]:
        """List the account's batches."""
        async for one in self._client.messages.batches.list(limit=100):
            yield _state(one)

    async def results(self, state: State) -> AsyncIterator[bytes]:
        """Give the lines of the results."""
        found = self._client.messages.batches.with_streaming_response.results(state.id)
        async with found as response:
            async for line in lines_of(response.iter_bytes(CHUNK)):
                yield line

    async def cancel(self, batch: str) -> None:
        """Let a batch end early."""
        await self._client.messages.batches.cancel(batch)

    async def delete(self, file: str) -> None:
        """Do nothing: there are no files."""


def _state(batch: Any) -> State:
    counts = batch.request_counts
    done = counts.succeeded + counts.errored + counts.canceled + counts.expired
    return State(
        batch.id,
        batch.processing_status,
        batch.processing_status == "ended",
        done + counts.processing,
        done,
        created=batch.created_at.timestamp(),
        answered=counts.succeeded,
    )
