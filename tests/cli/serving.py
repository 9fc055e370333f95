"""A server and commands in separate processes, as a user starts them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from refusal_index.cli import main; main()"]


@dataclass
class Server:
    url: str
    log: Path

    def entries(self) -> list[dict[str, Any]]:
        """Return the log of requests; those of batches have a `batch` and a `custom_id`."""
        text = self.log.read_text() if self.log.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def answered(self) -> list[dict[str, Any]]:
        """Return what the model was asked, alone or in a batch."""
        chats = (entry for entry in self.entries() if entry["path"].endswith("/chat/completions"))
        return [entry for entry in chats if entry["status"] == 200]

    def batches(self) -> list[str]:
        """Return the batches that were submitted."""
        made = (entry for entry in self.entries() if (entry["method"], entry["path"]) == ("POST", "/v1/batches"))
        return [entry["batch"] for entry in made if entry["status"] == 200]

    def answered_ids(self) -> list[str]:
        """Return the ids of all requests that were answered in batches."""
        return [entry["custom_id"] for entry in self.answered() if "custom_id" in entry]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "requests.jsonl") as started:
        yield started


@contextmanager
def serving(log: Path, delay: float = 0.0) -> Iterator[Server]:
    """Serve in a process of its own; batches spend `delay` seconds in each of their states."""
    command = [sys.executable, str(ROOT / "tests" / "faults" / "almanac.py"), str(delay)] if delay else COMMAND
    with subprocess.Popen(
        [*command, "serve", "--port", "0", "--log", str(log)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            address = next(found for line in process.stdout if (found := re.search(r"http://\S+/v1", line)))
            yield Server(address[0], log)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)
            process.stdout.close()


def start(server: Server, name: str, *arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start a command against the server; without a configuration, name the model."""
    model = () if "--config" in arguments else ("--model", "base")
    return subprocess.Popen(
        [*COMMAND, name, *arguments, *model, "--base-url", server.url],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_once(server: Server, enough: int, process: subprocess.Popen[str]) -> None:
    """Kill a command once so many requests were answered."""
    while len(server.answered()) < enough:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    process.communicate()


def finish(process: subprocess.Popen[str]) -> str:
    said, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return said
