"""The one policy of retries: a request is sent at most once more than `max_retries` says, whoever carries it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from refusal_index.models.failures import CircuitBreaker, EndedError, Failure, RequestFailedError

T = TypeVar("T")
FIRST_WAIT = 2.0
"""Seconds before a request is sent again, doubled with each attempt; up to as much again is added by chance."""

LONGEST_WAIT = 60.0


async def patiently(
    send: Callable[[], Awaitable[T]],
    explain: Callable[[Exception], Failure],
    breaker: CircuitBreaker,
    *,
    role: str,
    about: str,
    max_retries: int,
) -> T:
    """Send a request, and again after a while where that may help.

    Parameters
    ----------
    send, explain
        Sends it once, and says what an error comes down to.
    breaker
        Is told of every failure; once it is open nothing is sent.
    role, about
        Who is asked, and about what.
    max_retries
        How often it is sent again at most. A provider that says after how long is waited for so long.

    Raises
    ------
    RequestFailedError
        If it failed for good.
    EndedError
        If the breaker opened before.
    """

    async def once() -> T:
        if breaker.reason is not None:
            raise EndedError
        try:
            return await send()
        except EndedError:
            raise
        except Exception as error:  # whatever a provider raises
            raise RequestFailedError(explain(error)) from error

    try:
        reply = await once()
    except RequestFailedError as error:
        reply = await _again(once, error, breaker, role, about, max_retries)
    breaker.worked(role)
    return reply


async def _again(
    once: Callable[[], Awaitable[T]],
    first: RequestFailedError,
    breaker: CircuitBreaker,
    role: str,
    about: str,
    max_retries: int,
) -> T:
    """Go on after a first attempt that failed; nearly all go well, and need none of this."""
    failed = [first]

    async def attempt() -> T:
        if failed:
            raise failed.pop()
        return await once()

    def before_sleep(state: RetryCallState) -> None:
        breaker.troubled(role, about, _failure(state))

    again = AsyncRetrying(
        stop=stop_after_attempt(max_retries + 1),
        wait=_wait,
        retry=retry_if_exception(_is_sent_again),
        before_sleep=before_sleep,
        sleep=breaker.wait,
        reraise=True,
    )
    try:
        reply: T = await again(attempt)
    except RequestFailedError as error:
        breaker.failed(role, about, error.failure)
        raise
    return reply


def _is_sent_again(error: BaseException) -> bool:
    return isinstance(error, RequestFailedError) and error.failure.kind.is_sent_again


def _wait(state: RetryCallState) -> float:
    grown = wait_exponential_jitter(FIRST_WAIT, LONGEST_WAIT, jitter=FIRST_WAIT)(state)
    return max(grown, _failure(state).retry_after or 0.0)


def _failure(state: RetryCallState) -> Failure:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, RequestFailedError)  # noqa: S101 - nothing else is sent again
    return error.failure
