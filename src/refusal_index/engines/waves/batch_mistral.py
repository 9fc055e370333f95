"""Mistral's batch jobs, by the official client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from refusal_index.engines.waves.batch_provider import METADATA, State, client_package, hosted, lines_of
from refusal_index.engines.waves.formats import URL, format_of

ADDRESS = "https://api.mistral.ai"
ENDED = ("SUCCESS", "FAILED", "TIMEOUT_EXCEEDED", "CANCELLED")
HOURS, LISTED = 24, 100


class MistralBatches:
    """Mistral's files and batch jobs.

    Parameters
    ----------
    name
        Of the model.
    timeout
        Seconds that a request may take.
    """

    keeps_keys = True

    def __init__(self, name: str, timeout: float) -> None:
        self.account, self.style = hosted(name, ADDRESS), format_of(name)
        self._package, self._timeout = client_package(name, "mistralai", "mistralai.client"), int(1000 * timeout)
        self._client: Any = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Make the client, which sends nothing again by itself."""
        account = self.account
        async with self._package.Mistral(
            api_key=account.api_key, server_url=account.base_url, timeout_ms=self._timeout
        ) as self._client:
            yield

    async def upload(self, path: Path, key: str) -> str:
        """Hand over a file, which is named after our key."""
        content = await asyncio.to_thread(path.read_bytes)
        file = {"file_name": f"{key}.jsonl", "content": content}
        return str((await self._client.files.upload_async(file=file, purpose="batch")).id)

    async def submit(self, path: Path, file: str | None, key: str) -> State:  # noqa: ARG002 - as providers do
        """Begin a job."""
        made = await self._client.batch.jobs.create_async(
            endpoint=URL,
            input_files=[file],
            model=self.account.model,
            metadata={METADATA: key},
            timeout_hours=HOURS,
        )
        return _state(made)

    async def look(self, batch: str) -> State:
        """Tell how a job stands."""
        return _state(await self._client.batch.jobs.get_async(job_id=batch))

    async def batches(self) -> AsyncIterator[State]:
        """List the account's jobs."""
        for page in count():
            found = (await self._client.batch.jobs.list_async(page=page, page_size=LISTED)).data or []
            for one in found:
                yield _state(one)
            if len(found) < LISTED:
                return

    async def results(self, state: State) -> AsyncIterator[bytes]:
        """Give the lines of the output and of the error file."""
        for file in state.files:
            response = await self._client.files.download_async(file_id=file)
            async for line in lines_of(response.aiter_bytes()):
                yield line

    async def cancel(self, batch: str) -> None:
        """Let a job end early."""
        await self._client.batch.jobs.cancel_async(job_id=batch)

    async def delete(self, file: str) -> None:
        """Delete a file."""
        await self._client.files.delete_async(file_id=file)


def _state(job: Any) -> State:
    files = tuple(one for one in (job.output_file, job.error_file) if one)
    refusal = None
    if job.status == "FAILED" and not files:
        refusal = "; ".join(str(one.message) for one in job.errors[:3]) or "no reason given"
    return State(
        job.id,
        job.status.lower(),
        job.status in ENDED,
        job.total_requests,
        job.completed_requests,
        (job.metadata or {}).get(METADATA),
        job.created_at,
        refusal,
        files=files,
        answered=job.succeeded_requests,
    )
