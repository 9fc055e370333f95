"""``gate`` in a pipeline: exit statuses, files, the job summary, and rejected input."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from junitparser import JUnitXml

from refusal_index.data import Outcome, Question
from refusal_index.data.files import write_atomically
from refusal_index.data.outcome_table import Identification, outcome_table, write_outcomes
from refusal_index.errors import NotWrittenError
from refusal_index.findings.changed_questions import ChangedQuestion
from refusal_index.findings.gate_policy import COARSE
from refusal_index.render.format import typeset
from tests.tiers import others_nightly

N = 500


def write(name: str, error: float, refusal: float = 0.3, n: int = N, first: int = 0) -> None:
    """Write outcomes of a model: the lower `error` the more are wrong, the higher `refusal` the fewer refused."""
    hard, inclined = np.random.default_rng(1).standard_normal((2, N * 4))
    rows = (
        (
            Identification(name, "d", "normal"),
            Question(f"q{i}", f"question {i}", "!"),
            Outcome(bool(0.7 * hard[i] + 0.7 * inclined[i] > refusal), bool(hard[i] > error)),
        )
        for i in range(first, first + n)
    )
    write_outcomes(outcome_table(rows), Path(f"{name}.parquet"))


@pytest.fixture(autouse=True)
def runs(command, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    write("base", 0.2)
    write("same", 0.2)
    write("worse", -0.4)
    write("slightly", 0.1)


def test_exit_statuses_match_verdicts(command):
    assert [
        command("gate", f"{name}.parquet", "--baseline", "base.parquet").exit_code
        for name in ("same", "worse", "slightly")
    ] == [0, 1, 3]
    done = command("gate", "worse.parquet", "--baseline", "base.parquet")
    assert done.stdout.startswith("FAIL. Do not ship worse: it answers fewer questions correctly and is wrong")


def test_a_narrow_terminal_shows_the_verdict_without_long_lines(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = command("gate", "slightly.parquet", "--baseline", "base.parquet").stdout.splitlines()
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize("columns", ["80", "300"])
def test_verdict_fits_a_screen_of_20_lines_and_80_columns(command, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    bound = ("--at-least", "refusal_precision=0.5")
    lines = command("gate", "slightly.parquet", "--baseline", "base.parquet", *bound).stdout.splitlines()
    assert lines[0].startswith("INCONCLUSIVE. ")
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    heading = next(place for place, line in enumerate(lines) if line.startswith("guard"))
    assert lines[heading].split() == [
        *("guard", "baseline", "candidate", "change", "90%", "interval", "limit", "verdict")
    ]
    assert lines[heading + 5] == ""  # between the guards against the baseline and the fixed bounds
    verdicts = [line.split()[-1] for line in (*lines[heading + 1 : heading + 5], lines[heading + 7])]
    assert set(verdicts) <= {"pass", "inconclusive"}


def test_options_add_to_the_policy(command):
    Path("gate.toml").write_text("[margins]\ncorrect_rate = 0.4\ncorrect_given_attempted = 0.9\n")
    judged = ("gate", "worse.parquet", "--baseline", "base.parquet", "--policy", "gate.toml")
    assert command(*judged, "--margin", "refusal_index=0.9", "--margin", "refusal_rate=0.5").exit_code == 0
    assert command(*judged, "--margin", "refusal_index=0.9", "--margin", "correct_rate=0").exit_code == 1
    assert (
        command("gate", "worse.parquet", "--at-least", "correct_rate=0.1", "--at-most", "refusal_rate=0.9").exit_code
        == 0
    )


def test_preset_has_wider_margins(command):
    judged = ("gate", "slightly.parquet", "--baseline", "base.parquet", "--policy", "coarse")
    assert command(*judged).exit_code == 0
    document = json.loads(command(*judged, "--margin", "refusal_rate=0.2", "--json").stdout)
    assert document["policy"]["margins"] == {**COARSE, "refusal_rate": 0.2}
    misspelt = command(*judged[:-1], "coarce")
    assert misspelt.exit_code == 2
    assert "coarce cannot be read" in misspelt.stderr
    assert "'coarse'" in misspelt.stderr


def test_reference_page_documents_every_verdict_key(command):
    page = (Path(__file__).parents[2] / "docs/reference/files.md").read_text()
    table = page.partition("<!-- verdict -->")[2].partition("\n## ")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    documented = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    document = json.loads(command("gate", "worse.parquet", "--baseline", "base.parquet", "--json").stdout)
    assert documented == set(document)
    keys = [*document["guards"][0], *(field.name for field in fields(ChangedQuestion))]
    assert all(f"`{key}`" in table for key in keys)
    assert f"| `gate_version` | {document['gate_version']} |" in table


def test_every_output_format_is_written_and_agrees(command):
    files = ("--out", "g.json", "--out", "g.xml", "--out", "g.md", "--out", "g.html")
    assert command("gate", "worse.parquet", "--baseline", "base.parquet", *files).exit_code == 1
    document = json.loads(Path("g.json").read_text())
    assert document["verdict"] == "fail"
    (suite,) = JUnitXml.fromfile("g.xml")
    assert {case.name for case in suite if case.result} == {
        "verdict",
        *(guard["metric"] for guard in document["guards"] if guard["verdict"] != "pass"),
    }
    assert Path("g.md").read_text().startswith("## Refusal Index gate: fail\n")
    report = Path("g.html").read_text()
    assert (
        report.index(">Fail</h1>") < report.index(typeset(document["why"][1:40])) < report.index("2 runs side by side")
    )
    printed = command("gate", "worse.parquet", "--baseline", "base.parquet", "--json")
    assert json.loads(printed.stdout) == document


def test_every_format_of_a_pass_has_its_sentence_and_no_column_of_a_baseline_that_is_not_there(command):
    files = ("--out", "g.json", "--out", "g.xml", "--out", "g.md", "--out", "g.html")
    assert command("gate", "same.parquet", "--at-most", "refusal_rate=0.95", *files).exit_code == 0
    why = json.loads(Path("g.json").read_text())["why"]
    (suite,) = JUnitXml.fromfile("g.xml")
    verdict = next(case for case in suite if case.name == "verdict")
    assert verdict.system_out.startswith(f"{why}\n\nguard    candidate ")
    assert typeset(why) in Path("g.html").read_text()
    assert "| guard | candidate | 90% interval | limit | adjusted p | verdict |" in Path("g.md").read_text()


@pytest.mark.parametrize("theirs", ['{"scripts": {}}', "[]"])
def test_unrelated_run_json_does_not_block_the_output(command, theirs):
    Path("run.json").write_text(theirs)
    assert command("gate", "same.parquet", "--baseline", "base.parquet", "--out", "g.json").exit_code == 0
    assert json.loads(Path("g.json").read_text())["verdict"] == "pass"


def test_unreadable_run_json_still_marks_a_run_folder(command):
    Path("run.json").write_text('{"run_for')
    done = command("gate", "same.parquet", "--baseline", "base.parquet", "--out", "g.json")
    assert (done.exit_code, Path("g.json").exists()) == (2, False)
    assert "lies in the folder of a run" in done.stderr


def test_verdict_is_appended_to_the_job_summary(command, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(Path("summary.md").absolute()))
    Path("summary.md").write_text("before\n")
    assert command("gate", "same.parquet", "--baseline", "base.parquet").exit_code == 0
    assert Path("summary.md").read_text().startswith("before\n## Refusal Index gate: pass\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(Path("nowhere/summary.md").absolute()))
    done = command("gate", "same.parquet", "--baseline", "base.parquet")
    assert done.exit_code == 0
    assert "the verdict stands" in done.stderr


def test_a_run_without_enough_grades_is_inconclusive(command):
    rows = pl.read_parquet("base.parquet")
    lacking = rows.with_columns(
        pl.when(pl.int_range(pl.len()) >= 15).then(name).alias(name) for name in ("refused", "wrong")
    )
    write_outcomes(lacking.with_columns(first_grade=pl.lit(None, pl.String)), Path("lacking.parquet"))
    wide = [item for name in ("refusal_index", "correct_rate", "refusal_rate") for item in ("--margin", f"{name}=0.5")]
    done = command("gate", "lacking.parquet", "--baseline", "base.parquet", *wide)
    assert done.exit_code == 3
    assert "more than the 1% allowed" in " ".join(done.stdout.split())


def test_questions_absent_from_a_run_count_as_missing(command):
    write_outcomes(pl.read_parquet("worse.parquet").head(50), Path("rest.parquet"))
    for arguments in (("rest.parquet", "--baseline", "base.parquet"), ("base.parquet", "--baseline", "rest.parquet")):
        done = command("gate", *arguments)
        assert done.exit_code == 3
        assert "questions (or repeated samples) are absent or have no grade" in " ".join(done.stdout.split())


def test_corrected_index_policy_is_inconclusive_for_single_samples(command):
    Path("gate.toml").write_text('metric = "corrected_refusal_index"\n')
    done = command("gate", "same.parquet", "--baseline", "base.parquet", "--policy", "gate.toml")
    assert done.exit_code == 3
    output = " ".join(done.stdout.split())
    assert "corrected RI cannot be judged" in output
    assert "--draws 2" in output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["base.parquet"], "expected a baseline to compare with, or fixed bounds"),
        (["gone.parquet", "--baseline", "base.parquet"], "gone.parquet"),
        (["base.parquet", "--baseline", "other.parquet"], "got 100 shared (candidate 500, baseline 500)"),
        (["same.parquet", "--baseline", "base.parquet", "--margin", "refusal_index=-0.1"], "leave out the sign: 0.1"),
        (["same.parquet", "--baseline", "base.parquet", "--margin", "0.1"], "--margin: expected METRIC=NUMBER"),
        (["base.parquet", "--at-least", "RI=0.1"], "got 'RI'; did you mean 'refusal_index'?"),
        (["base.parquet", "--at-least", "c/a=0.1"], "got 'c/a'; did you mean 'correct_given_attempted'?"),
        (["base.parquet", "--at-least", "speed=0.1"], "expected metrics from"),
        (
            ["base.parquet", "--at-least", "refusal_index=5"],
            "a possible value, from -1 to 1, got 5; is it a percentage",
        ),
        ([".", "--baseline", "base.parquet"], "candidate: expected the folder of one run, got ., which holds 1; name"),
        (["same.parquet", "--baseline", "base.parquet", "--policy", "gate.toml"], "gate.toml: expected keys from"),
        (
            ["same.parquet", "--baseline", "base.parquet", "--variants", "hihg"],
            "candidate: same.parquet has no prompt 'hihg'",
        ),
        (
            ["same.parquet", "--baseline", "base.parquet", "--out", "base.parquet"],
            "--out: expected a file that ends in",
        ),
        (["same.parquet", "--baseline", "base.parquet", "--out", "no/g.xml"], "the folder no does not exist"),
        (["same.parquet", "--baseline", "base.parquet", "--out", "r/run.json"], "lies in the folder of a run"),
        (["same.parquet", "--out", "a.xml", "--out", "b.xml"], "--out: expected one .xml file, got a.xml and b.xml"),
        (["same.parquet", "--baseline", "base.parquet", "--json", "g.json"], "(--json takes no file)"),
        (["base.parquet", "--at-least", "f_score=.1", "--at-least", "f_score=.2"], "expected one number for 'f_score'"),
        (["base.parquet", "--at-most", "refusal_rate=-0.5"], "at_most, refusal_rate: expected a possible value"),
        (["both.parquet", "--baseline", "base.parquet"], "candidate: expected one model on one dataset, got 2"),
    ],
)
def test_bad_input_is_one_clear_line_and_no_verdict(command, arguments, text):
    write("other", 0.2, first=N - 100)
    write_outcomes(pl.concat(pl.read_parquet(f"{name}.parquet") for name in ("base", "worse")), Path("both.parquet"))
    Path("gate.toml").write_text("margin = 0.1\n")
    Path("r").mkdir()
    Path("r/run.json").write_text(made := '{"run_format": 1}')
    done = command("gate", *arguments)
    assert done.exit_code == 2
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert Path("r/run.json").read_text() == made


def started(arguments: tuple[str, ...], stdout: int) -> subprocess.CompletedProcess[str]:
    """Run the gate in its own process, with the given standard output."""
    line = [sys.executable, "-c", "from refusal_index.cli import main; main()", "gate", "base.parquet", *arguments]
    return subprocess.run(line, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


@pytest.mark.slow
@others_nightly(("bound", "status"), [("0.9", 1), ("0", 0)], ids=["fail", "pass"])
def test_verdict_is_unaffected_by_a_closed_output_pipe(bound, status):
    reading, writing = os.pipe()
    os.close(reading)
    done = started(("--at-least", f"correct_rate={bound}", "--out", "g.json"), writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (status, "")
    assert Path("g.json").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_unwritable_standard_output_is_status_2_not_a_failed_verdict():
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = started(("--at-least", "correct_rate=0", "--json"), full.fileno())
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "cannot write to standard output" in done.stderr
    assert "the verdict is pass" in done.stderr


def test_unwritable_file_is_status_2_not_a_failed_verdict(command, monkeypatch):
    def full(*_: object) -> None:
        raise NotWrittenError(Path("g.json"), OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr("refusal_index.data.files.write_atomically", full)
    done = command("gate", "base.parquet", "--at-least", "correct_rate=0", "--out", "g.json")
    assert done.exit_code == 2
    assert "g.json cannot be written (No space left on device)" in done.stderr


def test_unwritable_file_does_not_block_other_files(command, monkeypatch):
    def full(place: Path, content: bytes | str) -> None:
        if place.suffix != ".md":
            raise NotWrittenError(place, OSError(errno.ENOSPC, "No space left on device"))
        write_atomically(place, content)

    monkeypatch.setattr("refusal_index.data.files.write_atomically", full)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    places = ("--out", "a.json", "--out", "b.xml", "--out", "c.md", "--out", "d.html")
    done = command("gate", "base.parquet", "--at-least", "correct_rate=0", *places)
    assert done.exit_code == 2
    assert "a.json cannot be written (No space left on device); nor can 'b.xml'; free some disk space" in done.stderr
    assert all(Path(name).stat().st_size for name in ("c.md", "d.html", "summary.md"))
