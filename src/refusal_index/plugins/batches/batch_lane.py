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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from refusal_index.errors import RefusalIndexError
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
from refusal_index.models.requests import ModelError
from refusal_index.plugins.batches.batch_provider import Provider, State, place_of
from refusal_index.plugins.batches.formats import Result, failed, in_batch, read_result
from refusal_index.plugins.batches.journal import Entry, Journal, usable
from refusal_index.runs.engine import Assignment, Progress, RunFailedError, Underway, unwatched

T = TypeVar("T")

NO_SUCH_API = (404, 405, 501)
TOO_LARGE = (413,)

SETTLED = 10.0
"""Seconds after which a submission that was cut off is in the provider's list, if it ever will be."""

WINDOW = 3 * 86_400.0
"""Seconds by which a batch may be older than its submission, by clocks that differ."""

MOST_LISTED, SHOWN = 100_000, 3  # batches of an account, and those that are named
READINGS = 2  # of results that hold broken lines
MATCHED, FEW = 0.1, 10
"""The least share of a batch whose results must be readable and its own, and how many others end the run."""

FINISHED = ("completed", "ended")
"""What providers call a batch each request of which was tried."""


class NotHandedOverError(RefusalIndexError, RuntimeError):
    """Requests that a provider did not take; the message says why, and what to do."""


class BatchClient:
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
        self._unmatched = set[str]()  # requests of batches in a row hardly any results of which could be matched

    @property
    def called(self) -> str:
        """Who takes its batches."""
        return self.provider.account.provider

    @property
    def entries(self) -> list[Entry]:
        """Its batches that are in flight."""
        return [one for one in self._journal.entries if one.model == self.name]

    async def hand_over(self, path: Path, requests: list[str], assignment: Assignment) -> None:
        """Have the requests of a file asked.

        Raises
        ------
        NotHandedOverError
            If they cannot be; the message says why, and what to do.
        EndedError
            If the breaker opened before.
        """
        account, breaker = self.provider.account, assignment.breaker
        entry = self._journal.begin(account.provider, place_of(account), self.name, requests)
        submission = _Submission(self, path, entry, assignment)

        async def upload() -> str | None:
            file = await self.provider.upload(path, entry.key)
            return None if file is None else usable(file)

        try:
            file = await self._call(upload, breaker, entry.key)
            if file is not None:
                submission.entry = self._journal.uploaded(entry.key, file)
            state = await self._call(submission.once, breaker, entry.key)
        except (RequestFailedError, EndedError) as error:
            if not submission.is_in_doubt:
                await self._give_up(submission.entry, str(error) or "the run ended before")
            if isinstance(error, RequestFailedError):
                raise NotHandedOverError(self._why_not(error, entry if submission.is_in_doubt else None)) from error
            raise
        self._journal.submitted(entry.key, state.id, is_guess=state.is_guess)

    async def find_again(self, entry: Entry, assignment: Assignment) -> None:
        """Find out what became of a batch that was begun, and of which nothing more is known.

        Raises
        ------
        ModelError
            If that cannot be told here.
        RunFailedError
            If it cannot be told now.
        EndedError
            If the run ended before.
        """
        what = f"{_told(entry)} may be in flight"
        advice = f"look there, and give {{engine_option}} forget={entry.key} to have them sent, and paid for, again"
        try:
            found = await self._call(lambda: self.find(entry, assignment), assignment.breaker, entry.key)
        except RequestFailedError as error:
            asks = error.failure.kind is FailureKind.REQUEST or status_of(error) in NO_SUCH_API
            raised, then = (ModelError, advice) if asks else (RunFailedError, RESUMES)
            raise raised(f"{what}, and the list of {entry.place} does not tell ({error}); {then}") from error
        if found is None:
            await self._give_up(entry, "it never arrived")
        else:
            self._journal.submitted(entry.key, found.id, is_guess=found.is_guess)

    def check_place(self, entry: Entry) -> None:
        """Raise ModelError if a batch was handed over at another address than the one that the model has now."""
        account = self.provider.account
        if entry.place != place_of(account):
            what = "is" if entry.batch else "may be"
            raise ModelError(
                f"{_told(entry)} {what} in flight at {entry.place}, and the address of the model is "
                f"{place_of(account)} now: with {account.url_name}={entry.place} the same command collects it; "
                f"{{engine_option}} forget={entry.key} gives it up, and has its requests sent, and paid for, again"
            )

    async def find(self, entry: Entry, assignment: Assignment) -> State | None:
        """Return the batch that an entry of the journal is about, by the provider's list; None if it never arrived.

        It has our key or our file. Of a provider that keeps neither it is one of the same size; its results show
        whether it is the right one.

        Raises
        ------
        UnreadableReplyError
            If that cannot be told: the list does not end, or another batch in it may be the one.
        EndedError
            If the run ended before.
        """
        if self.provider.keeps_keys and entry.file is None:
            return None  # without a file nothing was submitted
        await assignment.breaker.wait(SETTLED)
        _check_going(assignment)
        seen, alike = set[str](), list[State]()
        async for state in self.provider.batches():
            _check_going(assignment)
            if state.id in seen or len(seen) == MOST_LISTED:
                raise UnreadableReplyError(f"it does not end: after {len(seen):,} batches comes {state.id}")
            seen.add(state.id)
            if state.key == entry.key or (entry.file is not None and state.file == entry.file):
                usable(state.id)
                return state
            if self._may_be(state, entry):
                alike.append(state)
        same = [one for one in alike if one.total == entry.size]
        if same and not self.provider.keeps_keys:
            return replace(min(same, key=lambda one: abs((one.created or 0.0) - entry.time)), is_guess=True)
        if alike or entry.others:
            shown = ", ".join(sorted({one.id for one in alike} | entry.others)[:SHOWN])
            raise UnreadableReplyError(f"it shows batches that may be this one and do not say so, such as {shown}")
        return None

    def _may_be(self, state: State, entry: Entry) -> bool:
        """Whether nothing speaks against a batch that has neither our key nor our file."""
        if state.key is not None or state.id in self._journal.known:
            return False
        if state.created is not None and state.created < entry.time - WINDOW:
            return False
        is_like = state.total == entry.size or (not state.total and state.file is None)
        return is_like or not self.provider.keeps_keys

    async def look(self, entry: Entry) -> State:
        """Tell how a batch stands; it raises what the client raises."""
        return await self.provider.look(entry.batch or "")

    async def collect(self, entry: Entry, state: State, breaker: CircuitBreaker, results: dict[str, Result]) -> None:
        """Put in the results of a batch that ended; lines that cannot be read are left out, as if they had not come.

        Raises
        ------
        RequestFailedError
            If not all can be had; those that came are put in all the same.
        """
        for _ in range(READINGS):
            if not await self._call(partial(self._read, entry, state, results), breaker, entry.key):
                return

    async def _read(self, entry: Entry, state: State, results: dict[str, Result]) -> int:
        """Put in the results that are this entry's, and return how many lines are none; of two alike the reply counts.

        Raises
        ------
        ValueError
            If there are fewer than answers: they were cut short on their way.
        """
        is_failed, broken = dict[str, bool](), 0
        async for line in self.provider.results(state):
            if not line.strip():
                continue
            try:
                result = in_batch(read_result(json.loads(line), self.name))
            except (ValueError, RecursionError):
                broken += 1
                continue
            is_failed[result.custom_id] = result.failure is not None and not result.is_empty
            held = results.get(result.custom_id)
            if result.custom_id in entry.requests and (held is None or held.response is None):
                results[result.custom_id] = result
        answers = len(is_failed) + broken - min(sum(is_failed.values()), state.done - state.answered)
        if answers < state.answered and not entry.requests <= results.keys():
            raise ValueError(f"expected at least {state.answered:,} results, got {answers:,}: they end early")
        return broken

    def check_matched(self, entry: Entry, state: State, results: Mapping[str, Result]) -> None:
        """Raise RequestFailedError if hardly any results are of use: another batch would be paid for in vain."""
        expected = min(entry.size if state.status in FINISHED else state.answered, len(entry.requests))
        matched = {name for name, one in results.items() if not one.is_empty}
        if len(matched) >= MATCHED * expected:
            self._unmatched.clear()
            return
        self._unmatched |= entry.requests - matched
        if len(self._unmatched) >= FEW:
            what = f"{len(matched):,} of {expected:,} can be read and matched to their requests"
            raise RequestFailedError(Failure(what, self.name))

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
        """Give up a batch as told: it is let end at the provider's, if it is there and no one else's."""
        if entry.batch is not None and not entry.is_guess:
            with suppress(Exception):  # it may be gone
                await self.provider.cancel(entry.batch)
        await self._give_up(entry, "given up as told")

    async def mistaken(self, entry: Entry, assignment: Assignment) -> None:
        """Write that a batch is not the one it was taken for, and look for another; it raises as `find_again` does."""
        await self.find_again(self._journal.not_it(entry.key), assignment)

    async def _give_up(self, entry: Entry, reason: str) -> None:
        self._journal.given_up(entry.key, reason)
        await self._delete(entry)

    async def _delete(self, entry: Entry) -> None:
        if entry.file is not None:
            with suppress(Exception):  # a file that stays costs nothing
                await self.provider.delete(entry.file)

    async def _call(self, send: Callable[[], Awaitable[T]], breaker: CircuitBreaker, about: str) -> T:
        return await send_with_retries(
            send, self.explain, breaker, role=f"batches of {self.name}", about=about, max_retries=self._retries
        )

    def explain(self, error: Exception) -> Failure:
        """Say what an error comes down to."""
        line = describe_error(error).removeprefix(f"{UnreadableReplyError.__name__}: ")
        return classify_error(error, line, self.name, self.provider.account.key_name)

    def _why_not(self, error: RequestFailedError, in_doubt: Entry | None) -> str:
        """Say why requests cannot be handed over, and what to do."""
        status, message = status_of(error), error.failure.message
        if in_doubt is not None:
            what = f"{self.name}: whether a batch arrived cannot be told ({message})"
            return f"{what}; the same command looks for it; {given_up(in_doubt)}"
        if status in NO_SUCH_API:
            place = place_of(self.provider.account)
            return f"{self.name}: {place} takes no batches ({message}): check the base URL, or choose the engine direct"
        if status in TOO_LARGE:
            return f"{self.name}: a batch was refused as too large ({message}); give the engine option requests=1000"
        what = "cannot be handed over" if error.failure.kind.is_sent_again else "was refused"
        return f"{self.name}: a batch {what} ({message}); {error.failure.advice}"


def _told(entry: Entry) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time))
    return f"a batch of {entry.size:,} requests to {entry.model} that was begun {when}"


def _check_going(assignment: Assignment) -> None:
    """Raise EndedError if the run is to end."""
    if assignment.budget.is_over:
        assignment.breaker.open(str(assignment.budget.used_up()), planned=True)
    if assignment.breaker.reason is not None:
        raise EndedError


class _Submission:
    """One submission, which is not made again while it may have arrived."""

    def __init__(self, lane: BatchClient, path: Path, entry: Entry, assignment: Assignment) -> None:
        self.entry, self.is_in_doubt = entry, False
        self._lane, self._path, self._assignment = lane, path, assignment

    async def once(self) -> State:
        """Submit, or find what an earlier try brought about whose answer was lost."""
        if self.is_in_doubt and (found := await self._lane.find(self.entry, self._assignment)) is not None:
            return found
        before, self.is_in_doubt = self.is_in_doubt, True
        try:
            made = await self._lane.provider.submit(self._path, self.entry.file, self.entry.key)
        except Exception as error:
            self.is_in_doubt = before or self._lane.explain(error).kind.is_sent_again
            raise
        usable(made.id)
        return made


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

    def __init__(self, lanes: Mapping[str, BatchClient], progress: Progress = unwatched) -> None:
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

    def _unknown(self, lane: BatchClient, entry: Entry, failure: Failure) -> State:
        if not failure.kind.is_sent_again:
            what = f"{lane.name}: {entry.batch} cannot be looked at ({failure.message})"
            self.lost = f"{what}; {failure.advice}; {given_up(entry)}"
        else:
            silence = self.silent.get(lane.name) or self._silence(lane, failure)
            if time.monotonic() - silence.since > OUTAGE:
                self.lost = f"{silence.told}; {failure.advice}, and collects what is in flight"
        return State(entry.batch or "", "not heard of", ended=False)

    def _silence(self, lane: BatchClient, failure: Failure) -> Silence:
        """Take note of a provider that tells nothing for the first time, and say so."""
        place, now = place_of(lane.provider.account), time.strftime("%H:%M")
        told = f"{lane.name}: batches at {place} cannot be looked at since {now} ({failure.message})"
        self.silent[lane.name] = silence = Silence(time.monotonic(), told)
        self._progress(Underway(f"{told}; the command goes on looking for {OUTAGE / 60:.0f} minutes", is_news=True))
        return silence


def given_up(entry: Entry) -> str:
    """Say how a batch is given up."""
    return f"the engine option forget={entry.key} gives it up, and has its requests sent, and paid for, again"
