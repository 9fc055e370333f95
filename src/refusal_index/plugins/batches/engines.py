"""The engines of this plugin as they are registered; their modules are imported when they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from refusal_index.data.folder import RunFolder
from refusal_index.protocol import Role
from refusal_index.runs.engine import Engine, EngineKind, Poll
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore

DAY = 86_400.0
"""Seconds after which a provider lets a batch expire."""


def _batch(settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> Engine:
    from refusal_index.plugins.batches.provider_executor import batch_engine

    return batch_engine(settings, names, objects)


def _command(settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> Engine:
    from refusal_index.plugins.batches.command import command_engine

    return command_engine(settings, names, objects)


def _files(settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> Engine:
    from refusal_index.plugins.batches.engine import FilesEngine

    return FilesEngine(settings, names, objects)


def _ray(settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> Engine:
    from refusal_index.plugins.batches.command import ray_engine

    return ray_engine(settings, names, objects)


@dataclass(frozen=True)
class ProviderBatches(EngineKind):
    """An engine whose requests continue in a provider's batches when the command ends."""

    def refuse_outstanding(self, folder: RunFolder, store: ReplyStore) -> None:
        """Raise SettingError if batches are in flight."""
        from refusal_index.plugins.batches.journal import refuse_in_flight

        refuse_in_flight(folder, store)

    def batches(self, folder: RunFolder) -> Mapping[str, bool]:
        """Return our keys and the provider's ids of all batches, each with whether it is in flight."""
        from refusal_index.plugins.batches.journal import journal_of

        return journal_of(folder).batches

    def give_up(
        self, folder: RunFolder, settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]
    ) -> None:
        """Abandon the batches named in the settings."""
        from refusal_index.plugins.batches.provider_executor import give_up

        give_up(folder, settings, names, objects)

    def poller(
        self,
        folder: RunFolder,
        settings: Settings,
        names: Mapping[Role, str],
        objects: Mapping[str, object],
        report: Callable[[str], object],
    ) -> Poll:
        """Return what checks whether a batch has ended."""
        from refusal_index.plugins.batches.provider_executor import poller

        return poller(folder, settings, names, objects, report)

    def first_wait(self, settings: Settings) -> float:
        """Return the option `poll`."""
        from refusal_index.plugins.batches.provider_executor import read_options

        return read_options(settings)["poll"]


@dataclass(frozen=True)
class ResultFiles(EngineKind):
    """An engine that leaves result files in a run's folder until their results are stored.

    Attributes
    ----------
    pattern
        A glob pattern of these files.
    """

    pattern: str = ""

    def refuse_outstanding(self, folder: RunFolder, store: ReplyStore) -> None:
        """Raise SettingError if result files are left, which no other engine reads."""
        from refusal_index.plugins.batches.engine import refuse_left

        refuse_left(folder, self.pattern)


BATCH = ProviderBatches(
    _batch,
    settings=frozenset({"detach", "engine_option"}),
    tests_graders=False,
    in_batches=True,
    round_seconds=DAY,
    outlives=True,
)
COMMAND = ResultFiles(
    _command,
    settings=frozenset({"command"}),
    tests_graders=False,
    uses_addresses=False,
    pattern="*.replies.jsonl",
)
FILES = EngineKind(
    _files, settings=frozenset(), sends=False, tests_graders=False, in_batches=True, uses_addresses=False
)
RAY = ResultFiles(
    _ray,
    settings=frozenset({"ray_address", "engine_option"}),
    tests_graders=False,
    opens_alike=True,
    pattern="shards/*.jsonl",
)
