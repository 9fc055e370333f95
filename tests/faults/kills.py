"""Commands that are killed (kill -9) at any of their changes to files, and then run again.

Afterwards the folder has to be as if the command had run once, undisturbed. At no time may a file be half written under
its own name.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.files import TEMPORARY_SUFFIX
from tests.faults.process import Ended, Surroundings, start

RUN = ("run", "--limit", "12", "--variants", "low", "--out", "r")
FILES = ("run", "--limit", "12", "--variants", "low", "--engine", "files", "--out", "r")
REQUESTS = ("requests", "r", "--out", "requests.jsonl", "--format", "compatible")
REPLIES = ("run-batch", "-i", "requests.jsonl", "-o", "replies.jsonl", "--model", "almanac/base")
GRADED = "question_id,question,answer,grade\n" + "\n".join(
    f"q{number},What is {number} plus {number}?,{2 * number},{'refused' if number % 2 else 'correct'}"
    for number in range(8)
)
SET = """[defaults]
limit = 6
variants = "low"
[[models]]
model = "almanac/base"
[[models]]
model = "almanac/small"
[[datasets]]
dataset = "almanac"
"""
LIMIT = 120.0


@dataclass(frozen=True)
class Killed:
    """A command that is killed.

    Attributes
    ----------
    arguments
        The command.
    before
        Commands that make what it needs.
    statuses
        How it may end when it is not killed.
    """

    arguments: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = (RUN,)
    statuses: tuple[int, ...] = (0,)


COMMANDS = {
    "run": Killed(RUN, ()),
    "run of two models": Killed(("run", "--config", "set.toml", "--out", "set"), ()),
    "score": Killed(("score", "r")),
    "report": Killed(("report", "r")),
    "regrade": Killed(("regrade", "r", "--grader", "includes", "--out", "again")),
    "confidence": Killed(("confidence", "r", "--method", "verbalised-number")),
    "confidence with a threshold": Killed(
        ("confidence", "r", "--method", "likelihood", "--penalty", "1", "--out", "cut.parquet"),
        (RUN, ("confidence", "r", "--method", "likelihood")),
    ),
    "force": Killed(("force", "first.csv", "--model", "almanac/base", "--grader", "exact", "--out", "forced"), ()),
    "import": Killed(("import", "first.csv", "--out", "imported.parquet"), ()),
    "study": Killed(("study", "results_table", "r", "--format", "csv", "--out", "studies")),
    "audit": Killed(("audit", "r", "--out", "sheet.csv")),
    "gate": Killed(("gate", "r", "--at-least", "refusal_index=-1", "--out", "verdict.json"), statuses=(0, 1)),
    "gate that runs": Killed(
        ("gate", "g", "--run", "--limit", "12", "--variants", "low", "--at-least", "refusal_index=-1"), (), (0, 1)
    ),
    "export to CSV": Killed(("export", "r", "--to", "csv", "--out", "exported.csv")),
    "export to Every Eval Ever": Killed(("export", "r", "--to", "every-eval-ever", "--out", "exported")),
    "export to Inspect": Killed(("export", "r", "--to", "inspect", "--out", "exported")),
    "requests": Killed(REQUESTS, (FILES,)),
    "run-batch": Killed(REPLIES, (FILES, REQUESTS)),
    "replies": Killed(("replies", "r", "replies.jsonl"), (FILES, REQUESTS, REPLIES), (0, 1)),
}
"""Every command that writes files, and what it needs."""


@dataclass
class Place:
    """A folder in which commands run."""

    base: Path
    commands: int = 0
    changes: list[int] = field(default_factory=list)

    @property
    def work(self) -> Path:
        """The working folder of the commands."""
        return self.base / "work"

    def run(self, arguments: Sequence[str], dies: int = 0, after: float | None = None) -> Ended:
        """Run a command, and kill it before one of its changes to files or after some seconds."""
        self.commands += 1
        output = self.base / f"output-{self.commands}"
        environment = {"COLUMNS": "200", "NO_COLOR": "1"}
        command = start(arguments, self.work, output, environment, Surroundings(dies=dies))
        if after is not None:
            command.process.join(after)
            command.send(signal.SIGKILL)
        ended = command.wait(LIMIT)
        changes = output.with_name(f"{output.name}.changes")
        self.changes.append(changes.stat().st_size if changes.exists() else 0)
        return ended


@contextmanager
def prepared(killed: Killed) -> Iterator[Place]:
    """Make a folder in which a command can run."""
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        place = Place(Path(name))
        shutil.copytree(_prepared(killed.before), place.work)
        yield place


@cache
def _prepared(before: tuple[tuple[str, ...], ...]) -> Path:
    """Return a folder that commands have filled; it is removed when this process ends."""
    _kept.append(tempfile.TemporaryDirectory(prefix="kills-"))
    place = Place(Path(_kept[-1].name))
    place.work.mkdir()
    (place.work / "first.csv").write_text(GRADED)
    (place.work / "set.toml").write_text(SET)
    for arguments in before:
        ended = place.run(arguments)
        assert ended.status in (0, 1), ended
    return place.work


_kept: list[tempfile.TemporaryDirectory[str]] = []


@cache
def undisturbed(name: str) -> tuple[dict[str, Any], int]:
    """Return the files that a command makes, and how many changes to files it takes."""
    killed = COMMANDS[name]
    with prepared(killed) as place:
        ended = place.run(killed.arguments)
        assert ended.status in killed.statuses, ended
        return contents(place.work), place.changes[-1]


def problems(name: str, dies: int = 0, after: float | None = None) -> list[str]:
    """Kill a command once, run it again, and return what is wrong then."""
    killed, (expected, _) = COMMANDS[name], undisturbed(name)
    with prepared(killed) as place:
        first = place.run(killed.arguments, dies, after)
        if dies and first.status != -signal.SIGKILL:
            return [f"it was not killed: {first}"]
        found = [f"after the kill, {path} is not whole" for path in not_whole(place.work)]
        again = place.run(killed.arguments)
        was_done = again.status == 2 and "already exists; choose another name" in again.err  # nothing is written over
        if not was_done and (again.status not in killed.statuses or "Traceback" in again.err):
            found.append(f"run again, it ended with {again.status}: {again.err[-300:]}")
        made = contents(place.work)
        found += [f"{path} is another" for path in sorted({*made, *expected}) if made.get(path) != expected.get(path)]
        found += [f"{path.name} is left" for path in place.work.rglob(f".*{TEMPORARY_SUFFIX}")]
    return found


def not_whole(work: Path) -> Iterator[str]:
    """Yield the files that are half written, those with temporary names left out."""
    for path in sorted(work.rglob("*")):
        if is_result(path):
            try:
                content(path)
            except Exception as error:  # whatever a library raises about half a file
                yield f"{path.relative_to(work)} ({type(error).__name__})"


def contents(work: Path) -> dict[str, Any]:
    """Return the contents of all files but locks, without dates, durations and random ids."""
    return {str(path.relative_to(work)): content(path) for path in sorted(work.rglob("*")) if is_result(path)}


def is_result(path: Path) -> bool:
    """Whether a path is a file that commands read: no lock, no half-written one, and none that SQLite keeps itself."""
    return path.is_file() and not path.name.startswith(".") and not path.name.endswith(("-wal", "-shm", "-journal"))


def content(path: Path) -> Any:
    """Return the content of a file, in a form that two runs of a command share."""
    if path.suffix == ".parquet":
        return pl.read_parquet(path).to_dicts()
    if path.suffix == ".sqlite":
        return _stored(path)
    if path.suffix == ".eval":  # a ZIP file with ids and dates of its own
        with zipfile.ZipFile(path) as packed:  # its directory stands at its end
            return sorted(packed.namelist())
    text = path.read_text(encoding="utf-8")
    assert text.endswith(("\n", "</html>", "}")) or path.name == "first.csv", f"{path} ends in {text[-20:]!r}"
    if path.suffix in (".json", ".jsonl"):
        documents = [text] if path.suffix == ".json" else text.splitlines()
        return sorted(json.dumps(_settled(json.loads(document)), sort_keys=True) for document in documents)
    return text if path.suffix == ".csv" else "</html>" in text


VOLATILE = {
    "seconds",
    "run_id",
    "started",
    "date",
    "created",
    "created_at",
    "id",
    "request_id",
    "time",
    "retrieved_timestamp",
}


def _settled(document: Any) -> Any:
    """Return a document without what differs from run to run."""
    if isinstance(document, dict):
        return {key: _settled(value) for key, value in document.items() if key not in VOLATILE}
    return [_settled(value) for value in document] if isinstance(document, list) else document


def _stored(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        (whole,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        assert whole == "ok", whole
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        rows: list[tuple[Any, ...]] = []
        for name in sorted(names):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            kept = ", ".join(column for column in columns if column not in ("seconds", "checksum", "requests"))
            rows += sorted(((name, *row) for row in connection.execute(f"SELECT {kept} FROM {name}")), key=repr)  # noqa: S608 - our own names
        return rows
