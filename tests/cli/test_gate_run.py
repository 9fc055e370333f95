"""``gate --run``: the command that judges the candidate also evaluates it."""

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
def base_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "base"
    words = ["run", *ASKED, "--variants", "normal", "--out", str(out)]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    return out


@pytest.fixture
def base(command, base_run):
    return Path(shutil.copytree(base_run, "base"))


@pytest.mark.slow
def test_gate_run_stops_as_soon_as_the_verdict_is_certain(command, base):
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
def test_custom_number_of_looks_is_judged_by_its_own_plan(command, base):
    gated = ("gate", "three", "--run", "--baseline", "base", *ASKED, "--model", "almanac/small")
    done = command(*gated, "--looks", "3", "--json")
    assert " of 3," in json.loads(done.stdout)["looked"]
    assert command("gate", "three", "--baseline", "base", "--json").stdout == done.stdout


@pytest.mark.slow
def test_gate_run_that_ends_early_is_inconclusive(command, base):
    gated = ("gate", "candidate", "--run", "--baseline", "base", *ASKED, "--model", "almanac/base")
    done = command(*gated, "--max-requests", "30")
    assert done.exit_code == 3
    assert done.stdout.startswith("INCONCLUSIVE. Run the same command again before you ship ")
    output = " ".join(done.stdout.split())
    assert output.endswith("between looks. almanac/base, prompt normal: nothing was judged."), "no number of a look"
    assert "ended early: " in done.stderr


@pytest.mark.slow
def test_variant_missing_from_baseline_is_rejected_before_any_request(command, base):
    gated = ("gate", "candidate", "--run", "--baseline", "base", *ASKED, "--model", "almanac/small")
    done = command(*gated, "--variants", "high")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error: baseline: base has no prompt 'high'; expected one of normal\n"
    assert not Path("candidate").exists()


@pytest.mark.slow
def test_questions_missing_from_baseline_are_reported_before_requests(command, base):
    gated = ("gate", "candidate", "--run", "--baseline", "base", *ASKED, "--model", "almanac/small")
    done = command(*gated, "--limit", "240")
    assert done.stderr.startswith("baseline: 40 of the 240 questions are not in base, so they are asked but not")


def test_corrected_index_with_single_samples_is_rejected_before_requests(command, base):
    Path("gate.toml").write_text('metric = "corrected_refusal_index"\n')
    gated = ("gate", "candidate", "--run", "--baseline", "base", *ASKED, "--model", "almanac/small")
    done = command(*gated, "--policy", "gate.toml", "--temperature", "0.7")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "draws: expected 2 or more to judge corrected_refusal_index, got 1; add --draws 2" in done.stderr


def test_gate_run_rejects_the_baseline_as_candidate(command, base):
    done = command("gate", "./base", "--run", "--baseline", "base/outcomes.parquet", *ASKED, "--model", "almanac/base")
    assert done.exit_code == 2
    assert "expected another run than the candidate, got base/outcomes.parquet and base" in done.stderr


@pytest.mark.parametrize("candidate", ["base", "copy"])
def test_comparing_a_run_with_itself_or_a_copy_is_reported(command, base, candidate):
    shutil.copytree("base", "copy")
    done = command("gate", candidate, "--baseline", "base", "--out", "g.md")
    assert done.exit_code in (0, 3)
    expected_text = "both are the same run, or copies of it"
    assert all(expected_text in " ".join(text.split()) for text in (done.stdout, Path("g.md").read_text()))


def test_evaluation_options_without_run_are_rejected(command):
    done = command("gate", "candidate", "--baseline", "base", "--model", "almanac/base")
    assert done.exit_code == 2
    assert "--model: applies only when the candidate is evaluated; add --run" in done.stderr


@pytest.mark.slow
def test_unreachable_server_is_inconclusive_with_a_reason(command, base, monkeypatch):
    asked = ("--model", "any", "--base-url", "http://127.0.0.1:9/v1", "--limit", "20", "--max-retries", "0")
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
