"""The engine that has requests asked in providers' batches, at half the price, and within a day."""

from __future__ import annotations

from collections.abc import Mapping

from refusal_index.engines.functions import asked_by_name
from refusal_index.engines.settings import FORGET, Settings
from refusal_index.engines.waves.batch_executor import BatchExecutor
from refusal_index.engines.waves.engine import WaveEngine
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import Asked


def batch_engine(settings: Settings, names: Mapping[Asked, str], objects: Mapping[str, object]) -> WaveEngine:
    """Make the engine; functions are called within this process.

    Raises
    ------
    SettingError
        If a model has no batches, its address, key or client is missing, or an option cannot be used.
    """
    return WaveEngine(settings, names, objects, BatchExecutor(settings, asked_by_name(names, objects)))


async def has_news(
    settings: Settings, names: Mapping[Asked, str], objects: Mapping[str, object], folder: RunFolder
) -> bool:
    """Whether something can be done about the batches of a run's folder, such as to collect one.

    Parameters
    ----------
    settings, names, objects
        As the engine takes them.
    folder
        The run's.

    Raises
    ------
    RunFailedError
        If that cannot be told for now.
    """
    return await BatchExecutor(settings, asked_by_name(names, objects)).has_news(folder)


async def give_up(
    settings: Settings, names: Mapping[Asked, str], objects: Mapping[str, object], folder: RunFolder
) -> None:
    """Give up the batches of a run's folder that settings say, so that another engine may ask the same.

    It takes what `has_news` takes.

    Raises
    ------
    SettingError
        If no batch of this run is called so.
    """
    ours = settings.changed(engine_option=[f"{FORGET}={one}" for one in settings.sending.forget])
    await BatchExecutor(ours, asked_by_name(names, objects)).give_up(folder)
