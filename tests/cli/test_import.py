"""`import`: somebody else's first pass becomes an outcome table, and what it says alone is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.data.outcome_table import read_outcomes
from refusal_index.stats import f_score

ANSWERS = "problem,target,predicted_answer,grade\n" + "".join(
    f"Question {n}?,{n},reply {n},{grade}\n" for n, grade in enumerate("AAABBBBCCC" * 2)
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("m1.csv").write_text(ANSWERS)
    return lambda *arguments: CliRunner().invoke(app, ["import", *arguments], catch_exceptions=False)


def test_the_counts_and_the_metrics_of_the_first_pass_are_printed(run):
    result = run("m1.csv", "--out", "o.csv", "--dataset", "quiz")
    assert result.exit_code == 0
    heading, row = result.stdout.splitlines()[:2]
    assert heading.split()[-9:] == [
        "correct",
        "incorrect",
        "refused",
        "unscored",
        "C/A",
        "F",
        "weighted",
        "force",
        "asks",
    ]
    f = f"{float(f_score(0.3, 0.3)):.3f}"
    assert row.split() == ["m1,", "quiz", "20", "6", "8", "6", "0", "0.429", f, "-0.400", "6"]
    assert "o.csv: 20 rows" in result.stdout


@pytest.mark.parametrize("out", ["o.csv", "o.jsonl", "o.parquet"])
def test_the_table_is_one_that_is_read_back(run, out):
    assert run("m1.csv", "--out", out).exit_code == 0
    table = read_outcomes(out)
    assert table["unscored_reason"].value_counts().rows().count(("forced_not_asked", 6)) == 1
    assert table.filter(first_grade="refused")["wrong"].null_count() == 6


def test_several_files_are_several_models(run):
    Path("m2.csv").write_text(ANSWERS.replace(",A\n", ",C\n"))
    result = run("m1.csv", "m2.csv", "--out", "o.parquet", "--json")
    found = json.loads(result.stdout)
    assert [(one["model"], one["refused"], one["force_requests"]) for one in found] == [("m1", 6, 6), ("m2", 12, 12)]
    assert found[0]["metrics"]["correct_given_attempted"]["estimate"] == 6 / 14
    assert read_outcomes("o.parquet")["question_id"].n_unique() == 20


def test_grades_of_right_and_wrong_only_are_told_how_to_find_refusals(run):
    Path("w.csv").write_text("question,answer,response,grade\na,1,no idea,0\nb,1,1,1\n")
    assert "--refusal REGEX" in run("w.csv", "--out", "o.csv").stdout
    assert "--refusal" not in run("w.csv", "--out", "o.csv", "--refusal", "no idea").stdout


def test_what_is_unscored_is_counted_with_its_reason(run):
    Path("u.csv").write_text("question,answer,grade\n" + "".join(f"q{n},1,{g}\n" for n, g in enumerate(["A", "", "C"])))
    said = run("u.csv", "--out", "o.csv").stdout
    assert "1 of 3 questions could not be scored (first_not_graded 1)" in said
    assert "would mislead" in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["absent.csv", "--out", "o.csv"], ["absent.csv", "cannot be read"]),
        (["m1.csv", "--out", "o.txt"], ["o.txt", ".parquet"]),
        (["m1.csv", "--out", "absent/o.csv"], ["--out", "absent/o.csv"]),
        (["m1.csv", "--out", "o.csv", "--format", "inspekt"], ["--format", "'inspect'"]),
        (["m1.csv", "--out", "o.csv", "--format", "outcomes"], ["'refused'"]),
        (["m1.csv", "--out", "o.csv", "--format", "inspect"], ["m1.csv", "not a readable Inspect log"]),
        (["m1.csv", "--out", "o.csv", "--format", "lm-eval"], ["m1.csv", "metric"]),
        (["m1.csv", "--out", "o.csv", "--column", "grade"], ["--column", "ROLE=NAME"]),
        (["m1.csv", "m1.csv", "--out", "o.csv"], ["the same question again"]),
    ],
)
def test_bad_input_is_one_clear_line(run, arguments, told):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert all(part in result.stderr for part in told), result.stderr
    assert not Path("o.csv").exists()


def test_text_of_others_does_not_steer_the_terminal(run):
    Path("m.csv").write_text("model,question,answer,grade\n\x1b[31mred,a,1,A\nred,b,1,\x1b[2J\n")
    result = run("m.csv", "--out", "o.csv")
    assert "\x1b" not in result.output
    Path("m.csv").write_text("model,question,answer,grade\n\x1b[31mred,a,1,C\n")
    assert "\x1b" not in run("m.csv", "--out", "o.csv").output


def test_a_file_to_import_is_never_written_over(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = "question,answer,prediction,grade\nWho?,I,I,CORRECT\n"
    Path("first.csv").write_text(content)
    done = command("import", "first.csv", "--out", "./first.csv")
    assert done.exit_code == 2
    assert "is one of the files to import" in done.stderr
    assert Path("first.csv").read_text() == content


def test_the_variant_is_what_the_option_says_else_what_the_file_says(run):
    Path("v.csv").write_text("variant,question,answer,grade\nterse,a,1,A\n,b,1,C\n")
    assert run("v.csv", "--out", "o.csv").exit_code == 0
    assert read_outcomes("o.csv")["variant"].to_list() == ["terse", None]
    assert run("v.csv", "--out", "o.csv", "--variants", "high").exit_code == 0
    assert read_outcomes("o.csv")["variant"].to_list() == ["high", "high"]
    Path("v.csv").write_text("variant,question,answer,grade\nterse,a,1,A\nplain,a,1,C\n")
    assert "the same question again" in run("v.csv", "--out", "o.csv", "--variants", "high").stderr


def test_rows_of_both_passes_are_scored_without_force(run):
    Path("b.csv").write_text("id,refused,correct\na,1,1\nb,1,0\nc,0,1\nd,0,0\n")
    result = run("b.csv", "--out", "o.csv")
    assert "2 refused questions have their forced answers" in " ".join(result.stdout.split())
    assert "'refusal-index force' sends" not in result.stdout
    assert read_outcomes("o.csv")["wrong"].null_count() == 0


def test_a_second_file_a_path_and_a_word_of_ones_own(run):
    rows = [("a", "Pass"), ("b", "Fine"), ("c", "Bad")]
    Path("one.jsonl").write_text("".join(json.dumps({"id": i, "r": {"g": g}}) + "\n" for i, g in rows))
    Path("two.csv").write_text("id,grade\na,Fine\n")
    words = [option for pair in ("Pass=refused", "Fine=correct", "bad=incorrect") for option in ("--map", pair)]
    result = run("one.jsonl", "--forced", "two.csv", "--out", "o.csv", "--column", "grade=r.g", *words)
    assert result.exit_code == 0, result.output
    table = read_outcomes("o.csv")
    assert table["refused"].to_list() == [True, False, False]
    assert table["wrong"].to_list() == [False, False, True]


@pytest.mark.parametrize("given", ["Pass", "=refused", "Pass=skipped", "Pass="])
def test_a_word_without_a_meaning_is_bad_input(run, given):
    result = run("m1.csv", "--out", "o.csv", "--map", given)
    assert result.exit_code == 2
    assert "--map: expected WORD=MEANING" in " ".join(result.stderr.split())


def test_forced_answers_belong_to_one_file(run):
    result = run("m1.csv", "m1.csv", "--forced", "m1.csv", "--out", "o.csv")
    assert result.exit_code == 2
    assert "--forced: expected a single FILE" in result.stderr


def test_passes_the_wrong_way_round_are_bad_input_and_nothing_is_written(run):
    rows = {"first.csv": ("normal", "C"), "second.csv": ("forced", "A")}
    for name, (variant, grade) in rows.items():
        Path(name).write_text(f"id,variant,question,answer,grade\nq1,{variant},a,1,{grade}\n")
    result = run("second.csv", "--forced", "first.csv", "--out", "o.csv")
    assert (result.exit_code, Path("o.csv").exists()) == (2, False)
    assert result.stderr.startswith("error: second.csv: expected the first pass")
    assert result.stderr.endswith("import first.csv --forced second.csv\n")
    assert run("first.csv", "--forced", "second.csv", "--out", "o.csv").exit_code == 0
    assert read_outcomes("o.csv")["wrong"].to_list() == [False]
