"""Reading the file that W&B writes offline: records in the log format of LevelDB, each a message of its own protocol.

W&B sends such a file with ``wandb sync`` and has no reader of it for Python, so that this one opens it with its own
classes of the messages.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK, HEADER = 32768, struct.Struct("<IHB")
PATIENCE = 20.0
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class Logged:
    """What was logged for a run."""

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)  # from the summary
    history: list[dict[str, Any]] = field(default_factory=list)
    artifacts: dict[str, list[str]] = field(default_factory=dict)
    exit_code: int | None = None


def read_offline_run(folder: Path) -> Logged:
    """Read the only offline run below a folder, after the W&B process has written its end."""
    (path,) = folder.rglob("*.wandb")
    until = time.monotonic() + PATIENCE
    while (found := _read(path)).exit_code is None and time.monotonic() < until:
        time.sleep(0.1)
    return found


def _read(path: Path) -> Logged:
    from wandb.proto import wandb_internal_pb2

    found = Logged()
    for content in _records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found.run = record.run
            found.config |= _items(record.run.config.update)
        elif kind == "summary":
            found.summary |= _items(record.summary.update)
            found.removed += [item.key or "/".join(item.nested_key) for item in record.summary.remove]
        elif kind == "history":
            found.history.append(_items(record.history.item))
        elif kind == "artifact":
            found.artifacts[record.artifact.type] = [one.path for one in record.artifact.manifest.contents]
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    return found


def _items(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def _records(content: bytes) -> Iterator[bytes]:
    place, parts = 7, b""  # after W&B's header
    while place + HEADER.size <= len(content):
        left = BLOCK - place % BLOCK
        if left < HEADER.size:
            place += left
            continue
        _, length, kind = HEADER.unpack_from(content, place)
        body = content[place + HEADER.size : place + HEADER.size + length]
        place += HEADER.size + length
        if kind in (FULL, FIRST):
            parts = b""
        if len(body) < length:
            return  # still being written
        parts += body
        if kind in (FULL, LAST):
            yield parts
