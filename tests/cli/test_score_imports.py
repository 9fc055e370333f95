"""`score` of other tools' files: RI of both passes, otherwise the rates that are known and the next command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import polars as pl
import pytest
from click.testing import Result
from typer.testing import CliRunner

from refusal_index.cli import app

FIRST = "id,question,target,grade\n" + "".join(
    f"q{n},Is it {n}?,{n},{grade}\n" for n, grade in enumerate("AAABCCCCBA" * 3)
)
FORCED = "id,question,target,grade\n" + "".join(f"q{n},Is it {n}?,{n},{'AB'[n % 3 > 0]}\n" for n in range(30))


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("first.csv").write_text(FIRST)
    Path("forced.csv").write_text(FORCED)


def invoke(*arguments: str, exit_code: int | None = None) -> Result:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert exit_code in (None, result.exit_code), result.output
    return result


def commands(stdout: str) -> list[list[str]]:
    return [shlex.split(line) for line in stdout.split("\n") if line.startswith("  refusal-index ")]


def test_end_to_end_both_passes_in_two_files_have_the_index_of_the_table_that_import_writes():
    scored = invoke("score", "first.csv", "--forced", "forced.csv", "--json")
    invoke("import", "first.csv", "--forced", "forced.csv", "--out", "both.csv")
    again = invoke("score", "both.csv", "--json")
    assert json.loads(scored.stdout)["variants"] == json.loads(again.stdout)["variants"]
    (group,) = json.loads(again.stdout)["variants"]
    assert sum(group["table"].values()) == 30


def test_first_pass_alone_has_its_rates_and_the_command_for_the_forced_pass():
    done = invoke("score", "first.csv", "--column", "grade=grade", "--map", "A=correct", exit_code=0)
    forced, table = commands(done.stdout)
    options = ["--column", "grade=grade", "--map", "a=correct"]
    assert forced == ["refusal-index", "force", "first.csv", "--model", "PROVIDER/NAME", *options]
    assert table == ["refusal-index", "import", "first.csv", *options, "--out", "outcomes.parquet"]
    document = json.loads(invoke("score", "first.csv", "--json").stdout)
    (tally,) = document["first_passes"]
    assert (tally["correct"], tally["incorrect"], tally["refused"], tally["force_requests"]) == (12, 6, 12, 12)


def test_refusals_alone_are_a_rate_and_no_error():
    Path("o.csv").write_text("refused\n1\n0\n")
    (tally,) = json.loads(invoke("score", "o.csv", "--json", exit_code=0).stdout)["first_passes"]
    assert (tally["refused"], tally["unscored"]) == (1, 1)


def test_answers_without_a_refusal_name_the_command_that_reads_them_by_their_wording():
    Path("x.csv").write_text("question,target,reply,is_correct\nWho?,Ann,Ann,1\nWhere?,Oslo,I do not know.,0\n")
    wording, _ = commands(invoke("score", "x.csv", exit_code=0).stdout)
    assert wording == ["refusal-index", "score", "x.csv", "--refusal", "wording"]
    (tally,) = json.loads(invoke(*wording[1:], "--json", exit_code=0).stdout)["first_passes"]
    assert (tally["correct"], tally["incorrect"], tally["refused"]) == (1, 0, 1)


def test_answers_without_a_grade_name_the_command_that_grades_them():
    Path("x.csv").write_text("question,target,reply,abstained\nWho?,Ann,Ann,0\nWhere?,Oslo,I do not know.,1\n")
    grading, *_ = commands(invoke("score", "x.csv", exit_code=0).stdout)
    assert grading == ["refusal-index", "score", "x.csv", "--grader", "exact"]
    (tally,) = json.loads(invoke(*grading[1:], "--json", exit_code=0).stdout)["first_passes"]
    assert (tally["correct"], tally["refused"], tally["unscored"]) == (1, 1, 0)


@pytest.mark.parametrize("length", [5, 60])
def test_counts_stand_in_one_table_of_80_columns_whatever_the_name(length, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    header, counts, *_ = invoke("score", "first.csv", "--name", "m" * length, exit_code=0).stdout.split("\n")
    assert all(name in header for name in ("n", "correct", "incorrect", "refused", "unscored"))
    assert counts.split()[1:6] == ["30", "12", "6", "12", "0"]
    assert max(len(header), len(counts)) <= 80


def test_options_for_other_tools_files_are_refused_for_published_rates_and_folders(tmp_path):
    for option, value in (("--forced", "forced.csv"), ("--grader", "exact"), ("--rows", "a.b")):
        said = invoke("score", "--rates", "r.csv", option, value, exit_code=2).stderr
        assert f"{option}: applies to outcomes" in said
        said = invoke("score", str(tmp_path), option, value, exit_code=2).stderr
        assert f"{option}: applies to other tools' files" in said


def test_tables_with_other_ids_say_how_many_texts_are_the_same_and_how_to_match_them():
    Path("second.csv").write_text(
        FIRST.replace("\nq", "\nother ").replace("Is it 3?", "Was it 3?").replace("Is", " IS")
    )
    for name in ("first", "second"):
        table = pl.read_csv(f"{name}.csv").select(
            question_id="id", question="question", gold=pl.col("target").cast(str)
        )
        refused = pl.Series("refused", [grade == "C" for grade in pl.read_csv(f"{name}.csv")["grade"]])
        table.with_columns(refused, wrong=~refused, model=pl.lit(name)).write_csv(f"{name}-table.csv")
    said = " ".join(invoke("compare", "first-table.csv", "second-table.csv", exit_code=0).stdout.split())
    assert "29 of them have the same text under other ids." in said
    assert "--column question_id=question" in said
