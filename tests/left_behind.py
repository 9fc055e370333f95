"""Names of half-written files that a killed process left."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from refusal_index.data import files


@cache
def ended_process() -> int:
    """Return the id of a process that has ended."""
    process = os.fork()
    if not process:
        os._exit(0)
    os.waitpid(process, 0)
    return process


def left_behind(path: Path, ending: str = "") -> Path:
    """Return the path of a file that a process which has ended would have replaced `path` with."""
    own = files._temporary_beside(path)
    return own.with_name(own.name.replace(f"-{os.getpid()}-", f"-{ended_process()}-") + ending)
