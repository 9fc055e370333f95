"""The engine for providers' batches: half the price, results within a day.

What is in flight stays there whatever becomes of this process: the journal in the run's folder leads back to it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from refusal_index.data.errors import NotWrittenError
from refusal_index.data.folder import RunFolder
from refusal_index.models.failures import RESUMES, EndedError, RequestFailedError
from refusal_index.models.functions import asked_by_name
from refusal_index.models.settings import SettingError, unknown
from refusal_index.plugins.batches.batch_lane import BatchClient, Looks, NotHandedOverError, given_up
from refusal_index.plugins.batches.batch_provider import State, provider_of, told_states
from refusal_index.plugins.batches.engine import WaveEngine
from refusal_index.plugins.batches.formats import MEGABYTE, Format, Result, written
from refusal_index.plugins.batches.journal import Entry, Journal
from refusal_index.plugins.batches.wave import Pending, check_forgotten, describe_in_flight, journal_of, stored_ids
from refusal_index.protocol import Role
from refusal_index.runs.engine import Assignment, RunFailedError, Underway, unwatched
from refusal_index.runs.settings import Settings

LARGEST = 100 * MEGABYTE
"""Most bytes of a file, whatever a provider takes: it is held in memory while it is sent."""


def files_of(
    requests: Iterable[Pending], style: Format, model: str, most: int, folder: Path
) -> Iterator[tuple[Path, list[str]]]:
    """Write requests into one file after the other, and yield each with the ids in it; one that was used is removed.

    Parameters
    ----------
    requests
        All to the same model.
    style, model
        The provider's format, and what it calls the model.
    most
        Requests of one file; the provider may take fewer.
    folder
        Where to write.

    Raises
    ------
    NotWrittenError
        If there is no room.
    """
    style = replace(style, most_requests=min(most, style.most_requests), most_bytes=min(LARGEST, style.most_bytes))
    lines: list[bytes] = []
    ids: list[str] = []
    size = 0
    for one in requests:
        line = written(one, style, model).encode() + b"\n"
        if lines and not style.takes(len(lines) + 1, size + len(line)):
            yield from _file(folder, lines, ids)
            lines, ids, size = [], [], 0
        lines.append(line)
        ids.append(one.custom_id)
        size += len(line)
    if lines:
        yield from _file(folder, lines, ids)


def _file(folder: Path, lines: list[bytes], ids: list[str]) -> Iterator[tuple[Path, list[str]]]:
    path = folder / "requests.jsonl"
    try:
        with path.open("wb") as file:
            file.writelines(lines)
    except OSError as error:
        raise NotWrittenError(path, error) from error
    lines.clear()
    yield path, ids
    path.unlink()


KNOWN = ("poll", "requests", "forget")
LONGEST_POLL = 3600.0


@dataclass(frozen=True)
class Options:
    """How batches are made and looked at.

    Attributes
    ----------
    poll
        Seconds from the first look at a batch to the second; later ones are up to six times as far apart.
    requests
        Most requests of a batch; a provider may take fewer.
    forget
        Batches that are given up, by our key or the provider's name: their requests are sent, and paid for, again.
    """

    poll: float = 10.0
    requests: int = 50_000
    forget: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Read the options that settings give.

        Raises
        ------
        SettingError
            If there is no such option, or its value cannot be one.

        Examples
        --------
        >>> Options.of(Settings.of(engine="batch", engine_option="poll=2")).poll
        2.0
        """
        given = settings.sending.engine_option
        for name, _ in given:
            if name not in KNOWN:
                raise unknown("engine_option", name, KNOWN)
        values = dict(given)
        return cls(
            _number("poll", values.get("poll", "10"), LONGEST_POLL),
            int(_number("requests", values.get("requests", "50000"), 50_000)),
            settings.sending.forget,
        )


def _number(name: str, text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    least = 1 if name == "requests" else 0.001
    if not (least <= value <= most) or (name == "requests" and value != int(value)):
        raise SettingError(f"{{engine_option}} {name}: expected a number from {least} to {most:,.0f}, got {text!r}")
    return value


COLLECTS = "the same command collects the results"
SLOWER, SLOWEST = 1.5, 6.0
"""How much longer each wait between looks is than the one before, and the longest than the first."""

UNKNOWN_MODEL = ("model_not_found", "invalid_model")
"""Codes of a batch that was refused for whom it asks."""


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

    def __init__(self, settings: Settings, names: Mapping[Role, str]) -> None:
        self._settings, self._names, self._options = settings, names, Options.of(settings)
        timeout = float(settings.sending.attempt_timeout)
        self._providers = {name: provider_of(name, timeout) for name in dict.fromkeys(names.values())}
        model = names.get(Role.MODEL)
        self.largest_wave: int | None = None  # each wave may take a day
        self.gives_choices = model is None or self._providers[model].style.gives_choices
        self._journal, self._lanes = Journal(), dict[str, BatchClient]()
        self._held_back: set[str] = set()  # what waits until there is room at its provider
        self._full: set[str] = set()  # models for which too much is in flight

    @asynccontextmanager
    async def open(self, folder: RunFolder | None) -> AsyncIterator[None]:
        """Read the journal, and give up the batches that are to be.

        Raises
        ------
        ModelError
            If the address of a model is not that where a batch of it was handed over.
        SettingError
            If a batch is to be given up that nobody knows.
        JournalError
            If the journal cannot be read.
        """
        async with self._connected(folder):
            await self._forget()
            for lane in self._lanes.values():
                for entry in lane.entries:
                    lane.check_place(entry)
            yield

    async def give_up(self, folder: RunFolder) -> None:
        """Give up the batches that are to be, and nothing else; it raises SettingError if nobody knows one of them."""
        async with self._connected(folder):
            await self._forget()

    async def _forget(self) -> None:
        check_forgotten(self._options.forget, [self._journal])
        for lane in self._lanes.values():
            for entry in lane.entries:
                if self._options.forget & {entry.key, entry.batch}:
                    await lane.forget(entry)

    @asynccontextmanager
    async def _connected(self, folder: RunFolder | None) -> AsyncIterator[None]:
        self._journal = journal_of(folder)
        retries = self._settings.sending.max_retries
        async with AsyncExitStack() as stack:
            for name, provider in self._providers.items():
                await stack.enter_async_context(provider.open())
                self._lanes[name] = BatchClient(name, provider, self._journal, retries)
            yield

    def in_flight(self) -> frozenset[str]:
        """Return the ids of requests that are, or may be, in batches whose results are still to come."""
        return frozenset(self._held_back).union(*(one.requests for one in self._journal.entries))

    def _entries(self) -> list[Entry]:
        return [one for lane in self._lanes.values() for one in lane.entries if one.batch is not None]

    async def has_news(self, folder: RunFolder) -> bool:
        """Whether something can be done about a folder's batches, such as to collect one; errors are news as well.

        Raises
        ------
        RunFailedError
            If that cannot be told for now.
        """
        async with self._connected(folder):
            if any(one.batch is None for lane in self._lanes.values() for one in lane.entries):
                return True
            looks = Looks(self._lanes)
            states = await looks.all(self._entries())
            if looks.lost or any(state.ended for _, state in states):
                return True  # the run itself tells of it
        if looks.silent:
            raise RunFailedError(looks.told())
        return False

    async def execute(
        self, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, Result], None]:
        """Hand over what is not in flight, and yield the results of batches that ended.

        It returns once some were there: what follows from them goes out while others are still in flight. Batches
        that were begun when an earlier command was killed are looked for first.

        Raises
        ------
        ModelError
            If it cannot be told whether one of them was handed over; RunFailedError if it cannot be told now.
        """
        with suppress(EndedError):
            for lane in self._lanes.values():
                for entry in (one for one in lane.entries if one.batch is None):
                    await lane.find_again(entry, assignment)
            await self._hand_over(requests, assignment)
        wanted, breaker, wait = frozenset(one.custom_id for one in requests), assignment.breaker, self._options.poll
        looks = Looks(self._lanes, unwatched if self._settings.sending.detach else assignment.progress)
        while entries := [one for one in self._entries() if one.requests & wanted]:
            on_their_way = f"{describe_in_flight(entries)}; {COLLECTS}"
            if breaker.reason is not None:
                if on_their_way not in breaker.reason:
                    assignment.progress(Underway(on_their_way))
                return
            states = await looks.all(entries)
            troubles = list(filter(None, [looks.lost]))
            assignment.progress(Underway(told_states((self._lanes[one.model].called, how) for one, how in states)))
            ended = [(entry, state) for entry, state in states if state.ended]
            for entry, state in ended:
                results, trouble = await self._results(entry, state, assignment)
                if results is not None:
                    yield results
                    in_doubt = entry.requests - results.keys() if trouble else frozenset[str]()
                    left = in_doubt | self._left(entry, wanted, assignment)
                    await self._lanes[entry.model].done_with(entry, left)
                    self._full.discard(entry.model)
                troubles += filter(None, [trouble])
            if troubles:
                breaker.open("; ".join(troubles))  # when all that came is stored
            if ended:
                return
            await self._wait(wait, "; ".join(filter(None, (looks.told(), on_their_way))), assignment)
            wait = min(wait * SLOWER, self._options.poll * SLOWEST)

    async def _wait(self, seconds: float, on_their_way: str, assignment: Assignment) -> None:
        """Wait before the next look, or let the run end where it is not to wait so long."""
        budget, breaker = assignment.budget, assignment.breaker
        left = budget.seconds_left()
        if self._settings.sending.detach:
            breaker.open(on_their_way, planned=True)
        elif budget.is_over:
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
                by_name.setdefault(self._names[one.ask.request.role], []).append(one)
        for name, new in by_name.items():
            if name in self._full and self._lanes[name].entries:
                self._held_back.update(one.custom_id for one in new)
            else:
                await self._hand_over_to(self._lanes[name], new, assignment)

    async def _hand_over_to(self, lane: BatchClient, requests: Sequence[Pending], assignment: Assignment) -> None:
        style, model, breaker = lane.provider.style, lane.provider.account.model, assignment.breaker
        with TemporaryDirectory(prefix="refusal-index-batch-") as folder:
            for path, ids in files_of(requests, style, model, self._options.requests, Path(folder)):
                if breaker.reason is not None:
                    return
                assignment.progress(Underway(f"{len(ids):,} requests go to {lane.called}"))
                try:
                    await lane.hand_over(path, ids, assignment)
                except NotHandedOverError as error:
                    breaker.open(str(error))
                    return
                self._held_back.difference_update(ids)

    async def _results(
        self, entry: Entry, state: State, assignment: Assignment
    ) -> tuple[Mapping[str, Result] | None, str | None]:
        """Return the results of a batch that ended, None where there are none to be had, and what else ends the run."""
        lane, breaker = self._lanes[entry.model], assignment.breaker
        if state.refusal is not None:
            reason = await lane.refused(entry, state.refusal)
            if state.is_crowded and lane.entries:
                self._full.add(lane.name)
                self._held_back |= entry.requests
            else:
                advice = "check the model's name; " if any(one in reason for one in UNKNOWN_MODEL) else ""
                what = f"{lane.name}: a batch was refused ({reason}); nothing of it was asked"
                return None, f"{what}; {advice}{RESUMES}"
            return None, None
        results = dict[str, Result]()
        try:
            await lane.collect(entry, state, breaker, results)
            if not results and entry.is_guess:
                await lane.mistaken(entry, assignment)
                return None, None
            lane.check_matched(entry, state, results)
        except EndedError:
            return None, None
        except RequestFailedError as error:
            kept = {name: one for name, one in results.items() if not one.is_empty}
            lacking = f"{len(entry.requests) - len(kept):,} of {entry.size:,} results of {entry.batch}"
            stored = "; the others are stored" if kept else ""
            return kept or None, f"{lane.name}: {lacking} cannot be had ({error}){stored}; {RESUMES}; {given_up(entry)}"
        return results, None


def batch_engine(settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> WaveEngine:
    """Make the engine; functions are called within this process.

    Raises
    ------
    SettingError
        If a model has no batches, its address, key or client is missing, or an option cannot be used.
    """
    return WaveEngine(settings, names, objects, BatchExecutor(settings, asked_by_name(names, objects)))
