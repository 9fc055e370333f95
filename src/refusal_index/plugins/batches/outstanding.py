"""Requests of earlier commands that are still outstanding: batches at a provider, and results left in files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from refusal_index.data.folder import RunFolder
from refusal_index.models.functions import asked_by_name
from refusal_index.models.settings import FORGET, SettingError
from refusal_index.plugins.batches import wave
from refusal_index.plugins.batches.spool import refuse_left
from refusal_index.plugins.batches.wave import describe_in_flight, in_flight, journal_of
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import BATCH, RunFailedError
from refusal_index.runs.execute import MAX_WAIT, HasResults
from refusal_index.runs.plan import Plan
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore
from refusal_index.runs.writing import run_to_completion

if TYPE_CHECKING:
    from refusal_index.plugins.batches.batch_executor import BatchExecutor


def check(plan: Plan, store: ReplyStore) -> None:
    """Give up the batches that are to be asked anew, and refuse to ask what another engine has in flight."""
    sending = plan.settings.sending
    refuse_left(plan.folder, sending.engine)
    if sending.engine == BATCH:
        return
    if sending.forget:
        ours = plan.settings.changed(engine_option=[f"{FORGET}={one}" for one in sending.forget])
        run_to_completion(_batches(plan, ours).give_up(plan.folder))
    refuse_in_flight(plan.folder, store)


def refuse_in_flight(folder: RunFolder, store: ReplyStore) -> None:
    """Raise where another engine would pay again for requests that are in flight in batches.

    Raises
    ------
    SettingError
        The message names the batches in flight, and how to collect them.
    """
    entries = in_flight(folder, store)
    if entries:
        raise SettingError(
            f"{folder.path}: {describe_in_flight(entries)}: another engine would pay for the same again; collect the "
            f"results by {{engine}} batch, or give them up by {{engine_option}} forget={entries[0].key}"
        )


def check_forgotten(plans: Sequence[Plan]) -> None:
    """Raise SettingError where a batch is to be given up that no run has."""
    wave.check_forgotten(plans[0].settings.sending.forget, [journal_of(one.folder) for one in plans])


def _outlives_the_command(plan: Plan) -> bool:
    """Whether what a run sends goes on without the command, as a provider's batches do."""
    return plan.settings.sending.engine == BATCH


def settings_alone(plan: Plan) -> Settings:
    """Return the settings of one run of a set: it waits for no batch, and gives up those that are its own."""
    settings = plan.settings
    if settings.sending.forget:
        known = journal_of(plan.folder).told_of
        kept = [f"{name}={value}" for name, value in settings.sending.engine_option if name != FORGET or value in known]
        settings = settings.changed(engine_option=kept)
    return settings.changed(detach=True) if _outlives_the_command(plan) else settings


def is_waited_for(plan: Plan, budget: Budget) -> bool:
    """Whether a run that ended early has batches in flight, and this command is to wait for them."""
    if not _outlives_the_command(plan) or plan.settings.sending.detach or budget.is_over:
        return False
    return bool(journal_of(plan.folder).entries)


def poller(report: Callable[[Plan, str], object]) -> HasResults:
    """Return what says whether a run has results to collect.

    It raises RunFailedError once a provider has not answered for `OUTAGE` seconds; `report` is called at the first
    failure.
    """
    from refusal_index.plugins.batches.batch_lane import OUTAGE  # noqa: PLC0415 - of one engine only

    since: dict[Path, float] = {}

    async def has_news(plan: Plan) -> bool:
        path = plan.folder.path
        try:
            found = await _batches(plan, plan.settings).has_news(plan.folder)
        except RunFailedError as error:
            if path not in since:
                since[path] = time.monotonic()
                report(plan, str(error))
            elif time.monotonic() - since[path] > OUTAGE:
                raise
            return False
        since.pop(path, None)
        return found

    return has_news


def first_wait(plans: Iterable[Plan]) -> float:
    """Return the seconds between the first pass and the second."""
    from refusal_index.plugins.batches.batch_executor import Options  # noqa: PLC0415 - of one engine only

    polls = (Options.of(plan.settings).poll for plan in plans if _outlives_the_command(plan))
    return min(polls, default=MAX_WAIT)


def _batches(plan: Plan, settings: Settings) -> BatchExecutor:
    from refusal_index.plugins.batches.batch_executor import BatchExecutor  # noqa: PLC0415 - of one engine only

    return BatchExecutor(settings, asked_by_name(plan.names, plan.objects))
