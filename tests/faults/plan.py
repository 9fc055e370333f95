"""A small language to plan faults: what happens to which requests, from when to when."""

from __future__ import annotations

import hashlib
import math
import re
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refusal_index.models.functions import LETTERS, PLAIN_CASES, PLAIN_QUESTION

if TYPE_CHECKING:
    from tests.faults.api import Misdeed

FIRST, FORCED, GRADER = "first", "forced", "grader"
PASSES = (FIRST, FORCED, GRADER)
UPLOAD, SUBMIT, LIST, LOOK, RESULTS = CALLS = (
    "a file is handed over",
    "a batch is submitted",
    "batches are listed",
    "a batch is looked at",
    "results are fetched",
)
"""Calls of a batch API, which can meet with faults as passes can."""

CALL = "call: "


def called(what: str) -> str:
    """Return the message that stands for a call."""
    return CALL + what


def is_forced(message: str) -> bool:
    return "leaving the question open is not allowed" in message


def plain_verdict(message: str) -> str | None:
    """Return the right verdict on a plain case, with which graders are checked before a run; None for others."""
    if PLAIN_QUESTION.text not in message:
        return None
    return next((LETTERS[case.grade] for case in PLAIN_CASES if f"\n{case.answer}\n</prediction>" in message), None)


def is_grading(message: str) -> bool:
    return "<gold_answer>" in message


def pass_of(message: str) -> str:
    """Return the pass that a message belongs to."""
    if message.startswith(CALL):
        return message.removeprefix(CALL)
    if is_grading(message):
        return GRADER
    return FORCED if is_forced(message) else FIRST


def number_of(message: str) -> int | None:
    """Return the number of the question that a message is about; None if it is not one of ours."""
    found = re.findall(r"What is (\d+) plus", message)
    return int(found[-1]) if found else None


@dataclass(frozen=True)
class Fault:
    """What happens to some of the requests; of several faults the first that applies goes.

    Attributes
    ----------
    deed
        What is done; a name where the one who runs the scenario does it.
    of
        Which pass: first, forced or grader, or one of `CALLS`; None for all passes.
    share, seed
        Which share of the sendings, drawn by a seeded hash of the message and of how often it was sent before.
    questions
        Which questions, by number; None for all.
    requests
        From which to before which of the requests that match, counted as they come.
    seconds
        From when to when, since the first request of all.
    times
        How often each message meets with it; None for always.
    """

    deed: Misdeed | str
    of: str | None = None
    share: float = 1.0
    seed: int = 0
    questions: Collection[int] | None = None
    requests: tuple[float, float] = (0, math.inf)
    seconds: tuple[float, float] = (0, math.inf)
    times: int | None = None

    def is_about(self, message: str) -> bool:
        """Whether pass and question are among those meant."""
        wanted = pass_of(message) in (PASSES if self.of is None else (self.of,))
        return wanted and (self.questions is None or number_of(message) in self.questions)

    def is_drawn(self, message: str, sent_before: int) -> bool:
        """Whether a sending of a message is in the share that meets with it."""
        if self.times is not None and sent_before >= self.times:
            return False
        return self.share >= 1 or drawn(f"{self.seed}:{sent_before}:{message}") < self.share


def drawn(text: str) -> float:
    """Return a number from 0 to 1, the same for the same text everywhere."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


class Plan:
    """Says what happens to each request, as the server asks.

    Parameters
    ----------
    faults
        In the order in which they are looked at.
    deeds
        What the names among their deeds stand for.

    Attributes
    ----------
    happened
        How many requests each fault has met.
    """

    def __init__(self, faults: Sequence[Fault], deeds: dict[str, Misdeed] | None = None) -> None:
        self._faults, self._deeds = faults, deeds or {}
        self._matched = [0] * len(faults)
        self.happened = [0] * len(faults)
        self._began: float | None = None
        self._lock = threading.Lock()
        self.clock: Callable[[], float] = time.monotonic

    def __call__(self, message: str, sent_before: int) -> Misdeed | None:
        with self._lock:
            now = self.clock()
            self._began = now if self._began is None else self._began
            for place, fault in enumerate(self._faults):
                if self._applies(place, fault, message, sent_before, now - self._began):
                    self.happened[place] += 1
                    return self._deeds[fault.deed] if isinstance(fault.deed, str) else fault.deed
        return None

    def _applies(self, place: int, fault: Fault, message: str, sent_before: int, passed: float) -> bool:
        if not fault.is_about(message):
            return False
        number = self._matched[place]
        self._matched[place] += 1
        return (
            fault.requests[0] <= number < fault.requests[1]
            and fault.seconds[0] <= passed < fault.seconds[1]
            and fault.is_drawn(message, sent_before)
        )
