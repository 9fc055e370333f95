"""A set of runs in batches is gone through again and again: what each has to wait for, and until when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from refusal_index.engines.budget import Budget
from refusal_index.engines.engine import RunFailedError
from refusal_index.engines.registry import BATCH
from refusal_index.engines.settings import FORGET, Settings
from refusal_index.engines.waves.in_flight import journal_of
from refusal_index.evaluation.plan import Plan

LONGEST_WAIT, LOOK = 60.0, 0.1
"""Seconds between passes at most, and between looks whether the command is to end."""


def outlives_the_command(plan: Plan) -> bool:
    """Whether what a run sends goes on without the command, as a provider's batches do."""
    return plan.settings.sending.engine == BATCH


def settings_alone(plan: Plan) -> Settings:
    """Return the settings of one run of a set: it waits for no batch, and gives up those that are its own."""
    settings = plan.settings
    if settings.sending.forget:
        known = journal_of(plan.folder).told_of
        kept = [f"{name}={value}" for name, value in settings.sending.engine_option if name != FORGET or value in known]
        settings = settings.changed(engine_option=kept)
    return settings.changed(detach=True) if outlives_the_command(plan) else settings


def waits_for_batches(plan: Plan, budget: Budget) -> bool:
    """Whether a run that ended early has batches on their way, and this command is to wait for them."""
    if not outlives_the_command(plan) or plan.settings.sending.detach or is_over(budget):
        return False
    return bool(journal_of(plan.folder).entries)


def is_over(budget: Budget) -> bool:
    """Whether this command is to end; requests that are used up keep none from being waited for."""
    left = budget.seconds_left()
    return budget.ended is not None or (left is not None and left <= 0)


class News:
    """Whether runs that wait for batches have something to collect.

    Parameters
    ----------
    tell
        Is told of a run of whose batches nothing is heard, in one line, when that begins.
    """

    def __init__(self, tell: Callable[[Plan, str], object]) -> None:
        self._tell, self._since = tell, dict[Path, float]()

    async def of(self, plan: Plan) -> bool:
        """Whether a run has something to collect.

        Raises
        ------
        RunFailedError
            If that could not be told for as long as a provider is borne with.
        """
        from refusal_index.engines.waves.batch import has_news  # noqa: PLC0415 - of one engine only
        from refusal_index.engines.waves.batch_looks import OUTAGE  # noqa: PLC0415 - of one engine only

        path = plan.folder.path
        try:
            found = await has_news(plan.settings, plan.names, plan.objects, plan.folder)
        except RunFailedError as error:
            if path not in self._since:
                self._since[path] = time.monotonic()
                self._tell(plan, str(error))
            elif time.monotonic() - self._since[path] > OUTAGE:
                raise
            return False
        self._since.pop(path, None)
        return found


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
