"""Checkpoints of a training, each evaluated once while the training goes on or after it.

- Checkpoints in a folder: which there are, in which order, and whether each is complete: its configuration can be read,
  all files that it names are there, the tensors of safetensors reach to the end of their files, and nothing changes
  between two looks. The hash of its weights belongs to its run: every weight counts, since a training may leave most of
  them as they are, and change new tokens alone, the last layers or an adapter.
- The panel: a set of runs in one folder, one for each checkpoint, all asked the same questions. It grows with the
  training, and running again adds to it and repeats no request.
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

from refusal_index.data.errors import RunFolderError, checked_path, is_utf8, suggestion
from refusal_index.data.files import held, write_atomically
from refusal_index.data.folder import SET_VERSION, SUMMARY, RunFolder, check_set_version, set_document
from refusal_index.errors import RefusalIndexError
from refusal_index.models.functions import is_function_name
from refusal_index.models.requests import ModelError
from refusal_index.redaction import redacted
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import DIRECT, Progress, WaitingError
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import RUNS, Plan, load_questions, prepare
from refusal_index.runs.settings import Settings
from refusal_index.runs.sweep import CellResult, run_document

CONFIGURATIONS = ("config.json", "adapter_config.json")
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
LONGEST_HEADER = 100_000_000
"""Bytes of the header of safetensors at most, as its own reader has it."""

_NAMED = re.compile(r"checkpoint-\d+")
"""What trainers call a checkpoint's folder: it is one from its first moment on, whatever it holds."""

_STEP = re.compile(r"(\d+)(?!.*\d)")

Signature = tuple[tuple[str, int, int], ...]
"""Name, size and time of every file."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder that holds a checkpoint, or will.

    Attributes
    ----------
    path
        The folder.
    step
        The last number in its name; None where it has none.
    signature
        Of its files as they are now.
    lacks
        What it lacks to be whole, in a few words; None where it is.
    """

    path: Path
    step: int | None
    signature: Signature
    lacks: str | None

    @property
    def name(self) -> str:
        """What to call it."""
        return self.path.name

    @property
    def changed(self) -> float:
        """When a file of it was last written, in seconds since the epoch."""
        return max((time for _, _, time in self.signature), default=0) / 1e9


def checkpoints_in(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints of a training: by step, and after those by time where the name tells none.

    A folder without any file of weights or configuration is none of them, unless it is called ``checkpoint-N``.

    Raises
    ------
    RunFolderError
        If the folder cannot be read.
    """
    try:
        places = [place for place in folder.iterdir() if not place.name.startswith((".", "tmp-"))]
    except OSError as error:
        raise RunFolderError(
            f"{folder}: expected the folder that the training writes checkpoints to ({error.strerror}); check the path"
        ) from error
    found = [one for place in places if (one := checkpoint_at(place)) is not None]
    return sorted(found, key=lambda one: (one.step is None, one.step or 0, one.changed, one.name))


def checkpoint_at(place: Path) -> Checkpoint | None:
    """Look at one folder; None where it is no checkpoint, or was removed meanwhile."""
    signature: Signature = ()
    try:
        files = ((file.name, file.stat()) for file in sorted(place.iterdir()) if file.is_file())
        signature = tuple((name, status.st_size, status.st_mtime_ns) for name, status in files)
        names = {name for name, _, _ in signature}
        if not names & {*CONFIGURATIONS, *WEIGHTS, *INDEXES} and not _NAMED.fullmatch(place.name):
            return None
        lacks = next(_lacking(place, names), None)
    except (FileNotFoundError, NotADirectoryError):  # trainings keep the last few only
        return None
    except OSError as error:  # another look may read it
        lacks = f"it cannot be read ({error.strerror})"
    return Checkpoint(place, step_of(place.name), signature, lacks)


def step_of(name: str) -> int | None:
    """Return the last number in a name.

    >>> step_of("checkpoint-2000"), step_of("epoch1-step500"), step_of("final")
    (2000, 500, None)
    """
    found = _STEP.search(name)
    return int(found[1]) if found and len(found[1]) <= 12 else None


def _lacking(place: Path, names: set[str]) -> Iterator[str]:
    """Say what a checkpoint lacks to be whole."""
    configurations, indexes, files = ([n for n in known if n in names] for known in (CONFIGURATIONS, INDEXES, WEIGHTS))
    if not configurations:
        yield f"no {CONFIGURATIONS[0]}"
    yield from (f"{name} is not complete" for name in configurations if _document(place / name) is None)
    for name in indexes:
        shards = (_document(place / name) or {}).get("weight_map")
        if isinstance(shards, dict) and shards and all(isinstance(one, str) for one in shards.values()):
            files += sorted(set(shards.values()))
        else:
            yield f"{name} is not complete"
    if not files:
        yield "no weights"
    for name in files:
        if name not in names:
            yield f"no {name}"
        elif name.endswith(".safetensors") and not is_whole(place / name):
            yield f"{name} is not complete"


def _document(path: Path) -> dict[str, Any] | None:
    """Return what a file holds as JSON; None where it is no whole object."""
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def is_whole(path: Path) -> bool:
    """Whether the tensors that the header of a file of safetensors names reach to its end, and not beyond."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 0 < length <= min(LONGEST_HEADER, size - 8):
            return False
        try:
            header = json.loads(file.read(length))
            ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
            return bool(8 + length + max(ends, default=0) == size)
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
            return False


class Settled:
    """Tells which checkpoints no longer change.

    Parameters
    ----------
    seconds
        How long nothing of a checkpoint may have changed.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: dict[Path, tuple[Signature, float]] = {}

    def __call__(self, one: Checkpoint) -> bool:
        """Whether a checkpoint is as it was so long ago, by what was seen of it or by the times of its files."""
        now = time.monotonic()
        signature, since = self._seen.get(one.path, (None, now))
        if signature != one.signature:
            self._seen[one.path] = one.signature, now
            since = now
        return now - since >= self._seconds or time.time() - one.changed >= self._seconds


UNNUMBERED = "step_by_order"
"""Marks an entry whose step is not said by the name of its checkpoint."""


class PanelFolder:
    """The folder of a panel.

    Parameters
    ----------
    path
        Where it lies or will.

    Raises
    ------
    RunFolderError
        If it is the folder of something else.
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
        self._runs: list[dict[str, Any]] = [one for one in runs if isinstance(one, dict)] if runs else []

    def put(self, result: CellResult, step: int | None) -> None:
        """Add what became of a checkpoint, in the place of what was known of it before, and write the summary.

        Those without a number of their own come one step after another behind all others.
        """
        entry = {**run_document(result), "step": step, **({UNNUMBERED: True} if step is None else {})}
        names = [(one.get("model"), one.get("dataset")) for one in self._runs]
        own = (entry["model"], entry["dataset"])
        # Of a step that was trained again the last one counts: its weights are those that the training went on with.
        place = names.index(own) if own in names else len(names)
        # What came to nothing this time has the results that it had.
        is_kept = entry["summary"] is None and any(
            one.get("folder") == entry["folder"] and one.get("summary") is not None
            for one in self._runs[place : place + 1]
        )
        if not is_kept:
            self._runs[place : place + 1] = [entry]
        numbered = sorted((one for one in self._runs if not one.get(UNNUMBERED)), key=_step)
        last = _step(numbered[-1]) if numbered else 0
        unnumbered = (one for one in self._runs if one.get(UNNUMBERED))
        self._runs = [*numbered, *({**one, "step": last + n} for n, one in enumerate(unnumbered, 1))]
        document = {
            "set_version": SET_VERSION,
            "name": "panel",
            "complete": all(one.get("status") == "complete" for one in self._runs),
            "runs": self._runs,
        }
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(self.path / SUMMARY, text.encode())


def _step(entry: dict[str, Any]) -> int:
    step = entry.get("step")
    return step if isinstance(step, int) else 0


@lru_cache(maxsize=1)  # a watch asks for that of its first checkpoint twice
def weights_digest(one: Checkpoint) -> str:
    """Return a hash of all files of weights of a checkpoint; a second a gigabyte, which loading them reads anyway.

    Raises
    ------
    OSError
        If one of them cannot be read.
    """
    digest = hashlib.sha256()
    for name, size, _ in one.signature:
        if name.endswith((".safetensors", ".bin")):
            digest.update(f"{name} {size} ".encode())
            with (one.path / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, hashlib.sha256).digest())
    return digest.hexdigest()


FIELDS = ("path", "name", "step")
"""What a template of a model's name may hold of a checkpoint."""

SERVERS = {"vllm": "VLLM_BASE_URL", "sglang": "SGLANG_BASE_URL"}
"""Packages by which a provider of the same name serves weights, and the variable that names a server instead."""

FIELDS_SHOWN = ", ".join(f"{{{name}}}" for name in FIELDS)

Watched = Callable[[Plan], AbstractContextManager[Progress]]
"""Gives what is told of a run's progress."""


class TemplateError(RefusalIndexError, ValueError):
    """A template of models that gives two checkpoints the same name."""


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

    @property
    def is_complete(self) -> bool:
        """Whether its run is."""
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
    """Check what can be checked before there is a checkpoint.

    Raises
    ------
    RefusalIndexError
        If the folder is none, the template names no checkpoint or a provider that lacks its package, or a setting or
        the questions cannot be used.
    """
    check_template(template)
    place = checked_path(out or RUNS / f"{folder.resolve().name}-panel", "out")
    PanelFolder(place)
    watch = Watch(folder, template, values, place, every, until_idle)
    settings = Settings.of(**values)
    load_questions(settings)
    found = checkpoints_in(folder)
    itself = checkpoint_at(folder.resolve())
    if not found and itself is not None and itself.lacks is None:
        raise RunFolderError(f"{folder} is a checkpoint itself; name its parent folder, {itself.path.parent}")
    if not found and set_document(folder):
        raise RunFolderError(f"{folder} holds runs, and no checkpoints; name the folder that the training writes to")
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


def _check_server(template: str, settings: Settings) -> None:
    """Raise ModelError if the program that would serve the weights is not there: it is started with the first request.

    A server that runs already needs no such program here.
    """
    provider = template.partition("/")[0]
    address = SERVERS.get(provider, "")
    if settings.sending.engine == DIRECT and address and not os.environ.get(address) and not find_spec(provider):
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
    """Return the name of a checkpoint's model.

    Raises
    ------
    TemplateError
        If it takes a step, and there is none; or if what the checkpoint is called chose a function, which is code.
    """
    if not is_utf8(str(one.path)):
        raise TemplateError(f"the folder's name: expected text in UTF-8, got {one.name!r}; rename the folder")
    if one.step is None and "{step" in template:
        raise TemplateError(f"model template {template!r}: expected a number in the name of {one.path}, found none")
    name = template.format(path=one.path, name=one.name, step=one.step)
    if is_function_name(name) and name != template.format(path="", name="", step=one.step):
        raise TemplateError(
            f"model template {template!r}: expected a function that the template alone names, got {name!r} for "
            f"{one.path}; what a folder is called chooses no code: name the function, with {{step}} at most"
        )
    return name


async def execute_watch(watch: Watch, watched: Watched, budget: Budget) -> AsyncIterator[CheckpointResult]:
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
                if budget.is_over:
                    return
            settling = any(one.lacks is None for one in waiting)
            if watch.until_idle is not None and idle >= watch.until_idle and not settling:
                break
            await budget.sleep(watch.every)
            idle += watch.every
            if budget.is_over:
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
            result = CellResult(plan, await execute(plan, progress, budget))
    except WaitingError as error:
        result = CellResult(plan, waits=str(error))
    except Exception as error:  # whatever a provider raises that loads weights on this machine
        told = str(error) if isinstance(error, RefusalIndexError) else f"{type(error).__name__}: {error}"
        result = CellResult(plan, error=redacted(told))
    panel.put(result, one.step)
    return CheckpointResult(one, result, result.error)


def _plan(watch: Watch, one: Checkpoint) -> Plan:
    """Return the run of a checkpoint: the hash of its weights is a part of what its replies depend on."""
    settings = Settings.of(**{**watch.values, "model": model_of(watch.template, one)})
    plan = prepare(settings, runs=watch.out)
    identity = {**plan.identity, "weights": weights_digest(one)}
    return replace(plan, folder=RunFolder(watch.out / one.name), identity=identity, title=(one.name, plan.dataset.name))
