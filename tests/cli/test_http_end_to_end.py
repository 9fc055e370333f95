"""End to end over HTTP: the commands as a user types them, against ``refusal-index serve``, killed on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

COMMAND = [sys.executable, "-c", "from refusal_index.cli import main; main()"]


@dataclass
class Server:
    url: str
    log: Path

    def answered(self) -> list[dict[str, object]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if entry["path"].endswith("/chat/completions") and entry["status"] == 200]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    log = tmp_path / "requests.jsonl"
    with subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--log", str(log)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            address = next(found for line in process.stdout if (found := re.search(r"http://\S+/v1", line)))
            yield Server(address[0], log)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)
            process.stdout.close()


def start(server: Server, out: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "ALMANAC_BASE_URL": server.url, "ALMANAC_API_KEY": "sk-none-needed"}
    command = [*COMMAND, "run", "--model", "openai-api/almanac/base", "--out", str(out), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    said, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return said


def outcomes(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "outcomes.parquet")


@pytest.mark.slow
def test_killed_twice_and_run_again_sends_no_answered_request_twice_and_gives_the_same_result(server, tmp_path):
    arguments = ("--limit", "150", "--variants", "low,highest", "--max-connections", "20")
    out = tmp_path / "killed"
    for enough in (60, 200):
        process = start(server, out, *arguments)
        while len(server.answered()) < enough:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.kill()
        process.communicate()
    finish(start(server, out, *arguments))
    sent = Counter(entry["seed"] for entry in server.answered())
    repeated = sum(count - 1 for count in sent.values())
    refused = outcomes(out).filter(pl.col("refused"))["question_id"].n_unique()
    assert len(sent) == 2 * 150 + refused
    assert repeated <= 2 * 20, "only what was in flight at a kill"

    before = len(server.answered())
    finish(start(server, out, *arguments))
    assert len(server.answered()) == before, "a finished run sends nothing"

    finish(start(server, tmp_path / "whole", *arguments))
    assert outcomes(out).equals(outcomes(tmp_path / "whole"))


@pytest.mark.slow
def test_the_http_path_and_the_path_within_the_process_agree(server, tmp_path):
    arguments = ("--limit", "60", "--variants", "normal")
    finish(start(server, tmp_path / "http", *arguments))
    inside = [*COMMAND, "run", "--out", str(tmp_path / "inside"), *arguments]
    subprocess.run(inside, check=True, capture_output=True)
    known = ["question_id", "refused", "wrong", "first_reply", "forced_reply"]
    assert outcomes(tmp_path / "http").select(known).equals(outcomes(tmp_path / "inside").select(known))


@pytest.mark.slow
def test_a_model_that_knows_nothing_of_simpleqa_is_told_so_plainly(server, tmp_path):
    shared = Path(__file__).parents[3] / "shared" / "data" / "simpleqa" / "simple_qa_test_set.csv"
    if not shared.exists():
        pytest.skip("needs a local copy of the SimpleQA test set")
    arguments = ("--dataset", "simpleqa", "--data", str(shared), "--limit", "200")
    said = finish(start(server, tmp_path / "out", *arguments, "--variants", "normal", "--grader", "exact"))
    assert "right" in said
    assert any(reason in said for reason in ("knows next to nothing", "undefined", "limit"))
