"""Evaluate each checkpoint of a training once, during the training or afterwards.

- Checkpoints in a folder are listed in the order of their steps. A checkpoint is complete if its configuration can be
  read, all files listed in its index exist, the tensors of safetensors files reach exactly to the end of the file, and
  nothing changes between two scans. The hash of all its weights is part of the run's identity, since a training may
  change few of them: new tokens, the last layers or an adapter.
- The panel is a set of runs in one folder, one for each checkpoint, with the same questions. It grows with the
  training; running the command again adds new checkpoints and repeats no request.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import string
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from refusal_index.data.files import locked
from refusal_index.data.folder import RunFolder
from refusal_index.data.run_sets import SUMMARY, check_set_version, set_document
from refusal_index.errors import RefusalIndexError, RunFolderError, checked_path, is_utf8, suggestion
from refusal_index.models.functions import is_function_name
from refusal_index.models.requests import ModelError
from refusal_index.redaction import redacted_error
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import WaitingError
from refusal_index.runs.engines import DIRECT
from refusal_index.runs.events import Progress, ignore_events
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import RUNS, Plan, load_questions, prepare
from refusal_index.runs.run_set import SetRun, set_summary, write_set_summary
from refusal_index.runs.settings import Settings

CONFIGURATIONS = ("config.json", "adapter_config.json")
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
MAX_HEADER_LENGTH = 100_000_000
"""Maximum size of a safetensors header in bytes, as in the format's own reader."""

_NAMED = re.compile(r"checkpoint-\d+")
"""The folder name that trainers use: such a folder is a checkpoint even while it is empty."""

_STEP = re.compile(r"(\d+)(?!.*\d)")

Signature = tuple[tuple[str, int, int], ...]
"""Name, size and modification time of every file."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder with a checkpoint, or one to which a checkpoint is being written.

    Attributes
    ----------
    path
        The folder.
    step
        The last number in the folder's name; None if the name has none.
    signature
        Signature of the folder's files when it was scanned.
    lacks
        Short description of what is missing; None if the checkpoint is complete.
    """

    path: Path
    step: int | None
    signature: Signature
    lacks: str | None

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def changed(self) -> float:
        """Time of the last write to any of its files, in seconds since the epoch."""
        return max((time for _, _, time in self.signature), default=0) / 1e9


def checkpoints_in(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints of a training, ordered by step, then those without a step by time.

    A folder without weights and configuration is not a checkpoint, unless it is called ``checkpoint-N``.

    Raises
    ------
    RunFolderError
        If the folder cannot be read.
    """
    try:
        paths = [path for path in folder.iterdir() if not path.name.startswith((".", "tmp-"))]
    except OSError as error:
        raise RunFolderError(
            f"{folder}: expected the folder to which the training writes its checkpoints ({error.strerror}); check the "
            "path"
        ) from error
    checkpoints = [checkpoint for path in paths if (checkpoint := checkpoint_at(path)) is not None]
    return sorted(checkpoints, key=lambda item: (item.step is None, item.step or 0, item.changed, item.name))


def checkpoint_at(folder: Path) -> Checkpoint | None:
    """Return the checkpoint in a folder; None if there is none, or if it is removed in the meantime."""
    signature: Signature = ()
    try:
        files = ((file.name, file.stat()) for file in sorted(folder.iterdir()) if file.is_file())
        signature = tuple((name, status.st_size, status.st_mtime_ns) for name, status in files)
        names = {name for name, _, _ in signature}
        if not names & {*CONFIGURATIONS, *WEIGHTS, *INDEXES} and not _NAMED.fullmatch(folder.name):
            return None
        lacks = next(_lacking(folder, names), None)
    except (FileNotFoundError, NotADirectoryError):  # trainings delete old checkpoints
        return None
    except OSError as error:  # the next scan may succeed
        lacks = f"it cannot be read ({error.strerror})"
    return Checkpoint(folder, step_of(folder.name), signature, lacks)


def step_of(name: str) -> int | None:
    """Return the last number in a name.

    >>> step_of("checkpoint-2000"), step_of("epoch1-step500"), step_of("final")
    (2000, 500, None)
    """
    match = _STEP.search(name)
    return int(match[1]) if match and len(match[1]) <= 12 else None


def _lacking(folder: Path, names: set[str]) -> Iterator[str]:
    """Describe what a checkpoint is missing."""
    configurations, indexes, files = ([n for n in group if n in names] for group in (CONFIGURATIONS, INDEXES, WEIGHTS))
    if not configurations:
        yield f"no {CONFIGURATIONS[0]}"
    yield from (f"{name} is incomplete" for name in configurations if _document(folder / name) is None)
    for name in indexes:
        shards = (_document(folder / name) or {}).get("weight_map")
        if isinstance(shards, dict) and shards and all(isinstance(shard, str) for shard in shards.values()):
            files += sorted(set(shards.values()))
        else:
            yield f"{name} is incomplete"
    if not files:
        yield "no weights"
    for name in files:
        if name not in names:
            yield f"no {name}"
        elif name.endswith(".safetensors") and not is_whole(folder / name):
            yield f"{name} is incomplete"


def _document(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if the file is not a complete JSON object."""
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def is_whole(path: Path) -> bool:
    """Whether the tensors listed in the header of a safetensors file reach exactly to the end of the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 0 < length <= min(MAX_HEADER_LENGTH, size - 8):
            return False
        try:
            header = json.loads(file.read(length))
            ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
            return bool(8 + length + max(ends, default=0) == size)
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
            return False


class StabilityCheck:
    """Determines which checkpoints have stopped changing.

    Parameters
    ----------
    seconds
        Time without a change after which a checkpoint counts as stable.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: dict[Path, tuple[Signature, float]] = {}

    def __call__(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint has been unchanged for long enough, by earlier scans or by its modification times."""
        now = time.monotonic()
        signature, since = self._seen.get(checkpoint.path, (None, now))
        if signature != checkpoint.signature:
            self._seen[checkpoint.path] = checkpoint.signature, now
            since = now
        return now - since >= self._seconds or time.time() - checkpoint.changed >= self._seconds


UNNUMBERED = "step_by_order"
"""Marks an entry whose step is its position, because the checkpoint's name contains no number."""


class PanelFolder:
    """The folder of a panel.

    Parameters
    ----------
    path
        The folder, which need not exist yet.

    Raises
    ------
    RunFolderError
        If the folder contains something other than a panel.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        document = set_document(path)
        if (path / "run.json").exists():
            raise RunFolderError(f"{path} is the folder of a single run; choose another one for the checkpoints")
        if (path / SUMMARY).exists() and ("set_version" not in document or "config" in document):
            raise RunFolderError(f"{path / SUMMARY} is not the summary of checkpoints; choose another folder")
        check_set_version(path, document)
        runs = document.get("runs")
        self._runs: list[dict[str, Any]] = [run for run in runs if isinstance(run, dict)] if runs else []

    def put(self, result: SetRun, step: int | None) -> None:
        """Add the result of a checkpoint, replacing an earlier one, and write the summary.

        Checkpoints without a step are numbered consecutively after the last step.
        """
        entry = {**result.to_document(), "step": step, **({UNNUMBERED: True} if step is None else {})}
        names = [(run.get("model"), run.get("dataset")) for run in self._runs]
        key = (entry["model"], entry["dataset"])
        # If a step is trained again, its new checkpoint counts: the training continued from those weights.
        index = names.index(key) if key in names else len(names)
        # A failed evaluation does not replace earlier results.
        is_kept = entry["summary"] is None and any(
            run.get("folder") == entry["folder"] and run.get("summary") is not None
            for run in self._runs[index : index + 1]
        )
        if not is_kept:
            self._runs[index : index + 1] = [entry]
        numbered = sorted((run for run in self._runs if not run.get(UNNUMBERED)), key=_step)
        last = _step(numbered[-1]) if numbered else 0
        unnumbered = (run for run in self._runs if run.get(UNNUMBERED))
        self._runs = [*numbered, *({**run, "step": last + n} for n, run in enumerate(unnumbered, 1))]
        write_set_summary(self.path, set_summary("panel", self._runs))


def _step(entry: dict[str, Any]) -> int:
    step = entry.get("step")
    return step if isinstance(step, int) else 0


@lru_cache(maxsize=1)  # a watch needs the digest of its first checkpoint twice
def weights_digest(checkpoint: Checkpoint) -> str:
    """Return a hash of all weight files of a checkpoint.

    It takes about a second per gigabyte; loading the weights reads the files anyway.

    Raises
    ------
    OSError
        If a file cannot be read.
    """
    digest = hashlib.sha256()
    for name, size, _ in checkpoint.signature:
        if name.endswith((".safetensors", ".bin")):
            digest.update(f"{name} {size} ".encode())
            with (checkpoint.path / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, hashlib.sha256).digest())
    return digest.hexdigest()


FIELDS = ("path", "name", "step")
"""The checkpoint's fields that a model template may contain."""

SERVERS = {"vllm": "VLLM_BASE_URL", "sglang": "SGLANG_BASE_URL"}
"""Package that a provider of the same name starts as a server, and the variable with the address of a running one."""

FIELDS_SHOWN = ", ".join(f"{{{name}}}" for name in FIELDS)

Watched = Callable[[Plan], AbstractContextManager[Progress]]
"""Returns a context manager that displays the progress of a run."""


class TemplateError(RefusalIndexError, ValueError):
    """A model template that is invalid or cannot be used for a checkpoint."""


@dataclass(frozen=True)
class Watch:
    """The arguments of a watch.

    Attributes
    ----------
    folder, template
        The folder to which checkpoints are written, and the name of a checkpoint's model, as in ``vllm/{path}``.
    values
        All other settings of the runs, by name.
    out
        The panel's folder.
    every
        Seconds between scans; a checkpoint is evaluated once it has been unchanged for as long.
    until_idle
        Stop after this many seconds without a new checkpoint; None to continue until the budget ends.
    """

    folder: Path
    template: str
    values: Mapping[str, Any]
    out: Path
    every: float
    until_idle: float | None = None


@dataclass(frozen=True)
class CheckpointResult:
    """The result of a checkpoint.

    Attributes
    ----------
    checkpoint
        The checkpoint.
    result
        The result of its run; None if no run was started.
    error
        Why the run failed or was not started; None if it did not fail.
    left_out
        Why the checkpoint was still not evaluated when the watch ended; None if it was.
    """

    checkpoint: Checkpoint
    result: SetRun | None
    error: str | None = None
    left_out: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the checkpoint's run is complete."""
        return self.result is not None and self.result.status == "complete"


def prepare_watch(
    folder: Path,
    template: str,
    values: Mapping[str, Any],
    *,
    out: Path | None = None,
    every: float = 30.0,
    until_idle: float | None = None,
) -> Watch:
    """Return a watch after checking its arguments, as far as possible before the first checkpoint.

    Raises
    ------
    RefusalIndexError
        If the folder cannot be used, the template is invalid, its provider's package is missing, or a setting or the
        questions cannot be used.
    """
    check_template(template)
    target = checked_path(out or RUNS / f"{folder.resolve().name}-panel", "out")
    PanelFolder(target)
    watch = Watch(folder, template, values, target, every, until_idle)
    settings = Settings.from_values(**values)
    load_questions(settings)
    checkpoints = checkpoints_in(folder)
    itself = checkpoint_at(folder.resolve())
    if not checkpoints and itself is not None and itself.lacks is None:
        raise RunFolderError(f"{folder} is a checkpoint itself; name its parent folder, {itself.path.parent}")
    if not checkpoints and set_document(folder):
        raise RunFolderError(
            f"{folder} contains runs, not checkpoints; name the folder to which the training writes its checkpoints"
        )
    _check_server(template, settings)
    failed: list[RefusalIndexError] = []
    for checkpoint in checkpoints:
        try:
            _plan(watch, checkpoint)
        except (ModelError, TemplateError) as error:  # other checkpoints may be usable
            failed.append(error)
        except OSError:  # reported when the checkpoint is evaluated
            continue
        else:
            return watch
    if failed:
        raise failed[0]
    return watch


def _check_server(template: str, settings: Settings) -> None:
    """Raise ModelError if the provider would start a server with the first request but its package is missing.

    The package is not needed if an environment variable names a running server.
    """
    provider = template.partition("/")[0]
    address = SERVERS.get(provider, "") if settings.servers.base_url is None else ""
    if settings.sending.engine == DIRECT and address and not os.environ.get(address) and not find_spec(provider):
        raise ModelError(
            f"{provider} is not installed, but has to serve the checkpoints; pip install {provider}, or set {address} "
            "to the address of a running server"
        )


def check_template(template: str) -> None:
    """Raise TemplateError unless a template gives each checkpoint its own name.

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
            f"model template {template!r}: expected it to contain one of {FIELDS_SHOWN}, as in vllm/{{path}}; "
            "otherwise all checkpoints have the same model name"
        )


def model_of(template: str, checkpoint: Checkpoint) -> str:
    """Return the name of a checkpoint's model.

    Raises
    ------
    TemplateError
        If the template needs a step and the checkpoint has none, or if the name of the checkpoint's folder would select
        a Python function, so that a folder could choose which code is run.
    """
    if not is_utf8(str(checkpoint.path)):
        raise TemplateError(f"folder name: expected UTF-8, got {checkpoint.name!r}; rename the folder")
    if checkpoint.step is None and "{step" in template:
        raise TemplateError(
            f"model template {template!r}: expected a number in the name of {checkpoint.path}, found none"
        )
    name = template.format(path=checkpoint.path, name=checkpoint.name, step=checkpoint.step)
    if is_function_name(name) and name != template.format(path="", name="", step=checkpoint.step):
        raise TemplateError(
            f"model template {template!r}: expected the name of a function to be independent of the folder's name, got "
            f"{name!r} for {checkpoint.path}; write the function's name in the template and use no field other than "
            f"{{step}}"
        )
    return name


async def execute_watch(watch: Watch, watched: Watched, budget: Budget) -> AsyncIterator[CheckpointResult]:
    """Evaluate each checkpoint once it is complete and yield its result; at the end, yield the incomplete ones.

    Parameters
    ----------
    watch, watched
        The arguments of the watch, and a function that displays the progress of a run.
    budget
        Budget of all runs together; the watch stops when it is spent or the user interrupts it.
    """
    is_stable = StabilityCheck(watch.every)
    panel: PanelFolder | None = None
    done: dict[Path, Signature] = {}
    idle = 0.0
    with ExitStack() as holding:
        while True:
            waiting = []
            for checkpoint in checkpoints_in(watch.folder):
                if done.get(checkpoint.path) == checkpoint.signature:
                    continue
                if checkpoint.lacks is not None or not is_stable(checkpoint):
                    waiting.append(checkpoint)
                    continue
                done[checkpoint.path] = checkpoint.signature
                idle = 0.0
                if panel is None:  # without a checkpoint no folder is created
                    holding.enter_context(locked(watch.out))
                    panel = PanelFolder(watch.out)
                yield await _evaluated(watch, checkpoint, panel, watched, budget)
                if budget.is_over:
                    return
            settling = any(checkpoint.lacks is None for checkpoint in waiting)
            if watch.until_idle is not None and idle >= watch.until_idle and not settling:
                break
            await budget.sleep(watch.every)
            idle += watch.every
            if budget.is_over:
                return
    for checkpoint in waiting:
        yield CheckpointResult(checkpoint, None, left_out=checkpoint.lacks or "it is still being written")


async def _evaluated(
    watch: Watch, checkpoint: Checkpoint, panel: PanelFolder, watched: Watched, budget: Budget
) -> CheckpointResult:
    """Evaluate one checkpoint in its folder of the panel; errors become part of the result."""
    try:
        plan = _plan(watch, checkpoint)
    except (RefusalIndexError, OSError) as error:
        return CheckpointResult(checkpoint, None, str(error))
    with watched(plan) as progress:
        result = await evaluate_step(plan, panel, checkpoint.step, progress, budget)
    return CheckpointResult(checkpoint, result, result.error)


async def evaluate_step(
    plan: Plan, panel: PanelFolder, step: int | None, progress: Progress = ignore_events, budget: Budget | None = None
) -> SetRun:
    """Execute the run of a step and add its result to the panel; errors become part of the result."""
    try:
        result = SetRun(plan, await execute(plan, progress, budget))
    except WaitingError as error:
        result = SetRun(plan, error)
    except Exception as error:  # a provider that loads weights on this machine may raise anything
        message = str(error) if isinstance(error, RefusalIndexError) else f"{type(error).__name__}: {error}"
        result = SetRun(plan, RefusalIndexError(redacted_error(message)))
    panel.put(result, step)
    return result


def _plan(watch: Watch, checkpoint: Checkpoint) -> Plan:
    """Return the plan of a checkpoint's run, whose identity includes the hash of the weights."""
    settings = Settings.from_values(**{**watch.values, "model": model_of(watch.template, checkpoint)})
    plan = prepare(settings, runs=watch.out)
    identity = {**plan.identity, "weights": weights_digest(checkpoint)}
    folder = RunFolder(watch.out / checkpoint.name)
    title = (checkpoint.name, plan.dataset.name)
    return replace(plan, folder=folder, identity=identity, title=title)
