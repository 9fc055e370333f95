"""What a scenario is: steps in a folder, one after the other, and what is promised to come of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.plan import Fault
from tests.faults.process import ORDINARY, Surroundings
from tests.served import GRADER, MODEL

EQUAL, RESUMED = "yes", "yes, after resuming"
DONE, INCOMPLETE, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

LAST = "LAST-KEY"
"""In the options of a step: our key of the batch that the journal tells of last."""

ACTION = "the action's step"
"""A command of a step: that of the GitHub Action which asks the candidate."""

COMMAND = "program -i {requests} -o {replies} --model {model}"
SERVED = (MODEL, GRADER)


@dataclass(frozen=True)
class Engine:
    """An engine, or a client of the engine ``direct``, which is the one without ``--engine`` among its options.

    Attributes
    ----------
    name, model, grader
        What it is called in the table, and the models, both of the server, as the command line takes them.
    options
        Further options of the command line, so that it waits no longer than it must.
    together
        Whether it sends all at once that is due.
    loses
        How many of the requests that a promise takes to be in flight it may pay for once more.
    """

    name: str
    model: str
    grader: str
    options: tuple[str, ...] = ()
    together: bool = False
    loses: float = 1


ENGINES = (
    Engine("inspect", "together/any", "together/grader"),
    Engine("openai", *SERVED),
    Engine("batch", *SERVED, ("--engine", "batch", "--engine-option", "poll=0.05"), True, 0),
    Engine("command", "vllm/any", "vllm/grader", ("--engine", "command", "--command", COMMAND), True, math.inf),
    Engine("ray", *SERVED, ("--engine", "ray", "--engine-option", "shard=10"), True),
    Engine("functions", "python:tests.faults.pipeline:answer", "python:tests.faults.pipeline:grade"),
)
"""Every client and engine; one more is one more line."""

PART_ONLY = ("command", "ray")
"""Those that play what the table says and nothing else: the one meets with no provider, the other is slow to start."""

EVERY = tuple(engine.name for engine in ENGINES if engine.name not in PART_ONLY)
SOAKED = tuple(engine for engine in ENGINES if engine.name in EVERY)


@dataclass(frozen=True)
class Step:
    """A command, and what befalls it.

    Attributes
    ----------
    faults
        What the server does. Among the deeds these are names: ``"kill"``, ``"interrupt"``, ``"interrupt twice"``,
        ``"terminate"``, ``"terminate twice"``, ``"hang up"``, ``"fill the disk"``, and ``"another run"`` and
        ``"another run that the lock lets in"``, which start a second process in the same folder.
    command, options
        The command, or `ACTION`, and its options in addition to those of the scenario.
    around
        Where it runs.
    host
        By which name the server is called.
    before
        What is done to the run's folder beforehand.
    tells
        Whether status and message of the row are this step's; of several, the last one's.
    """

    faults: tuple[Fault, ...] = ()
    command: str = "run"
    options: tuple[str, ...] = ()
    around: Surroundings = ORDINARY
    host: str = "127.0.0.1"
    before: Callable[[Path], object] | None = None
    tells: bool = True


@dataclass(frozen=True)
class Promise:
    """What is to come of a scenario.

    Attributes
    ----------
    outcome
        Whether the outcome table equals the undisturbed one at once, after the same command has run again without
        faults, or else a pattern for how it differs.
    status, says
        Exit status, or several that will do, and a pattern for what is said.
    repeats, again
        How many requests may be paid for once more: those whose replies were in flight, and those that are asked for
        again on purpose.
    received, together
        Most requests that may arrive in the step that tells, good ones and others; and of an engine that sends all at
        once that is due, where that is more.
    """

    outcome: str = EQUAL
    status: int | tuple[int, ...] = DONE
    says: str = ""
    repeats: int = 0
    again: int = 0
    received: int | None = None
    together: int | None = None

    def most_repeats(self, engine: Engine) -> float:
        """Return how many requests may be paid for once more with an engine."""
        return (self.repeats and engine.loses * self.repeats) + self.again

    def most_received(self, engine: Engine) -> int | None:
        """Return how many requests may arrive with an engine; None for any number."""
        return self.together if engine.together and self.together is not None else self.received


@dataclass(frozen=True)
class Scenario:
    """One line of the table.

    Attributes
    ----------
    group, name
        Where it stands, and what happens, in words that a user would use; of the same name in several passes, the page
        shows one line.
    steps
        What is done.
    promise
        What is to come of it.
    of
        The pass that it is about, to tell scenarios of one name apart.
    graded
        Whether a model grades; otherwise a rule does.
    options, questions
        What all runs are told, and how many questions there are.
    choices
        How many choices the server gives at once.
    disk
        Options of a small disk of its own that the folder lies on, as ``mount`` takes them; None for any disk.
    out
        Name of the run's folder.
    texts
        Whether replies are to be equal word for word, not only what they were taken for.
    engines
        Which engines it can happen to.
    planted
        Whether the expected outcomes are computed from the model's planned answers, because a run would take too long.
    limit
        Seconds in which each step must end.
    """

    group: str
    name: str
    steps: tuple[Step, ...]
    promise: Promise = Promise()
    of: str = ""
    graded: bool = False
    options: tuple[str, ...] = ()
    questions: int = 40
    choices: int = 1
    disk: str | None = None
    out: str = "r"
    texts: bool = True
    engines: tuple[str, ...] = EVERY
    planted: bool = False
    limit: float = 120.0

    @property
    def title(self) -> str:
        """Name it among all others."""
        return f"{self.name} ({self.of})" if self.of else self.name


@dataclass(frozen=True)
class Row:
    """What came of a scenario with one engine.

    Attributes
    ----------
    scenario, engine
        Which.
    outcome, status, message
        As the promise words them; a status of None is that of a command that did not end.
    paid, needed, repeated, received
        Requests paid for, those of the undisturbed run, those of them paid for once more, and all that arrived in the
        step that tells.
    broken
        Which promises were not kept.
    seconds
        How long it took.
    """

    scenario: Scenario
    engine: str
    outcome: str
    status: int | None
    message: str
    paid: int
    needed: int
    repeated: int
    received: int
    broken: tuple[str, ...]
    seconds: float
