"""Evidence for the command: it starts, says where, answers, logs, and ends on a signal with nothing on its lips."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from tests.tiers import one_fast
from typer.testing import CliRunner

from refusal_index.cli import app

COMMAND = [sys.executable, "-W", "error", "-c", "from refusal_index.cli import main; main()", "serve"]


@pytest.mark.slow
@one_fast("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_leaves_quietly(tmp_path, number):
    log = tmp_path / "requests.jsonl"
    arguments = [*COMMAND, "--port", "0", "--log", str(log)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        announced = [process.stdout.readline() for _ in range(4)]
        url = re.search(r"http://127\.0\.0\.1:\d+/v1", announced[0])[0]
        with urllib.request.urlopen(f"{url}/models", timeout=10) as response:  # noqa: S310 - the address is http
            models = [model["id"] for model in json.load(response)["data"]]
        process.send_signal(number)
        output, errors = process.communicate(timeout=20)
    assert models == ["almanac/base", "almanac/small", "almanac/rash"]
    assert f"ALMANAC_BASE_URL={url}" in announced[2]
    assert "--model openai-api/almanac/base" in announced[3]
    assert (process.returncode, output, errors) == (0, "", "")
    assert json.loads(log.read_text())["path"] == "/v1/models"


@pytest.mark.slow
def test_a_port_in_use_is_an_error_in_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        arguments = [*COMMAND, "--port", str(taken.getsockname()[1])]
        result = subprocess.run(arguments, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 2
    assert "choose another --host, --port or --log" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_log_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    arguments = [*COMMAND, "--port", "0", "--log", str(tmp_path / "no" / "such" / "log")]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 2
    assert "No such file" in result.stderr
    assert "Traceback" not in result.stderr


def test_it_refuses_to_listen_beyond_this_machine_unless_told_so():
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):  # noqa: S104 - it must not listen there
        result = CliRunner().invoke(app, ["serve", "--host", host])
        assert result.exit_code == 2
        assert "--let-other-machines-in" in result.stderr
