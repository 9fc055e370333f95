"""Runs on a dataset of the Hugging Face Hub, from a Hub on loopback."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.datasets.conftest import local_hub  # noqa: F401 - a fixture
from tests.datasets.local_hub import TOKEN, HubDataset, LocalHub

RUN = ("run", "--dataset", "hf:org/sums", "--grader", "exact", "--variants", "normal")


def sums(size: int, commit: str = "a" * 40, **described: bool) -> HubDataset:
    buffer = io.BytesIO()
    rows = {"question": [f"What is {n} + {n}?" for n in range(size)], "answer": [str(2 * n) for n in range(size)]}
    pl.DataFrame(rows).write_parquet(buffer)
    return HubDataset({"data/test-00000-of-00001.parquet": buffer.getvalue()}, commit=commit, **described)


def forget(tmp_path: Path) -> None:
    for folder in ("cache", "hub"):
        shutil.rmtree(tmp_path / folder)


def test_end_to_end_a_run_records_the_commit_and_resumes_without_the_hub(command, local_hub, tmp_path):  # noqa: F811
    local_hub.datasets["org/sums"] = sums(6)
    begun = command(*RUN, "--limit", "4", "--max-requests", "2", "--out", "r")
    assert begun.exit_code == 1, begun.output  # unfinished
    assert f"note: hf:org/sums:test: commit {'a' * 12}, 1 file, licence mit" in begun.stderr
    recorded = json.loads(Path("r/run.json").read_text())
    assert recorded["settings"]["dataset"]["name"] == "hf:org/sums:test"
    assert recorded["about"]["dataset"]["source"] == f"hf:org/sums:test at commit {'a' * 40}"
    forget(tmp_path)
    local_hub.datasets["org/sums"] = sums(9, "b" * 40)
    local_hub.failing = 503
    before = len(local_hub.seen)
    resumed = command(*RUN, "--limit", "4", "--out", "r")
    assert resumed.exit_code == 0, resumed.output
    assert len(pl.read_parquet("r/outcomes.parquet")) == 4
    assert len(local_hub.seen) == before
    other = command(*RUN, "--limit", "5", "--out", "r")
    assert (other.exit_code, "answered with status 503" in other.stderr) == (2, True)
    local_hub.failing = None
    assert "run with different settings" in command(*RUN, "--limit", "5", "--out", "r").stderr


def test_end_to_end_a_dry_run_downloads_the_questions_and_writes_no_folder(command, local_hub):  # noqa: F811
    local_hub.datasets["org/sums"] = sums(6)
    result = command(*RUN, "--dry-run")
    assert result.exit_code == 0
    assert "hf:org/sums:test" in result.stdout
    assert not Path("runs").exists()


def test_missing_columns_end_with_the_whole_command(command, local_hub):  # noqa: F811
    local_hub.datasets["org/sums"] = HubDataset({"test.csv": b"text,target\nWho?,Ann\n"})
    error = command(*RUN).stderr
    assert "expected a column 'question' with the question, got 'text', 'target'" in error
    assert error.rstrip().endswith("--column question=NAME")
    assert command(*RUN, "--column", "question=text", "--dry-run").exit_code == 0


@pytest.mark.slow
def test_end_to_end_the_environment_names_the_hub_and_no_token_is_stored(local_hub: LocalHub, tmp_path):  # noqa: F811
    local_hub.datasets["org/sums"] = sums(3, is_gated=True)
    environment = {**os.environ, "HF_ENDPOINT": local_hub.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": TOKEN}
    called = [str(Path(sys.executable).with_name("refusal-index")), *RUN, "--out", "r"]
    done = subprocess.run(called, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"run.json", "replies.sqlite"} <= {path.name for path in files}
    assert TOKEN not in done.stdout + done.stderr
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]
    environment["HF_TOKEN"] = ""
    closed = subprocess.run(
        [*called[:-1], "s", "--dry-run"],
        cwd=tmp_path,
        env={**environment, "HF_HOME": str(tmp_path / "other"), "XDG_CACHE_HOME": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert closed.returncode == 2
    assert closed.stderr.count("\n") == 1
    assert "gated" in closed.stderr


@pytest.mark.slow
@pytest.mark.parametrize("offline", ["hf:org/sums", "faitheval_unanswerable", "abstentionbench_squad2"])
def test_without_a_network_there_is_one_line(offline, tmp_path):
    environment = {
        **os.environ,
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "NO_PROXY": "*",
    }
    called = [str(Path(sys.executable).with_name("refusal-index")), "run", "--dataset", offline, "--dry-run"]
    done = subprocess.run(called, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "cannot be downloaded" in done.stderr
    assert "HF_ENDPOINT" in done.stderr
