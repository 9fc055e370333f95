"""Responses of HTTP clients: read up to a limit, and written again as OpenAI's chat API gives them.

A hook of the client does it, before anyone parses the body: what a server writes in an unusual way is paid for as any
other reply is, and is not asked for again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import Any

from refusal_index.models.asks import TEXTS, choices_in, count_in, text_in
from refusal_index.models.failures import SAID, UnreadableReplyError

MEGABYTE = 2**20
LARGEST = 64 * MEGABYTE
"""Most bytes of a response, once it is decompressed."""

OK, NO_STATUS = 200, 502
ADDRESSES = ("/completions", "/responses", "/messages")
"""Where replies are asked for, at the ends of paths."""

REPLIES = {"choices": list, "output": list, "content": list}
"""What the responses hold: of OpenAI's two interfaces, and of Anthropic's."""

ASKS_FOR_EVENTS = re.compile(rb'"stream"\s*:\s*true')
JSON, EVENTS = "application/json", "event-stream"
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


async def receive(response: Any) -> None:
    """Read a response of httpx, and put its body into the usual form.

    One that says 200 and is no reply gets the status that it names, or that of a bad gateway. A stream of events that
    was asked for is left alone, as is any response that comes from elsewhere than where replies do.

    Raises
    ------
    UnreadableReplyError
        If it is too large.
    """
    request, is_stream = response.request, EVENTS in response.headers.get("content-type", "")
    if not request.url.path.endswith(ADDRESSES) or (is_stream and ASKS_FOR_EVENTS.search(request.content)):
        return
    response._content = await _read(response)
    if response.status_code != OK:
        return
    text = response.content.decode(response.encoding or "utf-8", "replace")
    body = _joined(text) if is_stream else _json(text)
    if not any(isinstance(body.get(name), held) for name, held in REPLIES.items()):
        response.extensions = {**response.extensions, SAID: OK}
        response.status_code = _status_in(body)
        return
    response._content = json.dumps(usual(body)).encode()
    response.headers["content-type"] = JSON


async def _read(response: Any) -> bytes:
    """Return the bytes of a response, decompressed."""
    parts, size = [], 0
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            if size > LARGEST:
                raise UnreadableReplyError(f"the response is larger than {LARGEST // MEGABYTE} MiB; it is not read")
            parts.append(chunk)
    return b"".join(parts)


def _json(text: str | bytes) -> dict[str, Any]:
    """Return the object that a body holds; an empty one for whatever else it is."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _status_in(body: dict[str, Any]) -> int:
    error = body.get("error")
    named = [holder.get(name) for holder in (error, body) if isinstance(holder, dict) for name in ("code", "status")]
    return next((one for one in named if isinstance(one, int) and 400 <= one < 600), NO_STATUS)


def _joined(text: str) -> dict[str, Any]:
    """Return the body that the events of a stream add up to; one without choices where a choice does not end.

    An event that holds an error is returned in place of the body.
    """
    chunks = [_json(line.removeprefix("data:")) for line in text.split("\n") if line.startswith("data:")]
    failed = next((one for one in chunks if one.get("error")), None)
    if failed is not None:
        return failed
    body = {name: value for chunk in chunks for name, value in chunk.items() if value}
    choices = _joined_choices(one for chunk in chunks for one in choices_in(chunk))
    return body | {"choices": choices if all(one["finish_reason"] for one in choices) else None}


def _joined_choices(pieces: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    choices: dict[int, dict[str, Any]] = {}
    for piece in pieces:
        index, delta = count_in(piece.get("index")), piece.get("delta")
        whole = choices.setdefault(index, {"index": index, "message": {}, "finish_reason": None})
        whole["finish_reason"] = piece.get("finish_reason") or whole["finish_reason"]
        for name in TEXTS:
            text = text_in(delta.get(name)) if isinstance(delta, Mapping) else None
            if text is not None:
                whole["message"][name] = whole["message"].get(name, "") + text
    return list(choices.values())


def usual(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a response with the types that OpenAI's chat API promises, and any other as it is.

    Examples
    --------
    >>> usual({"choices": [{"message": {"content": 42}}], "model": None, "usage": {"total_tokens": "9"}})["usage"]
    {'prompt_tokens': 0, 'completion_tokens': 0, 'total_tokens': 0}
    """
    if "choices" not in body:
        return dict(body)
    usage = body.get("usage")
    return {
        **body,
        "model": str(body.get("model") or ""),
        "choices": [_usual_choice(one) for one in choices_in(body)],
        "usage": {name: count_in(usage.get(name)) for name in COUNTS} if isinstance(usage, Mapping) else None,
    }


def _usual_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in choice:  # of the interface that completes a text
        return dict(choice)
    message, reason = choice.get("message"), choice.get("finish_reason")
    message = message if isinstance(message, Mapping) else {}
    texts = {name: text_in(message.get(name)) for name in TEXTS}
    return {
        **choice,
        "index": count_in(choice.get("index")),
        "message": {**message, **texts},
        "finish_reason": reason if isinstance(reason, str) else None,
    }
