"""Requests of earlier commands whose results are outstanding, for example in a provider's batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from refusal_index.data.folder import RunFolder
from refusal_index.models.settings import SettingError
from refusal_index.protocol import Role
from refusal_index.runs.engines import engines
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore


def refuse_outstanding(folder: RunFolder, store: ReplyStore, engine: str) -> None:
    """Raise if other engines have outstanding requests in a run's folder, for which `engine` would pay again.

    Raises
    ------
    SettingError
        The message says how to collect their results.
    """
    for name, kind in engines().items():
        if name != engine:
            kind.refuse_outstanding(folder, store)


def settle_outstanding(
    folder: RunFolder,
    store: ReplyStore,
    settings: Settings,
    names: Mapping[Role, str],
    objects: Mapping[str, object],
) -> None:
    """Give up the batches of other engines that the settings name, then call `refuse_outstanding`.

    The last arguments are those of `MakeEngine`.
    """
    engine = settings.sending.engine
    if settings.sending.forget:
        for name, kind in engines().items():
            if name != engine:
                kind.give_up(folder, settings, names, objects)
    refuse_outstanding(folder, store, engine)


def batches_of(folder: RunFolder) -> dict[str, bool]:
    """Return the names of the batches that a folder's run submitted, each with whether it is outstanding."""
    return {name: flag for kind in engines().values() for name, flag in kind.batches(folder).items()}


def check_forgotten(names: Iterable[str], batches: Mapping[str, bool]) -> None:
    """Raise if a batch to give up is none of these.

    Raises
    ------
    SettingError
        The message names the unknown batches and those in flight.
    """
    unknown_names = sorted(set(names).difference(batches))
    if unknown_names:
        in_flight = ", ".join(name for name, is_outstanding in batches.items() if is_outstanding) or "none"
        raise SettingError(
            f"{{engine_option}} forget: no batch {', '.join(map(repr, unknown_names))} was submitted from here; "
            f"in flight: {in_flight}"
        )
