"""A command that is told to end by SIGTERM, as a cluster does it: at any moment with the status of an interruption."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, os, signal
from refusal_index import cli
from refusal_index.cli.groups import new_group

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
TOLD = "os.kill(os.getpid(), signal.SIGTERM)"


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [(TOLD, "None", 130), ("raise KeyboardInterrupt", TOLD, 130), ("pass", TOLD, 0)],
    ids=["at work", "as it leaves", "when it is done"],
)
@pytest.mark.parametrize("ctrl_c", [signal.SIG_DFL, signal.SIG_IGN], ids=["in front", "in the background"])
def test_it_ends_with_the_status_that_stands(before, after, status, ctrl_c):
    program = [sys.executable, "-c", PROGRAM.format(before=before, after=after), "one"]
    done = subprocess.run(
        program, preexec_fn=lambda: signal.signal(signal.SIGINT, ctrl_c), capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
