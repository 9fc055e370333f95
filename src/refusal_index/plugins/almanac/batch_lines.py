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
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from refusal_index.data.files import replacing
from refusal_index.plugins.almanac import ALMANAC
from refusal_index.plugins.almanac.chat_api import (
    ChatRequest,
    Json,
    completion_body,
    error_body,
    parse_chat_request,
    usage,
)
from refusal_index.plugins.almanac.errors import AlmanacError, BatchLineError, ModelNotFoundError, RequestError
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
    """What comes back for a request: a status of HTTP, and the JSON of a reply or of an error."""

    status: int
    body: Json

    @property
    def failed(self) -> bool:
        """Whether the body is an error."""
        return self.status >= 400


async def ask(pool: ModelPool, body: object, noted: dict[str, Any]) -> tuple[ChatRequest, list[Completion]]:
    """Ask the model that `body` names what it says, and add to `noted` what a log may know of it.

    Raises RequestError or ModelNotFoundError if it cannot be answered as it stands.
    """
    asked = parse_chat_request(body)
    noted.update(model=asked.model, n=asked.settings.n, seed=asked.settings.seed)
    completions = await pool.runtime(asked.model).complete(asked.messages, **asdict(asked.settings))
    noted.update(usage(completions))
    return asked, completions


async def answer(pool: ModelPool, body: object, noted: dict[str, Any]) -> Answer:
    """Answer a request of a batch. It never raises: an error becomes the result."""
    try:
        if isinstance(body, dict) and body.get("stream"):
            raise RequestError("a request of a batch cannot be streamed", param="stream")
        return Answer(200, reply_body(*await ask(pool, body, noted)))
    except Exception as error:
        return error_answer(error, "a request of a batch")


def reply_body(asked: ChatRequest, completions: Sequence[Completion]) -> Json:
    """Return the JSON of a whole response under a new name."""
    return completion_body(asked, completions, **new_identity())


def new_identity() -> dict[str, Any]:
    """Return the name of a new response and the time it was made."""
    return {"identity": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time())}


def error_answer(error: Exception, what: str) -> Answer:
    """Return the answer to `what` that tells of an error; one that nobody foresaw goes to the server's own log."""
    match error:
        case RequestError():
            return refusal(error.status, str(error), param=error.param, code=error.code)
        case ModelNotFoundError():
            return refusal(404, str(error), param="model", code="model_not_found")
        case AlmanacError():
            return refusal(500, str(error))
    _logger.error("%s failed", what, exc_info=error)
    return refusal(500, "the server failed to answer; its own output says why")


def refusal(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Answer:
    """Return an answer that is an error."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return Answer(status, error_body(message, kind=kind, param=param, code=code))


ENDPOINT = "/v1/chat/completions"

_MOST_ERRORS = 100  # of a file are told: who wrote one line wrong wrote them all wrong


@dataclass(frozen=True)
class BatchLine:
    """A request of a batch, and the number of its line."""

    number: int
    custom_id: str
    method: str
    url: str
    body: Json

    @property
    def model(self) -> Any:
        """The model that it asks for, if it says so."""
        return self.body.get("model")


@dataclass
class Checked:
    """What a file holds: how many requests, to which model, and what is wrong with it."""

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
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        message = "this line is not valid JSON; write one object a line"
        raise BatchLineError(message, code="invalid_json_line", line=number) from error
    if not isinstance(found, dict):
        raise BatchLineError("this line is not a JSON object", code="invalid_json_line", line=number)
    values = {name: _required(found, name, kind, number) for name, kind in _FIELDS.items()}
    return BatchLine(number, **values)


def check_lines(lines: Iterable[bytes], endpoint: str, most: int, find: Callable[[str], object]) -> Checked:
    """Look through the file of a batch before anything of it is asked.

    - `most`: requests that a batch may hold.
    - `find`: is given the model, and raises an error if there is none of that name.
    """
    checked, seen = Checked(), set[str]()
    for number, raw in _filled(lines):
        checked.total += 1
        if checked.total > most:
            checked.errors = [BatchLineError(f"the file holds more than {most:,} requests", code="too_many_tasks")]
            return checked
        if len(checked.errors) < _MOST_ERRORS:
            try:
                _check(parse_line(number, raw), endpoint, checked, seen, find)
            except BatchLineError as error:
                checked.errors.append(error)
    if not checked.total:
        checked.errors.append(BatchLineError("the file holds no request", code="empty_file"))
    return checked


def result_line(custom_id: str, answer: Answer) -> bytes:
    """Return what came of a request."""
    response = {"status_code": answer.status, "request_id": f"req_{uuid.uuid4().hex}", "body": answer.body}
    identity = f"batch_req_{uuid.uuid4().hex}"
    return as_line({"id": identity, "custom_id": custom_id, "response": response, "error": None})


def as_line(content: Json) -> bytes:
    """Return a line of JSON, in ASCII."""
    return json.dumps(content).encode() + b"\n"


def _check(line: BatchLine, endpoint: str, checked: Checked, seen: set[str], find: Callable[[str], object]) -> None:
    if line.custom_id in seen:
        raise _wrong(line, "custom_id", "duplicate_custom_id", f"'{line.custom_id}' stands on an earlier line as well")
    seen.add(line.custom_id)
    if line.method != "POST":
        raise _wrong(line, "method", "invalid_method", f"expected POST, found '{line.method}'")
    if line.url != endpoint:
        raise _wrong(line, "url", "url_mismatch", f"expected the batch's endpoint {endpoint}, found '{line.url}'")
    _check_model(line, checked, find)


def _check_model(line: BatchLine, checked: Checked, find: Callable[[str], object]) -> None:
    model = line.model
    if not isinstance(model, str):
        raise _wrong(line, "body.model", "missing_required_parameter", "expected the name of a model")
    if checked.model is None:
        checked.model = model
        try:
            find(model)
        except ValueError as error:
            raise _wrong(line, "body.model", "model_not_found", str(error)) from error
    if model != checked.model:
        told = f"a batch asks one model; found '{model}' after '{checked.model}'"
        raise _wrong(line, "body.model", "model_mismatch", told)


def _wrong(line: BatchLine, param: str, code: str, message: str) -> BatchLineError:
    return BatchLineError(message, code=code, line=line.number, param=param)


def _required(found: Json, name: str, kind: type, number: int) -> Any:
    value = found.get(name)
    if value is None or value == "":
        raise BatchLineError(f"'{name}' is missing", code="missing_required_parameter", line=number, param=name)
    if not isinstance(value, kind):
        expected = "an object" if kind is dict else "a string"
        raise BatchLineError(f"'{name}' must be {expected}", code="invalid_type", line=number, param=name)
    return value


def _filled(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((number, raw) for number, raw in enumerate(lines, start=1) if raw.strip())


_FIELDS: dict[str, type] = {"custom_id": str, "method": str, "url": str, "body": dict}


T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 256
"""Requests under way at a time: twice what a runtime has in the making, so that it never waits."""


async def in_order(
    items: Iterable[T], ask: Callable[[T], Awaitable[R]], most: int = AT_ONCE
) -> AsyncGenerator[R, None]:
    """Ask for each item with at most `most` under way, and yield what comes in the order of the items.

    What is under way when the caller leaves is cancelled.
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
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@dataclass(frozen=True)
class _Outcome:
    """What came of a request: its line, and the failure that this tells of."""

    line: bytes
    failure: str | None = None


def count_requests(source: Path) -> int:
    """Return how many requests a file holds; raises BatchLineError at the first line that is none."""
    with source.open("rb") as file:
        return sum(1 for _ in read_lines(file))


async def run_batch(pool: ModelPool, source: Path, target: Path, answered: Callable[[], None]) -> Counter[str]:
    """Answer every request of `source` into `target`, which is there whole or not at all, and return what failed.

    No more requests than are under way are in memory; `answered` is called for each that is written. Raises
    BatchLineError if a line is no request, NotWrittenError if the target cannot be written.
    """
    failed = Counter[str]()
    with replacing(target) as temporary, source.open("rb") as requests, temporary.open("xb") as results:
        async with aclosing(in_order(read_lines(requests), partial(_ask, pool))) as outcomes:
            async for outcome in outcomes:
                results.write(outcome.line)
                if outcome.failure is not None:
                    failed[outcome.failure] += 1
                answered()
    return failed


async def _ask(pool: ModelPool, line: BatchLine) -> _Outcome:
    if line.url != ENDPOINT:
        told = f"URL {line.url} was used. Supported endpoints: {ENDPOINT}."
        return _Outcome(_result(line, 400, None, told), told)
    found = await answer(pool, line.body, {})
    if found.failed:
        error = {"error": found.body["error"] | {"code": found.status}}  # as vLLM, which knows no other code
        return _Outcome(_result(line, found.status, None, error), f"{found.status}: {found.body['error']['message']}")
    return _Outcome(_result(line, found.status, found.body, None))


def _result(line: BatchLine, status: int, body: Json | None, error: Json | str | None) -> bytes:
    identity = uuid.uuid4().hex
    response = {"status_code": status, "request_id": f"almanac-batch-{identity}", "body": body}
    return as_line({"id": f"almanac-{identity}", "custom_id": line.custom_id, "response": response, "error": error})
