"""A question of the dataset that is a worked example of the prompts: said before the run and beside its results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import refusal_index as ri
from refusal_index.data import Question
from refusal_index.findings.worked_examples import example_statements
from refusal_index.protocol import load_prompt_set
from refusal_index.protocol.worked_examples import examples_asked

DEFAULT = load_prompt_set("default")
EXAMPLE = DEFAULT.examples[1]
SAID = "show an answer: example 2, 'In what year did the Tay Bridge collapse?'"
RUN = ("run", "--model", "almanac/base", "--grader", "exact", "--variants", "low,highest", "--out", "run")


def write_questions(*texts: str, others: int = 4) -> str:
    asked = [*texts, *(f"What is {number} plus {number}?" for number in range(others))]
    rows = [{"question_id": f"q{place}", "question": text, "answer": "1879"} for place, text in enumerate(asked)]
    Path("own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "own.jsonl"


@pytest.mark.parametrize("text", [EXAMPLE.question, EXAMPLE.question.upper(), f"  {EXAMPLE.question[:-1]} ?!"])
def test_same_question_in_another_spelling_is_found(text):
    questions = [Question("q0", "Who?", "He"), Question("q1", text, "1879")]
    assert examples_asked(DEFAULT, questions) == [(2, text)]


@pytest.mark.parametrize("text", ["In what year did the Tay Bridge open?", EXAMPLE.answer, "", "In what year"])
def test_other_questions_are_not(text):
    assert examples_asked(DEFAULT, [Question("q1", text, "1879")]) == []


def test_caveat_is_serious_from_one_in_a_hundred_questions():
    assert [*example_statements([], 5)] == []
    (one,) = example_statements([[2, "q1"]], 101)
    (many,) = example_statements([[2, "q1"]], 100)
    assert (one.severity, many.severity) == ("note", "serious")
    assert one.values["asked"] == [(2, "q1")]


def test_end_to_end_the_caveat_stands_beside_the_results(command):
    data = write_questions(EXAMPLE.question)
    dry = command(*RUN, "--data", data, "--dry-run")
    assert SAID in " ".join(dry.stdout.split())
    assert SAID in json.loads(command(*RUN, "--data", data, "--dry-run", "--json").stdout)["runs"][0]["remark"]
    result = command(*RUN, "--data", data)
    assert result.exit_code == 0, result.output
    assert "warning: 1 of 5 questions is also a worked example of the prompts" in " ".join(result.stderr.split())
    summary = json.loads(Path("run/summary.json").read_text())
    for variant in summary["variants"]:
        assert any("Tay Bridge" in caveat for caveat in map(json.dumps, variant["caveats"]))
    assert SAID in " ".join(command("show", "run").stdout.split())
    assert "Tay Bridge" in Path("run/report.html").read_text()
    assert json.loads(Path("run/run.json").read_text())["about"]["examples_asked"] == [[2, EXAMPLE.question]]


def test_run_without_such_a_question_has_no_caveat(command):
    data = write_questions()
    result = command(*RUN, "--data", data)
    assert "worked example" not in result.output
    assert "examples_asked" not in json.loads(Path("run/run.json").read_text())["about"]


def test_prompt_set_of_the_user_is_compared_too(command):
    data = write_questions("Is this my own example?")
    text = "".join(
        f'[[examples]]\nquestion = "{question}"\nanswer = "x"\n' for question in ("First?", "is this my OWN example")
    )
    variants = "[variants.low]\ninstruction = ''\nunanswered = []\n[forced]\ninstruction = ''\nunanswered = []\n"
    templates = "name = 'own'\npreamble = '{examples}{instruction}'\nquestion = '{question}'\n"
    Path("own.toml").write_text(f"{templates}example = '{{number}}{{question}}{{answer}}'\n{variants}{text}")
    run = ri.evaluate("almanac/base", data, prompts="own.toml", grader="exact", out="run")
    assert [caveat.values["asked"] for caveat in run.summary.variants[0].caveats if caveat.code == "example_asked"] == [
        [(2, "Is this my own example?")]
    ]
    assert "example 2" in command("validate", data, "--prompts", "own.toml", "--variants", "low").stdout
    assert "worked example" not in command("validate", data).stdout


def test_validate_names_the_first_row(command):
    checked = command("validate", write_questions("Which?", EXAMPLE.question, DEFAULT.examples[0].question))
    assert checked.exit_code == 0
    assert "warning: 2 questions are also worked examples of the prompts, which show an answer" in checked.stdout
    assert "line 2: example 2" in checked.stdout


def test_dry_run_in_python_states_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    estimate = ri.dry_run("almanac/base", write_questions(EXAMPLE.question), grader="exact")
    assert [caveat.code for caveat in estimate.caveats] == ["example_asked"]
