"""The budget of a run (requests, dollars, time) and its usage: requests and tokens by role."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from refusal_index.data.run_json import Prices, Tokens
from refusal_index.findings.summary import Usage
from refusal_index.models.failures import RESUMES
from refusal_index.protocol import Completion, Role
from refusal_index.runs.settings import Limits


class UsageCounter:
    """Running totals of requests and tokens.

    Examples
    --------
    >>> from refusal_index.data.run_json import Price
    >>> from refusal_index.protocol import Pass, Reply
    >>> reply, took = Reply(Pass.FIRST, Role.MODEL, "Lima"), UsageCounter()
    >>> for in_batch in (False, True):
    ...     took.add(Completion("q1", "low", 0, reply, 0, 1_000_000, 500_000, in_batch=in_batch))
    >>> took.requests, took.tokens, took.cost(Prices(Price(2, 8), batch_rate=0.5))
    (2, (2000000, 1000000), 9.0)
    """

    def __init__(self, replies: Iterable[Completion] = ()) -> None:
        self.requests = 0
        self._tokens = {(is_model, in_batch): (0, 0) for is_model in (True, False) for in_batch in (True, False)}
        self._has_unmetered = {True: False, False: False}  # by whether it is the model's
        for reply in replies:
            self.add(reply)

    def add(self, completion: Completion) -> None:
        """Add the usage of one reply."""
        key = completion.reply.role is Role.MODEL, completion.in_batch
        input_tokens, output_tokens = self._tokens[key]
        self._tokens[key] = input_tokens + completion.input_tokens, output_tokens + completion.output_tokens
        self.requests += completion.requests
        if completion.requests and is_unmetered(completion):
            self._has_unmetered[completion.reply.role is Role.MODEL] = True

    @property
    def tokens(self) -> Tokens:
        """All tokens."""
        return _sum(*self._tokens.values())

    def cost(self, prices: Prices) -> float | None:
        """Return the cost in dollars, as `Prices.cost` does; replies from batches are charged at the batch price.

        It is None if a reply that is not free has no usable token counts.
        """
        if self.has_unknown_cost(prices):
            return None
        singly = prices.cost(self._tokens[True, False], self._tokens[False, False])
        batched = prices.in_batches.cost(self._tokens[True, True], self._tokens[False, True])
        return None if singly is None or batched is None else singly + batched

    def has_unknown_cost(self, prices: Prices) -> bool:
        """Whether the provider of a model with a price reported no usable token counts for a reply."""
        return any(
            has_any and price is not None and bool(price.input or price.output)
            for has_any, price in (
                (self._has_unmetered[True], prices.model),
                (self._has_unmetered[False], prices.grader),
            )
        )

    def usage(self, prices: Prices) -> Usage:
        """Return requests, tokens and cost, and the tokens of graders without a price."""
        input_tokens, output_tokens = self.tokens
        grading = _sum(self._tokens[False, False], self._tokens[False, True])
        unpriced = sum(grading) if prices.grader is None else 0
        return Usage(input_tokens, output_tokens, self.requests, self.cost(prices), unpriced)


def is_unmetered(completion: Completion) -> bool:
    """Whether the provider reported no usable token counts for a reply.

    No prompt has 0 tokens, and no text has. A prompt that was rejected is stored as a reply, and costs nothing.

    Examples
    --------
    >>> from refusal_index.protocol import Pass, Reply
    >>> reply = Reply(Pass.FIRST, Role.MODEL, "Lima")
    >>> [is_unmetered(Completion("q", "low", 0, reply, 0, *counts)) for counts in ((0, 0), (9, 0), (9, 1))]
    [True, True, False]
    """
    if not completion.reply.stop_reason.is_end_of_text:
        return False
    return not completion.input_tokens or bool(completion.reply.text and not completion.output_tokens)


def _sum(*parts: Tokens) -> Tokens:
    return sum(input_tokens for input_tokens, _ in parts), sum(output_tokens for _, output_tokens in parts)


FIRST_REPLY_POLL = 0.02
"""Seconds between checks whether the first reply has come."""

POLL = 0.1
"""Seconds between checks whether time is up."""

MORE = "raise it to continue from here"


class Budget:
    """Tracks requests, cost and time against their limits.

    Requests and cost count over the whole run, from its first command on; time counts for one command only. A failed
    request has no known cost, but counts as a request in the command that sent it.

    Parameters
    ----------
    limits
        The limits.
    clock
        Returns the time in seconds.

    Attributes
    ----------
    ended
        Why the budget was closed early; None unless `end` was called.
    on_end
        Called with the reason when `end` is called.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.ended: str | None = None
        self.on_end: Callable[[str], object] = lambda _reason: None
        self._limits = limits
        self._clock = clock
        self._started = clock()
        self._sent = self._answered = self._in_flight = 0
        self._cost = 0.0
        self._is_cost_unknown = False
        self._counted: set[Path] = set()

    def count(self, replies: Iterable[Completion], prices: Prices) -> None:
        """Add the cost of replies."""
        counter = UsageCounter(replies)
        self._answered += counter.requests
        self._is_cost_unknown = self._is_cost_unknown or counter.has_unknown_cost(prices)
        self._cost += counter.cost(prices) or 0.0

    def count_earlier(self, run: Path, replies: Iterable[Completion], prices: Prices) -> None:
        """Add the usage of a run's earlier commands, once per run; the replies are not kept in memory."""
        if run in self._counted:
            return
        self._counted.add(run)
        before = self._answered
        self.count(replies, prices)
        self._sent += self._answered - before

    @contextmanager
    def one_request(self) -> Iterator[None]:
        """Count a request as in flight while the block runs."""
        self._sent += 1
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def requests_left(self) -> int | None:
        """Return how many requests may be sent at once; None for no limit.

        With a cost limit the first request is sent alone, to learn its price.
        """
        if self.used_up() is not None:
            return 0
        limits = self._limits
        limits_left = []
        if limits.max_requests is not None:
            limits_left.append(limits.max_requests - self._sent)
        if limits.max_cost is not None and not self._answered:
            limits_left.append(1)
        elif limits.max_cost is not None and self._cost:
            limits_left.append(max(int((limits.max_cost - self._cost) * self._answered / self._cost), 0))
        return min(limits_left, default=None)

    def sent(self, requests: int) -> None:
        """Count several requests as sent."""
        self._sent += requests

    def end(self, reason: str) -> None:
        """Close the budget, for a reason."""
        self.ended = reason
        self.on_end(reason)

    async def wait_for_first_cost(self) -> None:
        """Wait until the cost of a request is known: with a cost limit the first request is sent alone."""
        while self._limits.max_cost is not None and not self._answered and self._in_flight:
            await asyncio.sleep(FIRST_REPLY_POLL)

    def used_up(self) -> str | None:
        """Return which limit is reached, in one line; None while another request may be sent."""
        if self.ended is not None:
            return self.ended
        limits = self._limits
        if limits.max_requests is not None and self._sent >= limits.max_requests:
            return f"the budget of {limits.max_requests:,} requests is used up; {MORE}"
        if limits.max_cost is not None and self._is_cost_unknown:
            return (
                f"the budget of {_dollars(limits.max_cost)} cannot be kept: the cost is unknown, since the provider "
                "reports no usable token counts; limit the number of requests instead (max_requests)"
            )
        # Requests in flight and the next one are assumed to cost the average so far.
        expected = (self._in_flight + 1) * self._cost / self._answered if self._answered else 0.0
        if limits.max_cost is not None and (not limits.max_cost or self._cost + expected > limits.max_cost):
            spent = f"{_dollars(self._cost)}{' and what is in flight' if self._in_flight else ''}"
            return f"the budget of {_dollars(limits.max_cost)} is used up ({spent}); {MORE}"
        return self.time_is_up()

    def time_is_up(self) -> str | None:
        """Return that the time limit is reached, in one line; None while there is time left."""
        left = self.seconds_left()
        if left is None or left > 0:
            return None
        return f"the time of {self._limits.max_time:,.10g} seconds is up; {RESUMES}"

    @property
    def is_over(self) -> bool:
        """Whether the command must end; a request limit does not stop it from waiting for results."""
        return self.ended is not None or self.time_is_up() is not None

    def seconds_left(self) -> float | None:
        """Return the seconds left; None without a time limit."""
        limit = self._limits.max_time
        return None if limit is None else limit - (self._clock() - self._started)

    async def sleep(self, seconds: float) -> None:
        """Wait, but no longer than the time limit allows."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.is_over:
            await asyncio.sleep(min(POLL, left))


def _dollars(amount: float) -> str:
    whole, _, rest = f"{amount:,.6f}".partition(".")
    return f"${whole}.{rest[:2]}{rest[2:].rstrip('0')}"
