"""No code named by a folder is imported: every command and every public function, on an untrusted folder.

Everything in the folder that could name code names a function of a file in it, and that file leaves a mark when it
is imported. New commands and new public functions are covered without being named here.
"""

from __future__ import annotations

import functools
import inspect
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import refusal_index as ri
from refusal_index.cli import app
from refusal_index.errors import RefusalIndexError
from refusal_index.plugins.confidence.plan import METHODS
from tests.cli.test_import_and_force import first_pass_of
from tests.runs.test_watch import checkpoint
from tests.tiers import one_fast

pytestmark = pytest.mark.timeout(600)

FUNCTION, GRADERS = "python:gift.x:answer", ("python:gift.x:grade", "python:gift.x:second")
CODE = """
from pathlib import Path
mark = Path({mark!r})
mark.write_text("imported")
def answer(messages):
    mark.write_text("asked")
    message = messages[-1]["content"]
    is_forced = "leaving the question open is not allowed" in message
    return "<answer>Lima</answer>" if is_forced or len(message) % 2 else "<answer>UNANSWERED</answer>"
def grade(question, answer):
    return answer == question.gold
second = grade
"""
FOLDERS = ("gift", "regraded", "forced", "set")
KINDS = {
    "the model and both graders": (FUNCTION, GRADERS),
    "the model": (FUNCTION, ()),
    "the grader": ("almanac/base", GRADERS[:1]),
    "both graders": ("almanac/base", GRADERS),
}
"""Whom the runs in the folders were asked of, and who graded."""

SEND_NOTHING = ("p-answering",)
CONFIG = """
[[models]]
model = "{model}"
[[datasets]]
dataset = "almanac"
grader = "{grader}"
variants = ["low"]
limit = 4
"""

ALWAYS = {"out": "made", "model": "almanac/base", "grader": "exact", "to": "csv", "model_template": "{name}"}
"""What a required option is given; every argument is given a folder."""

CHEAPLY = ["--format", "csv"]  # figures are slow, and import nothing
MORE: dict[tuple[str, ...], list[list[str]]] = {
    ("run",): [
        ["--out", "gift", "--limit", "20", "--variants", "low"],
        ["--config", "gift/run.toml", "--dry-run"],
        ["--config", "gift/run.toml", "--dry-run", "--json", "--out", "set"],
    ],
    ("confidence",): [
        *(["gift", "--method", method, *more] for method in METHODS for more in ([], ["--dry-run"])),
        *(["gift", *more] for more in (["--list"], ["--out", "made.csv"], ["--add", "gift/scores.csv"])),
        ["gift", "--method", "p-true", "--engine", "batch"],
        ["gift", "--method", "p-true"],
        ["forced", "--method", "p-answering"],
    ],
    ("force",): [
        ["first.csv", "--model", "almanac/base", "--out", "made"],
        ["first.csv", "--model", "almanac/base", "--out", "forced"],
    ],
    ("requests",): [[folder, "--out", "made.jsonl"] for folder in FOLDERS],
    ("replies",): [["gift", "gift/replies.jsonl"]],
    ("watch",): [["checkpoints", "--model-template", one, "--once"] for one in ("{name}", "python:{name}:f")],
    ("report",): [["gift", "regraded", "forced", "set", "--out", "made.html"]],
    ("export",): [
        ["gift", "--to", one, "--out", "made"] for one in ("csv", "every-eval-ever", "hf-eval-results", "inspect")
    ],
    ("compare",): [["gift", "regraded"], ["gift", "regraded", "forced"]],
    ("gate",): [["gift", "--baseline", "regraded"], ["gift", "--baseline", "regraded", "--run"]],
    ("audit",): [["gift", "--out", "made.csv"]],
    ("import",): [["first.csv", "--out", "made.parquet"], ["gift/outcomes.parquet", "--out", "made.parquet"]],
    ("prompts",): [["gift/run.toml"]],
    ("serve",): [["--host", "another.machine"]],
    ("run-batch",): [["-i", "gift/requests.jsonl", "-o", "made.jsonl", "--model", "almanac/base"]],
}
"""Further arguments of commands that go deeper with them; those of `run` and `serve` in the place of none."""


def commands(command: Any = None, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command of the application with its name."""
    command = command or get_command(app)
    inside = getattr(command, "commands", {})
    for name in inside:
        yield from commands(inside[name], *path, name)
    if not inside:
        yield path, command


COMMANDS = dict(commands())


def arguments_of(name: tuple[str, ...]) -> list[list[str]]:
    """Return the arguments that a command is tried with: its own folder four times over, and those that go deeper."""
    found = MORE.get(name, [])
    if name not in {("run",), ("serve",)}:
        needed = [param for param in COMMANDS[name].params if param.param_type_name == "option" and param.required]
        options = [word for one in needed for word in (one.opts[0], ALWAYS.get(one.name, "gift"))]
        options += CHEAPLY if name == ("study",) else []
        places = [param for param in COMMANDS[name].params if param.param_type_name == "argument"]
        found = [[*[folder] * len(places), *options] for folder in FOLDERS] + found
    return found


@pytest.fixture(scope="module")
def folder_of_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes a folder with runs of every kind, once for each kind of name."""

    @functools.cache
    def make(kind: str) -> Path:
        place, (model, graders) = tmp_path_factory.mktemp("made"), KINDS[kind]
        asked = ["--model", model, "--grader", ",".join(graders) or "exact"]
        with pytest.MonkeyPatch.context() as patched:
            patched.chdir(place)
            patched.syspath_prepend(tmp_path_factory.mktemp("code"))
            write_code(place / "mark", Path(sys.path[0]))  # a run begins in a folder that is empty
            Path("set.toml").write_text(CONFIG.format(model=model, grader=asked[3]))
            for words in (
                ["run", "--limit", "20", "--variants", "low", "--draws", "2", "--out", "gift", *asked],
                ["confidence", "gift", "--method", ",".join(SEND_NOTHING)],
                ["regrade", "gift", "--out", "regraded", *asked[2:]],
                ["run", "--config", "set.toml", "--out", "set"],
            ):
                assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0, words
            first = first_pass_of(Path("gift"), Path("first.csv"))
            pl.read_csv(first).unique("question_id", maintain_order=True).write_csv(first)  # one draw, as it is taken
            words = ["force", str(first), "--out", "forced", *asked]
            assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
        (place / "mark").unlink()
        return place

    yield make
    forget()


def write_code(mark: Path, place: Path) -> None:
    """Write the untrusted code, which leaves a mark; after a rewrite it is imported again."""
    forget()
    (place / "gift").mkdir(exist_ok=True)
    (place / "gift/x.py").write_text(CODE.format(mark=str(mark)))


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the file that shows that a stranger's code was run; it can be imported from the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "mark"
    forget()


def forget() -> None:
    """Forget the untrusted code, so that the next import runs it again."""
    for name in [module for module in sys.modules if module.partition(".")[0] == "gift"]:
        del sys.modules[name]


def lay_out(made: Path, mark: Path) -> None:
    """Put the runs into the working directory again, with more of the stranger's names in them."""
    for place in (*FOLDERS, "made", "runs"):
        shutil.rmtree(place, ignore_errors=True)
    for one in (mark, *Path().glob("made.*")):
        one.unlink(missing_ok=True)
    shutil.copytree(made, Path(), dirs_exist_ok=True)
    for path in Path().rglob("run.json"):
        run_json(path, mark)
    for path in (*Path().rglob("summary.json"), *Path().rglob("confidence.json")):
        path.write_text(json.dumps(renamed(json.loads(path.read_text()))))
    write_code(mark, Path())
    Path("gift/run.toml").write_text(CONFIG.format(model=FUNCTION, grader=GRADERS[0]))
    Path("gift/scores.csv").write_text(f"question_id,confidence,method\nq1,.5,{FUNCTION}\n")
    request = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": FUNCTION}}
    for name in ("requests", "replies"):
        Path(f"gift/{name}.jsonl").write_text(json.dumps(request) + "\n")


def run_json(path: Path, mark: Path) -> None:
    """Name the untrusted program and function wherever a run might look for one."""
    document = json.loads(path.read_text())
    settings, about = document["settings"], document["about"]
    command = {"command": f"touch {mark} {{requests}} {{replies}}", "engine_command": f"touch {mark}"}
    for one in (document, settings, about, settings["decoding"], about["dataset"]):
        one.update(command | {"engine": "command", "log_to": [FUNCTION], "sending": command, "callback": FUNCTION})
    path.write_text(json.dumps(document))


def renamed(document: Any) -> Any:
    """Return a document in which every model, grader and method is the untrusted one."""
    if isinstance(document, list):
        return [renamed(one) for one in document]
    if not isinstance(document, dict):
        return document
    names = {"model", "grader", "second_grader", "method", "engine"} & document.keys()
    return {key: FUNCTION if key in names else renamed(one) for key, one in document.items()}


@pytest.mark.slow
@one_fast("kind", KINDS)
@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_no_command_imports_code_named_by_a_folder(name, kind, folder_of_runs, mark, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for one in (FUNCTION, "gift.x") if name == ("watch",) else ():
        checkpoint(Path("checkpoints") / one)
    for arguments in arguments_of(name):
        lay_out(folder_of_runs(kind), mark)
        ended = CliRunner().invoke(app, [*name, *arguments], catch_exceptions=False)
        assert not mark.exists(), (arguments, mark.read_text(), ended.output)
        assert ended.exit_code in (0, 1, 2, 3), (arguments, ended.output)
        assert "Usage:" not in ended.stderr, (arguments, ended.stderr)


CALLS: dict[str, list[Callable[[], Any]]] = {
    "confidence_scores": [lambda one=method: ri.confidence_scores("gift", one) for method in METHODS],
    "study": [lambda: ri.study("results_table", ["gift", "regraded"])],
    "export": [lambda one=one: ri.export("gift", one, "made") for one in ("csv", "every-eval-ever")],
    "compare": [lambda: ri.compare("gift", "regraded")],
    "rank": [lambda: ri.rank(["gift", "regraded"])],
    "gate": [lambda: ri.gate("gift", "regraded"), lambda: ri.gate("gift", policy={"at_least": {"refusal_index": 0}})],
    "threshold": [lambda: ri.threshold("gift", "self-consistency", penalty=1.0)],
    "evaluate": [lambda: ri.evaluate("almanac/base", limit=20, variants="low", out="gift")],
    "dry_run": [lambda: ri.dry_run("almanac/base", limit=20, variants="low", out="gift")],
    "RunResults": [lambda: used(ri.open_run("gift")), lambda: used(ri.open_run("regraded"))],
    "open_run": [lambda one=folder: ri.open_run(one) for folder in FOLDERS],
    "RefusalIndexCallback": [lambda: ri.RefusalIndexCallback(None, out="set", model=None)],
}
"""Calls that go deeper than the plain ones."""


def used(run: Any) -> None:
    """Call every method of a run that takes no argument."""
    for name in dir(run):
        with suppress(RefusalIndexError, TypeError, ModuleNotFoundError):
            one = None if name.startswith("__") else getattr(run, name)
            if callable(one):
                one()
    str(run)


def plainly(name: str) -> Iterator[Callable[[], Any]]:
    """Yield calls of a public name with a folder, or several, in the place of each argument that it needs."""
    found = getattr(ri, name)
    if not callable(found) or found is RefusalIndexError:
        return
    parameters = inspect.signature(found).parameters.values()
    needed = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    for folder in FOLDERS:
        given = [folder] * max(len(needed), 1)
        yield functools.partial(found, *given)
        yield functools.partial(found, [folder, "regraded"], *given[1:])


@pytest.mark.slow
@one_fast("kind", KINDS)
@pytest.mark.parametrize("name", ri.__all__)
def test_no_public_function_imports_code_named_by_a_folder(name, kind, folder_of_runs, mark, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for call in (*plainly(name), *CALLS.get(name, [])):
        lay_out(folder_of_runs(kind), mark)
        with suppress(RefusalIndexError, TypeError, ValueError, AttributeError):
            found = call()
            if inspect.iscoroutine(found):
                found.close()
        assert not mark.exists(), mark.read_text()


@one_fast("kind", KINDS)
def test_commands_without_requests_work_without_the_function(kind, folder_of_runs, mark):
    lay_out(folder_of_runs(kind), mark)
    for words in (
        ["confidence", "gift", "--method", ",".join(SEND_NOTHING)],
        ["confidence", "gift", "--method", "p-true", "--dry-run"],
        ["confidence", "gift", "--list"],
        ["score", "gift"],
        ["report", "gift", "--out", "made.html"],
        ["run", "--config", "gift/run.toml", "--dry-run"],
    ):
        ended = CliRunner().invoke(app, words, catch_exceptions=False)
        assert ended.exit_code == 0, ended.output
    assert set(ri.confidence_scores("gift", "p-answering")["method"]) >= {"p-answering"}
    assert not mark.exists()


@one_fast(
    ("kind", "options", "lacks"),
    [
        ("the model", [], f"--model: expected '{FUNCTION}', got nothing; gift names this function"),
        ("the grader", [], f"--grader: expected '{GRADERS[0]}', got nothing; gift names this function"),
        ("both graders", [], f"--grader: expected '{','.join(GRADERS)}', got nothing"),
        ("the model and both graders", ["--model", FUNCTION], "--grader: expected"),
        ("the model and both graders", ["--grader", ",".join(GRADERS)], "--model: expected"),
        ("both graders", ["--grader", GRADERS[0]], f"that of the run, '{','.join(GRADERS)}', got '{GRADERS[0]}'"),
        ("the model", ["--model", "python:gift.x:other"], f"that of the run, '{FUNCTION}', got 'python:gift.x:other'"),
        ("the grader", ["--model", "almanac/small"], "that of the run, 'almanac/base', got 'almanac/small'"),
    ],
)
def test_commands_with_requests_require_the_name_again(kind, options, lacks, folder_of_runs, mark):
    lay_out(folder_of_runs(kind), mark)
    ended = CliRunner().invoke(app, ["confidence", "gift", "--method", "p-true", *options])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert lacks in ended.stderr
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1
    assert not mark.exists()


@one_fast("kind", KINDS)
def test_function_named_on_the_command_line_is_called(kind, folder_of_runs, mark):
    lay_out(folder_of_runs(kind), mark)
    theirs, graders = KINDS[kind]
    model, grader = ["--model", theirs], ["--grader", ",".join(graders) or "exact"]
    words = ["confidence", "gift", "--method", "verbalised-number", *model, *grader]
    ended = CliRunner().invoke(app, words, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    assert mark.read_text() == ("asked" if theirs == FUNCTION else "imported")


def test_python_api_requires_the_name_again_or_the_function(folder_of_runs, mark):
    lay_out(folder_of_runs("the grader"), mark)
    scores = functools.partial(ri.confidence_scores, "gift", "verbalised-number")
    with pytest.raises(RefusalIndexError, match=rf"^grader: expected '{GRADERS[0]}', got nothing"):
        scores()
    with pytest.raises(RefusalIndexError, match=rf"^grader: expected '{GRADERS[0]}', got nothing"):
        scores(model=lambda messages: "<answer>Lima</answer>")
    assert not mark.exists()
    text = "<answer>Lima</answer><confidence>7</confidence>"
    assert 0.07 in scores(model=lambda messages: text, grader=lambda *_: True)["confidence"].to_list()
    assert not mark.exists(), "what is handed over is asked in its place"
    lay_out(folder_of_runs("the model and both graders"), mark)
    scores(model=FUNCTION, grader=",".join(GRADERS))
    assert mark.read_text() == "asked"


def test_grader_is_rejected_for_a_rule_graded_run(folder_of_runs, mark):
    lay_out(folder_of_runs("the model"), mark)
    with pytest.raises(RefusalIndexError, match=r"^grader: expected none, since 'exact' graded"):
        ri.confidence_scores("gift", "p-answering", grader=lambda *_: True)
