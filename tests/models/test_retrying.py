"""One number says how often a request is sent; between attempts it waits, longer and longer, or as it is told."""

from __future__ import annotations

import asyncio

import pytest

from refusal_index.models import failures
from refusal_index.models.failures import (
    CircuitBreaker,
    EndedError,
    Failure,
    FailureKind,
    RequestFailedError,
    send_with_retries,
)


class Waiting(CircuitBreaker):
    """A breaker that waits in no time, and remembers for how long it should have."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []

    async def wait(self, seconds: float) -> None:
        self.waited.append(seconds)


def sent(breaker: CircuitBreaker, script: list[Failure | str], max_retries: int = 5) -> tuple[str, int]:
    """Send a request that goes as a script says, and return the reply and how often it was sent."""
    played = iter(script)
    count = 0

    async def send() -> str:
        nonlocal count
        count += 1
        step = next(played)
        if isinstance(step, str):
            return step
        raise ValueError(step)

    def explain(error: Exception) -> Failure:
        return error.args[0]

    told = {"role": "model", "subject": "q"}
    try:
        return asyncio.run(send_with_retries(send, explain, breaker, **told, max_retries=max_retries)), count
    except RequestFailedError as error:
        return f"failed: {error}", count


DOWN, WRONG = Failure("down", "m"), Failure("wrong", "m", FailureKind.REQUEST)


@pytest.mark.parametrize(
    ("script", "max_retries", "expected"),
    [
        (["yes"], 5, ("yes", 1)),
        ([DOWN, "yes"], 5, ("yes", 2)),
        ([DOWN] * 5 + ["yes"], 5, ("yes", 6)),
        ([DOWN] * 9, 5, ("failed: down", 6)),
        ([DOWN] * 9, 0, ("failed: down", 1)),
        ([WRONG, "yes"], 5, ("failed: wrong", 1)),
        ([DOWN, WRONG, "yes"], 5, ("failed: wrong", 2)),
        ([Failure("key", "m", FailureKind.LASTING), "yes"], 5, ("failed: key", 1)),
        ([Failure("gone", "m", FailureKind.DOUBTFUL), "yes"], 5, ("yes", 2)),
    ],
)
def test_a_request_is_sent_as_often_as_its_error_and_the_number_of_retries_say(script, max_retries, expected):
    assert sent(Waiting(), script, max_retries) == expected


def test_waits_double_with_jitter_up_to_a_minute(monkeypatch):
    monkeypatch.setattr(failures, "FIRST_WAIT", 2.0)
    breaker = Waiting()
    sent(breaker, [DOWN] * 8, 7)
    shortest = [2, 4, 8, 16, 32, 60, 60]
    assert len(breaker.waited) == 7
    for waited, least in zip(breaker.waited, shortest, strict=True):
        assert least <= waited <= min(least + 2, 60)
    assert len({waited % 1 for waited in breaker.waited[:5]}) == 5, "no two are alike, so that a burst spreads"


def test_what_a_provider_asks_for_is_waited_for_and_no_less(monkeypatch):
    monkeypatch.setattr(failures, "FIRST_WAIT", 2.0)
    breaker = Waiting()
    sent(breaker, [Failure("slow down", "m", retry_after=17.0), Failure("slow down", "m", retry_after=0.1), "yes"])
    assert breaker.waited[0] == 17.0
    assert breaker.waited[1] >= 4


def test_nothing_is_sent_once_the_breaker_is_open():
    breaker = CircuitBreaker()
    breaker.open("enough")
    with pytest.raises(EndedError):
        sent(breaker, ["yes"])


def test_a_breaker_that_opens_while_a_request_waits_ends_it_without_another_attempt(monkeypatch):
    monkeypatch.setattr(failures, "FIRST_WAIT", 100.0)
    breaker = CircuitBreaker()
    attempts = []

    async def both() -> None:
        async def send() -> str:
            attempts.append(1)
            raise ValueError

        asking = asyncio.create_task(
            send_with_retries(send, lambda _: DOWN, breaker, role="model", subject="q", max_retries=5)
        )
        while not attempts:
            await asyncio.sleep(0)
        breaker.open("enough")
        with pytest.raises(EndedError):
            await asyncio.wait_for(asking, 5)

    asyncio.run(both())
    assert attempts == [1]
