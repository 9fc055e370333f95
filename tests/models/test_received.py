"""Responses are read up to a limit, and put into the usual form before anyone parses them."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from refusal_index.models import chat_api
from refusal_index.models.chat_api import MAX_RESPONSE_BYTES, receive, rewrite
from refusal_index.models.failures import FailureKind, UnreadableReplyError, classify_error, describe_error
from refusal_index.plugins.inspect.client import resolve_model

CHAT = "http://server/v1/chat/completions"
BODY = {"choices": [{"index": 0, "message": {"content": "Lima"}, "finish_reason": "stop"}]}


async def post(url: str, sent: Any, **response: Any) -> httpx2.Response:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(**{"status_code": 200, **response}))
    async with httpx2.AsyncClient(transport=transport, event_hooks={"response": [receive, rewrite]}) as client:
        return await client.post(url, json=sent)


def came(url: str = CHAT, sent: Any = None, **response: Any) -> httpx2.Response:
    return asyncio.run(post(url, sent or {}, **response))


def events(*chunks: Any, end: str = "\n") -> dict[str, Any]:
    lines = [f"data: {one if isinstance(one, str) else json.dumps(one)}{end}{end}" for one in chunks]
    return {"text": ": a comment\n\n" + "".join(lines), "headers": {"Content-Type": "text/event-stream"}}


def piece(index: int = 0, reason: str | None = None, **delta: object) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


def test_a_response_is_read_no_further_than_its_limit():
    read = []

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(1000):
            read.append(1)
            yield b" " * 2**20

    with pytest.raises(UnreadableReplyError, match="larger than 64 MiB") as caught:
        came(content=pieces())
    assert len(read) == MAX_RESPONSE_BYTES // 2**20 + 1
    assert classify_error(caught.value, describe_error(caught.value), "m").kind is FailureKind.REQUEST


@pytest.mark.parametrize("status", [200, 500])
def test_the_limit_is_one_of_decompressed_bytes_and_the_last_byte_counts(monkeypatch, status):
    content = json.dumps(BODY).encode() + b" " * 5000
    packed = {"content": gzip.compress(content), "headers": {"Content-Encoding": "gzip"}, "status_code": status}
    monkeypatch.setattr(chat_api, "MAX_RESPONSE_BYTES", len(content))
    assert came(**packed).json()["choices"][0]["message"]["content"] == "Lima"
    monkeypatch.setattr(chat_api, "MAX_RESPONSE_BYTES", len(content) - 1)
    with pytest.raises(UnreadableReplyError):
        came(**packed)


def test_events_add_up_to_the_choices_in_them():
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    response = came(
        **events(
            piece(1, content="Cuz"),
            piece(0, role="assistant", content="Li"),
            piece(0, content="ma"),
            piece(1, content="co", refusal=None),
            piece(0, "stop"),
            piece(1, "length"),
            {"choices": [], "usage": usage, "model": "m"},
            "[DONE]",
            end="\r\n",
        )
    )
    body = response.json()
    assert [one["message"]["content"] for one in body["choices"]] == ["Lima", "Cuzco"]
    assert [one["finish_reason"] for one in body["choices"]] == ["stop", "length"]
    assert (body["usage"], body["model"]) == (usage, "m")
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("chunks", "status"),
    [
        ((piece(content="Li"), "[DONE]"), 502),
        ((piece(content="Li", reason="stop"), piece(1, content="Cuz")), 502),
        ((piece(content="Li"), {"error": {"message": "slow", "code": 429}}), 429),
        ((piece(content="Li"), '{"torn": '), 502),
    ],
)
def test_events_that_end_early_or_in_an_error_are_no_reply(chunks, status):
    assert came(**events(*chunks)).status_code == status


def test_events_that_were_asked_for_are_left_to_whoever_did():
    stream = events(piece(content="Li", reason="stop"))
    for sent in ({"stream": True}, {"messages": [], "stream": True}):
        assert came(sent=sent, **stream).text == stream["text"]
    quoted = came(sent={"messages": '"stream":true'}, **stream)
    assert quoted.json()["choices"][0]["message"]["content"] == "Li"


@pytest.mark.parametrize(
    ("content", "headers", "expected"),
    [
        ("é".encode("latin-1"), {"Content-Type": "application/json; charset=latin-1"}, "é"),
        ("é".encode("latin-1"), {"Content-Type": "application/json"}, "\ufffd"),
        ("é".encode(), {"Content-Type": "application/json; charset=none-such"}, "é"),
        ("é".encode(), {}, "é"),
    ],
)
def test_text_is_read_in_the_charset_that_the_header_names(content, headers, expected):
    body = json.dumps(BODY).encode().replace(b"Lima", content)
    assert came(content=body, headers=headers).json()["choices"][0]["message"]["content"] == expected


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": "odd"}, (3, 2, 5)),
        ({"prompt_tokens": "3", "completion_tokens": 2.5}, (0, 0, 0)),
        ("odd", None),
    ],
)
def test_a_body_has_the_types_that_the_api_promises(usage, expected):
    message = {"content": [{"type": "text", "text": "Li"}, {"text": "ma"}], "refusal": 5, "role": "assistant"}
    choices = [{"message": message, "finish_reason": ["stop"]}, {"message": None, "index": 1}, "none"]
    body = came(content=json.dumps({"choices": choices, "model": None, "usage": usage}).encode()).json()
    assert body["usage"] == (expected and dict(zip(chat_api.COUNTS, expected, strict=True)))
    first, second = body["choices"]
    assert first["message"] == {"content": "Lima", "refusal": None, "role": "assistant"}
    assert (first["finish_reason"], first["index"], body["model"]) == (None, 0, "")
    assert second["message"] == {"content": None, "refusal": None}


def test_a_completed_text_is_left_as_it_is():
    body = {"choices": [{"text": "Lima", "index": 0, "finish_reason": "stop"}], "usage": None, "model": "m"}
    assert came("http://server/v1/completions", content=json.dumps(body).encode()).json() == body


def test_elsewhere_a_response_is_left_as_it_is():
    assert came("http://server/v1/models", content=b"[1]").content == b"[1]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"<html>maintenance</html>", "InternalServerError: 200"), (b" " * 101, "UnreadableReplyError: the response is")],
)
def test_the_hook_is_there_for_a_provider_that_makes_its_client_itself(monkeypatch, content, expected):
    pytest.importorskip("anthropic", reason="needs the extra 'batch'")
    monkeypatch.setattr(chat_api, "MAX_RESPONSE_BYTES", 100)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-very-secret")
    sent = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200, content=content, headers={"Content-Type": "text/html"})

    async def ask() -> None:
        async with resolve_model("anthropic/any") as model:
            model.api.client._client._transport = httpx2.MockTransport(respond)
            model.api.client.max_retries = 0
            model.api.should_retry = lambda _: False
            await model.generate("Who?")

    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        asyncio.run(ask())
    assert describe_error(caught.value).startswith(expected)
    assert len(sent) == 1
