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
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from refusal_index.plugins.almanac import BatchLineError, RequestError
from refusal_index.plugins.almanac.chat_api import (
    ENDPOINT,
    MAX_IN_FLIGHT,
    Answer,
    BatchLine,
    Checked,
    Json,
    ModelPool,
    answer,
    check_lines,
    in_order,
    read_lines,
    result_line,
)

WINDOW, WINDOW_SECONDS = "24h", 24 * 60 * 60

MAX_REQUESTS, MAX_FILE_SIZE, MAX_KEPT = 50_000, 200_000_000, 2_000_000_000
"""Maximum requests and bytes in a batch's input file, as at OpenAI, and maximum bytes of all files on the server."""

MAX_METADATA, MAX_KEY, MAX_VALUE = 16, 64, 512

_logger = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class StoredFile:
    """A file that a client uploaded or a batch wrote."""

    id: str
    name: str
    purpose: str
    size: int
    created_at: int
    path: Path

    def document(self) -> Json:
        """Return the file object of the API."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.size,
            "created_at": self.created_at,
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
            "expires_at": None,
            "status_details": None,
        }


class FileStore:
    """The server's files, in a temporary folder that is created for the first file and removed by `close`."""

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        self._files: dict[str, StoredFile] = {}

    def new_path(self) -> Path:
        """Return the path of a new file."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="refusal-index-serve-", ignore_cleanup_errors=True)
        return Path(self._folder.name) / uuid.uuid4().hex

    def add(self, path: Path, name: str, purpose: str) -> StoredFile:
        """Add the file at a path from `new_path`, with a new id."""
        size, now = path.stat().st_size, int(time.time())
        stored = StoredFile(f"file-{uuid.uuid4().hex}", name, purpose, size, now, path)
        self._files[stored.id] = stored
        return stored

    def get(self, identity: str) -> StoredFile:
        """Return a file; raise RequestError if the id is unknown."""
        if identity not in self._files:
            raise RequestError(f"No such File object: {identity}", param="id", code="not_found", status=404)
        return self._files[identity]

    def delete(self, identity: str) -> None:
        """Delete a file; raise RequestError if the id is unknown."""
        stored = self.get(identity)
        del self._files[identity]
        with suppress(OSError):  # if the file is being read, `close` removes it
            stored.path.unlink()

    def __iter__(self) -> Iterator[StoredFile]:
        """Iterate over the files, oldest first."""
        return iter(self._files.values())

    def close(self) -> None:
        """Remove all files."""
        if self._folder is not None:
            self._folder.cleanup()


class Status(StrEnum):
    """The state of a batch."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


NEXT: Mapping[Status, frozenset[Status]] = {
    Status.VALIDATING: frozenset({Status.IN_PROGRESS, Status.FAILED, Status.CANCELLING}),
    Status.IN_PROGRESS: frozenset({Status.FINALIZING, Status.FAILED, Status.CANCELLING}),
    Status.FINALIZING: frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLING}),
    Status.CANCELLING: frozenset({Status.CANCELLED, Status.FAILED}),
}
"""The allowed transitions; a state that is not a key is final."""


@dataclass
class Batch:
    """A batch and its progress."""

    id: str
    input_file_id: str
    created_at: int
    metadata: Mapping[str, str] | None = None
    status: Status = Status.VALIDATING
    times: dict[str, int] = field(default_factory=dict)  # when each state was entered, by the API's field name
    model: str | None = None
    errors: tuple[BatchLineError, ...] = ()
    total: int = 0
    completed: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    output_file_id: str | None = None
    error_file_id: str | None = None

    def move(self, status: Status) -> None:
        """Change to another state; raise ValueError if the transition is not allowed."""
        if status not in NEXT.get(self.status, frozenset()):
            raise ValueError(f"a batch that is {self.status} cannot become {status}")
        self.status = status
        self.times[f"{status}_at"] = int(time.time())

    def count(self, answered: Answer) -> None:
        """Count an answered request and its tokens."""
        self.completed += not answered.failed
        self.failed += answered.failed
        usage = answered.body.get("usage", {})
        self.input_tokens += usage.get("prompt_tokens", 0)
        self.output_tokens += usage.get("completion_tokens", 0)

    def document(self) -> Json:
        """Return the batch object of the API."""
        errors = [
            {"code": error.code, "line": error.line, "message": str(error), "param": error.param}
            for error in self.errors
        ]
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": ENDPOINT,
            "errors": {"object": "list", "data": errors} if errors else None,
            "input_file_id": self.input_file_id,
            "completion_window": WINDOW,
            "status": self.status,
            "model": self.model,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "created_at": self.created_at,
            "expires_at": self.created_at + WINDOW_SECONDS,
            **{f"{status}_at": None for status in Status if status is not Status.VALIDATING},
            **self.times,
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "usage": {
                "input_tokens": self.input_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": self.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self.input_tokens + self.output_tokens,
            },
            "metadata": self.metadata,
        }


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
    source, metadata = body.get("input_file_id"), body.get("metadata")
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
        self._pool, self._files, self._log = pool, files, log
        self._batches: dict[str, Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)  # shared, so that many batches do not flood the runtime

    def start(self, input_file_id: str, metadata: Mapping[str, str] | None = None) -> Batch:
        """Start a batch; raise RequestError if there is no such input file."""
        source = self._files.get(input_file_id)
        if source.purpose != "batch":
            message = f"{source.id} has the purpose '{source.purpose}'; expected a file with the purpose 'batch'"
            raise RequestError(message, param="input_file_id")
        batch = Batch(f"batch_{uuid.uuid4().hex}", input_file_id, int(time.time()), metadata)
        self._batches[batch.id] = batch
        task = asyncio.create_task(self._process(batch, source.path))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return batch

    def get(self, identity: str) -> Batch:
        """Return a batch; raise RequestError if the id is unknown."""
        if identity not in self._batches:
            raise RequestError(f"No batch found with id '{identity}'.", param="id", code="not_found", status=404)
        return self._batches[identity]

    def cancel(self, identity: str) -> Batch:
        """End a batch once the requests in flight are answered; raise RequestError if it has ended already."""
        batch = self.get(identity)
        if batch.status not in NEXT:
            message = f"Cannot cancel a batch with status '{batch.status}'."
            raise RequestError(message, code="invalid_status", status=409)
        if batch.status is not Status.CANCELLING:
            batch.move(Status.CANCELLING)
        return batch

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the batches, oldest first."""
        return iter(self._batches.values())

    async def close(self) -> None:
        """Cancel all batches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _process(self, batch: Batch, source: Path) -> None:
        """Process a batch until it reaches a final state."""
        try:
            with source.open("rb") as file:
                checked = await asyncio.to_thread(self._check, file)
                if batch.status is Status.VALIDATING:
                    batch.errors = tuple(checked.errors)
                    if batch.errors:
                        batch.move(Status.FAILED)
                        return
                    batch.model, batch.total = checked.model, checked.total
                    batch.move(Status.IN_PROGRESS)
                await self._answer(batch, file)
        except Exception:
            _logger.exception("%s failed", batch.id)
            batch.errors = (BatchLineError("the server failed; its log says why", code="server_error"),)
            batch.move(Status.FAILED)

    def _check(self, file: BinaryIO) -> Checked:
        checked = check_lines(file, ENDPOINT, MAX_REQUESTS, self._pool.name)
        file.seek(0)
        return checked

    async def _answer(self, batch: Batch, file: BinaryIO) -> None:
        """Answer the requests of a batch, and add its output files."""
        output, errors = self._files.new_path(), self._files.new_path()
        with output.open("xb") as output_file, errors.open("xb") as error_file:
            await self._write(batch, file, output_file, error_file)
        batch.output_file_id = self._add(output, f"{batch.id}_output.jsonl")
        batch.error_file_id = self._add(errors, f"{batch.id}_error.jsonl")
        batch.move(Status.CANCELLED if batch.status is Status.CANCELLING else Status.COMPLETED)

    async def _write(self, batch: Batch, file: BinaryIO, output: BinaryIO, errors: BinaryIO) -> None:
        """Write the answers to the requests of a batch until it is done or cancelled."""
        await self._write_answers(batch, read_lines(file), output, errors)
        if batch.status is Status.IN_PROGRESS:
            batch.move(Status.FINALIZING)

    async def _write_answers(
        self, batch: Batch, lines: Iterable[BatchLine], output: BinaryIO, errors: BinaryIO
    ) -> None:
        async def ask(line: BatchLine) -> None:
            async with self._slots:
                answered = await self._ask(batch, line) if batch.status is Status.IN_PROGRESS else None
            if answered is not None:
                (errors if answered.failed else output).write(result_line(line.custom_id, answered))
                batch.count(answered)

        async with aclosing(in_order(lines, ask)) as asked:
            async for _ in asked:
                pass  # lines are written as soon as they are answered, in no particular order

    async def _ask(self, batch: Batch, line: BatchLine) -> Answer:
        started, notes = time.perf_counter(), dict[str, Any]()
        answered = await answer(self._pool, line.body, notes)
        seconds = round(time.perf_counter() - started, 4)
        fields = {"batch": batch.id, "custom_id": line.custom_id, **notes}
        self._log.write(method=line.method, path=line.url, status=answered.status, seconds=seconds, **fields)
        return answered

    def _add(self, path: Path, name: str) -> str | None:
        """Add a complete output file and return its id; remove it and return None if it is empty."""
        if path.stat().st_size:
            return self._files.add(path, name, "batch_output").id
        path.unlink()
        return None
