"""A server in a process of its own, its batches beside ``run-batch``: one file of requests, the same replies."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import openai
import pytest

from tests.cli.serving import COMMAND, Server
from tests.cli.test_run_batch import RUN, URL, line, results, write


def submit(client: openai.OpenAI, **metadata: str) -> str:
    with Path("in.jsonl").open("rb") as file:
        source = client.files.create(file=file, purpose="batch")
    made = client.batches.create(
        input_file_id=source.id, endpoint=URL, completion_window="24h", metadata=metadata or openai.omit
    )
    return made.id


def wait(client: openai.OpenAI, batch: str) -> openai.types.Batch:
    until = time.monotonic() + 60
    while not (found := client.batches.retrieve(batch)).completed_at and not found.expired_at:
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


def texts(rows):
    return {
        one["custom_id"]: [choice["message"]["content"] for choice in one["response"]["body"]["choices"]]
        for one in rows
    }


def client_of(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url, api_key="sk-none", max_retries=0)


@pytest.mark.slow
def test_a_batch_and_run_batch_give_the_same_replies(command, server):
    write(*(line(number) for number in range(60)))
    assert command(*RUN).exit_code == 0
    with client_of(server) as client:
        found = wait(client, submit(client, wave="1"))
        rows = [json.loads(one) for one in client.files.content(found.output_file_id).text.splitlines()]
    assert texts(rows) == texts(results())
    assert len(rows) == 60
    assert server.batches() == [found.id]
    assert sorted(one["custom_id"] for one in server.answered()) == sorted(f"q-{number}" for number in range(60))


@pytest.mark.slow
def test_a_server_with_a_batch_under_way_ends_at_once_and_quietly(command):
    write(*(line(number) for number in range(2000)))
    with subprocess.Popen(
        [*COMMAND, "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        url = process.stdout.readline().split(" at ")[1].split()[0]
        with openai.OpenAI(base_url=url, api_key="sk-none") as client:
            submit(client)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
