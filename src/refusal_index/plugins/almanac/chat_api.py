"""The OpenAI chat API: parsing requests, answering them with an embedded model, and formatting responses."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from refusal_index.data.files import replacing
from refusal_index.plugins.almanac import ALMANAC, AlmanacError, BatchLineError, ModelNotFoundError, RequestError
from refusal_index.plugins.almanac.llama import GenerationResult, GenerationSettings
from refusal_index.plugins.almanac.runtime import Runtime, runtime_in
from refusal_index.protocol import Message, TokenLogprob

Json = dict[str, Any]

_MAX_CHOICES = 128
_MAX_STOPS = 4
_MAX_TOP_LOGPROBS = 20

# Unsupported parameters with their neutral values; any other value is rejected instead of ignored silently.
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
    """The parsed body of a request to ``/v1/chat/completions``."""

    model: str
    messages: tuple[Message, ...]
    settings: GenerationSettings
    stream: bool
    stream_usage: bool


def parse_chat_request(body: object) -> ChatRequest:
    """Parse the JSON `body` of a request.

    Raises RequestError if a field is missing, has the wrong type, is out of range or asks for something unsupported.
    """
    if not isinstance(body, dict):
        raise RequestError(f"the body must be a JSON object, found {_kind(body)}")
    body = {name: value for name, value in body.items() if value is not None}  # null is as good as absent
    for name, neutral in _UNSUPPORTED.items():
        if body.get(name, neutral) != neutral:
            raise RequestError(f"'{name}' is not supported by this server", param=name, code="unsupported_parameter")
    for name in ("model", "messages"):
        if name not in body:
            raise RequestError(f"'{name}' is missing", param=name, code="missing_required_parameter")
    model = _field(body, "model", str)
    messages = _field(body, "messages", list)
    return ChatRequest(
        model=model,
        messages=tuple(_message(entry, index) for index, entry in enumerate(messages)),
        settings=_settings(body),
        stream=_field(body, "stream", bool, default=False),
        stream_usage=_field(_field(body, "stream_options", dict, default={}), "include_usage", bool) or False,
    )


def completion_body(request: ChatRequest, completions: Sequence[GenerationResult]) -> Json:
    """Return the JSON of a response that is not streamed."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": completion.text, "refusal": None},
            "logprobs": _logprobs(completion),
            "finish_reason": completion.finish_reason,
        }
        for index, completion in enumerate(completions)
    ]
    return _head(request, "chat.completion") | {"choices": choices, "usage": usage(completions)}


def chunk_bodies(request: ChatRequest, completions: Sequence[GenerationResult]) -> list[Json]:
    """Return the JSON chunks of a streamed response: for each reply one chunk with its text and one for its end."""
    head = _head(request, "chat.completion.chunk")
    chunks = []
    for index, completion in enumerate(completions):
        delta = {"role": "assistant", "content": completion.text}
        logprobs = _logprobs(completion)
        reason = completion.finish_reason
        chunks.append([{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}])
        chunks.append([{"index": index, "delta": {}, "logprobs": None, "finish_reason": reason}])
    bodies = [head | {"choices": choices} for choices in chunks]
    return [*bodies, head | {"choices": [], "usage": usage(completions)}] if request.stream_usage else bodies


def usage(completions: Sequence[GenerationResult]) -> dict[str, int]:
    """Count the tokens of a response; the choices of a request share its prompt."""
    prompt = completions[0].prompt_tokens
    generated = sum(completion.completion_tokens for completion in completions)
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


def _head(request: ChatRequest, kind: str) -> Json:
    identity = f"chatcmpl-{uuid.uuid4().hex}"
    return {"id": identity, "object": kind, "created": int(time.time()), "model": request.model}


def _settings(body: Json) -> GenerationSettings:
    n = _field(body, "n", int, default=1)
    if n > _MAX_CHOICES:
        raise RequestError(f"'n' must be at most {_MAX_CHOICES}; got {n}", param="n")
    return GenerationSettings(
        temperature=_number(body, "temperature"),
        top_p=_number(body, "top_p"),
        max_tokens=_field(body, "max_completion_tokens", int, default=_field(body, "max_tokens", int)),
        stop=_stop(body),
        seed=_field(body, "seed", int),
        n=n,
        top_logprobs=_top_logprobs(body),
    )


def _number(body: Json, name: str) -> float:
    try:
        return float(_field(body, name, int, float, default=1.0))
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
    role = entry.get("role")
    content = entry.get("content")
    if not isinstance(role, str):
        raise RequestError(f"'{param}.role' must be a string, found {_kind(role)}", param=f"{param}.role")
    text = content if isinstance(content, str) else _joined(content, f"{param}.content")
    return Message("system" if role == "developer" else role, text)


def _joined(parts: object, param: str) -> str:
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts] if isinstance(parts, list) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"'{param}' must be a string or a list of parts of type 'text'", param=param)
    return "\n".join(map(str, texts))


def _logprobs(completion: GenerationResult) -> Json | None:
    if completion.logprobs is None:
        return None
    return {"content": [_token(token) for token in completion.logprobs], "refusal": None}


def _token(token: TokenLogprob) -> Json:
    alternatives = [_scored(text, logprob) for text, logprob in token.alternatives]
    return _scored(token.token, token.logprob) | {"top_logprobs": alternatives}


def _scored(text: str, logprob: float) -> Json:
    # a token may be only part of a character, whose bytes are not known
    return {"token": text, "logprob": logprob, "bytes": None if "\ufffd" in text else list(text.encode())}


def _field(body: Json, name: str, *kinds: type, default: Any = None) -> Any:
    value = body.get(name)
    if value is None:
        return default
    # in Python a bool is an int, in JSON it is not
    if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
        return value
    expected = " or ".join(_KINDS[kind] for kind in kinds)
    raise RequestError(f"'{name}' must be {expected}, found {_kind(value)}", param=name, code="invalid_type")


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


class ModelPool:
    """The models of a server, each loaded when first used.

    Parameters
    ----------
    names
        The names of the models.
    folder_of
        A function that returns the folder of a model.
    """

    def __init__(self, names: Sequence[str], folder_of: Callable[[str], Path]) -> None:
        self.names = tuple(names)
        self._folder_of = folder_of

    def name(self, model: str) -> str:
        """Return the name of a model called ``base`` or ``almanac/base``.

        Raises ModelNotFoundError if there is no such model.
        """
        name = model.removeprefix(f"{ALMANAC}/")
        if name not in self.names:
            names = ", ".join(f"{ALMANAC}/{name}" for name in self.names)
            raise ModelNotFoundError(f"The model '{model}' does not exist; expected one of {names}")
        return name

    def runtime(self, model: str) -> Runtime:
        """Return the runtime of a model called ``base`` or ``almanac/base``.

        Raises ModelNotFoundError if there is no such model.
        """
        return runtime_in(self._folder_of(self.name(model)))


@dataclass(frozen=True)
class JsonResponse:
    """The HTTP status and the JSON body of a response, which is a reply or an error."""

    status: int
    body: Json

    @property
    def failed(self) -> bool:
        """Whether the body is an error."""
        return self.status >= 400


async def ask(pool: ModelPool, body: object, notes: dict[str, Any]) -> tuple[ChatRequest, list[GenerationResult]]:
    """Send a request to the model named in its body, and add the fields for the request log to `notes`.

    Raises RequestError or ModelNotFoundError if the request is invalid.
    """
    request = parse_chat_request(body)
    notes.update(model=request.model, n=request.settings.n, seed=request.settings.seed)
    completions = await pool.runtime(request.model).complete(request.messages, **vars(request.settings))
    notes.update(usage(completions))
    return request, completions


async def answer(pool: ModelPool, body: object, notes: dict[str, Any]) -> JsonResponse:
    """Answer a request of a batch; errors become answers instead of being raised."""
    try:
        if isinstance(body, dict) and body.get("stream"):
            raise RequestError("a request of a batch cannot be streamed", param="stream")
        return JsonResponse(200, completion_body(*await ask(pool, body, notes)))
    except Exception as error:
        return error_answer(error, "a request of a batch")


def error_answer(error: Exception, request: str) -> JsonResponse:
    """Convert an error to an answer; an unexpected error is logged as a failure of `request`."""
    match error:
        case RequestError():
            return refusal(error.status, str(error), param=error.param, code=error.code)
        case ModelNotFoundError():
            return refusal(404, str(error), param="model", code="model_not_found")
        case AlmanacError():
            return refusal(500, str(error))
    logging.getLogger(__name__).error("%s failed", request, exc_info=error)
    return refusal(500, "the server failed to answer; its log says why")


def refusal(status: int, message: str, *, param: str | None = None, code: str | None = None) -> JsonResponse:
    """Return an error response."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return JsonResponse(status, {"error": {"message": message, "type": kind, "param": param, "code": code}})


ENDPOINT = "/v1/chat/completions"


@dataclass(frozen=True)
class BatchLine:
    """A request of a batch, and the number of its line."""

    number: int
    custom_id: str
    method: str
    url: str
    body: Json


def read_lines(lines: Iterable[bytes]) -> Iterator[BatchLine]:
    """Yield the requests of a file; empty lines are skipped.

    Raises BatchLineError at the first line that is not a request.
    """
    for number, raw in filled(lines):
        yield parse_line(number, raw)


def parse_line(number: int, raw: bytes) -> BatchLine:
    r"""Parse one line.

    Raises BatchLineError if the line is not a request.

    >>> parse_line(7, b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {}}').custom_id
    'a'
    """
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError) as error:
        message = "this line is not valid JSON; write one object per line"
        raise BatchLineError(message, code="invalid_json_line", line=number) from error
    if not isinstance(record, dict):
        raise BatchLineError("this line is not a JSON object", code="invalid_json_line", line=number)
    for name, kind in (("custom_id", str), ("method", str), ("url", str), ("body", dict)):
        value = record.get(name)
        if value is None or value == "":
            raise BatchLineError(f"'{name}' is missing", code="missing_required_parameter", line=number, param=name)
        if not isinstance(value, kind):
            expected = "an object" if kind is dict else "a string"
            raise BatchLineError(f"'{name}' must be {expected}", code="invalid_type", line=number, param=name)
    return BatchLine(number, record["custom_id"], record["method"], record["url"], record["body"])


def as_line(content: Json) -> bytes:
    """Return an object as a JSON line in ASCII."""
    return json.dumps(content).encode() + b"\n"


def filled(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, with their numbers from 1."""
    return ((number, raw) for number, raw in enumerate(lines, start=1) if raw.strip())


T = TypeVar("T")
R = TypeVar("R")

MAX_IN_FLIGHT = 256
"""Maximum number of requests in flight: twice what a runtime generates at once, so that it never idles."""


async def in_order(items: Iterable[T], ask: Callable[[T], Awaitable[R]]) -> AsyncGenerator[R, None]:
    """Call `ask` for each item, at most `MAX_IN_FLIGHT` at a time, and yield the results in the order of the items.

    Calls in flight are cancelled when the generator is closed.
    """
    waiting: deque[asyncio.Future[R]] = deque()
    try:
        for item in items:
            waiting.append(asyncio.ensure_future(ask(item)))
            if len(waiting) >= MAX_IN_FLIGHT:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def count_requests(source: Path) -> int:
    """Count the requests in a file; raise BatchLineError at the first line that is not a request."""
    with source.open("rb") as file:
        return sum(1 for _ in read_lines(file))


async def answer_file(pool: ModelPool, source: Path, target: Path, answered: Callable[[], None]) -> Counter[str]:
    """Answer all requests in `source`, write the results to `target` atomically, and count failures by message.

    Only the requests in flight are held in memory; `answered` is called for each result written. Raises
    BatchLineError if a line is not a request, and NotWrittenError if the target cannot be written.
    """
    failures = Counter[str]()
    with replacing(target) as temporary, source.open("rb") as requests, temporary.open("xb") as results:
        async with aclosing(in_order(read_lines(requests), partial(_ask, pool))) as outcomes:
            async for line, failure in outcomes:
                results.write(line)
                if failure is not None:
                    failures[failure] += 1
                answered()
    return failures


async def _ask(pool: ModelPool, line: BatchLine) -> tuple[bytes, str | None]:
    """Answer a request; return the result line in vLLM's format, and the failure message or None."""
    body: Json | None = None
    error: Json | str | None = None
    if line.url != ENDPOINT:
        status = 400
        error = f"URL {line.url} was used. Supported endpoints: {ENDPOINT}."
        failure = error
    else:
        answered = await answer(pool, line.body, {})
        status = answered.status
        body = answered.body
        failure = None
        if answered.failed:
            body = None
            error = {"error": answered.body["error"] | {"code": status}}  # vLLM's error code is the status
            failure = f"{status}: {answered.body['error']['message']}"
    identity = uuid.uuid4().hex
    response = {"status_code": status, "request_id": f"almanac-batch-{identity}", "body": body}
    result = {"id": f"almanac-{identity}", "custom_id": line.custom_id, "response": response, "error": error}
    return as_line(result), failure
