"""A server in a process of its own, and commands in theirs, as a user starts them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from refusal_index.cli import main; main()"]


@dataclass
class Server:
    url: str
    log: Path

    def answered(self) -> list[dict[str, object]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if entry["path"].endswith("/chat/completions") and entry["status"] == 200]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    log = tmp_path / "requests.jsonl"
    with subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--log", str(log)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            address = next(found for line in process.stdout if (found := re.search(r"http://\S+/v1", line)))
            yield Server(address[0], log)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)
            process.stdout.close()


def start(server: Server, name: str, *arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start a command against the server; unless it has a configuration, it is told the model."""
    environment = {**os.environ, "ALMANAC_BASE_URL": server.url, "ALMANAC_API_KEY": "sk-none-needed"}
    model = () if "--config" in arguments else ("--model", "openai-api/almanac/base")
    return subprocess.Popen(
        [*COMMAND, name, *arguments, *model],
        cwd=cwd,
        env=environment,
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
