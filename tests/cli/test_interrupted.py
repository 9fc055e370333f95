"""Commands that are killed or told to end."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.making import outcomes
from tests.cli.serving import Server, finish, serving, start
from tests.tiers import one_fast

# --- SIGTERM and SIGHUP

PROGRAM = """
import atexit, os, signal
from refusal_index import cli
from refusal_index.cli import new_group

app = new_group()

@app.command()
def one():
    {before}

@app.command()
def two():
    pass

atexit.register(lambda: {after})
cli.app = app
cli.main()
"""
TERMINATE, HANG_UP = (f"os.kill(os.getpid(), signal.{name})" for name in ("SIGTERM", "SIGHUP"))


def run_program(before, after="None", **handlers):
    """Run the program with some signals handled as given at its start, and return how it ended."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before, after=after), "one"],
        preexec_fn=lambda: [signal.signal(getattr(signal, name), handler) for name, handler in handlers.items()],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (TERMINATE, "None", 130),
        ("raise KeyboardInterrupt", TERMINATE, 130),
        ("pass", TERMINATE, 0),
        (HANG_UP, "None", 130),
        ("pass", HANG_UP, 0),
    ],
    ids=["at work", "as it leaves", "when it is done", "hung up at work", "hung up when it is done"],
)
@one_fast("ctrl_c", [signal.SIG_DFL, signal.SIG_IGN], ids=["in front", "in the background"])
def test_signal_ends_the_command_with_the_expected_status(before, after, status, ctrl_c):
    done = run_program(before, after, SIGINT=ctrl_c, SIGHUP=signal.SIG_DFL)
    assert done.returncode == status, done.stderr


def test_command_under_nohup_ignores_sighup():
    done = run_program(f"{HANG_UP}; print('done')", SIGHUP=signal.SIG_IGN)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.slow
def test_closed_terminal_ends_the_command_cleanly():
    """Each line to the closed terminal failed, and the command ended with a traceback and status 1."""
    reading, writing = os.pipe()
    before = f"""
    import asyncio
    from refusal_index.cli.runs import asking
    from refusal_index.runs.budget import Budget
    from refusal_index.runs.settings import Settings

    budget = Budget(Settings().limits)

    async def until_interrupted():
        os.write({writing}, b"x")
        while budget.ended is None:
            await asyncio.sleep(0.02)

    asking(until_interrupted(), budget)"""
    child, terminal = pty.fork()
    if not child:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup the signal stays ignored
        os.set_inheritable(writing, True)
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM.format(before=before, after="None"), "one"])  # noqa: S606
    os.read(reading, 1)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130


# --- Batch commands killed at random

KNOWN = ["variant", "question_id", "refused", "wrong", "first_reply", "forced_reply"]
OPTIONS = ("--engine-option", "poll=0.05", "--engine-option", "requests=12", "--engine", "batch")
SIZE = ("--limit", "30", "--variants", "low,highest", "--draws", "1")


def killed_after(server: Server, seconds: float, *arguments: str) -> bool:
    """Start a command, kill it this long after its first request, and return whether it was still running."""
    before = len(server.entries())
    process = start(server, *arguments)
    while len(server.entries()) == before and process.poll() is None:
        time.sleep(0.005)
    time.sleep(seconds)
    was_at_work = process.poll() is None
    process.kill()
    _, errors = process.communicate()
    assert was_at_work or process.returncode == 0, errors
    return was_at_work


def submitted(folder: Path) -> list[str]:
    lines = [json.loads(line) for line in (folder / "batches.jsonl").read_text().splitlines()]
    return [line["batch"] for line in lines if line["event"] == "submitted"]


def check(server: Server, folders: list[Path]) -> None:
    """Check that every batch is known to exactly one run, and that nothing was answered twice."""
    known = [name for folder in folders for name in submitted(folder)]
    assert Counter(known) == Counter(server.batches())
    times = Counter((one["batch"], one["custom_id"]) for one in server.answered())
    runs = {name: folder for folder in folders for name in submitted(folder)}
    asked = Counter((runs[batch], custom_id) for batch, custom_id in times.elements())
    assert asked.most_common(1)[0][1] == 1


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_no_batch_is_submitted_twice_after_thirty_random_kills(tmp_path, command):
    chance, kills, folders = random.Random(14), 0, []
    with serving(tmp_path / "requests.jsonl", delay=0.1) as server:
        while kills < 30:
            folders.append(tmp_path / f"run-{len(folders)}")
            run = ("run", *SIZE, *OPTIONS, "--out", str(folders[-1]))
            while kills < 30 and killed_after(server, chance.uniform(0, 0.8), *run):
                kills += 1
            finish(start(server, *run))
        check(server, folders)
    assert command("run", *SIZE, "--model", "almanac/base", "--out", "whole").exit_code == 0
    whole = outcomes("whole").select(KNOWN)
    for folder in folders:
        assert outcomes(folder).select(KNOWN).equals(whole), folder.name


@pytest.mark.slow
def test_killed_batch_run_resumes_where_it_stopped(tmp_path):
    with serving(tmp_path / "requests.jsonl", delay=0.1) as server:
        run = ("run", "--limit", "10", "--variants", "low", "--draws", "1", *OPTIONS, "--out", str(tmp_path / "run"))
        assert killed_after(server, 0.15, *run)
        finish(start(server, *run))
        check(server, [tmp_path / "run"])
