"""With W&B itself, offline; its file is read back with its own message classes."""

from __future__ import annotations

import json
import time
from importlib.util import find_spec

import pytest

from refusal_index.plugins.trackers import clients
from refusal_index.plugins.trackers.tracker import Subject, TrackerError, export_runs, read_exported, tracker_class
from refusal_index.render.summary import numbers
from tests.exporters.conftest import leaves
from tests.exporters.offline_run import read_offline_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("wandb") is None, reason="needs the extra 'wandb'"),
    pytest.mark.usefixtures("no_trackers"),
]


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


def test_every_number_of_the_summary_is_in_the_offline_run(drawn, offline):
    (said,) = export_runs([drawn.path], "wandb")
    assert said.startswith(f"wandb: {offline}")
    assert said.endswith("offline: 'wandb sync' uploads it")
    logged, document = read_offline_run(offline), json.loads(drawn.folder.summary.read_text())
    named = numbers(document)
    assert {name: logged.summary[name] for name in named} == named
    assert logged.summary["status"] == "complete"
    assert sorted(named.values()) == sorted(leaves(document))
    assert logged.run.display_name == "python:team/sums on sums"
    assert logged.exit_code == 0


@pytest.mark.nightly
def test_wandb_summary_marks_an_incomplete_run(incomplete, offline):
    export_runs([incomplete], "wandb")
    assert read_offline_run(offline).summary["status"] == "incomplete: high, 10 of 40 questions not scored"


@pytest.mark.nightly
def test_newly_undefined_metric_is_removed_and_others_are_kept(drawn, offline):
    (run,) = read_exported([drawn.path])
    tracker = tracker_class("wandb")(Subject(run.key, "logged before"))
    tracker.count({"low/no_longer_defined": 3.0, "progress/questions": 8.0, "of_mine": 1.0})
    tracker.log(run)
    assert read_offline_run(offline).removed == ["low/no_longer_defined"]


@pytest.mark.nightly
def test_waiting_run_is_not_a_failure(offline):
    tracker_class("wandb")(Subject("0123456789abcdef", "waits")).wait()
    assert read_offline_run(offline).exit_code == 0


def test_configuration_table_and_files_are_logged(drawn, offline):
    export_runs([drawn.path], "wandb")
    logged = read_offline_run(offline)
    assert logged.config["decoding"] == json.loads(drawn.folder.run_json.read_text())["settings"]["decoding"]
    (path,) = offline.rglob("outcomes_*.table.json")
    table = json.loads(path.read_text())
    assert table["columns"] == drawn.outcomes.columns
    assert [tuple(row) for row in table["data"]] == drawn.outcomes.rows()
    files = logged.artifacts["refusal-index-run"]
    assert {"report.html", "summary.json", "outcomes.parquet", "replies.sqlite", "run.json"} <= set(files)


@pytest.mark.nightly
def test_missing_wandb_key_error_is_one_line(drawn, monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "no netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(TrackerError) as raised:
        export_runs([drawn.path], "wandb")
    assert "No API key configured" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.nightly
def test_unreachable_wandb_server_is_reported_quickly_by_address(drawn, monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setitem(clients.INIT_TIMEOUT, "init_timeout", 1.0)
    began = time.monotonic()
    with pytest.raises(TrackerError, match=r"^wandb: http://127\.0\.0\.1:9 cannot be reached \("):
        export_runs([drawn.path], "wandb")
    assert time.monotonic() - began < 60  # W&B's own timeout is 90 s


@pytest.mark.nightly
def test_disabled_tracker_says_nothing_was_logged(drawn, monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with pytest.raises(TrackerError, match="nothing was logged because WANDB_MODE is disabled; unset it"):
        export_runs([drawn.path], "wandb")


@pytest.mark.nightly
def test_neither_the_command_line_nor_the_terminal_is_logged(drawn, offline, capfd):
    export_runs([drawn.path], "wandb")
    assert not list(offline.rglob("wandb-metadata.json"))
    assert not list(offline.rglob("requirements.txt"))
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


@pytest.mark.nightly
def test_hostile_names_and_keys_are_harmless(drawn, offline, monkeypatch):
    import polars as pl

    monkeypatch.setenv("SOME_API_KEY", "swordfish-77-of-mine")
    hostile = drawn.outcomes.with_columns(
        model=pl.lit("../m\n\x1b[31m"), first_reply=pl.lit("it is swordfish-77-of-mine </script>\x00")
    )
    hostile.write_parquet(offline / "hostile.parquet")
    export_runs([offline / "hostile.parquet"], "wandb")
    (run,) = read_exported([offline / "hostile.parquet"])
    logged = read_offline_run(offline)
    assert {name: logged.summary[name] for name in numbers(run.document)} == numbers(run.document)
    assert "\n" not in logged.run.display_name
    (path,) = offline.rglob("outcomes_*.table.json")
    assert "swordfish-77-of-mine" not in path.read_text()
    (binary,) = offline.rglob("*.wandb")
    assert b"swordfish-77-of-mine" not in binary.read_bytes()
