"""A set of runs in batches is gone through again and again: what each has to wait for, and until when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from refusal_index.engines.budget import Budget
from refusal_index.engines.registry import BATCH
from refusal_index.engines.waves.in_flight import journal_of
from refusal_index.evaluation.plan import Plan

LONGEST_WAIT, LOOK = 60.0, 0.1
"""Seconds between passes at most, and between looks whether the command is to end."""


def outlives_the_command(plan: Plan) -> bool:
    """Whether what a run sends goes on without the command, as a provider's batches do."""
    return plan.settings.sending.engine == BATCH


def waits_for_batches(plan: Plan, budget: Budget) -> bool:
    """Whether a run that ended early has batches on their way, and this command is to wait for them."""
    if not outlives_the_command(plan) or plan.settings.sending.detach or is_over(budget):
        return False
    return bool(journal_of(plan.folder).entries)


def is_over(budget: Budget) -> bool:
    """Whether this command is to end; requests that are used up keep none from being waited for."""
    left = budget.seconds_left()
    return budget.ended is not None or (left is not None and left <= 0)


async def has_news(plan: Plan) -> bool:
    """Whether a run that waits for batches has something to collect."""
    from refusal_index.engines.waves.batch import has_news as has_news_of  # noqa: PLC0415 - of one engine only

    return await has_news_of(plan.settings, plan.names, plan.objects, plan.folder)


def first_wait(plans: Iterable[Plan]) -> float:
    """Return the seconds between the first pass and the second."""
    from refusal_index.engines.waves.batch_options import Options  # noqa: PLC0415 - of one engine only

    polls = (Options.of(plan.settings).poll for plan in plans if outlives_the_command(plan))
    return min(polls, default=LONGEST_WAIT)


def longer(seconds: float) -> float:
    """Return the wait after one in which nothing happened."""
    return min(seconds * 2, LONGEST_WAIT)


async def pause(seconds: float, budget: Budget) -> None:
    """Wait, and no longer than there is time."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not is_over(budget):
        await asyncio.sleep(min(LOOK, left))
