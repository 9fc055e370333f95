"""The engine for providers' batches: half the price, results within a day.

Batches in flight continue when this process ends, and a later command finds them through the journal in the run's
folder.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace

from refusal_index.data.folder import RunFolder
from refusal_index.models.failures import RESUMES, EndedError, RequestFailedError
from refusal_index.models.requests import ModelRequest
from refusal_index.models.sent import Sent
from refusal_index.models.settings import FORGET, SettingError, unknown
from refusal_index.plugins.batches.engine import BatchEngine, models_by_role
from refusal_index.plugins.batches.formats import MEGABYTE, Format, RequestResult, is_singly, to_line
from refusal_index.plugins.batches.journal import Journal, JournalEntry, describe_in_flight, journal_of
from refusal_index.plugins.batches.providers import (
    BatchClient,
    BatchPoller,
    State,
    batches_of,
    describe_states,
    how_to_give_up,
)
from refusal_index.plugins.batches.rounds import Pending, stored_ids
from refusal_index.protocol import Role
from refusal_index.runs.engine import Assignment, Poll, RunFailedError
from refusal_index.runs.event_loop import run_to_completion
from refusal_index.runs.events import Event, Progress, Underway, ignore_events
from refusal_index.runs.outstanding import check_forgotten
from refusal_index.runs.settings import Settings

MAX_BYTES = 100 * MEGABYTE
"""Maximum bytes of a file, even if the provider allows more: the file is held in memory while it is sent."""

OPTIONS = {"poll": (10.0, 0.001, 3600.0), "requests": (50_000, 1, 50_000)}
"""Default, minimum and maximum of each option: the seconds between the first two polls, and the requests per batch."""

SLOWER = 1.5
"""Factor by which each wait between polls grows."""

SLOWEST = 6.0
"""Ratio of the longest wait to the first."""

UNKNOWN_MODEL = ("model_not_found", "invalid_model")
"""Error codes of a batch whose model the provider does not accept."""


def read_options(settings: Settings) -> dict[str, float]:
    """Return the engine options, by name.

    Raises
    ------
    SettingError
        If an option does not exist or has an invalid value.

    Examples
    --------
    >>> read_options(Settings.from_values(engine="batch", engine_option="poll=2"))
    {'poll': 2.0, 'requests': 50000}
    """
    options = {name: default for name, (default, *_) in OPTIONS.items()}
    for name, text in settings.sending.own_options:
        if name not in OPTIONS:
            raise unknown("engine_option", name, (*OPTIONS, FORGET))
        _, low, high = OPTIONS[name]
        try:
            options[name] = value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high or (name == "requests" and not value.is_integer()):
            raise SettingError(f"{{engine_option}} {name}: expected a number from {low} to {high:,.0f}, got {text!r}")
    return options


def files_of(
    requests: Iterable[Pending], style: Format, model: str, max_requests: int
) -> Iterator[tuple[bytes, list[str]]]:
    """Split requests to one model into request files; yield the content and the request ids of each.

    Parameters
    ----------
    requests
        Requests to the same model.
    style, model
        The provider's format, and its name for the model.
    max_requests
        Maximum number of requests in a file; the format may allow fewer.
    """
    style = replace(
        style, most_requests=min(max_requests, style.most_requests), most_bytes=min(MAX_BYTES, style.most_bytes)
    )
    lines: list[bytes] = []
    ids: list[str] = []
    size = 0
    for pending in requests:
        line = to_line(pending.custom_id, pending.ask, style, model).encode() + b"\n"
        if lines and not style.takes(len(lines) + 1, size + len(line)):
            yield b"".join(lines), ids
            lines = []
            ids = []
            size = 0
        lines.append(line)
        ids.append(pending.custom_id)
        size += len(line)
    if lines:
        yield b"".join(lines), ids


class BatchExecutor:
    """Sends requests in provider batches, separately for each model.

    Parameters
    ----------
    settings, names
        The arguments of `MakeEngine`.

    Raises
    ------
    SettingError
        If a model or an option cannot be used.
    """

    def __init__(self, settings: Settings, names: Mapping[Role, str]) -> None:
        self._settings = settings
        self._names = names
        self._options = read_options(settings)
        self._providers = {name: batches_of(role, name, settings) for role, name in names.items()}
        self.max_requests: int | None = None  # a round may take a day, so send everything in one
        self.gives_choices = not is_singly(settings.servers, names)
        self._journal = Journal()
        self._clients = dict[str, BatchClient]()
        self._held_back: set[str] = set()  # requests that wait until the provider has capacity
        self._full: set[str] = set()  # models whose provider accepts no further batch for now

    @asynccontextmanager
    async def open(self, folder: RunFolder | None) -> AsyncIterator[None]:
        """Read the journal, and abandon the batches named in the settings.

        Raises
        ------
        ModelError
            If a model's address is not the one to which its batch in flight was submitted.
        SettingError
            If a batch to abandon is unknown.
        JournalError
            If the journal cannot be read.
        """
        async with self._connected(folder):
            await self._forget()
            for client in self._clients.values():
                for entry in client.entries:
                    client.check_address(entry)
            yield

    async def give_up(self, folder: RunFolder) -> None:
        """Abandon the batches named in the settings; raise SettingError if one is unknown."""
        async with self._connected(folder):
            await self._forget()

    async def _forget(self) -> None:
        names = self._settings.sending.forget
        check_forgotten(names, self._journal.batches)
        for client in self._clients.values():
            for entry in client.entries:
                if names & {entry.key, entry.batch}:
                    await client.forget(entry)

    @asynccontextmanager
    async def _connected(self, folder: RunFolder | None) -> AsyncIterator[None]:
        self._journal = journal_of(folder)
        retries = self._settings.sending.max_retries
        async with AsyncExitStack() as stack:
            for name, provider in self._providers.items():
                await stack.enter_async_context(provider.open())
                self._clients[name] = BatchClient(name, provider, self._journal, retries)
            yield

    def in_flight(self) -> frozenset[str]:
        """Return the ids of requests that are, or may be, in batches whose results are not collected yet."""
        return frozenset(self._held_back).union(*(entry.requests for entry in self._journal.entries))

    def sent(self, request: ModelRequest, name: str) -> Sent:
        """Return the decoding settings in the body of a request."""
        provider = self._providers[name]
        return provider.style.sent(request, provider.account.model)

    def _entries(self, *, submitted: bool = True) -> list[JournalEntry]:
        """Return the batches that were submitted, or else those that may not have arrived."""
        entries = (entry for client in self._clients.values() for entry in client.entries)
        return [entry for entry in entries if (entry.batch is not None) is submitted]

    async def has_results(self, folder: RunFolder, progress: Progress, outages: dict[str, tuple[float, str]]) -> bool:
        """Whether a batch of a run has ended, or must be looked up because its submission was interrupted.

        Raises
        ------
        RunFailedError
            If polling again would be pointless.
        """
        async with self._connected(folder):
            if self._entries(submitted=False):
                return True
            poller = BatchPoller(self._clients, progress, outages)
            states = await poller.poll(self._entries())
        is_ended = any(state.ended for _, state in states)
        if poller.lost and not is_ended:
            raise RunFailedError(poller.lost)
        return is_ended

    async def execute(
        self, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, RequestResult], None]:
        """Submit requests that are not in flight, and yield the results of batches that ended.

        Returns once a batch ended, so that follow-up requests are sent while other batches are still in flight.
        Batches whose submission was interrupted in an earlier command are looked up first.

        Raises
        ------
        ModelError
            If it cannot be determined whether such a batch was submitted.
        RunFailedError
            If it cannot be determined now, but perhaps later.
        """
        with suppress(EndedError):
            for entry in self._entries(submitted=False):
                await self._clients[entry.model].find_again(entry, assignment)
            await self._submit(requests, assignment)
        ids = frozenset(request.custom_id for request in requests)
        breaker = assignment.breaker
        wait = self._options["poll"]
        poller = BatchPoller(self._clients, ignore_events if self._settings.sending.detach else assignment.progress)
        while entries := [entry for entry in self._entries() if entry.requests & ids]:
            note = f"{describe_in_flight(entries)}; run the same command again to collect the results"
            if breaker.reason is not None:
                if note not in breaker.reason:
                    assignment.progress(Underway(note))
                return
            states = await poller.poll(entries)
            problems = list(filter(None, [poller.lost]))
            assignment.progress(Underway(describe_states((entry.provider, state) for entry, state in states)))
            ended = [(entry, state) for entry, state in states if state.ended]
            for entry, state in ended:
                results, problem = await self._results(entry, state, assignment)
                if results is not None:
                    yield results
                    missing = entry.requests - results.keys() if problem else frozenset[str]()
                    left = missing | self._left(entry, ids, assignment)
                    await self._clients[entry.model].finish(entry, left)
                    self._full.discard(entry.model)
                problems += filter(None, [problem])
            if problems:
                breaker.open("; ".join(problems))  # after the results that arrived are stored
            if ended:
                return
            outages = (message for _, message in poller.outages.values())
            await self._wait(wait, "; ".join((*outages, note)), assignment)
            wait = min(wait * SLOWER, self._options["poll"] * SLOWEST)

    async def _wait(self, seconds: float, note: str, assignment: Assignment) -> None:
        """Wait before the next poll; end the run if it is detached or its time is over."""
        budget = assignment.budget
        breaker = assignment.breaker
        left = budget.seconds_left()
        if self._settings.sending.detach:
            breaker.open(note, planned=True)
        elif budget.is_over:
            breaker.open(f"{budget.used_up()}; {note}", planned=True)
        await breaker.wait(seconds if left is None else min(seconds, left))

    def _left(self, entry: JournalEntry, ids: frozenset[str], assignment: Assignment) -> frozenset[str]:
        """Return the requests of a batch that are not in `ids` and have no stored reply."""
        left = entry.requests - ids
        return left - frozenset(stored_ids(assignment.store, self._names)) if left else left

    async def _submit(self, requests: Sequence[Pending], assignment: Assignment) -> None:
        submitted = frozenset[str]().union(*(entry.requests for entry in self._entries()))
        by_name: dict[str, list[Pending]] = {}
        for pending in requests:
            if pending.custom_id not in submitted:
                by_name.setdefault(self._names[pending.ask.request.role], []).append(pending)
        for name, new in by_name.items():
            client = self._clients[name]
            breaker = assignment.breaker
            if name in self._full and client.entries:
                self._held_back.update(pending.custom_id for pending in new)
                continue
            account = client.provider.account
            style = client.provider.style
            for content, ids in files_of(new, style, account.model, int(self._options["requests"])):
                if breaker.reason is not None:
                    return
                assignment.progress(Underway(f"{len(ids):,} requests are being sent to {account.provider}"))
                why_not = await client.submit(content, ids, assignment)
                if why_not is not None:
                    breaker.open(why_not)
                    break
                self._held_back.difference_update(ids)

    async def _results(
        self, entry: JournalEntry, state: State, assignment: Assignment
    ) -> tuple[Mapping[str, RequestResult] | None, str | None]:
        """Collect a batch that ended: return its results, or None, and a problem that ends the run, or None."""
        client = self._clients[entry.model]
        if state.refusal is not None:
            reason = await client.refused(entry, state.refusal)
            if state.is_crowded and client.entries:
                self._full.add(client.name)
                self._held_back |= entry.requests
                return None, None
            advice = "check the model's name; " if any(code in reason for code in UNKNOWN_MODEL) else ""
            problem = f"{client.name}: a batch was refused ({reason}); none of its requests ran"
            return None, f"{problem}; {advice}{RESUMES}"
        results = dict[str, RequestResult]()
        try:
            await client.collect(entry, state, assignment.breaker, results)
            if not results and entry.is_guess:
                await client.mistaken(entry, assignment)
                return None, None
            client.check_matched(entry, state, results)
        except EndedError:
            return None, None
        except RequestFailedError as error:
            received = {name: result for name, result in results.items() if not result.is_empty}
            lacking = f"{len(entry.requests) - len(received):,} of {entry.size:,} results of {entry.batch}"
            stored = "; the others are stored" if received else ""
            problem = f"{client.name}: {lacking} are not available ({error}){stored}"
            return received or None, f"{problem}; {RESUMES}; {how_to_give_up(entry)}"
        return results, None


def batch_engine(settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> BatchEngine:
    """Return an engine that sends requests in provider batches; models that are functions are called in this process.

    Raises
    ------
    SettingError
        If a model's provider has no batches, its address, key or client is missing, or an option is invalid.
    """
    return BatchEngine(settings, names, objects, BatchExecutor(settings, models_by_role(names, objects)))


def give_up(folder: RunFolder, settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> None:
    """Abandon the batches of a run's folder that the settings of another engine name."""
    options = [f"{FORGET}={name}" for name in settings.sending.forget]
    executor = BatchExecutor(settings.changed(engine_option=options), models_by_role(names, objects))
    run_to_completion(executor.give_up(folder))


def poller(
    folder: RunFolder,
    settings: Settings,
    names: Mapping[Role, str],
    objects: Mapping[str, object],
    report: Callable[[str], object],
) -> Poll:
    """Return a function that checks whether a run has results to collect.

    The function calls `report` when a provider first fails to answer, and raises RunFailedError after `OUTAGE`
    seconds without an answer.
    """
    outages: dict[str, tuple[float, str]] = {}

    def progress(event: Event) -> None:
        if isinstance(event, Underway):
            report(event.note)

    async def has_results() -> bool:
        executor = BatchExecutor(settings, models_by_role(names, objects))
        return await executor.has_results(folder, progress, outages)

    return has_results
