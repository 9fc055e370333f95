"""The server over HTTP, and the command that starts it."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import openai
import pytest
from tests.tiers import one_fast
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.plugins.almanac import server as server_module
from refusal_index.plugins.almanac.runtime import Runtime
from refusal_index.plugins.almanac.server import ModelPool, RequestLog, create_app, listening
from refusal_index.protocol import Message

# --- The server over HTTP

DATA = Path(__file__).parent / "data"
HELLO = [{"role": "user", "content": "Who wrote the book?"}]
LONG = [{"role": "user", "content": "\n" * 200}]
SECRET = "sk-never-to-be-seen"


@asynccontextmanager
async def server(log_path=None):
    pool = ModelPool(["tied", "grouped"], DATA.joinpath)
    async with listening(create_app(pool, RequestLog(log_path))) as url:
        yield url


def with_client(use, log_path=None):
    async def run():
        async with server(log_path) as url, openai.AsyncOpenAI(base_url=url, api_key=SECRET, max_retries=0) as client:
            return await use(client)

    return asyncio.run(run())


def with_http(use, log_path=None):
    async def run():
        async with server(log_path) as url, aiohttp.ClientSession() as session:
            return await use(session, url)

    return asyncio.run(run())


def test_models_are_listed():
    async def use(client):
        return [model.id async for model in client.models.list()]

    assert with_client(use) == ["almanac/tied", "almanac/grouped"]


@pytest.mark.parametrize("name", ["grouped", "almanac/grouped"])
def test_reply_matches_the_runtime_under_both_model_names(name):
    async def use(client):
        return await client.chat.completions.create(
            model=name, messages=HELLO, seed=3, n=3, temperature=0.8, top_p=0.9, max_tokens=9
        )

    response = with_client(use)
    runtime = Runtime(DATA / "grouped")
    message = Message(**HELLO[0])
    expected = asyncio.run(runtime.complete([message], seed=3, n=3, temperature=0.8, top_p=0.9, max_tokens=9))
    assert [choice.message.content for choice in response.choices] == [reply.text for reply in expected]
    assert [choice.finish_reason for choice in response.choices] == [reply.finish_reason for reply in expected]
    assert [choice.index for choice in response.choices] == [0, 1, 2]
    assert response.model == name
    assert response.usage.prompt_tokens == expected[0].prompt_tokens
    assert response.usage.completion_tokens == sum(reply.completion_tokens for reply in expected)


def test_openai_client_options_work():
    async def use(client):
        ask = client.chat.completions.create
        options = {"model": "tied", "messages": HELLO, "temperature": 0}
        whole = await ask(**options, max_completion_tokens=12)
        text = whole.choices[0].message.content
        stopped = await ask(**options, stop=[text[3:5]])
        parts = await ask(**options | {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]})
        scored = await ask(**options, max_tokens=2, logprobs=True, top_logprobs=4)
        return text, stopped, parts, scored

    text, stopped, parts, scored = with_client(use)
    assert stopped.choices[0].message.content == text[: text.index(text[3:5])]
    assert stopped.choices[0].finish_reason == "stop"
    assert parts.choices[0].message.content
    for token in scored.choices[0].logprobs.content:
        assert token.logprob == token.top_logprobs[0].logprob == max(other.logprob for other in token.top_logprobs)
        assert len(token.top_logprobs) == 4


def test_streamed_reply_equals_the_whole_one():
    async def use(client):
        options = {"model": "tied", "messages": HELLO, "seed": 1, "n": 2, "max_tokens": 8}
        whole = await client.chat.completions.create(**options)
        stream = await client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
        return whole, [chunk async for chunk in stream]

    whole, chunks = with_client(use)
    texts = ["", ""]
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert chunks[-1].usage == whole.usage


@pytest.mark.parametrize(
    ("options", "error", "code", "param"),
    [
        ({"model": "gpt-4.1"}, openai.NotFoundError, "model_not_found", "model"),
        ({"model": "../tied"}, openai.NotFoundError, "model_not_found", "model"),
        ({"messages": []}, openai.BadRequestError, None, "messages"),
        ({"messages": LONG}, openai.BadRequestError, "context_length_exceeded", "messages"),
        ({"temperature": -1}, openai.BadRequestError, None, "temperature"),
        ({"tools": [{"type": "function"}]}, openai.BadRequestError, "unsupported_parameter", "tools"),
    ],
)
def test_errors_reach_the_client_as_openai_exceptions(options, error, code, param):
    async def use(client):
        with pytest.raises(error) as caught:
            await client.chat.completions.create(**{"model": "tied", "messages": HELLO} | options)
        return caught.value

    raised = with_client(use)
    assert raised.code == code
    assert raised.type == "invalid_request_error"
    assert raised.param == param
    assert set(raised.body) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe\x00", 400),
        (b"[" * 100_000, 400),
        (b'{"model": "tied", "messages": [{"role": "user", "content": "\\ud800"}]}', 400),
        (b'{"model": "tied", "messages": [{"role": "user", "content": "x"}], "temperature": NaN}', 400),
        (b'{"model": "tied", "messages": [{"role": "user", "content": "x"}], "seed": ' + b"9" * 5000 + b"}", 400),
        (b'{"model": "tied", "messages": [{"role": "user", "content": "' + b"x" * 900_000 + b'"}]}', 400),
        (b" " * 2_000_000, 413),
        (b'{"model": "tied", "max_tokens": 3, "messages": [{"role": "user", "content": "\\u0000\\u001b"}]}', 200),
        (b'{"model": "tied", "max_tokens": 3, "messages": [{"role": "user", "content": "<|im_end|>"}]}', 200),
    ],
)
def test_broken_and_hostile_bodies_get_an_api_shaped_error(body, status):
    async def use(session, url):
        async with session.post(f"{url}/chat/completions", data=io.BytesIO(body)) as response:
            return response.status, await response.json()

    found, answer = with_http(use)
    assert found == status
    if status != 200:
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/", 404), ("POST", "/embeddings", 404), ("GET", "/chat/completions", 405)]
)
def test_unknown_routes_get_an_api_shaped_error(method, path, status):
    async def use(session, url):
        async with session.request(method, url + path) as response:
            return response.status, await response.json()

    found, answer = with_http(use)
    assert found == status
    assert path in answer["error"]["message"]


def exchange_raw(request, log_path=None):
    """Send bytes as they are; return the lines of the response's head, and its body."""

    async def run():
        async with server(log_path) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
            writer.write(request)
            response = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            return response

    head, _, body = asyncio.run(run()).decode().partition("\r\n\r\n")
    return head.split("\r\n"), body


HOSTILE_PATHS = ["%00", "%0a%1b%5b2J", "%0d%0aX-Evil:%201", "%ff", "..%2f..%2fetc%2fpasswd", "%e2%80%ae", "%", "%zz"]


@pytest.mark.parametrize("name", HOSTILE_PATHS)
@pytest.mark.parametrize("path", ["/files/{}", "/files/{}/content", "/batches/{}", "/{}", "/files?after={}"])
def test_hostile_names_in_paths_are_not_found_and_escaped(tmp_path, caplog, path, name):
    request = f"GET /v1{path.format(name)} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
    head, body = exchange_raw(request, tmp_path / "log.jsonl")
    assert head[0] in ("HTTP/1.1 404 Not Found", "HTTP/1.1 400 Bad Request")
    assert not any(line.startswith("X-Evil") for line in head)
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert body.isprintable()
    assert all(line.isprintable() for line in (tmp_path / "log.jsonl").read_text().splitlines())
    assert not caplog.records


@pytest.mark.parametrize(
    "request_line",
    [b"GET /a\x1b[2J HTTP/1.1", b"GET /\x00 HTTP/1.1", b"GET http://[::1 HTTP/1.1", b"GET /" + b"x" * 9000],
)
def test_request_that_is_not_http_is_an_error_400_and_one_line(caplog, request_line):
    head, _ = exchange_raw(request_line + b"\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    assert head[0] == "HTTP/1.0 400 Bad Request"
    (record,) = caplog.records
    assert record.exc_info is None
    assert record.getMessage().startswith("rejected a request that is not valid HTTP: ")
    assert record.getMessage().isprintable()


@pytest.mark.parametrize("name", [b"a\x1b[2J", b"a\x00", b"a\x07", b"\xff", b"\xed\xa0\x80", "\u202e".encode()])
def test_uploaded_file_with_control_characters_in_its_name_is_refused(caplog, name):
    parts = [(b'name="purpose"', b"batch"), (b'name="file"; filename="' + name + b'"', b"{}")]
    form = b"".join(b"--x\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % part for part in parts) + b"--x--\r\n"
    lines = ["POST /v1/files HTTP/1.1", "Host: 127.0.0.1", "Connection: close", f"Content-Length: {len(form)}"]
    head = "\r\n".join([*lines, "Content-Type: multipart/form-data; boundary=x", "", ""])
    status, answer = exchange_raw(head.encode() + form)
    assert status[0] == "HTTP/1.1 400 Bad Request"
    assert answer.isprintable()
    assert json.loads(answer)["error"]["type"] == "invalid_request_error"
    assert not caplog.records


def test_a_failure_of_the_server_is_an_error_500_and_the_next_request_works(monkeypatch, caplog):
    async def use(client):
        ask = client.chat.completions.create
        with monkeypatch.context() as patch:
            patch.setattr(Runtime, "complete", lambda *_arguments, **_settings: 1 / 0)
            with pytest.raises(openai.InternalServerError) as caught:
                await ask(model="tied", messages=HELLO)
        return caught.value, await ask(model="tied", messages=HELLO, max_tokens=3)

    error, response = with_client(use)
    assert error.type == "server_error"
    assert response.choices
    assert "ZeroDivisionError" in caplog.text
    assert SECRET not in caplog.text


def test_a_model_that_cannot_be_loaded_is_an_error_500_that_says_why():
    async def use():
        app = create_app(ModelPool(["absent"], DATA.joinpath), RequestLog(None))
        async with listening(app) as url, aiohttp.ClientSession() as session:
            body = {"model": "absent", "messages": HELLO}
            async with session.post(f"{url}/chat/completions", json=body) as response:
                return response.status, await response.json()

    status, answer = asyncio.run(use())
    assert status == 500
    assert "config.json" in answer["error"]["message"]


def test_disconnected_client_is_dropped_and_the_others_are_served(tmp_path, monkeypatch):
    complete = Runtime.complete

    async def use(client):
        begun = asyncio.Event()

        async def watched(self, messages, **settings):
            if settings["n"] == 128:
                begun.set()
            return await complete(self, messages, **settings)

        monkeypatch.setattr(Runtime, "complete", watched)
        ask = client.chat.completions.create
        hasty = asyncio.create_task(ask(model="grouped", messages=HELLO, n=128))
        patient = [asyncio.create_task(ask(model="grouped", messages=HELLO, seed=n, max_tokens=20)) for n in range(5)]
        await begun.wait()
        hasty.cancel()
        served = await asyncio.gather(*patient)
        assert isinstance((await asyncio.gather(hasty, return_exceptions=True))[0], asyncio.CancelledError)
        return served, [await ask(model="grouped", messages=HELLO, seed=n, max_tokens=20) for n in range(5)]

    served, again = with_client(use, tmp_path / "log.jsonl")
    assert [each.choices for each in served] == [each.choices for each in again]
    statuses = [json.loads(line)["status"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert sorted(statuses) == [200] * 10 + [499]


def test_the_log_counts_every_request_and_holds_no_secret(tmp_path):
    path = tmp_path / "log.jsonl"

    async def use(client):
        await client.models.list()
        await client.chat.completions.create(model="tied", messages=HELLO, seed=4, n=2, max_tokens=5)
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="other", messages=HELLO)

    with_client(use, path)
    text = path.read_text()
    listed, answered, refused = (json.loads(line) for line in text.splitlines())
    assert (listed["method"], listed["path"], listed["status"]) == ("GET", "/v1/models", 200)
    assert (answered["model"], answered["n"], answered["seed"], answered["status"]) == ("tied", 2, 4, 200)
    assert answered["total_tokens"] == answered["prompt_tokens"] + answered["completion_tokens"]
    assert (refused["model"], refused["status"]) == ("other", 404)
    assert SECRET not in text
    assert HELLO[0]["content"] not in text


def test_models_are_loaded_on_first_use():
    loaded = []

    def folder_of(name):
        loaded.append(name)
        return DATA / name

    pool = ModelPool(["tied", "grouped"], folder_of)
    assert pool.runtime("tied") is pool.runtime("almanac/tied")
    assert set(loaded) == {"tied"}


ASKED = {"model": "tied", "messages": HELLO, "max_tokens": 3}


def test_oversized_max_tokens_fills_the_context():
    async def use(session, url):
        async with session.post(f"{url}/chat/completions", json=ASKED | {"max_tokens": 10**18, "seed": 1}) as response:
            return response.status, await response.json()

    status, answer = with_http(use)
    assert status == 200
    assert answer["usage"]["total_tokens"] < 10_000


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.0.2.1", 403),
        ("localhost.", 403),
        ("", 403),
        ("[", 403),
    ],
)
def test_dns_rebinding_host_is_rejected(host, status):
    """DNS rebinding: earlier, requests for any host name were answered."""

    async def use(session, url):
        async with session.post(f"{url}/chat/completions", json=ASKED, headers={"Host": host}) as response:
            return response.status

    assert with_http(use) == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://{host}", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
    ],
)
@pytest.mark.parametrize("any_host", [False, True])
def test_cross_origin_request_is_rejected(headers, status, any_host):
    """A browser sends such a POST for any page that is open in it."""

    async def run():
        app = create_app(ModelPool(["tied"], DATA.joinpath), RequestLog(None), any_host=any_host)
        async with listening(app) as url, aiohttp.ClientSession() as session:
            given = {name: value.format(host=url.split("/")[2]) for name, value in headers.items()}
            body = {"data": json.dumps(ASKED), "headers": {"Content-Type": "text/plain", **given}}
            async with session.post(f"{url}/chat/completions", **body) as response:
                return response.status, await response.json()

    found, answer = asyncio.run(run())
    assert found == status
    assert (answer.get("error", {}).get("type") == "invalid_request_error") == (status == 403)


def test_a_body_of_a_hundred_megabytes_is_refused_unread():
    sent = 0

    async def much():
        nonlocal sent
        for _ in range(100):
            sent += 2**20
            yield b" " * 2**20

    async def use(session, url):
        try:
            async with session.post(f"{url}/chat/completions", data=much()) as response:
                return response.status
        except aiohttp.ClientError:
            return 413  # the server closed the connection before everything was sent

    assert with_http(use) == 413
    assert sent < 100 * 2**20


def test_slow_client_is_dropped_and_the_others_are_served(monkeypatch):
    monkeypatch.setattr(server_module, "PATIENCE", 0.2)

    async def run():
        app = create_app(ModelPool(["tied"], DATA.joinpath), RequestLog(None))
        async with listening(app) as url, aiohttp.ClientSession() as session:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].split("/")[0]))
            head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
            writer.write(head.encode())
            async with session.post(f"{url}/chat/completions", json=ASKED) as response:
                served = response.status
            slow = await reader.readline()
            writer.close()
            return served, slow

    served, slow = asyncio.run(run())
    assert served == 200
    assert b"408" in slow


@pytest.mark.nightly
def test_a_thousand_requests_at_once_are_all_answered():
    async def use(_session, url):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def ask(seed):
                async with session.post(f"{url}/chat/completions", json=ASKED | {"seed": seed}) as response:
                    return response.status

            return await asyncio.gather(*map(ask, range(1000)))

    assert set(with_http(use)) == {200}


# --- The command serve

COMMAND = [sys.executable, "-W", "error", "-c", "from refusal_index.cli import main; main()", "serve"]


@pytest.mark.slow
@one_fast("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_runs_until_a_signal_and_exits_silently(tmp_path, number):
    log = tmp_path / "requests.jsonl"
    arguments = [*COMMAND, "--port", "0", "--log", str(log)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        announced = [process.stdout.readline() for _ in range(3)]
        url = re.search(r"http://127\.0\.0\.1:\d+/v1", announced[0])[0]
        with urllib.request.urlopen(f"{url}/models", timeout=10) as response:  # noqa: S310 - the address is http
            models = [model["id"] for model in json.load(response)["data"]]
        process.send_signal(number)
        output, errors = process.communicate(timeout=20)
    assert models == ["almanac/base", "almanac/small", "almanac/rash"]
    assert announced[2].strip() == f"refusal-index run --model almanac/base --base-url {url}"
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


def test_serve_rejects_non_loopback_hosts_without_the_option():
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):  # noqa: S104 - it must not listen there
        result = CliRunner().invoke(app, ["serve", "--host", host])
        assert result.exit_code == 2
        assert "--let-other-machines-in" in result.stderr
