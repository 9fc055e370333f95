"""A matrix in batches: the first rounds of all runs are in flight at once; and what batches cost."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tests.cli.making import outcomes
from tests.faults.almanac import BatchFaults
from tests.models.batches.batch_server import almanac

KNOWN = ["variant", "question_id", "refused", "wrong", "first_reply", "forced_reply"]
CONFIG = """
name = "several"
[defaults]
engine = "batch"
engine_option = ["poll=0.05"]
limit = 10
variants = ["low"]
draws = 1
[[models]]
model = "openai-api/almanac/small"
[[models]]
model = "openai-api/almanac/base"
[[models]]
model = "openai-api/almanac/nobody"
[[datasets]]
dataset = "almanac"
"""
RUN = ("run", "--config", "several.toml")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "several.toml").write_text(CONFIG)
    return tmp_path


def runs(folder: Path) -> dict[str, dict[str, object]]:
    document = json.loads((folder / "runs/several/summary.json").read_text())
    return {run["model"].rpartition("/")[2]: run for run in document["runs"]}


@pytest.mark.slow
def test_the_first_waves_of_all_models_are_on_their_way_at_once_and_one_that_fails_stops_none(
    folder, monkeypatch, command
):
    with almanac(folder, monkeypatch, faults=BatchFaults(delay=0.3)) as server:
        assert command(*RUN).exit_code == 1
        steps = [
            ("sent", one["batch"]) if one["method"] == "POST" else ("read", "")
            for one in server.entries()
            if (one["method"], one["path"]) == ("POST", "/v1/batches") or one["path"].endswith("/content")
        ]
        assert [step for step, _ in steps[:3]] == ["sent"] * 3, "nothing is waited for before all are in flight"
        assert len(server.asked()) == len(set(server.asked())), "ids tell models apart"
    found = runs(folder)
    assert {name: run["status"] for name, run in found.items()} == {
        "small": "complete",
        "base": "complete",
        "nobody": "failed",
    }
    assert "model_not_found" in found["nobody"]["error"]
    for name in ("small", "base"):
        model = (
            "--model",
            f"almanac/{name}",
            "--limit",
            "10",
            "--variants",
            "low",
            "--draws",
            "1",
        )
        assert command("run", *model, "--out", name).exit_code == 0
        there = outcomes(folder / "runs/several" / found[name]["folder"]).select(KNOWN)
        assert there.equals(outcomes(folder / name).select(KNOWN))


@pytest.mark.nightly
def test_detached_it_is_gone_through_once_and_the_same_command_goes_on(folder, monkeypatch, command):
    with almanac(folder, monkeypatch, faults=BatchFaults(delay=0.5)) as server:
        said = command(*RUN, "--detach")
        assert said.output.count("collects the results") == 3, "said of each run, once"
        assert len(server.batches()) == 3
        assert {name: run["status"] for name, run in runs(folder).items()} == dict.fromkeys(
            ("small", "base", "nobody"), "waiting"
        )
        command(*RUN)
        assert {name: run["status"] for name, run in runs(folder).items()} == {
            "small": "complete",
            "base": "complete",
            "nobody": "failed",
        }
        assert len(server.batches()) == 5


def test_a_dry_run_prices_batches_by_their_rate_and_says_so(folder, command):
    shared = ("run", "--dry-run", "--limit", "10", "--model", "openai-api/almanac/base", "--price", "2,8")
    shared = (*shared, "--assume-refusal", "0.5", "--grader", "exact")
    costs = {}
    for name, options in {
        "single": (),
        "batch": ("--engine", "batch", "--batch-rate", "0.5"),
        "no rate": ("--engine", "batch"),
    }.items():
        said = command(*shared, *options, "--json")
        (run,) = json.loads(said.output)["runs"]
        costs[name] = run["cost"]["expected"], run["remark"]
    assert costs["batch"][0] == pytest.approx(costs["single"][0] / 2)
    assert costs["no rate"][0] == costs["single"][0]
    assert "batches are priced at 50% of the given prices" in costs["batch"][1]
    assert "set --batch-rate if they cost less" in costs["no rate"][1]
    assert "there are 2 rounds of batches; the time assumes 24 hours for each" in costs["batch"][1]
    assert "s per request" in command(*shared).output
    assert "s per request" not in command(*shared, "--engine", "batch").output
    assert costs["single"][1] is None


@pytest.mark.slow
def test_results_cost_what_batches_cost(folder, monkeypatch, command):
    with almanac(folder, monkeypatch):
        shared = ("run", "--limit", "5", "--variants", "low", "--draws", "1", "--price", "2,8", "--batch-rate", "0.25")
        shared = (*shared, "--model", "openai-api/almanac/base", "--engine", "batch", "--engine-option", "poll=0.05")
        assert command(*shared, "--out", "run").exit_code == 0
    rows = pl.read_parquet("run/outcomes.parquet")
    (variant,) = json.loads(Path("run/summary.json").read_text())["variants"]
    tokens = variant["usage"]
    whole = (2 * tokens["input_tokens"] + 8 * tokens["output_tokens"]) / 1_000_000
    assert rows.height == 5
    assert tokens["cost"] == pytest.approx(whole / 4, rel=1e-6), tokens
