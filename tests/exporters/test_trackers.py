"""What trackers receive, with or without their packages installed."""

from __future__ import annotations

import csv
import os
import shutil

import pytest

from refusal_index.plugins.trackers import clients, tracker
from refusal_index.plugins.trackers.clients import files_of, table_of
from refusal_index.plugins.trackers.tracker import ExportError, TrackerError, error_line, export_runs, read_exported


def test_missing_tracker_package_error_says_how_to_install_it(run, monkeypatch):
    monkeypatch.setattr(tracker, "find_spec", lambda _name: None)
    with pytest.raises(ExportError, match=r"to: wandb is not installed; pip install 'refusal-index\[wandb\]'"):
        export_runs([run.path], "wandb")


def test_trackers_reject_an_output_path(run, tmp_path):
    with pytest.raises(ExportError, match=r"out: expected nothing, got .*; the settings of mlflow say where it logs"):
        export_runs([run.path], "mlflow", tmp_path)


def test_only_regular_files_are_uploaded(run, tmp_path):
    folder = shutil.copytree(run.path, tmp_path / "run")
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    (folder / "stolen").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path, target_is_directory=True)
    (folder / "rounds").mkdir(exist_ok=True)
    (folder / "rounds" / "output.txt").write_text("log")
    os.mkfifo(folder / "pipe")
    (found,) = read_exported([folder])
    names = {name for _, name in files_of(found)}
    assert {"report.html", "summary.json", "outcomes.parquet", "run.json", "rounds/output.txt"} <= names
    assert not {"stolen", "linked/secret", "pipe", ".lock"} & names


def test_large_outcome_table_is_truncated(run, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "q3")  # too short to be a key
    monkeypatch.setattr(clients, "MAX_ROWS", 7)
    (found,) = read_exported([run.path])
    columns, rows = table_of(found.outcomes)
    assert columns == run.outcomes.columns
    assert [tuple(row) for row in rows] == run.outcomes.head(7).rows()


def test_tracker_error_is_one_line_without_keys(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "swordfish-77-of-mine")
    assert error_line("wandb", ValueError("bad key\nswordfish-77-of-mine.")) == "ValueError: bad key [key]"
    assert error_line("wandb", ValueError("")) == "ValueError: no reason given"
    assert error_line("wandb", TrackerError("nothing is logged")) == "nothing is logged"


def test_a_long_reason_ends_with_a_whole_word():
    line = error_line("mlflow", ValueError("word " * 1000))
    assert len(line) <= 300
    assert line.endswith("word word ...")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://me:hush@tracker.invalid:9/base", "http://tracker.invalid:9 cannot be reached (connection refused)"),
        ("sqlite:///mlflow.db", "its server cannot be reached (connection refused)"),
        (None, "its server cannot be reached (connection refused)"),
    ],
)
def test_unreachable_server_error_names_its_address(monkeypatch, address, expected):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if address is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert error_line("mlflow", RuntimeError("Max retries exceeded (Caused by ...: Connection refused)")) == expected


@pytest.mark.parametrize("is_down", [False, True])
def test_partially_logged_run_is_marked_failed(run, monkeypatch, is_down):
    ended = []

    class Half:
        package, address = "json", ""

        def __init__(self, _subject):
            pass

        def log(self, _run):
            raise ValueError("no room")

        def abandon(self):
            ended.append(True)
            if is_down:
                raise ConnectionError

    monkeypatch.setattr(tracker, "tracker_class", lambda _name: Half)
    with pytest.raises(TrackerError, match="wandb: ValueError: no room"):
        export_runs([run.path], "wandb")
    assert ended == [True]


def test_duplicate_run_is_exported_once_and_reported(run, drawn, tmp_path):
    again = run.path.parent / ".." / run.path.parent.name / run.path.name
    *_, first, second = export_runs([run.path, again, drawn.path, run.path], "csv", tmp_path / "metrics.csv")
    assert (first, second) == (
        f"{again}: the same run as {run.path}, counted once",
        f"{run.path}: the same run as {run.path}, counted once",
    )
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = [(row["run"], row["variant"], row["metric"]) for row in csv.DictReader(file)]
    assert len(rows) == len(set(rows))
    assert {place for place, _, _ in rows} == {str(run.path), str(drawn.path)}
