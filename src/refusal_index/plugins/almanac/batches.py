"""The server's files, batches and request log.

Files and batches exist as long as the server runs. Each batch is a background task, which continues after the client
has disconnected.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, aclosing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal

from openai.types import Batch, BatchError, BatchRequestCounts, BatchUsage, FileObject
from openai.types.batch import Errors
from openai.types.batch_usage import InputTokensDetails, OutputTokensDetails

from refusal_index.data.files import working_folder
from refusal_index.plugins.almanac import BatchLineError, ModelNotFoundError, RequestError
from refusal_index.plugins.almanac.chat_api import (
    ENDPOINT,
    BatchLine,
    JsonResponse,
    ModelPool,
    answer,
    as_line,
    filled,
    in_order,
    parse_line,
    read_lines,
)

WINDOW = "24h"
WINDOW_SECONDS = 24 * 60 * 60

MAX_REQUESTS = 50_000
MAX_FILE_SIZE = 200_000_000
MAX_KEPT = 2_000_000_000
"""Maximum requests and bytes in a batch's input file, as at OpenAI, and maximum bytes of all files on the server."""

MAX_ERRORS = 100  # errors to report for a file, since one mistake is often in every line

MAX_METADATA = 16
MAX_KEY = 64
MAX_VALUE = 512


class RequestLog:
    """Appends to the file at `path`; does nothing without a path."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1) if path else None

    def write(self, **fields: Any) -> None:
        """Append a JSON line with the time and `fields`."""
        if self._file:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._file.write(json.dumps({"time": now, **fields}) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


class FileStore:
    """The server's files, in a temporary folder that is created for the first file and removed by `close`."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._stack = ExitStack()
        self._files: dict[str, FileObject] = {}

    def new(self) -> str:
        """Return the id of a new file."""
        return f"file-{uuid.uuid4().hex}"

    def path(self, identity: str) -> Path:
        """Return the path of a file; it must be written before `add`."""
        if self._folder is None:
            self._folder = self._stack.enter_context(working_folder())
        return self._folder / identity

    def add(self, identity: str, name: str, purpose: Literal["batch", "batch_output"]) -> FileObject:
        """Add a file that has been written."""
        self._files[identity] = FileObject(
            id=identity,
            object="file",
            bytes=self.path(identity).stat().st_size,
            created_at=int(time.time()),
            filename=name,
            purpose=purpose,
            status="processed",
        )
        return self._files[identity]

    def get(self, identity: str) -> FileObject:
        """Return a file; raise RequestError if the id is unknown."""
        if identity not in self._files:
            raise RequestError(f"No such File object: {identity}", param="id", code="not_found", status=404)
        return self._files[identity]

    def delete(self, identity: str) -> None:
        """Delete a file; raise RequestError if the id is unknown."""
        del self._files[self.get(identity).id]
        with suppress(OSError):  # if the file is being read, `close` removes it
            self.path(identity).unlink()

    def __iter__(self) -> Iterator[FileObject]:
        """Iterate over the files, oldest first."""
        return iter(self._files.values())

    def close(self) -> None:
        """Remove all files."""
        self._stack.close()


NEXT: Mapping[str, frozenset[str]] = {
    "validating": frozenset({"in_progress", "failed", "cancelling"}),
    "in_progress": frozenset({"finalizing", "failed", "cancelling"}),
    "finalizing": frozenset({"completed", "failed", "cancelling"}),
    "cancelling": frozenset({"cancelled", "failed"}),
}
"""The allowed transitions of a batch; a state that is not a key is final."""

State = Literal["failed", "in_progress", "finalizing", "completed", "cancelling", "cancelled"]
"""A state that a batch can enter."""


class CountedBatch(Batch):
    """A batch and its progress."""

    request_counts: BatchRequestCounts
    usage: BatchUsage

    @classmethod
    def new(cls, input_file_id: str, metadata: Mapping[str, str] | None = None) -> CountedBatch:
        """Return a batch that is not checked yet."""
        now = int(time.time())
        return cls(
            id=f"batch_{uuid.uuid4().hex}",
            object="batch",
            endpoint=ENDPOINT,
            completion_window=WINDOW,
            status="validating",
            input_file_id=input_file_id,
            metadata=None if metadata is None else dict(metadata),
            created_at=now,
            expires_at=now + WINDOW_SECONDS,
            request_counts=BatchRequestCounts(total=0, completed=0, failed=0),
            usage=BatchUsage(
                input_tokens=0,
                input_tokens_details=InputTokensDetails(cached_tokens=0),
                output_tokens=0,
                output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
                total_tokens=0,
            ),
        )

    def move(self, status: State) -> None:
        """Change to another state; raise ValueError if the transition is not allowed."""
        if status not in NEXT.get(self.status, ()):
            raise ValueError(f"a batch that is {self.status} cannot become {status}")
        self.status = status
        setattr(self, f"{status}_at", int(time.time()))

    def fail(self, errors: Iterable[BatchLineError]) -> None:
        """Change to the state ``failed``."""
        data = [BatchError(code=error.code, line=error.line, message=str(error), param=error.param) for error in errors]
        self.errors = Errors(object="list", data=data)
        self.move("failed")

    def count(self, answered: JsonResponse) -> None:
        """Count an answered request and its tokens."""
        self.request_counts.completed += not answered.failed
        self.request_counts.failed += answered.failed
        usage = answered.body.get("usage", {})
        self.usage.input_tokens += usage.get("prompt_tokens", 0)
        self.usage.output_tokens += usage.get("completion_tokens", 0)
        self.usage.total_tokens = self.usage.input_tokens + self.usage.output_tokens


def parse_batch_request(body: object) -> tuple[str, Mapping[str, str] | None]:
    """Parse the JSON `body` of a request to create a batch; return the id of the input file and the metadata.

    Raises RequestError if a field is missing, has the wrong type or asks for something unsupported.
    """
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    for name in body:
        if name not in ("input_file_id", "endpoint", "completion_window", "metadata") and body[name] is not None:
            raise RequestError(f"'{name}' is not supported by this server", param=name, code="unsupported_parameter")
    for name, only in (("endpoint", ENDPOINT), ("completion_window", WINDOW)):
        if body.get(name) != only:
            raise RequestError(f"'{name}' must be '{only}'", param=name)
    source = body.get("input_file_id")
    metadata = body.get("metadata")
    if not isinstance(source, str):
        raise RequestError("'input_file_id' must be the id of a file", param="input_file_id")
    if metadata is not None and not _is_metadata(metadata):
        raise RequestError(
            f"'metadata' must be an object of at most {MAX_METADATA} strings of at most {MAX_VALUE} characters, "
            f"under names of at most {MAX_KEY}",
            param="metadata",
        )
    return source, metadata


def _is_metadata(value: object) -> bool:
    if not isinstance(value, dict) or len(value) > MAX_METADATA:
        return False
    return all(len(key) <= MAX_KEY and isinstance(text, str) and len(text) <= MAX_VALUE for key, text in value.items())


def check_lines(lines: Iterable[bytes], pool: ModelPool) -> tuple[int, str | None, list[BatchLineError]]:
    """Check the input file of a batch before any of its requests is answered.

    Returns the number of requests, their model, and the errors found. All requests must name the same model.
    """
    total = 0
    model = None
    errors = list[BatchLineError]()
    seen = set[str]()
    for total, (number, raw) in enumerate(filled(lines), 1):
        if total > MAX_REQUESTS:
            too_many = BatchLineError(f"the file holds more than {MAX_REQUESTS:,} requests", code="too_many_tasks")
            return total, model, [too_many]
        if len(errors) == MAX_ERRORS:
            continue
        try:
            line = parse_line(number, raw)
            is_repeated = line.custom_id in seen
            seen.add(line.custom_id)
            _check_line(line, model, is_repeated=is_repeated)
            if model is None:
                model = line.body["model"]
                pool.name(model)
        except BatchLineError as error:
            errors.append(error)
        except ModelNotFoundError as error:
            errors.append(BatchLineError(str(error), code="model_not_found", line=number, param="body.model"))
    if not total:
        errors.append(BatchLineError("the file holds no request", code="empty_file"))
    return total, model, errors


def _check_line(line: BatchLine, model: str | None, *, is_repeated: bool) -> None:
    """Raise BatchLineError if a request is not allowed in a batch whose earlier requests name `model`."""
    name = line.body.get("model")
    for is_wrong, param, code, message in (
        (is_repeated, "custom_id", "duplicate_custom_id", f"'{line.custom_id}' also appears on an earlier line"),
        (line.method != "POST", "method", "invalid_method", f"expected POST, found '{line.method}'"),
        (line.url != ENDPOINT, "url", "url_mismatch", f"expected the batch's endpoint {ENDPOINT}, found '{line.url}'"),
        (not isinstance(name, str), "body.model", "missing_required_parameter", "expected the name of a model"),
        (
            model not in (None, name),
            "body.model",
            "model_mismatch",
            f"a batch must use one model; found '{name}' after '{model}'",
        ),
    ):
        if is_wrong:
            raise BatchLineError(message, code=code, line=line.number, param=param)


def result_line(custom_id: str, answer: JsonResponse) -> bytes:
    """Return the line of a result, in OpenAI's format."""
    response = {"status_code": answer.status, "request_id": f"req_{uuid.uuid4().hex}", "body": answer.body}
    identity = f"batch_req_{uuid.uuid4().hex}"
    return as_line({"id": identity, "custom_id": custom_id, "response": response, "error": None})


class Batches:
    """The batches of a server.

    Parameters
    ----------
    pool
        The models that answer the requests.
    files
        The store of input and output files.
    log
        The log that gets a line for each answered request.
    """

    def __init__(self, pool: ModelPool, files: FileStore, log: RequestLog) -> None:
        self._pool = pool
        self._files = files
        self._log = log
        self._batches: dict[str, CountedBatch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, input_file_id: str, metadata: Mapping[str, str] | None = None) -> CountedBatch:
        """Start a batch; raise RequestError if there is no such input file."""
        source = self._files.get(input_file_id)
        if source.purpose != "batch":
            message = f"{source.id} has the purpose '{source.purpose}'; expected a file with the purpose 'batch'"
            raise RequestError(message, param="input_file_id")
        batch = CountedBatch.new(input_file_id, metadata)
        self._batches[batch.id] = batch
        task = asyncio.create_task(self._process(batch, self._files.path(source.id)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return batch

    def get(self, identity: str) -> CountedBatch:
        """Return a batch; raise RequestError if the id is unknown."""
        if identity not in self._batches:
            raise RequestError(f"No batch found with id '{identity}'.", param="id", code="not_found", status=404)
        return self._batches[identity]

    def cancel(self, identity: str) -> CountedBatch:
        """End a batch once the requests in flight are answered; raise RequestError if it has ended already."""
        batch = self.get(identity)
        if batch.status not in NEXT:
            message = f"Cannot cancel a batch with status '{batch.status}'."
            raise RequestError(message, code="invalid_status", status=409)
        if batch.status != "cancelling":
            batch.move("cancelling")
        return batch

    def __iter__(self) -> Iterator[CountedBatch]:
        """Iterate over the batches, oldest first."""
        return iter(self._batches.values())

    async def close(self) -> None:
        """Cancel all batches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _process(self, batch: CountedBatch, source: Path) -> None:
        """Process a batch until it reaches a final state."""
        try:
            with source.open("rb") as file:
                total, model, errors = await asyncio.to_thread(check_lines, file, self._pool)
                if batch.status == "validating":
                    if errors:
                        batch.fail(errors)
                        return
                    batch.model = model
                    batch.request_counts.total = total
                    batch.move("in_progress")
                file.seek(0)
                await self._answer(batch, file)
        except Exception:
            logging.getLogger(__name__).exception("%s failed", batch.id)
            batch.fail([BatchLineError("the server failed; its log says why", code="server_error")])

    async def _answer(self, batch: CountedBatch, file: BinaryIO) -> None:
        """Answer the requests of a batch, and add its output files."""
        output = self._files.new()
        errors = self._files.new()
        with self._files.path(output).open("xb") as output_file, self._files.path(errors).open("xb") as error_file:
            await self._write(batch, file, output_file, error_file)
        batch.output_file_id = self._add(output, f"{batch.id}_output.jsonl")
        batch.error_file_id = self._add(errors, f"{batch.id}_error.jsonl")
        batch.move("cancelled" if batch.status == "cancelling" else "completed")

    async def _write(self, batch: CountedBatch, file: BinaryIO, output: BinaryIO, errors: BinaryIO) -> None:
        """Write the answers to the requests of a batch until it is done or cancelled."""
        await self._write_answers(batch, read_lines(file), output, errors)
        if batch.status == "in_progress":
            batch.move("finalizing")

    async def _write_answers(
        self, batch: CountedBatch, lines: Iterable[BatchLine], output: BinaryIO, errors: BinaryIO
    ) -> None:
        async def ask(line: BatchLine) -> None:
            if batch.status == "in_progress":
                answered = await self._ask(batch, line)
                (errors if answered.failed else output).write(result_line(line.custom_id, answered))
                batch.count(answered)

        async with aclosing(in_order(lines, ask)) as answers:
            async for _ in answers:
                pass  # lines are written as soon as they are answered, in no particular order

    async def _ask(self, batch: CountedBatch, line: BatchLine) -> JsonResponse:
        started = time.perf_counter()
        notes = dict[str, Any]()
        answered = await answer(self._pool, line.body, notes)
        seconds = round(time.perf_counter() - started, 4)
        self._log.write(
            method=line.method,
            path=line.url,
            status=answered.status,
            seconds=seconds,
            batch=batch.id,
            custom_id=line.custom_id,
            **notes,
        )
        return answered

    def _add(self, identity: str, name: str) -> str | None:
        """Add a complete output file and return its id; remove it and return None if it is empty."""
        path = self._files.path(identity)
        if path.stat().st_size:
            return self._files.add(identity, name, "batch_output").id
        path.unlink()
        return None
