"""Ends a run in order: what fails will not pass by itself, or what it may take is used up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from refusal_index.engines.failures import Failure, Kind

QUESTIONS_IN_A_ROW = 20
OUTAGE_SECONDS = 180.0
OUTAGE_QUESTIONS = 3


class CircuitBreaker:
    """Once it is open nothing further is sent; what is on its way is waited for, and kept.

    It opens when so many questions in a row ended in errors without a reply in between, when nothing but errors came
    for so long, or when it is told to.

    Parameters
    ----------
    clock
        Tells the time in seconds.

    Attributes
    ----------
    reason
        Why it opened, in one line; None while it is closed.
    planned
        Whether the run was told to end there.
    patience
        Seconds of nothing but errors after which it opens.

    Examples
    --------
    >>> breaker = CircuitBreaker()
    >>> for number in range(QUESTIONS_IN_A_ROW):
    ...     breaker.failed("model", f"q{number}", Failure("the key is refused", "openai/gpt", Kind.LASTING))
    >>> breaker.reason
    'openai/gpt failed for 20 questions in a row (the key is refused); the same command resumes'
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.reason: str | None = None
        self.planned = False
        self._clock = clock
        self._opened = asyncio.Event()
        self._worked: set[str] = set()
        self._failed: dict[str, set[str]] = {}
        self._troubled: dict[str, tuple[float, set[str], int]] = {}

    def worked(self, role: str) -> None:
        """Take note of a reply of whoever is in a role, which breaks the row of failures."""
        self._worked.add(role)
        self._failed.pop(role, None)
        self._troubled.pop(role, None)

    def failed(self, role: str, question_id: str, failure: Failure) -> None:
        """Take note of a request about a question that failed for good.

        One that is itself at fault counts while none has worked yet: then it is rather what all of them have in common.
        """
        if failure.kind is Kind.REQUEST and role in self._worked:
            return
        failed = self._failed.setdefault(role, set())
        failed.add(question_id)
        if len(failed) >= QUESTIONS_IN_A_ROW:
            self._open_for(failure, f"failed for {len(failed)} questions in a row")

    def troubled(self, role: str, question_id: str, failure: Failure) -> None:
        """Take note of a request about a question that failed and will be sent again."""
        since, questions, attempts = self._troubled.get(role, (self._clock(), set(), 0))
        questions.add(question_id)
        self._troubled[role] = since, questions, attempts + 1
        lasted = self._clock() - since
        if failure.kind is Kind.DOUBTFUL and role not in self._worked and attempts + 1 >= QUESTIONS_IN_A_ROW:
            self._open_for(failure, f"failed in each of {attempts + 1} attempts")
        elif lasted >= OUTAGE_SECONDS and len(questions) >= OUTAGE_QUESTIONS:
            self._open_for(failure, f"gave nothing but errors for {lasted:.0f} seconds")

    def _open_for(self, failure: Failure, what: str) -> None:
        self.open(f"{failure.model} {what} ({failure.message}); {failure.advice}")

    def open(self, reason: str, *, planned: bool = False) -> None:
        """End the run for a reason; the first one counts."""
        if self.reason is None:
            self.reason, self.planned = reason, planned
            self._opened.set()

    async def opened(self) -> None:
        """Wait until it opens."""
        await self._opened.wait()

    async def wait(self, seconds: float) -> None:
        """Wait so long, and no longer than until it opens."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._opened.wait(), seconds)
