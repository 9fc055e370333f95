"""Batch files of chat requests, as OpenAI writes them: from lines to replies, a bounded number at a time."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from refusal_index.data.files import replacing
from refusal_index.plugins.almanac import ALMANAC, AlmanacError, BatchLineError, ModelNotFoundError, RequestError
from refusal_index.plugins.almanac.chat_api import (
    ChatRequest,
    Json,
    completion_body,
    parse_chat_request,
    usage,
)
from refusal_index.plugins.almanac.llama import Completion
from refusal_index.plugins.almanac.runtime import Runtime


class ModelPool:
    """The models that can be asked.

    Parameters
    ----------
    names
        What there is.
    folder_of
        Where each is.
    """

    def __init__(self, names: Sequence[str], folder_of: Callable[[str], Path]) -> None:
        self.names = tuple(names)
        self._folder_of = folder_of
        self._runtimes: dict[str, Runtime] = {}

    def name(self, model: str) -> str:
        """Return the name of a model called ``base`` or ``almanac/base``.

        Raises ModelNotFoundError if there is no such model.
        """
        name = model.removeprefix(f"{ALMANAC}/")
        if name not in self.names:
            known = ", ".join(f"{ALMANAC}/{each}" for each in self.names)
            raise ModelNotFoundError(f"The model '{model}' does not exist; there is {known}")
        return name

    def runtime(self, model: str) -> Runtime:
        """Return the runtime of a model called ``base`` or ``almanac/base``.

        Raises ModelNotFoundError if there is no such model.
        """
        name = self.name(model)
        if name not in self._runtimes:
            self._runtimes[name] = Runtime(self._folder_of(name))
        return self._runtimes[name]

    def close(self) -> None:
        """End the threads of the models."""
        for runtime in self._runtimes.values():
            runtime.close()


_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """The HTTP status of a response, and the JSON of a reply or of an error."""

    status: int
    body: Json

    @property
    def failed(self) -> bool:
        """Whether the body is an error."""
        return self.status >= 400


async def ask(pool: ModelPool, body: object, notes: dict[str, Any]) -> tuple[ChatRequest, list[Completion]]:
    """Ask the model that `body` names, and add to `notes` what a log may hold of it.

    Raises RequestError or ModelNotFoundError if it cannot be answered as it stands.
    """
    request = parse_chat_request(body)
    notes.update(model=request.model, n=request.settings.n, seed=request.settings.seed)
    completions = await pool.runtime(request.model).complete(request.messages, **vars(request.settings))
    notes.update(usage(completions))
    return request, completions


async def answer(pool: ModelPool, body: object, notes: dict[str, Any]) -> Answer:
    """Answer a request of a batch. It never raises: an error becomes the answer."""
    try:
        if isinstance(body, dict) and body.get("stream"):
            raise RequestError("a request of a batch cannot be streamed", param="stream")
        return Answer(200, completion_body(*await ask(pool, body, notes), **new_identity()))
    except Exception as error:
        return error_answer(error, "a request of a batch")


def new_identity() -> dict[str, Any]:
    """Return the id of a new response and the time at which it was made."""
    return {"identity": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time())}


def error_answer(error: Exception, what: str) -> Answer:
    """Return the answer to `what` for an error; an unexpected error goes to the server's own log."""
    match error:
        case RequestError():
            return refusal(error.status, str(error), param=error.param, code=error.code)
        case ModelNotFoundError():
            return refusal(404, str(error), param="model", code="model_not_found")
        case AlmanacError():
            return refusal(500, str(error))
    _logger.error("%s failed", what, exc_info=error)
    return refusal(500, "the server failed to answer; its log says why")


def refusal(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Answer:
    """Return an answer that is an error."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return Answer(status, {"error": {"message": message, "type": kind, "param": param, "code": code}})


ENDPOINT = "/v1/chat/completions"

MAX_ERRORS = 100  # of a file: whoever wrote one line wrong wrote them all wrong


@dataclass(frozen=True)
class BatchLine:
    """A request of a batch, and the number of its line."""

    number: int
    custom_id: str
    method: str
    url: str
    body: Json


@dataclass
class Checked:
    """The number of requests in a file, the model that they ask, and the errors."""

    total: int = 0
    model: str | None = None
    errors: list[BatchLineError] = field(default_factory=list)


def read_lines(lines: Iterable[bytes]) -> Iterator[BatchLine]:
    """Yield the requests of a file; empty lines are none.

    Raises BatchLineError at the first line that is no request.
    """
    for number, raw in _filled(lines):
        yield parse_line(number, raw)


def parse_line(number: int, raw: bytes) -> BatchLine:
    r"""Read one line.

    Raises BatchLineError if it is no request.

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


def check_lines(lines: Iterable[bytes], endpoint: str, most: int, find: Callable[[str], object]) -> Checked:
    """Check the file of a batch before any of its requests is sent.

    - `most`: requests that a batch may hold.
    - `find`: is called with the model, and raises an error if there is none of that name.
    """
    checked, seen = Checked(), set[str]()
    for number, raw in _filled(lines):
        checked.total += 1
        if checked.total > most:
            checked.errors = [BatchLineError(f"the file holds more than {most:,} requests", code="too_many_tasks")]
            return checked
        if len(checked.errors) < MAX_ERRORS:
            try:
                line = parse_line(number, raw)
                if line.custom_id in seen:
                    message = f"'{line.custom_id}' also appears on an earlier line"
                    raise BatchLineError(message, code="duplicate_custom_id", line=number, param="custom_id")
                seen.add(line.custom_id)
                _check(line, endpoint, checked, find)
            except BatchLineError as error:
                checked.errors.append(error)
    if not checked.total:
        checked.errors.append(BatchLineError("the file holds no request", code="empty_file"))
    return checked


def _check(line: BatchLine, endpoint: str, checked: Checked, find: Callable[[str], object]) -> None:
    """Raise BatchLineError if a batch cannot take a request; its first request names the model of all."""

    def error(param: str, code: str, message: str) -> BatchLineError:
        return BatchLineError(message, code=code, line=line.number, param=param)

    if line.method != "POST":
        raise error("method", "invalid_method", f"expected POST, found '{line.method}'")
    if line.url != endpoint:
        raise error("url", "url_mismatch", f"expected the batch's endpoint {endpoint}, found '{line.url}'")
    model = line.body.get("model")
    if not isinstance(model, str):
        raise error("body.model", "missing_required_parameter", "expected the name of a model")
    if checked.model is None:
        checked.model = model
        try:
            find(model)
        except ValueError as cause:
            raise error("body.model", "model_not_found", str(cause)) from cause
    if model != checked.model:
        message = f"a batch must use one model; found '{model}' after '{checked.model}'"
        raise error("body.model", "model_mismatch", message)


def result_line(custom_id: str, answer: Answer) -> bytes:
    """Return what came of a request."""
    response = {"status_code": answer.status, "request_id": f"req_{uuid.uuid4().hex}", "body": answer.body}
    identity = f"batch_req_{uuid.uuid4().hex}"
    return as_line({"id": identity, "custom_id": custom_id, "response": response, "error": None})


def as_line(content: Json) -> bytes:
    """Return a line of JSON, in ASCII."""
    return json.dumps(content).encode() + b"\n"


def _filled(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((number, raw) for number, raw in enumerate(lines, start=1) if raw.strip())


T = TypeVar("T")
R = TypeVar("R")

MAX_IN_FLIGHT = 256
"""Requests in flight: twice the number that a runtime generates at once, so that it never waits."""


async def in_order(
    items: Iterable[T], ask: Callable[[T], Awaitable[R]], most: int = MAX_IN_FLIGHT
) -> AsyncGenerator[R, None]:
    """Ask for each item with at most `most` in flight, and yield the results in the order of the items.

    What is in flight when the caller leaves is cancelled.
    """
    waiting: deque[asyncio.Future[R]] = deque()
    try:
        for item in items:
            waiting.append(asyncio.ensure_future(ask(item)))
            if len(waiting) >= most:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def count_requests(source: Path) -> int:
    """Return how many requests a file holds; raises BatchLineError at the first line that is none."""
    with source.open("rb") as file:
        return sum(1 for _ in read_lines(file))


async def run_batch(pool: ModelPool, source: Path, target: Path, answered: Callable[[], None]) -> Counter[str]:
    """Answer every request of `source` into `target`, which is there whole or not at all, and count the failures.

    No more requests than are in flight are in memory; `answered` is called for each that is written. Raises
    BatchLineError if a line is no request, NotWrittenError if the target cannot be written.
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
    """Return the line of a result, as vLLM writes it, and the failure that it reports."""
    body: Json | None = None
    error: Json | str | None = None
    if line.url != ENDPOINT:
        status, error = 400, f"URL {line.url} was used. Supported endpoints: {ENDPOINT}."
        failure = error
    else:
        answered = await answer(pool, line.body, {})
        status, body, failure = answered.status, answered.body, None
        if answered.failed:
            body, error = None, {"error": answered.body["error"] | {"code": status}}  # vLLM has no other code
            failure = f"{status}: {answered.body['error']['message']}"
    identity = uuid.uuid4().hex
    response = {"status_code": status, "request_id": f"almanac-batch-{identity}", "body": body}
    result = {"id": f"almanac-{identity}", "custom_id": line.custom_id, "response": response, "error": error}
    return as_line(result), failure
