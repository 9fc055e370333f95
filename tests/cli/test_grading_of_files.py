"""Answers without a grade in a file: a grading model or function grades them, and its grades are kept."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import polars as pl
import pytest
from click.testing import Result
from typer.testing import CliRunner

import refusal_index as ri
from refusal_index.cli import app

GRADER = """
from pathlib import Path


def grade(question, reply):
    with Path("asked.txt").open("a") as file:
        file.write(reply + chr(10))
    if "know" in reply:
        return "refused"
    return "correct" if question.gold in reply else "incorrect"
"""
ANSWERS = [("France", "Paris", "Paris."), ("Peru", "Lima", "I do not know"), ("Italy", "Rome", "Milan")]
ROWS = "".join(f"{country}?,{gold},{reply}\n" for country, gold, reply in ANSWERS)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path(f"{tmp_path.name}_own.py").write_text(GRADER)
    Path("answers.csv").write_text("question,gold,response\n" + ROWS + "France?,Paris,Paris.\nSpain?,Madrid,\n")


@pytest.fixture
def grader(tmp_path: Path) -> str:
    return f"python:{tmp_path.name}_own:grade"


def invoke(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert exit_code == result.exit_code, result.output
    return result


def asked() -> list[str]:
    return sorted(Path("asked.txt").read_text().split("\n")[:-1])


def test_end_to_end_answers_are_graded_once_and_every_command_uses_the_grades(grader):
    done = invoke("score", "answers.csv", "--grader", grader, "--json")
    (tally,) = json.loads(done.stdout)["first_passes"]
    assert [tally[name] for name in ("correct", "incorrect", "refused", "unscored")] == [2, 1, 1, 1]
    assert tally["reasons"] == {"first_empty": 1}
    assert set(asked()) - {"Paris.", "Milan"} == {"Berlin"}  # the test of the grader; the refusal is worded as one
    assert len(asked()) == 3  # the repeated reply is graded once
    before = asked()
    invoke("import", "answers.csv", "--grader", grader, "--out", "table.parquet")
    assert pl.read_parquet("table.parquet")["first_grade"].to_list() == [
        *("correct", "refused", "incorrect", "correct", "unscored")
    ]
    assert asked() == before


def test_end_to_end_the_forced_pass_uses_the_grades_of_the_first(grader):
    invoke("score", "answers.csv", "--grader", grader)
    before = asked()
    invoke("force", "answers.csv", "--model", "almanac/base", "--grader", grader, "--out", "run", exit_code=1)
    table = pl.read_parquet("run/outcomes.parquet")
    assert table["first_grade"].to_list() == ["correct", "refused", "incorrect", "correct", "unscored"]
    assert len(asked()) == len(before) + 2  # the test of the grader, and the forced answer


def test_words_for_an_answer_keep_a_reply_from_being_a_refusal(grader):
    Path("abstained.csv").write_text("question,gold,response,abstained\nPeru?,Lima,I do not know,no\n")
    done = invoke("score", "abstained.csv", "--grader", grader, "--json")
    (tally,) = json.loads(done.stdout)["first_passes"]
    assert (tally["incorrect"], tally["refused"]) == (1, 0)


def test_without_a_grader_the_command_is_printed(grader):
    done = invoke("score", "answers.csv", exit_code=2)
    assert "--grader exact" in done.stderr
    Path("some.csv").write_text("question,gold,response,grade\n" + ROWS.replace("\n", ",\n") + "Oslo?,O,O,correct\n")
    lines = [shlex.split(line) for line in invoke("score", "some.csv").stdout.split("\n") if line.startswith("  ")]
    assert ["refusal-index", "score", "some.csv", "--grader", "openai/gpt-4o-mini"] in lines
    assert "--grader-price: applies only" in invoke("score", "some.csv", "--grader-price", "1,2", exit_code=2).stderr
    assert "--grader: expected one of" in invoke("score", "some.csv", "--grader", "judge", exit_code=2).stderr


def test_answers_without_gold_answers_are_not_graded(grader):
    Path("none.csv").write_text("question,response\nPeru?,Lima\n")
    assert "expected gold answers" in invoke("score", "none.csv", "--grader", grader, exit_code=2).stderr


def test_other_commands_name_the_one_that_writes_a_table():
    Path("log.json").write_text("[]")
    for command in (["show"], ["report"], ["gate"], ["compare", "--with", "paper"]):
        for file in ("answers.csv", "log.json"):
            done = invoke(*command, file, exit_code=2)
            assert f"refusal-index import {file} --out outcomes.parquet" in done.stderr


def test_repeated_ids_are_named_with_their_lines_and_repeated_questions_are_counted_aloud():
    Path("ids.csv").write_text("id,question,grade\n1,a,correct\n2,b,correct\n1,c,incorrect\n")
    assert "ids.csv, lines 2, 4: expected every question once" in invoke("score", "ids.csv", exit_code=2).stderr
    Path("texts.csv").write_text("question,grade\na,correct\na,incorrect\nb,refused\n")
    assert "1 row repeats the question of another row" in " ".join(invoke("score", "texts.csv").stdout.split())


@pytest.mark.parametrize("cell", ["0.8", "0,8", "80%", "5"])
def test_no_threshold_is_assumed_for_numbers(cell):
    Path("n.csv").write_text(f'question,grade\na,"{cell}"\nb,1\n')
    assert "no threshold is assumed" in invoke("score", "n.csv", exit_code=2).stderr


def test_line_that_names_the_separator_and_columns_without_a_name_are_read():
    Path("s.csv").write_text("sep=;\nquestion;grade;;\na;correct;;\n")
    (tally,) = json.loads(invoke("score", "s.csv", "--json").stdout)["first_passes"]
    assert (tally["n"], tally["correct"]) == (1, 1)


def test_ids_that_differ_in_spaces_are_named_in_a_comparison():
    for name, space in (("a", " "), ("b", "")):
        rows = "".join(f"{space}q{n},{n % 2},{n % 3 % 2}\n" for n in range(40))
        Path(f"{name}.csv").write_text("question_id,refused,wrong\n" + rows)
    done = " ".join(invoke("compare", "a.csv", "b.csv").stdout.split())
    assert "40 of their ids differ only in spaces or capital letters" in done


def test_end_to_end_python_asks_the_grader_once_and_reuses_the_grades_of_the_commands(grader):
    (tally,) = ri.score("answers.csv", grader=grader).first_passes
    assert (tally.correct, tally.incorrect, tally.refused, tally.unscored) == (2, 1, 1, 1)
    before = asked()
    assert ri.score("answers.csv", grader=grader).first_passes == (tally,)
    invoke("score", "answers.csv", "--grader", grader)
    assert asked() == before
    with pytest.raises(ri.RefusalIndexError, match="grader_base_url: applies only with a grading model"):
        ri.score("answers.csv", grader="exact", grader_base_url="http://127.0.0.1:1/v1")


def test_python_raises_if_an_answer_is_not_graded():
    Path(f"{Path.cwd().name}_own.py").write_text(
        GRADER.replace('    if "know"', '    assert "Milan" not in reply\n    if "know"')
    )
    with pytest.raises(ri.RefusalIndexError, match="1 of 3 answers are not graded"):
        ri.score("answers.csv", grader=f"python:{Path.cwd().name}_own:grade")


def test_property_scored_files_compare_as_the_tables_written_from_them(tmp_path):
    head = "question,gold,grade,forced_correct,model\n"
    for name, shift in (("m", 0), ("n", 1)):
        grades = ("refused", "correct", "incorrect", "refused", "correct")
        rows = [(n, grades[(n + shift) % 5], n % 2) for n in range(40)]
        lines = [f"Q{n}?,A,{grade},{right if grade == 'refused' else ''},{name}\n" for n, grade, right in rows]
        Path(f"{name}.csv").write_text(head + "".join(lines))
    scored = [ri.score(f"{name}.csv") for name in "mn"]
    for one, name in zip(scored, "mn", strict=True):
        one.write(f"{name}.parquet")
    of_files = ri.compare(*(one.run for one in scored)).to_frame()
    assert of_files.equals(ri.compare("m.parquet", "n.parquet").to_frame())
    assert ri.gate(scored[0].run, scored[1].run).verdict == ri.gate("m.parquet", "n.parquet").verdict
    assert str(ri.sensitivity(scored[0].run)) == str(ri.sensitivity("m.parquet"))
