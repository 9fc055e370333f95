"""The engine that has requests asked in providers' batches, at half the price, and within a day."""

from __future__ import annotations

from collections.abc import Mapping

from refusal_index.engines.engine import ModelError
from refusal_index.engines.functions import is_function_name
from refusal_index.engines.settings import Settings
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
    return WaveEngine(settings, names, objects, BatchExecutor(settings, _away(names, objects)))


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
    """
    return await BatchExecutor(settings, _away(names, objects)).has_news(folder)


def _away(names: Mapping[Asked, str], objects: Mapping[str, object]) -> dict[Asked, str]:
    """Return whom batches ask: all but functions."""
    away = {}
    for asked, name in names.items():
        given = objects.get(name)
        if is_function_name(name) or callable(given):
            continue
        if given is not None:
            raise ModelError(
                f"model {name!r}: this engine asks providers for models by name; choose {{engine}} inspect"
            )
        away[asked] = name
    return away
