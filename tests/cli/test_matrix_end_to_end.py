"""A matrix over HTTP: three models, two datasets, four variants against ``serve``, killed twice, paid for once."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data.datasets import load_dataset
from refusal_index.plugins.almanac.models import model_names
from tests.cli.serving import finish, kill_once, start

CONNECTIONS = 8
ALMANAC, OWN = 24, 20
VARIANTS = 4
CONFIG = f"""
name = "siblings"
[defaults]
max_connections = {CONNECTIONS}
{"".join(f'[[models]]{os.linesep}model = "openai-api/almanac/{name}"{os.linesep}' for name in model_names())}
[[datasets]]
dataset = "almanac"
limit = {ALMANAC}
[[datasets]]
name = "own"
data = "own.csv"
grader = "exact"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the configuration and a file of questions of its own."""
    (tmp_path / "siblings.toml").write_text(CONFIG)
    with (tmp_path / "own.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["question_id", "question", "answer"])
        for question in load_dataset("almanac").questions[-OWN:]:
            writer.writerow([f"own-{question.question_id}", question.text, question.gold])
    return tmp_path


@pytest.mark.slow
def test_a_matrix_killed_twice_ends_complete_and_sends_no_answered_request_twice(server, folder):
    cells = len(model_names()) * 2
    firsts = len(model_names()) * (ALMANAC + OWN) * VARIANTS
    command = ("run", "--config", "siblings.toml")
    for share in (0.3, 0.7):
        kill_once(server, int(share * firsts), start(server, *command, cwd=folder))
    said = finish(start(server, *command, cwd=folder))

    document = json.loads((folder / "runs/siblings/summary.json").read_text())
    assert document["complete"] is True
    assert [run["status"] for run in document["runs"]] == ["complete"] * cells
    assert len([path for path in (folder / "runs/siblings").iterdir() if path.is_dir()]) == cells
    forced = 0
    for run in document["runs"]:
        outcomes = pl.read_parquet(folder / "runs/siblings" / run["folder"] / "outcomes.parquet")
        assert outcomes.height == VARIANTS * (OWN if run["dataset"] == "own" else ALMANAC)
        assert len(run["refusal_index"]["variants"]) == VARIANTS
        assert f" {run['refusal_index']['estimate']:.2f} " in said
        forced += outcomes.filter("refused")["question_id"].n_unique()

    sent = Counter((entry["model"], entry["seed"]) for entry in server.answered())
    assert len(sent) == firsts + forced
    repeated = sum(count - 1 for count in sent.values())
    assert repeated <= 2 * CONNECTIONS, "only what was in flight at a kill"

    before = len(server.answered())
    assert finish(start(server, *command, cwd=folder)) == said
    assert len(server.answered()) == before, "a finished set sends nothing"
