"""`watch`: each training checkpoint is evaluated once, with clear exit statuses and a report of the steps."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refusal_index.plugins.almanac.models import model_folder

WATCH = ("watch", "checkpoints", "--model-template", "almanac/{name}", "--limit", "5", "--variants", "normal")
QUICK = ("--temperature", "0", "--every", "0.2")


def checkpoint(name: str) -> Path:
    place = Path("checkpoints") / name
    shutil.copytree(model_folder("small"), place)
    for file in place.iterdir():
        os.utime(file, (1_000_000, 1_000_000))
    return place


def test_watch_evaluates_checkpoints_and_report_plots_steps(command):
    for name in ("small", "base"):
        checkpoint(name)
    result = command(*WATCH, *QUICK, "--once")
    assert result.exit_code == 0, result.output
    assert "base on almanac " in result.stdout
    assert "Plots over the steps: refusal-index report runs/checkpoints-panel" in result.stdout
    assert command("report", "runs/checkpoints-panel").exit_code == 0
    page = Path("runs/checkpoints-panel/report.html").read_text(encoding="utf-8")
    assert "2 steps on " in page
    again = command(*WATCH, *QUICK, "--until-idle", "0.1")
    assert again.exit_code == 0, again.output
    shutil.rmtree("checkpoints")
    Path("checkpoints").mkdir()
    assert command(*WATCH, *QUICK, "--once").exit_code == 0


def test_failed_checkpoint_gives_exit_status_1_and_partial_one_is_named(command):
    checkpoint("small")
    checkpoint("huge")
    (checkpoint("base") / "model.safetensors").write_bytes(b"\0" * 100)
    result = command(*WATCH, *QUICK, "--once")
    assert result.exit_code == 1
    assert "checkpoints/huge: model 'almanac/huge'" in result.stderr
    assert "checkpoints/base is skipped: model.safetensors is incomplete" in result.stderr
    assert "small on almanac" in result.stderr
    assert "small on almanac " in result.stdout
    assert "1 of 2 checkpoints are incomplete:\n  huge: failed, see above" in result.stdout
    assert result.output.count("almanac/huge") == 1


def test_non_utf8_checkpoint_name_is_reported_and_others_evaluated(command):
    """It ended every watch, so later checkpoints were not evaluated."""
    checkpoint(os.fsdecode(b"bad-1\xff"))
    checkpoint("two\x1b[2J\n2")
    checkpoint("small")
    result = command(*WATCH, *QUICK, "--once")
    assert result.exit_code == 1
    assert "checkpoints/bad-1\\udcff: folder name: expected UTF-8" in result.stderr
    assert "checkpoints/two\\x1b[2J\\n2: model 'almanac/two" in result.stderr
    assert "small on almanac" in result.stderr
    assert "\x1b" not in result.output


def test_non_utf8_working_folder_is_rejected_as_panel_name(command, monkeypatch):
    Path(os.fsdecode(b"bad\xff")).mkdir()
    monkeypatch.chdir(os.fsdecode(b"bad\xff"))
    result = command("watch", ".", *WATCH[2:], *QUICK, "--once")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: out: expected a path in UTF-8, got 'runs/bad\\udcff-panel'")


def test_changed_settings_are_rejected_once_each_and_panel_is_kept(command):
    checkpoint("small")
    assert command(*WATCH, *QUICK, "--once").exit_code == 0
    known = Path("runs/checkpoints-panel/summary.json").read_bytes()
    result = command(*WATCH, *QUICK, "--once", "--seed", "1")
    assert result.exit_code == 1
    assert result.output.count("was run with different settings") == 1
    assert "goes on with" not in result.output
    assert Path("runs/checkpoints-panel/summary.json").read_bytes() == known


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("watch", "gone", "--model-template", "hf/{path}"), "gone: expected the folder to which the training writes"),
        (("watch", ".", "--model-template", "hf/model"), "expected it to contain one of {path}, {name}, {step}"),
        (("watch", ".", "--model-template", "hf/{path}", "--once", "--until-idle", "3"), "--once: cannot be combined"),
        (("watch", ".", "--model-template", "hf/{path}", "--dataset", "simpel"), "simpel"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(command, arguments, message):
    result = command(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_watch_reports_when_there_are_no_checkpoints(command):
    Path("checkpoints").mkdir()
    result = command(*WATCH, "--once")
    assert result.exit_code == 1
    assert "no checkpoint was evaluated; expected folders with a config.json and weights" in result.stdout
    assert not Path("runs").exists()


@pytest.mark.slow
def test_ctrl_c_ends_watch_cleanly_with_results_so_far(command):
    checkpoint("small")
    program = [str(Path(sys.executable).with_name("refusal-index")), *WATCH, *QUICK]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        until = time.monotonic() + 120
        while not Path("runs/checkpoints-panel/summary.json").exists() and time.monotonic() < until:
            time.sleep(0.2)
        time.sleep(1)
        watching.send_signal(signal.SIGINT)
        out, told = watching.communicate(timeout=60)
    assert watching.returncode == 130
    assert "interrupted" in told
    assert "Plots over the steps: refusal-index report runs/checkpoints-panel" in out
