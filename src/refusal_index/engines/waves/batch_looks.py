"""Looks at batches that are on their way; a provider that tells nothing of them is borne with for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from refusal_index.engines.events import Progress, Underway, unwatched
from refusal_index.engines.failures import Failure
from refusal_index.engines.waves.batch_lane import Lane
from refusal_index.engines.waves.batch_provider import State, place_of
from refusal_index.engines.waves.journal_lines import Entry

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
