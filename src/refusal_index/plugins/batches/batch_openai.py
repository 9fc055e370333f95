"""Batches of OpenAI, and of the servers that have the same API, by the official client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from openai import AsyncOpenAI
from openai.types import Batch

from refusal_index.models.accounts import account_of
from refusal_index.plugins.batches.batch_provider import METADATA, State, lines_of
from refusal_index.plugins.batches.formats import format_of

ENDED = ("failed", "completed", "expired", "cancelled")
CROWDED = ("token_limit_exceeded",)
"""Codes of a batch that was refused for what else is in flight."""

CHUNK = 1 << 16
SHOWN = 3  # errors of a file


class OpenAIBatches:
    """The files and batches of a server that speaks OpenAI's API.

    Parameters
    ----------
    name
        Of the model.
    timeout
        Seconds that the server may take for any step of a request.
    """

    keeps_keys = True

    def __init__(self, name: str, timeout: float) -> None:
        self.account, self.style, self._timeout = account_of(name), format_of(name), timeout
        self._client: AsyncOpenAI

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Make the client, which sends nothing again by itself."""
        account = self.account
        async with AsyncOpenAI(
            api_key=account.api_key, base_url=account.base_url, max_retries=0, timeout=self._timeout
        ) as self._client:
            yield

    async def upload(self, path: Path, key: str) -> str:
        """Hand over a file, which is named after our key."""
        content = await asyncio.to_thread(path.read_bytes)
        return (await self._client.files.create(file=(f"{key}.jsonl", content), purpose="batch")).id

    async def submit(self, path: Path, file: str | None, key: str) -> State:  # noqa: ARG002 - as providers do
        """Begin a batch."""
        made = await self._client.batches.create(
            completion_window="24h", endpoint="/v1/chat/completions", input_file_id=file or "", metadata={METADATA: key}
        )
        return _state(made)

    async def look(self, batch: str) -> State:
        """Tell how a batch stands."""
        return _state(await self._client.batches.retrieve(batch))

    async def batches(self) -> AsyncIterator[State]:
        """List the account's batches."""
        async for one in self._client.batches.list(limit=100):
            yield _state(one)

    async def results(self, state: State) -> AsyncIterator[bytes]:
        """Give the lines of the output and of the error file."""
        for file in state.files:
            async with self._client.files.with_streaming_response.content(file) as response:
                async for line in lines_of(response.iter_bytes(CHUNK)):
                    yield line

    async def cancel(self, batch: str) -> None:
        """Let a batch end early."""
        await self._client.batches.cancel(batch)

    async def delete(self, file: str) -> None:
        """Delete a file."""
        await self._client.files.delete(file)


def _state(batch: Batch) -> State:
    """Return how a batch stands; compatible servers may leave out what is not needed."""
    counts = batch.request_counts
    errors = (batch.errors.data if batch.errors else None) or []
    files = tuple(one for one in (batch.output_file_id, batch.error_file_id) if one)
    status = str(batch.status).lower()
    return State(
        batch.id,
        status,
        status in ENDED,
        counts.total or 0 if counts else 0,
        (counts.completed or 0) + (counts.failed or 0) if counts else 0,
        batch.metadata.get(METADATA) if isinstance(batch.metadata, dict) else None,
        batch.created_at,
        _refusal(batch) if status == "failed" else None,
        any(one.code in CROWDED for one in errors),
        files,
        counts.completed or 0 if counts else 0,
        batch.input_file_id,
    )


def _refusal(batch: Batch) -> str:
    errors = (batch.errors.data if batch.errors else None) or []
    told = [
        ": ".join(filter(None, (one.line and f"line {one.line}", one.code, one.message)))  # type: ignore[arg-type]
        for one in errors[:SHOWN]
    ]
    more = f"; and {len(errors) - SHOWN:,} more" if len(errors) > SHOWN else ""
    return "; ".join(told) + more if told else "no reason given"
