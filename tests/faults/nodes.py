"""A Ray cluster of one node for all scenarios: its start takes longer than most of them."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

from tests.faults.process import ROOT, WAITS

BEGIN = """
import sys
from ray.cluster_utils import Cluster
made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 80_000_000})
print(made.address, flush=True)
sys.stdin.read()
made.shutdown()
"""
HURRY = f"from refusal_index.models import failures; failures.FIRST_WAIT = {WAITS[0][2]}"
"""What every interpreter of the cluster begins with: actors wait as little as the command does."""

_lock = threading.Lock()


def cluster() -> str:
    """Return the address of the cluster, which ends with this process."""
    with _lock:
        return _cluster()


@cache
def _cluster() -> str:
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_DEDUP_LOGS": "0"}
    hurried = Path(tempfile.mkdtemp(prefix="faults-"))
    (hurried / "sitecustomize.py").write_text(HURRY)
    path = os.pathsep.join([str(hurried), str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN],
        env={**os.environ, **quiet, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def end() -> None:
        process.communicate(timeout=60)
        shutil.rmtree(hurried, ignore_errors=True)

    atexit.register(end)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address, "no Ray cluster can be started here"
    return address
