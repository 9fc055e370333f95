"""The interface of engines: they send the requests of conversations and store the replies.

All other state is derived from the store, so one engine can finish what another began. `refusal_index.runs.engines`
finds an engine by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from refusal_index.data.folder import RunFolder
from refusal_index.errors import RefusalIndexError
from refusal_index.models.failures import CircuitBreaker
from refusal_index.protocol import Conversation, Role
from refusal_index.runs.budget import Budget
from refusal_index.runs.events import Progress, ignore_events
from refusal_index.runs.group_commit import GroupCommit
from refusal_index.runs.sent import SentRecorder
from refusal_index.runs.settings import Limits, Settings
from refusal_index.runs.store import ReplyStore


class RunFailedError(RefusalIndexError, RuntimeError):
    """A run that could not be completed; replies are kept, and running it again resumes it."""


class WaitingError(RunFailedError):
    """A run that stopped as requested before it had results; the same command continues it."""


@dataclass(frozen=True)
class Assignment:
    """What an engine executes: the conversations of one variant.

    Attributes
    ----------
    dataset, variant, conversations
        The names of both, and what to ask.
    settings
        Those of the run.
    folder
        Where an engine may keep its own files, such as a journal of batches; None if it must not.
    store, progress
        Where replies go, and what is called with events.
    breaker, budget
        What can end it early.
    sent
        Records what the models are sent.
    """

    dataset: str
    variant: str
    conversations: Sequence[Conversation]
    settings: Settings
    store: ReplyStore
    folder: RunFolder | None = None
    progress: Progress = ignore_events
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    budget: Budget = field(default_factory=lambda: Budget(Limits()))
    sent: SentRecorder = field(default_factory=SentRecorder)

    @cached_property
    def replies(self) -> GroupCommit:
        """Stores replies that come one by one."""
        return GroupCommit(self.store)


class Engine(Protocol):
    """Sends requests and stores replies; opened once for all variants of a run, since loading a model may be costly.

    Attributes
    ----------
    together
        Whether all variants are executed together, so that all pending requests are sent in one round.
    """

    together: bool

    def open(self, store: ReplyStore | None = None) -> AbstractAsyncContextManager[None]:
        """Check that graders grade a plain case correctly; close all models at the end.

        Parameters
        ----------
        store
            The run's store. Graders with a stored reply are not checked; the replies of the others are stored there.

        Raises
        ------
        ModelError
            If a grader does not.
        """

    async def execute(self, assignment: Assignment) -> None:
        """Send all pending requests, and store replies and failures, until the breaker opens.

        Raises
        ------
        RunFailedError
            If they could not be completed.
        KeyboardInterrupt
            If it was interrupted.
        """


MakeEngine = Callable[[Settings, Mapping[Role, str], Mapping[str, object]], Engine]
"""Makes an engine from the settings, the names of the models by role, and objects in memory by name."""


Poll = Callable[[], Awaitable[bool]]
"""Whether an interrupted run has results to collect."""

MAX_WAIT = 60.0
"""Seconds between checks for results, at most."""


@dataclass(frozen=True)
class EngineKind:
    """An engine as it is registered: how it is made, and what it needs.

    A plugin registers one in the group ``refusal_index.executors``, or a plain `MakeEngine`, which declares nothing.
    The methods are for engines whose requests outlive the command; an engine has outstanding requests in a run's folder
    if a later command finds their results.

    Attributes
    ----------
    make
        Makes the engine.
    settings
        The names of the settings in `ENGINES_OWN` that it uses; None if it checks them itself.
    sends
        Whether it sends requests itself.
    tests_graders
        Whether graders are tested on plain cases when it is opened; None if that is unknown.
    in_batches
        Whether its requests cost what a provider charges for batches.
    round_seconds
        The longest time of a round of requests; None if each request is answered by itself.
    outlives
        Whether its requests continue when the command ends.
    uses_addresses
        Whether it sends requests to the addresses in the settings; others only take the names at these servers.
    opens_alike
        Whether opening it for one model shows that it can be opened for all, since it starts the same cluster for each.
    """

    make: MakeEngine
    settings: frozenset[str] | None = None
    sends: bool = True
    tests_graders: bool | None = None
    in_batches: bool = False
    round_seconds: float | None = None
    outlives: bool = False
    uses_addresses: bool = True
    opens_alike: bool = False

    def refuse_outstanding(self, folder: RunFolder, store: ReplyStore) -> None:
        """Raise SettingError if it has outstanding requests that another engine would pay for again."""

    def batches(self, folder: RunFolder) -> Mapping[str, bool]:
        """Return the names of batches that a folder's run submitted, each with whether it is outstanding."""
        return {}

    def give_up(
        self, folder: RunFolder, settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]
    ) -> None:
        """Give up the outstanding batches that `Sending.forget` names; the last arguments are those of `MakeEngine`."""

    def poller(
        self,
        folder: RunFolder,
        settings: Settings,
        names: Mapping[Role, str],
        objects: Mapping[str, object],
        report: Callable[[str], object],
    ) -> Poll:
        """Return what checks whether outstanding results can be collected.

        Parameters
        ----------
        folder
            The run's folder.
        settings, names, objects
            The arguments of `MakeEngine`.
        report
            Called with a note, such as that a provider cannot be reached.
        """

        async def has_results() -> bool:
            return True

        return has_results

    def first_wait(self, settings: Settings) -> float:
        """Return the seconds between the first check for results and the second."""
        return MAX_WAIT
