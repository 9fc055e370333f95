"""The engine that runs a command such as ``vllm run-batch``, and the factory of the Ray engine.

A command turns a file of requests into a file of replies. Both are in OpenAI's batch format and stay in the run's
folder, so replies written before this process was killed are not requested again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from itertools import islice, pairwise
from pathlib import Path

from refusal_index.data.files import check_folder, check_plain, working_folder
from refusal_index.data.folder import RunFolder
from refusal_index.models.accounts import asked_as
from refusal_index.models.failures import RESUMES
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import SettingError
from refusal_index.plugins.batches.engine import FOLDER, REPLIES, BatchEngine, FileExecutor, models_by_role, read_lines
from refusal_index.plugins.batches.formats import FORMATS, RequestResult, to_line
from refusal_index.plugins.batches.rounds import Pending
from refusal_index.protocol import Role
from refusal_index.redaction import redacted_error, remember_named
from refusal_index.runs.engine import Assignment, RunFailedError
from refusal_index.runs.events import Underway
from refusal_index.runs.settings import Settings

REQUESTS = ".requests.jsonl"
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
EXPECTED = (
    "{command}: expected a program with the placeholders {{requests}} and {{replies}}, and {{model}} where it takes "
    "one, for instance 'vllm run-batch -i {{requests}} -o {{replies}} --model {{model}}'; got "
)

STORED_TOGETHER = 5_000  # results
POLL = 2.0  # seconds between reads of the program's output
MAX_LOG = 1 << 18  # bytes kept from the end of the output
LAST_LINES = 5  # lines of output in an error message
MAX_SHOWN = 300  # characters of them

TETHER = """
import os, signal, subprocess, sys, threading, time
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def end():
    while os.read(0, 1): pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(10)
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=end, daemon=True).start()
status = child.wait()
sys.exit(128 - status if status < 0 else status)
"""
"""A script that runs a program and ends it when the script's standard input closes, even if this process is killed."""


def command_engine(settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> BatchEngine:
    """Return an engine that sends requests through the command in the settings.

    Raises
    ------
    SettingError
        If the command cannot be run, or cannot serve all of the models.
    """
    models = models_by_role(names, objects)
    words = command_words(settings.sending.command)
    first = next(iter(models.values()), "")
    providers = {role: asked_as(settings.servers, role, name) for role, name in models.items()}
    first_provider = next((provider for provider, _ in providers.values()), "")
    for role, name in models.items():
        (provider, model) = providers[role]
        title = "model" if role is Role.MODEL else "grader"
        if provider != first_provider:
            alike = f"{first_provider}/NAME" if first_provider else "a model with an address"
            raise ModelError(
                f"{title} {name!r}: one command cannot serve it and {first!r}; expected {alike}, a rule such as "
                "exact, or a function"
            )
        if model.startswith("-"):
            raise ModelError(f"{title} {name!r}: expected a name that does not start with '-'")
    return BatchEngine(settings, names, objects, CommandExecutor(words, settings, models))


def command_words(command: str | None) -> list[str]:
    """Split a command into words as a shell does, and check that it can be run.

    Raises
    ------
    SettingError
        If the command lacks a placeholder, is badly quoted, or names a program that is not on the PATH.

    Examples
    --------
    >>> command_words("python -c 'import answer' {requests} {replies}")
    ['python', '-c', 'import answer', '{requests}', '{replies}']
    """
    names = PLACEHOLDER.findall(command or "")
    if command is None or not {"requests", "replies"} <= {*names} <= {"requests", "replies", "model"}:
        raise SettingError(EXPECTED + (", ".join(f"{{{{{name}}}}}" for name in names) or "none"))
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SettingError(f"{{command}}: expected words and quotes as in a shell ({error})") from error
    for name, value in (*pairwise(words), *(word.partition("=")[::2] for word in words)):
        remember_named({name: value})  # a key, as in --api-key VALUE or --api-key=VALUE
    if shutil.which(words[0]) is None:
        raise SettingError(
            f"{{command}}: found no program {redacted_error(words[0])!r} on the PATH; install it or name its path"
        )
    return words


EXTRA = "ray"
NEEDED = ("ray", "pyarrow", "pandas", "fsspec")


def ray_engine(settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> BatchEngine:
    """Return an engine that sends requests to a Ray cluster.

    Raises
    ------
    ModelError
        If Ray is not installed, or a model cannot be used.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ModelError(f"{{engine}} ray needs {', '.join(missing)}; pip install 'refusal-index[{EXTRA}]'")
    from refusal_index.plugins.batches.ray_executor import RayExecutor  # noqa: PLC0415 - optional, and slow to import

    return BatchEngine(settings, names, objects, RayExecutor(settings, models_by_role(names, objects)))


class CommandExecutor(FileExecutor):
    """Runs a command on a file of requests.

    Parameters
    ----------
    words
        The words of the command, with placeholders.
    settings, names
        The settings of the run, and the model names, by role.
    """

    def __init__(self, words: Sequence[str], settings: Settings, names: Mapping[Role, str]) -> None:
        super().__init__(settings, names)
        self._words = words

    @asynccontextmanager
    async def open(self, folder: RunFolder | None) -> AsyncIterator[None]:
        """Load the replies that an earlier command left in the run's folder."""
        with working_folder() as temporary:
            self._folder = (folder.path.absolute() if folder else temporary) / FOLDER
            try:
                check_folder(self._folder).mkdir(exist_ok=True)
            except OSError as error:
                raise ModelError(
                    f"{self._folder}: expected a folder for requests and replies; {error.strerror}"
                ) from error
            self._load((path.name, _lines(path)) for path in sorted(self._folder.glob(f"*{REPLIES}")))
            yield

    async def _answers(
        self, name: str, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, RequestResult], None]:
        title = hashlib.sha256(
            "\n".join([name, *sorted(request.custom_id for request in requests)]).encode()
        ).hexdigest()[:16]
        source, target, log = (self._folder / f"{title}{ending}" for ending in (REQUESTS, REPLIES, ".log"))
        for old in (source, target, log):
            old.unlink(missing_ok=True)
        model = self._asked_as(name)[1]
        with source.open("x", encoding="utf-8") as file:
            file.writelines(
                to_line(request.custom_id, request.ask, FORMATS["compatible"], model) + "\n" for request in requests
            )
        values = {"requests": str(source), "replies": str(target), "model": model}
        program = [PLACEHOLDER.sub(lambda match: values[match[1]], word) for word in self._words]
        status, output = await _run(program, log, assignment, name)
        is_written = target.exists()
        results = read_lines(_lines(target), name) if is_written else iter(())
        while group := {result.custom_id: result for result in islice(results, STORED_TOGETHER)}:
            yield group
        self._remove(target.name)
        if assignment.breaker.reason is None and (status or not is_written):
            how = f"{name}: the command ended with status {status}{'' if is_written else ' and wrote no replies'}"
            raise RunFailedError(f"{how}: {output[-MAX_SHOWN:] or 'no output'} (see {log}); {RESUMES}")

    def _remove(self, file: str) -> None:
        for ending in (REPLIES, REQUESTS):
            (self._folder / f"{file.removesuffix(REPLIES)}{ending}").unlink(missing_ok=True)


async def _run(program: Sequence[str], log: Path, assignment: Assignment, name: str) -> tuple[int, str]:
    """Run a program until it or the run ends, and return its status and the last lines of its output."""
    with tempfile.TemporaryFile() as output:  # unnamed, since unredacted output may hold secrets
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", TETHER, *program),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        ended = asyncio.ensure_future(process.wait())
        try:
            while not ended.done() and assignment.breaker.reason is None:
                await asyncio.wait([ended], timeout=POLL)
                if lines := _logged(output.fileno(), log):
                    assignment.progress(Underway(f"{name}: {lines[-1][-80:]}"))
        finally:
            if process.stdin is not None:
                process.stdin.close()  # ends the program
            await asyncio.shield(ended)
            lines = _logged(output.fileno(), log, is_over=True)
    return ended.result(), " / ".join(lines[-LAST_LINES:])


def _logged(output: int, log: Path, *, is_over: bool = False) -> list[str]:
    """Write the last lines of a program's output to a log file, redacted, and return them."""
    start = max(os.fstat(output).st_size - MAX_LOG, 0)
    text = redacted_error(os.pread(output, MAX_LOG, start).decode("utf-8", "replace"))
    complete_lines = re.split(r"[\r\n]+", text)[start > 0 : None if is_over else -1]
    lines = [line for raw in complete_lines if (line := raw.strip())]
    with suppress(OSError):  # such as a full disk
        log.write_text("\n".join(lines), "utf-8")
    return lines


def _lines(path: Path) -> Iterator[str]:
    with check_plain(path).open(encoding="utf-8", errors="replace") as file:
        yield from file
