"""Bad input, odd paths, and the exit statuses of commands that take several runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.data.outcome_table import write_outcomes
from refusal_index.data.run_sets import SET_VERSION
from refusal_index.plugins.studies import study
from refusal_index.plugins.studies.study import study_spec
from tests.cli.making import LOW
from tests.data.test_folder import make_run
from tests.studies.made import made_run
from tests.tiers import one_fast

# --- Bad input


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stderr


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "AZUREAI_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


CASES = {
    "no key": (["--model", "openai/gpt-4.1"], ["openai/gpt-4.1", "OPENAI_API_KEY"]),
    "no key of the grader": (
        ["--limit", "3", "--grader", "openai/gpt-4o-mini"],
        ["openai/gpt-4o-mini", "OPENAI_API_KEY", "--grader includes"],
    ),
    "unknown provider": (["--model", "opnai/gpt-4.1"], ["'opnai'", "openai/gpt-4.1"]),
    "unknown sibling": (["--model", "almanac/bas"], ["'bas'", "base"]),
    "no provider": (["--model", "gpt-4.1"], ["PROVIDER/NAME", "gpt-4.1"]),
    "unknown dataset": (["--dataset", "simpelqa"], ["'simpelqa'", "'simpleqa'"]),
    "unknown variant": (["--variants", "low,hihg"], ["--variants", "'hihg'", "'high'"]),
    "no variant": (["--variants", ","], ["--variants", "low, normal, high, highest"]),
    "unknown prompt set": (["--prompts", "defualt"], ["defualt", "default"]),
    "unknown placement": (["--placement", "sytem"], ["--placement", "'system'"]),
    "misspelt grader": (["--grader", "exct"], ["--grader", "'exct'", "'exact'"]),
    "unreadable price": (["--price", "cheap"], ["--price", "2.5,10", "cheap"]),
    "unreadable price of the grader": (["--grader-price", "1"], ["--grader-price", "2.5,10", "'1'"]),
    "unknown engine": (["--limit", "3", "--engine", "dirct"], ["--engine", "'dirct'", "'direct'"]),
    "more repeated questions than there are": (
        ["--limit", "20", "--repeat-questions", "21"],
        ["--repeat-questions: expected at most 20, as many as are asked, got 21"],
    ),
    "draws of one": (["--repeat-questions", "3", "--draws", "1"], ["--repeat-questions", "--draws"]),
    "a function without a module": (["--model", "python:answer"], ["python:MODULE:FUNCTION"]),
    "a module that is not there": (["--model", "python:no_such.pipe:answer"], ["no_such", "cannot be imported"]),
    "no such function": (
        ["--model", "python:tests.cli.some_pipeline:anwser"],
        ["expected a function, found None in tests.cli.some_pipeline"],
    ),
    "no function": (["--grader", "python:tests.cli.some_pipeline:NOT_A_FUNCTION"], ["expected a function, found 3"]),
    "too large a limit": (["--limit", "99999"], ["limit", "2280", "99999"]),
    "column without a role": (["--data", "q.csv", "--column", "problem"], ["ROLE=NAME", "problem"]),
    "no such file": (["--data", "absent.csv"], ["absent.csv"]),
}


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("case", CASES)
def test_unusable_option_is_named_with_advice(case):
    arguments, expected = CASES[case]
    status, said = invoke("run", *arguments)
    assert status == 2
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert all(part in said for part in expected), said
    assert not Path("runs").exists()


FILES = {
    "no answer column": ("question,anwser\nWho?,I\n", ["answer", "anwser"]),
    "no question column": ("qestion,answer\nWho?,I\n", ["question", "qestion"]),
    "duplicate ids": ("question_id,question,answer\n1,Who?,I\n1,What?,It\n", ["2", "3", "'1'"]),
    "empty file": ("", ["q.csv"]),
    "no rows": ("question,answer\n", ["q.csv"]),
    "gold answer missing": ("question,answer\nWho?,I\nWhat?,\n", ["3", "answer"]),
}


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("case", FILES)
def test_unusable_file_is_named_with_its_line(case):
    text, expected = FILES[case]
    status, said = invoke("run", "--data", write("q.csv", text), "--grader", "exact")
    assert status == 2
    assert "q.csv" in said
    assert all(part in said for part in expected), said
    assert not Path("runs").exists()


@pytest.mark.usefixtures("nowhere")
def test_folder_of_another_run_is_rejected_and_unchanged():
    arguments = ["run", "--limit", "3", "--variants", "low", "--out", "there"]
    assert invoke(*arguments)[0] == 0
    before = {path: path.read_bytes() for path in Path("there").rglob("*") if path.is_file()}
    status, said = invoke(*arguments, "--temperature", "1")
    assert status == 2
    assert "temperature" in said
    assert "0.7" in said
    assert {path: path.read_bytes() for path in Path("there").rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("nowhere")
def test_folder_not_created_by_a_run_is_rejected():
    Path("mine").mkdir()
    write("mine/thesis.tex", "years of work")
    status, said = invoke("run", "--limit", "3", "--out", "mine")
    assert status == 2
    assert "thesis.tex" in said
    assert Path("mine/thesis.tex").read_text() == "years of work"


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("refusd,wrong\n1,0\n", ["wrong", "rename 'refusd' to 'refused'"]),
        ("refused,wrong\nperhaps,1\n", ["perhaps", "refused", "2"]),
        ("", ["o.csv"]),
    ],
)
def test_unscorable_outcomes_are_named_with_their_line(text, expected):
    status, said = invoke("score", write("o.csv", text))
    assert status == 2
    assert all(part in said for part in ["o.csv", *expected]), said


@pytest.mark.usefixtures("nowhere")
def test_score_rejects_a_folder_without_a_run():
    Path("empty").mkdir()
    status, said = invoke("score", "empty")
    assert status == 2
    assert "run.json" in said


@pytest.mark.usefixtures("nowhere")
def test_json_is_the_only_standard_output():
    arguments = ["run", "--limit", "3", "--variants", "low", "--out", "there", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert json.loads(result.stdout)["variants"][0]["variant"] == "low"


# --- Paths on the command line

INPUTS = {
    *("add", "baseline", "candidate", "config", "data", "file", "files", "folder", "forced", "input_file", "labels"),
    *("grader_prompt", "models", "more", "pages", "paper", "pilot", "policy", "prompts", "rates", "run", "runs"),
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
    """Return a command line with some parameters, and with placeholders for all other required ones."""
    words, command = next((words, command) for one, words, command in commands() if one == name)
    line = list(words)
    for param in command.params:
        value = given.get(param.name, "x" if param.required else None)
        if value is not None:
            line += [value] if param.param_type_name == "argument" else [param.opts[0], value]
    return line


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_output_options_match_the_known_list():
    """A new option that names a file is an output, unless it stands in INPUTS."""
    assert len(OUTPUTS) == 17
    known = {"run-batch", "serve", "import", "build precise-wiki", "build paper-prompts", *RUN_FOLDERS}
    assert {name for name, _ in OUTPUTS} >= known


@one_fast(("name", "param"), sorted(OUTPUTS, key=lambda one: one[0] != "run-batch"))
def test_outputs_are_never_written_into_a_run_folder(run_folder, command, name, param):
    """``run-batch -o r/replies.sqlite`` destroyed the replies that were paid for, with exit status 0."""
    Path("link").symlink_to(run_folder / "replies.sqlite")
    before = contents(run_folder)
    for place in ("r", "r/new.csv", "link", "r/logs/new", "r/outcomes.parquet", "r/replies.sqlite"):
        if name in RUN_FOLDERS:
            if place == "r":  # its own command resumes there
                continue
            line = [*RUN_FOLDERS[name], "--out", place]
        else:
            line = with_stubs(name, {param: place})
        done = command(*line)
        assert done.exit_code == 2, (line, done.output)
        assert f"{place} lies in the folder of" in done.stderr, (line, done.stderr)
    assert contents(run_folder) == before


def test_gate_candidate_is_not_written_into_a_run_folder(run_folder, command):
    before = contents(run_folder)
    done = command("gate", "r/new", "--run", "--limit", "20", "--variants", "low", "--at-least", "refusal_index=0")
    assert (done.exit_code, contents(run_folder)) == (2, before)
    assert "r/new lies in the folder of the run" in done.stderr


def test_only_report_writes_the_page_of_a_run(run_folder, command):
    page = (run_folder / "report.html").read_bytes()
    assert command(*with_stubs("study", {"name": "results_table", "out": "r/report.html"})).exit_code == 2
    assert (run_folder / "report.html").read_bytes() == page
    assert command("report", "r", "--out", "r/report.html").exit_code == 0


def test_run_batch_may_write_below_rounds_of_a_run(run_folder, command):
    """``run --engine command`` has it write below ``rounds/``."""
    Path("requests.jsonl").write_text("")
    done = command("run-batch", "-i", "requests.jsonl", "-o", "r/rounds/replies.jsonl", "--model", "almanac/base")
    assert "lies in the folder of a run" not in done.output


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _, _ in commands()])
def test_non_utf8_or_control_character_paths_give_a_message(command, name):
    """Names that are no UTF-8 ended ``run`` and ``score`` in a TypeError."""
    done = command(*name.split(), NOT_UTF8)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error: bad\\udcff: expected text in UTF-8; rename the file or folder\n"
    for param in next(one for path, _, one in commands() if path == name).params:
        if is_path(param) and (name, param.name) not in {("run", "out"), ("serve", "log")}:  # these resume
            done = command(*with_stubs(name, {param.name: CONTROLS}))
            assert all(character.isprintable() for character in done.output.replace("\n", "")), done.output


def test_run_works_in_a_folder_named_with_control_characters(command):
    for line in ((*LOW, "--out", CONTROLS), ("score", CONTROLS), ("report", CONTROLS)):
        done = command(*line)
        assert done.exit_code == 0, done.output
        assert all(character.isprintable() for character in done.output.replace("\n", "")), done.output


# --- Several runs as input

COMMANDS = {
    "compare": ("--variants", "normal"),
    "study results_table": ("--format", "csv", "--out", "made"),
    "study --all": ("--format", "csv", "--out", "made"),
    "report": ("--out", "made.html"),
}


@pytest.fixture
def of_inputs(command, monkeypatch):
    """Return a function that runs one of the commands on some inputs, with only two studies."""
    few = tuple(study_spec(name) for name in ("results_table", "ranking_with_ties"))
    monkeypatch.setattr(study, "study_specs", lambda: few)
    for model in "ab":
        write_outcomes(pl.concat(list(made_run(model, n=60).tables.values())), Path(f"{model}.parquet"))
    Path("empty.csv").touch()
    return lambda name, *inputs: command(*name.split(), *inputs, *COMMANDS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_exit_status_is_0_if_all_runs_are_read_1_if_some_and_2_if_none(of_inputs, name):
    assert of_inputs(name, "a.parquet", "b.parquet").exit_code == 0
    partly = of_inputs(name, "a.parquet", "empty.csv", "b.parquet")
    assert (partly.exit_code, partly.stderr.count("left out: empty.csv")) == (1, 1)
    assert partly.stdout == of_inputs(name, "a.parquet", "b.parquet").stdout, "the others as if it had not been named"
    nothing = of_inputs(name, "empty.csv")
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert nothing.stderr.startswith("error: empty.csv")


@pytest.mark.parametrize("name", COMMANDS)
def test_exit_status_is_2_before_any_work_for_a_missing_path(of_inputs, name):
    result = of_inputs(name, "a.parquet", "b.parquet", "typo.parquet")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == ("error: typo.parquet cannot be read: there is no such file or folder; check the path\n")
    assert not Path("made").exists()
    assert not Path("made.html").exists()


def test_exit_status_is_2_if_only_one_model_is_left(of_inputs):
    result = of_inputs("compare", "a.parquet", "empty.csv")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "left out: empty.csv" in result.stderr
    assert "expected two models or more, got a alone" in result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_exit_statuses(command, name):
    output = " ".join(command(*name.split(), "--help").stdout.split())
    assert "Exit status: 0 done" in output
    assert "1 done without a run that could not be read" in output
    assert "of several runs" in output


@pytest.mark.parametrize("name", COMMANDS)
def test_set_uses_its_own_names_and_skips_runs_not_started(of_inputs, name):
    names = {"one": "Large, thinking", "two": "Small", "three": "Next"}
    for folder in ("one", "two"):
        make_run(Path("set", folder), "acme/same")
    runs = [{"folder": folder, "model": model, "dataset": "Ours"} for folder, model in names.items()]
    Path("set/summary.json").write_text(json.dumps({"set_version": SET_VERSION, "runs": runs}))
    result = of_inputs(name, "set")
    assert result.exit_code == 1
    assert result.stderr.startswith("left out: set/three has not started yet")
    made = [Path(f) for f in ("made/results_table.csv", "made.html") if Path(f).exists()]
    output = result.stdout + "".join(path.read_text(encoding="utf-8") for path in made)
    assert "Large, thinking" in output
    assert "Small" in output


def test_report_of_a_set_is_written_to_its_folder(command):
    make_run(Path("set/one"), "acme/one")
    runs = [{"folder": "one", "model": "Large", "dataset": "Ours"}]
    Path("set/summary.json").write_text(json.dumps({"set_version": SET_VERSION, "runs": runs}))
    assert command("report", "set").exit_code == 0
    page = Path("set/report.html").read_text(encoding="utf-8")
    assert "<title>Refusal Index of Large on Ours</title>" in page
