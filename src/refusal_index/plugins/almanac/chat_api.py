"""The OpenAI chat API as pure functions: from a request's JSON to a request, and from replies to JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from refusal_index.plugins.almanac import RequestError
from refusal_index.plugins.almanac.llama import Completion, Settings
from refusal_index.protocol import Message, TokenLogprob

Json = dict[str, Any]

_MAX_CHOICES, _MAX_STOPS, _MAX_TOP_LOGPROBS = 128, 4, 20

# What this server cannot do, with the value that asks for nothing: refusing is better than quietly ignoring.
_UNSUPPORTED: Mapping[str, object] = {
    "tools": [],
    "functions": [],
    "response_format": {"type": "text"},
    "logit_bias": {},
    "frequency_penalty": 0,
    "presence_penalty": 0,
}


@dataclass(frozen=True)
class ChatRequest:
    """What the body of a request to ``/v1/chat/completions`` asks for."""

    model: str
    messages: tuple[Message, ...]
    settings: Settings
    stream: bool
    stream_usage: bool


def parse_chat_request(body: object) -> ChatRequest:
    """Read the JSON `body` of a request.

    Raises RequestError if a field is missing, of the wrong type or out of range, or asks for something that is not
    supported.
    """
    if not isinstance(body, dict):
        raise RequestError(f"the body must be a JSON object, found {_kind(body)}")
    for name, neutral in _UNSUPPORTED.items():
        if body.get(name) not in (None, neutral):
            raise RequestError(f"'{name}' is not supported by this server", param=name, code="unsupported_parameter")
    options = _field(body, "stream_options", dict) or {}
    return ChatRequest(
        model=_required(body, "model", str),
        messages=tuple(_message(entry, index) for index, entry in enumerate(_required(body, "messages", list))),
        settings=_settings(body),
        stream=_field(body, "stream", bool) or False,
        stream_usage=_field(options, "include_usage", bool) or False,
    )


def completion_body(request: ChatRequest, completions: Sequence[Completion], *, identity: str, created: int) -> Json:
    """Return the JSON of a whole response."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": completion.text, "refusal": None},
            "logprobs": _logprobs(completion),
            "finish_reason": completion.finish_reason,
        }
        for index, completion in enumerate(completions)
    ]
    head = _head(request, "chat.completion", identity, created)
    return head | {"choices": choices, "usage": usage(completions)}


def chunk_bodies(request: ChatRequest, completions: Sequence[Completion], *, identity: str, created: int) -> list[Json]:
    """Return the JSON of the chunks of a streamed response: a whole reply is one chunk, its end another."""
    head = _head(request, "chat.completion.chunk", identity, created)
    chunks = []
    for index, completion in enumerate(completions):
        delta = {"role": "assistant", "content": completion.text}
        logprobs, reason = _logprobs(completion), completion.finish_reason
        chunks.append([{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}])
        chunks.append([{"index": index, "delta": {}, "logprobs": None, "finish_reason": reason}])
    bodies = [head | {"choices": choices} for choices in chunks]
    return [*bodies, head | {"choices": [], "usage": usage(completions)}] if request.stream_usage else bodies


def usage(completions: Sequence[Completion]) -> dict[str, int]:
    """Return the tokens spent; the choices of a request share its prompt."""
    prompt = completions[0].prompt_tokens
    generated = sum(completion.completion_tokens for completion in completions)
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


def _head(request: ChatRequest, kind: str, identity: str, created: int) -> Json:
    return {"id": identity, "object": kind, "created": created, "model": request.model}


def _settings(body: Json) -> Settings:
    n = _or(_field(body, "n", int), 1)
    if n > _MAX_CHOICES:
        raise RequestError(f"'n' must be at most {_MAX_CHOICES}; got {n}", param="n")
    return Settings(
        temperature=_number(body, "temperature"),
        top_p=_number(body, "top_p"),
        max_tokens=_or(_field(body, "max_completion_tokens", int), _field(body, "max_tokens", int)),
        stop=_stop(body),
        seed=_field(body, "seed", int),
        n=n,
        top_logprobs=_top_logprobs(body),
    )


def _number(body: Json, name: str, default: float = 1.0) -> float:
    try:
        return float(_or(_field(body, name, int, float), default))
    except OverflowError as error:
        raise RequestError(f"'{name}' is too large", param=name) from error


def _stop(body: Json) -> tuple[str, ...]:
    stop = _field(body, "stop", str, list) or []
    stops = [stop] if isinstance(stop, str) else stop
    if len(stops) > _MAX_STOPS or not all(isinstance(text, str) for text in stops):
        raise RequestError(f"'stop' must be a string or up to {_MAX_STOPS} strings", param="stop")
    return tuple(stops)


def _top_logprobs(body: Json) -> int | None:
    count = _field(body, "top_logprobs", int)
    if not _field(body, "logprobs", bool):
        if count is not None:
            raise RequestError("'top_logprobs' needs 'logprobs' to be true", param="top_logprobs")
        return None
    if count is not None and count > _MAX_TOP_LOGPROBS:
        raise RequestError(f"'top_logprobs' must be at most {_MAX_TOP_LOGPROBS}; got {count}", param="top_logprobs")
    return count or 0


def _message(entry: object, index: int) -> Message:
    param = f"messages[{index}]"
    if not isinstance(entry, dict):
        raise RequestError(f"'{param}' must be an object, found {_kind(entry)}", param=param)
    role, content = entry.get("role"), entry.get("content")
    if not isinstance(role, str):
        raise RequestError(f"'{param}.role' must be a string, found {_kind(role)}", param=f"{param}.role")
    text = content if isinstance(content, str) else _joined(content, f"{param}.content")
    return Message("system" if role == "developer" else role, text)


def _joined(parts: object, param: str) -> str:
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts] if isinstance(parts, list) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"'{param}' must be a string or a list of parts of type 'text'", param=param)
    return "\n".join(map(str, texts))


def _logprobs(completion: Completion) -> Json | None:
    if completion.logprobs is None:
        return None
    return {"content": [_token(token) for token in completion.logprobs], "refusal": None}


def _token(token: TokenLogprob) -> Json:
    alternatives = [_scored(text, logprob) for text, logprob in token.alternatives]
    return _scored(token.token, token.logprob) | {"top_logprobs": alternatives}


def _scored(text: str, logprob: float) -> Json:
    # a token may hold a part of a character only, which has no text of its own
    return {"token": text, "logprob": logprob, "bytes": None if "\ufffd" in text else list(text.encode())}


def _required(body: Json, name: str, kind: type) -> Any:
    value = _field(body, name, kind)
    if value is None:
        raise RequestError(f"'{name}' is missing", param=name, code="missing_required_parameter")
    return value


def _field(body: Json, name: str, *kinds: type) -> Any:
    value = body.get(name)
    # a bool is an int to Python and not to JSON
    if value is None or (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))):
        return value
    expected = " or ".join(_KINDS[kind] for kind in kinds)
    raise RequestError(f"'{name}' must be {expected}, found {_kind(value)}", param=name, code="invalid_type")


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def _kind(value: object) -> str:
    return "nothing" if value is None else _KINDS[type(value)]


Form = dict[str, "str | web.FileField"]

PATIENCE = 60.0
"""Seconds in which the body of a chat request must come; a file may take ten times as long."""

_FORM_MARGIN = 1 << 16  # what a form may hold beside its file


async def read_json(request: web.Request) -> object:
    """Read a body of JSON.

    Raises RequestError if it is none, HTTPRequestTimeout if it takes longer than `PATIENCE` seconds to come.
    """
    async with _within(PATIENCE):
        raw = await request.read()
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error


@asynccontextmanager
async def read_form(request: web.Request, most: int) -> AsyncIterator[Form]:
    """Read a form whose file may have `most` bytes; large files wait on the disk, and are gone when the block ends.

    Raises RequestError if it is no form or the file is larger, HTTPRequestTimeout as `read_json`.
    """
    try:
        async with _within(10 * PATIENCE):
            form = await _form(request, most + _FORM_MARGIN)
    except web.HTTPRequestEntityTooLarge as error:
        raise too_large(most) from error
    except ValueError as error:
        raise RequestError(f"the body is not a valid form: {error}") from error
    try:
        yield form
    finally:
        for value in form.values():
            if isinstance(value, web.FileField):
                value.file.close()


def too_large(most: int) -> RequestError:
    """Return the error that tells of a file with more than `most` bytes."""
    return RequestError(f"a file may have at most {most:,} bytes; split it", param="file", status=413)


async def _form(request: web.Request, most: int) -> Form:
    announced = request.content_length or 0
    if announced > most:  # told before anything is read
        raise web.HTTPRequestEntityTooLarge(most, announced)
    posted = await request.clone(client_max_size=most).post()
    return {name: value for name, value in posted.items() if isinstance(value, str | web.FileField)}


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(reason=f"the body did not arrive within {seconds:g} s") from error
