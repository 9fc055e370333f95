"""Batch APIs of OpenAI, OpenAI-compatible servers and Anthropic, through their official clients."""

from __future__ import annotations

import asyncio
import json
import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from refusal_index.models.accounts import Account, account_for, address_of, provider_account, split_name
from refusal_index.models.failures import (
    RESUMES,
    CircuitBreaker,
    EndedError,
    Failure,
    FailureKind,
    RequestFailedError,
    UnreadableReplyError,
    classify_error,
    describe_error,
    send_with_retries,
    status_of,
)
from refusal_index.models.openai_client import NO_KEY, headers_of, leave_out_no_key
from refusal_index.models.redirects import check_redirect
from refusal_index.models.requests import ModelError, check_certificates
from refusal_index.models.settings import RequestSettings
from refusal_index.plugins.batches.formats import (
    MAX_LINE,
    RequestResult,
    format_of,
    in_batch,
    provider_failure,
    read_result,
)
from refusal_index.plugins.batches.journal import Journal, JournalEntry, usable
from refusal_index.protocol import Role
from refusal_index.runs.engine import Assignment, RunFailedError
from refusal_index.runs.events import Progress, Underway

METADATA = "refusal_index"
"""The metadata field that holds our key of a batch."""

CHUNK = 1 << 16
"""Bytes of a download to read at a time."""

UNSUPPORTED = ("google", "mistral", "grok")  # Inspect's names of providers whose batch API is not supported
ENDED = ("failed", "completed", "expired", "cancelled")
CROWDED = ("token_limit_exceeded",)
"""Error codes of a batch that was rejected because too much is in flight."""

SHOWN_ERRORS = 3
MAX_STATUS = 80


@dataclass(frozen=True)
class State:
    """The state of a batch.

    Attributes
    ----------
    id, status
        The provider's id and status of the batch.
    ended
        Whether the batch has ended and will bring no further results.
    total, done
        Number of requests in the batch, and of those that succeeded or failed; 0 while unknown.
    key
        Our key, if the provider returns it.
    created
        When the batch was created, in seconds since 1970 by the provider's clock; None if not reported.
    refusal, is_crowded
        The provider's reason for rejecting the whole batch, and whether it was that too much is in flight.
    files
        The provider's ids of the result files.
    answered
        Number of requests that succeeded, and so must be in the results; 0 if not reported.
    file
        The provider's id of the request file; None if not reported.
    is_guess
        Whether this may be a different batch from the one that was looked up.
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


class BatchApi(ABC):
    """The batch API of one model's provider; the client's own retries are off.

    Attributes
    ----------
    account, style
        Address and key, and the format of requests.
    keeps_keys
        Whether the provider stores our key of a batch and returns it when listing batches.
    resource
        The name of the client's resource for batches.
    """

    keeps_keys: bool
    resource: str

    def __init__(self, account: Account, make_client: Any, timeout: float, headers: Mapping[str, Any]) -> None:
        check_certificates()
        self.account = account
        self.style = format_of(account.provider)
        parts = urlsplit(account.base_url)
        self._make_client = partial(
            make_client,
            api_key=account.api_key or NO_KEY,
            base_url=parts._replace(query="").geturl(),
            default_query=dict(parse_qsl(parts.query)),
            default_headers=headers,
            max_retries=0,
            timeout=timeout,
        )
        self._client: Any = None
        self._batches: Any = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Create the client, and close it on exit."""
        async with self._make_client() as self._client:
            self._client._client.event_hooks["request"].append(leave_out_no_key)
            self._client._client.event_hooks["response"].append(check_redirect)
            self._batches = attrgetter(self.resource)(self._client)
            yield

    @abstractmethod
    def _state(self, batch: Any) -> State:
        """Convert the client's batch object."""

    async def upload(self, content: bytes, key: str) -> str | None:  # noqa: ARG002 - for providers that take files
        """Upload a request file and return its id; None if the provider takes requests with the batch itself."""
        return None

    @abstractmethod
    async def submit(self, content: bytes, file: str | None, key: str) -> State:
        """Submit a batch; this is the call that costs money."""

    async def look(self, batch: str) -> State:
        """Return the state of a batch."""
        return self._state(await self._batches.retrieve(batch))

    async def batches(self) -> AsyncIterator[State]:
        """List the account's batches."""
        async for batch in self._batches.list(limit=100):
            yield self._state(batch)

    @abstractmethod
    def results(self, state: State) -> AsyncIterator[bytes]:
        """Yield the result lines of a batch that ended."""

    async def cancel(self, batch: str) -> None:
        """Cancel a batch."""
        await self._batches.cancel(batch)

    async def delete(self, file: str) -> None:  # noqa: B027 - some providers take no files
        """Delete a request file, if the provider takes files."""


class OpenAIBatchApi(BatchApi):
    """Files and batches of a server with OpenAI's API."""

    keeps_keys = True
    resource = "batches"

    def __init__(self, account: Account, timeout: float) -> None:
        super().__init__(account, import_module("openai").AsyncOpenAI, timeout, headers_of(account))

    async def upload(self, content: bytes, key: str) -> str:
        """Upload a request file named after our key."""
        file = await self._client.files.create(file=(f"{key}.jsonl", content), purpose="batch")
        return str(file.id)

    async def submit(self, content: bytes, file: str | None, key: str) -> State:  # noqa: ARG002 - see the base class
        """Submit an uploaded request file."""
        batch = await self._batches.create(
            completion_window="24h", endpoint="/v1/chat/completions", input_file_id=file or "", metadata={METADATA: key}
        )
        return self._state(batch)

    async def results(self, state: State) -> AsyncIterator[bytes]:
        """Yield the lines of the output file and the error file."""
        for file in state.files:
            async with self._client.files.with_streaming_response.content(file) as response:
                async for line in lines_of(response.iter_bytes(CHUNK)):
                    yield line

    async def delete(self, file: str) -> None:
        """Delete a file."""
        await self._client.files.delete(file)

    def _state(self, batch: Any) -> State:
        """Convert a batch object; compatible servers may omit optional fields."""
        counts = batch.request_counts
        status = str(batch.status).lower()
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


class AnthropicBatchApi(BatchApi):
    """Anthropic's message batches, which have no metadata and so do not store our key.

    Raises
    ------
    ModelError
        If the API key is missing or the client is not installed.
    """

    keeps_keys = False
    resource = "messages.batches"

    def __init__(self, name: str, timeout: float) -> None:
        account = provider_account(name, "https://api.anthropic.com")
        if not account.api_key:
            raise ModelError(f"model {name!r}: expected a key in {account.key_name}, found none")
        try:
            package = import_module("anthropic")
        except ImportError as error:
            raise ModelError(
                f"model {name!r}: its batches need the package anthropic ({error}); pip install 'refusal-index[batch]'"
            ) from error
        super().__init__(account, package.AsyncAnthropic, timeout, {})

    async def submit(self, content: bytes, file: str | None, key: str) -> State:  # noqa: ARG002 - see the base class
        """Submit a batch with its requests."""
        requests = [json.loads(line) for line in content.split(b"\n") if line]
        return self._state(await self._batches.create(requests=requests))

    async def results(self, state: State) -> AsyncIterator[bytes]:
        """Yield the result lines."""
        async with self._batches.with_streaming_response.results(state.id) as response:
            async for line in lines_of(response.iter_bytes(CHUNK)):
                yield line

    def _state(self, batch: Any) -> State:
        counts = batch.request_counts
        status = batch.processing_status
        done = counts.succeeded + counts.errored + counts.canceled + counts.expired
        created = batch.created_at.timestamp()
        total = done + counts.processing
        return State(batch.id, status, status == "ended", total, done, created=created, answered=counts.succeeded)


def batches_of(role: Role, name: str, settings: RequestSettings) -> BatchApi:
    """Return the batch API of a model's provider, or of its server.

    Parameters
    ----------
    role, name
        The role of the model, and its name.
    settings
        The settings of the run.

    Raises
    ------
    ModelError
        If the provider's batches are not supported, or its address, key or client is missing.
    """
    timeout = float(settings.sending.attempt_timeout)
    provider = None if settings.servers.of_role(role).base_url is not None else split_name(name)[0]
    if provider in UNSUPPORTED:
        raise ModelError(
            f"model {name!r}: batches are supported for OpenAI, compatible servers and Anthropic only; leave out "
            "{engine} batch to send requests one at a time"
        )
    if provider == "anthropic":
        return AnthropicBatchApi(name, timeout)
    return OpenAIBatchApi(account_for(role, name, settings), timeout)


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    r"""Split a file into lines at ``\n`` only, since replies may contain other line separators."""
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
    """Describe the progress of batches, given as pairs of provider and state.

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
        done = sum(batch.done for batch in batches)
        total = sum(batch.total for batch in batches)
        counts = f"; {done:,} of {total:,} done" if total else ""
        parts.append(f"{len(batches):,} batch{'es' if len(batches) > 1 else ''} at {provider}: {status}{counts}")
    return "; ".join(parts)


T = TypeVar("T")

NO_SUCH_API = (404, 405, 501)
TOO_LARGE = (413,)

SETTLED = 10.0
"""Seconds after which an interrupted submission, if it arrived, appears in the provider's list."""

WINDOW = 3 * 86_400.0
"""Seconds by which a batch may appear older than its submission because clocks differ."""

MAX_LISTED = 100_000  # batches of an account to list
SHOWN = 3  # batches to name in a message
READINGS = 2  # attempts to download results that have broken lines
MIN_MATCHED = 0.1
"""Minimum share of a batch's results that must be usable."""

FEW = 10
"""Number of unusable results that ends the run."""

FINISHED = ("completed", "ended")
"""Statuses of a batch whose requests were all attempted."""


class BatchClient:
    """Submits, finds and collects the batches of one model.

    Parameters
    ----------
    name
        The name of the model in the run.
    provider, journal
        The provider's batch API, and the journal that records each step.
    retries
        How often a call is retried after a temporary failure.
    """

    def __init__(self, name: str, provider: BatchApi, journal: Journal, retries: int) -> None:
        self.name = name
        self.provider = provider
        self._journal = journal
        self._retries = retries
        self._unmatched = set[str]()  # requests without a usable result in consecutive batches

    @property
    def entries(self) -> list[JournalEntry]:
        """The model's batches in flight."""
        return [entry for entry in self._journal.entries if entry.model == self.name]

    async def submit(self, content: bytes, requests: list[str], assignment: Assignment) -> str | None:
        """Submit a batch; return None on success, otherwise the reason and advice.

        Raises
        ------
        EndedError
            If the circuit breaker opened before the batch was submitted.
        """
        account = self.provider.account
        breaker = assignment.breaker
        entry = self._journal.begin(account.provider, address_of(account.base_url), self.name, requests)
        is_in_doubt = False  # whether a submission may have arrived, so must not be repeated blindly

        async def upload() -> str | None:
            file = await self.provider.upload(content, entry.key)
            return None if file is None else usable(file)

        async def submit_or_find() -> State:
            nonlocal is_in_doubt
            if is_in_doubt and (state := await self.find(entry, assignment)) is not None:
                return state
            was_in_doubt = is_in_doubt
            is_in_doubt = True
            try:
                state = await self.provider.submit(content, entry.file, entry.key)
            except Exception as error:
                is_in_doubt = was_in_doubt or self.classify(error).kind.is_sent_again
                raise
            usable(state.id)
            return state

        try:
            file = await self._call(upload, breaker, entry.key)
            if file is not None:
                entry = self._journal.uploaded(entry.key, file)
            state = await self._call(submit_or_find, breaker, entry.key)
        except (RequestFailedError, EndedError) as error:
            if not is_in_doubt:
                await self._give_up(entry, str(error) or "the run ended before")
            if isinstance(error, EndedError):
                raise
            return self._why_not(error, entry if is_in_doubt else None)
        self._journal.submitted(entry.key, state.id, is_guess=state.is_guess)
        return None

    async def find_again(self, entry: JournalEntry, assignment: Assignment) -> None:
        """Look up a batch whose submission was interrupted, and record whether it arrived.

        Raises
        ------
        ModelError
            If the provider cannot tell.
        RunFailedError
            If the provider cannot be asked now.
        EndedError
            If the run ended first.
        """
        problem = f"{_describe(entry)} may be in flight"
        advice = f"check there, and set {{engine_option}} forget={entry.key} to send, and pay for, the requests again"
        try:
            state = await self._call(lambda: self.find(entry, assignment), assignment.breaker, entry.key)
        except RequestFailedError as error:
            is_lasting = error.failure.kind is FailureKind.REQUEST or status_of(error) in NO_SUCH_API
            raised, then = (ModelError, advice) if is_lasting else (RunFailedError, RESUMES)
            raise raised(
                f"{problem}, and the list of batches at {entry.place} does not show whether it is ({error}); {then}"
            ) from error
        if state is None:
            await self._give_up(entry, "it never arrived")
        else:
            self._journal.submitted(entry.key, state.id, is_guess=state.is_guess)

    def check_address(self, entry: JournalEntry) -> None:
        """Raise ModelError if a batch was submitted to an address other than the model's current one."""
        account = self.provider.account
        address = address_of(account.base_url)
        if entry.place != address:
            verb = "is" if entry.batch else "may be"
            raise ModelError(
                f"{_describe(entry)} {verb} in flight at {entry.place}, but the address of the model is now "
                f"{address}: run the same command with {account.url_setting}{entry.place} to collect it, "
                f"or with {{engine_option}} forget={entry.key} to abandon it: its requests are then paid for again"
            )

    async def find(self, entry: JournalEntry, assignment: Assignment) -> State | None:
        """Find the batch of a journal entry in the provider's list; return None if it never arrived.

        The batch has our key or our file. If the provider stores neither, guess the batch of the same size that was
        created at the nearest time; its results show whether it is the right one.

        Raises
        ------
        UnreadableReplyError
            If the list does not end, or holds batches that may or may not be this one.
        EndedError
            If the run ended first.
        """
        if self.provider.keeps_keys and entry.file is None:
            return None  # without a file nothing was submitted
        await assignment.breaker.wait(SETTLED)
        _check_running(assignment)
        seen = set[str]()
        candidates = list[State]()
        async for state in self.provider.batches():
            _check_running(assignment)
            if state.id in seen or len(seen) == MAX_LISTED:
                raise UnreadableReplyError(f"the list does not end: after {len(seen):,} batches comes {state.id}")
            seen.add(state.id)
            if state.key == entry.key or (entry.file is not None and state.file == entry.file):
                usable(state.id)
                return state
            if self._may_be(state, entry):
                candidates.append(state)
        same_size = [state for state in candidates if state.total == entry.size]
        if same_size and not self.provider.keeps_keys:
            nearest = min(same_size, key=lambda state: abs((state.created or 0.0) - entry.time))
            return replace(nearest, is_guess=True)
        if candidates or entry.others:
            shown = ", ".join(sorted({state.id for state in candidates} | entry.others)[:SHOWN])
            raise UnreadableReplyError(f"it lists batches that may be this one, such as {shown}")
        return None

    def _may_be(self, state: State, entry: JournalEntry) -> bool:
        """Whether a batch with neither our key nor our file may be that of the entry."""
        if state.key is not None or state.id in self._journal.names:
            return False
        if state.created is not None and state.created < entry.time - WINDOW:
            return False
        is_like = state.total == entry.size or (not state.total and state.file is None)
        return is_like or not self.provider.keeps_keys

    async def collect(
        self, entry: JournalEntry, state: State, breaker: CircuitBreaker, results: dict[str, RequestResult]
    ) -> None:
        """Add the results of a batch that ended to `results`; lines that cannot be parsed are skipped.

        Raises
        ------
        RequestFailedError
            If the download fails; the results read before are added nevertheless.
        """
        for _ in range(READINGS):
            if not await self._call(partial(self._read, entry, state, results), breaker, entry.key):
                return

    async def _read(self, entry: JournalEntry, state: State, results: dict[str, RequestResult]) -> int:
        """Add the results of an entry, and return the number of broken lines; a reply replaces a failure.

        Raises
        ------
        ValueError
            If there are fewer results than the provider reports, so the download was cut short.
        """
        is_failed = dict[str, bool]()
        broken = 0
        async for line in self.provider.results(state):
            if not line.strip():
                continue
            try:
                result = in_batch(read_result(json.loads(line), self.name))
            except (ValueError, RecursionError):
                broken += 1
                continue
            is_failed[result.custom_id] = result.failure is not None and not result.is_empty
            earlier = results.get(result.custom_id)
            if result.custom_id in entry.requests and (earlier is None or earlier.response is None):
                results[result.custom_id] = result
        answers = len(is_failed) + broken - min(sum(is_failed.values()), state.done - state.answered)
        if answers < state.answered and not entry.requests <= results.keys():
            problem = f"expected at least {state.answered:,} results, got {answers:,}"
            raise ValueError(f"{problem}: the download is incomplete")
        return broken

    def check_matched(self, entry: JournalEntry, state: State, results: Mapping[str, RequestResult]) -> None:
        """Raise RequestFailedError if hardly any results are usable, so another batch would waste money."""
        expected = min(entry.size if state.status in FINISHED else state.answered, len(entry.requests))
        matched = {name for name, result in results.items() if not result.is_empty}
        if len(matched) >= MIN_MATCHED * expected:
            self._unmatched.clear()
            return
        self._unmatched |= entry.requests - matched
        if len(self._unmatched) >= FEW:
            problem = f"{len(matched):,} of {expected:,} results can be read and matched to their requests"
            raise RequestFailedError(Failure(problem, self.name))

    async def finish(self, entry: JournalEntry, left: frozenset[str]) -> None:
        """Record that results are stored, except those of `left`; if none is left, delete the request file."""
        self._journal.collected(entry.key, left)
        if not left:
            await self._delete(entry)

    async def refused(self, entry: JournalEntry, reason: str) -> str:
        """Record that the provider rejected a batch, and return the reason in one redacted line."""
        line = provider_failure(reason, self.name).message
        await self._give_up(entry, line)
        return line

    async def forget(self, entry: JournalEntry) -> None:
        """Abandon a batch, and cancel it at the provider if it was submitted and is certainly ours."""
        if entry.batch is not None and not entry.is_guess:
            with suppress(Exception):  # it may no longer exist
                await self.provider.cancel(entry.batch)
        await self._give_up(entry, "given up on request")

    async def mistaken(self, entry: JournalEntry, assignment: Assignment) -> None:
        """Record that the guessed batch was a different one, and look again; raises the errors of `find_again`."""
        await self.find_again(self._journal.record_mismatch(entry.key), assignment)

    async def _give_up(self, entry: JournalEntry, reason: str) -> None:
        self._journal.record_abandoned(entry.key, reason)
        await self._delete(entry)

    async def _delete(self, entry: JournalEntry) -> None:
        if entry.file is not None:
            with suppress(Exception):  # a leftover file costs nothing
                await self.provider.delete(entry.file)

    async def _call(self, send: Callable[[], Awaitable[T]], breaker: CircuitBreaker, subject: str) -> T:
        return await send_with_retries(
            send, self.classify, breaker, role=f"batches of {self.name}", subject=subject, max_retries=self._retries
        )

    def classify(self, error: Exception) -> Failure:
        """Classify an error of the provider's client."""
        line = describe_error(error).removeprefix(f"{UnreadableReplyError.__name__}: ")
        return classify_error(error, line, self.name, self.provider.account.key_advice)

    def _why_not(self, error: RequestFailedError, in_doubt: JournalEntry | None) -> str:
        """Describe why a batch cannot be submitted and what to do."""
        status = status_of(error)
        message = error.failure.message
        if in_doubt is not None:
            problem = f"{self.name}: it is unknown whether a batch arrived ({message})"
            return f"{problem}; run the same command again to look for it; {how_to_give_up(in_doubt)}"
        if status in NO_SUCH_API:
            address = address_of(self.provider.account.base_url)
            problem = f"{self.name}: {address} does not accept batches ({message})"
            return f"{problem}: check the base URL, or use --engine direct"
        if status in TOO_LARGE:
            return f"{self.name}: a batch was refused as too large ({message}); set the engine option requests=1000"
        problem = "cannot be submitted" if error.failure.kind.is_sent_again else "was refused"
        return f"{self.name}: a batch {problem} ({message}); {error.failure.advice}"


def _describe(entry: JournalEntry) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time))
    return f"a batch of {entry.size:,} requests to {entry.model} started at {when}"


def how_to_give_up(entry: JournalEntry) -> str:
    """Describe how to abandon a batch."""
    return f"the engine option forget={entry.key} abandons it; its requests are then sent, and paid for, again"


def _check_running(assignment: Assignment) -> None:
    """Raise EndedError if the run is over."""
    if assignment.budget.is_over:
        assignment.breaker.open(str(assignment.budget.used_up()), planned=True)
    if assignment.breaker.reason is not None:
        raise EndedError


OUTAGE = 600.0
"""Seconds for which a provider may be unreachable before the command ends; its batches continue."""

MAX_LOOKS = 8  # concurrent polls


class BatchPoller:
    """Polls the states of batches.

    Parameters
    ----------
    clients
        The clients, by the name of their model.
    progress
        Called when a provider first cannot be reached.
    outages
        Outages to continue from, such as those of an earlier poller: for each model whose provider did not answer the
        last poll, the monotonic time of the first failed poll and a message.

    Attributes
    ----------
    lost
        Why polling again is pointless; None if it is not.
    """

    def __init__(
        self,
        clients: Mapping[str, BatchClient],
        progress: Progress,
        outages: dict[str, tuple[float, str]] | None = None,
    ) -> None:
        self._clients = clients
        self._progress = progress
        self._slots = asyncio.Semaphore(MAX_LOOKS)
        self.outages = {} if outages is None else outages
        self.lost: str | None = None

    async def poll(self, entries: Sequence[JournalEntry]) -> list[tuple[JournalEntry, State]]:
        """Return the state of each batch."""
        return list(zip(entries, await asyncio.gather(*map(self._state, entries)), strict=True))

    async def _state(self, entry: JournalEntry) -> State:
        client = self._clients[entry.model]
        batch = entry.batch or ""
        try:
            async with self._slots:
                state = await client.provider.look(batch)
        except Exception as error:  # clients raise many types
            failure = client.classify(error)
            if not failure.kind.is_sent_again:
                problem = f"{client.name}: {batch} cannot be polled ({failure.message})"
                self.lost = f"{problem}; {failure.advice}; {how_to_give_up(entry)}"
            else:
                self._note_outage(client, failure)
            return State(batch, "not reached", ended=False)
        self.outages.pop(client.name, None)
        return state

    def _note_outage(self, client: BatchClient, failure: Failure) -> None:
        if client.name not in self.outages:
            address = address_of(client.provider.account.base_url)
            now = time.strftime("%H:%M")
            message = f"{client.name}: batches at {address} cannot be polled since {now} ({failure.message})"
            self.outages[client.name] = time.monotonic(), message
            minutes = OUTAGE / 60
            self._progress(Underway(f"{message}; the command keeps polling for {minutes:.0f} minutes", is_notice=True))
        since, message = self.outages[client.name]
        if time.monotonic() - since > OUTAGE:
            self.lost = f"{message}; {failure.advice}, and collects the results"
