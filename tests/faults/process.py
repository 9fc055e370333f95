"""The command in a process of its own, forked from one that has imported everything: quick to start, real to kill."""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
WAITS = (
    ("refusal_index.models.failures", "FIRST_WAIT", 0.02),
    ("refusal_index.plugins.batches.engine", "FIRST_WAIT", 0.02),
    ("refusal_index.plugins.batches.providers", "SETTLED", 0.3),
    ("refusal_index.plugins.batches.providers", "OUTAGE", 3.0),
)
"""Seconds to wait for the first time until something is done again, or given up, and where they stand."""

PRELOADED = ("tests.faults.preloaded",)


@dataclass(frozen=True)
class Surroundings:
    """Where a command runs.

    Attributes
    ----------
    environment
        Variables beside those of this process; None takes one away.
    fresh
        Whether in an interpreter of its own, which reads its surroundings again, and not in a fork.
    terminal, closed
        Whether its output goes to a terminal, or into a pipe that nobody reads any more.
    clock
        Seconds by which the clock jumps, back and forth, at every other look.
    nohup
        Whether SIGHUP is ignored from the start.
    locks
        Whether the lock of a folder keeps others out, which it does not on every file system.
    dies
        Before which of the changes that Python makes to files it is killed (kill -9), counted from 1; 0 only counts
        them.
    """

    environment: tuple[tuple[str, str | None], ...] = ()
    fresh: bool = False
    terminal: bool = False
    closed: bool = False
    clock: float = 0.0
    nohup: bool = False
    locks: bool = True
    dies: int | None = None


ORDINARY = Surroundings()


@dataclass(frozen=True)
class Ended:
    """How a command ended; a status of None says that it was killed since it did not."""

    status: int | None
    out: str
    err: str
    seconds: float


@dataclass
class Command:
    """A command that runs."""

    process: BaseProcess | subprocess.Popen[bytes]
    output: Path
    started: float = field(default_factory=time.monotonic)
    peaks: list[tuple[float, int]] = field(default_factory=list)

    def send(self, *signals: int, pause: float = 0.1) -> None:
        """Send it signals, one after the other."""
        for place, number in enumerate(signals):
            time.sleep(pause if place else 0)
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(self.process.pid or 0), number)

    def memory(self) -> int:
        """Return the bytes that it holds now."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")

    def wait(self, timeout: float) -> Ended:
        """Wait until it ends, or kill it."""
        status = self._status(timeout)
        out, err = (self.output.with_suffix(kind).read_text("utf-8", "replace") for kind in (".out", ".err"))
        return Ended(status, out, err, time.monotonic() - self.started)

    def _status(self, timeout: float) -> int | None:
        if isinstance(self.process, subprocess.Popen):
            try:
                return self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                return None
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            return None
        return self.process.exitcode


def start(
    arguments: Sequence[str],
    folder: Path,
    output: Path,
    environment: Mapping[str, str],
    around: Surroundings = ORDINARY,
) -> Command:
    """Start ``refusal-index`` with these arguments in a folder.

    Parameters
    ----------
    output
        What its output is called, without the ending.
    environment, around
        Variables that it needs, and where else it differs from an ordinary run.
    """
    output.with_suffix(".out").touch()
    output.with_suffix(".err").touch()
    variables = {**environment, **dict(around.environment)}
    call = (list(arguments), str(folder), str(output), variables, around)
    if around.fresh:
        return Command(_fresh(*call), output)
    with _lock:
        process = _server().Process(target=_forked, args=call)
        ours = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # otherwise every fork imports this process's main module
        try:
            process.start()
        finally:
            sys.modules["__main__"] = ours
    return Command(process, output)


_lock = threading.Lock()


@cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def _forked(
    arguments: list[str], folder: str, output: str, variables: Mapping[str, str | None], around: Surroundings
) -> None:
    """Become the command."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_IGN if around.nohup else signal.SIG_DFL)
    for name, value in variables.items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
    _redirect(output, around)
    os.chdir(folder)
    become(arguments, around, output)


def _redirect(output: str, around: Surroundings) -> None:
    out, err = (os.open(output + kind, os.O_WRONLY | os.O_APPEND) for kind in (".out", ".err"))
    if around.closed:
        reading, out = os.pipe()
        os.close(reading)
    if around.terminal:
        out = err = _terminal(out)
    os.dup2(out, 1)
    os.dup2(err, 2)


def _terminal(copied_to: int) -> int:
    """Return the end of a new terminal that a program writes to; all that it shows is copied."""
    ours, its = pty.openpty()

    def copy() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(ours, 65536):
                os.write(copied_to, data)

    threading.Thread(target=copy, daemon=True).start()
    return its


def become(arguments: list[str], around: Surroundings, output: str) -> None:
    """Run the command line in this process, with short waits and in its surroundings."""
    for module, name, seconds in WAITS:
        if importlib.util.find_spec(module):
            setattr(importlib.import_module(module), name, seconds)
    if around.clock:
        _make_clock_jump(around.clock)
    if not around.locks:
        from refusal_index.data import files

        files._acquire = lambda _descriptor: None
    if around.dies is not None:
        _count_changes(output + ".changes", around.dies)
    sys.argv = ["refusal-index", *arguments]
    from refusal_index.cli import main

    main()


CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "sqlite3.connect"}
"""Events of Python that are about to change a file, beside those that open one."""


def _count_changes(counts: str, dies: int) -> None:
    """Write a byte for each change to a file below the working folder, and kill this process before one of them."""
    descriptor, folder, done = os.open(counts, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), Path.cwd(), 0

    def look(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal done
        if event == "open":
            flags = arguments[2]
            changes = isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        else:
            changes = event in CHANGES
        path = arguments[0] if arguments else None
        if changes and isinstance(path, str) and folder in Path(folder, path).parents:
            done += 1
            os.write(descriptor, b".")
            if done == dies:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def _make_clock_jump(seconds: float) -> None:
    real, looks = time.time, iter(range(10**9))
    time.time = lambda: real() + (seconds if next(looks) % 4 < 2 else -seconds)
    time.time_ns = lambda: int(time.time() * 1e9)


def _fresh(
    arguments: list[str], folder: str, output: str, variables: Mapping[str, str | None], around: Surroundings
) -> subprocess.Popen[bytes]:
    everything = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", **variables}
    environment = {name: value for name, value in everything.items() if value is not None}
    code = f"from tests.faults.process import Surroundings, become; become({arguments!r}, {around!r}, {output!r})"
    with Path(output + ".out").open("ab") as out, Path(output + ".err").open("ab") as err:
        reading, writing = os.pipe()
        os.close(reading)
        try:
            return subprocess.Popen(
                [sys.executable, "-c", code],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=writing if around.closed else out,
                stderr=err,
            )
        finally:
            os.close(writing)
