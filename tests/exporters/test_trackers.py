"""What trackers are told, with their packages or without."""

from __future__ import annotations

import os
import shutil

import pytest

from refusal_index.exporters import tracker
from refusal_index.exporters.registry import export_runs
from refusal_index.exporters.results import ExportError, read_exported
from refusal_index.exporters.tracker import files_of, table_of, told


def test_a_tracker_that_is_not_installed_is_named_with_what_installs_it(run, monkeypatch):
    monkeypatch.setattr(tracker, "find_spec", lambda _name: None)
    with pytest.raises(ExportError, match=r"to: wandb is not installed; pip install 'refusal-index\[wandb\]'"):
        export_runs([run.path], "wandb")


def test_a_tracker_takes_no_place(run, tmp_path):
    with pytest.raises(ExportError, match=r"out: expected nothing, got .*; the settings of mlflow say where it logs"):
        export_runs([run.path], "mlflow", tmp_path)


def test_only_plain_files_of_a_folder_are_handed_on(run, tmp_path):
    folder = shutil.copytree(run.path, tmp_path / "run")
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    (folder / "stolen").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path, target_is_directory=True)
    (folder / "cache").mkdir()
    (folder / "cache" / "reply.pickle").write_bytes(b"code")
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "low.eval").write_text("log")
    os.mkfifo(folder / "pipe")
    (found,) = read_exported([folder])
    names = {name for _, name in files_of(found)}
    assert {"report.html", "summary.json", "outcomes.parquet", "run.json", "logs/low.eval"} <= names
    assert not {"stolen", "linked/secret", "cache/reply.pickle", "pipe", ".lock"} & names


def test_the_table_of_a_large_run_is_its_beginning_without_keys(run, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "q3")  # too short to be a key
    monkeypatch.setattr(tracker, "MOST_ROWS", 7)
    (found,) = read_exported([run.path])
    columns, rows = table_of(found)
    assert columns == run.outcomes.columns
    assert [tuple(row) for row in rows] == run.outcomes.head(7).rows()


def test_what_went_wrong_is_one_line_without_keys(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "swordfish-77")
    assert told(ValueError("bad key\nswordfish-77.")) == "ValueError: bad key [key]"
    assert told(ValueError("")) == "ValueError: no reason given"
    assert len(told(ValueError("x" * 10_000))) == 300
