"""The engine that has Inspect carry requests: its providers, and its logs for ``inspect view``.

Is the grader there? Asked before anything is paid for.
"""

from __future__ import annotations

import asyncio
import json
import threading
import zipfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval_async
from inspect_ai.log import EvalLog
from inspect_ai.model import GenerateConfig, Model, get_model
from inspect_ai.util import display_type
from inspect_ai.util._display import init_display_type

from refusal_index.engines.concurrency import seldom_collecting
from refusal_index.engines.engine import Assignment, ModelError, RunFailedError
from refusal_index.engines.failures import error_line, told
from refusal_index.engines.functions import (
    PATIENCE,
    RETRIES,
    AnsweringFunction,
    GradingFunction,
    checked,
    is_function_name,
    load_function,
    plain_ask,
    unanswered,
)
from refusal_index.engines.inspect.guard import (
    GRADER_ROLE,
    NO_RETRIES,
    SECOND_GRADER_ROLE,
    Session,
    chat_messages,
    clean_logs,
    guarded,
    working_for,
)
from refusal_index.engines.inspect.provider import function_model, resolve_model
from refusal_index.engines.inspect.task import task_of
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import ReplyStore
from refusal_index.outcomes.files import opened_file
from refusal_index.protocol import Asked, Completion


async def check_grader(grader: Model, asked: Asked) -> Completion:
    """Have the grader grade a plain case, and return its reply, which is about no question of the run.

    Raises
    ------
    ModelError
        If its key, its name or its verdict is not right.
    """
    config = GenerateConfig(max_retries=RETRIES, attempt_timeout=PATIENCE)
    try:
        output = await grader.generate(chat_messages(plain_ask(asked).request), config=config)
    except Exception as error:  # whatever the provider raises
        raise unanswered(str(grader), told(error)) from error
    usage = output.usage
    tokens = (usage.input_tokens, usage.output_tokens) if usage else (0, 0)
    return checked(str(grader), asked, output.completion, *tokens)


WAIT = 0.05  # seconds between looks whether another thread is done
LOG_BUFFER = 100  # questions between writes of the log: what a kill loses of it is in the store
NO_MODEL = "none/none"  # Inspect's own for a task that asks nobody
HEADER, START = "header.json", "_journal/start.json"  # a log has the second one only until it is complete
MAX_HEADER = 64 << 20  # bytes
UNREADABLE = object()
ROLES = {Asked.GRADER: GRADER_ROLE, Asked.SECOND_GRADER: SECOND_GRADER_ROLE}

_turn = threading.Lock()
"""Inspect runs one evaluation a process at a time; those of other threads wait for their turn."""


class InspectEngine:
    """Carries requests through Inspect.

    Parameters
    ----------
    settings
        Those of the run.
    names
        Whom it asks; without a model where only grades are asked for.
    objects
        Models of Inspect's and functions, by the name that stands for them.

    Raises
    ------
    ModelError
        If one of them cannot be asked.
    """

    together = False

    def __init__(self, settings: Settings, names: Mapping[Asked, str], objects: Mapping[str, object]) -> None:
        self._settings = settings
        self._own: list[Model] = []  # a user's own models stay open
        self._functions: dict[Asked, GradingFunction] = {}
        self._graders: dict[Asked, Model] = {}
        once = GenerateConfig(max_retries=NO_RETRIES)
        for asked in ROLES:
            if asked in names:
                self._add_grader(asked, names[asked], objects, once)
        stand_in = next(iter(self._graders.values()), None)
        if Asked.MODEL in names:
            self._model = self._resolved(names[Asked.MODEL], objects, None, "model")
        else:
            self._model = stand_in or get_model(NO_MODEL, memoize=False)

    def _add_grader(self, asked: Asked, name: str, objects: Mapping[str, object], config: GenerateConfig) -> None:
        given: Any = objects.get(name)
        if is_function_name(name) or (callable(given) and not isinstance(given, Model)):
            self._functions[asked] = GradingFunction(given or load_function(name, "grader"), name)
            return
        try:
            self._graders[asked] = self._resolved(name, objects, config, "grader")
        except ModelError as error:
            raise ModelError(
                f"grader: {error.args[0].rstrip('.')}; choose another one, or {{grader}} exact, which asks nobody"
            ) from error

    def _resolved(self, name: str, objects: Mapping[str, object], config: GenerateConfig | None, role: str) -> Model:
        given: Any = objects.get(name)
        if isinstance(given, Model):
            return guarded(given)
        if is_function_name(name) or given is not None:
            function = given or load_function(name, role)
            model = function_model(AnsweringFunction(function, name), config)
        else:
            greedy = role == "model" and self._settings.decoding.temperature == 0
            model = resolve_model(name, config, greedy=greedy)
        self._own.append(model)
        return model

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:
        """Check the graders that have not replied before, and close all models at the end.

        Raises
        ------
        ModelError
            If a grader does not grade a plain case rightly.
        """
        async with AsyncExitStack() as stack:
            for model in self._own:
                await stack.enter_async_context(model)
            for asked, grader in self._graders.items():
                if store is None or not store.has_heard(asked):
                    checked = await check_grader(grader, asked)
                    if store is not None:
                        store.put([checked])
            yield

    async def carry(self, assignment: Assignment) -> None:
        """Run one evaluation of Inspect's; beside what the store holds, its log comes of it."""
        async with _in_turn():
            superseded = _logs_of(assignment)
            with at_work(), clean_logs(), working_for(self._session(assignment)):
                await self._evaluate(task_of(assignment), assignment)
        for path in superseded if assignment.breaker.reason is None else ():
            path.unlink()  # the new log shows all that it did

    def _session(self, assignment: Assignment) -> Session:
        conversations = {one.question.question_id: one for one in assignment.conversations}
        return Session(assignment, conversations, self._functions)

    async def _evaluate(self, task: Task, assignment: Assignment) -> None:
        # In a task of its own: Inspect takes a cancellation of the one that it runs in for an interruption.
        running, ours = asyncio.create_task(self._eval(task, assignment)), asyncio.current_task()
        ending = asyncio.create_task(_cancel_at_end(running, assignment))
        try:
            logs = await running
        except asyncio.CancelledError:
            if assignment.breaker.reason is None or (ours and ours.cancelling()):
                raise
            logs = []
        finally:
            ending.cancel()
        if ours and ours.cancelling():
            raise asyncio.CancelledError  # Inspect keeps a cancellation to itself
        if assignment.breaker.reason is not None:
            return
        if not logs or logs[0].status == "cancelled":
            raise KeyboardInterrupt
        if logs[0].status != "success":
            said = logs[0].error.message if logs[0].error else "no reason given"
            raise RunFailedError(f"{task.name}: Inspect ended with status {logs[0].status!r}: {error_line(said)}")

    async def _eval(self, task: Task, assignment: Assignment) -> list[EvalLog]:
        sending, folder = self._settings.sending, assignment.folder
        return await eval_async(
            task,
            model=self._model,
            model_roles={ROLES[asked]: model for asked, model in self._graders.items()},
            log_dir=str(folder.logs) if folder else None,
            log_level="error",
            log_level_transcript="error",
            score_display=False,
            log_realtime=False,
            log_buffer=LOG_BUFFER,
            log_header_only=True,
            log_model_api=False,
            acp_server=False,
            ctl_server=False,
            fail_on_error=False,
            continue_on_fail=True,
            max_retries=NO_RETRIES,
            max_connections=sending.max_connections,
        )


async def _cancel_at_end(running: asyncio.Task[Any], assignment: Assignment) -> None:
    """Keep Inspect from going through every question that is left, to ask nothing."""
    await assignment.ended()
    running.cancel()


@asynccontextmanager
async def _in_turn() -> AsyncIterator[None]:
    while not _turn.acquire(blocking=False):
        await asyncio.sleep(WAIT)
    try:
        yield
    finally:
        _turn.release()


def _logs_of(assignment: Assignment) -> list[Path]:
    """Return the logs that a variant has so far, and those that cannot be read, as a kill leaves them."""
    paths = assignment.folder.logs.glob("*.eval") if assignment.folder else ()
    return [path for path in paths if _variant_in(path) in (assignment.variant, UNREADABLE)]


def _variant_in(path: Path) -> object:
    """Return the variant that the header of a log names, None in a log of another task, or `UNREADABLE`."""
    try:
        with opened_file(path) as file, zipfile.ZipFile(file) as archive:
            with archive.open(HEADER if HEADER in archive.namelist() else START) as part:
                document = json.loads(part.read(MAX_HEADER))
            return (document["eval"].get("metadata") or {}).get("variant")
    except Exception:  # whatever readers of archives and JSON raise
        return UNREADABLE


@contextmanager
def at_work() -> Iterator[None]:
    """Let Inspect show nothing, and collect garbage rarely, while the block runs."""
    shown = display_type()
    init_display_type("none")
    try:
        with seldom_collecting():
            yield
    finally:
        init_display_type(shown)
