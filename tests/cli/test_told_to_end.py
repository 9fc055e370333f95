"""SIGTERM, as a cluster sends it, and SIGHUP, as a closed terminal does: they interrupt a command at any moment."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.tiers import one_fast

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


def ended(before, after="None", **handlers):
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
def test_it_ends_with_the_status_that_stands(before, after, status, ctrl_c):
    done = ended(before, after, SIGINT=ctrl_c, SIGHUP=signal.SIG_DFL)
    assert done.returncode == status, done.stderr


def test_under_nohup_it_goes_on_after_sighup():
    done = ended(f"{HANG_UP}; print('done')", SIGHUP=signal.SIG_IGN)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.slow
def test_it_ends_in_order_where_its_terminal_is_closed():
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
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
        os.set_inheritable(writing, True)
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM.format(before=before, after="None"), "one"])  # noqa: S606
    os.read(reading, 1)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
