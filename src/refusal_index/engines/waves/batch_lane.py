"""One model's batches: submitted, found again and collected, with the journal written first.

A submission is what costs. It is written before it is made, and one whose answer was lost is looked for in the
provider's own list before it is made again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from refusal_index.engines.engine import ModelError, Progress, RunFailedError, Underway, unwatched
from refusal_index.engines.failures import (
    RESUMES,
    CircuitBreaker,
    EndedError,
    Failure,
    RequestFailedError,
    failure_of,
    status_of,
    told,
)
from refusal_index.engines.retrying import patiently
from refusal_index.engines.waves.batch_provider import Provider, State, place_of
from refusal_index.engines.waves.formats import Result, failed, in_batch, read_result
from refusal_index.engines.waves.journal import Entry, Journal
from refusal_index.errors import RefusalIndexError

T = TypeVar("T")

NO_SUCH_API = (404, 405, 501)
TOO_LARGE = (413,)

SETTLED = 10.0
"""Seconds after which a submission that was cut off is in the provider's list, if it ever will be."""

CLOCKS_APART = 60.0  # seconds by which a provider's clock may be behind ours
OLDER = 86_400.0  # a list is read no further than this before a submission
READINGS = 2  # of results that hold broken lines


class NotHandedOverError(RefusalIndexError, RuntimeError):
    """Requests that a provider did not take; the message says why, and what to do."""


class Lane:
    """What goes to one model.

    Parameters
    ----------
    name
        Of the model, as the run knows it.
    provider, journal
        Who takes its batches, and where that is written down.
    retries
        How often whatever fails in passing is tried again.
    """

    def __init__(self, name: str, provider: Provider, journal: Journal, retries: int) -> None:
        self.name, self.provider, self._journal, self._retries = name, provider, journal, retries

    @property
    def called(self) -> str:
        """Who takes its batches."""
        return self.provider.account.provider

    @property
    def entries(self) -> list[Entry]:
        """Its batches that are on their way."""
        return [one for one in self._journal.entries if one.model == self.name]

    async def hand_over(self, path: Path, requests: list[str], breaker: CircuitBreaker) -> None:
        """Have the requests of a file asked.

        Raises
        ------
        NotHandedOverError
            If they cannot be; the message says why, and what to do.
        EndedError
            If the breaker opened before.
        """
        account = self.provider.account
        entry = self._journal.begin(account.provider, place_of(account), self.name, requests)
        submission = _Submission(self, path, entry)
        try:
            file = await self._call(lambda: self.provider.upload(path, entry.key), breaker, entry.key)
            if file is not None:
                submission.entry = self._journal.uploaded(entry.key, file)
            state = await self._call(submission.once, breaker, entry.key)
        except (RequestFailedError, EndedError) as error:
            if not submission.is_in_doubt:
                await self._give_up(submission.entry, str(error) or "the run ended before")
            if isinstance(error, RequestFailedError):
                raise NotHandedOverError(self._why_not(error, is_in_doubt=submission.is_in_doubt)) from error
            raise
        self._journal.submitted(entry.key, state.id)

    async def find_again(self, entry: Entry) -> None:
        """Find out what became of a batch that was begun, and of which nothing more is known.

        Raises
        ------
        ModelError
            If that cannot be told here.
        RunFailedError
            If it cannot be told now.
        """
        self.check_place(entry)
        what = f"{_told(entry)} may be on its way"
        advice = f"look there, and give {{engine_option}} forget={entry.key} to have them sent, and paid for, again"
        await _settled(entry)
        try:
            found = await self._call(lambda: self.find(entry), CircuitBreaker(), entry.key)
        except RequestFailedError as error:
            if status_of(error) in NO_SUCH_API:
                raise ModelError(f"{what}, and {entry.place} lists no batches ({error}); {advice}") from error
            raise RunFailedError(f"{what}, and whether it is cannot be told ({error}); {RESUMES}") from error
        if found is None:
            await self._give_up(entry, "it never arrived")
        else:
            self._journal.submitted(entry.key, found.id)

    def check_place(self, entry: Entry) -> None:
        """Raise ModelError if a batch was handed over at another address than the one that the model has now."""
        account = self.provider.account
        if entry.place != place_of(account):
            what = "is" if entry.batch else "may be"
            raise ModelError(
                f"{_told(entry)} {what} on its way at {entry.place}, and the address of the model is "
                f"{place_of(account)} now: with {account.url_name}={entry.place} the same command collects it; "
                f"{{engine_option}} forget={entry.key} gives it up, and has its requests sent, and paid for, again"
            )

    async def find(self, entry: Entry) -> State | None:
        """Return the batch that an entry of the journal is about, by the provider's list.

        It has our key where the provider keeps it, else it is one of the same size that was made since, and is nobody
        else's as far as known; whether it is the right one is seen by its results.
        """
        alike = []
        async for state in self.provider.batches():
            if state.created is not None and state.created < entry.time - OLDER:
                break
            if self.provider.keeps_keys:
                if state.key == entry.key:
                    return state
            elif self._is_like(state, entry):
                alike.append(state)
        return min(alike, key=lambda one: one.created or 0.0, default=None)

    def _is_like(self, state: State, entry: Entry) -> bool:
        since = state.created is not None and state.created >= entry.time - CLOCKS_APART
        return since and state.total == entry.size and state.id not in entry.others | self._journal.known

    async def look(self, entry: Entry) -> State:
        """Tell how a batch stands; it raises what the client raises."""
        return await self.provider.look(entry.batch or "")

    async def collect(self, entry: Entry, state: State, breaker: CircuitBreaker) -> dict[str, Result]:
        """Return the results of a batch that ended; lines that cannot be read are left out, as if they had not come.

        Raises
        ------
        RequestFailedError
            If they cannot be had.
        """
        results: dict[str, Result] = {}
        for _ in range(READINGS):
            results, broken = await self._call(partial(self._read, entry, state), breaker, entry.key)
            if not broken:
                break
        return results

    async def _read(self, entry: Entry, state: State) -> tuple[dict[str, Result], int]:
        """Return the results that are this entry's, and how many lines are none; of two alike the reply counts.

        Raises
        ------
        ValueError
            If there are fewer lines than answers: they were cut short on their way.
        """
        results: dict[str, Result] = {}
        lines, broken = 0, 0
        async for line in self.provider.results(state):
            if not line.strip():
                continue
            lines += 1
            try:
                result = in_batch(read_result(json.loads(line), self.name))
            except (ValueError, RecursionError):
                broken += 1
                continue
            held = results.get(result.custom_id)
            if result.custom_id in entry.requests and (held is None or held.response is None):
                results[result.custom_id] = result
        if lines < state.answered:
            raise ValueError(f"expected at least {state.answered:,} results, got {lines:,}: they end early")
        return results, broken

    async def done_with(self, entry: Entry, left: frozenset[str]) -> None:
        """Write that results are stored, and delete the file that they were asked with."""
        self._journal.collected(entry.key, left)
        if not left:
            await self._delete(entry)

    async def refused(self, entry: Entry, reason: str) -> str:
        """Write that the provider asked nothing of a batch, and return why, in one harmless line."""
        failure = failed(entry.key, self.name, reason).failure
        line = failure.message if failure is not None else "no reason given"
        await self._give_up(entry, line)
        return line

    async def forget(self, entry: Entry) -> None:
        """Give up a batch as told: it is let end at the provider's, if it is there."""
        if entry.batch is not None:
            with suppress(Exception):  # it may be gone
                await self.provider.cancel(entry.batch)
        await self._give_up(entry, "given up as told")

    async def mistaken(self, entry: Entry) -> None:
        """Write that a batch is not the one it was taken for, and look for another; it raises as `find_again` does."""
        await self.find_again(self._journal.not_it(entry.key))

    async def _give_up(self, entry: Entry, reason: str) -> None:
        self._journal.given_up(entry.key, reason)
        await self._delete(entry)

    async def _delete(self, entry: Entry) -> None:
        if entry.file is not None:
            with suppress(Exception):  # a file that stays costs nothing
                await self.provider.delete(entry.file)

    async def _call(self, send: Callable[[], Awaitable[T]], breaker: CircuitBreaker, about: str) -> T:
        return await patiently(
            send, self.explain, breaker, role=f"batches of {self.name}", about=about, max_retries=self._retries
        )

    def explain(self, error: Exception) -> Failure:
        """Say what an error comes down to."""
        return failure_of(error, told(error), self.name, self.provider.account.key_name)

    def _why_not(self, error: RequestFailedError, *, is_in_doubt: bool) -> str:
        """Say why requests cannot be handed over, and what to do."""
        status, message = status_of(error), error.failure.message
        if is_in_doubt:
            return f"{self.name}: whether a batch arrived cannot be told ({message}); the same command looks for it"
        if status in NO_SUCH_API:
            place = place_of(self.provider.account)
            return f"{self.name}: {place} takes no batches ({message}): check the base URL, or choose the engine http"
        if status in TOO_LARGE:
            return f"{self.name}: a batch was refused as too large ({message}); give the engine option requests=1000"
        what = "cannot be handed over" if error.failure.kind.is_sent_again else "was refused"
        return f"{self.name}: a batch {what} ({message}); {error.failure.advice}"


def _told(entry: Entry) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time))
    return f"a batch of {entry.size:,} requests to {entry.model} that was begun {when}"


async def _settled(entry: Entry) -> None:
    """Wait until a provider's list has what was begun with an entry, if it arrived."""
    await asyncio.sleep(min(max(entry.time + SETTLED - time.time(), 0), SETTLED))


class _Submission:
    """One submission, which is not made again while it may have arrived."""

    def __init__(self, lane: Lane, path: Path, entry: Entry) -> None:
        self.entry, self.is_in_doubt = entry, False
        self._lane, self._path = lane, path

    async def once(self) -> State:
        """Submit, or find what an earlier try brought about whose answer was lost."""
        if self.is_in_doubt:
            await _settled(self.entry)
        if self.is_in_doubt and (found := await self._lane.find(self.entry)) is not None:
            return found
        before, self.is_in_doubt = self.is_in_doubt, True
        try:
            return await self._lane.provider.submit(self._path, self.entry.file, self.entry.key)
        except Exception as error:
            self.is_in_doubt = before or self._lane.explain(error).kind.is_sent_again
            raise


OUTAGE = 600.0
"""Seconds for which a provider may tell nothing of its batches before the command ends; these go on."""

AT_ONCE = 8


@dataclass(frozen=True)
class Silence:
    """A provider tells nothing of its batches.

    Attributes
    ----------
    since
        By a clock that only ever goes on.
    told
        What is said of it, with the time of day.
    """

    since: float
    told: str


class Looks:
    """Looks at batches, one after the other.

    Parameters
    ----------
    lanes
        What goes to each model, by its name.
    progress
        Is told at once where a provider cannot be reached.

    Attributes
    ----------
    silent
        The providers that told nothing when they were last asked, by the model.
    lost
        Why there is no sense in looking on; None where there is.
    """

    def __init__(self, lanes: Mapping[str, Lane], progress: Progress = unwatched) -> None:
        self._lanes, self._progress = lanes, progress
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.silent: dict[str, Silence] = {}
        self.lost: str | None = None

    async def all(self, entries: Sequence[Entry]) -> list[tuple[Entry, State]]:
        """Return how each of them stands."""
        states = await asyncio.gather(*map(self._one, entries))
        return list(zip(entries, states, strict=True))

    def told(self) -> str:
        """Say who tells nothing; nothing where all do."""
        return "; ".join(one.told for one in self.silent.values())

    async def _one(self, entry: Entry) -> State:
        lane = self._lanes[entry.model]
        try:
            async with self._slots:
                state = await lane.look(entry)
        except Exception as error:  # whatever a client raises
            return self._unknown(lane, entry, lane.explain(error))
        self.silent.pop(lane.name, None)
        return state

    def _unknown(self, lane: Lane, entry: Entry, failure: Failure) -> State:
        if not failure.kind.is_sent_again:
            what = f"{lane.name}: {entry.batch} cannot be looked at ({failure.message})"
            self.lost = f"{what}; {failure.advice}; {given_up(entry)}"
        else:
            silence = self.silent.get(lane.name) or self._silence(lane, failure)
            if time.monotonic() - silence.since > OUTAGE:
                self.lost = f"{silence.told}; {failure.advice}, and collects what is on its way"
        return State(entry.batch or "", "not heard of", ended=False)

    def _silence(self, lane: Lane, failure: Failure) -> Silence:
        """Take note of a provider that tells nothing for the first time, and say so."""
        place, now = place_of(lane.provider.account), time.strftime("%H:%M")
        told = f"{lane.name}: batches at {place} cannot be looked at since {now} ({failure.message})"
        self.silent[lane.name] = silence = Silence(time.monotonic(), told)
        self._progress(Underway(f"{told}; the command goes on looking for {OUTAGE / 60:.0f} minutes", is_news=True))
        return silence


def given_up(entry: Entry) -> str:
    """Say how a batch is given up that is gone."""
    return f"if it is gone, the engine option forget={entry.key} has its requests sent, and paid for, again"
