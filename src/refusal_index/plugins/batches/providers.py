"""Batches at a provider, by its own client: OpenAI with the servers that have the same API, and Anthropic."""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from refusal_index.models.accounts import NO_KEY, Account, account_of
from refusal_index.models.requests import ModelError
from refusal_index.plugins.batches.formats import format_of

METADATA = "refusal_index"
"""The name under which a provider keeps our key of a batch."""

CHUNK, MAX_LINE = 1 << 16, 64 << 20
"""Bytes of a download that are read at a time, and the most bytes of one result."""

UNSUPPORTED = ("google", "mistral", "grok")  # Inspect's names of providers whose batches have an API of their own
ENDED = ("failed", "completed", "expired", "cancelled")
CROWDED = ("token_limit_exceeded",)
"""Codes of a batch that was refused for what else is in flight."""

SHOWN_ERRORS, MAX_STATUS = 3, 80


@dataclass(frozen=True)
class State:
    """The state of a batch.

    Attributes
    ----------
    id, status
        What the provider calls the batch and its state.
    ended
        Whether nothing more will come.
    total, done
        How many requests it holds, and how many have an answer or failed; 0 as long as that is not known.
    key
        Our key, where the provider keeps it.
    created
        When it was made, in seconds since 1970, by the provider's clock; None where the provider does not report it.
    refusal, is_crowded
        Why none of it was asked, as the provider says, and whether that was for what else is in flight.
    files
        The provider's names of the files with results.
    answered
        How many requests have an answer, which the results hold then; 0 where the provider does not report it.
    file
        The provider's name of the file with the requests; None where the provider does not report it.
    is_guess
        Whether it may be another batch than the one that was looked for.
    """

    id: str
    status: str
    ended: bool
    total: int = 0
    done: int = 0
    key: str | None = None
    created: float | None = None
    refusal: str | None = None
    is_crowded: bool = False
    files: tuple[str, ...] = ()
    answered: int = 0
    file: str | None = None
    is_guess: bool = False


class Batches(ABC):
    """The batches of one model at its provider; the client repeats no request by itself.

    Attributes
    ----------
    account, style
        Address and key, and the format of requests.
    keeps_keys
        Whether the provider keeps our key of a batch and shows it in its list.
    """

    keeps_keys: bool

    def __init__(self, account: Account, make_client: Any, timeout: float) -> None:
        self.account, self.style = account, format_of(account.name)
        self._make_client = partial(
            make_client, api_key=account.api_key, base_url=account.base_url, max_retries=0, timeout=timeout
        )
        self._client: Any = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Make the client, and close it at the end."""
        async with self._make_client() as self._client:
            yield

    @property
    @abstractmethod
    def _batches(self) -> Any:
        """The part of the client that is about batches."""

    @abstractmethod
    def _state(self, batch: Any) -> State:
        """Return the state of a batch from the client's object."""

    async def upload(self, content: bytes, key: str) -> str | None:  # noqa: ARG002 - for providers that take files
        """Upload a file of requests, and return its name there; None where requests go with the batch itself."""
        return None

    @abstractmethod
    async def submit(self, content: bytes, file: str | None, key: str) -> State:
        """Submit the requests of a file: this is what costs."""

    async def look(self, batch: str) -> State:
        """Return the state of a batch."""
        return self._state(await self._batches.retrieve(batch))

    async def batches(self) -> AsyncIterator[State]:
        """List the account's batches."""
        async for batch in self._batches.list(limit=100):
            yield self._state(batch)

    @abstractmethod
    def results(self, state: State) -> AsyncIterator[bytes]:
        """Yield the lines of the results of a batch that ended."""

    async def cancel(self, batch: str) -> None:
        """Let a batch end early."""
        await self._batches.cancel(batch)

    @abstractmethod
    async def delete(self, file: str) -> None:
        """Delete a file of requests, where the provider has files."""


class OpenAIBatches(Batches):
    """The files and batches of a server with OpenAI's API."""

    keeps_keys = True

    def __init__(self, name: str, timeout: float) -> None:
        super().__init__(account_of(name), import_module("openai").AsyncOpenAI, timeout)

    @property
    def _batches(self) -> Any:
        return self._client.batches

    async def upload(self, content: bytes, key: str) -> str:
        """Upload a file, which is named after our key."""
        file = await self._client.files.create(file=(f"{key}.jsonl", content), purpose="batch")
        return str(file.id)

    async def submit(self, content: bytes, file: str | None, key: str) -> State:  # noqa: ARG002 - see the base class
        """Submit the requests of an uploaded file."""
        batch = await self._batches.create(
            completion_window="24h", endpoint="/v1/chat/completions", input_file_id=file or "", metadata={METADATA: key}
        )
        return self._state(batch)

    async def results(self, state: State) -> AsyncIterator[bytes]:
        """Yield the lines of the output file and of the error file."""
        for file in state.files:
            async with self._client.files.with_streaming_response.content(file) as response:
                async for line in lines_of(response.iter_bytes(CHUNK)):
                    yield line

    async def delete(self, file: str) -> None:
        """Delete a file."""
        await self._client.files.delete(file)

    def _state(self, batch: Any) -> State:
        """Return the state of a batch; compatible servers may leave out what is not needed."""
        counts, status = batch.request_counts, str(batch.status).lower()
        total, completed, failed = (
            (counts.total or 0, counts.completed or 0, counts.failed or 0) if counts else (0, 0, 0)
        )
        errors = (batch.errors.data if batch.errors else None) or []
        return State(
            batch.id,
            status,
            status in ENDED,
            total,
            completed + failed,
            batch.metadata.get(METADATA) if isinstance(batch.metadata, dict) else None,
            batch.created_at,
            _refusal(errors) if status == "failed" else None,
            any(error.code in CROWDED for error in errors),
            tuple(filter(None, (batch.output_file_id, batch.error_file_id))),
            completed,
            batch.input_file_id,
        )


def _refusal(errors: list[Any]) -> str:
    shown = [
        ": ".join(filter(None, (error.line and f"line {error.line}", error.code, error.message)))
        for error in errors[:SHOWN_ERRORS]
    ]
    more = f"; and {len(errors) - SHOWN_ERRORS:,} more" if len(errors) > SHOWN_ERRORS else ""
    return "; ".join(shown) + more if shown else "no reason given"


class AnthropicBatches(Batches):
    """Anthropic's message batches, which keep no key of ours.

    Raises
    ------
    ModelError
        If there is no key, or the client is not installed.
    """

    keeps_keys = False

    def __init__(self, name: str, timeout: float) -> None:
        account = account_of(name, {"ANTHROPIC_BASE_URL": "https://api.anthropic.com", **os.environ})
        if account.api_key == NO_KEY:
            raise ModelError(f"model {name!r}: expected a key in {account.key_name}, found none")
        try:
            package = import_module("anthropic")
        except ImportError as error:
            raise ModelError(
                f"model {name!r}: its batches need the package anthropic ({error}); pip install 'refusal-index[batch]'"
            ) from error
        super().__init__(account, package.AsyncAnthropic, timeout)

    @property
    def _batches(self) -> Any:
        return self._client.messages.batches

    async def submit(self, content: bytes, file: str | None, key: str) -> State:  # noqa: ARG002 - see the base class
        """Submit requests."""
        requests = [json.loads(line) for line in content.split(b"\n") if line]
        return self._state(await self._batches.create(requests=requests))

    async def results(self, state: State) -> AsyncIterator[bytes]:
        """Yield the lines of the results."""
        async with self._batches.with_streaming_response.results(state.id) as response:
            async for line in lines_of(response.iter_bytes(CHUNK)):
                yield line

    async def delete(self, file: str) -> None:
        """Do nothing: there are no files."""

    def _state(self, batch: Any) -> State:
        counts, status = batch.request_counts, batch.processing_status
        done = counts.succeeded + counts.errored + counts.canceled + counts.expired
        created = batch.created_at.timestamp()
        total = done + counts.processing
        return State(batch.id, status, status == "ended", total, done, created=created, answered=counts.succeeded)


def batches_of(name: str, timeout: float) -> Batches:
    """Return the client for a model's batches.

    Parameters
    ----------
    name
        The model's.
    timeout
        Seconds that the server may take for any step of a request.

    Raises
    ------
    ModelError
        If its provider's batches are not supported, or its address, its key or its client is missing.
    """
    provider = name.partition("/")[0]
    if provider in UNSUPPORTED:
        raise ModelError(
            f"model {name!r}: batches are supported for OpenAI, compatible servers and Anthropic only; leave out "
            "{engine} batch, and requests are sent one at a time"
        )
    return (AnthropicBatches if provider == "anthropic" else OpenAIBatches)(name, timeout)


def address_of(account: Account) -> str:
    """Return the address of a provider without what must not be written down.

    Examples
    --------
    >>> address_of(Account("a/b", "a", "b", "http://me:hush@127.0.0.1:8000/v1?key=hush"))
    'http://127.0.0.1:8000/v1'
    """
    parts = urlsplit(account.base_url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path.rstrip('/')}"


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    r"""Split a file into lines at ``\n`` only, since replies may hold other characters that end a line."""
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        if b"\n" in chunk:
            *lines, last = rest.split(b"\n")
            for line in lines:
                yield bytes(line)
            rest = bytearray(last)
        if len(rest) > MAX_LINE:
            raise ValueError(f"expected lines of at most {MAX_LINE:,} bytes")
    if rest:
        yield bytes(rest)


def describe_states(states: Iterable[tuple[str, State]]) -> str:
    """Describe batches, given the provider and the state of each.

    Examples
    --------
    >>> describe_states([("openai", State("b1", "in_progress", False, 1000, 20))])
    '1 batch at openai: 1 in progress; 20 of 1,000 done'
    """
    by_provider: dict[str, list[State]] = {}
    for provider, state in states:
        by_provider.setdefault(provider, []).append(state)
    parts = []
    for provider, batches in by_provider.items():
        statuses = Counter(re.sub(r"[\W_]+", " ", batch.status)[:MAX_STATUS] for batch in batches)
        status = ", ".join(f"{count:,} {name}" for name, count in sorted(statuses.items()))
        done, total = sum(batch.done for batch in batches), sum(batch.total for batch in batches)
        counts = f"; {done:,} of {total:,} done" if total else ""
        parts.append(f"{len(batches):,} batch{'es' if len(batches) > 1 else ''} at {provider}: {status}{counts}")
    return "; ".join(parts)
