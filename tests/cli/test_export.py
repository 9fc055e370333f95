from __future__ import annotations

import csv
import errno
import json
import os
from pathlib import Path

import polars as pl
import pytest
from inspect_ai.log import read_eval_log

from refusal_index.plugins.trackers import tracker
from refusal_index.render.summary import SUMMARY_VERSION
from tests.cli.conftest import Command
from tests.cli.making import LOW


def test_csv_export_contains_the_summary(run_folder, command: Command):
    result = command("export", "r", "--to", "csv", "--out", "metrics.csv")
    assert (result.exit_code, result.output.split(":")[0]) == (0, "metrics.csv")
    with Path("metrics.csv").open(newline="") as file:
        rows = {row["metric"]: row for row in csv.DictReader(file)}
    (variant,) = json.loads((run_folder / "summary.json").read_text())["variants"]
    assert {name: row["status"] for name, row in rows.items()} == {
        name: value["status"] for name, value in variant["metrics"].items()
    }


@pytest.mark.parametrize("target", ["every-eval-ever", "hf-eval-results", "inspect"])
def test_third_party_formats_are_exported_to_a_folder(run_folder, command: Command, target):
    result = command("export", "r", "--to", target, "--out", "out")
    assert result.exit_code == 0
    names = [line.split(": ")[0] for line in result.output.splitlines()]
    assert sorted(names) == sorted(str(path) for path in Path("out").rglob("*") if path.is_file())


def test_inspect_export_can_be_imported_again(run_folder, command: Command):
    assert command("export", "r", "--to", "inspect", "--out", "logs").exit_code == 0
    (path,) = Path("logs").iterdir()
    (variant,) = json.loads((run_folder / "summary.json").read_text())["variants"]
    log = read_eval_log(str(path))
    metric = log.results.scores[0].metrics["refusal_index"]
    assert metric.value == variant["metrics"]["refusal_index"]["estimate"]
    assert command("import", str(path), "--out", "back.parquet").exit_code == 0
    order = "question_id", "draw"
    tables = (pl.read_parquet(one).sort(order) for one in ("back.parquet", run_folder / "outcomes.parquet"))
    assert next(tables).equals(next(tables))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "cvs"], "error: --to: expected one of csv, every-eval-ever, hf-eval-results, inspect, mlflow,"),
        (["--to", "wandb,mlflow"], "error: --to: expected one target at a time, got 'wandb,mlflow'"),
        (
            ["--to", "csv", "--out", "no/x.csv"],
            "error: --out: no/x.csv cannot be written, as no is not a folder; create it",
        ),
        (
            ["--to", "every-eval-ever", "--out", "mine.csv"],
            "error: --out: mine.csv cannot be written, as mine.csv is no",
        ),
        (["--to", "csv"], "error: --out: expected a file to write, got nothing"),
        (["--to", "every-eval-ever"], "error: --out: expected a folder to write, got nothing"),
        (["--to", "csv", "--out", "r"], "error: --out: r lies in the folder of a run"),
        (["--to", "csv", "--out", "r/replies.sqlite"], "error: --out: r/replies.sqlite lies in the folder of a run"),
        (["--to", "csv", "--out", "r/logs/new.csv"], "error: --out: r/logs/new.csv lies in the folder of a run"),
        (["--to", "csv", "--out", "linked.csv"], "error: --out: linked.csv lies in the folder of a run"),
        (["--to", "hf-eval-results", "--out", "r/logs"], "error: --out: r/logs lies in the folder of a run"),
        (["--to", "csv", "--out", "mine.txt"], "error: --out: expected a file that ends in .csv, got mine.txt"),
        (["--to", "wandb", "--out", "x"], "error: --out: expected nothing, got x; the settings of wandb say where"),
    ],
)
def test_invalid_export_arguments_are_named(run_folder, command: Command, arguments, message):
    Path("linked.csv").symlink_to(run_folder / "replies.sqlite")
    Path("mine.csv").touch()
    before = (run_folder / "replies.sqlite").read_bytes()
    result = command("export", "r", *arguments)
    assert result.exit_code == 2
    assert (run_folder / "replies.sqlite").read_bytes() == before
    assert result.output.startswith(message)
    assert "\n" not in result.output.strip()


def test_old_summary_version_is_rejected_with_the_rebuild_command(run_folder, command: Command):
    document = json.loads((run_folder / "summary.json").read_text())
    (run_folder / "summary.json").write_text(json.dumps(document | {"summary_version": SUMMARY_VERSION - 1}))
    result = command("export", "r", "--to", "csv", "--out", "metrics.csv")
    assert (result.exit_code, Path("metrics.csv").exists()) == (2, False)
    expected = f"expected summary_version {SUMMARY_VERSION}, got {SUMMARY_VERSION - 1}"
    assert result.output == f"error: r/summary.json: {expected}; 'refusal-index score r' rebuilds it\n"
    bound = ("--at-most", "refusal_rate=0.999", "--json")
    judged = command("gate", "r", *bound).stdout  # a gate computes from the outcomes
    assert command("score", "r").exit_code == 0
    assert json.loads((run_folder / "summary.json").read_text()) == document
    assert command("export", "r", "--to", "csv", "--out", "metrics.csv").exit_code == 0
    assert command("gate", "r", *bound).stdout == judged


def test_export_of_a_folder_without_a_run_is_bad_input(command: Command):
    Path("empty").mkdir()
    result = command("export", "empty", "--to", "csv", "--out", "x.csv")
    assert (result.exit_code, Path("x.csv").exists()) == (2, False)


def test_unwritable_export_path_is_reported_and_leaves_nothing(run_folder, command: Command):
    Path("file").write_text("in the way")
    Path("folder.csv").mkdir()
    for target, out in (
        *(("csv", place) for place in ("file/x.csv", "nofolder/x.csv", "folder.csv")),
        *(
            (target, place)
            for target in ("every-eval-ever", "hf-eval-results", "inspect")
            for place in ("file", "/dev/null")
        ),
    ):
        result = command("export", "r", "--to", target, "--out", out)
        assert result.exit_code == 2, out
        assert result.output.startswith("error: --out: ")
        assert "cannot be written" in result.output
    assert Path("file").read_text() == "in the way"


def test_full_disk_is_a_failure_not_bad_input(run_folder, command: Command, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    result = command("export", "r", "--to", "csv", "--out", "x.csv")
    assert (result.exit_code, "No space left on device" in result.output) == (1, True)


def test_missing_tracker_stops_a_run_before_it_starts(command: Command, monkeypatch):
    monkeypatch.setattr(tracker, "find_spec", lambda _name: None)
    result = command(*LOW, "--out", "r", "--log-to", "wandb")
    assert result.exit_code == 2
    assert result.output == "error: --log-to: wandb is not installed; pip install 'refusal-index[wandb]'\n"
    assert not Path("r").exists()


def test_missing_tracker_is_bad_input_for_export(run_folder, command: Command, monkeypatch):
    monkeypatch.setattr(tracker, "find_spec", lambda _name: None)
    result = command("export", "r", "--to", "mlflow")
    assert result.exit_code == 2
    assert result.output == "error: --to: mlflow is not installed; pip install 'refusal-index[mlflow]'\n"


@pytest.mark.slow
def test_run_is_logged_live_to_both_trackers(command: Command, monkeypatch, tmp_path):
    """With both real packages: W&B offline, MLflow with a SQLite database."""
    wandb, mlflow = (pytest.importorskip(name, reason=f"needs the extra '{name}'") for name in ("wandb", "mlflow"))
    from refusal_index.render.summary import numbers
    from tests.exporters.offline_run import read_offline_run

    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    try:
        result = command(*LOW, "--out", "r", "--log-to", "wandb,mlflow", "--price", "1,2")
        assert result.exit_code == 0
        document = json.loads(Path("r/summary.json").read_text())
        logged = read_offline_run(tmp_path)
    finally:
        wandb.teardown()
    named = numbers(document)
    assert {name: logged.summary[name] for name in named} == named
    counted = [one for one in logged.history if "progress/questions" in one][-1]
    table = document["variants"][0]["table"]
    assert counted["progress/questions"] == document["variants"][0]["completeness"]["asked"]
    assert counted["progress/refused"] == table["refused_wrong"] + table["refused_right"]
    assert counted["progress/wrong"] == table["refused_wrong"] + table["answered_wrong"]
    assert counted["progress/cost"] == pytest.approx(document["variants"][0]["usage"]["cost"])
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("refusal-index").experiment_id])
    assert {name: run.data.metrics[name] for name in named} == named
    assert run.data.metrics["progress/questions"] == counted["progress/questions"]


@pytest.mark.slow
def test_tracker_without_a_key_does_not_affect_the_run(command: Command, monkeypatch, tmp_path):
    wandb = pytest.importorskip("wandb", reason="needs the extra 'wandb'")
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "no netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    try:
        result = command(*LOW, "--out", "r", "--log-to", "wandb")
    finally:
        wandb.teardown()
    assert result.exit_code == 0
    assert Path("r/report.html").exists()
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("wandb: "))
    assert "No API key configured" in line
    assert line.endswith("'refusal-index export r --to wandb' logs them")
