"""What a server may do with a request instead of answering it: each is a `Misdeed`, or makes one."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from aiohttp import web

from tests.faults.api import Exchange, Misdeed, dropped
from tests.faults.batches import Expired

NUMBERS = itertools.count(1)
OPENAI = {"object": "chat.completion", "id": "x", "created": 1, "model": "fake"}


def refused(status: int, message: str, code: str | None = None, **headers: str) -> Misdeed:
    """Return an error as the API words it; an underscore in the name of a header is a hyphen."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    error = {"error": {"message": message, "type": code or "error", "code": code}}

    async def misdeed(_exchange: Exchange) -> web.StreamResponse:
        return web.json_response(error, status=status, headers=sent)

    return misdeed


def body(content: object, status: int = 200) -> Misdeed:
    """Return this JSON without interpreting it."""

    async def misdeed(_exchange: Exchange) -> web.StreamResponse:
        return web.json_response(content, status=status)

    return misdeed


def plain(text: str, status: int, content_type: str) -> Misdeed:
    """Return text of some type."""

    async def misdeed(_exchange: Exchange) -> web.StreamResponse:
        return web.Response(text=text, status=status, content_type=content_type)

    return misdeed


def message(**fields: object) -> Misdeed:
    """Return one choice whose message has these fields, and which stopped as one says that has them."""
    reason = "tool_calls" if "tool_calls" in fields else "stop"
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **fields}}
    return body({**OPENAI, "choices": [choice]})


async def dropped_connection(exchange: Exchange) -> web.StreamResponse:
    """Close the connection without a response."""
    return dropped(exchange.request)


async def cut_connection(exchange: Exchange) -> web.StreamResponse:
    """Close the connection in the middle of the body; within a batch, its line is torn."""
    if exchange.request is None:
        return web.Response(text='{"id": "x", "choi', content_type="application/json")
    whole = json.dumps({**OPENAI, "choices": [], "padding": "x" * 500}).encode()
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(whole))})
    await response.prepare(exchange.request)
    await response.write(whole[:200])
    if exchange.request.transport is not None:
        exchange.request.transport.close()
    return response


def hanging(seconds: float) -> Misdeed:
    """Send nothing for a while, and close; a batch does not wait for it."""

    async def misdeed(exchange: Exchange) -> web.StreamResponse:
        if exchange.request is None:
            return Expired()
        await asyncio.sleep(seconds)
        return dropped(exchange.request)

    return misdeed


def slow(seconds: float) -> Misdeed:
    """Answer well, but late."""

    async def misdeed(exchange: Exchange) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await exchange.respond()

    return misdeed


def down(seconds: float) -> Misdeed:
    """Refuse this and every other connection for a while."""

    async def misdeed(exchange: Exchange) -> web.StreamResponse:
        await exchange.api.go_down(seconds)
        return dropped(exchange.request)

    return misdeed


def replies_with(text: str, reason: str = "stop") -> Misdeed:
    """Answer, and be paid for it, but with another text or for another reason to stop."""

    async def misdeed(exchange: Exchange) -> web.StreamResponse:
        return web.json_response(exchange.answered((text, reason)))

    return misdeed


def written(write: Callable[[dict[str, Any]], web.Response]) -> Misdeed:
    """Answer, and be paid for it, but write the body in another way."""

    async def misdeed(exchange: Exchange) -> web.StreamResponse:
        return write(exchange.answered())

    return misdeed


def with_fields(**fields: object) -> Misdeed:
    """Answer, and be paid for it, with other values of these fields of the body."""
    return written(lambda body: web.json_response({**body, **fields}))


def with_choices(**fields: object) -> Misdeed:
    """Answer, and be paid for it, but with other values of these fields of each choice."""
    return written(
        lambda body: web.json_response({**body, "choices": [{**choice, **fields} for choice in body["choices"]]})
    )


def with_message(**fields: object) -> Misdeed:
    """Answer, and be paid for it, but with these fields in the message of each choice."""
    return with_choices(message={"role": "assistant", **fields})


def in_parts(body: dict[str, Any]) -> web.Response:
    """Write the text of each choice as a list of two parts."""
    for choice in body["choices"]:
        text = choice["message"]["content"]
        choice["message"]["content"] = [{"type": "text", "text": part} for part in (text[:5], text[5:])]
    return web.json_response(body)


def as_events(body: dict[str, Any], *, whole: bool = True) -> web.Response:
    """Write a body as a stream of events, three characters at a time, or only the first half of the events."""
    kept = {name: value for name, value in body.items() if name != "choices"}
    chunks = [
        {**kept, "choices": [{"index": choice["index"], "delta": {"content": text[at : at + 3]}}], "usage": None}
        for choice in body["choices"]
        for text in [choice["message"]["content"]]
        for at in range(0, len(text), 3)
    ]
    ends = [
        {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]} for choice in body["choices"]
    ]
    events = [json.dumps(one) for one in (*chunks, {**kept, "choices": ends, "usage": None}, {**kept, "choices": []})]
    sent = [*events, "[DONE]"] if whole else events[: len(events) // 2]
    return web.Response(text="".join(f"data: {one}\n\n" for one in sent), content_type="text/event-stream")


def in_latin_1(body: dict[str, Any]) -> web.Response:
    """Write a body in the charset that its header names."""
    text = _remarked(body, "caf\u00e9")
    return web.Response(body=text.encode("latin-1"), headers={"Content-Type": "application/json; charset=ISO-8859-1"})


def with_invalid_byte(body: dict[str, Any]) -> web.Response:
    """Write a body with an invalid UTF-8 byte."""
    return web.Response(body=_remarked(body, "caf?").encode().replace(b"?", b"\xe9"), content_type="application/json")


def _remarked(body: dict[str, Any], remark: str) -> str:
    for choice in body["choices"]:
        choice["message"]["content"] += remark
    return json.dumps(body, ensure_ascii=False)


def bomb(body: dict[str, Any]) -> web.Response:
    """Write a body of 200 MiB that is small while it is compressed."""
    return web.Response(
        body=_compressed(json.dumps(body)), headers={"Content-Type": "application/json", "Content-Encoding": "gzip"}
    )


@cache
def _compressed(text: str) -> bytes:
    return gzip.compress(text.encode() + b" " * (200 * 2**20), 1)


async def malformed_header(exchange: Exchange) -> web.StreamResponse:
    """Send an invalid header line; within a batch, give no result."""
    if exchange.request is not None and exchange.request.transport is not None:
        exchange.request.transport.write(b"HTTP/1.1 200 OK\r\nno header at all\r\n\r\n")
        exchange.request.transport.close()
    return web.Response()


async def sent_twice(exchange: Exchange) -> web.StreamResponse:
    """Answer well, and send the response once more on the connection, without being asked, until it is closed."""
    response = await exchange.respond()
    transport = None if exchange.request is None else exchange.request.transport
    if transport is None or not isinstance(response, web.Response) or not isinstance(response.body, bytes):
        return response
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(response.body)}\r\n\r\n"
    transport.write(2 * (head.encode() + response.body))  # at once: what comes later may be taken for a late answer
    for _ in range(200):
        if transport.is_closing():
            break
        await asyncio.sleep(0.01)
    return web.Response()


async def some_null(exchange: Exchange) -> web.StreamResponse:
    """Answer with several choices, every other one of which is null."""
    choices = [(None if place % 2 else text, reason) for place, (text, reason) in enumerate(exchange.choices)]
    return web.json_response(exchange.answered(*choices))


def meanwhile(deed: Callable[[], object], *, late: float = 0.0) -> Misdeed:
    """Do something beside the server, in a thread, and answer well when it is done."""

    async def misdeed(exchange: Exchange) -> web.StreamResponse:
        await asyncio.to_thread(deed)
        await asyncio.sleep(late)
        return await exchange.respond()

    return misdeed


def while_server_is_idle(deed: Callable[[], object]) -> Misdeed:
    """Do something while the server answers no request, so that none is sent meanwhile; then answer well."""

    async def misdeed(exchange: Exchange) -> web.StreamResponse:
        deed()
        return await exchange.respond()

    return misdeed


async def lost_answer(exchange: Exchange) -> web.StreamResponse:
    """Do what is asked, and close the connection without a response."""
    await exchange.respond()
    return dropped(exchange.request)


def changed(change: Callable[[bytes], bytes]) -> Misdeed:
    """Do what is asked, and answer with another body."""

    async def misdeed(exchange: Exchange) -> web.StreamResponse:
        response = await exchange.respond()
        assert isinstance(response, web.Response)
        assert isinstance(response.body, bytes)
        return web.Response(body=change(response.body), content_type=response.content_type)

    return misdeed


def half(*, whole_lines: bool = False) -> Misdeed:
    """Answer with the first half of the body, as if it were all."""

    def first_half(body: bytes) -> bytes:
        first = body[: len(body) // 2]
        return first[: first.rfind(b"\n") + 1] if whole_lines else first

    return changed(first_half)


def lines(change: Callable[[list[bytes]], list[bytes]]) -> Misdeed:
    """Answer with other lines."""
    return changed(lambda body: b"".join(change(body.splitlines(keepends=True))))


def body_as_text(line: bytes) -> bytes:
    """Write the body of a result as a text that holds JSON."""
    document = json.loads(line)
    document["response"]["body"] = json.dumps(document["response"]["body"])
    return json.dumps(document).encode() + b"\n"


def with_document_fields(**fields: object) -> Misdeed:
    """Do what is asked, and show a document with other values of these fields."""
    return changed(lambda body: json.dumps({**json.loads(body), **fields}).encode())


def listed(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], *, has_more: bool = False) -> Misdeed:
    """List other batches than there are."""

    def other(body: bytes) -> bytes:
        data = change(json.loads(body)["data"])
        return json.dumps({"object": "list", "data": data, "has_more": has_more}).encode()

    return changed(other)


def listed_with(**fields: object) -> Misdeed:
    """List the batches with other values of these fields."""
    return listed(lambda batches: [{**batch, **fields} for batch in batches])


def behind(hours: float) -> Misdeed:
    """List the batches by a clock that is behind."""
    return listed(
        lambda batches: [{**batch, "created_at": batch["created_at"] - int(3600 * hours)} for batch in batches]
    )


def batch_of_another_user(total: int, age: float = 0.0, **fields: object) -> dict[str, Any]:
    """Return a batch that somebody else has made so many seconds ago, without metadata."""
    counts = {"total": total, "completed": total, "failed": 0}
    return {
        "id": f"batch_other_{next(NUMBERS)}",
        "object": "batch",
        "input_file_id": "file-other",
        "status": "completed",
        "created_at": int(time.time() - age),
        "metadata": None,
        "request_counts": counts,
        **fields,
    }


async def forgotten(exchange: Exchange) -> web.StreamResponse:
    """Forget all batches."""
    exchange.api.batches.forget()
    return await exchange.respond()


async def expired(_exchange: Exchange) -> web.StreamResponse:
    """Have a batch not get to a request in time."""
    return Expired()


def not_taken(code: str, message: str) -> Misdeed:
    """Take a batch, and ask nothing of it."""

    async def misdeed(exchange: Exchange) -> web.StreamResponse:
        response = await exchange.respond()
        assert isinstance(response, web.Response)
        batch = exchange.api.batches.made[json.loads(response.text or "")["id"]]
        batch.status, batch.errors = "failed", [{"code": code, "message": message}]
        return response

    return misdeed


RATE_LIMIT = refused(429, "Rate limit reached", "rate_limit_exceeded")


def redirected(status: int) -> Misdeed:
    """Redirect to another server."""

    async def misdeed(_exchange: Exchange) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": "http://elsewhere.invalid/v1/chat/completions"})

    return misdeed


RATE_LIMIT_WITH_LONG_WAIT = refused(429, "Rate limit reached", "rate_limit_exceeded", Retry_After="60")
RATE_LIMIT_WITH_WAIT = refused(429, "Rate limit reached", "rate_limit_exceeded", Retry_After="1")
RATE_LIMIT_UNTIL = {
    clock: refused(429, "Rate limit reached", "rate_limit_exceeded", Date=date, Retry_After=until)
    for clock, date, until in (
        ("behind", "Mon, 01 Jan 2001 08:00:00 GMT", "Mon, 01 Jan 2001 08:00:01 GMT"),
        ("ahead", "Thu, 01 Jan 2099 08:00:00 GMT", "Thu, 01 Jan 2099 08:00:01 GMT"),
    )
}
"""Refusals that name the time to come back by a clock that is years behind or ahead."""
SERVER_ERROR = refused(500, "The server had an error")
OVERLOADED = refused(503, "The engine is overloaded")
HTML = plain("<html><body>502 Bad Gateway</body></html>", 502, "text/html")
HTML_AS_JSON = plain("<html>maintenance</html>", 200, "text/html")
TRUNCATED_JSON = plain('{"id": "x", "choi', 200, "application/json")
NO_CHOICES = body({**OPENAI, "choices": []})
NULL_CONTENT = message(content=None)
NO_TEXT = tuple(
    message(content=content)
    for content in (42, {"text": "an object"}, [{"type": "image_url", "image_url": {"url": "x"}}], [{"text": 1}], True)
)
ODD_USAGE = tuple(
    with_fields(usage=usage)
    for usage in (
        None,
        {},
        "none",
        {"prompt_tokens": 100},
        {"prompt_tokens": "100", "completion_tokens": "5", "total_tokens": "105"},
        {"prompt_tokens": 100.5, "completion_tokens": 5.5, "total_tokens": 106.0},
        {"prompt_tokens": -100, "completion_tokens": -5, "total_tokens": -105},
        {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None},
        {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105, "prompt_tokens_details": "cached"},
    )
)
UNUSABLE_USAGE = {
    "is missing": {},
    "is null": None,
    "is text": {"prompt_tokens": "100", "completion_tokens": "5", "total_tokens": "105"},
    "is negative": {"prompt_tokens": -100, "completion_tokens": -5, "total_tokens": -105},
}
TOOL_CALL = message(
    content=None, tool_calls=[{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
)
MALFORMED_CALL = message(content=None, tool_calls=[{"id": 1, "type": "function"}])
ERROR_BODY = body({"error": {"message": "upstream provider is out of order", "code": 520}})
FILTERED = replies_with("", "content_filter")
CUT_SHORT = replies_with("<answer>UNANSWE", "length")
PARTIAL = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "<answer>UNANSWE"}}
OUT_OF_ORDER = {"message": "upstream provider is out of order", "code": 520}
ERROR_NEXT_TO_CHOICES = body({**OPENAI, "choices": [PARTIAL], "error": OUT_OF_ORDER})
ERROR_IN_CHOICE = body({**OPENAI, "choices": [{**PARTIAL, "error": OUT_OF_ORDER}]})
REFUSAL_FIELD = with_message(content=None, refusal="I will not say that.")
REFUSAL_PART = with_message(content=[{"type": "refusal", "refusal": "I will not say that."}])
ONLY_REASONING = with_message(content=None, reasoning_content="Is it 8? Or 9?")
FILTERED_PROMPT = refused(400, "The prompt was filtered", "content_filter")
PERMANENT = refused(400, "this question breaks the server", "invalid_request_error")
KEY_REFUSED = refused(401, "Incorrect API key provided", "invalid_api_key")
NOT_PAID = refused(402, "Insufficient credits", "payment_required")
FORBIDDEN = refused(403, "Your key may not use this model", "permission_denied")
NO_MODEL = refused(404, "The model `any` does not exist", "model_not_found")
NO_BATCHES = refused(404, "There is nothing at this address", "not_found")
TOO_LARGE = refused(413, "The file is too large", "file_too_large")
QUOTA = refused(429, "You exceeded your current quota, please check your plan", "insufficient_quota")
