"""The checkpoints of a training, each evaluated once, while it goes on or after it.

What a checkpoint's run is made of are the settings of any run; only its model is put together from a template. Each has
a folder in one panel (`evaluation.panel`), so that another look resumes what was begun and asks nothing twice. One that
cannot be loaded is told, and the rest goes on.
"""

from __future__ import annotations

import os
import string
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from refusal_index.engines.budget import Budget
from refusal_index.engines.engine import ModelError, WaitingError
from refusal_index.engines.events import Progress
from refusal_index.engines.settings import Settings
from refusal_index.errors import RefusalIndexError
from refusal_index.evaluation.checkpoints import Checkpoint, Settled, Signature, checkpoint_at, checkpoints_in
from refusal_index.evaluation.checks import INSPECT
from refusal_index.evaluation.looks import bring_to_end
from refusal_index.evaluation.panel import PanelFolder
from refusal_index.evaluation.passes import is_over, pause
from refusal_index.evaluation.plan import RUNS, Plan, load_questions, prepare
from refusal_index.evaluation.sweep import CellResult
from refusal_index.evaluation.weights import weights_digest
from refusal_index.outcomes.errors import RunFolderError, suggestion
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.lock import held
from refusal_index.outcomes.run_sets import set_document
from refusal_index.redaction import redacted

FIELDS = ("path", "name", "step")
"""What a template of a model's name may hold of a checkpoint."""

SERVERS = {"vllm": "VLLM_BASE_URL", "sglang": "SGLANG_BASE_URL"}
"""Packages by which a provider of the same name serves weights, and the variable that names a server instead."""

FIELDS_SHOWN = ", ".join(f"{{{name}}}" for name in FIELDS)

Watched = Callable[[Plan], AbstractContextManager[Progress]]
"""Gives what is told of a run's progress."""


class TemplateError(RefusalIndexError, ValueError):
    """A template that does not make another name of each checkpoint."""


@dataclass(frozen=True)
class Watch:
    """What is watched, and how.

    Attributes
    ----------
    folder, template
        Where checkpoints appear, and the model that each is, as in ``vllm/{path}``.
    values
        All other settings of the runs, by name.
    out
        The panel's folder.
    every
        Seconds between looks; a checkpoint is taken once nothing of it has changed for as long.
    until_idle
        End after so many seconds in which no checkpoint came; None to go on until the budget is ended.
    """

    folder: Path
    template: str
    values: Mapping[str, Any]
    out: Path
    every: float
    until_idle: float | None = None


@dataclass(frozen=True)
class CheckpointResult:
    """What became of a checkpoint.

    Attributes
    ----------
    checkpoint
        The checkpoint.
    result
        Of its run; None where it came to none.
    error
        What kept it from its end.
    left_out
        What it lacked to be taken, when the watch ended.
    """

    checkpoint: Checkpoint
    result: CellResult | None
    error: str | None = None
    left_out: str | None = None


def prepare_watch(
    folder: Path,
    template: str,
    values: Mapping[str, Any],
    *,
    out: Path | None = None,
    every: float = 30.0,
    until_idle: float | None = None,
) -> Watch:
    """Check what can be checked before there is a checkpoint.

    Raises
    ------
    RefusalIndexError
        If the folder is none, the template names no checkpoint or a provider that lacks its package, or a setting or
        the questions cannot be used.
    """
    check_template(template)
    place = out or RUNS / f"{folder.resolve().name}-panel"
    PanelFolder(place)
    watch = Watch(folder, template, values, place, every, until_idle)
    settings = Settings.of(**values)
    load_questions(settings)
    found = checkpoints_in(folder)
    _check_watched(folder, found)
    _check_server(template, settings)
    failed: list[RefusalIndexError] = []
    for one in found:
        try:
            _plan(watch, one)
        except (ModelError, TemplateError) as error:  # it may be this checkpoint that is to blame
            failed.append(error)
        except OSError:  # told when it is its turn
            continue
        else:
            return watch
    if failed:
        raise failed[0]
    return watch


def _check_watched(folder: Path, found: Sequence[Checkpoint]) -> None:
    """Raise RunFolderError if a folder is what checkpoints lie in or become, instead of where they lie."""
    itself = checkpoint_at(folder.resolve())
    if not found and itself is not None and itself.lacks is None:
        raise RunFolderError(f"{folder} is a checkpoint itself; name the folder that it lies in, {itself.path.parent}")
    if not found and set_document(folder):
        raise RunFolderError(f"{folder} holds runs, and no checkpoints; name the folder that a training writes into")


def _check_server(template: str, settings: Settings) -> None:
    """Raise ModelError if the program that would serve the weights is not there: it is started with the first request.

    A server that runs already needs no such program here.
    """
    provider = template.partition("/")[0]
    address = SERVERS.get(provider, "")
    if settings.sending.engine == INSPECT and address and not os.environ.get(address) and not find_spec(provider):
        raise ModelError(
            f"{provider} is not installed, which is to serve the checkpoints: pip install {provider}, or have "
            f"{address} hold the address of a server that runs"
        )


def check_template(template: str) -> None:
    """Raise TemplateError unless a template makes another name of each checkpoint.

    Examples
    --------
    >>> check_template("vllm/{path}")
    """
    try:
        parts = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise TemplateError(f"model template {template!r}: expected one such as vllm/{{path}} ({error})") from error
    for part in parts:
        if part not in FIELDS:
            guess = suggestion(part, FIELDS)
            raise TemplateError(f"model template {template!r}: expected {FIELDS_SHOWN} in braces, got {part!r}{guess}")
    if not parts:
        raise TemplateError(
            f"model template {template!r}: expected one of {FIELDS_SHOWN} in it, as in vllm/{{path}}; without, all "
            "checkpoints are one model"
        )


def model_of(template: str, one: Checkpoint) -> str:
    """Return the name of a checkpoint's model; raises TemplateError if it takes a step, and there is none."""
    if one.step is None and "{step" in template:
        raise TemplateError(f"model template {template!r}: expected a number in the name of {one.path}, found none")
    return template.format(path=one.path, name=one.name, step=one.step)


async def carry_out_watch(watch: Watch, watched: Watched, budget: Budget) -> AsyncIterator[CheckpointResult]:
    """Evaluate each checkpoint once as it comes, and yield what became of it; at the end, those that were not whole.

    Parameters
    ----------
    watch, watched
        What is watched; and gives, for each run, what is told of its progress.
    budget
        What all runs may use together; ended, the watch ends in order.
    """
    settled = Settled(watch.every)
    panel: PanelFolder | None = None
    done: dict[Path, Signature] = {}
    idle = 0.0
    with ExitStack() as holding:
        while True:
            waiting = []
            for one in checkpoints_in(watch.folder):
                if done.get(one.path) == one.signature:
                    continue
                if one.lacks is not None or not settled(one):
                    waiting.append(one)
                    continue
                done[one.path], idle = one.signature, 0.0
                if panel is None:  # a watch that finds nothing leaves no folder
                    holding.enter_context(held(watch.out))
                    panel = PanelFolder(watch.out)
                yield await _evaluated(watch, one, panel, watched, budget)
                if is_over(budget):
                    return
            settling = any(one.lacks is None for one in waiting)
            if watch.until_idle is not None and idle >= watch.until_idle and not settling:
                break
            await pause(watch.every, budget)
            idle += watch.every
            if is_over(budget):
                return
    for one in waiting:
        yield CheckpointResult(one, None, left_out=one.lacks or "it is still being written")


async def _evaluated(
    watch: Watch, one: Checkpoint, panel: PanelFolder, watched: Watched, budget: Budget
) -> CheckpointResult:
    """Evaluate one checkpoint within its folder of the panel; what keeps it from its end is in the result."""
    try:
        plan = _plan(watch, one)
    except (RefusalIndexError, OSError) as error:
        return CheckpointResult(one, None, str(error))
    try:
        with watched(plan) as progress:
            result = CellResult(plan, await bring_to_end(plan, progress, budget))
    except WaitingError as error:
        result = CellResult(plan, waits=str(error))
    except RefusalIndexError as error:
        result = CellResult(plan, error=redacted(str(error)))
    except Exception as error:  # whatever a provider raises that loads weights on this machine
        result = CellResult(plan, error=redacted(f"{type(error).__name__}: {error}"))
    panel.put(result, one.step)
    return CheckpointResult(one, result, result.error)


def _plan(watch: Watch, one: Checkpoint) -> Plan:
    """Return the run of a checkpoint: the hash of its weights is a part of what its replies depend on."""
    settings = Settings.of(**{**watch.values, "model": model_of(watch.template, one)})
    plan = prepare(settings, runs=watch.out)
    identity = {**plan.identity, "weights": weights_digest(one)}
    return replace(plan, folder=RunFolder(watch.out / one.name), identity=identity, title=(one.name, plan.dataset.name))
