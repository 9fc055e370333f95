"""`run-batch`, and the same request files in a server's batches."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import openai
import pytest

from refusal_index.plugins.almanac import chat_api
from refusal_index.plugins.almanac.models import model_folder
from refusal_index.plugins.almanac.runtime import Runtime
from refusal_index.protocol import Message
from tests.cli.serving import COMMAND, Server

# --- Batch files

URL = "/v1/chat/completions"
RUN = ("run-batch", "-i", "in.jsonl", "-o", "out.jsonl", "--model", "almanac/base")


def chat_request(number, **changes):
    messages = [{"role": "user", "content": f"Who founded town {number}?"}]
    return {"model": "almanac/base", "messages": messages, "seed": number, "max_tokens": 6} | changes


def line(number, **changes):
    return {"custom_id": f"q-{number}", "method": "POST", "url": URL, "body": chat_request(number)} | changes


def write(*entries):
    texts = [entry if isinstance(entry, str) else json.dumps(entry) for entry in entries]
    Path("in.jsonl").write_text("".join(f"{text}\n" for text in texts))


def results():
    return [json.loads(text) for text in Path("out.jsonl").read_text().splitlines()]


def test_results_keep_request_order_and_match_the_models_replies(command):
    order = [17, *range(40, 0, -1)]
    write(*(line(number) for number in order))
    done = command(*RUN)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "out.jsonl: 41 requests\n" in done.stderr
    found = results()
    assert [one["custom_id"] for one in found] == [f"q-{number}" for number in order]
    assert all(set(one) == {"id", "custom_id", "response", "error"} for one in found)
    assert {(one["response"]["status_code"], one["error"]) for one in found} == {(200, None)}
    assert len({one["id"] for one in found}) == len({one["response"]["request_id"] for one in found}) == 41
    runtime = Runtime(model_folder("base"))
    expected = asyncio.run(
        runtime.complete([Message(**chat_request(17)["messages"][0])], seed=17, max_tokens=6),
    )
    body = found[0]["response"]["body"]
    assert [choice["message"]["content"] for choice in body["choices"]] == [reply.text for reply in expected]
    assert (body["object"], body["model"]) == ("chat.completion", "almanac/base")
    assert body["usage"]["prompt_tokens"] == expected[0].prompt_tokens


def test_failures_are_in_the_result_file_and_do_not_fail_the_command(command):
    write(
        line(0),
        line(1, body=chat_request(1, messages=[{"role": "user", "content": "town " * 3000}])),
        line(2, url="/v1/embeddings"),
        line(3, body=chat_request(3, stream=True)),
        line(4, body=chat_request(4, model="almanac/rash")),
        line(5),
    )
    done = command(*RUN)
    assert done.exit_code == 0
    assert "6 requests, 4 of which failed" in done.stderr
    assert "  1 failed: URL /v1/embeddings" in done.stderr
    assert "1 more kinds of failure" in done.stderr
    found = results()
    assert [one["response"]["status_code"] for one in found] == [200, 400, 400, 400, 404, 200]
    assert [one["response"]["body"] is None for one in found] == [False, True, True, True, True, False]
    assert "context" not in str(found[0]["error"])
    assert found[1]["error"]["error"]["param"] == "messages"
    assert found[1]["error"]["error"]["code"] == 400
    assert {"/v1/embeddings", f"{URL}."} <= set(found[2]["error"].split())
    assert "almanac/rash" in found[4]["error"]["error"]["message"], "one model is served"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{", "line 3: this line is not valid JSON"),
        ("[]", "line 3: this line is not a JSON object"),
        ('{"custom_id": "a"}', "line 3: 'method' is missing"),
        (line(2, custom_id=9), "line 3: 'custom_id' must be a string"),
    ],
)
def test_invalid_request_line_is_bad_input_before_any_work(command, entry, message):
    write(line(0), "", entry, line(3))
    done = command(*RUN)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"--input-file: in.jsonl, {message}" in done.stderr
    assert os.listdir() == ["in.jsonl"]  # noqa: PTH208 - with hidden files


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-i", "none.jsonl", "-o", "out.jsonl", "--model", "almanac/base"), "--input-file: expected a file"),
        (("-i", ".", "-o", "out.jsonl", "--model", "almanac/base"), "--input-file: expected a file"),
        (("-i", "in.jsonl", "-o", "./in.jsonl", "--model", "almanac/base"), "is the input file"),
        (("-i", "in.jsonl", "-o", "out.jsonl", "--model", "almanac/bsae"), "did you mean 'almanac/base'"),
        (("-i", "in.jsonl", "-o", "out.jsonl", "--model", "Qwen/Qwen3-8B"), "--model: expected one of almanac/base"),
        (("-i", "in.jsonl", "-o", "out.jsonl"), "--model"),
        (
            ("-i", "in.jsonl", "-o", "out.jsonl", "--model", "almanac/base", "--tensor-parallel-size", "2"),
            "No such option",
        ),
    ],
)
def test_invalid_run_batch_arguments_are_bad_input(command, arguments, message):
    write(line(0))
    before = Path("in.jsonl").read_text()
    done = command("run-batch", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())
    assert (os.listdir(), Path("in.jsonl").read_text()) == (["in.jsonl"], before)  # noqa: PTH208 - with hidden files


def test_unwritable_results_fail_before_any_request(command, monkeypatch):
    monkeypatch.setattr(Runtime, "complete", lambda *_arguments, **_settings: 1 / 0)
    write(line(0))
    done = command("run-batch", "-i", "in.jsonl", "-o", "no/such/out.jsonl", "--model", "almanac/base")
    assert done.exit_code == 1
    assert "no/such/out.jsonl" in done.stderr
    assert not Path("no").exists()


def test_old_results_are_kept_until_new_ones_are_complete(command, monkeypatch):
    write(line(0), line(1))
    Path("out.jsonl").write_text("old")
    complete = Runtime.complete

    async def interrupted(self, messages, **settings):
        if settings["seed"] == 1:
            raise KeyboardInterrupt
        return await complete(self, messages, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(Runtime, "complete", interrupted)
        assert command(*RUN).exit_code == 130
    assert Path("out.jsonl").read_text() == "old"
    assert sorted(os.listdir()) == ["in.jsonl", "out.jsonl"]  # noqa: PTH208 - with hidden files
    assert command(*RUN).exit_code == 0
    assert len(results()) == 2


def test_empty_request_file_gives_empty_results(command):
    write("", "")
    assert command(*RUN).exit_code == 0
    assert results() == []


def test_output_tmp_dir_option_is_accepted_and_ignored(command):
    write(line(0))
    done = command(*RUN, "--output-tmp-dir", "t")
    assert done.exit_code == 0
    assert "--output-tmp-dir: ignored" in done.stderr
    assert not Path("t").exists()


def test_requests_are_read_no_faster_than_in_flight_limit(command, monkeypatch):
    from refusal_index.plugins.almanac.chat_api import MAX_IN_FLIGHT, JsonResponse

    taken, written, ahead = 0, 0, []

    def read(lines, read_lines=chat_api.read_lines):
        nonlocal taken
        for one in read_lines(lines):
            taken += 1
            ahead.append(taken - written)
            yield one

    async def answer(*_):
        nonlocal written
        await asyncio.sleep(0)
        written += 1
        return JsonResponse(200, {})

    write(*(line(number) for number in range(2000)))
    monkeypatch.setattr(chat_api, "answer", answer)
    monkeypatch.setattr(chat_api, "count_requests", lambda _: 2000)
    monkeypatch.setattr(chat_api, "read_lines", read)
    assert command(*RUN).exit_code == 0
    assert len(results()) == 2000
    assert 1 < max(ahead) <= MAX_IN_FLIGHT + 1


# --- Batches of the server match run-batch


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
        row["custom_id"]: [choice["message"]["content"] for choice in row["response"]["body"]["choices"]]
        for row in rows
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
def test_server_with_a_running_batch_stops_at_once_without_errors(command):
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
