"""Bad input gets one clear line, exit status 2, and nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refusal_index.cli import app


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stderr


@pytest.fixture(autouse=True)
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
        ["openai/gpt-4o-mini", "OPENAI_API_KEY", "--grader exact"],
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
    "a removed option": (["--limit", "3", "--batch"], ["error: --batch: renamed; use --engine batch"]),
    "a removed engine": (["--engine", "inspect"], ["engine 'inspect' is now 'direct', the default"]),
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


@pytest.mark.parametrize("case", CASES)
def test_an_option_that_cannot_be_used_is_named_with_what_to_do(case):
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


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_cannot_be_used_is_named_with_its_line(case):
    text, expected = FILES[case]
    status, said = invoke("run", "--data", write("q.csv", text), "--grader", "exact")
    assert status == 2
    assert "q.csv" in said
    assert all(part in said for part in expected), said
    assert not Path("runs").exists()


def test_the_folder_of_another_run_is_refused_and_left_as_it_is():
    arguments = ["run", "--limit", "3", "--variants", "low", "--out", "there"]
    assert invoke(*arguments)[0] == 0
    before = {path: path.read_bytes() for path in Path("there").rglob("*") if path.is_file()}
    status, said = invoke(*arguments, "--temperature", "1")
    assert status == 2
    assert "temperature" in said
    assert "0.7" in said
    assert {path: path.read_bytes() for path in Path("there").rglob("*") if path.is_file()} == before


def test_a_folder_that_no_run_made_is_refused():
    Path("mine").mkdir()
    write("mine/thesis.tex", "years of work")
    status, said = invoke("run", "--limit", "3", "--out", "mine")
    assert status == 2
    assert "thesis.tex" in said
    assert Path("mine/thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("refused\n1\n", ["wrong"]),
        ("refused,wrong\nperhaps,1\n", ["perhaps", "refused", "2"]),
        ("", ["o.csv"]),
    ],
)
def test_outcomes_that_cannot_be_scored_are_named_with_their_line(text, expected):
    status, said = invoke("score", write("o.csv", text))
    assert status == 2
    assert all(part in said for part in ["o.csv", *expected]), said


def test_score_of_a_folder_that_is_no_run_says_so():
    Path("empty").mkdir()
    status, said = invoke("score", "empty")
    assert status == 2
    assert "run.json" in said


def test_json_goes_alone_to_standard_output():
    arguments = ["run", "--limit", "3", "--variants", "low", "--out", "there", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert json.loads(result.stdout)["variants"][0]["variant"] == "low"
