"""Has the requests of waves asked in providers' batches.

What is on its way stays there whatever becomes of this process: the journal in the run's folder leads back to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from refusal_index.engines.engine import Assignment, Underway
from refusal_index.engines.failures import RESUMES, EndedError, RequestFailedError
from refusal_index.engines.settings import Settings
from refusal_index.engines.waves.batch_files import files_of
from refusal_index.engines.waves.batch_lane import Lane, NotHandedOverError
from refusal_index.engines.waves.batch_options import Options
from refusal_index.engines.waves.batch_provider import State, told_states
from refusal_index.engines.waves.batch_providers import provider_of
from refusal_index.engines.waves.in_flight import journal_of, stored_ids, told_in_flight
from refusal_index.engines.waves.journal import Journal
from refusal_index.engines.waves.journal_lines import Entry
from refusal_index.engines.waves.result import Result
from refusal_index.engines.waves.wave import Pending
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import Asked

COLLECTS = "the same command collects them"
SLOWER, SLOWEST = 1.5, 6.0
"""How much longer each wait between looks is than the one before, and the longest than the first."""

OUTAGE = 600.0
"""Seconds for which a provider may tell nothing of a batch before the command ends; the batch goes on."""

LOOKS_AT_ONCE = 8


class BatchExecutor:
    """Has requests asked in batches, one provider's and model's at a time.

    Parameters
    ----------
    settings, names
        As any engine takes them.

    Raises
    ------
    SettingError
        If a model or an option cannot be used.
    """

    def __init__(self, settings: Settings, names: Mapping[Asked, str]) -> None:
        self._settings, self._names, self._options = settings, names, Options.of(settings)
        timeout = float(settings.sending.attempt_timeout)
        self._providers = {name: provider_of(name, timeout) for name in dict.fromkeys(names.values())}
        model = names.get(Asked.MODEL)
        self.gives_choices = model is None or self._providers[model].style.gives_choices
        self._journal, self._lanes = Journal(), dict[str, Lane]()
        self._held_back: set[str] = set()  # what waits until there is room at its provider
        self._full: set[str] = set()  # models for which too much is on its way

    @asynccontextmanager
    async def open(self, folder: RunFolder | None) -> AsyncIterator[None]:
        """Read the journal, and find again what was begun when an earlier command was killed.

        Raises
        ------
        ModelError
            If it cannot be told whether a batch was handed over.
        JournalError
            If the journal cannot be read.
        """
        async with self._connected(folder):
            for lane in self._lanes.values():
                for entry in lane.entries:
                    if self._options.forget & {entry.key, entry.batch}:
                        await lane.forget(entry)
                    elif entry.batch is None:
                        await lane.find_again(entry)
            yield

    @asynccontextmanager
    async def _connected(self, folder: RunFolder | None) -> AsyncIterator[None]:
        self._journal = journal_of(folder)
        retries = self._settings.sending.max_retries
        async with AsyncExitStack() as stack:
            for name, provider in self._providers.items():
                await stack.enter_async_context(provider.open())
                self._lanes[name] = Lane(name, provider, self._journal, retries)
            yield

    def on_their_way(self) -> frozenset[str]:
        """Return the ids of requests that are in batches whose results are still to come."""
        return frozenset(self._held_back).union(*(one.requests for one in self._entries()))

    def _entries(self) -> list[Entry]:
        return [one for lane in self._lanes.values() for one in lane.entries if one.batch is not None]

    async def has_news(self, folder: RunFolder) -> bool:
        """Whether something can be done about a folder's batches, such as to collect one; errors are news as well."""
        async with self._connected(folder):
            if any(one.batch is None for lane in self._lanes.values() for one in lane.entries):
                return True
            try:
                return any([(await self._lanes[one.model].look(one)).ended for one in self._entries()])
            except Exception:  # whatever a client raises: the run itself tells of it
                return True

    async def carry(self, requests: Sequence[Pending], assignment: Assignment) -> AsyncIterator[Mapping[str, Result]]:
        """Hand over what is not on its way, and yield the results of batches that ended.

        It returns once some were there: what follows from them goes out while others are still on their way.
        """
        await self._hand_over(requests, assignment)
        wanted, breaker, wait = frozenset(one.custom_id for one in requests), assignment.breaker, self._options.poll
        looks = _Looks(self._lanes)
        while entries := [one for one in self._entries() if one.requests & wanted]:
            if breaker.reason is not None:
                assignment.progress(Underway(f"{told_in_flight(entries)} on their way; {COLLECTS}"))
                return
            states = await looks.all(entries, assignment)
            assignment.progress(Underway(told_states((self._lanes[one.model].called, how) for one, how in states)))
            ended = [(entry, state) for entry, state in states if state.ended]
            for entry, state in ended:
                results = await self._results(entry, state, assignment)
                if results is not None:
                    yield results
                    await self._lanes[entry.model].done_with(entry, self._left(entry, wanted, assignment))
                    self._full.discard(entry.model)
            if ended:
                return
            await self._wait(wait, entries, assignment)
            wait = min(wait * SLOWER, self._options.poll * SLOWEST)

    async def _wait(self, seconds: float, entries: Sequence[Entry], assignment: Assignment) -> None:
        """Wait before the next look, or let the run end where it is not to wait so long."""
        budget, breaker = assignment.budget, assignment.breaker
        left = budget.seconds_left()
        on_their_way = f"{told_in_flight(entries)} on their way; {COLLECTS}"
        if self._settings.sending.detach:
            breaker.open(on_their_way, planned=True)
        elif budget.ended is not None or (left is not None and left <= 0):
            breaker.open(f"{budget.used_up()}; {on_their_way}", planned=True)
        await breaker.wait(seconds if left is None else min(seconds, left))

    def _left(self, entry: Entry, wanted: frozenset[str], assignment: Assignment) -> frozenset[str]:
        """Return what a batch holds that nobody asked for this time, and that is not stored."""
        left = entry.requests - wanted
        return left - frozenset(stored_ids(assignment.store, self._names)) if left else left

    async def _hand_over(self, requests: Sequence[Pending], assignment: Assignment) -> None:
        there = frozenset[str]().union(*(one.requests for one in self._entries()))
        by_name: dict[str, list[Pending]] = {}
        for one in requests:
            if one.custom_id not in there:
                by_name.setdefault(self._names[one.ask.request.asked], []).append(one)
        for name, new in by_name.items():
            if name in self._full and self._lanes[name].entries:
                self._held_back.update(one.custom_id for one in new)
            else:
                await self._hand_over_to(self._lanes[name], new, assignment)

    async def _hand_over_to(self, lane: Lane, requests: Sequence[Pending], assignment: Assignment) -> None:
        style, model, breaker = lane.provider.style, lane.provider.account.model, assignment.breaker
        with TemporaryDirectory(prefix="refusal-index-batch-") as folder:
            for path, ids in files_of(requests, style, model, self._options.requests, Path(folder)):
                if breaker.reason is not None:
                    return
                assignment.progress(Underway(f"{len(ids):,} requests go to {lane.called}"))
                try:
                    await lane.hand_over(path, ids, breaker)
                except EndedError:
                    return
                except NotHandedOverError as error:
                    breaker.open(str(error))
                    return
                self._held_back.difference_update(ids)

    async def _results(self, entry: Entry, state: State, assignment: Assignment) -> Mapping[str, Result] | None:
        """Return the results of a batch that ended; None where there are none to be had of it."""
        lane, breaker = self._lanes[entry.model], assignment.breaker
        if state.refusal is not None:
            reason = await lane.refused(entry, state.refusal)
            if state.is_crowded and lane.entries:
                self._full.add(lane.name)
                self._held_back |= entry.requests
            else:
                breaker.open(f"{lane.name}: a batch was refused ({reason}); nothing of it was asked; {RESUMES}")
            return None
        try:
            results = await lane.collect(entry, state, breaker)
        except EndedError:
            return None
        except RequestFailedError as error:
            breaker.open(
                f"{lane.name}: the results of {entry.batch} cannot be had ({error}); {RESUMES}; {_given_up(entry)}"
            )
            return None
        if not results and not lane.provider.keeps_keys:
            await lane.mistaken(entry)
            return None
        return results


def _given_up(entry: Entry) -> str:
    return f"if it is gone, the engine option forget={entry.key} has its requests sent, and paid for, again"


class _Looks:
    """Looks at batches; a provider that tells nothing of them for a while is borne with."""

    def __init__(self, lanes: Mapping[str, Lane]) -> None:
        self._lanes, self._since = lanes, dict.fromkeys(lanes, time.monotonic())
        self._slots = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def all(self, entries: Sequence[Entry], assignment: Assignment) -> list[tuple[Entry, State]]:
        """Return how each of them stands."""
        states = await asyncio.gather(*(self._one(entry, assignment) for entry in entries))
        return list(zip(entries, states, strict=True))

    async def _one(self, entry: Entry, assignment: Assignment) -> State:
        lane = self._lanes[entry.model]
        unknown = State(entry.batch or "", "not heard of", ended=False)
        try:
            async with self._slots:
                state = await lane.look(entry)
        except Exception as error:  # whatever a client raises
            failure = lane.explain(error)
            silent = time.monotonic() - self._since[lane.name]
            if not failure.kind.is_sent_again or silent > OUTAGE:
                assignment.breaker.open(
                    f"{lane.name}: {entry.batch} cannot be looked at ({failure.message}); {failure.advice}; "
                    f"{_given_up(entry)}"
                )
            return replace(unknown, status=f"not heard of: {failure.message[:80]}")
        self._since[lane.name] = time.monotonic()
        return state
