"""Checkpoints of a training, each evaluated once while the training goes on or after it.

- Checkpoints in a folder: which there are, in which order, and whether each is complete: its configuration can be read,
  all files that it names are there, the tensors of safetensors reach to the end of their files, and nothing changes
  between two looks.
- The hash of a checkpoint's weights, and a short tag of the weights in memory. Every weight counts, since a training
  may leave most of them as they are: new tokens alone, the last layers, an adapter.
- The panel: a set of runs in one folder, one for each checkpoint, all asked the same questions. It grows with the
  training, and running again adds to it and repeats no request.
- `RefusalIndexCallback` for the trainers of transformers and TRL: every so many steps the model in training is asked
  the panel, in memory or behind an endpoint, and the metrics go to the trainer's own tracker under the names of
  ``summary.json``. No error in it ends the training: each is one warning.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import string
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
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
from refusal_index.models.settings import SettingError
from refusal_index.plugins.training.generating import GeneratingModel, is_sharded, undisturbed
from refusal_index.redaction import redacted
from refusal_index.render.summary import numbers
from refusal_index.runs.api import plan_of
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import DIRECT, Progress, WaitingError
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import RUNS, Plan, load_questions, prepare
from refusal_index.runs.settings import Settings
from refusal_index.runs.sweep import CellResult, run_document
from refusal_index.runs.writing import Run, run_to_completion

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
        signature = tuple(_signature(place))
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


def _signature(place: Path) -> Iterator[tuple[str, int, int]]:
    for file in sorted(place.iterdir()):
        if file.is_file():
            status = file.stat()
            yield file.name, status.st_size, status.st_mtime_ns


def _lacking(place: Path, names: set[str]) -> Iterator[str]:
    """Say what a checkpoint lacks to be whole."""
    configurations = [name for name in CONFIGURATIONS if name in names]
    indexes = [name for name in INDEXES if name in names]
    files = [name for name in WEIGHTS if name in names]
    if not configurations:
        yield f"no {CONFIGURATIONS[0]}"
    yield from (f"{name} is not complete" for name in configurations if not isinstance(_document(place / name), dict))
    for name in indexes:
        shards = _shards(place / name)
        files += shards
        if not shards:
            yield f"{name} is not complete"
    if not files:
        yield "no weights"
    for name in files:
        if name not in names:
            yield f"no {name}"
        elif name.endswith(".safetensors") and not is_whole(place / name):
            yield f"{name} is not complete"


def _document(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None


def _shards(path: Path) -> list[str]:
    """Return the files that an index names; none where it cannot be read."""
    document = _document(path)
    named = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(named, dict) or not named or not all(isinstance(one, str) for one in named.values()):
        return []
    return sorted(set(named.values()))


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


NAME = "panel"

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
        # Of a step that was trained anew the last one counts: its weights are those that the training went on with.
        place = next((n for n, one in enumerate(self._runs) if _named(one) == _named(entry)), len(self._runs))
        if not any(_is_kept(one, entry) for one in self._runs[place : place + 1]):
            self._runs[place : place + 1] = [entry]
        self._runs = _in_order(self._runs)
        document = {
            "set_version": SET_VERSION,
            "name": NAME,
            "complete": all(one.get("status") == "complete" for one in self._runs),
            "runs": self._runs,
        }
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(self.path / SUMMARY, text.encode())


def _named(entry: dict[str, Any]) -> tuple[Any, Any]:
    return entry.get("model"), entry.get("dataset")


def _is_kept(before: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Whether what is known of a folder stays: one that came to nothing this time has the results that it had."""
    return before.get("folder") == entry["folder"] and before.get("summary") is not None and entry["summary"] is None


def _in_order(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries by their steps; those without a number of their own behind them, as they came."""
    numbered = sorted((one for one in entries if not one.get(UNNUMBERED)), key=_step)
    last = _step(numbered[-1]) if numbered else 0
    unnumbered = (one for one in entries if one.get(UNNUMBERED))
    return [*numbered, *({**one, "step": last + n} for n, one in enumerate(unnumbered, 1))]


def _step(entry: dict[str, Any]) -> int:
    step = entry.get("step")
    return step if isinstance(step, int) else 0


TAG = 8
"""Letters of a tag."""

AT_ONCE = 1 << 24
"""Numbers that are added up at once, as whole numbers of eight bytes."""


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


def weights_tag(model: Any) -> str:
    """Return a few letters that tell a model of torch in memory from itself at another step, or in another training.

    Of each parameter the bits of all numbers are added up where they lie, which takes a pass over the memory; unlike
    a sum of the numbers that is exact, and so the same on every device. Of a parameter that is spread over processes it
    is the part of this one.
    """
    import torch  # noqa: PLC0415 - of models in memory only

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        own = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        bits = own.detach().contiguous().view(whole[own.element_size()]).flatten()
        total = sum(int(part.sum(dtype=torch.int64)) for part in bits.split(AT_ONCE))
        digest.update(f"{name} {total} ".encode())
    return digest.hexdigest()[:TAG]


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
        raise RunFolderError(f"{folder} is a checkpoint itself; name its parent folder, {itself.path.parent}")
    if not found and set_document(folder):
        raise RunFolderError(f"{folder} holds runs, and no checkpoints; name the folder that the training writes to")


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


try:
    from transformers import Trainer, TrainerCallback
except ImportError:  # told when one is made
    Trainer, TrainerCallback = None, object

LOG = logging.getLogger(__name__)
SAVE = "save"
LONGEST = 600.0
"""Seconds of one step's questions, unless told otherwise."""

PANEL = {"variants": "normal", "grader": "exact", "temperature": 0, "max_tokens": 256, "limit": 200}
"""Settings of a panel unless told otherwise: at temperature 0 one reply a question is enough for RI."""


class RefusalIndexCallback(TrainerCallback):  # type: ignore[misc] # transformers is an extra: without it any class
    """Asks the model in training a fixed panel of questions, and logs the metrics with the trainer.

    Parameters
    ----------
    trainer
        The trainer that it is added to, whose tracker is logged to: of transformers, or of TRL.
    dataset
        The questions, as `evaluate` takes them; a sample of 200 of the almanac's unless given.
    every
        Ask every so many steps; ``"save"`` asks whenever a checkpoint is saved. The last step is asked in any case.
    out
        The panel's folder, with a run's folder for each step.
    model
        None for the model in memory, by its own ``generate``; else the name of an endpoint that serves it, as in
        ``openai-api/vllm/policy``.
    batch_size
        Conversations of the model in memory at a time.
    settings
        Any other setting of `evaluate`. Unless given, the variant is ``normal``, the grader ``exact``, the temperature
        0, the longest reply 256 tokens, the sample 200 questions, and the longest time for one step 600 seconds.

    Raises
    ------
    RefusalIndexError
        If the questions or a setting cannot be used. Once the training runs, it raises nothing.

    Examples
    --------
    >>> trainer.add_callback(RefusalIndexCallback(trainer, every=500, out="panel"))  # doctest: +SKIP
    """

    def __init__(
        self,
        trainer: Any,
        dataset: Any = None,
        *,
        every: int | str = SAVE,
        out: str | Path = RUNS / "panel",
        model: str | None = None,
        batch_size: int = 32,
        **settings: Any,
    ) -> None:
        if Trainer is None:
            raise ModelError("RefusalIndexCallback needs transformers: pip install 'refusal-index[transformers]'")
        self._trainer, self._dataset, self._endpoint = trainer, dataset, model
        self._every, self._batch_size = _checked(every, batch_size)
        self._panel = PanelFolder(Path(out))
        self._settings = {**PANEL, "max_time": LONGEST, **self._carried(), **settings}
        if model is None and float(self._settings["temperature"]) != 0:
            raise SettingError("{temperature}: expected 0 for a model in memory, which answers greedily")
        self._asked: int | None = None
        if trainer.is_world_process_zero():
            self._plan(0, "", GeneratingModel(None, None, "the model in training", batch_size))

    def _carried(self) -> dict[str, Any]:
        if self._endpoint is not None:
            return {"max_retries": 1}
        return {"max_connections": self._batch_size, "max_retries": 0}

    def on_step_end(self, _args: Any, state: Any, control: Any, **given: Any) -> None:
        """Ask after every so many steps, and after the last one."""
        last = state.global_step >= state.max_steps or control.should_training_stop
        if last or (self._every != SAVE and state.global_step % int(self._every) == 0):
            self._ask(state, control, given)

    def on_save(self, _args: Any, state: Any, control: Any, **given: Any) -> None:
        """Ask the model of which a checkpoint was saved."""
        if self._every == SAVE:
            self._ask(state, control, given)

    def on_train_end(self, _args: Any, state: Any, control: Any, **given: Any) -> None:
        """Ask at the end, where the training ended otherwise than after a step."""
        self._ask(state, control, given)

    def _ask(self, state: Any, control: Any, given: Any) -> None:
        """Ask the panel at this step, once; whatever goes wrong is a warning."""
        if not state.is_world_process_zero or self._asked == state.global_step:
            return
        self._asked, step = state.global_step, state.global_step
        try:
            run = self._measured(step, given["model"], given.get("processing_class"))
            with _flags_kept(control):
                Trainer.log(self._trainer, logged(run))
        except Exception as error:
            # A training of days is worth more than a point of a curve.
            said = str(error) if isinstance(error, RefusalIndexError) else f"{type(error).__name__}: {error}"
            LOG.warning("Refusal Index of step %s: %s", step, " ".join(redacted(said).split()))

    def _measured(self, step: int, model: Any, tokenizer: Any) -> Run:
        if self._endpoint is not None:
            return self._carried_out(self._plan(step, weights_tag(model), None), step)
        if is_sharded(model):
            raise ModelError(
                "no process holds the whole model, so that it cannot answer in memory; name an endpoint that serves "
                "it (model=...), or evaluate its checkpoints with 'refusal-index watch'"
            )
        if tokenizer is None:
            raise ModelError("the trainer has no tokenizer; give it one as processing_class")
        asked = GeneratingModel(model, tokenizer, "the model in training", self._batch_size)
        plan = self._plan(step, weights_tag(model), asked)
        with undisturbed(model), self._trainer.accelerator.autocast():
            return self._carried_out(plan, step)

    def _plan(self, step: int, tag: str, asked: GeneratingModel | None) -> Plan:
        # Another training into the same folder has other weights at the same step, and so another run.
        name = "-".join(filter(None, ("step", str(step), tag)))
        folder = self._panel.path / name
        model, named = (asked, name) if self._endpoint is None else (self._endpoint, None)
        plan = plan_of(model, self._dataset, model_name=named, out=folder, **self._settings)
        return replace(plan, title=(f"step {step:,}", plan.title[1]))

    def _carried_out(self, plan: Plan, step: int) -> Run:
        with held(self._panel.path):
            try:
                run = run_to_completion(execute(plan))
            except RefusalIndexError as error:
                self._panel.put(CellResult(plan, error=redacted(str(error))), step)
                raise
            self._panel.put(CellResult(plan, run), step)
        if not run.is_complete:
            failed = run.missing[0].error if run.missing else "too many replies have no grade"
            why = run.ended or failed
            raise RefusalIndexError(f"{run.path} is incomplete ({why}), and is not logged")
        return run


def logged(run: Run) -> dict[str, float]:
    """Return the metrics of a run with their intervals, by the names that they have in every tracker.

    As in ``normal/refusal_index`` and ``normal/refusal_index/low``. What is undefined is left out.
    """
    variants = (run.document or {}).get("variants", ())
    return numbers({"variants": [{"variant": one["variant"], "metrics": one["metrics"]} for one in variants]})


@contextmanager
def _flags_kept(control: Any) -> Iterator[None]:
    """Keep what the trainer was about to do: to log is to be done with logging, and the step's loss would be lost."""
    kept = dict(vars(control))
    try:
        yield
    finally:
        vars(control).update(kept)


def _checked(every: int | str, batch_size: int) -> tuple[int | str, int]:
    whole = isinstance(every, int) and not isinstance(every, bool) and every > 0
    if not whole and every != SAVE:
        raise SettingError(f"every: expected a number of steps or {SAVE!r}, got {every!r}")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise SettingError(f"batch_size: expected a whole number of at least 1, got {batch_size!r}")
    return every, batch_size
