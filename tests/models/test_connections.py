"""A second response on a connection is never read as the response to the next request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from refusal_index.models.connections import http_client
from refusal_index.plugins.inspect.client import resolve_model
from tests.faults.api import completion


def response(text: str) -> bytes:
    body = json.dumps(completion((text, "stop"))).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@asynccontextmanager
async def server(delay: float) -> AsyncIterator[str]:
    """Answer each request with the text that it sent, and send that response twice."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                text = json.loads(await reader.readexactly(size))["messages"][-1]["content"]
                twice = response(text)
                writer.write(twice + (b"" if delay else twice))
                await writer.drain()
                if delay:
                    await asyncio.sleep(delay)
                    writer.write(twice)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    finally:
        listening.close()


async def asked_over_http(url: str, delay: float) -> list[str]:
    replies = []
    async with http_client() as client:
        for number in range(4):
            body = {"messages": [{"role": "user", "content": f"question {number}"}]}
            try:
                response = await client.post(f"{url}/chat/completions", json=body)
            except Exception as error:  # the next request is sent on another connection
                replies.append(type(error).__name__)
            else:
                replies.append(response.json()["choices"][0]["message"]["content"])
            await asyncio.sleep(2 * delay)
    return replies


async def asked_of_inspect(name: str, delay: float) -> list[str]:
    replies = []
    async with resolve_model(name) as model:
        model.api.should_retry = lambda _: False
        for number in range(4):
            try:
                output = await model.generate(f"question {number}")
            except Exception as error:
                replies.append(type(error).__name__)
            else:
                replies.append(output.completion)
            await asyncio.sleep(2 * delay)
    return replies


@pytest.mark.parametrize("delay", [0.0, 0.05])
@pytest.mark.parametrize("name", [None, "together/any"])
def test_second_response_is_never_the_next_reply(monkeypatch, name, delay):
    async def ask_server() -> list[str]:
        async with server(delay) as url:
            monkeypatch.setenv("TOGETHER_BASE_URL", url)
            monkeypatch.setenv("TOGETHER_API_KEY", "k-0123456789")
            return await (asked_over_http(url, delay) if name is None else asked_of_inspect(name, delay))

    replies = asyncio.run(ask_server())
    assert replies[0] == "question 0"
    wrong = [reply for number, reply in enumerate(replies) if "question" in reply and reply != f"question {number}"]
    assert not wrong
    assert "question 2" in replies or "question 3" in replies
