"""``compare --with paper``: one run or more among the values that the paper prints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from refusal_index.data import datasets
from refusal_index.data.files import sha256_of
from refusal_index.data.published import paper_rows, published_results
from refusal_index.runs.plan import prepare
from refusal_index.runs.settings import Settings
from tests.cli.making import PIPELINE, write_sums
from tests.docs.blocks import ROOT
from tests.render.making import HOSTILE, rows

PAPER = ROOT.parent / "shared" / "paper.tex"
SUMS = ("--variants", "low", "--grader", "exact")


@pytest.fixture
def simpleqa_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write sums in the format of SimpleQA, and take them for its file."""
    lines = [f"\"{{'topic': 'Sums'}}\",What is {i} plus {i}?,{2 * i}" for i in range(40)]
    path = tmp_path / "simple_qa_test_set.csv"
    path.write_text("\n".join(["metadata,problem,answer", *lines]) + "\n")
    monkeypatch.setitem(datasets.PUBLISHED["simpleqa"].__dict__, "sha256", sha256_of(path.read_bytes()))
    return str(path)


def test_end_to_end_a_run_stands_among_the_models_of_the_paper(command, simpleqa_file):
    options = (*SUMS, "--dataset", "simpleqa", "--data", simpleqa_file, "--out", "r")
    asked = command("run", *PIPELINE, *options)
    assert asked.exit_code == 0, asked.stderr
    done = command("compare", "r", "--with", "paper")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    rows_shown = {line.split("  ")[0].strip(): line for line in lines if "  paper  " in line or "  run  " in line}
    assert len(rows_shown) == 17
    for model, index in paper_rows().select("model", "refusal_index").iter_rows():
        assert f"{index:.2f}" in rows_shown[model]
    document = json.loads(command("compare", "r", "--with", "paper", "--json").stdout)
    (among,) = document["datasets"]
    (run,) = (model for model in among["models"] if model["source"] == "run")
    summary = json.loads(Path("r/summary.json").read_text())
    assert run["refusal_index"]["estimate"] == summary["variants"][0]["metrics"]["refusal_index"]["estimate"]
    reasons = {reason["code"]: reason for reason in run["not_comparable"]}
    assert reasons.keys() == {"other_prompts", "other_grader", "other_variants", "question_sample"}
    assert (reasons["other_prompts"]["found"], reasons["other_grader"]["found"]) == ("default", "exact")
    assert reasons["other_variants"]["found"] == ["low"]
    assert (reasons["question_sample"]["found"], reasons["question_sample"]["expected"]) == (40, 4326)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not part of the repository")
def test_end_to_end_wording_built_from_the_paper_is_recognised(command, simpleqa_file):
    pytest.importorskip("refusal_index.plugins.paper", reason="nothing builds prompts from the paper")
    assert command("build", "paper-prompts", str(PAPER), "--out", "built").exit_code == 0
    wording = ("--prompts", "built/paper-prompts.toml", "--grader-prompt", "built/paper-grader.toml")
    data = ("--dataset", "simpleqa", "--data", simpleqa_file, "--grader", "openai/gpt-4o-mini")
    settings = prepare(
        Settings.from_values(
            model=PIPELINE[1],
            **{name.removeprefix("--").replace("-", "_"): value for name, value in batched((*wording, *data))},
        )
    ).identity
    published = published_results()["simpleqa"]
    assert settings["prompts"]["name"] == published.prompts
    assert settings["grader"]["prompt_sha256"] == published.grader_prompt_sha256


def batched(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from zip(words[::2], words[1::2], strict=True)


def test_end_to_end_own_questions_have_no_published_values(command):
    data = write_sums("sums.csv", 30)
    assert command("run", *PIPELINE, *SUMS, "--data", data, "--out", "r").exit_code == 0
    document = json.loads(command("compare", "r", "--with", "paper", "--json").stdout)
    assert document["datasets"] == []
    assert [statement["code"] for statement in document["statements"]] == ["published_elsewhere"]
    assert command("compare", "r", "--with", "paper").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--with", "papers"), "--with: expected one of paper, got 'papers'"),
        (("--with", "paper", "--metric", "f_score"), "--metric: applies to a ranking"),
        (("--with", "paper", "--seed", "1"), "--seed: applies to a ranking"),
        (("--with", "paper", "--variants", "lo"), "got 'lo'; did you mean 'low'?"),
        ((), "expected two models or more, got m alone"),
    ],
)
def test_invalid_options_are_named(command, options, message):
    rows(40, dataset="simpleqa", length=1).write_csv("m.csv")
    done = command("compare", "m.csv", *options)
    assert done.exit_code == 2
    assert message in done.stderr


def test_all_metrics_are_shown_on_request_with_the_p_of_the_weighted_score(command):
    rows(200, dataset="simpleqa", length=1).write_csv("m.csv")
    done = command("compare", "m.csv", "--with", "paper", "--full", "--weighted-score-p", "0.2")
    table = next(line for line in done.stdout.splitlines() if line.startswith("GLM-4.5-Air") and "-0.24" in line)
    assert table.split()[2:] == ["0.05", "0.71", "0.17", "0.08", "-0.24", "0.15"]
    assert "those of runs have p = 0.2" in done.stdout


@pytest.mark.parametrize("name", HOSTILE[:3])
def test_hostile_names_of_models_are_harmless(command, name):
    rows(100, model=name, dataset="simpleqa", length=1).write_parquet("m.parquet")
    done = command("compare", "m.parquet", "--with", "paper", "--full")
    assert done.exit_code == 0
    assert done.stdout.replace("\n", "").isprintable()
    assert command("report", "m.parquet", "--out", "r.html").exit_code == 0
    page = Path("r.html").read_text()
    assert "Among the models of the paper" in page
    assert "<img src=x" not in page
    assert "<script>document" not in page
