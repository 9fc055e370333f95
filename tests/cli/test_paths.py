"""Paths on the command line: no output goes into a run's folder, and odd names end in one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from refusal_index.cli import app
from tests.cli.making import LOW
from tests.tiers import one_fast

INPUTS = {
    *("add", "baseline", "candidate", "config", "data", "file", "files", "folder", "forced", "input_file", "labels"),
    *("models", "more", "pages", "pilot", "policy", "prompts", "rates", "run", "runs"),
}
"""Parameters that name what is read; every other path is an output."""

UNUSED = {("run-batch", "output_tmp_dir")}
RUN_FOLDERS = {
    "run": LOW,
    "force": ("force", "r/outcomes.parquet", "--model", "almanac/small"),
    "regrade": ("regrade", "r", "--grader", "exact"),
}
"""Commands whose output is a run's folder, with arguments that they take."""

NOT_UTF8 = os.fsdecode(b"bad\xff")
CONTROLS = "a\x1b[2J\nb"


def commands() -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Yield the name of each command, what calls it, and the command."""
    for name, one in get_command(app).commands.items():
        for path, command in ((f"{name} {sub}", two) for sub, two in getattr(one, "commands", {}).items()):
            yield path, tuple(path.split()), command
        if not hasattr(one, "commands"):
            yield name, (name,), one


def is_path(param: Any) -> bool:
    kind = str(getattr(param, "type_descriptor", None) or param.type)  # typer has named it differently
    return "Path" in kind or param.metavar in ("FILE", "DIR", "FOLDER")


OUTPUTS = [
    (name, param.name)
    for name, _, command in commands()
    for param in command.params
    if is_path(param) and param.name not in INPUTS and (name, param.name) not in UNUSED
]


def with_stubs(name: str, given: dict[str, str]) -> list[str]:
    """Return a command line with some parameters, and with a word for all others that must be there."""
    words, command = next((words, command) for one, words, command in commands() if one == name)
    line = list(words)
    for param in command.params:
        value = given.get(param.name, "x" if param.required else None)
        if value is not None:
            line += [value] if param.param_type_name == "argument" else [param.opts[0], value]
    return line


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(one): one.read_bytes() if one.is_file() else None for one in folder.rglob("*")}


def test_the_outputs_are_those_that_are_known():
    """A new option that names a file is an output, unless it stands in INPUTS."""
    assert len(OUTPUTS) == 15
    assert {name for name, _ in OUTPUTS} >= {"run-batch", "serve", "import", "build precise-wiki", *RUN_FOLDERS}


@one_fast(("name", "param"), sorted(OUTPUTS, key=lambda one: one[0] != "run-batch"))
def test_no_output_goes_into_a_runs_folder(ran, command, name, param):
    """``run-batch -o r/replies.sqlite`` destroyed the replies that were paid for, with exit status 0."""
    Path("link").symlink_to(ran / "replies.sqlite")
    before = contents(ran)
    for place in ("r", "r/new.csv", "link", "r/logs/new", "r/outcomes.parquet", "r/replies.sqlite"):
        if name in RUN_FOLDERS:
            if place == "r":  # its own command goes on there
                continue
            line = [*RUN_FOLDERS[name], "--out", place]
        else:
            line = with_stubs(name, {param: place})
        done = command(*line)
        assert done.exit_code == 2, (line, done.output)
        assert f"{place} lies in the folder of" in done.stderr, (line, done.stderr)
    assert contents(ran) == before


def test_a_candidate_is_not_asked_into_a_runs_folder(ran, command):
    before = contents(ran)
    done = command("gate", "r/new", "--run", "--limit", "20", "--variants", "low", "--at-least", "refusal_index=0")
    assert (done.exit_code, contents(ran)) == (2, before)
    assert "r/new lies in the folder of the run" in done.stderr


def test_the_page_of_a_run_is_written_by_report_alone(ran, command):
    page = (ran / "report.html").read_bytes()
    assert command(*with_stubs("study", {"name": "results_table", "out": "r/report.html"})).exit_code == 2
    assert (ran / "report.html").read_bytes() == page
    assert command("report", "r", "--out", "r/report.html").exit_code == 0


def test_run_batch_answers_the_files_of_requests_of_a_run(ran, command):
    """``run --engine command`` has it write below ``rounds/``."""
    Path("requests.jsonl").write_text("")
    done = command("run-batch", "-i", "requests.jsonl", "-o", "r/rounds/replies.jsonl", "--model", "almanac/base")
    assert "lies in the folder of a run" not in done.output


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _, _ in commands()])
def test_a_path_that_is_not_utf8_or_holds_controls_ends_in_a_message(command, name):
    """Names that are no UTF-8 ended ``run`` and ``score`` in a TypeError."""
    done = command(*name.split(), NOT_UTF8)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error: bad\\udcff: expected text in UTF-8; rename the file or folder\n"
    for param in next(one for path, _, one in commands() if path == name).params:
        if is_path(param) and (name, param.name) not in {("run", "out"), ("serve", "log")}:  # which go on
            done = command(*with_stubs(name, {param.name: CONTROLS}))
            assert all(character.isprintable() for character in done.output.replace("\n", "")), done.output


def test_a_run_in_a_folder_whose_name_holds_controls_goes_on(command):
    for line in ((*LOW, "--out", CONTROLS), ("score", CONTROLS), ("report", CONTROLS)):
        done = command(*line)
        assert done.exit_code == 0, done.output
        assert all(character.isprintable() for character in done.output.replace("\n", "")), done.output
