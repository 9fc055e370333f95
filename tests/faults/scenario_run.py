"""Carrying out a scenario with one engine, and comparing what comes of it with the undisturbed run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.files import TEMPORARY
from tests.faults import program
from tests.faults.action import start_action
from tests.faults.api import FakeApi
from tests.faults.kinds import meanwhile, while_server_is_idle
from tests.faults.nodes import cluster
from tests.faults.plan import Fault, Plan
from tests.faults.process import Command, Ended, Surroundings, start
from tests.faults.scenario import (
    ACTION,
    BAD_INPUT,
    DONE,
    EQUAL,
    INCOMPLETE,
    LAST,
    RESUMED,
    Engine,
    Row,
    Scenario,
    Step,
)
from tests.faults.world import KEY, answer, planted, write_questions
from tests.served import ADDRESS, MODEL, options_at

VERDICTS = ("refused", "wrong", "first_grade", "forced_grade", "unscored_reason")
TEXTS = ("first_reply", "forced_reply")
PLACE = ("variant", "question_id", "draw")
LONGEST = 200
UNLOCKED = Step(around=Surroundings(locks=False))


class NotPossibleHereError(Exception):
    """A scenario that this machine cannot run."""


@dataclass
class Stage:
    """A folder, a server and the commands that were run."""

    scenario: Scenario
    engine: Engine
    base: Path
    api: FakeApi
    running: list[Command] = field(default_factory=list)
    others: list[Ended] = field(default_factory=list)
    lost: int = 0
    idle: list[Fault] = field(default_factory=list)
    beside: threading.Lock = field(default_factory=threading.Lock)

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.base / "work" / self.scenario.out

    def play(self, step: Step) -> Ended:
        """Run one command to its end."""
        if step.before is not None:
            step.before(self.folder)
        self.api.come_back()
        plan = self.api._fault = Plan(step.faults, self._deeds())
        unkept = len(self.api.answered) - self.stored_responses()
        command = self._start(step)
        self.running.append(command)
        ended = command.wait(self.scenario.limit)
        with self.beside:  # a second run may end later than this one
            pass
        if self.engine.name == "command":
            self._settle()  # a program started by the killed command keeps sending for a moment
        self.api._fault = None
        self.idle += [fault for fault, count in zip(step.faults, plan.happened, strict=True) if not count]
        self.lost += max(0, len(self.api.answered) - self.stored_responses() - unkept)
        return ended

    def _settle(self) -> None:
        answered = -1
        while answered < len(self.api.answered):
            answered = len(self.api.answered)
            time.sleep(0.3)

    def stored_responses(self) -> int:
        """Count the responses that the store holds."""
        path = self.folder / "replies.sqlite"
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection,
        ):
            return int(connection.execute("SELECT coalesce(sum(requests), 0) FROM replies").fetchone()[0])
        return 0

    def _start(self, step: Step) -> Command:
        output = self.base / f"output-{len(list(self.base.glob('output-*.out')))}"
        url = self.api.url.replace("127.0.0.1", step.host)
        arguments = self._arguments(step, url)
        patience = dict(pairwise(arguments)).get("--attempt-timeout", "20")
        environment = {
            "FAKE_TIMEOUT": patience,
            ADDRESS: url,
            "FAKE_API_KEY": KEY,
            "TOGETHER_BASE_URL": url,
            "TOGETHER_API_KEY": KEY,
            "COLUMNS": "200",
            "NO_COLOR": "1",
            "PATH": f"{self.base / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }
        if self.engine.name == "ray":
            environment["RAY_ADDRESS"] = cluster()
        if step.command == ACTION:
            return start_action(self.engine.model, arguments, self.base / "work", output, environment)
        return start(arguments, self.base / "work", output, environment, step.around)

    def _arguments(self, step: Step, url: str) -> list[str]:
        if step.command not in ("run", ACTION):
            return [step.command, self.scenario.out, *step.options]
        asked = ["--model", self.engine.model, "--data", str(self.base / "questions.csv")]
        graded = ["--grader", self.engine.grader if self.scenario.graded else "exact"]
        if self.engine.model == MODEL:
            asked += options_at(url, graded=self.scenario.graded)
        patience = ["--max-retries", "5", "--attempt-timeout", "20", "--max-connections", "10", "--variants", "normal"]
        own = () if "--engine" in step.options else self.engine.options
        given = [
            *patience,
            *own,
            *self.scenario.options,
            *(option.replace(LAST, self._last_key()) for option in step.options),
        ]
        return ["run", *_last_of_each([*asked, *graded, *given]), "--out", self.scenario.out]

    def _last_key(self) -> str:
        journal = self.folder / "batches.jsonl"
        return re.findall(r'"key": "([\w-]+)"', journal.read_text())[-1] if journal.exists() else LAST

    def _deeds(self) -> dict[str, Any]:
        return {
            "kill": meanwhile(lambda: self._signal(signal.SIGKILL)),
            "interrupt": meanwhile(lambda: self._signal(signal.SIGINT), late=0.2),
            "interrupt twice": meanwhile(lambda: self._signal(signal.SIGINT, signal.SIGINT), late=0.5),
            "terminate": meanwhile(lambda: self._signal(signal.SIGTERM), late=0.2),
            "terminate twice": meanwhile(lambda: self._signal(signal.SIGTERM, signal.SIGTERM), late=0.5),
            "hang up": meanwhile(lambda: self._signal(signal.SIGHUP), late=0.2),
            "fill the disk": while_server_is_idle(lambda: fill(self.folder.parent)),
            "use up the files": while_server_is_idle(lambda: use_up_files(self.folder.parent)),
            "another run": meanwhile(lambda: self._another(Step())),
            "another run that the lock lets in": meanwhile(lambda: self._another(UNLOCKED)),
        }

    def _signal(self, *signals: int) -> None:
        self.running[-1].send(*signals)

    def _another(self, step: Step) -> None:
        with self.beside:
            self.others.append(self._start(step).wait(self.scenario.limit))


def _last_of_each(options: Sequence[str]) -> list[str]:
    """Return options of which the last of a name holds; of an engine's own, the last of a name of its own."""
    pairs = {
        (name, value.partition("=")[0] if name == "--engine-option" else ""): value
        for name, value in zip(options[::2], options[1::2], strict=True)
    }
    return [part for (name, _), value in pairs.items() for part in (name, value)]


def fill(folder: Path) -> None:
    """Write to a disk until nothing more fits, nor any further file."""
    with contextlib.suppress(OSError), (folder / "filler").open("ab") as file:
        for size in (65536, 4096, 256, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
                    file.flush()


def use_up_files(folder: Path) -> None:
    """Make files on a disk until there can be no more."""
    (folder / "fillers").mkdir(exist_ok=True)
    with contextlib.suppress(OSError):
        for number in range(10**6):
            (folder / "fillers" / str(number)).touch()


def make_room(folder: Path) -> None:
    """Undo the changes to the disk that contains a folder."""
    if os.path.ismount(folder.parent):
        subprocess.run(["mount", "-o", "remount,rw", str(folder.parent)], check=True)
        (folder.parent / "filler").unlink(missing_ok=True)
        shutil.rmtree(folder.parent / "fillers", ignore_errors=True)


def run_scenario(scenario: Scenario, engine: Engine) -> Row:
    """Play a scenario and judge what came of it.

    Raises
    ------
    NotPossibleHereError
        If this machine cannot.
    """
    began = time.monotonic()
    if scenario.planted:  # one draw of each question, half of which are forced
        expected, needed = planted(scenario.questions), Counter(all=scenario.questions + scenario.questions // 2)
    else:
        expected, needed = undisturbed(engine, scenario.graded, scenario.options, scenario.questions)
    with staged(scenario, engine) as stage:
        received, reported, reported_received = 0, None, 0
        for step in scenario.steps:
            ended = stage.play(step)
            if step.tells:
                reported, reported_received = ended, stage.api.received.total() - received
            received = stage.api.received.total()
        assert reported is not None
        outcome, ends = _outcome(stage, expected)
        paid = paid_for(stage.api)
        broken = [*_promised(stage, outcome, reported, reported_received, paid, needed), *_always(stage, reported)]
        if ends is not None and ends.status is None:
            broken.append("the same command again does not end")
        return Row(
            scenario,
            engine.name,
            outcome,
            reported.status,
            message_of(reported),
            paid.total(),
            needed.total(),
            repeated(paid, needed),
            reported_received,
            tuple(broken),
            time.monotonic() - began,
        )


def _outcome(stage: Stage, expected: pl.DataFrame) -> tuple[str, Ended | None]:
    """Compare the outcome table, once more after resuming where it is another."""
    if difference(stage, expected) is None:
        return EQUAL, None
    make_room(stage.folder)
    ended = stage.play(Step())
    found = difference(stage, expected)
    if found is None:
        return RESUMED, ended
    return (found if ended.status == DONE else f"{found}; {message_of(ended)}"), ended


def _promised(
    stage: Stage, outcome: str, reported: Ended, received: int, paid: Counter[str], needed: Counter[str]
) -> Iterator[str]:
    promise = stage.scenario.promise
    if outcome != promise.outcome and (promise.outcome in (EQUAL, RESUMED) or not re.search(promise.outcome, outcome)):
        yield f"outcome: expected {promise.outcome!r}, got {outcome!r}"
    statuses = promise.status if isinstance(promise.status, tuple) else (promise.status,)
    if reported.status not in statuses:
        yield f"exit status: expected {promise.status}, got {reported.status}"
    output = " ".join((reported.out + reported.err).split())
    if not re.search(promise.says, output):
        yield f"message: expected {promise.says!r}"
    most, again = promise.most_received(stage.engine), promise.most_repeats(stage.engine)
    if repeated(paid, needed) > again:
        yield f"repeated: expected at most {again}, got {repeated(paid, needed)}"
    if repeated(paid, needed) > stage.lost:
        yield f"repeated: {repeated(paid, needed)}, of which {stage.lost} were not in the store yet"
    if most is not None and received > most:
        yield f"requests: expected at most {most}, got {received}"


def _always(stage: Stage, reported: Ended) -> Iterator[str]:
    """Return which of the general promises were broken."""
    for fault in stage.idle:
        yield f"nothing happened of {fault}"
    for key in stage.api.batches.submitted_twice():
        yield f"the batch {key} was submitted twice"
    output = {path.name: path.read_bytes() for path in stage.base.glob("output-*")}
    for name, text in output.items():
        if b"Traceback (most recent call last)" in text:
            yield f"a traceback in {name}"
    for path in files(stage.base / "work"):
        if TEMPORARY.fullmatch(path.name):
            yield f"{path.name} is left"
    found = [(str(path.relative_to(stage.base)), text) for path in files(stage.folder) for text in contents(path)]
    for name in dict.fromkeys(name for name, text in [*output.items(), *found] if KEY.encode() in text):
        yield f"the key in {name}"
    for other in stage.others:
        if not any(_only_one_went_on(one, another) for one, another in ((reported, other), (other, reported))):
            yield f"the other run ended with {other.status}: {message_of(other)}"


def _only_one_went_on(one: Ended, other: Ended) -> bool:
    """Whether one of two runs in a folder ended well, and the other in an error that names it."""
    is_named = "in use by another process" in other.err or "another process has stored replies here" in other.err
    return one.status == DONE and other.status in (INCOMPLETE, BAD_INPUT) and is_named


def files(folder: Path) -> list[Path]:
    """Return all files below a folder; none where it cannot be."""
    with contextlib.suppress(OSError):
        return list(folder.rglob("*"))
    return []


def contents(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, and those of each file that is packed into it."""
    if not path.is_file():
        return
    yield path.read_bytes()
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as packed:
        for name in packed.namelist():
            with contextlib.suppress(Exception):  # whatever a decompressor makes of a damaged part
                yield packed.read(name)


def message_of(ended: Ended) -> str:
    """Return the most informative line."""
    for pattern, text in ((r"^(?:error: |interrupted).*", ended.err), (r"^.*could not be scored.*", ended.out)):
        found = re.findall(pattern, text, re.MULTILINE)
        if found:
            return str(found[-1]).strip()[:LONGEST]
    trace = re.findall(r"^\w[\w.]*(?:Error|Interrupt|Exception)\b.*", ended.err, re.MULTILINE)
    return str(trace[-1])[:LONGEST] if trace else ""


def difference(stage: Stage, expected: pl.DataFrame) -> str | None:
    """Say how the outcome table of a folder differs from another; None where it does not."""
    columns = [*PLACE, *VERDICTS, *(TEXTS if stage.scenario.texts else ())]
    try:
        found = pl.read_parquet(stage.folder / "outcomes.parquet")
    except Exception as error:  # any error that Polars reports
        return f"no outcome table ({type(error).__name__})"
    missing = expected.join(found, on=PLACE, how="anti").height
    if missing:
        return f"{missing} of {expected.height} rows missing"
    both = expected.join(found, on=PLACE, how="left", suffix="_found")
    others = both.filter(~pl.all_horizontal(pl.col(name).eq_missing(pl.col(f"{name}_found")) for name in columns[3:]))
    if others.is_empty():
        return None
    reasons = Counter(others["unscored_reason_found"].to_list())
    counted = ", ".join(f"{reason or 'graded otherwise'} {count}" for reason, count in sorted(reasons.items(), key=str))
    return f"{others.height} of {expected.height} rows differ ({counted})"


def paid_for(api: FakeApi) -> Counter[str]:
    """Count how often each request was answered well."""
    return Counter(json.dumps([body["model"], body["messages"], body.get("seed")]) for body in api.answered)


def repeated(paid: Counter[str], needed: Counter[str]) -> int:
    """Count the requests that were paid for more often than undisturbed."""
    return sum(max(0, count - needed.get(key, 1)) for key, count in paid.items())


@cache
def undisturbed(
    engine: Engine, graded: bool, options: tuple[str, ...], questions: int
) -> tuple[pl.DataFrame, Counter[str]]:
    """Run undisturbed, and return the outcome table and how often each request was paid for."""
    scenario = Scenario("", "undisturbed", (Step(),), graded=graded, options=options, questions=questions)
    with staged(scenario, engine) as stage:
        ended = stage.play(Step())
        assert ended.status == DONE, ended
        return pl.read_parquet(stage.folder / "outcomes.parquet"), paid_for(stage.api)


@contextlib.contextmanager
def staged(scenario: Scenario, engine: Engine) -> Iterator[Stage]:
    """Make a folder and a server for the length of a scenario."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name, contextlib.ExitStack() as stack:
        base, work = Path(name), Path(name, "work")
        work.mkdir()
        write_questions(base / "questions.csv", scenario.questions)
        program.install(base / "bin")
        if scenario.disk is not None:
            stack.enter_context(disk(work, scenario.disk))
        yield Stage(scenario, engine, base, stack.enter_context(FakeApi(answer, max_choices=scenario.choices)))


@contextlib.contextmanager
def disk(place: Path, options: str) -> Iterator[None]:
    """Mount a small disk; raise where this is not allowed."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        raise NotPossibleHereError(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def protect(folder: Path) -> None:
    """Make the disk that contains a folder read-only."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder.parent)], check=True)
