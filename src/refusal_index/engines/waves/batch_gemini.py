"""Gemini's batch jobs, by the official client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from refusal_index.engines.waves.batch_provider import State, client_package, hosted
from refusal_index.engines.waves.formats import format_of

ADDRESS = "https://generativelanguage.googleapis.com"
PREFIX = "JOB_STATE_"
ENDED = ("succeeded", "partially_succeeded", "failed", "cancelled", "expired")


class GeminiBatches:
    """Gemini's files and batch jobs; our key of a job is its display name.

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
        self._package = client_package(name, "google-genai", "google.genai", "gemini")
        self._timeout = int(1000 * timeout)
        self._client: Any = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Make the client, which sends nothing again by itself.

        Without a word about attempts it sends again whatever it lost the connection over, and so pays twice.
        """
        once = {"attempts": 1}
        where = {"base_url": self.account.base_url, "timeout": self._timeout, "retry_options": once}
        async with self._package.Client(api_key=self.account.api_key, http_options=where).aio as self._client:
            yield

    async def upload(self, path: Path, key: str) -> str:
        """Hand over a file, which is named after our key."""
        about = {"display_name": key, "mime_type": "jsonl"}
        return str((await self._client.files.upload(file=str(path), config=about)).name)

    async def submit(self, path: Path, file: str | None, key: str) -> State:  # noqa: ARG002 - as providers do
        """Begin a job."""
        made = await self._client.batches.create(model=self.account.model, src=file, config={"display_name": key})
        return _state(made)

    async def look(self, batch: str) -> State:
        """Tell how a job stands."""
        return _state(await self._client.batches.get(name=batch))

    async def batches(self) -> AsyncIterator[State]:
        """List the account's jobs."""
        async for one in await self._client.batches.list(config={"page_size": 100}):
            yield _state(one)

    async def results(self, state: State) -> AsyncIterator[bytes]:
        """Give the lines of the result file."""
        for file in state.files:
            for line in (await self._client.files.download(file=file) or b"").split(b"\n"):
                yield line

    async def cancel(self, batch: str) -> None:
        """Let a job end early."""
        await self._client.batches.cancel(name=batch)

    async def delete(self, file: str) -> None:
        """Delete a file."""
        await self._client.files.delete(name=file)


def _state(job: Any) -> State:
    status = str(getattr(job.state, "value", job.state)).removeprefix(PREFIX).lower()
    file, counts = job.dest and job.dest.file_name, job.completion_stats
    done = ((counts.successful_count or 0) + (counts.failed_count or 0)) if counts else 0
    return State(
        job.name,
        status,
        status in ENDED,
        done + (counts.incomplete_count or 0) if counts else 0,
        done,
        job.display_name,
        job.create_time and job.create_time.timestamp(),
        ((job.error and job.error.message) or "no reason given") if status == "failed" and not file else None,
        files=(file,) if file else (),
        answered=counts.successful_count or 0 if counts else 0,
    )
