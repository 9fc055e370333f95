"""``gate --run``: a candidate that is asked by the command that judges it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from junitparser import JUnitXml
from typer.testing import CliRunner

from refusal_index.cli import app

ASKED = ("--limit", "200", "--temperature", "0")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "base"
    words = ["run", *ASKED, "--variants", "normal", "--out", str(out)]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    return out


@pytest.fixture
def base(command, made):
    return Path(shutil.copytree(made, "base"))


@pytest.mark.slow
def test_it_asks_only_until_the_verdict_is_certain(command, base):
    gated = ("gate", "candidate", "--run", "--baseline", "base", *ASKED, "--model", "almanac/small")
    done = command(*gated, "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["verdict"]) == (1, "fail")
    assert document["questions"] < 200
    assert document["looked"].startswith("Look ")
    assert command(*gated, "--json").stdout == done.stdout
    assert command("gate", "candidate", "--baseline", "base").exit_code == 1
    other = command(*gated, "--looks", "3")
    assert other.exit_code == 2
    assert "--looks: expected 5 looks, as planned before the first question" in other.stderr


@pytest.mark.slow
def test_looks_that_are_planned_otherwise_are_judged_by_their_plan(command, base):
    gated = ("gate", "three", "--run", "--baseline", "base", *ASKED, "--model", "almanac/small")
    done = command(*gated, "--looks", "3", "--json")
    assert " of 3," in json.loads(done.stdout)["looked"]
    assert command("gate", "three", "--baseline", "base", "--json").stdout == done.stdout


@pytest.mark.slow
def test_a_run_that_cannot_be_brought_to_its_end_is_inconclusive(command, base):
    gated = ("gate", "candidate", "--run", "--baseline", "base", *ASKED, "--model", "almanac/base")
    done = command(*gated, "--max-requests", "30")
    assert done.exit_code == 3
    assert done.stdout.startswith("INCONCLUSIVE: the run ended before its next look")
    told = " ".join(done.stdout.split())
    assert told.endswith("command again. almanac/base, prompt normal: nothing was judged."), "no number of a look"
    assert "ended early: " in done.stderr


@pytest.mark.slow
def test_a_variant_that_the_baseline_lacks_is_refused_before_anything_is_asked(command, base):
    gated = ("gate", "candidate", "--run", "--baseline", "base", *ASKED, "--model", "almanac/small")
    done = command(*gated, "--variants", "high")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error: baseline: base has no prompt 'high'; expected one of normal\n"
    assert not Path("candidate").exists()


@pytest.mark.slow
def test_questions_that_the_baseline_lacks_are_told_before_they_are_paid_for(command, base):
    gated = ("gate", "candidate", "--run", "--baseline", "base", *ASKED, "--model", "almanac/small")
    done = command(*gated, "--limit", "240")
    assert done.stderr.startswith("baseline: 40 of the 240 questions are not in base, so they are asked but not")


def test_the_corrected_index_of_questions_asked_once_is_refused_before_they_are_paid_for(command, base):
    Path("gate.toml").write_text('metric = "corrected_refusal_index"\n')
    gated = ("gate", "candidate", "--run", "--baseline", "base", *ASKED, "--model", "almanac/small")
    done = command(*gated, "--policy", "gate.toml", "--temperature", "0.7")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "draws: expected 2 or more to judge corrected_refusal_index, got 1; add --draws 2" in done.stderr


def test_a_baseline_is_never_asked_into(command, base):
    done = command("gate", "./base", "--run", "--baseline", "base/outcomes.parquet", *ASKED, "--model", "almanac/base")
    assert done.exit_code == 2
    assert "expected another run than the candidate, got base/outcomes.parquet and base" in done.stderr


@pytest.mark.parametrize("candidate", ["base", "copy"])
def test_a_run_and_a_copy_of_it_are_told_where_they_are_compared_with_it(command, base, candidate):
    shutil.copytree("base", "copy")
    done = command("gate", candidate, "--baseline", "base", "--out", "g.md")
    assert done.exit_code in (0, 3)
    told = "Candidate and baseline are the same run, or copies of it"
    assert all(told in " ".join(text.split()) for text in (done.stdout, Path("g.md").read_text()))


def test_options_of_asking_are_refused_where_nothing_is_asked(command):
    done = command("gate", "candidate", "--baseline", "base", "--model", "almanac/base")
    assert done.exit_code == 2
    assert "--model: applies only when the candidate is evaluated; add --run" in done.stderr


@pytest.mark.slow
def test_a_server_that_is_down_is_inconclusive_and_says_why(command, base, monkeypatch):
    monkeypatch.setenv("X_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("X_API_KEY", "k")
    asked = ("--model", "openai-api/x/y", "--limit", "20", "--max-retries", "0")
    done = command("gate", "candidate", "--run", "--baseline", "base", *asked, "--looks", "10")
    assert done.exit_code == 3
    assert "127.0.0.1" in done.stderr
    assert command("gate", "candidate", "--baseline", "base").exit_code == 3
    files = ("--out", "g.json", "--out", "g.xml", "--out", "g.md", "--out", "g.html")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    done = command("gate", "candidate", "--run", "--baseline", "base", *asked, "--looks", "10", *files)
    assert done.exit_code == 3
    document = json.loads(Path("g.json").read_text())
    assert document["verdict"] == "inconclusive"
    assert "127.0.0.1" in document["why"]
    (suite,) = JUnitXml.fromfile("g.xml")
    assert [(case.name, type(case.result[0]).__name__) for case in suite] == [("verdict", "Error")]
    assert Path("g.md").read_text() == Path("summary.md").read_text().removesuffix("\n")
    assert "g.html is not written: nothing was judged" in done.stderr
    assert not Path("g.html").exists()
    done = command("gate", "few", "--run", "--baseline", "base", *asked[:-4], "--limit", "6", "--max-retries", "0")
    assert (done.exit_code, done.stdout[:12]) == (3, "INCONCLUSIVE")
    assert "6 not finished, normal " in done.stderr
