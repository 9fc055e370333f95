"""Waves as files for ``vllm run-batch``, or a program like it, on this machine's own processors.

The program reads a file of requests and writes one of results at its end. Both lie in the run's folder, so that results
that were written before this process was killed are taken up, and not made again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

from refusal_index.almanac import ALMANAC
from refusal_index.engines.engine import Assignment, ModelError, RunFailedError
from refusal_index.engines.events import Underway
from refusal_index.engines.failures import RESUMES
from refusal_index.engines.functions import asked_by_name
from refusal_index.engines.settings import Settings
from refusal_index.engines.waves.engine import LARGEST_WAVE, WaveEngine
from refusal_index.engines.waves.formats import FORMATS, written
from refusal_index.engines.waves.leftover import Leftovers, left_first, read_lines
from refusal_index.engines.waves.result import Result
from refusal_index.engines.waves.wave import Pending
from refusal_index.outcomes.files import check_folder, check_plain
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import Asked
from refusal_index.redaction import redacted

VLLM = "vllm"
OURS = [sys.executable, "-c", "from refusal_index.cli import main; main()", "run-batch"]
FOLDER, REQUESTS, RESULTS = "waves", ".requests.jsonl", ".results.jsonl"
RESERVED = ("model", "i", "input-file", "o", "output-file", "served-model-name", "output-tmp-dir")
"""Options of the program that are not anybody else's to set."""

DEVICES = ("nvidia[0-9]*", "kfd", "dri/renderD*", "accel*", "accel/*", "vfio/[0-9]*", "dxg", "davinci[0-9]*")
"""What an accelerator that vLLM runs on looks like in /dev: of NVIDIA, AMD, Intel, Google, Huawei, or within WSL."""

AT_ONCE = 5_000  # results that are entered together
LOOK = 2.0  # seconds between looks at what the program says
LAST_LINES, LONGEST = 5, 300  # of its output in an error, and their characters
ROOM = 1 << 20  # bytes on a disk below which a program that said nothing may have had no room to

BAD_OPTION = 2
"""Status of a program that was given options which it does not have."""

FRAME = str.maketrans("", "", "╭╮╰╯│─")
REFUSED_OPTION = re.compile(r"unrecognized arguments|argument -|No such option|Invalid value")

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
"""Runs a program that ends as soon as the pipe to it is closed, which it is however this process ends."""


def vllm_engine(settings: Settings, names: Mapping[Asked, str], objects: Mapping[str, object]) -> WaveEngine:
    """Return an engine that has waves answered by ``vllm run-batch``; it takes what any engine takes.

    Raises
    ------
    ModelError
        If a model is none that such a program can be asked, or there is no program or no GPU.
    """
    for asked, name in asked_by_name(names, objects).items():
        check_program(asked, name)
    return WaveEngine(settings, names, objects, RunBatch(settings, names))


def check_program(asked: Asked, name: str) -> None:
    """Raise ModelError if a model cannot be run here."""
    role, provider = ("model" if asked is Asked.MODEL else "grader"), name.partition("/")[0]
    if provider not in (VLLM, ALMANAC):
        raise ModelError(
            f"{role} {name!r}: this engine runs weights on this machine: expected vllm/NAME, with a name that vLLM "
            "knows or the path of a folder; for an API choose {engine} http or batch"
        )
    if provider == ALMANAC:
        return
    if shutil.which(VLLM) is None:
        raise ModelError(
            f"{role} {name!r}: expected the program vllm, found none on the PATH; pip install vllm where the GPUs are, "
            "or choose {engine} http and a server"
        )
    for_processor = os.environ.get("VLLM_TARGET_DEVICE") == "cpu"
    if not for_processor and not any(next(Path("/dev").glob(one), None) for one in DEVICES):
        raise ModelError(
            f"{role} {name!r}: expected a GPU, found none on this machine; run where there is one, set "
            "VLLM_TARGET_DEVICE=cpu if this vLLM is built for processors, or choose {engine} http and a server"
        )


def command(name: str, requests: Path, results: Path, options: Iterable[tuple[str, str]]) -> list[str]:
    """Return the command that answers a file of requests.

    Parameters
    ----------
    name
        Of the model.
    requests, results
        The files.
    options
        Of the program: one that is true or false is a switch.

    Examples
    --------
    >>> options = [("tensor-parallel-size", "2"), ("enable-prefix-caching", "false")]
    >>> command("vllm/org/model", Path("in"), Path("out"), options)[6:]
    ['--model', 'org/model', '--tensor-parallel-size', '2', '--no-enable-prefix-caching']
    """
    provider, _, model = name.partition("/")
    program = [*OURS] if provider == ALMANAC else [VLLM, "run-batch"]
    program += ["-i", str(requests), "-o", str(results), "--model", name if provider == ALMANAC else model]
    for option, value in options:
        program += [f"--no-{option}"] if value == "false" else [f"--{option}"]
        program += [] if value in ("true", "false") else [value]
    return program


def checked_options(options: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return options of the program with plain names.

    Raises
    ------
    ModelError
        If one is of a name that this engine sets itself.
    """
    plain = [(name.lstrip("-").replace("_", "-"), value) for name, value in options]
    for name, value in plain:
        if name in RESERVED:
            raise ModelError(f"{{engine_option}}: {name} is set by the engine itself; leave out {name}={value}")
    return plain


class RunBatch:
    """Has waves answered by a program that reads and writes files, one model after the other.

    Parameters
    ----------
    settings, names
        Those of the run, and who is asked.
    """

    gives_choices = True
    largest_wave: int | None = LARGEST_WAVE

    def __init__(self, settings: Settings, names: Mapping[Asked, str]) -> None:
        self._names, self._options = names, checked_options(settings.sending.own_options)
        self._left = Leftovers([], len)

    @asynccontextmanager
    async def open(self, folder: RunFolder | None) -> AsyncIterator[None]:
        """Find what an earlier command left in the run's folder."""
        with tempfile.TemporaryDirectory(prefix="refusal-index-") as temporary:
            self._folder = _made((folder.path if folder else Path(temporary)) / FOLDER)
            files = sorted(self._folder.glob(f"*{RESULTS}"))
            self._left = Leftovers(((one.name, _lines(one)) for one in files), self._remove)
            yield

    def on_their_way(self) -> frozenset[str]:
        """Return the ids of requests whose results lie in the folder."""
        return self._left.ids

    def carry(self, requests: Sequence[Pending], assignment: Assignment) -> AsyncGenerator[Mapping[str, Result], None]:
        """Yield what lies in the folder, then what the program makes of the others.

        Raises
        ------
        ModelError
            If the program does not take an option as given.
        RunFailedError
            If the program fails; what it answered before is yielded.
        """
        return left_first(self._left, requests, self._names, assignment, self._answered)

    async def _answered(
        self, name: str, requests: Sequence[Pending], assignment: Assignment
    ) -> AsyncGenerator[Mapping[str, Result], None]:
        title = hashlib.sha256("\n".join([name, *sorted(one.custom_id for one in requests)]).encode()).hexdigest()[:16]
        source, target, log = (self._folder / f"{title}{ending}" for ending in (REQUESTS, RESULTS, ".log"))
        for old in (source, target):
            old.unlink(missing_ok=True)
        with source.open("x", encoding="utf-8") as file:
            style, model = FORMATS["compatible"], name.partition("/")[2]
            file.writelines(written(one, style, model) + "\n" for one in requests)
        status = await _run(command(name, source, target, self._options), log, assignment, name)
        results = read_lines(_lines(target), name) if target.exists() else iter(())
        while group := {one.custom_id: one for one in islice(results, AT_ONCE)}:
            yield group
        self._remove(target.name)
        if status == BAD_OPTION and assignment.breaker.reason is None and (told := _refused_option(log)):
            given = " ".join(f"{option}={value}" for option, value in self._options)
            raise ModelError(f"{{engine_option}}: the program does not take {given}: {told}")
        if status and assignment.breaker.reason is None:
            raise RunFailedError(f"{name}: the program ended with status {status}: {_end_of(log)}; {RESUMES}")

    def _remove(self, name: str) -> None:
        for ending in (RESULTS, REQUESTS):
            (self._folder / f"{name.removesuffix(RESULTS)}{ending}").unlink(missing_ok=True)


async def _run(program: Sequence[str], log: Path, assignment: Assignment, name: str) -> int:
    """Run a program, its output in a file, and return its status; it ends with this process, or with the run."""
    log.unlink(missing_ok=True)
    with log.open("xb") as output:
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
            await asyncio.wait([ended], timeout=LOOK)
            if line := _last_lines(log, 1):
                assignment.progress(Underway(f"{name}: {line[-80:]}"))
    finally:
        if process.stdin is not None:
            process.stdin.close()  # which ends what still runs
        await asyncio.shield(ended)
    return ended.result()


def _made(folder: Path) -> Path:
    try:
        check_folder(folder).mkdir(exist_ok=True)
    except OSError as error:
        raise ModelError(f"{folder}: expected a folder for requests and results; {error.strerror}") from error
    return folder


def _lines(path: Path) -> Iterator[str]:
    with check_plain(path).open(encoding="utf-8", errors="replace") as file:
        yield from file


def _end_of(log: Path) -> str:
    is_full = shutil.disk_usage(log.parent).free < ROOM
    silent = "it said nothing, and hardly any room is left on the disk" if is_full else "it said nothing"
    return f"{_last_lines(log, LAST_LINES)[-LONGEST:] or silent} (all it said is in {log})"


def _refused_option(log: Path) -> str:
    """Return what a program said of its options, without how it is used; nothing where it said no such thing."""
    said = " ".join(_last_lines(log, LAST_LINES).translate(FRAME).replace(" / ", " ").split())
    return said[found.start() :][:LONGEST] if (found := REFUSED_OPTION.search(said)) else ""


def _last_lines(log: Path, count: int) -> str:
    """Return the last lines of a file as one; what rewrites a line, as a bar does, leaves the last state of it."""
    with log.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 20_000, 0))
        said = file.read().decode("utf-8", "replace")
    lines = (line.strip().rsplit("\r", 1)[-1] for line in said.split("\n"))
    return redacted(" / ".join([line for line in lines if line][-count:]))
