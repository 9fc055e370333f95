"""A run in a separate process that is killed, for tests of what remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.faults.process import ROOT

CODE = """
import json, sys
from pathlib import Path
from refusal_index.data.datasets import Dataset
from refusal_index.runs.settings import Settings
from refusal_index.models import failures
from tests.models.conftest import make_dataset, run
from refusal_index.runs.plan import prepare
failures.FIRST_WAIT = 0.001
given = json.loads(sys.argv[1])
dataset = make_dataset(given.pop("count")) if "count" in given else None
if __name__ == "__main__":
    run(prepare(Settings.from_values(**given), dataset=dataset, out=Path(sys.argv[2])))
"""


def start(settings: str, out: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a run with settings as JSON."""
    everything = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        "OPENBLAS_NUM_THREADS": "1",
        **environment,
    }
    with out.with_suffix(".output").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", CODE, settings, str(out)],
            env=everything,
            stdout=output,
            stderr=output,
            cwd=out.parent,
        )


def kill_once(process: subprocess.Popen[bytes], moment: Callable[[], bool], patience: float = 120) -> bool:
    """Kill a process at a moment; return False if it ended well before."""
    end = time.monotonic() + patience
    while not moment() and time.monotonic() < end:
        if process.poll() is not None:
            assert process.returncode == 0
            return False
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return True


def settled(count: Callable[[], int], seconds: float = 3.0) -> int:
    """Wait until a count has not changed for so many seconds, and return it."""
    seen, since = count(), time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(0.05)
        if count() != seen:
            seen, since = count(), time.monotonic()
    return seen
