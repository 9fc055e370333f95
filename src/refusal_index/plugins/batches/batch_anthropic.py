"""Anthropic's message batches, by the official client."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from refusal_index.models.accounts import NO_KEY, account_of
from refusal_index.models.requests import ModelError
from refusal_index.plugins.batches.batch_provider import State, lines_of
from refusal_index.plugins.batches.formats import format_of

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

    Raises
    ------
    ModelError
        If there is no key, or the client is not installed.
    """

    keeps_keys = False

    def __init__(self, name: str, timeout: float) -> None:
        self.account, self.style = account_of(name, {"ANTHROPIC_BASE_URL": URL, **os.environ}), format_of(name)
        if self.account.api_key == NO_KEY:
            raise ModelError(f"model {name!r}: expected a key in {self.account.key_name}, found none")
        try:
            self._package = import_module("anthropic")
        except ImportError as error:
            raise ModelError(
                f"model {name!r}: its batches need the package anthropic ({error}); pip install 'refusal-index[batch]'"
            ) from error
        self._timeout = timeout
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
