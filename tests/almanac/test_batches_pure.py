"""The parts of batches that need no server: states, faults, lines, and many requests at once."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import pytest
from tests.faults.almanac import BatchFaults

from refusal_index.plugins.almanac import chat_api
from refusal_index.plugins.almanac.batches import NEXT, CountedBatch
from refusal_index.plugins.almanac.chat_api import JsonResponse, in_order, parse_line

STATES = {"validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"}


@pytest.mark.parametrize("before", sorted(STATES))
@pytest.mark.parametrize("after", sorted(STATES))
def test_a_state_is_reached_from_those_before_it_only(before, after):
    batch, began = CountedBatch.new("file-1"), int(time.time())
    batch.status = before
    if after in NEXT.get(before, ()):
        batch.move(after)
        assert batch.status == after
        assert began <= getattr(batch, f"{after}_at") <= time.time()
    else:
        with pytest.raises(ValueError, match=f"{before} cannot become {after}"):
            batch.move(after)


def test_every_state_can_be_reached_and_the_last_ones_are_left_for_no_other():
    reached = {"validating"}.union(*NEXT.values())
    assert reached == STATES - {"expired"}, "a batch of this server has no deadline"
    assert STATES - NEXT.keys() == {"failed", "completed", "expired", "cancelled"}


def test_a_batch_counts_what_was_answered_and_the_tokens():
    batch = CountedBatch.new("file-1")
    batch.count(JsonResponse(200, {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}))
    batch.count(JsonResponse(429, {"error": {}}))
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 1)
    assert batch.usage.total_tokens == 7


def test_the_share_that_fails_is_the_one_asked_for_and_each_try_draws_anew():
    faults = BatchFaults(fail=0.25)
    first, second = ([faults.status(f"q-{number}", tries) for number in range(4000)] for tries in (0, 1))
    assert abs(sum(map(bool, first)) / 4000 - 0.25) < 0.03
    both = sum(bool(one and other) for one, other in zip(first, second, strict=True))
    assert abs(both / 4000 - 0.25**2) < 0.02
    assert {*first} == {None, 429, 500}
    assert first == [faults.status(f"q-{number}", 0) for number in range(4000)]


def test_a_name_that_is_half_a_pair_is_read_as_it_stands():
    line = rb'{"custom_id": "\ud800", "method": "POST", "url": "u", "body": {"model": 3}}'
    assert (parse_line(1, line).custom_id, parse_line(1, line).body) == ("\ud800", {"model": 3})


def test_answers_come_in_order_though_the_last_ones_are_ready_first(monkeypatch):
    monkeypatch.setattr(chat_api, "MAX_IN_FLIGHT", 4)

    async def ask(number):
        await asyncio.sleep((10 - number) / 1000)
        return number

    async def use():
        return [found async for found in in_order(range(10), ask)]

    assert asyncio.run(use()) == list(range(10))


def test_what_is_under_way_is_cancelled_where_one_fails_or_the_caller_leaves(monkeypatch):
    monkeypatch.setattr(chat_api, "MAX_IN_FLIGHT", 3)
    begun, ended = [], []

    async def ask(number):
        begun.append(number)
        try:
            await asyncio.sleep(0 if number < 2 else 60)
        finally:
            ended.append(number)
        return 1 // number

    async def fails():
        return [found async for found in in_order(range(9), ask)]

    async def leaves():
        async with aclosing(in_order(range(1, 9), ask)) as found:
            async for _ in found:
                return

    with pytest.raises(ZeroDivisionError):
        asyncio.run(fails())
    asyncio.run(leaves())
    assert sorted(begun) == sorted(ended)
    assert begun
